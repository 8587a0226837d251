"""The Responses API: what its bodies and events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Tool, ToolCall, Usage
from endturn.events import Strategy
from endturn.formats import Context, Event, Routed
from endturn.formats.openai_responses import FORMAT as responses
from endturn.stop import Stop, StopReason
from tests.formats.replies_openai_responses import (
    BODIES,
    CLICK,
    CLOCK,
    CUT_CLOCK,
    SEARCH,
    SQL,
    USAGE,
    WEATHER,
    X_SEARCH,
    body,
    context,
    cut,
    no,
    say,
    think,
)

CTX = Context()


def whole(name: str) -> ChatResponse:
    """The response of a body."""
    return responses.decode(BODIES[name], ctx=context(name))


def decoded(*output: Json) -> ChatResponse:
    """The response of a completed body with this output."""
    return responses.decode(body(list(output)), ctx=CTX)


@pytest.mark.behaviour(13)
def test_a_response_is_fetched_by_its_id() -> None:
    """Nothing is sent; a stream may begin after the events that are known."""
    fetch = Request(model="m", messages=(), retrieve="resp/1")
    assert responses.encode(fetch, stream=True) == {}
    assert responses.route(fetch, stream=False) == ("GET", "/responses/resp%2F1")
    assert responses.route(fetch, stream=True) == ("GET", "/responses/resp%2F1?stream=true")
    later = responses.route(fetch.but(extra={"starting_after": 7}), stream=True)
    assert later == ("GET", "/responses/resp%2F1?stream=true&starting_after=7")
    assert responses.routed(*later) == Routed(stream=True, retrieve="resp/1")


# Requests


SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}
REQUEST = Request(
    model="gpt-5.6",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="hi"),
        Message(
            role="assistant", content="Looking.", tool_calls=(ToolCall(id="call_1", name="f", arguments={"a": 1}),)
        ),
        Message(role="tool", content="14 °C", tool_call_id="call_1"),
        Message(role="system", content="Now be long."),
        Message(role="user", content=[{"type": "input_text", "text": "and?"}]),
    ),
    tools=(Tool(name="f", description="F.", parameters=SCHEMA), Tool(name="g")),
    tool_choice="f",
    max_tokens=64,
    temperature=0.5,
    format=SCHEMA,
    previous_id="resp_0",
    extra={"background": True},
)
BODY: Json = {
    "model": "gpt-5.6",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "14 °C"},
        {"role": "system", "content": "Now be long."},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False, "description": "F."},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ],
    "tool_choice": {"type": "function", "name": "f"},
    "max_output_tokens": 64,
    "temperature": 0.5,
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
    "previous_response_id": "resp_0",
    "background": True,
}


def test_encode() -> None:
    """The whole body: a leading system message is the instructions, a later one keeps its place; tools are flat."""
    assert responses.encode(REQUEST) == BODY
    assert responses.encode(REQUEST, stream=True) == BODY | {"stream": True}


def test_the_result_of_a_custom_tool() -> None:
    """It answers in the words of the call."""
    history = (decoded(SQL).message(), Message(role="tool", content="1", tool_call_id="call_c"))
    assert responses.encode(Request(model="m", messages=history))["input"] == [
        SQL,
        {"type": "custom_tool_call_output", "call_id": "call_c", "output": "1"},
    ]


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("output", "kept", "sent"),
    [
        pytest.param([think(), WEATHER, CLOCK], "call_b", [think(), CLOCK], id="a call that left"),
        pytest.param([think(), WEATHER, say("So")], "", [think(), say("So")], id="a call before the text"),
        pytest.param([think(), WEATHER, think(id="rs_2"), say("So")], "", [think(id="rs_2"), say("So")], id="its own"),
        pytest.param([think(), WEATHER], "", [], id="reasoning for a call that left"),
        pytest.param([think(), SEARCH, X_SEARCH, say("So")], "", [think(), SEARCH, X_SEARCH, say("So")], id="server's"),
        pytest.param([say("  ")], "", [], id="blank"),
        pytest.param([say(no("No."))], "", [say(no("No."))], id="refusal"),
    ],
)
def test_replays(output: list[Json], kept: str, sent: list[Json]) -> None:
    """No call that left the history, no reasoning without the items that it led to, no empty message."""
    message = decoded(*output).message()
    message = message.but(tool_calls=tuple(each for each in message.tool_calls if each.id == kept))
    assert responses.encode(Request(model="m", messages=(message,)))["input"] == sent


def test_reasoning_that_nobody_stored_is_not_sent_by_its_id() -> None:
    """With `store` off only reasoning that brings its content can be read back: the other is a 404."""
    bare = think(id="rs_2")
    del bare["encrypted_content"]
    message = decoded(think(), say("One"), bare, say("Two")).message()
    sent = Request(model="m", messages=(message,), extra={"store": False})
    assert responses.encode(sent)["input"] == [think(), say("One"), say("Two")]
    assert bare in responses.encode(sent.but(extra={}))["input"]


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    request = responses.resume(REQUEST, whole("length"), prompt="Go on.")
    after = responses.encode(request)
    assert after["input"] == [
        *BODY["input"],
        say("The answer is", status="incomplete"),
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    assert (after["tools"], after["text"]) == (BODY["tools"], BODY["text"])


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("output", "kept"),
    [
        pytest.param([think(), say("So"), CUT_CLOCK], [think(), say("So")], id="a cut call"),
        pytest.param([say("So"), think()], [say("So")], id="reasoning at the end"),
        pytest.param([think()], [], id="reasoning only"),
        pytest.param([think(), CLICK], [], id="a click that was not made"),
        pytest.param([say("So"), {**SEARCH, "status": "searching"}], [say("So")], id="a search without its result"),
        pytest.param([think(), SEARCH, X_SEARCH, say("So")], [think(), SEARCH, X_SEARCH, say("So")], id="searches"),
        pytest.param([say("  ")], [], id="blank"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_resume_replays_what_may_be_replayed(output: list[Json], kept: list[Json]) -> None:
    """No call without its result, no reasoning without what follows it, no empty message."""
    response = responses.decode(cut(output), ctx=CTX)
    sent = responses.encode(responses.resume(REQUEST, response, prompt="Go on."))["input"]
    assert sent[len(BODY["input"]) :] == [*kept, {"role": "user", "content": "Go on."}]


def test_a_prefill_is_a_prompt() -> None:
    """The API does not go on with an assistant's message that stands last."""
    by_prompt = responses.resume(REQUEST, whole("length"), prompt="Go on.")
    assert responses.resume(REQUEST, whole("length"), prompt="Go on.", strategy=Strategy.PREFILL) == by_prompt


