"""Interactions in Google's SDK (google-genai 2 and 3): three methods of the generated client below the SDK's own.

`create` is one call of the provider, retries included; the SDK's own follows continuation tokens with several of it.
`get` and `cancel` are none: they show what became of an interaction that this process began in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from types import ModuleType
from typing import Any, Final
from weakref import ref

from endturn import announce
from endturn.announce import swallow
from endturn.instrumentation import background, bodies, sdk_call, streams
from endturn.instrumentation.chunks import AsyncChunks, Chunks
from endturn.instrumentation.google_genai import NO_STREAMS, home_of
from endturn.instrumentation.patches import Patch, put
from endturn.instrumentation.sdk_call import SdkCall
from endturn.stop import Stop, StopReason
from endturn.wires import wire

NAME: Final = "gemini_interactions"

Begin = Callable[[Any, tuple[Any, ...], dict[str, Any]], SdkCall | None]


def patch(module: ModuleType, active: Callable[[], bool]) -> Iterator[Patch]:
    """Wrap what creates an interaction, or fetches one, in `google.genai._gaos.interactions`.

    Args:
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    kinds = (module.Stream, module.AsyncStream)
    for client, wrapper in ((module.Interactions, _call), (module.AsyncInteractions, _acall)):
        for name, begin in (("create", _begin), ("get", _fetch), ("cancel", _fetch)):
            if name in client.__dict__:
                yield put(client, name, wrapper(client.__dict__[name], begin, kinds, active))


def _begin(client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SdkCall | None:
    said = client.sdk_configuration
    # The path of Vertex AI has the project in it, and is kept where the version of the API would be.
    version = kwargs.get("api_version")
    version = version if isinstance(version, str) else said.globals.api_version
    home = home_of(said.get_server_details()[0], "projects/" in str(version))
    under_way = sdk_call.opened(wire(NAME), kwargs, home)
    if under_way is not None:
        under_way.outlast()
    return under_way


def _fetch(client: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> SdkCall | None:
    id_ = args[0] if args else kwargs.get("id")
    if not background.waiting() or not isinstance(id_, str):
        return None
    fetch = background.fetched(NAME, id_, stream=kwargs.get("stream") is True)
    if fetch is None:
        return None
    job = fetch.job
    return SdkCall(job.call, job.wire, job.context, fetch)


def _begun(begin: Begin, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any], active: bool) -> SdkCall | None:
    if not active or not announce.listening():
        return None
    try:
        return begin(client, args, kwargs)
    except Exception:
        swallow("opening a call")
        return None


def _call(original: Any, begin: Begin, kinds: tuple[type, type], active: Callable[[], bool]) -> Any:
    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begun(begin, self, args, kwargs, active())
        if under_way is None:
            return original(self, *args, **kwargs)
        try:
            with under_way.step():
                result = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(under_way, error)
            raise
        _take(under_way, result, kinds)
        return result

    return method


def _acall(original: Any, begin: Begin, kinds: tuple[type, type], active: Callable[[], bool]) -> Any:
    @wraps(original)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begun(begin, self, args, kwargs, active())
        if under_way is None:
            return await original(self, *args, **kwargs)
        try:
            with under_way.step():
                result = await original(self, *args, **kwargs)
        except BaseException as error:
            _failed(under_way, error)
            raise
        _take(under_way, result, kinds)
        return result

    return method


def _take(under_way: SdkCall, result: Any, kinds: tuple[type, type]) -> None:
    """What the SDK hands on: an interaction, a stream of events, or a raw response."""
    if not isinstance(result, kinds):
        under_way.take(result, NO_STREAMS)
        return
    try:
        _watch(under_way, result, asynchronous=isinstance(result, kinds[1]))
    except Exception:
        swallow("watching a stream")
        under_way.take(None, NO_STREAMS)


def _watch(under_way: SdkCall, stream: Any, *, asynchronous: bool) -> None:
    """See a stream being read: the generator in it is replaced, before the SDK puts its own around it."""
    reading = streams.begin(under_way.scope, under_way.watching())
    inner = stream.generator
    chunks = AsyncChunks(inner, reading) if asynchronous else Chunks(inner, reading)
    stream.generator = chunks
    # The SDK's own generators let go of ours before they close the response: the stream itself still holds it then.
    stream.endturn_chunks = chunks
    here = ref(chunks)

    def closed() -> None:
        now = here()
        if now is not None and not now.is_running():
            now.reading.closed()

    bodies.on_close(stream.response, closed)


def _failed(under_way: SdkCall, error: BaseException) -> None:
    """The SDK raised; the error holds the HTTP response under a name of the generator's own."""
    try:
        answer: Any = getattr(error, "raw_response", None)
        if isinstance(error, Exception) and answer is not None and answer.status_code >= 400:
            found = under_way.wire.decode_error(
                answer.status_code, answer.headers, answer.content, ctx=under_way.context
            )
            under_way.scope.end(found.stop or Stop(StopReason.ERROR, incomplete=True), error=error)
            return
    except Exception:
        swallow("reading an error")
    under_way.failed(error)
