"""What is made of a call that has ended, made within about a second and not on the call's own path.

Most calls are whole: what is to be done for one (its span, its log record, its metrics) needs nobody's answer. Done for
many at once it costs half of what it costs between two calls, where the processor's caches hold everything but this
code. That it happens later nobody can tell where the host's tracer and logger providers hand on in batches, at their
own time, anyway; only there is it done. The wait is over at once when a provider is flushed or shut down, or a reader
collects: processors of ours, which stand first, are told before the others are.

Where calls are few another thread does it. Where they are many, whoever adds one does it for some of them: a thread
that wants the interpreter from a busy one is woken in vain each time that one lets go of it for a moment.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, Final
from weakref import WeakMethod, WeakSet, ref

from endturn import announce
from endturn.calls import Call
from endturn.telemetry import janitor
from endturn.telemetry.described import SDKS_OWN, begins_anywhere

TICK_S: Final = 0.25
"""How often the thread looks for calls that were there when it looked last."""

BUSY_TICK_S: Final = 1.0
"""When it looks again where so many had come since that they are left to whoever adds more."""

MANY: Final = 64
"""Calls that wait at most: whoever adds one more tells them, in a few milliseconds.

What four times as many hold is more than the processor keeps at hand: all that the host does would cost more."""

MOST: Final = 512
"""Calls that wait at most where another thread is at work on them: whoever adds one more waits for it, once."""

ROOM: Final = 8 * MANY
"""How many a processor's queue has to hold: what is told in one go must not fill it before it is exported."""

PATIENCE_S: Final = 1.0
"""How long a processor has to wait before it exports: a host that is in a hurry gets each call at once."""

METHODS: Final = ("on_start", "_on_ending", "on_end", "on_emit")
"""What a host may have replaced of a processor that it made: it looks at what begins and ends, then."""

LOOK_AGAIN: Final = 64
"""After how many calls it is looked again at what a host may have changed of its processors."""


class Backlog:
    """Calls that have ended, announced later in order, by one thread at a time."""

    def __init__(self) -> None:
        self._calls: deque[Call] = deque()
        self._lock = threading.RLock()
        self._ticking = threading.Lock()  # held from one tick to the next: two threads that add begin one, not two
        self._told = self._seen = 0
        self._is_stuck = False
        self.is_closed = False
        """A provider has been shut down: nothing waits from then on."""
        if hasattr(os, "register_at_fork"):
            forked = WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    def add(self, call: Call) -> None:
        """Have a call announced soon; at once where nothing may wait any more."""
        calls = self._calls
        calls.append(call)
        if not self._ticking.locked():
            self._tick_later(TICK_S)
        if len(calls) > MANY or self.is_closed:
            self._relieve(len(calls))

    def _relieve(self, waiting: int) -> None:
        if self.is_closed:
            self.drain()
        elif waiting > MOST:
            # Whoever is at work may hang, in a handler of the host's. One call waits for it; what then is too much is
            # lost, as it would be where the SDK's own queues are full.
            if self._is_stuck or not self.drain():
                self._is_stuck = True
                self._lose(waiting - MOST)
        elif self._lock.acquire(blocking=False):  # else another thread is at it
            try:
                self._run(MANY)
            finally:
                self._lock.release()

    def _lose(self, count: int) -> None:
        for _ in range(count):
            try:
                self._calls.popleft()
            except IndexError:
                break
            announce.lost("Backlog")

    def drain(self) -> bool:
        """Announce all that wait. False where another thread, which was at it, did not come to an end."""
        # Reentrant: a signal's handler may flush while its thread is here. One that shuts down waits for a reader's
        # thread, which would wait here for the handler's.
        if not self._lock.acquire(timeout=janitor.WAIT_S):
            return False
        try:
            self._run(len(self._calls))
        finally:
            self._lock.release()
        return True

    def _tick_later(self, seconds: float) -> None:
        if self._ticking.acquire(blocking=False):
            janitor.after(seconds, self._tick)

    def _tick(self) -> None:
        """Announce what was there a tick ago; where many have come since, leave it to those who add more."""
        before, self._seen = self._seen, self._told + len(self._calls)
        is_busy = self._seen - before >= MANY and self._is_fresh()
        try:
            while not is_busy and self._told < before and self._calls:
                with self._lock:  # not for long: whoever wants it may be the host
                    self._run(1)
        finally:
            self._ticking.release()
        if self._calls:  # looked at last: whoever adds one now sees that nobody ticks
            self._tick_later(BUSY_TICK_S if is_busy else TICK_S)

    def _is_fresh(self) -> bool:
        """Whether the last has only just come."""
        try:
            return time.perf_counter() - self._calls[-1].over_s < TICK_S
        except IndexError:
            return False

    def _run(self, count: int) -> None:
        for _ in range(count):
            try:
                call = self._calls.popleft()
            except IndexError:
                break
            self._told += 1
            self._is_stuck = False
            try:
                call.tell()
            except Exception:
                announce.lost("Backlog.drain")
                announce.swallow("announcing a call")

    def _forked(self) -> None:
        """In the child: what waits is the parent's to work on."""
        self._calls.clear()
        self._lock = threading.RLock()
        self._ticking = threading.Lock()
        self._told = self._seen = 0
        self._is_stuck = False


