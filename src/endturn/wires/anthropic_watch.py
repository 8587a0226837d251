"""What a response of the Messages API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Resume, Row, Stop, StopReason, find_row, normalize, raw_text
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import PIECES, Tail, count, items, member, text, text_or_none

REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": {
        "end_turn": Row(StopReason.END_TURN, source="anthropic 2.12 StopReason"),
        "max_tokens": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source="anthropic 2.12 StopReason"),
        "stop_sequence": Row(StopReason.END_TURN, detail="stop_sequence", source="anthropic 2.12 StopReason"),
        "tool_use": Row(StopReason.TOOL_CALL, source="anthropic 2.12 StopReason"),
        # "You may provide the response back as-is in a subsequent request to let the model continue."
        "pause_turn": Row(StopReason.PAUSED, True, Resume.RESEND_UNCHANGED, source="anthropic 2.12 StopReason"),
        # The turn is handed back before the model answers; the SDK's own tool runner resends it unchanged.
        "compaction": Row(StopReason.PAUSED, True, Resume.RESEND_UNCHANGED, source="anthropic 2.12 BetaStopReason"),
        "refusal": Row(StopReason.REFUSED, True, source="anthropic 2.12 StopReason"),
        "model_context_window_exceeded": Row(
            StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="anthropic 2.12 StopReason"
        ),
    }
}
"""dialect → raw value → row. Everyone who speaks this format uses its words."""

# "The request is a compaction request … nothing is sampled after the block": then it is all that was asked for.
_ASKED_COMPACTION: Final = {**REASONS[""], "compaction": Row(StopReason.END_TURN, source="anthropic 2.12 compaction")}

CLIENT_CALL: Final = "tool_use"
"""Blocks of other types that end in `_tool_use` are calls of tools that the server runs."""

_COUNTED: Final = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)


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
        "_pieces",
        "_put",
        "_raw",
        "_tail",
        "_tokens",
        "_whole",
        "broken",
        "id",
        "model",
        "over",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        # The tail's own list, and its append: what a piece of text costs is these two names.
        self._pieces = self._tail.pieces
        self._put = self._tail.pieces.append
        self._blocks: dict[int, _Block] = {}
        self._tokens: dict[str, int] = {}
        self._raw: Any = None
        self._detail: str | None = None
        self._error: Any = None
        self._whole = False
        self.over = False
        # An error came before the end. After a reason for which the answer is cut anyway it changes nothing.
        self.broken = False
        self.id: str | None = None
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        try:
            if event.__class__ is dict:
                if event["type"] == "content_block_delta":
                    delta = event["delta"]
                    if delta["type"] == "text_delta":
                        piece = delta["text"]
                        if piece.__class__ is str:
                            self._put(piece)
                            if len(self._pieces) > PIECES:
                                self._tail.settle()
                        return
            elif event.type == "content_block_delta":
                delta = event.delta
                if delta.type == "text_delta":
                    piece = delta.text
                    if piece.__class__ is str:
                        self._put(piece)
                        if len(self._pieces) > PIECES:
                            self._tail.settle()
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
            self._usage(),
            self.id,
            self.model,
            self._tail.last,
            self._tail.chars,
            (raw_text(self._raw),),
        )

    def closed(self, index: int) -> bool:
        """Whether the block of that index is whole; right after `close`."""
        return index in self._blocks and self._blocks[index].closed

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
        # The type decides, at the top alone: an advisor's or a tool's result may hold a whole message with a stop
        # reason of its own.
        kind = member(event, "type")
        if kind == "message_start":
            self._read_head(member(event, "message"))
            # "output_tokens": 1 stands there before anything is generated.
            self._tokens.pop("output_tokens", None)
        elif kind == "content_block_start":
            self._read_block(member(event, "index"), member(event, "content_block"), closed=False)
        elif kind == "content_block_delta":
            # Of a mapping that is no dict, or of an Event.
            delta = member(event, "delta")
            if member(delta, "type") == "text_delta":
                self._tail.add(text(member(delta, "text")))
        elif kind == "content_block_stop":
            block = self._blocks.get(count(member(event, "index")) or 0)
            if block is not None:
                block.closed = True
        elif kind == "message_delta":
            self._read_reason(member(event, "delta"))
            self._read_usage(member(event, "usage"))
        elif kind == "message_stop":
            self.over = True
        elif kind == "error":
            if self._error is None:
                self._error = member(event, "error") or "error"
                row = self._row()
                self.broken = not self.over and not (row is not None and row.incomplete)
        elif kind == "message" or (kind is None and member(event, "content") is not None):
            self._whole = self.over = True
            self._read_head(event)
            self._read_reason(event)
            for index, block in enumerate(items(member(event, "content"))):
                self._read_block(index, block, closed=True)

    def _read_head(self, message: Any) -> None:
        self.id = text_or_none(member(message, "id"))
        self.model = text_or_none(member(message, "model"))
        self._read_usage(member(message, "usage"))

    def _read_usage(self, usage: Any) -> None:
        """Overwrite: the figures of `message_delta` are cumulative."""
        for name in _COUNTED:
            tokens = count(member(usage, name))
            if tokens is not None:
                self._tokens[name] = tokens
        thought = count(member(member(usage, "output_tokens_details"), "thinking_tokens"))
        if thought is not None:
            self._tokens["thinking_tokens"] = thought

    def _read_reason(self, delta: Any) -> None:
        raw = member(delta, "stop_reason")
        if self._raw is not None or raw_text(raw) is None:
            return
        self._raw = raw
        matched = text_or_none(member(delta, "stop_sequence"))
        self._detail = matched or text_or_none(member(member(delta, "stop_details"), "category"))

    def _read_block(self, index: Any, block: Any, *, closed: bool) -> None:
        place = count(index)
        kind = text(member(block, "type"))
        self._blocks[len(self._blocks) if place is None else place] = _Block(kind, closed)
        if kind == "text":
            self._tail.add(text(member(block, "text")))

    def _usage(self) -> Usage | None:
        tokens = self._tokens
        if not tokens:
            return None
        read, written = tokens.get("cache_read_input_tokens"), tokens.get("cache_creation_input_tokens")
        fresh = tokens.get("input_tokens")
        # "Total input tokens in a request is the summation of" the three.
        whole = None if fresh is None else fresh + (read or 0) + (written or 0)
        return Usage(whole, tokens.get("output_tokens"), tokens.get("thinking_tokens"), read, written)

    def _rows(self) -> Mapping[str, Row]:
        return _ASKED_COMPACTION if self._ctx.asked.compaction else REASONS[""]

    def _row(self) -> Row | None:
        raw = raw_text(self._raw)
        return None if raw is None else find_row(raw, self._rows())

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
        usage = self._usage()
        return normalize(
            raw,
            self._rows(),
            terminal_seen=ended,
            calls=len(calls),
            calls_closed=all(block.closed for block in calls),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=self._detail if self._error is None else label_of(self._error),
        )
