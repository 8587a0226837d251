"""What formats share where they write a scripted response: its words, its calls' arguments, its usage."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from endturn.chat import Json, ToolCall, Usage

_WORD: Final = re.compile(r"\s*\S+|\s+")


def words(text: str | None) -> list[str]:
    """The words of a text, each with the space before it: what one event of a stream says."""
    return _WORD.findall(text or "")


def written_arguments(call: ToolCall) -> str:
    """A call's arguments as text, as they were written where that is known."""
    return call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})


def written_usage(usage: Usage | None, paths: Mapping[str, str]) -> Json:
    """A usage in a format's shape.

    Args:
        paths: where a number stands → its name in `Usage`. What is not known is left out.
    """
    written: Json = {}
    for path, name in paths.items():
        tokens = getattr(usage, name, None)
        if tokens is not None:
            *outer, last = path.split(".")
            inner = written
            for each in outer:
                inner = inner.setdefault(each, {})
            inner[last] = tokens
    return written
