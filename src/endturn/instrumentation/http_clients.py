"""The HTTP clients whose requests are observed.

One method of each is wrapped, as soon as the library is imported.

endturn's module for a library has a function `patch`, which takes the library and returns functions
that undo the wrapping. Its `HttpAdapter` reads the library's requests, responses and errors. The
wrapper of the sending method is the same for all libraries, and is in this module.

`patch` runs during the host's import, when the library is half imported. So it imports only these
modules of endturn, which import nothing that their library does not. The code that reads a request
and its response needs pydantic, whose plugins may import any library: it is imported at the first
request that may be a call to a model.
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
from endturn.instrumentation.addresses import ENDPOINT_NAMES

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
"""A library's module → our module."""

_MAX_WRAPPERS: Final = 32
"""The most wrappers around a method that are unwrapped; a chain of them may have no end."""

log = logging.getLogger("endturn")

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _is_never_observed() -> bool:
    return False


_is_observed: Callable[[], bool] = _is_never_observed
_undo_functions: dict[str, list[Callable[[], None]]] = {}

_exchanges: Any = None
"""The module `exchange`, once a request has needed it."""


def install(is_observed: Callable[[], bool]) -> None:
    """Wrap the methods, of libraries that are imported later too.

    Requests are observed while `is_observed()` is true. Another call wraps the methods again that
    have been restored since.
    """
    global _is_observed
    _is_observed = is_observed
    for name in CLIENTS:
        wrapt.register_post_import_hook(_patch, name)


def uninstall() -> None:
    """Restore the libraries' own methods."""
    global _is_observed
    _is_observed = _is_never_observed
    for name in list(_undo_functions):
        for undo in _undo_functions.pop(name):
            undo()


def _patch(module: ModuleType) -> None:
    name = module.__name__
    if _is_observed is _is_never_observed:
        return
    log.debug("endturn: the requests of %s are seen", name)
    try:
        _undo_functions[name] = import_module(f"endturn.instrumentation.{CLIENTS[name]}").patch(
            module
        )
    except Exception:
        log_internal_error("instrumenting a client", name)


def may_begin(method: str, path: str) -> bool:
    """Return whether a request may begin an exchange, by its path or URL.

    This is the first check of every request.
    """
    if method == "POST":
        url_path = path.partition("?")[0].partition("#")[0]
        return url_path.rstrip("/").rpartition("/")[2].rpartition(":")[2] in ENDPOINT_NAMES
    return (
        method == "GET" and _exchanges is not None and _exchanges.background_responses.are_pending()
    )


def _begin(adapter: HttpAdapter, client: Any, args: Args, kwargs: Kwargs) -> Exchange | None:
    """Return the exchange of a request, as `exchange.begin` does.

    The first one imports that module.

    Without listeners nothing of a request is read, and nothing is imported.
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
        new_exchange: Exchange | None = _exchanges.begin(
            method, adapter.request(client, *args, **kwargs)
        )
    except Exception:  # of a plugin of pydantic's, for instance
        log_internal_error("opening a call")
        return None
    return new_exchange


class HttpAdapter(Protocol):
    """Reads one HTTP library's requests, responses and errors.

    The arguments after `client` are those of the wrapped method. An exception of these methods is
    counted and logged; the host never sees it.
    """

    def target(self, client: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        """Return the method and the path or URL of a request.

        This is called for every request, so it is cheap.
        """

    def request(self, client: Any, *args: Any, **kwargs: Any) -> Outgoing:
        """Return a request that may be a call to a model."""

    def response(self, exchange: Exchange, response: Any, client: Any, kwargs: Kwargs) -> None:
        """Report the response to the exchange, and its bytes as the host reads them."""

    def error(self, error: BaseException) -> ErrorResponse | None:
        """Return the response that an exception carries; None if it carries none."""


def wrap(
    owner: type, name: str, adapter: HttpAdapter, *, is_async: bool = False
) -> Callable[[], None]:
    """Wrap a client's sending method, unless it is wrapped.

    An exchange is observed once, whatever other wrappers the method has, and whichever is called.

    Args:
        owner: the client's class.
        name: the method's name.
        adapter: reads the library's requests and responses.
        is_async: the method is awaited.

    Returns:
        A function that undoes it. If another wrapper is around ours since, ours stays inside, and
        only passes calls on.
    """

    def send(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        if monotonic() < listeners.idle_until_s:
            return wrapped(*args, **kwargs)
        if client is None:
            wrapped, client, args = _bind_client(owner, wrapped, args)
        exchange = _begin(adapter, client, args, kwargs)
        if exchange is None:
            return wrapped(*args, **kwargs)
        try:
            with exchange.sending:
                response = wrapped(*args, **kwargs)
        except BaseException as error:
            exchange.on_error(error, adapter.error)
            raise
        try:
            adapter.response(exchange, response, client, kwargs)
        except Exception:
            exchange.end_unreadable()
        return response

    async def asend(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        if monotonic() < listeners.idle_until_s:
            return await wrapped(*args, **kwargs)
        if client is None:
            wrapped, client, args = _bind_client(owner, wrapped, args)
        exchange = _begin(adapter, client, args, kwargs)
        if exchange is None:
            return await wrapped(*args, **kwargs)
        try:
            with exchange.sending:
                response = await wrapped(*args, **kwargs)
        except BaseException as error:
            exchange.on_error(error, adapter.error)
            raise
        try:
            adapter.response(exchange, response, client, kwargs)
        except Exception:
            exchange.end_unreadable()
        return response

    method = owner.__dict__[name]
    if not _is_wrapped(method):
        setattr(owner, name, _Wrapper(method, asend if is_async else send))

    return partial(_put_back, owner, name)


def _put_back(owner: type, name: str) -> None:
    """Undo the wrapping of a method, unless it has been wrapped again since."""
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
    """Return whether a method is our wrapper, or another wrapper around ours."""
    for _ in range(_MAX_WRAPPERS):
        if method is None or type(method) in (_Wrapper, _BoundWrapper):
            break
        method = getattr(method, "__wrapped__", None)
    return method is not None


def _bind_client(owner: type, wrapped: Any, args: Args) -> tuple[Any, Any, Args]:
    """Return the client's method, the client, and the other arguments of an unbound call.

    Code that takes the method from the class's `__dict__`, as `unittest.mock.patch` does, calls it
    with the client as its first argument.
    """
    if args and isinstance(args[0], owner):
        return partial(wrapped, args[0]), args[0], args[1:]
    return wrapped, None, args
