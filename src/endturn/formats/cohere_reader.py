"""What Cohere's chat API answers, as parts, in both versions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import label_of, shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.framing import DONE
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens
from endturn.formats.reading import PLAIN, arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import raw_text
from endturn.stop_reasons import rows_of, tables

NAME: Final = "cohere"

REASONS: Final = tables(NAME)
"""dialect → raw value → row. The dialect "" is v2; Bedrock's Command R speaks "v1"."""

_KINDS: Final = ("text", "thinking")


class Reader:
    """Reads events or a body of either version, each known by its shape.

    v2's events have a `type`, v1's an `event_type`; v2's body has a `message`, v1's a `text`.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._calls = 0
        # The positions of calls by the index that events have for them.
        self._places: dict[int, int] = {}
        self._spoke = False
        self._over = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of an event or a body."""
        match member(event, "type"):
            case "content-delta" | "content-start":
                content = member(member(member(event, "delta"), "message"), "content")
                if self._keep:
                    yield from self._content(member(event, "index"), content)
                else:
                    yield Text(text(member(content, "text")))
            case "tool-plan-delta":
                yield from self._plan(member(member(member(event, "delta"), "message"), "tool_plan"))
            case "tool-call-start":
                self._places[_index(event, self._calls)] = self._calls
                yield self._call(_one(member(member(member(event, "delta"), "message"), "tool_calls")))
            case "tool-call-delta":
                call = _one(member(member(member(event, "delta"), "message"), "tool_calls"))
                yield from self._more(event, text(member(member(call, "function"), "arguments")))
            case "tool-call-end":
                if (place := self._place(event)) is not None:
                    yield Call(place, closed=True)
            case "citation-start":
                cited = _one(member(member(member(event, "delta"), "message"), "citations"))
                if self._keep and isinstance(cited, Mapping):
                    yield Block("message", {"citations": [cited]})
            case "message-start":
                yield self._named(member(event, "id"))
            case "message-end":
                end = member(event, "delta")
                yield from self._end(member(end, "finish_reason"), member(end, "usage"), member(end, "error"))
            case "error":
                yield Fault(member(event, "error") or event)
            case None:
                yield from self._untyped(event)

    def _untyped(self, event: Any) -> Iterator[Part]:
        """An event of v1, a whole body, or an error."""
        message = member(event, "message")
        if member(event, "event_type") is not None:
            yield from self._v1(event)
        elif message is not None and not isinstance(message, PLAIN):
            yield self._named(member(event, "id"), member(event, "response_id"))
            yield from self._end(member(event, "finish_reason"), member(event, "usage"), None)
            content = member(message, "content")
            parts = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
            for index, part in enumerate(parts):
                yield from self._content(index, part)
            yield from self._plan(member(message, "tool_plan"))
            if self._keep and (cited := items(member(message, "citations"))):
                yield Block("message", {"citations": [*cited]})
            calls = [self._call(call) for call in items(member(message, "tool_calls"))]
            yield from self._whole(event, calls)
        elif member(event, "error") or text(message):
            yield Fault(member(event, "error") or event)
        elif member(event, "text") is not None or member(event, "tool_calls") is not None:
            yield self._named(member(event, "generation_id"), member(event, "response_id"))
            yield from self._end(member(event, "finish_reason"), member(event, "meta"), None)
            yield from self._content(0, {"text": member(event, "text")})
            calls = [self._call_v1(call) for call in items(member(event, "tool_calls"))]
            yield from self._whole(event, calls)

    def _whole(self, body: Any, calls: list[Call]) -> Iterator[Part]:
        """Of a body's calls all are whole; without any reason, nothing says so of the last but the call itself."""
        said = raw_text(member(body, "finish_reason")) is not None
        for call in calls:
            given = call.arguments
            parsed = isinstance(given, Mapping) or arguments(given) is not None
            yield call._replace(closed=said or call is not calls[-1] or parsed)
        yield End(whole=True)

    def _v1(self, event: Any) -> Iterator[Part]:
        match member(event, "event_type"):
            case "stream-start":
                yield self._named(member(event, "generation_id"))
            case "text-generation":
                yield from self._content(0, {"text": member(event, "text")})
            case "tool-calls-chunk":
                delta = member(event, "tool_call_delta")
                said = text(member(event, "text")) or text(member(delta, "text"))
                yield from self._content(0, {"text": said})
                if name := text(member(delta, "name")):
                    self._places[_index(delta, self._calls)] = self._calls
                    yield self._call_v1({"name": name})._replace(arguments="")
                yield from self._more(delta, text(member(delta, "parameters")))
            case "tool-calls-generation":
                yield from self._finished(event)
            case "stream-end":
                response = member(event, "response")
                yield from self._finished(response)
                yield self._named(member(response, "generation_id"), member(response, "response_id"))
                reason = member(event, "finish_reason") or member(response, "finish_reason")
                yield from self._end(reason, member(response, "meta"), member(event, "error"))

    def _finished(self, whole: Any) -> Iterator[Part]:
        """The whole of what chunks began: the text, where none has come, and every call."""
        if not self._spoke:
            yield from self._content(0, {"text": member(whole, "text")})
        for place, call in enumerate(items(member(whole, "tool_calls"))):
            given = member(call, "parameters")
            if place < self._calls:
                yield Call(place, arguments=given if isinstance(given, dict) else None, closed=True)
            else:
                yield self._call_v1(call)._replace(closed=True)

    def _content(self, index: Any, content: Any) -> Iterator[Part]:
        """A piece of content: its kind is the member that it has."""
        kind, place = member(content, "type"), index if isinstance(index, int) else None
        for each in _KINDS:
            piece = text(member(content, each))
            if piece:
                yield Text(piece) if each == "text" else Reasoning(piece)
                self._spoke = self._spoke or each == "text"
            if self._keep and (piece or kind == each):
                yield Block((place, each), {"type": each, each: piece})
        if self._keep and text(kind) and kind not in _KINDS and isinstance(content, Mapping):
            yield Block((place, kind), dict(content), begins=True)

    def _plan(self, plan: Any) -> Iterator[Part]:
        """A piece of the plan that comes before calls: thinking that the provider shows."""
        if piece := text(plan):
            yield Reasoning(piece)
            if self._keep:
                yield Block("message", {"tool_plan": piece})

    def _call(self, call: Any) -> Call:
        function, place = member(call, "function"), self._calls
        self._calls += 1
        id_ = text(member(call, "id")) or minted(self._id, place)
        return Call(place, id_, text(member(function, "name")), text(member(function, "arguments")))

    def _call_v1(self, call: Any) -> Call:
        given, place = member(call, "parameters"), self._calls
        self._calls += 1
        return Call(
            place, minted(self._id, place), text(member(call, "name")), given if isinstance(given, dict) else None
        )

    def _more(self, event: Any, piece: str) -> Iterator[Part]:
        if piece and (place := self._place(event)) is not None:
            yield Call(place, arguments=piece)

    def _place(self, event: Any) -> int | None:
        """The position of the call that an event goes on with; without an index, of the last."""
        known = count(member(event, "index"))
        if known is None:
            return self._calls - 1 if self._calls else None
        return self._places.get(known)

    def _named(self, *ids: Any) -> Part:
        self._id = self._id or next(filter(None, map(text_or_none, ids)), None)
        return Head(self._id)

    def _end(self, reason: Any, usage: Any, error: Any) -> Iterator[Part]:
        """The first end counts. Without a reason it is none: what it says instead is an error, or nothing."""
        if self._over:
            return
        if (found := usage_of(usage)) is not None:
            yield Tokens(found)
        if raw_text(reason) is not None:
            self._over = True
            yield Reason(reason, detail=label_of(error) if error else None)
            yield End()
        elif error:
            yield Fault(error)


