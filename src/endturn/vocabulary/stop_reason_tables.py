"""The meaning of every API's stop reasons (`data/stop_reasons.tsv`, `data/dialects.tsv`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from endturn.vocabulary.stop import Resume, Row, StopReason
from endturn.vocabulary.tsv import lines, shipped

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

COMPATIBLE: Final = "compatible"
"""The dialect of a server that nobody named."""

CHAT: Final = "openai_chat"
"""The format whose words are borrowed in all others: most compatible servers speak it first."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API as people know it, for one dialect of a format.

    Attributes:
        name: as `endturn reasons` prints it, "openai.chat".
        path: where a body says why it stopped, "choices[i].finish_reason".
        stream_path: where a stream does.
    """

    name: str
    path: str
    stream_path: str


class Tables(NamedTuple):
    """The two tables.

    Attributes:
        rows: format → dialect → raw value → row. The dialect "" is the format's own provider.
        apis: format → dialect → API; a dialect that is nobody's in particular has none.
        shared: format → raw value → row: what servers of the format say whatever their name.
    """

    rows: Mapping[str, Mapping[str, Mapping[str, Row]]]
    apis: Mapping[str, Mapping[str, Api]]
    shared: Mapping[str, Mapping[str, Row]]

    def fallback(self, format_: str) -> Mapping[str, Row]:
        """Return what a raw value means that a dialect of the format has no row of."""
        own = self.shared.get(format_, {})
        return {**own, **self.shared.get(CHAT, {}), **own}

    def lookup(self, format_: str, dialect: str) -> Mapping[str, Row]:
        """Return the table by which a reply in a dialect is read.

        Its own rows before all others.
        """
        known = self.rows[format_]
        own = known.get(dialect) or known.get(COMPATIBLE) or known[""]
        return {**own, **self.fallback(format_), **own}


def tables(format_: str) -> Mapping[str, Mapping[str, Row]]:
    """Return the declared rows by dialect and raw value, without what compatible servers share."""
    return _shipped().rows[format_]


def shared(format_: str) -> Mapping[str, Row]:
    """Return the rows by raw value that servers of a format share, whatever their name."""
    return _shipped().shared.get(format_, {})


def apis(format_: str) -> Mapping[str, Api]:
    """Return the APIs by dialect."""
    return _shipped().apis[format_]


@cache
def rows_of(format_: str, dialect: str) -> Mapping[str, Row]:
    """Return the table by which a reply is read.

    The dialect's own rows, then those that compatible servers share.

    An unknown dialect is that of a server nobody named, or else of the format's own provider.
    """
    return _shipped().lookup(format_, dialect)


@cache
def private(format_: str, dialect: str) -> Mapping[str, Row]:
    """Return the words of a dialect that nobody else says."""
    found = _shipped()
    return {
        raw: row
        for raw, row in found.rows[format_].get(dialect, {}).items()
        if raw not in found.shared[format_]
    }


def with_fallback(format_: str, rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return a table of a format, and what compatible servers share after it."""
    return {**rows, **_shipped().fallback(format_), **rows}


@cache
def _shipped() -> Tables:
    return read(shipped())


def read(folder: Traversable) -> Tables:
    """Read the tables of a folder.

    Raises:
        ValueError: a line is wrong; the message begins with its file and number.
    """
    own, shared = _own(folder)
    rows: dict[str, dict[str, Mapping[str, Row]]] = {}
    apis: dict[str, dict[str, Api]] = {}
    for place, (format_, dialect, includes, *api) in lines(folder, "dialects.tsv", range(3, 7)):
        known, named = rows.setdefault(format_, {}), apis.setdefault(format_, {})
        if dialect in known:
            raise ValueError(f"{place}: {format_!r} already has a dialect {dialect!r}")
        found: dict[str, Row] = {}
        for each in includes.split():
            source, _, part = each.partition("/")
            if part not in rows.get(source, {}):
                raise ValueError(f"{place}: no row of {each!r} above it")
            found |= {raw: row for raw, row in rows[source][part].items() if raw not in found}
        known[dialect] = found | own.get(format_, {}).get(dialect, {})
        if api:
            home = named.get("")
            paths = api[1:] + ([home.path, home.stream_path][len(api) - 1 :] if home else [])
            if len(paths) != 2:
                raise ValueError(f"{place}: path or stream_path is missing")
            named[dialect] = Api(api[0], *paths)
    for format_, dialects in own.items():
        if unknown := dialects.keys() - rows.get(format_, {}).keys():
            raise ValueError(
                f"stop_reasons.tsv: {format_!r} has rows of {sorted(unknown)}, which "
                f"dialects.tsv lacks"
            )
    return Tables(rows, apis, shared)


_Rows = dict[str, dict[str, dict[str, Row]]]


def _own(folder: Traversable) -> tuple[_Rows, dict[str, dict[str, Row]]]:
    """Return format → dialect → raw value → row, as they stand in the file.

    And format → raw value → shared row.
    """
    found: _Rows = {}
    shared: dict[str, dict[str, Row]] = {}
    for place, (format_, dialect, raw, *cells) in lines(folder, "stop_reasons.tsv", range(8, 10)):
        rows = found.setdefault(format_, {}).setdefault(dialect, {})
        if raw in rows:
            raise ValueError(f"{place}: {raw!r} already has a row")
        try:
            row = rows[raw] = _row(*cells[:5])
            is_shared = _is_shared(*cells[5:])
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
        # The empty word says what an end without a reason means: to who says it alone.
        if raw and (is_shared or dialect in ("", COMPATIBLE)):
            shared.setdefault(format_, {}).setdefault(raw, row)
    return found, shared


def _is_shared(cell: str = "") -> bool:
    if cell not in ("", "shared"):
        raise ValueError(f"shared is 'shared' or nothing, not {cell!r}")
    return cell == "shared"


@cache  # many values have one meaning: it halves the time of loading
def _row(normalized: str, incomplete: str, resume: str, detail: str, source: str) -> Row:
    if incomplete not in ("yes", "no"):
        raise ValueError(f"incomplete is 'yes' or 'no', not {incomplete!r}")
    terminal = normalized != "skip"
    reason = StopReason(normalized) if terminal else StopReason.MISSING
    return Row(reason, incomplete == "yes", Resume(resume), detail or None, source, terminal)
