"""Cohere's chat API: v2, which our client speaks and a scripted server answers; v1's requests, bodies and events too.

A v2 reply is a message of content (text, thinking), a plan and calls; v1's holds a text and calls. Events tell them in
pieces. Over HTTP, v1 streams lines of JSON where v2 streams server-sent events; Bedrock's Command R speaks v1 within
AWS's messages. Whoever has v1's events, each as an object, reads them here: the dialect "v1" is its words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from endturn.chat import Json, Message, Request, Tool
from endturn.formats.encoding import encoded
from endturn.formats.errors import label_of
from endturn.formats.fold import Fold
from endturn.formats.format import Format
from endturn.formats.next_request import resumes_message, without_lost_calls
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, usage_in
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.summaries import Context, RequestSummary, Voice
from endturn.stop import raw_text

NAME: Final = "cohere"

# --- Replies ----------------------------------------------------------------------------------------------------------

_KINDS: Final = ("text", "thinking")
"""The kinds of content that are read; other ones go back as they are."""


class Reader:
    """Reads events or a body of either version, each known by its shape.

    v2's events have a `type`, v1's an `event_type`; v2's body has a `message`, v1's a `text`.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._calls = 0
        self._spoke = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of an event or a body."""
        delta = member(event, "delta")
        message = member(delta, "message")
        match member(event, "type") or member(event, "event_type"):
            case "content-delta" if not self._keep:
                yield Text(text(member(member(message, "content"), "text")))
            case "content-delta" | "content-start":
                yield from self._content(member(event, "index"), member(message, "content"))
            case "tool-plan-delta":
                yield from self._plan(member(message, "tool_plan"))
            case "tool-call-start":
                yield self._call(_one(member(message, "tool_calls")))
            case "tool-call-delta" if self._calls:
                function = member(_one(member(message, "tool_calls")), "function")
                yield Call(self._calls - 1, arguments=text(member(function, "arguments")))
            case "tool-call-end" if self._calls:
                yield Call(self._calls - 1, closed=True)
            case "citation-start":
                yield from self._cited(member(message, "citations"))
            case "message-start" | "stream-start":
                yield self._named(event)
            case "message-end":
                yield from _end(member(delta, "finish_reason"), member(delta, "usage"), member(delta, "error"))
            case "text-generation":
                yield from self._content(0, event)
            case "tool-calls-chunk":
                call = member(event, "tool_call_delta")
                yield from self._content(0, event if text(member(event, "text")) else call)
                if text(member(call, "name")):
                    yield self._call(call)
                elif self._calls:
                    yield Call(self._calls - 1, arguments=text(member(call, "parameters")))
            case "tool-calls-generation":
                yield from self._finished(event)
            case "stream-end":
                response = member(event, "response")
                yield from self._finished(response)
                yield self._named(response)
                reason = member(event, "finish_reason") or member(response, "finish_reason")
                yield from _end(reason, member(response, "meta"), member(event, "error"))
            case "error":
                yield Fault(member(event, "error") or event)
            case None:
                yield from self._body(event)

    def _body(self, body: Any) -> Iterator[Part]:
        """A body of either version, or an error in its place."""
        message = member(body, "message")
        is_v2 = isinstance(message, Mapping)
        if not is_v2 and (error := member(body, "error") or (body if text(message) else None)):
            yield Fault(error)
            return
        holder, content = (message, member(message, "content")) if is_v2 else (body, member(body, "text"))
        if content is None and not is_v2 and member(body, "tool_calls") is None:
            return
        yield self._named(body)
        for index, part in enumerate([{"text": content}] if isinstance(content, str) else items(content)):
            yield from self._content(index, part)
        yield from self._plan(member(holder, "tool_plan"))
        yield from self._cited(member(message, "citations"))
        reason, usage = member(body, "finish_reason"), member(body, "usage") or member(body, "meta")
        for call in map(self._call, items(member(holder, "tool_calls"))):
            # Without any reason, nothing says that a call is whole but the call itself.
            given = call.arguments
            parses = isinstance(given, dict) or arguments(given) is not None
            yield call._replace(closed=parses or raw_text(reason) is not None)
        yield from _end(reason, usage, None)
        yield End(whole=True)

    def _finished(self, whole: Any) -> Iterator[Part]:
        """The whole of what chunks began: the text, where none has come, and every call."""
        if not self._spoke:
            yield from self._content(0, {"text": member(whole, "text")})
        if calls := items(member(whole, "tool_calls")):
            self._calls = 0
            yield from (self._call(call)._replace(closed=True) for call in calls)

    def _content(self, index: Any, content: Any) -> Iterator[Part]:
        """A piece of content: its kind is what it says, or the member that it has."""
        kind = text(member(content, "type")) or next((each for each in _KINDS if text(member(content, each))), "")
        piece = text(member(content, kind))
        if kind == "text":
            self._spoke = self._spoke or piece != ""
            yield Text(piece)
        elif kind == "thinking":
            yield Reasoning(piece)
        if self._keep and kind:
            yield Block((count(index), kind), {"type": kind, kind: piece} if kind in _KINDS else dict(content))

    def _plan(self, plan: Any) -> Iterator[Part]:
        """A piece of the plan that comes before calls: thinking that the provider shows."""
        if piece := text(plan):
            yield Reasoning(piece)
            yield Block("message", {"tool_plan": piece})

    def _cited(self, citations: Any) -> Iterator[Part]:
        """Citations of a body, or the one of an event."""
        if found := [each for each in _listed(citations) if isinstance(each, Mapping)]:
            yield Block("message", {"citations": found})

    def _call(self, call: Any) -> Call:
        """A call that begins: v2's is a `function` with `arguments` in JSON, v1's has `parameters` and no id."""
        about, place = member(call, "function") or call, self._calls
        self._calls += 1
        given = member(about, "arguments") or member(about, "parameters")
        id_ = text(member(call, "id")) or minted(self._id, place)
        return Call(place, id_, text(member(about, "name")), given if isinstance(given, str | dict) else "")

    def _named(self, holder: Any) -> Part:
        ids = (text_or_none(member(holder, name)) for name in ("id", "generation_id", "response_id"))
        self._id = self._id or next(filter(None, ids), None)
        return Head(self._id)


def _end(reason: Any, usage: Any, error: Any) -> Iterator[Part]:
    """The end. Without a reason it is none: what it says instead is an error, or nothing."""
    if (found := usage_in(NAME, usage)) is not None:
        yield Tokens(found)
    if raw_text(reason) is not None:
        yield Reason(reason, detail=label_of(error) if error else None)
        yield End()
    elif error:
        yield Fault(error)


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else (value,)


def _one(value: Any) -> Any:
    """The one thing that an event holds; some servers write a list of it."""
    return next(iter(_listed(value)), None)


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, in v2's shape whatever the version."""
    kept = fold.blocks
    beside = kept.pop("message", {})
    calls = []
    for call in fold.calls.values():
        said = "".join(call.pieces) if call.given is None else json.dumps(call.given, ensure_ascii=False)
        calls.append({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": said}})
    found = {"content": [*kept.values()], "tool_calls": calls, **beside}
    if any(found.values()):
        yield {"role": "assistant", **{name: value for name, value in found.items() if value}}


def _failed(data: Any) -> Any:
    """The error that stands where an answer should; `message-end` has it in its delta."""
    message, kind = member(data, "message"), member(data, "type")
    if kind == "error" or member(data, "error") or (text(message) and member(data, "event_type") is None):
        return None if isinstance(message, Mapping) and not kind else data
    error = member(member(data, "delta"), "error")
    return {"error": error} if error else None


# --- Requests ---------------------------------------------------------------------------------------------------------


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for; of v1, the results of tools and the new message stand after its history."""
    message, results = kwargs.get("message"), items(kwargs.get("tool_results"))
    if items(kwargs.get("messages")) or not isinstance(message, str):
        return asked(NAME, kwargs)
    history = [*items(kwargs.get("chat_history"))]
    history += [{"role": "TOOL", "tool_results": results}] if results else []
    history += [{"role": "user", "content": message}] if message else []
    return asked(NAME, kwargs, history=history, system=text(kwargs.get("preamble")) or None)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /v2/chat, or with the dialect "v1" that of /v1/chat, which has no choice of tools at all."""
    if dialect != "v1":
        return encoded(NAME, request, stream=stream, replay=_replayed)
    tools = [] if request.tool_choice == "none" else [_tool_v1(tool) for tool in request.tools]
    conversation = _conversation_v1(request.messages)
    return encoded(NAME, request, stream=stream, dialect=dialect, messages=(), tools=tools or None, **conversation)


def _replayed(message: Message, own: Sequence[Json]) -> list[Json]:
    written = without_lost_calls(message, own[0])
    content = written.get("content")
    if isinstance(content, list):
        content = written["content"] = [part for part in content if _says(part)]
    visible = text(content).strip() or any(member(part, "type") != "thinking" for part in items(content))
    if not content:
        written.pop("content", None)
    if "tool_calls" not in written:
        written.pop("tool_plan", None)
    return [written] if "tool_calls" in written or visible else []


def _says(part: Any) -> bool:
    kind = member(part, "type")
    return kind not in ("text", "thinking") or bool(text(member(part, kind)).strip())


def _unfinished(message: Json, said: str) -> Json:
    """The message of a cut response without its calls and their plan, and without thinking that led to nothing."""
    content = [dict(part) for part in items(message.get("content")) if _says(part)]
    while content and content[-1].get("type") == "thinking":
        content.pop()
    if content and content[-1].get("type") == "text" and said == said.rstrip():
        content[-1]["text"] = text(content[-1].get("text")).rstrip()
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "tool_plan")}
    return {**kept, "content": content}


