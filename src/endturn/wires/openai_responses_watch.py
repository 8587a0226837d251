"""What a response of the Responses API says of its stop, read in place."""

from __future__ import annotations

from typing import Any, Final, Protocol

from endturn.chat import Usage
from endturn.stop import Stop, find_row, find_stop
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.openai_responses_objects import Item, client_call, is_response, usage_of
from endturn.wires.openai_responses_reasons import RUNNING, composed, rows_of
from endturn.wires.reading import Tail, count, items, member, minted, text, text_or_none

_WORD: Final = "response.output_text.delta"
_BEGUN: Final = frozenset({"response.created", "response.queued", "response.in_progress"})
# The last two are not in the SDK: what a cancelled job's stream would say, and what OpenRouter says for all the others.
_ENDS: Final = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
    "response.done": None,
}
KEPT: Final = frozenset(
    {
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
    }
)
"""Events that say nothing of the stop, and are read for a keeper alone."""

_OPEN: Final = frozenset({"in_progress", "incomplete"})
_NOWHERE: Final = object()


class Keeper(Protocol):
    """Who is given what the answer holds, while a watch reads what it says of the stop."""

    def item(self, item: Item, raw: Any, *, done: bool) -> None: ...

    def text(self, item: Item, index: int, piece: str, *, declined: bool) -> None: ...

    def piece(self, item: Item, kind: str, event: Any) -> None: ...


