"""Our own HTTP clients: a Request goes to a provider, its ChatResponse or Deltas come back.

Both are provider functions: `client` and `client.stream` are what a controller takes. They send
each request once: retrying is the host's, or the controller's.

What a lost connection means: before the answer begins it is `ProviderUnavailable` (or
`ProviderTimeout`); in a body that is not streamed too, for nothing of it can be read; in a stream
what arrived is the answer, with the stop `missing` and the detail "connection" or "timeout".
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit, urlunsplit

from endturn.calls import EndpointFacts, Layer, listeners, open_call
from endturn.errors import DecodeError, ProviderError, UsageError, did_you_mean
from endturn.formats import (
    Context,
    Event,
    Format,
    begins_stream,
    capabilities,
    dialect_in,
    error_of,
    format_of,
    framing,
    known_dialect,
    quota,
    request_id,
    shortened,
)
from endturn.providers import aws_signing, call as provider_calls
from endturn.providers.aws_signing import Signer
from endturn.providers.call import announce_end, cut_by, stop_by, unreachable
from endturn.vocabulary import (
    PROVIDERS,
    Auth,
    ChatResponse,
    Delta,
    ProviderEndpoint,
    Request,
    Stop,
    canonical,
)

__all__ = ["PROVIDERS", "AsyncClient", "Client"]

_REGION: Final = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")

_SECRETS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", *(auth.value for auth in Auth)}
)
"""Headers whose values no error may show."""

_SHORTEST_SECRET: Final = 8
"""Characters; what is shorter ("none", "EMPTY") is no secret, and may be a word of the answer."""

_HEADER: Final = re.compile(r"[\x21-\x7e]+")


# --- Where a request goes, and as whom ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """Where both colours of client send a request, and as whom.

    Attributes:
        url: up to the format's own path; a query that it has is every request's.
        signer: adds AWS's signature to a request's headers; None where a key says who asks.
    """

    provider: str
    format: Format
    dialect: str
    url: str
    headers: dict[str, str] = field(repr=False)
    signer: Signer | None = field(default=None, repr=False)

    def route(self, request: Request, *, stream: bool) -> tuple[str, str]:
        """Return the method and the URL of a request."""
        method, path = self.format.route(request, stream=stream, dialect=self.dialect)
        base = urlsplit(self.url)
        path, _, query = path.partition("?")
        parts = base._replace(
            path=base.path.rstrip("/") + path, query="&".join(filter(None, (base.query, query)))
        )
        return method, urlunsplit(parts)

    def signed(self, method: str, url: str, content: bytes) -> dict[str, str]:
        """Return the headers of a request.

        A signature holds for minutes, so each is made when it is sent.
        """
        return (
            self.headers if self.signer is None else self.signer(method, url, self.headers, content)
        )

    def without_secrets(self, said: str) -> str:
        """Return a provider's text without the key that it may quote."""
        for name, value in self.headers.items():
            if (
                name.lower() in _SECRETS
                and len(secret := value.removeprefix("Bearer ")) >= _SHORTEST_SECRET
            ):
                said = said.replace(secret, "[removed]")
        return said


def _endpoint(
    provider: str,
    key: str | None,
    base_url: str | None,
    format_name: str | None,
    dialect: str | None,
    headers: Mapping[str, str] | None,
) -> _Endpoint:
    """Return the endpoint that a client's arguments and the environment name.

    Raises:
        UsageError: they name none.
    """
    if not isinstance(provider, str):  # such as a Request: it is not quoted
        raise UsageError(
            f"provider must be a name like 'openai', not a value of type {type(provider).__name__}"
        )
    if provider not in PROVIDERS and (format_name is None or base_url is None):
        hint = did_you_mean(canonical(provider), PROVIDERS)
        raise UsageError(
            f"unknown provider {provider!r}: {hint} Any other needs format and base_url"
        )
    known = PROVIDERS.get(provider, ProviderEndpoint())
    speaks = format_of(format_name or known.format)
    key = key or os.environ.get(known.key_variable or "")
    auth = _auth(known, speaks, key)
    if key is not None and not _HEADER.fullmatch(key):
        # Sent as it is, it would come back within the HTTP library's error message.
        raise UsageError(
            f"the API key for {provider!r} contains a space, a line end or another character that "
            f"is invalid in keys"
        )
    given = base_url or os.environ.get(known.base_url_variable or "")
    if key is None and known.key_variable and given is None and auth is not Auth.SIGV4:
        raise UsageError(f"no API key for {provider!r}: give api_key, or set {known.key_variable}")
    url = _base_url(provider, known, speaks, given)
    credentials = (
        {} if key is None else {auth.value: f"Bearer {key}" if auth is Auth.BEARER else key}
    )
    sent = {"content-type": "application/json", **PROVIDERS[speaks.provider].headers, **credentials}
    return _Endpoint(
        provider=provider,
        format=speaks,
        dialect=known_dialect(speaks, dialect_in(speaks, provider) if dialect is None else dialect),
        url=url,
        headers={**sent, **(headers or {})},
        signer=aws_signing.signer(_region(url)) if auth is Auth.SIGV4 and key is None else None,
    )