# --- v1's requests: one message, the history before it, results of tools without ids ----------------------------------

_ROLES_V1: Final = {"user": "USER", "assistant": "CHATBOT", "system": "SYSTEM", "tool": "TOOL"}
_TYPES_V1: Final = {"integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict"}
"""JSON Schema's types as Python's: "any python data type, such as 'str', 'bool'"."""


def _conversation_v1(messages: tuple[Message, ...]) -> Json:
    body: Json = {"preamble": None}
    history: list[Json] = []
    calls: dict[str, Json] = {}
    if messages and messages[0].role == "system":
        body["preamble"], messages = messages[0].text, messages[1:]
    for message in messages:
        entry: Json = {"role": _ROLES_V1[message.role], "message": message.text}
        if message.role == "tool":
            # A result repeats the call that it answers. What a tool answered is an object: of text, one around it.
            call = calls.get(message.tool_call_id or "", {"name": "", "parameters": {}})
            result = {"call": call, "outputs": [arguments(message.text) or {"text": message.text}]}
            if not history or "tool_results" not in history[-1]:
                history.append({"role": "TOOL", "tool_results": []})
            history[-1]["tool_results"].append(result)
            continue
        if message.tool_calls:
            asks = {each.id: each.arguments or arguments(each.arguments_raw) or {} for each in message.tool_calls}
            entry["tool_calls"] = [{"name": each.name, "parameters": asks[each.id]} for each in message.tool_calls]
            calls |= zip(asks, entry["tool_calls"], strict=True)
        if message.role != "assistant" or message.text.strip() or message.tool_calls:
            history.append(entry)
    last = history.pop() if messages and messages[-1].role in ("user", "tool") else {}
    body |= {"message": last.get("message", ""), "chat_history": history, "tool_results": last.get("tool_results")}
    return body


