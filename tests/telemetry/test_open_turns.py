"""Turns that wait for their next call: what many of them cost, and what they leave room for."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from endturn.calls import listeners
from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, ResponseFacts
from endturn.calls.outcomes import RequestedCall, TurnKind, TurnOutcome
from endturn.calls.records import CallEnded
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import infer_with, start_turn
from endturn.formats import RequestSummary
from endturn.telemetry import fingerprints
from endturn.telemetry.recorder import Recorder
from endturn.telemetry.retries import MAX_FAILED_TURNS
from endturn.telemetry.tool_loops import MAX_OPEN_LOOPS
from endturn.telemetry.truncated_turns import FILTER_ABOVE, MAX_PENDING_TURNS
from endturn.telemetry.turn_inference import TurnInference
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.announced import Records
from tests.support.growth import growth
from tests.support.summaries import summarized

MANY = 20_000
MOST_GROWTH = 8.0
"""Times as long as four times as much may take. What grows with the square takes sixteen times as long."""
HALF = "The tides are the rise and fall of the sea that the moon and"


class Agents:
    """Agents that nobody declared, recorded into providers of their own.

    Attributes:
        now: the clock of the inference.
    """

    def __init__(self) -> None:
        self.now = 1_000.0
        self.inference = TurnInference(clock=lambda: self.now)
        self.records = Records()
        self.spans = InMemorySpanExporter()
        self.reader = InMemoryMetricReader()
        tracers = TracerProvider(shutdown_on_exit=False)
        tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.recorder = Recorder(tracers, MeterProvider([self.reader], shutdown_on_exit=False))

    def call(
        self,
        history: list[Any],
        reason: StopReason = StopReason.TOOL_CALL,
        *call_ids: str,
        error: Exception | None = None,
        tail: str = HALF[-64:],
        **asked: Any,
    ) -> CallEnded:
        """Make a call, which ends so."""
        request = summarized(history, model="m", **asked)
        call = open_call(Layer.CLIENT, request.facts, EndpointFacts(provider="p"), summary=request)
        assert call is not None
        calls = tuple(RequestedCall(call_id, "search") for call_id in call_ids)
        ended = call.end(ResponseFacts(stop=Stop(reason)), tail=tail, tool_calls=calls, error=error)
        assert ended is not None
        return ended

    def turns(self) -> dict[str, int]:
        """Count the turns that ended, as metrics tell of them, by outcome."""
        counts: dict[str, int] = {}
        data: Any = self.reader.get_metrics_data()
        metrics = [metric for rm in data.resource_metrics for sm in rm.scope_metrics for metric in sm.metrics]
        for point in (
            point for metric in metrics if metric.name == "endturn.turns" for point in metric.data.data_points
        ):
            outcome = str((point.attributes or {})["endturn.turn.outcome"])
            value: Any = point.value
            counts[outcome] = counts.get(outcome, 0) + value
        return {outcome: count for outcome, count in counts.items() if count}


@pytest.fixture
def agents() -> Iterator[Agents]:
    made = Agents()
    stops = listeners.subscribe(made.recorder), listeners.subscribe(made.records.append)
    infer_with(made.inference)
    with listeners.strict():
        yield made
    infer_with(None)
    for stop in stops:
        stop()
    made.inference.forget()


def question(text: object) -> list[Any]:
    return [{"role": "user", "content": f"Question {text}."}]


def results(history: list[Any], *call_ids: str) -> list[Any]:
    """The history that sends the results of these calls."""
    calls = [{"id": call_id, "type": "function", "function": {"name": "search"}} for call_id in call_ids]
    answer = {"role": "assistant", "content": None, "tool_calls": calls}
    return [*history, answer, *({"role": "tool", "tool_call_id": call_id, "content": "42"} for call_id in call_ids)]


# --- Bounds ----------------------------------------------------------------------------------------------------------


def test_open_loops_push_out_no_other_turn(agents: Agents) -> None:
    """Of 20,000 open loops the oldest end as if no results came, are counted, and nothing else ends."""
    turn = Turn(kind=TurnKind.OBSERVED, agent="declared")
    scope = start_turn(turn)
    truncated = agents.call(question("cut"), StopReason.MAX_TOKENS)
    for number in range(MANY):
        agents.call(question(number), StopReason.TOOL_CALL, f"call_{number:024x}")
    over = agents.records.turns
    assert len(over) == MANY - MAX_OPEN_LOOPS
    assert {(ended.outcome, ended.tools_unanswered) for ended in over} == {(TurnOutcome.COMPLETED, True)}
    assert agents.turns() == {"completed": MANY - MAX_OPEN_LOOPS}
    # Of every turn that waits, and of no other, it is known where its signals lead.
    assert len(agents.recorder._implicit) == MAX_OPEN_LOOPS + 1
    scope.end(TurnOutcome.COMPLETED)
    (span,) = [span for span in agents.spans.get_finished_spans() if span.name == "invoke_agent declared"]
    assert (span.attributes or {})["endturn.turn.outcome"] == "completed"
    half = {"role": "assistant", "content": HALF}
    rest = agents.call([*question("cut"), half, {"role": "user", "content": "Go on."}], StopReason.END_TURN)
    assert rest.started.turn is truncated.started.turn
    # The youngest still waits; the first does not.
    last, first = (question(number) for number in (MANY - 1, 0))
    joined = agents.call(results(last, f"call_{MANY - 1:024x}"), StopReason.END_TURN)
    assert joined.started.iteration == 2
    assert agents.call(results(first, f"call_{0:024x}"), StopReason.END_TURN).started.iteration == 1
    agents.inference.close()
    assert sum(agents.turns().values()) == MANY + 3
    assert not agents.recorder._implicit


@pytest.mark.parametrize(("kind", "most"), [("truncated", MAX_PENDING_TURNS), ("failed", MAX_FAILED_TURNS)])
def test_each_kind_of_open_turn_has_a_bound_of_its_own(agents: Agents, kind: str, most: int) -> None:
    """As many as may wait, and 100 more: these end, and no loop does."""
    agents.call(question("loop"), StopReason.TOOL_CALL, "call_7f3a9c2e41")
    reason, error = (StopReason.MAX_TOKENS, None) if kind == "truncated" else (StopReason.ERROR, OSError("down"))
    for number in range(most + 100):
        agents.call(question(number), reason, error=error)
    outcome = "not_continued" if kind == "truncated" else "provider_error"
    assert agents.turns() == {outcome: 100}
    assert agents.call(results(question("loop"), "call_7f3a9c2e41"), StopReason.END_TURN).started.iteration == 2


# --- Memory ----------------------------------------------------------------------------------------------------------


def bytes_each(work: Callable[[int], object], number: int) -> float:
    """Measure what one more of these things takes."""
    gc.collect()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for each in range(number):
            work(each)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / number


@pytest.mark.parametrize("kind", ["loop", "truncated"])
def test_an_open_turn_takes_little_memory(agents: Agents, kind: str) -> None:
    """Neither its history nor its span is kept."""
    infer_with(None)
    tracemalloc.start()
    for number in range(1_100):  # fills what is kept of the latest calls, however they end
        agents.call(question(number), StopReason.MAX_TOKENS)
    infer_with(agents.inference)
    agents.records.clear()
    agents.spans.clear()
    text = "word " * 2_000

    def opened(number: int) -> None:
        history = question(f"{number} {text}")
        if kind == "loop":
            agents.call(history, StopReason.TOOL_CALL, f"call_{number:024x}")
        else:
            agents.call(history, StopReason.MAX_TOKENS)
        agents.records.clear()
        agents.spans.clear()

    assert bytes_each(opened, 800) <= 3_000


# --- Time ------------------------------------------------------------------------------------------------------------


def quickest_s(work: Callable[[int], object], times: int = 100) -> float:
    """Seconds that the quickest runs take."""
    spent: list[float] = []
    for number in range(times):
        began = time.perf_counter()
        work(number)
        spent.append(time.perf_counter() - began)
    return sorted(spent)[times // 10]


def unlike(number: int) -> tuple[list[Any], str]:
    return question(number), f"call_{number:024x}"


def counters(number: int) -> tuple[list[Any], str]:
    """Servers may only count the calls of a response."""
    return question(number), "call_0"


def samples(number: int) -> tuple[list[Any], str]:
    """One prompt is asked again and again."""
    return question("the same"), f"call_{number:024x}"


def counted_samples(number: int) -> tuple[list[Any], str]:
    return question("the same"), "call_0"


def nameless(number: int) -> tuple[list[Any], str]:
    return question(number), ""


@pytest.mark.parametrize("open_loop", [unlike, counters, samples, counted_samples, nameless])
def test_a_call_costs_the_same_however_many_turns_wait(
    agents: Agents, open_loop: Callable[[int], tuple[list[Any], str]]
) -> None:
    """With 8,000 open loops it takes at most three times what it takes with 500."""
    listeners._set_listeners(())

    def ask(number: int) -> object:
        return agents.call(question(f"new {number}"), StopReason.END_TURN)

    def step(number: int) -> object:
        history, call_id = open_loop(number)
        return agents.call(results(history, call_id), StopReason.TOOL_CALL, f"call_{number:024x}")

    def fork(number: int) -> object:
        """Send results that answer no turn."""
        _, call_id = open_loop(number)
        return agents.call(results(question(f"new {number}"), call_id or "call_1"), StopReason.END_TURN)

    spent = []
    for start, end in ((0, 500), (500, 8_000)):
        for number in range(start, end):
            history, call_id = open_loop(number)
            agents.call(history, StopReason.TOOL_CALL, call_id)
        spent.append([quickest_s(work) for work in (ask, fork, step)])
    few, many = spent
    assert all(after <= 3 * before for before, after in zip(few, many, strict=True)), spent


def test_a_loop_is_found_as_fast_among_many(agents: Agents) -> None:
    """The ids of all other calls are looked up, and never gone through: not even for results of one call alone."""
    listeners._set_listeners(())
    found, spent = [], []
    for start, end in ((0, 500), (500, 16_000)):
        for number in range(start, end):
            history, call_id = unlike(number)
            agents.call(history, StopReason.TOOL_CALL, call_id)
        history = results(*unlike(end - 1))
        request = summarized(history, model="m")

        def find(_: int, request: RequestSummary = request) -> None:
            found.append(agents.inference._loops.find(request))

        spent.append(quickest_s(find, 200))
    assert None not in found
    assert spent[1] <= 3 * spent[0]


def test_an_observed_turn_costs_the_same_however_many_turns_wait(agents: Agents) -> None:
    """To see which of its truncated answers a response finishes, other turns' are not looked at."""
    listeners._set_listeners(())
    spent = []
    for many in (10, MAX_PENDING_TURNS):
        for number in range(many):
            agents.call(question(number), StopReason.MAX_TOKENS)
        scope = start_turn(Turn(kind=TurnKind.OBSERVED))
        with scope.step():
            agents.call(question("cut"), StopReason.MAX_TOKENS)
            spent.append(quickest_s(lambda number: agents.call(question(f"other {number}"), StopReason.END_TURN)))
        scope.end(TurnOutcome.COMPLETED)
    assert spent[1] <= 3 * spent[0]


