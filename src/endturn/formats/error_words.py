"""What providers say where they do not answer, read from `data/error_answers.tsv` and `data/error_sentences.tsv`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

from endturn.stop import Resume, Row, StopReason
from endturn.tables import lines, shipped

_MEANS: Final = {
    "silent": None,
    "context_window_exceeded": Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="error answers"),
    "max_tokens": Row(StopReason.MAX_TOKENS, True, source="error answers"),
    "safety_blocked": Row(StopReason.SAFETY_BLOCKED, True, source="error answers"),
    "call": Row(StopReason.ERROR, True, Resume.REPAIR, source="error answers"),
}


class ErrorWords(NamedTuple):
    """A provider's words for an error: its type, its code where it has one, and its sentence."""

    type: str
    code: str | None
    message: str


class _Answers(NamedTuple):
    words: Mapping[str, Mapping[str, ErrorWords]]
    statuses: Mapping[str, int]


@cache
def _answers() -> _Answers:
    words: dict[str, dict[str, ErrorWords]] = {}
    statuses: dict[str, int] = {}
    for _, (format_, when, type_, code, message) in lines(shipped(), "error_answers.tsv", range(5, 6)):
        if message:
            words.setdefault(format_, {})[when] = ErrorWords(type_, code or None, message)
        if type_ and when.isdigit():
            statuses.setdefault(type_.lower(), int(when))
    return _Answers(words, statuses)


def error_words(format_: str, status: int, code: str | None, message: str | None) -> ErrorWords:
    """What a provider of a format says with a status, and with a code where it has words for that.

    Args:
        message: said instead of the provider's sentence.
    """
    known = _answers().words[format_]
    usual = known.get(str(status)) or known["500" if status >= 500 else "400"]
    own = known.get(code or "", usual)
    return ErrorWords(own.type or usual.type, code or usual.code, message or own.message)


def status_of(word: str) -> int | None:
    """The status that an error inside a stream would have had, which comes under HTTP 200: by its type or code."""
    return _answers().statuses.get(word.lower())


@cache
def sentences() -> tuple[tuple[re.Pattern[str], Row | None], ...]:
    """What to look for in an error's words, first to last, and what it means; None where it means nothing."""
    found: dict[str, list[str]] = {}
    for _, (says, pattern, _source) in lines(shipped(), "error_sentences.tsv", range(3, 4)):
        found.setdefault(says, []).append(pattern)
    return tuple((re.compile("|".join(patterns), re.IGNORECASE), _MEANS[says]) for says, patterns in found.items())
