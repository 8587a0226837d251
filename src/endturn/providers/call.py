"""A call to a provider in one of four ways: sync or async, a whole response or a stream.

A ProviderCall defines the request, the library and how to read the response; see
`endturn.providers.http_client` and `endturn.providers.sdk_client`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Iterator
from contextlib import AbstractContextManager
from inspect import isawaitable
from typing import Any, Final, Protocol

from endturn.calls import Call, ResponseFacts, takes_content
from endturn.errors import ProviderTimeout, ProviderUnavailable
from endturn.formats import TAIL, requested_calls
from endturn.vocabulary import ChatResponse, Delta, Request, Stop, StopReason

_END: Final = object()


class ProviderCall(Protocol):
    """One call without its I/O."""

    def send(self) -> Any:
        """Send the request. The result may be an awaitable."""

    def io(self) -> AbstractContextManager[None]:
        """Return a context for each piece of I/O, which maps exceptions to ours.

        A connection failure in a stream ends the stream.
        """

    def read_response(self, answer: Any) -> ChatResponse:
        """Read a whole response."""

    def open_stream(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the pieces of a stream, sync or async, and the objects to close after them."""

    def feed(self, piece: Any) -> Iterator[Delta]:
        """Return the deltas that the next piece completes."""

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """Return the deltas that a stream's end completes; the response is the last item."""


def complete(call: ProviderCall) -> ChatResponse:
    """Return the whole response."""
    with call.io():
        answer = call.send()
    return call.read_response(answer)


async def acomplete(call: ProviderCall) -> ChatResponse:
    """Await the whole response."""
    with call.io():
        answer = await call.send()
    return call.read_response(answer)


def stream(call: ProviderCall) -> Generator[Delta | ChatResponse]:
    """Yield the deltas as they arrive, and the response last."""
    with call.io():
        answer = call.send()
        pieces, closables = call.open_stream(answer)
    try:
        iterator = iter(pieces)
        while True:
            piece = _END
            with call.io():
                piece = next(iterator, _END)
            if piece is _END:
                break
            yield from call.feed(piece)
    finally:
        for closable in closables:
            getattr(closable, "close", _nothing)()
    yield from call.finish()


async def astream(call: ProviderCall) -> AsyncGenerator[Delta | ChatResponse]:
    """Yield the same from an async library."""
    with call.io():
        answer = call.send()
        pieces, closables = call.open_stream(await answer if isawaitable(answer) else answer)
    try:
        iterator = aiter(pieces)
        while True:
            piece = _END
            with call.io():
                piece = await anext(iterator, _END)
            if piece is _END:
                break
            for delta in call.feed(piece):
                yield delta
    finally:
        for closable in closables:
            result = getattr(closable, "aclose", getattr(closable, "close", _nothing))()
            if isawaitable(result):
                await result
    for item in call.finish():
        yield item


def _nothing() -> None:
    """Do nothing: some streams have nothing to close."""


def connection_error(
    failure: str, target: str, provider: str, error: Exception
) -> ProviderUnavailable:
    """Return the exception for a call that got no response.

    It omits the library's own message, which may quote the request.

    Args:
        failure: "timeout" or "connection".
        target: the provider or its address, for the message.
    """
    error_class, message = (
        (ProviderTimeout, "no answer in time")
        if failure == "timeout"
        else (ProviderUnavailable, "the connection failed")
    )
    return error_class(f"{target}: {message} ({type(error).__name__})", provider=provider)


def with_connection_failure(failure: str | None, response: ChatResponse) -> ChatResponse:
    """Return a stream's response with the kind of connection failure as its stop detail.

    A more specific detail is kept.
    """
    if failure is None or response.stop.detail not in (None, "stream_cut"):
        return response
    return response.with_stop(detail=failure)


def stop_by(error: BaseException) -> Stop:
    """Return the Stop of a call that raised.

    The error's own Stop, else `error`; `cancelled` for what is no Exception.
    """
    stop = getattr(error, "stop", None)
    if isinstance(stop, Stop):
        return stop
    reason = StopReason.ERROR if isinstance(error, Exception) else StopReason.CANCELLED
    detail = "timeout" if isinstance(error, ProviderTimeout) else None
    return Stop(reason, detail=detail, terminal_seen=False, incomplete=True)


def announce_end(
    call: Call, request: Request, response: ChatResponse, stop: Stop, error: BaseException | None,
    *, raw: str | None, has_separate_system: bool = False,
) -> None:  # fmt: skip
    """Announce the end of a call.

    Args:
        raw: the provider's stop reason, verbatim.
        has_separate_system: as in `Content.is_system_separate`.
    """
    if takes_content():
        call.attach_content(request, response, is_system_separate=has_separate_system)
    facts = ResponseFacts(
        stop=stop,
        id=response.id,
        model=response.model,
        usage=response.usage,
        reasons=(raw,),
        output_chars=len(response.text),
    )
    call.end(
        facts,
        tail=response.text[-TAIL:],
        tool_calls=requested_calls(response.tool_calls),
        error=error,
    )
