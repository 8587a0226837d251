"""The store of received telemetry, in DuckDB.

One writer thread commits each batch in one transaction, so readers see only complete batches.
"""

from __future__ import annotations

import itertools
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, Protocol

import duckdb

from endturn.calls import COMPLETE, OUTCOMES
from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.ui import bounds
from endturn.ui.recorded_messages import RecordedCall
from endturn.ui.rows import LABELS, Batch, Point, Row, SeriesKey, read_file

VERSION: Final = 4
"""The version of the tables. A file of the previous version is migrated, any other is refused."""
DAY_NS: Final = 24 * 3_600_000_000_000
SWEEP_S: Final = 30.0
LINGER_NS: Final = 30_000_000_000
"""The time after which a truncated turn counts as not continued, if no record of its end can
arrive."""
ABANDONED_NS: Final = 20 * LINGER_NS
"""The same time if a record of its end should come, but has not arrived."""
_LOG: Final = logging.getLogger(__name__)
AGED: Final = {
    "spans": "start_ns",
    "events": "at_ns",
    "texts": "at_ns",
    "turns": "start_ns",
    "increments": "at_ns",
    "series": "at_ns",
}
"""The time column of each table, by which old rows are deleted."""
_CASES: Final = " ".join(
    f"WHEN '{reason}' THEN '{outcome}'" for reason, outcome in OUTCOMES.items()
)
_COMPLETE_OUTCOMES: Final = ", ".join(f"'{outcome}'" for outcome in sorted(COMPLETE))
_REPAIRS: Final = f"""least(greatest(
    try_cast(attributes ->> '$."{schema.TURN_REPAIRS.key}"' AS BIGINT), 0), {bounds.NUMBER})"""
_TURNS: Final = (
    read_file("turns.sql")
    .replace("@outcomes@", _CASES)
    .replace("@complete@", _COMPLETE_OUTCOMES)
    .replace("@repairs@", _REPAIRS)
    .replace("@index@", schema.CONTINUATION_INDEX.key)
    .replace("@strategy@", schema.STRATEGY.key)
)
_LABELS: Final = ", ".join(f"{label} VARCHAR" for label in LABELS)
_TABLES: Final = (
    read_file("tables.sql").replace("@labels@", _LABELS).replace("@version@", str(VERSION))
)
_TEXTS: Final = _TABLES[_TABLES.index("CREATE TABLE texts") :].partition(";")[0]
_FROM_VERSION_3: Final = f"""
ALTER TABLE spans ADD COLUMN conversation VARCHAR;
ALTER TABLE spans ADD COLUMN response_id VARCHAR;
UPDATE spans SET conversation = attributes ->> '$."{schema.CONVERSATION.key}"',
    response_id = attributes ->> '$."{schema.RESPONSE_ID.key}"';
{_TEXTS};
UPDATE meta SET version = {VERSION}"""
"""Statements that migrate a file of version 3."""


SeriesState = tuple[int, Point]
"""The id of a series, and its last point."""


class PastMessages(Protocol):
    """Reads messages again from the files that past calls are in."""

    def call_messages(self, span_id: str) -> RecordedCall:
        """Return the messages of a call, as far as its file still has them."""

    def question(self, turn_id: str) -> str:
        """Return the user's message of a turn; "" if its file does not have it."""


