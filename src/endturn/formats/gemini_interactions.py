"""The Interactions API of Google: models and agents, whose answers are steps, and which the server may keep."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from endturn.chat import ChatResponse, Json, Message, Request
from endturn.events import Strategy
from endturn.formats.error_words import error_words
from endturn.formats.format import Format
from endturn.formats.framing import DONE
from endturn.formats.gemini_interactions_reader import CLIENT_CALL, NAME, REASONS, REPLY
from endturn.formats.next_request import continued, own_blocks
from endturn.formats.reading import items, member, output_type, text, text_or_none
from endturn.formats.request_members import asked
from endturn.formats.routes import SEGMENTS, routed_by
from endturn.formats.scripting import raw_reason, words, written_arguments, written_usage
from endturn.formats.settings import with_extra, written_settings
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.formats.tools import ToolShape
from endturn.stop import Resume

_TOOL: Final = ToolShape(beside={"type": "function"})
_CONFIG: Final = {"max_output_tokens": "max_tokens", "temperature": "temperature", "seed": "seed"}

_PATH: Final = rf"(?:{SEGMENTS}/v1(?:(?:alpha|beta)\d*)?{SEGMENTS})?/interactions(?:/(?P<id>[^/:]+))?"


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes; a response that is still being made is fetched by its id."""
    if request.retrieve is not None:
        return Route("GET", f"/interactions/{quote(request.retrieve, safe='')}{'?stream=true' if stream else ''}")
    return Route("POST", "/interactions")


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /interactions; nothing for a request that only fetches.

    A request with a continuation token and the id of the interaction that it came from has no input: the server kept
    it. Where it keeps nothing (`store` is false) the same input goes along again.

    An answer of this format goes back as it came, but for thoughts without a signature, which are not sent again.
    """
    if request.retrieve is not None:
        return {}
    body: Json = {"model": request.model} if request.model else {}
    system = [message.text for message in request.messages if message.role == "system"]
    if system:
        body["system_instruction"] = "\n\n".join(system)
    if request.token is None or request.previous_id is None or request.extra.get("store") is False:
        body["input"] = _steps(request.messages)
    if request.tools:
        body["tools"] = [_TOOL.written(tool) for tool in request.tools]
    config = written_settings(request, _CONFIG)
    if request.tool_choice != "auto":
        words = {"none": "none", "required": "any"}
        named = {"allowed_tools": {"mode": "any", "tools": [request.tool_choice]}}
        config["tool_choice"] = words.get(request.tool_choice, named)
    if config:
        body["generation_config"] = config
    if request.format is not None:
        body["response_format"] = _format(request.format)
    more = {
        "previous_interaction_id": request.previous_id,
        "continuation_token": request.token,
        "stream": stream or None,
    }
    body |= {name: value for name, value in more.items() if value is not None}
    return with_extra(body, request.extra, "generation_config")


def _steps(messages: Sequence[Message]) -> list[Json]:
    """The messages as steps. A result names its function, as far as the call is among the messages."""
    written: list[Json] = []
    names: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            names |= {call.id: call.name for call in message.tool_calls}
            written += _said(message)
        elif own := own_blocks(message, NAME):
            written += own
        elif message.role == "tool":
            written.append(_result(message, names))
        elif message.role == "user":
            written.append({"type": "user_input", "content": _parts(message.content)})
    return written


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _result(message: Message, names: Mapping[str, str]) -> Json:
    call = message.tool_call_id or ""
    result: Json = {"type": "function_result", "call_id": call, "result": message.content}
    if call in names:
        result["name"] = names[call]
    return {**result, "is_error": True} if message.is_error else result


def _said(message: Message) -> list[Json]:
    """An assistant message as steps; none where it says nothing."""
    if (own := own_blocks(message, NAME)) is not None:
        kept = {call.id for call in message.tool_calls}
        return [step for step in own if _replayable(step, kept)]
    steps: list[Json] = []
    if message.text.strip():
        steps.append({"type": "model_output", "content": _parts(message.content)})
    return steps + [
        {"type": CLIENT_CALL, "id": call.id, "name": call.name, "arguments": call.arguments or {}}
        for call in message.tool_calls
    ]


def _replayable(step: Json, kept: Container[Any]) -> bool:
    """Whether the API takes a step back: no call that left the history, no unsigned thought, no empty output."""
    kind = step.get("type")
    if kind == CLIENT_CALL:
        return step.get("id") in kept
    if kind == "thought":
        return bool(step.get("signature"))
    content = items(step.get("content"))
    says = any(member(part, "type") != "text" or text(member(part, "text")).strip() for part in content)
    return kind != "model_output" or says


def _format(format_: Json) -> Json:
    form: Json = {"type": "text", "mime_type": "application/json"}
    return form if format_ == {"type": "json_object"} else {**form, "schema": format_}


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut or paused response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by the other strategies.
        strategy: `prompt`; `prefill` (the partial answer is the last step); `resend` (the answer verbatim, nothing
            after it); `native_token` (the response's token, with the interaction that gave it, as the SDK does).
    """
    if strategy == Strategy.NATIVE_TOKEN or (cut.stop.resume is Resume.NATIVE_TOKEN and cut.token is not None):
        kept = cut.id is not None and request.extra.get("store") is not False
        return request.but(token=cut.token, previous_id=cut.id if kept else request.previous_id)
    request = request.but(token=None)
    left, forced = _unfinished(cut), "generation_config.tool_choice"
    return continued(request, cut, left, format=NAME, prompt=prompt, strategy=strategy, forced=forced)


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The steps of a cut response that may be replayed: no call without its result, no thought at the end."""
    own = own_blocks(cut, NAME)
    if own is None:
        return [{"type": "model_output", "content": _parts(cut.text)}] if cut.text.strip() else []
    answered = {step.get("call_id") for step in own}
    kept = [
        step
        for step in own
        if _replayable(step, ()) and (not text(step.get("type")).endswith("_call") or step.get("id") in answered)
    ]
    while kept and kept[-1].get("type") == "thought":
        kept.pop()
    return kept


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a call of the SDK, or a body, asks for, read in place. A bare text is shown as one message of the user."""
    body = member(kwargs.get("request"), "body") or kwargs
    given, form = member(body, "input"), member(body, "response_format")
    history = ({"role": "user", "content": given},) if isinstance(given, str) else items(given)
    found = asked(NAME, body, history, text_or_none(member(body, "system_instruction")))
    if _is_json(form) or member(body, "response_mime_type") == "application/json":
        return replace(found, output_type="json")
    kind = output_type(next(iter(items(form)), form), member(body, "response_modalities"))
    return replace(found, output_type=kind)