def _index(event: Any, otherwise: int) -> int:
    known = count(member(event, "index"))
    return otherwise if known is None else known


def _one(value: Any) -> Any:
    """The one thing that an event holds; some servers write a list of it."""
    return next(iter(value), None) if isinstance(value, list) else value


def usage_of(usage: Any) -> Usage | None:
    """Tokens as Cohere counts them: `tokens` are those that the model saw and made, `billed_units` those paid for."""
    made, billed = member(usage, "tokens"), member(usage, "billed_units")

    def of(name: str) -> int | None:
        found = count(member(made, name))
        return count(member(billed, name)) if found is None else found

    asked, answered, cached = of("input_tokens"), of("output_tokens"), count(member(usage, "cached_tokens"))
    if asked is None and answered is None and cached is None:
        return None
    return Usage(asked, answered, None, cached)


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, in v2's shape whatever the version."""
    kept = fold.blocks
    more = kept.pop("message", {})
    content = {"content": [*kept.values()]} if kept else {}
    plan = {"tool_plan": more["tool_plan"]} if "tool_plan" in more else {}
    calls = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": _written(call)}}
        for call in fold.calls.values()
    ]
    asked = {"tool_calls": calls} if calls else {}
    cited = {"citations": more["citations"]} if "citations" in more else {}
    if message := content | plan | asked | cited:
        yield {"role": "assistant", **message}


def _written(call: Any) -> str:
    return json.dumps(call.given, ensure_ascii=False) if call.given is not None else "".join(call.pieces)


def _faulty(data: Any, whole: bool) -> str | None:
    if data == DONE and not whole:
        return None
    if not isinstance(data, Mapping):
        thing = "a chat response" if whole else "an event of a chat stream"
        return f"{thing} is an object, not {shortened(repr(data), 80)}"
    if whole and not _is_body(data):
        return "a chat response has a `message` with a list of `content` (v1: a `text`), and a list of `tool_calls`"
    return None


def _is_body(body: Mapping[str, Any]) -> bool:
    """Whether a body has the shape of either version: what cannot be read must not look like an answer of nothing."""
    message = body.get("message")
    holder = message if isinstance(message, Mapping) else body
    calls, content = holder.get("tool_calls"), holder.get("content")
    if not isinstance(calls, list | None) or not all(isinstance(call, Mapping) for call in calls or ()):
        return False
    if holder is body:
        return isinstance(body.get("text"), str | None) and bool(body.keys() & {"text", "tool_calls"})
    return isinstance(content, str | None) or (
        isinstance(content, list) and all(isinstance(part, Mapping) for part in content)
    )


def _failed(data: Any) -> Any:
    """The error that stands where an answer should; `message-end` has it in its delta."""
    if not isinstance(data, Mapping):
        return None
    message = data.get("message")
    said = data.get("error") or (text(message) if "event_type" not in data else "")
    if said or data.get("type") == "error":
        return None if isinstance(message, Mapping) and not data.get("type") else data
    error = member(data.get("delta"), "error")
    return {"error": error} if error else None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: rows_of(NAME, ctx.dialect),
    faulty=_faulty,
    failed=_failed,
    blocks=_blocks,
    has_end=True,
)
