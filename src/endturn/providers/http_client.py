"""Our own HTTP clients: send a Request to a provider, return its ChatResponse or Deltas.

Both are provider functions: a controller takes `client` or `client.stream`. They send each request
once: retries are up to the host, or the controller.

A lost connection raises `ProviderUnavailable` (or `ProviderTimeout`) before the response begins,
and in a body that is not streamed. In a stream, the response so far is returned, with the stop
`missing` and the detail "connection" or "timeout".
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
    checked_dialect,
    dialect_in,
    error_of,
    format_of,
    framing,
    quota,
    request_id,
    safe_excerpt,
)
from endturn.providers import aws_signing, call as provider_calls
from endturn.providers.aws_signing import Signer
from endturn.providers.call import announce_end, connection_error, stop_by, with_connection_failure
from endturn.settings import keywords_checked
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

_SECRET_HEADERS: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", *(auth.value for auth in Auth)}
)
"""Headers whose values must not be in an error message."""

_MIN_SECRET_CHARS: Final = 8
"""Characters; a shorter value ("none", "EMPTY") is no secret, and may be a word of the response."""

_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]+")


# --- Endpoints ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _HttpEndpoint:
    """The address, format and credentials of both clients' requests.

    Attributes:
        url: up to the format's own path; its query is part of every request.
        signer: adds AWS's signature to a request's headers; None if there is a key.
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

    def sign_headers(self, method: str, url: str, content: bytes) -> dict[str, str]:
        """Return the headers of a request.

        A signature is valid for minutes, so each request is signed when it is sent.
        """
        return (
            self.headers if self.signer is None else self.signer(method, url, self.headers, content)
        )

    def without_secrets(self, text: str) -> str:
        """Return a provider's text without our key, which it may quote."""
        for name, value in self.headers.items():
            if (
                name.lower() in _SECRET_HEADERS
                and len(secret := value.removeprefix("Bearer ")) >= _MIN_SECRET_CHARS
            ):
                text = text.replace(secret, "[removed]")
        return text


def _endpoint(
    provider: str,
    key: str | None,
    base_url: str | None,
    format_name: str | None,
    dialect: str | None,
    headers: Mapping[str, str] | None,
) -> _HttpEndpoint:
    """Return the endpoint for a client's arguments and the environment.

    Raises:
        UsageError: the provider, its address or its key is missing or invalid.
    """
    if not isinstance(provider, str):  # it may be a Request, so it is not quoted
        raise UsageError(
            f"provider must be a name like 'openai', not a value of type {type(provider).__name__}"
        )
    if provider not in PROVIDERS and (format_name is None or base_url is None):
        hint = did_you_mean(canonical(provider), PROVIDERS)
        raise UsageError(
            f"unknown provider {provider!r}: {hint} Any other needs format and base_url"
        )
    endpoint = PROVIDERS.get(provider, ProviderEndpoint())
    endpoint_format = format_of(format_name or endpoint.format)
    key = key or os.environ.get(endpoint.key_variable or "")
    auth = _auth(endpoint, endpoint_format, key)
    if key is not None and not _HEADER_VALUE.fullmatch(key):
        # The HTTP library would quote it in its error message.
        raise UsageError(
            f"the API key for {provider!r} contains a space, a line end or another character that "
            f"is invalid in keys"
        )
    override = base_url or os.environ.get(endpoint.base_url_variable or "")
    if key is None and endpoint.key_variable and override is None and auth is not Auth.SIGV4:
        raise UsageError(
            f"no API key for {provider!r}: give api_key, or set {endpoint.key_variable}"
        )
    url = _base_url(provider, endpoint, endpoint_format, override)
    credentials = (
        {} if key is None else {auth.value: f"Bearer {key}" if auth is Auth.BEARER else key}
    )
    base_headers = {
        "content-type": "application/json",
        **PROVIDERS[endpoint_format.provider].headers,
        **credentials,
    }
    return _HttpEndpoint(
        provider=provider,
        format=endpoint_format,
        dialect=checked_dialect(
            endpoint_format, dialect_in(endpoint_format, provider) if dialect is None else dialect
        ),
        url=url,
        headers={**base_headers, **(headers or {})},
        signer=aws_signing.signer(_region(url)) if auth is Auth.SIGV4 and key is None else None,
    )


