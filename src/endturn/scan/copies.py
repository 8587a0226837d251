"""Remove copies: the same call in several files counts once, in whatever order they are read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from endturn.scan.past_calls import Evidence, PastCall, PastTurn

_RANK: Final = {Evidence.RECORDED: 0, Evidence.OTHER_RECORD: 1, Evidence.NOT_RECORDED: 2}


def without_copies(turns: Iterable[PastTurn]) -> tuple[list[PastTurn], int]:
    """Merge the turns and calls that several files hold.

    Returns:
        The turns, sorted by time, session and id, so that the result does not depend on the order
        of the files; and how many copies of calls were left out.
    """
    by_id: dict[tuple[str, str], list[PastTurn]] = {}
    for turn in turns:
        by_id.setdefault((turn.source, turn.id), []).append(turn)
    unique = [_merged(copies) for copies in by_id.values()]
    copies = sum(len(turn.calls) for copies in by_id.values() for turn in copies) - sum(
        len(turn.calls) for turn in unique
    )
    unique.sort(key=_turn_rank)
    # A call may be in turns with different ids: it stays where its record has most facts.
    owners: dict[tuple[str, str], tuple[PastTurn, PastCall]] = {}
    for turn in unique:
        for call in turn.calls:
            key = turn.source, call.key
            if key not in owners or _call_rank(call) < _call_rank(owners[key][1]):
                owners[key] = turn, call
    unique_turns = []
    for turn in unique:
        own_calls = [call for call in turn.calls if owners[turn.source, call.key][0] is turn]
        copies += len(turn.calls) - len(own_calls)
        if own_calls or not turn.calls:
            turn.calls = own_calls
            unique_turns.append(turn)
    unique_turns.sort(key=_order)
    return unique_turns, copies


def _merged(copies: Sequence[PastTurn]) -> PastTurn:
    if len(copies) == 1 and len({call.key for call in copies[0].calls}) == len(copies[0].calls):
        return copies[0]
    base, *others = sorted(copies, key=_turn_rank)
    calls: dict[str, PastCall] = {}
    for turn in (base, *others):
        for call in turn.calls:
            earlier = calls.get(call.key)
            if earlier is None or _call_rank(call) < _call_rank(earlier):
                calls[call.key] = call
    # other copies may end before the turn continued
    longest = max(len(turn.calls) for turn in copies)
    return replace(
        base,
        calls=list(calls.values()),
        is_interrupted=any(turn.is_interrupted for turn in copies),
        error=next((t.error for t in (base, *others) if t.error and len(t.calls) == longest), None),
    )


def _turn_rank(turn: PastTurn) -> tuple[object, ...]:
    """Return the rank of a turn among its copies: the original before copies of it."""
    return (
        any(call.is_copy for call in turn.calls),
        -len(turn.calls),
        sum(_RANK[call.evidence] for call in turn.calls),
        *_order(turn),
    )


def _call_rank(call: PastCall) -> tuple[object, ...]:
    """Return the rank of a call among its copies: first the one whose record has most facts."""
    usage = call.response.usage
    return (
        _RANK[call.evidence],
        call.is_copy,
        call.request.max_tokens is None,
        usage is None or usage.output_tokens is None,
        -((usage and usage.output_tokens) or 0),
        call.started_ns is None,
        call.ended_ns or 0,
    )


def _order(turn: PastTurn) -> tuple[object, ...]:
    times = [call.started_ns or call.ended_ns or 0 for call in turn.calls]
    offsets = [call.offset or 0 for call in turn.calls]
    began_ns = turn.started_ns or min(times, default=0)
    return began_ns, turn.session, min(offsets, default=0), turn.id, turn.path
