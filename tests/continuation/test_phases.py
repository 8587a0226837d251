"""Phases: every state is entered in one, and the rules of unrecorded messages."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from endturn.calls import Strategy, TurnOutcome
from endturn.continuation.machine import FINAL, TRANSITIONS, State
from endturn.continuation.phases import (
    PHASES,
    Dispatching,
    Ended,
    Requesting,
    Responded,
    Superseded,
    Truncated,
    Unrecorded,
)
from endturn.continuation.result import Resumption
from endturn.vocabulary import ChatResponse, Message, Request, Stop, StopReason

REQUEST = Request(model="m", messages=(Message(role="user", content="Why is the sea salt?"),))
NUDGE = Message(role="user", content="Continue.", synthetic=True)


def response(text: str) -> ChatResponse:
    """A truncated response."""
    return ChatResponse(text=text, stop=Stop(StopReason.MAX_TOKENS))


def unrecorded(text: str, *, is_discarded: bool = False) -> Unrecorded:
    """Return unrecorded messages: a response to be replaced, after a nudge that was written."""
    return Unrecorded((NUDGE,), 1, Superseded(response(text), is_discarded))


def test_every_state_is_entered_in_a_phase() -> None:
    """The states that end a turn are entered as ended; tools are run from the calls that passed the gate."""
    assert set(PHASES) == set(State)
    assert {PHASES[state] for state in FINAL} == {Ended}
    assert PHASES[State.EXECUTE_TOOLS] is Dispatching
    assert {target for (state, _), target in TRANSITIONS.items() if PHASES[state] is Responded} >= {
        State.EXECUTE_TOOLS,
        *FINAL,
    }


def test_a_phase_does_not_change() -> None:
    """A phase is a value: the next phase is another one."""
    phase = Truncated(Responded(call=Requesting(request=REQUEST), response=response("a")), None)
    with pytest.raises(FrozenInstanceError):
        phase.stall_outcome = TurnOutcome.NO_PROGRESS  # type: ignore[misc]


@pytest.mark.parametrize(
    ("before", "text", "expected"),
    [
        (Unrecorded(), "", ""),
        (unrecorded("long"), "longer", "longer"),
        (unrecorded("long"), "same", "same"),
        (unrecorded("long"), "cut", "long"),
        (unrecorded("long", is_discarded=True), "cut", "cut"),
        (unrecorded("long", is_discarded=True), "  ", "long"),
    ],
)
def test_the_most_complete_response_is_kept(before: Unrecorded, text: str, expected: str) -> None:
    """The longest of several versions of one response is superseded; of different answers, the last one with text."""
    after = before.supersede(response(text))
    assert after.superseded is not None
    assert after.superseded.response.text == expected
    assert after.is_discarded == (before.is_discarded and text.isspace())
    assert (after.nudges, after.written) == (before.nudges, before.written)


@pytest.mark.parametrize(("text", "is_discarded"), [("Because", True), (" \n", False)])
def test_only_an_answer_with_text_is_discarded(text: str, is_discarded: bool) -> None:
    """White space cannot be restored."""
    assert unrecorded(text).discard().is_discarded is is_discarded
    assert Unrecorded((NUDGE,)).discard() == Unrecorded((NUDGE,))


def test_nudges_of_a_failed_call_are_dropped_and_the_superseded_response_stays() -> None:
    """The nudge is removed completely, and does not count as written."""
    assert unrecorded("Because").without_nudges() == Unrecorded((), 0, Superseded(response("Because")))


def test_the_first_call_of_a_resumed_turn_has_the_unrecorded_messages() -> None:
    """A repair that is resumed repairs the calls that it names."""
    start = Resumption(
        request=REQUEST,
        next=REQUEST.but(max_tokens=5),
        pending=(NUDGE,),
        strategy=Strategy.REPAIR,
        superseded=response("Because"),
        is_discarded=True,
        repair_calls=("search",),
    )
    assert Requesting.first(start) == Requesting(
        request=REQUEST.but(max_tokens=5),
        strategy=Strategy.REPAIR,
        issue="unverified_terminal",
        repair_calls=("search",),
        unrecorded=Unrecorded((NUDGE,), 0, Superseded(response("Because"), is_discarded=True)),
    )
    assert Requesting.first(Resumption(request=REQUEST, next=REQUEST)) == Requesting(request=REQUEST)


def test_a_call_refers_to_one_response_before_it() -> None:
    """A turn of many calls does not hold all its responses."""
    call = Requesting(request=REQUEST, repair_calls=("search",))
    for text in "abc":
        latest = Responded(call=call, response=response(text))
        call = latest.next_call(REQUEST, Strategy.PROMPT, Unrecorded())
    assert call.previous is not None
    assert call.previous.response.text == "c"
    assert call.previous.call.previous is None
    assert call.repair_calls == ("search",)
