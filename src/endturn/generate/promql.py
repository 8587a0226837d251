"""PromQL from names that the schema declares.

Anything else is refused, with the nearest name that it does declare.

The forms, each with its reason:

- `number`: how many events, as people read them. The highest value less the lowest is exact up to
  one sample at each edge, since a series begins with zero; `increase` would extrapolate. Where an
  id was used again it falls back to that.
- `growth`: the same for rules, which look back on minutes: what came in a gap of telemetry is
  counted when it ends.
- `losses`: of counters that have no series before their first loss.
- `share`: a part of a whole, zero where nothing bad happened, no series (never NaN) where nothing
  happened.
- `steps`: how many in each step of a chart; what came in a gap of telemetry stands where it ends.
- `quantile`: of a histogram's buckets.

Panels are data (`boards/*.yaml`); `expand` fills in their expressions.

Everything stays within what Prometheus 2.42 understands; no quoted UTF-8 names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from textwrap import indent
from typing import Any, Final, Literal

import promql_parser

from endturn.errors import UsageError
from endturn.telemetry import INDICATORS, Attribute, Count, Metric, schema

JOB: Final = "job"
INSTANCE: Final = "instance"
LE: Final = "le"
"""A histogram's bucket, by its upper bound. Match no value of it but "+Inf": Prometheus 3 writes
"1" as "1.0"."""
SERVICE: Final = (JOB, "deployment_environment_name", "cluster")
"""What tells services apart. `sum by` leaves a label absent that a series lacks; `cluster` is
Mimir's or Thanos'."""
CALL: Final = (schema.PROVIDER, schema.REQUEST_MODEL)
TOP: Final = 8
"""How many series a chart shows of what may be any number."""

GAP: Final = "15m"
"""For how long telemetry may be absent, so that a chart still shows what came meanwhile, when the
gap ends."""

WINDOWS: Final = {
    "$__range_s": "21600",
    "$__rate_interval": "4m",
    "$__interval": "5m",
    "$__range": "6h",
    "$window": "1h",
}
"""What Grafana might put in for a dashboard's times, to read an expression without it."""

OTHERS: Final = {
    "sent": '__name__=~"otelcol_exporter_sent_(spans|metric_points|log_records)(_total)?"',
    "written": '__name__=~"otelcol_exporter_sent_spans(_total)?",exporter=~"kafka/.+"',
    "read": '__name__=~"otelcol_receiver_accepted_spans(_total)?",receiver=~"kafka/.+"',
    "fetched": '__name__=~"otelcol_kafka_receiver_messages(_total)?"',
    "losses": '__name__=~"otelcol_(exporter_(send|enqueue)_failed|receiver_refused)_(spans'
              '|metric_points|log_records)'
              '(_total)?"',
    # Without `error` it counts what was added up.
    "limited": '__name__=~"otelcol_deltatocumulative_datapoints(_total)?",error="limit"',
    "drops": '__name__=~"otel_sdk_(processor_(span|log)_processed|exporter_(span'
             '|log)_exported)_total",error_type!=""',
}  # fmt: skip
"""What selects counters of others: of a Collector, and of an SDK (`drops`)."""

Label = Attribute | str
Part = Literal["", "bucket", "sum", "count"]

SUCCESSORS: Final = {
    old.prometheus: tuple(
        (new.prometheus, {key.label: value for key, value in says.items()}) for new, says in later
    )
    for old, later in schema.SUCCESSORS.items()
}
"""What the later generation of the conventions calls a metric, with the labels that the new name
says instead. Emitters change at their own time, so both are read."""


class UnknownName(UsageError):
    """A metric, label or value that the schema does not declare."""


def _unknown(kind: str, name: str, known: Iterable[str], *, of: str = "the schema") -> UnknownName:
    nearest = get_close_matches(name, sorted(map(str, known)), n=1, cutoff=0.0)
    hint = f"; the nearest is {nearest[0]!r}" if nearest else ""
    return UnknownName(f"{of} declares no {kind} {name!r}{hint}")


def metric(name: str) -> Metric:
    """The schema's metric of that name, OpenTelemetry's or Prometheus'; raises UnknownName."""
    for known in schema.METRICS:
        if name in (known.name, known.prometheus):
            return known
    raise _unknown(
        "metric", name, (m.prometheus if "." not in name else m.name for m in schema.METRICS)
    )


