"""The one vocabulary.

Every provider's stop reason becomes one StopReason, the raw value is always kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from functools import lru_cache
from hashlib import blake2s
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


TRUNCATED: Final = frozenset(
    {StopReason.MAX_TOKENS, StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.MISSING}
)
"""The reasons that count as truncation, everywhere: metrics, turn attributes, alerts, sampling."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one raw value of one provider means.

    Attributes:
        reason: the normalised reason.
        incomplete: whether the output is unfinished (wider than truncated: a filtered answer is
            incomplete too).
        resume: how such a response is taken up again.
        detail: what the reason alone does not say, e.g. "repetition".
        source: where the meaning was read, e.g. "openai 3.54".
        terminal: False where the value says that the response is still being made: it is no reason
            at all.
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
        detail: what the reason alone does not say: "repetition", "timeout", the matched stop
            sequence, a later error.
        terminal_seen: the provider said that the response was over. False after a cut stream.
        promoted_from: the reason that the provider gave, where complete tool calls turned
            `end_turn` into `tool_call`.
        suspected: a clean reason was claimed, yet the output used up the whole token budget, or a
            part of it is unfinished: a call whose arguments do not parse, an item that is in
            progress.
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


_HOLDERS: Final = ("type", "reason", "value", "name", "finish_reason", "stop_reason", "unified")
"""Members under which a structured stop reason holds its word, first to last."""


_DEEPEST: Final = 5
"""Levels of a structured stop reason that are looked into."""


def raw_text(value: object, depth: int = _DEEPEST) -> str | None:
    """Return the provider's value as text, verbatim, whatever holds it.

    Strings stand for themselves; enum members, mappings (`{"type": "length"}`, `{"reason": …}`) and
    objects with such an attribute are looked into, down to a few levels. None, False and what is
    empty are no value. Any other value arrived, and is kept as its text.
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
        held = [value[name] for name in _HOLDERS if name in value]
        if not held:
            return str(value) if value else None
        return next((found for each in held if each and (found := raw_text(each, depth - 1))), None)
    for name in ("value", "type", "reason"):
        inner = getattr(value, name, None)
        if isinstance(inner, str):
            return raw_text(inner)
    return str(value)


TOO_DEEP: Final = "[nested]"
"""Stands for a stop reason that is nested too deeply to be looked into."""
NO_WORD: Final = "[not a word]"
"""Stands for a stop reason that may not be shown."""
LONGEST_WORD: Final = 64
"""Characters of a stop reason that are shown at most."""

_MOST_WORDS: Final = 8
_DIGITS: Final = 6
"""Digits of a value with which it may be somebody's number."""
_LONGEST_LOOKUP: Final = 512
"""Characters of a raw value whose parts are looked up; no stop reason is longer."""
_VERBATIM: Final = re.compile(r"[\w:;,|./+=()\s-]*", re.ASCII)
_SEPARATORS: Final = re.compile(r"[^\w-]+")
_TOKENS: Final = re.compile(r"[\w-]+|[:;,|/()]")
_FIELD_NAMES: Final = re.compile(
    r"(?:finish|stop|done|block|completion|native_finish)_?reason|reason|status|type", re.I
)
"""Parts of a raw value that only name the field: Python's spelling of an enumeration,
"FinishReason.STOP"."""
_SNAKE: Final = re.compile(r"[A-Za-z]+(?:[-_][A-Za-z0-9]+)+")
_CAMEL: Final = re.compile(r"[A-Za-z][a-z]+(?:[A-Z][a-z]+)+")
_CAPITALS: Final = re.compile(r"[A-Z]{2,}")
_USUAL: Final = frozenset({
    "stop", "stopped", "end", "eos", "length", "max", "token", "tokens", "limit", "tool", "tools",
    "call", "calls", "function", "content", "filter", "filtered", "safety", "blocked", "refusal",
    "refused", "abort", "aborted", "cancel", "cancelled", "canceled", "error", "failed", "timeout",
    "repetition", "incomplete", "complete", "completed", "paused", "finish", "reason", "other",
    "unknown", "none", "null", "part", "background", "foreground", "eof", "truncated", "true",
    "queued", "steered", "compaction", "endoftext", "load", "unload", "repeat", "sensitive", "word",
})  # fmt: skip
"""Plain words that stop reasons are made of, and that tell nothing of what was written."""
_KEY: Final = (
    r"(?<![A-Za-z0-9])(?:"
    r"(?i:sk|pk|rk|gsk|xai|csk|hf|fw|tgp|r8|nvapi|pplx|gh[pousr]|github_pat|glpat|xox[a-z]|glsa|npm"
    r"|pypi|tok|dop_v1|shpat|bearer|basic)[-_][\w*.-]{5,}"
    r"|AIza|ya29|eyJ|dapi[0-9a-f]{6}|A(?:KI|SI|RO|ID)A[A-Z0-9]{6,})"
    r"|(?:[^0-9]*[0-9]){6}"  # six digits are no part of a word
)
"""What looks like a key, a token or an account's number."""
_CREDENTIAL: Final = (
    r"(?i)(?:password|passwd|pwd|passphrase|secret|api[-_]?key|(?<![a-z])key|(?<![a-z])token"
    r"|credentials?|authorization)[\s\"']*[=:]"
)
"""The name of a credential, whose value follows: none of such a value is shown."""
_MOST_SEGMENTS: Final = 6
_HEX: Final = re.compile(r"[0-9a-f]{8,}", re.I)
_LONGEST_SEGMENT: Final = 20
_LONGEST_MIXED: Final = 10
"""Characters of letters in one piece, at which they are no word; the second, with digits or odd
capitals in it."""


