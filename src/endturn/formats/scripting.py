"""What formats share where they write a scripted response: its words, calls, usage, reason and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from endturn.chat import Json, ToolCall, Usage
from endturn.errors import UsageError
from endturn.formats.errors import error_words
from endturn.stop import Row, Stop, StopReason, find_row

_WORD: Final = re.compile(r"\s*\S+|\s+")


def words(text: str | None) -> list[str]:
    """The words of a text, each with the space before it: what one event of a stream says."""
    return _WORD.findall(text or "")


def written_arguments(call: ToolCall) -> str:
    """A call's arguments as text, as they were written where that is known."""
    return call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})


def function_call(call: ToolCall) -> Json:
    """A call as the chat format writes it, and everybody who took it over."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": written_arguments(call)}}


def written_usage(usage: Usage | None, paths: Mapping[str, str], total: str = "") -> Json:
    """A usage in a format's shape.

    Args:
        paths: where a number stands → its name in `Usage`. What is not known is left out.
        total: where the sum of the two stands.
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
    if total and usage is not None:
        written[total] = (usage.input_tokens or 0) + (usage.output_tokens or 0)
    return written


def raw_reason(stop: Stop, rows: Mapping[str, Row]) -> str | None:
    """The raw value that a Stop is written with: its own where the format knows it, else the format's word for it.

    Raises:
        UsageError: it has none of its own, and the format has no word for its reason.
    """
    if stop.reason is StopReason.MISSING or (stop.raw is None and stop.promoted_from is StopReason.MISSING):
        return None
    if stop.raw is not None and (stop.reason is StopReason.UNKNOWN or find_row(stop.raw, rows) is not None):
        return stop.raw
    found = next((raw for raw, row in rows.items() if row.reason is stop.reason and row.terminal), stop.raw)
    if found is None:
        raise UsageError(
            f"this format has no word for {stop.reason.value!r}, only for {listed(reasons_of(rows))}: "
            f"give the Stop a raw value that it has"
        )
    return found


def reasons_of(rows: Mapping[str, Row]) -> set[StopReason]:
    """The reasons that a format has words for."""
    return {row.reason for row in rows.values() if row.terminal}


def listed(reasons: Collection[StopReason]) -> str:
    """Reasons by name, in our own order."""
    return ", ".join(reason.value for reason in StopReason if reason in reasons)


def chat_error(status: int, code: str | None, message: str | None) -> Json:
    """An error answer's body as OpenAI writes it."""
    said = error_words("openai_chat", status, code, message)
    return {"error": {"message": said.message, "type": said.type, "param": None, "code": said.code}}
