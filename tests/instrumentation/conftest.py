"""What the tests of instrumentation share."""

from __future__ import annotations

import gc
import ssl
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True, scope="module")
def _sdks_are_no_garbage() -> Iterator[None]:
    """The tests collect garbage often, and the SDKs' modules are most of what would be looked at each time."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every client of an SDK reads the certificates of all authorities, which takes most of a test's time."""

    def nothing(self: ssl.SSLContext, *args: Any, **kwargs: Any) -> None: ...

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", nothing)
