"""What is made of a call that has ended, made within half a second by another thread and not on the call's own path.

Most calls are whole: what is left to do for one (its span's attributes and end, its log record, its metrics) needs
nobody's answer. Done for many at once it costs a third of what it costs between two calls, where the processor's caches
hold everything but this code. That it happens later nobody can tell where the host's tracer and logger providers hand
on in batches, at their own time, anyway; only there is it done. The wait is over at once when a provider is flushed or
shut down, or a reader collects: processors of ours, which stand first, are told before the others are.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar
from weakref import WeakMethod, ref

from endturn import announce
from endturn.telemetry import janitor

Item = TypeVar("Item")

WAIT_S: Final = 0.5
"""How long an item waits at most. The SDK makes batches every second, or rarer."""

MANY: Final = 256
"""Items that wait no longer: about four milliseconds' work, for which the host's threads may have to wait.

Waking the other thread is dear, and what it does for few it does with cold caches."""

MOST: Final = 1_024
"""Items that wait at most, where the other thread cannot keep up: whoever adds one then does the work."""


class Backlog(Generic[Item]):
    """Items in order, each given to `work` later.

    Args:
        work: is given each item, by one thread at a time; what it raises is counted as a listener's failure.
    """

    def __init__(self, work: Callable[[Item], object]) -> None:
        self._work = work
        self._items: deque[Item] = deque()
        self._lock = threading.RLock()
        self._is_scheduled = False
        self._is_hurried = False
        self.is_closed = False
        """A provider has been shut down: nothing waits from then on."""
        if hasattr(os, "register_at_fork"):
            forked = WeakMethod(self._forked)
            os.register_at_fork(after_in_child=lambda: (method := forked()) and method())

    def add(self, item: Item) -> None:
        """Have an item worked on soon."""
        items = self._items
        items.append(item)
        if not self._is_scheduled:
            self._is_scheduled = True
            janitor.after(WAIT_S, self.drain)
        if len(items) >= MANY:
            self._hurry(len(items))

    def _hurry(self, waiting: int) -> None:
        if waiting > MOST:
            self.drain()
        elif not self._is_hurried:
            self._is_hurried = True
            janitor.later(self._relieve)

    def _relieve(self) -> None:
        self._is_hurried = False
        self.drain()

    def drain(self) -> None:
        """Work on all that waits."""
        # Reentrant: a signal's handler may flush while its thread is here.
        with self._lock:
            self._is_scheduled = False
            for _ in range(len(self._items)):
                try:
                    item = self._items.popleft()
                except IndexError:
                    break
                self._guarded(item)

    def _guarded(self, item: Item) -> None:
        try:
            self._work(item)
        except Exception:
            if announce.is_strict():
                raise
            announce.failed(self._work)

    def _forked(self) -> None:
        """In the child: what waits is the parent's to work on."""
        self._items.clear()
        self._lock = threading.RLock()
        self._is_scheduled = self._is_hurried = False


class Place:
    """Where a provider hands on, and whether all whom it hands to make batches.

    Args:
        together: the SDK's composite of a provider's processors; None where there is no provider.
        name: its attribute that holds them, in order.
        composite, batching: the classes that are known, of the composite and of who makes batches.
    """

    __slots__ = ("_backlog", "_batching", "_composite", "_known", "_name", "_together")

    def __init__(self, backlog: Backlog[Any], together: Any, name: str, composite: str, batching: str) -> None:
        self._backlog = backlog
        self._together = together
        self._name = name
        self._composite = composite
        self._batching = batching
        self._known: object = None

    def waits(self) -> bool:
        """Whether nobody can tell that something is handed on later. A host may add a processor at any time."""
        processors = getattr(self._together, self._name, ())
        return processors is self._known or self._look(processors)

    def _look(self, processors: Any) -> bool:
        if type(self._together).__name__ != self._composite or not isinstance(processors, tuple):
            return False
        others = tuple(each for each in processors if not (type(each) is First and each.is_over()))
        if not all(self._is_patient(each) for each in others):
            return False
        if not any(type(each) is First and each.tells(self._backlog) for each in others):
            others = (First(self._backlog), *others)
        for each in others:
            if not type(each).__module__.startswith("endturn."):
                Flush.put_on(each, self._backlog)
        if others != processors:
            with self._together._lock:
                if getattr(self._together, self._name) is not processors:
                    return False
                setattr(self._together, self._name, others)
            processors = others
        self._known = processors
        return True

    def _is_patient(self, processor: object) -> bool:
        kind = type(processor)
        if kind.__module__.startswith("endturn."):
            return True
        return kind.__name__ == self._batching and kind.__module__.startswith("opentelemetry.sdk.")


class Flush:
    """Stands for one processor's `force_flush`: a host may flush the processor itself, as functions do that freeze."""

    __slots__ = ("_backlog", "_kind", "_processor")

    def __init__(self, processor: Any, backlog: Backlog[Any]) -> None:
        # No strong reference: the processor would keep itself alive.
        self._processor = ref(processor)
        self._kind = type(processor)
        self._backlog = ref(backlog)

    @classmethod
    def put_on(cls, processor: Any, backlog: Backlog[Any]) -> None:
        """Have a processor hand on what waits before it is flushed. One whose method is somebody's own is left so."""
        present = vars(processor).get("force_flush")
        if present is None or (type(present) is cls and present._backlog() is None):
            processor.force_flush = cls(processor, backlog)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        backlog, processor = self._backlog(), self._processor()
        if backlog is not None:
            backlog.drain()
        return True if processor is None else self._kind.force_flush(processor, *args, **kwargs)


class First:
    """A processor of spans or log records that is told of a flush and of the end before others are. It adds nothing."""

    __slots__ = ("_backlog",)

    def __init__(self, backlog: Backlog[Any]) -> None:
        self._backlog = ref(backlog)

    def is_over(self) -> bool:
        """Whether its recorder is no more."""
        return self._backlog() is None

    def tells(self, backlog: Backlog[Any]) -> bool:
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


def places_of(backlog: Backlog[Any], tracer: object, logger: object) -> tuple[Place, ...]:
    """Where a tracer's spans and a logger's records go; those that are None go nowhere."""
    found = []
    if tracer is not None:
        together = getattr(tracer, "span_processor", None)
        names = "_span_processors", "SynchronousMultiSpanProcessor", "BatchSpanProcessor"
        found.append(Place(backlog, together, *names))
    if logger is not None:
        together = getattr(logger, "_multi_log_record_processor", None)
        names = "_log_record_processors", "SynchronousMultiLogRecordProcessor", "BatchLogRecordProcessor"
        found.append(Place(backlog, together, *names))
    return tuple(found)
