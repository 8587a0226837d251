"""Every reply and request on file is read as its file says: whole, at every cut, delta by delta."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.replies.record import EXPECTED, HERE, of_file, reply_files, request_files

MOST = 6
"""How many differences of a file are told: of a stream, those of later cuts follow from the first."""


def differences(want: Any, got: Any, at: str = "") -> Iterator[str]:
    """Each member that is not as it should be, by where it stands in the file."""
    if isinstance(want, dict) and isinstance(got, dict):
        for name in {**want, **got}:
            yield from differences(want.get(name, "nothing"), got.get(name, "nothing"), f"{at}/{name}")
    elif isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        for number, (one, other) in enumerate(zip(want, got, strict=True)):
            yield from differences(one, other, f"{at}/{number}")
    elif want != got:
        yield f"{at}\n  want {json.dumps(want)}\n  got  {json.dumps(got)}"


def check(path: Path, want: Any, got: Any) -> None:
    """Fail with what differs."""
    found = list(differences(want, got))
    if found:
        told = "\n".join(found[:MOST])
        where = f"tests/{path.relative_to(HERE.parent)}"
        pytest.fail(f"{where} expects something else in {len(found)} places:\n{told}", pytrace=False)


def named(path: Path) -> str:
    """A file's name within the folder of files."""
    return str(path.relative_to(HERE).with_suffix(""))


@pytest.mark.behaviour(3, 5, 6, 7, 9, 10, 11)
@pytest.mark.parametrize("path", reply_files(), ids=named)
def test_a_reply_is_read_as_its_file_says(path: Path) -> None:
    """What client and telemetry make of it, whole and after each event, and each event's deltas."""
    content = json.loads(path.read_text())
    now = of_file(path, content)
    for part in EXPECTED:
        check(path, {part: content.get(part)}, {part: now.get(part)})


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("path", request_files(), ids=named)
def test_requests_and_error_answers_are_what_their_file_says(path: Path) -> None:
    """Bodies, summaries, routes, continuations and exceptions."""
    content = json.loads(path.read_text())
    check(path, content, of_file(path, content))
