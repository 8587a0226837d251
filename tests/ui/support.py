"""A page that is asked and told by the tests."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import LABELS, Batch, Point, SeriesKey
from endturn.ui.store import Store

SECOND = 1_000_000_000
TRACE = "0af7651916cd43dd8448eb211c80319c"


@dataclass(frozen=True)
class Answer:
    """What the page answered."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()


@dataclass(frozen=True)
class Served:
    """A running page and its store."""

    url: str
    store: Store

    def ask(
        self,
        path: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        method: str | None = None,
    ) -> Answer:
        """One request: GET, or POST where there is a body."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=20)
        try:
            connection.request(method or ("GET" if body is None else "POST"), path, body, dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def post(self, signal: str, request: Any, *, zipped: bool = False) -> Answer:
        """Send OTLP JSON."""
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json"} | ({"Content-Encoding": "gzip"} if zipped else {})
        return self.ask(f"/v1/{signal}", gzip.compress(body) if zipped else body, headers)


def span(**changed: Any) -> dict[str, Any]:
    """An OTLP JSON request with one span of a model call; `attributes` are added to it."""
    attributes = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5",
        "endturn.turn.id": "t1", "endturn.turn.iteration": 1, "endturn.stop.reason": "end_turn",
        "endturn.stop.raw": "stop", "endturn.stop.truncated": False, **changed.pop("attributes", {}),
    }  # fmt: skip
    start = changed.pop("start_ns", time.time_ns() - SECOND)
    links = [{"traceId": TRACE, "spanId": each} for each in changed.pop("links", ())]
    found = {
        "traceId": TRACE, "links": links, "spanId": "00f067aa0ba902b7", "name": "chat gpt-5", "kind": 3,
        "startTimeUnixNano": str(start), "endTimeUnixNano": str(start + SECOND // 2),
        "attributes": [{"key": key, "value": any_value(value)} for key, value in attributes.items()], **changed,
    }  # fmt: skip
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "agent"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "endturn"}, "spans": [found]}]}]}


def span_of_others(attributes: Mapping[str, Any], scope: str = "another", **changed: Any) -> dict[str, Any]:
    """The same with these attributes alone, made by another instrumentation."""
    request = span(name="call", **changed)
    (scoped,) = request["resourceSpans"][0]["scopeSpans"]
    scoped["scope"]["name"] = scope
    (found,) = scoped["spans"]
    found["attributes"] = [{"key": key, "value": any_value(value)} for key, value in attributes.items()]
    return request


def log(name: str, **attributes: Any) -> dict[str, Any]:
    """An OTLP JSON request with one event of the turn `t1`."""
    attributes = {"endturn.turn.id": "t1", **attributes}
    record = {
        "timeUnixNano": attributes.pop("timeUnixNano", str(time.time_ns())), "eventName": name,
        "observedTimeUnixNano": attributes.pop("observedTimeUnixNano", "0"),
        "attributes": [{"key": key, "value": any_value(value)} for key, value in attributes.items()],
    }  # fmt: skip
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


def any_value(value: object) -> dict[str, Any]:
    """A value as OTLP's JSON has it."""
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [any_value(each) for each in value]}}
        case _:
            return {"stringValue": str(value)}


def point(
    metric: Metric,
    value: float | tuple[float, ...],
    at_ns: int,
    *,
    started_ns: int | None = None,
    delta: bool = False,
    instance: str = "one",
    service: str = "agent",
    **labels: str,
) -> Point:
    """One point of a counter, or of a histogram the sum and its buckets' counts. Labels are Prometheus'."""
    assert set(labels) <= set(LABELS)
    said = {schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5", **labels}
    carried = {attribute.label for attribute in metric.attributes}
    key = SeriesKey(metric.name, service, instance, tuple(said.get(x) if x in carried else None for x in LABELS))
    bounds = (*metric.buckets, float("inf")) if metric.instrument == "histogram" else ()
    values = value if isinstance(value, tuple) else (value,)
    return Point(key, at_ns - SECOND if started_ns is None else started_ns, at_ns, delta, values, bounds)


def write(store: Store, *points: Point) -> None:
    """Write points, an export each."""
    for each in points:
        store.write(Batch(points=[each]))


def numbers(store: Store, *, step_s: int = 0) -> Numbers:
    """Everything of the last hour."""
    now = time.time_ns()
    return Numbers(store, Scope(start_ns=now - 3600 * SECOND, end_ns=now + SECOND), step_s * SECOND)


def said(attribute: Attribute, value: str) -> dict[str, Any]:
    """A label with its value, for `point`."""
    return {attribute.label: value}
