"""Several answers to one request, each as if it were the only one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_CHOICES: Final = ("choices", "candidates")
"""Where a body or a chunk lists several answers."""


def each_choice(data: Any, choices: int) -> list[tuple[int, Any]]:
    """A body or chunk, for each of several answers as if that were the only one, with its number."""
    if choices == 1 or not isinstance(data, Mapping):
        return [(0, data)]
    name = next((name for name in _CHOICES if isinstance(data.get(name), list)), None)
    if name is None or not data[name]:
        return [(0, data)]
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in enumerate(data[name])
        if isinstance(each, Mapping)
        for index in (each.get("index"),)
    ]
