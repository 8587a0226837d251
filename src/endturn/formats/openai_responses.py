"""The Responses API of OpenAI, and of those who speak it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, ToolCall, Usage
from endturn.events import Strategy
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, own_blocks, resent
from endturn.formats.openai_responses_reader import (
    BACKGROUND,
    COMPLETED,
    GIVEN,
    NAME,
    REASONS,
    REPLY,
    RUNNING,
    USAGE,
    client_call,
)
from endturn.formats.reading import count, items, member, text
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.scripting import chat_error, raw_reason, words, written_arguments, written_usage
from endturn.formats.settings import ToolShape, written_settings
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.stop import Resume, StopReason

# Unlike in chat, a schema is strict here unless it says otherwise, and a strict one leaves nothing optional.
_TOOL: Final = ToolShape(beside={"type": "function", "strict": False})
_SETTINGS: Final = {
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "previous_response_id": "previous_id",
}
_PATH: Final = rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?"


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes: to make a response, or to fetch one by its id.

    A stream that is fetched begins after the event whose sequence number is `starting_after` in the request's `extra`.
    """
    if request.retrieve is None:
        return Route("POST", "/responses")
    query = {"stream": "true"} if stream else {}
    after = count(request.extra.get("starting_after"))
    if stream and after is not None:
        query["starting_after"] = str(after)
    return Route("GET", f"/responses/{quote(request.retrieve, safe='')}" + (f"?{urlencode(query)}" if query else ""))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for."""
    given = kwargs.get("input")
    history = [{"role": "user", "content": given}] if isinstance(given, str) else items(given)
    return asked(NAME, kwargs, history, kwargs.get("instructions"))


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /responses; nothing where a response is fetched. The API has no seed: it is left out.

    A system message that stands first is the instructions; any other keeps its place among the items.
    """
    if request.retrieve is not None:
        return {}
    body: Json = {"model": request.model}
    messages = request.messages
    first = messages[0] if messages else None
    if first is not None and first.role == "system" and first.blocks is None and isinstance(first.content, str):
        body["instructions"], messages = first.content, messages[1:]
    body["input"] = _input(messages, stored=request.extra.get("store") is not False)
    if request.tools:
        body["tools"] = [_TOOL.written(tool) for tool in request.tools]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "name": request.tool_choice}
    body |= written_settings(request, _SETTINGS)
    if request.format is not None:
        schema = {"type": "json_schema", "name": "answer", "schema": request.format}
        body["text"] = {"format": request.format if request.format == {"type": "json_object"} else schema}
    if stream:
        body["stream"] = True
    return body | request.extra


def _input(messages: Iterable[Message], *, stored: bool) -> list[Json]:
    """The items of a history.

    Args:
        stored: the server keeps responses. Where it does not, it cannot find a reasoning item by its id: only one that
            brings its content, encrypted or not, is sent.
    """
    found: list[Json] = []
    custom: set[str] = set()
    for message in messages:
        ours = own_blocks(message, NAME)
        if message.role == "assistant":
            said = _said(message) if ours is None else _replayed(message, ours, stored)
            custom |= {text(item.get("call_id")) for item in said if item.get("type") == "custom_tool_call"}
            found += said
        elif ours is not None:
            found += ours
        elif message.role == "tool":
            kind = "custom_tool_call" if message.tool_call_id in custom else "function_call"
            # The API has no member that says that a result is a failure.
            result = {"call_id": message.tool_call_id or "", "output": message.content}
            found.append({"type": f"{kind}_output", **result})
        else:
            found.append({"role": message.role, "content": message.content})
    return found


def _said(message: Message) -> list[Json]:
    """An assistant message of another format; nothing where it says nothing, which the API refuses."""
    said: list[Json] = [{"role": "assistant", "content": message.text}] if message.text.strip() else []
    return said + [_call(call) for call in message.tool_calls]


def _call(call: ToolCall) -> Json:
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": written_arguments(call)}


def _replayed(message: Message, blocks: Iterable[Json], stored: bool) -> list[Json]:
    """The items of a response as they came, but for calls that were taken out of the history since."""
    held = {"", *(call.id for call in message.tool_calls), *_answered(blocks)}

    def stays(item: Json) -> bool:
        if item.get("type") == "reasoning":
            return stored or bool(item.get("encrypted_content") or item.get("content"))
        is_ours = text(item.get("type")) in GIVEN and client_call(item)
        return not is_ours or text(item.get("call_id")) in held

    return _paired(blocks, stays)


