"""Find the row of a stop reason from a framework or from the provider behind it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, Final, Unpack

from endturn.formats import FORMATS, format_of, member, text
from endturn.vocabulary import (
    CHAT,
    COMPATIBLE,
    PROVIDERS,
    Resume,
    Row,
    Stop,
    StopFacts,
    StopReason,
    canonical,
    find_row,
    find_stop,
    find_word,
    raw_text,
    rows_of,
    shared,
    tables,
)

Table = Mapping[str, Row]
"""Raw value → row."""

REASONS: Final = tables("frameworks")
"""Framework → its own word → row. Readers prefer the provider's value, if the framework kept it."""

BLOCKED_PROMPT: Final = Row(
    reason=StopReason.SAFETY_BLOCKED,
    incomplete=True,
    source="google-genai 3.4 BlockedReason",
)
"""Gemini blocked the prompt. Every value of its `block_reason` means that a filter did."""

_RELATED_FORMATS: Final[Mapping[str, tuple[str, ...]]] = {
    "bedrock_converse": ("bedrock_converse", "bedrock_invoke"),
    "gemini": ("gemini", "gemini_interactions"),
    "openai_chat": ("openai_chat", "openai_responses"),
}
"""Formats of one provider: frameworks use each of them under the same provider name."""


# --- Tables -----------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def provider_tables(provider: str) -> tuple[Table, ...]:
    """Return the tables of a provider; none if it is unknown.

    Args:
        provider: any framework's name for it ("google_genai", "openai.chat").
    """
    endpoint = PROVIDERS.get(canonical(provider))
    if endpoint is None:
        return ()
    formats = _RELATED_FORMATS.get(endpoint.format, (endpoint.format,))
    rows_of_formats: list[Table] = []
    for name in formats:
        rows_of_formats += format_tables(name, endpoint.dialect, every_dialect=True)
    return tuple(rows_of_formats)


def format_tables(
    name: str,
    dialect: str = "",
    *,
    every_dialect: bool = False,
) -> tuple[Table, ...]:
    """Return the table of a format's dialect.

    Args:
        name: the format.
        dialect: one of its dialects; the format's own table if it has no table of that name.
        every_dialect: add the tables of the other dialects, if they are models of one provider.
            The dialects of `openai_chat` are other servers, so they are left out.
    """
    by_dialect = format_of(name).reasons
    first = by_dialect.get(dialect) or by_dialect[""]
    if not every_dialect or name == "openai_chat":
        return (first,)
    return (first, *(rows for rows in by_dialect.values() if rows is not first))


@cache
def _shared_words() -> Table:
    """Return the words that providers share.

    If two providers disagree, the chat format counts: it resumes the fewest reasons by itself. The
    values of Gemini's Interactions are left out: they are states of a job ("incomplete"), which
    jobs of other APIs have too.
    """
    shared_rows: dict[str, Row] = {}
    formats = [name for name in FORMATS if name != "gemini_interactions"]
    for rows in (rows_of(CHAT, COMPATIBLE), *map(shared, formats)):
        for raw, row in rows.items():
            shared_rows.setdefault(raw.lower(), row)
            # "failed:…" keeps its first part, since the second one alone has another meaning.
            shared_rows.setdefault(raw.lower().removeprefix("incomplete:"), row)
    return shared_rows


# --- Rows of a value --------------------------------------------------------------------------


def find_provider_row(
    raw: object,
    tables: Iterable[Table] = (),
    *,
    any_provider: bool = True,
) -> Row | None:
    """Return the row of a provider's value; None if no table lists it.

    A value of Responses' `incomplete_details.reason` is found without "incomplete:", which
    frameworks leave out.

    Args:
        raw: the value, as text or as an SDK's object.
        tables: where to look first.
        any_provider: also search the values that providers share.
    """
    value = raw_text(raw)
    if value is None:
        return None
    searched = (*tables, _shared_words()) if any_provider else (*tables,)
    for rows in searched:
        row = find_word(value, rows) or find_word(f"incomplete:{value}", rows)
        if row is not None:
            return row
    # Parts of the value count only if no table lists the whole value.
    return next((row for rows in searched if (row := find_row(value, rows)) is not None), None)


def find_responses_row(response: Any) -> tuple[str, Row | None]:
    """Return the status of an OpenAI Responses object, spelled as in its table, and its row.

    The status is joined with what explains it: "incomplete:max_output_tokens".
    """
    status = text(member(response, "status")).lower()
    is_background = member(response, "background")
    raw = status
    if status == "incomplete":
        reason = member(member(response, "incomplete_details"), "reason")
        raw = f"{status}:{reason}" if reason else status
    elif status == "failed":
        code = member(member(response, "error"), "code")
        raw = f"{status}:{code}" if code else status
    elif status == "queued":
        raw = f"{status}(background)" if is_background else status
    elif status == "in_progress":
        raw = f"{status}({'background' if is_background else 'foreground EOF'})"
    rows = format_tables("openai_responses")
    # The first lookup is strict: other providers have no value for the state of a job. A failure
    # without a row of its own has the row of "failed".
    return raw, find_provider_row(raw, rows, any_provider=False) or find_provider_row(status, rows)


def restrict_resume(row: Row | None, *, allowed: Iterable[Resume] = ()) -> Row | None:
    """Return the row without its way to resume, if that is not allowed.

    A framework that stands between cannot pass on a provider's own way to resume.
    """
    if row is None or row.resume in allowed:
        return row
    return replace(row, resume=Resume.NONE)


def choose_reason(
    raw: object,
    row: Row | None,
    word: object,
    word_row: Row | None,
) -> tuple[object, Row | None]:
    """Choose between the provider's value and the framework's word for it.

    Args:
        raw, row: the provider's value, and its row if it has one.
        word, word_row: the framework's word, and its row if it has one.

    Returns:
        The provider's value, unless it has no row or hides that the response is truncated; and the
        row that counts.
    """
    value = raw_text(raw)
    if value is None:
        return word, word_row
    if row is None:
        # A framework's value without information ("other") leaves an unknown raw value without a
        # row.
        says_nothing = word_row is not None and word_row.reason is StopReason.UNKNOWN
        return value, None if says_nothing else word_row
    if word_row is not None and word_row.incomplete and not row.incomplete:
        return word, word_row
    return value, row


# --- Stops ------------------------------------------------------------------------------------


def stop_of(raw: object, row: Row | None, **facts: Unpack[StopFacts]) -> Stop:
    """Return the Stop of a value whose row was found."""
    value = raw_text(raw)
    return find_stop(raw, {} if value is None or row is None else {value: row}, **facts)


def stop_of_framework(
    raw: object,
    row: Row | None,
    word: object,
    words: Table,
    **facts: Unpack[StopFacts],
) -> Stop:
    """Return the Stop of a response for which the framework has its own word.

    Args:
        raw, row: the provider's value, and its row if it has one.
        word: the framework's word.
        words: the framework's table.
        facts: the other facts of the response.
    """
    word_row = find_row(raw_text(word) or "", words)
    if word_row is not None and word_row.reason is StopReason.TOOL_CALL:
        # The framework received tool calls, even if the provider wrote "stop".
        facts["calls"] = facts.get("calls") or 1
    return stop_of(*choose_reason(raw, row, word, word_row), **facts)
