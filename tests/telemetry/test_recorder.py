"""The recorder: what is announced becomes spans, events and metrics, as the schema declares them."""

from __future__ import annotations

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from endturn import hooks
from endturn.chat import Usage
from endturn.errors import ProviderUnavailable
from endturn.events import (
    Continuation,
    ContinuationAttempted,
    DispatchBlocked,
    PayloadRepaired,
    Strategy,
    TerminationSignalled,
    ToolEnded,
    ToolStarted,
    TurnKind,
    TurnOutcome,
)
from endturn.stop import Resume, Stop, StopReason
from endturn.telemetry import instruments
from endturn.telemetry.instruments import instruments_of
from endturn.telemetry.otel_providers import Options
from endturn.telemetry.recorder import Recorder
from tests.telemetry.mocked import adopting
from tests.telemetry.stage import CUT, DONE, METRICS, USAGE, Stage, counted

RECORDED: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("recorded.yaml").read_text())
OPENAI = ("openai", "gpt-5")
PAUSED = Stop(StopReason.PAUSED, "pause_turn", incomplete=True)
DRIFT = Stop(StopReason.UNKNOWN, "mystery", mapped=False)
DELTA: dict[type, AggregationTemporality] = dict.fromkeys(
    (Counter, ObservableCounter, Histogram), AggregationTemporality.DELTA
)


def again(index: int = 1, of: int | None = 1) -> dict[str, Any]:
    """What the start of a call says that continues this one."""
    return {"continuation": Continuation(index, Strategy.PROMPT, of)}


def everything(stage: Stage, provider: str = "openai", model: str = "gpt-5") -> None:
    """One record of every kind."""
    turn = stage.turn(TurnKind.CONTROLLER, agent="support", conversation="c-1")
    who: dict[str, Any] = {"provider": provider, "model": model}
    about: dict[str, Any] = {"turn": turn, **who}
    asked = {"maximum": 20, "server_address": "api.openai.com", "server_port": 443, **who}
    first = stage.call(turn, CUT, usage=USAGE, asked=asked, output_chars=80)
    turn.continuations = 1
    left: dict[str, Any] = {"attempts_remaining": 2, "tokens_remaining": 1000, "chars_remaining": None}
    stage.tell(ContinuationAttempted(**again(), output_tokens=20, output_chars=80, **left, **about))
    asked = {**again(of=first.started.number), "stream": True, **who}
    stage.call(turn, usage=USAGE, first_chunk_s=0.25, chunk_gaps_s=(0.25, 0.5), asked=asked, output_chars=40)
    stage.tell(PayloadRepaired(issue="incomplete_json", calls=2, attempted=True, succeeded=True, **about))
    stage.tell(DispatchBlocked(reason="truncated", names=("search", "pay"), **about))
    tool = ToolStarted(number=99, turn=turn, name="search", call_id="call_1")
    stage.tell(tool)
    stage.clock.step()
    stage.tell(ToolEnded(started=tool, error=None, duration_s=1.0))
    bound: dict[str, Any] = {"iteration": 2, "max_iterations": 9, "requires_review": False}
    stage.tell(TerminationSignalled(turn=turn, signal="finish_task", status="done", **bound))
    stage.close(turn)


