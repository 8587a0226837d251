"""What a page shows and has stored after some exports: the cases of `told_cases.py`."""

from __future__ import annotations

import pytest

from endturn.telemetry.indicators import INDICATORS
from tests.ui.support import Answer, Served, numbers, turn_link
from tests.ui.told_cases import CASES, Page, requests


def differences(answer: Answer, page: Page) -> list[str]:
    """Return what is not on the page as it is expected."""
    text = f"{answer.words} {answer.text}"
    wrong = [] if answer.status == page.status else [f"status {answer.status}"]
    wrong += [each for each in (*page.has, *page.order) if each not in text]
    wrong += [f"not: {each}" for each in page.lacks if each in text]
    return wrong + (["their order"] if sorted(page.order, key=text.find) != [*page.order] else [])


@pytest.mark.parametrize("name", CASES)
def test_a_page_says_what_it_is_told(page: Served, name: str) -> None:
    """In words, in its tables, and in what it counts."""
    case = CASES[name]
    for signal, request in requests(case.exports):
        assert page.post(signal, request).status == 200
    for path, expected in case.pages.items():
        assert differences(page.ask(path), expected) == []
    if case.turn_page is not None:
        assert differences(page.ask(turn_link(page)), case.turn_page) == []
    for table, rows in (("spans", case.spans), ("turns", case.turns), ("events", case.events)):
        if rows is not None:
            found = page.store.read_rows(f"SELECT * FROM {table}")
            columns = [{name: one[name] for name in row} for one, row in zip(found, rows, strict=True)]
            assert columns == [dict(row) for row in rows]
    if case.total is not None:
        assert numbers(page.store).total(INDICATORS["turns"].count) == case.total
