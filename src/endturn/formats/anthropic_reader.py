"""What the Messages API answers, as parts; and what its words mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop import Row, StopReason, raw_text
from endturn.stop_reasons import tables

NAME: Final = "anthropic"

REASONS: Final = tables(NAME)
"""dialect → raw value → row. Everyone who speaks this format uses its words; Bedrock has one more."""

# "The request is a compaction request … nothing is sampled after the block": then it is all that was asked for.
_ASKED_COMPACTION: Final = {"compaction": Row(StopReason.END_TURN, source="anthropic 2.12 compaction")}

CLIENT_CALL: Final = "tool_use"
"""Blocks of other types that end in `_tool_use` are calls of tools that the server runs."""

_COUNTED: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def rows_of(ctx: Context) -> Mapping[str, Row]:
    """The table that a response's reason is looked up in."""
    # Anthropic's own client for Bedrock speaks InvokeModel too.
    dialect = "bedrock" if ctx.provider == "aws.bedrock" else ctx.dialect
    rows = REASONS.get(dialect) or REASONS[""]
    return {**rows, **_ASKED_COMPACTION} if ctx.asked.compaction else rows


class Reader:
    """Reads events, or one whole message. The type decides, at the top alone: a tool's result may hold a message."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._tokens: dict[str, int] = {}
        self._id: str | None = None
        # The blocks by index, and which of them are calls of the client's.
        self._begun: set[int] = set()
        self._calls: set[int] = set()
        # The message of `message_start`, and the blocks in it that may yet be sent again.
        self._head: Any = None
        self._held: dict[int, Any] = {}
        self._spoke = False
        self._reasoned = False
        self._over = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind = member(event, "type")
        match kind:
            case "content_block_delta":
                delta = member(event, "delta")
                if member(delta, "type") == "text_delta" and not (self._keep or self._held):
                    self._spoke = True
                    yield Text(text(member(delta, "text")))
                else:
                    yield from self._delta(delta, count(member(event, "index")))
            case "content_block_start":
                index = count(member(event, "index"))
                place = len(self._begun) if index is None else index
                self._held.pop(place, None)
                yield from self._release(before=place)
                yield from self._block(place, member(event, "content_block"))
            case "content_block_stop":
                index = count(member(event, "index")) or 0
                if index in self._calls:
                    yield Call(index, closed=True)
            case "message_start":
                yield from self._start(member(event, "message"))
            case "message_delta":
                yield from self._release()
                yield from self._reason(member(event, "delta"))
                yield from self._usage(member(event, "usage"))
            case "message_stop":
                yield from self._release()
                if not self._reasoned and raw_text(member(self._head, "stop_reason")) is not None:
                    yield from self._reason(self._head)
                    yield from self._usage(member(self._head, "usage"), known=True)
                self._over = True
                yield End()
            case "error":
                yield Fault(member(event, "error") or "error")
            case "message":
                yield from self._whole(event)
            case None if member(event, "content") is not None:
                yield from self._whole(event)

    def _start(self, message: Any) -> Iterator[Part]:
        """The head of a message. Proxies and cached replies send all of it there, blocks and reason too."""
        self._head = message
        yield self._name(message)
        yield from self._usage(member(message, "usage"), without="output_tokens")  # 1, before anything is generated
        content = enumerate(items(member(message, "content")))
        self._held = {index: block for index, block in content if index not in self._begun}
        if self._over:  # Out of order: nothing is to come that would count them.
            yield from self._release()

    def _whole(self, message: Any) -> Iterator[Part]:
        """A body; or, within a stream, the message again that its events have told: then only what they left out."""
        begun = self._head is not None or bool(self._begun) or self._spoke
        yield from self._release()
        yield self._name(message)
        yield from self._usage(member(message, "usage"), known=True)
        yield from self._reason(message)
        if not self._begun and not self._spoke:
            self._held = dict(enumerate(items(member(message, "content"))))
            yield from self._release()
        if not begun or raw_text(member(message, "stop_reason")) is not None:
            self._over = True
            yield End()

    def _name(self, message: Any) -> Part:
        self._id = self._id or text_or_none(member(message, "id"))
        return Head(self._id, text_or_none(member(message, "model")))

    def _release(self, before: int | None = None) -> Iterator[Part]:
        """The blocks that came whole and were not sent again, all or those before an index."""
        for index in [index for index in self._held if before is None or index < before]:
            yield from self._block(index, self._held.pop(index))
            if index in self._calls:
                yield Call(index, closed=True)

    def _block(self, index: int, block: Any) -> Iterator[Part]:
        self._begun.add(index)
        kind = member(block, "type")
        id_ = text(member(block, "id"))
        if kind == CLIENT_CALL:
            # An id for a call that has none, in the block too: the result that answers it must name the same.
            id_ = id_ or minted(self._id, index)
            self._calls.add(index)
            given = member(block, "input")
            yield Call(
                index, id_, text(member(block, "name")), given if isinstance(given, dict | str) else None, closed=False
            )
        elif kind == "text":
            said = text(member(block, "text"))
            self._spoke = self._spoke or said != ""
            yield Text(said)
        elif kind == "thinking":
            yield Reasoning(text(member(block, "thinking")))
        elif kind == "fallback":
            # "The fallback model producing the content that follows this block."
            yield Head(model=text_or_none(member(member(block, "to"), "model")), replaces=True)
        if self._keep and isinstance(block, Mapping):
            yield Block(index, {**block, "id": id_} if kind == CLIENT_CALL else dict(block), begins=True)

    def _delta(self, delta: Any, index: int | None) -> Iterator[Part]:
        kind = text(member(delta, "type"))
        place = max(self._begun, default=0) if index is None else index
        if place not in self._begun and self._held:
            yield from self._release(before=place + 1)  # A block of `message_start` that goes on.
        name = _PIECES.get(kind)
        if name is None or (kind not in ("text_delta", "thinking_delta") and place not in self._begun):
            return
        piece = member(delta, name)
        if kind == "text_delta":
            self._spoke = self._spoke or text(piece) != ""
            yield Text(text(piece))
        elif kind == "thinking_delta":
            yield Reasoning(text(piece))
        elif kind == "input_json_delta" and place in self._calls:
            yield Call(place, arguments=text(piece))
        if self._keep:
            yield Block(place, _piece(kind, name, piece, delta, begun=place in self._begun))
            self._begun.add(place)

    def _reason(self, holder: Any) -> Iterator[Part]:
        raw = member(holder, "stop_reason")
        if raw_text(raw) is not None:
            self._reasoned = True
            matched = text_or_none(member(holder, "stop_sequence"))
            yield Reason(raw, detail=matched or text_or_none(member(member(holder, "stop_details"), "category")))

    def _usage(self, usage: Any, *, known: bool = False, without: str = "") -> Iterator[Part]:
        """The figures of `message_delta` are cumulative. `known`: those that were told stand."""
        found = {name: count(member(usage, name)) for name in _COUNTED if name != without}
        found["thinking_tokens"] = count(member(member(usage, "output_tokens_details"), "thinking_tokens"))
        self._tokens |= {
            name: figure
            for name, figure in found.items()
            if figure is not None and not (known and name in self._tokens)
        }
        if self._tokens:
            get = self._tokens.get
            fresh, read, written = (get(name) for name in ("input_tokens", *_COUNTED[2:]))
            # "Total input tokens in a request is the summation of" the three.
            asked = None if fresh is None else fresh + (read or 0) + (written or 0)
            yield Tokens(Usage(asked, get("output_tokens"), get("thinking_tokens"), read, written))


_PIECES: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
    "citations_delta": "citation",
    "compaction_delta": "content",
}
"""What each kind of delta adds to."""


def _piece(kind: str, name: str, piece: Any, delta: Any, *, begun: bool) -> Json:
    """What a delta adds to its block. Text without the start of its block is text all the same."""
    if kind == "citations_delta":
        return {"citations": [piece]}
    if kind == "compaction_delta":
        return {each: value for each, value in delta.items() if each != "type"}
    return {name: text(piece)} if begun else {"type": name, name: text(piece)}


def _blocks(fold: Fold) -> Iterable[Json]:
    """The content blocks: a call's input as the object that its pieces are."""
    blocks: Any = fold.blocks
    for index in sorted(blocks):
        block = blocks[index]
        raw = block.pop("partial_json", "")
        if raw:
            parsed = arguments(raw)
            # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
            block["input"] = raw if parsed is None else parsed
        yield block


def _faulty(data: Any, whole: bool) -> str | None:
    if not isinstance(data, Mapping):
        return (
            f"{'a message' if whole else 'an event of a message stream'} is an object, not {shortened(repr(data), 80)}"
        )
    if whole:
        content = data.get("content")
        listed = isinstance(content, list) and all(isinstance(block, Mapping) for block in content)
        if data.get("type") not in ("message", None) or not listed:
            return "a message has a list of content blocks as its `content`"
        return None
    match data.get("type"):
        case "content_block_start" if not isinstance(data.get("content_block"), Mapping):
            return "a content block is not an object"
        case "content_block_delta" if not isinstance(data.get("delta"), Mapping):
            return "a delta is not an object"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    if isinstance(data, Mapping) and (data.get("type") == "error" or ("content" not in data and data.get("error"))):
        return data
    return None


REPLY: Final = Reply(
    name=NAME, reader=Reader, rows=rows_of, faulty=_faulty, failed=_failed, blocks=_blocks, has_end=True
)
