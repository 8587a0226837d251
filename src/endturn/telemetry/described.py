"""Attributes set all at once: values that are known to be clean are not looked at one by one again.

The SDK checks and copies every value that a span or a log record is given, which takes as long as all else that
endturn does when a call has ended. What `endturn.telemetry.attributes` makes is clean by its type, so where the SDK is
as it was when this was written its own dictionary is added to. That is done only after it has been seen, once in each
process, to give the same as the API's own way, and only within the SDK's limits; the API's own way serves otherwise.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from opentelemetry._logs import Logger, LogRecord, SeverityNumber
from opentelemetry.context import Context, get_current
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

from endturn.telemetry.attributes import Attributes

log = logging.getLogger("endturn")

SDKS_OWN: Final = ("opentelemetry.sdk.trace.", "opentelemetry.sdk._logs.")
"""Where the SDK's own parts are. Extensions of others are in `opentelemetry.sdk.extension`."""


def describe(span: Span, found: Attributes) -> None:
    """Set attributes of a span. `found` is not to be changed afterwards."""
    if not (_is_known(type(span)) and _added(span, found)):
        span.set_attributes(found)


def _added(span: Any, found: Attributes) -> bool:
    """Whether the attributes could be added as they are: to a span that is open, below its limits, and all new."""
    bounded = span._attributes
    known = bounded._dict
    with span._lock, bounded._lock:
        if (
            span._end_time is not None
            or bounded.max_value_len is not None
            or (bounded.maxlen is not None and len(known) + len(found) > bounded.maxlen)
            or not known.keys().isdisjoint(found)
        ):
            return False
        known.update(found)
    return True


@cache
def _is_known(kind: type) -> bool:
    """Whether spans of this class are the SDK's, and adding to one is right in the SDK's version."""
    try:
        return kind.__module__ == "opentelemetry.sdk.trace" and _proven(kind)
    except Exception:
        log.debug("endturn: a span's attributes are set one by one", exc_info=True)
        return False


def _proven(kind: type) -> bool:
    """Whether both ways give the same attributes, in a span that goes on to take more and to end."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    limits = SpanLimits(max_span_attributes=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET)
    provider = TracerProvider(ALWAYS_ON, Resource({}), shutdown_on_exit=False, span_limits=limits)
    tracer = provider.get_tracer("endturn")
    found: Attributes = {"text": "x", "count": 1, "share": 0.5, "yes": True, "words": ("a", "b")}
    one, other = (tracer.start_span("proof", attributes={"before": 1}) for _ in range(2))
    if type(one) is not kind:
        return False
    one.set_attributes(found)
    seen: list[object] = [_added(other, found)]
    for span in (one, other):
        span.set_attribute("after", 2)
        span.end()
        seen.append(list(span.attributes.items()))  # type: ignore[attr-defined]  # a span of the SDK's has them
    return seen[0] is True and seen[1] == seen[2] and len(found) == 5


def emit(
    logger: Logger,
    name: str,
    attributes: Mapping[str, Any],
    timestamp: int,
    context: Context | None,
    text: str,
    number: SeverityNumber,
) -> None:
    """Emit an event, with the ids of a context. `attributes` is not to be changed afterwards."""
    made = None
    if is_known_logger(type(logger)):
        made = _record(logger, name, attributes, timestamp, context, text, number)
    if made is None:
        logger.emit(
            event_name=name,
            attributes=attributes,
            timestamp=timestamp,
            context=context,
            severity_text=text,
            severity_number=number,
        )
    else:
        logger.emit(made)


def _record(logger: Any, name: str, attributes: Mapping[str, Any], *given: Any) -> Any:
    """A record of the SDK's own kind; None where the attributes exceed a limit."""
    limits = logger._log_record_limits
    most = limits.max_log_record_attributes
    if limits.max_log_record_attribute_length is not None or (most is not None and len(attributes) > most):
        return None
    made = object.__new__(_kind_of_records())
    made.__dict__ = {
        "log_record": _Record(name, attributes, *given),
        "resource": logger._resource,
        "instrumentation_scope": logger._instrumentation_scope,
        "limits": limits,
    }
    return made


class _Record(LogRecord):
    """A log record of an event, in a context that is given.

    A batch processor copies it, which takes a class without a way of its own three times as long.
    """

    def __init__(
        self,
        event_name: str,
        attributes: Mapping[str, Any],
        timestamp: int,
        context: Context | None,
        severity_text: str,
        severity_number: SeverityNumber,
    ) -> None:
        context = context or get_current()
        span = get_current_span(context).get_span_context()
        self.__dict__ = {
            "timestamp": timestamp,
            "observed_timestamp": time.time_ns(),
            "context": context,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "trace_flags": span.trace_flags,
            "severity_text": severity_text,
            "severity_number": severity_number,
            "body": None,
            "attributes": attributes,
            "event_name": event_name,
            "exception": None,
        }

    def __copy__(self) -> _Record:
        made = object.__new__(_Record)
        made.__dict__ = self.__dict__.copy()
        return made


@cache
def _kind_of_records() -> Any:
    from opentelemetry.sdk._logs import ReadWriteLogRecord

    return ReadWriteLogRecord


@cache
def is_known_logger(kind: type) -> bool:
    """Whether loggers of this class are the SDK's, and giving them whole records is right in the SDK's version."""
    try:
        return kind.__module__.startswith("opentelemetry.sdk._logs") and _proven_logger(kind)
    except Exception:
        log.debug("endturn: a log record's attributes are set one by one", exc_info=True)
        return False


def _proven_logger(kind: type) -> bool:
    """Whether both ways give the same log record."""
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    kept: Any = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]
    provider = LoggerProvider(Resource({"a": "b"}), shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    logger = provider.get_logger("endturn", "1", "https://example.com")
    if type(logger) is not kind:
        return False
    found: Attributes = {"text": "x", "count": 1, "share": 0.5, "yes": True, "words": ("a", "b")}
    span = NonRecordingSpan(SpanContext(1, 2, False, TraceFlags(TraceFlags.SAMPLED)))
    around = set_span_in_context(span, Context({"a": "b"}))
    text, number = "WARN", SeverityNumber.WARN
    logger.emit(
        event_name="proof", attributes=found, timestamp=1, context=around, severity_text=text, severity_number=number
    )
    logger.emit(_record(logger, "proof", found, 1, around, text, number))
    one, other = (vars(each.log_record) for each in kept.get_finished_logs())
    shown, again = (json.loads(each.to_json()) for each in kept.get_finished_logs())
    for each in (one, other, shown, again):
        del each["observed_timestamp"]
    one["attributes"], other["attributes"] = dict(one["attributes"]), dict(other["attributes"])
    return one == other and shown == again and bool(shown["attributes"]) and len(found) == 5


def begins_anywhere(tracer: object) -> bool:
    """Whether a tracer's span is the same whoever begins it, when, and with what attributes: given later, they count.

    So it is where neither sampler nor ids are of the host's own making: others may look at attributes, and around.
    """
    makes_ids = getattr(tracer, "id_generator", None)
    return _is_the_sdks(getattr(tracer, "sampler", None)) and type(makes_ids).__module__.startswith(SDKS_OWN)


def _is_the_sdks(sampler: object) -> bool:
    """Whether a sampler is one that the specification names, and made of such: they look at the trace alone."""
    parts = getattr(sampler, "__dict__", None)
    if parts is None or type(sampler).__module__ != "opentelemetry.sdk.trace.sampling":
        return False  # others of the SDK's are made of a host's rules
    return all(_is_the_sdks(part) for part in parts.values() if hasattr(part, "should_sample"))
