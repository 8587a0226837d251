"""An OTLP endpoint over HTTP that keeps what is posted to it, by the process that posted it."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.processes import attributes, otlp_items
from tests.support.serving import ReceivedRequest, serving

Labels = frozenset[tuple[str, str]]
REQUESTS: dict[str, type[Message]] = {
    "/v1/traces": ExportTraceServiceRequest,
    "/v1/logs": ExportLogsServiceRequest,
    "/v1/metrics": ExportMetricsServiceRequest,
}


@dataclass
class Receiver:
    """What has arrived. Keys are processes, by their `service.instance.id`.

    Attributes:
        spans: the names of spans, in order.
        events: the names of log records that have one.
        points: the last value of each counter by its attributes.
        names: of the services.
        posted: all of it.
        statuses: what a path is answered with, if it is not 200; then nothing of it is kept.
        users: the processes that sent over a connection, by the address of its other end.
    """

    url: str = ""
    spans: dict[str, list[str]] = field(default_factory=dict)
    events: dict[str, list[str]] = field(default_factory=dict)
    points: dict[str, dict[str, dict[Labels, int]]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    posted: bytearray = field(default_factory=bytearray)
    statuses: dict[str, int] = field(default_factory=dict)
    users: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def post(self, path: str, body: bytes, client: tuple[str, int]) -> None:
        """Keep one request's signals."""
        self.posted += body
        for item in otlp_items(MessageToDict(REQUESTS[path].FromString(body))):
            who = item["resource"].get("service.instance.id", "")
            self.users.setdefault(client, set()).add(who)
            self.names.add(item["resource"]["service.name"])
            match path:
                case "/v1/traces":
                    self.spans.setdefault(who, []).append(item["name"])
                case "/v1/logs":
                    self.events.setdefault(who, []).append(item["eventName"])
                case _:
                    points = item.get("sum", {}).get("dataPoints", [])
                    found = {_labels(point): int(point.get("asInt", 0)) for point in points}
                    self.points.setdefault(who, {})[item["name"]] = found

    @property
    def shared(self) -> list[set[str]]:
        """The processes of each connection that more than one used."""
        return [users for users in self.users.values() if len(users) > 1]

    @property
    def sums(self) -> dict[str, dict[str, int]]:
        """The last value of each counter, over all its attributes."""
        return {who: {name: sum(found.values()) for name, found in own.items()} for who, own in self.points.items()}

    def total(self, metric: str) -> int:
        """A counter's value over all processes."""
        return sum(sums.get(metric, 0) for sums in self.sums.values())

    def counts(self, metric: str, key: str) -> dict[str, int]:
        """A counter's values over all processes, by one attribute, "" without it; zeros left out."""
        found: dict[str, int] = {}
        for metrics in self.points.values():
            for labels, value in metrics.get(metric, {}).items():
                if value:
                    label = dict(labels).get(key, "")
                    found[label] = found.get(label, 0) + value
        return found


def _labels(point: dict[str, Any]) -> Labels:
    return frozenset((key, str(value)) for key, value in attributes(point).items())


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """An endpoint on the loopback interface, on a free port where none is given."""
    kept = Receiver()

    def keep(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        packed = asked.headers.get("Content-Encoding") == "gzip"
        with kept.lock:
            if asked.path in kept.statuses:
                return kept.statuses[asked.path], b"no", "text/plain"
            kept.post(asked.path, gzip.decompress(asked.body) if packed else asked.body, asked.client)
        return 200, b"", "application/x-protobuf"

    with serving(keep, port, keep_alive=True) as kept.url:
        yield kept