def _base_url(provider: str, known: ProviderEndpoint, speaks: Format, given: str | None) -> str:
    address = given or (known.base_url or "").format(region=_region())
    if not address:
        variable = f", or set {known.base_url_variable}" if known.base_url_variable else ""
        raise UsageError(f"{provider!r} has no known address: give base_url{variable}")
    url = urlsplit(address)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UsageError(f"base_url is not an address: {given!r}; give one like 'https://host/v1'")
    if url.path in ("", "/") and known.base_path:
        return address.rstrip("/") + known.base_path
    if speaks.routed("POST", url.path) is not None:
        raise UsageError(f"base_url must not include the endpoint path {url.path!r}: remove it")
    return address


def _auth(known: ProviderEndpoint, speaks: Format, key: str | None) -> Auth:
    """How a provider is told who asks.

    Another format than its own brings that format's way; Azure keeps its own.
    """
    keeps = known.format == speaks.name or known.auth is Auth.API_KEY
    auth = known.auth if keeps else PROVIDERS[speaks.provider].auth
    return Auth.BEARER if auth is Auth.SIGV4 and key is not None else auth


def _region(url: str = "") -> str:
    """Return the region to ask and to sign for.

    The one that AWS's own host names, else the environment's.
    """
    named = _REGION.search(urlsplit(url).hostname or "")
    return (
        named[1]
        if named
        else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    )


