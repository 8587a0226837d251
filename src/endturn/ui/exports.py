"""Tables of the store as files: CSV for people and spreadsheets, Parquet for programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from endturn.ui.rows import LABELS
from endturn.ui.store import Store
from endturn.ui.views import View

_LASTING: Final = (
    "make_timestamp_ns(start_ns) AS started, (end_ns - start_ns) / 1e9 AS seconds, * EXCLUDE (start_ns, end_ns)"
)
TABLES: Final = {
    "turns": (_LASTING, "turns", "start_ns"),
    "calls": (_LASTING, "spans", "start_ns"),
    "events": ("make_timestamp_ns(at_ns) AS at, * EXCLUDE (at_ns)", "events", "at_ns"),
    "numbers": (
        f"make_timestamp_ns(at_ns) AS at, metric, service, instance, le, added, {', '.join(LABELS)}",
        "(SELECT increments.*, series.* EXCLUDE (at_ns), gen_ai_provider_name AS provider, gen_ai_request_model AS"
        " model FROM increments JOIN series ON series.id = increments.series)",
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
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        store.copy(f"SELECT {columns} FROM {source} WHERE {where} ORDER BY {at}", parameters, file, FORMATS[format_][0])
        return file.read_bytes(), FORMATS[format_][1]
