"""The overview's numbers counted from spans and turns, for services that send no metrics."""

from __future__ import annotations

from typing import Final

from endturn.ui.rows import MODEL_CALLS, Row
from endturn.ui.store import Store
from endturn.ui.views import View
from endturn.vocabulary import StopReason

_COUNTS: Final = (
    "responses", "answers", "truncated_responses", "turns", "unfinished",
    "not_continued", "truncated_turns", "continuations",
)  # fmt: skip
_CALLS: Final = ", ".join(f"'{operation}'" for operation in MODEL_CALLS)
_SELECTED: Final = ", ".join(f"coalesce({name}, 0) AS {name}" for name in _COUNTS)
_QUERY: Final = f"""
    WITH calls AS (
        SELECT service, coalesce(provider, '') AS provider, coalesce(model, '') AS model,
            count(*) AS responses,
            count_if(reason <> '{StopReason.ERROR.value}') AS answers,
            count_if(truncated) AS truncated_responses
        FROM spans WHERE {{where}} AND operation IN ({_CALLS}) AND reason IS NOT NULL GROUP BY ALL
    ),
    ended AS (
        SELECT service, coalesce(provider, '') AS provider, coalesce(model, '') AS model,
            count(*) AS turns,
            count_if(state = 'unfinished') AS unfinished,
            count_if(state = 'unfinished' AND outcome = 'not_continued') AS not_continued,
            count_if(state IN ('finished', 'unfinished')) AS truncated_turns,
            sum(continuations)::HUGEINT AS continuations
        FROM turns WHERE {{where}} AND state <> 'open' AND outcome NOT IN ('cancelled', 'stopped')
        GROUP BY ALL
    )
    SELECT service, provider, model, {_SELECTED}
    FROM calls FULL JOIN ended USING (service, provider, model)
"""


def span_counts(view: View, store: Store) -> tuple[Row, list[Row]]:
    """Return the overview's indicators in total, and by service and model.

    Responses are counted from calls, everything else from turns that ended. A share is None if its
    denominator is 0.
    """
    where, parameters = view.where()
    rows = store.read_rows(_QUERY.format(where=where), parameters)
    total = {name: sum(row[name] for row in rows) for name in _COUNTS}
    table = [row | _shares(row) for row in rows]
    table.sort(
        key=lambda row: (-row["unfinished"], -(row["truncation"] or 0), -row["responses"],
                         row["service"], row["model"])
    )  # fmt: skip
    return total | _shares(total), table


def _shares(counts: Row) -> Row:
    return {
        "truncation": _share(counts, "truncated_responses", "answers"),
        "unfinished_share": _share(counts, "unfinished", "truncated_turns"),
    }


def _share(counts: Row, part: str, of: str) -> float | None:
    return counts[part] / counts[of] if counts[of] else None
