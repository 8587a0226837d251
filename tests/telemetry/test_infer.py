"""Turns that nobody declared: which call belongs to which, found by what is said and by nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn import events, hooks
from endturn.events import Continuation, Strategy, Turn, TurnKind, TurnOutcome
from endturn.formats import RequestSummary, format_of
from endturn.scopes import Layer, infer_with, open_call, start_turn
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup, fingerprints
from endturn.telemetry.fingerprints import ContinuePrompts
from endturn.telemetry.instruments import instruments_of
from endturn.telemetry.turn_inference import IDLE_S, OPEN_TURNS, TurnInference
from tests.telemetry.mocked import Records

SYSTEM = {"role": "system", "content": "Be brief."}
HI = {"role": "user", "content": "Tell me of the tides."}
HISTORY = [SYSTEM, HI]
HISTORIES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("histories.json").read_text())
FORMATS, CONTINUING, REFUSING, LEAVING, OTHERS = HISTORIES.values()
HALF = "The tides are the rise and fall of the sea that the moon and"
REST = " the sun together cause."


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


class World:
    """An inference that is in place, and calls made within it."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.records = Records()
        self.inferring = TurnInference(clock=self.clock, **options)

    def call(
        self,
        history: list[Any],
        text: str = "",
        reason: StopReason = StopReason.END_TURN,
        *,
        error: Exception | None = None,
        model: str = "m",
        previous_id: str | None = None,
        response_id: str | None = None,
        conversation_id: str | None = None,
        maximum: int | None = None,
        system: Any = None,
        during: Callable[[], object] = lambda: None,
    ) -> events.CallEnded:
        """Make a call with this history, which is answered so."""
        asked = RequestSummary(
            model=model,
            maximum=maximum,
            system=system,
            history=history,
            length=len(history),
            previous_id=previous_id,
            conversation_id=conversation_id,
        )
        call = open_call(Layer.CLIENT, asked, provider="p", model="m")
        assert call is not None
        during()
        ended = call.end(Stop(reason), tail=text[-64:], output_chars=len(text), error=error, response_id=response_id)
        assert ended is not None
        return ended

    def cut(self, history: list[Any], text: str = HALF, **more: Any) -> events.CallEnded:
        return self.call(history, text, StopReason.MAX_TOKENS, **more)

    @property
    def outcomes(self) -> list[TurnOutcome]:
        return [turn.outcome for turn in self.records.turns]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield from placed(made)


def placed(made: World) -> Iterator[World]:
    stop = hooks.subscribe(made.records.append)
    infer_with(made.inferring)
    try:
        with hooks.strict():
            yield made
    finally:
        infer_with(None)
        stop()
        made.inferring.forget()


# --- Turns of one call ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        pytest.param(StopReason.END_TURN, TurnOutcome.COMPLETED, id="end_turn"),
        pytest.param(StopReason.TOOL_CALL, TurnOutcome.COMPLETED, id="tool_call"),
        pytest.param(StopReason.REFUSED, TurnOutcome.REFUSED, id="refused"),
        pytest.param(StopReason.SAFETY_BLOCKED, TurnOutcome.SAFETY_BLOCKED, id="safety_blocked"),
        pytest.param(StopReason.CANCELLED, TurnOutcome.CANCELLED, id="cancelled"),
        pytest.param(StopReason.UNKNOWN, TurnOutcome.UNKNOWN_REASON, id="unknown"),
        pytest.param(StopReason.ERROR, TurnOutcome.PROVIDER_ERROR, id="error"),
    ],
)
def test_a_call_that_was_not_cut_ends_its_turn(world: World, reason: StopReason, outcome: TurnOutcome) -> None:
    """An implicit turn of one call is over with it, and says how."""
    ended = world.call(HISTORY, "x", reason, error=RuntimeError("503") if reason is StopReason.ERROR else None)
    assert world.outcomes == [outcome]
    assert ended.started.turn.kind is TurnKind.IMPLICIT
    assert not ended.started.turn.inferred
    assert world.inferring.open_turns == 0


# --- Continuations -------------------------------------------------------------------------------------------------

CONTINUE = user("Continue exactly from where you left off.")


