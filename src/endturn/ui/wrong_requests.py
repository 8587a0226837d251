"""Responses to requests with a wrong path or protocol: they say what to set."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from endturn.ui import otlp
from endturn.ui.access import drain_body

log = logging.getLogger("endturn")

WRITING_METHODS: Final = ("POST", "PUT", "PATCH", "DELETE")


async def answer_wrong_path(request: Request, address: str) -> Response:
    """Refuse a request to a path that receives no telemetry, and name the right path."""
    path = request.url.path
    last = path.rstrip("/").rpartition("/")[2]
    paths = [f"/v1/{signal}" for signal in otlp.SIGNALS]
    send_to = (
        f"/v1/{last}" if last in otlp.SIGNALS else " or ".join((", ".join(paths[:-1]), paths[-1]))
    )
    sentence = (
        f"nothing is received at {path[:300]}: send to {send_to}; "
        f"OTEL_EXPORTER_OTLP_ENDPOINT should be {address}"
    )
    await drain_body(request.stream())
    kind = request.headers.get("content-type", "").lower()
    if otlp.JSON in kind or otlp.PROTOBUF in kind:
        media = otlp.JSON if otlp.JSON in kind else otlp.PROTOBUF
        return Response(otlp.error_body(kind, sentence, 404), 404, media_type=media)
    return PlainTextResponse(f"{sentence}\n", 404)


def answer_read(request: Request, address: str) -> Response:
    """Refuse a GET request to a path that only receives telemetry."""
    sentence = (
        f"{request.url.path} takes POST requests of OTLP, from an exporter with "
        f"OTEL_EXPORTER_OTLP_ENDPOINT={address}; the page is at {address}/"
    )
    return PlainTextResponse(f"{sentence}\n", 405, {"Allow": "POST"})


def other_protocol(data: bytes) -> str:
    """Return an error about the first bytes of a connection; "" if they may be HTTP/1.1."""
    if data[:1] == b"\x16":  # a TLS record with a handshake
        return (
            "a TLS connection was refused, as this page speaks plain HTTP: set "
            "OTEL_EXPORTER_OTLP_ENDPOINT to http://, not https://"
        )
    if data.startswith(b"PRI "):  # the preface of HTTP/2
        return (
            "an HTTP/2 connection, as OTLP over gRPC makes it, was refused: set "
            "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
        )
    return ""


_Protocol: Any = AutoHTTPProtocol


class PlainHttp(_Protocol):  # type: ignore[misc]
    """The server's HTTP protocol; it reports TLS and HTTP/2 connections once each."""

    reported: frozenset[str] = frozenset()
    _has_begun = False
    transport: asyncio.Transport

    def data_received(self, data: bytes) -> None:
        """Check the first bytes of a connection, and serve HTTP/1.1."""
        sentence = "" if self._has_begun else other_protocol(data)
        self._has_begun = True
        if not sentence:
            super().data_received(data)
            return
        if sentence not in PlainHttp.reported:
            PlainHttp.reported |= {sentence}
            log.warning("endturn: %s", sentence)
        body = f"{sentence}\n".encode()
        self.transport.write(
            b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.transport.close()
