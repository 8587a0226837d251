"""Several processes read the same as one."""

from __future__ import annotations

import signal
import sys

import pytest

from endturn.calls import CallStarted
from endturn.scan import Summary, scan
from endturn.scan.workers import _interrupts_later
from tests.scan.cases import HERE, files


def test_several_processes_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [path for path in files(HERE) if path.suffix == ".jsonl"]
    expected = scan(paths).as_json()
    monkeypatch.setattr("endturn.scan.workers.WORTH_BYTES", 0)
    found = scan(paths, processes=2)
    assert isinstance(found, Summary)
    assert found.as_json() == expected
    records = [record for ended in found.turns for record in ended.records]
    numbers = [record.number for record in records if isinstance(record, CallStarted)]
    assert len(numbers) == len(set(numbers))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals to hold back")
def test_an_interrupt_waits_until_the_processes_are_started() -> None:
    reached = []

    def start() -> None:
        with _interrupts_later():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert reached