def _base_url(
    provider: str, endpoint: ProviderEndpoint, endpoint_format: Format, override: str | None
) -> str:
    address = override or (endpoint.base_url or "").format(region=_region())
    if not address:
        variable = f", or set {endpoint.base_url_variable}" if endpoint.base_url_variable else ""
        raise UsageError(f"{provider!r} has no known address: give base_url{variable}")
    url = urlsplit(address)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UsageError(
            f"base_url is not an address: {override!r}; give one like 'https://host/v1'"
        )
    if url.path in ("", "/") and endpoint.base_path:
        return address.rstrip("/") + endpoint.base_path
    if endpoint_format.match_path("POST", url.path) is not None:
        raise UsageError(f"base_url must not include the endpoint path {url.path!r}: remove it")
    return address


def _auth(endpoint: ProviderEndpoint, endpoint_format: Format, key: str | None) -> Auth:
    """Return the authentication for a provider in a format.

    A format other than the provider's own brings that of its API; Azure keeps its own.
    """
    keeps_auth = endpoint.format == endpoint_format.name or endpoint.auth is Auth.API_KEY
    auth = endpoint.auth if keeps_auth else PROVIDERS[endpoint_format.provider].auth
    return Auth.BEARER if auth is Auth.SIGV4 and key is not None else auth


def _region(url: str = "") -> str:
    """Return the AWS region: the one in the URL's host, else the environment's."""
    match = _REGION.search(urlsplit(url).hostname or "")
    return (
        match[1]
        if match
        else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    )


