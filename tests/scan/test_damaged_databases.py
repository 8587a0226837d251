"""A damaged page of a database loses only its rows, and the file is reported."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from endturn.scan import scan

MESSAGES = 400
PAGE = 1024
PADDING = "x" * 100


def opencode(connection: sqlite3.Connection) -> None:
    connection.executescript(
        "CREATE TABLE session(id TEXT PRIMARY KEY, directory);"
        "CREATE TABLE message(id TEXT PRIMARY KEY, session_id, time_created, data);"
        "CREATE TABLE part(id TEXT PRIMARY KEY, message_id, data);"
        "CREATE INDEX message_of_session ON message(session_id, time_created, id);"
        "INSERT INTO session VALUES ('s', '/project');"
    )
    for number in range(MESSAGES):
        data = {"role": "assistant", "parentID": f"u{number}", "finish": "stop", "padding": PADDING}
        row = (f"msg_{number:04}", "s", 1_795_866_141_000 + number, json.dumps(data))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", row)


def hermes(connection: sqlite3.Connection) -> None:
    connection.executescript(
        "CREATE TABLE sessions(id TEXT PRIMARY KEY); CREATE TABLE schema_version(version);"
        "CREATE TABLE state_meta(key); INSERT INTO sessions VALUES ('s');"
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, session_id, role, content, finish_reason, timestamp);"
        "CREATE INDEX messages_of_session ON messages(session_id, timestamp);"
    )
    for number in range(MESSAGES // 2):
        for role, reason in (("user", None), ("assistant", "stop")):
            row = ("s", role, f"msg_{2 * number:04} {PADDING}", reason, 1_795_866_141.0 + number)
            connection.execute(
                "INSERT INTO messages(session_id, role, content, finish_reason, timestamp) VALUES (?, ?, ?, ?, ?)", row
            )


@pytest.mark.parametrize(("fill", "turns"), [(opencode, MESSAGES), (hermes, MESSAGES // 2)])
@pytest.mark.parametrize("place", ["msg_0000", "msg_0200", "msg_0398"])
def test_a_damaged_page_loses_only_its_turns(
    fill: Callable[[sqlite3.Connection], None], turns: int, place: str, tmp_path: Path
) -> None:
    path = tmp_path / "state.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE}")
        fill(connection)
        connection.commit()
    assert len(scan([path]).turns) == turns
    data = bytearray(path.read_bytes())
    start = data.index(f"{place}".encode() if fill is hermes else f'"u{int(place[4:])}"'.encode()) // PAGE * PAGE
    data[start : start + PAGE] = b"\xff" * PAGE
    path.write_bytes(data)
    found = scan([path])
    assert turns - 12 <= len(found.turns) < turns
    files = found.as_json()["files"]
    assert (list(files["damaged"]), files["complete"]) == ([str(path)], False)
    assert "malformed" in files["damaged"][str(path)]
    times = [ended.past.calls[0].started_ns or ended.past.calls[0].ended_ns or 0 for ended in found.turns]
    assert times == sorted(times)
