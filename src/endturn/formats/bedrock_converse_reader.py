"""What Bedrock's Converse API answers, as parts; and what its words mean."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeGuard

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.stop_reasons import tables

NAME: Final = "bedrock_converse"

REASONS: Final = tables(NAME)
"""dialect → raw value → row."""

_EVENTS: Final = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
_COUNTED: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


def client_call(use: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a `toolUse` is the client's to run: its type is not `server_tool_use`. Some models write `tool_use`."""
    return isinstance(use, Mapping) and use.get("type") != "server_tool_use"


def visible(block: Any) -> str:
    """The text that a content block shows to the user; what stands beside citations is such text."""
    cited = items(member(member(block, "citationsContent"), "content"))
    return text(member(block, "text")) + "".join(text(member(part, "text")) for part in cited)


class Reader:
    """Reads events, each an object of one member, or one whole body. boto3 gives blobs as bytes."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._tokens: dict[str, int] = {}
        # The blocks by index that began, and which of them are calls of the client's.
        self._begun: set[int] = set()
        self._calls: set[int] = set()

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        if not isinstance(event, dict):
            return
        if event.get("output") is not None:
            yield from self._whole(event)
            return
        for name, payload in event.items():
            index = count(member(payload, "contentBlockIndex")) or 0
            match name:
                case "contentBlockDelta":
                    delta = member(payload, "delta")
                    said = text(member(delta, "text"))
                    if said:
                        yield Text(said)
                    if self._keep or not said:
                        yield from self._delta(index, delta)
                case "contentBlockStart":
                    yield from self._start(index, member(payload, "start"))
                case "contentBlockStop":
                    if index in self._calls:
                        yield Call(index, closed=True)
                case "messageStop":
                    yield _reason(payload)
                case "metadata":
                    yield from self._figures(payload)
                    yield End()
                case _ if (error := _failure(name, payload)) is not None:
                    yield Fault(error)

    def _whole(self, body: Json) -> Iterator[Part]:
        for index, block in enumerate(items(member(member(body["output"], "message"), "content"))):
            yield Text(visible(block))
            yield Reasoning(text(member(member(member(block, "reasoningContent"), "reasoningText"), "text")))
            yield from self._start(index, block, whole=True)
        yield _reason(body)
        yield from self._figures(body)
        yield End(whole=True)

    def _start(self, index: int, block: Any, *, whole: bool = False) -> Iterator[Part]:
        """A block begins, or is there: an object with one member, named after its kind."""
        self._begun.add(index)
        self._calls.discard(index)
        use = member(block, "toolUse")
        if isinstance(use, dict):
            use = use if whole else {**use, "input": ""}
            if client_call(use):
                # An id for a call that has none, in the block too: the result that answers it must name the same.
                use = {**use, "toolUseId": text(use.get("toolUseId")) or minted(text(use.get("name")), index)}
                given = use.get("input") if whole else {}
                self._calls.add(index)
                known = given if isinstance(given, dict | str) else ""
                yield Call(index, use["toolUseId"], text(use.get("name")), known, closed=whole)
            block = {**block, "toolUse": use}
        if self._keep and isinstance(block, dict):
            yield Block(index, _written(block))

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        """A piece of a block. Text and reasoning begin without a start."""
        for kind, content in delta.items() if isinstance(delta, dict) else ():
            piece: Json = {kind: content}
            match kind:
                case "text":
                    piece = {kind: text(content)}
                case "citation":
                    piece = {"citations": [content]}
                case "toolResult":
                    piece = {kind: {"content": list(items(content))}}
                case "toolUse":
                    if index not in self._begun:
                        return  # A call that nobody named.
                    said = text(member(content, "input"))
                    piece = {kind: {"input": said}}
                    if index in self._calls:
                        yield Call(index, arguments=said)
                case "reasoningContent":
                    thought, signature = text(member(content, "text")), text_or_none(member(content, "signature"))
                    yield Reasoning(thought)
                    redacted = member(content, "redactedContent")
                    if redacted is not None:
                        piece = {kind: {"redactedContent": [redacted]}}
                    else:
                        signed = {"signature": signature} if signature else {}
                        piece = {kind: {"reasoningText": {"text": thought, **signed}}}
                case _ if not isinstance(content, dict):
                    return
            if self._keep:
                self._begun.add(index)
                yield Block(index, piece if kind in ("text", "toolUse") else _written(piece))

    def _figures(self, holder: Any) -> Iterator[Part]:
        usage = member(holder, "usage")
        found = {name: count(member(usage, name)) for name in _COUNTED}
        self._tokens |= {name: tokens for name, tokens in found.items() if tokens is not None}
        if self._tokens:
            fresh, said, read, written = map(self._tokens.get, _COUNTED)
            # inputTokens are those that went neither into a cache nor came from one (user guide, "Prompt caching").
            asked = None if fresh is None else fresh + (read or 0) + (written or 0)
            yield Tokens(Usage(asked, said, None, read, written))
        # Where a prompt router was asked, the model that it chose; the API names no other.
        router = member(member(holder, "trace"), "promptRouter")
        yield Head(model=text_or_none(member(router, "invokedModelId")))


def _reason(holder: Any) -> Part:
    # What matched is told only where the request asked for it: additionalModelResponseFieldPaths ["/stop_sequence"],
    # and for streams ["/delta/stop_sequence"], for the fields are those of the model's own last event.
    fields = member(holder, "additionalModelResponseFields")
    matched = (member(each, "stop_sequence") for each in (fields, member(fields, "delta")))
    return Reason(member(holder, "stopReason"), detail=next(filter(None, map(text, matched)), None))


def _failure(name: Any, payload: Any) -> Json | None:
    """An exception event as an error, its type beside its message; None for any other event."""
    if not isinstance(name, str) or name in _EVENTS:
        return None
    if not name.endswith("Exception") and not text(member(payload, "message")):
        return None
    return {**(payload if isinstance(payload, dict) else {}), "type": name}


def _written(block: Json) -> Json:
    """A block as JSON has it: its blobs in base64."""
    try:
        written: Json = json.loads(json.dumps(block, default=lambda blob: base64.b64encode(blob).decode()))
    except (TypeError, ValueError, RecursionError):
        return block
    return written


def _blocks(fold: Fold) -> Iterable[Json]:
    """The content blocks as a body has them, from their pieces."""
    blocks: Any = fold.blocks
    for index in sorted(blocks):
        match blocks[index]:
            case {"citations": citations, **rest}:
                said = {"text": text(rest.get("text"))}
                yield {"citationsContent": {"content": [said], "citations": citations}}
            case {"toolUse": {"input": str(raw), **use}}:
                parsed = arguments(raw) if raw else {}
                # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
                yield {"toolUse": {**use, "input": raw if parsed is None else parsed}}
            case {"reasoningContent": {"redactedContent": list(pieces)}}:
                joined = base64.b64encode(b"".join(map(_decoded, pieces))).decode()
                yield {"reasoningContent": {"redactedContent": joined}}
            case block:
                yield block


def _decoded(piece: Any) -> bytes:
    try:
        return base64.b64decode(text(piece))
    except (binascii.Error, ValueError):
        return b""


def _faulty(data: Any, whole: bool) -> str | None:
    if whole:
        content = member(member(member(data, "output"), "message"), "content")
        listed = isinstance(content, list) and all(isinstance(block, dict) for block in content)
        return None if listed else "an answer of Converse has a list of content blocks as its `output.message.content`"
    if not isinstance(data, dict):
        return f"an event of a Converse stream is an object, not {shortened(repr(data), 80)}"
    for name, inner, what in _NESTED:
        if name in data and not isinstance(member(data[name], inner), dict):
            return f"{what} is an object, not {shortened(repr(data[name]), 80)}"
    return None


_NESTED: Final = (
    ("contentBlockStart", "start", "the start of a content block"),
    ("contentBlockDelta", "delta", "a delta"),
)


def _failed(data: Any) -> Any:
    """The exception that stands where an answer should."""
    if not isinstance(data, dict) or data.get("output") is not None:
        return None
    return next((error for each in data.items() if (error := _failure(*each)) is not None), None)


REPLY: Final = Reply(
    name=NAME, reader=Reader, rows=lambda ctx: REASONS[""], faulty=_faulty, failed=_failed, blocks=_blocks
)
