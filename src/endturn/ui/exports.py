"""The tables that the page offers as files: CSV for spreadsheets, Parquet for programs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from endturn.ui import search
from endturn.ui.numbers import FILTER_LABELS
from endturn.ui.rows import LABELS
from endturn.ui.store import Store
from endturn.ui.views import View

_LABELS: Final = ", ".join(LABELS)
_ALIASES: Final = ", ".join(
    f"{label} AS {name}" for name, label in FILTER_LABELS.items() if name != label
)


@dataclass(frozen=True, slots=True)
class ExportTable:
    """A table that can be exported.

    Attributes:
        query: selects its rows; a WHERE clause is appended.
        time_column: the column that the time range of a view restricts, and that orders the rows.
        has_turns: its rows belong to turns, so the search and the state of a view restrict them.
    """

    query: str
    time_column: str
    has_turns: bool = True


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """A file format: the options of DuckDB's COPY, and the media type."""

    copy_options: str
    media_type: str


TABLES: Final = {
    "turns": ExportTable(
        """
        SELECT
            to_timestamp(start_ns / 1e9) AS started,
            (end_ns - start_ns) / 1e9 AS seconds,
            * EXCLUDE (start_ns, end_ns, lone)
        FROM turns
        """,
        time_column="start_ns",
    ),
    "calls": ExportTable(
        """
        SELECT
            to_timestamp(start_ns / 1e9) AS started,
            (end_ns - start_ns) / 1e9 AS seconds,
            * EXCLUDE (start_ns, end_ns)
        FROM spans
        """,
        time_column="start_ns",
    ),
    "events": ExportTable(
        "SELECT to_timestamp(at_ns / 1e9) AS at, * EXCLUDE (at_ns) FROM events",
        time_column="at_ns",
    ),
    "numbers": ExportTable(
        f"""
        SELECT
            to_timestamp(at_ns / 1e9) AS at, metric, service, instance, le, added, {_LABELS}
        FROM (
            SELECT increments.*, series.* EXCLUDE (at_ns), {_ALIASES}
            FROM increments JOIN series ON id = series
        )
        """,
        time_column="at_ns",
        has_turns=False,
    ),
}
FORMATS: Final = {
    "csv": ExportFormat("FORMAT csv, HEADER", "text/csv; charset=utf-8"),
    "parquet": ExportFormat("FORMAT parquet", "application/vnd.apache.parquet"),
}
FILES: Final = {
    f"{table}.{extension}": (TABLES[table], format_)
    for table in TABLES
    for extension, format_ in FORMATS.items()
}
"""The files by name: the table of each, and its format."""


def export_file(name: str, view: View, store: Store) -> bytes:
    """Return the contents of one of `FILES` with the rows of a view."""
    table, format_ = FILES[name]
    where, parameters = view.where(table.time_column)
    if table.has_turns:
        turns_condition, turns_parameters = search.turns_of(view, store)
        where += turns_condition
        parameters |= turns_parameters
    query = f"{table.query} WHERE {where} ORDER BY {table.time_column}"
    if name.endswith(".csv"):
        columns = store.read_tuples(f"DESCRIBE {query}", parameters)
        selection = ", ".join(_formula_safe(column, type_) for column, type_, *_ in columns)
        query = f"SELECT {selection} FROM ({query})"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        store.read_tuples(f"COPY ({query}) TO '{file}' ({format_.copy_options})", parameters)
        return file.read_bytes()


def _formula_safe(column: str, type_: str) -> str:
    """Return the SQL of a column in which no text is a formula for a spreadsheet.

    A text that would be one begins with an apostrophe instead.
    """
    if type_ != "VARCHAR":
        return f'"{column}"'
    return (
        rf"""regexp_replace("{column}", '^([-=+@\t\r\n＝＋－＠])', """
        rf"""chr(39) || '\1') AS "{column}" """
    )
