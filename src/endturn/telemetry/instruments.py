"""The metrics: sums that readers ask for, and histograms that are recorded just before a reader collects them.

A counter is a dictionary of sums, read by an observable instrument. To record a histogram takes the SDK as long as half
a span, so measurements wait in a queue, and are recorded in the callback of the first observable instrument: the SDK
runs every such callback before it collects any histogram, for each reader, when it flushes and when it shuts down.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import ref

from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, NoOpMeter, Observation

from endturn import __version__, announce
from endturn.records import Strategy, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import cleanup, schema, sdk_access
from endturn.telemetry.attributes import port_shown
from endturn.telemetry.cardinality import OTHER, AttributeSets, Capped, Label, Pairs, Values
from endturn.telemetry.schema import Metric

if TYPE_CHECKING:
    from endturn.records import (
        CallEnded,
        ContinuationAttempted,
        DispatchBlocked,
        PayloadRepaired,
        TurnEnded,
        UsageEstimated,
    )

QUEUED: Final = 256
"""Measurements that wait at most. Past it, one is recorded for each that comes."""

MODELS_EXPECTED: Final = 2_048
"""Models whose sums are brought into being at their first call; later ones come into being when they are counted."""

MOST: Final = 2**53
"""The most that one measurement may be: what a float holds exactly. An integer beyond 64 bits that got into a sum would
fail every later export of the process, the host's own metrics too."""

LOST: Final = "Histogram.record"
"""What measurements that the SDK refused are counted under, in `endturn.listener.failures`."""

INPUT, OUTPUT = "input", "output"

BORN_TURNS: Final = (
    (False, False, TurnOutcome.COMPLETED),
    (True, False, TurnOutcome.NOT_CONTINUED),
    (True, True, TurnOutcome.COMPLETED),
    (True, True, TurnOutcome.RETRY_LIMIT),
)
"""Turns that exist at zero from a model's first call: both sides of the headline rate."""

Price = tuple[float, float]
"""USD per million tokens, of the input and of the output."""


class Counter:
    """A sum for each attribute set.

    Attributes:
        withholds: what was observed last is 0 for a sum that is more.
    """

    __slots__ = ("_reported", "_sets", "_sums", "withholds")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self._sets = AttributeSets(metric, capped)
        self._sums: dict[Values, float] = {}
        self._reported: set[Values] = set()
        self.withholds = False

    def add(self, values: Values, amount: float = 1) -> None:
        """Add to a sum; 0 only brings it into being, so that its first increment is seen as one."""
        if 0 <= amount <= MOST:
            if values not in self._sums:
                values = self._sets.admit(values)
            self._sums[values] = self._sums.get(values, 0) + amount

    def set(self, values: Values, amount: float) -> None:
        """Make a sum what somebody else has counted."""
        self._sums[self._sets.admit(values)] = amount

    def reset(self) -> None:
        """Every sum back to zero; the attribute sets stay."""
        self._sums = dict.fromkeys(self._sums, 0)
        self._reported.clear()

    def observed(self, *, zero_first: bool) -> list[Observation]:
        """The sums as they are now; with `zero_first`, 0 for each that was never observed before."""
        new = self._sums.keys() - self._reported if zero_first else set()
        self._reported |= new
        self.withholds = any(self._sums[values] for values in new)
        return [
            Observation(0 if values in new else amount, self._sets[values]) for values, amount in self._sums.items()
        ]


