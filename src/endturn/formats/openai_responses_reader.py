"""What the Responses API answers, as parts; and what it says of its end, in one word."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import label_of
from endturn.formats.fold import Reply
from endturn.formats.format import an_object
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
from endturn.stop import Row, StopReason, find_row
from endturn.stop_reasons import tables

NAME: Final = "openai_responses"
REASONS: Final = tables(NAME)
COMPLETED: Final = "completed"
RUNNING: Final = ("queued", "in_progress")
"""The statuses of a response that is still being made."""

_CUT: Final = replace(REASONS[""]["in_progress(foreground EOF)"], terminal=False)
_FOREGROUND: Final = {**REASONS[""], **dict.fromkeys(RUNNING, _CUT)}
BACKGROUND: Final = {**REASONS[""], **{raw: REASONS[""][f"{raw}(background)"] for raw in RUNNING}}
"""The table of a response that a job of the server's makes: it goes on when nobody listens."""
_NO_ROW: Final = {"failed": REASONS[""]["failed"], "incomplete": Row(StopReason.UNKNOWN, True, mapped=False)}
"""What a status means with a code or a reason that no table has."""
_UNREADABLE: Final = Row(StopReason.UNKNOWN, True)

# The last two are not in the SDK: what a cancelled job's stream would say, and what OpenRouter says for all the others.
_ENDS: Final = {
    "response.completed": COMPLETED,
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": None,
}
_BEGUN: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
_PIECES: Final = {
    "response.output_text": ("output_text", "text"),
    "response.refusal": ("refusal", "refusal"),
    "response.reasoning_summary_text": ("summary_text", "text"),
    "response.reasoning_text": ("reasoning_text", "text"),
    "response.function_call_arguments": ("arguments", "arguments"),
    "response.custom_tool_call_input": ("input", "input"),
}
"""What events carry pieces of, and the member of their last one that holds all of it."""
_SAYS: Final = {
    **{f"{event}.delta": (kind, "delta", False) for event, (kind, _) in _PIECES.items()},
    **{f"{event}.done": (kind, holder, True) for event, (kind, holder) in _PIECES.items()},
}

_PARTS: Final = {
    "output_text": ("message", "content", "text"),
    "refusal": ("message", "content", "refusal"),
    "summary_text": ("reasoning", "summary", "text"),
    "reasoning_text": ("reasoning", "content", "text"),
}
"""The parts of items that are read: the item's type, its member that lists them, and the part's that holds the text."""
_NEEDS: Final[Mapping[str, Json]] = {"message": {"role": "assistant"}, "reasoning": {"summary": []}}
"""What an item must have that no event announced."""
GIVEN: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls of the client's own tools: the member that holds what the tool is given."""

_CLIENT: Final = (*GIVEN, "computer_call", "local_shell_call", "apply_patch_call")

USAGE: Final = {
    "input_tokens": "input_tokens",
    "input_tokens_details.cached_tokens": "cache_read_tokens",
    "input_tokens_details.cache_write_tokens": "cache_write_tokens",
    "output_tokens": "output_tokens",
    "output_tokens_details.reasoning_tokens": "reasoning_tokens",
}
"""Cached tokens are part of the input, reasoning of the output."""
_ORDER: Final = "order"
"""The key of the block that says in what order the items stand."""


def is_response(body: Any) -> bool:
    """Whether something is a whole response, and no event or error."""
    if member(body, "type"):
        return False
    return (
        member(body, "object") == "response"
        or isinstance(member(body, "output"), list)
        or isinstance(member(body, "status"), str)
    )


def client_call(item: Any) -> bool:
    """Whether an item is a call of a tool that the client runs, as the SDK's types of the items describe it."""
    kind = member(item, "type")
    if kind == "shell_call":
        return member(member(item, "environment"), "type") in (None, "local")
    if kind == "tool_search_call":
        return bool(member(item, "execution") == "client")
    # xAI shows the searches of its own server as custom tools.
    return kind in _CLIENT and not text(member(item, "call_id")).startswith("xs_call_")


@dataclass(slots=True)
class _Item:
    """One item of the output while it arrives.

    Attributes:
        place: how many items began before it. index: the place that the server gives it; some give all the same one.
        call_id: what a call's result names it by; minted where the server gave none.
        told: its members, as far as they were told. Only where content is kept.
    """

    place: int
    index: int | None
    id: str = ""
    kind: str = ""
    call_id: str = ""
    told: Json = field(default_factory=dict)


