"""A page that is asked and told by the tests."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import unescape
from typing import Any
from urllib.parse import urlsplit

import pytest

from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric
from endturn.ui import otlp
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import LABELS, Batch, Point, SeriesKey
from endturn.ui.store import Store
from tests.support.otlp import pairs

SECOND = 1_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"
CUT = {"endturn.stop.reason": "max_tokens", "endturn.stop.raw": "length", "endturn.stop.truncated": True}
TRUNCATED: dict[str, Any] = {"endturn_turn_truncated": "true", "endturn_turn_outcome": "completed"}


@dataclass(frozen=True)
class Answer:
    """What the page answered."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    @property
    def words(self) -> str:
        """Without scripts and tags."""
        return re.sub(r"\s+", " ", unescape(re.sub(r"(?s)<script.*?</script>|<[^>]+>", " ", self.text)))

    def links(self, attribute: str = "href") -> list[str]:
        """Where its tags lead, or what they load."""
        return [unescape(value) for value in re.findall(rf'\b{attribute}="([^"]*)"', self.text)]


@dataclass(frozen=True)
class Served:
    """A running page and its store."""

    url: str
    store: Store

    def ask(
        self, path: str, body: bytes | Iterable[bytes] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """One request: GET, or POST where there is a body."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        try:
            connection.request("GET" if body is None else "POST", path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def post(self, signal: str, request: Any, *, zipped: bool = False) -> Answer:
        """Send OTLP JSON."""
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": "gzip"} if zipped else {})
        return self.ask(f"/v1/{signal}", gzip.compress(written(request)) if zipped else written(request), headers)


def turn_link(page: Served) -> str:
    """Where the one turn of the table leads."""
    (link,) = [link for link in page.ask("/turns").links() if link.startswith("/turns/")]
    return link


def written(request: object) -> bytes:
    """A request's body."""
    return json.dumps(request).encode()


def span(**changed: Any) -> dict[str, Any]:
    """An OTLP JSON request with one span of a model call; `attributes` are added to it, and `resource` is its own."""
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
        "endturn.turn.id": "t1", "endturn.turn.iteration": 1, "endturn.stop.reason": "end_turn",
        "endturn.stop.raw": "stop", "endturn.stop.truncated": False, **changed.pop("attributes", {}),
    }  # fmt: skip
    start = changed.pop("start_ns", time.time_ns() - SECOND)
    links = [{"traceId": TRACE, "spanId": each} for each in changed.pop("links", ())]
    resource = {"attributes": pairs(changed.pop("resource", {"service.name": "agent"}))}
    found = {
        "traceId": TRACE, "links": links, "spanId": "00f067aa0ba902b7", "name": "chat gpt-5", "kind": 3,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + SECOND // 2), "attributes": pairs(attributes),
        **changed,
    }  # fmt: skip
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "endturn"}, "spans": [found]}]}]}


def span_of_others(attributes: Mapping[str, Any], scope: str = "another", **changed: Any) -> dict[str, Any]:
    """The same with these attributes alone, made by another instrumentation."""
    request = span(name="call", **changed)
    (scoped,) = request["resourceSpans"][0]["scopeSpans"]
    scoped["scope"]["name"] = scope
    (found,) = scoped["spans"]
    found["attributes"] = pairs(attributes)
    return request


def log(name: str, **attributes: Any) -> dict[str, Any]:
    """An OTLP JSON request with one event of the turn `t1`."""
    attributes = {"endturn.turn.id": "t1", **attributes}
    times = {name: attributes.pop(name, usual) for name, usual in
             (("timeUnixNano", str(time.time_ns())), ("observedTimeUnixNano", "0"))}  # fmt: skip
    record = {"eventName": name, "attributes": pairs(attributes), **times}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


def counted(
    *points: tuple[int, int, int], metric: Metric = schema.TURNS, delta: bool = False, resource: Any = None, **more: Any
) -> dict[str, Any]:
    """An OTLP JSON request with points of a counter: since when, when, how many; `more` stands in each of them."""
    data = [
        {"startTimeUnixNano": str(started), "timeUnixNano": str(at), "asInt": str(value), **more}
        for started, at, value in points
    ]
    sums = {"isMonotonic": True, "aggregationTemporality": 1 if delta else 2, "dataPoints": data}
    about = {"attributes": pairs(resource or {})}
    return {
        "resourceMetrics": [{"resource": about, "scopeMetrics": [{"metrics": [{"name": metric.name, "sum": sums}]}]}]
    }


def batch(request: dict[str, Any], *, count: int = 1, **columns: Any) -> Batch:
    """The rows of a request of spans as they are stored; `count` of each, with columns by their number: `"t{n}"`."""
    rows = otlp.parse_request("traces", otlp.JSON, written(request)).spans
    given = {"span_id": "{n:016x}", **columns} if count > 1 else columns
    return Batch(
        spans=[
            row | {key: value.format(n=n) if isinstance(value, str) else value(n) for key, value in given.items()}
            for row in rows
            for n in range(count)
        ]
    )


def point(
    metric: Metric,
    value: float | tuple[float, ...],
    at_ns: int | None = None,
    *,
    started_ns: int | None = None,
    instance: str = "one",
    service: str = "agent",
    **labels: str,
) -> Point:
    """One point of a counter, or of a histogram the sum and its buckets' counts. Labels are Prometheus'."""
    assert set(labels) <= set(LABELS)
    at = time.time_ns() if at_ns is None else at_ns
    said = {schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5", **labels}
    carried = {attribute.label for attribute in metric.attributes}
    key = SeriesKey(metric.name, service, instance, tuple(said.get(x) if x in carried else None for x in LABELS))
    bounds = (*metric.buckets, float("inf")) if metric.instrument == "histogram" else ()
    values = value if isinstance(value, tuple) else (value,)
    return Point(key, at - SECOND if started_ns is None else started_ns, at, False, values, bounds)


def write(store: Store, *points: Point) -> None:
    """Write points, an export each."""
    for each in points:
        store.write(Batch(points=[each]))


def numbers(store: Store) -> Numbers:
    """Everything of the last hour."""
    now = time.time_ns()
    return Numbers(store, Scope(start_ns=now - 3600 * SECOND, end_ns=now + SECOND), 0)


def said(attribute: Attribute, value: str) -> dict[str, Any]:
    """A label with its value, for `point`."""
    return {attribute.label: value}


def demo(endpoint: str, *options: str, **variables: str) -> Any:
    """What the demo prints, of whose agents an endpoint is told."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    done = subprocess.run(
        [sys.executable, "-m", "endturn", "demo", "--json", *options],
        env=environment | {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def slow(values: Iterable[Any]) -> list[Any]:
    """Parameters for `make test-all` alone: a few of each kind are tried each time."""
    return [pytest.param(value, marks=pytest.mark.slow) for value in values]
