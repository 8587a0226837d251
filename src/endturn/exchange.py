"""One call to a provider without its I/O: where it goes, what is sent, what the answer means, how it is announced."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit, urlunsplit

from endturn import hooks, signing
from endturn.chat import ChatResponse, Delta, Request
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, UsageError
from endturn.formats import TAIL, Context, Event, Framing, dialect_in, format_of, framing, known_dialect
from endturn.formats.errors import error_of, quota, request_id, shortened
from endturn.formats.format import Format
from endturn.providers import PROVIDERS, Auth, ProviderEndpoint, canonical
from endturn.scopes import Layer, open_call
from endturn.signing import Signer
from endturn.stop import Stop, StopReason

_REGION: Final = re.compile(r"(?:^|\.)bedrock-runtime(?:-fips)?\.([a-z0-9-]+)\.")

_BEGINS: Final = {Framing.SSE: frozenset({b"d", b"e", b"i", b"r", b":", b"\xef"}), Framing.NDJSON: frozenset({b"{"})}
"""What a stream begins with: data, event, id, retry, a comment, a byte order mark; an object."""

_SECRETS: Final = frozenset({"authorization", "proxy-authorization", "cookie", *(auth.value for auth in Auth)})
"""Headers whose values no error may show."""

_SHORTEST_SECRET: Final = 8
"""Characters; what is shorter ("none", "EMPTY") is no secret, and may be a word of the answer."""

_HEADER: Final = re.compile(r"[\x21-\x7e]+")


def shown(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _credentials(auth: Auth, key: str | None) -> dict[str, str]:
    if key is None:
        return {}
    return {auth.value: f"Bearer {key}" if auth is Auth.BEARER else key}


@dataclass(frozen=True, slots=True)
class Endpoint:
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

    @classmethod
    def of(
        cls,
        provider: str,
        *,
        api_key: str | None,
        base_url: str | None,
        format_name: str | None,
        dialect: str | None,
        headers: Mapping[str, str] | None,
    ) -> Endpoint:
        if not isinstance(provider, str):
            # Such as a Request: it is not quoted.
            raise UsageError(f"provider is a name like 'openai', not a value of type {type(provider).__name__}")
        if provider not in PROVIDERS and (format_name is None or base_url is None):
            raise UsageError(f"no provider is known as {provider!r}: {_did_you_mean(provider)}")
        known = PROVIDERS.get(provider, ProviderEndpoint())
        told = base_url or os.environ.get(known.base_url_variable or "")
        speaks = format_of(format_name or known.format)
        key = api_key or os.environ.get(known.key_variable or "")
        auth = _auth(known, speaks, key)
        if key is None and known.key_variable and told is None and auth is not Auth.SIGV4:
            raise UsageError(f"no API key for {provider!r}: give api_key, or set {known.key_variable}")
        address = told or known.base_url
        if address is None:
            raise UsageError(f"no address is known of {provider!r}: give base_url" + _or_set(known.base_url_variable))
        address = address.format(region=_region()) if told is None else address
        url = urlsplit(address)
        if url.path in ("", "/") and known.base_path:
            address = address.rstrip("/") + known.base_path
        elif speaks.routed("POST", url.path) is not None:
            raise UsageError(f"base_url has the format's own path already: cut it off from {url.path!r}")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise UsageError(f"base_url is not an address: {told!r}; give one like 'https://host/v1'")
        if key is not None and not _HEADER.fullmatch(key):
            # Sent as it is, it would come back within the HTTP library's error message.
            raise UsageError(f"the API key for {provider!r} holds a space, a line end or another character no key has")
        sent = {"content-type": "application/json", **PROVIDERS[speaks.provider].headers, **_credentials(auth, key)}
        return cls(
            provider=provider,
            format=speaks,
            dialect=known_dialect(speaks, dialect_in(speaks, provider) if dialect is None else dialect),
            url=address,
            headers={**sent, **(headers or {})},
            signer=signing.signer(_region(url.hostname)) if auth is Auth.SIGV4 and key is None else None,
        )

    def route(self, request: Request, *, stream: bool) -> tuple[str, str]:
        """The method and the URL of a request."""
        method, path = self.format.route(request, stream=stream, dialect=self.dialect)
        base = urlsplit(self.url)
        path, _, query = path.partition("?")
        parts = base._replace(path=base.path.rstrip("/") + path, query="&".join(filter(None, (base.query, query))))
        return method, urlunsplit(parts)

    def without_secrets(self, content: bytes) -> bytes:
        """What a provider sent, without the key that it may quote."""
        for secret in self._secrets():
            content = content.replace(secret.encode("latin-1", "replace"), b"[removed]")
        return content

    def clean(self, error: ProviderError) -> None:
        """Take the key out of whatever an exception says."""
        for secret in self._secrets():
            error.args = tuple(arg.replace(secret, "[removed]") if isinstance(arg, str) else arg for arg in error.args)
            error.body = None if error.body is None else error.body.replace(secret, "[removed]")
            if error.stop is not None and secret in (error.stop.detail or ""):
                error.stop = replace(error.stop, detail=None)

    def _secrets(self) -> Iterator[str]:
        for name, value in self.headers.items():
            if name.lower() in _SECRETS and len(secret := value.removeprefix("Bearer ")) >= _SHORTEST_SECRET:
                yield secret

    def signed(self, method: str, url: str, content: bytes) -> dict[str, str]:
        """The headers of a request. A signature holds for minutes, so each is made when it is sent."""
        return self.headers if self.signer is None else self.signer(method, url, self.headers, content)


def _did_you_mean(provider: str) -> str:
    asked = canonical(provider)
    near = [asked] if asked in PROVIDERS else [name for name in PROVIDERS if asked and (asked in name or name in asked)]
    near = near or get_close_matches(asked, PROVIDERS, n=2)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}? Any other needs format and base_url"
    return f"give format and base_url, or one of {', '.join(PROVIDERS)}"


def _auth(known: ProviderEndpoint, speaks: Format, key: str | None) -> Auth:
    """How a provider is told who asks. Another format than its own brings that format's way; Azure keeps its own."""
    keeps = known.format == speaks.name or known.auth is Auth.API_KEY
    auth = known.auth if keeps else PROVIDERS[speaks.provider].auth
    return Auth.BEARER if auth is Auth.SIGV4 and key is not None else auth


