"""One call to a provider without its I/O: where it goes, what is sent, what the answer means, how it is announced."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

from endturn import announce
from endturn.chat import ChatResponse, Delta, Request
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, UsageError
from endturn.stop import Stop, StopReason
from endturn.wires import TAIL, Context, Event, Wire, framing, wire
from endturn.wires.failure import quota


@dataclass(frozen=True, slots=True)
class Home:
    """Where a provider answers, in which wire format, and which environment variables hold its key and another address.

    The variables are those of the provider's own SDK.
    """

    wire: str
    url: str
    key: str | None
    dialect: str = ""
    at: str | None = None


PROVIDERS: Final[Mapping[str, Home]] = {
    "anthropic": Home("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", at="ANTHROPIC_BASE_URL"),
    "deepseek": Home("openai_chat", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek"),
    "fireworks": Home("openai_chat", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", "fireworks"),
    "groq": Home("openai_chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "groq"),
    "mistral_ai": Home("openai_chat", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", "mistral"),
    "moonshot_ai": Home("openai_chat", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "moonshot"),
    "ollama": Home("openai_chat", "http://localhost:11434/v1", None, "ollama"),
    "openai": Home("openai_chat", "https://api.openai.com/v1", "OPENAI_API_KEY", at="OPENAI_BASE_URL"),
    "openrouter": Home("openai_chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter"),
    "together": Home("openai_chat", "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together"),
    "x_ai": Home("openai_chat", "https://api.x.ai/v1", "XAI_API_KEY", "xai"),
}
"""The providers known by name (as in `gen_ai.provider.name`). Any other needs `wire` and `base_url`."""

_HEADER: Final = re.compile(r"[\x21-\x7e]+")
_PATH: Final = {"openai_chat": "/chat/completions", "anthropic": "/v1/messages"}


def shown(url: str) -> str:
    """A URL without what may be secret in it: user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def _credentials(wire_name: str, key: str | None) -> dict[str, str]:
    match wire_name, key:
        case "anthropic", None:
            return {"anthropic-version": "2023-06-01"}
        case "anthropic", str():
            return {"anthropic-version": "2023-06-01", "x-api-key": key}
        case _, str():
            return {"authorization": f"Bearer {key}"}
        case _:
            return {}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where both colours of client send a request, and as whom."""

    provider: str
    wire: Wire
    dialect: str
    url: str
    headers: dict[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
        provider: str,
        *,
        api_key: str | None,
        base_url: str | None,
        wire_name: str | None,
        dialect: str | None,
        headers: Mapping[str, str] | None,
    ) -> Endpoint:
        if not isinstance(provider, str):
            # Such as a Request: it is not quoted.
            raise UsageError(f"provider is a name like 'openai', not a value of type {type(provider).__name__}")
        home = PROVIDERS.get(provider)
        if home is None and (wire_name is None or base_url is None):
            known = ", ".join(PROVIDERS)
            raise UsageError(f"no provider is known as {provider!r}: give wire and base_url, or one of {known}")
        home = home or Home(wire_name or "", base_url or "", None)
        base_url = base_url or (os.environ.get(home.at) if home.at else None)
        name = wire_name or home.wire
        key = api_key or (os.environ.get(home.key) if home.key else None)
        if key is None and home.key and base_url is None:
            raise UsageError(f"no API key for {provider!r}: give api_key, or set {home.key}")
        url = urlsplit(base_url or home.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise UsageError(f"base_url is not an address: {base_url!r}; give one like 'https://host/v1'")
        if key is not None and not _HEADER.fullmatch(key):
            # Sent as it is, it would come back within the HTTP library's error message.
            raise UsageError(f"the API key for {provider!r} holds a space, a line end or another character no key has")
        return cls(
            provider=provider,
            wire=wire(name),
            dialect=home.dialect if dialect is None else dialect,
            url=(base_url or home.url).rstrip("/") + _PATH[name],
            headers={"content-type": "application/json", **_credentials(name, key), **(headers or {})},
        )


class Exchange:
    """One call without its I/O: what to send, what the answer means, and the scope in which it is announced.

    As a context manager it closes that scope, whatever happens within.
    """

    def __init__(self, endpoint: Endpoint, library: Any, request: Request, *, stream: bool) -> None:
        # Only chat has dialects that differ in what is asked: in the name of the output limit.
        dialect = {"dialect": endpoint.dialect} if endpoint.wire.NAME == "openai_chat" else {}
        body = endpoint.wire.encode(request, stream=stream, **dialect)
        asked = endpoint.wire.inspect(body)
        self._endpoint = endpoint
        self._library = library
        self._context = Context(endpoint.dialect, endpoint.provider, asked)
        self._content = json.dumps(body, allow_nan=False).encode()
        self._decoder = endpoint.wire.decoder(self._context)
        self._events = framing.SSEDecoder()
        self._headers: Mapping[str, str] = {}
        self._lost: str | None = None
        self._call = None
        if announce.listening():
            where = urlsplit(endpoint.url)
            self._call = announce.open_call(
                announce.Layer.SDK,
                asked,
                provider=endpoint.provider,
                model=request.model,
                stream=stream,
                maximum=asked.maximum,
                choices=asked.choices,
                temperature=asked.temperature,
                top_p=asked.top_p,
                seed=asked.seed,
                server_address=where.hostname,
                server_port=where.port,
            )

    def step(self) -> AbstractContextManager[None]:
        """Around each piece of I/O: the call is current within, so that no layer below announces it again."""
        return nullcontext() if self._call is None else self._call.step()

    def outgoing(self, http: Any) -> Any:
        """The HTTP request, built by the client that will send it."""
        endpoint = self._endpoint
        return http.build_request("POST", endpoint.url, content=self._content, headers=endpoint.headers)

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
        name, url = self._endpoint.provider, shown(self._endpoint.url)
        return kind(f"{name} at {url}: {what} ({type(error).__name__})", provider=name)

    def whole(self, status: int, headers: Mapping[str, str], content: bytes) -> ChatResponse:
        """What a complete answer means.

        Raises:
            RequestRejected, ProviderUnavailable: it is an error.
            DecodeError: it is not in the provider's format.
        """
        if not 200 <= status < 300:
            raise self.rejection(status, headers, content)
        try:
            response = self._endpoint.wire.decode(framing.parse(content), ctx=self._context, headers=headers)
        except DecodeError as error:
            raise self._described(error, status) from None
        self._end(response)
        return response

    def rejection(self, status: int, headers: Mapping[str, str], content: bytes) -> ProviderError:
        """What an answer says that is not a success."""
        return self._endpoint.wire.decode_error(status, headers, content, ctx=self._context)

    def begin(self, headers: Mapping[str, str]) -> None:
        """A stream's headers have arrived."""
        self._headers = headers

    def feed(self, chunk: bytes) -> Iterator[Delta]:
        """The deltas that the next bytes of a stream complete.

        Raises:
            DecodeError: the stream is not in the provider's format; `partial` is what came before.
        """
        if self._call is not None and self._call.first_chunk_s is None:
            self._call.first_chunk()
        yield from self._deltas(self._events.feed(chunk))

    def finish(self) -> Iterator[Delta | ChatResponse]:
        """What a stream's end completes; the response is the last item."""
        yield from self._deltas(self._events.close())
        response = self._decoder.close()
        response = response.but(quota=quota(self._headers))
        if self._lost is not None and response.stop.detail is None:
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
        error.provider, error.status = self._endpoint.provider, status
        return error

    def _end(self, response: ChatResponse, stop: Stop | None = None, error: BaseException | None = None) -> None:
        if self._call is not None:
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
