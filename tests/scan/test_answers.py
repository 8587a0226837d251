"""The text of a message is read again only from the scanned record."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

from endturn.scan import CHANGED, question_of, scan, text_of

ABOUT = {"sessionId": "s1", "parentUuid": None, "version": "2.1.332"}


def user(identity: str, words: str) -> dict[str, Any]:
    return ABOUT | {"type": "user", "uuid": identity, "message": {"role": "user", "content": words}}


def answer(identity: str, words: str) -> dict[str, Any]:
    message = {"id": identity, "model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": words}]}
    return ABOUT | {"type": "assistant", "uuid": f"line {identity}", "message": message}


def lines(*records: dict[str, Any]) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


SESSION = lines(user("u1", "first words"), answer("m1", "first answer"))


def texts(path: Path, later: bytes) -> tuple[str, str]:
    """Return the texts of the only turn, after the file was changed."""
    (ended,) = scan([path]).turns
    path.write_bytes(later)
    os.utime(path, ns=(1, 1))
    return question_of(ended.past), text_of(ended.past, ended.past.calls[0])


def test_a_session_in_progress_still_has_its_texts(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(SESSION)
    later = SESSION + lines(user("u2", "more"), answer("m2", "other words"))
    assert texts(path, later) == ("first words", "first answer")


def test_another_record_in_the_same_place_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(SESSION)
    later = lines(user("u9", "other words"), answer("m9", "other words!"))
    assert len(later) == len(SESSION)
    assert texts(path, later) == (CHANGED, CHANGED)


def test_a_shorter_file_is_a_changed_one(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(SESSION)
    assert texts(path, lines(user("u9", "x"))) == (CHANGED, CHANGED)


def test_a_packed_file_that_was_written_again_is_a_changed_one(tmp_path: Path) -> None:
    path = tmp_path / "session.gz"
    path.write_bytes(gzip.compress(SESSION))
    (ended,) = scan([path]).turns
    assert question_of(ended.past) == "first words"
    assert texts(path, gzip.compress(SESSION)) == (CHANGED, CHANGED)


def test_the_text_of_a_copied_call_is_read_from_its_own_file(tmp_path: Path) -> None:
    """A fork repeats the turn, and continues it."""
    (tmp_path / "original").write_bytes(SESSION)
    fork = [record | {"requestSessionId": "s0"} for record in (user("u1", "first words"), answer("m1", "first answer"))]
    (tmp_path / "fork").write_bytes(lines(*fork, answer("m2", "second answer")))
    (ended,) = scan([tmp_path]).turns
    assert [text_of(ended.past, call) for call in ended.past.calls] == ["first answer", "second answer"]


def test_a_deleted_file_has_no_text(tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(SESSION)
    (ended,) = scan([path]).turns
    path.unlink()
    assert (question_of(ended.past), text_of(ended.past, ended.past.calls[0])) == ("", "")
