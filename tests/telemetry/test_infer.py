"""Turns that nobody declared: which call belongs to which, found by what is said and by nothing else."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn import events, hooks
from endturn.events import Continuation, Strategy, Turn, TurnKind, TurnOutcome
from endturn.formats import RequestSummary, format_of
from endturn.scopes import Call, Layer, TurnScope, infer_with, open_call, start_turn
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup, fingerprints
from endturn.telemetry.fingerprints import ContinuePrompts
from endturn.telemetry.instruments import instruments_of
from endturn.telemetry.turn_inference import IDLE_S, OPEN_TURNS, TurnInference
from tests.telemetry.mocked import Records

HERE = Path(__file__).parent
SCENARIOS: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "turns.yaml").read_text())
TEXTS = json.loads((HERE / "continue_prompts.json").read_text())
HISTORIES: dict[str, Any] = json.loads((HERE / "histories.json").read_text())
HALF = "The tides are the rise and fall of the sea that the moon and"
REST = " the sun together cause."


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


HISTORY = [{"role": "system", "content": "Be brief."}, user("Tell me of the tides.")]
CONTINUE = user("Continue exactly from where you left off.")
GOING_ON = [*HISTORY, {"role": "assistant", "content": HALF}, CONTINUE]


class World:
    """An inference that is in place, with a clock that is moved by hand, and calls made within it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.records = Records()
        self.inferring = TurnInference(clock=lambda: self.now)

    def call(
        self,
        history: list[Any] | RequestSummary,
        text: str = "",
        reason: StopReason = StopReason.END_TURN,
        *,
        response_id: str | None = None,
        during: Callable[[], object] = lambda: None,
        **asked: Any,
    ) -> events.CallEnded:
        """Make a call with this history, which is answered so."""
        call = self.open(history, **asked)
        during()
        error = RuntimeError("503") if reason is StopReason.ERROR else None
        ended = call.end(Stop(reason), tail=text[-64:], output_chars=len(text), error=error, response_id=response_id)
        assert ended is not None
        return ended

    def open(self, history: list[Any] | RequestSummary, **asked: Any) -> Call:
        if isinstance(history, list):
            history = RequestSummary(**{"model": "m", "history": history, "length": len(history), **asked})
        call = open_call(Layer.CLIENT, history, provider="p", model=history.model)
        assert call is not None
        return call

    def cut(self, history: list[Any], text: str = HALF, **more: Any) -> events.CallEnded:
        return self.call(history, text, StopReason.MAX_TOKENS, **more)

    @property
    def outcomes(self) -> list[TurnOutcome]:
        return [turn.outcome for turn in self.records.turns]


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    stop = hooks.subscribe(made.records.append)
    infer_with(made.inferring)
    try:
        with hooks.strict():
            yield made
    finally:
        infer_with(None)
        stop()
        made.inferring.forget()


# --- Calls one after another ---------------------------------------------------------------------------------------

ROLES = {"> ": "user", "< ": "assistant", "! ": "system"}


def message(written: Any) -> Any:
    return written if isinstance(written, dict) else {"role": ROLES[written[:2]], "content": written[2:]}


def of_format(name: str) -> list[dict[str, Any]]:
    """What is said counts, not how a format, or an SDK's object, writes it; and a new question is one in each."""
    format_name, first, second = HISTORIES[name].values()
    asking = json.loads(json.dumps(second).replace("Continue.", "Why?"))
    cut = {"format": format_name, "body": first, "says": HALF, "stop": "max_tokens"}
    return [
        cut,
        {"format": format_name, "body": second, "is": "prompt 1 of 0"},
        cut,
        {"format": format_name, "body": asking, "ends": ["not_continued", "completed"]},
    ]


SCENARIOS |= {f"histories of {name}": of_format(name) for name in HISTORIES}


def asked_in(step: dict[str, Any]) -> list[Any] | RequestSummary:
    if "body" in step:
        return format_of(step.pop("format")).request_summary({"model": "m", **step.pop("body")})
    return [message(each) for each in step.pop("ask")]


def how(turn: events.TurnEnded) -> str:
    is_told = turn.turn.unfinished and turn.outcome is not TurnOutcome.NOT_CONTINUED
    return turn.outcome.value + " unfinished" * is_told


