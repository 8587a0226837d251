"""Tables of the store as files: CSV for people and spreadsheets, Parquet for programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from endturn.ui.rows import LABELS
from endturn.ui.store import Store
from endturn.ui.views import View

_LABELS: Final = ", ".join(LABELS)
TABLES: Final = {
    "turns": ("SELECT make_timestamp_ns(start_ns) AS started, (end_ns - start_ns) / 1e9 AS seconds,"
              " * EXCLUDE (start_ns, end_ns) FROM turns WHERE {where} ORDER BY start_ns", "start_ns"),
    "calls": ("SELECT make_timestamp_ns(start_ns) AS started, (end_ns - start_ns) / 1e9 AS seconds,"
              " * EXCLUDE (start_ns, end_ns) FROM spans WHERE {where} ORDER BY start_ns", "start_ns"),
    "events": ("SELECT make_timestamp_ns(at_ns) AS at, * EXCLUDE (at_ns) FROM events WHERE {where} ORDER BY at_ns",
               "at_ns"),
    "numbers": (f"SELECT make_timestamp_ns(at_ns) AS at, metric, service, instance, le, added, {_LABELS} FROM"
                " (SELECT increments.*, series.* EXCLUDE (at_ns), gen_ai_provider_name AS provider,"
                " gen_ai_request_model AS model FROM increments JOIN series ON series.id = increments.series)"
                " WHERE {where} ORDER BY at_ns", "at_ns"),
}  # fmt: skip
"""A query for each table, and the column that says when."""
FORMATS: Final = {
    "csv": ("FORMAT csv, HEADER", "text/csv; charset=utf-8"),
    "parquet": ("FORMAT parquet", "application/vnd.apache.parquet"),
}


def names() -> list[str]:
    """What can be asked for."""
    return [f"{table}.{format_}" for table in TABLES for format_ in FORMATS]


def export(store: Store, view: View, name: str) -> tuple[bytes, str] | None:
    """A table's rows within a view, with the media type; None where there is no such table."""
    table, _, format_ = name.partition(".")
    if table not in TABLES or format_ not in FORMATS:
        return None
    query, at = TABLES[table]
    where, parameters = view.where(at)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        store.copy(query.format(where=where), parameters, file, FORMATS[format_][0])
        return file.read_bytes(), FORMATS[format_][1]
