"""The listeners, which are told what happened.

The core emits; telemetry listens. Nobody listening costs one truth test. A listener that raises
loses that record only: it is counted, logged once, and detached after 100 failures in a row.
`strict()` re-raises instead, for tests.

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
"""Makes something (a span) current for one step of what was started; called anew for every step."""

Listener = Callable[[Record], Activation | None]
"""Is told every record. May answer CallStarted, TurnStarted, TurnJoined and ToolStarted with an
Activation."""

FAILURES_BEFORE_DETACHING: Final = 100

LOOK_S: Final = 0.05
"""Seconds between two questions to the listeners while none is awake: each looks for OpenTelemetry
providers, for which the API reads the environment, and a call that nobody records is to cost
nothing."""

_listeners: tuple[Listener, ...] = ()

_awake: tuple[Callable[[], bool], ...] = ()
"""Say whether their listeners would make anything of a record."""

idle_until_s = 0.0
"""Until then, by `time.monotonic`, no listener is asked again: none was awake."""

_failures: dict[Callable[..., object], int] = {}

_failed: dict[str, int] = {}

_lock = threading.Lock()


def _forked() -> None:
    """In a forked child: whoever was changing something is the parent's thread."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)

_strict = False

_content = False

_numbers = itertools.count(1)


def subscribe(listener: Listener) -> Callable[[], None]:
    """Have every record told to `listener`, once however often it is added.

    Each time it is asked what it takes.

    Returns:
        A function that stops it.
    """
    with _lock:
        if listener not in _listeners:
            _failures.pop(listener, None)
            _set_listeners((*_listeners, listener))
        else:
            _set_listeners(_listeners)

    def stop() -> None:
        with _lock:
            _set_listeners(tuple(other for other in _listeners if other != listener))
            _failures.pop(listener, None)

    return stop


def _set_listeners(listeners: tuple[Listener, ...]) -> None:
    global _listeners, _awake, _content, idle_until_s
    _listeners = listeners
    idle_until_s = 0.0
    _awake = tuple(
        awake for each in listeners if (awake := getattr(each, "awake", _always)) is not None
    )
    _content = any(getattr(listener, "takes_content", False) for listener in listeners)


def takes_content() -> bool:
    """Whether any listener takes what is said in a call.

    It has an attribute `takes_content` that is true.
    """
    return _content


def listening() -> bool:
    """Whether anyone would be told, and would make anything of it.

    A listener may have a method `awake`, which says so of itself, or None where it never does;
    others always do. While none is awake, they are asked again every `LOOK_S`.
    """
    global idle_until_s
    if idle_until_s and time.monotonic() < idle_until_s:
        return False
    asked = _awake
    for is_awake in asked:
        if is_awake():
            idle_until_s = 0.0
            return True
    if asked is _awake:  # else a listener has brought others, which are to be asked
        idle_until_s = time.monotonic() + LOOK_S
    return False


def _always() -> bool:
    return True


def number() -> int:
    """Return a new number for a call or a tool's run: it matches the end to the start."""
    return next(_numbers)


@contextmanager
def strict() -> Iterator[None]:
    """Let a listener's exception through, within the block. For tests."""
    global _strict
    before, _strict = _strict, True
    try:
        yield
    finally:
        _strict = before


def is_strict() -> bool:
    """Whether a listener's exception is let through, for listeners that finish their work later."""
    return _strict


def listener_failures() -> dict[str, int]:
    """Return the number of failures since the process began.

    By the name of the listener that raised, or by the step of endturn's own that failed (one of
    `INTERNAL_STEPS`).
    """
    return dict(_failed)


def current_listeners() -> tuple[Listener, ...]:
    """Who listens now."""
    return _listeners


def emit(record: Record, to: tuple[Listener, ...] | None = None) -> tuple[Activation, ...]:
    """Tell every listener.

    Returns their activations; never raises what a listener raised (but see `strict`).

    Args:
        to: who listened when what the record is of began; those who listen now where not given.
    """
    activations: tuple[Activation, ...] = ()
    for listener in _listeners if to is None else to:
        if _failures and _failures.get(listener, 0) >= FAILURES_BEFORE_DETACHING:
            continue
        try:
            activation = listener(record)
        except Exception:
            if _strict:
                raise
            failed(listener)
        else:
            if activation is not None:
                activations = (*activations, activation)
            if _failures:
                _failures.pop(listener, None)
    return activations


def failed(listener: Callable[..., object]) -> None:
    """Count an exception of a listener; call it while the exception is being handled."""
    name = getattr(listener, "__qualname__", type(listener).__qualname__)
    with _lock:
        _failed[name] = _failed.get(name, 0) + 1
        row = _failures.get(listener, 0) + 1
        _failures[listener] = row
        if row >= FAILURES_BEFORE_DETACHING:
            _set_listeners(tuple(other for other in _listeners if other != listener))
    if row == 1:
        log_exception(
            logging.ERROR, "endturn: listener %s failed; the observed call continues", name
        )
    elif row == FAILURES_BEFORE_DETACHING:
        log.error("endturn: listener %s failed %d times in a row and was detached", name, row)


def lost(what: str) -> None:
    """Count a loss of telemetry under the name of what lost it.

    Losses are counted together with the failures of listeners.
    """
    with _lock:
        _failed[what] = _failed.get(what, 0) + 1


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
"""The steps of endturn's own work in which an exception is kept from the host, and counted."""

OTHER_STEP: Final = "other"

_noted: set[str] = set()


def log_internal_error(step: str, detail: str = "") -> None:
    """Keep an exception of endturn's own from the host.

    Call it while the exception is being handled.

    It is counted with the failures of listeners, under its step, and logged: the first of each step
    as a warning, later ones for debugging only. `strict()` lets it through.

    Args:
        step: one of `INTERNAL_STEPS`.
        detail: what the log says besides, such as the name of a library.
    """
    if _strict:
        raise
    lost(step if step in INTERNAL_STEPS else OTHER_STEP)
    what = f"{step} ({detail})" if detail else step
    if what in _noted:
        log_exception(logging.DEBUG, "endturn: %s failed", what)
        return
    _noted.add(what)
    log_exception(logging.WARNING, "endturn: %s failed; the observed call continues", what)
