"""The list of turns: filtered by outcome and by words, sorted, in pages."""

from __future__ import annotations

from typing import Final, NamedTuple

from endturn import settings
from endturn.ui import search
from endturn.ui.rows import Row
from endturn.ui.search import turn_filter
from endturn.ui.store import Store
from endturn.ui.views import View

PAGE_SIZE: Final = 50
DEEPEST: Final = 99
"""The last page that can be requested, since each page sorts all rows before it."""
QUESTION: Final = 80
"""The most characters of a question in the list."""
STATES: Final = {
    "": "All",
    "unfinished": "Unfinished",
    "finished": "Cut, then finished",
    "whole": "Whole",
    "other": "Not answered",
    "open": "Waiting",
}
"""The states of turns, each with the title of its tab."""


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


def turn_list(view: View, store: Store) -> dict[str, object]:
    """Return the values of the template of the list: one page of turns."""
    sort = _one_of(view.parameters.get("sort", ""), SORTS, "newest")
    state = _one_of(view.parameters.get("state", ""), STATES, "")
    where, parameters = view.where()
    search_filter = turn_filter(view, store)
    where, parameters = (
        f"{where} AND {search_filter.condition}",
        parameters | search_filter.parameters,
    )
    query = f"SELECT state, count(*) FROM turns WHERE {where} GROUP BY state"
    counts = dict(store.read_tuples(query, parameters))
    counts[""] = sum(counts.values())
    total = counts.get(state, 0)
    last = min(max(0, (total - 1) // PAGE_SIZE), DEEPEST)
    page = view.parameters.get("page", "0")
    number = min(int(page) if page.isdecimal() and len(page) < 7 else 0, last)
    rows = store.read_rows(
        f"SELECT * FROM turns WHERE {where} AND $state IN ('', state)"
        f" ORDER BY {SORTS[sort].order} LIMIT {PAGE_SIZE} OFFSET {number * PAGE_SIZE}",
        parameters | {"state": state},
    )
    longest = max((row["end_ns"] - row["start_ns"] for row in rows), default=1) or 1
    return {
        "anything": bool(store.read_tuples("SELECT 1 FROM turns LIMIT 1")),
        "rows": rows, "longest": longest, "total": total, "counts": counts,
        "questions": questions(store, rows), "search": search_filter,
        "capture": settings.CAPTURE_CONTENT.name, "is_past": store.past_messages is not None,
        "states": STATES, "state": state, "sorts": SORTS, "sort": sort, "number": number,
        "last": last, "first": number * PAGE_SIZE + 1, "deepest": DEEPEST,
        "question_length": QUESTION, "most_texts": search.MOST_TEXTS,
        "most_words": search.MOST_WORDS, "most_matches": search.MOST_MATCHES,
    }  # fmt: skip


def _one_of(value: str, choices: object, default: str) -> str:
    return value if isinstance(choices, dict) and value in choices else default


_QUESTIONS: Final = """
    WITH user_messages AS (
        SELECT turn_id, span_id, at_ns, question FROM texts SEMI JOIN
            (SELECT unnest($ids::VARCHAR[]) AS turn_id) USING (turn_id)
        WHERE at_ns >= $since AND question IS NOT NULL
        UNION ALL
        SELECT spans.turn_id, span_id, at_ns, question
        FROM (FROM texts WHERE turn_id IS NULL AND at_ns >= $since AND question IS NOT NULL) texts
        JOIN spans USING (span_id)
        WHERE spans.turn_id IN (SELECT unnest($ids::VARCHAR[]))
    ),
    first AS (
        SELECT turn_id, arg_min(span_id, at_ns) AS span_id FROM user_messages GROUP BY turn_id
    )
    SELECT turn_id, arg_max(question, at_ns) FROM user_messages JOIN first USING (turn_id, span_id)
    GROUP BY turn_id
"""
"""The last user message in the first call of each turn; later calls may end in a continuation
prompt. The events of one call follow each other, so the last one counts."""


def questions(store: Store, rows: list[Row]) -> dict[str, str]:
    """Return the beginning of the user's message by turn, if it is recorded."""
    if not rows:
        return {}
    ids = [row["turn_id"] for row in rows]
    if (past := store.past_messages) is not None:
        return {turn_id: text for turn_id in ids if (text := past.question(turn_id))}
    since = min(row["start_ns"] for row in rows)
    return dict(store.read_tuples(_QUESTIONS, {"ids": ids, "since": since}))
