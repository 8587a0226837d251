"""Normalises every provider's stop reason to a StopReason; the raw value is always kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from hashlib import blake2s
from typing import Final, TypedDict

from endturn.vocabulary.characters import fix_surrogates


class StopReason(StrEnum):
    """The reason for which a model stopped, normalised."""

    END_TURN = "end_turn"
    """The model finished its answer."""
    TOOL_CALL = "tool_call"
    """The model calls tools."""
    MAX_TOKENS = "max_tokens"
    """Cut off: the output reached the token limit."""
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    """Cut off: prompt and output together filled the model's window."""
    SAFETY_BLOCKED = "safety_blocked"
    """A filter around the model withheld the output."""
    REFUSED = "refused"
    """The model itself declined."""
    PAUSED = "paused"
    """The provider interrupted a long run and expects another request."""
    CANCELLED = "cancelled"
    """The caller, or someone on its behalf, stopped the generation."""
    ERROR = "error"
    """The generation ended abnormally."""
    MISSING = "missing"
    """Cut off: no reason arrived at all (a cut stream, a null)."""
    UNKNOWN = "unknown"
    """A reason arrived that has no meaning, or no row in our tables."""


class Resume(StrEnum):
    """The ways to resume a response."""

    NONE = "none"
    PROMPT = "prompt"
    RESEND_UNCHANGED = "resend_unchanged"
    NATIVE_TOKEN = "native_token"  # noqa: S105 - a way of resuming, not a secret
    RETRIEVE_SAME_ID = "retrieve_same_id"
    SERVER = "server"
    REPAIR = "repair"


TRUNCATED: Final = frozenset(
    {StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING}
)
"""The reasons that count as truncation, everywhere: metrics, turn attributes, alerts, sampling."""


@dataclass(frozen=True, slots=True)
class Row:
    """The meaning of one raw value of one provider.

    Attributes:
        reason: the normalised reason.
        incomplete: the output is incomplete (wider than truncated: a filtered answer is incomplete
            too).
        resume: the way to resume such a response.
        detail: a refinement of the reason, e.g. "repetition".
        source: of the meaning, e.g. "openai 3.54".
        terminal: False if the value means that the response is still running: it is no reason.
        mapped: False if the row is for values that no table has.
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
    """The stop of one response: its reason, and the evidence for it.

    Attributes:
        reason: the normalised reason.
        raw: the provider's value, verbatim; None if none arrived.
        detail: a refinement of the reason: "repetition", "timeout", the matched stop sequence, a
            later error.
        terminal_seen: the provider reported the end of the response. False after a broken stream.
        promoted_from: the provider's reason, if complete tool calls turned `end_turn` into
            `tool_call`.
        suspected: the reason is a clean one, yet the output reached the token limit, or a part of
            it is incomplete: a call whose arguments do not parse, an item that is in progress.
        resume: the way to resume the response.
        incomplete: the output is incomplete.
        mapped: False if the raw value has no row in the provider's table (vocabulary drift).
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


_REASON_MEMBERS: Final = (
    "type",
    "reason",
    "value",
    "name",
    "finish_reason",
    "stop_reason",
    "unified",
)
"""Members under which a structured stop reason holds its word, first to last."""


_MAX_DEPTH: Final = 5
"""Levels of a structured stop reason that are read."""


def raw_text(value: object, depth: int = _MAX_DEPTH) -> str | None:
    """Return the provider's value as text, verbatim, from whatever holds it.

    Enum members, mappings (`{"type": "length"}`, `{"reason": …}`) and objects with such an
    attribute are searched, down to a few levels. None, False and empty values are no value. Any
    other value is returned as its text.
    """
    if value.__class__ is str:
        return value if value.strip() else None
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        return value if value.strip() else None
    if value is None or value is False:
        return None
    if depth == 0:
        return TOO_DEEP
    if isinstance(value, Mapping):
        candidates = [value[name] for name in _REASON_MEMBERS if name in value]
        if not candidates:
            return str(value) if value else None
        return next(
            (
                word
                for candidate in candidates
                if candidate and (word := raw_text(candidate, depth - 1))
            ),
            None,
        )
    for name in ("value", "type", "reason"):
        inner = getattr(value, name, None)
        if isinstance(inner, str):
            return raw_text(inner)
    return str(value)


TOO_DEEP: Final = "[nested]"
"""Replaces a stop reason that is nested too deeply."""
NO_WORD: Final = "[not a word]"
"""Replaces a stop reason that must not be shown."""
MAX_WORD_CHARS: Final = 64
"""Characters of a stop reason that are shown at most."""

