"""Reads OTLP (protobuf or JSON, also gzipped) into rows, from HTTP requests and from files."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import math
import zlib
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from google.rpc.code_pb2 import INVALID_ARGUMENT, UNAUTHENTICATED, UNAVAILABLE
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

from endturn.errors import UsageError
from endturn.scan import ScannedFile
from endturn.scan.sources import otlp as otlp_lines
from endturn.telemetry import schema
from endturn.ui import bounds
from endturn.ui.bounds import word
from endturn.ui.rows import LABELS, METRICS, PLACE_COLUMNS, Batch, Contents, Point, Row, SeriesKey
from endturn.ui.span_rows import (
    add_event,
    add_span,
    attributes_of,
    column_value,
    event_name,
    is_too_late,
)
from endturn.ui.store import Store

PROTOBUF: Final = "application/x-protobuf"
JSON: Final = "application/json"
MOST_BYTES: Final = 20 * 1024 * 1024
"""The longest body in bytes, compressed and decompressed: the default limit of a Collector."""
MOST_AT_ONCE: Final = 2 * MOST_BYTES
"""The largest total size of bodies that are being read or are not yet written."""
MOST_ROWS: Final = 100_000
"""The most spans, log records and points of one request: a row needs far more memory than its bytes
in the body."""
BODY_S: Final = 10.0
"""The time in which a body must arrive: the default timeout of exporters."""
MOST_MESSAGE: Final = 1000
"""The longest error message, in characters: it may quote a part of the body."""
SIGNALS: Final[Mapping[str, tuple[Callable[[], Any], Callable[[], Any], str]]] = {
    "traces": (
        traces.ExportTraceServiceRequest,
        traces.ExportTraceServiceResponse,
        "rejected_spans",
    ),
    "logs": (logs.ExportLogsServiceRequest, logs.ExportLogsServiceResponse, "rejected_log_records"),
    "metrics": (
        metrics.ExportMetricsServiceRequest,
        metrics.ExportMetricsServiceResponse,
        "rejected_data_points",
    ),
}
"""By the last segment of the path: the request, the response, and the field of the response that
counts rejected records."""
_GROUPS: Final = {
    "traces": ("spans", "spans"),
    "logs": ("logs", "log_records"),
    "metrics": ("metrics", "metrics"),
}
"""By signal: the suffix of a request's and a resource's fields, and the field of a scope."""
_IDS: Final = frozenset(
    {"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"}
)


class BadRequest(Exception):
    """Raised for a body that is refused entirely: the HTTP status, and a message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class BodyBudget:
    """A limit on the total size of the bodies that are in memory.

    A request beyond the limit is refused with 503, so that its exporter retries it.
    """

    def __init__(self, most: int = MOST_AT_ONCE) -> None:
        self._remaining = most

    @asynccontextmanager
    async def body(
        self, chunks: AsyncIterable[bytes], encoding: str, most: int = MOST_BYTES
    ) -> AsyncIterator[bytes]:
        """Read a body and decompress it; it counts against the budget until the block ends.

        Raises:
            BadRequest: the body is too long, arrives too late or is not in its declared encoding,
                or the budget is used up.
        """
        content = bytearray()
        late = asyncio.timeout(BODY_S)
        try:
            with suppress(TimeoutError):
                async with late:
                    async for part in _unpacked(chunks, encoding, most):
                        if len(part) > self._remaining:
                            raise BadRequest(
                                503, "too many bodies at once: send this again in a moment"
                            )
                        self._remaining -= len(part)
                        content += part
            if late.expired():
                raise BadRequest(408, f"the body did not arrive within {BODY_S:g} seconds")
            yield bytes(content)
        finally:
            self._remaining += len(content)


async def _unpacked(chunks: AsyncIterable[bytes], encoding: str, most: int) -> AsyncIterator[bytes]:
    if encoding not in ("", "identity", "gzip"):
        raise BadRequest(415, f"Content-Encoding {encoding!r} is not supported: send gzip, or none")
    unpack = zlib.decompressobj(wbits=31) if encoding == "gzip" else None
    received = length = 0
    async for chunk in chunks:
        received += len(chunk)
        try:
            # One byte beyond the limit is enough to detect a body that is too long.
            part = chunk if unpack is None else unpack.decompress(chunk, most + 1 - length)
        except zlib.error as error:
            raise BadRequest(400, f"the body is not gzip, as its header says: {error}") from None
        length += len(part)
        if max(received, length) > most:
            raise BadRequest(413, f"the body is longer than {most} bytes: export smaller batches")
        yield part
    if unpack is not None and (unpack.unused_data or not unpack.eof):
        raise BadRequest(
            400, "the gzipped body is incomplete, or continues after its end: send one gzip member"
        )