def label(what: Label) -> str:
    """A label's name: an attribute's, or one of those that every series has; raises UnknownName."""
    if isinstance(what, Attribute):
        what = what.label
    known = {JOB, INSTANCE, LE, *SERVICE, *(attribute.label for attribute in schema.ATTRIBUTES)}
    if what not in known:
        raise _unknown("label", what, known)
    return what


def matching(what: Attribute, values: Collection[str], *, never: bool = False) -> str:
    """The attribute has one of these values, or none of them.

    Raises UnknownName for one outside a closed set.
    """
    known = what.values or (("true", "false") if what.type == "boolean" else ())
    for value in values:
        if known and value not in known:
            raise _unknown("value", str(value), known, of=f"{what.key!r}")
    ordered = sorted(map(str, values))
    operator = ("!=" if never else "=") if len(ordered) == 1 else ("!~" if never else "=~")
    quoted = "|".join(ordered if len(ordered) == 1 else map(re.escape, ordered)).replace(
        "\\", "\\\\"
    )
    return f'{label(what)}{operator}"{quoted}"'


def select(what: Count | Metric, *where: str, part: Part = "") -> str:
    """Series of a count, those that also fulfil the conditions.

    Args:
        where: conditions as PromQL writes them.
        part: of a histogram, the one to read.
    """
    count = what if isinstance(what, Count) else Count(what)
    if (count.metric.instrument == "histogram") != bool(part):
        raise UsageError(
            f"{count.metric.name!r} is a {count.metric.instrument}: part {part!r} does not fit it"
        )
    only = [matching(a, values) for a, values in count.only]
    never = [matching(a, values, never=True) for a, values in count.never]
    for a, _ in (*count.only, *count.never):
        if a not in count.metric.attributes:
            raise _unknown(
                "label",
                a.label,
                (each.label for each in count.metric.attributes),
                of=count.metric.name,
            )
    name = f"{count.metric.prometheus}_{part}" if part else count.metric.prometheus
    conditions = ", ".join((*where, *only, *never))
    return f"{name}{{{conditions}}}" if conditions else name


def duration(seconds: int) -> str:
    """As PromQL writes it: one unit where one fits (5400 is 90m), else several (315 is 5m15s)."""
    if seconds <= 0:
        raise UsageError(f"a duration must be at least one second, not {seconds!r}")
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    if seconds > 120 and seconds % 60:
        return f"{seconds // 60}m{seconds % 60}s"
    size, unit = next((size, unit) for size, unit in units if not seconds % size)
    return f"{seconds // size}{unit}"


def by(labels: Iterable[Label]) -> str:
    """The clause of an aggregation."""
    names = ", ".join(map(label, labels))
    return f" by ({names}) " if names else ""


def number(series: str, labels: Collection[Label], window: str) -> str:
    """How many events there were in a window."""
    over = _over(series, window)
    return (
        f"sum{by(labels)}(\n  max_over_time({over}) - min_over_time({over}) unless resets({over}) "
        f"> 0\n  or increase({over})\n)"
    )


def growth(series: str, labels: Collection[Label], window: int, memory: int) -> str:
    """What was added in so many seconds, though nothing came for as long as `memory` before them.

    Each addition lies in exactly those windows that its first sample lies in. A series that is born
    begins with its least value, which is zero where it was not missed. Where it begins anew under
    its id, `increase` takes over.
    """
    lately, earlier, both = map(duration, (window, memory, window + memory))
    now = f"last_over_time({series}[{lately}])"
    before = (
        f"last_over_time({series}[{earlier}] offset {lately}) or min_over_time({series}[{lately}])"
    )
    return (
        f"sum{by(labels)}(\n  {now} - ({before})\n"
        f"  unless resets({series}[{both}]) > 0 or increase({series}[{lately}])\n)"
    )


def losses(
    selector: str, labels: Collection[Label], window: str, *, seen: str, on: Collection[Label]
) -> str:
    """Return the query for the increase in a window of counters without an initial zero.

    The counters have several names and first appear with their first loss.

    Args:
        seen: what was there before the window, where Prometheus has looked before: else a counter
            that it sees for the first time may be an old one, and its value is no loss of now.
            Empty where there is nothing to tell it by.
        on: the labels that this has in common with the counters.
    """
    now, before = (
        f'label_replace(last_over_time({{{selector}}}{over}), "name", "$1", "__name__", "(.+)")'
        for over in (f"[{window}]", f"[1d] offset {window}")
    )
    known = (
        f" and on ({', '.join(map(label, on))}) last_over_time({seen}[1d] offset {window})"
        if seen
        else ""
    )
    return f"sum{by(labels)}(\n  {now} - {before} >= 0\n  or {now}{known})"


