"""PromQL for dashboards, alerts and rules, built from the telemetry schema.

Every function takes metrics and attributes as schema objects and returns PromQL text, so a name
that the schema does not declare is a type error. Imports no Grafana SDK.

All expressions stay within Prometheus 2.42, without quoted UTF-8 names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from textwrap import indent
from typing import Final

from endturn.errors import UsageError
from endturn.telemetry import Attribute, Count, Indicator, Metric, schema

Labels = tuple[str, ...]

JOB: Final = "job"
ENVIRONMENT: Final = "deployment_environment_name"
CLUSTER: Final = "cluster"
INSTANCE: Final = "instance"
BUCKET_BOUND: Final = "le"
"""Upper bound of a histogram's bucket. Match only "+Inf": Prometheus 3 writes "1" as "1.0"."""

ALL: Final[Labels] = ()
"""No labels: one series for everything."""
SERVICE: Final[Labels] = (JOB, ENVIRONMENT, CLUSTER)
"""Labels that identify a service. A sum leaves out a label that the series lack; Mimir and Thanos
add `cluster`."""
CALL: Final[Labels] = (schema.PROVIDER.label, schema.REQUEST_MODEL.label)
"""Labels that identify the model that a call went to."""

VARIABLES: Final = {
    "job": JOB,
    "environment": ENVIRONMENT,
    "cluster": CLUSTER,
    "provider": schema.PROVIDER.label,
    "model": schema.REQUEST_MODEL.label,
}
"""Variable of the dashboards -> the label that it filters."""

CHART_SERIES_LIMIT: Final = 8
"""Charts with an unbounded label show this many series, the largest ones."""
TELEMETRY_GAP: Final = "15m"
"""Charts bridge gaps in telemetry up to this length."""


class Window(StrEnum):
    """Ranges that Grafana fills in."""

    DASHBOARD = "$__range"
    """The dashboard's time range."""
    CHOSEN = "$window"
    """The look-back that the reader picks in the variable `window`."""
    STEP = "$__interval"
    """One step of a chart."""
    RATE = "$__rate_interval"
    """Long enough for a rate: at least four scrapes."""


class HistogramPart(StrEnum):
    """The series that Prometheus keeps for a histogram."""

    BUCKET = "bucket"
    SUM = "sum"
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Matcher:
    """One label matcher, such as `job=~"$job"`."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f'{self.label}{self.operator}"{self.value}"'


def has_value(attribute: Attribute, *values: str) -> Matcher:
    """Match series whose attribute has one of the values.

    Raises:
        UsageError: The schema closes the attribute's values and one is not among them.
    """
    return _matcher(attribute, values, equal="=", regex="=~")


def lacks_value(attribute: Attribute, *values: str) -> Matcher:
    """Match series whose attribute has none of the values.

    Raises:
        UsageError: The schema closes the attribute's values and one is not among them.
    """
    return _matcher(attribute, values, equal="!=", regex="!~")


def is_set(attribute: Attribute) -> Matcher:
    """Match series that have the attribute."""
    return Matcher(attribute.label, "!=", "")


def _matcher(attribute: Attribute, values: Iterable[str], *, equal: str, regex: str) -> Matcher:
    ordered = sorted(map(str, values))
    allowed = attribute.values or (("true", "false") if attribute.type == "boolean" else ())
    if allowed and (unknown := sorted({*ordered} - {*allowed})):
        raise UsageError(
            f"{attribute.key!r} has no value {unknown[0]!r}; it has: {', '.join(allowed)}"
        )
    if len(ordered) == 1:
        return Matcher(attribute.label, equal, ordered[0].replace("\\", "\\\\"))
    # A backslash of the regular expression is written twice within a PromQL string.
    alternatives = "|".join(re.escape(value) for value in ordered).replace("\\", "\\\\")
    return Matcher(attribute.label, regex, alternatives)


def variable_matchers(names: Iterable[str] = tuple(VARIABLES)) -> tuple[Matcher, ...]:
    """Return the matchers that narrow a query to what a dashboard's variables select."""
    return tuple(Matcher(VARIABLES[name], "=~", f"${name}") for name in names)


