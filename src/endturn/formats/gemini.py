"""generateContent of Google: the Gemini API, and Vertex AI.

Google's own SDK (google-genai 3.4.0) follows continuation tokens by itself unless `automatic_continuation` is False: it
hides the hops, and whoever watches its objects sees one response.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from endturn.chat import ChatResponse, Json, Message, Request, ToolCall
from endturn.events import Strategy
from endturn.formats.error_words import error_words
from endturn.formats.format import Format
from endturn.formats.gemini_reader import NAME, REASONS, REPLY, either
from endturn.formats.next_request import continued, own_blocks
from endturn.formats.reading import items, member, text
from endturn.formats.request_members import asked
from endturn.formats.routes import SEGMENTS, routed_by
from endturn.formats.scripting import raw_reason, words, written_usage
from endturn.formats.settings import with_extra, written_settings
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.formats.tools import ToolShape
from endturn.stop import Resume, StopReason

# --- Where a request goes ---

_PATH: Final = (
    rf"{SEGMENTS}(?:/v\d+)?{SEGMENTS}/(?:models/)?(?P<model>(?:(?<=/models/)|tunedModels/|endpoints/)[^/:]+)"
    r":(?:(?P<whole>generateContent)|(?P<stream>streamGenerateContent))"
)
_NAMED: Final = re.compile(r"(?:models|tunedModels|endpoints|publishers|projects)/.")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where the request goes. A model may be named with what it is: "tunedModels/mine", "endpoints/123"."""
    model = request.model
    name = quote(model) if _NAMED.match(model) else f"models/{quote(model, safe='')}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return Route("POST", f"/{name}:{method}")


# --- What a request says ---

_JSON: Final = "application/json"
_ANY: Final = {"type": "json_object"}
_TOOL: Final = ToolShape(schema="parametersJsonSchema")
_SETTINGS: Final = {"maxOutputTokens": "max_tokens", "temperature": "temperature", "seed": "seed"}
_MODES: Final = {"NONE": "none", "ANY": "required", "AUTO": "auto"}


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST …:generateContent, and of …:streamGenerateContent; the path says which, and the model.

    An answer of this format goes back as it came, but for thoughts without a signature, which are not sent again.
    """
    body: Json = {"contents": _contents(request.messages)}
    system = [part for message in request.messages if message.role == "system" for part in _parts(message.content)]
    if system:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        # `parametersJsonSchema` takes any JSON Schema, `parameters` a part of OpenAPI's.
        body["tools"] = [{"functionDeclarations": [_TOOL.written(tool) for tool in request.tools]}]
        if request.tool_choice != "auto":
            body["toolConfig"] = _tool_config(request.tool_choice)
    settings = written_settings(request, _SETTINGS)
    if request.format is not None:
        settings["responseMimeType"] = _JSON
        if request.format != _ANY:
            settings["responseJsonSchema"] = request.format
    if settings:
        body["generationConfig"] = settings
    if request.token is not None:
        body["continuationToken"] = request.token
    return with_extra(body, request.extra, "generationConfig")


def _tool_config(choice: str) -> Json:
    modes = {ours: {"mode": mode} for mode, ours in _MODES.items()}
    return {"functionCallingConfig": modes.get(choice, {"mode": "ANY", "allowedFunctionNames": [choice]})}


def _contents(messages: Iterable[Message]) -> list[Json]:
    """The contents of a request, but for system messages; the results of one batch of calls go together in one."""
    written: list[Json] = []
    called: dict[str, Json] = {}
    before = ""
    for message in messages:
        match message.role:
            case "tool":
                if before != "tool":
                    written.append({"role": "user", "parts": []})
                written[-1]["parts"].append(_result(message, called))
            case "assistant":
                called |= _called(message)
                if said := _said(message):
                    written.append({"role": "model", "parts": said})
            case "user":
                written.append({"role": "user", "parts": _parts(message.content)})
        before = message.role
    return written


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"text": content}] if isinstance(content, str) else content


def _called(message: Message) -> dict[str, Json]:
    """A call's id → what its result says of it: its name, and its id unless we minted it, as most have none."""
    kept = own_blocks(message, NAME)
    sent = {text(member(either(part, "functionCall"), "id")) for part in kept or ()}
    return {
        call.id: {"name": call.name, "id": call.id} if kept is None or call.id in sent else {"name": call.name}
        for call in message.tool_calls
    }


def _result(message: Message, called: Mapping[str, Json]) -> Json:
    """A tool's result. The format tells whose it is by the function's name, which the call in the history has."""
    if kept := own_blocks(message, NAME):
        return kept[0]
    id_ = message.tool_call_id or ""
    result: Json = {
        **called.get(id_, {"name": id_, "id": id_}),
        "response": {"error" if message.is_error else "output": message.text},
    }
    media = [part for part in items(message.content) if "text" not in part]
    return {"functionResponse": {**result, "parts": media} if media else result}


def _said(message: Message) -> list[Json]:
    """An assistant message's parts; none where it says nothing, which the API refuses."""
    left = list(message.tool_calls)
    if (kept := own_blocks(message, NAME)) is not None:
        return [part for part in kept if _is_replayable(part, left)]
    said = [part for part in _parts(message.content) if _is_replayable(part, [])]
    return said + [{"functionCall": {"id": call.id, "name": call.name, "args": call.arguments or {}}} for call in left]


