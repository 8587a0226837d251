"""Every recorded turn matches its file: whole and in pieces, plain and async."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.formats.test_replies import check
from tests.turns.record import files, of_case


def cases(path: Path) -> list[Any]:
    """Return the cases of a file, marked with the behaviours that they show."""
    return [
        pytest.param(path, case, id=f"{path.stem}: {case['name']}"[:90], marks=[*map(pytest.mark.behaviour, shows)])
        for case in json.loads(path.read_text())
        for shows in [case.get("behaviours", [])]
    ]


@pytest.mark.parametrize(("path", "case"), [each for path in files() for each in cases(path)])
async def test_a_turn_matches_its_recorded_file(path: Path, case: dict[str, Any]) -> None:
    """Requests, tool runs, announced records and the outcome match."""
    as_it_is = case.get("whole") or any("deltas" in each for each in case["script"])
    for chunk, asynchronous in ((None, False), (None, True)) if as_it_is else ((None, False), (1, True), (3, False)):
        found = await of_case(case, chunk=chunk, asynchronous=asynchronous)
        check(path, case["expected"], found)
