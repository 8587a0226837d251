"""The page of stop reasons: the vocabulary, and what of it has been seen."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cache
from typing import Any, Final

from endturn.frameworks import MEANING, RESUMES, Entry, is_of, table
from endturn.ui.store import Store
from endturn.ui.views import View
from endturn.vocabulary import PROVIDERS

MOST_WORDS: Final = 30
"""How many of our words the page counts: anybody may send others."""


def shown(view: View, store: Store) -> dict[str, Any]:
    """Every value of every API, those first that calls of the view ended with.

    Filtered by a text.
    """
    where, asked = view.where()
    columns = "provider, operation, lower(raw), reason, count(*)"
    seen = store.read(
        f"SELECT {columns} FROM spans WHERE {where} AND reason IS NOT NULL GROUP BY ALL", asked
    )
    mix, unknown, found = Counter[str](), Counter[str](), Counter[tuple[str, str]]()
    for provider, operation, raw, reason, calls in seen:
        mix[reason] += calls
        entry = _entry(provider, operation, raw, reason)
        if entry is not None:
            found[entry.api.name, entry.raw] += calls
        elif raw is not None:
            unknown[raw] += calls
    text = view.given.get("q", "").strip().lower()[:100]
    rows = [
        (entry, found[entry.api.name, entry.raw])
        for entry in table()
        if text in f"{entry.api.name} {entry.raw} {entry.normalized}".lower()
    ]
    rows.sort(key=lambda row: -row[1])  # stable: within a number of calls as the table has them
    return {
        "rows": rows, "all": len(table()), "resumes": RESUMES, "unknown": unknown,
        "q": view.given.get("q", "")[:100], "mix": dict(mix.most_common(MOST_WORDS)),
        "others": len(mix) - MOST_WORDS, "meaning": MEANING,
    }  # fmt: skip


@cache
def _entries() -> dict[tuple[str | None, str], list[Entry]]:
    """The table by a value in lower case and our word for it."""
    found: dict[tuple[str | None, str], list[Entry]] = defaultdict(list)
    for entry in table():
        found[entry.raw.lower(), entry.normalized].append(entry)
    return dict(found)


def _entry(provider: str | None, operation: str, raw: str | None, reason: str) -> Entry | None:
    """Return the table entry of the stop reason that a call ended with.

    Where several APIs of its provider have that value, the entry is of the most likely one.
    """
    fits = _entries().get((raw, reason), [])
    usual = PROVIDERS[provider].format if provider and provider in PROVIDERS else ""
    own = [entry for entry in fits if provider and is_of(entry, provider)] or fits
    end = ".completions" if operation == "text_completion" else ".chat"
    return min(
        own,
        key=lambda each: (not each.api.name.endswith(end), usual not in dict(each.formats)),
        default=None,
    )
