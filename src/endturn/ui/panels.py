"""The overview: its indicators, charts and tables, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from endturn.telemetry import INDICATORS, Indicator, Metric, schema
from endturn.ui.advice import NOT_CONTINUED, TurnCounts, headline
from endturn.ui.bounds import finite
from endturn.ui.charts import Chart, ChartSeries
from endturn.ui.formatting import count, share
from endturn.ui.limits import (
    NO_TURN_ENDED,
    NOTHING_TRUNCATED,
    Model,
    RequestedLimit,
    TruncationGroup,
    needed_limit,
    requested_limits,
    truncated_turns,
)
from endturn.ui.numbers import BY_MODEL, STEP, Label, Numbers, quantile, step_of
from endturn.ui.remarks import remarks
from endturn.ui.rows import Row
from endturn.ui.span_counts import span_counts
from endturn.ui.store import Store
from endturn.ui.trend import trend
from endturn.ui.views import COLOURS, View, colour, words

MOST_SERIES: Final = 24
"""The most values of a label that a chart distinguishes; the others are summed."""
MOST_BUCKETS: Final = 40
"""The most buckets that a histogram shows unchanged; more are merged into those of the panel."""


def overview(view: View, store: Store) -> dict[str, object]:
    """Return everything that the overview's template shows."""
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
    waiting = store.read_tuples(
        f"SELECT count(*) FROM turns WHERE {where} AND state = 'open'", parameters
    )[0][0]
    groups = truncated_turns(view, store)
    turn_counts = TurnCounts(
        turns=values["turns"],
        truncated=max(values["truncated_turns"] or 0, values["unfinished"] or 0),
        unfinished=values["unfinished"] or 0,
        not_continued=not_continued,
        waiting=waiting,
    )
    return {
        "anything": numbers.measured or bool(store.read_tuples("SELECT 1 FROM turns LIMIT 1")),
        "measured": numbers.measured,
        "waiting": waiting,
        "headline": headline(turn_counts, groups, view),
        "values": values,
        "stats": [_stat(name, title, values[name]) for name, title in STATS],
        "remarks": remarks(numbers),
        "bars": BARS,
        "durations_title": DURATIONS_TITLE,
        "indicators": INDICATORS,
        "level": level,
        "histograms": [_histogram(numbers, panel) for panel in HISTOGRAMS],
        "medians": numbers.quantiles(0.5, schema.TURN_DURATION, (schema.CONTINUED.label,)),
        "table": with_limits(table, groups, requested_limits(view, store)),
        "charts": charts(view, store, numbers),
    }


def with_limits(
    rows: Sequence[Row],
    groups: Sequence[TruncationGroup],
    requested: Mapping[Model, RequestedLimit],
) -> list[Row]:
    """Add to each row the limit of its requests, and the limit that would have been enough."""
    by_model: dict[Model, list[TruncationGroup]] = {}
    for group in groups:
        by_model.setdefault(group.model, []).append(group)

    def limits(row: Row) -> Row:
        of = Model(row["service"], row["provider"] or "", row["model"] or "")
        needed = needed_limit(by_model.get(of, ()))
        if needed is NOTHING_TRUNCATED and row["truncation"]:
            needed = NO_TURN_ENDED
        return {"requested": requested.get(of), "needed": needed}

    return [row | limits(row) for row in rows]


def level(indicator: Indicator, value: float | None) -> str:
    """Return the severity of a value by the indicator's thresholds: `act`, `look` or ""."""
    limits = indicator.thresholds
    if limits is None or value is None or value < limits.look:
        return ""
    return "act" if value >= limits.act else "look"


@dataclass(frozen=True, slots=True)
class Stat:
    """One number of the overview: an indicator, its title, its severity, and its value as text."""

    indicator: Indicator
    title: str
    level: str
    value_text: str


STATS: Final = (
    ("truncation", ""),
    ("turns", ""),
    ("continuations", ""),
    ("continuation_tokens", "Tokens spent on continuing"),
)
"""The numbers beside the headline: the name of an indicator, and a title in place of its own."""


def _stat(name: str, title: str, value: float | None) -> Stat:
    indicator = INDICATORS[name]
    return Stat(
        indicator=indicator,
        title=title or indicator.title,
        level=level(indicator, value),
        value_text=format_value(indicator, value),
    )


def format_value(indicator: Indicator, value: float | None) -> str:
    """Format an indicator's value."""
    return count(value) if indicator.denominator is None else share(value)


