"""Secrets to plant in a call, and the search for them, whole or in pieces and however encoded, in what was exported."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any

from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.telemetry.stage import Stage

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


def everything(stage: Stage) -> bytes:
    """Everything that leaves the process, as OTLP's bytes and as what a console shows."""
    (reader,) = stage.readers
    assert isinstance(reader, InMemoryMetricReader)
    metrics = reader.get_metrics_data()
    assert metrics is not None
    spans, logs = stage.spans.get_finished_spans(), stage.logs.get_finished_logs()
    encoded = encode_spans(spans), encode_logs(logs), encode_metrics(metrics)
    printed: list[Any] = [*spans, *logs, metrics]
    shown = "".join(each.to_json() for each in printed)
    return b"".join(each.SerializeToString() for each in encoded) + shown.encode()
