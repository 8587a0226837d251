"""What a turn's calls come to: each call is added once, when it has ended."""

from __future__ import annotations

from endturn.calls.outcomes import ANEW, Strategy, TurnKind
from endturn.calls.records import CallEnded
from endturn.calls.turn import CUT_ANSWERS, Turn
from endturn.vocabulary import StopReason


def add_call(turn: Turn, ended: CallEnded) -> None:
    """Add a call that has ended to the totals of its turn."""
    started, stop, usage = ended.started, ended.response.stop, ended.response.usage
    turn.last_s = started.started_s + ended.duration_s
    turn.last_call = started.number
    if turn.kind is TurnKind.CONTROLLER:
        turn.last_usage = usage
    turn.failed = ended.error is not None and stop.reason is not StopReason.CANCELLED
    if not turn.provider or (stop.truncated and not turn.truncated):
        turn.provider, turn.model = started.endpoint.provider, started.request.model
    if usage is not None:
        turn.input_tokens += usage.input_tokens or 0
        turn.output_tokens += usage.output_tokens or 0
    _measure_answer(turn, ended)
    turn.output_chars += ended.response.output_chars
    if ended.whole:
        turn.inner = None
    if stop.truncated:
        turn.truncated = True
        turn.cut |= {started.number}
        if len(turn.cut) > CUT_ANSWERS:
            turn.cut -= {min(turn.cut)}
    if turn.cut and (stop.truncated or ended.whole):
        if started.continuation is not None:
            turn.cut -= {started.continuation.of or 0}
        if ended.whole and turn.kind is TurnKind.CONTROLLER:
            turn.cut = frozenset()  # its calls are one after the other, to one message


def _measure_answer(turn: Turn, ended: CallEnded) -> None:
    """Measure the answer that the call is a part of: a limit on tokens is one for each call."""
    again, usage = ended.started.continuation, ended.response.usage
    tokens = (usage and usage.output_tokens) or 0
    before = 0
    if again is not None:
        earlier, so_far = (turn.parts or {}).get(again.of or 0, (0, 0))
        anew = again.strategy in ANEW or (
            again.strategy is Strategy.RESEND and again.of in turn.cut
        )
        before = earlier if anew else so_far
    turn.answer_tokens = max(turn.answer_tokens, before + tokens)
    if not ended.whole:
        turn.parts = turn.parts or {}
        if again is not None and again.of in turn.parts and ended.error is not None:
            # what a retry of this call goes on from
            turn.parts[again.of] = before, turn.parts[again.of][1]
        turn.parts[ended.started.number] = before, before + tokens
        if len(turn.parts) > CUT_ANSWERS:
            del turn.parts[next(iter(turn.parts))]
