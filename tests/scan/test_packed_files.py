"""Converted files: in UTF-16, as one list, packed, or on standard input."""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import sqlite3
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from endturn.scan import read_file, scan, text_of
from tests.scan.cases import HERE, figures

SESSION = next((HERE / "claude_code" / "four-cuts-then-gave-up").rglob("*.jsonl"))
PI = next((HERE / "pi" / "cut-tool-call-was-run").rglob("*.jsonl"))
BATCH = next((HERE / "anthropic_batch").glob("*.jsonl"))
EVALUATION = next((HERE / "inspect_ai").rglob("*.eval"))


def as_list(lines: bytes, indent: int | None = None) -> bytes:
    return json.dumps([json.loads(line) for line in lines.splitlines()], indent=indent).encode()


def answers(path: Path) -> list[str]:
    return [text_of(ended.past, call) for ended in scan([path]).turns for call in ended.past.calls]


ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    "utf-8 with a mark": lambda data: codecs.BOM_UTF8 + data,
    "utf-16": lambda data: codecs.BOM_UTF16_LE + data.decode().encode("utf-16-le"),
    "utf-16, big-endian": lambda data: codecs.BOM_UTF16_BE + data.decode().encode("utf-16-be"),
    "utf-16 without a mark": lambda data: data.decode().encode("utf-16-le"),
    "lines that end as on Windows": lambda data: data.replace(b"\n", b"\r\n"),
    "a list": as_list,
    "a list over several lines": lambda data: as_list(data, indent=2),
    "a list with a mark": lambda data: codecs.BOM_UTF8 + as_list(data),
}


@pytest.mark.parametrize("source", [SESSION, PI, BATCH], ids=lambda path: path.parent.name)
@pytest.mark.parametrize("name", ENCODINGS)
def test_a_session_reads_the_same_in_another_encoding_or_as_a_list(name: str, source: Path, tmp_path: Path) -> None:
    path = tmp_path / "session"
    path.write_bytes(ENCODINGS[name](source.read_bytes()))
    assert figures(scan([path])) == figures(scan([source]))
    assert answers(path) == answers(source)
    assert any(answers(path))


def test_a_list_that_is_longer_than_its_beginning_is_recognised_too(tmp_path: Path) -> None:
    (tmp_path / "long").write_bytes(as_list(SESSION.read_bytes() + b'{"x": "' + b"y" * 3_000_000 + b'"}\n'))
    (result,) = read_file(tmp_path / "long")
    assert (result.source, len(result.turns[0].calls), result.damage.problem) == ("claude_code", 4, "")


@pytest.mark.parametrize("size", [0.3, 0.9])
def test_a_truncated_list_is_reported_as_damaged(size: float, tmp_path: Path) -> None:
    for name, data in {"known": as_list(SESSION.read_bytes()), "unknown": b'[{"a": 1}, {"b": 2}, {"c": "x"}]'}.items():
        (tmp_path / name).write_bytes(data[: int(len(data) * size)])
    files = scan([tmp_path]).as_json()["files"]
    assert sorted(Path(name).name for name in files["damaged"]) == ["known", "unknown"]
    assert (files["unknown"], files["complete"]) == ([], False)


