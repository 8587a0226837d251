"""The overview: which indicators it shows, how each is drawn, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from endturn.telemetry import INDICATORS, Indicator, schema
from endturn.ui.advice import NOT_CONTINUED, EndedTurns, headline
from endturn.ui.bounds import finite
from endturn.ui.charts import Chart, Series
from endturn.ui.formatting import count, share
from endturn.ui.limits import (
    NO_TURN_ENDED,
    NOTHING_TRUNCATED,
    Model,
    RequestedLimit,
    TruncatedTurns,
    needed_limit,
    requested_limits,
    truncated_turns,
)
from endturn.ui.numbers import BY_MODEL, STEP, Label, Numbers, quantile, step_of
from endturn.ui.remarks import remarks
from endturn.ui.rows import METRICS, data
from endturn.ui.span_counts import span_counts
from endturn.ui.store import Store
from endturn.ui.trend import trend
from endturn.ui.views import COLOURS, View, colour, words

PANELS: Final[dict[str, Any]] = data("panels.yaml")
MOST_SERIES: Final = 24
"""How many words a chart tells apart; the others are one."""
MOST_BUCKETS: Final = 40
"""How many bounds a histogram shows as they came; where there are more, those of the panel are
shown."""


def overview(view: View, store: Store) -> dict[str, Any]:
    """Everything that the overview's template shows."""
    numbers = Numbers(store, view.scope, step_of(view.scope.end_ns - view.scope.start_ns))
    where, parameters = view.where()
    values = {name: numbers.value(name) for name in INDICATORS}
    if numbers.measured:
        table = models(numbers)
        not_continued = numbers.total(NOT_CONTINUED)
    else:
        total, table = span_counts(view, store)
        values |= total
        not_continued = total["not_continued"]
    waiting = store.read(
        f"SELECT count(*) FROM turns WHERE {where} AND state = 'open'", parameters
    )[0][0]
    groups = truncated_turns(view, store)
    ended = EndedTurns(
        turns=values["turns"],
        truncated=max(values["truncated_turns"] or 0, values["unfinished"] or 0),
        unfinished=values["unfinished"] or 0,
        not_continued=not_continued,
        waiting=waiting,
    )
    return {
        "anything": numbers.measured or bool(store.read("SELECT 1 FROM turns LIMIT 1")),
        "measured": numbers.measured,
        "waiting": waiting,
        "headline": headline(ended, groups, view),
        "values": values,
        "stats": [_stat(values, **stat) for stat in PANELS["stats"]],
        "remarks": remarks(numbers),
        "bars": BARS,
        "durations_title": DURATIONS_TITLE,
        "indicators": INDICATORS,
        "level": level,
        "histograms": [_histogram(numbers, each) for each in PANELS["histograms"]],
        "medians": numbers.quantiles(0.5, schema.TURN_DURATION, (schema.CONTINUED.label,)),
        "table": with_limits(table, groups, requested_limits(view, store)),
        "charts": charts(view, store, numbers),
    }


def with_limits(
    rows: Sequence[dict[str, Any]],
    groups: Sequence[TruncatedTurns],
    requested: Mapping[Model, RequestedLimit],
) -> list[dict[str, Any]]:
    """Add to each row of the table the limit of its requests, and the one that would do."""
    by_model: dict[Model, list[TruncatedTurns]] = {}
    for group in groups:
        by_model.setdefault(group.of, []).append(group)

    def limits(row: Mapping[str, Any]) -> dict[str, Any]:
        of = Model(row["service"], row["provider"] or "", row["model"] or "")
        needed = needed_limit(by_model.get(of, ()))
        if needed is NOTHING_TRUNCATED and row["truncation"]:
            needed = NO_TURN_ENDED
        return {"requested": requested.get(of), "needed": needed}

    return [row | limits(row) for row in rows]


def level(indicator: Indicator, value: float | None) -> str:
    """How bad a value is, by the indicator's thresholds."""
    limits = indicator.thresholds
    if limits is None or value is None or value < limits.look:
        return ""
    return "act" if value >= limits.act else "look"


def _stat(values: Mapping[str, float | None], of: str, title: str = "") -> dict[str, Any]:
    indicator, value = INDICATORS[of], values[of]
    about = {"indicator": indicator, "title": title or indicator.title}
    return about | {"level": level(indicator, value), "shown": shown(indicator, value)}


def shown(indicator: Indicator, value: float | None) -> str:
    """An indicator's value, as people read it."""
    return count(value) if indicator.denominator is None else share(value)


def models(numbers: Numbers) -> list[dict[str, Any]]:
    """Services and models, the one with most unfinished turns first."""
    by = tuple(BY_MODEL.values())
    counts = {
        name: numbers.number(INDICATORS[name].count, by)
        for name in ("responses", "turns", "unfinished")
    }
    shares = {
        name: numbers.share(INDICATORS[name], by) for name in ("truncation", "unfinished_share")
    }
    rows = [
        dict(zip(BY_MODEL, labels, strict=True))
        | {name: number_of.get(labels, 0.0) for name, number_of in counts.items()}
        | {name: share_of.get(labels) for name, share_of in shares.items()}
        for labels in sorted({*counts["responses"], *counts["turns"]})
    ]
    return sorted(
        rows, key=lambda row: (-row["unfinished"], -(row["truncation"] or 0), -row["responses"])
    )


