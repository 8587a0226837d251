"""Convert past turns to the records of live turns, with their original times."""

from __future__ import annotations

from collections.abc import Iterable
from math import nan
from typing import NamedTuple

from endturn.calls import (
    COMPLETE,
    OUTCOMES,
    CallEnded,
    CallStarted,
    Continuation,
    Record,
    ResponseIdentity,
    Strategy,
    Turn,
    TurnEnded,
    TurnKind,
    TurnOutcome,
    TurnStarted,
    add_call,
    number,
)
from endturn.errors import ProviderError
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.vocabulary import StopReason


class EndedTurn(NamedTuple):
    """A past turn with the records of a live one.

    Attributes:
        past: the turn from the file.
        turn: its totals, as in the records.
        records: TurnStarted, for each call CallStarted and CallEnded, then TurnEnded.
    """

    past: PastTurn
    turn: Turn
    records: tuple[Record, ...]

    @property
    def is_recorded(self) -> bool:
        """True if the file has the stop of every response of the turn."""
        return all(call.evidence is not Evidence.NOT_RECORDED for call in self.past.calls)


def ended_turns(turns: Iterable[PastTurn]) -> list[EndedTurn]:
    """Return the turns with their records; a sub-agent's turn is a child of its agent's turn.

    Args:
        turns: without copies.
    """
    turns_with_records = [_ended_turn(past) for past in turns]
    by_tool_call = {
        (ended_turn.past.source, tool_call): ended_turn.turn
        for ended_turn in turns_with_records
        for call in ended_turn.past.calls
        for tool_call in call.tool_calls
    }
    for ended_turn in turns_with_records:
        if ended_turn.past.parent_tool_call is not None:
            parent = by_tool_call.get((ended_turn.past.source, ended_turn.past.parent_tool_call))
            ended_turn.turn.around = None if parent is ended_turn.turn else parent
    return turns_with_records


def _ended_turn(past: PastTurn) -> EndedTurn:
    times = [time for call in past.calls for time in (call.started_ns, call.ended_ns) if time]
    started_ns = past.started_ns or min(times, default=0)
    turn = Turn(
        kind=TurnKind.OBSERVED,
        id=past.id,
        agent=past.agent or past.source,
        conversation=past.session or None,
        started_ns=started_ns,
        started_s=0.0,
    )
    records: list[Record] = [TurnStarted(turn=turn)]
    numbers: dict[str, int] = {}
    last: CallEnded | None = None
    for call in past.calls:
        last = _call_ended(call, turn, numbers)
        records += last.started, last
    last_ns = max((call.ended_ns or 0 for call in past.calls), default=0)
    if past.outcome is not None:
        turn.outcome = past.outcome
        if past.outcome in COMPLETE:
            turn.truncated_calls = frozenset()
    elif turn.truncated_calls and _end_is_unknown(past.calls):
        turn.truncated_calls = frozenset()
        turn.outcome = TurnOutcome.UNKNOWN_REASON
    else:
        turn.outcome = _outcome(past, turn, last)
    records.append(
        TurnEnded(
            turn=turn,
            outcome=turn.outcome,
            complete=turn.outcome in COMPLETE and not turn.unfinished,
            duration_s=_seconds(started_ns or None, last_ns or None),
            tools_unanswered=last is not None and last.stop.reason is StopReason.TOOL_CALL,
        )
    )
    return EndedTurn(past, turn, tuple(records))


def _seconds(started_ns: int | None, ended_ns: int | None) -> float:
    """Return a duration; NaN if the file lacks a time, or has the times in the wrong order."""
    if started_ns is None or ended_ns is None or ended_ns < started_ns:
        return nan
    return (ended_ns - started_ns) / 1e9


def _call_ended(call: PastCall, turn: Turn, numbers: dict[str, int]) -> CallEnded:
    started_ns = call.started_ns or call.ended_ns or turn.started_ns
    numbers[call.key] = number()
    turn.iterations += 1
    started = CallStarted(
        number=numbers[call.key],
        request=call.request,
        endpoint=call.endpoint,
        turn=turn,
        iteration=turn.iterations,
        started_ns=started_ns,
        started_s=(started_ns - turn.started_ns) / 1e9,
        identity=ResponseIdentity(call.response.id, call.response.model),
        continuation=_continuation(call, turn, numbers),
    )
    record = CallEnded(
        started=started,
        response=call.response,
        duration_s=_seconds(call.started_ns, call.ended_ns),
        error=None if call.error is None else ProviderError(call.error),
    )
    add_call(turn, record)
    return record


def _continuation(call: PastCall, turn: Turn, numbers: dict[str, int]) -> Continuation | None:
    if call.strategy is None:
        return None
    if call.strategy is Strategy.REPAIR:
        turn.repairs += 1
    elif call.strategy is Strategy.RESEND:
        turn.resumes += 1
    else:
        turn.continuations += 1
    index = turn.continuations + turn.repairs + turn.resumes
    return Continuation(index, call.strategy, numbers.get(call.continues or ""))


def _end_is_unknown(calls: list[PastCall]) -> bool:
    """Return whether the rest of a truncated response was requested, and may be complete."""
    last = calls[-1]
    return last.strategy is not None and last.evidence is Evidence.NOT_RECORDED


def _outcome(past: PastTurn, turn: Turn, last: CallEnded | None) -> TurnOutcome:
    if past.is_interrupted:
        return TurnOutcome.CANCELLED
    if turn.unfinished:
        return TurnOutcome.NOT_CONTINUED
    if past.error is not None or (last is not None and last.error is not None):
        return TurnOutcome.PROVIDER_ERROR
    if last is None or (past.runs_tools and last.stop.reason is StopReason.TOOL_CALL):
        return TurnOutcome.UNKNOWN_REASON
    return OUTCOMES[last.stop.reason]
