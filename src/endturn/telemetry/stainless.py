"""SDKs that Stainless generated (openai, anthropic): the two methods of the base client that every call goes through.

`request` (anthropic 2: `_request`, which runs within its own span) is a whole call, retries included.
`_process_response` turns the HTTP answer into what the host gets. Both are undocumented, so nothing here relies on more
than their names: whatever else is missing, the call goes through unobserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import Any, Final

from endturn import announce
from endturn.announce import swallow
from endturn.telemetry import bodies, hosts, sdk_call
from endturn.telemetry.patches import Patch, put
from endturn.telemetry.sdk_call import SdkCall
from endturn.wires import wire

_current: ContextVar[SdkCall | None] = ContextVar("endturn_sdk_call", default=None)
"""The call that the SDK is working on, for `_process_response`; None where it works on another than the outer one."""


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK whose calls are watched.

    Attributes:
        name: of its package, and of the provider that it is for.
        wire: what its calls look like.
        path: how the path of a watched call ends; everything else passes through.
    """

    name: str
    wire: str
    path: str


OPENAI: Final = Sdk("openai", "openai_chat", "/chat/completions")
"""Chat completions, also of the providers that imitate them; not batches, embeddings, files, or Responses."""

ANTHROPIC: Final = Sdk("anthropic", "anthropic", "/v1/messages")
"""Messages and their beta (`?beta=true`), by whatever client (Bedrock and Vertex rewrite the path later than here)."""


def patch(sdk: Sdk, module: ModuleType, active: Callable[[], bool]) -> Iterator[Patch]:
    """Wrap the base clients of an SDK, telling each method as it is replaced.

    Args:
        module: its `_base_client`.
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    streams = (module.Stream, module.AsyncStream)
    for client, asynchronous in ((module.SyncAPIClient, False), (module.AsyncAPIClient, True)):
        whole = "_request" if "_request" in client.__dict__ else "request"
        make_whole, make_answer = (_acall, _aanswer) if asynchronous else (_call, _answer)
        for name, wrapper in (
            (whole, make_whole(getattr(client, whole), sdk, streams, active)),
            ("_process_response", make_answer(client._process_response, streams)),
        ):
            yield put(client, name, wrapper)


def _begin(sdk: Sdk, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any], active: bool) -> SdkCall | None:
    if not active or not announce.listening():
        return None
    try:
        # (cast_to, options, …), or by name: openai 1 takes them no other way.
        options: Any = args[1] if len(args) > 1 else kwargs.get("options")
        if not _is_watched(sdk, options):
            return None
        speaks, home = wire(sdk.wire), hosts.of_client(client, sdk.name)
        # anthropic gives `_request` the span that it made of the call, current now.
        return sdk_call.opened(
            speaks,
            _body(options),
            home,
            stream=True if kwargs.get("stream") else None,
            adopt=kwargs.get("call") is not None,
        )
    except Exception:
        swallow("opening a call")
        return None


def _is_watched(sdk: Sdk, options: Any) -> bool:
    url: str = options.url
    return (url.endswith(sdk.path) or url.partition("?")[0].endswith(sdk.path)) and options.method.lower() == "post"


def _body(options: Any) -> Mapping[str, Any]:
    body, extra = options.json_data, getattr(options, "extra_json", None)
    if body.__class__ is not dict and not isinstance(body, Mapping):
        body = {}
    return {**body, **extra} if extra else body


def _call(original: Any, sdk: Sdk, streams: tuple[type, type], active: Callable[[], bool]) -> Any:
    @wraps(original)
    def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(sdk, self, args, kwargs, active())
        if under_way is None:
            if _current.get() is None:
                return original(self, *args, **kwargs)
            # A middleware of the outer call makes one of its own: the outer one must not take its answer.
            token = _current.set(None)
            try:
                return original(self, *args, **kwargs)
            finally:
                _current.reset(token)
        token = _current.set(under_way)
        try:
            with under_way.step():
                result = original(self, *args, **kwargs)
        except BaseException as error:
            under_way.failed(error)
            raise
        finally:
            _current.reset(token)
        _finish(under_way, result, streams)
        return result

    return request


def _acall(original: Any, sdk: Sdk, streams: tuple[type, type], active: Callable[[], bool]) -> Any:
    @wraps(original)
    async def request(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(sdk, self, args, kwargs, active())
        if under_way is None:
            if _current.get() is None:
                return await original(self, *args, **kwargs)
            token = _current.set(None)
            try:
                return await original(self, *args, **kwargs)
            finally:
                _reset(token)
        token = _current.set(under_way)
        try:
            with under_way.step():
                result = await original(self, *args, **kwargs)
        except BaseException as error:
            under_way.failed(error)
            raise
        finally:
            _reset(token)
        _finish(under_way, result, streams)
        return result

    return request


def _reset(token: Any) -> None:
    try:
        _current.reset(token)
    except ValueError:  # a host that drives one coroutine from several contexts
        _current.set(None)


def _finish(under_way: SdkCall, result: Any, streams: tuple[type, type]) -> None:
    if not under_way.is_taken:
        # A middleware made the answer, or read it first.
        under_way.take(result, streams)
    if isinstance(result, streams):
        try:
            bodies.watch_native_end(result)
        except Exception:
            swallow("watching a stream's span")


def _awaited(client: Any) -> SdkCall | None:
    """The call whose answer this is; None where its middlewares are to have it first."""
    under_way = _current.get()
    return None if under_way is None or getattr(client, "_middleware", None) else under_way


def _answer(original: Any, streams: tuple[type, type]) -> Any:
    @wraps(original)
    def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _awaited(self)
        if under_way is None:
            return original(self, *args, **kwargs)
        under_way.response = kwargs.get("response")
        result = original(self, *args, **kwargs)
        under_way.take(result, streams)
        return result

    return _process_response


def _aanswer(original: Any, streams: tuple[type, type]) -> Any:
    @wraps(original)
    async def _process_response(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _awaited(self)
        if under_way is None:
            return await original(self, *args, **kwargs)
        under_way.response = kwargs.get("response")
        result = await original(self, *args, **kwargs)
        under_way.take(result, streams)
        return result

    return _process_response
