"""The standard library: `OpenerDirector.open`, through which `urllib.request.urlopen` sends."""

from __future__ import annotations

from collections.abc import Callable
from http.client import HTTPResponse
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError

from endturn.errors import DecodeError
from endturn.instrumentation.addresses import ErrorResponse, Outgoing, address
from endturn.instrumentation.http_clients import HttpAdapter, wrap
from endturn.instrumentation.http_file_responses import unwrap, watch

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the openers, in `urllib.request`."""
    return [wrap(library.OpenerDirector, "open", UrllibAdapter()), unwrap]


class UrllibAdapter(HttpAdapter):
    """Reads what `OpenerDirector.open` sends and receives."""

    def target(
        self, client: Any, fullurl: Any, data: Any = None, *args: Any, **kwargs: Any
    ) -> tuple[str, str]:
        method, url = (
            ("GET", fullurl)
            if isinstance(fullurl, str)
            else (fullurl.get_method(), fullurl.full_url)
        )
        return "POST" if method == "GET" and data is not None else method, url

    def request(
        self, client: Any, fullurl: Any, data: Any = None, *args: Any, **kwargs: Any
    ) -> Outgoing:
        if isinstance(fullurl, str):
            return Outgoing(address(fullurl), data)
        return Outgoing(address(fullurl.full_url), fullurl.data if data is None else data)

    def response(
        self, exchange: Exchange, response: Any, client: Any, kwargs: dict[str, Any]
    ) -> None:
        if not isinstance(response, HTTPResponse):
            raise DecodeError("the response is of the host's own handler: it cannot be observed")
        headers: Any = response.headers  # whatever the case of a name
        if exchange.on_response(response.status, headers):
            watch(response, exchange)

    def error(self, error: BaseException) -> ErrorResponse | None:
        # The body of a raised response has not been read: that is left to the host.
        return (
            ErrorResponse(error.code, error.headers, b"") if isinstance(error, HTTPError) else None
        )