def plain(value: Any) -> Any:
    """As YAML has it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, tuple | list) else value


# --- Spans ----------------------------------------------------------------------------------------------------------


def test_a_call_is_one_client_span(stage: Stage) -> None:
    """A whole answer: every attribute that is known, status unset, no exception event."""
    asked = {
        "maximum": 64, "stream": True, "choices": 2, "temperature": 0.2, "top_p": 0.9, "top_k": 40, "seed": 7,
        "reasoning_level": "low", "previous_id": "resp_0", "output_type": "json",
        "server_address": "localhost", "server_port": 8080,
    }  # fmt: skip
    usage = Usage(input_tokens=100, output_tokens=64, reasoning_tokens=9, cache_read_tokens=50, cache_write_tokens=1)
    answer: dict[str, Any] = {"response_id": "chatcmpl-1", "response_model": "gpt-5-08", "reasons": ("stop", "stop")}
    stop = replace(DONE, suspected=True)
    stage.call(stage.turn(), stop, seconds=2, asked=asked, usage=usage, first_chunk_s=0.5, **answer)
    assert plain(stage.finished()) == [RECORDED["a whole call"]]


@pytest.mark.parametrize(
    ("provider", "model", "name"), [("mistral_ai", "", "chat"), ("", "gpt-5", "chat gpt-5"), ("", "", "chat")]
)
def test_what_is_not_known_of_a_call_is_left_out(stage: Stage, provider: str, model: str, name: str) -> None:
    """Of a call that names no model, or fails before anybody is asked: in spans, events and labels alike."""
    turn = stage.turn()
    stage.call(turn, DRIFT, asked={"provider": provider, "model": model, "maximum": 10})
    stage.close(turn)
    (span,) = stage.finished()
    assert span["name"] == name
    known = {"gen_ai.provider.name": provider, "gen_ai.request.model": model}
    events = stage.events()
    assert [event["name"] for event in events] == ["endturn.stop_reason_observed", "endturn.stop_reason_unmapped"]
    for attributes in (span["attributes"], *events):
        assert {key: attributes.get(key, "") for key in known} == known
        assert "" not in attributes.values()
    found = stage.points()
    assert {key[:2] for key in found["endturn.responses"]} == {(provider or None, model or None)}
    assert {key[1:3] for key in found["gen_ai.client.operation.duration"]} == {(provider or None, model or None)}
    # Nor is usage that a provider did not say recorded as zero.
    assert not {"endturn.turn.output", "endturn.output.budget_used", "gen_ai.client.token.usage"} & found.keys()


def test_events_of_a_turn_that_names_no_model(stage: Stage) -> None:
    """What continues it, what its tools come to, and how it ends say no more of the model than it did."""
    everything(stage, provider="mistral_ai", model="")
    told = [event for event in stage.events() if event["name"] != "endturn.termination_signal"]
    assert {(event["gen_ai.provider.name"], event.get("gen_ai.request.model")) for event in told} == {
        ("mistral_ai", None)
    }


@pytest.mark.parametrize(
    ("stop", "error", "shown", "word"),
    [
        pytest.param(CUT, None, None, "length", id="cut: no error, it has attributes of its own"),
        pytest.param(Stop(StopReason.ERROR), TimeoutError("planted"), "TimeoutError", "error", id="failed"),
        pytest.param(Stop(StopReason.CANCELLED), KeyboardInterrupt(), None, "error", id="stopped on purpose"),
        # Our own classes are each one for many answers: there the HTTP status tells, as for any HTTP client.
        pytest.param(Stop(StopReason.ERROR), ProviderUnavailable("x", status=429), "429", "error", id="ours"),
        pytest.param(Stop(StopReason.ERROR), ProviderUnavailable("x"), "ProviderUnavailable", "error", id="no answer"),
    ],
)
def test_status_and_type_of_an_error(
    stage: Stage, stop: Stop, error: BaseException | None, shown: str | None, word: str
) -> None:
    """The class of the error, never its message: providers quote prompts and keys in it."""
    stage.call(stage.turn(), stop, error=error)
    (span,) = stage.finished()
    assert (span["status"], span["events"]) == ("ERROR" if shown else "UNSET", [])
    assert span["attributes"].get("error.type") == shown
    assert span["attributes"]["gen_ai.response.finish_reasons"] == (word,)
    assert "planted" not in repr(stage.spans.get_finished_spans()[0].to_json())
    timed = stage.points()["gen_ai.client.operation.duration"]
    assert timed == {("chat", *OPENAI, None, None, None, shown): (1, 1.0)}


@pytest.mark.parametrize(
    ("stop", "raws", "words"),
    [
        pytest.param(DONE, (), ("stop",), id="one"),
        pytest.param(CUT, ("length", "length"), ("length", "length"), id="the same"),
        # Raw where it is unknown, error where there is none.
        pytest.param(CUT, ("length", "stop", None), ("length", "stop", "error"), id="others"),
        pytest.param(
            Stop(StopReason.TOOL_CALL, "stop", promoted_from=StopReason.END_TURN),
            ("stop", "stop"),
            ("tool_call", "stop"),
            id="what was promoted says nothing of the others",
        ),
        pytest.param(Stop(StopReason.MISSING), (None,), ("error",), id="missing"),
    ],
)
def test_finish_reasons_are_one_word_per_choice(
    stage: Stage, stop: Stop, raws: tuple[str | None, ...], words: tuple[str, ...]
) -> None:
    """Choice 0 is normalised; the others are where they say the same."""
    stage.call(stage.turn(), stop, reasons=raws)
    assert stage.finished()[0]["attributes"]["gen_ai.response.finish_reasons"] == words


def test_a_continuation_links_to_what_it_continues(stage: Stage) -> None:
    """By the call's number; a number that is not remembered makes no link."""
    turn = stage.turn()
    cut = stage.call(turn, CUT)
    stage.call(turn, asked=again(of=cut.started.number))
    stage.call(turn, asked=again(2, of=12345))
    assert [(span["span"], span["links"]) for span in stage.finished()] == [(1, []), (2, [1]), (3, [])]
    assert [span["attributes"].get("endturn.continuation.index") for span in stage.finished()] == [None, 1, 2]


