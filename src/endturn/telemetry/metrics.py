"""The metrics: what happened is queued where it happens, and counted when a reader collects.

Recording one histogram costs as much as half a span. On the call's own path a record is therefore only appended to a
queue; the callback of the first observable instrument folds the queue into sums and histograms. The SDK runs every
such callback before it collects any storage, for each reader, and once more when it shuts down, so nothing is late and
nothing is lost. A record is folded whole: what it counts twice (a turn, and its exit) is seen together or not at all.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakMethod, ref

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, NoOpMeter, Observation

from endturn import __version__, announce
from endturn.announce import (
    CallEnded,
    ContinuationAttempted,
    DispatchBlocked,
    PayloadRepaired,
    Strategy,
    TurnEnded,
    TurnOutcome,
)
from endturn.chat import Usage
from endturn.stop import StopReason
from endturn.telemetry import schema
from endturn.telemetry.attributes import port_shown
from endturn.telemetry.schema import Attribute, Metric
from endturn.telemetry.series import Caps, Counter, Distribution

QUEUED: Final = 2_048
"""Records that wait at most, as many as the SDK's own span queue: beyond it, each new record folds what is too much."""

AT_ONCE: Final = 64
"""How many records one call may fold: a few hundred microseconds."""

Prices = Mapping[str, tuple[float, float]]
"""USD per million input and per million output tokens, by model as requested."""

NOWHERE: Final = Context({"endturn.exemplar": None})
"""The context of what has no sampled span. Not empty: the SDK would take the collecting thread's own in its place."""

BORN_TURNS: Final = (
    (False, False, TurnOutcome.COMPLETED),
    (True, False, TurnOutcome.NOT_CONTINUED),
    (True, True, TurnOutcome.COMPLETED),
    (True, True, TurnOutcome.RETRY_LIMIT),
)
"""Turns that exist at zero from a model's first call: both sides of the headline rate."""

INPUT, OUTPUT = "input", "output"

Fold = Callable[[Any, Context], None]


