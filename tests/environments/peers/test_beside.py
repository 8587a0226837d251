"""Beside other instrumentations of the same SDKs: their spans are enriched, or tell of the calls alone.

Of each call comes out one response, and one span that says why it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import pytest

from endturn.scripted import Reply, call, cut, fail, say, truncate
from tests.environments.peers.scene import ASK, TELL, Emit, Scene, genai, logfire, openinference, scene, traceloop

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
CLAUDE_TOOLS = [{"name": "search", "input_schema": {"type": "object"}}]
Ask = Callable[[Scene], Any]


def chat(on: Scene, **more: Any) -> Any:
    return on.openai().chat.completions.create(**ASK, **more)


def message(on: Scene, **more: Any) -> Any:
    return on.anthropic().messages.create(**TELL, **more)


def streamed(on: Scene) -> list[Any]:
    return list(chat(on, stream=True, stream_options={"include_usage": True}))


def failing(ask: Ask) -> Ask:
    """One that raises, whatever the SDK makes of it."""

    def asks(on: Scene) -> None:
        with suppress(Exception):
            ask(on)
            pytest.fail("nothing was raised")

    return asks


def early(ask: Callable[..., Any]) -> Ask:
    """One whose stream is left after its first event."""

    def asks(on: Scene) -> None:
        chunks = ask(on, stream=True)
        next(iter(chunks))
        chunks.close()

    return asks


def helper(on: Scene) -> None:
    with on.anthropic().messages.stream(**TELL) as stream:
        stream.get_final_message()


def respond(on: Scene) -> None:
    on.openai().responses.create(model="gpt-5", input="hi", max_output_tokens=50)


def raw_stream(on: Scene) -> None:
    list(on.openai().chat.completions.with_raw_response.create(**ASK, stream=True).parse())


def lines(on: Scene) -> None:
    with on.openai().chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        list(response.iter_lines())


WHOLE, CUT = say("Hello there"), truncate("Hello there", after=1)
CASES: dict[str, tuple[Ask, Reply, str]] = {
    "whole": (chat, WHOLE, "end_turn"),
    "cut": (chat, CUT, "max_tokens"),
    "tool": (lambda on: chat(on, tools=TOOLS), call("search", {"q": "x"}), "tool_call"),
    "stream": (streamed, WHOLE, "end_turn"),
    "stream-cut": (streamed, CUT, "max_tokens"),
    "stream-lost": (failing(streamed), cut("Hello there you"), "missing"),
    "early": (early(chat), say("Hello there you all"), "cancelled"),
    "dropped": (lambda on: next(iter(chat(on, stream=True))), say("Hello there you all"), "cancelled"),
    "failed": (failing(chat), fail(500), "error"),
    "raw": (raw_stream, CUT, "max_tokens"),
    "raw-lines": (lines, CUT, "max_tokens"),
    "claude": (message, WHOLE, "end_turn"),
    "claude-cut": (message, CUT, "max_tokens"),
    "claude-tool": (lambda on: message(on, tools=CLAUDE_TOOLS), call("search", {"q": "x"}), "tool_call"),
    "claude-stream-cut": (lambda on: list(message(on, stream=True)), CUT, "max_tokens"),
    "claude-helper": (helper, WHOLE, "end_turn"),
    "claude-early": (early(message), say("Hello there you all"), "cancelled"),
    "responses": (respond, WHOLE, "end_turn"),
    "responses-cut": (respond, CUT, "max_tokens"),
}
each_case = pytest.mark.parametrize("case", CASES)


def enriched(emit: Any, case: str, *, ours: bool = False, untold: Collection[str] = (), **given: Any) -> None:
    """Check a call that endturn sees too: one response is counted, and one span says why it stopped: theirs.

    Args:
        ours: a span of ours says so: their span is not current. (A request that failed adopts none, either.)
        untold: cases in which theirs ends before the response does, and events and metrics alone tell.
    """
    ask, reply, reason = CASES[case]
    with scene(reply, emit=emit, observed=True, **given) as on:
        on.ask(ask)
        assert on.responses() == {reason: 1}
        assert on.told() == [reason] * (case not in untold)
        assert on.uncounted() == []
        scopes = [span.instrumentation_scope.name for span in on.finished() if span.instrumentation_scope]
        assert scopes.count("endturn") == (ours or case == "failed")
        assert on.events().count("endturn.stop_reason_observed") == 1


def alone(emit: Any, case: str, untold: Mapping[str, str | None]) -> None:
    """Check a call of which endturn sees nothing but the span: the same is counted, and nothing is written.

    Args:
        untold: where the span does not tell the reason, what is counted instead; None where there is no span.
    """
    ask, reply, reason = CASES[case]
    expected = untold.get(case, reason)
    with scene(reply, emit=emit, observed=False) as on:
        on.ask(ask)
        assert on.responses() == ({} if expected is None else {expected: 1})
        assert on.told() == on.uncounted() == []
        assert on.events().count("endturn.stop_reason_observed") == bool(expected)


def both(*emitters: Emit) -> Emit:
    """Two at once: of two spans of a call, that of the second is the inner one."""

    def emit(tracers: Any, meters: Any) -> Any:
        undo = [each(tracers, meters) for each in emitters]
        return lambda: [each() for each in reversed(undo)]

    return emit


DROPPED, RAW = ("dropped", "claude-early"), ("raw", "raw-lines")
ENDS_EARLIER: dict[Any, tuple[str, ...]] = {logfire: ("stream", "stream-cut", "stream-lost", "early", *DROPPED, *RAW)}
"""Cases in which a span ends before its response does: no span says the reason, events and metrics do."""
UNTOLD: dict[Any, dict[str, str | None]] = {
    genai: dict.fromkeys(("early", "claude-early", "raw-lines"), "unknown"),
    openinference: dict.fromkeys(("early", *DROPPED, "raw-lines"), "unknown"),
    logfire: {
        **dict.fromkeys(("early", *DROPPED, "stream-lost", "responses", "responses-cut"), "unknown"),
        "raw-lines": None,
    },
}
"""What a span does not tell. Of a stream that was not read to its end it tells what had come; Logfire's (5.2) of
Responses never a reason; and it makes no span of lines."""


@each_case
@pytest.mark.parametrize(
    ("emit", "first"),
    [
        *((emit, first) for emit in (genai, openinference) for first in ("emitter", "endturn")),
        (logfire, "endturn"),
        # The inner one's span is enriched, and the other's marked as counted.
        (both(openinference, genai), "emitter"),
        (both(genai, openinference), "emitter"),
    ],
)
def test_a_call_enriches_their_span(case: str, emit: Any, first: str) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(emit, case, untold=ENDS_EARLIER.get(emit, DROPPED), first=first)


@each_case
@pytest.mark.parametrize("emit", UNTOLD)
def test_their_span_tells_of_a_call(case: str, emit: Any) -> None:
    """Where no request is seen their span is read when it ends, and what it does not tell stays unknown."""
    alone(emit, case, UNTOLD[emit])


# --- OpenLLMetry, which stays once it is set up: nothing but its tests may follow -------------------------------------

UNTOLD_BY_TRACELOOP = {
    **dict.fromkeys(("stream-lost", "early", *DROPPED, *RAW), "unknown"),
    "responses-cut": None,
}
"""It says OK of streams that were closed, dropped and cut off alike, and makes no span of a Responses call that is cut
off at its limit (0.62.4)."""


@each_case
def test_a_call_enriches_openllmetrys_span(case: str) -> None:
    """One response, one span that says why it stopped; ours only of Responses, whose span it makes afterwards.

    Its span of a raw stream ends before that is read: the reason then stands in metrics and events alone.
    """
    enriched(traceloop, case, ours=case.startswith("responses"), untold=(*DROPPED, *RAW))


@each_case
def test_openllmetrys_span_tells_of_a_call(case: str) -> None:
    """Where no request is seen its span is read when it ends; what it does not tell stays unknown."""
    alone(traceloop, case, UNTOLD_BY_TRACELOOP)
