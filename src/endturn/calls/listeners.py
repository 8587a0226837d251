"""The listeners, functions that are called with every record.

The core emits; telemetry listens. Without listeners this costs one truth test. A listener that
raises loses that record only: the failure is counted and logged once, and the listener is detached
after 100 failures in a row. `strict()` re-raises instead, for tests.

`turns` and `calls` are the scopes that tie the records together.
"""

from __future__ import annotations

import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from endturn.calls.logged_errors import log_exception
from endturn.calls.records import Record

log = logging.getLogger("endturn")

Activation = Callable[[], AbstractContextManager[object]]
"""Makes something (a span) current for one step of a call, turn or tool run; called per step."""

Listener = Callable[[Record], Activation | None]
"""Called with every record. May return an Activation for CallStarted, TurnStarted, TurnJoined and
ToolStarted."""

FAILURES_BEFORE_DETACHING: Final = 100

RECHECK_S: Final = 0.05
"""Seconds between two checks of the listeners while none is enabled. A check looks for
OpenTelemetry providers, for which the API reads the environment, and a call without listeners
should cost nothing."""

_listeners: tuple[Listener, ...] = ()

_enabled_predicates: tuple[Callable[[], bool], ...] = ()
"""The `is_enabled` methods of the listeners; see `listening`."""

idle_until_s = 0.0
"""No listener is checked again until then, by `time.monotonic`: none was enabled."""

_consecutive_failures: dict[Callable[..., object], int] = {}

_failure_counts: dict[str, int] = {}

_lock = threading.Lock()


def _reset_lock() -> None:
    """In a forked child, replace the lock: a thread of the parent may hold it for ever."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)

_is_strict = False

_takes_content = False

_ids = itertools.count(1)


def subscribe(listener: Listener) -> Callable[[], None]:
    """Call `listener` with every record, once however often it is added.

    Each subscription reads its `takes_content` again.

    Returns:
        A function that removes it.
    """
    with _lock:
        if listener not in _listeners:
            _consecutive_failures.pop(listener, None)
            _set_listeners((*_listeners, listener))
        else:
            _set_listeners(_listeners)

    def stop() -> None:
        with _lock:
            _set_listeners(tuple(other for other in _listeners if other != listener))
            _consecutive_failures.pop(listener, None)

    return stop


def _set_listeners(listeners: tuple[Listener, ...]) -> None:
    global _listeners, _enabled_predicates, _takes_content, idle_until_s
    _listeners = listeners
    idle_until_s = 0.0
    _enabled_predicates = tuple(
        is_enabled
        for listener in listeners
        if (is_enabled := _enabled_predicate(listener)) is not None
    )
    _takes_content = any(getattr(listener, "takes_content", False) for listener in listeners)


def takes_content() -> bool:
    """Return whether any listener takes content: its attribute `takes_content` is true."""
    return _takes_content


def listening() -> bool:
    """Return whether any listener would use a record.

    A listener may have a method `is_enabled` that returns whether it would, or an attribute
    `is_enabled` that is None if it never does; others always do. While none is enabled, they are
    checked again every `RECHECK_S`.
    """
    global idle_until_s
    if idle_until_s and time.monotonic() < idle_until_s:
        return False
    predicates = _enabled_predicates
    for is_enabled in predicates:
        if is_enabled():
            idle_until_s = 0.0
            return True
    if predicates is _enabled_predicates:  # else a check has subscribed others, not checked yet
        idle_until_s = time.monotonic() + RECHECK_S
    return False


def _enabled_predicate(listener: Listener) -> Callable[[], bool] | None:
    """Return a listener's `is_enabled`, or `awake`, its name in 0.1, which is removed in 0.2."""
    predicate: Callable[[], bool] | None = getattr(
        listener, "is_enabled", getattr(listener, "awake", _always)
    )
    return predicate


def _always() -> bool:
    return True


def next_id() -> int:
    """Return a new id for a call or a tool run: it matches the end to the start."""
    return next(_ids)


