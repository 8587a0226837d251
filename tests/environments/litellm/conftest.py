"""LiteLLM as a host has it: imported, and its functions bound, before anything is instrumented."""

from __future__ import annotations

from collections.abc import Iterator

import litellm
import pytest

from endturn.telemetry import cleanup
from tests.support.announced import Announced, observed

litellm.suppress_debug_info = True


def end_what_is_open() -> None:
    """LiteLLM's synchronous streams of Claude stop before `message_stop`, and their response is kept: it stays open
    until it is garbage, or until observation ends, and is then what was read of it."""
    cleanup.end()


@pytest.fixture
def seen() -> Iterator[Announced]:
    """What was announced."""
    with observed() as announced:
        yield announced
