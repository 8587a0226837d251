"""The one vocabulary: every provider's stop reason becomes one StopReason, the raw value is always kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from typing import Final, TypedDict


class StopReason(StrEnum):
    """Why a model stopped."""

    END_TURN = "end_turn"
    """The model finished what it had to say."""
    TOOL_CALL = "tool_call"
    """The model asks for tools to be run."""
    MAX_TOKENS = "max_tokens"
    """Cut off: the output reached the token limit."""
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    """Cut off: prompt and output together filled the model's window."""
    SAFETY_BLOCKED = "safety_blocked"
    """A filter around the model withheld the output."""
    REFUSED = "refused"
    """The model itself declined."""
    PAUSED = "paused"
    """The provider interrupted a long run and expects to be asked again."""
    CANCELLED = "cancelled"
    """The caller, or someone on its behalf, stopped the generation."""
    ERROR = "error"
    """The generation ended abnormally."""
    MISSING = "missing"
    """Cut off: no reason arrived at all (a cut stream, a null)."""
    UNKNOWN = "unknown"
    """A reason arrived that says nothing, or has no row in our tables."""


class Resume(StrEnum):
    """How a response that ended so can be taken up again."""

    NONE = "none"
    PROMPT = "prompt"
    RESEND_UNCHANGED = "resend_unchanged"
    NATIVE_TOKEN = "native_token"  # noqa: S105 - a way of resuming, not a secret
    RETRIEVE_SAME_ID = "retrieve_same_id"
    SERVER = "server"
    REPAIR = "repair"


TRUNCATED: Final = frozenset({StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING})
"""The reasons that count as truncation, everywhere: metrics, turn attributes, alerts, sampling."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one raw value of one provider means.

    Attributes:
        reason: the normalised reason.
        incomplete: whether the output is unfinished (wider than truncated: a filtered answer is incomplete too).
        resume: how such a response is taken up again.
        detail: what the reason alone does not say, e.g. "repetition".
        source: where the meaning was read, e.g. "openai 3.54".
        terminal: False where the value says that the response is still being made: it is no reason at all.
        mapped: False where the row stands in for a value that no table has.
    """

    reason: StopReason
    incomplete: bool = False
    resume: Resume = Resume.NONE
    detail: str | None = None
    source: str = ""
    terminal: bool = True
    mapped: bool = True


@dataclass(frozen=True, slots=True)
class Stop:
    """Why one response stopped, and how sure that is.

    Attributes:
        reason: the normalised reason.
        raw: the provider's value, verbatim; None when none arrived.
        detail: what the reason alone does not say: "repetition", "timeout", the matched stop sequence, a later error.
        terminal_seen: the provider said that the response was over. False after a cut stream.
        promoted_from: the reason that the provider gave, where complete tool calls turned `end_turn` into `tool_call`.
        suspected: a clean reason was claimed, yet the output used up the whole token budget.
        resume: how the response can be taken up again.
        incomplete: whether the output is unfinished.
        mapped: False where the raw value has no row in the provider's table (vocabulary drift).
    """

    reason: StopReason
    raw: str | None = None
    detail: str | None = None
    terminal_seen: bool = True
    promoted_from: StopReason | None = None
    suspected: bool = False
    resume: Resume = Resume.NONE
    incomplete: bool = False
    mapped: bool = True

    @property
    def truncated(self) -> bool:
        """True for `max_tokens`, `context_window_exceeded` and `missing` only."""
        return self.reason in TRUNCATED


def raw_text(value: object) -> str | None:
    """The provider's value as text, verbatim, whatever holds it.

    Strings stand for themselves; enum members, mappings (`{"type": "length"}`, `{"reason": …}`) and objects with
    such an attribute are looked into. None and the empty string are no value.
    """
    if value.__class__ is str:
        return value if value.strip() else None
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None:
        return None
    if isinstance(value, Mapping):
        inner = value.get("type") or value.get("reason")
        return None if isinstance(inner, Mapping) else raw_text(inner)
    for name in ("value", "type", "reason"):
        inner = getattr(value, name, None)
        if isinstance(inner, str):
            return raw_text(inner)
    return str(value)


NO_WORD: Final = "[not a word]"
"""Stands for a stop reason that is none."""
LONGEST_WORD: Final = 64