def cut_samples(agents: Agents, number: int) -> dict[str, Turn]:
    """Have so many answers to one prompt truncated; return each with its turn."""
    tides = "The tides rise and fall. " * 40
    answers = [f"{tides}{each:016} harbours see them twice a day, of which {each:016}" for each in range(number)]
    return {
        answer: agents.call(question("the same"), StopReason.MAX_TOKENS, tail=answer[-64:]).started.turn
        for answer in answers
    }


def ask_again(agents: Agents, answers: Iterable[str]) -> None:
    """Ask the prompt as often as it was cut."""
    for _ in answers:
        agents.call(question("the same"), StopReason.END_TURN)


def follow_others(agents: Agents, answers: Iterable[str]) -> None:
    """Go on with other answers to it, which were whole."""
    for answer in answers:
        said = {"role": "assistant", "content": answer.replace("harbours", "coasts")}
        agents.call([*question("the same"), said, *question("next")], StopReason.END_TURN)


def follow_own(agents: Agents, answers: Iterable[str]) -> None:
    """Continue each of them."""
    for answer in answers:
        said = {"role": "assistant", "content": answer}
        history = [*question("the same"), said, {"role": "user", "content": "Go on."}]
        assert agents.call(history, StopReason.END_TURN).started.continuation is not None


