"""Responses that contradict themselves: every format uses the safer reading, in either order.

No provider's tool runs of it. The SDKs of OpenAI and Anthropic let the last of two reasons win
(openai/lib/streaming/chat/_completions.py, anthropic/lib/streaming/_messages.py), so either order
may be what a host sees.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from endturn.continuation.controller import ContinuationController
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.tool_gate import RunCalls, judge
from endturn.formats import FORMATS, Context, Event, ResponseSummary, format_of
from endturn.vocabulary.messages import ChatResponse, Message, Request, Tool, ToolCall, Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.turns import Played

PAY = Tool(name="pay", parameters={"type": "object", "properties": {"to": {"type": "string"}}})
Events = list[dict[str, Any]]


def chat(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    function = {"name": "pay", "arguments": arguments}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    choices = [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]
    choices += [{"index": 0, "delta": {}, "finish_reason": reason} for reason in reasons]
    return [{"id": "1", "model": "m", "choices": [choice]} for choice in choices]


def anthropic(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    message: dict[str, Any] = {
        "id": "1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    block = {"type": "tool_use", "id": "c1", "name": "pay", "input": {}}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": arguments}},
        {"type": "content_block_stop", "index": 0},
        *({"type": "message_delta", "delta": {"stop_reason": reason}} for reason in reasons),
        {"type": "message_stop"},
    ]


def gemini(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    part = {"functionCall": {"name": "pay", "args": arguments}}
    candidates: Events = [{"content": {"parts": [part]}}, *({"finishReason": reason} for reason in reasons)]
    return [{"responseId": "1", "candidates": [candidate]} for candidate in candidates]


def bedrock_converse(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    use = {"toolUseId": "c1", "name": "pay"}
    return [
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"toolUse": use}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": arguments}}}},
        {"contentBlockStop": {"contentBlockIndex": 0}},
        *({"messageStop": {"stopReason": reason}} for reason in reasons),
        {"metadata": {}},
    ]


def cohere(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    call = {"id": "c1", "type": "function", "function": {"name": "pay", "arguments": arguments}}
    return [
        {"type": "message-start", "id": "1"},
        {"type": "tool-call-start", "index": 0, "delta": {"message": {"tool_calls": call}}},
        {"type": "tool-call-end", "index": 0},
        *({"type": "message-end", "delta": {"finish_reason": reason}} for reason in reasons),
    ]


def ollama(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    call = {"function": {"name": "pay", "arguments": arguments}}
    return [
        {"model": "m", "message": {"content": "", "tool_calls": [call]}, "done": False},
        *({"model": "m", "message": {"content": ""}, "done": True, "done_reason": reason} for reason in reasons),
    ]


def openai_responses(*reasons: str, arguments: str = '{"to": "x"}') -> Events:
    item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "pay", "arguments": arguments}
    response = {"id": "1", "model": "m", "status": "completed", "output": [{**item, "status": "completed"}]}
    why = next((reason for reason in reasons if reason != "completed"), None)
    details = None if why is None else {"reason": why}
    return [{"type": "response.completed", "response": {**response, "incomplete_details": details}}]


Streamed = Callable[..., Events]
STREAMS: dict[str, tuple[Streamed, str, str]] = {
    "openai_chat": (chat, "tool_calls", "length"),
    "anthropic": (anthropic, "tool_use", "max_tokens"),
    "gemini": (gemini, "STOP", "MAX_TOKENS"),
    "bedrock_converse": (bedrock_converse, "tool_use", "max_tokens"),
    "cohere": (cohere, "TOOL_CALL", "MAX_TOKENS"),
    "ollama": (ollama, "stop", "length"),
    "openai_responses": (openai_responses, "completed", "max_output_tokens"),
}
"""Format → its stream, a clean reason, a reason that says that the answer is cut."""
UNTIL_ITS_END = ("cohere", "ollama")
"""Formats whose reason stands in the last event, after which nothing is read."""


def read(name: str, events: Events) -> tuple[ChatResponse, ResponseSummary]:
    """Return the readings of a client and of telemetry."""
    speaks, ctx = format_of(name), Context()
    decoder, summarizer = speaks.decoder(ctx), speaks.summarizer(ctx)
    for data in events:
        for _ in decoder.feed(Event(None, data)):
            pass
        summarizer.feed(Event(None, data))
    return decoder.close(), summarizer.close()


def runs(name: str, response: ChatResponse) -> bool:
    """Return whether the controller runs the response's tool, by its gate and in a turn."""
    ran: list[str] = []

    def pay(call: ToolCall) -> str:
        ran.append(call.id)
        return "paid"

    request = Request(model="m", messages=(Message(role="user", content="pay x"),), tools=(PAY,))
    controller = ContinuationController(
        Played(response),
        tools={"pay": pay},
        format=name,
        policy=ContinuationPolicy(continuation_max_attempts=0, continuation_tool_repair_attempts=0, max_iterations=1),
    )
    controller.run(request)
    is_run = isinstance(judge(response, {"pay": PAY}, runnable={"pay"}), RunCalls)
    assert is_run == bool(ran)
    return is_run


