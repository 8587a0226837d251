"""Responses of Bedrock's Converse API, whole or streamed, as ours."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.bedrock_converse_watch import Watch, client_call, place, visible
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.reading import arguments, items, minted, text

NAME: Final = "bedrock_converse"


class _Part:
    """One content block while it is built. A block is an object with one member, named after its kind."""

    __slots__ = ("call", "citations", "content", "json", "kind", "redacted", "said", "signature")

    def __init__(self, kind: str, content: Json | None = None) -> None:
        self.kind = kind
        self.content: Json = content or {}
        self.said: list[str] = []
        self.json: list[str] = []
        self.signature: list[str] = []
        self.redacted: list[bytes] = []
        self.citations: list[Any] = []
        self.call: int | None = None

    def finished(self) -> Json:
        """The block as a body has it."""
        said = "".join(self.said)
        match self.kind:
            case "text" if self.citations:
                return {"citationsContent": {"content": [{"text": said}], "citations": self.citations}}
            case "text":
                return {"text": said}
            case "reasoningContent" if self.redacted:
                return {"reasoningContent": {"redactedContent": base64.b64encode(b"".join(self.redacted)).decode()}}
            case "reasoningContent":
                signature = {"signature": "".join(self.signature)} if self.signature else {}
                return {"reasoningContent": {"reasoningText": {"text": said, **signature}}}
            case "toolUse":
                raw = "".join(self.json)
                parsed = arguments(raw) if raw else {}
                # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
                return {"toolUse": {**self.content, "input": raw if parsed is None else parsed}}
            case _:
                return {self.kind: self.content}


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_calls", "_ctx", "_parts", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch = Watch(ctx)
        self._parts: dict[int, _Part] = {}
        self._calls = 0

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an exception before its end; `partial` holds what had arrived.
        """
        data = event.data
        if not isinstance(data, Mapping):
            raise self._foreign("an event of a Converse stream is an object", data)
        self._watch.see(data)
        if self._watch.broken:
            failure = error_of(200, {}, self._watch.error, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        if "contentBlockStart" in data:
            return self._start(data["contentBlockStart"])
        return self._delta(data["contentBlockDelta"]) if "contentBlockDelta" in data else ()

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        parts = {index: self._parts[index] for index in sorted(self._parts)}
        blocks = {index: part.finished() for index, part in parts.items()}
        return _response(self._watch, blocks, {index: "".join(part.json) for index, part in parts.items()})

    def _foreign(self, expected: str, found: Any) -> DecodeError:
        return DecodeError(f"{expected}, not {shortened(repr(found), 80)}", provider=self._ctx.provider)

    def _start(self, payload: Any) -> Iterable[Delta]:
        start = payload.get("start") if isinstance(payload, Mapping) else None
        if not isinstance(start, Mapping):
            raise self._foreign("the start of a content block is an object", payload)
        index = place(payload)
        for kind, content in start.items():
            if not isinstance(content, Mapping):
                continue
            part = self._parts[index] = _Part(kind, dict(content))
            if kind == "toolUse" and client_call(content):
                part.content |= _named(content, index)
                part.call = self._calls
                self._calls += 1
                name = text(content.get("name")) or None
                return (Delta(call=CallFragment(part.call, part.content["toolUseId"], name)),)
        return ()

    def _delta(self, payload: Any) -> Iterable[Delta]:
        delta = payload.get("delta") if isinstance(payload, Mapping) else None
        if not isinstance(delta, Mapping):
            raise self._foreign("a delta is an object", payload)
        # The type of a union: one member. Text and reasoning begin without a start.
        for kind, content in delta.items():
            begun = self._parts.get(place(payload))
            if begun is None:
                if kind == "toolUse":
                    return ()  # A call that nobody named.
                begun = self._parts[place(payload)] = _Part("text" if kind == "citation" else kind)
            return _add(begun, kind, content)
        return ()


def _add(part: _Part, kind: str, content: Any) -> Iterable[Delta]:
    """Add one delta to its block."""
    if kind == "text":
        said = text(content)
        part.said.append(said)
        return (Delta(text=said),) if said else ()
    if kind == "citation":
        part.citations.append(content)
    elif kind == "toolResult":
        part.content["content"] = [*items(part.content.get("content")), *items(content)]
    elif not isinstance(content, Mapping):
        return ()
    elif kind == "toolUse":
        piece = text(content.get("input"))
        part.json.append(piece)
        return () if part.call is None else (Delta(call=CallFragment(part.call, arguments=piece)),)
    elif kind == "reasoningContent":
        thought = text(content.get("text"))
        part.said.append(thought)
        part.signature += filter(None, [text(content.get("signature"))])
        part.redacted += filter(None, [_bytes(content.get("redactedContent"))])
        return (Delta(reasoning=thought),) if thought else ()
    else:
        part.content |= _written({kind: content})[kind]
    return ()


def _bytes(value: Any) -> bytes:
    """A blob: base64 on the wire, bytes from boto3."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(text(value))
    except (binascii.Error, ValueError):
        return b""


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response; from boto3, where blobs are bytes, too. The body has no id, and names no model.

    Raises:
        DecodeError: it is not an answer of Converse.
    """
    output = body.get("output") if isinstance(body, Mapping) else None
    message = output.get("message") if isinstance(output, Mapping) else None
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list) or not all(isinstance(block, Mapping) for block in content):
        raise DecodeError(
            "an answer of Converse has a list of content blocks as its `output.message.content`",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    watch = Watch(ctx)
    watch.see(body)
    blocks = {index: _written(block) for index, block in enumerate(content)}
    for index, block in blocks.items():
        if client_call(block.get("toolUse")):
            block["toolUse"] = {**block["toolUse"], **_named(block["toolUse"], index)}
    return _response(watch, blocks, {}, headers)


def _written(block: Mapping[str, Any]) -> Json:
    """A block as JSON has it: its blobs, which boto3 gives as bytes, in base64."""
    written = dict(block)
    for kind, content in block.items():
        if not isinstance(content, Mapping):
            continue
        if isinstance(content.get("redactedContent"), bytes):
            written[kind] = {**content, "redactedContent": base64.b64encode(content["redactedContent"]).decode()}
        source = content.get("source")
        if isinstance(source, Mapping) and isinstance(source.get("bytes"), bytes):
            image = base64.b64encode(source["bytes"]).decode()
            written[kind] = {**content, "source": {**source, "bytes": image}}
    return written


def _named(use: Mapping[str, Any], index: int) -> Json:
    """The id of a call, minted where it has none; in the block too, for the result that answers it names the same."""
    return {"toolUseId": text(use.get("toolUseId")) or minted(text(use.get("name")), index)}


def _thought(block: Json) -> str:
    reasoning = block.get("reasoningContent")
    thought = reasoning.get("reasoningText") if isinstance(reasoning, Mapping) else None
    return text(thought.get("text")) if isinstance(thought, Mapping) else ""


def _response(
    watch: Watch, blocks: Mapping[int, Json], raw: Mapping[int, str], headers: Mapping[str, str] | None = None
) -> ChatResponse:
    seen = watch.close()
    return ChatResponse(
        text="".join(visible(block) for block in blocks.values()),
        tool_calls=tuple(
            _call(block["toolUse"], raw.get(index, ""), watch.closed(index))
            for index, block in blocks.items()
            if client_call(block.get("toolUse"))
        ),
        usage=seen.usage,
        reasoning="".join(map(_thought, blocks.values())) or None,
        stop=seen.stop,
        model=seen.model,
        blocks=Blocks(NAME, tuple(blocks.values())) if blocks else None,
        quota=quota(headers),
    )


def _call(use: Json, raw: str, closed: bool) -> ToolCall:
    given = use.get("input")
    return ToolCall(
        id=text(use.get("toolUseId")),
        name=text(use.get("name")),
        arguments_raw=raw or (given if isinstance(given, str) else None),
        arguments=given if isinstance(given, dict) else None,
        closed=closed,
    )
