"""Shared helpers for writing the responses and errors of a scripted provider."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from endturn.errors import UsageError
from endturn.formats.encoding import arguments_text
from endturn.formats.errors import error_words
from endturn.formats.reading import member
from endturn.formats.summaries import Event
from endturn.vocabulary import (
    COMPATIBLE,
    ChatResponse,
    Json,
    Row,
    Stop,
    StopReason,
    ToolCall,
    Usage,
    find_row,
    shared,
    tables,
)

SIGNATURE: Final = "c2NyaXB0ZWQ="
"""The signature of scripted thinking."""

# --- Content --------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"\s*\S+|\s+")


def words(text: str | None) -> list[str]:
    """Split a text into words, each with the space before it: one for each event of a stream."""
    return _WORD.findall(text or "")


def scripted_model(response: ChatResponse) -> str:
    """Return the model that a scripted response names."""
    return response.model or "scripted"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedBlock:
    """One block of a streamed response: its thinking, its text or one tool call.

    Attributes:
        index: its position among all blocks.
        text: the text; of a call, its arguments as JSON text.
        is_reasoning: it is thinking.
        call: the tool call.
        call_index: the call's position among the calls.
        breaks_off: the stream ends within this block, before its end.
    """

    index: int
    text: str
    is_reasoning: bool = False
    call: ToolCall | None = None
    call_index: int = 0
    breaks_off: bool = False


def scripted_blocks(response: ChatResponse) -> list[ScriptedBlock]:
    """List the blocks of a streamed response; without a terminal, the last one breaks off."""
    blocks: list[dict[str, Any]] = []
    if response.reasoning:
        blocks.append({"text": response.reasoning, "is_reasoning": True})
    if response.text:
        blocks.append({"text": response.text})
    for position, call in enumerate(response.tool_calls):
        blocks.append({"text": arguments_text(call), "call": call, "call_index": position})
    last = len(blocks) - 1
    return [
        ScriptedBlock(
            index=index, breaks_off=index == last and not response.stop.terminal_seen, **fields
        )
        for index, fields in enumerate(blocks)
    ]


def scripted_events(data: Iterable[Any], name: str = "") -> list[Event]:
    """Make events from their data.

    Args:
        name: the member of the data that is also the event's name, where events have names.
    """
    return [Event(member(entry, name) if name else None, entry) for entry in data]


# --- Usage ----------------------------------------------------------------------------------------


def uncached_input(usage: Usage) -> int:
    """Return the input tokens that were neither read from a prompt cache nor written to one."""
    return max(
        0,
        (usage.input_tokens or 0)
        - (usage.cache_read_tokens or 0)
        - (usage.cache_write_tokens or 0),
    )


def visible_output(usage: Usage) -> int:
    """Return the output tokens that were not reasoning."""
    return max(0, (usage.output_tokens or 0) - (usage.reasoning_tokens or 0))


def total_tokens(usage: Usage) -> int:
    """Return input and output tokens together."""
    return (usage.input_tokens or 0) + (usage.output_tokens or 0)


# --- Stop reasons ---------------------------------------------------------------------------------


def scripted_reason(format_name: str, stop: Stop, dialect: str) -> str | None:
    """Return the raw value that a format writes for a Stop; None for a missing reason.

    A dialect's own values precede those that compatible servers share.

    Raises:
        UsageError: the format has no value for the reason.
    """
    dialects = tables(format_name)
    rows = dialects.get(dialect or COMPATIBLE) or dialects.get(COMPATIBLE) or dialects[""]
    return raw_reason(stop, {**rows, **dialects[""], **shared(format_name), **rows})


def raw_reason(stop: Stop, rows: Mapping[str, Row]) -> str | None:
    """Return the raw value of a Stop: its own if the format knows it, else the format's value.

    Raises:
        UsageError: the Stop has no raw value, and the format has none for its reason.
    """
    if stop.reason is StopReason.MISSING or (
        stop.raw is None and stop.promoted_from is StopReason.MISSING
    ):
        return None
    if stop.raw is not None and (
        stop.reason is StopReason.UNKNOWN or find_row(stop.raw, rows) is not None
    ):
        return stop.raw
    raw = next(
        (raw for raw, row in rows.items() if row.reason is stop.reason and row.terminal), stop.raw
    )
    if raw is None:
        raise UsageError(
            f"this format has no value for {stop.reason.value!r}, only for "
            f"{reason_names(reasons_of(rows))}: give the Stop one of its raw values"
        )
    return raw


def reasons_of(rows: Mapping[str, Row]) -> set[StopReason]:
    """Return the reasons for which a format has values."""
    return {row.reason for row in rows.values() if row.terminal}


def reason_names(reasons: Collection[StopReason]) -> str:
    """List reasons by name, in the order of StopReason."""
    return ", ".join(reason.value for reason in StopReason if reason in reasons)


# --- Errors ---------------------------------------------------------------------------------------

_OPENAI_CODES: Final = ("context_length_exceeded", "content_filter")
"""OpenAI's error codes; other APIs have their own for these errors."""


def error_label(code: str | None, error_type: str) -> str:
    """Return an API's label for an error: the code, unless it is OpenAI's own."""
    return code if code and code not in _OPENAI_CODES else error_type


def openai_error(format_name: str, status: int, code: str | None, message: str | None) -> Json:
    """Return an error answer's body as OpenAI's APIs write it."""
    error = error_words(format_name, status, code, message)
    return {
        "error": {"message": error.message, "type": error.type, "param": None, "code": error.code}
    }
