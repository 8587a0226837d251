"""Responses of the Messages API, whole or streamed, as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.anthropic_watch import CLIENT_CALL, Watch
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.reading import arguments, count, items, minted, plain, text

NAME: Final = "anthropic"


class _Part:
    """One content block while it is built."""

    __slots__ = ("block", "call", "citations", "json", "said", "signature")

    def __init__(self, block: Json) -> None:
        self.block = block
        self.said: list[str] = []
        self.json: list[str] = []
        self.signature: list[str] = []
        self.citations: list[Any] = []
        self.call: int | None = None

    def finished(self) -> Json:
        """The block in the wire's own shape."""
        block = self.block
        kind = block.get("type")
        changes: Json = {}
        if kind == "text":
            changes["text"] = text(block.get("text")) + "".join(self.said)
            if self.citations:
                changes["citations"] = [*items(block.get("citations")), *self.citations]
        elif kind == "thinking":
            changes["thinking"] = text(block.get("thinking")) + "".join(self.said)
            if self.signature:
                changes["signature"] = "".join(self.signature)
        raw = "".join(self.json)
        if raw:
            parsed = arguments(raw)
            # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
            changes["input"] = raw if parsed is None else parsed
        return block | changes


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
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        data = event.data
        if not isinstance(data, Mapping):
            raise DecodeError(
                f"an event of a message stream is an object, not {shortened(repr(data), 80)}",
                provider=self._ctx.provider,
            )
        self._watch.see(data)
        deltas = self._told() if self._watch.told else ()
        match data.get("type"):
            case "content_block_start":
                return (*deltas, *self._start(data.get("content_block"), count(data.get("index"))))
            case "content_block_delta":
                return self._delta(data)
            case "error" if self._watch.broken:
                failure = error_of(200, {}, data, ctx=self._ctx)
                failure.partial = self.close()
                raise failure
            case _:
                return deltas

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return _response(self._watch, {index: self._parts[index] for index in sorted(self._parts)})

    def _told(self) -> tuple[Delta, ...]:
        """The deltas of the blocks that the watch learnt otherwise than by the events of a block."""
        told, self._watch.told = self._watch.told, {}
        return tuple(delta for index, block in told.items() for delta in self._start(block, index))

    def _start(self, block: Any, index: int | None) -> Iterable[Delta]:
        if not isinstance(block, Mapping):
            raise DecodeError(
                "a content block is not an object", provider=self._ctx.provider, body=shortened(repr(block))
            )
        place = len(self._parts) if index is None else index
        part = self._parts[place] = _Part(dict(block))
        if block.get("type") == CLIENT_CALL:
            _name_call(part.block, self._watch, place)
            part.call = self._calls
            self._calls += 1
            given = block.get("input")
            return (
                Delta(
                    call=CallFragment(
                        part.call, part.block["id"], text(block.get("name")) or None, json.dumps(given) if given else ""
                    )
                ),
            )
        if block.get("type") == "thinking":
            thinking = text(block.get("thinking"))
            return (Delta(reasoning=thinking),) if thinking else ()
        said = text(block.get("text")) if block.get("type") == "text" else ""
        return (Delta(text=said),) if said else ()

    def _delta(self, data: Mapping[str, Any]) -> Iterable[Delta]:
        delta, index = data.get("delta"), count(data.get("index"))
        if not isinstance(delta, Mapping):
            raise DecodeError("a delta is not an object", provider=self._ctx.provider, body=shortened(repr(data)))
        kind = delta.get("type")
        part = self._parts.get(index if index is not None else len(self._parts) - 1)
        if part is None:
            # A block of `message_start` that goes on.
            self._watch.release(before=(index or 0) + 1)
            if self._watch.told:
                return (*self._told(), *self._delta(data))
            # Text without the start of its block is text all the same.
            if kind not in ("text_delta", "thinking_delta"):
                return ()
            part = self._parts[index or 0] = _Part({"type": str(kind).removesuffix("_delta")})
        match kind:
            case "text_delta" | "thinking_delta":
                piece = text(delta.get(str(kind).removesuffix("_delta")))
                part.said.append(piece)
                return (Delta(text=piece) if kind == "text_delta" else Delta(reasoning=piece),) if piece else ()
            case "input_json_delta":
                piece = text(delta.get("partial_json"))
                part.json.append(piece)
                return () if part.call is None else (Delta(call=CallFragment(part.call, arguments=piece)),)
            case "signature_delta":
                part.signature.append(text(delta.get("signature")))
            case "citations_delta":
                part.citations.append(delta.get("citation"))
            case "compaction_delta":
                part.block |= {name: value for name, value in delta.items() if name != "type"}
        return ()


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response.

    Raises:
        DecodeError: it is not a message.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    if not isinstance(body, Mapping):
        raise DecodeError(f"a message is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    if body.get("type") == "error" or ("content" not in body and body.get("error")):
        raise error_of(200, headers or {}, body, ctx=ctx)
    content = body.get("content")
    if (
        body.get("type") not in ("message", None)
        or not isinstance(content, list)
        or not all(isinstance(block, Mapping) for block in content)
    ):
        raise DecodeError(
            "a message has a list of content blocks as its `content`", provider=ctx.provider, body=shortened(repr(body))
        )
    watch = Watch(ctx)
    watch.see(body)
    parts = {index: _Part(dict(block)) for index, block in enumerate(content)}
    for index, part in parts.items():
        if part.block.get("type") == CLIENT_CALL:
            _name_call(part.block, watch, index)
    return _response(watch, parts, headers)


def _name_call(block: Json, watch: Watch, index: int) -> None:
    """An id for a call that has none, in the block too: the result that answers it must name the same."""
    if not text(block.get("id")):
        block["id"] = minted(watch.id, index)


def _response(watch: Watch, parts: Mapping[int, _Part], headers: Mapping[str, str] | None = None) -> ChatResponse:
    seen = watch.close()
    blocks = [part.finished() for part in parts.values()]
    thinking = [text(block.get("thinking")) for block in blocks if block.get("type") == "thinking"]
    return ChatResponse(
        text="".join(text(block.get("text")) for block in blocks if block.get("type") == "text"),
        tool_calls=tuple(
            _call(part, block, watch.closed(index))
            for (index, part), block in zip(parts.items(), blocks, strict=True)
            if block.get("type") == CLIENT_CALL
        ),
        usage=seen.usage,
        reasoning="".join(thinking) or None,
        stop=seen.stop,
        id=seen.id,
        model=seen.model,
        blocks=Blocks(NAME, tuple(blocks)) if blocks else None,
        quota=quota(headers),
    )


def _call(part: _Part, block: Json, closed: bool) -> ToolCall:
    given = block.get("input")
    raw = "".join(part.json) or (given if isinstance(given, str) else None)
    return ToolCall(
        id=text(block.get("id")),
        name=text(block.get("name")),
        arguments_raw=raw,
        arguments=given if isinstance(given, dict) else None,
        closed=closed,
    )
