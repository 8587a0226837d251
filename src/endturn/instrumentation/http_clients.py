"""The HTTP clients whose requests are seen.

One method of each is wrapped, as soon as the library is imported.

A library's module of ours has a `patch`: it is given the library, and returns what takes the
wrapping away again. Its `HttpAdapter` reads the library's requests, responses and errors; sending
is the same everywhere, and is here.

`patch` runs while the host's import does: of a library that is half imported. So nothing is
imported then but these modules of ours, which import nothing that their library has not. What reads
a request and its response needs pydantic, whose plugins may import any library: it is imported at
the first request that may ask a model.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from time import monotonic
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, Protocol

import wrapt

from endturn.calls import listeners, log_internal_error
from endturn.instrumentation.addresses import ENDS

if TYPE_CHECKING:
    from endturn.instrumentation.addresses import ErrorResponse, Outgoing
    from endturn.instrumentation.exchange import Exchange

CLIENTS: Final = {
    "httpx": "http_httpx",
    "httpx2": "http_httpx",
    "urllib3.connectionpool": "http_urllib3",
    "aiohttp.client": "http_aiohttp",
    "urllib.request": "http_stdlib",
}
"""A library's module, and ours."""

_MOST_WRAPPERS: Final = 32
"""How many wrappers around a method are looked into; a chain of them may have no end."""

log = logging.getLogger("endturn")

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _never() -> bool:
    return False


_is_observed: Callable[[], bool] = _never
_undo: dict[str, list[Callable[[], None]]] = {}

_exchanges: Any = None
"""The module `exchange`, once a request has needed it."""


def install(is_observed: Callable[[], bool]) -> None:
    """Wrap the methods, of libraries that are imported later too.

    Requests are seen while `is_observed()` is true.

    Called again, it wraps the methods that somebody has put back since.
    """
    global _is_observed
    _is_observed = is_observed
    for name in CLIENTS:
        wrapt.register_post_import_hook(_patch, name)


def uninstall() -> None:
    """Put the libraries' own methods back."""
    global _is_observed
    _is_observed = _never
    for name in list(_undo):
        for undo in _undo.pop(name):
            undo()


def _patch(module: ModuleType) -> None:
    name = module.__name__
    if _is_observed is _never:
        return
    log.debug("endturn: the requests of %s are seen", name)
    try:
        _undo[name] = import_module(f"endturn.instrumentation.{CLIENTS[name]}").patch(module)
    except Exception:
        log_internal_error("instrumenting a client", name)


def may_begin(method: str, path: str) -> bool:
    """Return whether a request may begin an exchange, by its path or URL.

    Every request is asked this first.
    """
    if method == "POST":
        place = path.partition("?")[0].partition("#")[0]
        return place.rstrip("/").rpartition("/")[2].rpartition(":")[2] in ENDS
    return (
        method == "GET" and _exchanges is not None and _exchanges.background_responses.are_pending()
    )


def _begin(adapter: HttpAdapter, client: Any, args: Args, kwargs: Kwargs) -> Exchange | None:
    """Return the exchange of a request, as `exchange.begin` does.

    The first one imports that module.

    Nothing of a request is read, and nothing imported, while nobody observes.
    """
    global _exchanges
    try:
        method, path = adapter.target(client, *args, **kwargs)
        if not may_begin(method, path):
            return None
    except Exception:  # arguments that the method itself will refuse
        return None
    try:
        if not _is_observed():
            return None
        if _exchanges is None:
            from endturn.instrumentation import exchange

            _exchanges = exchange
        begun: Exchange | None = _exchanges.begin(method, adapter.request(client, *args, **kwargs))
    except Exception:  # of a plugin of pydantic's, for instance
        log_internal_error("opening a call")
        return None
    return begun