def test_a_call_within_a_turn_is_its_child(stage: Stage) -> None:
    """An explicit turn is a span of its own, with the tally of its calls."""
    everything(stage)
    spans = {span["name"]: span for span in stage.finished()}
    turn, tool = spans["invoke_agent support"], spans["execute_tool search"]
    assert (turn["kind"], turn["time"], turn["status"], tool["time"]) == ("INTERNAL", (0.0, 3.0), "UNSET", (2.0, 3.0))
    assert {name: spans[name]["attributes"] for name in RECORDED["spans of a turn"]} == RECORDED["spans of a turn"]


def test_errors_of_turns_and_tools_are_their_spans(stage: Stage) -> None:
    """By the class of what was raised; a turn without an agent is just a turn."""
    turn = stage.turn(TurnKind.OBSERVED)
    tool = ToolStarted(number=99, turn=turn, name="pay", call_id="call_1")
    stage.tell(tool)
    stage.tell(ToolEnded(started=tool, error=ZeroDivisionError(), duration_s=0.0))
    stage.close(turn, TurnOutcome.PROVIDER_ERROR, error=ValueError("planted"))
    assert [(span["name"], span["status"], span["attributes"]["error.type"]) for span in stage.finished()] == [
        ("execute_tool pay", "ERROR", "ZeroDivisionError"),
        ("invoke_agent", "ERROR", "ValueError"),
    ]


def test_a_call_enriches_the_span_that_it_adopts(stage: Stage) -> None:
    """Another instrumentation's span gets our attributes and the link, keeps its name and status, and stays open."""
    turn = stage.turn()
    cut = stage.call(turn, CUT)
    tracer = stage.tracers.get_tracer("opentelemetry.util.genai.handler")
    with tracer.start_as_current_span("chat theirs", attributes={"gen_ai.operation.name": "chat"}) as theirs:
        asked = {"adopt": adopting(), **again(of=cut.started.number)}
        stage.call(turn, CUT, asked=asked, error=ValueError(), usage=USAGE)
        assert stage.activation is None
        assert theirs.is_recording()
    _, span = stage.finished()
    assert (span["name"], span["status"], span["links"]) == ("chat theirs", "UNSET", [1])
    assert plain(span["attributes"]) == RECORDED["a span that is adopted"]


