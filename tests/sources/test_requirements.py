"""Each requirement of the source designs has a test that exists, or a difference with its reason; the page says so."""

from __future__ import annotations

import re
from functools import cache
from itertools import groupby

import pytest

from tests.sources import document

ROWS = document.requirements()


@cache
def names_in(path: str) -> frozenset[str]:
    """The names of a file's test functions, or of its rows, with `_` for a space."""
    pattern = r"^(\w[\w ]*):" if path.endswith(".yaml") else r"^\s*(?:async )?def (test_\w+)"
    found = re.findall(pattern, (document.ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(name.replace(" ", "_") for name in found)


@pytest.mark.parametrize("row", ROWS, ids=[f"{row.source} {row.number}" for row in ROWS])
def test_a_requirement_is_shown_by_tests_that_exist(row: document.Requirement) -> None:
    """Or it says what is done instead, and why."""
    assert row.tests or row.difference
    for test in row.tests:
        path, name = test.split("::")
        assert name in names_in(path), test
    assert row.requirement.endswith(".")
    assert not row.difference or row.difference.endswith(".")


def test_the_requirements_of_each_design_are_numbered() -> None:
    """From 1, without a gap, each design in one piece."""
    groups = [[row.number for row in group] for _, group in groupby(ROWS, key=lambda row: row.source)]
    assert groups == [list(range(1, len(numbers) + 1)) for numbers in groups]
    assert len(groups) == 5


def test_the_page_of_the_sources_is_current() -> None:
    """docs/sources.md is what document.py writes."""
    assert document.main(["--check"]) == 0
