"""Every recorded reply and request matches its file: whole, truncated anywhere, delta by delta."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.replies.record import EXPECTED, HERE, changes, main, of_file, read_file, reply_files, request_files

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
    content = read_file(path)
    now = of_file(path, content)
    for part in EXPECTED:
        check(path, {part: content.get(part)}, {part: now.get(part)})


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("path", request_files(), ids=named)
def test_requests_and_error_answers_match_their_files(path: Path) -> None:
    """Bodies, summaries, routes, continuations and exceptions."""
    content = read_file(path)
    check(path, content, of_file(path, content))


REPLY = {"source": "a test", "body": {"choices": []}}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        pytest.param(
            "openai_chat/new.json",
            {**REPLY, "dialct": "groq"},
            ": unknown member 'dialct': did you mean 'dialect'?",
            id="an unknown member",
        ),
        pytest.param(
            "openai_chat/new.json",
            {**REPLY, "dialect": "gorq"},
            ": openai_chat has no dialect 'gorq'; it has: compatible, azure, ",
            id="an unknown dialect",
        ),
        pytest.param(
            "openai_chat/new.json", {"source": "a test"}, ": must have either a body or events", id="no body or events"
        ),
        pytest.param(
            "openai_chat/new.json", {**REPLY, "events": []}, ": must have either a body or events", id="body and events"
        ),
        pytest.param("openai_chat/new.json", [REPLY], ": must be an object with a body or events", id="a list"),
        pytest.param("geminy/new.json", REPLY, ": 'geminy' is not a format: put it in a folder of ", id="a format"),
        pytest.param(
            "openai_chat/requests/bodies.json", [], ": 'bodies' is no kind of requests; the kinds are: ", id="a kind"
        ),
        pytest.param("openai_chat/requests/body.json", {}, ": must be a list of objects", id="an object"),
        pytest.param(
            "openai_chat/new.json",
            '{"source": "a test",\n "body": }',
            ":2: invalid JSON: Expecting value (column 10)",
            id="invalid JSON",
        ),
        pytest.param("openai_chat/new.json", None, ": there is no such file", id="no file"),
    ],
)
def test_recording_rejects_a_wrong_file_by_its_name(tmp_path: Path, name: str, content: Any, message: str) -> None:
    """One line, and the file stays as it is."""
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    before = content if isinstance(content, str) else json.dumps(content)
    if content is not None:
        path.write_text(before)
    with pytest.raises(SystemExit) as left:
        main([str(path)])
    assert str(left.value).startswith(f"{path.resolve()}{message}")
    assert "\n" not in str(left.value)
    assert content is None or path.read_text() == before
