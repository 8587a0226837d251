"""The page of stop reasons: the vocabulary, and what of it has been seen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from endturn import reasons
from endturn.reasons import MEANING, RESUMES, is_of
from endturn.ui.store import Store
from endturn.ui.views import View


def shown(view: View, store: Store) -> dict[str, Any]:
    """Every value of every API, those first that calls of the view ended with; filtered by a text."""
    where, asked = view.where()
    columns = "provider, lower(raw), reason, count(*)"
    seen = store.read(f"SELECT {columns} FROM spans WHERE {where} AND reason IS NOT NULL GROUP BY ALL", asked)
    mix: Counter[str] = Counter()
    for _, _, reason, calls in seen:
        mix[reason] += calls
    text = view.given.get("q", "").strip().lower()[:100]
    table = reasons.table()
    rows = [
        (entry, sum(
            calls for provider, raw, reason, calls in seen
            if (raw, reason) == (entry.raw.lower(), entry.normalized) and (not provider or is_of(entry, provider))
        ))
        for entry in table if text in f"{entry.api.name} {entry.raw} {entry.normalized}".lower()
    ]  # fmt: skip
    known = {(entry.raw.lower(), entry.normalized) for entry in table}
    unknown = [
        {"raw": raw, "seen": calls} for _, raw, reason, calls in seen if raw is not None and (raw, reason) not in known
    ]
    rows.sort(key=lambda row: -row[1])  # stable: within a number of calls as the table has them
    return {
        "rows": rows, "all": len(table), "resumes": RESUMES, "unknown": unknown, "q": view.given.get("q", "")[:100],
        "mix": dict(mix.most_common()), "meaning": MEANING,
    }  # fmt: skip
