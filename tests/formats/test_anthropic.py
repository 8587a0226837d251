"""The Messages API: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import ProviderError, UsageError
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.anthropic import FORMAT as anthropic
from endturn.records import Strategy
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies import (
    ANTHROPIC,
    ANTHROPIC_STREAMS,
    FALLBACK,
    FOUND,
    SEARCH,
    THOUGHT,
    anthropic_stream,
    message,
    named,
    said,
    say,
    use,
    used,
)

CTX = Context()


def whole(name: str, ctx: Context = CTX) -> ChatResponse:
    """The response of a body."""
    return anthropic.decode(ANTHROPIC[name], ctx=ctx)


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = anthropic.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "detail"),
    [
        ("text", "end_turn", None),
        ("length", "max_tokens", None),
        ("tool use", "tool_call", None),
        ("unsaid tool use", "tool_call", None),
        ("stop sequence", "end_turn", "three"),
        ("pause", "paused", None),
        ("server tools", "end_turn", None),
        ("refusal", "refused", "cyber"),
        ("window", "context_window_exceeded", None),
        ("compaction", "paused", None),
        ("unknown", "unknown", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, detail: str | None) -> None:
    """Each real-shaped body has its reason; the matched sequence and the refusal's category are detail."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.detail) == (reason, ANTHROPIC[name]["stop_reason"], detail)


@pytest.mark.behaviour(5)
def test_server_tools_promote_nothing() -> None:
    """A search that the server ran is no call of the client's."""
    response = whole("server tools")
    assert (response.stop.promoted_from, response.tool_calls) == (None, ())
    assert whole("unsaid tool use").stop.promoted_from is StopReason.END_TURN


@pytest.mark.behaviour(10)
def test_a_nested_stop_reason_is_not_ours() -> None:
    """An advisor's result holds the reason of another inference."""
    assert streamed(ANTHROPIC_STREAMS["advisor"]).stop.raw == "end_turn"
    block = {"type": "advisor_tool_result", "content": {"type": "advisor_result", "stop_reason": "max_tokens"}}
    assert anthropic.decode(message([block, say("ok")]), ctx=CTX).stop.raw == "end_turn"


def test_compaction_is_the_end_where_it_was_asked_for() -> None:
    """A request for nothing but a summary is complete with the summary."""
    ctx = Context(asked=anthropic.request_summary({"compaction": {"type": "summarize"}}))
    stop = whole("compaction", ctx).stop
    assert (stop.reason, stop.resume) == (StopReason.END_TURN, Resume.NONE)
    assert whole("compaction").stop.resume is Resume.RESEND_UNCHANGED


def test_usage_is_overwritten_and_summed_over_the_caches() -> None:
    """message_delta's figures are cumulative; the whole input is the sum of three."""
    assert whole("text").usage == Usage(33, 17, 5, 20, 3)
    events = ANTHROPIC_STREAMS["text"]
    assert streamed(events).usage == Usage(30, 17, None, 20)
    delta = named({"type": "message_delta", "delta": {}, "usage": {"input_tokens": 11, "output_tokens": 9}})
    assert streamed([*events[:-2], delta, *events[-2:]]).usage == Usage(31, 17, None, 20)
    # What message_start says of the output was written before there was any.
    assert streamed(events[:-2]).usage == Usage(30, None, None, 20)


@pytest.mark.behaviour(3)
def test_message_stop_is_the_terminal() -> None:
    """A reason without message_stop is kept as raw, and missing."""
    stop = streamed(ANTHROPIC_STREAMS["text"][:-1]).stop
    assert (stop.reason, stop.raw, stop.terminal_seen) == (StopReason.MISSING, "end_turn", False)


@pytest.mark.behaviour(9)
def test_an_error_after_the_end_is_detail() -> None:
    """First terminal wins, and nothing is raised."""
    late = named({"type": "error", "error": {"type": "api_error", "message": "too late"}})
    stop = streamed([*ANTHROPIC_STREAMS["text"], late]).stop
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "too late")


