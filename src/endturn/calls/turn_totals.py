"""Totals of a turn's calls: each call is added once, when it has ended."""

from __future__ import annotations

from endturn.calls.outcomes import REPLACING_STRATEGIES, Strategy, TurnKind
from endturn.calls.records import CallEnded
from endturn.calls.turn import MAX_TRUNCATED_CALLS, Turn
from endturn.vocabulary import StopReason


def add_call(turn: Turn, ended: CallEnded) -> None:
    """Add a call that has ended to the totals of its turn."""
    started, stop, usage = ended.started, ended.response.stop, ended.response.usage
    turn.last_s = started.started_s + ended.duration_s
    turn.last_call = started.number
    if turn.kind is TurnKind.CONTROLLER:
        turn.last_usage = usage
    turn.last_call_failed = ended.error is not None and stop.reason is not StopReason.CANCELLED
    is_truncated = stop.truncated
    if not turn.provider or (is_truncated and not turn.truncated):
        turn.provider, turn.model = started.endpoint.provider, started.request.model
    if usage is not None:
        turn.input_tokens += usage.input_tokens or 0
        turn.output_tokens += usage.output_tokens or 0
    _measure_answer(turn, ended)
    turn.output_chars += ended.response.output_chars
    if ended.is_finished:
        turn.last_part_outcome = None
    if is_truncated:
        turn.truncated = True
        turn.truncated_calls |= {started.number}
        if len(turn.truncated_calls) > MAX_TRUNCATED_CALLS:
            turn.truncated_calls -= {min(turn.truncated_calls)}
    if turn.truncated_calls and (is_truncated or ended.is_finished):
        if started.continuation is not None:
            turn.truncated_calls -= {started.continuation.of or 0}
        if ended.is_finished and turn.kind is TurnKind.CONTROLLER:
            turn.truncated_calls = frozenset()  # its calls are one after the other, to one message


def _measure_answer(turn: Turn, ended: CallEnded) -> None:
    """Measure the answer that the call is a part of: a token limit applies to one call only."""
    continuation, usage = ended.started.continuation, ended.response.usage
    tokens = (usage and usage.output_tokens) or 0
    base_tokens = 0
    if continuation is not None:
        tokens_before, tokens_with = (turn.answer_parts or {}).get(continuation.of or 0, (0, 0))
        is_replacing = continuation.strategy in REPLACING_STRATEGIES or (
            continuation.strategy is Strategy.RESEND and continuation.of in turn.truncated_calls
        )
        base_tokens = tokens_before if is_replacing else tokens_with
    turn.answer_tokens = max(turn.answer_tokens, base_tokens + tokens)
    if not ended.is_finished:
        turn.answer_parts = turn.answer_parts or {}
        if (
            continuation is not None
            and continuation.of in turn.answer_parts
            and ended.error is not None
        ):
            # the tokens before a retry of this call
            turn.answer_parts[continuation.of] = base_tokens, turn.answer_parts[continuation.of][1]
        turn.answer_parts[ended.started.number] = base_tokens, base_tokens + tokens
        if len(turn.answer_parts) > MAX_TRUNCATED_CALLS:
            del turn.answer_parts[next(iter(turn.answer_parts))]
