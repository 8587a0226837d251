"""Every behaviour of the controller's contract has a test that is marked with its number."""

from __future__ import annotations

import re

from tests.support.processes import REPOSITORY

MARK = re.compile(r"(?:pytest\.mark\.behaviour\(|\"behaviours\": \[)([\d, ]+)[)\]]")
NUMBERED = re.compile(r"^(\d+)\. ", re.MULTILINE)


def test_every_behaviour_of_the_contract_is_tested() -> None:
    """The numbers in docs/controller.md are those of the marks, without a gap."""
    contract = {int(number) for number in NUMBERED.findall((REPOSITORY / "docs" / "controller.md").read_text())}
    tests = REPOSITORY / "tests"
    marked = {
        int(number)
        for path in [*tests.rglob("test_*.py"), *tests.glob("turns/*.json"), *tests.glob("functions/*.json")]
        for numbers in MARK.findall(path.read_text(encoding="utf-8"))
        for number in numbers.split(",")
    }
    assert contract == set(range(1, 44))
    assert sorted(contract - marked) == []
    assert sorted(marked - contract) == []
