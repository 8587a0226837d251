"""SDKs that Stainless generated, openai's and anthropic's first: the two methods that every call goes through.

`request` (anthropic 2: `_request`, which runs within its own span) is a whole call, retries included.
`_process_response` turns the HTTP answer into what the host gets. Both are undocumented, so nothing here relies on more
than their names: whatever else is missing, the call goes through unobserved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from types import ModuleType
from typing import Any, Final, NamedTuple

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Caller
from endturn.instrumentation import background, bodies, hosts, sdk_call
from endturn.instrumentation.patches import Undoable, enclose, put
from endturn.instrumentation.sdk_call import SdkCall
from endturn.wires import wire

_current: ContextVar[SdkCall | None] = ContextVar("endturn_sdk_call", default=None)
"""The call that the SDK is working on, for `_process_response`; None where it works on another than the outer one."""


class Route(NamedTuple):
    """What is spoken at a path.

    Attributes:
        dialect: where it is not that of whoever answers.
    """

    wire: str
    dialect: str | None = None


Routes = Mapping[str, Route | None]


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK whose calls are watched.

    Attributes:
        provider: who answers, where the base URL does not say it.
        routes: how the path of a watched POST ends, and what is spoken there; the first that fits counts. Everything
            else passes through: batches, embeddings, files, images, token counts; and so does what has None.
    """

    provider: str
    routes: Routes


_CHAT: Final[Routes] = {"/chat/completions": Route("openai_chat")}
_TEXT: Final[Routes] = {"/completions": Route("completions")}
_RESPONSES: Final[Routes] = {"/responses": Route("openai_responses")}
_MESSAGES: Final[Routes] = {"/v1/messages": Route("anthropic")}

OPENAI: Final = Sdk("openai", {**_CHAT, **_RESPONSES, **_TEXT})
"""Chat, Responses and the old completions, also of the providers that imitate them. Azure's deployments stand before
the same paths."""

ANTHROPIC: Final = Sdk("anthropic", {**_MESSAGES, "/v1/complete": Route("completions", "claude_text")})
"""Messages and their beta (`?beta=true`), by whatever client (Bedrock and Vertex rewrite the path later than here)."""

GROQ: Final = Sdk("groq", _CHAT)
TOGETHER: Final = Sdk("together", {**_CHAT, **_TEXT})
CEREBRAS: Final = Sdk("cerebras", {**_CHAT, **_TEXT})
FIREWORKS: Final = Sdk("fireworks", {**_CHAT, **_TEXT, **_MESSAGES})
SAMBANOVA: Final = Sdk("sambanova", {**_CHAT, **_TEXT, **_RESPONSES, "/messages": Route("anthropic")})
PERPLEXITY: Final = Sdk("perplexity", {"/async/chat/completions": None, **_CHAT, **_RESPONSES})
WRITER: Final = Sdk("writer", {"/v1/chat": Route("openai_chat")})

SDKS: Final[Mapping[str, Sdk]] = {
    "openai._base_client": OPENAI,
    "anthropic._base_client": ANTHROPIC,
    "groq._base_client": GROQ,
    "together._base_client": TOGETHER,
    "cerebras.cloud.sdk._base_client": CEREBRAS,
    "fireworks._base_client": FIREWORKS,
    "sambanova._base_client": SAMBANOVA,
    "perplexity._base_client": PERPLEXITY,
    "writerai._base_client": WRITER,
}
"""The module of each SDK's base client."""


def patch(sdk: Sdk, module: ModuleType, active: Callable[[], bool]) -> Iterator[Undoable]:
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
            patch = put(client, name, wrapper)
            yield patch
            yield from enclose(client, name, patch.original, wrapper)


def _begin(sdk: Sdk, client: Any, args: tuple[Any, ...], kwargs: dict[str, Any], active: bool) -> SdkCall | None:
    if not active or not announce.listening():
        return None
    try:
        # (cast_to, options, …), or by name: openai 1 takes them no other way.
        options: Any = args[1] if len(args) > 1 else kwargs.get("options")
        route = _route(sdk, options)
        if route is None:
            return _fetch(sdk, options, kwargs) if background.waiting() else None
        speaks, home = wire(route.wire), hosts.of_client(client, sdk.provider)
        if route.dialect is not None:
            home = replace(home, dialect=route.dialect)
        # anthropic gives `_request` the span that it made of the call, current now.
        under_way = sdk_call.opened(
            speaks,
            _body(options),
            home,
            stream=True if kwargs.get("stream") else None,
            adopt=kwargs.get("call") is not None,
            caller=Caller(id(client), id(getattr(client, "_client", client))),
        )
        if under_way is not None and under_way.context.asked.background:
            under_way.outlast()
        return under_way
    except Exception:
        swallow("opening a call")
        return None


def _route(sdk: Sdk, options: Any) -> Route | None:
    """What is spoken where a request goes; None where it is not watched."""
    if options.method.lower() != "post":
        return None
    url: str = options.url
    found = sdk.routes.get(url)
    if found is not None:
        return found
    path = url.partition("?")[0]
    for ending, route in sdk.routes.items():
        if path.endswith(ending):
            return route
    return None


def _fetch(sdk: Sdk, options: Any, kwargs: dict[str, Any]) -> SdkCall | None:
    """The call whose response is fetched here, or cancelled: made in the background, and begun in this process."""
    url: str = options.url
    method: str = options.method.upper()
    if method == "POST" and url.endswith("/cancel"):
        method, url = "GET", url.removesuffix("/cancel")
    for name in {route.wire for route in sdk.routes.values() if route is not None}:
        speaks = wire(name)
        routed = speaks.routed(method, url)
        if routed is not None and routed.retrieve is not None:
            fetch = background.fetched(speaks.NAME, routed.retrieve, stream=bool(kwargs.get("stream")))
            job = None if fetch is None else fetch.job
            return None if job is None else SdkCall(job.call, job.wire, job.context, fetch)
    return None


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
    watched = under_way.watched
    under_way.let_go()
    if watched is not None:
        try:
            bodies.watch_native_end(*watched)
        except Exception:
            swallow("watching the SDK's own span")


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
