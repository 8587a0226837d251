"""Ollama's own API: errors, requests, and what a continuation sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ollama import Options

from endturn.chat import ChatResponse, Message, Request, Tool, ToolCall
from endturn.errors import ProviderError, RequestRejected, UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event
from endturn.formats.errors import error_of
from endturn.formats.ollama import FORMAT as ollama
from endturn.stop import StopReason
from tests.formats.replies_ollama import BODIES, STREAMS, context, end, line

CTX = Context(provider="ollama")
HI = (Message(role="user", content="hi"),)


def whole(name: str, ctx: Context | None = None) -> ChatResponse:
    """The response of a body."""
    return ollama.decode(BODIES[name], ctx=ctx or context(name))


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = ollama.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


def test_error_answers() -> None:
    """An error's body is its sentence."""
    error = error_of(404, {}, b'{"error":"model \'m\' not found"}', ctx=CTX)
    assert isinstance(error, RequestRejected)
    assert "model 'm' not found" in str(error)
    full = error_of(400, {}, b'{"error":"the input length exceeds the context length"}', ctx=CTX)
    assert full.stop is not None
    assert full.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    with pytest.raises(ProviderError, match="busy"):
        ollama.decode({"error": "server busy"}, ctx=CTX)


def test_a_call_gets_an_id_that_is_no_other_responses() -> None:
    """Older servers give none; what is minted differs between responses, and stands in the block too."""
    first = whole("tool calls")
    again = ollama.decode({**BODIES["tool calls"], "created_at": "2026-10-01T09:31:00Z"}, ctx=CTX)
    ids = [each.id for response in (first, again) for each in response.tool_calls]
    assert len(set(ids)) == 4
    assert first.blocks is not None
    assert [each["id"] for each in first.blocks.items[0]["tool_calls"]] == ids[:2]
    assert whole("tool calls with ids").tool_calls[0].id == "call_a1b2c3d4"


# Requests


@pytest.mark.parametrize("stream", [True, False])
def test_stream_is_always_said(stream: bool) -> None:
    """The API streams unless it is told not to."""
    assert ollama.encode(Request(model="m", messages=HI), stream=stream)["stream"] is stream


def test_a_request_is_written_and_read() -> None:
    """Limit, temperature and seed are options; a schema is the format; the rest is passed through."""
    sent = Request(
        model="m",
        messages=(Message(role="system", content="Be brief."), *HI),
        tools=(Tool(name="f", description="d"),),
        max_tokens=64,
        temperature=0.5,
        seed=7,
        format={"type": "object"},
        extra={"think": "high", "keep_alive": "5m", "options": {"num_ctx": 8192}},
    )
    body = ollama.encode(sent)
    assert body["options"] == {"num_predict": 64, "temperature": 0.5, "seed": 7, "num_ctx": 8192}
    assert (body["format"], body["think"]) == ({"type": "object"}, "high")
    assert body["tools"][0]["function"]["name"] == "f"
    assert ollama.encode(sent.but(format={"type": "json_object"}))["format"] == "json"
    assert "tools" not in ollama.encode(sent.but(tool_choice="none"))
    with pytest.raises(UsageError, match="fetch"):
        ollama.encode(sent.but(retrieve="x"))