# --- Charts ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BarChart:
    """Stacked bars over time.

    Attributes:
        id: of the chart.
        title: its heading.
        of: the name of an indicator that is counted.
        by: the label of a metric whose values are the layers.
    """

    id: str
    title: str
    of: str
    by: Label


@dataclass(frozen=True, slots=True)
class DurationLine:
    """A quantile of the duration of turns.

    Attributes:
        continued: of the turns that were continued, or of the others.
        quantile: from 0 to 1.
    """

    continued: bool
    quantile: float


BARS: Final = (
    BarChart("reasons", "Responses by stop reason", "responses", schema.REASON.label),
    BarChart("endings", "Unfinished turns by outcome", "unfinished", schema.OUTCOME.label),
    BarChart("strategies", "Continuations by strategy", "continuations", schema.STRATEGY.label),
    BarChart(
        "tokens", "Tokens spent on continuing", "continuation_tokens", schema.TOKEN_TYPE.label
    ),
)
DURATIONS_TITLE: Final = "Turn duration, continued and plain"
DURATION_LINES: Final = (
    DurationLine(continued=True, quantile=0.5),
    DurationLine(continued=True, quantile=0.95),
    DurationLine(continued=False, quantile=0.5),
    DurationLine(continued=False, quantile=0.95),
)
DURATION_STEPS: Final = 4
"""How many steps of the range are one of the durations': a quantile of one turn says little."""


def charts(view: View, store: Store, numbers: Numbers) -> dict[str, Chart]:
    """Return the charts of the overview by their ids."""
    bars = [_bars(numbers, bar_chart) for bar_chart in BARS]
    return {chart.id: chart for chart in (trend(view, store, numbers), *bars, _durations(numbers))}


def _bars(numbers: Numbers, bar_chart: BarChart) -> Chart:
    steps = numbers.steps(INDICATORS[bar_chart.of].count, (bar_chart.by,))
    order = [*COLOURS]

    def rank(name: str) -> int:
        return order.index(name) if name in order else len(order)

    names = sorted((name for (name,) in steps), key=rank)
    rest: list[float] = []
    if len(names) > MOST_SERIES:  # anybody may send any word
        names.sort(key=lambda name: -sum(steps[name,]))
        rest = [
            sum(values)
            for values in zip(*(steps[name,] for name in names[MOST_SERIES:]), strict=True)
        ]
        names = sorted(names[:MOST_SERIES], key=rank)
    series = [
        Series(name=words(name), colour=colour(name), values=finite(steps[name,])) for name in names
    ]
    if rest:
        series.append(Series(name="others", colour="unknown", values=finite(rest)))
    return Chart(
        id=bar_chart.id,
        title=bar_chart.title,
        kind="bars",
        unit="count",
        start_ns=numbers.scope.start_ns,
        step_ns=numbers.step_ns,
        series=tuple(series),
    )


def _durations(numbers: Numbers) -> Chart:
    """Return the chart of the durations of turns, empty if none ended."""
    buckets = numbers.buckets(
        schema.TURN_DURATION, (schema.CONTINUED.label, f"{STEP} // {DURATION_STEPS}")
    )
    steps = range(math.ceil(numbers.number_of_steps / DURATION_STEPS))

    def values(line: DurationLine) -> list[float | None]:
        continued = str(line.continued).lower()
        return finite(
            quantile(line.quantile, buckets[continued, step])
            if (continued, step) in buckets
            else None
            for step in steps
        )

    lines = (
        Series(
            name=f"{'continued' if line.continued else 'plain'}, p{line.quantile * 100:.0f}",
            colour="cut" if line.continued else "tool",
            values=values(line),
            dashed=line.quantile < 0.9,
            marked=True,
        )
        for line in DURATION_LINES
    )
    return Chart(
        id="waits",
        title=DURATIONS_TITLE,
        kind="line",
        unit="seconds",
        start_ns=numbers.scope.start_ns,
        step_ns=numbers.step_ns * DURATION_STEPS,
        series=tuple(lines) if buckets else (),
    )


def _histogram(numbers: Numbers, histogram: dict[str, Any]) -> dict[str, Any]:
    counts = numbers.buckets(METRICS[histogram["of"]]).get((), {})
    if len(counts) > MOST_BUCKETS:
        counts = _coarser(counts, sorted(histogram["buckets"]))
    total, highest = sum(counts.values()), max(counts.values(), default=0)
    rows = [
        {
            "label": label,
            "colour": hue,
            "count": number,
            "part": number / total,
            "length": number / highest,
        }
        for bound, number in sorted(counts.items())
        for label, hue in (histogram["buckets"].get(bound, (f"{bound:g}", "tool")),)
    ]
    while rows and not rows[-1]["count"]:
        rows.pop()
    return {"panel": histogram, "whole": total, "rows": rows}


def _coarser(counts: Mapping[float, float], bounds: Sequence[float]) -> dict[float, float]:
    """The counts of buckets in fewer ones: each in the first whose upper bound is not lower."""
    coarse = dict.fromkeys(bounds, 0.0)
    for bound, number in counts.items():
        coarse[next((each for each in bounds if bound <= each), math.inf)] += number
    return coarse
