"""The Messages API: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Tool, ToolCall
from endturn.errors import UsageError
from endturn.events import Strategy
from endturn.formats import Context, RequestSummary
from endturn.formats.anthropic import FORMAT as anthropic
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies import (
    ANTHROPIC,
    FOUND,
    SEARCH,
    THOUGHT,
    message,
    say,
    use,
)

CTX = Context()


def whole(name: str, ctx: Context = CTX) -> ChatResponse:
    """The response of a body."""
    return anthropic.decode(ANTHROPIC[name], ctx=ctx)


# What responses say that no recorded reply shows


def test_compaction_is_the_end_where_it_was_asked_for() -> None:
    """A request for nothing but a summary is complete with the summary."""
    ctx = Context(asked=anthropic.request_summary({"compaction": {"type": "summarize"}}))
    stop = whole("compaction", ctx).stop
    assert (stop.reason, stop.resume) == (StopReason.END_TURN, Resume.NONE)
    assert whole("compaction").stop.resume is Resume.RESEND_UNCHANGED


def test_a_guardrail_has_a_word_in_bedrock_alone() -> None:
    """InvokeModel puts it in the place of the model's own reason."""
    body = message([say("Sorry.")], "guardrail_intervened")
    for ctx in (Context("bedrock"), Context(provider="aws.bedrock")):
        assert anthropic.decode(body, ctx=ctx).stop.reason is StopReason.SAFETY_BLOCKED
    assert not anthropic.decode(body, ctx=CTX).stop.mapped


# Requests

TOOL = Tool(name="weather", description="The weather.", parameters={"type": "object", "properties": {"city": {}}})
REQUEST = Request(
    model="m",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="Weather?"),
        Message(
            role="assistant",
            content="Looking.",
            tool_calls=(ToolCall(id="a", name="weather", arguments={"city": "x"}), ToolCall(id="b", name="clock")),
        ),
        Message(role="tool", content="Rain.", tool_call_id="a"),
        Message(role="tool", content="broken", tool_call_id="b", is_error=True),
        Message(role="user", content="Thanks. And?"),
    ),
    tools=(TOOL,),
    tool_choice="weather",
    max_tokens=64,
    temperature=0.5,
    seed=7,
    format={"type": "object"},
    extra={"top_p": 0.9},
)


def test_encode() -> None:
    """A request as the SDK would send it: the results of one batch in one user message."""
    assert anthropic.encode(REQUEST, stream=True) == {
        "model": "m",
        "max_tokens": 64,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": [say("Looking."), use("a", "weather", {"city": "x"}), use("b", "clock", {})],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "Rain."},
                    {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": True},
                ],
            },
            {"role": "user", "content": "Thanks. And?"},
        ],
        "tools": [{"name": "weather", "description": "The weather.", "input_schema": TOOL.parameters}],
        "tool_choice": {"type": "tool", "name": "weather"},
        "temperature": 0.5,
        "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stream": True,
        "top_p": 0.9,
    }
    bare = anthropic.encode(Request(model="m", messages=()))
    assert bare["max_tokens"] == 4_096
    with pytest.raises(UsageError, match="fetch"):
        anthropic.encode(REQUEST.but(retrieve="msg_1"))


def test_several_system_messages_are_joined_as_blocks() -> None:
    """The API has one place for them."""
    messages = (Message(role="system", content="A"), Message(role="system", content=[say("B")]))
    assert anthropic.encode(Request(model="m", messages=messages))["system"] == [say("A"), say("B")]


