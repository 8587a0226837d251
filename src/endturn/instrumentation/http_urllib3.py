"""urllib3, under requests and botocore: `HTTPConnectionPool.urlopen`.

Its own retries call it again, within.
"""

from __future__ import annotations

from collections.abc import Callable
from http.client import IncompleteRead
from types import ModuleType
from typing import TYPE_CHECKING, Any

from endturn.instrumentation.addresses import ErrorResponse, Outgoing, address
from endturn.instrumentation.http_clients import HttpAdapter, wrap
from endturn.instrumentation.http_file_responses import unwrap, watch

if TYPE_CHECKING:
    from endturn.instrumentation.exchange import Exchange


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the pools, in `urllib3.connectionpool`."""
    return [wrap(library.HTTPConnectionPool, "urlopen", Urllib3Adapter()), unwrap]


class Urllib3Adapter(HttpAdapter):
    """Reads what `HTTPConnectionPool.urlopen` sends and receives."""

    def target(
        self, client: Any, method: str, url: str, *args: Any, **kwargs: Any
    ) -> tuple[str, str]:
        return method, url

    def request(
        self,
        client: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Outgoing:
        return Outgoing(
            address(url, scheme=client.scheme, host=client.host, port=client.port), body, headers
        )

    def response(
        self, exchange: Exchange, response: Any, client: Any, kwargs: dict[str, Any]
    ) -> None:
        is_read = kwargs.get("preload_content", True)
        if not exchange.on_response(response.status, response.headers, is_read=is_read):
            return
        if is_read:
            exchange.feed_all(response.data)
        else:
            watch(response, exchange)

    def error(self, error: BaseException) -> ErrorResponse | None:
        # A response had begun, and the connection was lost while urllib3 read it.
        has_begun = any(isinstance(cause, IncompleteRead) for cause in error.args)
        return ErrorResponse(200, {}, b"") if has_begun else None
