"""urllib3, under requests and botocore: `HTTPConnectionPool.urlopen`. Its own retries call it again, within."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit

from endturn.announce import swallow
from endturn.instrumentation import file_responses, http_exchange
from endturn.instrumentation.http_clients import wrap
from endturn.instrumentation.http_exchange import Exchange

_PORTS: Final = {"http": 80, "https": 443}


def patch(library: ModuleType) -> list[Callable[[], None]]:
    """Wrap the sending method of the pools, in `urllib3.connectionpool`."""

    def urlopen(wrapped: Any, pool: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        exchange = _begin(pool, *args, **kwargs)
        if exchange is None:
            return wrapped(*args, **kwargs)
        try:
            with exchange.sending():
                response = wrapped(*args, **kwargs)
        except BaseException as error:
            exchange.failed(error)
            raise
        _answered(exchange, response, is_read=kwargs.get("preload_content", True))
        return response

    return [wrap(library.HTTPConnectionPool, "urlopen", urlopen)]


def _begin(pool: Any, method: str, url: str, body: object = None, *args: object, **kwargs: object) -> Exchange | None:
    try:
        if not url.startswith("/"):  # a proxy is told where it goes
            parts = urlsplit(url)
            url = parts._replace(scheme="", netloc="").geturl()
        else:
            parts = None
        if not http_exchange.may_begin(method, url):
            return None
        host, port, scheme = pool.host, pool.port, pool.scheme
        if parts is not None and parts.hostname:
            host, port, scheme = parts.hostname, parts.port, parts.scheme
        port = None if port == _PORTS.get(scheme) else port
        return http_exchange.begin(method, url, host=host.strip("[]"), port=port, content=body)
    except Exception:
        swallow("looking at a request")
        return None


def _answered(exchange: Exchange, response: Any, *, is_read: bool) -> None:
    try:
        if not exchange.answered(response.status, response.headers):
            return
        if is_read:
            exchange.comes_unpacked()
            exchange.see(response.data)
            exchange.ended()
        else:
            file_responses.watch(response, exchange)
    except Exception:
        exchange.unreadable()
