"""The view that a page's address selects, the text filters of the templates, and the templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Self
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from endturn.ui import charts, formatting
from endturn.ui.bounds import WORD, shorten
from endturn.ui.numbers import FILTER_LABELS, Scope, step_of
from endturn.ui.store import Store

RANGES: Final = {"15m": 900, "1h": 3600, "6h": 21600, "24h": 86400, "7d": 604800}
"""The time ranges that can be chosen, in seconds; `all` is everything that is stored."""
DEFAULT_RANGE: Final = "1h"
"""The default time range; `all` as long as less than this is stored."""
NS: Final = 1_000_000_000

COLOURS: Final = {
    # stop reasons
    "end_turn": "good", "tool_call": "tool", "paused": "paused", "max_tokens": "cut",
    "context_window_exceeded": "window", "missing": "lost", "safety_blocked": "withheld",
    "refused": "refused", "cancelled": "idle", "error": "error", "unknown": "unknown",
    # outcomes of unfinished turns
    "not_continued": "lost", "retry_limit": "cut", "resume_limit": "window",
    "token_budget": "withheld", "char_budget": "refused", "cost_budget": "paused",
    "deadline": "tool", "stream_cut": "error",
    # strategies of continuations
    "native_token": "good", "resend": "tool", "retrieve": "paused", "prefill": "paused",
    "prompt": "accent", "retry": "idle", "repair": "cut",
    # token types
    "input": "tool", "output": "cut",
    # states of turns
    "whole": "calm", "finished": "good", "unfinished": "lost", "open": "accent",
    "other": "withheld",
}  # fmt: skip
"""The colour of each word of the schema, as a variable of the style sheet, in the order in which
bars are stacked. Other words are grey."""


@dataclass(frozen=True, slots=True)
class View:
    """The selection of data that the address of a page describes.

    Attributes:
        scope: the time range and filters of its numbers.
        parameters: the query parameters of the address.
        range: the name of the time range; `custom` for one with explicit bounds.
        choices: the values that each filter offers.
    """

    scope: Scope
    parameters: Mapping[str, str]
    range: str
    choices: Mapping[str, Sequence[str]]

    @classmethod
    def of(cls, store: Store, parameters: Mapping[str, str], now_ns: int) -> Self:
        """Return the view of an address, from its query parameters; invalid ones are ignored."""
        # links repeat the parameters
        parameters = {name: shorten(value, WORD) for name, value in parameters.items()}
        range_ = parameters.get("range", "")
        start, end = _whole_number(parameters.get("from")), _whole_number(parameters.get("to"))
        if start is not None and end is not None and 0 <= start < end < 1 << 43:
            range_, start, end = "custom", start * 1_000_000, end * 1_000_000
        else:
            first, last = _stored_range(store, now_ns)
            is_young = now_ns - first < RANGES[DEFAULT_RANGE] * NS
            range_ = (
                range_
                if range_ in RANGES or range_ == "all"
                else "all"
                if is_young
                else DEFAULT_RANGE
            )
            start, end = (
                (first, last) if range_ == "all" else (now_ns - RANGES[range_] * NS, now_ns)
            )
        start -= start % step_of(end - start)  # so that bars keep their positions as time passes
        scope = Scope(
            start_ns=start,
            end_ns=end,
            only={name: parameters[name] for name in FILTER_LABELS if parameters.get(name)},
        )
        return cls(
            scope, parameters, range_, {name: _values(store, name) for name in FILTER_LABELS}
        )

    def link(self, path: str = "", **changed: str) -> str:
        """Return an address with this view's parameters and changes; empty values are removed."""
        lasting = ("range", "from", "to", *FILTER_LABELS, "state", "sort", "q")
        parameters = {name: self.parameters[name] for name in lasting if self.parameters.get(name)}
        if "range" in changed:
            parameters |= {"from": "", "to": ""}
        parameters_changed = {
            name: value for name, value in (parameters | changed).items() if value
        }
        return f"{path}?{urlencode(parameters_changed)}" if parameters_changed else path or "?"

    def where(self, at: str = "start_ns") -> tuple[str, dict[str, object]]:
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


def _stored_range(store: Store, now_ns: int) -> tuple[int, int]:
    """Return the time range of the stored telemetry: with margins, and at least 30 seconds long."""
    times = "SELECT start_ns AS since, end_ns AS until FROM spans"
    times += "".join(
        f" UNION ALL SELECT at_ns, at_ns FROM {table}" for table in ("increments", "events")
    )
    query = f"SELECT coalesce(min(since), {now_ns}), coalesce(max(until), {now_ns}) FROM ({times})"
    ((first, last),) = store.read_tuples(query)
    return min(first, last - 30 * NS) - NS, last + NS


def _values(store: Store, name: str) -> list[str]:
    both = f"SELECT {FILTER_LABELS[name]} AS value FROM series UNION ALL SELECT {name} FROM turns"
    query = f"SELECT DISTINCT value FROM ({both}) WHERE value <> '' ORDER BY 1 LIMIT 500"
    return [value for (value,) in store.read_tuples(query)]


def _whole_number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"\d{1,13}", text) else None


# --- Filters of the templates ---------------------------------------------------------------------


def clock(ns: int) -> str:
    """Format a time as ISO 8601 in UTC; the page's script converts it to the local time zone."""
    return datetime.fromtimestamp(ns / NS, UTC).isoformat(timespec="milliseconds")


def words(name: str | None) -> str:
    """Format a word of the schema: with spaces instead of underscores."""
    return (name or "").replace("_", " ")


def prose(text: str) -> Markup:
    """Format a sentence of Markdown as HTML: text between backticks becomes code."""
    code = Markup("<code>{}</code>")
    return Markup("").join(
        code.format(part) if n % 2 else part
        for n, part in enumerate(text.replace("*", "").split("`"))
    )


def excerpt(value: object, most: int = WORD) -> str:
    """Return the beginning of a received value, so that its length on a page is limited."""
    return shorten(str(value), most)


def colour(name: str | None) -> str:
    """Return the colour of a word of the schema."""
    return COLOURS.get(name or "", "unknown")


def templates(*, escape: bool = True) -> Environment:
    """Return the environment of the package's templates, with their filters."""
    filters: dict[str, Callable[..., object]] = {
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
    environment.autoescape = escape  # the template of Markdown escapes by its own filters
    environment.filters |= filters
    return environment
