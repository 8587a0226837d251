"""What the Responses API answers, as parts; and what it says of its end, in one word.

A response is a list of items: messages and reasoning, each of parts; calls of the client's tools; calls of the server's
own, with their results. A stream tells each item as it begins, its pieces, and the item whole; its last event holds the
whole response, as a body does. Servers other than OpenAI's leave out any of these but one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from endturn.chat import Json
from endturn.formats import parts
from endturn.formats.errors import label_of
from endturn.formats.fold import Fold
from endturn.formats.parts import Part
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

# The last two are not in the SDK: what a cancelled job's stream would say, and what OpenRouter says for all the others.
_ENDS: Final = {
    "response.completed": COMPLETED,
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": None,
}
_BEGUN: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """Where what events tell in pieces stands: type of item, its list of parts, type of part, and the member."""

    item: str
    parts: str
    part: str
    member: str


_PLACES: Final = {
    "output_text": _Place("message", "content", "output_text", "text"),
    "refusal": _Place("message", "content", "refusal", "refusal"),
    "reasoning_summary_text": _Place("reasoning", "summary", "summary_text", "text"),
    "reasoning_text": _Place("reasoning", "content", "reasoning_text", "text"),
    "function_call_arguments": _Place("function_call", "", "", "arguments"),
    "custom_tool_call_input": _Place("custom_tool_call", "", "", "input"),
}
_PIECES: Final = {f"response.{event}.delta": place for event, place in _PLACES.items()}
_WHOLE: Final = {f"response.{event}.done": place for event, place in _PLACES.items()}
_PARTS: Final = {place.part: place for place in _PLACES.values() if place.part} | {"text": _PLACES["output_text"]}
GIVEN: Final = {place.item: place.member for place in _PLACES.values() if not place.part}
"""Calls of the client's own tools: the member that holds what the tool is given."""


def client_call(item: Any) -> bool:
    """Whether an item is a call of a tool that the client runs, as the SDK's types of the items describe it."""
    match member(item, "type"):
        case "shell_call":
            return member(member(item, "environment"), "type") in (None, "local")
        case "tool_search_call":
            return bool(member(item, "execution") == "client")
        case "function_call" | "custom_tool_call" | "computer_call" | "local_shell_call" | "apply_patch_call":
            # xAI shows the searches of its own server as custom tools.
            return not text(member(item, "call_id")).startswith("xs_call_")
    return False


@dataclass(slots=True, eq=False)
class _Item:
    """One item of the output while it arrives.

    Attributes:
        number: how many items began before it.
        call_id: what a call's result names it by; minted where the server gave none.
        told: its members, as far as they were told.
    """

    number: int
    kind: str
    call_id: str = ""
    told: Json = field(default_factory=dict)