@contextmanager
def strict() -> Iterator[None]:
    """Re-raise a listener's exception within the block. For tests."""
    global _is_strict
    previous, _is_strict = _is_strict, True
    try:
        yield
    finally:
        _is_strict = previous


def is_strict() -> bool:
    """Return whether exceptions are re-raised, for listeners that finish their work later."""
    return _is_strict


def listener_failures() -> dict[str, int]:
    """Return the number of failures since the process began.

    The keys are the names of listeners that raised, and the internal steps that failed (of
    `INTERNAL_STEPS`).
    """
    return dict(_failure_counts)


def current_listeners() -> tuple[Listener, ...]:
    """Return the subscribed listeners."""
    return _listeners


def emit(record: Record, to: tuple[Listener, ...] | None = None) -> tuple[Activation, ...]:
    """Call every listener with a record, and return their activations.

    Exceptions of listeners are not raised (but see `strict`).

    Args:
        to: the listeners captured when the call started. Defaults to the current listeners.
    """
    activations: tuple[Activation, ...] = ()
    for listener in _listeners if to is None else to:
        if (
            _consecutive_failures
            and _consecutive_failures.get(listener, 0) >= FAILURES_BEFORE_DETACHING
        ):
            continue
        try:
            activation = listener(record)
        except Exception:
            if _is_strict:
                raise
            log_listener_failure(listener)
        else:
            if activation is not None:
                activations = (*activations, activation)
            if _consecutive_failures:
                _consecutive_failures.pop(listener, None)
    return activations


def log_listener_failure(listener: Callable[..., object]) -> None:
    """Count an exception of a listener; call it while the exception is being handled."""
    name = getattr(listener, "__qualname__", type(listener).__qualname__)
    with _lock:
        _failure_counts[name] = _failure_counts.get(name, 0) + 1
        failures_in_row = _consecutive_failures.get(listener, 0) + 1
        _consecutive_failures[listener] = failures_in_row
        if failures_in_row >= FAILURES_BEFORE_DETACHING:
            _set_listeners(tuple(other for other in _listeners if other != listener))
    if failures_in_row == 1:
        log_exception(
            logging.ERROR, "endturn: listener %s failed; the observed call continues", name
        )
    elif failures_in_row == FAILURES_BEFORE_DETACHING:
        log.error(
            "endturn: listener %s failed %d times in a row and was detached", name, failures_in_row
        )


def count_loss(name: str) -> None:
    """Count a loss of telemetry under the name of the listener or step that lost it.

    Losses are counted together with the failures of listeners.
    """
    with _lock:
        _failure_counts[name] = _failure_counts.get(name, 0) + 1


INTERNAL_STEPS: Final = (
    "instrumenting a client",
    "opening a call",
    "reading a request",
    "reading a response",
    "reading an error",
    "ending a call",
    "ending what was dropped",
    "making a span current",
    "leaving a span",
    "looking at a span",
    "recording the spans before the first model call",
    "looking at instruments",
    "following a function",
    "finding the id of a conversation",
    "gathering what was said",
    "recording what was said",
    "flushing before a worker ends",
)
"""The internal steps whose exceptions are counted and not raised."""

OTHER_STEP: Final = "other"

_logged_labels: set[str] = set()


def log_internal_error(step: str, detail: str = "") -> None:
    """Count and log an internal exception instead of raising it in the host.

    Call it while the exception is being handled.

    It is counted with the failures of listeners, under its step. The first of each step is logged
    as a warning, later ones at debug level. Within `strict()` it is re-raised.

    Args:
        step: one of `INTERNAL_STEPS`.
        detail: an addition to the log message, such as the name of a library.
    """
    if _is_strict:
        raise
    count_loss(step if step in INTERNAL_STEPS else OTHER_STEP)
    label = f"{step} ({detail})" if detail else step
    if label in _logged_labels:
        log_exception(logging.DEBUG, "endturn: %s failed", label)
        return
    _logged_labels.add(label)
    log_exception(logging.WARNING, "endturn: %s failed; the observed call continues", label)


# Removed in 0.2: the names of 0.1.
failed = log_listener_failure
lost = count_loss
number = next_id
