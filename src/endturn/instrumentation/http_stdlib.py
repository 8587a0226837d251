"""The standard library: `OpenerDirector.open`, through which `urllib.request.urlopen` sends."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPResponse
from types import ModuleType
from typing import Any
from urllib.error import HTTPError

from endturn.errors import DecodeError
from endturn.instrumentation.exchange import Exchange
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.http_urllib3 import watch


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the openers, in `urllib.request`."""
    return [wrap(library.OpenerDirector, "open", where=_where, read=_read, answered=_answered, told=_told)]


def _where(opener: Any, fullurl: Any, data: object = None, *args: object, **kwargs: object) -> tuple[str, str]:
    method, url = ("GET", fullurl) if isinstance(fullurl, str) else (fullurl.get_method(), fullurl.full_url)
    return "POST" if method == "GET" and data is not None else method, url


def _read(opener: Any, fullurl: Any, data: object = None, *args: object, **kwargs: object) -> tuple[str, object]:
    if isinstance(fullurl, str):
        return fullurl, data
    return fullurl.full_url, fullurl.data if data is None else data


def _told(error: BaseException) -> tuple[Any, ...]:
    """An answer that is raised: its body is still to be read, and is the host's."""
    return (error.code, error.headers, b"") if isinstance(error, HTTPError) else ()


def _answered(exchange: Exchange, response: Any, opener: Any, kwargs: dict[str, Any]) -> None:
    if not isinstance(response, HTTPResponse):
        raise DecodeError("a handler of the host's own answered, whose bytes cannot be seen")
    headers: Any = response.headers  # whatever the case of a name
    if exchange.answered(response.status, headers):
        watch(response, exchange)
