"""Calls over HTTP to a provider's host: the one method of httpx and httpx2 that every request goes through.

Watched are requests to a known provider, those of a client that belongs to an SDK for one, and those of a wrapper that
says who answers (`attempts`). A call of an SDK that is announced already passes: what it sends is part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial, wraps
from types import ModuleType
from typing import Any

from opentelemetry import trace
from pydantic_core import from_json

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Caller, Layer, is_covered, is_sending
from endturn.instrumentation import attempts, hosts, http_answers, routes, sdk_call
from endturn.instrumentation.attempts import Attempts, Owner, Relay
from endturn.instrumentation.hosts import Home
from endturn.instrumentation.patches import Patch, put
from endturn.instrumentation.sdk_call import SdkCall


def patch(module: ModuleType, active: Callable[[], bool]) -> Iterator[Patch]:
    """Wrap `send` of a library's clients, telling each as it is replaced.

    Args:
        module: httpx or httpx2.
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    yield put(module.Client, "send", _send(module.Client.send, module, active))
    yield put(module.AsyncClient, "send", _asend(module.AsyncClient.send, module, active))


def _send(original: Any, library: ModuleType, active: Callable[[], bool]) -> Any:
    @wraps(original)
    def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(self, args, kwargs, active)
        if under_way is None:
            return original(self, *args, **kwargs)
        try:
            with under_way.step():
                response = original(self, *args, **kwargs)
        except BaseException as error:
            _failed(self, under_way, error)
            raise
        _answered(self, under_way, response, library)
        return response

    return send


def _asend(original: Any, library: ModuleType, active: Callable[[], bool]) -> Any:
    @wraps(original)
    async def send(self: Any, *args: Any, **kwargs: Any) -> Any:
        under_way = _begin(self, args, kwargs, active)
        if under_way is None:
            return await original(self, *args, **kwargs)
        try:
            with under_way.step():
                response = await original(self, *args, **kwargs)
        except BaseException as error:
            _failed(self, under_way, error)
            raise
        _answered(self, under_way, response, library)
        return response

    return send


def _begin(client: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], active: Callable[[], bool]) -> SdkCall | None:
    try:
        # What an SDK sends for a call of its own is looked at no further than this.
        if is_sending(id(client)) or not announce.listening():
            return None
        sender = attempts.sent_by(client)
        caller = Caller(None if sender is None else id(client), id(client))
        if is_covered(caller):
            return None
        request = args[0] if args else kwargs["request"]
        url = request.url
        owned = attempts.owners.get(id(client))
        relay = attempts.relay() if owned is None else None
        # Most requests of a process are no model's: up to here, and no further, they are looked at.
        if (owned is None and relay is None and not hosts.may_answer(url.host)) or not active():
            return None
        if sender is not None and sender.under_way is not None:
            sender.refused = None
            return None if sender.under_way.call.ended else sender.under_way
        owner = None if owned is None else owned[1]
        home = hosts.at(url.host, url.port)
        if home is None and owner is not None:
            home = Home(owner.provider, owner.dialect, url.host or None, url.port)
        if home is None and relay is not None:
            home = relay.home(url.host, url.port)
        layer = Layer.HTTP if sender is None else Layer.SDK
        under_way = None if home is None else _opened(request, home, owner, relay, layer, caller)
        if sender is not None:
            sender.under_way = under_way
        elif relay is not None and under_way is not None:
            relay.under_way = under_way
        return under_way
    except Exception:
        swallow("opening a call")
        return None


def _opened(
    request: Any, home: Home, owner: Owner | None, relay: Relay | None, layer: Layer, caller: Caller
) -> SdkCall | None:
    path: str = request.url.raw_path.decode("ascii")
    spoken = routes.spoken(home.provider, home.dialect, request.method, path)
    if spoken is None or "json" not in request.headers.get("content-type", "json"):  # LiteLLM asks Ollama without any
        return None
    speaks, dialect, routed = spoken
    again = None if relay is None else relay.again(speaks)
    if again is not None:
        return again
    body = _body(request)
    if routed.model is not None:
        body = {"model": routed.model, **body}
    stream = routed.stream
    if stream is None and speaks.NAME == "ollama":
        stream = body.get("stream") is not False  # the API streams where it is not said
    home = Home(home.provider, dialect, home.address, home.port)
    span = None if owner is None or owner.span is None else request.extensions.get(owner.span)
    open_it = partial(
        sdk_call.opened,
        speaks,
        body,
        home,
        layer=layer,
        stream=stream,
        model=routed.model or "",
        operation=routed.operation,
        caller=caller,
    )
    if span is None:
        return open_it()
    with trace.use_span(span, record_exception=False, set_status_on_exception=False):
        return open_it(adopt=True)


def _body(request: Any) -> Mapping[str, Any]:
    """What is sent, as far as it is in memory and a JSON object: a stream is not ours to read.

    What is none is a call all the same, which the provider refuses.
    """
    try:
        content = request.content
    except Exception:  # each library has its own
        return {}
    try:
        found = from_json(content, cache_strings="keys")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _failed(client: Any, under_way: SdkCall, error: BaseException) -> None:
    if attempts.sent_by(client) is not None:
        return  # perhaps it is tried again: whoever tries says how it ended
    relay = _relaying(under_way)
    if relay is not None and isinstance(error, Exception):
        relay.failed(error)
    else:
        http_answers.fail(under_way, error, getattr(error, "response", None))


def _answered(client: Any, under_way: SdkCall, response: Any, library: ModuleType) -> None:
    relay = _relaying(under_way)
    tries: Attempts | Relay | None = attempts.sent_by(client) or relay
    if tries is not None and not http_answers.is_success(response):
        tries.refused = (response, library)
        return
    passing = http_answers.take(under_way, response, library)
    if relay is not None:
        relay.answered(passing)


def _relaying(under_way: SdkCall) -> Relay | None:
    """The wrapper's function that makes a call, and may try it again."""
    relay = attempts.relay()
    return relay if relay is not None and relay.under_way is under_way else None
