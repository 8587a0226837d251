"""urllib3, under requests and botocore: `HTTPConnectionPool.urlopen`. Its own retries call it again, within."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final

from endturn.instrumentation import file_responses
from endturn.instrumentation.exchange import Exchange, Sent
from endturn.instrumentation.http_clients import wrap

_PORTS: Final = {"http": 80, "https": 443}


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the pools, in `urllib3.connectionpool`."""
    return [wrap(library.HTTPConnectionPool, "urlopen", read=_read, answered=_answered)]


def _read(pool: Any, method: str, url: str, body: object = None, *args: object, **kwargs: object) -> Sent:
    port = None if pool.port == _PORTS.get(pool.scheme) else pool.port
    if url.startswith("/"):
        return Sent(method, url, pool.host.strip("[]"), port, body)
    sent = Sent.to(method, url, body)  # a proxy is told where it goes
    return sent._replace(host=sent.host or pool.host)


def _answered(exchange: Exchange, response: Any, pool: Any, kwargs: dict[str, Any]) -> None:
    if not exchange.answered(response.status, response.headers):
        return
    if kwargs.get("preload_content", True):
        exchange.comes_unpacked()
        exchange.see(response.data)
        exchange.ended()
    else:
        file_responses.watch(response, exchange)
