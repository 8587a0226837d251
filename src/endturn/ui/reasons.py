"""The page of stop reasons: the table of known values, and how often each was received."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Final

from endturn.frameworks import MEANING, RESUMES, Entry, is_of, table
from endturn.ui.store import Store
from endturn.ui.views import View
from endturn.vocabulary import PROVIDERS, StopReason

MOST_WORDS: Final = 30
"""The most normalised reasons that the page counts: senders may use other words."""
MOST_OPEN: Final = 60
"""The most matches that are shown unfolded; more are folded by API."""


def reasons_page(view: View, store: Store) -> dict[str, object]:
    """Return the values of the template.

    The values with calls in the view come first, then the others by API. A text filters both.
    """
    where, parameters = view.where()
    columns = "provider, operation, lower(raw), reason, count(*)"
    endings = store.read_tuples(
        f"SELECT {columns} FROM spans WHERE {where} AND reason IS NOT NULL GROUP BY ALL", parameters
    )
    mix, unknown, calls_of = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for provider, operation, raw, reason, calls in endings:
        mix[reason] += calls
        entry = _entry(provider, operation, raw, reason)
        if entry is not None:
            calls_of[entry.api.name, entry.raw] += calls
        elif raw is not None and (reason == StopReason.UNKNOWN or raw not in _raw_reasons()):
            unknown[raw] += calls
    text = view.parameters.get("q", "").strip().lower()[:100]
    rows = [
        (entry, calls_of[entry.api.name, entry.raw])
        for entry in table()
        if text in f"{entry.api.name} {entry.raw} {entry.normalized}".lower()
    ]
    rows_with_calls = sorted((row for row in rows if row[1]), key=lambda row: -row[1])
    others: dict[str, list[Entry]] = defaultdict(list)
    for entry, calls in rows:
        if not calls:
            others[entry.api.name].append(entry)
    return {
        "rows": rows_with_calls, "others": dict(others), "matches": len(rows), "all": len(table()),
        "resume_of": _resume_of, "unknown": unknown, "q": view.parameters.get("q", "")[:100],
        "is_unfolded": bool(text) and len(rows) - len(rows_with_calls) <= MOST_OPEN,
        "mix": dict(mix.most_common(MOST_WORDS)), "more_words": len(mix) - MOST_WORDS,
        "meaning": MEANING,
    }  # fmt: skip


def _resume_of(entry: Entry) -> str:
    """Return how to resume an answer with a stop reason; "" for one that is complete."""
    if entry.normalized in (StopReason.END_TURN, StopReason.TOOL_CALL):
        return ""
    return RESUMES[entry.row.resume]


@cache
def _entries() -> dict[tuple[str | None, str], list[Entry]]:
    """Return the table by native value in lower case and normalised reason."""
    entries: dict[tuple[str | None, str], list[Entry]] = defaultdict(list)
    for entry in table():
        entries[entry.raw.lower(), entry.normalized].append(entry)
    return dict(entries)


@cache
def _raw_reasons() -> frozenset[str]:
    """Return all native values of the table, in lower case."""
    return frozenset(entry.raw.lower() for entry in table())


def _entry(provider: str | None, operation: str, raw: str | None, reason: str) -> Entry | None:
    """Return the table entry of a call's stop reason.

    If several APIs of its provider have that value, the entry is that of the most likely API.
    """
    fits = _entries().get((raw, reason), [])
    usual = PROVIDERS[provider].format if provider and provider in PROVIDERS else ""
    own = [entry for entry in fits if provider and is_of(entry, provider)] or fits
    end = ".completions" if operation == "text_completion" else ".chat"
    return min(
        own,
        key=lambda entry: (not entry.api.name.endswith(end), usual not in dict(entry.formats)),
        default=None,
    )
