"""What the telemetry tests share: calls as they are announced, and a recorder on its stage."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from endturn.calls import listeners
from endturn.instrumentation._instrument import instrument, uninstrument
from endturn.telemetry import cleanup
from tests.support.announced import Records, observed
from tests.telemetry.stage import Recording, Stage


@pytest.fixture
def records() -> Iterator[Records]:
    """Everything that is announced while the SDKs are instrumented."""
    with observed() as found:
        yield found


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Instruments, with these options: what a host's calls come to is on the stage that it gives."""
    monkeypatch.setattr(listeners, "_failure_counts", {})

    def begin(**options: Any) -> Stage:
        made = Stage()
        instrument(**made.providers(), **options)
        return made

    yield begin
    uninstrument()
    cleanup.run()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """A recorder over providers of its own, told by hand."""
    monkeypatch.setattr(listeners, "_failure_counts", {})
    with listeners.strict():
        yield Stage()