def test_an_agents_span_stands_for_the_turn(stage: Stage) -> None:
    """Somebody's invoke_agent span gets the turn's attributes, none of the conventions', and is not ended."""
    tracer = stage.tracers.get_tracer("agents")
    with tracer.start_as_current_span("invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}):
        turn = stage.turn(TurnKind.OBSERVED, agent="b")
        stage.call(turn)
        stage.close(turn)
    call, agent = stage.finished()
    assert (call["name"], agent["name"]) == ("chat gpt-5", "invoke_agent a")
    assert agent["attributes"]["endturn.turn.outcome"] == "completed"
    assert "gen_ai.agent.name" not in agent["attributes"]


def test_an_unsampled_call_still_counts() -> None:
    """Metrics and events do not depend on the sampler; exemplars do."""
    stage = Stage(sampler=ALWAYS_OFF)
    stage.call(stage.turn(), CUT)
    assert not stage.finished()
    assert counted(stage.points()["endturn.responses"]) == {(*OPENAI, "max_tokens"): 1}
    assert [event["name"] for event in stage.events()] == ["endturn.stop_reason_observed"]


# --- Events ---------------------------------------------------------------------------------------------------------


def test_every_event_as_it_is_declared(stage: Stage) -> None:
    """Name, severity, time, span, fields, and a line for people that is made of them: all of them, in order."""
    everything(stage)
    lines = [one.log_record.body for one in stage.logs.get_finished_logs()]
    found = [{**event, "body": line} for event, line in zip(stage.events(), lines, strict=True)]
    assert found == RECORDED["events of a turn"]


FINE = {TurnOutcome.COMPLETED, TurnOutcome.IMPLICIT_COMPLETION}
GIVEN_UP = {outcome for outcome in TurnOutcome if outcome.group == "budget_exhausted"} | {TurnOutcome.RETRY_LIMIT}


@pytest.mark.parametrize("outcome", TurnOutcome)
def test_how_bad_the_end_of_a_truncated_turn_is(stage: Stage, outcome: TurnOutcome) -> None:
    """Completed is INFO, the four budgets and the retry limit are ERROR, all else is WARN; of others nothing is said.

    Who turned continuing off is not told of an error each time that an answer is cut.
    """
    expected = "INFO" if outcome in FINE else "ERROR" if outcome in GIVEN_UP else "WARN"
    is_limit = outcome in (TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT)
    for stop, attempts, severity in ((CUT, 1, expected), (CUT, 0, "INFO" if is_limit else expected), (DONE, 1, None)):
        turn = stage.turn()
        stage.call(turn, stop)
        turn.continuations = turn.resumes = attempts
        before = len(stage.events())
        stage.close(turn, outcome)
        told = [(event["name"], event["severity"]) for event in stage.events()[before:]]
        assert told == ([("endturn.continuation_terminated", severity)] if severity else [])


def test_an_unmapped_reason_is_said_once_and_counted_always(stage: Stage) -> None:
    """Once per provider, model and value."""
    for stop in (DRIFT, DRIFT, replace(DRIFT, raw="riddle")):
        stage.call(stage.turn(), stop)
    said = [event for event in stage.events() if event["name"] == "endturn.stop_reason_unmapped"]
    assert [(event["endturn.stop.raw"], event["severity"]) for event in said] == [
        ("mystery", "WARN"),
        ("riddle", "WARN"),
    ]
    assert counted(stage.points()["endturn.stop_reasons.unmapped"]) == {OPENAI: 3}


def test_names_of_blocked_tools_only_where_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The standard variable for content on events is the opt-in."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "event_only")
    stage = Stage()
    everything(stage)
    (blocked,) = [event for event in stage.events() if event["name"] == "endturn.tool_dispatch_blocked"]
    assert blocked["endturn.block.names"] == ("search", "pay")


@pytest.mark.parametrize(("mode", "logged"), [("spans", 0), ("both", 7)])
def test_events_can_be_mirrored_on_spans(monkeypatch: pytest.MonkeyPatch, mode: str, logged: int) -> None:
    """Each on the span that it belongs to."""
    monkeypatch.setenv("ENDTURN_EVENTS", mode)
    stage = Stage()
    everything(stage)
    assert len(stage.events()) == logged
    assert {span["name"]: [name for name, _ in span["events"]] for span in stage.finished()} == {
        "chat gpt-5": ["endturn.stop_reason_observed"],
        "execute_tool search": [],
        "invoke_agent support": [event["name"] for event in RECORDED["events of a turn"] if event["span"] == 1],
    }


# --- Metrics --------------------------------------------------------------------------------------------------------


def test_every_metric_as_it_is_declared(stage: Stage) -> None:
    """Values, units, buckets and attributes of one turn that was cut and finished."""
    stage = Stage(options=Options(prices={"gpt-5": (1.0, 10.0)}, semconv="gen_ai_latest_experimental/dup"))
    everything(stage)
    stage.call(stage.turn(), replace(DRIFT, suspected=True))
    found = {
        name: {" ".join("-" if part is None else str(part) for part in key): value for key, value in sums.items()}
        for name, sums in ((name, counted(sums)) for name, sums in stage.points().items())
    }
    found["endturn.continuation.cost"]["openai gpt-5"] = round(found["endturn.continuation.cost"]["openai gpt-5"], 9)
    assert plain(found) == RECORDED["metrics"]
    assert set(found) == set(METRICS)


@pytest.mark.parametrize(
    ("stops", "outcome", "exits"),
    [
        pytest.param([DONE], TurnOutcome.COMPLETED, 0, id="whole"),
        pytest.param([CUT], TurnOutcome.NOT_CONTINUED, 1, id="cut"),
        pytest.param([CUT, DONE], TurnOutcome.COMPLETED, 0, id="finished"),
        pytest.param([CUT, CUT, CUT, CUT], TurnOutcome.RETRY_LIMIT, 1, id="never finished"),
        pytest.param([CUT, PAUSED], TurnOutcome.LEFT_PAUSED, 1, id="paused does not finish it"),
        pytest.param([CUT], TurnOutcome.CANCELLED, 1, id="stopped by a person, counted with its outcome"),
        pytest.param([PAUSED], TurnOutcome.LEFT_PAUSED, 0, id="never truncated"),
    ],
)
def test_an_exit_is_a_turn_that_ends_on_something_unfinished(
    stage: Stage, stops: list[Stop], outcome: TurnOutcome, exits: int
) -> None:
    """Whatever the outcome's name, and in the same step as the turn."""
    turn = stage.turn()
    for stop in stops:
        stage.call(turn, stop)
    turn.continuations = len(stops) - 1
    stage.close(turn, outcome)
    found = stage.points()
    truncated, continued = stops[0] is CUT, len(stops) > 1
    assert counted(found["endturn.turns"]) == {(*OPENAI, None, truncated, continued, outcome.value): 1}
    assert counted(found["endturn.truncation.exits"]) == ({(*OPENAI, None, outcome.value): 1} if exits else {})
    assert found.get("endturn.turn.continuations") == ({OPENAI: (1, len(stops) - 1)} if truncated else None)


def test_a_turn_is_counted_where_it_was_first_cut(stage: Stage) -> None:
    """Not where it began, nor where it was finished."""
    turn = stage.turn()
    for model, stop in (("router", DONE), ("small", CUT), ("large", CUT)):
        stage.call(turn, stop, asked={"model": model})
    stage.close(turn, TurnOutcome.RETRY_LIMIT)
    found = stage.points()
    assert counted(found["endturn.turns"]) == {("openai", "small", None, True, False, "retry_limit"): 1}
    assert counted(found["endturn.truncation.exits"]) == {("openai", "small", None, "retry_limit"): 1}


def test_sums_are_born_at_zero(stage: Stage) -> None:
    """From a model's first call on, before anything has been counted: the first increment is seen as one."""
    stage.start(stage.turn())
    found = stage.points()
    assert found["endturn.responses"] == {(*OPENAI, reason.value): 0 for reason in StopReason}
    assert found["endturn.truncation.exits"][*OPENAI, None, "not_continued"] == 0
    assert found["endturn.turns"][*OPENAI, None, True, False, "not_continued"] == 0
    assert found["endturn.continuations"] == {(*OPENAI, strategy.value): 0 for strategy in Strategy}
    assert found["endturn.listener.failures"] == {("Recorder",): 0}
    assert set(found["endturn.series.capped"].values()) == {0}


def test_an_error_is_not_kept_until_the_collection(stage: Stage) -> None:
    """Its traceback would keep the caller's frames alive."""

    class Failure(Exception):
        pass

    turn = stage.turn()
    stage.call(turn, Stop(StopReason.ERROR), error=Failure())
    stage.close(turn, TurnOutcome.PROVIDER_ERROR, error=Failure())
    gc.collect()
    assert not any(isinstance(thing, Failure) for thing in gc.get_objects())


@pytest.mark.parametrize(
    ("scope", "option", "recorded_by_us"),
    [
        pytest.param("opentelemetry.util.genai.handler", None, False, id="an emitter"),
        pytest.param("com.anthropic.sdk.python", None, True, id="not an emitter"),
        pytest.param("opentelemetry.util.genai.handler", True, True, id="wanted all the same"),
        pytest.param("com.anthropic.sdk.python", False, False, id="unwanted"),
    ],
)
def test_the_conventions_metrics_are_recorded_once(scope: str, option: bool | None, recorded_by_us: bool) -> None:
    """Not where the adopted span's instrumentation records them; ours always."""
    stage = Stage(options=Options(gen_ai_metrics=option))
    with stage.tracers.get_tracer(scope).start_as_current_span("chat theirs"):
        stage.call(stage.turn(), usage=USAGE, asked={"adopt": adopting()})
    found = stage.points()
    assert ("gen_ai.client.operation.duration" in found) is recorded_by_us
    assert counted(found["endturn.responses"]) == {(*OPENAI, "end_turn"): 1}


@pytest.mark.parametrize(
    ("option", "variable", "emitted"),
    [
        (None, "http/dup,gen_ai_next", {"operation"}),
        (None, "http,gen_ai_latest_experimental", {"inference"}),
        (None, "gen_ai_latest_experimental, gen_ai_latest_experimental/dup", {"operation", "inference"}),
        ("gen_ai_latest_experimental/dup", "gen_ai_latest_experimental", {"operation", "inference"}),
        ("default", "gen_ai_latest_experimental", {"operation"}),
    ],
)
def test_which_generation_of_names_is_emitted(
    monkeypatch: pytest.MonkeyPatch, option: str | None, variable: str, emitted: set[str]
) -> None:
    """By option, else by the conventions' variable, whose other words are not ours."""
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", variable)
    stage = Stage(options=Options(semconv=option))
    stage.call(stage.turn(), usage=USAGE, asked={"stream": True}, first_chunk_s=0.5, chunk_gaps_s=(0.1,))
    found = {name for name, sums in stage.points().items() if sums and name.startswith("gen_ai.")}
    times = {f"gen_ai.client.{name}.duration" for name in emitted}
    assert {name for name in found if name.endswith("duration")} == times
    assert ("gen_ai.client.token.usage" in found) is ("operation" in emitted)
    assert ("gen_ai.client.inference.operation.input_tokens" in found) is ("inference" in emitted)
    assert ("gen_ai.client.inference.usage.input_tokens" in found) is ("inference" in emitted)


def exemplars(stage: Stage) -> dict[str, set[int | None]]:
    """The spans that the histograms of a collection lead to."""
    reader = stage.readers[0]
    assert isinstance(reader, InMemoryMetricReader)
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: {exemplar.span_id for point in metric.data.data_points for exemplar in point.exemplars}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if isinstance(metric.data.data_points[0], HistogramDataPoint)
    }