@pytest.mark.behaviour(9)
@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("max_tokens", "max_tokens"),
        ("pause_turn", "paused"),
        ("refusal", "refused"),
        ("end_turn", None),
        ("tool_use", None),
        ("tired", None),
    ],
)
def test_an_error_between_the_reason_and_the_end(reason: str, kept: str | None) -> None:
    """A reason for which the answer is cut stands, the error is detail; a clean one is not believed without its end."""
    late = named({"type": "error", "error": {"type": "overloaded_error", "message": "too late"}})
    events = [*anthropic_stream([said("Once"), used("a", "f", "{}")], reason)[:-1], late]
    summarizer = anthropic.summarizer(CTX)
    for event in events:
        summarizer.feed(event)
    stop = summarizer.close().stop
    assert stop.detail == "too late"
    if kept is None:
        assert (stop.reason, stop.raw) == (StopReason.ERROR, "overloaded_error")
        with pytest.raises(ProviderError) as raised:
            streamed(events)
        assert raised.value.partial is not None
        assert raised.value.partial.stop == stop
    else:
        assert (stop.reason, stop.raw, stop.terminal_seen) == (kept, reason, True)
        response = streamed(events)
        assert (response.stop, response.text) == (stop, "Once")
        assert [call.closed for call in response.tool_calls] == [False]


@pytest.mark.parametrize(
    ("events", "reason"), [(-1, "max_tokens"), (-2, "missing")], ids=["after the reason", "before it"]
)
def test_a_stream_that_its_reader_left(events: int, reason: str) -> None:
    """A reason that had come counts for who stopped reading; for who lost the stream it is `missing`."""
    summarizer = anthropic.summarizer(CTX)
    for event in anthropic_stream([said("Once")], "max_tokens")[:events]:
        summarizer.feed(event)
    assert summarizer.close().stop.reason is StopReason.MISSING
    assert summarizer.close(left=True).stop.reason == reason


PREPOPULATED = [FOUND, use("toolu_1", "lookup", {"id": "customer_123"})]


def head(content: list[Json], reason: Any = "tool_use", /, **more: Any) -> Event:
    """A message_start that holds more than a head."""
    return named({"type": "message_start", "message": message(content, reason, **more)})


STOP = named({"type": "message_stop"})


def delta(reason: Any) -> Event:
    """A message_delta."""
    return named({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}})


@pytest.mark.parametrize(
    "rest",
    [
        pytest.param([STOP], id="nothing else"),
        pytest.param([delta(None), STOP], id="a delta without a reason"),
        pytest.param([delta("tool_use"), STOP], id="a delta"),
    ],
)
def test_a_whole_message_in_its_head(rest: list[Event]) -> None:
    """Proxies and cached replies send blocks and reason in message_start: the blocks are there, and closed."""
    response = streamed([head(PREPOPULATED), *rest])
    assert (response.stop.reason, response.stop.raw) == (StopReason.TOOL_CALL, "tool_use")
    assert [(made.id, made.arguments, made.closed) for made in response.tool_calls] == [
        ("toolu_1", {"id": "customer_123"}, True)
    ]
    assert response.blocks is not None
    assert response.blocks.items == tuple(PREPOPULATED)
    assert response.usage == Usage(33, None if rest[0] == delta("tool_use") else 17, 5, 20, 3)
    promoted = streamed([head(PREPOPULATED, "end_turn"), *rest[:-1], STOP])
    assert promoted.stop.reason is StopReason.TOOL_CALL
    assert promoted.stop.promoted_from in (None, StopReason.END_TURN)


def test_a_head_alone_is_no_end() -> None:
    """The reason in message_start counts with message_stop, and only where message_delta gives none."""
    for left in (False, True):
        summarizer = anthropic.summarizer(CTX)
        summarizer.feed(head(PREPOPULATED))
        assert summarizer.close(left=left).stop == Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
    assert streamed([head([say("a")], "end_turn"), delta("max_tokens"), STOP]).stop.reason is StopReason.MAX_TOKENS
    failed = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    with pytest.raises(ProviderError):
        streamed([head([say("a")], "max_tokens"), failed])


