"""A call to a provider, made in one of four ways: waited for or awaited, whole or as a stream.

What is sent, by which library, and what its answer means is up to the call: one of
`endturn.providers.http_client` or of `endturn.providers.sdk_client`.
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
        """Ask. What it gives may have to be awaited."""

    def io(self) -> AbstractContextManager[None]:
        """Around each piece of I/O: what that raises becomes ours.

        A connection that is lost in a stream ends it.
        """

    def whole(self, answer: Any) -> ChatResponse:
        """Read a whole response."""

    def opened(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Return the pieces of a stream, sync or async, and what is to be closed after them."""

    def feed(self, piece: Any) -> Iterator[Delta]:
        """Return the deltas that the next piece completes."""

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """Return what a stream's end completes; the response is the last item."""


def complete(call: ProviderCall) -> ChatResponse:
    """Return the whole response."""
    with call.io():
        answer = call.send()
    return call.whole(answer)


async def acomplete(call: ProviderCall) -> ChatResponse:
    """Return the whole response, awaited."""
    with call.io():
        answer = await call.send()
    return call.whole(answer)


def stream(call: ProviderCall) -> Generator[Delta | ChatResponse]:
    """Yield the deltas as they arrive, and at last the response."""
    with call.io():
        answer = call.send()
        pieces, closed_after = call.opened(answer)
    try:
        pulled = iter(pieces)
        while True:
            piece = _END
            with call.io():
                piece = next(pulled, _END)
            if piece is _END:
                break
            yield from call.feed(piece)
    finally:
        for each in closed_after:
            getattr(each, "close", _nothing)()
    yield from call.finish()


async def astream(call: ProviderCall) -> AsyncGenerator[Delta | ChatResponse]:
    """Yield the same from an async library."""
    with call.io():
        answer = call.send()
        pieces, closed_after = call.opened(await answer if isawaitable(answer) else answer)
    try:
        pulled = aiter(pieces)
        while True:
            piece = _END
            with call.io():
                piece = await anext(pulled, _END)
            if piece is _END:
                break
            for delta in call.feed(piece):
                yield delta
    finally:
        for each in closed_after:
            closing = getattr(each, "aclose", getattr(each, "close", _nothing))()
            if isawaitable(closing):
                await closing
    for item in call.finish():
        yield item


def _nothing() -> None:
    """Do nothing: some streams have nothing to close."""


def unreachable(lost: str, who: str, provider: str, error: Exception) -> ProviderUnavailable:
    """Return the exception for a call that got no response.

    It has not the library's own words: they may quote what was sent.

    Args:
        lost: "timeout" or "connection".
    """
    kind, what = (
        (ProviderTimeout, "no answer in time")
        if lost == "timeout"
        else (ProviderUnavailable, "the connection failed")
    )
    return kind(f"{who}: {what} ({type(error).__name__})", provider=provider)


def cut_by(lost: str | None, response: ChatResponse) -> ChatResponse:
    """Return a stream's response, with how the connection was lost as its stop detail.

    A more specific detail is kept.
    """
    if lost is None or response.stop.detail not in (None, "stream_cut"):
        return response
    return response.with_stop(detail=lost)


def stop_by(error: BaseException) -> Stop:
    """Return the Stop of a call that raised.

    What the error says of it, else that it failed, or that the host left.
    """
    said = getattr(error, "stop", None)
    if isinstance(said, Stop):
        return said
    reason = StopReason.ERROR if isinstance(error, Exception) else StopReason.CANCELLED
    detail = "timeout" if isinstance(error, ProviderTimeout) else None
    return Stop(reason, detail=detail, terminal_seen=False, incomplete=True)


def announce_end(
    call: Call, request: Request, response: ChatResponse, stop: Stop, error: BaseException | None,
    *, raw: str | None, beside: bool = False,
) -> None:  # fmt: skip
    """Announce what a call came to.

    Args:
        raw: the reason that the provider gave, verbatim.
        beside: as in `Content`.
    """
    if takes_content():
        call.attach_content(request, response, is_system_separate=beside)
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
