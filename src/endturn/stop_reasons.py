"""What every stop reason of every API means, read from `data/stop_reasons.tsv` and `data/dialects.tsv`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from endturn.stop import Resume, Row, StopReason
from endturn.tables import lines, shipped

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

COMPATIBLE: Final = "compatible"
"""The dialect of a server that nobody named."""


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
    """

    rows: Mapping[str, Mapping[str, Mapping[str, Row]]]
    apis: Mapping[str, Mapping[str, Api]]


def tables(format_: str) -> Mapping[str, Mapping[str, Row]]:
    """dialect → raw value → row."""
    return _shipped().rows[format_]


def apis(format_: str) -> Mapping[str, Api]:
    """dialect → API."""
    return _shipped().apis[format_]


def rows_of(format_: str, dialect: str) -> Mapping[str, Row]:
    """The table of a dialect; of an unknown one that of a server nobody named, or else of the format's own provider."""
    known = tables(format_)
    return known.get(dialect) or known.get(COMPATIBLE) or known[""]


@cache
def _shipped() -> Tables:
    return read(shipped())


def read(folder: Traversable) -> Tables:
    """The tables of a folder.

    Raises:
        ValueError: a line is wrong; the message begins with its file and number.
    """
    own = _own(folder)
    rows: dict[str, dict[str, Mapping[str, Row]]] = {}
    apis: dict[str, dict[str, Api]] = {}
    for place, (format_, dialect, includes, *api) in lines(folder, "dialects.tsv", range(3, 7)):
        known, named = rows.setdefault(format_, {}), apis.setdefault(format_, {})
        if dialect in known:
            raise ValueError(f"{place}: {format_!r} has a dialect {dialect!r} already")
        found: dict[str, Row] = {}
        for each in includes.split():
            source, _, part = each.partition("/")
            if part != "*" and part not in rows.get(source, {}):
                raise ValueError(f"{place}: no {each!r} stands above")
            for table in own[source].values() if part == "*" else [rows[source][part]]:
                found |= {raw: row for raw, row in table.items() if raw not in found}
        known[dialect] = found | own.get(format_, {}).get(dialect, {})
        if api:
            home = named.get("")
            paths = api[1:] + ([home.path, home.stream_path][len(api) - 1 :] if home else [])
            if len(paths) != 2:
                raise ValueError(f"{place}: path or stream_path is missing")
            named[dialect] = Api(api[0], *paths)
    for format_, dialects in own.items():
        if unknown := dialects.keys() - rows.get(format_, {}).keys():
            raise ValueError(f"stop_reasons.tsv: {format_!r} has rows of {sorted(unknown)}, which dialects.tsv lacks")
    return Tables(rows, apis)


def _own(folder: Traversable) -> dict[str, dict[str, dict[str, Row]]]:
    """format → dialect → raw value → row, as they stand in the file."""
    found: dict[str, dict[str, dict[str, Row]]] = {}
    for place, (format_, dialect, raw, *cells) in lines(folder, "stop_reasons.tsv", range(8, 9)):
        rows = found.setdefault(format_, {}).setdefault(dialect, {})
        if raw in rows:
            raise ValueError(f"{place}: {raw!r} has a row already")
        try:
            rows[raw] = _row(*cells)
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error
    return found


@cache  # many values have one meaning: it halves the time of loading
def _row(normalized: str, incomplete: str, resume: str, detail: str, source: str) -> Row:
    if incomplete not in ("yes", "no"):
        raise ValueError(f"incomplete is 'yes' or 'no', not {incomplete!r}")
    terminal = normalized != "skip"
    reason = StopReason(normalized) if terminal else StopReason.MISSING
    return Row(reason, incomplete == "yes", Resume(resume), detail or None, source, terminal)