@pytest.mark.parametrize("name", SCENARIOS)
def test_which_turn_each_call_belongs_to(world: World, name: str) -> None:
    """As turns.yaml says of them."""
    scopes: dict[str, TurnScope] = {}
    calls: list[events.CallEnded] = []
    for given in SCENARIOS[name]:
        step = dict(given)
        before = len(world.records.turns)
        ends, continues, expected_open = step.pop("ends", None), step.pop("is", None), step.pop("open", None)
        if "wait" in step:
            world.now += step["wait"]
            world.inferring.sweep()
        elif "close" in step:
            world.inferring.close()
        elif "end" in step:
            scopes[step["end"]].end(TurnOutcome.COMPLETED)
        elif "withdraw" in step:
            world.open(asked_in(step)).withdraw()
        else:
            world.now += step.pop("after", 0.0)
            within = step.pop("in", None)
            if within is not None and within not in scopes:
                scopes[within] = start_turn(Turn(kind=TurnKind.OBSERVED))
            history, reason = asked_in(step), StopReason(step.pop("stop", "end_turn"))
            text = step.pop("says", "the sun.")
            with nullcontext() if within is None else scopes[within].step():
                made = world.call(history, text, reason, **step)
            started = made.started
            if continues is None:
                assert started.continuation is None
                assert within is not None or started.turn not in [call.started.turn for call in calls]
            else:
                strategy, index, _, of = continues.split()
                cut = calls[int(of)].started
                assert started.continuation == Continuation(int(index), Strategy(strategy), cut.number)
                assert started.turn is cut.turn
                attempt = world.records.attempts[-1]  # said before the call that makes it, of what came before it
                assert world.records.index(attempt) < world.records.index(started)
                assert attempt.continuation is started.continuation
                assert (attempt.provider, attempt.model) == (cut.provider, cut.model)
                earlier = [each for each in calls if each.started.turn is started.turn]
                assert attempt.output_chars == sum(each.output_chars for each in earlier)
                assert started.iteration == len(earlier) + 1
            assert started.turn.inferred is (continues is not None and within is None)
            assert within is None or started.turn is scopes[within].turn
            calls.append(made)
            ends = (["completed"] if reason is StopReason.END_TURN else []) if ends is None else ends
        assert [how(turn) for turn in world.records.turns[before:]] == (ends or [])
        assert expected_open is None or world.inferring.open_turns == expected_open
    steps = SCENARIOS[name]
    assert len(world.records.attempts) == sum("is" in step or "withdraw" in step for step in steps)


# --- What happens meanwhile ----------------------------------------------------------------------------------------


def test_a_turn_is_continued_by_one_call_at_a_time(world: World) -> None:
    """Of two calls that repeat a history at once, one continues; the turn does not end while it is under way."""
    cut = world.cut(HISTORY)
    seen: list[events.CallEnded] = []

    def meanwhile() -> None:
        world.now += IDLE_S + 1
        world.inferring.sweep()
        seen.append(world.call(HISTORY, "x"))

    ended = world.call(HISTORY, REST, during=meanwhile)
    assert ended.started.turn is cut.started.turn
    assert seen[0].started.turn is not cut.started.turn
    assert world.outcomes == [TurnOutcome.COMPLETED] * 2


def test_what_the_host_appends_later_does_not_count(world: World) -> None:
    """The history is the host's own list; what it held at the time is what was asked."""
    history = list(HISTORY)
    world.cut(history, during=lambda: history.append(user("appended while it ran")))
    assert world.call(list(HISTORY)).started.continuation is not None


def test_an_idle_turn_ends_before_a_collection(world: World) -> None:
    """A process that makes no further call still tells of it: with what the reader takes just then."""
    reader = InMemoryMetricReader()
    made = instruments_of(MeterProvider([reader], shutdown_on_exit=False))
    world.cut(HISTORY)
    world.cut([user("x")], "y")
    reader.collect()
    assert world.outcomes == []
    world.now += IDLE_S
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


