"""The meaning of every API's stop reasons (`data/stop_reasons.tsv`, `data/dialects.tsv`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from endturn.vocabulary.stop import TRUNCATED, Resume, Row, StopReason
from endturn.vocabulary.tsv import package_data, read_tsv

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

COMPATIBLE: Final = "compatible"
"""The dialect of a server of an unknown provider."""

CHAT: Final = "openai_chat"
"""The format whose values are valid in all others: most compatible servers support it first."""


@dataclass(frozen=True, slots=True)
class Api:
    """The name of an API, and the paths of its stop reason, for one dialect of a format.

    Attributes:
        name: as `endturn reasons` prints it, "openai.chat".
        path: of the stop reason in a body, "choices[i].finish_reason".
        stream_path: of the stop reason in a stream.
    """

    name: str
    path: str
    stream_path: str


class Tables(NamedTuple):
    """The two tables.

    Attributes:
        rows: format → dialect → raw value → row. The dialect "" is the format's own provider.
        apis: format → dialect → API; a dialect without a provider has none.
        shared: format → raw value → row, for any server of the format.
    """

    rows: Mapping[str, Mapping[str, Mapping[str, Row]]]
    apis: Mapping[str, Mapping[str, Api]]
    shared: Mapping[str, Mapping[str, Row]]

    def fallback(self, format_: str) -> Mapping[str, Row]:
        """Return the rows for raw values that a dialect of the format has no row of."""
        format_rows = self.shared.get(format_, {})
        return {**format_rows, **self.shared.get(CHAT, {}), **format_rows}

    def lookup(self, format_: str, dialect: str) -> Mapping[str, Row]:
        """Return the table for replies in a dialect; its own rows win over shared ones."""
        dialects = self.rows[format_]
        dialect_rows = dialects.get(dialect) or dialects.get(COMPATIBLE) or dialects[""]
        return {**dialect_rows, **self.fallback(format_), **dialect_rows}


def tables(format_: str) -> Mapping[str, Mapping[str, Row]]:
    """Return the declared rows by dialect and raw value, without what compatible servers share."""
    return _shipped().rows[format_]


def shared(format_: str) -> Mapping[str, Row]:
    """Return the rows by raw value that all servers of a format share."""
    return _shipped().shared.get(format_, {})


def apis(format_: str) -> Mapping[str, Api]:
    """Return the APIs by dialect."""
    return _shipped().apis[format_]


@cache
def rows_of(format_: str, dialect: str) -> Mapping[str, Row]:
    """Return the table for replies in a dialect: its own rows, then shared ones.

    An unknown dialect is read as that of a compatible server, or else of the format's own provider.
    """
    return _shipped().lookup(format_, dialect)


@cache
def private(format_: str, dialect: str) -> Mapping[str, Row]:
    """Return the rows of a dialect that no other server has."""
    package_tables = _shipped()
    return {
        raw: row
        for raw, row in package_tables.rows[format_].get(dialect, {}).items()
        if raw not in package_tables.shared[format_]
    }


def with_fallback(format_: str, rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return a table of a format with the shared rows of compatible servers after it."""
    return {**rows, **_shipped().fallback(format_), **rows}


@cache
def _shipped() -> Tables:
    return read_tables(package_data())