def test_a_result_names_its_tool() -> None:
    """The server takes the tool's name, newer ones its call's id too."""
    asked = Message(role="assistant", tool_calls=(ToolCall(id="c1", name="f", arguments={"x": 1}),))
    answered = Message(role="tool", tool_call_id="c1", content="14 °C")
    body = ollama.encode(Request(model="m", messages=(*HI, asked, answered)))
    assert body["messages"][-1] == {"role": "tool", "content": "14 °C", "tool_call_id": "c1", "tool_name": "f"}
    assert body["messages"][1]["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}


def test_a_replay_keeps_what_the_message_held() -> None:
    """Thinking goes back; a call that left the history does not; an empty message is never sent."""
    told = streamed([line(thinking="Hm"), line(content="Looking."), *STREAMS["tool calls"][1:]]).message()
    (written,) = ollama.encode(Request(model="m", messages=(told,)))["messages"]
    assert (written["thinking"], len(written["tool_calls"])) == ("Hm", 2)
    (written,) = ollama.encode(Request(model="m", messages=(told.but(tool_calls=told.tool_calls[:1]),)))["messages"]
    assert [each["function"]["name"] for each in written["tool_calls"]] == ["weather"]
    assert ollama.encode(Request(model="m", messages=(whole("thinking alone").message(),)))["messages"] == []


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("/api/chat", True),
        ("/api/generate", True),
        ("/gateway/ollama/api/chat?x=1", True),
        ("/api/tags", False),
        ("/v1/chat/completions", False),
    ],
)
def test_paths(path: str, known: bool) -> None:
    """Chat and generate, after whatever a gateway puts before them."""
    assert (ollama.routed("POST", path) is not None) is known
    assert ollama.routed("GET", path) is None


@pytest.mark.parametrize(
    "options",
    [
        {"num_predict": 64, "temperature": 0.5, "top_p": 0.9, "seed": 7},
        Options(num_predict=64, temperature=0.5, top_p=0.9, seed=7),
        SimpleNamespace(num_predict=64, temperature=0.5, top_p=0.9, seed=7),
    ],
    ids=["mapping", "sdk", "object"],
)
def test_inspect_reads_options(options: Any) -> None:
    """Options are a mapping or the SDK's object."""
    history = [{"role": "user", "content": "hi"}]
    asked = ollama.request_summary(
        {"model": "m", "messages": history, "options": options, "format": "json", "stream": True}
    )
    assert (asked.model, asked.maximum, asked.temperature, asked.top_p, asked.seed) == ("m", 64, 0.5, 0.9, 7)
    assert (asked.json_format, asked.stream, asked.length) == (True, True, 1)
    assert asked.history is history


def test_inspect_reads_a_prompt() -> None:
    """A prompt is the one message of a call of generate; what does not say stream is read as the SDK means it."""
    asked = ollama.request_summary({"model": "m", "prompt": "hi", "system": "Be brief.", "format": {"type": "object"}})
    assert (asked.history[0]["content"], asked.system, asked.json_format) == ("hi", "Be brief.", True)
    assert not asked.stream


# Continuations


def test_resume_asks_for_the_rest() -> None:
    """The partial answer without its calls, then the nudge; a forced choice of tool does not stand."""
    sent = Request(model="m", messages=HI, tool_choice="f")
    cut = streamed(STREAMS["cut after a call"])
    after = ollama.resume(sent, cut, prompt="Go on.")
    assert [(each.role, each.text, each.synthetic) for each in after.messages[1:]] == [
        ("assistant", "And", False),
        ("user", "Go on.", True),
    ]
    assert (after.messages[0], after.tool_choice) == (HI[0], "auto")
    assert "tool_calls" not in ollama.encode(after)["messages"][1]


def test_resume_prefills() -> None:
    """The server goes on with an assistant message that is the last, its trailing whitespace stripped."""
    cut = streamed([line(content="Once "), end("length")])
    after = ollama.resume(Request(model="m", messages=HI), cut, prompt="x", strategy=Strategy.PREFILL)
    assert ollama.encode(after)["messages"][-1] == {"role": "assistant", "content": "Once"}


def test_resume_without_text_leaves_the_answer_out() -> None:
    """Thinking alone is no answer to send back."""
    after = ollama.resume(Request(model="m", messages=HI), whole("thinking alone"), prompt="Go on.")
    assert [each.role for each in after.messages] == ["user", "user"]


def test_resend_is_verbatim() -> None:
    """The answer as it came, nothing after it."""
    cut = whole("thinking")
    after = ollama.resume(Request(model="m", messages=HI), cut, prompt="x", strategy=Strategy.RESEND)
    assert after.messages[-1] == cut.message()