@pytest.mark.behaviour(22, 23, 24)
def test_what_the_api_refuses_is_not_sent() -> None:
    """Unsigned thinking, empty text, calls that left the history, and messages that are empty then."""
    unsigned = {"type": "thinking", "thinking": "Let me", "signature": ""}
    redacted = {"type": "redacted_thinking", "data": "Eo8B"}
    response = anthropic.decode(
        message([unsigned, THOUGHT, redacted, say(" \n"), say("42"), use("a", "f", {})]), ctx=CTX
    )
    stripped = response.message().but(tool_calls=())
    silent = whole("unsaid tool use").message().but(tool_calls=())
    blank = Message(role="assistant", content=" \n")
    sent = anthropic.encode(Request(model="m", messages=(stripped, silent, blank)))["messages"]
    assert sent == [{"role": "assistant", "content": [THOUGHT, redacted, say("42")]}]


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    request = anthropic.resume(REQUEST, whole("length"), prompt="Go on.")
    before, after = anthropic.encode(REQUEST), anthropic.encode(request)
    assert after["messages"][:4] == before["messages"]
    assert after["messages"][4:] == [
        {"role": "assistant", "content": [say("The answer is")]},
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    assert after["tools"] == before["tools"]


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("content", "kept"),
    [
        pytest.param([THOUGHT, say("So"), use("a", "f", {})], [THOUGHT, say("So")], id="a cut call"),
        pytest.param([say("So"), SEARCH], [say("So")], id="a search without its result"),
        pytest.param([SEARCH, FOUND, say("So")], [SEARCH, FOUND, say("So")], id="a search with its result"),
        pytest.param([say("So"), {"type": "thinking", "thinking": "Let"}], [say("So")], id="cut thinking"),
        pytest.param([say("So"), THOUGHT], [say("So")], id="thinking at the end"),
        pytest.param([THOUGHT], None, id="thinking only"),
        pytest.param([say("  ")], None, id="blank"),
        pytest.param([], None, id="nothing"),
    ],
)
def test_resume_replays_what_may_be_replayed(content: list[Json], kept: list[Json] | None) -> None:
    """No call without its result, no thinking unsigned or last, no empty message."""
    cut = anthropic.decode(message(content, "max_tokens"), ctx=CTX)
    request = anthropic.resume(REQUEST, cut, prompt="Go on.")
    added = anthropic.encode(request)["messages"][4:]
    nudge = {"role": "user", "content": "Go on."}
    assert added == ([nudge] if kept is None else [{"role": "assistant", "content": kept}, nudge])
    assert all(not each.tool_calls for each in request.messages[6:])


@pytest.mark.behaviour(13)
@pytest.mark.parametrize("name", ["pause", "compaction"])
def test_a_pause_is_resent_unchanged(name: str) -> None:
    """The assistant's blocks verbatim, a dangling server tool included, and no user message after them."""
    request = anthropic.resume(REQUEST, whole(name), prompt="Go on.")
    body = anthropic.encode(request)
    assert body["messages"][-1] == {"role": "assistant", "content": ANTHROPIC[name]["content"]}
    assert body["tool_choice"] == anthropic.encode(REQUEST)["tool_choice"]
    assert len(body["messages"]) == 5


@pytest.mark.behaviour(22)
def test_resume_by_prefill() -> None:
    """The partial answer is the last message, without its trailing whitespace."""
    cut = anthropic.decode(message([say("So:\n")], "max_tokens"), ctx=CTX)
    body = anthropic.encode(anthropic.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL))
    assert body["messages"][-1] == {"role": "assistant", "content": [say("So:")]}


def test_a_response_of_another_format_is_resumed_by_its_text() -> None:
    """Blocks of another format are not this one's to send."""
    cut = ChatResponse(text="So", stop=Stop(StopReason.MAX_TOKENS, "length"))
    assert anthropic.encode(anthropic.resume(REQUEST, cut, prompt="Go on."))["messages"][4] == {
        "role": "assistant",
        "content": [say("So")],
    }


# What is asked


def test_inspect_reads_in_place() -> None:
    """The history is the host's own list; the system prompt travels beside it."""
    messages = [{"role": "user", "content": "hi"}]
    asked = anthropic.request_summary(
        {"model": "m", "messages": messages, "system": "s", "max_tokens": 5, "stream": True, "top_p": 0.5}
    )
    assert asked.history is messages
    assert asked == RequestSummary("m", 5, stream=True, top_p=0.5, system="s", history=messages, length=1)


@pytest.mark.parametrize(
    "kwargs",
    [{}, {"model": 3, "messages": iter([]), "max_tokens": object(), "system": object(), "compaction": object()}],
)
def test_inspect_survives_anything(kwargs: dict[str, Any]) -> None:
    """Sentinels and nonsense are as good as nothing."""
    assert anthropic.request_summary(kwargs) == RequestSummary()