def word_shown(raw: str) -> str:
    """A provider's value as it may be shown: verbatim if it is made like a stop reason, one word as code is written."""
    return raw if len(raw) <= LONGEST_WORD and _is_word(raw) else NO_WORD


@lru_cache(256)
def _is_word(raw: str) -> bool:
    return re.fullmatch(r"\s*[\w:./+=()-]*\s*", raw, re.ASCII) is not None


def find_row(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """The row of a raw value: as it stands, else whatever its case and space, else with an exact repetition undone.

    Frameworks that add stream chunks up also add the reasons: "STOPSTOP", "lengthlength".
    """
    row = rows.get(raw)
    if row is not None:
        return row
    key = raw.strip().lower()
    folded = {name.lower(): row for name, row in rows.items()}
    row = folded.get(key)
    if row is not None:
        return row
    for size in range(1, len(key) // 2 + 1):
        if len(key) % size == 0 and key == key[:size] * (len(key) // size) and key[:size] in folded:
            return folded[key[:size]]
    return None


class StopFacts(TypedDict, total=False):
    """What may be known of a response beside its raw value; see `find_stop`."""

    terminal_seen: bool
    calls: int
    calls_closed: bool
    output_tokens: int | None
    prompt_tokens: int | None
    maximum: int | None
    window: int | None
    refused: bool
    detail: str | None


def find_stop(
    raw: object,
    rows: Mapping[str, Row],
    *,
    terminal_seen: bool = True,
    calls: int = 0,
    calls_closed: bool = True,
    output_tokens: int | None = None,
    prompt_tokens: int | None = None,
    maximum: int | None = None,
    window: int | None = None,
    refused: bool = False,
    detail: str | None = None,
) -> Stop:
    """One Stop from a provider's raw value and what else is known of the response. The only place that judges.

    Args:
        raw: the provider's value: text, enum member, mapping, object or None.
        rows: the provider's table; a row of the empty word says what an end without a reason means.
        terminal_seen: the response is whole as far as the format tells: a body that parsed, a stream with its terminal.
        calls: how many *client* tool calls the response holds (tools that the server runs do not count).
        calls_closed: the format closed every one of them.
        output_tokens, prompt_tokens: reported usage.
        maximum: the output limit that the request set.
        window: the model's context window, where known.
        refused: the answer itself is a refusal (chat and Responses say so in the content, beside a clean reason).
        detail: overrides the row's detail.

    Returns:
        `missing` where nothing arrived, `unknown` where the value has no row; never `end_turn` by default.
    """
    text = raw_text(raw)
    if text is None and terminal_seen and "" in rows:
        text = ""
    if text is None or not terminal_seen:
        if text is None and terminal_seen and calls and calls_closed:
            # A whole body with complete calls and a null reason: servers of the chat format do this.
            return Stop(StopReason.TOOL_CALL, None, detail, promoted_from=StopReason.MISSING)
        return Stop(StopReason.MISSING, text, detail, terminal_seen=False, incomplete=True)
    row = rows.get(text) or find_row(text, rows)
    if row is None:
        return Stop(StopReason.UNKNOWN, text, detail, mapped=False)
    if not row.terminal:
        return Stop(StopReason.MISSING, text, detail or row.detail, terminal_seen=False, incomplete=True)
    reason, promoted = row.reason, None
    resume = row.resume
    if reason is StopReason.END_TURN and refused:
        reason = StopReason.REFUSED
    elif reason is StopReason.END_TURN and calls and calls_closed:
        reason, promoted = StopReason.TOOL_CALL, StopReason.END_TURN
    full = maximum is not None and output_tokens is not None and output_tokens >= maximum
    if (
        reason is StopReason.MAX_TOKENS
        and not full
        and window is not None
        and prompt_tokens is not None
        and output_tokens is not None
        and prompt_tokens + output_tokens >= window
    ):
        reason, resume = StopReason.CONTEXT_WINDOW_EXCEEDED, Resume.NONE
    suspected = full and (reason is StopReason.END_TURN or reason is StopReason.TOOL_CALL)
    return Stop(
        reason,
        text,
        detail if detail is not None else row.detail,
        promoted_from=promoted,
        suspected=suspected,
        resume=resume,
        incomplete=row.incomplete,
        mapped=row.mapped,
    )
