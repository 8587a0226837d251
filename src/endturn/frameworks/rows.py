"""What frameworks call a stop reason, as rows, and whose table knows the provider's own value that they hand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final, Unpack

from endturn.formats import FORMATS, format_of
from endturn.providers import PROVIDERS, canonical
from endturn.stop import Resume, Row, Stop, StopFacts, StopReason, find_row, find_stop, raw_text
from endturn.stop_reasons import COMPATIBLE, rows_of, tables

REASONS: Final = tables("frameworks")
"""framework → its own word → row. The readers prefer the provider's value, where the framework kept it."""

_SPOKEN: Final[Mapping[str, tuple[str, ...]]] = {
    "bedrock_converse": ("bedrock_converse", "bedrock_invoke"),
    "gemini": ("gemini", "gemini_interactions"),
    "openai_chat": ("openai_chat", "openai_responses"),
}
"""The other formats of whoever speaks a format: a framework uses either under one provider's name."""


@lru_cache(maxsize=64)
def tables_of(provider: str) -> tuple[Mapping[str, Row], ...]:
    """The tables of a provider, by any framework's name for it ("google_genai", "openai.chat"); none if unknown."""
    known = PROVIDERS.get(canonical(provider))
    if known is None:
        return ()
    formats = _SPOKEN.get(known.format, (known.format,))
    return tuple(rows for each in formats for rows in tables_in(each, known.dialect, rest=True))


def tables_in(name: str, dialect: str = "", *, rest: bool = False) -> tuple[Mapping[str, Row], ...]:
    """The table of a format's dialect; with `rest`, the format's other tables after it, where these are its models'."""
    tables = format_of(name).reasons
    first = tables.get(dialect) or tables[""]
    if not rest or name == "openai_chat":  # there the dialects are other servers'
        return (first,)
    return (first, *(rows for rows in tables.values() if rows is not first))


def meaning(raw: object, tables: Iterable[Mapping[str, Row]] = (), *, any_provider: bool = True) -> Row | None:
    """The row of a provider's value: of the given tables, else of any provider's.

    Responses' `incomplete_details.reason` is found without its "incomplete:", as frameworks hand it on.
    """
    known = raw_text(raw)
    if known is None:
        return None
    for rows in (*tables, _anybody()) if any_provider else tables:
        row = find_row(known, rows) or find_row(f"incomplete:{known}", rows)
        if row is not None:
            return row
    return None


@cache
def _anybody() -> Mapping[str, Row]:
    """Every provider's words. Where two disagree the chat format's counts: it resumes the fewest of them by itself.

    Not those of Gemini's Interactions: they are the states of a job ("incomplete"), and other APIs' jobs have them too.
    """
    found: dict[str, Row] = {}
    for rows in (
        rows_of("openai_chat", COMPATIBLE),
        *(rows for name in FORMATS if name != "gemini_interactions" for rows in format_of(name).reasons.values()),
    ):
        for raw, row in rows.items():
            found.setdefault(raw.lower(), row)
            # A part that means something else alone ("failed:…") is not found without what stands before it.
            found.setdefault(raw.lower().removeprefix("incomplete:"), row)
    return found


def relayed(row: Row | None, *, resumes: Iterable[Resume] = ()) -> Row | None:
    """A row as it holds behind somebody who cannot hand on the provider's own way of resuming."""
    return row if row is None or row.resume in resumes else replace(row, resume=Resume.NONE)


def chosen(raw: object, row: Row | None, word: object, word_row: Row | None) -> tuple[object, Row | None]:
    """Which of two says more of one response: the provider's value, or the framework's word for it.

    Args:
        raw, row: the provider's value, and its row if it has one.
        word, word_row: the framework's.

    Returns:
        The provider's value, unless it has no row or hides that the answer is cut; and the row that counts.
    """
    known = raw_text(raw)
    if known is None or row is None:
        # An unknown value under a word that tells nothing stays one without a row.
        silent = known is not None and word_row is not None and word_row.reason is StopReason.UNKNOWN
        return (word if known is None else known), None if silent else word_row
    if word_row is not None and word_row.incomplete and not row.incomplete:
        return word, word_row
    return known, row


def stop_of(raw: object, row: Row | None, **known: Unpack[StopFacts]) -> Stop:
    """The Stop of a value whose row was found."""
    value = raw_text(raw)
    return find_stop(raw, {} if value is None or row is None else {value: row}, **known)
