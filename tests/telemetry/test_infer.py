"""Turns that nobody declared: which call belongs to which, found by what is said and by nothing else."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn.calls import listeners, records
from endturn.calls.call_scope import Call, Layer, open_call
from endturn.calls.facts import EndpointFacts, ResponseFacts
from endturn.calls.outcomes import Continuation, Strategy, TurnKind, TurnOutcome
from endturn.calls.records import CallStarted
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import TurnScope, infer_with, start_turn
from endturn.errors import ProviderError
from endturn.formats import RequestSummary
from endturn.telemetry import cleanup, fingerprints
from endturn.telemetry.fingerprints import ContinuePrompts
from endturn.telemetry.instruments import instruments_of
from endturn.telemetry.truncated_turns import MAX_PENDING_TURNS
from endturn.telemetry.turn_inference import IDLE_S, TurnInference
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.summaries import summarized
from tests.telemetry.conversation_steps import (
    Close,
    EndOfTurn,
    ModelCall,
    Response,
    Step,
    Wait,
    WithdrawnCall,
    call_of,
    prompt,
    truncated,
    user,
)
from tests.telemetry.conversations import CONVERSATIONS
from tests.telemetry.mocked import Records

HERE = Path(__file__).parent
TEXTS = json.loads((HERE / "continue_prompts.json").read_text())
HISTORIES: dict[str, Any] = json.loads((HERE / "histories.json").read_text())
HALF = "The tides are the rise and fall of the sea that the moon and"
REST = " the sun together cause."


HISTORY = [{"role": "system", "content": "Be brief."}, user("Tell me of the tides.")]
CONTINUE = user("Continue exactly from where you left off.")
GOING_ON = [*HISTORY, {"role": "assistant", "content": HALF}, CONTINUE]


LIMIT: Final = 100
"""Tokens. What is asked again without a limit wants the rest."""


def begin(history: list[Any] | RequestSummary, **asked: Any) -> Call:
    """A call with this history."""
    if isinstance(history, list):
        history = summarized(history, **{"model": "m", **asked})
    call = open_call(Layer.CLIENT, history.facts, EndpointFacts(provider="p"), summary=history)
    assert call is not None
    return call


def respond(call: Call, response: Response) -> records.CallEnded:
    """End a call with this response. An error raises, unless its status is 200."""
    is_raised = response.stop == "error" and response.status != 200
    error = ProviderError(str(response.status), status=response.status) if is_raised else None
    facts = ResponseFacts(
        stop=Stop(StopReason(response.stop)), id=response.response_id, output_chars=len(response.text)
    )
    ended = call.end(facts, tail=response.text[-64:], tool_calls=response.tool_calls, error=error)
    assert ended is not None
    return ended


def end(call: Call, reason: str = "end_turn", text: str = REST, status: int = 503) -> records.CallEnded:
    """End a call with this stop reason and text."""
    return respond(call, Response(text, reason, status=status))


def cut(history: list[Any]) -> CallStarted:
    return end(begin(history, max_tokens=LIMIT), "max_tokens", HALF).started


def finish(history: list[Any]) -> CallStarted:
    return end(begin(history)).started


class World:
    """An inference that is in place, with a clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.records = Records()
        self.inferring = TurnInference(clock=lambda: self.now)


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    stop = listeners.subscribe(made.records.append)
    infer_with(made.inferring)
    with listeners.strict():
        yield made
    infer_with(None)
    stop()
    made.inferring.forget()


# --- Calls one after another ---------------------------------------------------------------------------------------


def of_format(name: str) -> list[Step]:
    """Return a conversation in a format: what is said counts, not how a format, or an SDK's object, writes it; and a
    new question is one in each."""
    format_name, first, second = HISTORIES[name].values()
    asking = json.loads(json.dumps(second).replace("Continue.", "Why?"))
    return [
        call_of(format_name, first, response=truncated(HALF)),
        call_of(format_name, second, continues=prompt(1, of=0)),
        call_of(format_name, first, response=truncated(HALF)),
        call_of(format_name, asking, ends=["not_continued", "completed"]),
    ]


PLAYED = CONVERSATIONS | {f"histories of {name}": of_format(name) for name in HISTORIES}


def outcome(turn: records.TurnEnded) -> str:
    """Return how a turn ended, with "unfinished" where it is reported as such; one not continued always is."""
    is_reported = turn.turn.unfinished and turn.outcome is not TurnOutcome.NOT_CONTINUED
    return turn.outcome.value + " unfinished" * is_reported


