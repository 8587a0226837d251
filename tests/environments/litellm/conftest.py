"""LiteLLM as a host has it: imported, and its functions bound, before anything is instrumented."""

from __future__ import annotations

from collections.abc import Iterator

import litellm
import pytest

from tests.support.announced import Announced, observed

litellm.suppress_debug_info = True


@pytest.fixture
def seen() -> Iterator[Announced]:
    """What was announced."""
    with observed() as announced:
        yield announced
