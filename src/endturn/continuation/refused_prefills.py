"""Which models do not go on from a prefill, remembered for the life of the process.

What a model takes cannot be asked beforehand: the same model behind another server, or with another
chat template, may refuse a prefill, begin anew, or answer nothing. Each time costs a call, so one
try must do for all turns.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import Final

MOST: Final = 1_024
"""How many models are remembered; the one that was learned first is forgotten first."""

Target = tuple[str, ...]
"""Format, dialect, provider, endpoint and model."""

_refused: OrderedDict[Target, None] = OrderedDict()
_lock = threading.Lock()


def remember(target: Target) -> None:
    """Remember that a model did not take up a prefill."""
    with _lock:
        _refused[target] = None
        while len(_refused) > MOST:
            _refused.popitem(last=False)


def is_refused(target: Target) -> bool:
    """Whether a model is known not to take up a prefill."""
    return target in _refused


def forget() -> None:
    """Forget all models."""
    with _lock:
        _refused.clear()


def _forked() -> None:
    """In a forked child: whoever was learning something is the parent's thread."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