class Instruments:
    """Every instrument of one meter provider. Counting is safe in many threads, and within a signal's handler.

    Attributes:
        collected: a reader has asked at least once, or is known to be there, so what is counted is exported.
    """

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._provider = ref(provider)
        self._is_complete = False
        self._zero_first = _zero_first and _owned is provider
        self._lock = threading.RLock()
        self._waiting: deque[tuple[Histogram, float, Mapping[str, str | int | bool], Context]] = deque()
        self._expected: set[tuple[str, str, str | None]] = set()
        self._failures_before: dict[str, int] = {}
        self._observed: dict[str, list[Observation]] = {}
        self.collected = _owned is provider

        sums = [each for each in schema.METRICS if each.instrument == "counter"]
        distributions = [each for each in schema.METRICS if each.instrument == "histogram"]
        self._first = sums[0].name
        self._counters = {each.name: Counter(each, self._cap) for each in sums}
        self._sets = {each.name: AttributeSets(each, self._cap) for each in distributions}
        self._histograms = {
            each.name: meter.create_histogram(
                each.name, each.unit, each.brief, explicit_bucket_boundaries_advisory=each.buckets
            )
            for each in distributions
        }
        self._observables = [
            meter.create_observable_counter(each.name, [partial(self._observe, each.name)], each.unit, each.brief)
            for each in sums
        ]
        self._pair = Pairs(self._cap)
        self._agent = Label("agent", 10, self._cap)
        self._address = Label("server_address", 16, self._cap)
        self._port = Label("server_address", 64, self._cap)
        self._error = Label("error_type", 32, self._cap)
        for label in schema.CAPPED.values:
            self._add(schema.SERIES_CAPPED, (label,), 0)
        self._is_complete = True

    @property
    def withholds(self) -> bool:
        """Whether the latest collection reported 0 for a sum that is more (see `own`)."""
        return any(counter.withholds for counter in self._counters.values())

    # --- What is counted -----------------------------------------------------------------------------------------

    def expect(self, provider: str, model: str, agent: str | None) -> None:
        """Bring the sums of a provider, model and agent into being, the first time that it is called."""
        key = provider, model, agent
        if key in self._expected or len(self._expected) >= MODELS_EXPECTED:
            return
        with self._lock:
            self._expected.add(key)
            pair, agent = self._pair(provider, model), self._agent(agent)
            for reason in StopReason:
                self._add(schema.RESPONSES, (*pair, reason.value), 0)
            for truncated, continued, outcome in BORN_TURNS:
                self._add(schema.TURNS, (*pair, agent, truncated, continued, outcome.value), 0)
                if truncated:
                    self._add(schema.TRUNCATION_EXITS, (*pair, agent, outcome.value), 0)
            for strategy in Strategy:
                self._add(schema.CONTINUATIONS_METRIC, (*pair, strategy.value), 0)
            for kind in (INPUT, OUTPUT):
                self._add(schema.CONTINUATION_TOKENS, (*pair, kind), 0)
            self._add(schema.SUSPECTED_METRIC, pair, 0)
            self._add(schema.UNMAPPED, pair, 0)

    def count_call(
        self, ended: CallEnded, context: Context, *, price: Price | None, standard: bool, error: str | None
    ) -> None:
        """Count a call.

        Args:
            context: has the span that becomes the exemplar.
            standard: the conventions' metrics are recorded too.
            error: the type of the error that the call failed with.
        """
        started, stop, usage = ended.started, ended.stop, ended.usage
        asked, answered = (None, None) if usage is None else (usage.input_tokens, usage.output_tokens)
        with self._lock:
            pair = self._pair(started.provider, started.model)
            self._add(schema.RESPONSES, (*pair, stop.reason.value))
            if stop.suspected:
                self._add(schema.SUSPECTED_METRIC, pair)
            if not stop.mapped:
                self._add(schema.UNMAPPED, pair)
            if started.maximum and answered is not None:
                self._measure(schema.BUDGET_USED, answered / started.maximum, pair, context)
            if started.continuation is not None:
                self._count_tokens(pair, asked or 0, answered or 0, price if usage is not None else None)
            if standard:
                self._measure_standard(ended, pair, context, error)
        self._relieve()

    def count_turn(self, ended: TurnEnded, agent: str | None, context: Context) -> None:
        """Count a turn, and in the same step its exit."""
        turn, outcome = ended.turn, ended.outcome.value
        with self._lock:
            pair, agent = self._pair(turn.provider, turn.model), self._agent(agent)
            self._add(schema.TURNS, (*pair, agent, turn.truncated, turn.continued, outcome))
            if turn.unfinished:
                self._add(schema.TRUNCATION_EXITS, (*pair, agent, outcome))
            if turn.truncated:
                self._measure(schema.TURN_CONTINUATIONS, turn.continuations, pair, context)
            seconds = ended.duration_s
            self._measure(schema.TURN_DURATION, seconds, (*pair, turn.truncated, turn.continued), context)
            if turn.answer_tokens:  # 0: no call of the turn reported its usage
                self._measure(schema.TURN_OUTPUT, turn.answer_tokens, (*pair, ended.complete), context)
        self._relieve()

    def count_continuation(self, record: ContinuationAttempted) -> None:
        """Count a continuation."""
        with self._lock:
            pair = self._pair(record.provider, record.model)
            self._add(schema.CONTINUATIONS_METRIC, (*pair, record.continuation.strategy.value))

    def count_estimate(self, record: UsageEstimated, price: Price | None) -> None:
        """Count the estimated tokens of a continuation."""
        usage = record.usage
        with self._lock:
            pair = self._pair(record.provider, record.model)
            self._count_tokens(pair, usage.input_tokens or 0, usage.output_tokens or 0, price)

    def count_repair(self, record: PayloadRepaired) -> None:
        """Count a cut or unverified tool payload."""
        result = "succeeded" if record.succeeded else "failed" if record.attempted else "not_attempted"
        with self._lock:
            self._add(schema.REPAIRS, (*self._pair(record.provider, record.model), result))

    def count_blocked(self, record: DispatchBlocked) -> None:
        """Count tool calls that were not run."""
        with self._lock:
            pair = self._pair(record.provider, record.model)
            self._add(schema.BLOCKED, (*pair, record.reason), len(record.names) or 1)

    # --- With the lock held --------------------------------------------------------------------------------------

    def _add(self, metric: Metric, values: Values, amount: float = 1) -> None:
        self._counters[metric.name].add(values, amount)

    def _cap(self, label: str) -> None:
        self._add(schema.SERIES_CAPPED, (label,))

    def _count_tokens(self, pair: tuple[str, str], asked: int, answered: int, price: Price | None) -> None:
        self._add(schema.CONTINUATION_TOKENS, (*pair, INPUT), asked)
        self._add(schema.CONTINUATION_TOKENS, (*pair, OUTPUT), answered)
        if price is not None:
            self._add(schema.CONTINUATION_COST, pair, (asked * price[0] + answered * price[1]) / 1e6)

    def _measure_standard(self, ended: CallEnded, pair: tuple[str, str], context: Context, error: str | None) -> None:
        started, usage = ended.started, ended.usage
        shown, requested = pair
        by = ended.response_model
        if by is not None:
            by = requested if by == started.model else self._pair(started.provider, by)[1]
        port = port_shown(started.server_port)
        if port is not None and self._port(str(port)) == OTHER:
            port = None
        common: Values = (started.operation, shown, requested, by, self._address(started.server_address), port)
        self._measure(schema.OPERATION_DURATION, ended.duration_s, (*common, self._error(error)), context)
        if usage is not None and usage.input_tokens is not None:
            self._measure(schema.TOKEN_USAGE, usage.input_tokens, (*common, INPUT), context)
        if usage is not None and usage.output_tokens is not None:
            self._measure(schema.TOKEN_USAGE, usage.output_tokens, (*common, OUTPUT), context)
        if ended.first_chunk_s is not None:
            self._measure(schema.FIRST_CHUNK, ended.first_chunk_s, common, context)

    def _measure(self, metric: Metric, amount: float, values: Values, context: Context) -> None:
        if 0 <= amount <= MOST:
            sets = self._sets[metric.name]
            self._waiting.append((self._histograms[metric.name], amount, sets[sets.admit(values)], context))

    # --- Without it: the SDK has locks of its own ----------------------------------------------------------------

    def _relieve(self) -> None:
        while len(self._waiting) > QUEUED:
            self._record_oldest()

    def _record_oldest(self) -> None:
        try:
            histogram, amount, attributes, context = self._waiting.popleft()
        except IndexError:  # another thread was faster
            return
        try:
            histogram.record(amount, attributes, context)
        except Exception:  # what the SDK refuses is lost, and what waits behind it is not
            if announce.is_strict():
                raise
            announce.lost(LOST)

    # --- When a reader collects ----------------------------------------------------------------------------------

    def _observe(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        """The callback of one sum. The first one's records what waits, and takes all sums at one moment.

        So of what is counted twice (a turn, and its exit) a collection shows both or neither.
        """
        if name == self._first:
            self.collected = True
            if self._is_complete:  # while instruments are made a lock is held that this might wait for
                cleanup.run()
            for _ in range(len(self._waiting)):
                self._record_oldest()
            with self._lock:
                for each, failed in {"Recorder": 0, **announce.listener_failures()}.items():
                    failures = self._counters[schema.LISTENER_FAILURES.name]
                    failures.set((each,), failed - self._failures_before.get(each, 0))
                self._observed = {
                    each: counter.observed(zero_first=self._zero_first) for each, counter in self._counters.items()
                }
        return self._observed.get(name, ())

    def forget(self) -> None:
        """In a forked child: nothing waits or is counted yet, whatever the parent had; the attribute sets stay."""
        self._lock = threading.RLock()
        self._waiting.clear()
        self._failures_before = announce.listener_failures()
        for counter in self._counters.values():
            counter.reset()
        sdk_access.forget_points(self._provider(), [*self._histograms.values(), *self._observables])


_owned: MeterProvider | None = None
_zero_first = False


def own(provider: MeterProvider, *, zero_first: bool) -> None:
    """Say that a meter provider, of which no instruments were made yet, is ours, and that its readers export.

    Args:
        zero_first: it has one reader, which pushes: each new series is reported as 0 in its first collection and with
            its value from the next on. A back end sees its first increment then.
    """
    global _owned, _zero_first
    _owned, _zero_first = provider, zero_first


_made: dict[int, tuple[ref[MeterProvider], Instruments]] = {}
"""By the provider's `id`: a host's provider need not be hashable."""
_making = threading.RLock()


def instruments_of(provider: MeterProvider) -> Instruments | None:
    """The instruments of a provider, made once: a second set of observable instruments would never be asked.

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
    """In a forked child: whoever was making some is the parent's thread, and what is counted is the parent's."""
    global _making
    _making = threading.RLock()
    for _, made in list(_made.values()):
        made.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
