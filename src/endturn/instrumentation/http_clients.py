"""The HTTP clients whose requests are seen: one method of each is wrapped, as soon as the library is imported.

A library's module of ours has a `patch`: it is given the library, and gives what takes the wrapping away again. It
reads the library's requests, answers and errors; sending is the same everywhere, and is here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

import wrapt

from endturn.hooks import log_internal_error

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange

CLIENTS: Final = {
    "httpx": "http_httpx",
    "httpx2": "http_httpx",
    "urllib3.connectionpool": "http_urllib3",
    "aiohttp.client": "http_aiohttp",
    "urllib.request": "http_stdlib",
}
"""A library's module, and ours."""

log = logging.getLogger("endturn")

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def _never() -> bool:
    return False


_is_observed: Callable[[], bool] = _never
_undo: dict[str, list[Callable[[], None]]] = {}


def install(is_observed: Callable[[], bool]) -> None:
    """Wrap the methods, of libraries that are imported later too. Requests are seen while `is_observed()` is true."""
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
    if _is_observed is _never or name in _undo:
        return
    log.debug("endturn: the requests of %s are seen", name)
    try:
        _undo[name] = import_module(f"endturn.instrumentation.{CLIENTS[name]}").patch(module)
    except Exception:
        log_internal_error(f"instrumenting {name}")


def wrap(
    owner: type,
    name: str,
    *,
    where: Callable[..., tuple[str, str]],
    read: Callable[..., tuple[str, object]],
    answered: Callable[[Exchange, Any, Any, Kwargs], None],
    told: Callable[[BaseException], Args] = lambda error: (),
    is_async: bool = False,
) -> Callable[[], None]:
    """Wrap a client's sending method.

    Args:
        where: gives the method and the path or URL, of the client and the method's arguments.
        read: gives the URL and the body, of the same.
        answered: tells the exchange of the response, and has it see the bytes; given the client and the arguments too.
        told: what an exception says of an answer: its status, headers and body.
        is_async: the method is to be awaited, whoever else has wrapped it.

    Returns:
        What undoes it. Where somebody has wrapped ours since, that leaves ours inside: it lets calls through.
    """

    from endturn.instrumentation import exchange  # with pydantic: only where there is a client to watch

    def begin(client: Any, args: Args, kwargs: Kwargs) -> Exchange | None:
        try:
            method, path = where(client, *args, **kwargs)
            if not exchange.may_begin(method, path):
                return None
        except Exception:  # arguments that the method itself will refuse
            return None
        return exchange.begin(_is_observed, method, partial(read, client, *args, **kwargs))

    def send(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        begun = begin(client, args, kwargs)
        if begun is None:
            return wrapped(*args, **kwargs)
        try:
            with begun.sending:
                response = wrapped(*args, **kwargs)
        except BaseException as error:
            begun.failed(error, told)
            raise
        take(begun, response, client, kwargs)
        return response

    async def asend(wrapped: Any, client: Any, args: Args, kwargs: Kwargs) -> Any:
        begun = begin(client, args, kwargs)
        if begun is None:
            return await wrapped(*args, **kwargs)
        try:
            with begun.sending:
                response = await wrapped(*args, **kwargs)
        except BaseException as error:
            begun.failed(error, told)
            raise
        take(begun, response, client, kwargs)
        return response

    def take(begun: Exchange, response: Any, client: Any, kwargs: Kwargs) -> None:
        try:
            answered(begun, response, client, kwargs)
        except Exception:
            begun.unreadable()

    ours = wrapt.wrap_function_wrapper(owner, name, asend if is_async else send)

    def undo() -> None:
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, ours.__wrapped__)

    return undo