@pytest.mark.parametrize(
    "data", [b"[2026-11-30 08:00] started\n", b"[1, 2]", b'["a", {"b": 1}]', b"{{ a template }}", b"[section]\n{x"]
)
def test_a_file_that_only_begins_like_json_is_unknown_and_not_damaged(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    files = scan([tmp_path]).as_json()["files"]
    assert (files["unknown"], files["damaged"]) == ([str(tmp_path / "file")], {})


def zipped(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def scan_input(data: bytes, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    return figures(scan([Path("-")]))


def test_archives_come_on_standard_input_too(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = figures(scan([SESSION]))
    assert scan_input(zipped(one=SESSION.read_bytes()), monkeypatch) == expected
    assert scan_input(gzip.compress(zipped(one=SESSION.read_bytes())), monkeypatch) == expected
    assert scan_input(EVALUATION.read_bytes(), monkeypatch) == figures(scan([EVALUATION]))


def test_a_database_is_read_from_an_archive_and_from_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "opencode.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.executescript(
        "CREATE TABLE session(id, directory); CREATE TABLE message(id, session_id, time_created, data);"
        "CREATE TABLE part(id, message_id, data);"
    )
    message = {"role": "assistant", "parentID": "u", "finish": "length", "modelID": "m", "time": {"created": 1}}
    connection.execute("INSERT INTO message VALUES ('a', 's', 1, ?)", [json.dumps(message)])
    connection.commit()
    connection.close()
    data = path.read_bytes()
    expected = {
        "responses": {"max_tokens": 1}, "evidence": {"recorded": 1}, "limits": [None], "output_tokens": [None],
        "damaged": 1,  # a log may exist where it was written
    }  # fmt: skip
    assert scan_input(data, monkeypatch) == expected
    assert scan_input(zipped(database=data), monkeypatch) == expected
    (tmp_path / "opencode.db.gz").write_bytes(gzip.compress(data))
    assert figures(scan([tmp_path / "opencode.db.gz"])) == expected


def test_an_archive_within_an_archive_is_named_and_an_evaluation_within_one_read(tmp_path: Path) -> None:
    inner = zipped(one=SESSION.read_bytes())
    (tmp_path / "both.zip").write_bytes(zipped(inner=inner, evaluation=EVALUATION.read_bytes()))
    found = scan([tmp_path]).as_json()
    assert found["files"]["unreadable"] == {
        f"{tmp_path / 'both.zip'}!inner": "it is an archive within an archive: unpack it"
    }
    assert found["total"]["responses"] == scan([EVALUATION]).as_json()["total"]["responses"]


def tarred(data: bytes, format: int) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=format) as archive:
        member = tarfile.TarInfo("session.jsonl")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


DATA = SESSION.read_bytes()
UNSUPPORTED = {
    "tar": (tarred(DATA, tarfile.GNU_FORMAT), "it is a tar archive: unpack it"),
    "tar, pax": (tarred(DATA, tarfile.PAX_FORMAT), "it is a tar archive: unpack it"),
    "tar.gz": (gzip.compress(tarred(DATA, tarfile.USTAR_FORMAT)), "it is a tar archive: unpack it"),
    "gz.gz": (gzip.compress(gzip.compress(DATA)), "it is compressed twice: unpack it"),
    "xz.gz": (gzip.compress(lzma.compress(DATA)), "it is compressed twice: unpack it"),
    "UTF-32": (DATA.decode().encode("utf-32"), "it is in UTF-32: convert it to UTF-8"),
    "UTF-32 without a mark": (DATA.decode().encode("utf-32-le"), "it is in UTF-32: convert it to UTF-8"),
    "UTF-32, big-endian": (DATA.decode().encode("utf-32-be"), "it is in UTF-32: convert it to UTF-8"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
@pytest.mark.parametrize("forced", [None, "claude_code"])
def test_files_without_a_source_are_reported_with_a_remedy(name: str, forced: str | None, tmp_path: Path) -> None:
    data, problem = UNSUPPORTED[name]
    (tmp_path / "file").write_bytes(data)
    (tmp_path / "files.zip").write_bytes(zipped(member=data))
    files = scan([tmp_path], format_=forced).as_json()["files"]
    assert files["unreadable"] == {
        str(tmp_path / "file"): problem, f"{tmp_path / 'files.zip'}!member": problem,
    }  # fmt: skip
    assert (files["complete"], files["damaged"], files["unknown"]) == (False, {}, [])


def offset_of(data: bytes, member: str) -> int:
    """The place of a member's compressed bytes in a zip file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.getinfo(member).header_offset
    lengths = (int.from_bytes(data[start + at : start + at + 2], "little") for at in (26, 28))
    return start + 30 + sum(lengths)


def flipped(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_loses_only_itself(method: int, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        for name in ("a", "b", "c"):
            archive.writestr(name, SESSION.read_bytes())
    data = stream.getvalue()
    start = offset_of(data, "b")
    for place in (start + 9, start + 30, start + 60):
        (tmp_path / "sessions.zip").write_bytes(flipped(data, place))
        (tmp_path / "other.jsonl").write_bytes(PI.read_bytes())
        found = scan([tmp_path])
        damaged = found.as_json()["files"]["damaged"]
        assert list(damaged) == [str(tmp_path / "sessions.zip")]
        assert damaged[str(tmp_path / "sessions.zip")].startswith("'b' is damaged: ")
        assert [Path(result.name).name for result in found.results if result.turns] == [
            "other.jsonl", "sessions.zip!a", "sessions.zip!c",
        ]  # fmt: skip


def test_encrypted_members_and_those_of_unknown_methods_are_named(tmp_path: Path) -> None:
    data = bytearray(zipped(a=SESSION.read_bytes(), b=SESSION.read_bytes(), c=SESSION.read_bytes()))
    entries = [at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02"]
    data[entries[0] + 8] |= 1  # as if it were encrypted
    data[entries[1] + 10] = 97  # WavPack
    (tmp_path / "sessions.zip").write_bytes(data)
    found = scan([tmp_path])
    assert found.as_json()["files"]["damaged"] == {
        str(tmp_path / "sessions.zip"): "'a' is encrypted: unpack it; 'b' is damaged: That compression method is not"
        " supported"
    }
    assert [Path(result.name).name for result in found.results if result.turns] == ["sessions.zip!c"]


def test_damaged_json_and_a_damaged_member_of_an_evaluation_are_both_named(tmp_path: Path) -> None:
    start = json.dumps({"version": 2, "eval": {"run_id": "r", "task": "t"}}).encode()
    members = {"_journal/start.json": start, "samples/a.json": b'{"id": 1, half', "samples/b.json": b"{}"}
    data = bytearray(zipped(**members))
    entries = [at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02"]
    data[entries[2] + 8] |= 1  # as if it were encrypted
    (tmp_path / "log.eval").write_bytes(data)
    (problem,) = scan([tmp_path]).as_json()["files"]["damaged"].values()
    assert problem == "'samples/a.json' is damaged JSON; 'samples/b.json' is encrypted: unpack it"


def test_many_damaged_members_are_counted(tmp_path: Path) -> None:
    data = bytearray(zipped(**{f"m{number}": b"{}" for number in range(25)}))
    for at in range(len(data)):
        if data[at : at + 4] == b"PK\x01\x02":
            data[at + 8] |= 1
    (tmp_path / "sessions.zip").write_bytes(data)
    (problem,) = scan([tmp_path]).as_json()["files"]["damaged"].values()
    assert problem.count("is encrypted") == 20
    assert problem.endswith("; and 5 more members")


def test_a_flipped_byte_of_an_evaluation_loses_at_most_one_sample_and_is_reported(tmp_path: Path) -> None:
    data = EVALUATION.read_bytes()
    with zipfile.ZipFile(EVALUATION) as archive:
        samples = [name for name in archive.namelist() if name.startswith("samples/")]
    assert len(samples) == 2
    path = tmp_path / "flipped.eval"
    for sample in samples:
        start = offset_of(data, sample)
        for place in range(start, start + 200, 13):
            path.write_bytes(flipped(data, place))
            found = scan([path])
            (problem,) = found.as_json()["files"]["damaged"].values()
            assert (sample in problem, len(found.turns)) == (True, 1)
    for place in range(4, len(data), 17):  # wherever it is, also in the directory
        path.write_bytes(flipped(data, place))
        scan([path])