def test_exemplars_lead_to_the_call(stage: Stage) -> None:
    """A histogram's exemplar is the call's span; an implicit turn's is its truncated call, whose trace is kept."""
    turn = stage.turn()
    stage.call(turn, CUT)
    stage.call(turn, usage=USAGE)
    stage.close(turn)
    found = exemplars(stage)
    assert (found["endturn.turn.duration"], found["gen_ai.client.token.usage"]) == ({1}, {2})


def test_no_exemplar_of_whoever_collects(stage: Stage) -> None:
    """A call without a span has none, whatever is current where the metrics are collected."""
    stage.recorder = Recorder(trace.NoOpTracerProvider(), stage.meters, stage.loggers, clock=stage.clock)
    stage.call(stage.turn())
    with stage.tracers.get_tracer("host").start_as_current_span("a request"):
        assert set().union(*exemplars(stage).values()) == set()


TOOL = Stop(StopReason.TOOL_CALL, "tool_calls")
RESENT = Stop(StopReason.PAUSED, "pause_turn", resume=Resume.RESEND_UNCHANGED)
LOST = Stop(StopReason.MISSING)

Call = tuple[Stop, int, Strategy | None]


# What one call would have needed for its answer, and not the sum of a turn's calls.
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
        pytest.param([(RESENT, 50, None), (DONE, 20, Strategy.RESEND)], 70, id="after a pause the rest comes"),
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


