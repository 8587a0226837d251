"""Ollama's own API: what its lines say, requests, and what a continuation sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ollama import Options

from endturn.chat import ChatResponse, Message, Request, Tool, ToolCall, Usage
from endturn.errors import ProviderError, RequestRejected, UsageError
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.errors import error_of
from endturn.formats.ollama import FORMAT as ollama
from endturn.records import Strategy
from endturn.stop import Resume, StopReason
from tests.formats.replies_ollama import BODIES, COUNTS, STREAMS, WINDOW, call, chat, context, end, line, message

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


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "raw", "detail"),
    [
        ("text", "end_turn", "stop", None),
        ("length", "max_tokens", "length", None),
        ("window", "context_window_exceeded", "length", None),
        ("thinking alone", "max_tokens", "length", None),
        ("tool calls", "tool_call", "stop", None),
        ("cut after a call", "max_tokens", "length", None),
        ("connection closed", "error", "", "connection_closed"),
        ("empty reason", "error", "", "connection_closed"),
        ("load", "end_turn", "load", "no_generation"),
        ("unload", "end_turn", "unload", "no_generation"),
        ("unknown", "unknown", "tired", None),
        ("not done", "missing", None, None),
        ("generate", "end_turn", "stop", None),
        ("generate length", "max_tokens", "length", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, raw: str | None, detail: str | None) -> None:
    """Each real-shaped body has its reason; done without a reason is the runner's closed connection."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.detail) == (reason, raw, detail)


@pytest.mark.behaviour(3)
def test_the_line_with_done_is_the_terminal() -> None:
    """Lines that end without it are a cut stream, even for who stopped reading."""
    summarizer = ollama.summarizer(CTX)
    for event in STREAMS["text"][:-1]:
        summarizer.feed(event)
    assert summarizer.close(left=True).stop.reason is StopReason.MISSING
    assert streamed(STREAMS["text"][:-1]).stop.incomplete


@pytest.mark.behaviour(5)
def test_calls_promote_stop() -> None:
    """Calls come in any line and whole; the reason beside them is `stop`."""
    response = streamed(STREAMS["tool calls"])
    assert (response.stop.reason, response.stop.promoted_from) == (StopReason.TOOL_CALL, StopReason.END_TURN)
    assert [(each.name, each.arguments, each.closed) for each in response.tool_calls] == [
        ("weather", {"city": "Łódź"}, True),
        ("clock", {}, True),
    ]


def test_the_last_call_of_a_cut_response_is_not_closed() -> None:
    """With `length` the last call may lack what the model had still to say."""
    assert [each.closed for each in whole("cut after a call").tool_calls] == [True, False]
    assert [each.closed for each in streamed(STREAMS["cut after a call"]).tool_calls] == [False]


@pytest.mark.behaviour(7)
def test_a_full_window_is_told_from_a_used_up_limit() -> None:
    """`length` means both: the window, where it is known to be full, and the limit was not reached."""
    assert whole("window", Context()).stop.reason is StopReason.MAX_TOKENS
    asked = RequestSummary(maximum=COUNTS["eval_count"])
    assert whole("window", Context(asked=asked, window=WINDOW)).stop.reason is StopReason.MAX_TOKENS
    assert whole("window").stop.resume is Resume.NONE


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """`stop` with as many tokens as num_predict allows is not believed."""
    assert whole("tool calls", Context(asked=RequestSummary(maximum=29))).stop.suspected
    assert not whole("tool calls", Context(asked=RequestSummary(maximum=30))).stop.suspected


@pytest.mark.behaviour(9)
def test_an_error_after_the_end_is_detail() -> None:
    """First terminal wins, and nothing is raised."""
    stop = streamed([*STREAMS["text"], Event(None, {"error": "too late"})]).stop
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "too late")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("an error was encountered while running the model: unexpected EOF", "error"),
        ("the input length exceeds the context length", "context_window_exceeded"),
    ],
)
def test_an_error_in_a_stream(said: str, reason: str) -> None:
    """A line with an error before the end raises with what had arrived, and the summarizer says the same."""
    events = [line(content="So far"), Event(None, {"error": said})]
    with pytest.raises(ProviderError) as raised:
        streamed(events)
    partial = raised.value.partial
    assert partial is not None
    assert (partial.text, partial.stop.reason) == ("So far", reason)
    summarizer = ollama.summarizer(CTX)
    for event in events:
        summarizer.feed(event)
    assert summarizer.broken
    assert summarizer.close().stop == partial.stop


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


# What responses hold


def test_usage() -> None:
    """What the last line counts; a prompt that is all in the cache is not counted."""
    assert whole("text").usage == Usage(26, 29)
    assert whole("prompt in the cache").usage == Usage(None, 29)
    assert whole("load").usage is None
    assert streamed(STREAMS["text"][:-1]).usage is None


def test_thinking_is_reasoning() -> None:
    """A message's thinking, and that of /api/generate beside its response."""
    assert (whole("thinking").reasoning, whole("thinking").text) == ("Let me see.", "Yes.")
    assert whole("generate length").reasoning == "Hm"
    assert whole("thinking alone").text == ""


def test_a_call_gets_an_id_that_is_no_other_responses() -> None:
    """Older servers give none; what is minted differs between responses, and stands in the block too."""
    first = whole("tool calls")
    again = ollama.decode({**BODIES["tool calls"], "created_at": "2026-10-01T09:31:00Z"}, ctx=CTX)
    ids = [each.id for response in (first, again) for each in response.tool_calls]
    assert len(set(ids)) == 4
    assert first.blocks is not None
    assert [each["id"] for each in first.blocks.items[0]["tool_calls"]] == ids[:2]
    assert whole("tool calls with ids").tool_calls[0].id == "call_a1b2c3d4"


def test_arguments_that_are_text() -> None:
    """A server that writes them as text is read all the same; what is no object is none."""
    said = message(tool_calls=[call("f", '{"x": 1}'), call("g", '{"x"')])
    calls = ollama.decode(chat(said), ctx=CTX).tool_calls
    assert [(each.arguments, each.arguments_raw) for each in calls] == [({"x": 1}, '{"x": 1}'), (None, '{"x"')]


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
