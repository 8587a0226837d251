"""Calls that another instrumentation watches too, and what has to come out: one response, one span that says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from endturn.scripted import call, cut, fail, say, truncate
from tests.environments.peers.scene import ASK, TELL, Scene, scene

TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
CLAUDE_TOOLS = [{"name": "search", "input_schema": {"type": "object"}}]


def whole(on: Scene) -> None:
    on.openai().chat.completions.create(**ASK)


def tools(on: Scene) -> None:
    on.openai().chat.completions.create(**ASK, tools=TOOLS)  # type: ignore[call-overload]


def stream(on: Scene) -> None:
    list(on.openai().chat.completions.create(**ASK, stream=True, stream_options={"include_usage": True}))


def raw_stream(on: Scene) -> None:
    list(on.openai().chat.completions.with_raw_response.create(**ASK, stream=True).parse())


def lines(on: Scene) -> None:
    with on.openai().chat.completions.with_streaming_response.create(**ASK, stream=True) as response:
        list(response.iter_lines())


def early(on: Scene) -> None:
    chunks = on.openai().chat.completions.create(**ASK, stream=True)
    next(iter(chunks))
    chunks.close()


def dropped(on: Scene) -> None:
    next(iter(on.openai().chat.completions.create(**ASK, stream=True)))


def lost(on: Scene) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK makes of it
        stream(on)


def failing(on: Scene) -> None:
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever the SDK makes of it
        whole(on)


def claude(on: Scene) -> None:
    on.anthropic().messages.create(**TELL)


def claude_tools(on: Scene) -> None:
    on.anthropic().messages.create(**TELL, tools=CLAUDE_TOOLS)  # type: ignore[call-overload]


def claude_stream(on: Scene) -> None:
    list(on.anthropic().messages.create(**TELL, stream=True))


def claude_helper(on: Scene) -> None:
    with on.anthropic().messages.stream(**TELL) as stream:
        stream.get_final_message()


def claude_early(on: Scene) -> None:
    chunks = on.anthropic().messages.create(**TELL, stream=True)
    next(iter(chunks))
    chunks.close()


def responses(on: Scene) -> None:
    on.openai().responses.create(model="gpt-5", input="hi", max_output_tokens=50)


CASES: list[Any] = [
    pytest.param(whole, say("Hello there"), "end_turn", id="whole"),
    pytest.param(whole, truncate("Hello there", after=1), "max_tokens", id="cut"),
    pytest.param(tools, call("search", {"q": "x"}), "tool_call", id="tool"),
    pytest.param(stream, say("Hello there"), "end_turn", id="stream"),
    pytest.param(stream, truncate("Hello there", after=1), "max_tokens", id="stream-cut"),
    pytest.param(lost, cut("Hello there you"), "missing", id="stream-lost"),
    pytest.param(early, say("Hello there you all"), "cancelled", id="early"),
    pytest.param(dropped, say("Hello there you all"), "cancelled", id="dropped"),
    pytest.param(failing, fail(500), "error", id="failed"),
    pytest.param(claude, say("Hello there"), "end_turn", id="claude"),
    pytest.param(claude, truncate("Hello there", after=1), "max_tokens", id="claude-cut"),
    pytest.param(claude_tools, call("search", {"q": "x"}), "tool_call", id="claude-tool"),
    pytest.param(claude_stream, truncate("Hello there", after=1), "max_tokens", id="claude-stream-cut"),
    pytest.param(claude_helper, say("Hello there"), "end_turn", id="claude-helper"),
    pytest.param(claude_early, say("Hello there you all"), "cancelled", id="claude-early"),
    pytest.param(responses, say("Hello there"), "end_turn", id="responses"),
    pytest.param(responses, truncate("Hello there", after=1), "max_tokens", id="responses-cut"),
]


ASKED = pytest.mark.parametrize(("ask", "reply", "reason"), CASES)


def enriched(
    emit: Any,
    ask: Callable[[Scene], None],
    reply: Any,
    reason: str,
    *,
    ours: bool = False,
    told: bool = True,
    **given: Any,
) -> None:
    """Check a call that endturn sees too: one response is counted, and one span says why it stopped: theirs.

    Args:
        ours: a span of ours says so: their span is not current, or the request failed, which adopts none.
        told: a span says so; else theirs ends before the response does, and events and metrics alone tell.
    """
    ours |= ask is failing
    with scene(reply, emit=emit, observed=True, **given) as on:
        on.ask(ask)
        assert on.responses() == {reason: 1}
        assert [(span.attributes or {})["endturn.stop.reason"] for span in on.marked()] == [reason] * told
        assert on.uncounted() == []
        scopes = [span.instrumentation_scope.name for span in on.finished() if span.instrumentation_scope]
        assert scopes.count("endturn") == ours
        assert on.events().count("endturn.stop_reason_observed") == 1


def alone(
    emit: Any, ask: Callable[[Scene], None], reply: Any, reason: str, untold: Mapping[Any, str | None] | None = None
) -> None:
    """Check a call of which endturn sees nothing but the span: the same is counted, and nothing is written.

    Args:
        untold: where the span does not tell the reason, what is counted instead; None where there is no span.
    """
    expected = (untold or {}).get((ask, reason), reason)
    with scene(reply, emit=emit, observed=False) as on:
        on.ask(ask)
        assert on.responses() == ({} if expected is None else {expected: 1})
        assert on.marked() == []
        assert on.uncounted() == []
        assert on.events().count("endturn.stop_reason_observed") == bool(expected)