# --- Caps and size: the bounds are in test_cardinality --------------------------------------------------------------


def test_agents_are_off_by_default_and_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten names, then `other`."""
    monkeypatch.setenv("ENDTURN_METRICS_AGENT", "true")
    stage = Stage()
    for number in range(12):
        turn = stage.turn(TurnKind.OBSERVED, agent=f"a{number}")
        stage.call(turn)
        stage.close(turn)
    found = stage.points()
    turns = counted(found["endturn.turns"])
    assert len(turns) == 11
    assert turns[*OPENAI, "other", False, False, "completed"] == 2
    assert found["endturn.series.capped"]["agent",] >= 2


def test_the_size_of_one_model(stage: Stage) -> None:
    """A process that meets all that commonly happens has at most 150 series of ours per provider and model."""
    everything(stage)
    for reason in StopReason:
        stage.call(stage.turn(), Stop(reason), usage=USAGE, asked={"maximum": 100})
    for stop, outcomes in (
        (DONE, ("COMPLETED", "PROVIDER_ERROR", "SAFETY_BLOCKED", "REFUSED")),
        (CUT, ("NOT_CONTINUED", "RETRY_LIMIT", "TOKEN_BUDGET", "CANCELLED")),
    ):
        for outcome in outcomes:
            turn = stage.turn()
            stage.call(turn, stop, usage=USAGE)
            turn.continuations = 3 if outcome != "NOT_CONTINUED" and stop is CUT else 0
            stage.close(turn, TurnOutcome[outcome])
    series = 0
    for name, found in stage.points().items():
        if name.startswith("endturn."):
            buckets = METRICS[name].buckets
            series += sum(OPENAI[1] in key for key in found) * (len(buckets) + 3 if buckets else 1)
    assert series <= 150


# --- Collection -----------------------------------------------------------------------------------------------------


def test_what_is_queued_is_in_the_next_collection_of_every_reader() -> None:
    """Readers that collect at different times, one of them what happened since it last did: each sees everything."""
    cumulative, delta = InMemoryMetricReader(), InMemoryMetricReader(preferred_temporality=DELTA)
    stage = Stage(readers=[cumulative, delta])
    total = 0
    for calls in (2, 0, 1):
        for _ in range(calls):
            stage.call(stage.turn(), usage=USAGE)
        total += calls
        for reader, count in ((delta, calls), (cumulative, total)):
            found = stage.points(reader)
            assert found["endturn.responses"].get((*OPENAI, "end_turn"), 0) == count
            usage = found.get("gen_ai.client.token.usage", {})
            assert usage.get(("chat", *OPENAI, None, None, None, "output"), (0, 0)) == (count, 20 * count)


def test_a_full_queue_loses_nothing(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is recorded where it overflows, one for each that comes, from many threads at once."""
    monkeypatch.setattr(instruments, "QUEUED", 16)

    def work() -> None:
        for _ in range(200):
            turn = stage.turn()
            stage.call(turn, usage=USAGE)
            stage.close(turn)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = stage.points()
    assert counted(found["endturn.responses"]) == {(*OPENAI, "end_turn"): 800}
    assert found["endturn.turn.output"] == {(*OPENAI, True): (800, 16_000)}


