"""The Messages API of Anthropic, and of those who speak it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, cast

from endturn.chat import Json
from endturn.formats.encoding import encodes
from endturn.formats.fold import Fold
from endturn.formats.format import Format, error_beside
from endturn.formats.framing import DONE
from endturn.formats.next_request import resumes
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, usage_in
from endturn.formats.reading import count, items, member, minted, object_or_text, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Voice
from endturn.stop import Row, StopReason, raw_text
from endturn.stop_reasons import tables

NAME: Final = "anthropic"

REASONS: Final = tables(NAME)
"""dialect → raw value → row. Everyone who speaks this format uses its words; Bedrock has one more."""

# "The request is a compaction request … nothing is sampled after the block": then it is all that was asked for.
_ASKED_COMPACTION: Final = {"compaction": Row(StopReason.END_TURN, source="anthropic 2.12 compaction")}

# --- Replies ----------------------------------------------------------------------------------------------------------

_CLIENT_CALL: Final = "tool_use"
"""Blocks of other types that end in `_tool_use` are calls of tools that the server runs."""
_PIECES: Final[Mapping[str, tuple[str, ...]]] = {
    "text_delta": ("text",),
    "thinking_delta": ("thinking",),
    "input_json_delta": ("partial_json",),
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}
"""What each kind of delta adds to its block."""


class Reader:
    """Reads events, or one whole message. The type decides, at the top alone: a tool's result may hold a message."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._head: Any = None
        self._begun: dict[int, str] = {}  # the types of the blocks that have begun, by index
        self._told: Json = {}  # of its usage
        self._stopped = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        if event == DONE:  # GitHub Copilot's proxy sends it in place of `message_stop`, older vLLM after it
            if self._stopped:
                yield End()
            return
        index = count(member(event, "index")) or 0
        match member(event, "type"):
            case "content_block_delta":
                yield from self._delta(index, member(event, "delta"))
            case "content_block_start":
                yield from self._block(index, member(event, "content_block"))
            case "content_block_stop" if self._begun.get(index) == _CLIENT_CALL:
                yield Call(index, closed=True)
            case "message_start":
                self._head = member(event, "message")
                # Its output is not yet generated, but where proxies and cached replies say all of it here.
                begins = member(self._head, "stop_reason") is None
                yield from self._about(self._head, without="output_tokens" if begins else "")
            case "message_delta":
                yield from self._content(self._head)
                yield from self._reason(member(event, "delta"))
                yield from self._usage(member(event, "usage"))
            case "message_stop":
                yield from self._content(self._head)
                yield from self._reason(self._head)
                yield End()
            case "error":
                yield Fault(member(event, "error") or "error")
            case "message" | None as kind if kind or member(event, "content") is not None:
                # A body; or the message once more at the end of its stream, as one-api and its kind send it.
                again = self._head is not None or bool(self._begun)
                self._head = self._head or event
                yield from self._about(event)
                yield from self._content(event)
                yield from self._reason(event)
                if self._stopped or not again:
                    yield End()

    def _about(self, message: Any, *, without: str = "") -> Iterator[Part]:
        yield Head(text_or_none(member(message, "id")), text_or_none(member(message, "model")))
        yield from self._usage(member(message, "usage"), without=without)

    def _content(self, message: Any) -> Iterator[Part]:
        """The blocks of a whole message, unless their own events have told them."""
        for index, block in enumerate(() if self._begun else items(member(message, "content"))):
            yield from self._block(index, block)
            if self._begun[index] == _CLIENT_CALL:
                yield Call(index, closed=True)

    def _block(self, index: int, block: Any) -> Iterator[Part]:
        kind = self._begun[index] = text(member(block, "type"))
        if kind == _CLIENT_CALL:
            # An id for a call that has none, in the block too: the result that answers it must name the same.
            id_ = text(member(block, "id")) or minted(text_or_none(member(self._head, "id")), index)
            block = {**block, "id": id_}
            given = block.get("input")
            known = given if isinstance(given, dict | str) else None
            yield Call(index, id_, text(block.get("name")), known, closed=False)
        elif kind == "text":
            yield Text(text(member(block, "text")))
        elif kind == "thinking":
            yield Reasoning(text(member(block, "thinking")))
        elif kind == "fallback":
            # "The fallback model producing the content that follows this block."
            yield Head(model=text_or_none(member(member(block, "to"), "model")), replaces=True)
        if self._keep and isinstance(block, Mapping):
            yield Block(index, dict(block), begins=True)

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        kind = text(member(delta, "type"))
        if index not in self._begun:
            if kind not in ("text_delta", "thinking_delta"):
                return
            # Text whose block has no start is text all the same.
            yield from self._block(index, {"type": kind.removesuffix("_delta")})
        if kind == "text_delta":
            yield Text(text(member(delta, "text")))
        elif kind == "thinking_delta":
            yield Reasoning(text(member(delta, "thinking")))
        elif kind == "input_json_delta" and self._begun[index] == _CLIENT_CALL:
            yield Call(index, arguments=text(member(delta, "partial_json")))
        if self._keep and kind == "citations_delta":
            yield Block(index, {"citations": [member(delta, "citation")]})
        elif self._keep:
            yield Block(index, {name: delta[name] for name in _PIECES.get(kind, ()) if name in delta})

    def _reason(self, holder: Any) -> Iterator[Part]:
        raw, matched = member(holder, "stop_reason"), text_or_none(member(holder, "stop_sequence"))
        self._stopped = self._stopped or raw_text(raw) is not None
        yield Reason(raw, detail=matched or text_or_none(member(member(holder, "stop_details"), "category")))

    def _usage(self, usage: Any, *, without: str = "") -> Iterator[Part]:
        """The figures of `message_delta` are cumulative; it may have but the output."""
        told = usage if isinstance(usage, Mapping) else {}
        self._told |= {name: value for name, value in told.items() if value is not None and name != without}
        if (found := usage_in(NAME, self._told)) is not None:
            yield Tokens(found)


def _rows_of(ctx: Context) -> Mapping[str, Row]:
    # Anthropic's own client for Bedrock speaks InvokeModel too.
    dialect = "bedrock" if ctx.provider == "aws.bedrock" else ctx.dialect
    rows = REASONS.get(dialect) or REASONS[""]
    return {**rows, **_ASKED_COMPACTION} if ctx.asked.compaction else rows


def _blocks(fold: Fold) -> Iterable[Json]:
    """The content blocks: a call's input as the object that its pieces are."""
    for _, block in sorted(cast(dict[int, Json], fold.blocks).items()):
        if raw := text(block.pop("partial_json", "")):
            block["input"] = object_or_text(raw)
        yield block


FORMAT: Final = Format(
    name=NAME,
    provider="anthropic",
    voice=Voice("msg_", "toolu_", "request-id"),
    paths={"": "/v1/messages"},
    routed=routed_by(rf"{SEGMENTS}/v1/messages"),
    body=encodes(NAME),
    resume=resumes(NAME, lambda said: {"type": "text", "text": said}),
    reader=Reader,
    own_rows=_rows_of,
    called=("a message", "an event of a message stream"),
    needs=("content",),
    objects=("content[]",),
    failed=error_beside("content"),
    blocks=_blocks,
    has_end=True,
    # It always says how much was used.
    says=lambda response, stop, dialect: {} if response.usage else {"usage": {"input_tokens": 0, "output_tokens": 0}},
)
