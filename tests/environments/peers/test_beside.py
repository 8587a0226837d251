"""Beside other instrumentations of the same SDKs: their spans are enriched, or tell of the calls alone.

Of each call comes out one response, and one span that says why it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from endturn.testing.scripted import Reply, break_off, call, fail, say, truncate
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
    "stream-lost": (failing(streamed), break_off("Hello there you"), "missing"),
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


def both(*emitters: Emit) -> Emit:
    """Two at once: of two spans of a call, that of the second is the inner one."""

    def emit(tracers: Any, meters: Any) -> Any:
        undo = [each(tracers, meters) for each in emitters]
        return lambda: [each() for each in reversed(undo)]

    return emit


DROPPED, RAW = ("dropped", "claude-early"), ("raw", "raw-lines")
ENDS_EARLIER: dict[Any, tuple[str, ...]] = {
    logfire: ("stream", "stream-cut", "stream-lost", "early", *DROPPED, *RAW),
    traceloop: (*DROPPED, *RAW),
}
"""Cases in which a span ends before its response does: no span says the reason, events and metrics do."""
UNTOLD: dict[Any, dict[str, str | None]] = {
    genai: dict.fromkeys(("early", "claude-early", "raw-lines"), "unknown"),
    openinference: dict.fromkeys(("early", *DROPPED, "raw-lines"), "unknown"),
    logfire: {
        **dict.fromkeys(("early", *DROPPED, "stream-lost", "responses", "responses-cut"), "unknown"),
        "raw-lines": None,
    },
    traceloop: {
        **dict.fromkeys(("stream-lost", "early", *DROPPED, *RAW), "unknown"),
        "responses-cut": None,
    },
}
"""What a span does not tell, and what is counted instead; None where there is no span.

Of a stream that was not read to its end it tells what had come; Logfire's (5.2) of Responses never a reason; and it
makes no span of lines. OpenLLMetry says OK of streams that were closed, dropped and cut off alike, and makes no span of
a Responses call that is cut off at its limit (0.62.4).
"""


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("emit", "observed", "first"),
    [
        *((emit, True, first) for emit in (genai, openinference) for first in ("emitter", "endturn")),
        (logfire, True, "endturn"),
        # The inner one's span is enriched, and the other's marked as counted.
        (both(openinference, genai), True, "emitter"),
        (both(genai, openinference), True, "emitter"),
        *((emit, False, "emitter") for emit in (genai, openinference, logfire)),
        # OpenLLMetry stays once it is set up: nothing may follow.
        *((traceloop, observed, "emitter") for observed in (True, False)),
    ],
)
def test_a_call_counts_once(case: str, emit: Any, observed: bool, first: str) -> None:
    """One response; and where endturn sees the call, one span that says why it stopped: theirs, whoever comes first.

    Ours only where theirs is not current: of a request that failed, of Responses by OpenLLMetry. Where no request is
    seen their span is read when it ends, nothing is written, and what it does not tell stays unknown.
    """
    ask, reply, reason = CASES[case]
    expected = reason if observed else UNTOLD[emit].get(case, reason)
    is_ours = case == "failed" or (emit is traceloop and case.startswith("responses"))
    with scene(reply, emit=emit, observed=observed, first=first) as on:
        on.ask(ask)
        assert on.counted() == ({} if expected is None else {expected: 1})
        assert on.told() == [reason] * (observed and case not in ENDS_EARLIER.get(emit, DROPPED))
        assert on.uncounted() == []
        scopes = [span.instrumentation_scope.name for span in on.finished() if span.instrumentation_scope]
        assert scopes.count("endturn") == (observed and is_ours)
        assert on.events().count("endturn.stop_reason_observed") == (expected is not None)
