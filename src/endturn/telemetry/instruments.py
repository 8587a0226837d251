"""The metrics: sums that readers request, and histograms recorded just before each collection.

A counter is a dictionary of sums, read by an observable instrument. To record a histogram takes the
SDK as long as half a span, so measurements wait in a queue, and are recorded in the callback of the
first observable instrument: the SDK runs every such callback before it collects any histogram, for
each reader, when it flushes and when it shuts down.
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
from endturn.telemetry.attributes import error_of, port_shown
from endturn.telemetry.foreign_metrics import ForeignMetrics, Watchers
from endturn.telemetry.schema import Generation, Metric
from endturn.telemetry.series import LENGTH, MOST, OTHER, SETS, Caps, Pair, Series, Values
from endturn.vocabulary import StopReason

if TYPE_CHECKING:
    from endturn.vocabulary import Usage

QUEUED: Final = 2_048
"""Measurements that wait at most, some 150 to 300 calls. Past it, one is recorded for each that
comes."""

LOST: Final = "Histogram.record"
"""What measurements that the SDK refused are counted under, in `endturn.listener.failures`."""

APART_S: Final = 0.002
"""Between two samples of a series, and between its start time and its first sample. Prometheus
counts in milliseconds: of two samples in one it refuses the second, and it adds no zero at a start
time that is the sample's own."""

INPUT, OUTPUT = "input", "output"

BORN_CALLS: Final = (
    *((schema.RESPONSES, (reason.value,)) for reason in StopReason),
    *((schema.CONTINUATIONS_METRIC, (strategy.value,)) for strategy in Strategy),
    *((schema.CONTINUATION_TOKENS, (token_type,)) for token_type in (INPUT, OUTPUT)),
    *((metric, ()) for metric in (schema.SUSPECTED_METRIC, schema.UNMAPPED)),
)
"""Sums that exist at zero from a model's first call."""

BORN_TURNS: Final = (
    (False, False, TurnOutcome.COMPLETED.value),
    (True, False, TurnOutcome.NOT_CONTINUED.value),
    (True, True, TurnOutcome.COMPLETED.value),
    (True, True, TurnOutcome.RETRY_LIMIT.value),
)
"""Turns that exist so, and their exits where they are truncated: both sides of the headline
rate."""

_COUNTERS: Final = tuple(metric.name for metric in schema.METRICS if metric.instrument == "counter")
"""In the order in which they are made, and so observed."""

Counted = (
    records.ContinuationAttempted
    | records.PayloadRepaired
    | records.DispatchBlocked
    | records.UsageEstimated
)

Generations = tuple[Generation, ...]

Price = tuple[float, float]
"""USD per million tokens, of the input and of the output."""


Waiting = tuple[Metric, float, Values, Context, Watchers | None]
"""A measurement that waits: what is measured, how much, with which labels, in which span's context,
and who may have recorded it too; None where that is of no account."""


