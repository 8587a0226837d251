"""The listeners, which are told what happened.

The core emits; telemetry listens. Nobody listening costs one truth test. A listener that raises loses that record
only: it is counted, logged once, and detached after 100 failures in a row. `strict()` re-raises instead, for tests.

`turns` and `calls` are the scopes that tie the records together.
"""

from __future__ import annotations

import itertools
import logging
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from endturn.events import Record

log = logging.getLogger("endturn")


def _without_words(record: logging.LogRecord) -> bool:
    """Log of an exception what it is and where it was raised. Its message may quote what was said, or a key."""
    info, record.exc_info = record.exc_info, None
    if info and info[0] is not None:
        frames = ((frame.f_code, line) for frame, line in traceback.walk_tb(info[2]))
        where = "".join(f'  File "{code.co_filename}", line {line}, in {code.co_name}\n' for code, line in frames)
        record.exc_text = f"Traceback (most recent call last):\n{where}{info[0].__module__}.{info[0].__qualname__}"
    return True


log.addFilter(_without_words)

Activation = Callable[[], AbstractContextManager[object]]
"""Makes something (a span) current for one step of what was started; called anew for every step."""

Listener = Callable[[Record], Activation | None]
"""Is told every record. May answer CallStarted, TurnStarted and ToolStarted with an Activation."""

FAILURES_BEFORE_DETACHING: Final = 100


_listeners: tuple[Listener, ...] = ()

_awake: tuple[Callable[[], bool], ...] = ()
"""Say whether their listeners would make anything of a record."""

_failures: dict[Callable[..., object], int] = {}

_failed: dict[str, int] = {}

_lock = threading.Lock()

_strict = False

_content = False

_numbers = itertools.count(1)


def subscribe(listener: Listener) -> Callable[[], None]:
    """Have every record told to `listener`, once however often it is added; each time it is asked what it takes.

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
    global _listeners, _awake, _content
    _listeners = listeners
    _awake = tuple(awake for each in listeners if (awake := getattr(each, "awake", _always)) is not None)
    _content = any(getattr(listener, "takes_content", False) for listener in listeners)


def takes_content() -> bool:
    """Whether any listener takes what is said in a call: it has an attribute `takes_content` that is true."""
    return _content


def listening() -> bool:
    """Whether anyone would be told, and would make anything of it.

    A listener may have a method `awake`, which says so of itself, or None where it never does; others always do.
    """
    for is_awake in _awake:  # noqa: SIM110 - a generator would cost every call a frame, observed or not
        if is_awake():
            return True
    return False


def _always() -> bool:
    return True


def number() -> int:
    """The number of a call or a tool's run, which no other has: what ends is known by it."""
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
    """How often each listener has raised since the process began, by the listener's name."""
    return dict(_failed)


def listeners() -> tuple[Listener, ...]:
    """Who listens now."""
    return _listeners


def emit(record: Record, to: tuple[Listener, ...] | None = None) -> tuple[Activation, ...]:
    """Tell every listener. Returns their activations; never raises what a listener raised (but see `strict`).

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
        log.exception("endturn: listener %s failed; the call that it watched goes on", name)
    elif row == FAILURES_BEFORE_DETACHING:
        log.error("endturn: listener %s failed %d times in a row and was detached", name, row)


def lost(what: str) -> None:
    """Count something that telemetry lost, under the name of what lost it, as the failures of listeners are counted."""
    with _lock:
        _failed[what] = _failed.get(what, 0) + 1


_noted: set[str] = set()


def log_internal_error(what: str) -> None:
    """Keep an exception of endturn's own from the host; call it while the exception is being handled.

    Logged once per `what`, a warning; after that for debugging only. `strict()` lets it through.
    """
    if _strict:
        raise
    if what in _noted:
        log.debug("endturn: %s failed", what, exc_info=True)
        return
    _noted.add(what)
    log.warning("endturn: %s failed; the call that it watched goes on", what, exc_info=True)