@pytest.mark.parametrize("name", CONTINUING)
def test_a_call_that_continues(world: World, name: str) -> None:
    """It joins the cut call's turn, says how and what it continues, and completes it."""
    history, reason, strategy = CONTINUING[name].values()
    cut = world.call(HISTORY, HALF, StopReason(reason))
    assert world.outcomes == []
    ended = world.call(history, REST)
    assert ended.started.turn is cut.started.turn
    assert ended.started.continuation == Continuation(1, strategy, cut.started.number)
    assert ended.started.iteration == 2
    (attempt,) = world.records.attempts
    assert attempt.continuation is ended.started.continuation
    assert (attempt.provider, attempt.model, attempt.output_chars) == ("p", "m", len(HALF))
    (turn,) = world.records.turns
    assert (turn.outcome, turn.complete) == (TurnOutcome.COMPLETED, True)
    assert turn.turn.inferred
    assert turn.turn.continuations == 1
    # The attempt is said before the call that makes it.
    assert world.records.index(attempt) < world.records.index(ended.started)


@pytest.mark.parametrize(
    ("after_s", "maximum", "continues"),
    [
        pytest.param(0.5, 100, True, id="at once"),
        pytest.param(10.0, 100, False, id="later"),
        pytest.param(10.0, 200, True, id="later, with a larger limit"),
        pytest.param(10.0, None, True, id="later, without a limit"),
        pytest.param(10.0, 50, False, id="later, with a smaller limit"),
    ],
)
def test_the_same_prompt_again(world: World, after_s: float, maximum: int | None, continues: bool) -> None:
    """Asked again at once, or with more room, it is a resend; later and as before it is another turn's prompt."""
    cut = world.cut(HISTORY, maximum=100)
    world.clock.now += after_s
    ended = world.call(HISTORY, REST, maximum=maximum)
    assert (ended.started.turn is cut.started.turn) is continues
    assert world.inferring.open_turns == (0 if continues else 1)


def test_a_prompt_that_is_asked_many_times_is_not_one_turn(world: World) -> None:
    """A batch job's: cut again with the same limit, asking once more continues nothing."""
    for _ in range(10):
        world.cut(HISTORY, maximum=100)
    world.inferring.close()
    assert world.outcomes == [TurnOutcome.NOT_CONTINUED] * 5


def test_what_was_taken_for_a_continuation_and_was_none(world: World) -> None:
    """A redirect that its client follows by another request: what was cut waits for that."""
    cut = world.cut(HISTORY)
    history = [*HISTORY, answer(HALF), CONTINUE]
    call = open_call(
        Layer.CLIENT, RequestSummary(model="m", history=history, length=len(history)), provider="p", model="m"
    )
    assert call is not None
    call.withdraw()
    assert world.outcomes == []
    ended = world.call(history, REST)
    assert ended.started.continuation == Continuation(1, Strategy.PROMPT, cut.started.number)
    assert world.outcomes == [TurnOutcome.COMPLETED]


def test_a_pause_that_the_host_takes_up(world: World) -> None:
    """What a provider paused is sent back unchanged, and goes on: nothing was cut, and one turn is completed."""
    paused = world.call(HISTORY, HALF, StopReason.PAUSED)
    assert world.outcomes == []
    ended = world.call([*HISTORY, answer(HALF)], REST)
    assert ended.started.continuation == Continuation(1, Strategy.RESEND, paused.started.number)
    (turn,) = world.records.turns
    assert (turn.outcome, turn.complete, turn.turn.truncated) == (TurnOutcome.COMPLETED, True, False)


def test_a_pause_that_is_left(world: World) -> None:
    """By asking something else, or by doing nothing for long."""
    world.call(HISTORY, HALF, StopReason.PAUSED)
    world.call([*HISTORY, answer(HALF), user("And the moon?")])
    assert world.outcomes == [TurnOutcome.LEFT_PAUSED, TurnOutcome.COMPLETED]
    world.call([user("Another.")], HALF, StopReason.PAUSED)
    world.clock.now += IDLE_S
    world.inferring.sweep()
    assert world.outcomes[2:] == [TurnOutcome.LEFT_PAUSED]


@pytest.mark.parametrize("added", REFUSING.values(), ids=REFUSING.keys())
def test_a_cut_tool_call_that_is_answered_by_an_error(world: World, added: list[Any]) -> None:
    """The model is asked for it again: a repair, which completes the turn."""
    cut = world.call(HISTORY, "", StopReason.MAX_TOKENS)
    ended = world.call([*HISTORY, *added], "Done.")
    assert ended.started.continuation == Continuation(1, Strategy.REPAIR, cut.started.number)
    (turn,) = world.records.turns
    assert (turn.outcome, turn.complete, turn.turn.unfinished) == (TurnOutcome.COMPLETED, True, False)