@pytest.mark.parametrize("name", PLAYED)
def test_which_turn_each_call_belongs_to(world: World, name: str) -> None:
    """The expectations are those of conversations.py."""
    scopes: dict[str, TurnScope] = {}
    calls: list[records.CallEnded] = []
    for step in PLAYED[name]:
        before = len(world.records.turns)
        ends = step.ends or []
        match step:
            case Wait():
                world.now += step.seconds
                world.inferring.sweep()
            case Close():
                world.inferring.close()
            case EndOfTurn():
                scopes[step.name].end(TurnOutcome.COMPLETED)
            case WithdrawnCall():
                begin(step.request).cancel()
            case ModelCall():
                if step.ends is None and step.response.stop == "end_turn":
                    ends = ["completed"]
                world.now += step.after
                play(step, scopes, calls, world)
            case _:
                raise AssertionError(step)
        assert [outcome(turn) for turn in world.records.turns[before:]] == ends
        assert step.open_turns is None or world.inferring.open_turns == step.open_turns
    expected_attempts = [step for step in PLAYED[name] if announces_attempt(step)]
    assert len(world.records.attempts) == len(expected_attempts)


def announces_attempt(step: Step) -> bool:
    """Return whether a step is announced as a continuation."""
    if isinstance(step, WithdrawnCall):
        return step.is_attempt
    return isinstance(step, ModelCall) and step.continues is not None


def play(step: ModelCall, scopes: dict[str, TurnScope], calls: list[records.CallEnded], world: World) -> None:
    """Make a call, and compare its turn and its continuation."""
    if step.in_turn is not None and step.in_turn not in scopes:
        scopes[step.in_turn] = start_turn(Turn(kind=TurnKind.OBSERVED))
    scope = None if step.in_turn is None else scopes[step.in_turn]
    with nullcontext() if scope is None else scope.step():
        ended = respond(begin(step.request), step.response)
    started, link = ended.started, ended.started.continuation
    numbers = [call.started.number for call in calls]
    of = None if link is None or link.of is None else numbers.index(link.of)
    expected = step.continues
    assert (link and (link.strategy, link.index, of)) == (expected and (expected.strategy, expected.index, expected.of))
    earlier = [call for call in calls if call.started.turn is started.turn]
    if step.joins is not None:
        assert started.turn is calls[step.joins].started.turn
        assert started.iteration == len(earlier) + 1
    elif of is None:
        assert scope is not None or not earlier
    else:
        attempt = world.records.attempts[-1]  # said before the call that makes it, of what came before it
        assert world.records.index(attempt) < world.records.index(started)
        assert (attempt.continuation, attempt.provider) == (link, "p")
        # A repair is no continuation, as in a turn of the controller.
        links = [call.started.continuation for call in [*earlier, ended] if call.started.continuation]
        repairs = sum(each.strategy is Strategy.REPAIR for each in links)
        counts = started.turn.repairs, started.turn.continuations
        assert counts == (repairs, len(links) - repairs)
        assert (attempt.turn, attempt.model) == (started.turn, calls[of].started.request.model)
        assert attempt.output_chars == sum(call.output_chars for call in earlier)
        assert (earlier[0].started.turn, started.iteration) == (calls[of].started.turn, len(earlier) + 1)
    is_inferred = any(call.started.continuation for call in (*earlier, ended)) and scope is None
    assert started.turn.inferred is is_inferred
    assert scope is None or started.turn is scope.turn
    calls.append(ended)


# --- What happens meanwhile ----------------------------------------------------------------------------------------


def test_a_turn_is_continued_by_one_call_at_a_time(world: World) -> None:
    """Of two calls that repeat a history at once, one continues; the turn does not end while it is under way."""
    turn = cut(HISTORY).turn
    call = begin(HISTORY)
    world.now += IDLE_S + 1
    world.inferring.sweep()
    assert finish(HISTORY).turn is not turn
    assert end(call).started.turn is turn
    assert world.records.told() == ["None 1 completed", "None 2 completed"]


def test_what_the_host_appends_later_does_not_count(world: World) -> None:
    """The history is the host's own list; what it held at the time is what was asked."""
    history = list(HISTORY)
    call = begin(history, max_tokens=LIMIT)
    history.append(user("appended while it ran"))
    end(call, "max_tokens", HALF)
    assert finish(list(HISTORY)).continuation is not None


def test_an_idle_turn_ends_before_a_collection(world: World) -> None:
    """A process that makes no further call still tells of it: with what the reader takes just then."""
    reader = InMemoryMetricReader()
    made = instruments_of(MeterProvider([reader], shutdown_on_exit=False))
    cut(HISTORY)
    cut([user("x")])
    reader.collect()
    assert not world.records.turns
    world.now += IDLE_S
    reader.collect()
    assert world.records.told() == ["None 1 not_continued"] * 2
    assert made is not None


