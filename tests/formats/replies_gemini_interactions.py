"""Replies of Google's Interactions API, written by hand in the shapes of google-genai 3.4.0, revision 2026-05-20.

The bodies with `outputs` are in the shape before that revision.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

from google.genai._gaos.types.interactions import Interaction, InteractionSSEStreamEvent
from google.genai._gaos.utils.unmarshal_json_response import unmarshal_json_response

from endturn.formats import Context, Event, RequestSummary, framing

Json = dict[str, Any]

DONE = Event("done", framing.DONE)


def output(*parts: str | Json) -> Json:
    """A step of visible output."""
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "model_output", "content": content}


def thought(summary: str = "", signature: str | None = "EpoGCpcGAXLI2nx/") -> Json:
    """A step of thinking."""
    step: Json = {"type": "thought"}
    if signature is not None:
        step["signature"] = signature
    return {**step, "summary": [{"type": "text", "text": summary}]} if summary else step


def call(id: str, name: str, arguments: Any = None) -> Json:
    """A call of the client's function."""
    return {"type": "function_call", "id": id, "name": name, "arguments": {} if arguments is None else arguments}


SEARCH: Json = {"type": "google_search_call", "id": "s1", "arguments": {"queries": ["Elbrus"]}, "signature": "c2lnbmVk"}
FOUND: Json = {"type": "google_search_result", "call_id": "s1", "result": [{"search_suggestions": "<div/>"}]}
CITED: Json = {
    "type": "text",
    "text": "Elbrus, 5642 m.",
    "annotations": [{"type": "url_citation", "url": "https://example.org", "start_index": 0, "end_index": 6}],
}
USAGE: Json = {
    "total_tokens": 346,
    "total_input_tokens": 11,
    "input_tokens_by_modality": [{"modality": "text", "tokens": 11}],
    "total_cached_tokens": 0,
    "total_output_tokens": 90,
    "total_tool_use_tokens": 0,
    "total_thought_tokens": 245,
}


def interaction(status: str | None, *steps: Json, **more: Any) -> Json:
    """A whole interaction."""
    body: Json = {
        "id": "v1_ChdGUVFJ",
        "status": status,
        "usage": USAGE,
        "created": "2026-05-12T18:44:51Z",
        "updated": "2026-05-12T18:44:52Z",
        "service_tier": "standard",
        "object": "interaction",
        "model": "gemini-3.8-flash",
        "steps": list(steps),
        **more,
    }
    return {name: value for name, value in body.items() if value is not None}


def outputs(status: str, *given: Json) -> Json:
    """A whole interaction as it was before it had steps."""
    return {**interaction(status, steps=None), "outputs": list(given), "role": "model"}


BODIES: dict[str, Json] = {
    "text": interaction("completed", thought(), output("Hello! 👋🏽 Grüße, ", "世界.")),
    "incomplete": interaction("incomplete", output("Once upon a")),
    "incomplete within a thought": interaction("incomplete", thought("Let me see", None)),
    "function call": interaction("requires_action", thought("I need"), call("un6k8t18", "weather", {"city": "Łódź"})),
    "completed with a call": interaction("completed", output("Looking."), call("c1", "f", {"x": 1})),
    "two calls": interaction("requires_action", call("a", "f", {"x": 1}), call("b", "g")),
    "cut call": interaction("incomplete", call("a", "f", {"x": 1}), call("b", "g")),
    "call without id": interaction("requires_action", call("", "f", {"x": 1})),
    "server tools": interaction("completed", SEARCH, FOUND, output(CITED)),
    "native token": interaction("requires_continuation", output("Chapter one. "), continuation_token="tok_1"),
    "token spent": interaction("requires_continuation", output("Chapter two.")),
    "server budget": interaction("budget_exceeded", output("As far as")),
    "working": interaction("in_progress", usage=None),
    "queued": interaction("queued", usage=None, steps=None),
    "failed": interaction("failed", errors=[{"code": "api_error", "message": "An unexpected error occurred."}]),
    "blocked": interaction("failed", output("How"), errors=[{"code": "safety", "message": "Blocked."}]),
    "malformed": interaction("failed", errors=[{"code": "malformed_function_call", "message": "Malformed call."}]),
    "cancelled": interaction("cancelled", output("So")),
    "unknown": interaction("expired", output("Hm")),
    "null": interaction(None, output("Hm")),
    "empty": interaction("completed", usage=None),
    "image": interaction("completed", output({"type": "image", "mime_type": "image/png", "data": "aGk="}, "Done.")),
    "cached and tools": interaction(
        "completed",
        output("Yes."),
        usage={
            "total_tokens": 165,
            "total_input_tokens": 100,
            "total_cached_tokens": 80,
            "total_output_tokens": 10,
            "total_tool_use_tokens": 50,
            "total_thought_tokens": 5,
        },
    ),
    "agent": {**interaction("completed", output("Report."), model=None), "agent": "deep-research-preview"},
    "outputs": outputs("completed", thought(signature="c2ln"), SEARCH, FOUND, CITED, {"type": "text", "text": " Ja."}),
    "outputs with a call": outputs("requires_action", thought("I need"), call("r7b1dyif", "weather", {"city": "Łódź"})),
    "outputs cut": outputs("incomplete", {"type": "text", "text": "Once upon a"}),
    "input repeated": interaction(
        "completed",
        {"type": "user_input", "content": [{"type": "text", "text": "first"}]},
        output("an older answer"),
        {"type": "user_input", "content": [{"type": "text", "text": "hi"}]},
        output("Hello."),
    ),
}