class Reader:
    """Reads events, or one whole response. The type decides, at the top alone: a tool's output may hold a response."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = rows(ctx)
        self._id: str | None = None
        self._items: list[_Item] = []
        self._named: dict[tuple[str, object], _Item] = {}
        self._said: set[tuple[int, _Place, int]] = set()

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind = text(member(event, "type"))
        if kind == "error" or (not kind and failed(event)):
            # The API's own error is the event itself; gateways, and its websocket, put it in a member.
            error = member(event, "error") or {name: member(event, name) for name in ("code", "message")}
            return iter((parts.Fault(error),))
        if place := _PIECES.get(kind):
            item = self._named.get((place.item, text(member(event, "item_id")))) or self._find(event, place.item)
            return self._piece(item, place, event, text(member(event, "delta")))
        return self._event(kind, event)

    def _event(self, kind: str, event: Any) -> Iterator[Part]:
        item, part = member(event, "item"), member(event, "part")
        if place := _WHOLE.get(kind):
            yield from self._whole(self._find(event, place.item), place, event, event)
        elif kind == "response.content_part.done":
            if place := _PARTS.get(text(member(part, "type"))):
                yield from self._whole(self._find(event, place.item), place, event, part)
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if item is not None:  # Servers send it empty, and the SDK reads past that.
                begins = kind.endswith("added")
                found = self._find(event, text(member(item, "type")), item, begins=begins)
                yield from self._learn(found, item, begins=begins)
        elif kind in _BEGUN:
            response = member(event, "response")
            yield from self._head(response)
            # Until its end, no status of it is an end.
            status = text(member(response, "status"))
            yield parts.Running(status if status in RUNNING else "in_progress")
        elif kind in _ENDS:
            yield from self._end(member(event, "response"), _ENDS[kind])
        elif not kind and is_response(event):
            yield from self._end(event, None)

    def _head(self, response: Any) -> Iterator[Part]:
        self._id = self._id or text_or_none(member(response, "id"))
        yield parts.Head(self._id, text_or_none(member(response, "model")), replaces=True)
        if member(response, "background") is True:
            self._rows = BACKGROUND
            yield parts.Vocabulary(BACKGROUND)

    def _end(self, response: Any, status: str | None) -> Iterator[Part]:
        """The response that a terminal event carries, or that a body is."""
        yield from self._head(response)
        if (usage := parts.usage_in(NAME, member(response, "usage"))) is not None:
            yield parts.Tokens(usage)
        told = text_or_none(member(response, "status"))
        # vLLM ends with `response.completed` whatever the response says: that counts, where it says an end.
        status = (status or told) if told in RUNNING else told or status
        if _unreadable(response):
            yield parts.Unreadable()
            return
        left = [*self._items]
        for number, raw in enumerate(items(member(response, "output"))):
            # Not by index: servers leave gaps, and some give their items other ids than in the stream.
            kind = text(member(raw, "type"))
            alike = [item for item in left if item.kind == kind]
            named = self._named.get((kind, text(member(raw, "id"))))
            known = named if named in alike else alike[0] if alike else self._begin(kind)
            left = [item for item in left if item is not known]
            yield from self._learn(known, raw, number=number)
        if status == COMPLETED:  # Some servers end a call with its arguments, and tell nothing of it here.
            yield from (parts.Call(item.call_id, closed=True) for item in left if item.call_id)
        yield parts.Running(status if status in RUNNING else None)
        if status not in RUNNING:
            yield from self._reason(response, status)
        yield parts.End()

    def _reason(self, response: Any, status: str | None) -> Iterator[Part]:
        """The raw value: "completed", "incomplete:max_output_tokens", "failed:server_error"."""
        error = member(response, "error") if status == "failed" else None
        details = member(response, "incomplete_details") if status == "incomplete" else None
        why = text(member(details, "reason")) or text(member(error, "code")) or text(member(error, "type"))
        raw = f"{status}:{why}" if why else status
        row = find_row(raw or "", self._rows)
        if row is None and status in _NO_ROW:
            yield parts.Vocabulary({**self._rows, str(raw): _NO_ROW[status]})
        yield parts.Reason(raw, detail=label_of(error) if error and (row is None or row.detail is None) else None)

    def _find(self, event: Any, kind: str, raw: Any = None, *, begins: bool = False) -> _Item:
        """The item that an event speaks of: by its id, else by its index: some servers give an id of its own to each
        event, others all items the same index.
        """
        id_ = text(member(raw, "id") or member(event, "item_id"))
        names: list[tuple[str, object]] = [(kind, id_)] if id_ else []
        names.append((kind, count(member(event, "output_index"))))
        known = names[:1] if begins else names
        item = next((self._named[name] for name in known if name in self._named), None) or self._begin(kind)
        self._named |= dict.fromkeys(names, item)
        return item

    def _begin(self, kind: str) -> _Item:
        self._items.append(_Item(len(self._items), kind))
        return self._items[-1]

    def _learn(self, item: _Item, raw: Any, *, begins: bool = False, number: int | None = None) -> Iterator[Part]:
        """An item as it begins, or all of it; its number in the whole response, where that holds it."""
        client = client_call(raw)
        if client:
            item.call_id = item.call_id or text(member(raw, "call_id")) or minted(self._id, item.number)
            yield _call(item, raw, begins)
        elif item.kind.endswith("_output"):
            yield parts.ServerCall(text(member(raw, "call_id")))
        if self._keep:
            item.told |= {name: value for name, value in raw.items() if value is not None or name not in item.told}
            # The result that answers a call must name the same id.
            item.told |= {"call_id": item.call_id} if client else {}
            yield parts.Block((item.number,) if number is None else (_OUTPUT, number), item.told, begins=True)
        for name in () if begins else ("summary", "content"):
            listed = items(member(raw, name))
            for index, part in enumerate(listed):
                if place := _PARTS.get(text(member(part, "type"))):
                    if len(listed) == 1 and (item.number, place, 0) not in self._said:
                        # Bedrock's pieces of it have the item's index.
                        index = next((at[2] for at in self._said if at[:2] == (item.number, place)), 0)
                    yield from self._whole(item, place, {"content_index": index, "summary_index": index}, part)

    def _whole(self, item: _Item, place: _Place, where: Any, holder: Any) -> Iterator[Part]:
        """All of a part, or of what a call is given: it counts if no piece of it had come."""
        come = (item.number, place, _index(place, where)) in self._said
        return self._piece(item, place, where, "" if come else text(member(holder, place.member)))

    def _piece(self, item: _Item, place: _Place, where: Any, piece: str) -> Iterator[Part]:
        """A piece of a part of an item, or of what a call is given."""
        if place.item == "message":
            yield parts.Text(piece, refusal=place.part == "refusal")
        elif place.item == "reasoning":
            yield parts.Reasoning(piece)
        elif self._keep and piece and item.call_id:
            yield parts.Call(item.call_id, arguments=piece)
        if piece:
            at = (item.number, place, _index(place, where))
            self._said.add(at)
            if self._keep:
                yield parts.Block(at, {"text": piece, "id": member(where, "item_id")})


def _index(place: _Place, where: Any) -> int:
    return count(member(where, "summary_index" if place.parts == "summary" else "content_index")) or 0


def _call(item: _Item, raw: Any, begins: bool) -> Part:
    given = None if begins or item.kind not in GIVEN else member(raw, GIVEN[item.kind])
    said = json.dumps(given, ensure_ascii=False) if isinstance(given, dict) else text(given)  # some servers' object
    # One that is in progress although it is done waits for the program that the server runs: nothing of it is missing.
    closed = None if begins else member(raw, "status") != "incomplete"
    name, builtin = text(member(raw, "name")), item.kind not in GIVEN
    return parts.Call(item.call_id, item.call_id, name, said, closed=closed, builtin=builtin, replaces=not begins)


def rows(ctx: Context) -> Mapping[str, Row]:
    return BACKGROUND if ctx.asked.background else _FOREGROUND


_OUTPUT: Final = -1
"""Begins the keys of the blocks of a whole response's items."""


