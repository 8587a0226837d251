"""The metric instruments: observable counters, and histograms recorded just before a collection.

A counter is a dictionary of sums, read by an observable instrument. Recording a histogram takes the
SDK half as long as a span, so measurements wait in a queue and are recorded in the callback of the
first observable instrument: the SDK runs all such callbacks before it collects any histogram, for
each reader, at a flush and at shutdown.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from opentelemetry.context import Context
from opentelemetry.metrics import (
    CallbackOptions,
    Histogram,
    Meter,
    MeterProvider,
    NoOpMeter,
    Observation,
)

from endturn._version import __version__
from endturn.calls import CallEnded, Strategy, TurnOutcome, listeners, records
from endturn.telemetry import cleanup, schema
from endturn.telemetry.attributes import error_of, non_default_port
from endturn.telemetry.foreign_metrics import ForeignInstrumentations, ForeignMetrics
from endturn.telemetry.schema import Generation, Metric
from endturn.telemetry.series import LENGTH, MOST, OTHER, SETS, Caps, MetricSeries, Pair, Values
from endturn.vocabulary import StopReason

if TYPE_CHECKING:
    from endturn.vocabulary import Usage

QUEUED: Final = 2_048
"""Maximum length of the queue of measurements, those of some 150 to 300 calls. When it is full, the
oldest is recorded for each new one."""

LOSS_LABEL: Final = "Histogram.record"
"""The label value for measurements that the SDK refused, in `endturn.listener.failures`."""

APART_S: Final = 0.002
"""Seconds between two samples of a series, and between its start time and its first sample.
Prometheus counts in milliseconds: it refuses the second of two samples in one, and adds no zero at
a start time that equals the sample's."""

INPUT, OUTPUT = "input", "output"

BORN_CALLS: Final = (
    *((schema.RESPONSES, (reason.value,)) for reason in StopReason),
    *((schema.CONTINUATIONS_METRIC, (strategy.value,)) for strategy in Strategy),
    *((schema.CONTINUATION_TOKENS, (token_type,)) for token_type in (INPUT, OUTPUT)),
    *((metric, ()) for metric in (schema.SUSPECTED_METRIC, schema.UNMAPPED)),
)
"""Series that are created at zero at a model's first call."""

BORN_TURNS: Final = (
    (False, False, TurnOutcome.COMPLETED.value),
    (True, False, TurnOutcome.NOT_CONTINUED.value),
    (True, True, TurnOutcome.COMPLETED.value),
    (True, True, TurnOutcome.RETRY_LIMIT.value),
)
"""Series of turns that are created at zero, and of exits for the truncated ones: numerator and
denominator of the headline rate."""

_COUNTERS: Final = tuple(metric.name for metric in schema.METRICS if metric.instrument == "counter")
"""The names of the counters, in the order of their creation, in which the SDK observes them."""

CountedRecord = (
    records.ContinuationAttempted
    | records.PayloadRepaired
    | records.DispatchBlocked
    | records.UsageEstimated
)

Generations = tuple[Generation, ...]

Price = tuple[float, float]
"""USD per million input tokens, and per million output tokens."""


Waiting = tuple[Metric, float, Values, Context, ForeignInstrumentations | None]
"""A queued measurement: metric, amount, label values, context of the span, and the other
instrumentations that may record it too. None: it is recorded whether they do or not."""


