"""An account of a fleet finds each way in which something of a load can be lost, or be there twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.fleet import Span
from tests.support.fleet_account import Account, chosen, compare, counts, events
from tests.support.fleet_load import SPANS, Turns

KINDS = ("truncated", "continued", *["whole"] * 8)
TURNS: Turns = {f"{n:032x}": KINDS[n % 10] for n in range(200)}
CUT = {trace for trace, kind in TURNS.items() if kind != "whole"}
CHOSEN = sorted(chosen(TURNS.keys() - CUT, 25))
OTHER = min(TURNS.keys() - CUT - {*CHOSEN})
SPANS_KEPT = [
    Span(trace, f"{trace}-{n}", cut=trace in CUT and n == 0, copied=trace in CUT and n == 0)
    for trace in [*sorted(CUT), *CHOSEN]
    for n in range(SPANS[TURNS[trace]])
]
TOLD = events(TURNS)
FIRST = min(CUT)


def accounted(spans: list[Span] = SPANS_KEPT, told: Counter[tuple[str, str]] = TOLD) -> Account:
    return compare(spans, told, TURNS, {}, percent=25, counted=counts(TURNS), plain_counted=0)


def test_nothing_is_missing_where_nothing_was_lost() -> None:
    found = accounted()
    assert (found.cut, found.kept) == (len(CUT), len(CHOSEN))
    wrong = ("lost", "partial", "missed", "unchosen", "doubled", "silent", "repeated")
    assert not any(getattr(found, name) for name in wrong)


@pytest.mark.parametrize(
    ("name", "is_left", "count"),
    [
        ("lost", lambda span: not (span.trace == FIRST and span.cut), 1),
        ("partial", lambda span: span.cut or span.trace != FIRST, 1),
        ("missed", lambda span: span.trace in CUT or span.id.endswith("-0"), len(CHOSEN)),
        ("missed", lambda span: span.trace not in CHOSEN[::5], len(CHOSEN[::5])),
    ],
)
def test_spans_that_are_gone_are_missed(name: str, is_left: Callable[[Span], bool], count: int) -> None:
    assert getattr(accounted([span for span in SPANS_KEPT if is_left(span)]), name) == count


def test_spans_that_should_not_be_there_are_found() -> None:
    ordinary = Span(OTHER, "more", cut=False, copied=False)
    assert accounted([*SPANS_KEPT, ordinary]).unchosen == 1
    assert accounted([*SPANS_KEPT, SPANS_KEPT[-1]]).doubled == 1


def test_each_event_is_expected_as_often_as_it_happened() -> None:
    one = Counter(dict.fromkeys(TOLD, 1))
    assert accounted(told=one).silent == sum(kind == "continued" for kind in TURNS.values())
    first = Counter({event: n for event, n in TOLD.items() if event[1] == "endturn.stop_reason_observed"})
    assert accounted(told=first).silent == len(CUT)
    assert accounted(told=TOLD + one).repeated == len(one)