def parse_request(
    signal: str, content_type: str, content: bytes, most_rows: float = MOST_ROWS
) -> Batch:
    """Return the rows of one export request.

    Raises:
        BadRequest: the content is not such a request, or has too many rows.
    """
    request = SIGNALS[signal][0]()
    kind = content_type.partition(";")[0].strip().lower()
    try:
        if kind == PROTOBUF:
            request.ParseFromString(content)
        elif kind == JSON:
            tree = json.loads(content, object_hook=_with_base64)
            if not isinstance(tree, dict):
                raise ParseError("it is no JSON object")
            ParseDict(tree, request, ignore_unknown_fields=True)
        else:
            raise BadRequest(
                415, f"Content-Type {content_type!r} is not supported: send {PROTOBUF} or {JSON}"
            )
    except (DecodeError, ParseError, ValueError, RecursionError) as error:
        raise BadRequest(400, f"the body is not an {type(request).__name__}: {error}") from None
    return _batch(signal, request, most_rows)


def response_body(signal: str, content_type: str, batch: Batch) -> bytes:
    """Return the body of a successful response, with the number of rejected records and why."""
    response = SIGNALS[signal][1]()
    if batch.rejected:
        setattr(response.partial_success, SIGNALS[signal][2], batch.rejected)
        response.partial_success.error_message = batch.error_message
    return _encoded(response, content_type)


def error_body(content_type: str, message: str, status: int) -> bytes:
    """Return the body of an error response: a `google.rpc.Status`."""
    code = {401: UNAUTHENTICATED, 503: UNAVAILABLE}.get(status, INVALID_ARGUMENT)
    return _encoded(Status(code=code, message=bounds.shorten(message, MOST_MESSAGE)), content_type)


def _encoded(message: Message, content_type: str) -> bytes:
    return (
        json.dumps(MessageToDict(message)).encode()
        if JSON in content_type
        else message.SerializeToString()
    )


def _batch(signal: str, request: Any, most: float) -> Batch:
    batch = Batch()
    for resource in getattr(request, f"resource_{_GROUPS[signal][0]}"):
        attributes = attributes_of(resource.resource.attributes)
        instance = word(str(attributes.get(schema.INSTANCE, "")))
        where = {
            column: column_value(attributes.get(key), "string")
            for column, (_, key) in PLACE_COLUMNS.items()
        }
        name_parts = (
            attributes.get("service.namespace"),
            attributes.get("service.name") or "unknown_service",
        )
        # the value of Prometheus' label `job`
        service = word("/".join(str(name) for name in name_parts if name))
        resource_columns: Row = {"service": service, **where}
        for scope in getattr(resource, f"scope_{_GROUPS[signal][0]}"):
            for record in getattr(scope, _GROUPS[signal][1]):
                match signal:
                    case "traces":
                        add_span(batch, record, resource_columns, scope.scope.name)
                    case "logs" if event_name(record):
                        add_event(batch, record, resource_columns)
                    case "metrics" if record.name in METRICS:
                        _add_points(batch, record, resource_columns, instance)
                if batch.size > most:
                    raise BadRequest(
                        413,
                        f"the body has more than {most} spans, events or points: export fewer "
                        f"at once",
                    )
    return batch


# --- Metrics --------------------------------------------------------------------------------------