def _shown(url: str) -> str:
    """Return a URL without what may be secret in it: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


# --- One call, without its I/O --------------------------------------------------------------------


class _HttpCall:
    """One call without its I/O.

    What to send, what the answer means, and the scope in which it is announced.

    Within it, whatever raises ends the call.
    """

    def __init__(
        self, endpoint: _Endpoint, library: Any, http: Any, request: Request, *, stream: bool
    ) -> None:
        if not isinstance(request, Request):
            raise UsageError(
                f"a client takes a Request(model=…, messages=…), not a {type(request).__name__}"
            )
        body = endpoint.format.encode(request, stream=stream, dialect=endpoint.dialect)
        asked = endpoint.format.request_summary({"model": request.model, "stream": stream, **body})
        # What is fetched by its id is made in the background, whether or not the answer says so.
        asked.background = asked.background or request.retrieve is not None
        self._endpoint = endpoint
        self._library = library
        self._http = http
        self._request = request
        self._stream = stream
        self._context = Context(endpoint.dialect, endpoint.provider, asked)
        self._method, self._url = endpoint.route(request, stream=stream)
        try:
            self._content = (
                json.dumps(body, allow_nan=False).encode() if self._method == "POST" else b""
            )
        except (ValueError, TypeError) as error:
            raise UsageError(f"the request cannot be written as JSON: {error}") from None
        self._decoder = endpoint.format.decoder(self._context)
        self._events = framing.decoder(endpoint.format.framing)
        self._status = 200
        self._headers: Mapping[str, str] = {}
        self._streaming = self._begun = False
        self._lost: str | None = None
        self._whole: list[bytes] | None = None
        self._scope = None
        if listeners.listening():
            where = urlsplit(endpoint.url)
            self._scope = open_call(
                Layer.CLIENT,
                replace(asked.facts, model=request.model, stream=stream),
                EndpointFacts(
                    provider=endpoint.provider,
                    server_address=where.hostname,
                    server_port=where.port,
                ),
                summary=asked,
            )

    def send(self) -> Any:
        """Have the HTTP client send the request, which that client has built."""
        headers = self._endpoint.signed(self._method, self._url, self._content)
        http, content = self._http, self._content or None
        request = http.build_request(self._method, self._url, content=content, headers=headers)
        return http.send(request, stream=self._stream)

    @contextmanager
    def io(self) -> Iterator[None]:
        """Around each piece of I/O.

        The call is current within, so that no layer below announces it again.

        A connection that is lost ends a stream; before that it is an error.
        """
        try:
            with nullcontext() if self._scope is None else self._scope.step():
                yield
        except self._library.RequestError as error:
            lost = "timeout" if isinstance(error, self._library.TimeoutException) else "connection"
            if not self._streaming:
                provider = self._endpoint.provider
                raise unreachable(
                    lost, f"{provider} at {_shown(self._url)}", provider, error
                ) from error
            self._lost = lost

    def whole(self, answer: Any) -> ChatResponse:
        """Read a complete response.

        Raises:
            RequestRejected, ProviderUnavailable: it is an error.
            DecodeError: it is not in the provider's format.
        """
        self._status, self._headers = answer.status_code, answer.headers
        if not answer.is_success:
            raise self._rejection(answer.content)
        response = self._decoded(answer.content)
        self._end(response)
        return response

    def _rejection(self, content: bytes) -> ProviderError:
        """Read a response that is not a success.

        A key that it quotes is taken out before anything is shortened.
        """
        said = self._endpoint.without_secrets(content.decode("utf-8", "surrogateescape"))
        return error_of(
            self._status, self._headers, said.encode("utf-8", "surrogateescape"), ctx=self._context
        )

    def _decoded(self, content: bytes) -> ChatResponse:
        try:
            return self._endpoint.format.decode(
                framing.parse(content), ctx=self._context, headers=self._headers
            )
        except DecodeError as error:
            error.status = self._status
            error.body = shortened(
                self._endpoint.without_secrets(content.decode("utf-8", "replace"))
            )
            raise

    def opened(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Take the headers of a stream; or those of an error, whose body is read as it is."""
        self._status, self._headers = answer.status_code, answer.headers
        self._streaming = answer.is_success
        if not self._streaming:
            self._begun, self._whole = True, []
        chunks = (
            answer.aiter_bytes() if iscoroutinefunction(self._http.send) else answer.iter_bytes()
        )
        return chunks, (chunks, answer)

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """Return the deltas that the next bytes of a stream complete.

        Raises:
            DecodeError: the stream is not in the provider's format; `partial` is what came before.
        """
        if self._scope is not None and self._streaming:
            self._scope.record_chunk()
        if not self._begun and chunk.strip():
            self._begun = True
            # Asked for a stream, some servers and proxies answer with one document: JSON, or a
            # page.
            self._whole = None if begins_stream(chunk, self._endpoint.format.framing) else []
        if self._whole is not None:
            self._whole.append(chunk)
            return
        yield from self._deltas(self._events.feed(chunk))

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """Return what a stream's end completes; the response is the last item.

        Raises:
            ProviderError: what came is an error, or no stream, and no response either.
        """
        if not self._streaming:
            raise self._rejection(b"".join(self._whole or ()))
        if self._whole is not None and self._lost is None:
            response = self._decoded(b"".join(self._whole))
            if response.text:
                yield Delta(text=response.text)
        else:
            yield from self._deltas(self._events.close())
            response = self._decoder.close()
        response = cut_by(self._lost, response.but(quota=quota(self._headers)))
        self._end(response)
        yield response

    def _deltas(self, events: Iterable[Event]) -> Iterator[Delta]:
        try:
            for event in events:
                yield from self._decoder.feed(event)
        except DecodeError as error:
            error.status, error.partial = self._status, error.partial or self._decoder.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """End the call with what was raised.

        The provider's key is taken out of what a ProviderError says.
        """
        if error is None:
            return
        if isinstance(error, DecodeError):
            error.provider = self._endpoint.provider
            error.args = (f"{error.provider}: {error}",)
        if isinstance(error, ProviderError):
            clean = self._endpoint.without_secrets
            error.request_id = error.request_id or request_id(self._headers)
            error.args = tuple(clean(arg) if isinstance(arg, str) else arg for arg in error.args)
            error.body = None if error.body is None else clean(error.body)
            if error.stop is not None and error.stop.detail is not None:
                error.stop = replace(error.stop, detail=clean(error.stop.detail))
        partial = getattr(error, "partial", None) or self._decoder.close()
        # the host stops after the reason
        is_over = partial.stop.terminal_seen and not isinstance(error, Exception)
        self._end(
            partial,
            partial.stop if is_over else stop_by(error),
            None if isinstance(error, GeneratorExit) else error,
        )

    def _end(
        self, response: ChatResponse, stop: Stop | None = None, error: BaseException | None = None
    ) -> None:
        if self._scope is None or self._scope.ended:
            return
        announce_end(
            self._scope, self._request, response, stop or response.stop, error,
            raw=response.stop.raw, beside=self._context.asked.system is not None,
        )  # fmt: skip


