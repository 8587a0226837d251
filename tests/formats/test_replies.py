"""Every recorded reply and request matches its file: whole, truncated anywhere, delta by delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.replies.record import EXPECTED, HERE, changes, of_file, reply_files, request_files

MOST = 6
"""How many differences of a file are told: of a stream, those of later cuts follow from the first."""


def check(path: Path, want: Any, got: Any) -> None:
    """Fail with the differences from the file: + marks additional values, - missing ones."""
    found = [f"{at}: {json.dumps(value)}" for at, value in changes(want, got)]
    if found:
        told = "\n".join(found[:MOST])
        where = f"tests/{path.relative_to(HERE.parent)}"
        pytest.fail(f"{where} expects something else in {len(found)} places; what is there now:\n{told}", pytrace=False)


def named(path: Path) -> str:
    """A file's name within the folder of files."""
    return str(path.relative_to(HERE).with_suffix(""))


@pytest.mark.behaviour(3, 5, 6, 7, 9, 10, 11)
@pytest.mark.parametrize("path", reply_files(), ids=named)
def test_a_reply_matches_its_recorded_file(path: Path) -> None:
    """Readings of client and telemetry, whole and after each event, and each event's deltas."""
    content = json.loads(path.read_text())
    now = of_file(path, content)
    for part in EXPECTED:
        check(path, {part: content.get(part)}, {part: now.get(part)})


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("path", request_files(), ids=named)
def test_requests_and_error_answers_match_their_files(path: Path) -> None:
    """Bodies, summaries, routes, continuations and exceptions."""
    content = json.loads(path.read_text())
    check(path, content, of_file(path, content))
