"""Read responses of the Responses API as parts, and their end as one raw stop reason.

A response is a list of items: messages and reasoning, each of parts; calls of the client's tools;
calls of the server's own, with their results. A stream has events for the start of each item, its
pieces, and the complete item; its last event holds the whole response, as a body does. Servers
other than OpenAI's may leave out any of these but one.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from endturn.formats import parts
from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.call_arguments import finished_calls
from endturn.formats.errors import label_of
from endturn.formats.parts import Part
from endturn.formats.reading import (
    as_arguments,
    as_text,
    count,
    id_text,
    items,
    member,
    member_getter,
    mint_id,
    only_text,
    runs,
    text,
    text_or_none,
)
from endturn.formats.summaries import Context
from endturn.vocabulary import (
    Json,
    Row,
    StopReason,
    Usage,
    find_row,
    rank_of,
    raw_text,
    rows_of,
    tables,
)

NAME: Final = "openai_responses"
REASONS: Final = tables(NAME)
COMPLETED: Final = "completed"
RUNNING: Final = ("queued", "in_progress")
"""The statuses of a response that is still being made."""

_INTERRUPTED: Final = replace(REASONS[""]["in_progress(foreground EOF)"], terminal=False)
_ROWS: Final = rows_of(NAME, "")
_FOREGROUND: Final = {**_ROWS, **dict.fromkeys(RUNNING, _INTERRUPTED)}
BACKGROUND: Final = {**_ROWS, **{raw: REASONS[""][f"{raw}(background)"] for raw in RUNNING}}
"""The table of a response that runs as a background job, which continues without a client."""
API_REASONS: Final = {**REASONS[""], **{raw: BACKGROUND[raw] for raw in RUNNING}}
"""The API's own reasons, without the words that compatible servers share."""
_UNMAPPED_ROWS: Final = {
    "failed": REASONS[""]["failed"],
    "incomplete": Row(StopReason.UNKNOWN, True, mapped=False),
}
"""The rows of a status with a code or a reason that no table has."""

# The last two are not in the SDK: the end of a cancelled job's stream, and OpenRouter's event
# for all the others.
ENDS: Final = {
    "response.completed": COMPLETED,
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": None,
}
"""The types of the events that end a response → the status of each."""
_START_EVENTS: Final = frozenset({"response.created", "response.queued", "response.in_progress"})


@dataclass(frozen=True, slots=True, eq=False)
class _PiecePath:
    """The place of a text that events send in pieces.

    Type of item, its list of parts, type of part, and the member.
    """

    item: str
    parts: str
    part: str
    member: str


_PATHS: Final = {
    "output_text": _PiecePath("message", "content", "output_text", "text"),
    "refusal": _PiecePath("message", "content", "refusal", "refusal"),
    "reasoning_summary_text": _PiecePath("reasoning", "summary", "summary_text", "text"),
    "reasoning_text": _PiecePath("reasoning", "content", "reasoning_text", "text"),
    "function_call_arguments": _PiecePath("function_call", "", "", "arguments"),
    "custom_tool_call_input": _PiecePath("custom_tool_call", "", "", "input"),
}
_DELTA_EVENTS: Final = {f"response.{event}.delta": place for event, place in _PATHS.items()}
_DONE_EVENTS: Final = {f"response.{event}.done": place for event, place in _PATHS.items()}
_PART_TYPES: Final = {place.part: place for place in _PATHS.values() if place.part} | {
    "text": _PATHS["output_text"]
}
CALL_INPUTS: Final = {place.item: place.member for place in _PATHS.values() if not place.part}
"""Type of a call of a client's tool → the member that holds the tool's input."""


_CALL_SUFFIXES: Final = ("_call", "_output")
"""The endings of the types of calls and of their results."""

APPROVAL: Final = "mcp_approval_request"
"""An item that asks the client whether the server may run a tool. It is not a call: the server
makes the call afterwards."""


def is_client_call(item: Any) -> bool:
    """Return whether an item is a call of a tool that the client runs.

    The SDK's types of the items describe which ones are.
    """
    match member(item, "type"):
        case "shell_call":
            return member(member(item, "environment"), "type") in (None, "local")
        case "tool_search_call":
            return bool(member(item, "execution") == "client")
        case (
            "function_call"
            | "custom_tool_call"
            | "computer_call"
            | "local_shell_call"
            | "apply_patch_call"
        ):
            # xAI shows the searches of its own server as custom tools.
            return not text(member(item, "call_id")).startswith("xs_call_")
    return False


