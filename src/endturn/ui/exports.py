"""Tables of the store as files: CSV for people and spreadsheets, Parquet for programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from endturn.ui.numbers import OF_WHOM
from endturn.ui.rows import LABELS
from endturn.ui.store import Store
from endturn.ui.views import View

_LASTING: Final = (
    "make_timestamp_ns(start_ns) AS started, (end_ns - start_ns) / 1e9 AS seconds, * EXCLUDE (start_ns, end_ns)"
)
_ALIASES: Final = ", ".join(f"{label} AS {name}" for name, label in OF_WHOM.items() if name != label)
TABLES: Final = {
    "turns": (_LASTING, "turns", "start_ns"),
    "calls": (_LASTING, "spans", "start_ns"),
    "events": ("make_timestamp_ns(at_ns) AS at, * EXCLUDE (at_ns)", "events", "at_ns"),
    "numbers": (
        f"make_timestamp_ns(at_ns) AS at, metric, service, instance, le, added, {', '.join(LABELS)}",
        f"(SELECT increments.*, series.* EXCLUDE (at_ns), {_ALIASES} FROM increments JOIN series ON id = series)",
        "at_ns",
    ),
}
"""Of each table its columns, where they are, and the column that says when."""
FORMATS: Final = {
    "csv": ("FORMAT csv, HEADER", "text/csv; charset=utf-8"),
    "parquet": ("FORMAT parquet", "application/vnd.apache.parquet"),
}


NAMES: Final = [f"{table}.{format_}" for table in TABLES for format_ in FORMATS]


def export(store: Store, view: View, name: str) -> tuple[bytes, str] | None:
    """A table's rows within a view, with the media type; None where there is no such table."""
    if name not in NAMES:
        return None
    table, _, format_ = name.partition(".")
    columns, source, at = TABLES[table]
    where, parameters = view.where(at)
    if (state := view.given.get("state")) and table != "numbers":
        where += " AND turn_id IN (SELECT turn_id FROM turns WHERE state = $state)"
        parameters["state"] = state
    query = f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {at}"
    if format_ == "csv":
        described = store.read(f"DESCRIBE {query}", parameters)
        query = f"SELECT {', '.join(_inert(column, kind) for column, kind, *_ in described)} FROM ({query})"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        store.copy(query, parameters, file, FORMATS[format_][0])
        return file.read_bytes(), FORMATS[format_][1]


def _inert(column: str, kind: str) -> str:
    """A column as a spreadsheet may open it: a text that would be a formula there begins with an apostrophe."""
    if kind != "VARCHAR":
        return f'"{column}"'
    return rf"""regexp_replace("{column}", '^([-=+@\t\r])', chr(39) || '\1') AS "{column}" """