def _public_url(url: str) -> str:
    """Return a URL without the parts that may be secret: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


# --- One call, without its I/O --------------------------------------------------------------------


class _HttpCall:
    """One call without its I/O: its request, its response, and the call scope for telemetry.

    As a context manager it ends the call with any exception.
    """

    def __init__(
        self, endpoint: _HttpEndpoint, library: Any, http: Any, request: Request, *, stream: bool
    ) -> None:
        if not isinstance(request, Request):
            raise UsageError(
                f"a client takes a Request(model=…, messages=…), not a {type(request).__name__}"
            )
        body = endpoint.format.encode(request, stream=stream, dialect=endpoint.dialect)
        summary = endpoint.format.request_summary(
            {"model": request.model, "stream": stream, **body}
        )
        # A response that is fetched by its id runs in the background, even if it does not say so.
        summary.background = summary.background or request.retrieve is not None
        self._endpoint = endpoint
        self._library = library
        self._http = http
        self._request = request
        self._stream = stream
        self._context = Context(endpoint.dialect, endpoint.provider, summary)
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
        self._is_streaming = self._is_started = False
        self._connection_failure: str | None = None
        self._body_chunks: list[bytes] | None = None
        self._scope = None
        if listeners.listening():
            url = urlsplit(endpoint.url)
            self._scope = open_call(
                Layer.CLIENT,
                replace(summary.facts, model=request.model, stream=stream),
                EndpointFacts(
                    provider=endpoint.provider,
                    server_address=url.hostname,
                    server_port=url.port,
                ),
                summary=summary,
            )

    def send(self) -> Any:
        """Build the request with the HTTP client, and send it."""
        headers = self._endpoint.sign_headers(self._method, self._url, self._content)
        http, content = self._http, self._content or None
        request = http.build_request(self._method, self._url, content=content, headers=headers)
        return http.send(request, stream=self._stream)

    @contextmanager
    def io(self) -> Iterator[None]:
        """Return a context for each piece of I/O.

        The call is current within it, so that no layer below announces it again. A lost connection
        ends a stream; before the stream starts it is an error.
        """
        try:
            with nullcontext() if self._scope is None else self._scope.step():
                yield
        except self._library.RequestError as error:
            failure = (
                "timeout" if isinstance(error, self._library.TimeoutException) else "connection"
            )
            if not self._is_streaming:
                provider = self._endpoint.provider
                raise connection_error(
                    failure, f"{provider} at {_public_url(self._url)}", provider, error
                ) from error
            self._connection_failure = failure

    def read_response(self, answer: Any) -> ChatResponse:
        """Read a complete response.

        Raises:
            RequestRejected, ProviderUnavailable: the response is an error.
            DecodeError: the response is not in the provider's format.
        """
        self._status, self._headers = answer.status_code, answer.headers
        if not answer.is_success:
            raise self._rejection(answer.content)
        response = self._decode(answer.content)
        self._end(response)
        return response

    def _rejection(self, content: bytes) -> ProviderError:
        """Return the exception for a response that is not a success.

        Our key is removed from it before anything is shortened.
        """
        text = self._endpoint.without_secrets(content.decode("utf-8", "surrogateescape"))
        return error_of(
            self._status, self._headers, text.encode("utf-8", "surrogateescape"), ctx=self._context
        )

    def _decode(self, content: bytes) -> ChatResponse:
        try:
            return self._endpoint.format.decode(
                framing.parse(content), ctx=self._context, headers=self._headers
            )
        except DecodeError as error:
            error.status = self._status
            error.body = safe_excerpt(
                self._endpoint.without_secrets(content.decode("utf-8", "replace"))
            )
            raise

    def open_stream(self, answer: Any) -> tuple[Any, tuple[Any, ...]]:
        """Take the headers of a stream; or those of an error, whose body is read as a whole."""
        self._status, self._headers = answer.status_code, answer.headers
        self._is_streaming = answer.is_success
        if not self._is_streaming:
            self._is_started, self._body_chunks = True, []
        chunks = (
            answer.aiter_bytes() if iscoroutinefunction(self._http.send) else answer.iter_bytes()
        )
        return chunks, (chunks, answer)

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """Return the deltas that the next bytes of a stream complete.

        Raises:
            DecodeError: the stream is not in the provider's format; `partial` is the response
                before.
        """
        if self._scope is not None and self._is_streaming:
            self._scope.record_chunk()
        if not self._is_started and chunk.strip():
            self._is_started = True
            # Some servers and proxies answer a request for a stream with one document: JSON, or a
            # page.
            self._body_chunks = None if begins_stream(chunk, self._endpoint.format.framing) else []
        if self._body_chunks is not None:
            self._body_chunks.append(chunk)
            return
        yield from self._deltas(self._events.feed(chunk))

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """Return the deltas that a stream's end completes; the response is the last item.

        Raises:
            ProviderError: the response is an error, or neither a stream nor a body of the format.
        """
        if not self._is_streaming:
            raise self._rejection(b"".join(self._body_chunks or ()))
        if self._body_chunks is not None and self._connection_failure is None:
            response = self._decode(b"".join(self._body_chunks))
            if response.text:
                yield Delta(text=response.text)
        else:
            yield from self._deltas(self._events.close())
            response = self._decoder.close()
        response = with_connection_failure(
            self._connection_failure, response.but(quota=quota(self._headers))
        )
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
        """End the call with an exception; remove our key from the text of a ProviderError."""
        if error is None:
            return
        if isinstance(error, DecodeError):
            error.provider = self._endpoint.provider
            error.args = (f"{error.provider}: {error}",)
        if isinstance(error, ProviderError):
            without_secrets = self._endpoint.without_secrets
            error.request_id = error.request_id or request_id(self._headers)
            error.args = tuple(
                without_secrets(arg) if isinstance(arg, str) else arg for arg in error.args
            )
            error.body = None if error.body is None else without_secrets(error.body)
            if error.stop is not None and error.stop.detail is not None:
                error.stop = replace(error.stop, detail=without_secrets(error.stop.detail))
        partial = getattr(error, "partial", None) or self._decoder.close()
        # the host stopped reading after the stop reason
        is_over = partial.stop.terminal_seen and not isinstance(error, Exception)
        self._end(
            partial,
            partial.stop if is_over else stop_by(error),
            None if isinstance(error, GeneratorExit) else error,
        )

    def _end(
        self, response: ChatResponse, stop: Stop | None = None, error: BaseException | None = None
    ) -> None:
        if self._scope is None or self._scope.has_ended:
            return
        announce_end(
            self._scope, self._request, response, stop or response.stop, error,
            raw=response.stop.raw, has_separate_system=self._context.request.system is not None,
        )  # fmt: skip


# --- The clients ----------------------------------------------------------------------------------


def _open_http_client(http: Any, kind: str, timeout: float | None) -> tuple[Any, Any, bool]:
    """Return the HTTP library, its client, and True if that client is ours.

    The library is httpx2 if the host's client is of httpx2, else httpx.
    """
    roots = (base.__module__.partition(".")[0] for base in type(http).__mro__)
    library = import_module(next((root for root in roots if root in ("httpx", "httpx2")), "httpx"))
    if not hasattr(http, "send"):
        return library, getattr(library, kind)(transport=http, timeout=timeout), True
    if iscoroutinefunction(http.send) is not (kind == "AsyncClient"):
        other = "Client" if kind == "AsyncClient" else "AsyncClient"
        raise UsageError(f"http is a {type(http).__name__}, which needs {other}; this is {kind}")
    return library, http, False


class _Client:
    """Base of both clients; `_kind` names the class of the HTTP library's client."""

    _kind: ClassVar[str]

    @keywords_checked()
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
        self.endpoint = _public_url(self._endpoint.url)
        self.retrieves = capabilities.capability_of(self.format, self.dialect, "").retrieve
        self._library, self._http, self._owns_http = _open_http_client(http, self._kind, timeout)

    def _call(self, request: Request, *, stream: bool) -> _HttpCall:
        return _HttpCall(self._endpoint, self._library, self._http, request, stream=stream)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.provider!r}, format={self.format!r}, "
            f"url={_public_url(self._endpoint.url)!r})"
        )