def word_shown(raw: str) -> str:
    """Return a provider's stop reason as telemetry may show it: bounded, without free text or keys.

    One word is shown verbatim unless it looks like a key. Of several words those are shown that are
    snake_case, or that stop reasons are usually made of; what may be a name (camelCase, one word of
    CAPITALS, a number) only where no other word is hidden. "…" stands for each hidden word.
    """
    return _shown(raw) if len(raw) <= 4 * LONGEST_WORD else NO_WORD


def value_key(raw: str) -> str:
    """Return what tells one raw value from another in memory, without keeping a long one."""
    return (
        raw
        if len(raw) <= LONGEST_WORD
        else blake2s(raw.encode("utf-8", "replace"), digest_size=16).hexdigest()
    )


@lru_cache(256)
def _shown(raw: str) -> str:
    tokens = _TOKENS.findall(raw)
    words = [token for token in tokens if len(token) > 1 or token.isalnum()]
    if len(words) == 1 and len(raw.strip()) > LONGEST_WORD:
        return NO_WORD
    if not words or len(tokens) > 2 * _MOST_WORDS or re.search(_CREDENTIAL, raw):
        return NO_WORD
    can_show = _shows_alone if len(words) == 1 else _is_plain
    shows = {word: can_show(word) for word in words}
    if any(map(_is_secret, words)):  # Beside one no piece of another is shown.
        shows = {
            word: shown and (word.islower() or word.isupper()) for word, shown in shows.items()
        }
    loose = [word for word in words if not shows[word] and _is_loose(word)]
    capitals = {word for word in loose if _CAPITALS.fullmatch(word)}
    # What may be a name is shown only where everything beside it is a word of code.
    if len(capitals) <= 1 and len(loose) == sum(not shows[word] for word in words):
        shows |= dict.fromkeys(loose, sum(map(str.isdigit, raw)) < _DIGITS)
    if not any(shown and not _FIELD_NAMES.fullmatch(word) for word, shown in shows.items()):
        return NO_WORD
    if all(shows.values()) and len(raw) <= LONGEST_WORD and _VERBATIM.fullmatch(raw):
        return raw
    text = " ".join(token if shows.get(token, True) else "…" for token in tokens)
    text = re.sub(r"…(?: …)+", "…", text)
    text = re.sub(r" (?=[:;,)])|(?<=\() | (?=[/|])|(?<=[/|]) ", "", text)
    return text if len(text) <= LONGEST_WORD else text[: LONGEST_WORD - 1] + "…"


def _shows_alone(word: str) -> bool:
    """Return whether a word that is all of a value is shown.

    Any but what looks like a key or like a sentence.
    """
    return word.isascii() and not _is_secret(word)


def _is_plain(word: str) -> bool:
    """Return whether a word is shown whatever stands beside it."""
    known = (
        word.lower() in _USUAL or _FIELD_NAMES.fullmatch(word) or _SNAKE.fullmatch(word.strip("-_"))
    )
    return word.isascii() and bool(known) and not _is_secret(word)


def _is_loose(word: str) -> bool:
    """Return whether a word may be code, and may be a name: camelCase, CAPITALS, a number."""
    may_be = _CAMEL.fullmatch(word) or _CAPITALS.fullmatch(word) or word.isdecimal()
    return word.isascii() and bool(may_be) and not _is_secret(word)


def _is_secret(word: str) -> bool:
    segments = re.split(r"[-_]+", word)
    return (
        len(segments) > _MOST_SEGMENTS
        or re.search(_KEY, word) is not None
        or any(map(_is_random, segments))
    )


def _is_random(segment: str) -> bool:
    """Return whether letters and digits in one piece are no word.

    Too long, too mixed, hexadecimal.
    """
    if _HEX.fullmatch(segment):
        return True
    if _CAMEL.fullmatch(segment):  # Its words have three letters and more, on average.
        return (
            len(segment) < 3 * sum(map(str.isupper, segment)) or len(segment) > 2 * _LONGEST_SEGMENT
        )
    is_mixed = not segment.isalpha() or not (
        segment.islower() or segment.isupper() or segment.istitle()
    )
    return len(segment) >= (_LONGEST_MIXED if is_mixed else _LONGEST_SEGMENT)


