"""The HTTP session of an OTLP exporter.

It needs `requests`, which the OTLP exporter over HTTP brings. Import it only with that exporter.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from functools import cache
from http import HTTPStatus
from typing import Any, Final

from requests import PreparedRequest, RequestException, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from requests.cookies import RequestsCookieJar
from urllib3.util import Retry

from endturn.settings import redact_address

log = logging.getLogger("endturn")

RETRIED: Final = frozenset({429, 502, 503, 504})
"""Statuses after which OTLP sends a batch again."""

_PATIENT: Final = Retry(
    # A response may take ten seconds each time: seven times of waiting for one are enough.
    total=12, read=7, backoff_factor=1, backoff_max=15,
    status_forcelist=RETRIED, allowed_methods=None, raise_on_status=False,
)  # fmt: skip
"""Send a batch of spans or events again for two minutes. The exporter gives up after ten seconds,
which is enough for metrics: the next export has the same sums."""

_ADDRESS: Final = (
    "OTEL_EXPORTER_OTLP_ENDPOINT is the address without /v1/{signal}; "
    "OTEL_EXPORTER_OTLP_{SIGNAL}_ENDPOINT is the whole address"
)
_KEY: Final = "check the key or token in OTEL_EXPORTER_OTLP_HEADERS"
_LATER: Final = "the receiver was busy or away for longer than a batch is sent again"

REMEDIES: Final = {
    400: "the receiver cannot read it: use the port of OTLP over HTTP (4318), and read the "
    "receiver's log",
    401: _KEY,
    403: _KEY,
    404: f"no OTLP receiver of {{signal}} has this path: {_ADDRESS}; OTEL_{{SIGNAL}}_EXPORTER=none "
    "exports no {signal}",
    405: f"no OTLP receiver has this path: {_ADDRESS}",
    413: "the batch is larger than the receiver takes: {smaller}raise the receiver's limit",
    415: "the receiver takes no protobuf: use one of OTLP over HTTP",
    429: _LATER,
    500: "read the receiver's log{delta}",
    502: _LATER,
    503: _LATER,
    504: _LATER,
}
"""Advice for a status."""
_REDIRECTED: Final = f"exports follow no redirect: set the address that it leads to ({_ADDRESS})"
_DEFAULT_REMEDY: Final = "read the receiver's log"

_SMALLER: Final = {
    "traces": "set OTEL_BSP_MAX_EXPORT_BATCH_SIZE to less than 512, record less content, or ",
    "logs": "set OTEL_BLRP_MAX_EXPORT_BATCH_SIZE to less than 512, record less content, or ",
}
"""Advice for smaller batches. All metrics of a process are one batch, at any interval."""
_DELTA: Final = {
    "metrics": "; Prometheus refuses delta metrics so "
    "(OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative)",
}


class RefusedExport(RequestException):
    """A receiver answered a batch with another status than 2xx."""


@cache
def refusal(status: int) -> type[RefusedExport]:
    """Return the exception class of one HTTP status, whose name is the status.

    The SDK counts a failed export with the name of the exception's class as `error.type`; in the
    semantic conventions that is the status.
    """

    class Refusal(RefusedExport):
        """The receiver answered with this status."""

    Refusal.__name__ = Refusal.__qualname__ = str(status)
    return Refusal


class ExportSession(Session):
    """A session that raises for refused batches, and shares no connection with a forked child.

    The SDK counts an export as failed if the session raises, and as sent otherwise. After a fork,
    parent and child would write to one socket, and read each other's responses.

    Args:
        signal: "metrics", "traces" or "logs".
    """

    def __init__(self, signal: str) -> None:
        super().__init__()
        self._signal = signal
        self._is_patient = signal != "metrics"
        self._process = os.getpid()
        self._inherited: list[object] = []
        self._reported: set[int] = set()
        self._mount()

    def request(self, method: str | bytes, url: str | bytes, *args: Any, **kwargs: Any) -> Response:
        """Send a request.

        Raises:
            RefusedExport: the response's status is not 2xx, nor one after which the exporter itself
                sends the batch again.
            RequestException: there is no response. Its text has no secrets of the address, because
                the exporter logs it.
        """
        self._leave_parent()
        try:
            response = super().request(method, url, *args, **kwargs)
        except RequestException as error:
            raise without_address(error, str(url)) from None
        status = response.status_code
        if 200 <= status < 300 or (status in RETRIED and not self._is_patient):
            return response
        if status not in self._reported:
            self._reported.add(status)
            log.error("%s", explain(self._signal, response.request, status))
        raise refusal(status)(status_text(status), response=response)

    def close(self) -> None:
        """Close every connection, also in an exit handler.

        urllib3's own has closed those of each pool by then, and leaves later ones to the collector.
        """
        self._leave_parent()
        for adapter in self.adapters.values():
            pools = adapter.poolmanager.pools if isinstance(adapter, HTTPAdapter) else {}
            for key in tuple(pools.keys()):
                pools[key].close()
        super().close()

    def _mount(self) -> None:
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(max_retries=_PATIENT if self._is_patient else 0))

    def _leave_parent(self) -> None:
        """Use new connections in a forked child.

        The parent's are neither used nor closed: a thread of the parent may have held their locks
        at the fork, and would never release them here.
        """
        if self._process == os.getpid():
            return
        self._process = os.getpid()
        self._inherited += [self.adapters, self.cookies]
        self.adapters = OrderedDict[str, BaseAdapter]()
        self.cookies = RequestsCookieJar()
        self._mount()


def without_address(error: RequestException, url: str) -> RequestException:
    """Return an exception of the same class whose text shows the address without secrets."""
    cause = error.args[0] if error.args else None
    reason = getattr(cause, "reason", None)  # of urllib3's MaxRetryError, whose text has the path
    why = f": {reason}" if isinstance(reason, Exception) else ""
    return type(error)(
        f"{redact_address(url)}: {type(error).__name__}{why}",
        request=error.request,
        response=error.response,
    )


def explain(signal: str, request: PreparedRequest, status: int) -> str:
    """Return the log line of a refused batch: its status and address, and what to do."""
    address = redact_address(request.url or "")
    return (
        f"endturn: {signal} are refused: {address} answered {status_text(status)}; "
        f"{remedy(signal, status)}. "
        f"Logged once for this status; the SDK counts what is refused (error.type {status})"
    )


def remedy(signal: str, status: int) -> str:
    """Return what to do about the status that a receiver answered a batch with."""
    template = _REDIRECTED if 300 <= status < 400 else REMEDIES.get(status, _DEFAULT_REMEDY)
    return template.format(
        signal=signal,
        SIGNAL=signal.upper(),
        smaller=_SMALLER.get(signal, ""),
        delta=_DELTA.get(signal, ""),
    )


def status_text(status: int) -> str:
    """Return a status with its phrase, if it has one."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