def test_a_controller_says_itself_what_it_continues(world: World) -> None:
    """Nothing is inferred within its turn, and the texts that it goes on with are known from then on."""
    turn = Turn(kind=TurnKind.CONTROLLER)
    scope = start_turn(turn)
    going_on = [*GOING_ON[:-1], user("Bitte den Faden wieder aufnehmen.")]
    with scope.step():
        world.cut(HISTORY)
        assert world.call(HISTORY).started.continuation is None
        turn.continuation = Continuation(1, Strategy.PROMPT, 1)
        assert world.call(going_on).started.continuation is turn.continuation
    assert not world.records.attempts
    world.cut(HISTORY)
    assert world.call(going_on).started.continuation is not None


def test_nothing_is_hashed_while_nothing_is_open(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An ordinary call costs no hash."""
    monkeypatch.setattr("endturn.telemetry.turn_inference.digests", lambda *args: pytest.fail("hashed"))
    world.call(HISTORY, "x")


# --- Fingerprints --------------------------------------------------------------------------------------------------


def test_a_question_in_parts_is_a_question() -> None:
    """What tells questions apart reads Gemini's parts too."""
    parts: list[list[Any]] = [[{"text": "One?"}], [{"text": "Two?"}], []]
    asked = [RequestSummary(history=[{"role": "user", "parts": each}], length=1) for each in parts]
    first, second, none = map(fingerprints.question_of, asked)
    assert first != second
    assert first is not None
    assert none is None


@pytest.mark.parametrize(
    ("text", "is_one"),
    [*((text, True) for text in TEXTS["asks to go on"]), *((text, False) for text in TEXTS["does not"])],
)
def test_a_text_that_asks_to_go_on(text: str, is_one: bool) -> None:
    """What hosts send to have a cut answer finished, and what a person may well ask next."""
    assert ContinuePrompts().is_one(user(text)) is is_one


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


# --- Many at once --------------------------------------------------------------------------------------------------


def conversation(number: int, calls: list[tuple[events.CallEnded, events.CallEnded | None]]) -> Iterator[None]:
    """One host's loop, which knows what each of its calls continues. Another may come in between, in a call too.

    Half of them begin with one and the same prompt: their answers tell them apart.
    """
    order = random.Random(number)
    history = [user("Write a report." if number % 2 else f"Question {number}")]
    for turn in range(4):
        cut: events.CallEnded | None = None
        ways = ("prompt", "prefill", "id", "resend", "whole", "leave")
        way = order.choice(ways[:3] if number % 2 and not turn else ways)
        asked, more = history, dict[str, Any](maximum=100)
        for part in range(3):
            given = RequestSummary(**{"model": "m", "history": asked, "length": len(asked), **more})
            call = open_call(Layer.CLIENT, given, provider="p", model="m")
            assert call is not None
            yield
            text = f"Conversation {number} says in its turn {turn} part {part} that the"
            whole = way == "whole" or part == 2
            stop = Stop(StopReason.END_TURN if whole else StopReason.MAX_TOKENS)
            ended = call.end(stop, tail=text[-64:], output_chars=1, response_id=f"{number}.{turn}.{part}")
            assert ended is not None
            calls.append((ended, cut))
            cut = ended
            history_after = [*asked, {"role": "assistant", "content": text}]
            match way:
                case "prompt":
                    asked = [*history_after, CONTINUE]
                case "prefill" if part == 0:
                    asked = history_after
                case "prefill":
                    asked = [*asked[:-1], {"role": "assistant", "content": asked[-1]["content"] + text}]
                case "id":
                    asked, more = [CONTINUE], {"previous_id": ended.response_id}
                case "resend":
                    more = {"maximum": 200 + part}
                case _:
                    break
            yield
        history = [*history, {"role": "assistant", "content": text}, user(f"Question {number}.{turn}")]


@pytest.mark.parametrize("threads", [1, 16])
def test_many_conversations_at_once(world: World, threads: int) -> None:
    """Every call is assigned to its own turn, in whatever order they come and in whatever thread."""
    seconds = count(0.0, 3.0)  # no call comes at once after another: one prompt has many askers
    infer_with(TurnInference(clock=lambda: next(seconds), idle_s=1e9))
    calls: list[tuple[events.CallEnded, events.CallEnded | None]] = []

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
    assert len(turns) == sum(cut is None for _, cut in calls) == 320 * 4
    for made, cut in calls:
        of = made.started.continuation and made.started.continuation.of
        assert of == (cut and cut.started.number)
        assert cut is None or made.started.turn is cut.started.turn