def read_tables(folder: Traversable) -> Tables:
    """Read the tables of a folder.

    Raises:
        ValueError: a line is invalid; the message begins with its file and number.
    """
    own_rows, shared, first_lines = _declared_rows(folder)
    rows: dict[str, dict[str, Mapping[str, Row]]] = {}
    apis: dict[str, dict[str, Api]] = {}
    for location, (format_, dialect, includes, *api) in read_tsv(
        folder, "dialects.tsv", range(3, 7)
    ):
        if not api or not api[0]:
            raise ValueError(
                f"{location}: the dialect {dialect!r} has no api: write the name that "
                f"`endturn reasons` prints, such as 'acme.chat', or '-' if it prints none"
            )
        dialect_rows, dialect_apis = rows.setdefault(format_, {}), apis.setdefault(format_, {})
        if dialect in dialect_rows:
            raise ValueError(f"{location}: {format_!r} already has a dialect {dialect!r}")
        inherited: dict[str, Row] = {}
        for include in includes.split():
            source, _, part = include.partition("/")
            if part not in rows.get(source, {}):
                raise ValueError(f"{location}: no row of {include!r} above it")
            inherited |= {
                raw: row for raw, row in rows[source][part].items() if raw not in inherited
            }
        dialect_rows[dialect] = inherited | own_rows.get(format_, {}).get(dialect, {})
        if api != ["-"]:
            home = dialect_apis.get("")
            paths = api[1:] + ([home.path, home.stream_path][len(api) - 1 :] if home else [])
            if len(paths) != 2:
                raise ValueError(f"{location}: path or stream_path is missing")
            dialect_apis[dialect] = Api(api[0], *paths)
    for (format_, dialect), location in first_lines.items():
        if format_ not in rows:
            raise ValueError(
                f"{location}: dialects.tsv has no format {format_!r}: add a row for it to "
                f"dialects.tsv, or correct it"
            )
        if dialect not in rows[format_]:
            raise ValueError(
                f"{location}: {format_!r} has no dialect {dialect!r}: add a row for it to "
                f"dialects.tsv, or correct it"
            )
    return Tables(rows, apis, shared)


_Rows = dict[str, dict[str, dict[str, Row]]]


def _declared_rows(
    folder: Traversable,
) -> tuple[_Rows, dict[str, dict[str, Row]], dict[tuple[str, str], str]]:
    """Return the file's rows, the shared rows, and the first line of each dialect.

    The rows are by format, dialect and raw value; the shared rows by format and raw value; the
    lines by format and dialect.
    """
    rows_by_format: _Rows = {}
    shared: dict[str, dict[str, Row]] = {}
    first_lines: dict[tuple[str, str], str] = {}
    for location, (format_, dialect, raw, *cells) in read_tsv(
        folder, "stop_reasons.tsv", range(8, 10)
    ):
        first_lines.setdefault((format_, dialect), location)
        rows = rows_by_format.setdefault(format_, {}).setdefault(dialect, {})
        if raw in rows:
            raise ValueError(f"{location}: {raw!r} already has a row")
        try:
            row = rows[raw] = _row(*cells[:5])
            is_shared = _is_shared(*cells[5:])
        except ValueError as error:
            raise ValueError(f"{location}: {error}") from error
        # The empty word, an end without a reason, is never shared.
        if raw and (is_shared or dialect in ("", COMPATIBLE)):
            first = shared.setdefault(format_, {}).setdefault(raw, row)
            if (first.reason, first.incomplete) != (row.reason, row.incomplete):
                raise ValueError(
                    f"{location}: the shared value {raw!r} of {format_!r} means {row.reason.value} "
                    f"here and {first.reason.value} in a row above: correct one of them, or leave "
                    f"out 'shared' if only {dialect!r} means this"
                )
    return rows_by_format, shared, first_lines


def _is_shared(cell: str = "") -> bool:
    if cell not in ("", "shared"):
        raise ValueError(f"shared must be 'shared' or empty, not {cell!r}")
    return cell == "shared"


@cache  # many values have one meaning: it halves the time of loading
def _row(normalized: str, incomplete: str, resume: str, detail: str, source: str) -> Row:
    if incomplete not in ("yes", "no"):
        raise ValueError(f"incomplete must be 'yes' or 'no', not {incomplete!r}")
    if not source:
        raise ValueError("source is empty: name the page or the release that documents the value")
    terminal = normalized != "skip"
    reason = StopReason(normalized) if terminal else StopReason.MISSING
    if terminal and reason in TRUNCATED and incomplete == "no":
        raise ValueError(f"incomplete must be 'yes' for {normalized!r}, not 'no'")
    return Row(reason, incomplete == "yes", Resume(resume), detail or None, source, terminal)