@pytest.mark.parametrize("history", LEAVING.values(), ids=LEAVING.keys())
def test_a_call_that_goes_on_without_continuing(world: World, history: list[Any]) -> None:
    """The same conversation, something else: the cut turn was left, and the call is a turn of its own."""
    cut = world.cut(HISTORY)
    ended = world.call(history, "…")
    assert ended.started.turn is not cut.started.turn
    assert ended.started.continuation is None
    assert [(turn.turn, turn.outcome) for turn in world.records.turns] == [
        (cut.started.turn, TurnOutcome.NOT_CONTINUED),
        (ended.started.turn, TurnOutcome.COMPLETED),
    ]
    assert not world.records.attempts


@pytest.mark.parametrize("history", OTHERS.values(), ids=OTHERS.keys())
def test_a_call_of_somebody_else(world: World, history: list[Any]) -> None:
    """It neither continues nor ends the turn that waits."""
    world.cut(HISTORY)
    world.call(history, "…")
    assert world.outcomes == [TurnOutcome.COMPLETED]
    assert world.inferring.open_turns == 1
    assert world.call([*HISTORY, answer(HALF), CONTINUE]).started.continuation is not None


def test_one_prompt_for_several_models(world: World) -> None:
    """An answer that was cut is not continued by asking another model the same."""
    world.cut(HISTORY)
    assert world.call(HISTORY, model="another").started.continuation is None
    assert world.inferring.open_turns == 1


@pytest.mark.parametrize(
    "third",
    [
        pytest.param([*HISTORY, answer(HALF), CONTINUE, answer(" the sun"), CONTINUE], id="segments"),
        pytest.param([*HISTORY, answer(HALF + " the sun"), CONTINUE], id="merged"),
        pytest.param([*HISTORY, answer(HALF + " the sun")], id="merged prefill"),
    ],
)
def test_a_turn_that_is_continued_twice(world: World, third: list[Any]) -> None:
    """Hosts append each part, or merge the parts into one: both are found."""
    first = world.cut(HISTORY)
    second = world.cut([*HISTORY, answer(HALF), CONTINUE], " the sun")
    ended = world.call(third, " together cause.")
    assert {call.started.turn for call in (first, second, ended)} == {first.started.turn}
    assert ended.started.continuation is not None
    assert (ended.started.continuation.index, ended.started.continuation.of) == (2, second.started.number)
    assert world.outcomes == [TurnOutcome.COMPLETED]


def test_a_continuation_that_fails_may_be_tried_again(world: World) -> None:
    """An error leaves the answer as cut as it was; the same request again is a retry."""
    world.cut(HISTORY)
    history = [*HISTORY, answer(HALF), CONTINUE]
    world.call(history, reason=StopReason.ERROR, error=RuntimeError("503"))
    assert world.outcomes == []
    ended = world.call(history, REST)
    assert ended.started.continuation is not None
    assert (ended.started.continuation.index, ended.started.continuation.strategy) == (2, Strategy.RETRY)
    assert world.outcomes == [TurnOutcome.COMPLETED]


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [(StopReason.ERROR, TurnOutcome.PROVIDER_ERROR), (StopReason.REFUSED, TurnOutcome.REFUSED)],
)
def test_a_continuation_that_fails_for_good(world: World, reason: StopReason, outcome: TurnOutcome) -> None:
    """A turn that its host leaves then ended with that, and on a cut answer."""
    error = RuntimeError("503") if reason is StopReason.ERROR else None
    world.cut(HISTORY)
    world.call([*HISTORY, answer(HALF), CONTINUE], reason=reason, error=error)
    world.inferring.close()
    (turn,) = world.records.turns
    assert (turn.outcome, turn.complete, turn.turn.unfinished) == (outcome, False, True)


TOOL_RESULT = {"type": "function_call_output", "call_id": "c", "output": "42"}


