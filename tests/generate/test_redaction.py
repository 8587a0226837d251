"""Every name of content.yaml is deleted from spans, in a way that Go's regular expressions are fast at."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from endturn.generate.ottl import CONTENT
from tests.support.processes import REPOSITORY

DELETES = re.compile(r'delete_matching_keys\(span\.attributes, (".*")\)')
SECTIONS = ("places", "trees", "errors")


def names(section: str) -> set[str]:
    return {start + end for start, ends in CONTENT[section].items() for end in ends}


@pytest.fixture(scope="module")
def patterns() -> list[re.Pattern[str]]:
    """What keys of a span are held against."""
    processors: dict[str, Any] = yaml.safe_load((REPOSITORY / "collector/redaction.yaml").read_text())["processors"]
    [redaction] = processors.values()
    statements = [each for group in redaction["trace_statements"] for each in group["statements"]]
    return [re.compile(json.loads(found[1])) for each in statements if (found := DELETES.fullmatch(each))]


@pytest.mark.parametrize("section", SECTIONS)
def test_each_name_is_deleted_in_any_case_and_nothing_longer(patterns: list[re.Pattern[str]], section: str) -> None:
    listed = {name.replace("[0-9]+", "12") for name in set().union(*map(names, SECTIONS))}
    for name in names(section):
        key = name.replace("[0-9]+", "12")
        for written in (key, key.upper(), f" {key}\n"):
            assert any(pattern.match(written) for pattern in patterns), written
        assert key + "s" in listed or not any(pattern.match(key + "s") for pattern in patterns), key
        below = [pattern for pattern in patterns if pattern.match(f"{key}.x y")]
        assert bool(below) == (section == "trees"), key


@pytest.mark.parametrize("section", [*SECTIONS, "spoken"])
def test_names_are_plain(section: str) -> None:
    """`inputs?` beside `inputs_json` would begin like it: Go then tries all branches at once, ten times as long."""
    for name in names(section):
        assert re.fullmatch(r"[\w.]+(\[0-9\]\+)?", name), name


def test_go_is_fast_at_every_pattern(patterns: list[re.Pattern[str]]) -> None:
    """With a thousand instructions it would no longer read in one pass; what a span costs is that times how many."""
    assert len(patterns) == 3
    assert all(len(re.findall(r"\\.|\[[^]]+\]|[^()?:\\\[]", each.pattern)) < 990 for each in patterns)
