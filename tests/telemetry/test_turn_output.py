"""`endturn.turn.output`: what one call would have needed for its answer, and not the sum of a turn's calls."""

from __future__ import annotations

import pytest

from endturn.chat import Usage
from endturn.events import Continuation, Strategy, TurnKind
from endturn.stop import Resume, Stop, StopReason
from tests.telemetry.stage import CUT, DONE, Stage

TOOL = Stop(StopReason.TOOL_CALL, "tool_calls")
PAUSED = Stop(StopReason.PAUSED, "pause_turn", resume=Resume.RESEND_UNCHANGED)
LOST = Stop(StopReason.MISSING)

Call = tuple[Stop, int, Strategy | None]


def measured(calls: list[Call]) -> float:
    """What is recorded of a turn with these calls, each a continuation of the one before it where it has a strategy."""
    stage = Stage()
    turn = stage.turn()
    for index, (stop, tokens, strategy) in enumerate(calls):
        again = Continuation(index, strategy, turn.last_call) if strategy else None
        stage.call(turn, stop, usage=Usage(10, tokens), asked={"continuation": again})
    stage.close(turn)
    count: int
    total: float
    [(count, total)] = stage.points()["endturn.turn.output"].values()
    assert count == 1
    return total


@pytest.mark.parametrize(
    ("calls", "tokens"),
    [
        pytest.param([*[(TOOL, 40, None)] * 10, (DONE, 42, None)], 42, id="tools: the longest"),
        pytest.param([(TOOL, 90, None), (DONE, 42, None)], 90, id="a tool call may be it"),
        pytest.param([(CUT, 50, None), (CUT, 50, Strategy.PROMPT), (DONE, 7, Strategy.PREFILL)], 107, id="continued"),
        pytest.param([(CUT, 50, None), (TOOL, 20, Strategy.PROMPT), (DONE, 30, None)], 70, id="a new one after tools"),
        pytest.param([(CUT, 50, None), (DONE, 120, Strategy.REPAIR)], 120, id="a payload asked for again"),
        pytest.param([(CUT, 50, None), (DONE, 120, Strategy.RESEND)], 120, id="the question asked again, with more"),
        pytest.param([(PAUSED, 50, None), (DONE, 20, Strategy.RESEND)], 70, id="after a pause the rest comes"),
        pytest.param(
            [(CUT, 50, None), (LOST, 10, Strategy.PROMPT), (DONE, 30, Strategy.RETRY)], 80, id="a continuation retried"
        ),
    ],
)
def test_the_longest_answer_is_recorded(calls: list[Call], tokens: int) -> None:
    """A response and what was continued of it is one answer; what came again takes the place of what was lost."""
    assert measured(calls) == tokens


def test_answers_side_by_side_are_told_apart() -> None:
    """In an observed turn a continuation is added to the answer that it continues, not to the latest."""
    stage = Stage()
    turn = stage.turn(TurnKind.OBSERVED)
    cut = stage.call(turn, CUT, usage=Usage(10, 100))
    stage.call(turn, usage=Usage(10, 120))
    again = Continuation(1, Strategy.PROMPT, cut.started.number)
    stage.call(turn, usage=Usage(10, 50), asked={"continuation": again})
    assert (turn.answer_tokens, turn.output_tokens) == (150, 270)


def test_a_part_of_an_observed_turn_brings_its_longest_answer() -> None:
    """A controller's turn inside counts by its longest answer too."""
    stage = Stage()
    outer, inner = stage.turn(TurnKind.OBSERVED), stage.turn(TurnKind.CONTROLLER)
    stage.call(outer, TOOL, usage=Usage(10, 30))
    inner.join(outer)
    stage.call(inner, TOOL, usage=Usage(10, 60))
    stage.call(inner, usage=Usage(10, 20))
    inner.leave(outer)
    assert outer.answer_tokens == 60
