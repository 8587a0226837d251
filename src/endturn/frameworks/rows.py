"""What frameworks call a stop reason, as rows, and whose table knows the provider's own value that they hand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final

from endturn.formats import FORMATS, format_of
from endturn.providers import PROVIDERS, canonical
from endturn.stop import Resume, Row, StopReason, find_row, raw_text
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


def meaning(raw: object, tables: Iterable[Mapping[str, Row]] = (), *, any_provider: bool = True) -> Mapping[str, Row]:
    """The row of a provider's value, as a table of one: of the given tables, else of any provider's.

    Responses' `incomplete_details.reason` is found without its "incomplete:", as frameworks hand it on.
    """
    known = raw_text(raw)
    if known is None:
        return {}
    for rows in (*tables, _anybody()) if any_provider else tables:
        row = find_row(known, rows) or find_row(f"incomplete:{known}", rows)
        if row is not None:
            return {known: row}
    return {}


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


def relayed(rows: Mapping[str, Row], *, resumes: Iterable[Resume] = ()) -> Mapping[str, Row]:
    """Rows as they hold behind somebody who cannot hand on the provider's own way of resuming."""
    kept = frozenset({Resume.NONE, *resumes})
    return {raw: row if row.resume in kept else replace(row, resume=Resume.NONE) for raw, row in rows.items()}


def chosen(raw: object, rows: Mapping[str, Row], word: object, own: Mapping[str, Row]) -> tuple[object, Row | None]:
    """Which of two says more of one response: the provider's value, or the framework's word for it.

    Args:
        raw: the provider's value, with its row in `rows` if it has one.
        word: the framework's, with its row in `own`.

    Returns:
        The provider's value, unless it has no row or hides that the answer is cut; and the row that counts.
    """
    known, said = raw_text(raw), raw_text(word)
    below = None if known is None else rows.get(known)
    above = None if said is None else find_row(said, own)
    if below is None:
        # An unknown value under a word that tells nothing stays one without a row.
        silent = known is not None and above is not None and above.reason is StopReason.UNKNOWN
        return (said if known is None else known), None if silent else above
    if above is not None and above.incomplete and not below.incomplete:
        return said, above
    return known, below