_MAX_WORDS: Final = 8
_MIN_NUMBER_DIGITS: Final = 6
"""The minimum number of digits of an account's or a person's number."""
_MAX_LOOKUP_CHARS: Final = 512
"""The longest raw value whose parts are looked up; no stop reason is longer."""
_VERBATIM: Final = re.compile(r"[\w:;,|./+=()\s-]*", re.ASCII)
_SEPARATORS: Final = re.compile(r"[^\w-]+")
_TOKENS: Final = re.compile(r"[\w-]+|[:;,|/()]")
_FIELD_NAMES: Final = re.compile(
    r"(?:finish|stop|done|block|completion|native_finish)_?reason|reason|status|type", re.I
)
"""Parts of a raw value that only name the field, as in Python's spelling of an enumeration,
"FinishReason.STOP"."""
_SNAKE: Final = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z0-9]+)+")
_CAMEL: Final = re.compile(r"[A-Za-z][a-z]+(?:[A-Z][a-z]+)+")
_CAPITALS: Final = re.compile(r"[A-Z]{2,}")
_REASON_WORDS: Final = frozenset({
    "stop", "stopped", "end", "eos", "length", "max", "token", "tokens", "limit", "tool", "tools",
    "call", "calls", "function", "content", "filter", "filtered", "safety", "blocked", "refusal",
    "refused", "abort", "aborted", "cancel", "cancelled", "canceled", "error", "failed", "timeout",
    "repetition", "incomplete", "complete", "completed", "paused", "finish", "reason", "other",
    "unknown", "none", "null", "part", "background", "foreground", "eof", "truncated", "true",
    "queued", "steered", "compaction", "endoftext", "load", "unload", "repeat", "sensitive", "word",
})  # fmt: skip
"""Plain words of stop reasons, which reveal nothing of a message's content."""
_KEY_PATTERN: Final = (
    r"(?<![A-Za-z0-9])(?:"
    r"(?i:sk|pk|rk|gsk|xai|csk|hf|fw|tgp|r8|nvapi|pplx|gh[pousr]|github_pat|glpat|xox[a-z]|glsa|npm"
    r"|pypi|tok|dop_v1|shpat|bearer|basic)[-_][\w*.-]{5,}"
    r"|AIza|ya29|eyJ|dapi[0-9a-f]{6}|A(?:KI|SI|RO|ID)A[A-Z0-9]{6,})"
    r"|(?:[^0-9]*[0-9]){6}"  # six digits are not part of a word
)
"""A pattern of keys, tokens and account numbers."""
_CREDENTIAL_PATTERN: Final = (
    r"(?i)(?:password|passwd|pwd|passphrase|secret|api[-_]?key|(?<![a-z])key|(?<![a-z])token"
    r"|credentials?|authorization)[\s\"']*[=:]"
)
"""A pattern of a credential's name, which its value follows: such a text is not shown at all."""
_MAX_SEGMENTS: Final = 6
_HEX: Final = re.compile(r"[0-9a-f]{8,}", re.I)
_MAX_SEGMENT_CHARS: Final = 20
_MAX_MIXED_CHARS: Final = 10
"""Lengths from which a segment is no word; the second applies to digits or mixed case."""


def sanitize_reason(raw: str) -> str:
    """Return a provider's stop reason as telemetry may show it: bounded, without free text or keys.

    One word is shown verbatim unless it looks like a key. Of several words, those in snake_case and
    the usual words of stop reasons are shown; a possible name (camelCase, one word of CAPITALS, a
    number) only if no other word is hidden. "…" replaces each hidden word.
    """
    return _display_text(raw) if len(raw) <= 4 * MAX_WORD_CHARS else NO_WORD