def _or_set(variable: str | None) -> str:
    return f", or set {variable}" if variable else ""


def _region(host: str = "") -> str:
    """The region to ask and to sign for: the one that AWS's own host names, else the environment's."""
    named = _REGION.search(host)
    return named[1] if named else os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


class Exchange:
    """One call without its I/O: what to send, what the answer means, and the scope in which it is announced.

    As a context manager it closes that scope, whatever happens within.
    """

    def __init__(self, endpoint: Endpoint, library: Any, request: Request, *, stream: bool) -> None:
        if not isinstance(request, Request):
            raise UsageError(f"a client is given a Request(model=…, messages=…), not a {type(request).__name__}")
        body = endpoint.format.encode(request, stream=stream, dialect=endpoint.dialect)
        asked = endpoint.format.request_summary({"model": request.model, "stream": stream, **body})
        # What is fetched by its id is made in the background, whether or not the answer says so.
        asked.background = asked.background or request.retrieve is not None
        self._endpoint = endpoint
        self._library = library
        self._context = Context(endpoint.dialect, endpoint.provider, asked)
        self._method, self._url = endpoint.route(request, stream=stream)
        try:
            self._content = json.dumps(body, allow_nan=False).encode() if self._method == "POST" else b""
        except (ValueError, TypeError) as error:
            raise UsageError(f"the request cannot be written as JSON: {error}") from None
        self._decoder = endpoint.format.decoder(self._context)
        self._events = framing.decoder(endpoint.format.framing)
        self._headers: Mapping[str, str] = {}
        self._lost: str | None = None
        self._request = request
        self._whole: list[bytes] | None = None
        self._begun = False
        self._call = None
        if hooks.listening():
            where = urlsplit(endpoint.url)
            self._call = open_call(
                Layer.CLIENT,
                asked,
                provider=endpoint.provider,
                model=request.model,
                stream=stream,
                server_address=where.hostname,
                server_port=where.port,
            )

    def step(self) -> AbstractContextManager[None]:
        """Around each piece of I/O: the call is current within, so that no layer below announces it again."""
        return nullcontext() if self._call is None else self._call.step()

    def outgoing(self, http: Any) -> Any:
        """The HTTP request, built by the client that will send it."""
        headers = self._endpoint.signed(self._method, self._url, self._content)
        return http.build_request(self._method, self._url, content=self._content or None, headers=headers)

    @contextmanager
    def connecting(self) -> Iterator[None]:
        """Around what must succeed: the library's errors become ours."""
        try:
            yield
        except self._library.TimeoutException as error:
            raise self._failed(ProviderTimeout, "no answer in time", error) from error
        except self._library.RequestError as error:
            raise self._failed(ProviderUnavailable, "the connection failed", error) from error

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Around reading a stream: a lost connection ends it."""
        try:
            yield
        except self._library.TimeoutException:
            self._lost = "timeout"
        except self._library.RequestError:
            self._lost = "connection"

    def _failed(self, kind: type[ProviderError], what: str, error: Exception) -> ProviderError:
        # Not the library's own words: they may quote what was sent.
        name, url = self._endpoint.provider, shown(self._url)
        return kind(f"{name} at {url}: {what} ({type(error).__name__})", provider=name)

    def whole(self, status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse:
        """What a complete answer means.

        Raises:
            RequestRejected, ProviderUnavailable: it is an error.
            DecodeError: it is not in the provider's format.
        """
        if not 200 <= status < 300:
            raise self.rejection(status, headers, content)
        response = self._decoded(status, headers, content)
        self._end(response)
        return response

    def _decoded(self, status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse:
        self._headers = headers
        try:
            return self._endpoint.format.decode(framing.parse(content), ctx=self._context, headers=headers)
        except DecodeError as error:
            error.body = shortened(self._endpoint.without_secrets(content).decode("utf-8", "replace"))
            raise self._described(error, status) from None

    def rejection(self, status: int, headers: Mapping[str, str], content: bytes) -> ProviderError:
        """What an answer says that is not a success. A key that it quotes is taken out."""
        content = self._endpoint.without_secrets(content)
        return error_of(status, headers, content, ctx=self._context)

    def begin(self, headers: Mapping[str, str]) -> None:
        """A stream's headers have arrived."""
        self._headers = headers

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """The deltas that the next bytes of a stream complete.

        Raises:
            DecodeError: the stream is not in the provider's format; `partial` is what came before.
        """
        if self._call is not None:
            self._call.chunk()
        if not self._begun and chunk.strip():
            self._begun = True
            # Asked for a stream, some servers and proxies answer with one document: JSON, or a page.
            begins = _BEGINS.get(self._endpoint.format.framing)
            if begins is not None and chunk.lstrip()[:1] not in begins:
                self._whole = []
        if self._whole is not None:
            self._whole.append(chunk)
            return
        yield from self._deltas(self._events.feed(chunk))

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """What a stream's end completes; the response is the last item.

        Raises:
            ProviderError: what came is no stream, and no response either.
        """
        if self._whole is not None and self._lost is None:
            response = self._decoded(200, self._headers, b"".join(self._whole))
            if response.text:
                yield Delta(text=response.text)
        else:
            yield from self._deltas(self._events.close())
            response = self._decoder.close()
        response = response.but(quota=quota(self._headers))
        if self._lost is not None and response.stop.detail in (None, "stream_cut"):
            response = response.with_stop(detail=self._lost)
        self._end(response)
        yield response

    def _deltas(self, events: Iterable[Event]) -> Iterator[Delta]:
        try:
            for event in events:
                yield from self._decoder.feed(event)
        except DecodeError as error:
            error.partial = error.partial or self._decoder.close()
            raise self._described(error, 200) from None

    def _described(self, error: DecodeError, status: int) -> DecodeError:
        provider = self._endpoint.provider
        error.provider, error.status, error.request_id = provider, status, request_id(self._headers)
        error.args = (f"{provider}: {error}",)
        return error

    def _end(self, response: ChatResponse, stop: Stop | None = None, error: BaseException | None = None) -> None:
        if self._call is not None:
            if hooks.takes_content():
                self._call.said(self._request, response, beside=self._context.asked.system is not None)
            self._call.end(
                stop or response.stop,
                usage=response.usage,
                response_id=response.id,
                response_model=response.model,
                reasons=(response.stop.raw,),
                output_chars=len(response.text),
                tail=response.text[-TAIL:],
                error=error,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ProviderError):
            error.request_id = error.request_id or request_id(self._headers)
            self._endpoint.clean(error)
        if self._call is None or self._call.ended or error is None:
            return
        partial = getattr(error, "partial", None) or self._decoder.close()
        stop = getattr(error, "stop", None)
        if not isinstance(error, Exception):  # cancelled, interrupted, or a consumer that closed the stream
            stop = Stop(StopReason.CANCELLED, terminal_seen=False, incomplete=True)
        elif stop is None:
            detail = "timeout" if isinstance(error, ProviderTimeout) else None
            stop = Stop(StopReason.ERROR, detail=detail, terminal_seen=False, incomplete=True)
        self._end(partial, stop, None if isinstance(error, GeneratorExit) else error)