class Client(_Client):
    """Sends requests to one provider. Safe among threads; close it, or use it in a `with` block.

    Args:
        provider: a name in PROVIDERS, or any other with `format` and `base_url`.
        api_key: by default the provider's environment variable. Neither logged nor shown.
        base_url: the provider's address, up to the format's own path: `https://api.openai.com/v1`.
            Default: OPENAI_BASE_URL or ANTHROPIC_BASE_URL, else the provider's own.
        format, dialect: the format, and the provider's variant of it.
        http: an httpx (or httpx2) client, which the host has to close, or a transport.
        timeout: seconds without a byte before giving up; None waits for ever. An `http` client has
            its own.
        headers: further HTTP headers of every request.

    Raises:
        UsageError: no API key, or the provider is not known by name.
    """

    _kind = "Client"

    def complete(self, request: Request) -> ChatResponse:
        """Send a request and return the whole response.

        Raises:
            ProviderError: there is no response; the type shows whose fault that is.
        """
        with self._call(request, stream=False) as call:
            return provider_calls.complete(call)

    __call__ = complete

    def stream(self, request: Request) -> Generator[Delta | ChatResponse]:
        """Yield the response's deltas as they arrive, and the response last.

        The request is sent at the first `next`.

        A stream whose connection is lost ends with the partial response, stop `missing`.

        Raises:
            ProviderError: no stream started, or (DecodeError) it is not in the provider's format.
        """
        with self._call(request, stream=True) as call:
            yield from provider_calls.stream(call)

    def close(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owns_http:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class AsyncClient(_Client):
    """`Client`, awaited: the same arguments, `http` being an async client or transport."""

    _kind = "AsyncClient"

    async def complete(self, request: Request) -> ChatResponse:
        """Send a request and return the whole response; see `Client.complete`."""
        with self._call(request, stream=False) as call:
            return await provider_calls.acomplete(call)

    __call__ = complete

    async def stream(self, request: Request) -> AsyncGenerator[Delta | ChatResponse]:
        """Yield the response's deltas, and the response last; see `Client.stream`."""
        with self._call(request, stream=True) as call:
            async with aclosing(provider_calls.astream(call)) as items:
                async for item in items:
                    yield item

    async def aclose(self) -> None:
        """Close the connections, unless they are the host's."""
        if self._owns_http:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()
