"""Many measurements of one attribute set at once: checked and looked up by the SDK once, not each time.

Half of what a call costs in CPU time would be `Histogram.record`, six times, of which nine tenths go into validating,
copying and hashing the same attributes. The API has no other way to record. So here, where the SDK is as it was when
this was written, measurements go to the SDK's own aggregations directly. It is used only after it has been seen, once
in each process, to give the same points as `record`, and `record` serves otherwise.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.metrics import Histogram

log = logging.getLogger("endturn")

Where = tuple[int, int]
"""The ids of a sampled span, of its trace and its own; 0 and 0 where there is none."""

Attributes = dict[str, str | int | bool]
Record = Callable[[Histogram, Attributes, list[float], list[Where]], None]
"""Records values, each with where it was measured."""

EXPLICIT: Final = "_ExplicitBucketHistogramAggregation"
"""The SDK's usual aggregation of a histogram. To it those of a batch that leave no exemplar are added in one go."""

NOWHERE: Final = Context({"endturn.exemplar": None})
"""The context of what has no sampled span. Not empty: the SDK would take the collecting thread's own in its place."""

SAMPLED: Final = trace.TraceFlags(trace.TraceFlags.SAMPLED)


def context_of(where: Where) -> Context:
    """A context in which a span of these ids is current."""
    if not where[0]:
        return NOWHERE
    span = trace.NonRecordingSpan(trace.SpanContext(*where, is_remote=False, trace_flags=SAMPLED))
    return trace.set_span_in_context(span, NOWHERE)


class _Measurement:
    """What an aggregation reads of the SDK's Measurement."""

    __slots__ = ("attributes", "context", "time_unix_nano", "value")

    def __init__(self, attributes: Attributes, now: int) -> None:
        self.attributes = attributes
        self.time_unix_nano = now
        self.value: float = 0
        self.context = NOWHERE


def one_by_one(instrument: Histogram, attributes: Attributes, values: list[float], wheres: list[Where]) -> None:
    """Record measurements as the API would have it."""
    for value, where in zip(values, wheres, strict=True):
        instrument.record(value, attributes, context_of(where))


def at_once(instrument: Any, attributes: Attributes, values: list[float], wheres: list[Where]) -> None:
    """Record measurements through the SDK's own aggregations."""
    if not instrument._is_enabled():  # a host may switch its meter off
        return
    # The first is recorded as any other: the SDK checks it, applies its views, and makes the aggregations.
    instrument.record(values[0], attributes, context_of(wheres[0]))
    consumer = instrument._measurement_consumer
    wanted = consumer._sdk_config.exemplar_filter.should_sample
    measurement = _Measurement(attributes, time.time_ns())
    for storage in consumer._reader_storages.values():
        for match in storage._get_or_init_view_instrument_match(instrument):
            kept = match._view._attribute_keys
            shown = attributes if kept is None else {key: attributes[key] for key in attributes if key in kept}
            # With delta temporality a collection, which takes the lock, replaces the aggregations: what was still
            # written to the old would be lost.
            with match._lock:
                aggregation = match._get_or_create_aggregation(_key(shown), shown)
                is_known = type(aggregation).__name__ == EXPLICIT
                for position in _add(aggregation, values, wheres) if is_known else range(1, len(values)):
                    measurement.value = values[position]
                    measurement.context = context_of(wheres[position])
                    is_wanted = wanted(measurement.value, measurement.time_unix_nano, shown, measurement.context)
                    aggregation.aggregate(measurement, is_wanted)


def _add(aggregation: Any, values: list[float], wheres: list[Where]) -> list[int]:
    """Do what the SDK's histogram of explicit buckets does with values that leave no exemplar: all that are left out.

    Returns:
        The positions that are left out, but for the first: the SDK keeps the last of each bucket as its exemplar. Of
        each bucket that is the last, and the last that has a span, for a filter that takes no other.
    """
    bounds = aggregation._boundaries
    buckets = [bisect_left(bounds, value) for value in values]
    last: dict[tuple[int, bool], int] = {}
    for position in range(1, len(values)):
        last[buckets[position], wheres[position][0] != 0] = position
    offered = sorted(last.values())
    added = set(range(1, len(values))).difference(offered)
    if not added:
        return offered
    chosen = [values[position] for position in added]
    with aggregation._lock:
        if aggregation._value is None:
            aggregation._value = aggregation._get_empty_bucket_counts()
        counts = aggregation._value
        for position in added:
            counts[buckets[position]] += 1
        aggregation._sum += sum(chosen)
        if aggregation._record_min_max:
            aggregation._min = min(aggregation._min, min(chosen))
            aggregation._max = max(aggregation._max, max(chosen))
    return offered


def _key(attributes: Attributes) -> Any:
    from opentelemetry.sdk.metrics._internal._view_instrument_match import _hash_attributes

    return _hash_attributes(attributes)


@cache
def recording(kind: type) -> Record:
    """How to record many measurements with instruments of this class: at once, where that is known to be right."""
    try:
        if kind.__module__.startswith("opentelemetry.sdk.metrics") and _proven():
            return at_once
    except Exception:
        log.debug("endturn: measurements are recorded one by one", exc_info=True)
    return one_by_one


def _proven() -> bool:
    """Whether both ways give the same points, in an SDK of the process's own version."""
    from opentelemetry.sdk.metrics import Histogram as Kind
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
    from opentelemetry.sdk.metrics.view import View
    from opentelemetry.sdk.resources import Resource

    views = [View(instrument_name="*", attribute_keys={"a"})]
    seen: list[list[object]] = [[], []]
    for found, record in zip(seen, (one_by_one, at_once), strict=True):
        readers = [InMemoryMetricReader(), InMemoryMetricReader({Kind: AggregationTemporality.DELTA})]
        provider = MeterProvider(readers, Resource({}), views=views, shutdown_on_exit=False)
        meter = provider.get_meter("endturn")
        instrument = meter.create_histogram("proof", explicit_bucket_boundaries_advisory=(1, 2, 4))
        # What comes first, or seldom, leaves its exemplar all the same; what has no span leaves none.
        batches: list[list[float]] = [[0.5, 3, 2, 9], [9.5, *(n % 5 / 2 for n in range(20)), 3.5, 0.25]]
        for values in batches:
            wheres = [(1, position + 2) if position % 3 else (0, 0) for position in range(len(values))]
            record(instrument, {"a": "x", "b": True}, values, [(1, 1), *wheres[1:]])
            record(instrument, {"a": "y"}, [1], [(1, 2)])
            found.extend(_points(reader.get_metrics_data()) for reader in readers)
    return seen[0] == seen[1]


def _points(data: Any) -> list[object]:
    return [
        (
            dict(point.attributes), point.count, point.sum, point.min, point.max, tuple(point.bucket_counts),
            sorted((exemplar.value, exemplar.span_id, exemplar.trace_id) for exemplar in point.exemplars),
        )
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        for point in metric.data.data_points
    ]  # fmt: skip
