"""What a format declares of itself, and what follows from that: its responses as a summary, as deltas, or whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

from endturn.chat import ChatResponse, Delta, Json, Request
from endturn.errors import DecodeError, UsageError
from endturn.formats.errors import error_of, shortened
from endturn.formats.fold import Fold, Reply
from endturn.formats.framing import DONE
from endturn.formats.next_request import Resuming
from endturn.formats.summaries import Context, Event, Framing, RequestSummary, ResponseSummary, Route, Routed, Voice
from endturn.stop import Row


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
        data, fold = event.data, self._fold
        if (wrong := self._reply.faulty(data, False)) is not None:
            raise DecodeError(wrong, provider=self._ctx.provider, body=shortened(repr(data)))
        deltas = []
        for part in self._read(data):
            delta = fold.add(part)
            if delta is not None:
                deltas.append(delta)
        if fold.broken:
            said = self._reply.failed(data) or {**data, "error": fold.error}
            failure = error_of(200, {}, said, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return deltas

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._fold.response()


class _Routing(Protocol):
    def __call__(self, request: Request, *, stream: bool, dialect: str = "") -> Route: ...


class _Encoding(Protocol):
    def __call__(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json: ...


class _Replying(Protocol):
    def __call__(self, response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]: ...


class _Failing(Protocol):
    def __call__(
        self, status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
    ) -> Json | Event: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: between our types and one API's JSON, by pure functions.

    Attributes:
        name: as in `FORMATS`. provider: whose it is, as in `gen_ai.provider.name`.
        reasons: dialect → raw value → row; the dialect "" is the format's home.
        replies: how responses are read.
        route: where a request goes. routed: what a request's method and path say; None where the format is not spoken
            there.
        request_summary: what a body asks for, or an SDK's arguments.
        body: a request's body; `encode` gives it. resume: the request that asks for the rest of a cut or paused
            response.
        reply: a scripted response as a server sends it. Streamed, one whose terminal was not seen breaks off. Raises
            UsageError where the format cannot say it.
        reply_error: an error answer's body, or with `stream` the event that it is within a stream. What is None is
            filled with what the provider says with that status. `number` is the request's.
        fetches: a response can be fetched by its id.
        inner: the format that a body is in, where this one is an envelope.
    """

    name: str
    provider: str
    framing: Framing
    reasons: Mapping[str, Mapping[str, Row]]
    voice: Voice
    replies: Reply
    route: _Routing
    routed: Callable[[str, str], Routed | None]
    request_summary: Callable[[Mapping[str, Any]], RequestSummary]
    body: _Encoding
    resume: Resuming
    reply: _Replying
    reply_error: _Failing
    fetches: bool = False
    inner: Callable[[Json], Format] | None = None

    def encode(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json:
        """A request's body, in the words of a dialect.

        Raises:
            UsageError: it asks to fetch a response, which the format cannot.
        """
        if request.retrieve is not None and not self.fetches:
            raise UsageError(
                f"the format {self.name!r} cannot fetch a response by its id: use a provider function that can"
            )
        return self.body(request, stream=stream, dialect=dialect)

    def summarizer(self, ctx: Context) -> Summarizer:
        """What reads of a response as much as telemetry needs."""
        return Summarizer(self.replies, ctx)

    def decoder(self, ctx: Context) -> Decoder:
        """What builds a response from a stream's events."""
        return Decoder(self.replies, ctx)

    def decode(self, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
        """A whole body as a response.

        Raises:
            DecodeError: it is none of this format.
            ProviderError: it is an error that came under a status of success, as gateways send them.
        """
        reply = self.replies
        if (error := reply.failed(body)) is not None:
            raise error_of(200, headers or {}, error, ctx=ctx)
        if (wrong := reply.faulty(body, True)) is not None:
            raise DecodeError(wrong, provider=ctx.provider, body=shortened(repr(body)))
        fold = Fold(ctx, reply, keep=True)
        beside = reply.headers(headers or {}) if reply.headers is not None else ()
        for part in chain(beside, reply.reader(ctx, True)(body)):
            fold.add(part)
        return fold.response(headers)


# --- What a body or an event is where it is no answer: not an object at all, or an error ---


def error_beside(*members: str) -> Callable[[Any], Any]:
    """Finds the error that a body or an event has in the place of an answer: beside none of these members."""

    def failed(data: Any) -> Any:
        reports = isinstance(data, Mapping) and data.get("error") and not any(data.get(name) for name in members)
        return data if reports else None

    return failed


def an_object(
    whole: str, event: str, faulty: Callable[[Mapping[str, Any], bool], str | None], *, done: bool = True
) -> Callable[[Any, bool], str | None]:
    """Says what is wrong with a body or an event that is no object; of an object, what `faulty` says.

    Args:
        whole, event: what the format calls a body, and an event.
        done: a stream may end with `[DONE]`, of this format or as chat's do, from servers that speak both.
    """

    def checked(data: Any, is_whole: bool) -> str | None:
        if done and data == DONE and not is_whole:
            return None
        if not isinstance(data, Mapping):
            return f"{whole if is_whole else event} is an object, not {shortened(repr(data), 80)}"
        return faulty(data, is_whole)

    return checked