def test_resend() -> None:
    """The answer verbatim, and nothing after it."""
    sent = responses.encode(responses.resume(REQUEST, whole("tool calls"), prompt="", strategy=Strategy.RESEND))
    assert sent["input"] == [*BODY["input"], *BODIES["tool calls"]["output"]]


@pytest.mark.behaviour(13)
def test_a_job_is_fetched() -> None:
    """The request that made it is not sent again; what was fetched and cut is asked on as what was made."""
    fetch = responses.resume(REQUEST, whole("queued"), prompt="Go on.")
    assert (fetch.retrieve, fetch.messages) == ("resp_68a1", REQUEST.messages)
    onward = responses.resume(fetch, whole("length"), prompt="Go on.")
    assert responses.encode(onward)["input"][-1]["content"] == "Go on."


def test_a_response_of_another_format_is_resumed_by_its_text() -> None:
    """Blocks of another format are not this one's to send."""
    foreign = ChatResponse(text="So", stop=Stop(StopReason.MAX_TOKENS, "length"))
    sent = responses.encode(responses.resume(REQUEST, foreign, prompt="Go on."))["input"]
    assert sent[-2] == {"role": "assistant", "content": "So"}


# Replies


def test_the_events_of_a_reply() -> None:
    """The API's whole sequence, numbered from 0, each event named by its type."""
    calls = (ToolCall(id="c", name="f", arguments={}),)
    stop = Stop(StopReason.TOOL_CALL, "completed")
    response = ChatResponse(reasoning="Hm", text="So it is.", tool_calls=calls, stop=stop, id="resp_1", model="m")
    events: Any = responses.reply(response, stream=True)
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
    assert all(event.name == event.data["type"] for event in events)
    assert [event.name.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 3,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_a_cut_reply_leaves_its_last_item_open() -> None:
    """Neither the part nor the item is done, and nothing ends the response."""
    stop = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
    events: Any = responses.reply(ChatResponse(reasoning="Hm", text="So far", stop=stop), stream=True)
    names = [event.name.removeprefix("response.") for event in events]
    assert names[-1] == "output_text.delta"
    assert names.count("output_item.done") == 1


def test_errors_of_a_reply() -> None:
    """An error answer is the provider's usual one; in a stream it is an event whose members are the error's."""
    answer: Any = responses.reply_error(429, None, None)
    assert answer["error"]["code"] == "rate_limit_exceeded"
    event = responses.reply_error(500, None, "boom", stream=True)
    assert isinstance(event, Event)
    assert event.name == "error"
    assert (event.data["type"], event.data["code"], event.data["message"]) == ("error", "server_error", "boom")


def test_usage_of_a_reply_is_whole() -> None:
    """The SDK's types have every member: what is not known is zero."""
    written: Any = responses.reply(ChatResponse(stop=Stop(StopReason.END_TURN), usage=Usage(7, 9)), stream=False)
    assert written["usage"].keys() == USAGE.keys()
    assert written["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