class Store:
    """Spans, events, texts, turns and metrics in one DuckDB database.

    Args:
        path: the DuckDB file; None stores everything in memory.
        keep_ns: the age above which rows are deleted; 0 is no limit.
        most_bytes: the size, on disk or in memory, above which the oldest rows are deleted; 0 is no
            limit.

    Raises:
        UsageError: another process, which the message names, has the file open; or it is not a
            file of this version of endturn, or is damaged.
    """

    def __init__(self, path: Path | None = None, *, keep_ns: int = 0, most_bytes: int = 0) -> None:
        self._path, self._keep_ns, self._most_bytes = path, keep_ns, most_bytes
        # Reads messages of past sessions from their files; None if the store has no past sessions.
        self.past_messages: PastMessages | None = None
        self._db = open_database(path)
        self._series: dict[SeriesKey, SeriesState]
        # A counter by which open pages notice new data. It starts at the current time, so that two
        # processes never count through the same numbers.
        self.commits = time.time_ns()
        try:
            self._begin()
        except duckdb.Error as error:
            with suppress(duckdb.Error):
                self._db.close()
            raise unreadable_error(path, error) from None
        self._waiting: SimpleQueue[tuple[Batch, Future[None]] | None] = SimpleQueue()
        self._swept = time.monotonic()
        self._writer = threading.Thread(
            target=self._write_all, name="endturn-ui-writer", daemon=True
        )
        self._writer.start()

    def submit(self, batch: Batch) -> Future[None]:
        """Queue a batch for writing; the future is done once it is committed."""
        written: Future[None] = Future()
        self._waiting.put((batch, written))
        return written

    def write(self, batch: Batch) -> None:
        """Write a batch, and wait for it."""
        self.submit(batch).result()

    def connection(self) -> duckdb.DuckDBPyConnection:
        """Return a connection for reads and for temporary tables.

        It is closed when its last reference is gone.
        """
        return self._db.cursor()

    def read_tuples(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query as tuples. Any thread may read while the writer writes."""
        with self._db.cursor() as cursor:
            return cursor.execute(query, parameters).fetchall()

    def read_rows(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] = ()
    ) -> list[Row]:
        """Return the rows of a query as dictionaries."""
        with self._db.cursor() as cursor:
            cursor.execute(query, parameters)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def close(self) -> None:
        """Write the queued batches, and close the file."""
        self._waiting.put(None)
        self._writer.join()
        try:
            self._db.close()
        except duckdb.Error as error:
            _LOG.warning("%s cannot be closed cleanly: %s", self._path, first_line(error))

    # --- Tables -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        columns = self.read_tuples(
            "SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal"
        )
        is_own = ("meta", "version") in columns
        version = self.read_tuples("SELECT version FROM meta")[0][0] if is_own else None
        if version == 3:
            with self._transaction():
                for statement in _FROM_VERSION_3.split(";\n"):
                    self._db.execute(statement)
        elif columns and version != VERSION:
            self._db.close()
            raise UsageError(
                f"{self._path} contains no telemetry of this version of endturn: pass another file"
            )
        elif not columns:
            self._db.execute(_TABLES)
            self._db.execute(f"CREATE TABLE turns AS {_TURNS}", {"ids": []})
        self._columns = {
            table: dict(
                self.read_tuples(
                    "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = $1",
                    [table],
                )
            )
            for table in ("spans", "events", "texts", "series", "increments")
        }
        self._series = {}
        for row in self.read_rows("SELECT * FROM series"):
            key = SeriesKey(
                row["metric"],
                row["service"],
                row["instance"],
                tuple(row[label] for label in LABELS),
            )
            last = Point(
                key,
                row["started_ns"],
                row["at_ns"],
                False,
                tuple(row["last"]),
                tuple(row["bounds"]),
            )
            self._series[key] = row["id"], last
        self._numbers = itertools.count(
            1 + max((number for number, _ in self._series.values()), default=0)
        )

    # --- Writing ----------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            with suppress(Empty):  # without new data, old data are still deleted
                request = self._waiting.get(timeout=SWEEP_S)
                if request is None:
                    return
                self._settle(*request)
            if time.monotonic() > self._swept + SWEEP_S:
                self._swept = time.monotonic()
                try:
                    self._sweep(time.time_ns())
                # such as on a full disk: later batches may still fit
                except Exception as error:
                    _LOG.warning("old data cannot be deleted now: %s", error)
                    self._recover(error)

    def _settle(self, batch: Batch, written: Future[None]) -> None:
        if not written.set_running_or_notify_cancel():
            # the request was cancelled before a response, so its exporter sends the batch again
            return
        try:
            self._commit(batch)
        except Exception as error:
            self._recover(error)
            written.set_exception(error)
        else:
            self.commits += 1
            written.set_result(None)

    def _recover(self, error: Exception) -> None:
        """Reopen the file after an error that closes it, such as a full disk at a checkpoint."""
        if isinstance(error, (duckdb.FatalException, duckdb.ConnectionException)):
            _LOG.warning(
                "opening %s again: %s", self._path or "an empty store, since memory is lost", error
            )
            with suppress(duckdb.Error, UsageError):  # until it succeeds, later writes fail too
                self._db.close()
                self._db = open_database(self._path)
                self._begin()

    def _commit(self, batch: Batch) -> None:
        """Write a batch in one transaction."""
        series, increments = self._increments(batch.points, batch.from_file)
        with self._transaction():
            turns = self._add(batch)
            numbers = [number for number, _ in series.values()]
            self._db.execute(
                "DELETE FROM series WHERE id IN (SELECT unnest($1::BIGINT[]))", [numbers]
            )
            self._insert("series", [_series_row(*entry) for entry in series.values()])
            self._insert("increments", increments)
            if turns:
                self._db.execute(
                    "DELETE FROM turns WHERE turn_id IN (SELECT unnest($1::VARCHAR[]))", [turns]
                )
                self._db.execute(f"INSERT INTO turns {_TURNS}", {"ids": turns})
                # turns from files get no further records
                self._end_cut_turns(time.time_ns() + ABANDONED_NS * batch.from_file)
        self._series |= series

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.begin()
        try:
            yield
            self._db.commit()
        except BaseException:
            with suppress(duckdb.TransactionException):  # a failed commit has already ended it
                self._db.rollback()
            raise

    def _add(self, batch: Batch) -> list[str]:
        """Add spans and events that are not stored yet, and return the ids of their turns.

        An exporter sends a batch again if it received no response.
        """
        for table, rows, identity in (
            ("spans", batch.spans, ("start_ns", "span_id", "trace_id")),
            ("events", batch.events, ("at_ns", "name", "span_id", "turn_id", "body")),
            ("texts", batch.texts, ("at_ns", "span_id", "words")),
        ):
            if rows:
                equal = " AND ".join(
                    f"old.{column} IS NOT DISTINCT FROM new.{column}" for column in identity
                )
                since = min(row[identity[0]] for row in rows)
                old = f"FROM {table} old WHERE old.{identity[0]} >= {since} AND {equal}"
                self._insert(table, rows, f"WHERE NOT EXISTS ({old})")
        return sorted({row["turn_id"] for row in (*batch.spans, *batch.events) if row["turn_id"]})

    def _insert(self, table: str, rows: Sequence[Row], where: str = "") -> None:
        if rows:
            columns = self._columns[table]
            lists = [[row[column] for row in rows] for column in columns]
            columns_by_number = enumerate(columns.items(), 1)
            selection = ", ".join(
                f'unnest(${n}::{kind}[]) AS "{column}"' for n, (column, kind) in columns_by_number
            )
            self._db.execute(
                f"INSERT INTO {table} SELECT DISTINCT * FROM (SELECT {selection}) new {where}",
                lists,
            )

    def _increments(
        self, points: Iterable[Point], from_file: bool
    ) -> tuple[dict[SeriesKey, SeriesState], list[Row]]:
        """Return the new state of each series that points change, and the rows of increments."""
        changed: dict[SeriesKey, SeriesState] = {}
        rows: list[Row] = []
        repeated: set[tuple[int, int]] = set()
        for point in points:
            number, last = (
                changed.get(point.series)
                or self._series.get(point.series)
                or (next(self._numbers), None)
            )
            if last is None or point.at_ns > last.at_ns:
                changed[point.series] = number, point
            elif (
                not point.delta
                or (number, point.at_ns) in repeated
                or self._holds(number, point.at_ns)
            ):
                continue  # sent again, or already counted by a later export
            repeated.add((number, point.at_ns))
            rows += [
                {"at_ns": point.at_ns, "series": number, "le": le, "added": value}
                for le, value in zip(
                    (None, *point.bounds), _increments_of(point, last, from_file), strict=False
                )
                if value
            ]
        return changed, rows

    def _holds(self, series: int, at_ns: int) -> bool:
        return bool(
            self.read_tuples(
                "SELECT 1 FROM increments WHERE at_ns = $1 AND series = $2 LIMIT 1", [at_ns, series]
            )
        )

    # --- Forgetting -------------------------------------------------------------------------------

    def _sweep(self, now_ns: int) -> None:
        """Delete data that are too old; above the size limit, delete the oldest tenth."""
        self.commits += self._end_cut_turns(now_ns)
        if self._keep_ns:
            self._forget(now_ns - self._keep_ns)
        if self._most_bytes and self.size() > self._most_bytes:
            when = " UNION ALL ".join(
                f"SELECT {column} AS old FROM {table}" for table, column in AGED.items()
            )
            self._forget(
                self.read_tuples(f"SELECT coalesce(quantile_disc(old, 0.1), -1) + 1 FROM ({when})")[
                    0
                ][0]
            )

    def _forget(self, before_ns: int) -> None:
        with self._transaction():
            for table, column in AGED.items():
                self._db.execute(f"DELETE FROM {table} WHERE {column} < $1", [before_ns])
        # while a query runs, the freed space is reused only after the next checkpoint
        with suppress(duckdb.TransactionException):
            self._db.checkpoint()
        self._series = {
            key: entry for key, entry in self._series.items() if entry[1].at_ns >= before_ns
        }

    def _end_cut_turns(self, now_ns: int) -> int:
        """End truncated turns without a record of their end; return their number."""
        over = "state = 'open' AND truncated AND end_ns < $1 - CASE WHEN lone THEN $2 ELSE $3 END"
        query = f"UPDATE turns SET outcome = 'not_continued', state = 'unfinished' WHERE {over}"
        return int(self._db.execute(query, [now_ns, LINGER_NS, ABANDONED_NS]).fetchall()[0][0])

    def size(self) -> int:
        """Return the number of bytes in use, on disk or in memory."""
        if self._path is None:
            return int(
                self.read_tuples(
                    "SELECT coalesce(sum(memory_usage_bytes), 0) FROM duckdb_memory()"
                )[0][0]
            )
        return int(
            self.read_tuples("SELECT sum(block_size * used_blocks) FROM pragma_database_size()")[0][
                0
            ]
        )


def _increments_of(point: Point, last: Point | None, from_file: bool) -> tuple[float, ...]:
    """Return the increments of a point since the last one. A counter that restarts counts from 0.

    The first point of a series counts in full if its process started within the last hour, or if it
    comes from a file: then no earlier point exists. Otherwise it is only the base of later ones.
    """
    if point.delta:
        return point.values
    if last is None:
        counts = from_file or 0 < point.at_ns - point.started_ns <= DAY_NS // 24
        return point.values if counts else tuple(0.0 for _ in point.values)
    if (point.started_ns, point.bounds) != (last.started_ns, last.bounds):
        return point.values
    differences = tuple(new - old for new, old in zip(point.values, last.values, strict=True))
    return point.values if min(differences) < 0 else differences


def _series_row(number: int, last: Point) -> Row:
    key = last.series
    key_columns = {
        "id": number,
        "metric": key.metric,
        "service": key.service,
        "instance": key.instance,
    }
    state_columns = {
        "started_ns": last.started_ns,
        "at_ns": last.at_ns,
        "last": last.values,
        "bounds": last.bounds,
    }
    return key_columns | state_columns | dict(zip(LABELS, key.labels, strict=True))


def open_database(path: Path | None, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """Open a database.

    Raises:
        UsageError: it cannot be opened; the message names a process that has the file open.
    """
    try:
        # DuckDB downloads no extension: the page works without a network.
        return duckdb.connect(
            str(path or ":memory:"), read_only, {"autoinstall_known_extensions": "false"}
        )
    except duckdb.Error as error:
        if holder := re.search(r"lock is held in (.+?) \(PID (\d+)\)", str(error)):
            raise UsageError(
                f"{path} is open in another process, {holder[1]} (pid {holder[2]}): end it, or "
                f"pass another --file"
            ) from None
        raise unreadable_error(path, error) from None


def unreadable_error(path: Path | None, error: duckdb.Error) -> UsageError:
    """Return the error for a file that DuckDB cannot open or read."""
    advice = (
        "if it is damaged, restore a copy, or move it away so that a new one is created; else pass "
        "another --file"
    )
    return UsageError(f"{path} cannot be used: {first_line(error)}\n  {advice}")


def first_line(error: Exception) -> str:
    """Return the message of a DuckDB error without a stack trace."""
    return bounds.shorten(str(error).strip().partition("\n")[0], 500)