def find_row(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return the row of a raw value: of its word, else of the parts that it is made of.

    Google's OpenAI-compatible endpoint joins two: "function_call_filter: MALFORMED_FUNCTION_CALL".
    """
    return rows.get(raw) or find_word(raw, rows) or _row_of_parts(raw, rows)


def find_word(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return the row of a raw value as one word.

    Verbatim, else in any case, else without its repetition.

    Frameworks that add stream chunks up also add the reasons: "STOPSTOP", "lengthlength".
    """
    row = rows.get(raw)
    if row is not None:
        return row
    key, folded = raw.strip().lower(), _folded(rows)
    row = folded.get(key)
    if row is not None:
        return row
    for size in range(1, len(key) // 2 + 1):
        if len(key) % size == 0 and key == key[:size] * (len(key) // size) and key[:size] in folded:
            return folded[key[:size]]
    return None


def _folded(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return rows by their words in small letters.

    Of two the first counts, which is the dialect's own.
    """
    return {name.lower(): rows[name] for name in reversed([*rows])}


def _row_of_parts(raw: str, rows: Mapping[str, Row]) -> Row | None:
    """Return what the parts of a raw value mean together; None where that is not certain.

    A part that means an unfinished output counts, whatever code stands beside it, of several the
    last. Beside free text ("stop: not length") it says only that the output may be unfinished. A
    clean meaning only counts where every part is known: no end is made of free text.
    """
    if len(raw) > _LONGEST_LOOKUP:
        return None
    parts = [part for part in _SEPARATORS.split(raw) if part and not _FIELD_NAMES.fullmatch(part)]
    if not 0 < len(parts) <= _MOST_WORDS:
        return None
    folded = _folded(rows)
    known = [
        row for part in parts if (row := folded.get(part.lower())) is not None and row.terminal
    ]
    if incomplete := [row for row in known if row.incomplete]:
        is_code = all(part.lower() in folded or _is_code(part) for part in parts)
        return incomplete[-1] if is_code else _MAYBE_CUT
    if len(known) < len(parts):
        return None
    return min(known, key=rank_of, default=None)


_MAYBE_CUT: Final = Row(StopReason.UNKNOWN, True, mapped=False)


def _is_code(part: str) -> bool:
    """Return whether a part cannot turn the meaning of another.

    An identifier, a number, a usual word.
    """
    is_name = _SNAKE.fullmatch(part) or _CAMEL.fullmatch(part)
    return part.isdecimal() or part.lower() in _USUAL or is_name is not None


def rank_of(row: Row | None) -> int:
    """Return how strongly a reason counts against another of the same answer, strongest first.

    A reason that says that the output is unfinished outranks one that nobody knows, that one that
    says nothing or that nothing was generated, that a call of tools, and that a usual end: of two
    readings the less safe one is never taken.
    """
    if row is None:
        return 1
    if row.incomplete:
        return 0
    says_nothing = row.reason is StopReason.UNKNOWN or row.detail == NO_GENERATION
    return 2 if says_nothing else 3 if row.reason is StopReason.TOOL_CALL else 4


NO_GENERATION: Final = "no_generation"
"""The detail of a reason that says that nothing was generated: calls beside it are not to be
run."""


class StopFacts(TypedDict, total=False):
    """What may be known of a response beside its raw value; see `find_stop`."""

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
    """One Stop from a provider's raw value and what else is known of the response.

    The only place that judges.

    Args:
        raw: the provider's value: text, enum member, mapping, object or None.
        rows: the provider's table; a row of the empty word says what an end without a reason means.
        terminal_seen: the response is whole as far as the format tells: a body that parsed, a
            stream with its terminal.
        calls: how many *client* tool calls the response holds (tools that the server runs do not
            count).
        calls_closed: every one of them is complete: the format closed it, and its arguments parse.
        contradicted: another part of the response says that something of it is unfinished.
        output_tokens, prompt_tokens: reported usage.
        maximum: the output limit that the request set.
        window: the model's context window, where known.
        refused: the answer itself is a refusal (chat and Responses say so in the content, beside a
            clean reason).
        detail: overrides the row's detail.

    Returns:
        `missing` where nothing arrived, `unknown` where the value has no row; never `end_turn` by
        default.
    """
    text = raw_text(raw)
    if text is None and terminal_seen and "" in rows:
        text = ""
    if text is None or not terminal_seen:
        if text is None and terminal_seen and calls and calls_closed:
            # A whole body with complete calls and a null reason: servers of the chat format do
            # this.
            return Stop(StopReason.TOOL_CALL, None, detail, promoted_from=StopReason.MISSING)
        return Stop(StopReason.MISSING, text, detail, terminal_seen=False, incomplete=True)
    row = rows.get(text) or find_row(text, rows)
    if row is None:
        return Stop(StopReason.UNKNOWN, text, detail, mapped=False)
    if not row.terminal:
        return Stop(
            StopReason.MISSING, text, detail or row.detail, terminal_seen=False, incomplete=True
        )
    reason, promoted = row.reason, None
    resume = row.resume
    if reason is StopReason.END_TURN and refused:
        reason = StopReason.REFUSED
    elif reason is StopReason.END_TURN and calls and calls_closed and row.detail != NO_GENERATION:
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
    doubtful = full or contradicted or (calls > 0 and not calls_closed)
    suspected = doubtful and (reason is StopReason.END_TURN or reason is StopReason.TOOL_CALL)
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