@pytest.mark.parametrize(
    ("begun", "text", "calls"),
    [
        pytest.param([said("A"), used("toolu_1", "f", '{"a": 1}')], "A", [("toolu_1", {"a": 1})], id="all of them"),
        pytest.param([said("A")], "A", [("toolu_1", {})], id="the first alone"),
        pytest.param([], "a", [("toolu_1", {})], id="none of them"),
    ],
)
def test_blocks_of_the_head_that_come_again(begun: list[list[Json]], text: str, calls: list[tuple[str, Json]]) -> None:
    """A block that its own events tell is that block, and is not there twice; the others stay."""
    events = [head([say("a"), use("toolu_1", "f", {})]), *anthropic_stream(begun, "tool_use")[1:]]
    decoder, summarizer = anthropic.decoder(CTX), anthropic.summarizer(CTX)
    deltas = [found for event in events for found in decoder.feed(event)]
    for event in events:
        summarizer.feed(event)
    response, seen = decoder.close(), summarizer.close()
    assert "".join(found.text for found in deltas) == response.text == seen.tail == text
    assert [(made.id, made.arguments) for made in response.tool_calls] == calls
    assert len({found.call.index for found in deltas if found.call}) == len(calls)


def test_a_block_of_the_head_that_goes_on() -> None:
    """Deltas without the start of their block go on with the one in message_start; other blocks come after it."""
    more = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}}
    events = [head([say("Hel")], None), named(more), delta("end_turn"), STOP]
    assert streamed(events).text == "Hello"
    after = {"type": "content_block_start", "index": 1, "content_block": say("!")}
    assert streamed([events[0], named(after), *events[2:]]).text == "Hel!"


@pytest.mark.parametrize("reason", ["end_turn", None], ids=repr)
def test_a_message_that_its_stream_repeats(reason: str | None) -> None:
    """one-api's kind sends a message without an id after the deltas: nothing is doubled, nothing forgotten."""
    begun = anthropic_stream([said("Hel", "lo")])
    again = named({"type": "message", "role": "assistant", "content": [say("Hello")], "stop_reason": reason})
    for events in ([*begun[:-2], again, *begun[-2:]], [*begun, again], [*begun[:-2], again]):
        summarizer = anthropic.summarizer(CTX)
        for event in events:
            summarizer.feed(event)
        response, seen = streamed(events), summarizer.close()
        assert (response.text, seen.tail, seen.output_chars) == ("Hello", "Hello", 5)
        assert (response.id, response.model) == (seen.id, seen.model) == ("msg_01", "claude-sonnet-5-5")
        ended = reason is not None or STOP in events
        assert response.stop == seen.stop
        assert response.stop.reason == ("end_turn" if ended else "missing")


def test_a_stream_of_one_whole_message() -> None:
    """A body as the only event is the answer, for decoder and summarizer alike."""
    response, body = streamed([named(ANTHROPIC["tool use"])]), whole("tool use")
    assert (response.stop, response.text, response.tool_calls) == (body.stop, body.text, body.tool_calls)


def test_the_model_that_answered() -> None:
    """A `fallback` block names the model that goes on; the last one answered."""
    assert whole("fallback").model == "claude-opus-4-8"
    assert streamed(ANTHROPIC_STREAMS["fallback"]).model == "claude-opus-4-8"
    twice = [FALLBACK], [{**FALLBACK, "from": {"model": "claude-opus-4-8"}, "to": {"model": "claude-haiku-5"}}]
    assert streamed(anthropic_stream([*twice, said("ok")])).model == "claude-haiku-5"
    assert streamed(anthropic_stream([[{"type": "fallback", "to": None}]])).model == "claude-sonnet-5-5"


def test_a_guardrail_has_a_word_in_bedrock_alone() -> None:
    """InvokeModel puts it in the place of the model's own reason."""
    body = message([say("Sorry.")], "guardrail_intervened")
    for ctx in (Context("bedrock"), Context(provider="aws.bedrock")):
        assert anthropic.decode(body, ctx=ctx).stop.reason is StopReason.SAFETY_BLOCKED
    assert not anthropic.decode(body, ctx=CTX).stop.mapped