class Instruments:
    """Every instrument of one meter provider.

    Counting is thread-safe, and safe in a signal handler.

    Attributes:
        withholds: the latest collection reported 0 for a sum that is larger (see `own`).
    """

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._provider = ref(provider)
        self._is_complete = False
        self._zero_first = _zero_first and _owned is provider
        self._lock = threading.RLock()
        self._waiting: deque[Waiting] = deque()
        self._foreign = ForeignMetrics(provider)
        self._created: set[tuple[str, str, str | None]] = set()
        self._failures: dict[str, int] = {}
        self._is_exported = False
        self.withholds = False
        self._caps = Caps(lambda label: self._add(schema.SERIES_CAPPED, (label,)))
        self._series = {metric.name: MetricSeries(metric, self._caps) for metric in schema.METRICS}
        self._histograms: dict[str, Histogram] = {}
        self._counters: dict[str, object] = {}
        for metric in schema.METRICS:
            name, about, bounds = metric.name, (metric.unit, metric.brief), metric.buckets
            if metric.instrument == "counter":
                self._counters[name] = meter.create_observable_counter(
                    name, [partial(self._observe, name)], *about
                )
            else:
                histogram = meter.create_histogram(
                    name, *about, explicit_bucket_boundaries_advisory=bounds
                )
                self._histograms[name] = histogram
        for label in schema.CAPPED.values:
            self._add(schema.SERIES_CAPPED, (label,), 0)
        self._is_complete = True

    @property
    def is_exported(self) -> bool:
        """True if a reader exports these instruments.

        Known from the start for the SDK's own provider, for others from the first collection on.
        """
        self._is_exported = self._is_exported or bool(_reader_storages(self._provider()))
        return self._is_exported

    # --- Counting ---------------------------------------------------------------------------------

    def create_series(self, provider: str, model: str, agent: str | None) -> None:
        """Create the series of a provider, model and agent at the first call with these."""
        key = provider, model, agent
        if key in self._created or len(self._created) >= SETS:
            return
        with self._lock:
            self._created.add(key)
            pair, agent = self._caps.pair(provider, model), self._caps.limit("agent", agent)
            for metric, values in BORN_CALLS:
                self._add(metric, (*pair, *values), 0)
            for truncated, continued, outcome in BORN_TURNS:
                self._add(schema.TURNS, (*pair, agent, truncated, continued, outcome), 0)
                if truncated:
                    self._add(schema.TRUNCATION_EXITS, (*pair, agent, outcome), 0)

    def count_call(
        self,
        ended: CallEnded,
        context: Context,
        *,
        generations: Generations,
        price: Price | None,
        instrumentations: ForeignInstrumentations | None = None,
    ) -> None:
        """Count a call.

        Args:
            context: the context with the exemplar's span.
            generations: the generations of OpenTelemetry's metrics that are recorded too.
            instrumentations: the other instrumentations of the call. OpenTelemetry's metrics that
                they record are left to them. None: record them regardless.
        """
        started, stop, usage = ended.started, ended.response.stop, ended.response.usage
        measure = self._waiting.append
        with self._lock:
            pair = self._caps.pair(started.endpoint.provider, started.request.model)
            self._add(schema.RESPONSES, (*pair, stop.reason.value))
            if stop.suspected:
                self._add(schema.SUSPECTED_METRIC, pair)
            if not stop.mapped:
                self._add(schema.UNMAPPED, pair)
            limit = started.request.max_tokens
            if limit and usage is not None and usage.output_tokens is not None:
                measure((schema.BUDGET_USED, usage.output_tokens / limit, pair, context, None))
            if started.continuation is not None:
                self._count_tokens(pair, usage, price)
            if generations:
                self._measure_standard(ended, pair, (context, instrumentations), generations)
        if len(self._waiting) > QUEUED:
            self._relieve(QUEUED)

    def count_turn(self, ended: records.TurnEnded, agent: str | None, context: Context) -> None:
        """Count a turn and its exit, under one lock."""
        turn, outcome = ended.turn, ended.outcome.value
        measure = self._waiting.append
        with self._lock:
            pair, agent = (
                self._caps.pair(turn.provider, turn.model),
                self._caps.limit("agent", agent),
            )
            self._add(schema.TURNS, (*pair, agent, turn.truncated, turn.continued, outcome))
            if turn.unfinished:
                self._add(schema.TRUNCATION_EXITS, (*pair, agent, outcome))
            if turn.truncated:
                continuations = turn.continuations + turn.repairs
                measure((schema.TURN_CONTINUATIONS, continuations, pair, context, None))
            duration_labels = (*pair, turn.truncated, turn.continued)
            measure((schema.TURN_DURATION, ended.duration_s, duration_labels, context, None))
            if turn.answer_tokens:  # 0: no call of the turn reported its usage
                output_labels = (*pair, ended.complete)
                measure((schema.TURN_OUTPUT, turn.answer_tokens, output_labels, context, None))
        if len(self._waiting) > QUEUED:
            self._relieve(QUEUED)

    def count_event(self, record: CountedRecord, price: Price | None) -> None:
        """Count an event between a turn's calls, and a continuation's estimated tokens."""
        with self._lock:
            pair = self._caps.pair(record.provider, record.model)
            match record:
                case records.ContinuationAttempted():
                    self._add(
                        schema.CONTINUATIONS_METRIC, (*pair, record.continuation.strategy.value)
                    )
                case records.PayloadRepaired():
                    result = (
                        "succeeded"
                        if record.succeeded
                        else "failed"
                        if record.attempted
                        else "not_attempted"
                    )
                    self._add(schema.REPAIRS, (*pair, result))
                case records.DispatchBlocked():
                    self._add(schema.BLOCKED, (*pair, record.reason), len(record.names) or 1)
                case records.UsageEstimated() if record.continues:
                    self._count_tokens(pair, record.usage, price)

    # --- With the lock held -----------------------------------------------------------------------

    def _add(self, metric: Metric, values: Values, amount: float = 1) -> None:
        self._series[metric.name].add(values, amount)

    def _count_tokens(self, pair: Pair, usage: Usage | None, price: Price | None) -> None:
        """Count a continuation's tokens and cost. Unknown counts add 0 to create the series."""
        input_tokens, output_tokens = (
            (0, 0) if usage is None else (usage.input_tokens or 0, usage.output_tokens or 0)
        )
        self._add(schema.CONTINUATION_TOKENS, (*pair, INPUT), input_tokens)
        self._add(schema.CONTINUATION_TOKENS, (*pair, OUTPUT), output_tokens)
        if price is not None and usage is not None:
            self._add(
                schema.CONTINUATION_COST,
                pair,
                (input_tokens * price[0] + output_tokens * price[1]) / 1e6,
            )

    def _measure_standard(
        self,
        ended: CallEnded,
        pair: Pair,
        origin: tuple[Context, ForeignInstrumentations | None],
        generations: Generations,
    ) -> None:
        """Queue the measurements of OpenTelemetry's metrics for a call.

        Args:
            origin: the context of the call's span, and the other instrumentations of the call.
        """
        endpoint, usage, by = ended.started.endpoint, ended.response.usage, ended.response.model
        if by is not None:
            by = (
                pair[1]
                if by == ended.started.request.model
                else self._caps.pair(endpoint.provider, by)[1]
            )
        address, port = endpoint.server_address, non_default_port(endpoint.server_port)
        if address is not None and not self._caps.admits(
            "server_address", (address := address[:LENGTH], port)
        ):
            address, port = OTHER, None
        common: Values = (endpoint.operation, *pair, by, address, port)
        error = error_of(ended)
        with_error: Values = (
            *common,
            None if error is None else self._caps.limit("error_type", error),
        )
        input_tokens, output_tokens = (
            (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        )
        measure = self._waiting.append
        for generation in generations:
            measure((generation.duration, ended.duration_s, with_error, *origin))
            if ended.first_chunk_s is not None:
                measure((generation.first_chunk, ended.first_chunk_s, common, *origin))
            for gap in ended.chunk_gaps_s:
                measure((generation.output_chunk, gap, common, *origin))
            if generation is schema.INFERENCE_METRICS:
                measure((schema.INFERENCE_INPUT, input_tokens or 0, with_error, *origin))
                measure((schema.INFERENCE_OUTPUT, output_tokens or 0, with_error, *origin))
                for name, metric in schema.INFERENCE_USAGE.items():
                    tokens = getattr(usage, name, None) or 0
                    measure((metric, tokens, (*common, "unknown"), *origin))
                continue
            if input_tokens is not None:
                measure((schema.TOKEN_USAGE, input_tokens, (*common, INPUT), *origin))
            if output_tokens is not None:
                measure((schema.TOKEN_USAGE, output_tokens, (*common, OUTPUT), *origin))

    # --- Without the lock: the SDK has its own locks ----------------------------------------------

    def _relieve(self, most: int) -> None:
        self._foreign.refresh(again=not most)
        while len(self._waiting) > most:
            try:
                metric, amount, values, context, instrumentations = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            if not 0 <= amount <= MOST:
                continue
            if instrumentations is not None and self._foreign.record(metric.name, instrumentations):
                continue
            with self._lock:
                if metric.name not in self._histograms:
                    self._add(metric, values, amount)
                    continue
                attributes = self._series[metric.name].attributes(values)
            try:
                self._histograms[metric.name].record(amount, attributes, context)
            except Exception:  # the SDK refused this measurement: record the ones behind it
                if listeners.is_strict():
                    raise
                listeners.count_loss(LOSS_LABEL)

    # --- At a collection --------------------------------------------------------------------------

    def _observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        """Return the sums of one counter: its callback.

        The first counter's callback records the queue and takes the sums of all counters at once,
        so a collection has both or neither of a turn and its exit.

        The last counter's callback sleeps. The SDK sets the start time of new series while the
        callbacks run, and the time of the samples after them.
        """
        if name == _COUNTERS[0]:
            self._take()
        yield from self._series[name].taken
        if name == _COUNTERS[-1] and not self._zero_first:
            time.sleep(APART_S)

    def _take(self) -> None:
        """Record the queue, and take the sums of all counters."""
        self._is_exported = True
        # A lock is held while instruments are created, for which the jobs might wait.
        if self._is_complete:
            cleanup.run()
        if self._waiting:
            self._relieve(0)
        with self._lock:
            failures = {"Recorder": 0, **listeners.listener_failures()}
            for name, failure_count in failures.items():
                increase = failure_count - self._failures.get(name, 0)
                self._add(schema.LISTENER_FAILURES, (name,), increase)
            self._failures = failures
            withheld = [
                self._series[name].take(zero_first=self._zero_first) for name in self._counters
            ]
            self.withholds = any(withheld)

    def forget(self) -> None:
        """Empty the queue and set all sums to zero in a forked child. Attribute sets are kept."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._failures = listeners.listener_failures()
        for series in self._series.values():
            series.reset()
        _forget_points(self._provider(), [*self._histograms.values(), *self._counters.values()])


def _reader_storages(provider: Any) -> Mapping[Any, Any]:
    """Return the storage of each reader of a meter provider, by reader.

    The SDK has no public way to get them. Empty if there are no readers, or the attributes have
    other names: `tests/telemetry/test_recorder.py` fails when a release renames them.
    """
    storages: Mapping[Any, Any] = {}
    with suppress(AttributeError):
        storages = provider._measurement_consumer._reader_storages  # noqa: SLF001
    return storages


def _forget_points(provider: Any, instruments: Iterable[object]) -> None:
    """Drop the parent's measurements of these instruments in a forked child.

    The SDK would export them a second time. If its attributes have other names, they stay.
    """
    with suppress(AttributeError):
        for storage in _reader_storages(provider).values():
            for instrument in instruments:
                storage._instrument_view_instrument_matches.pop(instrument, None)  # noqa: SLF001


_owned: MeterProvider | None = None
_zero_first = False


def own(provider: MeterProvider, *, zero_first: bool) -> None:
    """Register the meter provider that endturn created. It has no instruments yet.

    Args:
        zero_first: its only reader pushes. Each new series is reported as 0 in its first
            collection and with its value from the next one on, so that a back end sees the first
            increment.
    """
    global _owned, _zero_first
    _owned, _zero_first = provider, zero_first


def is_owned(provider: object) -> bool:
    """Return whether endturn created this provider."""
    return provider is _owned


_instruments: dict[int, tuple[ref[MeterProvider], Instruments]] = {}
"""The instruments of each provider, by the provider's `id`: it need not be hashable."""
_making = threading.RLock()


def instruments_of(provider: MeterProvider) -> Instruments | None:
    """Return the instruments of a provider. They are created once.

    The SDK would never call a second set of observable instruments.

    Returns:
        None if the provider measures nothing.
    """
    key = id(provider)
    with _making:  # the first calls of several threads may all want them
        if key in _instruments and _instruments[key][0]() is provider:
            return _instruments[key][1]
        meter = provider.get_meter(schema.SCOPE, __version__, schema.SCHEMA_URL)
        if isinstance(meter, NoOpMeter):
            return None
        instruments = Instruments(provider, meter)
        provider_ref = ref(provider, lambda _: _instruments.pop(key, None))
        _instruments[key] = provider_ref, instruments
        return instruments


def _forked() -> None:
    """Replace the lock in a forked child, and forget the parent's counts.

    A thread of the parent may have held the lock.
    """
    global _making
    _making = threading.RLock()
    for _, instruments in list(_instruments.values()):
        instruments.forget()


cleanup.register_after_fork(_forked)