def _is_replayable(part: Json, left: list[ToolCall]) -> bool:
    """Whether the API takes a part back: no call that left the history, no unsigned thinking, no empty text.

    Args:
        left: the message's calls that no part has been found for yet; a part's call is taken out.
    """
    called = either(part, "functionCall")
    if called is not None:
        id_, name, arguments = text(member(called, "id")), member(called, "name"), member(called, "args")
        for position, call in enumerate(left):
            # One without an id is known by what it asks for; of two that ask the same, it does not matter which.
            if call.id == id_ if id_ else call.name == name and (call.arguments or {}) == (arguments or {}):
                del left[position]
                return True
        return False
    if either(part, "thoughtSignature") is not None:
        return True
    return part.get("thought") is not True and ("text" not in part or bool(text(part["text"]).strip()))


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The parts of a cut response that may be replayed: no call, and no end that only what was cut off explains."""
    kept = own_blocks(cut, NAME)
    parts = [part for part in kept or _parts(cut.text) if _is_replayable(part, [])]
    while parts and (
        parts[-1].get("thought") is True or any(either(parts[-1], name) for name in ("executableCode", "toolCall"))
    ):
        parts.pop()
    return parts


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut or paused response. The original's messages stand first, unchanged.

    With a token the same request is sent again, and it.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Used by `prompt` alone.
        strategy: `prompt`; `prefill` (the partial answer is the last content, its trailing whitespace stripped);
            `resend` (the answer verbatim, nothing after it); `native_token`.
    """
    if cut.token is not None and (strategy == Strategy.NATIVE_TOKEN or cut.stop.resume is Resume.NATIVE_TOKEN):
        return request.but(token=cut.token)
    request = request.but(token=None)
    left = _unfinished(cut)
    return continued(request, cut, left, format=NAME, prompt=prompt, strategy=strategy, forced="toolConfig")


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for: a body, or the SDK's arguments (`config` is a dictionary or its object)."""
    given, config = kwargs.get("contents"), kwargs.get("config")
    history = given if isinstance(given, list | tuple) else () if given is None else (given,)
    settings = either(kwargs, "generationConfig") if config is None else config
    system = either(kwargs if config is None else config, "systemInstruction")
    own = {"model": text(kwargs.get("model")), "stream": kwargs.get("stream") is True, "system": system}
    return replace(asked(NAME, settings, history), **own)


# --- What a scripted server says ---

_USAGE: Final = {
    "promptTokenCount": "input_tokens",
    "thoughtsTokenCount": "reasoning_tokens",
    "cachedContentTokenCount": "cache_read_tokens",
}


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the API would send it: a body, or the chunks of a stream."""
    raw, usage = raw_reason(response.stop, REASONS[""]), response.usage
    head: Json = {"modelVersion": response.model or "scripted", "responseId": response.id}
    last: Json = {} if raw is None else {"finishReason": raw}
    if raw == "CONTINUATION":
        # The SDK stops where the token is the one that it has sent.
        last["continuationToken"] = urlsafe_b64encode(f"after {response.id}".encode()).decode()
    ending: Json = {}
    if usage is not None:
        ending["usageMetadata"] = written_usage(usage, _USAGE, "totalTokenCount")
        if usage.output_tokens is not None:
            ending["usageMetadata"]["candidatesTokenCount"] = usage.output_tokens - (usage.reasoning_tokens or 0)
    parts = _written(response, stream=stream)
    if not stream:
        return {"candidates": [_candidate(parts, last)], **ending, **head}
    events = [Event(None, {"candidates": [_candidate([part], {})], **head}) for part in parts]
    if response.stop.terminal_seen:
        events.append(Event(None, {"candidates": [_candidate([], last)], **ending, **head}))
    return events


def _candidate(parts: list[Json], last: Json) -> Json:
    return {"content": {"parts": parts, "role": "model"} if parts else {"role": "model"}, "index": 0, **last}


def _written(response: ChatResponse, *, stream: bool) -> list[Json]:
    """The parts of a response; of a stream, one for each word, and a last call that it breaks off in."""
    thought, said = ([said] if said and not stream else words(said) for said in (response.reasoning, response.text))
    parts: list[Json] = [{"text": word, "thought": True} for word in thought] + [{"text": word} for word in said]
    for call in response.tool_calls:
        broken_off = stream and not response.stop.terminal_seen and call is response.tool_calls[-1]
        about: Json = {"name": call.name} if broken_off else {"id": call.id, "name": call.name}
        # Arguments are an object here: one that has none is said as Vertex AI says one that it has not ended.
        is_open = broken_off or call.arguments is None
        parts.append({"functionCall": {**about, **({"willContinue": True} if is_open else {"args": call.arguments})}})
    return parts


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the event that it is."""
    said = error_words(NAME, status, code, message)
    body: Json = {"error": {"code": status, "message": said.message, "status": said.type}}
    return Event(None, body) if stream else body


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    framing=Framing.SSE,
    reasons=REASONS,
    # A call of a tool is told by the part, beside a STOP; the full window by a MAX_TOKENS.
    voice=Voice(
        "response-", "function-call-", "x-request-id", {StopReason.TOOL_CALL: "STOP", StopReason.ERROR: "OTHER"}
    ),
    replies=REPLY,
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