def test_each_stream_runs_its_tool_where_nothing_contradicts() -> None:
    """Otherwise the tests below would prove nothing."""
    for name, (stream, clean, _) in STREAMS.items():
        response, seen = read(name, stream(clean))
        assert response.stop.reason is StopReason.TOOL_CALL, name
        assert (response.stop, response.tool_calls[0].closed) == (seen.stop, True), name
        assert runs(name, response), name


@pytest.mark.parametrize("name", STREAMS)
def test_the_incomplete_one_of_two_reasons_counts(name: str) -> None:
    """In any order and number: the answer is truncated, its call open, and nothing runs."""
    stream, clean, cut = STREAMS[name]
    orders = [(clean, cut), (cut, clean), (clean, cut, clean), (clean, clean, cut)]
    for reasons in orders if name not in UNTIL_ITS_END else [(cut, clean), (clean, cut)]:
        response, seen = read(name, stream(*reasons))
        assert (response.stop.reason, response.stop.incomplete) == (StopReason.MAX_TOKENS, True), reasons
        assert response.stop == seen.stop
        assert [call.closed for call in response.tool_calls] == [False], reasons
        assert not runs(name, response), reasons


UNPARSABLE = (
    '{"to": "x', '{"to": "x"', "{", '{"to"', '{"to": "x"}}', '{"to": "x"}{"to": "y"}', "[]", '["x"]', "7", "true",
    "not json", "{'to': 'x'}", '{"to": "x",}',
)  # fmt: skip


@pytest.mark.parametrize("name", STREAMS)
def test_a_call_with_invalid_arguments_is_not_clean(name: str) -> None:
    """With and without a tool-call reason, it is suspected, never promoted, never closed, never run."""
    stream, clean, _ = STREAMS[name]
    words = {clean, {"openai_chat": "stop", "anthropic": "end_turn", "bedrock_converse": "end_turn"}.get(name, clean)}
    for arguments, word in product(UNPARSABLE, words):
        response, seen = read(name, stream(word, arguments=arguments))
        assert (response.stop.suspected, response.stop.promoted_from) == (True, None), (word, arguments)
        assert response.stop == seen.stop
        assert [call.closed for call in response.tool_calls] == [False], (word, arguments)
        assert not runs(name, response), (word, arguments)


@pytest.mark.parametrize("name", STREAMS)
def test_calls_with_complete_or_no_arguments_stay_closed(name: str) -> None:
    """Servers send nothing, or white space, for a tool without arguments; parsers accept NaN and repeated keys."""
    stream, clean, _ = STREAMS[name]
    as_text = ('{"to": "x", "to": "y"}', '{"to": NaN}', "", " ")  # to Gemini arguments are an object
    for arguments in ("{}", ' {"to": "x"}\n', *(as_text if name != "gemini" else ())):
        response, _ = read(name, stream(clean, arguments=arguments))
        assert [call.closed for call in response.tool_calls] == [True], arguments
        assert not response.stop.suspected, arguments


@pytest.mark.parametrize("status", ["in_progress", "incomplete"])
@pytest.mark.parametrize("kind", ["function_call", "custom_tool_call", "message"])
def test_an_item_that_is_unfinished_makes_a_completed_response_suspected(kind: str, status: str) -> None:
    """OpenAI's Responses: an item's own status counts; a call by a server's program waits for its result."""
    item: dict[str, Any] = {"type": kind, "id": "i1", "status": status, "call_id": "c1", "name": "pay"}
    item |= {"arguments": "{}", "input": "x", "content": [{"type": "output_text", "text": "Hello"}]}
    body = {"id": "1", "object": "response", "model": "m", "status": "completed", "output": [item]}
    response = format_of("openai_responses").decode(body, ctx=Context())
    assert (response.stop.suspected, response.stop.promoted_from) == (True, None)
    assert not any(call.closed for call in response.tool_calls)
    assert not runs("openai_responses", response)
    waits = {**body, "output": [{**item, "caller": {"type": "program", "caller_id": "p"}}]}
    if status == "in_progress" and kind == "function_call":
        assert format_of("openai_responses").decode(waits, ctx=Context()).stop.reason is StopReason.TOOL_CALL


@pytest.mark.parametrize("word", ["load", "unload"])
def test_calls_beside_a_no_generation_reason_are_not_run(word: str) -> None:
    """Ollama's reasons for loading or unloading a model."""
    response, seen = read("ollama", ollama(word))
    assert response.stop == seen.stop
    assert (response.stop.promoted_from, response.stop.suspected) == (None, True)
    assert not runs("ollama", response)


@pytest.mark.parametrize("order", [("stop", "load"), ("load", "stop"), ("stop", "unload")])
def test_a_reason_of_no_generation_counts_beside_a_clean_one(order: tuple[str, str]) -> None:
    """In either order."""
    response, seen = read("ollama", ollama(*order))
    assert response.stop == seen.stop
    assert (response.stop.promoted_from, response.stop.suspected) == (None, True)
    assert not runs("ollama", response)