def increases(series: str, labels: Collection[Label], window: str) -> str:
    """Events in a window, extrapolated: for shares over time, where both sides are."""
    return f"sum{by(labels)}(increase({_over(series, window)}))"


def _over(series: str, window: str) -> str:
    """The series over a window, which may be one of the past: `1h offset 1d`."""
    length, _, offset = window.partition(" offset ")
    return f"{series}[{length}]" + (f" offset {offset}" if offset else "")


def share(part: str, whole: str) -> str:
    """Part of a whole, two sums by the same labels."""
    return f"({part} or {whole} * 0)\n/ ({whole} > 0)"


def steps(series: str, labels: Collection[Label]) -> str:
    """Return the query for the number of events in each step of a chart.

    Each event counts in exactly one step, also after a gap in the telemetry.

    What happened at any time of the chart is zero at all others: a lone bar would be drawn as wide
    as the chart.
    """
    over = f"{series}[$__interval]"
    before = f"last_over_time({series}[{GAP}] offset $__interval) or min_over_time({over})"
    added = (
        f"last_over_time({over}) - ({before}) >= 0\n  unless resets({over}) > 0 or increase({over})"
    )
    return drawn(f"sum{by(labels)}(\n  {added}\n)\nor 0 * {_ever(series, labels)}", series, labels)


def drawn(value: str, series: str, labels: Collection[Label]) -> str:
    """The value of what happened at all.

    Of labels with any number of values, of the `TOP` that happened most.
    """
    names = list(map(label, labels))
    ever = f"{_ever(series, labels)} > 0"
    most = f"topk({TOP}, {ever})" if {JOB, schema.REQUEST_MODEL.label} & set(names) else ever
    return f"(\n{indent(value, '  ')}\n)\nand on ({', '.join(names)}) {most}"


def _ever(series: str, labels: Collection[Label]) -> str:
    return f"sum{by(labels)}(max_over_time({series}[$__range] @ end()))"


def quantile(q: float, series: str, labels: Collection[Label], window: str) -> str:
    """A quantile over a histogram's buckets."""
    return f"histogram_quantile({q:g}, sum{by((LE, *labels))}(increase({_over(series, window)})))"


def rates(what: Metric, labels: Collection[Label], window: str, *where: str, part: Part) -> str:
    """Events or amounts per second, over a window.

    Series of either generation of the metric's name.
    """
    added = {LE} if part == "bucket" else set()
    every = [f"rate({select(what, *where, part=part)}[{window}])"]
    for name, says in SUCCESSORS.get(what.prometheus, ()):
        conditions = f"{{{', '.join(where)}}}" if where else ""
        rate = f"rate({name}_{part}{conditions}[{window}])"
        for key, value in says.items():
            rate = f'label_replace({rate}, "{key}", "{value}", "", "")'
        every.append(rate)
    return f"sum{by((*added, *labels))}({' or '.join(every)})"


# --- Expressions that are data --------------------------------------------------------------------

SCOPES: Final[dict[str, tuple[Label, ...]]] = {
    "service": SERVICE,
    "call": CALL,
    "model": (*SERVICE, *CALL),
    "all": (),
}


