"""OTLP as any program in any language would send it: spans and log records of plain values, over HTTP."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import httpx
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, InstrumentationScope, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from tests.support.processes import http

Value = str | bool | int | float | Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A span to send.

    Attributes:
        seconds: how long ago it began, and how long it took.
    """

    attributes: Mapping[str, Value] = field(default_factory=dict)
    name: str = "chat"
    failed: bool = False
    trace: bytes = b""
    parent: bytes = b""
    state: str = ""
    seconds: float = 0.001
    events: Sequence[str] = ()


def spans(every: Iterable[Sent], *, service: str = "agent", scope: str = "test") -> bytes:
    """The spans as the body of one request."""
    now = time.time_ns()
    written = [
        Span(
            trace_id=each.trace or os.urandom(16),
            span_id=os.urandom(8),
            parent_span_id=each.parent,
            trace_state=each.state,
            name=each.name,
            kind=Span.SPAN_KIND_CLIENT,
            start_time_unix_nano=now - int(each.seconds * 1e9),
            end_time_unix_nano=now,
            attributes=_pairs(each.attributes),
            events=[Span.Event(name=name, time_unix_nano=now) for name in each.events],
            status=Status(code=Status.STATUS_CODE_ERROR if each.failed else Status.STATUS_CODE_UNSET),
        )
        for each in every
    ]
    scoped = ScopeSpans(scope=InstrumentationScope(name=scope), spans=written)
    resource = ResourceSpans(resource=_resource(service), scope_spans=[scoped])
    return bytes(ExportTraceServiceRequest(resource_spans=[resource]).SerializeToString())


def logs(bodies: Iterable[str], *, service: str = "agent", event: str = "") -> bytes:
    """Log records with these bodies as the body of one request."""
    now = time.time_ns()
    written = [
        LogRecord(
            time_unix_nano=now,
            event_name=event,
            body=AnyValue(string_value=body),
            severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
        )
        for body in bodies
    ]
    resource = ResourceLogs(resource=_resource(service), scope_logs=[ScopeLogs(log_records=written)])
    return bytes(ExportLogsServiceRequest(resource_logs=[resource]).SerializeToString())


def post(url: str, body: bytes, *, headers: Mapping[str, str] | None = None, timeout: float = 30) -> int:
    """The status that a request is answered with; 0 where nobody answers, or the connection is lost."""
    every = {"Content-Type": "application/x-protobuf"} | dict(headers or {})
    try:
        return http.post(url, content=body, headers=every, timeout=timeout).status_code
    except httpx.HTTPError:
        return 0


def _resource(service: str) -> Resource:
    return Resource(attributes=_pairs({"service.name": service, "service.instance.id": os.urandom(4).hex()}))


def _pairs(attributes: Mapping[str, Value]) -> list[KeyValue]:
    return [KeyValue(key=key, value=_value(value)) for key, value in attributes.items()]


def _value(value: Value) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case _:
            return AnyValue(array_value=ArrayValue(values=[_value(each) for each in value]))