# --- An event and the response or interaction in it -------------------------------------------------------------------

RUNNING = ("queued", "in_progress")
ENDS = {  # source: openai 3.54, Response.status and the events of a stream
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
MEANT = {"incomplete": StopReason.UNKNOWN, "failed": StopReason.ERROR, "cancelled": StopReason.CANCELLED}


def ended_response(kind: str, status: str | None, *, listed: bool) -> Events:
    """Return a stream with a complete call, its last event, and the status of the response in it."""
    item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": "pay", "arguments": "{}"}
    done = {**item, "status": "completed"}
    response = {"id": "1", "object": "response", "model": "m", "output": []}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": kind, "response": {**response, "status": status, "output": [done] if listed else []}},
    ]


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("status", ["completed", "incomplete", "failed", "cancelled", *RUNNING, None, "new"])
def test_the_less_complete_of_event_and_status_counts(kind: str, status: str | None, listed: bool) -> None:
    """A call runs only if neither is truncated, failed, in progress or unknown."""
    response, seen = read("openai_responses", ended_response(kind, status, listed=listed))
    stop, event = response.stop, ENDS[kind]
    assert stop == seen.stop
    clean = event == "completed" and status in ("completed", None)
    assert runs("openai_responses", response) is clean
    assert [call.closed for call in response.tool_calls] == [clean]
    if clean:
        assert (stop.reason, stop.suspected) == (StopReason.TOOL_CALL, False)
    elif event == "completed" and status in RUNNING:
        assert (stop.reason, stop.raw, stop.suspected) == (StopReason.END_TURN, "completed", True)
    elif event == "completed" and status == "new":
        assert (stop.reason, stop.mapped) == (StopReason.UNKNOWN, False)
    else:
        word = status if status in MEANT else event
        assert word is not None
        assert (stop.reason, stop.incomplete) == (MEANT[word], True)


CUTS = ("incomplete", "failed", "cancelled", "budget_exceeded")  # source: google-genai 3.4.0 InteractionStatus
CLEAN = ("completed", "requires_action")


def ended_interaction(*statuses: str) -> Events:
    """Return a stream with a complete call, status updates, and its last event."""
    step = {"type": "function_call", "id": "c1", "name": "pay"}
    updates = [
        {"event_type": "interaction.status_update", "interaction_id": "i", "status": status} for status in statuses[:-1]
    ]
    return [
        {"event_type": "interaction.created", "interaction": {"id": "i", "status": "in_progress"}},
        {"event_type": "step.start", "index": 0, "step": step},
        {"event_type": "step.delta", "index": 0, "delta": {"type": "arguments_delta", "arguments": "{}"}},
        {"event_type": "step.stop", "index": 0},
        *updates,
        {"event_type": "interaction.completed", "interaction": {"id": "i", "status": statuses[-1]}},
    ]


@pytest.mark.parametrize(("clean", "other"), [*product(CLEAN, (*CUTS, *RUNNING, "new"))])
def test_the_less_complete_of_two_statuses_counts(clean: str, other: str) -> None:
    """A clean status before or after a truncated one does not count; a running one only precedes the others."""
    for usual in ([clean], ["in_progress", clean]):
        assert runs("gemini_interactions", read("gemini_interactions", ended_interaction(*usual))[0])
    orders: list[tuple[str, ...]] = [(clean, other)]
    if other in CUTS:
        orders += [(other, clean), (other, "in_progress", clean)]
    for statuses in orders:
        response, seen = read("gemini_interactions", ended_interaction(*statuses))
        assert response.stop == seen.stop
        assert response.stop.incomplete or response.stop.reason is StopReason.UNKNOWN, statuses
        assert not runs("gemini_interactions", response), statuses


# --- Values of another type -----------------------------------------------------------------------------------------


def numbered(value: Any) -> Any:
    """Return JSON with each numeric text as a number, as from some servers' serialisers."""
    if isinstance(value, dict):
        return {name: numbered(each) for name, each in value.items()}
    if isinstance(value, list):
        return [numbered(each) for each in value]
    return int(value) if isinstance(value, str) and value.isdecimal() else value


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", [name for name in FORMATS if name != "bedrock_invoke"])
def test_a_number_instead_of_text_is_text(name: str, stream: bool) -> None:
    """Text, ids and usage of another type than the format's have the same meaning."""
    speaks = format_of(name)
    said = ChatResponse(text="7", usage=Usage(3, 1), id="12", model="m", stop=Stop(StopReason.END_TURN))
    written: Any = speaks.reply(said, stream=stream)
    decoder = speaks.decoder(Context())
    if stream:
        for event in written:
            for _ in decoder.feed(Event(event.name, numbered(event.data))):
                pass
        read_as = decoder.close()
    else:
        read_as = speaks.decode(numbered(written), ctx=Context())
    assert (read_as.text, read_as.stop.reason) == ("7", StopReason.END_TURN)
    assert read_as.id in ("12", None)  # some formats have no ids
