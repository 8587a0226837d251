"""An account of a fleet finds each way in which something of a load can be lost, or be there twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from tests.support.fleet import Span
from tests.support.fleet_account import chosen, compare, counts, events
from tests.support.fleet_load import SPANS, Turns

KINDS = ("truncated", "continued", *["whole"] * 8)
TURNS: Turns = {random.Random(n).randbytes(16).hex(): KINDS[n % 10] for n in range(200)}
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


WRONG = ("lost", "partial", "missed", "unchosen", "doubled", "silent", "repeated")


def wrong(spans: Iterable[Span] = SPANS_KEPT, told: Counter[tuple[str, str]] = TOLD) -> dict[str, int]:
    """What an account says is not as it should be."""
    found = compare(spans, told, TURNS, {}, percent=25, counted=counts(TURNS), plain_counted=0)
    assert found.cut == len(CUT)
    return {name: count for name in WRONG if (count := getattr(found, name))}


def left(keeps: Callable[[Span], bool]) -> Iterator[Span]:
    return filter(keeps, SPANS_KEPT)


def test_spans_that_are_gone_or_should_not_be_there_are_found() -> None:
    assert wrong() == {}
    assert wrong(left(lambda span: not (span.trace == FIRST and span.cut))) == {"lost": 1, "partial": 1}
    assert wrong(left(lambda span: span.cut or span.trace != FIRST)) == {"partial": 1}
    assert wrong(left(lambda span: span.trace in CUT or span.id.endswith("-0"))) == {"missed": len(CHOSEN)}
    assert wrong(left(lambda span: span.trace not in CHOSEN[::5])) == {"missed": len(CHOSEN[::5])}
    assert wrong([*SPANS_KEPT, Span(OTHER, "more", cut=False, copied=False)]) == {"unchosen": 1}
    assert wrong([*SPANS_KEPT, SPANS_KEPT[-1]]) == {"doubled": 1}


def test_each_event_is_expected_as_often_as_it_happened() -> None:
    one = Counter(dict.fromkeys(TOLD, 1))
    assert wrong(told=one) == {"silent": sum(kind == "continued" for kind in TURNS.values())}
    first = Counter({event: n for event, n in TOLD.items() if event[1] == "endturn.stop_reason_observed"})
    assert wrong(told=first) == {"silent": len(CUT)}
    assert wrong(told=TOLD + one) == {"repeated": len(one)}
