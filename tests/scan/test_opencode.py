"""The database of opencode: read completely with its write-ahead log, and never changed."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from endturn.scan import read_file, scan, text_of
from tests.scan.cases import HERE, figures

ROWS = HERE / "opencode" / "four-turns" / "rows.jsonl"
COLUMNS = {
    "session": ("id", "parent_id", "directory", "version"),
    "message": ("id", "session_id", "time_created", "data"),
    "part": ("id", "message_id", "data"),
}


@contextmanager
def database(path: Path, *, last_in_wal: int = 0) -> Iterator[Path]:
    """Create a database of the rows; this many of the last messages are only in its write-ahead log."""
    rows = [json.loads(line) for line in ROWS.read_text(encoding="utf-8").splitlines()]
    messages = [row["id"] for row in rows if row["table"] == "message"]
    late = set(messages[len(messages) - last_in_wal :])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        for table, columns in COLUMNS.items():
            connection.execute(f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY (id))")
        for is_late in (False, True):
            for row in rows:
                columns = COLUMNS[row["table"]]
                if (row["id"] in late) is is_late:
                    marks = ", ".join("?" * len(columns))
                    query = f"INSERT INTO {row['table']} VALUES ({marks})"
                    connection.execute(query, [row[column] for column in columns])
            connection.commit()
            if not is_late:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        yield path  # open, as of a tool that is running


def listing(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}


@pytest.mark.parametrize("last_in_wal", [0, 3])
def test_a_database_reads_the_same_as_its_rows(tmp_path: Path, last_in_wal: int) -> None:
    with database(tmp_path / "any-name", last_in_wal=last_in_wal) as path:
        before = listing(tmp_path)
        assert f"{path.name}-wal" in before
        found = figures(scan([path]))
        assert listing(tmp_path) == before
    assert found == figures(scan([ROWS]))


def test_the_log_next_to_the_target_of_a_link_is_read(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with database(tmp_path / "home" / "opencode.db", last_in_wal=3) as path:
        (tmp_path / "link.db").symlink_to(path)
        before = listing(tmp_path / "home")
        assert figures(scan([tmp_path / "link.db"])) == figures(scan([ROWS]))
        assert listing(tmp_path / "home") == before


def test_a_packed_database_without_its_log_is_reported_and_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with database(tmp_path / "opencode.db", last_in_wal=3) as path:
        data = path.read_bytes()
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / "opencode.db.gz").write_bytes(gzip.compress(data))
    with zipfile.ZipFile(packed / "sessions.zip", "w") as archive:
        archive.writestr("opencode.db", data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    found = scan([packed, Path("-")]).as_json()
    assert (found["certain"], found["files"]["complete"], found["files"]["read"]) == (False, False, 3)
    assert {Path(name).name for name in found["files"]["damaged"]} == {
        "opencode.db.gz", "sessions.zip!opencode.db", "standard input",
    }  # fmt: skip
    assert all("write-ahead log is not at hand" in problem for problem in found["files"]["damaged"].values())


def test_a_packed_database_without_a_log_is_certain(tmp_path: Path) -> None:
    with database(tmp_path / "opencode.db") as path, closing(sqlite3.connect(":memory:")) as copy:
        with closing(sqlite3.connect(path)) as source:
            source.backup(copy)
        copy.execute("PRAGMA journal_mode = delete")
        copy.execute(f"VACUUM INTO '{tmp_path / 'plain.db'}'")
    (tmp_path / "packed.db.gz").write_bytes(gzip.compress((tmp_path / "plain.db").read_bytes()))
    found = scan([tmp_path / "packed.db.gz"])
    assert found.as_json()["certain"]
    assert figures(found) == figures(scan([ROWS]))


@pytest.mark.parametrize("last_in_wal", [0, 3])
def test_a_copied_folder_of_a_killed_tool_is_unchanged(tmp_path: Path, last_in_wal: int) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    with database(tmp_path / "opencode.db", last_in_wal=last_in_wal) as path:
        shutil.copy(path, folder)
        if last_in_wal:
            shutil.copy(f"{path}-wal", folder)
    before = listing(folder)
    found = scan([folder])
    assert listing(folder) == before
    assert figures(found)["turns"] == 4
    assert [result.source for result in found.results if result.source] == ["opencode"]
    assert found.as_json()["files"]["unknown"] == []


def test_a_damaged_database_is_named(tmp_path: Path) -> None:
    with database(tmp_path / "opencode.db") as path:
        data = path.read_bytes()
    (tmp_path / "opencode.db").write_bytes(data[: len(data) // 2])
    (tmp_path / "opencode.db-wal").unlink(missing_ok=True)
    (tmp_path / "opencode.db-shm").unlink(missing_ok=True)
    (result,) = read_file(tmp_path / "opencode.db")
    assert "damaged" in result.damage.problem


def storage(folder: Path) -> Path:
    """The folder of files that versions before 1.2 wrote, with the content of the rows."""
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        match row["table"]:
            case "session":
                path = folder / "session" / "global" / f"{row['id']}.json"
                content = {"id": row["id"], "projectID": "global", "directory": row["directory"], "version": "1.0.9"}
            case "message":
                path = folder / "message" / row["session_id"] / f"{row['id']}.json"
                content = json.loads(row["data"]) | {"id": row["id"], "sessionID": row["session_id"]}
            case _:
                path = folder / "part" / row["message_id"] / f"{row['id']}.json"
                content = json.loads(row["data"]) | {"id": row["id"], "messageID": row["message_id"]}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2), encoding="utf-8")
    return folder


def test_files_of_early_versions_read_the_same_and_are_copies_of_the_database(tmp_path: Path) -> None:
    files = storage(tmp_path / "storage")
    found = scan([files])
    assert figures(found) == figures(scan([ROWS]))
    assert found.as_json()["files"]["unknown"] == []
    for order in ([files, ROWS], [ROWS, files]):
        both = scan(order)
        assert both.copies == 6
        assert figures(both) == figures(found)


def test_a_damaged_message_file_is_reported_and_loses_only_itself(tmp_path: Path) -> None:
    files = storage(tmp_path / "storage")
    message = next((files / "message").glob("*/*.json"))
    message.write_text(message.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    found = scan([files])
    assert any(message.name in problem for problem in found.as_json()["files"]["damaged"].values())
    assert len(found.turns) >= 3


@pytest.mark.parametrize("is_going_on", [False, True])
def test_a_message_without_a_reason_has_that_of_its_last_step(is_going_on: bool, tmp_path: Path) -> None:
    def row(table: str, identity: str, **data: object) -> str:
        return json.dumps({"table": table, "id": identity, "message_id": "m2", "data": data}) + "\n"

    steps = [{"type": "step-start"}, {"type": "step-finish", "reason": "length"}, {"type": "step-start"}]
    lines = [row("message", "m1", role="user"), row("message", "m2", role="assistant", parentID="m1")]
    lines += [row("part", f"p{place}", **step) for place, step in enumerate(steps[: 2 + is_going_on])]
    (tmp_path / "rows").write_text("".join(lines), encoding="utf-8")
    expected = {"not recorded": 1} if is_going_on else {"max_tokens": 1}
    assert figures(scan([tmp_path]))["responses"] == expected


# --- What answers say, when the page asks for it ----------------------------------------------------------------------

ANSWERS = ["half an answer", "", "done", "half ", "second", ""]


def answers(path: Path) -> list[str]:
    return [text_of(ended.past, call) for ended in scan([path]).turns for call in ended.past.calls]


def as_files(folder: Path) -> Path:
    """The storage of early versions."""
    for line in ROWS.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        data = json.loads(row["data"]) if "data" in row else {"directory": row["directory"], "projectID": "p"}
        places = {
            "session": ("session", "p"),
            "message": ("message", row.get("session_id")),
            "part": ("part", row.get("message_id")),
        }[row["table"]]
        owners = {"message": {"sessionID": places[1]}, "part": {"messageID": places[1]}}.get(row["table"], {})
        path = folder.joinpath(*places, f"{row['id']}.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"id": row["id"], **data, **owners}), encoding="utf-8")
    return folder


def test_answers_are_read_again_from_a_database_its_rows_and_files(tmp_path: Path) -> None:
    expected = answers(ROWS)
    assert expected == ANSWERS
    with database(tmp_path / "database", last_in_wal=3) as path:
        before = listing(tmp_path)
        assert answers(path) == expected
        assert listing(tmp_path) == before
    assert answers(as_files(tmp_path / "storage")) == expected