def models(numbers: Numbers) -> list[Row]:
    """Return a row for each service and model, most unfinished turns first."""
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
        id: the id of the chart.
        title: its heading.
        indicator: the name of the counted indicator.
        by: the label whose values are the layers.
    """

    id: str
    title: str
    indicator: str
    by: Label


@dataclass(frozen=True, slots=True)
class DurationLine:
    """A quantile of the duration of turns.

    Attributes:
        continued: True for continued turns, False for the others.
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
"""Steps of the range per step of the durations: a quantile of a few turns is not meaningful."""


def charts(view: View, store: Store, numbers: Numbers) -> dict[str, Chart]:
    """Return the charts of the overview by their ids."""
    bars = [_bars(numbers, bar_chart) for bar_chart in BARS]
    return {chart.id: chart for chart in (trend(view, store, numbers), *bars, _durations(numbers))}


def _bars(numbers: Numbers, bar_chart: BarChart) -> Chart:
    steps = numbers.steps(INDICATORS[bar_chart.indicator].count, (bar_chart.by,))
    order = [*COLOURS]

    def rank(name: str) -> int:
        return order.index(name) if name in order else len(order)

    names = sorted((name for (name,) in steps), key=rank)
    rest: list[float] = []
    if len(names) > MOST_SERIES:  # senders may use any word
        names.sort(key=lambda name: -sum(steps[name,]))
        rest = [
            sum(values)
            for values in zip(*(steps[name,] for name in names[MOST_SERIES:]), strict=True)
        ]
        names = sorted(names[:MOST_SERIES], key=rank)
    series = [
        ChartSeries(name=words(name), colour=colour(name), values=finite(steps[name,]))
        for name in names
    ]
    if rest:
        series.append(ChartSeries(name="others", colour="unknown", values=finite(rest)))
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
    """Return the chart of turn durations; it is empty if no turn ended."""
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
        ChartSeries(
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


# --- Histograms -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistogramPanel:
    """The declaration of a histogram.

    Attributes:
        id: of the panel.
        metric: the metric whose buckets it shows.
        title: its heading.
        question: the sentence below its heading.
        buckets: the label and the colour of each bucket, by its upper bound.
    """

    id: str
    metric: Metric
    title: str
    question: str
    buckets: Mapping[float, tuple[str, str]]


HISTOGRAMS: Final = (
    HistogramPanel(
        id="attempts",
        metric=schema.TURN_CONTINUATIONS,
        title="Continuations per truncated turn",
        question="How many continuations does a truncated turn take?",
        buckets={
            0: ("none", "lost"),
            1: ("1", "good"),
            2: ("2", "good"),
            3: ("3", "cut"),
            4: ("4", "cut"),
            5: ("5", "cut"),
            8: ("6–8", "window"),
            13: ("9–13", "window"),
            math.inf: ("over 13", "window"),
        },
    ),
    HistogramPanel(
        id="budget",
        metric=schema.BUDGET_USED,
        title="Budget used",
        question="How close to max_tokens do answers come, before any is cut?",
        buckets={
            0.1: ("0–10%", "tool"),
            0.25: ("10–25%", "tool"),
            0.5: ("25–50%", "tool"),
            0.75: ("50–75%", "tool"),
            0.9: ("75–90%", "tool"),
            0.95: ("90–95%", "paused"),
            0.99: ("95–99%", "cut"),
            0.999: ("99–99.9%", "cut"),
            1: ("all of it", "lost"),
            math.inf: ("over", "lost"),
        },
    ),
)


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """One bucket of a histogram.

    Attributes:
        share: its count as a part of all.
        length: its count as a part of the largest bucket's.
    """

    label: str
    colour: str
    count: float
    share: float
    length: float


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram with its counts; rows end at the last bucket that is not empty."""

    panel: HistogramPanel
    total: float
    rows: Sequence[HistogramRow]


def _histogram(numbers: Numbers, panel: HistogramPanel) -> Histogram:
    counts = numbers.buckets(panel.metric).get((), {})
    if len(counts) > MOST_BUCKETS:
        counts = _coarser(counts, sorted(panel.buckets))
    total, highest = sum(counts.values()), max(counts.values(), default=0)
    rows: list[HistogramRow] = []
    for bound, number in sorted(counts.items()) if total else ():
        label, hue = panel.buckets.get(bound, (f"{bound:g}", "tool"))
        rows.append(HistogramRow(label, hue, number, number / total, number / highest))
    while rows and not rows[-1].count:
        rows.pop()
    return Histogram(panel, total, rows)


def _coarser(counts: Mapping[float, float], bounds: Sequence[float]) -> dict[float, float]:
    """Merge buckets into fewer ones: each into the first whose upper bound is not lower."""
    coarse = dict.fromkeys(bounds, 0.0)
    for bound, number in counts.items():
        coarse[next((upper for upper in bounds if bound <= upper), math.inf)] += number
    return coarse