@pytest.mark.parametrize(
    ("history", "continued"),
    [
        pytest.param([user("continue")], Strategy.PROMPT, id="asks to go on"),
        pytest.param([], Strategy.PREFILL, id="says nothing"),
        pytest.param([user("And the moon?")], None, id="another question"),
        pytest.param([TOOL_RESULT], None, id="took the cut response for a whole one"),
    ],
)
def test_found_by_the_response_s_id(world: World, history: list[Any], continued: Strategy | None) -> None:
    """A stateful provider's call carries the id instead of the history: it continues what was cut, or leaves it."""
    cut = world.cut([HI], response_id="resp_1")
    ended = world.call(history, REST, previous_id="resp_1")
    assert ended.started.continuation == (continued and Continuation(1, continued, cut.started.number))
    assert world.outcomes == ([] if continued else [TurnOutcome.NOT_CONTINUED]) + [TurnOutcome.COMPLETED]


def test_two_conversations_that_a_server_keeps(world: World) -> None:
    """Where a call says only what is new, the same words after another response are another conversation's."""
    cut = world.call([user("yes")], HALF, StopReason.MISSING, previous_id="resp_a", response_id="resp_b")
    other = world.call([user("yes")], previous_id="resp_x")
    assert other.started.turn is not cut.started.turn
    again = world.call([user("yes")], previous_id="resp_a")
    assert again.started.turn is cut.started.turn


def test_found_by_the_conversation_that_a_server_keeps(world: World) -> None:
    """A call that names a conversation continues what was cut in it last, if it asks to go on; else it leaves it."""
    cut = world.cut([HI], conversation_id="conv_1")
    elsewhere = world.call([user("continue")], conversation_id="conv_2")
    assert elsewhere.started.turn is not cut.started.turn
    ended = world.call([user("continue")], REST, conversation_id="conv_1")
    assert ended.started.turn is cut.started.turn
    world.cut([HI], conversation_id="conv_1")
    world.call([user("And the moon?")], conversation_id="conv_1")
    assert world.outcomes[-2:] == [TurnOutcome.NOT_CONTINUED, TurnOutcome.COMPLETED]


def test_an_answer_that_could_not_be_seen(world: World) -> None:
    """Where the model only thought, a host has nothing to send back: asking to go on alone is a continuation."""
    cut = world.cut(HISTORY, "")
    elsewhere = world.call([*HISTORY, answer("Another answer."), CONTINUE])
    assert elsewhere.started.turn is not cut.started.turn
    ended = world.call([*HISTORY, CONTINUE], HALF)
    assert ended.started.turn is cut.started.turn


def test_a_turn_is_continued_by_one_call_at_a_time(world: World) -> None:
    """Of two calls that repeat a history at once, one continues; the turn does not end while it is under way."""
    cut = world.cut(HISTORY)
    seen: list[events.CallEnded] = []

    def meanwhile() -> None:
        world.clock.now += IDLE_S + 1
        world.inferring.sweep()
        seen.append(world.call(HISTORY, "x"))

    ended = world.call(HISTORY, REST, during=meanwhile)
    assert ended.started.turn is cut.started.turn
    assert seen[0].started.turn is not cut.started.turn
    assert world.outcomes == [TurnOutcome.COMPLETED] * 2


def test_what_the_host_appends_later_does_not_count(world: World) -> None:
    """The history is the host's own list; what it held at the time is what was asked."""
    history = list(HISTORY)
    world.cut(history, during=lambda: history.append(answer("appended while it ran")))
    assert world.call(list(HISTORY)).started.continuation is not None


# --- The end of waiting --------------------------------------------------------------------------------------------


def test_an_idle_turn_ends(world: World) -> None:
    """After 30 seconds a turn that nobody continued was left."""
    world.cut(HISTORY)
    world.clock.now += IDLE_S - 0.1
    world.inferring.sweep()
    assert world.outcomes == []
    world.clock.now += 0.2
    world.inferring.sweep()
    (turn,) = world.records.turns
    assert (turn.outcome, turn.complete) == (TurnOutcome.NOT_CONTINUED, False)
    assert world.call(HISTORY).started.continuation is None


def test_an_idle_turn_ends_before_a_collection(world: World) -> None:
    """A process that makes no further call still tells of it: with what the reader takes just then."""
    reader = InMemoryMetricReader()
    made = instruments_of(MeterProvider([reader], shutdown_on_exit=False))
    world.cut(HISTORY)
    world.cut([user("x")], "y")
    reader.collect()
    assert world.outcomes == []
    world.clock.now += IDLE_S
    reader.collect()
    assert world.outcomes == [TurnOutcome.NOT_CONTINUED] * 2
    assert made is not None