class Watch:
    """Reads what a response of the Responses API says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every event. A piece of text of a part that has begun takes the short way through it.
    """

    __slots__ = (
        "_answered",
        "_background",
        "_code",
        "_ctx",
        "_error",
        "_failure",
        "_index",
        "_items",
        "_keep",
        "_minted",
        "_output",
        "_reason",
        "_refused",
        "_say",
        "_status",
        "_tail",
        "_usage",
        "broken",
        "id",
        "model",
        "over",
    )

    def __init__(self, ctx: Context, keep: Keeper | None = None) -> None:
        self._ctx = ctx
        self._keep = keep
        self._tail = Tail()
        self._say = self._tail.add
        # Where the last piece of text stood, as the event wrote it: the next one there needs no second look.
        self._output: Any = _NOWHERE
        self._index: Any = _NOWHERE
        self._items: dict[int, Item] = {}
        self._answered: set[str] = set()
        self._minted = 0
        self._status: str | None = None
        self._reason: str | None = None
        self._code: str | None = None
        self._failure: Any = None
        self._background = ctx.asked.background
        self._refused = False
        self._usage: Usage | None = None
        self._error: Any = None
        self.over = False
        # An error came before the end.
        self.broken = False
        self.id: str | None = None
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        if event.__class__ is Event:
            event = event.data
        try:
            if event.__class__ is dict:
                if (
                    event["type"] == _WORD
                    and event["output_index"] is self._output
                    and event["content_index"] is self._index
                ):
                    piece = event["delta"]
                    if piece.__class__ is str:
                        self._say(piece)
                        return
            elif event.type == _WORD and event.output_index is self._output and event.content_index is self._index:
                piece = event.delta
                if piece.__class__ is str:
                    self._say(piece)
                    return
        except (AttributeError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before a terminal event the stop is `missing`; of a job on the server, `paused`.

        Args:
            left: whoever read the stream stopped. The reason comes with the terminal here, so nothing else counts.
        """
        return Seen(self._judge(), self._usage, self.id, self.model, self._tail.last, self._tail.chars, (self._raw(),))

    @property
    def items(self) -> list[Item]:
        """The items of the output, in order; which calls are closed is right after `close`."""
        return [self._items[place] for place in sorted(self._items)]

    def asks(self, item: Item) -> bool:
        """Whether an item is a call that the client has to run: one that the output itself answers was the server's."""
        return item.client and item.call_id not in self._answered

    def _read(self, event: Any) -> None:
        # The type decides, at the top alone: a tool's output may hold a whole response with a status of its own.
        kind = text(member(event, "type"))
        if not kind:
            self._read_bare(event)
        elif kind == "error":
            # The API's own error is the event itself; gateways, and its websocket, put it in a member.
            said = {name: member(event, name) for name in ("code", "message")}
            self._fail(member(event, "error") or said)
        elif self.over or self.broken:
            pass  # The first terminal wins.
        elif kind == "response.output_text.delta":
            self._speak(event, member(event, "delta"), declined=False)
        elif kind == "response.refusal.delta":
            self._speak(event, member(event, "delta"), declined=True)
        elif kind in ("response.output_text.done", "response.refusal.done"):
            name = "text" if kind == "response.output_text.done" else "refusal"
            self._finish(self._at(event), member(event, "content_index"), member(event, name), declined=name != "text")
        elif kind == "response.content_part.done":
            self._read_part(self._at(event), member(event, "content_index"), member(event, "part"))
        elif kind in KEPT:
            if self._keep is not None:
                self._keep.piece(self._at(event), kind, event)
        elif kind == "response.output_item.added":
            raw = member(event, "item")
            if raw is not None:  # Servers send it empty, and the SDK reads past that.
                self._learn(self._place(event, raw, begins=True), raw, done=False)
        elif kind == "response.output_item.done":
            raw = member(event, "item")
            self._learn(self._place(event, raw, begins=False), raw, done=True)
        elif kind in _BEGUN:
            self._read_head(member(event, "response"))
        elif kind in _ENDS:
            self._end(member(event, "response"), _ENDS[kind])

    def _read_bare(self, event: Any) -> None:
        """Read what has no type: a whole body, or an error that a gateway sent in mid-stream."""
        if is_response(event):
            if not self.over and not self.broken:
                self._end(event, None)
        else:
            error = member(event, "error")
            if error:
                self._fail(error)

    def _fail(self, error: Any) -> None:
        if self._error is None:
            self._error = error
            self.broken = not self.over
            self._output = self._index = _NOWHERE

    def _read_head(self, response: Any) -> None:
        """Read what a response says of itself; until its end, no status of it is an end."""
        status = text(member(response, "status"))
        self._status = status if status in RUNNING else "in_progress"
        self.id = text_or_none(member(response, "id")) or self.id
        self.model = text_or_none(member(response, "model")) or self.model
        self._background = self._background or member(response, "background") is True

    def _end(self, response: Any, status: str | None) -> None:
        """Read the response that a terminal event carries, or that a body is."""
        self._read_head(response)
        self._usage = usage_of(member(response, "usage"))
        told = text_or_none(member(response, "status"))
        # vLLM ends with `response.completed` whatever the response says: that counts, where it says an end.
        self._status = (status or told) if told in RUNNING else told or status
        self._reason = text_or_none(member(member(response, "incomplete_details"), "reason"))
        self._failure = member(response, "error")
        self._code = text_or_none(member(self._failure, "code")) or text_or_none(member(self._failure, "type"))
        self._match(items(member(response, "output")))
        if self._status == "completed":
            # What a program calls that the server runs is in progress until its result comes: nothing of it is missing.
            for item in self._items.values():
                item.closed = item.closed or item.waits
        self.over = True
        self._output = self._index = _NOWHERE

    def _match(self, output: Any) -> None:
        """Read the whole output: what it repeats is known, and what no event told is learned from it.

        Not by index: servers leave gaps, and some give their items other ids than in the stream.
        """
        left = self.items
        ids = {text(member(raw, "id")) for raw in output} - {""}
        found: list[Item] = []
        for raw in output:
            id_, kind = text(member(raw, "id")), text(member(raw, "type"))
            item = next((each for each in left if id_ and each.id == id_), None) or next(
                (each for each in left if each.kind == kind and each.id not in ids), None
            )
            if item is None:
                item = Item()
            else:
                left.remove(item)
            found.append(item)
            self._learn(item, raw, done=True)
        self._items = dict(enumerate([*found, *left]))

    def _at(self, event: Any, id_: str = "") -> Item:
        """The item that an event speaks of: by its id, else by its index, else the last."""
        id_ = id_ or text(member(event, "item_id"))
        item = next((each for each in self._items.values() if id_ and each.id == id_), None)
        if item is not None:
            return item
        place = count(member(event, "output_index"))
        if place is None:
            place = max(self._items, default=0)
        item = self._items.get(place)
        if item is None:
            item = self._items[place] = Item()
            item.id = id_
        return item

    def _place(self, event: Any, raw: Any, *, begins: bool) -> Item:
        """The item that an event brings; a further one where another stands at its index, as servers write that do not
        count."""
        id_, kind = text(member(raw, "id")), text(member(raw, "type"))
        item = self._at(event, id_)
        if item.kind and (item.kind != kind or (begins and item.id != id_ != "")):
            item = self._items[max(self._items) + 1] = Item()
        return item

    def _learn(self, item: Item, raw: Any, *, done: bool) -> None:
        self._output = self._index = _NOWHERE
        kind = item.kind = text(member(raw, "type")) or item.kind
        item.id = text(member(raw, "id")) or item.id
        item.call_id = text(member(raw, "call_id")) or item.call_id
        item.client = client_call(raw)
        if item.client and not item.call_id:
            item.call_id = minted(self.id, self._minted)
            self._minted += 1
        if kind.endswith("_output") and item.call_id:
            self._answered.add(item.call_id)
        if done:
            status = text(member(raw, "status"))
            item.closed, item.waits = status not in _OPEN, status == "in_progress"
        if self._keep is not None:
            self._keep.item(item, raw, done=done)
        if done and kind == "message":
            for index, part in enumerate(items(member(raw, "content"))):
                self._read_part(item, index, part)

    def _read_part(self, item: Item, index: Any, part: Any) -> None:
        kind = member(part, "type")
        if kind == "refusal":
            self._finish(item, index, member(part, "refusal"), declined=True)
        elif kind in ("output_text", "text"):
            self._finish(item, index, member(part, "text"), declined=False)

    def _finish(self, item: Item, index: Any, whole: Any, *, declined: bool) -> None:
        """Read a part that is whole: its text counts if no piece of it had come."""
        self._refused = self._refused or declined
        place = count(index) or 0
        if place not in item.said and text(whole):
            self._give(item, place, whole, declined=declined)

    def _speak(self, event: Any, piece: Any, *, declined: bool) -> None:
        item, index = self._at(event), member(event, "content_index")
        self._refused = self._refused or declined
        if text(piece):
            self._give(item, count(index) or 0, piece, declined=declined)
            if self._keep is None and not declined:
                self._output, self._index = member(event, "output_index"), index

    def _give(self, item: Item, index: int, piece: str, *, declined: bool) -> None:
        item.kind = item.kind or "message"
        item.said.add(index)
        self._tail.add(piece)
        if self._keep is not None:
            self._keep.text(item, index, piece, declined=declined)

    def _raw(self) -> str | None:
        return composed(self._status, self._reason, self._code)

    def _judge(self) -> Stop:
        if self.broken:
            return broken(self._error)
        raw = self._raw()
        rows = rows_of(raw, background=self._background)
        row = None if raw is None else find_row(raw, rows)
        calls = [item for item in self.items if self.asks(item)]
        if calls and self.over and raw is not None and (row is None or row.incomplete):
            # vLLM says "completed" of every item, the one that a limit cut included (vllm-project/vllm#57998).
            calls[-1].closed = False
        detail = None
        if self._error is not None:
            detail = label_of(self._error)
        elif self._status == "failed" and self._failure and (row is None or row.detail is None):
            detail = label_of(self._failure)
        return find_stop(
            raw,
            rows,
            terminal_seen=self.over or raw is not None,
            calls=len(calls),
            calls_closed=all(item.closed for item in calls),
            output_tokens=self._usage.output_tokens if self._usage else None,
            prompt_tokens=self._usage.input_tokens if self._usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            refused=self._refused,
            detail=detail,
        )
