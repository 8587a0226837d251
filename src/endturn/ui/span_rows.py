"""Converts protobuf messages of spans and log events into rows."""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from endturn.telemetry import OperationKind, schema, span_conventions as conventions
from endturn.ui import bounds, content_names
from endturn.ui.bounds import word, word_or_none
from endturn.ui.recorded_messages import (
    TEXT,
    TOOL_CALL,
    ContentEvent,
    RecordedCall,
    question_of,
    read_call as read_messages,
)
from endturn.ui.rows import MODEL_CALLS, PLACE_COLUMNS, Batch, Row

_COLUMNS: Final = {
    "operation": schema.OPERATION, "provider": schema.PROVIDER, "model": schema.REQUEST_MODEL,
    "agent": schema.AGENT, "turn_id": schema.TURN_ID, "iteration": schema.ITERATION,
    "continuation": schema.CONTINUATION_INDEX, "reason": schema.REASON, "raw": schema.RAW,
    "truncated": schema.STOP_TRUNCATED, "max_tokens": schema.REQUEST_MAX_TOKENS,
    "input_tokens": schema.INPUT_TOKENS, "output_tokens": schema.OUTPUT_TOKENS,
    "outcome": schema.OUTCOME, "complete": schema.COMPLETE, "error": schema.ERROR_TYPE,
    "conversation": schema.CONVERSATION, "response_id": schema.RESPONSE_ID,
}  # fmt: skip
"""The attribute of each column."""
_EVENT_COLUMNS: Final = ("provider", "model", "turn_id", "outcome")


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    """Return attributes as Python values."""
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return [_value(item) for item in value.array_value.values]
        case "kvlist_value":
            return attributes_of(value.kvlist_value.values)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value" if not math.isfinite(value.double_value):
            return None  # JSON cannot represent it
        case kind:
            return getattr(value, kind)


# --- Spans ----------------------------------------------------------------------------------------


def add_span(batch: Batch, span: Span, resource_columns: Row, scope: str) -> None:
    """Add the rows of a span and of its recorded messages.

    Args:
        resource_columns: the columns of its resource; scope: the name of its instrumentation scope.
    """
    times = (
        span.start_time_unix_nano or span.end_time_unix_nano or time.time_ns(),
        span.end_time_unix_nano,
    )
    if (len(span.trace_id), len(span.span_id)) != (16, 8) or is_too_late(*times):
        batch.reject(
            1, "a span's trace id has 16 bytes, its span id 8, and it ends before the year 2200"
        )
        return
    attributes = attributes_of(span.attributes)
    has_failed = span.status.code == span.status.STATUS_CODE_ERROR
    row = resource_columns | _columns(attributes) | {
        "trace_id": span.trace_id.hex(), "span_id": span.span_id.hex(),
        "parent_id": _id(span.parent_span_id, 8), "name": word(span.name), "scope": word(scope),
        "start_ns": times[0], "end_ns": max(times),
        "links": json.dumps([
            id_ for link in span.links[: bounds.LINKS] if (id_ := _id(link.span_id, 8))
        ]),
        "attributes": bounds.attributes_json(attributes),
    }  # fmt: skip
    if row["reason"] is None:
        row |= _of_others(span, attributes, scope)
    row["error"] = row["error"] or (word(span.status.message or "error") if has_failed else None)
    batch.spans.append(row)
    if row["operation"] in MODEL_CALLS:
        _add_texts(batch, row, row["start_ns"], read_messages(attributes))
    for event in span.events:
        if event.name in content_names.EVENTS and not is_too_late(event.time_unix_nano):
            _add_content_event(batch, event, row)


def _add_content_event(batch: Batch, event: Span.Event, span: Row) -> None:
    """Add an event of a span that carries messages; other span events are not stored."""
    attributes = attributes_of(event.attributes)
    at_ns = event.time_unix_nano or span["start_ns"]
    where = {column: span[column] for column in ("service", *PLACE_COLUMNS, "trace_id", "span_id")}
    batch.events.append(where | dict.fromkeys(_EVENT_COLUMNS) | {
        "at_ns": at_ns, "name": event.name, "severity": "info", "body": "",
        "attributes": bounds.attributes_json(attributes),
    })  # fmt: skip
    events = [ContentEvent(event.name, None, attributes)]
    _add_texts(batch, span, at_ns, read_messages({}, events))