def test_at_most_so_many_wait(world: World) -> None:
    """The oldest ends first."""
    first = world.cut([user("first")])
    for number in range(OPEN_TURNS):
        world.cut([user(str(number))])
    assert world.inferring.open_turns == OPEN_TURNS
    assert [turn.turn for turn in world.records.turns] == [first.started.turn]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_end_its_parent_s_turns(world: World) -> None:
    """Open turns stay with the parent; the child begins anew."""
    world.cut(HISTORY)
    child = os.fork()
    if child == 0:
        open_at_first = world.inferring.open_turns
        world.cut([user("child")])
        world.inferring.close()
        os._exit(10 * open_at_first + len(world.outcomes))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    assert world.inferring.open_turns == 1


# --- Declared turns ------------------------------------------------------------------------------------------------


def test_within_an_observed_turn_continuations_are_recognised(world: World) -> None:
    """Its calls belong to it; the one that finishes a cut answer says so; its end is its owner's."""
    scope = start_turn(Turn(kind=TurnKind.OBSERVED))
    with scope.step():
        world.cut(HISTORY)
        ended = world.call([*HISTORY, answer(HALF), CONTINUE], REST)
        other = world.call([user("an unrelated question")])
    assert ended.started.turn is scope.turn
    assert ended.started.continuation is not None
    assert other.started.turn is scope.turn
    assert other.started.continuation is None
    assert world.outcomes == []
    assert not scope.turn.inferred
    assert len(world.records.attempts) == 1


def test_an_observed_turn_is_not_ended_by_waiting(world: World) -> None:
    """Only its owner ends it."""
    scope = start_turn(Turn(kind=TurnKind.OBSERVED))
    with scope.step():
        world.cut(HISTORY)
    world.inferring.close()
    assert world.outcomes == []
    scope.end(TurnOutcome.NOT_CONTINUED)
    assert world.outcomes == [TurnOutcome.NOT_CONTINUED]


def test_turns_do_not_take_each_other_s_calls(world: World) -> None:
    """A cut call of one declared turn is not continued by another's."""
    first, second = (start_turn(Turn(kind=TurnKind.OBSERVED)) for _ in range(2))
    with first.step():
        world.cut(HISTORY)
    with second.step():
        assert world.call(HISTORY).started.continuation is None
    assert world.call(HISTORY).started.continuation is None


def test_a_controller_says_itself_what_it_continues(world: World) -> None:
    """Nothing is inferred within its turn, and the texts that it goes on with are known from then on."""
    turn = Turn(kind=TurnKind.CONTROLLER)
    scope = start_turn(turn)
    words = user("Bitte den Faden wieder aufnehmen.")
    with scope.step():
        world.cut(HISTORY)
        assert world.call(HISTORY).started.continuation is None
        turn.continuation = Continuation(1, Strategy.PROMPT, 1)
        assert world.call([*HISTORY, answer(HALF), words]).started.continuation is turn.continuation
    assert not world.records.attempts
    world.cut(HISTORY)
    assert world.call([*HISTORY, answer(HALF), words]).started.continuation is not None


# --- Cost ----------------------------------------------------------------------------------------------------------


def test_nothing_is_hashed_while_nothing_is_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary call costs no hash."""

    def hashed(*args: object) -> Any:
        raise AssertionError("hashed")

    monkeypatch.setattr("endturn.telemetry.turn_inference.digests", hashed)
    world.call(HISTORY, "x")


# --- Every format's histories --------------------------------------------------------------------------------------

GO_ON = "Continue."


@pytest.mark.parametrize("name", FORMATS)
def test_histories_of_every_format(world: World, name: str) -> None:
    """What is said counts, not how a format, or an SDK's object, writes it; and a new question is one in each."""
    format_name, first, second = FORMATS[name].values()

    def call(given: dict[str, Any], text: str, reason: StopReason) -> events.CallEnded:
        call = open_call(
            Layer.CLIENT, format_of(format_name).request_summary({"model": "m", **given}), provider="p", model="m"
        )
        assert call is not None
        ended = call.end(Stop(reason), tail=text[-64:], output_chars=len(text))
        assert ended is not None
        return ended

    cut = call(first, HALF, StopReason.MAX_TOKENS)
    ended = call(second, REST, StopReason.END_TURN)
    assert ended.started.continuation == Continuation(1, Strategy.PROMPT, cut.started.number)
    (turn,) = world.records.turns
    assert turn.outcome is TurnOutcome.COMPLETED

    cut = call(first, HALF, StopReason.MAX_TOKENS)
    asking = json.loads(json.dumps(second).replace(GO_ON, "Why?"))
    assert call(asking, REST, StopReason.END_TURN).started.turn is not cut.started.turn
    assert [turn.outcome for turn in world.records.turns[1:]] == [TurnOutcome.NOT_CONTINUED, TurnOutcome.COMPLETED]