def selector(name: str, matchers: Iterable[Matcher] = ()) -> str:
    """Return `name{matchers}`, without braces if there are no matchers."""
    conditions = ", ".join(map(str, matchers))
    return f"{name}{{{conditions}}}" if conditions else name


def duration(seconds: int) -> str:
    """Return a PromQL duration: one unit if possible (5400 is 90m), else two (315 is 5m15s).

    Raises:
        UsageError: It is shorter than a second.
    """
    if seconds <= 0:
        raise UsageError(f"a duration must be at least one second, not {seconds!r}")
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    if seconds > 120 and seconds % 60:
        return f"{seconds // 60}m{seconds % 60}s"
    size, unit = next((size, unit) for size, unit in units if not seconds % size)
    return f"{seconds // size}{unit}"


# --- Operations on expressions --------------------------------------------------------------------


def by_clause(labels: Labels) -> str:
    """Return ` by (labels) `, or nothing without labels."""
    return f" by ({', '.join(labels)}) " if labels else ""


def sum_by(labels: Labels, expression: str) -> str:
    """Return `sum by (labels) (expression)`, or a plain sum without labels."""
    return f"sum{by_clause(labels)}({expression})"


def or_zero(events: str, traffic: str) -> str:
    """Return the events, and zero where there is traffic but no event."""
    return f"{events} or {traffic} * 0"


def bad_or_enough(expression: str, *, part: str, total: str, at_least: int) -> str:
    """Return a single value if there was a bad event, or if there were enough events.

    Without this, a zero from few or no events would look like a verdict.

    Args:
        expression: The value.
        part: The number of bad events.
        total: The number of all events.
        at_least: How many of them are enough.
    """
    return f"({expression})\nand on () ({total} >= {at_least} or {part} > 0)"


def divide(part: str, total: str) -> str:
    """Return part / total: zero without a part, no series (never NaN) without traffic."""
    return f"({or_zero(part, total)})\n/ ({total} > 0)"


def events_in(counter: str, *, by: Labels, over: str, offset: str = "") -> str:
    """Return the exact number of events in a window.

    Counters start at zero, so maximum - minimum is exact up to one sample at each edge; `increase`
    would extrapolate. It is the fallback after a counter reset.
    """
    window = _range(counter, over, offset)
    return sum_by(
        by,
        f"\n  max_over_time({window}) - min_over_time({window}) unless resets({window}) > 0\n"
        f"  or increase({window})\n",
    )


def events_for_rules(counter: str, *, by: Labels, over: int, memory: int) -> str:
    """Return the number of events in a short window, as recording rules count them.

    Each event is in exactly those windows that contain its first sample, also after a gap in
    telemetry. A series that appears begins with its lowest value, which is zero if the zero was
    collected. After a counter reset `increase` takes over.

    Args:
        over: Length of the window in seconds.
        memory: Length in seconds of a gap before the window that is bridged.
    """
    recent, earlier, both = map(duration, (over, memory, over + memory))
    last = f"last_over_time({counter}[{recent}])"
    lowest = f"min_over_time({counter}[{recent}])"
    before = f"last_over_time({counter}[{earlier}] offset {recent}) or {lowest}"
    return sum_by(
        by,
        f"\n  {last} - ({before})\n"
        f"  unless resets({counter}[{both}]) > 0 or increase({counter}[{recent}])\n",
    )


