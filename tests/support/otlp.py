"""OTLP as any program in any language would send it: signals of plain values, as JSON over HTTP."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

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


def spans(
    every: Iterable[Sent], *, service: str = "agent", scope: str = "test", resource: Mapping[str, Value] | None = None
) -> bytes:
    """The spans as the body of one request; `resource` says more of the service, or otherwise."""
    now = time.time_ns()
    written = [
        {
            "traceId": (each.trace or os.urandom(16)).hex(),
            "spanId": os.urandom(8).hex(),
            "parentSpanId": each.parent.hex(),
            "traceState": each.state,
            "name": each.name,
            "kind": 3,  # a client's
            "startTimeUnixNano": str(now - int(each.seconds * 1e9)),
            "endTimeUnixNano": str(now),
            "attributes": pairs(each.attributes),
            "events": [{"name": name, "timeUnixNano": str(now)} for name in each.events],
            "status": {"code": 2 if each.failed else 0},
        }
        for each in every
    ]
    return body("spans", written, resource=_resource(service) | dict(resource or {}), scope={"name": scope})


def logs(bodies: Iterable[str], *, service: str = "agent") -> bytes:
    """Log records with these bodies as the body of one request."""
    now = str(time.time_ns())
    written = [{"timeUnixNano": now, "body": {"stringValue": text}, "severityNumber": 9} for text in bodies]
    return body("logRecords", written, resource=_resource(service), scope={"name": "test"})


def body(kind: str, items: Sequence[Any], *, resource: Mapping[str, Value], scope: Mapping[str, Any]) -> bytes:
    """The body of one request with these `spans`, `logRecords` or `metrics`."""
    signal = {"logRecords": "Logs"}.get(kind, kind.capitalize())
    scoped = {f"scope{signal}": [{"scope": scope, kind: items}]}
    return json.dumps({f"resource{signal}": [{"resource": {"attributes": pairs(resource)}, **scoped}]}).encode()


def post(url: str, content: bytes, *, headers: Mapping[str, str] | None = None, timeout: float = 30) -> int:
    """The status that a request is answered with; 0 where nobody answers, or the connection is lost."""
    every = {"Content-Type": "application/json"} | dict(headers or {})
    try:
        return http.post(url, content=content, headers=every, timeout=timeout).status_code
    except httpx.HTTPError:
        return 0


def pairs(attributes: Mapping[str, Value]) -> list[dict[str, Any]]:
    """Attributes as OTLP writes them."""
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _resource(service: str) -> dict[str, Value]:
    return {"service.name": service, "service.instance.id": os.urandom(4).hex()}


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case str():
            return {"stringValue": value}
        case _:
            return {"arrayValue": {"values": [_value(each) for each in value]}}