def _tool_v1(tool: Tool) -> Json:
    """A tool with its parameters one by one: v1 knows no schema of the whole."""
    required, properties = items(tool.parameters.get("required")), tool.parameters.get("properties")
    written: Json = {"name": tool.name, "description": tool.description}
    if isinstance(properties, dict) and properties:
        written["parameter_definitions"] = {
            name: {
                "description": text(member(value, "description")),
                "type": _TYPES_V1.get(text(member(value, "type")), "str"),
                "required": name in required,
            }
            for name, value in properties.items()
        }
    return written


FORMAT: Final = Format(
    name=NAME,
    provider="cohere",
    # With eight digits more, an id is a UUID, as Cohere's are.
    voice=Voice("c14c80c3-18eb-4519-9460-0000", "tool_", "x-debug-trace-id"),
    paths={"": "/v2/chat", "v1": "/v1/chat"},
    routed=routed_by(rf"{SEGMENTS}/v2/chat"),
    body=encode,
    resume=resumes_message(NAME, _unfinished),
    own_summary=request_summary,
    reader=Reader,
    called=("a chat response", "an event of a chat stream"),
    needs=("message", "text", "tool_calls"),
    objects=("tool_calls[]",),
    failed=_failed,
    blocks=_blocks,
    has_end=True,
)