def _is_json(form: Any) -> bool:
    """Whether an output format, or one of several, is JSON: with that type, or a bare schema as older callers give."""
    if isinstance(form, list | tuple):
        return any(_is_json(each) for each in form)
    kind = member(form, "type")
    if kind in ("audio", "image", "video") or form is None:
        return False
    return member(form, "mime_type") == "application/json" or (isinstance(form, Mapping) and kind != "text")


# --- What a scripted server says ---

_TIME: Final = "2026-05-20T00:00:00Z"
_USAGE: Final = {
    "total_input_tokens": "input_tokens",
    "total_thought_tokens": "reasoning_tokens",
    "total_cached_tokens": "cache_read_tokens",
}
_OTHERS: Final = ("context_length_exceeded", "content_filter")
"""Codes of other formats, for which this one has its own."""


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the events of a stream."""
    raw, usage = raw_reason(response.stop, REASONS[""]), response.usage
    head: Json = {"id": response.id, "object": "interaction", "model": response.model or "scripted"}
    head |= {"created": _TIME, "updated": _TIME}
    ending: Json = {**head, "status": raw}
    if usage is not None:
        ending["usage"] = written_usage(usage, _USAGE, "total_tokens")
        if usage.output_tokens is not None:
            ending["usage"]["total_output_tokens"] = max(0, usage.output_tokens - (usage.reasoning_tokens or 0))
    if raw == "requires_continuation":
        ending["continuation_token"] = f"after_{response.id}"
    written = _written(response)
    if not stream:
        return {**ending, "steps": [{**begin, **whole} for begin, whole, _ in written]}
    events = [
        _event("interaction.created", interaction={**head, "status": "in_progress"}),
        _event("interaction.status_update", interaction_id=response.id, status="in_progress"),
    ]
    is_open = {call.id for call in response.tool_calls if not call.closed}
    for index, (begin, _, deltas) in enumerate(written):
        events.append(_event("step.start", index=index, step=begin))
        events += [_event("step.delta", index=index, delta=delta) for delta in deltas]
        breaks_off = not response.stop.terminal_seen and index == len(written) - 1
        if begin.get("id") not in is_open and not breaks_off:
            events.append(_event("step.stop", index=index))
    if response.stop.terminal_seen:
        events += [_event("interaction.completed", interaction=ending), Event("done", DONE)]
    return events


def _event(kind: str, **said: Any) -> Event:
    return Event(kind, {"event_type": kind, **said})


def _written(response: ChatResponse) -> list[tuple[Json, Json, list[Json]]]:
    """Each step: how it begins, what a body says of it besides, and the deltas that a stream says instead."""
    steps: list[tuple[Json, Json, list[Json]]] = []
    deltas: list[Json]
    if response.reasoning:
        signed: Json = {"signature": "c2NyaXB0ZWQ="}
        deltas = [
            {"type": "thought_summary", "content": part} for word in words(response.reasoning) for part in _parts(word)
        ]
        whole = {**signed, "summary": _parts(response.reasoning)}
        steps.append(({"type": "thought"}, whole, [*deltas, {"type": "thought_signature", **signed}]))
    if response.text:
        deltas = [part for word in words(response.text) for part in _parts(word)]
        steps.append(({"type": "model_output"}, {"content": _parts(response.text)}, deltas))
    for call in response.tool_calls:
        raw = written_arguments(call) if call.arguments != {} else ""
        deltas = [{"type": "arguments_delta", "arguments": word} for word in words(raw)]
        begin: Json = {"type": CLIENT_CALL, "id": call.id, "name": call.name, "arguments": {}}
        steps.append((begin, {"arguments": call.arguments_raw if call.arguments is None else call.arguments}, deltas))
    return steps


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, its `error` event."""
    said = error_words(NAME, status, code, message)
    word = code if code and code not in _OTHERS else said.type
    body: Json = {"error": {"code": word, "message": said.message}}
    return _event("error", **body) if stream else body


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    framing=Framing.SSE,
    reasons=REASONS,
    voice=Voice("v1_", "call_", "x-request-id"),  # One word for an answer that is cut, whatever cut it.
    replies=REPLY,
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
    fetches=True,
)
