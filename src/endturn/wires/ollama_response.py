"""Responses of Ollama's own API, whole or streamed, as ours."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, ToolCall
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.ollama_watch import Watch, calls_in, text_in
from endturn.wires.reading import arguments, member, minted, plain, text

NAME: Final = "ollama"

_OWN: Final = frozenset({"role", "content", "thinking", "tool_calls"})


class Decoder:
    """Builds a response from a stream's lines; `close` may be called at any point."""

    __slots__ = ("_calls", "_ctx", "_extra", "_said", "_thought", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch = Watch(ctx)
        self._said: list[str] = []
        self._thought: list[str] = []
        self._calls: list[Json] = []
        self._extra: Json = {}

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one line.

        Raises:
            DecodeError: the line is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        line = event.data
        if not isinstance(line, Mapping):
            raise DecodeError(
                f"a line of a stream is an object, not {shortened(repr(line), 80)}", provider=self._ctx.provider
            )
        self._watch.see(line)
        if line.get("error"):
            if not self._watch.broken:
                return ()
            failure = error_of(200, {}, line, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return self._take(line)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self.response()

    def _take(self, line: Mapping[str, Any]) -> list[Delta]:
        message = line.get("message")
        if not isinstance(message, Mapping | None):
            raise DecodeError("a message is not an object", provider=self._ctx.provider, body=shortened(repr(line)))
        said = text_in(line)
        thought = text(member(line if message is None else message, "thinking"))
        deltas: list[Delta] = []
        if thought:
            self._thought.append(thought)
            deltas.append(Delta(reasoning=thought))
        if said:
            self._said.append(said)
            deltas.append(Delta(text=said))
        for raw in calls_in(line):
            # An id of this response alone, in the block too: the result that answers it must name the same.
            call: Json = {**raw, "id": text(raw.get("id")) or minted(line.get("created_at"), len(self._calls))}
            given, name = member(call["function"], "arguments"), text(member(call["function"], "name"))
            written = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False) if given else ""
            deltas.append(Delta(call=CallFragment(len(self._calls), call["id"], name or None, written)))
            self._calls.append(call)
        for name, value in (message or {}).items():
            if name not in _OWN and value is not None:
                self._extra[name] = value
        return deltas

    def response(self, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """What arrived, with what the answer's headers say of limits."""
        seen = self._watch.close()
        said, thought = "".join(self._said), "".join(self._thought)
        message: Json = {"role": "assistant", "content": said, **self._extra}
        if thought:
            message["thinking"] = thought
        if self._calls:
            message["tool_calls"] = list(self._calls)
        return ChatResponse(
            text=said,
            tool_calls=tuple(_call(raw, self._watch.closed(place)) for place, raw in enumerate(self._calls)),
            usage=seen.usage,
            reasoning=thought or None,
            stop=seen.stop,
            model=seen.model,
            blocks=Blocks(NAME, (message,)) if said or thought or self._calls else None,
            quota=quota(headers),
        )


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response: of `/api/chat`, or of `/api/generate`.

    Raises:
        DecodeError: it is neither.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    if not isinstance(body, Mapping):
        raise DecodeError(f"a response is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    if body.get("error"):
        raise error_of(200, headers or {}, body, ctx=ctx)
    if not isinstance(body.get("message"), Mapping) and not isinstance(body.get("response"), str):
        raise DecodeError(
            "a response has a `message`, or a `response` of text", provider=ctx.provider, body=shortened(repr(body))
        )
    decoder = Decoder(ctx)
    list(decoder.feed(Event(None, body)))
    return decoder.response(headers)


def _call(raw: Json, closed: bool) -> ToolCall:
    function = raw["function"]
    given = member(function, "arguments")
    written = given if isinstance(given, str) else None
    return ToolCall(
        id=raw["id"],
        name=text(member(function, "name")),
        arguments_raw=written,
        arguments=given if isinstance(given, dict) else arguments(written),
        closed=closed,
    )