def value_key(raw: str) -> str:
    """Return a key for a raw value in memory: the value, or its hash if it is long."""
    return (
        raw
        if len(raw) <= MAX_WORD_CHARS
        else blake2s(raw.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )


@lru_cache(256)
def _display_text(raw: str) -> str:
    raw = fix_surrogates(raw)
    tokens = _TOKENS.findall(raw)
    words = [token for token in tokens if len(token) > 1 or token.isalnum()]
    if len(words) == 1 and len(raw.strip()) > MAX_WORD_CHARS:
        return NO_WORD
    if not words or len(tokens) > 2 * _MAX_WORDS or re.search(_CREDENTIAL_PATTERN, raw):
        return NO_WORD
    is_allowed = _is_safe_alone if len(words) == 1 else _is_plain
    visibility = {word: is_allowed(word) for word in words}
    if any(map(_is_secret, words)):  # a mixed-case word may be a piece of the secret
        visibility = {
            word: visible and (word.islower() or word.isupper())
            for word, visible in visibility.items()
        }
    ambiguous = [word for word in words if not visibility[word] and _is_ambiguous(word)]
    capitals = {word for word in ambiguous if _CAPITALS.fullmatch(word)}
    # A possible name is shown only if all other words are identifiers.
    if len(capitals) <= 1 and len(ambiguous) == sum(not visibility[word] for word in words):
        visibility |= dict.fromkeys(ambiguous, sum(map(str.isdigit, raw)) < _MIN_NUMBER_DIGITS)
    if not any(
        visible and not _FIELD_NAMES.fullmatch(word) for word, visible in visibility.items()
    ):
        return NO_WORD
    if all(visibility.values()) and len(raw) <= MAX_WORD_CHARS and _VERBATIM.fullmatch(raw):
        return raw
    text = " ".join(token if visibility.get(token, True) else "…" for token in tokens)
    text = re.sub(r"…(?: …)+", "…", text)
    text = re.sub(r" (?=[:;,)])|(?<=\() | (?=[/|])|(?<=[/|]) ", "", text)
    return text if len(text) <= MAX_WORD_CHARS else text[: MAX_WORD_CHARS - 1] + "…"


def _is_safe_alone(word: str) -> bool:
    """Return whether a single word is shown: any that does not look like a key."""
    return word.isascii() and not _is_secret(word)


def _is_plain(word: str) -> bool:
    """Return whether a word is shown beside any other words."""
    is_known = (
        word.lower() in _REASON_WORDS
        or _FIELD_NAMES.fullmatch(word)
        or _SNAKE.fullmatch(word.strip("-_"))
    )
    return word.isascii() and bool(is_known) and not _is_secret(word)


def _is_ambiguous(word: str) -> bool:
    """Return whether a word may be an identifier or a name: camelCase, CAPITALS, a number."""
    is_name = _CAMEL.fullmatch(word) or _CAPITALS.fullmatch(word) or word.isdecimal()
    return word.isascii() and bool(is_name) and not _is_secret(word)


def _is_secret(word: str) -> bool:
    segments = re.split(r"[-_]+", word)
    return (
        len(segments) > _MAX_SEGMENTS
        or re.search(_KEY_PATTERN, word) is not None
        or any(map(_is_random, segments))
    )


def _is_random(segment: str) -> bool:
    """Return whether a segment of letters and digits is no word: too long, mixed, hexadecimal."""
    if _HEX.fullmatch(segment):
        return True
    if _CAMEL.fullmatch(segment):  # Its words have three letters and more, on average.
        return (
            len(segment) < 3 * sum(map(str.isupper, segment))
            or len(segment) > 2 * _MAX_SEGMENT_CHARS
        )
    is_mixed = not segment.isalpha() or not (
        segment.islower() or segment.isupper() or segment.istitle()
    )
    return len(segment) >= (_MAX_MIXED_CHARS if is_mixed else _MAX_SEGMENT_CHARS)


def find_row(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return the row of a raw value: of its word, else of its parts.

    Google's OpenAI-compatible endpoint joins two: "function_call_filter: MALFORMED_FUNCTION_CALL".
    """
    return rows.get(raw) or find_word(raw, rows) or _row_of_parts(raw, rows)


def find_word(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return the row of a raw value as one word.

    Verbatim, else in any case, else without its repetition.

    Frameworks that concatenate stream chunks repeat the reasons: "STOPSTOP", "lengthlength".
    """
    row = rows.get(raw)
    if row is not None:
        return row
    key, folded = raw.strip().lower(), _casefold_keys(rows)
    row = folded.get(key)
    if row is not None:
        return row
    for size in range(1, len(key) // 2 + 1):
        if len(key) % size == 0 and key == key[:size] * (len(key) // size) and key[:size] in folded:
            return folded[key[:size]]
    return None


def _casefold_keys(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return rows by their words in lower case.

    Of two equal words the first counts, which is the dialect's own.
    """
    return {name.lower(): rows[name] for name in reversed([*rows])}


def _row_of_parts(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return the row for the parts of a raw value together; None if it is uncertain.

    A part that means incomplete output counts beside any identifiers; of several, the last. Beside
    free text ("stop: not length") it only means that the output may be incomplete. A clean meaning
    counts only if every part is known: free text is never a clean end.
    """
    if len(raw) > _MAX_LOOKUP_CHARS:
        return None
    parts = [part for part in _SEPARATORS.split(raw) if part and not _FIELD_NAMES.fullmatch(part)]
    if not 0 < len(parts) <= _MAX_WORDS:
        return None
    folded = _casefold_keys(rows)
    part_rows = [
        row for part in parts if (row := folded.get(part.lower())) is not None and row.terminal
    ]
    if incomplete := [row for row in part_rows if row.incomplete]:
        is_code = all(part.lower() in folded or _is_code(part) for part in parts)
        return incomplete[-1] if is_code else _MAYBE_INCOMPLETE
    if len(part_rows) < len(parts):
        return None
    return min(part_rows, key=rank_of, default=None)


_MAYBE_INCOMPLETE: Final = Row(StopReason.UNKNOWN, True, mapped=False)


def _is_code(part: str) -> bool:
    """Return whether a part cannot reverse another's meaning: identifier, number, usual word."""
    is_name = _SNAKE.fullmatch(part) or _CAMEL.fullmatch(part)
    return part.isdecimal() or part.lower() in _REASON_WORDS or is_name is not None


def rank_of(row: Row | None) -> int:
    """Return the rank of a reason against another of the same answer, 0 for the strongest.

    In order: incomplete output, an unknown reason, a reason without a meaning or without any
    output, a tool call, a usual end. Of two interpretations, the less complete one wins.
    """
    if row is None:
        return 1
    if row.incomplete:
        return 0
    is_empty = row.reason is StopReason.UNKNOWN or row.detail == NO_GENERATION
    return 2 if is_empty else 3 if row.reason is StopReason.TOOL_CALL else 4


NO_GENERATION: Final = "no_generation"
"""The detail of a reason for a response without output: calls beside it must not be run."""


class StopFacts(TypedDict, total=False):
    """Facts of a response besides its raw value; see `find_stop`."""

    terminal_seen: bool
    calls: int
    calls_closed: bool
    contradicted: bool
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
    contradicted: bool = False,
    output_tokens: int | None = None,
    prompt_tokens: int | None = None,
    maximum: int | None = None,
    window: int | None = None,
    refused: bool = False,
    detail: str | None = None,
) -> Stop:
    """Return the Stop for a provider's raw value and other facts of the response.

    All decisions on a Stop are made here.

    Args:
        raw: the provider's value: text, enum member, mapping, object or None.
        rows: the provider's table; the row of the empty word is for an end without a reason.
        terminal_seen: the response is complete as far as the format shows: a body that parsed, a
            stream with its terminal.
        calls: the number of *client* tool calls in the response (calls of the server's tools do
            not count).
        calls_closed: every one of them is complete: the format closed it, and its arguments parse.
        contradicted: another part of the response reports that a piece is incomplete.
        output_tokens, prompt_tokens: reported usage.
        maximum: the output limit that the request set.
        window: the model's context window, if known.
        refused: the answer itself is a refusal (chat and Responses mark it in the content, beside a
            clean reason).
        detail: overrides the row's detail.

    Returns:
        A Stop: `missing` if no reason arrived, `unknown` if the value has no row; never `end_turn`
        by default.
    """
    text = raw_text(raw)
    if text is None and terminal_seen and "" in rows:
        text = ""
    if text is None or not terminal_seen:
        if text is None and terminal_seen and calls and calls_closed:
            # A body with complete calls and a null reason, as servers of the chat format send it.
            return Stop(StopReason.TOOL_CALL, None, detail, promoted_from=StopReason.MISSING)
        return Stop(StopReason.MISSING, text, detail, terminal_seen=False, incomplete=True)
    row = rows.get(text) or find_row(text, rows)
    if row is None:
        return Stop(StopReason.UNKNOWN, text, detail, mapped=False)
    if not row.terminal:
        return Stop(
            StopReason.MISSING, text, detail or row.detail, terminal_seen=False, incomplete=True
        )
    reason, promoted_from = row.reason, None
    resume = row.resume
    if reason is StopReason.END_TURN and refused:
        reason = StopReason.REFUSED
    elif reason is StopReason.END_TURN and calls and calls_closed and row.detail != NO_GENERATION:
        reason, promoted_from = StopReason.TOOL_CALL, StopReason.END_TURN
    is_full = maximum is not None and output_tokens is not None and output_tokens >= maximum
    if (
        reason is StopReason.MAX_TOKENS
        and not is_full
        and window is not None
        and prompt_tokens is not None
        and output_tokens is not None
        and prompt_tokens + output_tokens >= window
    ):
        reason, resume = StopReason.CONTEXT_WINDOW_EXCEEDED, Resume.NONE
    is_doubtful = is_full or contradicted or (calls > 0 and not calls_closed)
    is_suspected = is_doubtful and (reason is StopReason.END_TURN or reason is StopReason.TOOL_CALL)
    return Stop(
        reason,
        text,
        detail if detail is not None else row.detail,
        promoted_from=promoted_from,
        suspected=is_suspected,
        resume=resume,
        incomplete=row.incomplete,
        mapped=row.mapped,
    )
