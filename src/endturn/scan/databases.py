"""Open SQLite databases without changing their folder."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

SQLITE: Final = b"SQLite format 3\0"
"""The first bytes of a SQLite database."""
_COPY_ATTEMPTS: Final = 5
"""The maximum number of copies of a database in use, until one is consistent."""
_VERSIONS: Final = slice(18, 20)
"""The bytes of a database that show whether it has a write-ahead log."""
_WITH_LOG: Final = b"\x02\x02"

RowReader = Callable[..., Iterator[dict[str, Any]]]
"""`ordered_rows` or `readable_rows`."""


def connect(path: Path, folder: Path) -> sqlite3.Connection:
    """Open a database for reading.

    Args:
        path: the database.
        folder: where a copy may be written.

    Raises:
        sqlite3.Error, OSError: it cannot be opened.
    """
    path = path.resolve()  # SQLite keeps the log next to the database, not next to a link to it
    sidecars = [path.with_name(f"{path.name}-{ending}") for ending in ("wal", "journal")]
    originals = [path, *(sidecar for sidecar in sidecars if sidecar.exists())]
    if len(originals) == 1:
        return sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)
    for _ in range(_COPY_ATTEMPTS):
        before = _versions(originals)
        for original in originals:
            shutil.copyfile(original, folder / original.name)
        if before == _versions(originals):
            break  # nothing was written meanwhile
    return sqlite3.connect(folder / path.name)


def _versions(paths: list[Path]) -> list[tuple[int, int]]:
    return [(path.stat().st_size, path.stat().st_mtime_ns) for path in paths]


def may_have_log(data: bytes) -> bool:
    """Return whether the newest rows of a database may be in a separate log.

    Args:
        data: the beginning of the database.
    """
    return data[_VERSIONS] == _WITH_LOG


def connect_to(data: bytes) -> sqlite3.Connection:
    """Open a database from its bytes, without its write-ahead log.

    Raises:
        sqlite3.Error: it cannot be opened.
    """
    content = bytearray(data)
    content[_VERSIONS] = b"\x01\x01"  # a database in memory has no log
    connection = sqlite3.connect(":memory:")
    try:
        if not hasattr(connection, "deserialize"):  # SQLite can be built without this function
            raise sqlite3.NotSupportedError("this SQLite reads none from memory: unpack it")
        connection.deserialize(bytes(content))
    except BaseException:
        connection.close()
        raise
    return connection


def ordered_rows(
    connection: sqlite3.Connection, table: str, *columns: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table.

    Args:
        columns: the columns to sort by; empty for the order of the database.

    Raises:
        sqlite3.DatabaseError: a page of the table or of an index is damaged.
    """
    order = f" ORDER BY {', '.join(columns)}" if columns else ""
    yield from _rows(connection, f"SELECT * FROM {table}{order}")  # noqa: S608 - a source's constants


def readable_rows(
    connection: sqlite3.Connection, table: str, *columns: str
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a damaged table, without those on its damaged pages.

    The table is read from its beginning and from its end, without its indexes, and sorted here.
    Rows between several damaged pages are lost, too.

    Args:
        columns: as in `ordered_rows`.
    """
    rows: dict[int, dict[str, Any]] = {}
    for direction in ("ASC", "DESC"):
        query = f"SELECT rowid AS _rowid_, * FROM {table} NOT INDEXED ORDER BY rowid {direction}"  # noqa: S608 - as above
        with suppress(sqlite3.DatabaseError):
            for row in _rows(connection, query):
                rows[row.pop("_rowid_")] = row
            break  # the whole table could be read
    yield from sorted(
        (rows[rowid] for rowid in sorted(rows)),
        key=lambda row: [_rank(row.get(column)) for column in columns],
    )


def _rows(connection: sqlite3.Connection, query: str) -> Iterator[dict[str, Any]]:
    cursor = connection.execute(query)
    names = [column[0] for column in cursor.description]
    for values in cursor:
        yield dict(zip(names, values, strict=True))


def _rank(value: Any) -> tuple[Any, ...]:
    """Return the rank of a value in SQLite's order: null, numbers, text, bytes."""
    match value:
        case None:
            return (0,)
        case int() | float():
            return 1, value
        case str():
            return 2, value
    return 3, value
