"""Secrets to plant in a call, and the search for them, whole or in pieces and however encoded, in what was exported."""

from __future__ import annotations

import base64
import hashlib
import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import ConsoleLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

PIECE = 8
"""How much of a secret is one."""


class Secrets:
    """A secret for each place that is asked for, unlike any other text of a test: 24 letters and digits."""

    def __init__(self) -> None:
        self.planted: dict[str, str] = {}

    def __getattr__(self, place: str) -> str:
        if place.startswith("_"):
            raise AttributeError(place)
        digest = hashlib.sha256(place.encode()).digest()
        return self.planted.setdefault(place, base64.b32encode(digest).decode()[:24])

    def image(self) -> str:
        """Data of an image, as a data URL holds it."""
        return base64.b64encode(self.image_bytes.encode()).decode()

    def found(self, exported: bytes) -> dict[str, str]:
        """What of which secret is in there, by the place where it was planted."""
        found = {}
        for place, secret in self.planted.items():
            for form in _forms(secret):
                if form in exported:
                    found[place] = form.decode()
                    break
        return found


def _forms(secret: str) -> Iterator[bytes]:
    """Pieces of a secret: as it is (JSON and percent-encoding leave letters and digits), in hex, in base64."""
    raw = secret.encode()
    yield from _pieces(raw, PIECE)
    yield from _pieces(raw.hex().encode(), 2 * PIECE)
    for shift in range(3):
        whole = base64.b64encode(raw[shift:])
        yield from _pieces(whole[: len(whole) - 4], 12)


def _pieces(text: bytes, size: int) -> Iterator[bytes]:
    for start in range(len(text) - size + 1):
        yield text[start : start + size]


@dataclass
class Exported:
    """Everything that leaves the process: over OTLP to a server that keeps the bytes, and to a console."""

    url: str
    posted: list[bytes] = field(default_factory=list)
    console: io.StringIO = field(default_factory=io.StringIO)

    def __post_init__(self) -> None:
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        out = self.console
        for spans in (OTLPSpanExporter(f"{self.url}/v1/traces"), ConsoleSpanExporter(out=out)):
            self.tracers.add_span_processor(SimpleSpanProcessor(spans))
        for logs in (OTLPLogExporter(f"{self.url}/v1/logs"), ConsoleLogRecordExporter(out=out)):
            self.loggers.add_log_record_processor(SimpleLogRecordProcessor(logs))
        exporters = (OTLPMetricExporter(f"{self.url}/v1/metrics"), ConsoleMetricExporter(out=out))
        readers = [PeriodicExportingMetricReader(each, export_interval_millis=3_600_000) for each in exporters]
        self.meters = MeterProvider(readers, shutdown_on_exit=False)

    def providers(self) -> dict[str, Any]:
        """The arguments of `instrument`."""
        return {
            "tracer_provider": self.tracers,
            "meter_provider": self.meters,
            "logger_provider": self.loggers,
        }

    def shutdown(self) -> None:
        for provider in (self.tracers, self.meters, self.loggers):
            provider.shutdown()

    @property
    def bytes(self) -> bytes:
        """All of it."""
        return b"\n".join([*self.posted, self.console.getvalue().encode()])


@contextmanager
def exporting() -> Iterator[Exported]:
    """Providers with real exporters, and the server that they post to."""
    posted: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    exported = Exported(f"http://127.0.0.1:{server.server_port}", posted)
    try:
        yield exported
    finally:
        exported.shutdown()
        server.shutdown()
        serving.join()
        server.server_close()