class Instruments:
    """Every instrument of one meter provider.

    Counting is safe in many threads, and within a signal's handler.

    Attributes:
        withholds: the latest collection reported 0 for a sum that is more (see `own`).
    """

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._provider = ref(provider)
        self._is_complete = False
        self._zero_first = _zero_first and _owned is provider
        self._lock = threading.RLock()
        self._waiting: deque[Waiting] = deque()
        self._foreign = ForeignMetrics(provider)
        self._expected: set[tuple[str, str, str | None]] = set()
        self._failures: dict[str, int] = {}
        self._is_exported = False
        self.withholds = False
        self._caps = Caps(lambda label: self._add(schema.SERIES_CAPPED, (label,)))
        self._series = {metric.name: Series(metric, self._caps) for metric in schema.METRICS}
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
        """Whether a reader exports what is counted.

        It is known from the start of the SDK's own provider, of another's from the first collection
        on.
        """
        self._is_exported = self._is_exported or bool(_reader_storages(self._provider()))
        return self._is_exported

    # --- What is counted --------------------------------------------------------------------------

    def expect(self, provider: str, model: str, agent: str | None) -> None:
        """Create the sums of a provider, model and agent at the first call with these."""
        key = provider, model, agent
        if key in self._expected or len(self._expected) >= SETS:
            return
        with self._lock:
            self._expected.add(key)
            pair, agent = self._caps.pair(provider, model), self._caps.shown("agent", agent)
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
        watchers: Watchers | None = None,
    ) -> None:
        """Count a call.

        Args:
            context: has the span that becomes the exemplar.
            generations: those in which the conventions' metrics are recorded too.
            watchers: the other instrumentations of the call: what they record of the conventions'
                metrics is left to them. None where it is recorded all the same.
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
                self._measure_standard(ended, pair, (context, watchers), generations)
        if len(self._waiting) > QUEUED:
            self._relieve(QUEUED)

    def count_turn(self, ended: records.TurnEnded, agent: str | None, context: Context) -> None:
        """Count a turn, and in the same step its exit."""
        turn, outcome = ended.turn, ended.outcome.value
        measure = self._waiting.append
        with self._lock:
            pair, agent = (
                self._caps.pair(turn.provider, turn.model),
                self._caps.shown("agent", agent),
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

    def count_event(self, record: Counted, price: Price | None) -> None:
        """Count an event between a turn's calls, and uncounted tokens of a continuation."""
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
        """Count what a continuation used: unknown figures bring the sums into being."""
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
        seen: tuple[Context, Watchers | None],
        generations: Generations,
    ) -> None:
        """Have the conventions' metrics of a call recorded.

        Args:
            seen: the context of the call's span, and the other instrumentations that watch it.
        """
        endpoint, usage, by = ended.started.endpoint, ended.response.usage, ended.response.model
        if by is not None:
            by = (
                pair[1]
                if by == ended.started.request.model
                else self._caps.pair(endpoint.provider, by)[1]
            )
        address, port = endpoint.server_address, port_shown(endpoint.server_port)
        if address is not None and not self._caps.admits(
            "server_address", (address := address[:LENGTH], port)
        ):
            address, port = OTHER, None
        common: Values = (endpoint.operation, *pair, by, address, port)
        error = error_of(ended)
        failed: Values = (*common, None if error is None else self._caps.shown("error_type", error))
        input_tokens, output_tokens = (
            (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        )
        measure = self._waiting.append
        for generation in generations:
            measure((generation.duration, ended.duration_s, failed, *seen))
            if ended.first_chunk_s is not None:
                measure((generation.first_chunk, ended.first_chunk_s, common, *seen))
            for gap in ended.chunk_gaps_s:
                measure((generation.output_chunk, gap, common, *seen))
            if generation is schema.INFERENCE_METRICS:
                measure((schema.INFERENCE_INPUT, input_tokens or 0, failed, *seen))
                measure((schema.INFERENCE_OUTPUT, output_tokens or 0, failed, *seen))
                for name, metric in schema.INFERENCE_USAGE.items():
                    tokens = getattr(usage, name, None) or 0
                    measure((metric, tokens, (*common, "unknown"), *seen))
                continue
            if input_tokens is not None:
                measure((schema.TOKEN_USAGE, input_tokens, (*common, INPUT), *seen))
            if output_tokens is not None:
                measure((schema.TOKEN_USAGE, output_tokens, (*common, OUTPUT), *seen))

    # --- Without it: the SDK has locks of its own -------------------------------------------------

    def _relieve(self, most: int) -> None:
        self._foreign.look(again=not most)
        while len(self._waiting) > most:
            try:
                metric, amount, values, context, watchers = self._waiting.popleft()
            except IndexError:  # another thread was faster
                return
            if not 0 <= amount <= MOST:
                continue
            if watchers is not None and self._foreign.record(metric.name, watchers):
                continue
            with self._lock:
                if metric.name not in self._histograms:
                    self._add(metric, values, amount)
                    continue
                attributes = self._series[metric.name].attributes(values)
            try:
                self._histograms[metric.name].record(amount, attributes, context)
            except Exception:  # what the SDK refuses is lost, and what waits behind it is not
                if listeners.is_strict():
                    raise
                listeners.count_loss(LOST)

    # --- When a reader collects -------------------------------------------------------------------

    def _observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        """The callback of one sum.

        The first one's records what waits, and takes all sums at one moment.

        So of what is counted twice (a turn, and its exit) a collection shows both or neither.

        The last one's waits. The SDK gives a new series the present as its start time, while the
        callbacks run, and then takes the time of the samples.
        """
        if name == _COUNTERS[0]:
            self._take()
        yield from self._series[name].taken
        if name == _COUNTERS[-1] and not self._zero_first:
            time.sleep(APART_S)

    def _take(self) -> None:
        """Record what waits, and have all sums observed as they are now."""
        self._is_exported = True
        # while instruments are made a lock is held that this might wait for
        if self._is_complete:
            cleanup.run()
        if self._waiting:
            self._relieve(0)
        with self._lock:
            failures = {"Recorder": 0, **listeners.listener_failures()}
            for name, failed in failures.items():
                self._add(schema.LISTENER_FAILURES, (name,), failed - self._failures.get(name, 0))
            self._failures = failures
            withheld = [
                self._series[name].take(zero_first=self._zero_first) for name in self._counters
            ]
            self.withholds = any(withheld)

    def forget(self) -> None:
        """In a forked child: nothing waits or is counted yet, whatever the parent had.

        The attribute sets stay.
        """
        self._lock = threading.RLock()
        self._waiting.clear()
        self._failures = listeners.listener_failures()
        for series in self._series.values():
            series.reset()
        _forget_points(self._provider(), [*self._histograms.values(), *self._counters.values()])


def _reader_storages(provider: Any) -> Mapping[Any, Any]:
    """Return what the SDK keeps for each reader of a meter provider, by the reader.

    The SDK has no public way. Empty: it has none, or is built otherwise.
    `tests/telemetry/test_recorder.py` fails when a release has renamed what is read here.
    """
    storages: Mapping[Any, Any] = {}
    with suppress(AttributeError):
        storages = provider._measurement_consumer._reader_storages  # noqa: SLF001
    return storages


def _forget_points(provider: Any, instruments: Iterable[object]) -> None:
    """In a forked child, drop what the parent has measured with these.

    The SDK would export it a second time. Where it is built otherwise, the child's histograms begin
    with its parent's measurements.
    """
    with suppress(AttributeError):
        for storage in _reader_storages(provider).values():
            for instrument in instruments:
                storage._instrument_view_instrument_matches.pop(instrument, None)  # noqa: SLF001


_owned: MeterProvider | None = None
_zero_first = False


def own(provider: MeterProvider, *, zero_first: bool) -> None:
    """Register a meter provider as ours: it has no instruments yet, and its readers export.

    Args:
        zero_first: it has one reader, which pushes: each new series is reported as 0 in its first
            collection and with its value from the next on. A back end sees its first increment
            then.
    """
    global _owned, _zero_first
    _owned, _zero_first = provider, zero_first


def is_owned(provider: object) -> bool:
    """Whether this is the provider that is ours."""
    return provider is _owned


_made: dict[int, tuple[ref[MeterProvider], Instruments]] = {}
"""By the provider's `id`: a host's provider need not be hashable."""
_making = threading.RLock()


def instruments_of(provider: MeterProvider) -> Instruments | None:
    """The instruments of a provider, made once.

    A second set of observable instruments would never be asked.

    Returns:
        None where the provider measures nothing.
    """
    key = id(provider)
    with _making:  # the first calls of several threads may all look for it
        if key in _made and _made[key][0]() is provider:
            return _made[key][1]
        meter = provider.get_meter(schema.SCOPE, __version__, schema.SCHEMA_URL)
        if isinstance(meter, NoOpMeter):
            return None
        made = Instruments(provider, meter)
        _made[key] = ref(provider, lambda gone: _made.pop(key, None)), made
        return made


def _forked() -> None:
    """In a forked child.

    Whoever was making some is the parent's thread, and what is counted is the parent's.
    """
    global _making
    _making = threading.RLock()
    for _, made in list(_made.values()):
        made.forget()


cleanup.after_fork(_forked)
