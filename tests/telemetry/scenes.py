"""What is announced to the recorder in each row of recorded.yaml, which has what is recorded of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace

from endturn.calls import records
from endturn.calls.outcomes import Continuation, Strategy, TurnKind, TurnOutcome
from endturn.calls.records import ToolEnded, ToolStarted
from endturn.calls.turn import Turn
from endturn.errors import ProviderUnavailable
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.telemetry.mocked import adopting
from tests.telemetry.stage import CUT, DONE, USAGE, Stage

Scene = Callable[[Stage], Any]

SCENES: dict[str, Scene] = {}
"""The scenes by the names of their rows."""

PAUSED = Stop(StopReason.PAUSED, "pause_turn", incomplete=True)
TOOL = Stop(StopReason.TOOL_CALL, "tool_calls")
UNMAPPED = Stop(StopReason.UNKNOWN, "mystery", mapped=False)


def scene(*rows: str) -> Callable[[Scene], Scene]:
    """Register what happens in these rows, or in the row that is named as the function is."""

    def register(play: Scene) -> Scene:
        names = rows or (play.__name__.replace("_", " "),)
        assert SCENES.keys().isdisjoint(names)
        SCENES.update(dict.fromkeys(names, play))
        return play

    return register


def run_tool(stage: Stage, turn: Turn, name: str, error: BaseException | None = None) -> None:
    """Run a tool for a second."""
    started = ToolStarted(number=99, turn=turn, name=name, call_id="call_1")
    stage.tell(started)
    stage.step()
    stage.tell(ToolEnded(started=started, error=error, duration_s=1.0))


def announce(stage: Stage, turn: Turn, record: Callable[..., records.Record], **fields: Any) -> None:
    """Announce a record of a turn, with the turn's provider and model if it has them."""
    if record is not records.TerminationSignalled:
        fields |= {"provider": turn.provider, "model": turn.model}
    turn.continuations += record is records.ContinuationAttempted
    stage.tell(record(turn=turn, **fields))


@contextmanager
def foreign_span(
    stage: Stage, scope: str, *, operation: str = "chat", measures: Sequence[str] = (), meter: str = ""
) -> Iterator[None]:
    """Make a span of another instrumentation current.

    Args:
        scope: the instrumentation's.
        operation: the span's `gen_ai.operation.name`.
        measures: the histograms that the instrumentation creates when the call is over.
        meter: the scope of those histograms, if it is another.
    """
    span = stage.tracers.get_tracer(scope).start_span(
        "theirs", None, attributes={"gen_ai.operation.name": operation}, start_time=stage.clock()
    )
    with trace.use_span(span):
        yield
        assert span.is_recording() == (stage.sampler is None)
    for metric in measures:
        stage.meters.get_meter(meter or scope).create_histogram(metric)
    span.end(stage.clock())


@scene()
def a_whole_call(stage: Stage) -> None:
    stage.call(
        stage.turn(),
        Stop(StopReason.END_TURN, "stop", suspected=True),
        seconds=2,
        max_tokens=64,
        stream=True,
        choice_count=2,
        temperature=0.2,
        top_p=0.9,
        top_k=40,
        seed=7,
        reasoning_level="low",
        previous_response_id="resp_0",
        output_type="json",
        server_address="localhost",
        server_port=8080,
        first_chunk_s=0.5,
        reasons=("stop", "length"),
        truncated_choices=1,
        usage=Usage(input_tokens=100, output_tokens=64, reasoning_tokens=9, cache_read_tokens=50, cache_write_tokens=1),
        response_id="chatcmpl-1",
        response_model="gpt-5-08",
    )


@scene()
def a_call_that_names_no_model(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, UNMAPPED, provider="mistral_ai", model="", max_tokens=10)
    stage.close(turn, TurnOutcome.UNKNOWN_REASON)


@scene()
def a_call_that_names_no_provider(stage: Stage) -> None:
    stage.call(stage.turn(), CUT, provider="")


@scene()
def a_turn_that_names_no_model(stage: Stage) -> None:
    turn = stage.turn(TurnKind.CONTROLLER)
    stage.call(turn, CUT, provider="mistral_ai", model="")
    announce(stage, turn, records.PayloadRepaired, issue="incomplete_json", calls=2, attempted=True, succeeded=False)
    stage.close(turn, TurnOutcome.TOOL_REPAIR_FAILED)


@scene()
def a_call_that_is_cut(stage: Stage) -> None:
    stage.call(stage.turn(), CUT)


@scene()
def a_call_that_fails(stage: Stage) -> None:
    stage.call(stage.turn(), Stop(StopReason.ERROR), error=TimeoutError("planted"))


