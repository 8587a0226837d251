"""What a page's address asks for, how times and words are written on it, and its templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Self
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from endturn.ui import charts, formatting
from endturn.ui.bounds import WORD, shortened
from endturn.ui.numbers import OF_WHOM, Scope, step_of
from endturn.ui.rows import data
from endturn.ui.store import Store

RANGES: Final = {"15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800}
"""The time ranges that can be chosen, in seconds; `all` is everything that is kept."""
USUAL: Final = "1h"
"""What is shown if nothing is chosen; all there is, while that is less."""
NS: Final = 1_000_000_000

COLOURS: Final[dict[str, str]] = data("panels.yaml")["colours"]
"""The colour of a word: a variable of the style sheet."""


@dataclass(frozen=True, slots=True)
class View:
    """One page's address, read.

    The scope of its numbers, the parameters it was given, and what can be chosen.
    """

    scope: Scope
    given: Mapping[str, str]
    range: str
    known: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, store: Store, given: Mapping[str, str], now_ns: int) -> Self:
        """The view that an address asks for.

        What cannot be read of it is as if it were not there.
        """
        given = {name: shortened(value, WORD) for name, value in given.items()}  # links repeat it
        range_ = given.get("range", "")
        start, end = _whole(given.get("from")), _whole(given.get("to"))
        if start is not None and end is not None and 0 <= start < end < 1 << 43:
            range_, start, end = "custom", start * 1_000_000, end * 1_000_000
        else:
            first, last = _kept(store, now_ns)
            young = now_ns - first < RANGES[USUAL] * NS
            range_ = range_ if range_ in RANGES or range_ == "all" else "all" if young else USUAL
            start, end = (
                (first, last) if range_ == "all" else (now_ns - RANGES[range_] * NS, now_ns)
            )
        start -= start % step_of(end - start)  # so that bars keep their places while time goes on
        scope = Scope(
            start_ns=start,
            end_ns=end,
            only={name: given[name] for name in OF_WHOM if given.get(name)},
        )
        return cls(scope, given, range_, {name: _values(store, name) for name in OF_WHOM})

    def link(self, path: str = "", **changed: str) -> str:
        """An address with this view's parameters, some of them changed.

        An empty one is left out.
        """
        lasting = ("range", "from", "to", *OF_WHOM, "state", "sort", "q")
        parameters = {name: self.given[name] for name in lasting if self.given.get(name)}
        if "range" in changed:
            parameters |= {"from": "", "to": ""}
        parameters_changed = {
            name: value for name, value in (parameters | changed).items() if value
        }
        return f"{path}?{urlencode(parameters_changed)}" if parameters_changed else path or "?"

    def where(self, at: str = "start_ns") -> tuple[str, dict[str, Any]]:
        """Return the scope as an SQL condition on spans, events or turns, with its parameters."""
        scope = self.scope
        conditions = [
            f"{at} >= $start",
            f"{at} <= $end",
            *(f"{name} = ${name}" for name in scope.only),
        ]
        return " AND ".join(conditions), {
            "start": scope.start_ns,
            "end": scope.end_ns,
            **scope.only,
        }


def _kept(store: Store, now_ns: int) -> tuple[int, int]:
    """Return the time range that has telemetry, with a margin that keeps single calls apart."""
    times = "SELECT start_ns AS since, end_ns AS until FROM spans"
    times += "".join(
        f" UNION ALL SELECT at_ns, at_ns FROM {table}" for table in ("increments", "events")
    )
    query = f"SELECT coalesce(min(since), {now_ns}), coalesce(max(until), {now_ns}) FROM ({times})"
    ((first, last),) = store.read(query)
    return min(first, last - 30 * NS) - NS, last + NS


def _values(store: Store, name: str) -> list[str]:
    both = f"SELECT {OF_WHOM[name]} AS value FROM series UNION ALL SELECT {name} FROM turns"
    query = f"SELECT DISTINCT value FROM ({both}) WHERE value <> '' ORDER BY 1 LIMIT 500"
    return [value for (value,) in store.read(query)]


def _whole(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,13}", text) else None


# --- How things are written -----------------------------------------------------------------------


def clock(ns: int) -> str:
    """A moment, as ISO 8601 in UTC; the page's script writes it in the reader's zone."""
    return datetime.fromtimestamp(ns / NS, UTC).isoformat(timespec="milliseconds")


def words(name: str | None) -> str:
    """A word of the schema as people write it."""
    return (name or "").replace("_", " ")


def prose(text: str) -> Markup:
    """A sentence of ours, with what stands between backticks as code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(part) if n % 2 else part
        for n, part in enumerate(text.replace("*", "").split("`"))
    )


def excerpt(value: object, most: int = WORD) -> str:
    """The beginning of a value that somebody sent: pages stay short whatever is stored."""
    return shortened(str(value), most)


def colour(name: str | None) -> str:
    """The colour of a word."""
    return COLOURS.get(name or "", "unknown")


def templates(*, escape: bool = True) -> Environment:
    """The package's templates, with their filters."""
    filters: dict[str, Callable[..., Any]] = {
        "count": formatting.count,
        "plural": formatting.plural,
        "share": formatting.share,
        "seconds": formatting.duration,
        "clock": clock,
        "words": words,
        "colour": colour,
        "prose": prose,
        "excerpt": excerpt,
        "figure": charts.figure,
    }
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=True
    )
    environment.loader = PackageLoader(__package__)
    environment.autoescape = escape  # Markdown has an escape of its own
    environment.filters |= filters
    return environment
