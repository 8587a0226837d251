"""The metrics: what happened is queued where it happens, counted later, and seen when a reader collects.

Recording one histogram costs as much as half a span. On a call's own path facts are therefore only appended to a queue;
The callback of the first observable instrument counts what is
still queued. The SDK runs every such callback before it collects any storage, for each reader, and once more when it
shuts down, so nothing is late and nothing is lost. Sums are seen whole: of what is counted twice (a turn, and its exit)
a collection shows both or neither.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakMethod, ref

from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, NoOpMeter, Observation

from endturn import __version__, announce
from endturn.telemetry import bulk, janitor, schema
from endturn.telemetry.schema import Metric
from endturn.telemetry.tally import (
    BornFacts,
    CallFacts,
    EstimateFacts,
    LabelFacts,
    Tally,
    TurnFacts,
)

QUEUED: Final = 1_024
"""Facts that wait at most: beyond it, whoever adds one folds what is too many."""

AT_ONCE: Final = 64
"""How many facts one call may fold: a few hundred microseconds."""

MODELS_EXPECTED: Final = 2_048
"""Models whose sums are brought into being at their first call; later ones come into being when they are counted."""

Facts = BornFacts | CallFacts | TurnFacts | LabelFacts | EstimateFacts

BORN, CALL, TURN, CONTINUATION, REPAIR, BLOCKED, ESTIMATE = range(7)


class Meters:
    """Every instrument of one meter provider, and the queue that feeds them.

    Attributes:
        collected: a reader has asked at least once, so what is queued gets counted.
    """

    def __init__(self, provider: MeterProvider, meter: Meter) -> None:
        self._provider = ref(provider)
        self._queue: deque[tuple[int, Facts]] = deque()
        self._lock = threading.Lock()
        self._holder: int | None = None  # of the lock: a thread
        self._expected: set[BornFacts] = set()
        self._failures_before: dict[str, int] = {}
        self.collected = False
        self._instruments: list[object] = []

        def histogram(metric: Metric) -> Histogram:
            made = meter.create_histogram(
                metric.name, metric.unit, metric.brief, explicit_bucket_boundaries_advisory=metric.buckets
            )
            self._instruments.append(made)
            bulk.recording(type(made))  # found out here, not on a call's path
            return made

        self._tally = tally = Tally(histogram)
        folds = (
            tally.born, tally.call, tally.turn, tally.continuation, tally.repair, tally.blocked, tally.estimate,
        )  # fmt: skip
        self._folds: tuple[Callable[[Any], None], ...] = folds
        for position, counter in enumerate(tally.counters.values()):
            metric = counter.sets.metric
            observe = self._observe_first if position == 0 else counter.observe
            if counter is tally.listener_failures:
                observe = self._observe_failures
            self._instruments.append(meter.create_observable_counter(metric.name, [observe], metric.unit, metric.brief))
        if hasattr(os, "register_at_fork"):
            forked = WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    # --- On the call's path --------------------------------------------------------------------------------------

    def expect(self, facts: BornFacts) -> None:
        """Bring the sums of a provider, model and agent into being, the first time that it is called."""
        if facts not in self._expected and len(self._expected) < MODELS_EXPECTED:
            self._expected.add(facts)
            self.queue(BORN, facts)

    def queue(self, kind: int, facts: Facts) -> None:
        """Have the facts counted, with the next collection at the latest."""
        queue = self._queue
        queue.append((kind, facts))
        if len(queue) > QUEUED:
            self._relieve(len(queue) - QUEUED)

    def _relieve(self, over: int) -> None:
        # Whoever holds the lock is folding already.
        if self._hold(0):
            try:
                self._fold(min(over + 1, AT_ONCE))
            finally:
                self._let_go()

    def _hold(self, seconds: float) -> bool:
        """Hold the lock, waiting so long at most; never where this thread, which a signal has interrupted, holds it."""
        if self._holder == threading.get_ident() or not self._lock.acquire(timeout=seconds):
            return False
        self._holder = threading.get_ident()
        return True

    def _let_go(self) -> None:
        self._holder = None
        self._lock.release()

    # --- When a reader collects ----------------------------------------------------------------------------------

    def drain(self) -> None:
        """Count all that is queued, and let it be seen. Only a reader's collection may ask for it."""
        # Whoever holds it longer has been interrupted by a signal, whose handler waits for the reader.
        if self._hold(janitor.WAIT_S):
            try:
                self._fold(len(self._queue))
                for distribution in self._tally.distributions.values():
                    self._guarded(distribution.hand_over)
                self._tally.settle()
            finally:
                self._let_go()

    def _fold(self, count: int) -> None:
        for _ in range(count):
            try:
                kind, facts = self._queue.popleft()
            except IndexError:
                break
            self._guarded(self._folds[kind], facts)

    def _guarded(self, step: Callable[..., None], *given: object) -> None:
        """What cannot be counted is lost, and counted as a failure; what is queued behind it is not."""
        try:
            step(*given)
        except Exception:
            if announce.is_strict():
                raise
            announce.failed(step)

    def _observe_first(self, options: CallbackOptions) -> Iterable[Observation]:
        """The first instrument's callback: what is queued is in what all of them, and the histograms, then show."""
        self.collected = True
        self.drain()
        return next(iter(self._tally.counters.values())).observe(options)

    def _observe_failures(self, options: CallbackOptions) -> Iterable[Observation]:
        counter = self._tally.listener_failures
        before = self._failures_before
        counter.sums = {("Recorder",): 0}
        for name, failures in announce.listener_failures().items():
            counter.add((name,), failures - before.get(name, 0))
        counter.settle()
        return counter.observe(options)

    def _forked(self) -> None:
        """In the child: nothing is queued or counted yet, whatever the parent had."""
        self._lock, self._holder = threading.Lock(), None
        self._queue.clear()
        self._failures_before = announce.listener_failures()
        self._tally.empty()
        # The SDK hands a child its parent's histograms, and with delta temporality what it last saw of each sum, so
        # the child would export its parent's measurements again. There is no public way to drop them.
        consumer = getattr(self._provider(), "_measurement_consumer", None)
        for storage in getattr(consumer, "_reader_storages", {}).values():
            matches = getattr(storage, "_instrument_view_instrument_matches", {})
            for instrument in self._instruments:
                matches.pop(instrument, None)


_made: WeakKeyDictionary[MeterProvider, Meters] = WeakKeyDictionary()
_making = threading.Lock()


def meters_of(provider: MeterProvider) -> Meters | None:
    """The instruments of a provider, made once: a second set of observable instruments would never be asked.

    Returns:
        None where the provider measures nothing.
    """
    made = _made.get(provider)
    if made is None:
        with _making:  # the first calls of several threads may all look for it
            made = _made.get(provider)
            if made is None:
                meter = provider.get_meter(schema.SCOPE, __version__, schema.SCHEMA_URL)
                if isinstance(meter, NoOpMeter):
                    return None
                made = _made[provider] = Meters(provider, meter)
    return made


def _renew() -> None:
    """In a forked child: whoever was making some is the parent's thread."""
    global _making
    _making = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def exports(provider: MeterProvider) -> bool:
    """Whether the provider has a reader, as far as it can be told from outside before any reader has collected."""
    # The SDK offers no other way to ask. A provider of another kind is believed once it has collected.
    return bool(getattr(provider, "_metric_readers", ()))
