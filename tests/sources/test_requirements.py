"""docs/sources.md: each requirement of the source designs has a test that exists, or a difference with its reason."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.support.processes import REPOSITORY

PAGE = (REPOSITORY / "docs" / "sources.md").read_text(encoding="utf-8")
DESIGNS = {
    title: re.findall(r"^\| (\d+) \| (.*) \| (.*) \| (.*) \|$", rows, re.MULTILINE)
    for title, rows in re.findall(r"^## (.+?)$(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
ROWS = [pytest.param(*row, id=f"{title} {number}") for title, rows in DESIGNS.items() for number, *row in rows]


@cache
def names_in(path: str) -> set[str]:
    """The names of a file's test functions, as the page has them, or of its cases."""
    text, kind = (REPOSITORY / path).read_text(encoding="utf-8"), path.rpartition(".")[2]
    if kind == "py":
        return {name.replace("_", " ") for name in re.findall(r"^\s*(?:async )?def test_(\w+)", text, re.MULTILINE)}
    return set(re.findall({"yaml": r"^(\w[\w ]*):", "json": r'"(?:name|why)": "([^"]+)"'}[kind], text, re.MULTILINE))


@pytest.mark.parametrize(("requirement", "shown", "difference"), ROWS)
def test_a_requirement_is_shown_by_tests_that_exist(requirement: str, shown: str, difference: str) -> None:
    """Or it says what is done instead, and why."""
    tests = re.findall(r"\[([^]]+)\]\(\.\./([^)]+)\)", shown)
    assert len(tests) == len(shown.split("<br>")) if shown else difference
    assert [name for name, path in tests if name not in names_in(path)] == []
    assert requirement.endswith(".")
    assert not difference or difference.endswith(".")


def test_the_requirements_of_each_design_are_numbered() -> None:
    """From 1, without a gap."""
    numbers = [[int(number) for number, *_ in rows] for rows in DESIGNS.values()]
    assert numbers == [list(range(1, len(each) + 1)) for each in numbers]
    assert len(numbers) == 5
