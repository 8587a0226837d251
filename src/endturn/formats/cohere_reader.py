"""What Cohere's chat API answers, as parts, in both versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import label_of
from endturn.formats.fold import Fold, Reply
from endturn.formats.format import an_object
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "cohere"

_KINDS: Final = ("text", "thinking")


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
        kind, delta = member(event, "type"), member(event, "delta")
        message = member(delta, "message")
        match kind:
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
            case "message-start":
                yield self._named(member(event, "id"))
            case "message-end":
                yield from _end(member(delta, "finish_reason"), member(delta, "usage"), member(delta, "error"))
            case "error":
                yield Fault(member(event, "error") or event)
            case None if member(event, "event_type") is not None:
                yield from self._v1(event)
            case None:
                yield from self._body(event)

    def _body(self, body: Any) -> Iterator[Part]:
        """A body of either version, or an error in its place."""
        message = member(body, "message")
        if isinstance(message, Mapping):
            holder, content = message, member(message, "content")
        elif member(body, "error") or text(message):
            yield Fault(member(body, "error") or body)
            return
        elif member(body, "text") is not None or member(body, "tool_calls") is not None:
            holder, content = body, member(body, "text")
        else:
            return
        yield self._named(*(member(body, name) for name in ("id", "generation_id", "response_id")))
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

    def _v1(self, event: Any) -> Iterator[Part]:
        match member(event, "event_type"):
            case "stream-start":
                yield self._named(member(event, "generation_id"))
            case "text-generation":
                yield from self._content(0, event)
            case "tool-calls-chunk":
                delta = member(event, "tool_call_delta")
                yield from self._content(0, event if text(member(event, "text")) else delta)
                if text(member(delta, "name")):
                    yield self._call(delta)
                elif self._calls:
                    yield Call(self._calls - 1, arguments=text(member(delta, "parameters")))
            case "tool-calls-generation":
                yield from self._finished(event)
            case "stream-end":
                response = member(event, "response")
                yield from self._finished(response)
                yield self._named(member(response, "generation_id"), member(response, "response_id"))
                reason = member(event, "finish_reason") or member(response, "finish_reason")
                yield from _end(reason, member(response, "meta"), member(event, "error"))

    def _finished(self, whole: Any) -> Iterator[Part]:
        """The whole of what chunks began: the text, where none has come, and every call."""
        if not self._spoke:
            yield from self._content(0, {"text": member(whole, "text")})
        if calls := items(member(whole, "tool_calls")):
            self._calls = 0
            yield from (self._call(call)._replace(closed=True) for call in calls)

    def _content(self, index: Any, content: Any) -> Iterator[Part]:
        """A piece of content: its kind is the member that it has."""
        kind = member(content, "type")
        for each in _KINDS:
            piece = member(content, each)
            if isinstance(piece, str) and piece:
                yield Text(piece) if each == "text" else Reasoning(piece)
                self._spoke = self._spoke or each == "text"
            if self._keep and (piece or kind == each):
                yield Block((count(index), each), {"type": each, each: text(piece)})
        if self._keep and text(kind) and kind not in _KINDS:
            yield Block((count(index), kind), dict(content), begins=True)

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

    def _named(self, *ids: Any) -> Part:
        self._id = self._id or next(filter(None, map(text_or_none, ids)), None)
        return Head(self._id)


def _end(reason: Any, usage: Any, error: Any) -> Iterator[Part]:
    """The end. Without a reason it is none: what it says instead is an error, or nothing."""
    if (found := usage_of(usage)) is not None:
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


def usage_of(usage: Any) -> Usage | None:
    """Tokens as Cohere counts them: `tokens` are those that the model saw and made, `billed_units` those paid for."""
    made, billed = member(usage, "tokens"), member(usage, "billed_units")

    def of(name: str) -> int | None:
        found = count(member(made, name))
        return count(member(billed, name)) if found is None else found

    found = Usage(of("input_tokens"), of("output_tokens"), None, count(member(usage, "cached_tokens")))
    return None if found == Usage() else found


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, in v2's shape whatever the version."""
    kept = fold.blocks
    beside = kept.pop("message", {})
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _written(call)}}
        for call in fold.calls.values()
    ]
    found = {"content": [*kept.values()], "tool_calls": calls, **beside}
    if any(found.values()):
        yield {"role": "assistant", **{name: value for name, value in found.items() if value}}


def _written(call: Any) -> str:
    return json.dumps(call.given, ensure_ascii=False) if call.given is not None else "".join(call.pieces)


def _faulty(data: Mapping[str, Any], whole: bool) -> str | None:
    if not whole:
        return None
    # What cannot be read must not look like an answer of nothing.
    is_v2 = isinstance(data.get("message"), dict)
    holder = data["message"] if is_v2 else data
    parts = (part for name in ("content", "tool_calls") for part in _listed(holder.get(name)))
    if not (is_v2 or data.keys() & {"text", "tool_calls"}) or not all(isinstance(p, dict | str | None) for p in parts):
        return "a chat response has a `message` with a list of `content` (v1: a `text`), and a list of `tool_calls`"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should; `message-end` has it in its delta."""
    message, kind = member(data, "message"), member(data, "type")
    if kind == "error" or member(data, "error") or (text(message) and member(data, "event_type") is None):
        return None if isinstance(message, Mapping) and not kind else data
    error = member(member(data, "delta"), "error")
    return {"error": error} if error else None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: rows_of(NAME, ctx.dialect),
    faulty=an_object("a chat response", "an event of a chat stream", _faulty),
    failed=_failed,
    blocks=_blocks,
    has_end=True,
)