def losses(counters: str, *, by: Labels, over: str, observed: str, on: Labels) -> str:
    """Return the increase of counters that appear with their first loss, without a zero before.

    Args:
        counters: Selector of the counters, which may have several names.
        observed: Selector of a series that exists while the counters' source is collected. A
            counter that is new while its source was collected before starts at zero; otherwise its
            value may be an old one. Empty if there is no such series.
        on: The labels that `observed` has in common with the counters.
    """
    last, before = (
        f'label_replace(last_over_time({counters}{window}), "name", "$1", "__name__", "(.+)")'
        for window in (f"[{over}]", f"[1d] offset {over}")
    )
    collected = (
        f" and on ({', '.join(on)}) last_over_time({observed}[1d] offset {over})"
        if observed
        else ""
    )
    return sum_by(by, f"\n  {last} - {before} >= 0\n  or {last}{collected}")


def with_events(expression: str, counter: str, *, by: Labels) -> str:
    """Return the chart's series that had an event in the dashboard's time range.

    Of an unbounded label it keeps the `CHART_SERIES_LIMIT` largest.
    """
    present = f"{_maximum(counter, by)} > 0"
    if {JOB, schema.REQUEST_MODEL.label} & set(by):
        present = f"topk({CHART_SERIES_LIMIT}, {present})"
    return f"(\n{indent(expression, '  ')}\n)\nand on ({', '.join(by)}) {present}"


def _maximum(counter: str, by: Labels) -> str:
    return sum_by(by, f"max_over_time({counter}[{Window.DASHBOARD}] @ end())")


def _range(series: str, over: str, offset: str) -> str:
    return f"{series}[{over}]" + (f" offset {offset}" if offset else "")


