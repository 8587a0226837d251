"""Files that are one JSON value, or an archive: truncated, or with members of other types."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from endturn.scan import read_file, scan
from tests.scan.cases import cases, files
from tests.scan.test_sources import broken, states


def value_files(*suffixes: str) -> list[ParameterSet]:
    return [
        pytest.param(case.source, path, id=f"{case}/{path.name}")
        for case in cases()
        for path in files(case.path)
        if path.suffix in suffixes and any(result.source for result in read_file(path))
    ]


def large_files() -> list[ParameterSet]:
    """Return the large files, without single-line objects, which are read completely whatever their size."""
    return [
        pytest.param(case.source, path, id=f"{case}/{path.name}")
        for case in cases()
        for path in files(case.path)
        if path.suffix in (".json", ".har") and any(result.source for result in read_file(path))
        if b"\n" in path.read_bytes().rstrip() or path.read_bytes()[:1] == b"["
    ]


@pytest.mark.parametrize(("source", "path"), value_files(".json", ".eval", ".har"))
def test_a_truncated_value_is_reported_as_damaged_and_yields_no_turns(source: str, path: Path, tmp_path: Path) -> None:
    data = path.read_bytes().rstrip()
    cut = tmp_path / path.name
    for forced in ("", source):
        for at in {len(data) // 3, len(data) // 2, len(data) - 40, len(data) - 1}:
            cut.write_bytes(data[:at])
            results = read_file(cut, forced)
            assert [turn for result in results for turn in result.turns] == []
            assert all(result.damage.problem or result.damage.is_last_line_incomplete for result in results)


@pytest.mark.parametrize(("source", "path"), value_files(".json", ".har"))
def test_no_missing_or_mistyped_member_of_a_value_stops_a_source(source: str, path: Path, tmp_path: Path) -> None:
    value = json.loads(path.read_bytes())
    for seed in range(25):
        target = tmp_path / "broken.json"
        target.write_text(json.dumps(broken(value, random.Random(seed)), indent=1), encoding="utf-8")
        (result,) = read_file(target, source)
        assert result.damage.problem == ""
        read_file(target)
        json.dumps(scan([target], format_=source).as_json(), allow_nan=False)


@pytest.mark.parametrize(("source", "path"), large_files())
def test_a_value_that_is_recognised_by_its_beginning_alone_reads_the_same(
    source: str, path: Path, tmp_path: Path
) -> None:
    data = path.read_bytes().rstrip()
    large = tmp_path / path.name
    large.write_bytes(data[:-1] + b" " * (3 << 20) + data[-1:])
    (small,), (result,) = read_file(path), read_file(large)
    assert (result.source, result.damage.problem) == (source, "")
    assert list(states(result).values()) == list(states(small).values())
