"""The tables that can be downloaded as files, and the file types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.ui.numbers import OF_WHOM
from endturn.ui.rows import LABELS


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be downloaded.

    Attributes:
        query: selects the rows, without a condition and an order.
        time_column: the column that says when a row was.
        is_searched: the view's search for turns applies to its rows.
    """

    query: str
    time_column: str
    is_searched: bool = True


@dataclass(frozen=True, slots=True)
class FileType:
    """A type of file.

    Attributes:
        options: DuckDB's options of COPY.
        media_type: as in the header Content-Type.
    """

    options: str
    media_type: str


@dataclass(frozen=True, slots=True)
class Download:
    """A table as a file."""

    table: Table
    file_type: FileType


_STARTED: Final = (
    "SELECT to_timestamp(start_ns / 1e9) AS started, (end_ns - start_ns) / 1e9 AS seconds"
)
_ALIASES: Final = ", ".join(
    f"{label} AS {name}" for name, label in OF_WHOM.items() if name != label
)
# The names are of our own tables and columns.
_NUMBERS: Final = f"""
SELECT to_timestamp(at_ns / 1e9) AS at, metric, service, instance, le, added, {", ".join(LABELS)}
FROM (
    SELECT increments.*, series.* EXCLUDE (at_ns), {_ALIASES}
    FROM increments JOIN series ON id = series
)
"""

TABLES: Final = {
    "turns": Table(f"{_STARTED}, * EXCLUDE (start_ns, end_ns, lone) FROM turns", "start_ns"),
    "calls": Table(f"{_STARTED}, * EXCLUDE (start_ns, end_ns) FROM spans", "start_ns"),
    "events": Table(
        "SELECT to_timestamp(at_ns / 1e9) AS at, * EXCLUDE (at_ns) FROM events", "at_ns"
    ),
    "numbers": Table(_NUMBERS, "at_ns", is_searched=False),
}
FILE_TYPES: Final = {
    "csv": FileType("FORMAT csv, HEADER", "text/csv; charset=utf-8"),
    "parquet": FileType("FORMAT parquet", "application/vnd.apache.parquet"),
}
DOWNLOADS: Final = {
    f"{name}.{extension}": Download(table, file_type)
    for name, table in TABLES.items()
    for extension, file_type in FILE_TYPES.items()
}
"""The downloads by the names of their files."""
