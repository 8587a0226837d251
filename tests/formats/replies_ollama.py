"""Replies of Ollama's own API, written by hand in the shapes of its server (fb307609) and of the ollama SDK 0.6.3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ollama import ChatResponse, GenerateResponse

from endturn.formats import Context, Event, RequestSummary

Json = dict[str, Any]

HEAD: Json = {"model": "qwen3:8b", "created_at": "2026-10-01T09:30:00.123456Z"}
TIMES: Json = {
    "total_duration": 4883583458,
    "load_duration": 1334875,
    "prompt_eval_duration": 342546000,
    "eval_duration": 4535599000,
}
COUNTS: Json = {"prompt_eval_count": 26, "eval_count": 29}
WINDOW = 4096


def message(content: str = "", **more: Any) -> Json:
    """A message of the assistant."""
    return {"role": "assistant", "content": content, **more}


def call(name: str, arguments: Any = None, id: str | None = None) -> Json:
    """A call, as a message holds it; newer servers give it an id."""
    named: Json = {"function": {"name": name, "arguments": {} if arguments is None else arguments}}
    return named if id is None else {"id": id, **named}


def chat(said: Json, reason: str | None = "stop", **more: Any) -> Json:
    """A whole response of /api/chat; without a reason as the server writes an empty one."""
    ending = {"done": True} if reason is None else {"done": True, "done_reason": reason}
    return {**HEAD, "message": said, **ending, **TIMES, **COUNTS, **more}


def generated(response: str, reason: str | None = "stop", **more: Any) -> Json:
    """A whole response of /api/generate."""
    whole = chat({}, reason, response=response, context=[1, 2, 3], **more)
    del whole["message"]
    return whole


BODIES: dict[str, Json] = {
    "text": chat(message("Hello! 👋🏽 Grüße, 世界.")),
    "length": chat(message("Once upon a"), "length"),
    "window": chat(message("Once"), "length", prompt_eval_count=4067),
    "thinking": chat(message("Yes.", thinking="Let me see.")),
    "thinking alone": chat(message("", thinking="Let me see"), "length"),
    "tool calls": chat(message("", tool_calls=[call("weather", {"city": "Łódź"}), call("clock")])),
    "tool calls with ids": chat(message("Looking.", tool_calls=[call("f", {"x": 1}, "call_a1b2c3d4")])),
    "cut after a call": chat(message("", tool_calls=[call("f", {"x": 1}), call("g")]), "length"),
    "connection closed": chat(message("So"), None),
    "empty reason": chat(message("So"), ""),
    "load": {**HEAD, "message": message(), "done_reason": "load", "done": True},
    "unload": {**HEAD, "message": message(), "done_reason": "unload", "done": True},
    "unknown": chat(message("Hm"), "tired"),
    "not done": {**HEAD, "message": message("Hm"), "done": False},
    "empty": chat(message()),
    "prompt in the cache": {name: value for name, value in chat(message("Hi")).items() if name != "prompt_eval_count"},
    "generate": generated("Hello."),
    "generate length": generated("Once", "length", thinking="Hm"),
}


def line(**said: Any) -> Event:
    """A line of a stream of /api/chat."""
    return Event(None, {**HEAD, "message": message(**said), "done": False})


def end(reason: str | None = "stop", **more: Any) -> Event:
    """The last line."""
    return Event(None, chat(message(), reason, **more))


STREAMS: dict[str, list[Event]] = {
    "text": [line(content="Hello! 👋🏽 "), line(content="Grüße, "), line(content="世界."), end()],
    "length": [line(content="Once "), line(content="upon"), end("length")],
    "window": [line(content="Once"), end("length", prompt_eval_count=4067)],
    "thinking": [line(thinking="Let me "), line(thinking="see."), line(content="Yes."), end()],
    "thinking alone": [line(thinking="Let me see"), end("length")],
    "tool calls": [
        line(content="Looking."),
        line(tool_calls=[call("weather", {"city": "Łódź"})]),
        line(tool_calls=[call("clock")]),
        end(),
    ],
    "cut after a call": [line(tool_calls=[call("f", {"x": 1}, "call_a1b2c3d4")]), line(content="And"), end("length")],
    "connection closed": [line(content="So"), end(None)],
    "load": [Event(None, BODIES["load"])],
    "unknown": [line(content="Hm"), end("tired")],
    "text in the last line": [line(content="All "), Event(None, chat(message("of it.")))],
    "cut": [line(thinking="Hm"), line(content="Once "), line(content="upon")],
    "generate": [
        Event(None, {**HEAD, "response": "Hel", "done": False}),
        Event(None, {**HEAD, "response": "lo.", "done": False}),
        Event(None, generated("")),
    ],
}


def context(name: str) -> Context:
    """What must be known to read the reply of that name."""
    return Context(provider="ollama", asked=RequestSummary(maximum=1000), window=WINDOW)


def body_object(body: Json) -> Any:
    """A body as the SDK hands it out."""
    return ChatResponse(**body) if "message" in body else GenerateResponse(**body)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """A stream's lines as the SDK hands them out."""
    return [body_object(event.data) for event in events]