def test_a_question_in_parts_is_a_question() -> None:
    """What tells questions apart reads Gemini's parts too."""
    first, second = ({"role": "user", "parts": [{"text": text}]} for text in ("One?", "Two?"))
    marks = [
        fingerprints.question_of(RequestSummary(history=[each], length=1))
        for each in (first, second, {"role": "user", "parts": []})
    ]
    assert marks[0] != marks[1]
    assert None not in marks[:2]
    assert marks[2] is None


# --- Texts that ask to go on ----------------------------------------------------------------------------------------


TEXTS = json.loads(Path(__file__).with_name("continue_prompts.json").read_text())


@pytest.mark.parametrize("text", TEXTS["asks to go on"])
def test_a_text_that_asks_to_go_on(text: str) -> None:
    """What hosts send to have a cut answer finished."""
    assert ContinuePrompts().is_one(user(text))


@pytest.mark.parametrize("text", TEXTS["does not"])
def test_a_text_that_does_not(text: str) -> None:
    """What a person may well ask next."""
    assert not ContinuePrompts().is_one(user(text))


def timed(at: str) -> dict[str, Any]:
    """A system prompt that says what time it is."""
    return {"role": "system", "content": f"Be brief. It is {at}."}


@pytest.mark.parametrize("last", [[CONTINUE], []], ids=["prompt", "prefill"])
def test_a_system_prompt_that_is_written_anew(world: World, last: list[Any]) -> None:
    """What is said again after another system prompt, the cut answer with it, is continued."""
    cut = world.cut([timed("9:00"), HI])
    again = world.cut([timed("9:01"), HI, answer(HALF), *last], " the sun")
    ended = world.call([timed("9:02"), HI, answer(HALF + " the sun"), CONTINUE], REST)
    assert cut.started.turn is again.started.turn is ended.started.turn
    assert world.outcomes == [TurnOutcome.COMPLETED]


def test_a_system_prompt_beside_the_messages_that_is_written_anew(world: World) -> None:
    """The same where a format keeps it apart."""
    cut = world.cut([HI], system=timed("9:00"))
    ended = world.call([HI, answer(HALF), CONTINUE], REST, system=timed("9:01"))
    assert ended.started.turn is cut.started.turn


def test_an_agent_with_other_instructions_is_another(world: World) -> None:
    """One question put to two agents is two turns: nothing but the cut answer itself makes them one."""
    first = world.cut([timed("9:00"), HI])
    same = world.call([timed("9:01"), HI], REST)
    other = world.call([timed("9:01"), HI, answer("Something else."), CONTINUE], REST)
    unseen = world.cut([timed("9:00"), user("Another.")], "")
    elsewhere = world.call([timed("9:01"), user("Another."), CONTINUE], REST)
    assert len({id(ended.started.turn) for ended in (first, same, other, unseen, elsewhere)}) == 5
    assert world.inferring.open_turns == 2


def test_a_question_after_a_system_prompt_that_is_written_anew(world: World) -> None:
    """It shows that the cut answer was left."""
    world.cut([timed("9:00"), HI])
    world.call([timed("9:01"), HI, answer(HALF), user("And who discovered that?")], "Newton.")
    assert world.outcomes == [TurnOutcome.NOT_CONTINUED, TurnOutcome.COMPLETED]


def test_remembered_texts_are_few() -> None:
    """A controller that goes on with ever new texts does not fill the memory."""
    known = ContinuePrompts()
    for number in range(fingerprints.REMEMBERED + 1):
        known.learn(RequestSummary(history=[user(f"text {number}")], length=1))
    assert not known.is_one(user("text 0"))
    assert known.is_one(user(f"text {fingerprints.REMEMBERED}"))


def test_one_end_that_fails_keeps_no_other_from_being_announced() -> None:
    """What waits for a safe moment is done, each by itself."""
    done: list[int] = []
    cleanup.later(lambda: 1 / 0)
    cleanup.later(lambda: done.append(1))
    cleanup.run()
    assert done == [1]