# --- The clients ----------------------------------------------------------------------------------


def _opened(http: Any, kind: str, timeout: float | None) -> tuple[Any, Any, bool]:
    """Return the HTTP library, its client, and whether that client is ours.

    The library is httpx2 if the host's client is of httpx2, else httpx.
    """
    roots = (each.__module__.partition(".")[0] for each in type(http).__mro__)
    library = import_module(next((root for root in roots if root in ("httpx", "httpx2")), "httpx"))
    if not hasattr(http, "send"):
        return library, getattr(library, kind)(transport=http, timeout=timeout), True
    if iscoroutinefunction(http.send) is not (kind == "AsyncClient"):
        other = "Client" if kind == "AsyncClient" else "AsyncClient"
        raise UsageError(
            f"http is a {type(http).__name__}, which goes with {other}; this is {kind}"
        )
    return library, http, False


class _Client:
    """Where requests go, and by which HTTP client, whose class is named here."""

    _kind: ClassVar[str]

    def __init__(
        self,
        provider: str = "openai",
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        format: str | None = None,
        dialect: str | None = None,
        http: Any = None,
        timeout: float | None = 600.0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint = _endpoint(provider, api_key, base_url, format, dialect, headers)
        self.provider, self.format, self.dialect = (
            provider,
            self._endpoint.format.name,
            self._endpoint.dialect,
        )
        self.endpoint = _shown(self._endpoint.url)
        self.retrieves = capabilities.of(self.format, self.dialect, "").retrieve
        self._library, self._http, self._owned = _opened(http, self._kind, timeout)

    def _call(self, request: Request, *, stream: bool) -> _HttpCall:
        return _HttpCall(self._endpoint, self._library, self._http, request, stream=stream)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.provider!r}, format={self.format!r}, "
            f"url={_shown(self._endpoint.url)!r})"
        )


class Client(_Client):
    """Sends requests to one provider. Safe among threads; close it, or use it in a `with` block.

    Args:
        provider: a name in PROVIDERS, or any other with `format` and `base_url`.
        api_key: by default the provider's environment variable. Neither logged nor shown.
        base_url: where the provider answers, up to the format's own path:
            `https://api.openai.com/v1`; else what OPENAI_BASE_URL or ANTHROPIC_BASE_URL says, else
            the provider's own.
        format, dialect: the format, and whose variant of it.
        http: an httpx (or httpx2) client, which stays the host's to close, or a transport.
        timeout: seconds without a byte before giving up; None waits for ever. A client given as
            `http` has its own.
        headers: further HTTP headers of every request.

    Raises:
        UsageError: unknown key, or the provider is not known by name.
    """

    _kind = "Client"

    def complete(self, request: Request) -> ChatResponse:
        """One request, one whole response.

        Raises:
            ProviderError: there was none; its type says whose fault that is.
        """
        with self._call(request, stream=False) as call:
            return provider_calls.complete(call)

    __call__ = complete

    def stream(self, request: Request) -> Generator[Delta | ChatResponse]:
        """Yield the response's deltas as they arrive, and the response last.

        The request is sent at the first `next`.

        A stream that is lost after it began ends like any other: with the partial response, stop
        `missing`.

        Raises:
            ProviderError: no stream began, or (DecodeError) it is not in the provider's format.
        """
        with self._call(request, stream=True) as call:
            yield from provider_calls.stream(call)

    def close(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owned:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class AsyncClient(_Client):
    """`Client`, awaited: the same arguments, `http` being an async client or transport."""

    _kind = "AsyncClient"

    async def complete(self, request: Request) -> ChatResponse:
        """One request, one whole response; see `Client.complete`."""
        with self._call(request, stream=False) as call:
            return await provider_calls.acomplete(call)

    __call__ = complete

    async def stream(self, request: Request) -> AsyncGenerator[Delta | ChatResponse]:
        """Yield the response's deltas, and at last the response; see `Client.stream`."""
        with self._call(request, stream=True) as call:
            async with aclosing(provider_calls.astream(call)) as items:
                async for item in items:
                    yield item

    async def aclose(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owned:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.aclose()
