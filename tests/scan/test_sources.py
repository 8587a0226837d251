"""The results of a scan for each source, and the laws for all of them."""

from __future__ import annotations

import gzip
import json
import lzma
import random
import shutil
import sys
import zipfile
from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from endturn.calls import CallEnded, CallStarted
from endturn.scan import SOURCES, Evidence, FileResult, FileShape, read_file, scan
from endturn.scan.registry import source_named
from endturn.vocabulary import StopReason
from tests.scan.cases import HERE, Case, cases, figures, files

CASES = list(cases())
LINE_FILES = [
    pytest.param(case.source, path, id=f"{case}/{path.name}")
    for case in CASES
    for path in files(case.path)
    if path.suffix == ".jsonl"
]
WHOLE = {StopReason.END_TURN, StopReason.TOOL_CALL}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_scan_matches_a_persons_reading_of_the_files(case: Case) -> None:
    expected = {name: value for name, value in case.expected.items() if name != "source" and value}
    assert figures(scan([case.path])) == expected


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_file_is_recognised_as_its_source(case: Case) -> None:
    results = [result for path in files(case.path) for result in read_file(path)]
    assert {result.source for result in results if not result.is_companion} == {case.source}


def test_every_source_has_cases() -> None:
    assert [source for source in SOURCES if not any(case.source == source for case in CASES)] == []


@pytest.mark.parametrize("source", SOURCES)
def test_every_case_has_an_expectation(source: str) -> None:
    folders = {path.name for path in (HERE / source).iterdir() if path.name not in ("expected.json", "__pycache__")}
    assert folders == {case.name for case in CASES if case.source == source}


# --- Laws -------------------------------------------------------------------------------------------------------------


def states(result: FileResult) -> dict[str, tuple[Evidence, StopReason]]:
    return {call.key: (call.evidence, call.response.stop.reason) for turn in result.turns for call in turn.calls}


def read_data(tmp_path: Path, data: bytes, source: str, name: str = "cut.jsonl") -> FileResult:
    path = tmp_path / name
    path.write_bytes(data)
    (result,) = read_file(path, source)
    return result