@dataclass(slots=True, eq=False)
class _Item:
    """One item of the output while it arrives.

    Attributes:
        number: how many items began before it.
        call_id: the id by which a result names the call; minted if the server sent none.
        members: its members so far.
        is_unfinished: it has arrived completely, and its own status is "incomplete".
    """

    number: int
    kind: str
    call_id: str = ""
    members: Json = field(default_factory=dict)
    is_unfinished: bool = False


_NO_ITEMS: Final[deque[_Item]] = deque()


class ResponsesReader:
    """Reads events, or one whole response.

    Only the type at the top level counts, since a tool's output may hold a response.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = rows(ctx)
        self._id: str | None = None
        self._items: list[_Item] = []
        self._finished = 0  # items of which nothing is kept
        self._items_by_name: dict[tuple[str, object], _Item] = {}
        self._text_keys: set[tuple[int, _PiecePath, int]] = set()
        self._first_index: dict[tuple[int, _PiecePath], int] = {}
        self._is_body = False  # one whole response, as a body: no event belongs to it

    def __call__(self, event: Any) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        if self._is_body:
            return iter(())
        kind = text(member(event, "type"))
        if kind == "error" or (not kind and error_of(event)):
            # The API's own error is the event itself; gateways, and its websocket, put it into a
            # member.
            error = member(event, "error") or {
                name: member(event, name) for name in ("code", "message")
            }
            return iter((parts.ErrorPart(error),))
        if path := _DELTA_EVENTS.get(kind):
            item = self._items_by_name.get(
                (path.item, text(member(event, "item_id")))
            ) or self._item_of(event, path.item)
            return self._piece(
                item, path, _index(path, event), as_text(member(event, "delta")), event
            )
        return self._event(kind, event)

    def _event(self, kind: str, event: Any) -> Iterator[Part]:
        item, part = member(event, "item"), member(event, "part")
        if path := _DONE_EVENTS.get(kind):
            yield from self._completed_part(
                self._item_of(event, path.item), path, _index(path, event), event, event
            )
        elif kind == "response.content_part.done":
            if path := _PART_TYPES.get(text(member(part, "type"))):
                yield from self._completed_part(
                    self._item_of(event, path.item), path, _index(path, event), part, event
                )
        elif kind in ("response.output_item.added", "response.output_item.done"):
            if item is not None:  # Some servers send an empty error, which the SDK ignores.
                is_start = kind.endswith("added")
                stream_item = self._item_of(
                    event, text(member(item, "type")), item, is_start=is_start
                )
                yield from self._update_item(stream_item, item, is_start=is_start)
        elif kind in _START_EVENTS:
            response = member(event, "response")
            yield from self._head(response)
            # No status before the end event ends the response.
            status = text(member(response, "status"))
            yield parts.Running(status if status in RUNNING else "in_progress")
        elif kind in ENDS:
            yield from self._end(member(event, "response"), ENDS[kind])
        elif not kind and is_response(event):
            self._is_body = True
            yield from self._end(event, None)

    def _head(self, response: Any) -> Iterator[Part]:
        self._id = self._id or text_or_none(member(response, "id"))
        yield parts.Head(self._id, text_or_none(member(response, "model")), replaces=True)
        if member(response, "background") is True:
            self._rows = BACKGROUND
            yield parts.Vocabulary(BACKGROUND)

    def _end(self, response: Any, status: str | None) -> Iterator[Part]:
        """Yield the parts of a terminal event's response, or of a body."""
        yield from self._head(response)
        if (usage := usage_of(member(response, "usage"))) is not None:
            yield parts.Tokens(usage)
        inner_status = text_or_none(member(response, "status"))
        is_contradicted = status == COMPLETED and inner_status in RUNNING
        status = self._less_safe(status, inner_status)
        if _is_unreadable(response):
            yield parts.Unreadable()
            return
        streamed_items = [*self._items]
        waiting: dict[str, deque[_Item]] = {}
        for item in streamed_items:
            waiting.setdefault(item.kind, deque()).append(item)
        matched: set[int] = set()
        output = items(member(response, "output"))
        if self._is_body and not (self._keep or streamed_items or is_contradicted):
            output = yield from self._without_finished(output)
        for number, raw in enumerate(output):
            # Not by index: servers leave gaps, and some give their items other ids than in the
            # stream.
            kind = text(member(raw, "type"))
            current = self._items_by_name.get((kind, text(member(raw, "id"))))
            if current is None or current.number in matched:
                candidates = waiting.get(kind, _NO_ITEMS)
                while candidates and candidates[0].number in matched:
                    candidates.popleft()
                current = candidates.popleft() if candidates else self._new_item(kind)
            matched.add(current.number)
            yield from self._update_item(current, raw, number=number)
        # Some servers end a call with its arguments event, and leave it out of this response.
        if status == COMPLETED:
            unmatched = (
                item for item in streamed_items if item.call_id and item.number not in matched
            )
            yield from (
                parts.ToolCallPart(item.call_id, closed=True)
                for item in unmatched
                if not item.is_unfinished
            )
            if is_contradicted:  # calls of a running response may be incomplete
                for item in self._items:
                    if item.call_id:
                        item.is_unfinished = True
                        yield parts.ToolCallPart(item.call_id, closed=False)
            if is_contradicted or any(item.is_unfinished for item in self._items):
                yield parts.Unfinished()
        yield parts.Running(status if status in RUNNING else None)
        if status not in RUNNING:
            yield from self._reason(response, status)
        yield parts.End()

    def _without_finished(self, output: Sequence[Any]) -> Generator[Part, None, Sequence[Any]]:
        """Yield the parts that later items cannot change, if no content is kept.

        Those are the parts of calls, and of the first messages that hold only text. Returns the
        other items.
        """
        if len(output) < 2:
            return output
        typed_runs = [*runs(output, _kind)]
        # There may be other calls, or an item that shows that the server runs one.
        are_calls_alone = sum(kind.endswith(_CALL_SUFFIXES) for kind, _ in typed_runs) <= 1
        rest: list[Any] = []
        is_begun = False
        for kind, run in typed_runs:
            if kind == "message" and not is_begun:
                texts: list[str] = []
                for item in run:
                    if (message_text := _plain_text(item)) is None:
                        break
                    texts.append(message_text)
                self._finished += len(texts)
                yield parts.Text("".join(texts))
                run = run[len(texts) :]
            elif kind == "function_call" and are_calls_alone:
                plain_calls = finished_calls(map(_plain_call, run[:-1]))
                ids = {text(member(run[-1], "call_id")), *(call.id for call in plain_calls)}
                if len(ids) > len(plain_calls) > 0:
                    self._finished += len(plain_calls)
                    yield parts.FinishedCalls(plain_calls)
                    run = run[-1:]
            is_begun = is_begun or kind == "message" or kind.endswith(_CALL_SUFFIXES)
            rest += run
        return rest

    def _less_safe(self, event: str | None, inner_status: str | None) -> str | None:
        """Return the effective status: the event's or the response's, whichever is less complete.

        vLLM ends with `response.completed` whatever the status; others copy "completed" into
        an event for a truncated response. A running status never wins over an event's.
        """
        if event is None or inner_status is None or inner_status in RUNNING:
            return event or inner_status
        return min(inner_status, event, key=self._rank)

    def _rank(self, status: str) -> int:
        return rank_of(_UNMAPPED_ROWS.get(status) or find_row(status, self._rows))

    def _reason(self, response: Any, status: str | None) -> Iterator[Part]:
        """Yield the reason: "completed", "incomplete:max_output_tokens", "failed:server_error"."""
        error = member(response, "error") if status == "failed" else None
        details = (
            member(response, "incomplete_details")
            if status in ("incomplete", COMPLETED, None)
            else None
        )
        code = (
            text(raw_text(details)) or id_text(member(error, "code")) or text(member(error, "type"))
        )
        raw = f"{status or 'incomplete'}:{code}" if code else status
        row = find_row(raw or "", self._rows)
        # The status is better evidence than the free text with it.
        row = None if row is not None and not row.mapped else row
        if details is not None and code and status != "incomplete":
            # Some servers say "completed" although the details name a reason for the opposite.
            row = find_row(f"incomplete:{code}", self._rows) or _UNMAPPED_ROWS["incomplete"]
            yield parts.Vocabulary({**self._rows, str(raw): row})
        elif row is None and status in _UNMAPPED_ROWS:
            yield parts.Vocabulary({**self._rows, str(raw): _UNMAPPED_ROWS[status]})
        yield parts.Reason(
            raw, detail=label_of(error) if error and (row is None or row.detail is None) else None
        )

    def _item_of(self, event: Any, kind: str, raw: Any = None, *, is_start: bool = False) -> _Item:
        """Return the item that an event is about, by its id, else by its index.

        Some servers give each event an id of its own, others give all items the same index.
        """
        id_ = text(member(raw, "id") or member(event, "item_id"))
        names: list[tuple[str, object]] = [(kind, id_)] if id_ else []
        names.append((kind, count(member(event, "output_index"))))
        lookup = names[:1] if is_start else names
        item = next(
            (self._items_by_name[name] for name in lookup if name in self._items_by_name), None
        ) or self._new_item(kind)
        self._items_by_name |= dict.fromkeys(names, item)
        return item

    def _new_item(self, kind: str) -> _Item:
        self._items.append(_Item(len(self._items) + self._finished, kind))
        return self._items[-1]

    def _update_item(
        self, item: _Item, raw: Any, *, is_start: bool = False, number: int | None = None
    ) -> Iterator[Part]:
        """Take an item at its start, or the complete item.

        Args:
            number: its position in the final response; None for an event's item.
        """
        is_client = is_client_call(raw)
        item.is_unfinished = (
            not is_start and (is_client or item.kind == "message") and _is_unfinished(raw)
        )
        if is_client:
            item.call_id = (
                item.call_id or id_text(member(raw, "call_id")) or mint_id(self._id, item.number)
            )
            yield _call(item, raw, is_start)
        elif item.kind == APPROVAL:
            yield parts.Approval(text(member(raw, "id")), text(member(raw, "name")))
        elif item.kind.endswith("_output"):
            yield parts.ServerCall(text(member(raw, "call_id")))
        if self._keep:
            item.members |= {
                name: value
                for name, value in raw.items()
                if value is not None or name not in item.members
            }
            # The result that answers a call must name the same id.
            item.members |= {"call_id": item.call_id} if is_client else {}
            yield parts.Block(
                (item.number,) if number is None else (_OUTPUT, number), item.members, begins=True
            )
        for name in () if is_start else ("summary", "content"):
            entries = items(member(raw, name))
            is_last = number is not None and not (self._keep or self._text_keys)
            if is_last and len(entries) > 1 and (plain_text := only_text(entries, "output_text")):
                yield parts.Text(plain_text)
                continue
            for index, part in enumerate(entries):
                if path := _PART_TYPES.get(text(member(part, "type"))):
                    if len(entries) == 1 and (item.number, path, 0) not in self._text_keys:
                        # Bedrock's pieces of it have the item's index.
                        index = self._first_index.get((item.number, path), 0)
                    yield from self._completed_part(item, path, index, part)

    def _completed_part(
        self, item: _Item, path: _PiecePath, index: int, holder: Any, event: Any = None
    ) -> Iterator[Part]:
        """Yield a complete part or call input, unless its pieces have come before."""
        is_reported = (item.number, path, index) in self._text_keys
        return self._piece(
            item,
            path,
            index,
            "" if is_reported else _part_text(member(holder, path.member), path),
            event,
        )

    def _piece(
        self, item: _Item, path: _PiecePath, index: int, piece: str, event: Any = None
    ) -> Iterator[Part]:
        """Yield a piece of a part or of a call's input.

        Args:
            event: the event that holds it; None for a piece from a final response.
        """
        if path.item == "message":
            yield parts.Text(piece, refusal=path.part == "refusal")
        elif path.item == "reasoning":
            yield parts.Reasoning(piece)
        elif piece and item.call_id:
            yield parts.ToolCallPart(item.call_id, arguments=piece)
        if piece:
            key = (item.number, path, index)
            self._text_keys.add(key)
            self._first_index.setdefault(key[:2], key[2])
            if self._keep:
                yield parts.Block(key, {"text": piece, "id": member(event, "item_id")})


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as OpenAI counts it: cached tokens are part of the input's."""
    if not figures:
        return None
    get = member_getter(figures)
    input_details = get("input_tokens_details")
    return parts.usage_of_counts(
        count(get("input_tokens")),
        count(get("output_tokens")),
        count(member(get("output_tokens_details"), "reasoning_tokens")),
        count(member(input_details, "cached_tokens")),
        count(member(input_details, "cache_write_tokens")),
    )


