"""Google's SDK (google-genai 2 and 3): the methods that ask once for content.

`Models._generate_content` and its three twins are one call of the provider each, retries included. What stands above
them (`generate_content`, chats) may make several: it runs tools between them, and follows continuation tokens. Their
streams begin to ask when they are first read, and nobody but the SDK itself sees what they return. They are
undocumented: what is missing is not patched.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from functools import lru_cache, wraps
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Caller
from endturn.errors import DecodeError
from endturn.instrumentation import sdk_call, streams
from endturn.instrumentation.hosts import Home, of_host
from endturn.instrumentation.patches import Patch, put
from endturn.instrumentation.sdk_call import SdkCall
from endturn.instrumentation.streams import Reading
from endturn.stop import Stop, StopReason
from endturn.wires import wire
from endturn.wires.framing import parse

GEMINI: Final = "gcp.gemini"
VERTEX: Final = "gcp.vertex_ai"

NO_STREAMS: Final = (type(None), type(None))
"""For what never is an SDK's stream object."""

Active = Callable[[], bool]


def patch(module: ModuleType, active: Active) -> Iterator[Patch]:
    """Wrap what asks for content, in `google.genai.models`.

    Args:
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    for name, whole, stream in (("Models", _whole, _stream), ("AsyncModels", _awhole, _astream)):
        owner = getattr(module, name)
        for method, make in (("_generate_content", whole), ("_generate_content_stream", stream)):
            if method in owner.__dict__:
                yield put(owner, method, make(owner.__dict__[method], active))


def _begin(client: Any, kwargs: dict[str, Any], active: bool, *, stream: bool) -> SdkCall | None:
    if not active or not announce.listening():
        return None
    try:
        api = client._api_client
        config = kwargs.get("config")
        options = config.get("http_options") if isinstance(config, dict) else getattr(config, "http_options", None)
        url = options.get("base_url") if isinstance(options, dict) else getattr(options, "base_url", None)
        home = home_of(str(url or api._http_options.base_url or ""), bool(api.vertexai))
        return sdk_call.opened(wire("gemini"), kwargs, home, stream=stream, caller=Caller(id(api)))
    except Exception:
        swallow("opening a call")
        return None


@lru_cache(maxsize=256)
def home_of(url: str, vertex: bool) -> Home:
    """Who answers at a base URL. A client says itself whether it asks Vertex AI, whatever host it is pointed at."""
    found = of_host("", VERTEX if vertex else GEMINI)
    if url:
        parts = urlsplit(url)
        found = of_host(parts.hostname or "", found.provider, parts.port or (80 if parts.scheme == "http" else 443))
    provider = found.provider if found.provider in (GEMINI, VERTEX) else GEMINI
    return Home(VERTEX if vertex else provider, "", found.address, found.port)


def _whole(original: Any, active: Active) -> Any:
    @wraps(original)
    def _generate_content(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(self, kwargs, active(), stream=False)
        if under_way is None:
            return original(self, *args, **kwargs)
        try:
            with under_way.step():
                result = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(under_way, error)
            raise
        under_way.take(_answer(result), NO_STREAMS)
        return result

    return _generate_content


def _awhole(original: Any, active: Active) -> Any:
    @wraps(original)
    async def _generate_content(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(self, kwargs, active(), stream=False)
        if under_way is None:
            return await original(self, *args, **kwargs)
        try:
            with under_way.step():
                result = await original(self, *args, **kwargs)
        except BaseException as error:
            _failed(under_way, error)
            raise
        under_way.take(_answer(result), NO_STREAMS)
        return result

    return _generate_content


def _answer(result: Any) -> Any:
    """What the provider said: asked for the HTTP response (`should_return_http_response`), the SDK parses nothing."""
    try:
        body = getattr(getattr(result, "sdk_http_response", None), "body", None)
        if isinstance(body, str) and result.candidates is None:
            return parse(body.encode())
    except DecodeError:
        return None
    except Exception:
        swallow("reading a response")
    return result


def _stream(original: Any, active: Active) -> Any:
    # A generator, as the original is: nothing is asked, so nothing begins, before it is first read.
    @wraps(original)
    def _generate_content_stream(self: Any, *args: Any, **kwargs: Any) -> Iterator[Any]:
        chunks = original(self, *args, **kwargs)
        under_way = _begin(self, kwargs, active(), stream=True)
        reading = None if under_way is None else _reading(under_way)
        if under_way is None or reading is None:
            yield from chunks
            return
        step: Any = under_way.step()
        while True:
            try:
                with step:
                    chunk = next(chunks)
            except StopIteration:
                reading.over()
                return
            except BaseException as error:
                # Until it has given a chunk, the SDK may not even have asked.
                if step is _AFTERWARDS:
                    _broke(reading, error)
                else:
                    _failed(under_way, error)
                raise
            step = _AFTERWARDS
            reading.passed(chunk)
            # Closed or dropped here, the frame lets go of the reading: its end is noted then.
            yield chunk

    return _generate_content_stream


_AFTERWARDS: Final = nullcontext()


def _astream(original: Any, active: Active) -> Any:
    @wraps(original)
    async def _generate_content_stream(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(self, kwargs, active(), stream=True)
        if under_way is None:
            return await original(self, *args, **kwargs)
        try:
            with under_way.step():
                chunks = await original(self, *args, **kwargs)
        except BaseException as error:
            _failed(under_way, error)
            raise
        reading = _reading(under_way)
        return chunks if reading is None else _Passing(chunks, reading)

    return _generate_content_stream


class _Passing:
    """An async stream's chunks as they pass. No generator: those outlive their host until the loop closes them."""

    __slots__ = ("_inner", "_reading")

    def __init__(self, inner: AsyncIterator[Any], reading: Reading) -> None:
        self._inner = inner
        self._reading = reading

    def __aiter__(self) -> _Passing:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._inner)
        except StopAsyncIteration:
            self._reading.over()
            raise
        except BaseException as error:
            _broke(self._reading, error)
            raise
        self._reading.passed(chunk)
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _reading(under_way: SdkCall) -> Reading | None:
    try:
        return streams.begin(under_way.scope, under_way.watching())
    except Exception:
        swallow("watching a stream")
        under_way.take(None, NO_STREAMS)
        return None


def _broke(reading: Reading, error: BaseException) -> None:
    """Reading raised. What the provider wrote into the stream, the SDK raises as its own."""
    details = getattr(error, "details", None)
    if isinstance(details, dict):
        reading.passed(details if "error" in details else {"error": details})
    reading.broke(error)


def _failed(under_way: SdkCall, error: BaseException) -> None:
    """The SDK raised. Its errors hold the answer as parsed JSON, whatever library of four it came through."""
    try:
        status, details = getattr(error, "code", None), getattr(error, "details", None)
        if isinstance(error, Exception) and isinstance(status, int) and isinstance(details, dict | list):
            body = json.dumps(details, default=str).encode()
            headers = getattr(getattr(error, "response", None), "headers", None) or {}
            known = {str(name): str(value) for name, value in headers.items()}
            found = under_way.wire.decode_error(status, known, body, ctx=under_way.context)
            under_way.scope.end(found.stop or Stop(StopReason.ERROR, incomplete=True), error=error)
            return
    except Exception:
        swallow("reading an error")
    under_way.failed(error)
