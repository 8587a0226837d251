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
from endturn.formats.settings import ToolShape
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.stop import Resume, StopReason

# Unlike in chat, a schema is strict here unless it says otherwise, and a strict one leaves nothing optional.
_TOOL: Final = ToolShape(beside={"type": "function", "strict": False})
_CHOICES: Final = ("auto", "none", "required")
_PATH: Final = rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?"
_RESULT: Final = "function_call_output"
_DONE: Final = (COMPLETED, "failed", None)

_WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""What the API says for a reason where that is not the first row that means it: calls and refusals are in the output,
a job says that it is one."""

_CUT: Final = (StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING)
_ENDS: Final = (COMPLETED, "incomplete", "failed", "cancelled")
_HOLDERS: Final = {"reasoning": "summary", "message": "content", "function_call": "arguments"}
"""Where an item that is scripted holds what it says."""


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
        if request.tool_choice != "auto":
            named = request.tool_choice not in _CHOICES
            body["tool_choice"] = {"type": "function", "name": request.tool_choice} if named else request.tool_choice
    settings = {
        "max_output_tokens": request.max_tokens,
        "temperature": request.temperature,
        "text": None if request.format is None else _text(request.format),
        "previous_response_id": request.previous_id,
        "stream": stream or None,
    }
    return body | {name: value for name, value in settings.items() if value is not None} | request.extra


def _text(format_: Json) -> Json:
    if format_ == {"type": "json_object"}:
        return {"format": format_}
    return {"format": {"type": "json_schema", "name": "answer", "schema": format_}}


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
            found.append(_result(message, "custom_tool_call_output" if message.tool_call_id in custom else _RESULT))
        else:
            found.append({"role": message.role, "content": message.content})
    return found


def _result(message: Message, kind: str) -> Json:
    """The result of a call. The API has no member that says that it is a failure."""
    return {"type": kind, "call_id": message.tool_call_id or "", "output": message.content}


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
        return not _has_call(item) or text(item.get("call_id")) in held

    return _paired(blocks, stays)


def _has_call(item: Json) -> bool:
    """Whether an item is a call that our messages have."""
    return text(item.get("type")) in GIVEN and client_call(item)


def _answered(blocks: Iterable[Json]) -> set[str]:
    """The calls whose results stand beside them: the server ran them."""
    return {text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")} - {""}


def _paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """The items to keep, without empty messages, and without reasoning whose own items all went.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    kept: list[Json] = []
    thoughts: list[Json] = []
    led = False
    for item in blocks:
        if item.get("type") == "reasoning":
            thoughts = ([] if led else thoughts) + ([item] if keep(item) else [])
            led = False
            continue
        led = True
        if keep(item) and not (item.get("role") == "assistant" and not _visible(item).strip()):
            kept += [*thoughts, item]
            thoughts = []
    return kept


def _visible(item: Json) -> str:
    """The text of a message, its refusals included."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(text(member(part, "text")) or text(member(part, "refusal")) for part in items(content))


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
    partial = cut.message().but(tool_calls=(), blocks=_unfinished(cut))
    answer = partial if _input((partial,), stored=True) else None
    return asking_on(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(cut: ChatResponse) -> Blocks | None:
    """The items of a cut response that may be replayed: no call without its result, no reasoning without its items."""
    items_ = own_blocks(cut, NAME)
    if items_ is None:
        return None
    results = _answered(items_)

    def whole(item: Json) -> bool:
        if client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in _DONE

    return Blocks(NAME, tuple(_paired(items_, whole)))


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A scripted response as the API would send it: a body, or the events of a stream."""
    stop = response.stop
    status, _, why = (raw_reason(stop, BACKGROUND) or "").partition(":")
    ended = status not in ("", *RUNNING)
    error = {"code": why or None, "message": chat_error(500, why or None, None)["error"]["message"]}
    body: Json = {
        "id": response.id,
        "object": "response",
        "created_at": 0,
        "status": status or None,
        "background": stop.reason is StopReason.PAUSED,
        "error": error if status == "failed" else None,
        "incomplete_details": {"reason": why} if status == "incomplete" else None,
        "model": response.model,
        "output": _output(response),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(response.usage),
    }
    if not stream:
        return body
    events = _events(body, ended=stop.terminal_seen and ended)
    return [Event(event["type"], event | {"sequence_number": number}) for number, event in enumerate(events)]


def _output(response: ChatResponse) -> list[Json]:
    name = text(response.id).removeprefix("resp_")
    status = "incomplete" if response.stop.reason in _CUT else COMPLETED
    output: list[Json] = []
    if response.reasoning:
        summary = [{"type": "summary_text", "text": response.reasoning}]
        output.append({"id": f"rs_{name}", "type": "reasoning", "summary": summary})
    if response.text:
        part: Json = {"type": "output_text", "text": response.text, "annotations": [], "logprobs": []}
        if response.stop.reason is StopReason.REFUSED:
            part = {"type": "refusal", "refusal": response.text}
        cut = COMPLETED if response.tool_calls else status
        output.append({"id": f"msg_{name}", "type": "message", "status": cut, "role": "assistant", "content": [part]})
    for at, call in enumerate(response.tool_calls):
        whole = COMPLETED if call.closed else "incomplete"
        output.append({"id": f"fc_{name}_{at}", **_call(call), "status": whole})
    return output


def _usage(usage: Usage | None) -> Json | None:
    """The SDK's types have every member: what is not known is zero."""
    if usage is None:
        return None
    known: Json = {name: getattr(usage, name) or 0 for name in USAGE.values()}
    return written_usage(Usage(**known), USAGE, "total_tokens")


def _events(body: Json, *, ended: bool) -> Iterator[Json]:
    """The events of a stream; one that does not end leaves its last item open."""
    status, output = body["status"], body["output"]
    begun = {**body, "status": status if status in RUNNING else "in_progress", "output": [], "usage": None}
    begun |= {"error": None, "incomplete_details": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": f"response.{begun['status']}", "response": begun}
    for index, item in enumerate(output):
        yield from _item_events(index, item, done=ended or index < len(output) - 1)
    if ended:
        yield {"type": f"response.{status if status in _ENDS else COMPLETED}", "response": body}


def _item_events(index: int, item: Json, *, done: bool) -> Iterator[Json]:
    where: Json = {"item_id": item["id"], "output_index": index}
    holder = _HOLDERS[item["type"]]
    began = {**item, "status": "in_progress", holder: "" if holder == "arguments" else []}
    yield {"type": "response.output_item.added", "output_index": index, "item": began}
    if holder == "arguments":
        whole = done and item["status"] == COMPLETED
        yield from _pieces("function_call_arguments", where, holder, item[holder], done=whole)
    else:
        (part,) = item[holder]
        named, kind = ("content_part", part["type"])
        where["content_index"] = 0
        if holder == "summary":
            named, kind = "reasoning_summary_part", "reasoning_summary_text"
            where["summary_index"] = where.pop("content_index")
        name = "refusal" if kind == "refusal" else "text"
        yield {"type": f"response.{named}.added", **where, "part": {**part, name: ""}}
        yield from _pieces(kind, where, name, part[name], done=done)
        if done:
            yield {"type": f"response.{named}.done", **where, "part": part}
    if done:
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


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