class Meters:
    """Every instrument of one meter provider, and the queue that feeds them.

    Attributes:
        collected: a reader has asked at least once, so what is queued gets counted.
    """

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._provider = ref(provider)
        self._queue: deque[tuple[Fold, Any, Context]] = deque()
        self._lock = threading.Lock()
        self._caps = Caps(self._cap)
        self._expected: set[tuple[str, str, str | None]] = set()
        self._failures_before: dict[str, int] = {}
        self.collected = False
        self.counters: dict[Metric, Counter] = {}
        self.instruments: list[object] = []
        histograms: dict[Metric, Distribution] = {}
        for metric in schema.METRICS:
            if metric.instrument == "counter":
                self.counters[metric] = counter = Counter(metric, self._cap)
                observe = self._observer(metric, counter)
                self.instruments.append(
                    meter.create_observable_counter(metric.name, [observe], metric.unit, metric.brief)
                )
            else:
                instrument = meter.create_histogram(
                    metric.name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=metric.buckets
                )
                self.instruments.append(instrument)
                histograms[metric] = Distribution(metric, self._cap, instrument)
        self._responses = self.counters[schema.RESPONSES]
        self._turns = self.counters[schema.TURNS]
        self._exits = self.counters[schema.TRUNCATION_EXITS]
        self._tokens = self.counters[schema.CONTINUATION_TOKENS]
        self._turn_continuations = histograms[schema.TURN_CONTINUATIONS]
        self._turn_duration = histograms[schema.TURN_DURATION]
        self._turn_output = histograms[schema.TURN_OUTPUT]
        self._budget_used = histograms[schema.BUDGET_USED]
        self._duration = histograms[schema.OPERATION_DURATION]
        self._token_usage = histograms[schema.TOKEN_USAGE]
        self._first_chunk = histograms[schema.FIRST_CHUNK]
        for label in schema.CAPPED.values:
            self.counters[schema.SERIES_CAPPED].add((label,), 0)
        if hasattr(os, "register_at_fork"):
            forget = WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (method := forget()) and method())

    # --- On the call's path --------------------------------------------------------------------------------------

    def expect(self, provider: str, model: str, agent: str | None) -> None:
        """Bring the sums of a provider and model into being, the first time that it is called."""
        key = provider, model, agent
        if key not in self._expected and len(self._expected) < QUEUED:
            self._expected.add(key)
            self.queue(self._born, key, None)

    def queue(self, fold: Fold, record: Any, context: Context | None) -> None:
        """Have `fold` called with the record before the next collection."""
        queue = self._queue
        queue.append((fold, record, context or NOWHERE))
        # Whoever holds the lock is folding already; it may be this very thread, in the middle of a garbage collection.
        over = len(queue) - QUEUED
        if over > 0 and self._lock.acquire(blocking=False):
            try:
                self._take(min(over + 1, AT_ONCE))
            finally:
                self._lock.release()

    # --- When a reader collects ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Fold all that is queued."""
        with self._lock:
            self._take(len(self._queue))

    def _take(self, count: int) -> None:
        for _ in range(count):
            try:
                fold, record, context = self._queue.popleft()
            except IndexError:
                return
            try:
                fold(record, context)
            except Exception:
                if announce.is_strict():
                    raise
                announce.failed(fold)

    def _observer(self, metric: Metric, counter: Counter) -> Callable[[CallbackOptions], Iterable[Observation]]:
        if metric is schema.METRICS[0]:

            def observe_first(options: CallbackOptions) -> Iterable[Observation]:
                self.collected = True
                self.drain()
                return counter.observe(options)

            return observe_first
        return self._observe_failures if metric is schema.LISTENER_FAILURES else counter.observe

    def _observe_failures(self, options: CallbackOptions) -> Iterable[Observation]:
        counter = self.counters[schema.LISTENER_FAILURES]
        before = self._failures_before
        counter.sums = {("Recorder",): 0}
        for name, failures in announce.listener_failures().items():
            counter.add((name,), failures - before.get(name, 0))
        return counter.observe(options)

    def _cap(self, label: Attribute) -> None:
        self.counters[schema.SERIES_CAPPED].add((CAPPED_AS[label],))

    def _forked(self) -> None:
        """In the child: nothing is queued or counted yet, whatever the parent had."""
        self._lock = threading.Lock()
        self._queue.clear()
        self._failures_before = announce.listener_failures()
        for counter in self.counters.values():
            counter.empty()
        # The SDK hands a child its parent's histograms, and with delta temporality what it last saw of each sum, so
        # the child would export its parent's measurements again. There is no public way to drop them.
        consumer = getattr(self._provider(), "_measurement_consumer", None)
        for storage in getattr(consumer, "_reader_storages", {}).values():
            matches = getattr(storage, "_instrument_view_instrument_matches", {})
            for instrument in self.instruments:
                matches.pop(instrument, None)

    # --- What each record counts ---------------------------------------------------------------------------------

    def _born(self, key: tuple[str, str, str | None], context: Context) -> None:
        pair = self._caps.pair(*key[:2])
        agent = self._caps.label(schema.AGENT, key[2])
        for reason in StopReason:
            self._responses.add((*pair, reason.value), 0)
        for truncated, continued, outcome in BORN_TURNS:
            self._turns.add((*pair, agent, truncated, continued, outcome.value), 0)
            if truncated:
                self._exits.add((*pair, agent, outcome.value), 0)
        for strategy in Strategy:
            self.counters[schema.CONTINUATIONS_METRIC].add((*pair, strategy.value), 0)
        for kind in (INPUT, OUTPUT):
            self._tokens.add((*pair, kind), 0)
        for metric in (schema.SUSPECTED_METRIC, schema.UNMAPPED):
            self.counters[metric].add(pair, 0)

    def call(self, seen: tuple[CallEnded, str | None, bool, Prices | None], context: Context) -> None:
        """Count a call: what came, the type of its error, whether the conventions' metrics are ours to record."""
        ended, error, standard, prices = seen
        started, stop, usage = ended.started, ended.stop, ended.usage
        provider, model = pair = self._caps.pair(started.provider, started.model)
        self._responses.add((provider, model, stop.reason.value))
        if stop.suspected:
            self.counters[schema.SUSPECTED_METRIC].add(pair)
        if not stop.mapped:
            self.counters[schema.UNMAPPED].add(pair)
        if usage is not None:
            if started.maximum and usage.output_tokens is not None:
                self._budget_used.record(usage.output_tokens / started.maximum, pair, context)
            if started.continuation is not None:
                self._continued(pair, usage, None if prices is None else prices.get(started.model))
        if standard:
            self._standard(ended, error, pair, context)

    def _continued(self, pair: tuple[str, str], usage: Usage, price: tuple[float, float] | None) -> None:
        asked, answered = usage.input_tokens or 0, usage.output_tokens or 0
        self._tokens.add((*pair, INPUT), asked)
        self._tokens.add((*pair, OUTPUT), answered)
        if price is not None:
            self.counters[schema.CONTINUATION_COST].add(pair, (asked * price[0] + answered * price[1]) / 1e6)

    def _standard(self, ended: CallEnded, error: str | None, pair: tuple[str, str], context: Context) -> None:
        """Record the conventions' own metrics."""
        started, usage, caps = ended.started, ended.usage, self._caps
        provider, model = pair
        answered = ended.response_model
        if answered is not None and answered != started.model:
            answered = caps.pair(started.provider, answered)[1]
        address = caps.label(schema.SERVER_ADDRESS, started.server_address)
        common = (started.operation, provider, model, answered, address, port_shown(started.server_port))
        self._duration.record(ended.duration_s, (*common, caps.label(schema.ERROR_TYPE, error)), context)
        if usage is not None:
            if usage.input_tokens is not None:
                self._token_usage.record(usage.input_tokens, (*common, INPUT), context)
            if usage.output_tokens is not None:
                self._token_usage.record(usage.output_tokens, (*common, OUTPUT), context)
        if ended.first_chunk_s is not None:
            self._first_chunk.record(ended.first_chunk_s, common, context)

    def turn(self, named: tuple[TurnEnded, str | None], context: Context) -> None:
        """Count a turn, with its agent's name where that is wanted."""
        ended, name = named
        turn = ended.turn
        pair = self._caps.pair(turn.provider, turn.model)
        agent = self._caps.label(schema.AGENT, name)
        continued = turn.continuations > 0
        self._turns.add((*pair, agent, turn.truncated, continued, ended.outcome.value))
        if turn.unfinished:
            self._exits.add((*pair, agent, ended.outcome.value))
        if turn.truncated:
            self._turn_continuations.record(turn.continuations, pair, context)
        self._turn_duration.record(ended.duration_s, (*pair, turn.truncated, continued), context)
        if turn.output_tokens:  # 0: no call of the turn reported its usage
            self._turn_output.record(turn.output_tokens, (*pair, ended.complete), context)

    def continuation(self, attempted: ContinuationAttempted, context: Context) -> None:
        """Count a continuation."""
        pair = self._caps.pair(attempted.provider, attempted.model)
        self.counters[schema.CONTINUATIONS_METRIC].add((*pair, attempted.continuation.strategy.value))

    def repair(self, repaired: PayloadRepaired, context: Context) -> None:
        """Count a cut or unverified tool payload."""
        result = "succeeded" if repaired.succeeded else "failed" if repaired.attempted else "not_attempted"
        pair = self._caps.pair(repaired.provider, repaired.model)
        self.counters[schema.REPAIRS].add((*pair, result))

    def blocked(self, blocked: DispatchBlocked, context: Context) -> None:
        """Count tool calls that were not run."""
        reason = blocked.reason if blocked.reason in schema.BLOCK_REASON.values else "other"
        pair = self._caps.pair(blocked.provider, blocked.model)
        self.counters[schema.BLOCKED].add((*pair, reason), len(blocked.names) or 1)


CAPPED_AS: Final = {
    schema.PROVIDER: "provider",
    schema.REQUEST_MODEL: "model",
    schema.AGENT: "agent",
    schema.SERVER_ADDRESS: "server_address",
    schema.ERROR_TYPE: "error_type",
}


_made: WeakKeyDictionary[MeterProvider, Meters] = WeakKeyDictionary()


def meters_of(provider: MeterProvider) -> Meters | None:
    """The instruments of a provider, made once: a second set of observable instruments would never be asked.

    Returns:
        None where the provider measures nothing.
    """
    made = _made.get(provider)
    if made is None:
        meter = provider.get_meter(schema.SCOPE, __version__, schema.SCHEMA_URL)
        if isinstance(meter, NoOpMeter):
            return None
        made = _made[provider] = Meters(provider, meter)
    return made


def exports(provider: MeterProvider) -> bool:
    """Whether the provider has a reader, as far as it can be told from outside before any reader has collected."""
    # The SDK offers no other way to ask. A provider of another kind is believed once it has collected.
    return bool(getattr(provider, "_metric_readers", ()))
