"""What became of a load: what was sent, compared with the spans, the events and the counts that a fleet holds of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.support.fleet import Fleet
from tests.support.fleet_load import SPANS, Turns
from tests.support.fleet_view import total

OBSERVED, ATTEMPT, ENDED = (
    f"endturn.{name}" for name in ("stop_reason_observed", "continuation_attempt", "continuation_terminated")
)
EVENTS: Final = {
    "truncated": Counter({OBSERVED: 1, ENDED: 1}),
    "continued": Counter({OBSERVED: 2, ATTEMPT: 1, ENDED: 1}),
    "whole": Counter({OBSERVED: 1}),
}
"""A turn's, where the library plays it: one for each call, one for each continuation, one for the end of a cut turn."""
COUNTERS: Final = ("endturn_responses_total", "endturn_turns_total", "endturn_continuations_total")


@dataclass(frozen=True)
class Account:
    """What became of a load.

    Attributes:
        cut: turns with a truncated call; of these `lost` have no truncated span in the store, `partial` not all spans.
        kept: other turns that are in the store.
        missed: other turns that the sampler chooses, and that are not in the store with all their spans.
        unchosen: other turns that are in the store, and that it does not choose.
        doubled: spans that the store was given more often than as itself and as the copy of a truncated one.
        silent: turns of the library that lack an event.
        repeated: events of the library that the store was given more often than they happened.
        counted: of the library in the ring: responses, turns, continuations.
        plain: responses that a Collector counted, for the library was not there; it may have begun again at zero.
    """

    cut: int
    lost: int
    partial: int
    kept: int
    missed: int
    unchosen: int
    doubled: int
    silent: int
    repeated: int
    counted: tuple[float, ...]
    plain: float


def account(fleet: Fleet, own: Turns, plain: Turns, *, service: str, percent: int, since: float) -> Account:
    """Of a load that has ended: the turns that the library played, and those of an agent without."""
    client, told, turns = fleet.query.client, fleet.store.told(), own | plain
    spans = [span for passed_on in fleet.store.passed_on() for span in passed_on if span.trace in turns]
    cut = {trace for trace, kind in turns.items() if kind != "whole"}
    copied = {span.id for span in spans if span.copied}
    seen: dict[str, set[str]] = {}
    for span in spans:
        seen.setdefault(span.trace, set()).add(span.id)
    whole = {trace for trace, ids in seen.items() if len(ids) == SPANS[turns[trace]]}
    kept, choice = seen.keys() - cut, chosen(turns.keys() - cut, percent)
    expected = events(own)
    return Account(
        cut=len(cut),
        lost=len(cut - {span.trace for span in spans if span.cut}),
        partial=len(cut - whole),
        kept=len(kept),
        missed=len(choice - whole),
        unchosen=len(kept - choice),
        doubled=sum(count > 1 + (span in copied) for span, count in Counter(span.id for span in spans).items()),
        silent=len({event[0] for event, count in expected.items() if told.get(event, 0) < count}),
        repeated=sum(max(0, count - expected[event]) for event, count in told.items() if event[0] in own),
        counted=tuple(total(client, f'{name}{{job="{service}"}}', since) for name in COUNTERS),
        plain=total(client, f'endturn_responses_total{{job="{service}-plain"}}', since),
    )


def events(turns: Turns) -> Counter[tuple[str, str]]:
    """How often each event of each trace is told."""
    return Counter({(trace, name): count for trace, kind in turns.items() for name, count in EVENTS[kind].items()})


def responses(turns: Turns) -> int:
    """How many calls were answered."""
    return sum(1 + (kind == "continued") for kind in turns.values())


def counts(turns: Turns) -> tuple[float, ...]:
    """What `COUNTERS` come to."""
    return responses(turns), len(turns), sum(kind == "continued" for kind in turns.values())


def chosen(traces: Iterable[str], percent: int) -> set[str]:
    """Those that the probabilistic policy of `tail_sampling` keeps: FNV-1a of a salt and the id, below a threshold."""
    return {
        trace for trace in traces if _fnv(b"default-hash-seed" + bytes.fromhex(trace)) <= (2**64 - 1) * percent // 100
    }


def _fnv(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value