@scene()
def a_call_that_is_stopped_on_purpose(stage: Stage) -> None:
    stage.call(stage.turn(), Stop(StopReason.CANCELLED), error=KeyboardInterrupt("planted"))


@scene()
def errors_of_our_own(stage: Stage) -> None:
    stage.call(stage.turn(), Stop(StopReason.ERROR), error=ProviderUnavailable("planted", status=429))
    stage.call(stage.turn(), Stop(StopReason.ERROR), error=ProviderUnavailable("planted"))


@scene()
def finish_reasons(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)
    stage.call(stage.turn(), CUT, reasons=("length", "length"))
    stage.call(stage.turn(), CUT, reasons=("length", "stop", None))
    stage.call(
        stage.turn(), Stop(StopReason.TOOL_CALL, "stop", promoted_from=StopReason.END_TURN), reasons=("stop", "stop")
    )
    stage.call(stage.turn(), Stop(StopReason.MISSING), reasons=(None,))


@scene()
def a_continuation_links_to_what_it_continues(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    stage.call(turn, DONE, continuation=Continuation(1, Strategy.PROMPT, 1))
    stage.call(turn, DONE, continuation=Continuation(2, Strategy.PROMPT, 12345))


@scene()
def errors_of_turns_and_tools(stage: Stage) -> None:
    turn = stage.turn(TurnKind.OBSERVED)
    run_tool(stage, turn, "pay", error=ZeroDivisionError("planted"))
    stage.close(turn, TurnOutcome.PROVIDER_ERROR, error=ValueError("planted"))


@scene()
def a_span_that_is_adopted(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    with foreign_span(stage, "opentelemetry.util.genai.handler"):
        stage.call(
            turn,
            CUT,
            continuation=Continuation(1, Strategy.PROMPT, 1),
            error=ValueError("planted"),
            usage=USAGE,
            adopt=adopting(),
        )


@scene("an agent's span stands for the turn")
def an_agent_s_span_stands_for_the_turn(stage: Stage) -> None:
    with foreign_span(stage, "agents", operation="invoke_agent"):
        turn = stage.turn(TurnKind.OBSERVED, agent="b")
        stage.call(turn, DONE)
        stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def an_unsampled_call_still_counts(stage: Stage) -> None:
    stage.call(stage.turn(), CUT)


@scene()
def metrics_leave_this_process(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)


@scene()
def no_metrics_leave_this_process(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)


@scene()
def counted_elsewhere(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)


@scene()
def counted_though_no_reader_is_known(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)


@scene()
def a_turn_of_what_is_rare(stage: Stage) -> None:
    turn = stage.turn(TurnKind.CONTROLLER, agent="support", inferred=True, estimated=True)
    stage.call(turn, CUT)
    announce(
        stage,
        turn,
        records.ContinuationAttempted,
        continuation=Continuation(1, Strategy.PROMPT, 1),
        output_tokens=20,
        output_chars=80,
        chars_remaining=9,
    )
    announce(stage, turn, records.DispatchBlocked, reason="truncated", names=("search", "pay"))
    stage.close(turn, TurnOutcome.NOT_CONTINUED, tools_unanswered=True)


@scene("a turn of everything", "events are mirrored on spans", "events are logged and mirrored")
def a_turn_of_everything(stage: Stage) -> Turn:
    turn = stage.turn(TurnKind.CONTROLLER, agent="support", conversation="c-1")
    stage.call(turn, CUT, max_tokens=20, server_address="api.openai.com", server_port=443, usage=USAGE, output_chars=80)
    announce(
        stage,
        turn,
        records.ContinuationAttempted,
        continuation=Continuation(1, Strategy.PROMPT, 1),
        output_tokens=20,
        output_chars=80,
        attempts_remaining=2,
        tokens_remaining=1000,
    )
    stage.call(
        turn,
        DONE,
        continuation=Continuation(1, Strategy.PROMPT, 1),
        stream=True,
        usage=USAGE,
        output_chars=40,
        first_chunk_s=0.25,
        chunk_gaps_s=(0.25, 0.5),
    )
    announce(stage, turn, records.PayloadRepaired, issue="incomplete_json", calls=2, attempted=True, succeeded=True)
    announce(stage, turn, records.DispatchBlocked, reason="truncated", names=("search", "pay"))
    run_tool(stage, turn, "search")
    announce(
        stage,
        turn,
        records.TerminationSignalled,
        signal="finish_task",
        status="done",
        iteration=2,
        max_iterations=9,
        requires_review=False,
    )
    stage.close(turn, TurnOutcome.COMPLETED)
    return turn


@scene("everything, in two generations of names")
def everything_in_two_generations_of_names(stage: Stage) -> None:
    turn = a_turn_of_everything(stage)
    stage.call(turn, Stop(StopReason.UNKNOWN, "mystery", mapped=False, suspected=True))


@scene()
def names_of_blocked_tools_where_they_are_asked_for(stage: Stage) -> None:
    turn = stage.turn(TurnKind.CONTROLLER)
    announce(stage, turn, records.DispatchBlocked, reason="truncated", names=("search", "pay"))


@scene()
def unmapped_reasons(stage: Stage) -> None:
    stage.call(stage.turn(), UNMAPPED)
    stage.call(stage.turn(), UNMAPPED)
    stage.call(stage.turn(), Stop(StopReason.UNKNOWN, "riddle", mapped=False))


@scene()
def unmapped_reasons_of_several_words(stage: Stage) -> None:
    stage.call(stage.turn(), Stop(StopReason.UNKNOWN, "the user said this", mapped=False))
    stage.call(stage.turn(), Stop(StopReason.UNKNOWN, "the user said that", mapped=False))
    stage.call(stage.turn(), Stop(StopReason.UNKNOWN, "the user said this", mapped=False))
    stage.call(stage.turn(), Stop(StopReason.UNKNOWN, "output_gate: NEW_RULE my secret", mapped=False))


@scene()
def a_turn_that_is_whole(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, DONE)
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def a_turn_that_is_cut(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    stage.close(turn, TurnOutcome.NOT_CONTINUED)


@scene()
def a_turn_that_is_finished(stage: Stage) -> None:
    turn = stage.turn(TurnKind.CONTROLLER)
    stage.call(turn, CUT)
    stage.call(turn, DONE)
    turn.continuations = 1
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def a_turn_that_is_never_finished(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    stage.call(turn, CUT)
    turn.continuations = 3
    stage.close(turn, TurnOutcome.RETRY_LIMIT)


@scene()
def a_pause_does_not_finish_a_turn(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    stage.call(turn, PAUSED)
    turn.continuations = 1
    stage.close(turn, TurnOutcome.LEFT_PAUSED)


@scene()
def a_turn_that_a_person_stopped(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT)
    stage.close(turn, TurnOutcome.CANCELLED)


@scene()
def a_turn_that_was_never_truncated(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, PAUSED)
    stage.close(turn, TurnOutcome.LEFT_PAUSED)


@scene()
def a_turn_is_counted_where_it_was_first_cut(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, DONE, model="router")
    stage.call(turn, CUT, model="small")
    stage.call(turn, CUT, model="large")
    stage.close(turn, TurnOutcome.RETRY_LIMIT)


@scene()
def agents(stage: Stage) -> None:
    for name in (*(f"a{number}" for number in range(10)), "one too many"):
        turn = stage.turn(TurnKind.OBSERVED, agent=name)
        stage.call(turn, DONE)
        stage.close(turn, TurnOutcome.COMPLETED)
    turn = stage.turn(TurnKind.OBSERVED, agent="another")
    stage.call(turn, CUT)
    stage.close(turn, TurnOutcome.NOT_CONTINUED)


@scene()
def of_tools_and_an_answer_the_longest(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, TOOL, usage=Usage(10, 40))
    stage.call(turn, DONE, usage=Usage(10, 42))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def a_tool_call_may_be_the_longest(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, TOOL, usage=Usage(10, 90))
    stage.call(turn, DONE, usage=Usage(10, 42))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def an_answer_and_what_was_continued_of_it_is_one(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT, usage=Usage(10, 50))
    stage.call(turn, CUT, usage=Usage(10, 50), continuation=Continuation(1, Strategy.PROMPT, 1))
    stage.call(turn, DONE, usage=Usage(10, 7), continuation=Continuation(2, Strategy.PREFILL, 2))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def after_tools_there_is_a_new_answer(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT, usage=Usage(10, 50))
    stage.call(turn, TOOL, usage=Usage(10, 20), continuation=Continuation(1, Strategy.PROMPT, 1))
    stage.call(turn, DONE, usage=Usage(10, 30))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def a_payload_that_is_asked_for_again(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT, usage=Usage(10, 50))
    stage.call(turn, DONE, usage=Usage(10, 120), continuation=Continuation(1, Strategy.REPAIR, 1))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene("a question that is asked again, with more room")
def a_question_that_is_asked_again_with_more_room(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT, usage=Usage(10, 50))
    stage.call(turn, DONE, usage=Usage(10, 120), continuation=Continuation(1, Strategy.RESEND, 1))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def after_a_pause_the_rest_comes(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, PAUSED, usage=Usage(10, 50))
    stage.call(turn, DONE, usage=Usage(10, 20), continuation=Continuation(1, Strategy.RESEND, 1))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def a_continuation_that_is_tried_again(stage: Stage) -> None:
    turn = stage.turn(TurnKind.IMPLICIT)
    stage.call(turn, CUT, usage=Usage(10, 50))
    stage.call(turn, Stop(StopReason.MISSING), usage=Usage(10, 10), continuation=Continuation(1, Strategy.PROMPT, 1))
    stage.call(turn, DONE, usage=Usage(10, 30), continuation=Continuation(2, Strategy.RETRY, 2))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene()
def answers_side_by_side(stage: Stage) -> None:
    turn = stage.turn(TurnKind.OBSERVED)
    stage.call(turn, CUT, usage=Usage(10, 100))
    stage.call(turn, DONE, usage=Usage(10, 120))
    stage.call(turn, DONE, usage=Usage(10, 50), continuation=Continuation(1, Strategy.PROMPT, 1))
    stage.close(turn, TurnOutcome.COMPLETED)


@scene("an emitter of them", "wanted all the same")
def an_emitter_of_them(stage: Stage) -> None:
    with foreign_span(
        stage,
        "opentelemetry.util.genai.handler",
        measures=("gen_ai.client.operation.duration", "gen_ai.client.token.usage"),
    ):
        stage.call(stage.turn(), DONE, usage=USAGE, adopt=adopting())


@scene()
def an_emitter_that_no_list_has(stage: Stage) -> None:
    with foreign_span(stage, "acme.agents", measures=("gen_ai.client.operation.duration",)):
        stage.call(stage.turn(), DONE, adopt=adopting())


@scene()
def an_emitter_whose_meter_is_called_otherwise_than_its_tracer(stage: Stage) -> None:
    with foreign_span(
        stage,
        "openlit.instrumentation.openai",
        meter="openlit.otel.metrics",
        measures=("gen_ai.client.operation.duration",),
    ):
        stage.call(stage.turn(), DONE, adopt=adopting())


@scene()
def an_emitter_of_one_of_them(stage: Stage) -> None:
    with foreign_span(stage, "pydantic-ai", measures=("gen_ai.client.token.usage",)):
        stage.call(stage.turn(), DONE, usage=USAGE, adopt=adopting())


@scene()
def an_emitter_of_them_around_a_call_that_it_does_not_adopt(stage: Stage) -> None:
    with foreign_span(stage, "acme", measures=("gen_ai.client.operation.duration",)):
        stage.call(stage.turn(), DONE)


@scene("no emitter of them", "unwanted")
def no_emitter_of_them(stage: Stage) -> None:
    with foreign_span(stage, "com.anthropic.sdk.python"):
        stage.call(stage.turn(), DONE, usage=USAGE, adopt=adopting())


@scene("an emitter of them beside another's call")
def an_emitter_of_them_beside_another_s_call(stage: Stage) -> None:
    with foreign_span(stage, "openinference.instrumentation.openai"):
        stage.call(stage.turn(), DONE, adopt=adopting())
    with foreign_span(stage, "acme", measures=("gen_ai.client.operation.duration",)):
        pass


@scene()
def an_emitter_of_them_beside_a_call_of_nobody(stage: Stage) -> None:
    with foreign_span(stage, "acme", measures=("gen_ai.client.operation.duration",)):
        pass
    stage.call(stage.turn(), DONE)


@scene()
def an_emitter_of_them_whose_spans_are_dropped(stage: Stage) -> None:
    with foreign_span(stage, "acme", measures=("gen_ai.client.operation.duration",)):
        stage.call(stage.turn(), DONE)


@scene("an emitter of them, and a dropped call of nobody")
def an_emitter_of_them_and_a_dropped_call_of_nobody(stage: Stage) -> None:
    with foreign_span(stage, "acme", measures=("gen_ai.client.operation.duration",)):
        pass
    stage.call(stage.turn(), DONE)


@scene("no emitter of them, spans dropped")
def no_emitter_of_them_spans_dropped(stage: Stage) -> None:
    stage.call(stage.turn(), DONE)


@scene(
    "the generation of names, other words",
    "the generation of names, the later",
    "the generation of names, both",
    "the generation of names, by option both",
    "the generation of names, by option the first",
)
def the_generation_of_names_other_words(stage: Stage) -> None:
    stage.call(stage.turn(), DONE, usage=USAGE)
