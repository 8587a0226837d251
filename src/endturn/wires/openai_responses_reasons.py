"""What a response of the Responses API says of its end, in one word, and what that word means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from endturn.stop import Resume, Row, StopReason, find_row
from endturn.wires import Api

COMPLETED: Final = "completed"
RUNNING: Final = frozenset({"queued", "in_progress"})
"""The statuses of a response that is still being made."""

_DETAILS: Final = "openai 3.54 IncompleteDetails"
_STATUS: Final = "openai 3.54 ResponseStatus"
_CODE: Final = "openai 3.54 ResponseError"

_STILL_MADE: Final = Row(StopReason.PAUSED, True, Resume.RETRIEVE_SAME_ID, source=_STATUS)
# Nobody goes on making a response that is not a job of its own: its stream has ended without saying how.
_LEFT_OPEN: Final = Row(StopReason.MISSING, True, detail="stream_cut", source="pydantic-ai 2.68")


def _failed(reason: StopReason, detail: str | None = None, source: str = _CODE) -> Row:
    return Row(reason, True, detail=detail, source=source)


REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": {
        COMPLETED: Row(StopReason.END_TURN, source=_STATUS),
        "incomplete:max_output_tokens": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source=_DETAILS),
        "incomplete:content_filter": Row(StopReason.SAFETY_BLOCKED, True, source=_DETAILS),
        # A limit of the server's own on its side of the conversation: asking again meets it again.
        "incomplete:max_messages": Row(StopReason.UNKNOWN, True, detail="server_limit", source=_DETAILS),
        # "The server can then create a successor response automatically with the queued input."
        "incomplete:steered": Row(StopReason.PAUSED, True, Resume.SERVER, source=_DETAILS),
        "failed": _failed(StopReason.ERROR, source=_STATUS),
        # Not in the SDK's list of codes; the API sends it, and Codex looks for it.
        "failed:context_length_exceeded": _failed(StopReason.CONTEXT_WINDOW_EXCEEDED, source="openai/codex"),
        "failed:bio_policy": _failed(StopReason.SAFETY_BLOCKED),
        "failed:misalignment_policy_violation": _failed(StopReason.SAFETY_BLOCKED),
        "failed:image_content_policy_violation": _failed(StopReason.SAFETY_BLOCKED),
        "failed:rate_limit_exceeded": _failed(StopReason.ERROR, "retryable"),
        "failed:server_error": _failed(StopReason.ERROR, "retryable"),
        "cancelled": Row(StopReason.CANCELLED, True, source=_STATUS),
        "queued(background)": _STILL_MADE,
        "in_progress(background)": _STILL_MADE,
        "in_progress(foreground EOF)": _LEFT_OPEN,
        # Beside `completed`, which stays the raw value.
        "content part type=refusal": Row(StopReason.REFUSED, source="openai 3.54 ResponseOutputRefusal"),
    }
}
"""dialect → raw value → row. A raw value is the status, after a colon the reason of an incomplete response or the code
of a failed one; in brackets, or instead, what tells two responses of one status apart."""

APIS: Final[Mapping[str, Api]] = {
    "": Api(
        "openai.responses",
        "status|incomplete_details.reason|error.code",
        "response.completed|response.incomplete|response.failed|error",
    )
}

WORDS: Final = {
    StopReason.TOOL_CALL: COMPLETED,
    StopReason.REFUSED: COMPLETED,
    StopReason.PAUSED: "in_progress",
    StopReason.ERROR: "failed:server_error",
}
"""What the API says for a reason where that is not the first row that means it: calls and refusals are in the output,
a job says that it is one."""

_SAID: Final = {raw: row for raw, row in REASONS[""].items() if "(" not in raw and " " not in raw}
_FOREGROUND: Final = {**_SAID, **dict.fromkeys(RUNNING, replace(_LEFT_OPEN, terminal=False))}
_BACKGROUND: Final = {**_SAID, **dict.fromkeys(RUNNING, _STILL_MADE)}


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
