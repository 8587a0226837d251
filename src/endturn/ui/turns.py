"""The list of turns: by outcome, in an order, filtered by words."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from endturn import settings
from endturn.ui import search
from endturn.ui.rows import Row
from endturn.ui.search import turn_filter
from endturn.ui.store import Store
from endturn.ui.views import View

PAGE_SIZE: Final = 50
DEEPEST: Final = 99
"""The last page that can be asked for: each one costs a sort of all those before it."""
QUESTION: Final = 80
"""Characters that the list shows of a question."""
STATES: Final = {
    "": "All",
    "unfinished": "Unfinished",
    "finished": "Cut, then finished",
    "whole": "Whole",
    "other": "Not answered",
    "open": "Waiting",
}
"""What became of a turn, and the name of its tab."""


class Sort(NamedTuple):
    """An order of the list: its name on the page, and its SQL."""

    title: str
    order: str


_SEVERITY: Final = (
    "CASE state WHEN 'unfinished' THEN 0 WHEN 'other' THEN 1 WHEN 'open' THEN 2"
    " WHEN 'finished' THEN 3 ELSE 4 END"
)
SORTS: Final = {
    "newest": Sort("Newest", "start_ns DESC"),
    "worst": Sort("Worst", f"{_SEVERITY}, continuations + repairs DESC, start_ns DESC"),
    "longest": Sort("Longest", "end_ns - start_ns DESC, start_ns DESC"),
}


def turn_list(view: View, store: Store) -> dict[str, Any]:
    """Return what the template of the list shows: one page of turns."""
    sort = _one_of(view.given.get("sort", ""), SORTS, "newest")
    state = _one_of(view.given.get("state", ""), STATES, "")
    where, parameters = view.where()
    asked = turn_filter(view, store)
    where, parameters = f"{where} AND {asked.condition}", parameters | asked.parameters
    query = f"SELECT state, count(*) FROM turns WHERE {where} GROUP BY state"
    counts = dict(store.read(query, parameters))
    counts[""] = sum(counts.values())
    total = counts.get(state, 0)
    last = min(max(0, (total - 1) // PAGE_SIZE), DEEPEST)
    page = view.given.get("page", "0")
    number = min(int(page) if page.isdecimal() and len(page) < 7 else 0, last)
    rows = store.read_rows(
        f"SELECT * FROM turns WHERE {where} AND $state IN ('', state)"
        f" ORDER BY {SORTS[sort].order} LIMIT {PAGE_SIZE} OFFSET {number * PAGE_SIZE}",
        parameters | {"state": state},
    )
    longest = max((row["end_ns"] - row["start_ns"] for row in rows), default=1) or 1
    return {
        "anything": bool(store.read("SELECT 1 FROM turns LIMIT 1")),
        "rows": rows, "longest": longest, "total": total, "counts": counts,
        "questions": questions(store, rows), "search": asked,
        "capture": settings.CAPTURE_CONTENT.name, "is_past": store.past_messages is not None,
        "states": STATES, "state": state, "sorts": SORTS, "sort": sort, "number": number,
        "last": last, "first": number * PAGE_SIZE + 1, "deepest": DEEPEST,
        "question_length": QUESTION, "most_texts": search.MOST_TEXTS,
        "most_words": search.MOST_WORDS, "most_matches": search.MOST_MATCHES,
    }  # fmt: skip


def _one_of(value: str, choices: object, default: str) -> str:
    return value if isinstance(choices, dict) and value in choices else default


_QUESTIONS: Final = """
    WITH asked AS (
        SELECT turn_id, span_id, at_ns, question FROM texts SEMI JOIN
            (SELECT unnest($ids::VARCHAR[]) AS turn_id) USING (turn_id)
        WHERE at_ns >= $since AND question IS NOT NULL
        UNION ALL
        SELECT spans.turn_id, span_id, at_ns, question
        FROM (FROM texts WHERE turn_id IS NULL AND at_ns >= $since AND question IS NOT NULL) texts
        JOIN spans USING (span_id)
        WHERE spans.turn_id IN (SELECT unnest($ids::VARCHAR[]))
    ),
    first AS (SELECT turn_id, arg_min(span_id, at_ns) AS span_id FROM asked GROUP BY turn_id)
    SELECT turn_id, arg_max(question, at_ns) FROM asked JOIN first USING (turn_id, span_id)
    GROUP BY turn_id
"""
"""The last message of the user in the first call of each turn: later calls may end in a request to
go on. The events of one call come one after the other."""


def questions(store: Store, rows: list[Row]) -> dict[str, str]:
    """Return the beginning of the user's message by turn, where it is recorded."""
    if not rows:
        return {}
    ids = [row["turn_id"] for row in rows]
    if (past := store.past_messages) is not None:
        return {turn_id: text for turn_id in ids if (text := past.question(turn_id))}
    since = min(row["start_ns"] for row in rows)
    return dict(store.read(_QUESTIONS, {"ids": ids, "since": since}))
