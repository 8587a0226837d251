"""What a response of the Messages API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Row, Stop, StopReason, find_row, find_stop, raw_text
from endturn.stop_reasons import tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import Tail, count, items, member, text, text_or_none

REASONS: Final = tables("anthropic")

# "The request is a compaction request … nothing is sampled after the block": then it is all that was asked for.
_ASKED_COMPACTION: Final = {"compaction": Row(StopReason.END_TURN, source="anthropic 2.12 compaction")}

CLIENT_CALL: Final = "tool_use"
"""Blocks of other types that end in `_tool_use` are calls of tools that the server runs."""

_COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_NOTHING: Final[Mapping[str, int]] = {}


def rows_of(ctx: Context) -> Mapping[str, Row]:
    """The table that a response's reason is looked up in."""
    # Anthropic's own client for Bedrock speaks InvokeModel too.
    dialect = "bedrock" if ctx.provider == "aws.bedrock" else ctx.dialect
    rows = REASONS.get(dialect) or REASONS[""]
    return {**rows, **_ASKED_COMPACTION} if ctx.asked.compaction else rows


def counted(usage: Any) -> dict[str, int]:
    """The figures of a message's usage."""
    found = {name: count(member(usage, name)) for name in _COUNTED}
    found["thinking_tokens"] = count(member(member(usage, "output_tokens_details"), "thinking_tokens"))
    return {name: n for name, n in found.items() if n is not None}


def summed(tokens: Mapping[str, int]) -> Usage | None:
    """What these figures come to; None where there are none."""
    if not tokens:
        return None
    read, written = tokens.get("cache_read_input_tokens"), tokens.get("cache_creation_input_tokens")
    fresh = tokens.get("input_tokens")
    # "Total input tokens in a request is the summation of" the three.
    whole = None if fresh is None else fresh + (read or 0) + (written or 0)
    return Usage(whole, tokens.get("output_tokens"), tokens.get("thinking_tokens"), read, written)


class _Block:
    """One content block while it arrives."""

    __slots__ = ("closed", "kind")

    def __init__(self, kind: str, closed: bool = False) -> None:
        self.kind = kind
        self.closed = closed