def test_at_most_so_many_wait(world: World) -> None:
    """The oldest ends first."""
    first = cut([user("first")]).turn
    for number in range(MAX_PENDING_TURNS):
        cut([user(str(number))])
    assert world.inferring.open_turns == MAX_PENDING_TURNS
    assert [turn.turn for turn in world.records.turns] == [first]


def test_a_controller_says_itself_what_it_continues(world: World) -> None:
    """Nothing is inferred within its turn, and the texts that it goes on with are known from then on."""
    turn = Turn(kind=TurnKind.CONTROLLER)
    scope = start_turn(turn)
    going_on = [*GOING_ON[:-1], user("Bitte den Faden wieder aufnehmen.")]
    with scope.step():
        cut(HISTORY)
        assert finish(HISTORY).continuation is None
        turn.continuation = Continuation(1, Strategy.PROMPT, 1)
        assert finish(going_on).continuation is turn.continuation
    assert not world.records.attempts
    cut(HISTORY)
    assert finish(going_on).continuation is not None


# --- Fingerprints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_one"), [(text, kind == "asks to go on") for kind in TEXTS for text in TEXTS[kind]]
)
def test_a_text_that_asks_to_go_on(text: str, is_one: bool) -> None:
    """What hosts send to have a cut answer finished, and what a person may well ask next."""
    assert ContinuePrompts().matches([user(text)]) is is_one


def test_remembered_texts_are_few() -> None:
    """A controller that goes on with ever new texts does not fill the memory."""
    known = ContinuePrompts()
    for number in range(fingerprints.MAX_LEARNED_PROMPTS + 1):
        known.learn(RequestSummary(history=[user(f"text {number}")], length=1))
    assert not known.matches([user("text 0")])
    assert known.matches([user(f"text {fingerprints.MAX_LEARNED_PROMPTS}")])


def test_one_end_that_fails_keeps_no_other_from_being_announced() -> None:
    """What waits for a safe moment is done, each by itself."""
    done: list[int] = []
    cleanup.defer(lambda: 1 / 0)
    cleanup.defer(lambda: done.append(1))
    cleanup.run()
    assert done == [1]


# --- Many at once --------------------------------------------------------------------------------------------------

CALLS = 9


def conversation(number: int, calls: list[tuple[records.CallEnded, records.CallEnded | None]]) -> Iterator[None]:
    """One host's loop, which knows what each of its calls continues. Another may come in between, in a call too.

    Half of them begin with one and the same prompt: their answers tell them apart.
    """
    asked = [user("Write a report." if number % 2 else f"Question {number}")]
    cut: records.CallEnded | None = None
    for part in range(CALLS):
        call = begin(asked)
        yield
        text = f"Conversation {number} says in its part {part} that the"
        is_whole = part % 3 == 2
        stop = Stop(StopReason.END_TURN if is_whole else StopReason.MAX_TOKENS)
        ended = call.end(ResponseFacts(stop=stop), tail=text[-64:])
        assert ended is not None
        calls.append((ended, cut))
        cut = None if is_whole else ended
        asked = [*asked, {"role": "assistant", "content": text}, user(f"Why {part}?") if is_whole else CONTINUE]
        yield


@pytest.mark.parametrize("threads", [1, 16])
def test_many_conversations_at_once(world: World, threads: int) -> None:
    """Every call is assigned to its own turn, in whatever order they come and in whatever thread."""
    infer_with(TurnInference(idle_s=1e9))
    calls: list[tuple[records.CallEnded, records.CallEnded | None]] = []

    def work(first: int) -> None:
        order = random.Random(first)
        running = [conversation(number, calls) for number in range(first, 320, threads)]
        while running:
            one = order.choice(running)
            if next(one, running) is running:
                running.remove(one)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    turns = {id(made.started.turn) for made, cut in calls if cut is None}
    assert len(turns) == sum(cut is None for _, cut in calls) == 320 * CALLS // 3
    for made, cut in calls:
        of = made.started.continuation and made.started.continuation.of
        assert of == (cut and cut.started.number)
        assert cut is None or made.started.turn is cut.started.turn


def test_a_continuation_that_keeps_failing_is_found_by_its_latest_attempt(world: World) -> None:
    """And by the call that was cut: a provider that is down for long fills no memory."""
    cut([{"role": "system", "content": "It is 0."}, user("Tell me of the tides.")])

    def again(number: int, reason: str) -> records.CallEnded:
        system = {"role": "system", "content": f"It is {number}."}
        return end(begin([system, *GOING_ON[1:]], max_tokens=LIMIT), reason, status=503)

    for number in range(1, 100):
        assert again(number, "error").started.continuation is not None
    (waiting,) = world.inferring._truncated.waiting.entries()
    assert len(waiting.keys) <= 8
    assert len(waiting.opening_hashes) <= 4
    assert again(99, "end_turn").started.iteration == 101