class Place:
    """Where a provider hands on, and whether all whom it hands to make batches.

    Args:
        together: the SDK's composite of a provider's processors; None where there is no provider.
        name: its attribute that holds them, in order.
        composite, batching: the classes that are known, of the composite and of who makes batches.

    Attributes:
        known: the processors that make batches, all of them, as they were when last looked at.
    """

    __slots__ = ("_backlog", "_batching", "_composite", "_looks", "known", "name", "together")

    def __init__(self, backlog: Backlog, together: Any, name: str, composite: str, batching: str) -> None:
        self._backlog = backlog
        self.together = together
        self.name = name
        self._composite = composite
        self._batching = batching
        self.known: object = None
        self._looks = 0

    def waits(self) -> bool:
        """Whether nobody can tell that something is handed on later. A host may add a processor at any time."""
        processors = getattr(self.together, self.name, ())
        self._looks += 1
        if processors is self.known and self._looks % LOOK_AGAIN:
            return True
        return self._look(processors)

    def _look(self, processors: Any) -> bool:
        self.known = None
        if type(self.together).__name__ != self._composite or not isinstance(processors, tuple):
            return False
        others = tuple(each for each in processors if not (type(each) is First and each.is_over()))
        if not all(self._is_patient(each) for each in others):
            return False
        if not any(type(each) is First and each.tells(self._backlog) for each in others):
            others = (First(self._backlog), *others)
        for each in others:
            if not type(each).__module__.startswith("endturn."):
                Before.put_on(each, ("force_flush", "shutdown"), self._backlog)
        # Who comes later is not handed what was over before.
        Before.put_on(self.together, ("add_span_processor", "add_log_record_processor"), self._backlog)
        if others != processors:
            with self.together._lock:
                if getattr(self.together, self.name) is not processors:
                    return False
                setattr(self.together, self.name, others)
            processors = others
        self.known = processors
        return True

    def _is_patient(self, processor: object) -> bool:
        kind = type(processor)
        if kind.__module__.startswith("endturn."):
            return True
        if kind.__name__ != self._batching or not kind.__module__.startswith(SDKS_OWN):
            return False
        batch = getattr(processor, "_batch_processor", None)
        queue, wait_s = getattr(batch, "_max_queue_size", 0), getattr(batch, "_schedule_delay", 0)
        return queue >= ROOM and wait_s >= PATIENCE_S and vars(processor).keys().isdisjoint(METHODS)


class Before:
    """Stands for a processor's `force_flush` or `shutdown`: a host may call these itself, as functions do that freeze.

    Args:
        name: the method's.
    """

    __slots__ = ("_backlogs", "_method", "_processor")

    def __init__(self, processor: Any, name: str) -> None:
        # No strong reference: the processor would keep itself alive.
        self._processor = ref(processor)
        self._method = getattr(type(processor), name)
        self._backlogs: WeakSet[Backlog] = WeakSet()

    @classmethod
    def put_on(cls, processor: Any, names: tuple[str, ...], backlog: Backlog) -> None:
        """Have a processor hand on what waits before these are called. A method that is somebody's own is left so."""
        for name in names:
            if not hasattr(type(processor), name):
                continue
            present = vars(processor).get(name)
            if present is None:
                present = cls(processor, name)
                setattr(processor, name, present)
            if type(present) is cls:
                present._backlogs.add(backlog)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for backlog in list(self._backlogs):
            backlog.drain()
        processor = self._processor()
        return True if processor is None else self._method(processor, *args, **kwargs)


class First:
    """A processor of spans or log records that is told of a flush and of the end before others are. It adds nothing."""

    __slots__ = ("_backlog",)

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = ref(backlog)

    def is_over(self) -> bool:
        """Whether its recorder is no more."""
        return self._backlog() is None

    def tells(self, backlog: Backlog) -> bool:
        """Whether it is that backlog's."""
        return self._backlog() is backlog

    def on_start(self, span: object, parent_context: object = None) -> None:
        """Nothing."""

    def _on_ending(self, span: object) -> None:
        """Nothing."""

    def on_end(self, span: object) -> None:
        """Nothing."""

    def on_emit(self, log_record: object) -> None:
        """Nothing."""

    def enabled(self, **_: object) -> bool:
        """Never: a logger whose records nobody else takes is off."""
        return False

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Hand on what waits, so that the others flush it."""
        backlog = self._backlog()
        if backlog is not None:
            backlog.drain()
        return True

    def shutdown(self) -> None:
        """Hand on what waits; from here on nothing does."""
        backlog = self._backlog()
        if backlog is not None:
            backlog.is_closed = True
            backlog.drain()


def places_of(backlog: Backlog, tracer: object, logger: object) -> tuple[Place, ...]:
    """Where a tracer's spans and a logger's records go; those that are None go nowhere."""
    found = []
    if tracer is not None:
        together = getattr(tracer, "span_processor", None) if begins_anywhere(tracer) else None
        names = "_span_processors", "SynchronousMultiSpanProcessor", "BatchSpanProcessor"
        found.append(Place(backlog, together, *names))
    if logger is not None:
        together = getattr(logger, "_multi_log_record_processor", None)
        names = "_log_record_processors", "SynchronousMultiLogRecordProcessor", "BatchLogRecordProcessor"
        found.append(Place(backlog, together, *names))
    return tuple(found)
