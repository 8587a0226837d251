"""What the Responses API answers, as parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.formats.errors import label_of
from endturn.formats.fold import Reply
from endturn.formats.openai_responses_objects import (
    GIVEN,
    ORDER,
    THOUGHTS,
    client_call,
    failed,
    faulty,
    is_response,
    output_of,
    unreadable,
    usage_of,
)
from endturn.formats.openai_responses_reasons import COMPLETED, RUNNING, UNFINISHED, UNREADABLE, composed, rows_of
from endturn.formats.parts import (
    Block,
    Call,
    End,
    Fault,
    Head,
    Part,
    Reason,
    Reasoning,
    Running,
    ServerCall,
    Text,
    Tokens,
    Vocabulary,
)
from endturn.formats.reading import count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import find_row

NAME: Final = "openai_responses"

_BEGUN: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
# The last two are not in the SDK: what a cancelled job's stream would say, and what OpenRouter says for all the others.
_ENDS: Final = {
    "response.completed": COMPLETED,
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": None,
}
# Event → what holds the piece, or all of it where the event is the last.
_TEXTS: Final = {
    "response.output_text.delta": ("output_text", "delta"),
    "response.output_text.done": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "delta"),
    "response.refusal.done": ("refusal", "refusal"),
}
_KEPT: Final = {
    "response.reasoning_summary_text.delta": ("summary", "delta"),
    "response.reasoning_summary_text.done": ("summary", "text"),
    "response.reasoning_text.delta": ("content", "delta"),
    "response.reasoning_text.done": ("content", "text"),
    "response.function_call_arguments.delta": ("", "delta"),
    "response.function_call_arguments.done": ("", "arguments"),
    "response.custom_tool_call_input.delta": ("", "delta"),
    "response.custom_tool_call_input.done": ("", "input"),
}
"""Events that say nothing of the stop, and are read only where content is kept."""

_PARTS: Final = {"output_text": "text", "text": "text", "refusal": "refusal"}
_OPEN: Final = frozenset({"in_progress", "incomplete"})


@dataclass(slots=True)
class _Item:
    """One item of the output while it arrives.

    Attributes:
        call_id: what a call's result names it by; minted where the server gave none.
        called: it was given out as a call of the client's.
        waits: the server ended the item, and said that it is in progress.
        given: what its call was given before the call itself came.
        said: the parts of it that were given out.
    """

    place: int
    id: str = ""
    kind: str = ""
    call_id: str = ""
    called: bool = False
    waits: bool = False
    given: str = ""
    said: set[tuple[str, int]] = field(default_factory=set)


class Reader:
    """Reads events, or one whole response. The type decides, at the top alone: a tool's output may hold a response."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._background = ctx.asked.background
        self._id: str | None = None
        self._items: dict[int, _Item] = {}
        self._answered: set[str] = set()
        self._minted = 0
        self._told = 0
        # Where the last piece of text stood: the next one there needs no second look.
        self._at: tuple[Any, Any] | None = None
        self._over = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind = member(event, "type")
        where = member(event, "output_index"), member(event, "content_index")
        if kind == "response.output_text.delta" and where == self._at:
            yield Text(text(member(event, "delta")))
        elif kind == "error" or (not kind and not is_response(event) and member(event, "error")):
            # The API's own error is the event itself; gateways, and its websocket, put it in a member.
            said = {name: member(event, name) for name in ("code", "message")}
            self._over, self._at = True, None
            yield Fault(member(event, "error") or said)
        elif not self._over:  # The first terminal wins.
            yield from self._event(text(kind), event)

    def _event(self, kind: str, event: Any) -> Iterator[Part]:
        if kind in _TEXTS:
            name, holder = _TEXTS[kind]
            index, piece = member(event, "content_index"), text(member(event, holder))
            yield from self._text(self._find(event), name, index, piece, whole=holder != "delta")
            if piece and kind == "response.output_text.delta" and not self._keep:
                self._at = member(event, "output_index"), index
        elif kind == "response.content_part.done":
            yield from self._part(self._find(event), member(event, "content_index"), member(event, "part"))
        elif kind in _KEPT:
            if self._keep:
                yield from self._piece(kind, event)
        elif kind == "response.output_item.added":
            raw = member(event, "item")
            if raw is not None:  # Servers send it empty, and the SDK reads past that.
                yield from self._learn(self._place(event, raw, begins=True), raw, done=False)
        elif kind == "response.output_item.done":
            raw = member(event, "item")
            yield from self._learn(self._place(event, raw, begins=False), raw, done=True)
        elif kind in _BEGUN:
            response = member(event, "response")
            status = text(member(response, "status"))
            yield self._head(response)
            # Until its end, no status of it is an end.
            yield from self._status(status if status in RUNNING else "in_progress")
        elif kind in _ENDS:
            yield from self._end(member(event, "response"), _ENDS[kind])
        elif not kind and is_response(event):
            yield from self._end(event, None)

    def _head(self, response: Any) -> Part:
        self._id = self._id or text_or_none(member(response, "id"))
        self._background = self._background or member(response, "background") is True
        return Head(self._id, text_or_none(member(response, "model")), replaces=True)

    def _status(self, raw: str | None, detail: str | None = None, *, readable: bool = True) -> Iterator[Part]:
        rows = rows_of(raw, background=self._background)
        row = None if raw is None else find_row(raw, rows)
        if raw == COMPLETED and not readable:
            rows = {**rows, raw: UNREADABLE}
        elif raw is not None and raw.startswith("incomplete") and row is None:
            rows = {**rows, raw: UNFINISHED}
        yield Vocabulary(rows)
        yield Running(raw if raw in RUNNING else None)
        if raw not in RUNNING:
            yield Reason(raw, detail=detail if row is None or row.detail is None else None)

    def _end(self, response: Any, status: str | None) -> Iterator[Part]:
        """The response that a terminal event carries, or that a body is."""
        yield self._head(response)
        if (usage := usage_of(member(response, "usage"))) is not None:
            yield Tokens(usage)
        told = text_or_none(member(response, "status"))
        # vLLM ends with `response.completed` whatever the response says: that counts, where it says an end.
        status = (status or told) if told in RUNNING else told or status
        yield from self._match(items(member(response, "output")))
        if status == COMPLETED:
            # What a program calls that the server runs is in progress until its result comes: nothing of it is missing.
            yield from (Call(item.place, closed=True) for item in self._items.values() if item.called and item.waits)
        reason = text_or_none(member(member(response, "incomplete_details"), "reason"))
        failure = member(response, "error")
        code = text_or_none(member(failure, "code")) or text_or_none(member(failure, "type"))
        detail = label_of(failure) if failure and status == "failed" else None
        yield from self._status(composed(status, reason, code), detail, readable=unreadable(response) is None)
        self._over, self._at = True, None
        yield End()

    def _match(self, output: Any) -> Iterator[Part]:
        """The whole output: what it repeats is known, and what no event told is learned from it.

        Not by index: servers leave gaps, and some give their items other ids than in the stream.
        """
        left = [self._items[place] for place in sorted(self._items)]
        ids = {text(member(raw, "id")) for raw in output} - {""}
        found: list[_Item] = []
        for raw in output:
            id_, kind = text(member(raw, "id")), text(member(raw, "type"))
            item = next((each for each in left if id_ and each.id == id_), None) or next(
                (each for each in left if each.kind == kind and each.id not in ids), None
            )
            if item is None:
                item = self._add()
            else:
                left.remove(item)
            found.append(item)
            yield from self._learn(item, raw, done=True)
        if self._keep:
            yield Block(ORDER, {"places": [item.place for item in (*found, *left)]})

    def _add(self, place: int | None = None, id_: str = "") -> _Item:
        if place is None:
            place = max(self._items, default=-1) + 1
        item = self._items[place] = _Item(place, id_)
        return item

    def _find(self, event: Any, id_: str = "") -> _Item:
        """The item that an event speaks of: by its id, else by its index, else the last."""
        id_ = id_ or text(member(event, "item_id"))
        item = next((each for each in self._items.values() if id_ and each.id == id_), None)
        if item is not None:
            return item
        place = count(member(event, "output_index"))
        if place is None:
            place = max(self._items, default=0)
        return self._items.get(place) or self._add(place, id_)

    def _place(self, event: Any, raw: Any, *, begins: bool) -> _Item:
        """The item that an event brings; a further one where another stands at its index, as servers write that do not
        count."""
        id_, kind = text(member(raw, "id")), text(member(raw, "type"))
        item = self._find(event, id_)
        return self._add() if item.kind and (item.kind != kind or (begins and item.id != id_ != "")) else item

    def _learn(self, item: _Item, raw: Any, *, done: bool) -> Iterator[Part]:
        self._at = None
        item.kind = text(member(raw, "type")) or item.kind
        item.id = text(member(raw, "id")) or item.id
        item.call_id = text(member(raw, "call_id")) or item.call_id
        client = client_call(raw)
        if client and not item.call_id:
            item.call_id = minted(self._id, self._minted)
            self._minted += 1
        if self._keep and isinstance(raw, Mapping):
            self._told += 1
            # The result that answers a call must name the same id.
            yield Block((item.place, "item", self._told), {**raw, "call_id": item.call_id} if client else dict(raw))
        if client and item.call_id not in self._answered:
            if done or not item.called:
                yield self._call(item, raw, done=done)
        elif item.called:
            yield ServerCall(item.place)
        if item.kind.endswith("_output") and item.call_id:
            self._answered.add(item.call_id)
            answers = (each for each in self._items.values() if each.called and each.call_id == item.call_id)
            yield from (ServerCall(each.place) for each in answers)
        if done and item.kind == "message":
            for index, part in enumerate(items(member(raw, "content"))):
                yield from self._part(item, index, part)
        elif done and item.kind == "reasoning" and self._keep:
            for name in THOUGHTS:
                for index, part in enumerate(items(member(raw, name))):
                    yield from self._think(item, name, index, text(member(part, "text")), whole=True)

    def _call(self, item: _Item, raw: Any, *, done: bool) -> Part:
        closed = None
        if done:
            status = text(member(raw, "status"))
            closed, item.waits = status not in _OPEN, status == "in_progress"
        whole = text(member(raw, GIVEN.get(item.kind, ""))) if done else ""
        piece, item.given, item.called = whole or item.given, "", True
        name, builtin = text(member(raw, "name")), item.kind not in GIVEN
        return Call(item.place, item.call_id, name, piece, closed=closed, builtin=builtin, replaces=done)

    def _piece(self, kind: str, event: Any) -> Iterator[Part]:
        """Thinking, or what a call is given."""
        item = self._find(event)
        name, holder = _KEPT[kind]
        piece, whole = text(member(event, holder)), holder != "delta"
        if name:
            index = count(member(event, "summary_index" if name == "summary" else "content_index")) or 0
            yield from self._think(item, name, index, piece, whole=whole)
        elif piece:
            yield Block((item.place, "given", whole), {"text": piece})
            if item.called:
                yield Call(item.place, arguments=piece, replaces=whole)
            else:
                item.given = piece if whole else item.given + piece

    def _think(self, item: _Item, name: str, index: int, piece: str, *, whole: bool) -> Iterator[Part]:
        if piece and not (whole and (name, index) in item.said):
            item.said.add((name, index))
            yield Reasoning(piece)
            yield Block((item.place, name, index), {"id": item.id, "text": piece})

    def _part(self, item: _Item, index: Any, part: Any) -> Iterator[Part]:
        kind = text(member(part, "type"))
        if kind in _PARTS:
            name = "refusal" if kind == "refusal" else "output_text"
            yield from self._text(item, name, index, text(member(part, _PARTS[kind])), whole=True)

    def _text(self, item: _Item, name: str, index: Any, piece: str, *, whole: bool) -> Iterator[Part]:
        """A piece of a part of a message; or all of it, which counts if no piece of it had come."""
        place = count(index) or 0
        if not piece or (whole and ("message", place) in item.said):
            if name == "refusal":
                yield Text("", refusal=True)
        else:
            item.kind = item.kind or "message"
            item.said.add(("message", place))
            yield Text(piece, refusal=name == "refusal")
            if self._keep:
                yield Block((item.place, name, place), {"id": item.id, "text": piece})


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=lambda ctx: rows_of(None, background=ctx.asked.background),
    faulty=faulty,
    failed=failed,
    blocks=lambda fold: output_of(fold.blocks),
    has_end=True,
)
