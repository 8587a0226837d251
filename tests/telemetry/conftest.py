"""What the telemetry tests share: calls as they are announced, and a recorder on its stage."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from endturn import hooks
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.telemetry import cleanup
from tests.telemetry.mocked import Records
from tests.telemetry.stage import Stage


@pytest.fixture
def records() -> Iterator[Records]:
    """Everything that is announced while the SDKs are instrumented."""
    found = Records()
    stop = hooks.subscribe(found.append)
    instrument()
    try:
        yield found
    finally:
        uninstrument()
        cleanup.run()
        stop()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A recorder over providers of its own, told by hand."""
    monkeypatch.setattr(hooks, "_failed", {})
    with hooks.strict():
        yield Stage()