class Watch:
    """Reads what a response of the Messages API says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every event. A piece of text takes the short way through it.
    """

    __slots__ = (
        "_blocks",
        "_ctx",
        "_detail",
        "_error",
        "_head",
        "_held",
        "_raw",
        "_say",
        "_tail",
        "_tokens",
        "broken",
        "id",
        "model",
        "over",
        "told",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        self._say = self._tail.add
        self._blocks: dict[int, _Block] = {}
        # The message of `message_start`, and the blocks in it that may yet be sent again.
        self._head: Any = None
        self._held: dict[int, Any] = {}
        self._tokens: dict[str, int] = {}
        self._raw: Any = None
        self._detail: str | None = None
        self._error: Any = None
        self.over = False
        # An error came before the end. After a reason for which the answer is cut anyway it changes nothing.
        self.broken = False
        self.id: str | None = None
        self.model: str | None = None
        # Blocks that came whole, outside of the events of a block, by their index: for a decoder to take from here.
        self.told: dict[int, Any] = {}

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        if event.__class__ is Event:
            event = event.data
        try:
            if event.__class__ is dict:
                if event["type"] == "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        piece = delta["text"]
                        if piece.__class__ is str:
                            self._say(piece)
                        return
            elif event.type == "content_block_delta":
                delta = event.delta
                if delta.type == "text_delta":
                    piece = delta.text
                    if piece.__class__ is str:
                        self._say(piece)
                return
        except (AttributeError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before `message_stop` the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped: a reason that had come counts without its `message_stop`.
        """
        return Seen(
            self._judge(left),
            summed(self._tokens),
            self.id,
            self.model,
            self._tail.last,
            self._tail.chars,
            (raw_text(self._raw),),
        )

    def closed(self, index: int) -> bool:
        """Whether the block of that index is whole; right after `close`."""
        return index in self._blocks and self._blocks[index].closed

    def release(self, before: int | None = None) -> None:
        """Count the blocks that came whole and were not sent again, all or those before an index."""
        if not self._held:
            return
        found = {index: block for index, block in self._held.items() if before is None or index < before}
        for index, block in found.items():
            del self._held[index]
            self._read_block(index, block, closed=True)
        self.told |= found

    def _read(self, event: Any) -> None:
        # The type decides, at the top alone: an advisor's or a tool's result may hold a whole message with a stop
        # reason of its own.
        kind = member(event, "type")
        if kind == "message_start":
            self._read_start(member(event, "message"))
        elif kind == "content_block_start":
            index = count(member(event, "index"))
            place = len(self._blocks) if index is None else index
            self._held.pop(place, None)
            self.release(before=place)
            self._read_block(place, member(event, "content_block"), closed=False)
        elif kind == "content_block_delta":
            # Of a mapping that is no dict.
            delta = member(event, "delta")
            if member(delta, "type") == "text_delta":
                self._tail.add(text(member(delta, "text")))
        elif kind == "content_block_stop":
            block = self._blocks.get(count(member(event, "index")) or 0)
            if block is not None:
                block.closed = True
        elif kind == "message_delta":
            self.release()
            self._read_reason(member(event, "delta"))
            self._read_usage(member(event, "usage"))
        elif kind == "message_stop":
            self.release()
            self.over = True
            if self._raw is None and raw_text(member(self._head, "stop_reason")) is not None:
                self._read_reason(self._head)
                self._read_usage(member(self._head, "usage"), known=self._tokens)
        elif kind == "error":
            if self._error is None:
                self._error = member(event, "error") or "error"
                row = self._row()
                self.broken = not self.over and not (row is not None and row.incomplete)
        elif kind == "message" or (kind is None and member(event, "content") is not None):
            self._read_whole(event)

    def _read_start(self, message: Any) -> None:
        """The head of a message. Proxies and cached replies send all of it there, blocks and reason too."""
        self._head = message
        self._name(message)
        self._read_usage(member(message, "usage"))
        # "output_tokens": 1 stands there before anything is generated.
        self._tokens.pop("output_tokens", None)
        content = enumerate(items(member(message, "content")))
        self._held = {index: block for index, block in content if index not in self._blocks}
        if self.over:  # Out of order: nothing is to come that would count them.
            self.release()

    def _read_whole(self, message: Any) -> None:
        """A body; or, within a stream, the message again that its events have told: then only what they left out."""
        begun = self._head is not None or bool(self._blocks) or self._tail.chars > 0
        self.release()
        self._name(message)
        self._read_usage(member(message, "usage"), known=self._tokens)
        self._read_reason(message)
        self.over = self.over or not begun or raw_text(member(message, "stop_reason")) is not None
        if not self._blocks and not self._tail.chars:
            self._held = dict(enumerate(items(member(message, "content"))))
            self.release()

    def _name(self, message: Any) -> None:
        """The first to say it: proxies repeat messages without."""
        self.id = self.id or text_or_none(member(message, "id"))
        self.model = self.model or text_or_none(member(message, "model"))

    def _read_usage(self, usage: Any, known: Mapping[str, int] = _NOTHING) -> None:
        """Overwrite, but what is known: the figures of `message_delta` are cumulative."""
        self._tokens |= {name: n for name, n in counted(usage).items() if name not in known}

    def _read_reason(self, delta: Any) -> None:
        raw = member(delta, "stop_reason")
        if self._raw is not None or raw_text(raw) is None:
            return
        self._raw = raw
        matched = text_or_none(member(delta, "stop_sequence"))
        self._detail = matched or text_or_none(member(member(delta, "stop_details"), "category"))

    def _read_block(self, index: int, block: Any, *, closed: bool) -> None:
        kind = text(member(block, "type"))
        self._blocks[index] = _Block(kind, closed)
        if kind == "text":
            self._tail.add(text(member(block, "text")))
        elif kind == "fallback":
            # "The fallback model producing the content that follows this block."
            self.model = text_or_none(member(member(block, "to"), "model")) or self.model

    def _row(self) -> Row | None:
        raw = raw_text(self._raw)
        return None if raw is None else find_row(raw, rows_of(self._ctx))

    def _judge(self, left: bool) -> Stop:
        if self.broken:
            return broken(self._error)
        raw, row = raw_text(self._raw), self._row()
        # An error that broke nothing came after the end, or after a reason that it does not change.
        ended = self.over or self._error is not None or (left and raw is not None)
        calls = [self._blocks[index] for index in sorted(self._blocks) if self._blocks[index].kind == CLIENT_CALL]
        if calls and raw is not None and ended and (row is None or row.incomplete):
            # Servers and proxies close the block that a limit cut, and fill it up to valid JSON ({}).
            calls[-1].closed = False
        usage = summed(self._tokens)
        return find_stop(
            raw,
            rows_of(self._ctx),
            terminal_seen=ended,
            calls=len(calls),
            calls_closed=all(block.closed for block in calls),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=self._detail if self._error is None else label_of(self._error),
        )
