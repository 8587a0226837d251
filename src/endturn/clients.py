"""Our own HTTP clients: a Request goes to a provider, its ChatResponse or Deltas come back.

Both are provider functions: `client` and `client.stream` are what a controller takes. They send each request once:
retrying is the host's, or the controller's.

What a lost connection means: before the answer begins it is `ProviderUnavailable` (or `ProviderTimeout`); in a body
that is not streamed too, for nothing of it can be read; in a stream what arrived is the answer, with the stop `missing`
and the detail "connection" or "timeout".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, closing
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Self

from endturn.chat import ChatResponse, Delta, Request
from endturn.errors import UsageError
from endturn.exchange import Endpoint, Exchange, shown
from endturn.formats import capabilities
from endturn.providers import PROVIDERS

if TYPE_CHECKING:
    import httpx

__all__ = ["PROVIDERS", "AsyncClient", "Client"]


_OTHER = {"Client": "AsyncClient", "AsyncClient": "Client"}


def _library(http: object) -> Any:
    """httpx, or whichever of httpx and httpx2 a client that the host made belongs to."""
    for kind in type(http).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("httpx", "httpx2"):
            return import_module(root)
    return import_module("httpx")


def _opened(http: Any, kind: str, timeout: float | None) -> tuple[Any, Any, bool]:
    """The HTTP library, its client, and whether the client is ours to close."""
    library = _library(http)
    if hasattr(http, "send"):
        if iscoroutinefunction(http.send) is not (kind == "AsyncClient"):
            raise UsageError(f"http is a {type(http).__name__}, which goes with {_OTHER[kind]}; this is {kind}")
        return library, http, False
    return library, getattr(library, kind)(transport=http, timeout=timeout), True


class Client:
    """Sends requests to one provider. Safe among threads; close it, or use it in a `with` block.

    Args:
        provider: a name in PROVIDERS, or any other with `format` and `base_url`.
        api_key: by default the provider's environment variable. Neither logged nor shown.
        base_url: where the provider answers, up to the format's own path: `https://api.openai.com/v1`; else what
            OPENAI_BASE_URL or ANTHROPIC_BASE_URL says, else the provider's own.
        format, dialect: the format, and whose variant of it.
        http: an httpx (or httpx2) client, which stays the host's to close, or a transport.
        timeout: seconds without a byte before giving up; None waits for ever. A client given as `http` has its own.
        headers: further HTTP headers of every request.

    Raises:
        UsageError: there is no key, or the provider is not known by name.
    """

    def __init__(
        self,
        provider: str = "openai",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        format: str | None = None,
        dialect: str | None = None,
        http: httpx.Client | httpx.BaseTransport | Any = None,
        timeout: float | None = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = Endpoint.of(
            provider, api_key=api_key, base_url=base_url, format_name=format, dialect=dialect, headers=headers
        )
        self.provider, self.format, self.dialect = provider, self._endpoint.format.name, self._endpoint.dialect
        self.retrieves = capabilities.of(self.format, self.dialect, "").retrieve
        self._library, self._http, self._owned = _opened(http, "Client", timeout)

    def complete(self, request: Request) -> ChatResponse:
        """One request, one whole response.

        Raises:
            ProviderError: there was none; its type says whose fault that is.
        """
        with Exchange(self._endpoint, self._library, request, stream=False) as exchange:
            with exchange.step(), exchange.connecting():
                answer = self._http.send(exchange.outgoing(self._http))
            return exchange.whole(answer.status_code, answer.headers, answer.content)

    __call__ = complete

    def stream(self, request: Request) -> Generator[Delta | ChatResponse]:
        """The response's deltas as they arrive; its last item is the response. The request is sent at the first `next`.

        A stream that is lost after it began ends like any other: with the partial response, stop `missing`.

        Raises:
            ProviderError: no stream began, or (DecodeError) it is not in the provider's format.
        """
        with Exchange(self._endpoint, self._library, request, stream=True) as exchange:
            with exchange.step(), exchange.connecting():
                answer = self._http.send(exchange.outgoing(self._http), stream=True)
            with closing(answer):
                if not answer.is_success:
                    with exchange.step(), exchange.connecting():
                        content = answer.read()
                    raise exchange.rejection(answer.status_code, answer.headers, content)
                exchange.begin(answer.headers)
                chunks = answer.iter_bytes()
                while True:
                    chunk = b""
                    with exchange.step(), exchange.reading():
                        chunk = next(chunks, b"")
                    if not chunk:
                        break
                    yield from exchange.feed(chunk)
            yield from exchange.finish()

    def close(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.provider!r}, format={self.format!r}, url={shown(self._endpoint.url)!r})"


class AsyncClient:
    """`Client`, awaited: the same arguments, `http` being an async client or transport."""

    def __init__(
        self,
        provider: str = "openai",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        format: str | None = None,
        dialect: str | None = None,
        http: httpx.AsyncClient | httpx.AsyncBaseTransport | Any = None,
        timeout: float | None = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = Endpoint.of(
            provider, api_key=api_key, base_url=base_url, format_name=format, dialect=dialect, headers=headers
        )
        self.provider, self.format, self.dialect = provider, self._endpoint.format.name, self._endpoint.dialect
        self.retrieves = capabilities.of(self.format, self.dialect, "").retrieve
        self._library, self._http, self._owned = _opened(http, "AsyncClient", timeout)

    async def complete(self, request: Request) -> ChatResponse:
        """One request, one whole response; see `Client.complete`."""
        with Exchange(self._endpoint, self._library, request, stream=False) as exchange:
            with exchange.step(), exchange.connecting():
                answer = await self._http.send(exchange.outgoing(self._http))
            return exchange.whole(answer.status_code, answer.headers, answer.content)

    __call__ = complete

    async def stream(self, request: Request) -> AsyncGenerator[Delta | ChatResponse]:
        """The response's deltas, and at last the response; see `Client.stream`."""
        with Exchange(self._endpoint, self._library, request, stream=True) as exchange:
            with exchange.step(), exchange.connecting():
                answer = await self._http.send(exchange.outgoing(self._http), stream=True)
            async with aclosing(answer), aclosing(answer.aiter_bytes()) as chunks:
                if not answer.is_success:
                    with exchange.step(), exchange.connecting():
                        content = await answer.aread()
                    raise exchange.rejection(answer.status_code, answer.headers, content)
                exchange.begin(answer.headers)
                while True:
                    chunk = b""
                    with exchange.step(), exchange.reading():
                        chunk = await anext(chunks, b"")
                    if not chunk:
                        break
                    for delta in exchange.feed(chunk):
                        yield delta
            for item in exchange.finish():
                yield item

    async def aclose(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"AsyncClient({self.provider!r}, format={self.format!r}, url={shown(self._endpoint.url)!r})"