def _add_texts(batch: Batch, row: Row, at_ns: int, call: RecordedCall) -> None:
    """Add the row of a call's messages: the question for the list, and the searchable text."""
    if call.is_empty or row["span_id"] is None:
        return
    question = question_of(call)
    text = " ".join((question.text() if question else "").split())
    answers = " ".join(
        "".join(part.text for part in message.parts if part.kind in (TEXT, TOOL_CALL))
        for message in call.output
    )
    beginning, rest = answers[: bounds.SEARCHED], answers[bounds.SEARCHED :]
    parts = (text[: bounds.SEARCHED], beginning, rest[-bounds.SEARCHED :])
    batch.texts.append({
        "at_ns": at_ns, "span_id": row["span_id"], "turn_id": row["turn_id"],
        "question": bounds.shorten(text, bounds.WORD) or None,
        "words": "\n".join(parts).lower(),
    })  # fmt: skip


def _columns(attributes: Mapping[str, Any]) -> Row:
    return {
        column: column_value(attributes.get(attribute.key), attribute.type)
        for column, attribute in _COLUMNS.items()
    }


def _of_others(span: Span, attributes: Mapping[str, Any], scope: str) -> Row:
    """Return the columns of a call that another instrumentation recorded; {} for other spans.

    Each such call counts as a turn.
    """
    exported = conventions.exported_span(
        span.name,
        attributes,
        scope=scope,
        has_failed=span.status.code == span.status.STATUS_CODE_ERROR,
        description=span.status.message,
        events=[attributes_of(event.attributes) for event in span.events],
    )
    kind = conventions.kind_of(exported)
    if kind is OperationKind.CALL and conventions.ended_before_stream(exported):
        return {"operation": None}  # a separate span records its end
    if kind not in (OperationKind.CALL, OperationKind.STREAM_END):
        return {}
    request, endpoint = conventions.request_of(exported), conventions.endpoint_of(exported)
    row = _columns(conventions.facts_of(exported))
    response, _ = conventions.result_of(
        exported, provider=endpoint.provider, maximum=request.max_tokens
    )
    stop = response.stop
    names = {"operation": endpoint.operation, "provider": endpoint.provider, "model": request.model}
    row |= {name: word_or_none(value or None) for name, value in names.items()}
    row |= {"reason": stop.reason.value, "raw": word_or_none(stop.raw), "truncated": stop.truncated}
    return row | {"turn_id": span.span_id.hex()}


# --- Events ---------------------------------------------------------------------------------------


def event_name(record: LogRecord) -> str:
    """Return the name of an event; some exporters still write it as an attribute."""
    return word(str(record.event_name or attributes_of(record.attributes).get("event.name") or ""))


def add_event(batch: Batch, record: LogRecord, resource_columns: Row) -> None:
    """Add the rows of a log record that has an event name."""
    at_ns = record.time_unix_nano or record.observed_time_unix_nano
    if is_too_late(at_ns):
        batch.reject(1, "an event happens before the year 2200")
        return
    attributes, name = attributes_of(record.attributes), event_name(record)
    body = _value(record.body)
    columns = {
        column: column_value(attributes.get(_COLUMNS[column].key), "string")
        for column in _EVENT_COLUMNS
    }
    is_content = name in content_names.EVENTS
    row = resource_columns | columns | {
        "at_ns": at_ns,
        "trace_id": _id(record.trace_id, 16), "span_id": _id(record.span_id, 8),
        "name": name, "severity": word((record.severity_text or "info").lower()),
        "body": bounds.shorten(
            body if isinstance(body, str) else json.dumps(body, ensure_ascii=False),
            bounds.CONTENT if is_content else bounds.TEXT,
        ),
        "attributes": bounds.attributes_json(attributes),
    }  # fmt: skip
    batch.events.append(row)
    if is_content:
        _add_texts(batch, row, at_ns, read_messages({}, [ContentEvent(name, body, attributes)]))


# --- Values ---------------------------------------------------------------------------------------


def column_value(value: object, kind: schema.Type) -> str | int | bool | None:
    """Return the value of a column from an attribute; None for a value of another type."""
    if kind == "string":
        return word_or_none(value)
    if kind == "int":
        return bounds.number_or_none(value)
    return value if isinstance(value, bool) else None


def _id(id_: bytes, length: int) -> str | None:
    """Return an id in hexadecimal; None if it is absent or has another length."""
    return id_.hex() if len(id_) == length else None


def is_too_late(*times_ns: int) -> bool:
    """Return True if a time is beyond the range that can be stored."""
    return max(times_ns) >= bounds.TIME_NS