def _plain_text(item: Any) -> str | None:
    """Return the text of a complete message that holds only text; None for any other item."""
    if (
        item.__class__ is not dict
        or "summary" in item
        or item.get("status") not in (None, COMPLETED)
    ):
        return None
    return only_text(items(item.get("content")), "output_text")


def _plain_call(item: Json) -> tuple[Any, Any, Any]:
    """Return the id, name and arguments of a complete call of a client's tool.

    The id is False if the item is incomplete or no client call.
    """
    id_ = item["call_id"]
    is_plain = (
        item.get("status", COMPLETED) == COMPLETED
        and "caller" not in item
        and id_[:8] != "xs_call_"
    )
    return is_plain and id_, item["name"], item["arguments"]


def _kind(item: Any) -> str:
    return text(member(item, "type"))


def _part_text(value: Any, path: _PiecePath) -> str:
    """Return a part's text; of a call the arguments, as JSON text if they are other JSON."""
    if path.parts or value is None:
        return as_text(value)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _index(path: _PiecePath, holder: Any) -> int:
    return (
        count(member(holder, "summary_index" if path.parts == "summary" else "content_index")) or 0
    )


def _is_unfinished(raw: Any) -> bool:
    """Return whether a message or a client call has the status "incomplete".

    A call by a program on the server is in progress until its result arrives, but it is complete.
    """
    awaits_result = member(member(raw, "caller"), "type") == "program"
    return member(raw, "status") in (
        ("incomplete",) if awaits_result else ("incomplete", "in_progress")
    )