def output_of(fold: Fold) -> list[Json]:
    """The items of a response: as it tells them at its end, else as each was told, with what came of it in pieces."""
    found: dict[int, Json] = {}
    pieces: dict[int, Json] = {}
    whole: list[Json] = []
    for (number, *rest), block in cast(dict[Any, Json], fold.blocks).items():
        place = rest[0] if rest else None
        if number == _OUTPUT:
            whole.append(block)
        elif place is None:
            found[number] = block
        elif place.parts:
            more: Json = {"annotations": []} if place.part == "output_text" else {}
            told = pieces.setdefault(number, {}).setdefault(place.parts, [])
            told.append({"type": place.part, place.member: block["text"], **more})
            # Where no event said that the item begins.
            needs: Json = {"role": "assistant"} if place.item == "message" else {"summary": []}
            found.setdefault(number, {"type": place.item, **needs, **({"id": block["id"]} if block["id"] else {})})
        else:
            pieces.setdefault(number, {})[place.member] = block["text"]
    return whole or [
        item | {name: value for name, value in pieces.get(number, {}).items() if not item.get(name)}
        for number, item in sorted(found.items())
    ]


def is_response(body: Any) -> bool:
    """Whether something is a whole response, and no event or error."""
    says = isinstance(member(body, "output"), list) or isinstance(member(body, "status"), str)
    return not member(body, "type") and (says or member(body, "object") == "response")


def faulty(data: Mapping[str, Any], whole: bool) -> str | None:
    """What is wrong with a body that is none."""
    if whole and not is_response(data):
        return f"a response has `object`, `status` and `output`; this has {sorted(map(str, data))[:8]}"
    return None


def _unreadable(response: Any) -> bool:
    output = member(response, "output")
    fits = isinstance(response, Mapping | None) and isinstance(output, list | None)
    return not fits or not all(isinstance(item, Mapping) for item in items(output))


def failed(data: Any) -> Any:
    """The error that stands where an answer should: the event or body itself."""
    reports = member(data, "type") == "error" or (not is_response(data) and member(data, "error"))
    return data if reports else None