class HttpAdapter(Protocol):
    """Reads one HTTP library's requests, responses and errors.

    The arguments after `client` are those of the wrapped method. An exception of these methods is
    counted and logged; the host never sees it.
    """

    def target(self, client: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        """Return the method and the path or URL of a request.

        Every request is asked for them, so this is cheap.
        """

    def request(self, client: Any, *args: Any, **kwargs: Any) -> Outgoing:
        """Return a request that may ask a model."""

    def response(self, exchange: Exchange, response: Any, client: Any, kwargs: Kwargs) -> None:
        """Report the response to the exchange, and its bytes as the host reads them."""

    def error(self, error: BaseException) -> ErrorResponse | None:
        """Return the response that an exception carries; None if it carries none."""


def wrap(
    owner: type, name: str, adapter: HttpAdapter, *, is_async: bool = False
) -> Callable[[], None]:
    """Wrap a client's sending method, unless it is wrapped.

    Whoever else wraps the method, before or after, and whichever of its wrappers is called, an
    exchange is seen once.

    Args:
        owner: the client's class.
        name: the method's name.
        adapter: reads what the library sends and receives.
        is_async: the method is to be awaited, whoever else has wrapped it.

    Returns:
        What undoes it. Where somebody has wrapped ours since, that leaves ours inside: it lets
        calls through.
    """

    def send(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        if monotonic() < listeners.idle_until_s:
            return wrapped(*args, **kwargs)
        if client is None:
            wrapped, client, args = _bound(owner, wrapped, args)
        begun = _begin(adapter, client, args, kwargs)
        if begun is None:
            return wrapped(*args, **kwargs)
        try:
            with begun.sending:
                response = wrapped(*args, **kwargs)
        except BaseException as error:
            begun.failed(error, adapter.error)
            raise
        try:
            adapter.response(begun, response, client, kwargs)
        except Exception:
            begun.unreadable()
        return response

    async def asend(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        if monotonic() < listeners.idle_until_s:
            return await wrapped(*args, **kwargs)
        if client is None:
            wrapped, client, args = _bound(owner, wrapped, args)
        begun = _begin(adapter, client, args, kwargs)
        if begun is None:
            return await wrapped(*args, **kwargs)
        try:
            with begun.sending:
                response = await wrapped(*args, **kwargs)
        except BaseException as error:
            begun.failed(error, adapter.error)
            raise
        try:
            adapter.response(begun, response, client, kwargs)
        except Exception:
            begun.unreadable()
        return response

    method = owner.__dict__[name]
    if not _is_wrapped(method):
        setattr(owner, name, _Wrapper(method, asend if is_async else send))

    return partial(_put_back, owner, name)


def _put_back(owner: type, name: str) -> None:
    """Undo the wrapping of a method, unless somebody has wrapped it since."""
    method = owner.__dict__.get(name)
    if type(method) is _Wrapper:
        setattr(owner, name, method.__wrapped__)


# generic in its stubs alone
class _BoundWrapper(wrapt.BoundFunctionWrapper):  # type: ignore[type-arg]
    """A method that we wrap, taken from an object or from the class."""


class _Wrapper(wrapt.FunctionWrapper):  # type: ignore[type-arg]  # generic in its stubs alone
    """A method that we wrap."""

    __bound_function_wrapper__ = _BoundWrapper


def _is_wrapped(method: Any) -> bool:
    """Whether a method is ours, or a wrapper of somebody's around ours."""
    for _ in range(_MOST_WRAPPERS):
        if method is None or type(method) in (_Wrapper, _BoundWrapper):
            break
        method = getattr(method, "__wrapped__", None)
    return method is not None


def _bound(owner: type, wrapped: Any, args: Args) -> tuple[Any, Any, Args]:
    """Return the client's method, the client, and the other arguments of an unbound call.

    Whoever takes the method out of the class's `__dict__`, as `unittest.mock.patch` does, calls it
    with the client as its first argument.
    """
    if args and isinstance(args[0], owner):
        return partial(wrapped, args[0]), args[0], args[1:]
    return wrapped, None, args