def test_failures_of_listeners_are_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the listener's name."""
    monkeypatch.setattr(hooks, "_failed", {"Recorder": 2, "mine": 1})
    assert stage.points()["endturn.listener.failures"] == {("Recorder",): 2, ("mine",): 1}


def test_threads_that_find_a_provider_at_once_make_one_set_of_instruments(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK would never ask a second set of observable instruments: what it counted would be lost.

    Logfire's provider is a dataclass that compares by value, and has no hash.
    """

    class Unhashable(MeterProvider):
        __hash__ = None  # type: ignore[assignment]

        def get_meter(self, *given: Any, **options: Any) -> Any:
            time.sleep(0.02)
            return super().get_meter(*given, **options)

    provider = Unhashable(shutdown_on_exit=False)
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: instruments_of(provider), range(4)))
    assert len({id(each) for each in made}) == 1


def test_a_signal_that_comes_while_something_is_counted(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its handler may flush, in the very thread: what is being counted is seen by the next collection."""
    seen: list[dict[Any, Any]] = []
    add = instruments.Series.add

    def interrupted(counter: Any, *given: Any) -> None:
        if not seen:
            seen.append({})  # the collection counts too
            seen[0] = stage.points().get("endturn.responses", {})
        add(counter, *given)

    monkeypatch.setattr(instruments.Series, "add", interrupted)
    stage.call(stage.turn())
    assert counted(seen[0]) == {}
    assert counted(stage.points()["endturn.responses"]) == {(*OPENAI, "end_turn"): 1}


@pytest.mark.parametrize("temporality", [None, DELTA], ids=["cumulative", "delta"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_counts_its_own(temporality: dict[type, AggregationTemporality] | None) -> None:
    """It starts at zero, keeps the known sets, and its parent's queue, sums and histograms stay with the parent."""
    stage = Stage(readers=[InMemoryMetricReader(preferred_temporality=temporality)])
    stage.call(stage.turn(), usage=USAGE)
    stage.points()
    open_call = stage.start(stage.turn())
    stage.call(stage.turn(), CUT, usage=USAGE)
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            stage.call(stage.turn(), usage=USAGE)
            stage.end(open_call)
            found = stage.points()
            told = (
                counted(found["endturn.responses"]),
                (*OPENAI, "refused") in found["endturn.responses"],
                found["gen_ai.client.token.usage"]["chat", *OPENAI, None, None, None, "input"],
                len(stage.finished()),
            )
            os.write(here, repr(told).encode())
        finally:
            os._exit(0)
    os.close(here)
    with os.fdopen(there) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    # The call that was under way in the parent is counted where it ends; its span is the parent's.
    assert said == repr(({(*OPENAI, "end_turn"): 2}, True, (1, 100), 3))
    assert counted(stage.points()["endturn.responses"])[*OPENAI, "max_tokens"] == 1


# --- Where nothing is installed -------------------------------------------------------------------------------------


def test_without_an_sdk_the_recorder_sleeps(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> None:
    """It says so to whoever would announce, and keeps nothing; providers that come later wake it."""
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)
    monkeypatch.setattr(metrics, "get_meter_provider", metrics.NoOpMeterProvider)
    stage.recorder = recorder = Recorder(clock=stage.clock)
    assert not recorder.awake()
    stop = hooks.subscribe(recorder)
    assert not hooks.listening()
    everything(stage)
    monkeypatch.setattr(metrics, "get_meter_provider", lambda: stage.meters)
    monkeypatch.setattr(metrics._internal, "_METER_PROVIDER", stage.meters)
    assert hooks.listening()
    stop()
    stage.call(stage.turn())
    assert not stage.finished()
    assert counted(stage.points()["endturn.responses"]) == {(*OPENAI, "end_turn"): 1}


@pytest.mark.parametrize(
    ("option", "readers", "said"), [(None, 1, True), (None, 0, False), (False, 1, False), (True, 0, True)]
)
def test_counted_says_that_metrics_leave_this_process(option: bool | None, readers: int, said: bool) -> None:
    """So that a Collector does not count the response again: where there is a reader, or the option says so."""
    stage = Stage(options=Options(counted=option), readers=[InMemoryMetricReader() for _ in range(readers)])
    stage.call(stage.turn())
    assert stage.finished()[0]["attributes"].get("endturn.counted", False) is said


def test_a_reader_that_comes_later_is_believed_once_it_has_collected() -> None:
    """The SDK has no way to ask which readers were added since."""
    late = Stage(readers=[])
    reader = InMemoryMetricReader()
    late.meters.add_metric_reader(reader)
    late.call(late.turn())
    reader.get_metrics_data()
    late.call(late.turn())
    assert [span["attributes"].get("endturn.counted") for span in late.finished()] == [None, True]


def test_a_call_that_never_ends_is_let_go(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in flight is bounded."""
    monkeypatch.setattr("endturn.telemetry.recorder.IN_FLIGHT", 10)
    for started in [stage.start(stage.turn()) for _ in range(15)]:
        stage.end(started)
    assert len(stage.finished()) == 10


def test_disabled_providers_are_no_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    """OTEL_SDK_DISABLED leaves an SDK that makes nothing."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert not Recorder(TracerProvider(), MeterProvider(), None).awake()