class Reader:
    """Reads events, or one whole response. The type decides, at the top alone: a tool's output may hold a response."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = _rows(ctx)
        self._id: str | None = None
        self._items: list[_Item] = []
        self._said: set[tuple[int, str, int]] = set()
        self._waiting: set[str] = set()
        self._over = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind = text(member(event, "type"))
        if kind == "error" or (not kind and _failed(event)):
            # The API's own error is the event itself; gateways, and its websocket, put it in a member.
            self._over = True
            return iter([Fault(member(event, "error") or {name: member(event, name) for name in ("code", "message")})])
        if self._over:  # The first terminal wins.
            return iter(())
        if kind in _SAYS:
            what, holder, whole = _SAYS[kind]
            index = member(event, "summary_index" if what == "summary_text" else "content_index")
            return self._piece(self._find(event), what, index, text(member(event, holder)), whole=whole)
        return self._event(kind, event)

    def _event(self, kind: str, event: Any) -> Iterator[Part]:
        item = member(event, "item")
        if kind == "response.output_item.added":
            if item is not None:  # Servers send it empty, and the SDK reads past that.
                yield from self._learn(self._find(event, item, begins=True), item, done=False)
        elif kind == "response.output_item.done":
            yield from self._learn(self._find(event, item), item)
        elif kind == "response.content_part.done":
            yield from self._part(self._find(event), member(event, "content_index"), member(event, "part"))
        elif kind in _BEGUN:
            response = member(event, "response")
            yield from self._head(response)
            # Until its end, no status of it is an end.
            status = text(member(response, "status"))
            yield Running(status if status in RUNNING else "in_progress")
        elif kind in _ENDS:
            yield from self._end(member(event, "response"), _ENDS[kind])
        elif not kind and is_response(event):
            yield from self._end(event, None)

    def _head(self, response: Any) -> Iterator[Part]:
        self._id = self._id or text_or_none(member(response, "id"))
        yield Head(self._id, text_or_none(member(response, "model")), replaces=True)
        if member(response, "background") is True:
            self._rows = BACKGROUND
            yield Vocabulary(BACKGROUND)

    def _end(self, response: Any, status: str | None) -> Iterator[Part]:
        """The response that a terminal event carries, or that a body is."""
        yield from self._head(response)
        if (usage := _usage(member(response, "usage"))) is not None:
            yield Tokens(usage)
        told = text_or_none(member(response, "status"))
        # vLLM ends with `response.completed` whatever the response says: that counts, where it says an end.
        status = (status or told) if told in RUNNING else told or status
        yield from self._output(items(member(response, "output")))
        if status == COMPLETED:
            # What a program calls that the server runs is in progress until its result comes: nothing of it is missing.
            yield from (Call(call_id, closed=True) for call_id in self._waiting)
        if status in RUNNING:
            yield Running(status)
        else:
            yield Running(None)
            yield from self._reason(response, status)
        self._over = True
        yield End()

    def _reason(self, response: Any, status: str | None) -> Iterator[Part]:
        """The raw value: "completed", "incomplete:max_output_tokens", "failed:server_error"."""
        error = member(response, "error")
        more = {
            "incomplete": member(member(response, "incomplete_details"), "reason"),
            "failed": text(member(error, "code")) or member(error, "type"),
        }
        why = text(more.get(status or ""))
        raw = f"{status}:{why}" if why else status
        row = find_row(raw or "", self._rows)
        if raw == COMPLETED and _unreadable(response) is not None:
            yield Vocabulary({**self._rows, raw: _UNREADABLE})
        elif row is None and status in _NO_ROW:
            yield Vocabulary({**self._rows, str(raw): _NO_ROW[status]})
        said = error and status == "failed" and (row is None or row.detail is None)
        yield Reason(raw, detail=label_of(error) if said else None)

    def _output(self, output: Any) -> Iterator[Part]:
        """The whole output: what it repeats is known, and what no event told is learned from it.

        Not by index: servers leave gaps, and some give their items other ids than in the stream.
        """
        left = [*self._items]
        found: list[_Item] = []
        for raw in output:
            alike = [each for each in left if each.kind == member(raw, "type")]
            item = next((each for each in alike if each.id == member(raw, "id")), alike[0] if alike else None)
            if item is None:
                item = self._begin()
            else:
                left.remove(item)
            found.append(item)
            yield from self._learn(item, raw)
        if self._keep:
            yield Block(_ORDER, {"places": [item.place for item in (*found, *left)]})

    def _begin(self, index: int | None = None, id_: str = "") -> _Item:
        item = _Item(len(self._items), index, id_)
        self._items.append(item)
        return item

    def _find(self, event: Any, raw: Any = None, *, begins: bool = False) -> _Item:
        """The item that an event speaks of: by its id, else by its index, else the last.

        Servers that do not count give every item the same index: one of another kind, or that begins, is a further one.
        """
        id_ = text(member(event, "item_id") if raw is None else member(raw, "id"))
        if id_:
            for item in reversed(self._items):
                if item.id == id_:
                    return item
        index, kind = count(member(event, "output_index")), text(member(raw, "type"))
        for item in reversed(self._items):
            if index is None or item.index == index:
                other = kind and item.kind and (kind != item.kind or (begins and id_))
                return self._begin(index, id_) if other else item
        return self._begin(index, id_)

    def _learn(self, item: _Item, raw: Any, *, done: bool = True) -> Iterator[Part]:
        """An item as it begins, or all of it."""
        item.kind = text(member(raw, "type")) or item.kind
        item.id = text(member(raw, "id")) or item.id
        client = client_call(raw)
        if client:
            item.call_id = item.call_id or text(member(raw, "call_id")) or minted(self._id, item.place)
        if self._keep:
            item.told |= {name: value for name, value in raw.items() if value is not None or name not in item.told}
            # The result that answers a call must name the same id.
            item.told |= {"call_id": item.call_id} if client else {}
            yield Block(item.place, item.told, begins=True)
        if client:
            yield self._call(item, raw, done=done)
        elif item.kind.endswith("_output"):
            yield ServerCall(text(member(raw, "call_id")))
        if done:
            for name in ("summary", "content"):
                for index, part in enumerate(items(member(raw, name))):
                    yield from self._part(item, index, part)

    def _call(self, item: _Item, raw: Any, *, done: bool) -> Part:
        status = member(raw, "status")
        name, builtin = text(member(raw, "name")), item.kind not in GIVEN
        given = "" if builtin or not done else _arguments(member(raw, GIVEN[item.kind]))
        closed = status not in ("in_progress", "incomplete") if done else None
        if done and status == "in_progress":
            self._waiting.add(item.call_id)
        return Call(item.call_id, item.call_id, name, given, closed=closed, builtin=builtin, replaces=done)

    def _part(self, item: _Item, index: Any, part: Any) -> Iterator[Part]:
        kind = text(member(part, "type"))
        kind = "output_text" if kind == "text" else kind
        if kind in _PARTS:
            yield from self._piece(item, kind, index, text(member(part, _PARTS[kind][2])), whole=True)

    def _piece(self, item: _Item, kind: str, index: Any, piece: str, *, whole: bool) -> Iterator[Part]:
        """A piece of a part of an item; or all of it, which counts if no piece of it had come."""
        at = (item.place, kind, count(index) or 0)
        if not piece or (whole and at in self._said):
            if kind == "refusal":
                yield Text("", refusal=True)
            return
        self._said.add(at)
        if kind in ("summary_text", "reasoning_text"):
            yield Reasoning(piece)
        elif kind in _PARTS:
            yield Text(piece, refusal=kind == "refusal")
        elif self._keep and item.call_id:
            yield Call(item.call_id, arguments=piece)
        if not item.kind and kind in _PARTS:  # no event said that the item begins
            item.kind = _PARTS[kind][0]
            item.told = {"type": item.kind} | _NEEDS[item.kind] | ({"id": item.id} if item.id else {})
            if self._keep:
                yield Block(item.place, item.told, begins=True)
        if self._keep:
            yield Block(at, {"text": piece})


def _usage(raw: Any) -> Usage | None:
    counts = {name: count(reduce(member, path.split("."), raw)) for path, name in USAGE.items()}
    return None if all(tokens is None for tokens in counts.values()) else Usage(estimated=False, **counts)


def _rows(ctx: Context) -> Mapping[str, Row]:
    return BACKGROUND if ctx.asked.background else _FOREGROUND


def _output_of(blocks: Mapping[Hashable, Json]) -> Iterator[Json]:
    """The items of a response, in order: as they were told, with what came of them in pieces and was not told again."""
    came: dict[int, Json] = {}
    for key, piece in blocks.items():
        match key:
            case (int(place), str(kind), int()) if kind in _PARTS:
                _, name, holder = _PARTS[kind]
                part = {"type": kind, holder: piece["text"]} | ({"annotations": []} if kind == "output_text" else {})
                came.setdefault(place, {}).setdefault(name, []).append(part)
            case (int(place), str(kind), int()):
                came.setdefault(place, {})[kind] = piece["text"]
    begun = sorted(place for place in blocks if isinstance(place, int))
    for place in blocks[_ORDER]["places"] if _ORDER in blocks else begun:
        if place in blocks:
            told = blocks[place]
            yield told | {name: value for name, value in came.get(place, {}).items() if not told.get(name)}


def _faulty(data: Mapping[str, Any], whole: bool) -> str | None:
    """What is wrong with the members of an event, or of a whole body."""
    if whole and not is_response(data):
        return f"a response has `object`, `status` and `output`; this has {sorted(map(str, data))[:8]}"
    if data.get("type") == "response.output_item.done" and data.get("item") is None:
        return "an item that is done is not an object"
    if not whole and not all(
        each is None or isinstance(each, Mapping) for each in (data.get("item"), data.get("part"))
    ):
        return "a part of an event is not an object"
    return _unreadable(data if whole else data.get("response"))


def _unreadable(response: Any) -> str | None:
    if response is not None and not isinstance(response, Mapping):
        return "a part of an event is not an object"
    output = member(response, "output")
    if output is not None and not (isinstance(output, list) and all(isinstance(item, Mapping) for item in output)):
        return "a response has a list of items as its `output`"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should: the event or body itself."""
    reports = member(data, "type") == "error" or (not is_response(data) and member(data, "error"))
    return data if reports else None


def _arguments(given: Any) -> str:
    """A call's arguments as text: some servers give the object."""
    return json.dumps(given, ensure_ascii=False) if isinstance(given, dict) else text(given)


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=_rows,
    faulty=an_object("a response", "an event of a response's stream", _faulty),
    failed=_failed,
    blocks=lambda fold: _output_of(fold.blocks),
    has_end=True,
)
