"""A response that is read by a format's reader and the fold: as a summary, as deltas, or whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from endturn.chat import ChatResponse, Delta
from endturn.errors import DecodeError
from endturn.formats import Context, Event, ResponseSummary
from endturn.formats.errors import error_of, shortened
from endturn.formats.fold import Fold, Reply


class Summarizer:
    """Reads what telemetry needs of a response, from the events of a stream or from one body."""

    def __init__(self, reply: Reply, ctx: Context) -> None:
        self._fold = Fold(ctx, reply, keep=False)
        self._read = reply.reader(ctx, False)

    def feed(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        data = event.data if event.__class__ is Event else event
        for part in self._read(data):
            self._fold.add(part)

    def close(self, *, left: bool = False) -> ResponseSummary:
        """What was seen."""
        return self._fold.summary(left=left)

    @property
    def over(self) -> bool:
        return self._fold.ended and not self._fold.whole

    @property
    def broken(self) -> bool:
        return self._fold.broken


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    def __init__(self, reply: Reply, ctx: Context) -> None:
        self._reply, self._ctx = reply, ctx
        self._fold = Fold(ctx, reply, keep=True)
        self._read = reply.reader(ctx, True)

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        if (wrong := self._reply.faulty(event.data, False)) is not None:
            raise DecodeError(wrong, provider=self._ctx.provider, body=shortened(repr(event.data)))
        deltas = tuple(delta for part in self._read(event.data) if (delta := self._fold.add(part)) is not None)
        if self._fold.broken:
            said = self._reply.failed(event.data) or {**event.data, "error": self._fold.error}
            failure = error_of(200, {}, said, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return deltas

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._fold.response()


def decoded(reply: Reply, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response.

    Raises:
        DecodeError: it is none of this format.
        ProviderError: it is an error that came under a status of success, as gateways send them.
    """
    if (error := reply.failed(body)) is not None:
        raise error_of(200, headers or {}, error, ctx=ctx)
    if (wrong := reply.faulty(body, True)) is not None:
        raise DecodeError(wrong, provider=ctx.provider, body=shortened(repr(body)))
    fold = Fold(ctx, reply, keep=True)
    for part in reply.reader(ctx, True)(body):
        fold.add(part)
    return fold.response(headers)