def _call(item: _Item, raw: Any, is_start: bool) -> Part:
    call_input = (
        None
        if is_start or item.kind not in CALL_INPUTS
        else as_arguments(member(raw, CALL_INPUTS[item.kind]))
    )
    # an object, from some servers
    arguments_text = (
        json.dumps(call_input, ensure_ascii=False)
        if isinstance(call_input, dict)
        else text(call_input)
    )
    is_closed = None if is_start else not item.is_unfinished
    return parts.ToolCallPart(
        item.call_id,
        item.call_id,
        text(member(raw, "name")),
        arguments_text,
        closed=is_closed,
        builtin=item.kind not in CALL_INPUTS,
        replaces=not is_start,
        free_text=item.kind == "custom_tool_call",
    )


def rows(ctx: Context) -> Mapping[str, Row]:
    """Return the stop reasons of a response: in the background, or while the client waits."""
    return BACKGROUND if ctx.request.background else _FOREGROUND


_OUTPUT: Final = -1
"""The first part of the block keys of a final response's items."""


def output_of(accumulator: ResponseAccumulator) -> list[Json]:
    """Return the items of a response.

    The items of its final event, else those of the events, completed from their pieces.
    """
    items_by_number: dict[int, Json] = {}
    pieces: dict[int, Json] = {}
    final_items: list[Json] = []
    for (number, *rest), block in cast(dict[Any, Json], accumulator.blocks).items():
        path = rest[0] if rest else None
        if number == _OUTPUT:
            final_items.append(block)
        elif path is None:
            items_by_number[number] = block
        elif path.parts:
            extra: Json = {"annotations": []} if path.part == "output_text" else {}
            piece_parts = pieces.setdefault(number, {}).setdefault(path.parts, [])
            piece_parts.append({"type": path.part, path.member: block["text"], **extra})
            # An item without a start event gets the members that the API requires.
            required: Json = {"role": "assistant"} if path.item == "message" else {"summary": []}
            items_by_number.setdefault(
                number,
                {"type": path.item, **required, **({"id": block["id"]} if block["id"] else {})},
            )
        else:
            pieces.setdefault(number, {})[path.member] = block["text"]
    return final_items or [
        item | {name: value for name, value in pieces.get(number, {}).items() if not item.get(name)}
        for number, item in sorted(items_by_number.items())
    ]


def is_response(body: Any) -> bool:
    """Return whether a JSON value is a whole response, and no event or error."""
    has_content = isinstance(member(body, "output"), list) or isinstance(
        member(body, "status"), str
    )
    return not member(body, "type") and (has_content or member(body, "object") == "response")


def shape_error(data: Mapping[str, Any], is_body: bool) -> str | None:
    """Return a sentence on the error of a body that is no response; None if it is one."""
    if is_body and not is_response(data):
        return (
            f"a response must have `object`, `status` and `output`; this has "
            f"{sorted(map(str, data))[:8]}"
        )
    return None


def _is_unreadable(response: Any) -> bool:
    output = member(response, "output")
    is_valid = isinstance(response, Mapping | None) and isinstance(output, list | None)
    return not is_valid or not all(isinstance(item, Mapping) for item in items(output))


def error_of(data: Any) -> Any:
    """Return the error that an event or a body is in place of an answer; None if it is none."""
    is_error = member(data, "type") == "error" or (not is_response(data) and member(data, "error"))
    return data if is_error else None