def expand(text: str, values: Mapping[str, str], where: Collection[str] = ()) -> str:
    """The text with what stands between at signs replaced.

    A value by its name, or a form with its arguments.

    The value `where` is the conditions in braces, or nothing where there are none.

    The forms, each over series that fulfil the conditions `where`; an indicator is one of
    telemetry/indicators.py, `by` a scope (service, call, model, all) or labels joined by +:

    - `number(indicator, by, window)`, `increases(indicator, by, window)`, `steps(indicator, by)`;
      of an indicator that is a share its part, with `.whole` its whole;
    - `portion(indicator, by, window)`: a share as people read it, number by number;
    - `share(indicator, by, window)`: a share over time;
    - `quantile(q, metric, by, window, condition…)`, `values(metric, by, window, condition…)`: of a
      histogram, the number of values at or below each bound;
    - `losses(value, by, window, on)`: of counters born at their first loss; the value is the
      conditions that select them, the value `seen` what tells, by the labels `on`, whether
      Prometheus has looked before;
    - `rates(metric, part, by, window, condition…)`: per second, under both names of a metric that
      is to be renamed.

    Raises:
        UsageError: there is no such value, form or indicator. UnknownName: the schema lacks a name.
    """

    def count(name: str) -> Count:
        of, _, side = name.partition(".")
        if of not in INDICATORS:
            raise _unknown("indicator", of, INDICATORS, of="telemetry/indicators.py")
        found = INDICATORS[of].whole if side == "whole" else INDICATORS[of].count
        if found is None:
            raise UsageError(f"the indicator {of!r} is not a share, and has no denominator")
        return found

    def series(name: str) -> str:
        part: Part = "count" if count(name).metric.instrument == "histogram" else ""
        return select(count(name), *where, part=part)

    def labels(names: str) -> tuple[Label, ...]:
        return SCOPES[names] if names in SCOPES else tuple(names.split("+"))

    def form(name: str, inner: str) -> str:
        match [name, *(each.strip() for each in inner.split(","))]:
            case ["number", of, names, window]:
                return number(series(of), labels(names), window)
            case ["increases", of, names, window]:
                return increases(series(of), labels(names), window)
            case ["steps", of, names]:
                return steps(series(of), labels(names))
            case ["portion", of, names, window]:
                return share(
                    *(number(series(each), labels(names), window) for each in (of, f"{of}.whole"))
                )
            case ["share", of, names, window]:
                both = (
                    increases(series(each), labels(names), window) for each in (of, f"{of}.whole")
                )
                portion = share(*both)
                return (
                    drawn(portion, series(f"{of}.whole"), labels(names))
                    if labels(names)
                    else portion
                )
            case ["quantile", q, of, names, window, *conditions]:
                return quantile(
                    float(q),
                    select(metric(of), *where, *conditions, part="bucket"),
                    labels(names),
                    window,
                )
            case ["values", of, names, window, *conditions]:
                return number(
                    select(metric(of), *where, *conditions, part="bucket"),
                    (LE, *labels(names)),
                    window,
                )
            case ["losses", which, names, window, on]:
                selector = ", ".join((value(which), *where))
                return losses(selector, labels(names), window, seen=value("seen"), on=labels(on))
            case ["rates", of, ("bucket" | "sum" | "count") as part, names, window, *conditions]:
                return rates(metric(of), labels(names), window, *where, *conditions, part=part)
        raise UsageError(f"there is no form {name}({inner}); see promql.expand")

    def value(name: str) -> str:
        if name == "where":
            return f"{{{', '.join(where)}}}" if where else ""
        if name not in values:
            raise _unknown("value", name, values, of="the configuration")
        return values[name]

    def fill(found: re.Match[str]) -> str:
        return value(found[1]) if found[2] is None else form(found[1], found[2])

    return re.sub(r"@(\w+)(?:\(([^@]*)\))?@", fill, text)


def check(expr: str, known: Mapping[str, Collection[str]]) -> None:
    """Raise UnknownName for a metric or label that is not declared.

    Declared are those of the schema, of the rules and of `known` (name → labels).
    """
    declared: dict[str, set[str]] = {name: set(labels) for name, labels in known.items()}
    for each in schema.METRICS:
        names = [each.prometheus, *(name for name, _ in SUCCESSORS.get(each.prometheus, ()))]
        suffixes = ("_bucket", "_sum", "_count") if each.instrument == "histogram" else ("",)
        declared |= {
            n + s: {LE, *(a.label for a in each.attributes)} for n in names for s in suffixes
        }
    for name, matchers in selectors(expr):
        name = name or dict(matchers)["__name__"]
        if name not in declared and not name.startswith("endturn:"):
            raise _unknown("metric", name, declared)
        for label, _ in matchers:
            if label not in {"__name__", INSTANCE, *SERVICE, *declared.get(name, ())}:
                raise _unknown("label", label, declared[name], of=repr(name))


def filled(expr: str) -> str:
    """The expression with values for a dashboard's variables."""
    for variable, window in WINDOWS.items():
        expr = expr.replace(variable, window)
    return re.sub(r"\$\w+", ".*", expr)


def selectors(expr: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Every series that an expression reads.

    Its name, if it has one, and each label that is asked about, with what.
    """
    for node in _vectors(promql_parser.parse(filled(expr))):
        yield (
            str(node.name or ""),
            [(matcher.name, matcher.value) for matcher in node.matchers.matchers],
        )


def _vectors(node: Any) -> Iterator[Any]:
    if isinstance(node, promql_parser.VectorSelector):
        yield node
        return
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (child := getattr(node, name, None)) is not None:
            yield from _vectors(child)
    for child in getattr(node, "args", None) or ():
        yield from _vectors(child)