def test_the_input_of_a_cut_call_in_a_body() -> None:
    """A body has an empty object for it, as the API does; a stream has the pieces that came."""
    cut = streamed(ANTHROPIC_STREAMS["cut call"])
    body = anthropic.reply(cut, stream=False)
    assert isinstance(body, dict)
    assert [block["input"] for block in body["content"]] == [{"a": 1}, {}]
    sent = [event.data for event in anthropic.reply(cut, stream=True) if isinstance(event, Event)]
    pieces = [each["delta"]["partial_json"] for each in sent if each["type"] == "content_block_delta"]
    assert "".join(pieces) == '{"a": 1}{"body": "line\n'


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """Ollama says tool_use before it looks at the limit."""
    assert whole("tool use", Context(asked=RequestSummary(maximum=17))).stop.suspected
    assert not whole("tool use", Context(asked=RequestSummary(maximum=18))).stop.suspected


# What responses hold


def test_a_cut_call_is_not_closed() -> None:
    """Of a truncated response the last call is never closed: not in a body, nor where a proxy closed its block."""
    closed_by_a_proxy = anthropic_stream([used("a", "f", "{}"), used("b", "g")], "max_tokens")
    for response in (
        whole("cut call that parses"),
        streamed(ANTHROPIC_STREAMS["cut call"]),
        streamed(closed_by_a_proxy),
    ):
        assert [call.closed for call in response.tool_calls] == [True, False]
    assert [call.closed for call in whole("tool use").tool_calls] == [True, True]


def test_cut_arguments_stay_what_they_are() -> None:
    """Nothing is completed: the text as it came, no parsed arguments, and no object in the block."""
    response = streamed(ANTHROPIC_STREAMS["cut call"])
    assert response.tool_calls[1].arguments is None
    assert response.tool_calls[1].arguments_raw == '{"body": "line\n'
    assert response.blocks is not None
    assert response.blocks.items[1]["input"] == '{"body": "line\n'


def test_a_call_without_pieces_has_no_arguments() -> None:
    """A tool without parameters streams one empty piece; eager input stands in the block's start."""
    events = anthropic_stream([used("a", "clock"), [use("b", "f", {"x": 1})]], "tool_use")
    assert [call.arguments for call in streamed(events).tool_calls] == [{}, {"x": 1}]


def test_blocks_are_rebuilt_verbatim() -> None:
    """A stream's blocks are what the body's would be: signatures, citations, results, summaries."""
    citation = {"type": "char_location", "cited_text": "tides"}
    events = anthropic_stream(
        [
            [
                {"type": "thinking", "thinking": "", "signature": ""},
                {"type": "thinking_delta", "thinking": "six times "},
                {"type": "thinking_delta", "thinking": "seven"},
                {"type": "signature_delta", "signature": "EqQB"},
            ],
            [{"type": "redacted_thinking", "data": "Eo8B"}],
            [{**SEARCH, "input": {}}, {"type": "input_json_delta", "partial_json": '{"query": "tides"}'}],
            [FOUND],
            [*said("High ", "noon."), {"type": "citations_delta", "citation": citation}],
            [
                {"type": "compaction", "content": None},
                {"type": "compaction_delta", "content": "So.", "encrypted_content": "x"},
            ],
        ]
    )
    response = streamed(events)
    assert response.blocks is not None
    assert list(response.blocks.items) == [
        THOUGHT,
        {"type": "redacted_thinking", "data": "Eo8B"},
        SEARCH,
        FOUND,
        {**say("High noon."), "citations": [citation]},
        {"type": "compaction", "content": "So.", "encrypted_content": "x"},
    ]
    assert (response.text, response.reasoning) == ("High noon.", "six times seven")


def test_a_call_without_an_id_gets_one_in_its_block_too() -> None:
    """The result that answers it must find the same id in both."""
    body = message([use("", "clock", {})], "tool_use")
    response = anthropic.decode(body, ctx=CTX)
    stream = streamed(anthropic_stream([used("", "clock")], "tool_use"))
    assert response.blocks is not None
    assert response.tool_calls[0].id == response.blocks.items[0]["id"] == stream.tool_calls[0].id != ""


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
