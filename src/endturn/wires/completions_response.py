"""Text completions, whole or streamed, as responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import ChatResponse, Delta
from endturn.errors import DecodeError, ProviderError
from endturn.wires import Context, Event
from endturn.wires.completions_shapes import SHAPES, told
from endturn.wires.completions_watch import Watch, answers_in, error_in
from endturn.wires.failure import error_of, quota, shortened
from endturn.wires.framing import DONE
from endturn.wires.reading import member, plain

NAME: Final = "completions"


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_ctx", "_said", "_watch")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch = Watch(ctx)
        self._said: list[str] = []

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event. Events of no known shape (pings, summaries of the prompt) add nothing.

        Raises:
            DecodeError: the event is no object, or what should list its answers does not.
            ProviderError: the stream reports an error before any reason; `partial` holds what had arrived.
        """
        data = event.data
        if data == DONE:
            return ()
        if not isinstance(data, Mapping):
            raise DecodeError(
                f"an event of a completion is an object, not {shortened(repr(data), 80)}", provider=self._ctx.provider
            )
        _check(data, self._ctx)
        self._watch.see(data)
        error = error_in(data)
        if error and self._watch.broken:
            failure = _failure(data, error, self._ctx)
            failure.partial = self.close()
            raise failure
        piece = self._watch.piece
        if not piece:
            return ()
        self._said.append(piece)
        return (Delta(text=piece),)

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return _response(self._watch, "".join(self._said))


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response. Of a list (several prompts, or the way some servers answer one) the first counts.

    Raises:
        DecodeError: it is no completion of any known shape.
        ProviderError: it is an error that came under a status of success.
    """
    body = plain(body)
    replies = body if isinstance(body, list) else [body]
    if not replies or not all(isinstance(reply, Mapping) for reply in replies):
        raise DecodeError(f"a completion is an object, not {shortened(repr(body), 80)}", provider=ctx.provider)
    known, error = told(body, ctx.dialect) is not None, error_in(replies[0])
    if error and not known:
        raise _failure(replies[0], error, ctx, headers)
    if not known:
        raise DecodeError(
            f"a completion has `choices` or another service's member in their place; "
            f"this has {sorted(map(str, replies[0]))[:8]}",
            provider=ctx.provider,
            body=shortened(repr(body)),
        )
    _check(body, ctx)
    watch = Watch(ctx)
    watch.see(body)
    return _response(watch, watch.piece, headers)


def _response(watch: Watch, said: str, headers: Mapping[str, str] | None = None) -> ChatResponse:
    seen = watch.close()
    return ChatResponse(text=said, usage=seen.usage, stop=seen.stop, id=seen.id, model=seen.model, quota=quota(headers))


def _failure(
    reply: Mapping[str, Any], error: Any, ctx: Context, headers: Mapping[str, str] | None = None
) -> ProviderError:
    return error_of(200, headers or {}, {**reply, "error": error}, ctx=ctx)


def _check(reply: Any, ctx: Context) -> None:
    """Raise where the shape is wrong: what cannot be read must not look like an answer that says nothing."""
    name = told(reply, ctx.dialect)
    if name is None:
        return
    shape = SHAPES[name]
    listed = member(reply, shape.answers) if shape.answers else None
    if not isinstance(listed, list | None) or not all(isinstance(each, Mapping) for each in answers_in(shape, reply)):
        said = shortened(repr(reply))
        raise DecodeError("the answers of a completion are not objects", provider=ctx.provider, body=said)
