"""Replies as Cohere's chat API sends them, written out by hand: v2 as cohere 7.3.1 types it, and v1 beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from cohere.core.unchecked_base_model import construct_type  # what the SDK itself builds answers with
from cohere.types import NonStreamedChatResponse, StreamedChatResponse
from cohere.v2.types import V2ChatResponse, V2ChatStreamResponse

from endturn.formats import Context, Event, RequestSummary
from endturn.formats.framing import DONE

Json = dict[str, Any]

ID = "29f14a5a-11de-4cae-9800-25e4747408ea"
USAGE = {
    "billed_units": {"input_tokens": 5.0, "output_tokens": 17.0},
    "tokens": {"input_tokens": 31.0, "output_tokens": 17.0},
    "cached_tokens": 8.0,
}


def say(text: str) -> Json:
    """A part of text."""
    return {"type": "text", "text": text}


def think(thinking: str) -> Json:
    """A part of thinking."""
    return {"type": "thinking", "thinking": thinking}


def call(id_: str, name: str, arguments: str) -> Json:
    """A tool call of a message."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def body(message: Json, reason: Any = "COMPLETE", /, **more: Any) -> Json:
    """A body of v2."""
    return {"id": ID, "finish_reason": reason, "message": {"role": "assistant", **message}, "usage": USAGE, **more}