def created(id: str = "v1_ChdGUVFJ", **more: Any) -> Event:
    """The event with which an interaction begins."""
    head = {"id": id, "status": "in_progress", "object": "interaction", "model": "gemini-3.8-flash"}
    return Event("interaction.created", {"interaction": head | more, "event_type": "interaction.created"})


def update(status: str, **more: Any) -> Event:
    """A change of the status."""
    data = {"interaction_id": "v1_ChdGUVFJ", "status": status, **more, "event_type": "interaction.status_update"}
    return Event("interaction.status_update", data)


def start(index: int, step: Json) -> Event:
    """A step begins."""
    return Event("step.start", {"index": index, "step": step, "event_type": "step.start"})


def delta(index: int, type_: str, **more: Any) -> Event:
    """A step goes on."""
    return Event("step.delta", {"index": index, "delta": {"type": type_, **more}, "event_type": "step.delta"})


def stop(index: int, **more: Any) -> Event:
    """A step ends."""
    return Event("step.stop", {"index": index, **more, "event_type": "step.stop"})


def completed(status: str | None, **more: Any) -> Event:
    """The event with which an interaction ends, whatever became of it."""
    ending = interaction(status, **{"steps": None, **more})
    return Event("interaction.completed", {"interaction": ending, "event_type": "interaction.completed"})


def error(code: str, message: str) -> Event:
    """An error within a stream."""
    return Event("error", {"error": {"message": message, "code": code}, "event_type": "error"})


def said(index: int, *pieces: str, closed: bool = True) -> list[Event]:
    """A step of visible output, streamed."""
    events = [start(index, {"type": "model_output"}), *(delta(index, "text", text=piece) for piece in pieces)]
    return [*events, stop(index)] if closed else events


def called(index: int, id: str, name: str, *pieces: str, closed: bool = True) -> list[Event]:
    """A call of the client's function, streamed."""
    events = [start(index, call(id, name)), *(delta(index, "arguments_delta", arguments=piece) for piece in pieces)]
    return [*events, stop(index)] if closed else events


def thinking(index: int, *pieces: str, signature: str = "EpoGCpcGAXLI2nx/") -> list[Event]:
    """A step of thinking, streamed."""
    summary = [delta(index, "thought_summary", content={"type": "text", "text": piece}) for piece in pieces]
    signed = delta(index, "thought_signature", signature=signature)
    return [start(index, {"type": "thought"}), *summary, signed, stop(index)]


BEGIN = [created(), update("in_progress")]

