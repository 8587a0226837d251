"""The standard library: `OpenerDirector.open`, through which `urllib.request.urlopen` sends."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPResponse
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

from endturn.announce import swallow
from endturn.instrumentation import file_responses, http_exchange
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.http_exchange import Exchange


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the openers, in `urllib.request`."""

    def opens(wrapped: Any, opener: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exchange = _begin(*args, **kwargs)
        if exchange is None:
            return wrapped(*args, **kwargs)
        try:
            with exchange.sending():
                response = wrapped(*args, **kwargs)
        except library.HTTPError as error:  # its body is still to be read, and is the host's
            exchange.failed(error, error.code, error.headers)
            raise
        except BaseException as error:
            exchange.failed(error)
            raise
        _answered(exchange, response)
        return response

    return [wrap(library.OpenerDirector, "open", opens)]


def _begin(fullurl: Any, data: object = None, *args: object, **kwargs: object) -> Exchange | None:
    try:
        is_text = isinstance(fullurl, str)
        content = data if is_text or data is not None else fullurl.data
        url = fullurl if is_text else fullurl.full_url
        method = ("GET" if content is None else "POST") if is_text else fullurl.get_method()
        if method == "GET" and content is not None:
            method = "POST"
        if not http_exchange.may_begin(method, url):
            return None
        parts = urlsplit(url)
        path = parts._replace(scheme="", netloc="", fragment="").geturl()
        return http_exchange.begin(method, path, host=parts.hostname or "", port=parts.port, content=content)
    except Exception:
        swallow("looking at a request")
        return None


def _answered(exchange: Exchange, response: Any) -> None:
    try:
        if not isinstance(response, HTTPResponse):
            raise TypeError(f"a response of another kind: {type(response).__name__}")
        headers: Any = response.headers  # whatever the case of a name
        if exchange.answered(response.status, headers):
            file_responses.watch(response, exchange)
    except Exception:
        exchange.unreadable()
