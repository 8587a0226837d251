"""Responses of the Responses API, whole or streamed, as ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.framing import DONE
from endturn.wires.openai_responses_objects import CALLS, Item, is_response
from endturn.wires.openai_responses_watch import Watch
from endturn.wires.reading import arguments, count, items, member, plain, text

NAME: Final = "openai_responses"

GIVEN: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""The member of a call that holds what the tool is given."""

_THOUGHTS: Final = {"summary": "summary_text", "content": "reasoning_text"}


class Kept:
    """Keeps what a response holds, beside the watch that reads it."""

    __slots__ = ("_calls", "_said", "_thought", "deltas")

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls = 0

    def item(self, item: Item, raw: Any, *, done: bool) -> None:
        """Take an item as it begins, or as it is when it is whole: what was known of it and is not told again stays."""
        told = dict(raw) if isinstance(raw, Mapping) else {}
        if item.block is None:
            item.block = told
        else:
            item.block |= {name: value for name, value in told.items() if value is not None}
        if item.client:
            # The result that answers it must name the same.
            item.block["call_id"] = item.call_id
        if item.kind in CALLS and item.client:
            self._call(item, done=done)
        elif item.kind == "reasoning" and done:
            for name in _THOUGHTS:
                for index, part in enumerate(items(told.get(name))):
                    self._think(item, name, index, text(member(part, "text")), whole=True)

    def text(self, item: Item, index: int, piece: str, *, declined: bool) -> None:
        """Take visible text. A refusal is visible: it is what the user reads."""
        item.parts.setdefault(index, ("refusal" if declined else "output_text", []))[1].append(piece)
        self._said.append(piece)
        self.deltas.append(Delta(text=piece))

    def piece(self, item: Item, kind: str, event: Any) -> None:
        """Take thinking, or what a call is given."""
        whole = kind.endswith(".done")
        match kind.split(".")[1]:
            case "reasoning_summary_text":
                piece = text(member(event, "text" if whole else "delta"))
                self._think(item, "summary", count(member(event, "summary_index")) or 0, piece, whole=whole)
            case "reasoning_text":
                piece = text(member(event, "text" if whole else "delta"))
                self._think(item, "content", count(member(event, "content_index")) or 0, piece, whole=whole)
            case "function_call_arguments":
                self._give(item, text(member(event, "arguments" if whole else "delta")), whole=whole)
            case _:
                self._give(item, text(member(event, "input" if whole else "delta")), whole=whole)

    def response(self, watch: Watch, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """All that was kept, with what the watch made of it."""
        seen = watch.close()
        blocks = [block for item in watch.items if (block := _finished(item)) is not None]
        return ChatResponse(
            text="".join(self._said),
            tool_calls=tuple(_tool_call(item) for item in watch.items if item.kind in CALLS and watch.asks(item)),
            usage=seen.usage,
            reasoning="".join(self._thought) or None,
            stop=seen.stop,
            id=seen.id,
            model=seen.model,
            blocks=Blocks(NAME, tuple(blocks)) if blocks else None,
            quota=quota(headers),
        )

    def _think(self, item: Item, name: str, index: int, piece: str, *, whole: bool) -> None:
        held = item.thoughts.setdefault((name, index), [])
        if piece and not (whole and held):
            held.append(piece)
            self._thought.append(piece)
            self.deltas.append(Delta(reasoning=piece))

    def _call(self, item: Item, *, done: bool) -> None:
        block = item.block or {}
        given = text(block.get(GIVEN[item.kind])) if done else ""
        if item.position is None:
            item.position = self._calls
            self._calls += 1
            # Pieces may have come before the item that they belong to.
            so_far = "".join(item.pieces) or given
            item.pieces = [so_far] if so_far else []
            first = CallFragment(item.position, item.call_id, text(block.get("name")) or None, so_far)
            self.deltas.append(Delta(call=first))
        else:
            self._give(item, given, whole=True)

    def _give(self, item: Item, piece: str, *, whole: bool) -> None:
        if piece and not (whole and item.pieces):
            item.pieces.append(piece)
            if item.position is not None:
                self.deltas.append(Delta(call=CallFragment(item.position, arguments=piece)))


def _finished(item: Item) -> Json | None:
    """The item in the wire's own shape; None of one of which no more than pieces of a nameless call came."""
    block, kind = item.block, item.kind
    if block is None and kind != "message" and not item.thoughts:
        return None
    changes: Json = {}
    if block is None:
        kind = kind or "reasoning"
        block = {"type": kind, **({"id": item.id} if item.id else {})}
        changes = {"role": "assistant", "content": []} if kind == "message" else {"summary": []}
    if kind == "message" and item.parts and not block.get("content"):
        changes["content"] = [_part(*item.parts[index]) for index in sorted(item.parts)]
    for name, part in _THOUGHTS.items():
        pieces = [held for (where, _), held in sorted(item.thoughts.items()) if where == name and held]
        if pieces and not block.get(name):
            changes[name] = [{"type": part, "text": "".join(held)} for held in pieces]
    if kind in CALLS and item.pieces and not block.get(GIVEN[kind]):
        changes[GIVEN[kind]] = "".join(item.pieces)
    return block | changes


def _part(kind: str, pieces: list[str]) -> Json:
    said = "".join(pieces)
    return {"type": kind, "refusal": said} if kind == "refusal" else {"type": kind, "text": said, "annotations": []}


def _tool_call(item: Item) -> ToolCall:
    block = item.block or {}
    raw = text(block.get(GIVEN[item.kind])) or "".join(item.pieces)
    return ToolCall(
        id=item.call_id,
        name=text(block.get("name")),
        arguments_raw=raw,
        arguments=arguments(raw),
        closed=item.closed,
    )


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_ctx", "_keep", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._keep = Kept()
        self._watch = Watch(ctx, self._keep)

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        data = event.data
        if data == DONE:  # OpenAI ends without it; servers that speak chat too do not.
            return ()
        if not isinstance(data, Mapping):
            raise DecodeError(
                f"an event of a response's stream is an object, not {shortened(repr(data), 80)}",
                provider=self._ctx.provider,
            )
        _check(data, self._ctx)
        self._keep.deltas.clear()
        was = self._watch.broken
        self._watch.see(data)
        if self._watch.broken and not was:
            failure = error_of(200, {}, data, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return tuple(self._keep.deltas)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._keep.response(self._watch)


def _check(data: Mapping[str, Any], ctx: Context) -> None:
    """Raise where the shape is wrong: what cannot be read must not look like an answer that says nothing."""
    kind = data.get("type")
    item, response, part = data.get("item"), data.get("response"), data.get("part")
    if kind == "response.output_item.done" and not isinstance(item, Mapping):
        raise DecodeError("an item that is done is not an object", provider=ctx.provider, body=shortened(repr(data)))
    if not all(each is None or isinstance(each, Mapping) for each in (item, response, part)):
        raise DecodeError("a part of an event is not an object", provider=ctx.provider, body=shortened(repr(data)))
    if response is not None:
        _check_output(response, ctx)


def _check_output(response: Mapping[str, Any], ctx: Context) -> None:
    output = response.get("output")
    if output is not None and not (isinstance(output, list) and all(isinstance(item, Mapping) for item in output)):
        raise DecodeError(
            "a response has a list of items as its `output`", provider=ctx.provider, body=shortened(repr(response))
        )


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response. One that failed is a response too, which says so.

    Raises:
        DecodeError: it is not a response.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    if not isinstance(body, Mapping):
        raise DecodeError(f"a response is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    if not is_response(body):
        if body.get("error"):
            raise error_of(200, headers or {}, body, ctx=ctx)
        raise DecodeError(
            f"a response has `object`, `status` and `output`; this has {sorted(map(str, body))[:8]}",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    _check_output(body, ctx)
    keep = Kept()
    watch = Watch(ctx, keep)
    watch.see(body)
    return keep.response(watch, headers)
