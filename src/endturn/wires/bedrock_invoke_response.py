"""Responses of invoked models, whole or streamed, as ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import ChatResponse, Delta
from endturn.errors import DecodeError
from endturn.wires import Context, Event
from endturn.wires import Decoder as FamilyDecoder
from endturn.wires.bedrock_invoke_watch import Envelope
from endturn.wires.failure import error_of, shortened
from endturn.wires.reading import member

NAME: Final = "bedrock_invoke"


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    __slots__ = ("_ctx", "_envelope", "_inner")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._envelope = Envelope(ctx)
        self._inner: FamilyDecoder | None = None

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is no object, or what it holds is not of its family's format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        envelope = self._envelope
        if not isinstance(event.data, Mapping):
            raise _foreign("an event of an invoked model's stream is an object", event.data, self._ctx)
        failed = envelope.error is not None
        said = envelope.opened(event)
        if envelope.error is not None and not failed and not self._own().stop.terminal_seen:
            failure = error_of(200, {}, envelope.error, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        if said is None:
            if "chunk" in event.data:
                raise _foreign("a chunk holds one JSON object", event.data, self._ctx)
            return ()
        if envelope.family is None:
            return ()
        if self._inner is None:
            self._inner = envelope.family.inner.decoder(envelope.context)
        return self._inner.feed(Event(None, said))

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        own, envelope = self._own(), self._envelope
        return own.but(stop=envelope.stop(own.stop), usage=envelope.usage(own.usage))

    def _own(self) -> ChatResponse:
        return ChatResponse(stop=self._envelope.nothing) if self._inner is None else self._inner.close()


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response: parsed or not, or boto3's response, whose stream is read.

    Raises:
        DecodeError: it is not in the format of any family.
        ProviderError: it is an error that came under a status of success.
    """
    envelope = Envelope(ctx)
    envelope.read_headers(headers)
    unread = member(body, "body")
    if hasattr(unread, "read") and isinstance(body, Mapping):
        body = {**body, "body": unread.read()}
    said = envelope.opened(body)
    if said is None or envelope.family is None:
        raise _foreign("the body of an invoked model is an object of its family's format", body, ctx)
    own = envelope.family.inner.decode(said, ctx=envelope.context, headers=headers)
    return own.but(stop=envelope.stop(own.stop), usage=envelope.usage(own.usage))


def _foreign(expected: str, found: Any, ctx: Context) -> DecodeError:
    return DecodeError(
        f"{expected}, not {shortened(repr(found), 80)}", provider=ctx.provider, body=shortened(repr(found))
    )