def _add_points(batch: Batch, metric: Any, resource_columns: Row, instance: str) -> None:
    kind = metric.WhichOneof("data")
    expected = {"counter": "sum", "histogram": "histogram"}[METRICS[metric.name].instrument]
    if kind != expected:
        count = len(getattr(metric, kind).data_points) if kind else 1
        expected_kind = expected if expected == "sum" else "histogram with explicit bounds"
        batch.reject(count, f"{metric.name} is a {expected_kind}, not {kind or 'without data'}")
        return
    data = getattr(metric, kind)
    delta = data.aggregation_temporality == AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
    # OTLP: "no recorded value"
    for point in (point for point in data.data_points if not point.flags & 1):
        if kind == "sum":
            values: tuple[float, ...] = (
                float(getattr(point, point.WhichOneof("value") or "as_int")),
            )
            limits: tuple[float, ...] = ()
        else:
            counts = tuple(map(float, point.bucket_counts))
            limits = (*point.explicit_bounds, math.inf)
            values = (point.sum, *counts)
            if wrong := _wrong_buckets(counts, limits):
                batch.reject(1, f"{metric.name} {wrong}")
                continue
        started_ns, at_ns = point.start_time_unix_nano, point.time_unix_nano
        if not all(0 <= value < bounds.VALUE for value in values) or is_too_late(started_ns, at_ns):
            why = f"it counts up from 0, is less than {bounds.VALUE:g}, and never falls"
            batch.reject(1, f"{metric.name} has a value, or a time, that cannot be: {why}")
            continue
        # Processes without service.instance.id are told apart by their start times.
        process = instance or ("" if delta else str(started_ns))
        series = SeriesKey(
            metric.name,
            resource_columns["service"],
            process,
            _labels(attributes_of(point.attributes), resource_columns),
        )
        batch.points.append(Point(series, started_ns, at_ns, delta, values, limits))


def _wrong_buckets(counts: Sequence[float], limits: Sequence[float]) -> str:
    """Return the problem with a histogram's buckets; "" if there is none.

    Args:
        limits: the upper bound of each bucket, the last one infinite.
    """
    if len(counts) != len(limits):
        return f"has {len(counts)} buckets for {len(limits) - 1} bounds"
    if len(limits) > bounds.BUCKETS:
        return f"has more than {bounds.BUCKETS} buckets"
    if not all(-math.inf < low < high for low, high in itertools.pairwise(limits)):  # false for NaN
        return "has bounds that are not finite numbers in rising order"
    return ""


def _labels(attributes: Mapping[str, Any], resource_columns: Row) -> tuple[str | None, ...]:
    values = {key.replace(".", "_"): word(str(value)) for key, value in attributes.items()}
    values |= {
        label: resource_columns[column]
        for column, (label, _) in PLACE_COLUMNS.items()
        if resource_columns[column]
    }
    return tuple(
        values[label].lower() if values.get(label) in ("True", "False") else values.get(label)
        for label in LABELS
    )


def _with_base64(members: dict[str, Any]) -> dict[str, Any]:
    """Convert ids from hexadecimal, as in OTLP JSON, to base64, as in protobuf's JSON."""
    ids = {name: members[name] for name in _IDS & members.keys() if isinstance(members[name], str)}
    return members | {
        name: base64.b64encode(bytes.fromhex(value)).decode() for name, value in ids.items()
    }


# --- Files ----------------------------------------------------------------------------------------


def load(store: Store, path: Path) -> Contents:
    """Read a file into the store, and return how much it contains.

    Raises:
        UsageError: the file contains no OTLP JSON, or cannot be read.
    """
    # The whole file is parsed before any of it is written, so that no file is stored in part.
    counts = [(len(batch.spans), len(batch.events), len(batch.points)) for batch in _batches(path)]
    total = Batch(from_file=True)
    for batch in _batches(path):
        total.add(batch)
        if total.size > 20_000:
            store.write(total)
            total = Batch(from_file=True)
    store.write(total)
    return Contents(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def _batches(path: Path) -> Iterator[Batch]:
    try:
        for number, request in _requests(path):
            signals = [signal for member, signal in otlp_lines.MEMBERS.items() if member in request]
            if not signals:
                raise UsageError(
                    f"{path}, request {number}: no {', '.join(otlp_lines.MEMBERS)} in it, so it"
                    " is not OTLP JSON"
                )
            content = json.dumps(request).encode()
            yield from (parse_request(signal, JSON, content, math.inf) for signal in signals)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    except BadRequest as error:
        raise UsageError(f"{path}: {error}") from None


def _requests(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each request with its number; a damaged file is refused."""
    with path.open("rb") as stream:
        file = ScannedFile(stream, str(path), path)
        number = 0
        for number, (_, request) in enumerate(otlp_lines.requests(file), 1):
            yield number, request
        damage = file.damage
        if damage.problem:
            raise UsageError(f"{path} cannot be read: {damage.problem}")
        if damage.damaged_lines or damage.is_last_line_incomplete or damage.long_lines:
            raise UsageError(f"{path}: after {number} requests a line is not JSON, or too long")
        if not number and path.stat().st_size:
            raise UsageError(f"{path}: not JSON")
