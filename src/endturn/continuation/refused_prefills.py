"""Remember for the life of the process which models do not continue a prefill.

Support for prefills cannot be queried: the same model behind another server, or with another chat
template, may refuse a prefill, start again, or return nothing. Each attempt costs a call, so one
attempt must suffice for all turns.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

MAX_TARGETS: Final = 1_024
"""The number of models that are remembered; the oldest is forgotten first."""

Target = tuple[str, ...]
"""Format, dialect, provider, endpoint and model."""

_targets: OrderedDict[Target, None] = OrderedDict()
_lock = threading.Lock()


def remember(target: Target) -> None:
    """Remember that a model did not continue a prefill."""
    with _lock:
        _targets[target] = None
        while len(_targets) > MAX_TARGETS:
            _targets.popitem(last=False)


def is_refused(target: Target) -> bool:
    """Return whether a model is known not to continue a prefill."""
    return target in _targets


def forget() -> None:
    """Forget all models."""
    with _lock:
        _targets.clear()


def _reset_lock() -> None:
    """Replace the lock in a forked child: a thread of the parent may hold it forever."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_lock)