def _answered(blocks: Iterable[Json]) -> set[str]:
    """The calls whose results stand beside them: the server ran them."""
    return {text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")} - {""}


def _paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """The items to keep, without empty messages, and without reasoning whose own items all went.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    kept: list[Json] = []
    thoughts: list[Json] = []
    after = ""
    for item in blocks:
        kind = text(item.get("type"))
        if kind == "reasoning":
            thoughts = (thoughts if after == kind else []) + ([item] if keep(item) else [])
        elif keep(item) and (item.get("role") != "assistant" or _visible(item).strip()):
            kept += [*thoughts, item]
            thoughts = []
        after = kind
    return kept


def _visible(item: Json) -> str:
    """The text of a message, its refusals included."""
    content = item.get("content")
    parts = items(content)
    return text(content) + "".join(text(member(part, "text")) or text(member(part, "refusal")) for part in parts)


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    A response that is still being made is fetched. The API takes no prefill: it is prompted instead.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used where nothing is asked.
        strategy: `prompt`; `resend` (the answer verbatim, nothing after it).
    """
    if cut.stop.resume is Resume.RETRIEVE_SAME_ID:
        return request.but(retrieve=cut.id)
    request = request.but(retrieve=None)
    if (again := resent(request, cut, strategy)) is not None:
        return again
    blocks = _unfinished(cut)
    answer = cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks))) if blocks else None
    return asking_on(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The items of a cut response that may be replayed: no call without its result, no reasoning without its items."""
    blocks = own_blocks(cut, NAME)
    if blocks is None:
        return _said(cut.message().but(tool_calls=()))
    results = _answered(blocks)

    def whole(item: Json) -> bool:
        if client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in (COMPLETED, "failed", None)

    return _paired(blocks, whole)


# --- Scripted replies -------------------------------------------------------------------------------------------------

_WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""What the API says for a reason where that is not the first row that means it: calls and refusals are in the output,
a job says that it is one."""
_CUT: Final = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING)


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A scripted response as the API would send it: a body, or the events of a stream."""
    status, _, why = (raw_reason(response.stop, BACKGROUND) or "").partition(":")
    error = {"code": why or None, "message": chat_error(500, why or None, None)["error"]["message"]}
    # The SDK's types have every member of a usage: what is not known is zero.
    known: Json = {name: getattr(response.usage, name) or 0 for name in USAGE.values()} if response.usage else {}
    body: Json = {
        "id": response.id,
        "object": "response",
        "created_at": 0,
        "status": status or None,
        "background": response.stop.reason is StopReason.PAUSED,
        "error": error if status == "failed" else None,
        "incomplete_details": {"reason": why} if status == "incomplete" else None,
        "model": response.model,
        "output": _output(response),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": written_usage(Usage(**known), USAGE, "total_tokens") if known else None,
    }
    if not stream:
        return body
    events = _events(body, ended=response.stop.terminal_seen and status not in ("", *RUNNING))
    return [Event(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)]


def _output(response: ChatResponse) -> list[Json]:
    name, output = text(response.id).removeprefix("resp_"), list[Json]()
    if response.reasoning:
        summary = [{"type": "summary_text", "text": response.reasoning}]
        output.append({"id": f"rs_{name}", "type": "reasoning", "summary": summary})
    if response.text:
        part: Json = {"type": "output_text", "text": response.text, "annotations": [], "logprobs": []}
        if response.stop.reason is StopReason.REFUSED:
            part = {"type": "refusal", "refusal": response.text}
        cut = response.stop.reason in _CUT and not response.tool_calls
        told = {"type": "message", "status": "incomplete" if cut else COMPLETED, "role": "assistant"}
        output.append({"id": f"msg_{name}", **told, "content": [part]})
    for at, call in enumerate(response.tool_calls):
        output.append({"id": f"fc_{name}_{at}", **_call(call), "status": COMPLETED if call.closed else "incomplete"})
    return output


def _events(body: Json, *, ended: bool) -> Iterator[Json]:
    """The events of a stream; one that does not end leaves its last item open."""
    status, output = body["status"], body["output"]
    begun = body | dict.fromkeys(("usage", "error", "incomplete_details"))
    begun |= {"status": status if status in RUNNING else "in_progress", "output": []}
    yield {"type": "response.created", "response": begun}
    yield {"type": f"response.{begun['status']}", "response": begun}
    for index, item in enumerate(output):
        yield from _item_events(index, item, done=ended or index < len(output) - 1)
    if ended:
        known = status in (COMPLETED, "incomplete", "failed", "cancelled")
        yield {"type": f"response.{status if known else COMPLETED}", "response": body}


_BEGUN: Final[Mapping[str, Json]] = {
    "reasoning": {"summary": []},
    "message": {"content": []},
    "function_call": {"arguments": ""},
}
"""What an item of each type holds as it begins."""


def _item_events(index: int, item: Json, *, done: bool) -> Iterator[Json]:
    where: Json = {"item_id": item["id"], "output_index": index}
    began = {**item, "status": "in_progress", **_BEGUN[item["type"]]}
    yield {"type": "response.output_item.added", "output_index": index, "item": began}
    match item:
        case {"arguments": said}:
            whole = done and item["status"] == COMPLETED
            yield from _pieces("function_call_arguments", where, "arguments", said, done=whole)
        case {"summary": [part]}:
            where["summary_index"] = 0
            yield from _part("reasoning_summary_part", "reasoning_summary_text", where, part, done=done)
        case {"content": [part]}:
            where["content_index"] = 0
            yield from _part("content_part", part["type"], where, part, done=done)
    if done:
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _part(event: str, kind: str, where: Json, part: Json, *, done: bool) -> Iterator[Json]:
    name = "refusal" if kind == "refusal" else "text"
    yield {"type": f"response.{event}.added", **where, "part": {**part, name: ""}}
    yield from _pieces(kind, where, name, part[name], done=done)
    if done:
        yield {"type": f"response.{event}.done", **where, "part": part}


def _pieces(kind: str, where: Json, name: str, said: str, *, done: bool) -> Iterator[Json]:
    more: Json = {"logprobs": []} if kind == "output_text" else {}
    for word in words(said):
        yield {"type": f"response.{kind}.delta", **where, "delta": word, **more}
    if done:
        yield {"type": f"response.{kind}.done", **where, name: said, **more}


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body, the same as to a chat request; within a stream, its `error` event."""
    body = chat_error(status, code, message)
    if not stream:
        return body
    error = {**body["error"], "code": body["error"]["code"] or body["error"]["type"]}
    return Event("error", {**error, "type": "error", "sequence_number": 0})


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    framing=Framing.SSE,
    reasons=REASONS,
    voice=Voice("resp_", "call_", "x-request-id", _WORDS),
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