STREAMS: dict[str, list[Event]] = {
    "text": [*BEGIN, *thinking(0), *said(1, "Hello! 👋🏽 ", "Grüße, 世界."), completed("completed"), DONE],
    "text in the start": [
        *BEGIN,
        start(0, {"type": "thought", "signature": "", "summary": [{"type": "text", "text": "Evaluating"}]}),
        delta(0, "thought_signature", signature="EpoG"),
        stop(0),
        start(1, output("Based on the clues")),
        delta(1, "text", text=" provided."),
        stop(1),
        completed("completed"),
        DONE,
    ],
    "incomplete": [*BEGIN, *said(0, "Once ", "upon a"), completed("incomplete"), DONE],
    "function call": [
        *BEGIN,
        *thinking(0, "I ", "need"),
        *called(1, "un6k8t18", "weather", '{"city": "Ł', 'ódź"}'),
        completed("requires_action"),
        DONE,
    ],
    "completed with a call": [
        *BEGIN,
        *said(0, "Looking."),
        *called(1, "c1", "f", '{"x": 1}'),
        completed("completed"),
        DONE,
    ],
    "cut call": [
        *BEGIN,
        *called(0, "a", "f", '{"x": 1}'),
        *called(1, "b", "g", '{"body": "line', closed=False),
        completed("incomplete"),
        DONE,
    ],
    "server tools": [
        *BEGIN,
        start(0, {"type": "google_search_call", "id": "s1", "arguments": {}}),
        delta(0, "google_search_call", arguments={"queries": ["Elbrus"]}, signature="c2lnbmVk"),
        stop(0),
        start(1, {"type": "google_search_result", "call_id": "s1"}),
        delta(1, "google_search_result", result=[{"search_suggestions": "<div/>"}]),
        stop(1),
        start(2, {"type": "model_output"}),
        delta(2, "text", text="Elbrus, "),
        delta(2, "text", text="5642 m."),
        delta(2, "text_annotation_delta", annotations=CITED["annotations"]),
        stop(2),
        completed("completed"),
        DONE,
    ],
    "image": [
        *BEGIN,
        start(0, {"type": "model_output"}),
        delta(0, "image", mime_type="image/png", data="aGk="),
        delta(0, "text", text="Done."),
        stop(0),
        completed("completed"),
        DONE,
    ],
    "native token": [
        *BEGIN,
        *said(0, "Chapter ", closed=False),
        update("in_progress", continuation_token="tok_checkpoint"),
        delta(0, "text", text="one. "),
        completed("requires_continuation", continuation_token="tok_1"),
        DONE,
    ],
    "status updates alone": [*BEGIN, *called(0, "a", "f", "{}"), update("requires_action", usage=USAGE)],
    "server budget": [*BEGIN, *said(0, "As far as", closed=False), completed("budget_exceeded"), DONE],
    "failed": [
        *BEGIN,
        completed("failed", errors=[{"code": "api_error", "message": "An unexpected error occurred."}]),
        DONE,
    ],
    "cancelled": [*BEGIN, *said(0, "So", closed=False), completed("cancelled"), DONE],
    "usage of steps": [
        *BEGIN,
        *said(0, "One.", closed=False),
        stop(0, usage={"total_input_tokens": 30, "total_output_tokens": 3}, step_usage={"total_output_tokens": 1}),
        completed("completed", usage=None),
        DONE,
    ],
    "steps in the end alone": [*BEGIN, completed("completed", steps=[thought("Hm"), output("All of it.")]), DONE],
    "error after the end": [*BEGIN, *said(0, "Yes."), completed("completed"), error("api_error", "too late"), DONE],
    "cut": [*BEGIN, *thinking(0, "Hm"), *said(1, "Once", closed=False)],
    "background": [created(status="queued"), update("queued"), update("in_progress")],
}


def context(name: str) -> Context:
    """What must be known to read the reply of that name."""
    return Context(provider="gcp.gemini", asked=RequestSummary(maximum=1000, background=name == "background"))


def _parsed(kind: Any, raw: Json) -> Any:
    """JSON as the SDK makes objects of it: what does not validate is built all the same."""
    return unmarshal_json_response(kind, cast(Any, None), json.dumps(raw), validate=False)


def body_object(body: Json) -> Any:
    """A body as the SDK hands it out."""
    return _parsed(Interaction, body)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """A stream's events as the SDK hands them out."""
    return [_parsed(InteractionSSEStreamEvent, {"data": e.data}).data for e in events if e.data != framing.DONE]