@pytest.mark.parametrize(("work", "number"), [(ask_again, 250), (follow_own, 250), (follow_others, 100)])
def test_many_truncated_answers_to_one_prompt(
    agents: Agents, work: Callable[[Agents, Iterable[str]], None], number: int
) -> None:
    """Calls that begin with it are not compared with each of the answers."""
    listeners._set_listeners(())

    def prepare(number: int) -> Callable[[], object]:
        def run() -> None:
            agents.inference.forget()
            work(agents, cut_samples(agents, number))

        return run

    assert growth(prepare, number, again=number, suspicious=MOST_GROWTH) <= MOST_GROWTH


@pytest.mark.parametrize("change", [str, "{}</answer>".format, lambda answer: answer[:-20]])
def test_an_answer_is_found_among_many_to_one_prompt(agents: Agents, change: Callable[[str], str]) -> None:
    """Also where the host appended markup to it, or removed what was unfinished."""
    answer, turn = list(cut_samples(agents, FILTER_ABOVE + 20).items())[40]
    said = {"role": "assistant", "content": change(answer)}
    call = agents.call([*question("the same"), said, {"role": "user", "content": "Go on."}], StopReason.END_TURN)
    assert call.started.turn is turn


def test_a_cut_call_is_found_among_many_to_one_prompt(agents: Agents) -> None:
    """By its id, where the responses have no text."""
    cuts = [
        agents.call(question("the same"), StopReason.MAX_TOKENS, f"call_{number:024x}", tail="").started
        for number in range(FILTER_ABOVE + 20)
    ]
    history = results(question("the same"), f"call_{40:024x}")
    assert agents.call(history, StopReason.END_TURN).started.turn is cuts[40].turn


def test_no_long_history_is_hashed_because_other_turns_wait(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a step of a loop only the first and the last messages are read, unless a truncated turn began as it did."""
    hashed: list[int] = []
    prefixes = fingerprints.prefixes

    def counting(request: RequestSummary, *rest: Any, **options: Any) -> Any:
        hashed.append(request.length)
        return prefixes(request, *rest, **options)

    monkeypatch.setattr("endturn.telemetry.truncated_turns.prefixes", counting)
    agents.call(question("cut"), StopReason.MAX_TOKENS)
    history = question("loop")
    for number in range(50):
        history = results(history, f"call_{number:024x}")
    agents.call(history, StopReason.TOOL_CALL, "call_7f3a9c2e41")
    assert agents.call(results(history, "call_7f3a9c2e41"), StopReason.END_TURN).started.iteration == 2
    assert not hashed
    half = {"role": "assistant", "content": HALF}
    rest = agents.call([*question("cut"), half, {"role": "user", "content": "Go on."}], StopReason.END_TURN)
    assert rest.started.continuation is not None
    assert hashed