def body_v1(text: str, reason: Any = "COMPLETE", /, **more: Any) -> Json:
    """A body of v1."""
    return {
        "response_id": "3c1a",
        "generation_id": ID,
        "text": text,
        "chat_history": [{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": text}],
        "finish_reason": reason,
        "meta": {
            "api_version": {"version": "1"},
            "billed_units": {"input_tokens": 31.0, "output_tokens": 69.0},
            "tokens": {"input_tokens": 49.0, "output_tokens": 69.0},
        },
        **more,
    }


WEATHER = call("weather_0abc", "weather", '{"city": "Zürich", "days": [1, 2]}')
CLOCK = call("clock_1abc", "clock", "{}")
CITATION = {
    "start": 0,
    "end": 6,
    "text": "Grüezi",
    "sources": [{"type": "document", "id": "doc_1", "document": {"title": "Greetings"}}],
    "content_index": 0,
    "type": "TEXT_CONTENT",
}

BODIES: dict[str, Json] = {
    "text": body({"content": [say("Grüezi 👋🏽, the answer is 42.\n\n  Done. ")]}),
    "citations": body({"content": [say("Grüezi.")], "citations": [CITATION]}),
    "stop sequence": body({"content": [say("one, two,")]}, "STOP_SEQUENCE"),
    "length": body({"content": [say("The answer is")]}, "MAX_TOKENS"),
    "thinking": body({"content": [think("six times seven"), say("42")]}),
    "thinking only": body({"content": [think("Let me think about")]}, "MAX_TOKENS"),
    "plan only": body({"tool_plan": "I will look up the"}, "MAX_TOKENS"),
    "tool call": body({"tool_plan": "I will look.", "tool_calls": [WEATHER, CLOCK]}, "TOOL_CALL"),
    "thinking, tool call": body({"content": [think("Where?")], "tool_calls": [WEATHER]}, "TOOL_CALL"),
    "unsaid tool call": body({"tool_calls": [WEATHER]}),
    "cut call": body({"tool_calls": [WEATHER, call("clock_1abc", "clock", '{"zone": "Eu')]}, "MAX_TOKENS"),
    "cut call that parses": body({"tool_calls": [WEATHER, CLOCK]}, "MAX_TOKENS"),
    "no call id": body({"tool_calls": [call("", "clock", "{}"), call("", "clock", "{}")]}, "TOOL_CALL"),
    "error": body({"content": [say("Well, ")]}, "ERROR"),
    "timeout": body({"content": [say("Well, ")]}, "TIMEOUT"),
    "empty": body({"content": []}),
    "unknown": body({"content": [say("Hm")]}, "TIRED"),
    "null": body({"content": [say("Hm")]}, None),
    "null with a call": body({"tool_calls": [WEATHER]}, None),
    "no usage": body({"content": [say("ok")]}, usage=None),
    "billed only": body({"content": [say("ok")]}, usage={"billed_units": {"input_tokens": 5, "output_tokens": 1}}),
    "v1 text": body_v1("Grüezi 👋🏽, the answer is 42."),
    "v1 length": body_v1("The answer is", "MAX_TOKENS"),
    "v1 limit": body_v1("The answer is", "ERROR_LIMIT"),
    "v1 toxic": body_v1("", "ERROR_TOXIC"),
    "v1 cancelled": body_v1("Well", "USER_CANCEL"),
    "v1 tool calls": body_v1(
        "I will look.",
        tool_calls=[
            {"name": "weather", "parameters": {"city": "Zürich"}},
            {"name": "clock", "parameters": {}},
        ],
    ),
}


def named(data: Json) -> Event:
    """An event whose name is its type."""
    return Event(data["type"], data)


def adds(kind: str, index: int | None, **message: Any) -> Event:
    """An event that adds something to the message."""
    place = {} if index is None else {"index": index}
    return named({"type": kind, **place, "delta": {"message": message}})


def said(index: int, kind: str, *words: str) -> list[Event]:
    """A part of content, from its start to its end."""
    return [
        adds("content-start", index, content={"type": kind, kind: ""}),
        *(adds("content-delta", index, content={kind: word}) for word in words),
        named({"type": "content-end", "index": index}),
    ]


def used(index: int, id_: str, name: str, *pieces: str, closed: bool = True) -> list[Event]:
    """A tool call, piece by piece."""
    events = [
        adds("tool-call-start", index, tool_calls=call(id_, name, "")),
        *(adds("tool-call-delta", index, tool_calls={"function": {"arguments": piece}}) for piece in pieces),
    ]
    return [*events, named({"type": "tool-call-end", "index": index})] if closed else events


def start() -> Event:
    """The first event."""
    empty = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
    return named({"type": "message-start", "id": ID, "delta": {"message": empty}})


def end(reason: Any = "COMPLETE", **more: Any) -> list[Event]:
    """The last events."""
    delta = {"finish_reason": reason, "usage": USAGE, **more}
    return [named({"type": "message-end", "delta": delta}), Event(None, DONE)]


def v1(kind: str, **more: Any) -> Event:
    """An event of v1."""
    return Event(None, {"is_finished": kind == "stream-end", "event_type": kind, **more})


CALLS_V1 = [{"name": "weather", "parameters": {"city": "Zürich"}}, {"name": "clock", "parameters": {}}]

STREAMS: dict[str, list[Event]] = {
    "text": [start(), *said(0, "text", *[f"wörd {i} " for i in range(150)]), *end()],
    "thinking": [start(), *said(0, "thinking", "six times ", "seven"), *said(1, "text", "4", "2"), *end()],
    "citations": [
        start(),
        *said(0, "text", "Grüezi", ".")[:-1],
        adds("citation-start", 0, citations=CITATION),
        named({"type": "citation-end", "index": 0}),
        named({"type": "content-end", "index": 0}),
        *end(),
    ],
    "tool call": [
        start(),
        adds("tool-plan-delta", None, tool_plan="I will "),
        adds("tool-plan-delta", None, tool_plan="look 👀."),
        *used(0, "weather_0abc", "weather", '{\n  "city": "Zür', 'ich"\n}'),
        *used(1, "clock_1abc", "clock", "{}"),
        *end("TOOL_CALL"),
    ],
    "unsaid tool call": [start(), *used(0, "clock_1abc", "clock", "{}"), *end()],
    "cut call": [
        start(),
        *used(0, "weather_0abc", "weather", '{"a": 1}'),
        *used(1, "clock_1abc", "clock", '{"zone', closed=False),
        *end("MAX_TOKENS"),
    ],
    "error": [start(), *said(0, "text", "Well"), *end("ERROR", error="the model crashed")],
    "timeout": [start(), *said(0, "text", "Well"), *end("TIMEOUT")],
    "unknown": [start(), *said(0, "text", "Hm"), *end("TIRED")],
    "cut": [start(), *said(0, "text", "Once", " upon")[:-1]],
    "v1 text": [
        v1("stream-start", generation_id=ID),
        v1("text-generation", text="Grüe"),
        v1("text-generation", text="zi 👋🏽"),
        v1("stream-end", finish_reason="COMPLETE", response=body_v1("Grüezi 👋🏽")),
    ],
    "v1 limit": [
        v1("stream-start", generation_id=ID),
        v1("text-generation", text="The answer"),
        v1("stream-end", finish_reason="ERROR_LIMIT", response=body_v1("The answer", "ERROR_LIMIT")),
    ],
    "v1 tool calls": [
        v1("stream-start", generation_id=ID),
        v1("tool-calls-chunk", text="I will "),
        v1("tool-calls-chunk", text="look."),
        v1("tool-calls-chunk", tool_call_delta={"name": "weather", "index": 0}),
        v1("tool-calls-chunk", tool_call_delta={"index": 0, "parameters": '{"city": "Zür'}),
        v1("tool-calls-chunk", tool_call_delta={"index": 0, "parameters": 'ich"}'}),
        v1("tool-calls-chunk", tool_call_delta={"name": "clock", "index": 1}),
        v1("tool-calls-chunk", tool_call_delta={"index": 1, "parameters": "{}"}),
        v1("tool-calls-generation", text="I will look.", tool_calls=CALLS_V1),
        v1("stream-end", finish_reason="COMPLETE", response=body_v1("I will look.", tool_calls=CALLS_V1)),
    ],
}


def context(name: str) -> Context:
    """What the format must know to read the reply of that name."""
    return Context("v1" if name.startswith("v1") else "", "acme", RequestSummary(maximum=1000))


def body_object(body: Json) -> Any:
    """A body as the SDK hands it out."""
    kind = NonStreamedChatResponse if "text" in body else V2ChatResponse
    return construct_type(type_=cast(Any, kind), object_=body)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """A stream's events as the SDK hands them out: without the last, which is a word."""
    return [
        construct_type(
            type_=cast(Any, StreamedChatResponse if "event_type" in event.data else V2ChatStreamResponse),
            object_=event.data,
        )
        for event in events
        if event.data != DONE
    ]
