"""A child that is forked while other threads are within our locked regions: it waits for none of them."""

from __future__ import annotations

import pkgutil
import signal
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import endturn
from endturn.calls import listeners
from endturn.instrumentation._instrument import instrument, uninstrument
from tests.telemetry.mocked import ASK, WHOLE, Records, body, chat
from tests.telemetry.stage import Stage, in_a_child

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows forks no process")
KINDS = type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Semaphore


def locks() -> dict[str, Any]:
    """The locks that a module of endturn's has: itself, or in one of its own objects."""
    found: dict[str, Any] = {}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] == "endturn":
            for key, value in list(vars(module).items()):
                found |= dict(named_locks(f"{name}.{key}", value))
                if type(value).__module__.startswith("endturn"):
                    for each, lock in members(value):
                        found |= dict(named_locks(f"{name}.{key}.{each}", lock))
    return found


def named_locks(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, KINDS):
        yield name, value


def members(thing: Any) -> Iterator[tuple[str, Any]]:
    """The attributes of an object, in its dictionary or in its slots."""
    slots = [slot for kind in type(thing).__mro__ for slot in getattr(kind, "__slots__", ())]
    for name in {*getattr(thing, "__dict__", ()), *slots}:
        yield name, getattr(thing, name, None)


@pytest.fixture
def held() -> Iterator[dict[str, Any]]:
    """Every lock, held by another thread."""
    for module in pkgutil.walk_packages(endturn.__path__, "endturn."):
        if not module.name.endswith("__main__"):
            import_module(module.name)
    instrument(**Stage().providers())
    found, is_held, is_over = locks(), threading.Event(), threading.Event()

    def hold() -> None:
        for lock in {id(lock): lock for lock in found.values()}.values():
            lock.acquire()
        is_held.set()
        is_over.wait()
        for lock in {id(lock): lock for lock in found.values()}.values():
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait()
    yield found
    is_over.set()
    thread.join()
    uninstrument()


def test_each_lock_is_renewed(held: dict[str, Any]) -> None:
    """Of whichever module: what is new here has to be renewed, too (`cleanup.after_fork`)."""

    def child() -> object:
        return sorted(name for name, lock in locks().items() if not lock.acquire(blocking=False))

    assert {"endturn.calls.listeners._lock", "endturn.instrumentation._instrument._lock"} <= held.keys()
    assert in_a_child(child) == "[]"


def test_a_forked_child_is_recorded(held: dict[str, Any]) -> None:
    """It subscribes, loses, asks a model, and changes its instrumentation."""

    def child() -> object:
        signal.alarm(60)  # what hangs ends, and says nothing
        records = Records()
        listeners.subscribe(records.append)
        listeners.count_loss("something")
        chat(body(WHOLE)).chat.completions.create(**ASK)
        instrument(events="spans")
        uninstrument()
        return [reason.value for reason in records.reasons()]

    assert in_a_child(child) == "['end_turn']"
