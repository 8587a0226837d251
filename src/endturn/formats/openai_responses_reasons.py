"""What a response of the Responses API says of its end, in one word, and what that word means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from endturn.stop import Row, StopReason, find_row
from endturn.stop_reasons import tables

COMPLETED: Final = "completed"
RUNNING: Final = frozenset({"queued", "in_progress"})
"""The statuses of a response that is still being made."""

REASONS: Final = tables("openai_responses")

WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""What the API says for a reason where that is not the first row that means it: calls and refusals are in the output,
a job says that it is one."""

_SAID: Final = {raw: row for raw, row in REASONS[""].items() if "(" not in raw and " " not in raw}
_FOREGROUND: Final = {
    **_SAID,
    **dict.fromkeys(RUNNING, replace(REASONS[""]["in_progress(foreground EOF)"], terminal=False)),
}
_BACKGROUND: Final = {**_SAID, **dict.fromkeys(RUNNING, REASONS[""]["in_progress(background)"])}

# What no table has: the status says that it is cut, for a reason of the server's; and that it is whole, of no answer.
UNFINISHED: Final = Row(StopReason.UNKNOWN, True, mapped=False)
UNREADABLE: Final = Row(StopReason.UNKNOWN, True)


def composed(status: str | None, reason: str | None, code: str | None) -> str | None:
    """The raw value: "completed", "incomplete:max_output_tokens", "failed:server_error"; None where there is no status.

    Args:
        reason: of the details of an incomplete response.
        code: of the error of a failed one.
    """
    more = reason if status == "incomplete" else code if status == "failed" else None
    return f"{status}:{more}" if more else status


def rows_of(raw: str | None, *, background: bool) -> Mapping[str, Row]:
    """The table that a raw value is looked up in.

    A failure is an error whatever its code; an unfinished response of an unknown reason may be anything.

    Args:
        background: the response is made by a job of the server's, which goes on when nobody listens.
    """
    rows = _BACKGROUND if background else _FOREGROUND
    if raw is not None and raw.startswith("failed:") and find_row(raw, rows) is None:
        return {**rows, raw: rows["failed"]}
    return rows