def cuts(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield positions around and within each line, with the number of complete lines before each."""
    start = 0
    for line in data.splitlines(keepends=True):
        end = start + len(line)
        yield from ((at, start) for at in {start + 1, start + len(line) // 2, end - 2} if start < at < end - 1)
        yield end - 1, end
        yield end, end
        start = end


@pytest.mark.parametrize(("source", "path"), LINE_FILES)
def test_truncation_loses_at_most_the_last_record_and_finishes_nothing(source: str, path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    full = states(read_data(tmp_path, data, source))
    last: tuple[int, dict[str, tuple[Evidence, StopReason]]] = (0, {})
    for at, whole in cuts(data):
        result = read_data(tmp_path, data[:at], source)
        found = states(result)
        if whole != last[0]:
            last = whole, states(read_data(tmp_path, data[:whole], source))
        assert found == last[1]
        assert result.damage.is_last_line_incomplete == (at not in (whole, whole - 1))
        became_whole = [
            key
            for key, (_, reason) in found.items()
            if reason in WHOLE and (key not in full or full[key][1] not in WHOLE)
        ]
        assert became_whole == []


def test_every_source_of_lines_is_tested_with_truncation() -> None:
    of_lines = {name for name in SOURCES if FileShape.LINES in source_named(name).shapes}
    assert of_lines - {str(parameters.values[0]) for parameters in LINE_FILES} == set()


@pytest.mark.parametrize("source", sorted({str(parameters.values[0]) for parameters in LINE_FILES}))
def test_truncation_at_any_byte_loses_at_most_the_last_record(source: str, tmp_path: Path) -> None:
    """The smallest file of each source is truncated at each byte, or at many of them."""
    data = min((Path(str(path)).read_bytes() for name, path in map(values_of, LINE_FILES) if name == source), key=len)
    expected: dict[int, dict[str, tuple[Evidence, StopReason]]] = {}
    for at in sorted(random.Random(1).sample(range(len(data)), min(len(data), 60))):
        whole = data[:at].rfind(b"\n") + 1
        if whole not in expected:
            expected[whole] = states(read_data(tmp_path, data[:whole], source))
        result = read_data(tmp_path, data[:at], source)
        is_whole = data[at : at + 1] == b"\n"  # a record needs no end of its line
        if not is_whole:
            assert states(result) == expected[whole]
            assert result.damage.is_last_line_incomplete == (at > whole)


def values_of(parameters: ParameterSet) -> tuple[str, Path]:
    source, path = parameters.values
    return str(source), Path(str(path))


def broken(value: Any, chance: random.Random) -> Any:
    """JSON in which a few members are missing, or of another type."""
    if chance.random() < 0.03:
        return chance.choice([None, True, -1, 1.5, 10**30, "", "word", [], [None, {}, "x"], {}, {"type": 1}])
    match value:
        case dict():
            return {key: broken(inner, chance) for key, inner in value.items() if chance.random() > 0.02}
        case list():
            return [broken(inner, chance) for inner in value]
    return value


@pytest.mark.parametrize(("source", "path"), LINE_FILES)
def test_no_missing_or_mistyped_member_stops_a_source(source: str, path: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for seed in range(40):
        chance = random.Random(seed)
        data = "\n".join(json.dumps(broken(line, chance)) for line in lines)
        assert read_data(tmp_path, data.encode(), source).damage.problem == ""
        read_file(tmp_path / "cut.jsonl")
        json.dumps(scan([tmp_path / "cut.jsonl"], format_=source).as_json(), allow_nan=False)


def zstd(data: bytes) -> bytes:
    if sys.version_info >= (3, 14):
        from compression.zstd import compress

        return compress(data)
    import zstandard

    return zstandard.ZstdCompressor().compress(data)


def compressed(data: bytes) -> dict[str, bytes]:
    return {
        "gz": gzip.compress(data),
        "zst": zstd(data),
        "xz": lzma.compress(data),
    }


@pytest.mark.parametrize(("source", "path"), LINE_FILES[:3])
def test_a_compressed_file_reads_as_the_plain_one(source: str, path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    plain = states(read_data(tmp_path, data, source))
    for ending, packed in compressed(data).items():
        result = read_data(tmp_path, packed, "", f"any-{ending}")
        assert (result.source, states(result)) == (source, plain)
        twice = read_data(tmp_path, packed + packed, "", f"any-{ending}")  # two members, as `cat a.gz b.gz` makes
        assert states(twice) == plain
    with zipfile.ZipFile(tmp_path / "any.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("folder/one.jsonl", data)
    (result,) = read_file(tmp_path / "any.zip")
    assert (result.source, states(result)) == (source, plain)


@pytest.mark.parametrize(("source", "path"), LINE_FILES[:1])
@pytest.mark.parametrize("ending", ["gz", "zst", "xz"])
def test_lines_of_a_truncated_compressed_file_are_kept(source: str, path: Path, ending: str, tmp_path: Path) -> None:
    data = random.Random(1).randbytes(300_000).hex().encode()
    lines = path.read_bytes() + b'{"type": "filler", "data": "' + data + b'"}\n'
    packed = compressed(lines)[ending]
    result = read_data(tmp_path, packed[: len(packed) - 100_000], "", f"cut-{ending}")
    assert states(result) == states(read_data(tmp_path, path.read_bytes(), source))
    assert "before its end" in result.damage.problem


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_source_folder_is_unchanged(case: Case, tmp_path: Path) -> None:
    folder = shutil.copytree(case.path, tmp_path / "copy") if case.path.is_dir() else case.path.parent

    def listing() -> dict[str, tuple[int, int, int]]:
        return {
            str(path): (status.st_size, status.st_mtime_ns, status.st_ino)
            for path in sorted([folder, *folder.rglob("*")])
            for status in [path.stat()]
        }

    before = listing()
    scan([folder])
    assert listing() == before


def test_the_result_does_not_depend_on_the_order_of_the_files() -> None:
    paths = [path for case in CASES for path in files(case.path)]
    expected = scan(sorted(paths)).as_json()
    for seed in range(4):
        random.Random(seed).shuffle(paths)
        assert scan(paths).as_json() == expected


def test_a_copy_of_all_files_changes_no_figure(tmp_path: Path) -> None:
    paths = [case.path for case in CASES]
    once = scan(paths).as_json()
    copy = shutil.copytree(HERE, tmp_path / "copy")
    twice = scan([*(copy / path.relative_to(HERE) for path in paths), *paths]).as_json()
    assert (twice["total"], twice["evidence"]) == (once["total"], once["evidence"])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_records_are_those_of_live_calls(case: Case) -> None:
    """Numbers are unique, times are those of the file, and the totals of a turn are those of its calls."""
    summary = scan([case.path])
    records = [record for ended in summary.turns for record in ended.records]
    numbers = [record.number for record in records if isinstance(record, CallStarted)]
    assert len(numbers) == len(set(numbers))
    for ended in summary.turns:
        calls = [record for record in ended.records if isinstance(record, CallEnded)]
        assert ended.turn.iterations == len(calls) == len(ended.past.calls)
        for record, call in zip(calls, ended.past.calls, strict=True):
            assert isnan(record.duration_s) == (call.started_ns is None or call.ended_ns is None)
            assert isnan(record.duration_s) or record.duration_s >= 0
    json.dumps(summary.as_json(), allow_nan=False)