# --- Queries about the schema's metrics -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queries:
    """Queries that share a set of matchers: a dashboard's variables, or an alert's services."""

    matchers: tuple[Matcher, ...] = ()

    def counter(self, count: Count) -> str:
        """Return the selector of a count; of a histogram it counts the values.

        Raises:
            UsageError: The count has a condition on an attribute that its metric lacks.
        """
        for attribute, _ in (*count.only, *count.never):
            if attribute not in count.metric.attributes:
                raise UsageError(f"{count.metric.name!r} has no attribute {attribute.key!r}")
        own = (
            *(has_value(attribute, *values) for attribute, values in count.only),
            *(lacks_value(attribute, *values) for attribute, values in count.never),
        )
        name = count.metric.prometheus
        if count.metric.instrument == "histogram":
            name = f"{name}_{HistogramPart.COUNT}"
        return selector(name, (*self.matchers, *own))

    def histogram(self, metric: Metric, part: HistogramPart, *where: Matcher) -> str:
        """Return the selector of one part of a histogram.

        Raises:
            UsageError: The metric is no histogram.
        """
        if metric.instrument != "histogram":
            raise UsageError(f"{metric.name!r} is a {metric.instrument}, which has no {part}")
        return selector(f"{metric.prometheus}_{part}", (*self.matchers, *where))

    def events(
        self, count: Count, *, by: Labels = ALL, over: str = Window.DASHBOARD, offset: str = ""
    ) -> str:
        """Return the exact number of events in a window."""
        return events_in(self.counter(count), by=by, over=over, offset=offset)

    def ratio(self, indicator: Indicator, *, by: Labels = ALL, over: str = Window.DASHBOARD) -> str:
        """Return an indicator's share in a window, from exact event counts."""
        return divide(
            self.events(indicator.count, by=by, over=over),
            self.events(denominator(indicator), by=by, over=over),
        )

    def verdict(self, indicator: Indicator, *, at_least: int) -> str:
        """Return an indicator's share; a zero only if there were enough events."""
        return bad_or_enough(
            self.ratio(indicator),
            part=self.events(indicator.count),
            total=self.events(denominator(indicator)),
            at_least=at_least,
        )

    def increase(self, count: Count, *, by: Labels = ALL, over: str, offset: str = "") -> str:
        """Return the extrapolated number of events in a window, for both sides of a share."""
        return sum_by(by, f"increase({_range(self.counter(count), over, offset)})")

    def ratio_trend(
        self, indicator: Indicator, *, by: Labels = ALL, over: str, offset: str = ""
    ) -> str:
        """Return an indicator's share for a chart; both sides are extrapolated alike."""
        share = divide(
            self.increase(indicator.count, by=by, over=over, offset=offset),
            self.increase(denominator(indicator), by=by, over=over, offset=offset),
        )
        return with_events(share, self.counter(denominator(indicator)), by=by) if by else share

    def events_per_step(self, count: Count, *, by: Labels) -> str:
        """Return the number of events in each step of a chart.

        Each event is in exactly one step, also after a gap in telemetry. Series that had no event
        in the time range are left out; the others are zero in steps without one, because Grafana
        draws a lone bar as wide as the chart.
        """
        counter = self.counter(count)
        step = f"{counter}[{Window.STEP}]"
        before = (
            f"last_over_time({counter}[{TELEMETRY_GAP}] offset {Window.STEP})"
            f" or min_over_time({step})"
        )
        added = (
            f"\n  last_over_time({step}) - ({before}) >= 0\n"
            f"  unless resets({step}) > 0 or increase({step})\n"
        )
        steps = f"{sum_by(by, added)}\nor 0 * {_maximum(counter, by)}"
        return with_events(steps, counter, by=by)

    def quantile(
        self, quantile: float, metric: Metric, *where: Matcher, by: Labels = ALL, over: str
    ) -> str:
        """Return a quantile of a histogram."""
        buckets = f"{self.histogram(metric, HistogramPart.BUCKET, *where)}[{over}]"
        increases = sum_by((BUCKET_BOUND, *by), f"increase({buckets})")
        return f"histogram_quantile({quantile:g}, {increases})"

    def values_below(self, metric: Metric, *where: Matcher, over: str = Window.DASHBOARD) -> str:
        """Return the number of a histogram's values at or below each bound of its buckets."""
        buckets = self.histogram(metric, HistogramPart.BUCKET, *where)
        return events_in(buckets, by=(BUCKET_BOUND,), over=over)

    def rate(
        self, metric: Metric, part: HistogramPart, *where: Matcher, by: Labels = ALL, over: str
    ) -> str:
        """Return a GenAI histogram's rate per second, under its old and its new metric names.

        Emitters adopt the later names of the conventions at different times. If a new name replaces
        a label, the label is added; a condition on it selects names.
        """
        rates = [f"rate({self.histogram(metric, part, *where)}[{over}])"]
        for successor, labels in schema.SUCCESSORS.get(metric, ()):
            replaced = {attribute.label: value for attribute, value in labels.items()}
            if any(
                matcher.value != replaced.get(matcher.label, matcher.value) for matcher in where
            ):
                continue
            unchanged = (matcher for matcher in where if matcher.label not in replaced)
            renamed = selector(f"{successor.prometheus}_{part}", (*self.matchers, *unchanged))
            rate = f"rate({renamed}[{over}])"
            for attribute, value in labels.items():
                rate = f'label_replace({rate}, "{attribute.label}", "{value}", "", "")'
            rates.append(rate)
        grouped = (BUCKET_BOUND, *by) if part is HistogramPart.BUCKET else by
        return sum_by(grouped, " or ".join(rates))

    def rate_quantile(
        self, quantile: float, metric: Metric, *, by: Labels = ALL, over: str = Window.DASHBOARD
    ) -> str:
        """Return a quantile of a GenAI histogram, under its old and its new metric name."""
        buckets = self.rate(metric, HistogramPart.BUCKET, by=by, over=over)
        return f"histogram_quantile({quantile:g}, {buckets})"


def denominator(indicator: Indicator) -> Count:
    """Return the count that an indicator is a share of.

    Raises:
        UsageError: The indicator is a number, not a share.
    """
    if indicator.denominator is None:
        raise UsageError(f"{indicator.title!r} is a number, not a share")
    return indicator.denominator
