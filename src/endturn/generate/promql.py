"""PromQL from names that the schema declares: anything else is refused, with the nearest name that it does declare.

The traps of PromQL are settled here once, for dashboards and rules alike:

- `summed`, `counted`: longer windows are sums over recorded increments (`generate.increments`), never looks further
  back into raw series;
- `ratio`: a share that is zero where nothing bad happened, and no series at all (never NaN) where nothing happened;
- `guarded`: a share of very few events says nothing;
- `throughput`: the only place for `$__rate_interval`; both generations of a metric's name are joined first.

Everything stays within what Prometheus 2.42 understands; no quoted UTF-8 names.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from textwrap import indent
from typing import Final, Literal

from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric

JOB: Final = "job"
INSTANCE: Final = "instance"
LE: Final = "le"
"""A histogram's bucket, by its upper bound. Match no value of it but "+Inf": Prometheus 3 writes "1" as "1.0"."""

Own = Literal["job", "instance", "le"]
Label = Attribute | Own
UNITS: Final = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
Part = Literal["", "bucket", "sum", "count"]
Window = int | Literal["$window", "$__range", "$__interval"]
"""Seconds, or one of a dashboard's: the variable for rates, the whole range for stats, the step for bars of counts."""

SIGNALS: Final = ("spans", "log_records", "metric_points")
"""The Collector counts each kind of telemetry by itself, under names that end so."""

FOREIGN: Final[Mapping[str, tuple[str, ...]]] = (
    {
        "ALERTS": ("alertname", "alertstate"),
        "up": (),
        "otelcol_deltatocumulative_datapoints": ("error",),
        "otelcol_exporter_queue_capacity": ("exporter", "data_type"),
        "otelcol_exporter_queue_size": ("exporter", "data_type"),
        "otelcol_processor_tail_sampling_sampling_trace_removal_age_count": (),
        "otelcol_processor_tail_sampling_global_count_traces_sampled": ("sampled", "decision"),
        "otelcol_process_uptime": (),
        "otelcol_process_uptime_seconds_total": (JOB,),
        "otelcol_process_memory_rss": (),
        "prometheus_rule_evaluation_failures_total": ("rule_group",),
        "prometheus_rule_group_interval_seconds": ("rule_group",),
        "prometheus_rule_group_last_duration_seconds": ("rule_group",),
        "prometheus_tsdb_head_series": (),
        "target_info": ("service_version",),
        "prometheus_rule_group_iterations_missed_total": ("rule_group",),
    }
    | {
        f"otelcol_{what}_{signal}": by
        for what, by in (
            ("exporter_send_failed", ("exporter",)),
            ("exporter_enqueue_failed", ("exporter",)),
            ("exporter_sent", ("exporter",)),
            ("receiver_accepted", ("receiver", "transport")),
            ("receiver_refused", ("receiver", "transport")),
            ("processor_memory_limiter_refused", ("processor",)),
        )
        for signal in SIGNALS
    }
    | {
        # What model servers and gateways count themselves, where they are scraped. Of these vLLM alone tells why it
        # stopped (vLLM, design/v1/metrics; SGLang, production metrics; LiteLLM, prometheus; agentgateway, metrics).
        "vllm:request_success_total": ("model_name", "finished_reason"),
        "sglang:num_requests_total": ("model_name",),
        "sglang:num_aborted_requests_total": ("model_name",),
        "litellm_deployment_total_requests_total": ("litellm_model_name",),
        "litellm_deployment_failure_responses_total": ("litellm_model_name",),
        "agentgateway_gen_ai_client_token_usage_sum": ("gen_ai_request_model", "gen_ai_token_type"),
    }
)
"""Series of others that panels and rules read, with the labels that they may be told apart by."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The name that takes another's place.

    Attributes:
        adds: labels by which the old name told its series apart, and which the new one says in its name.
    """

    name: str
    adds: tuple[tuple[str, str], ...] = ()


SUCCESSORS: Final = {
    schema.OPERATION_DURATION.prometheus: (Successor("gen_ai_client_inference_duration_seconds"),),
    schema.FIRST_CHUNK.prometheus: (Successor("gen_ai_client_inference_time_to_first_chunk_seconds"),),
    schema.TOKEN_USAGE.prometheus: tuple(
        Successor(f"gen_ai_client_inference_operation_{type_}_tokens", ((schema.TOKEN_TYPE.label, type_),))
        for type_ in schema.TOKEN_TYPE.values
    ),
}
"""What the conventions announce a metric to be renamed to (semantic-conventions-genai, migration.md). Emitters change
at their own time, so both are read. Of the new metrics for tokens, the histograms: the counters
`gen_ai.client.inference.usage.*` hold the same tokens again."""


class UnknownName(UsageError):
    """A metric, label or value that the schema does not declare."""


def _unknown(kind: str, name: str, known: Iterable[str], *, of: str = "the schema") -> UnknownName:
    names = sorted(map(str, known))
    nearest = get_close_matches(name, names, n=1, cutoff=0.0)
    hint = f"; the nearest is {nearest[0]!r}" if nearest else ""
    return UnknownName(f"{of} declares no {kind} {name!r}{hint}")


def metric(name: str) -> Metric:
    """The schema's metric of that name, OpenTelemetry's or Prometheus'; raises UnknownName."""
    for known in schema.METRICS:
        if name in (known.name, known.prometheus):
            return known
    raise _unknown("metric", name, (m.prometheus if "." not in name else m.name for m in schema.METRICS))


def label(what: Label) -> str:
    """A label's name; raises UnknownName for what is neither an attribute of the schema nor Prometheus' own."""
    if isinstance(what, Attribute):
        if what not in schema.ATTRIBUTES:
            raise _unknown("attribute", what.key, (a.key for a in schema.ATTRIBUTES))
        return what.label
    if what not in (JOB, INSTANCE, LE):
        raise _unknown("label", what, [JOB, INSTANCE, LE, *(a.label for a in schema.ATTRIBUTES)])
    return what


@dataclass(frozen=True, slots=True)
class Matcher:
    """One condition on one label."""

    label: str
    operator: Literal["=", "!=", "=~", "!~"]
    value: str

    def allows(self, value: str) -> bool:
        """Whether a series whose label has this value is selected. A dashboard's variable may allow anything."""
        if "$" in self.value:
            return True
        same = value == self.value if self.operator in ("=", "!=") else bool(re.fullmatch(self.value, value))
        return same == (self.operator in ("=", "=~"))

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'{self.label}{self.operator}"{quoted}"'


def only(attribute: Attribute, *values: str) -> Matcher:
    """The attribute has one of these values; raises UnknownName for a value outside a closed set."""
    return _matcher(attribute, values, "=", "=~")


def never(attribute: Attribute, *values: str) -> Matcher:
    """The attribute has none of these values; raises UnknownName for a value outside a closed set."""
    return _matcher(attribute, values, "!=", "!~")


def chosen(what: Label, variable: str) -> Matcher:
    """The label has a value that the dashboard's variable allows."""
    if not re.fullmatch("[a-z_]+", variable):
        raise UsageError(f"{variable!r} is no name of a dashboard variable")
    return Matcher(label(what), "=~", f"${variable}")


def _matcher(
    attribute: Attribute, values: Collection[str], one: Literal["=", "!="], many: Literal["=~", "!~"]
) -> Matcher:
    known = attribute.values or (("true", "false") if attribute.type == "boolean" else ())
    if not values:
        raise UsageError(f"a condition on {attribute.key!r} needs a value")
    for value in values:
        if known and value not in known:
            raise _unknown("value", str(value), known, of=f"{attribute.key!r}")
    ordered = sorted(map(str, values))
    if len(ordered) == 1:
        return Matcher(label(attribute), one, ordered[0])
    return Matcher(label(attribute), many, "|".join(map(re.escape, ordered)))


@dataclass(frozen=True, slots=True)
class Selector:
    """Series of one name, and the labels that they can be told apart by."""

    name: str
    labels: frozenset[str]
    matchers: tuple[Matcher, ...] = ()

    def where(self, *matchers: Matcher) -> Selector:
        """The same series, fewer of them; raises UnknownName for a label that they do not have."""
        for matcher in matchers:
            if matcher.label not in self.labels:
                raise _unknown("label", matcher.label, self.labels, of=repr(self.name))
        return replace(self, matchers=self.matchers + matchers)

    def __str__(self) -> str:
        return f"{self.name}{{{', '.join(map(str, self.matchers))}}}" if self.matchers else self.name


def select(what: Metric | str, *matchers: Matcher, part: Part = "") -> Selector:
    """Series of one of the schema's metrics; raises UnknownName for names and labels that it lacks.

    Args:
        part: of a histogram, the one to read.
    """
    found = metric(what if isinstance(what, str) else what.name)
    if (found.instrument == "histogram") != bool(part):
        raise UsageError(f"{found.name!r} is a {found.instrument}: part {part!r} does not fit it")
    labels = {JOB, INSTANCE, *map(label, found.attributes)} | ({LE} if part == "bucket" else set())
    return Selector(f"{found.prometheus}_{part}" if part else found.prometheus, frozenset(labels)).where(*matchers)


def foreign(name: str, **matchers: str) -> Selector:
    """Series that others expose, of those declared in `FOREIGN`; a value is a regular expression."""
    if name not in FOREIGN:
        raise _unknown("foreign metric", name, FOREIGN, of="promql.FOREIGN")
    conditions = (Matcher(key, "=~", value) for key, value in matchers.items())
    return Selector(name, frozenset({JOB, INSTANCE, *FOREIGN[name]})).where(*conditions)


@dataclass(frozen=True, slots=True)
class Vector:
    """An expression that has one value for each combination of its labels."""

    text: str
    labels: frozenset[str]

    def __str__(self) -> str:
        return self.text


def duration(seconds: int) -> str:
    """As PromQL writes it: the largest unit that fits, 5400 is 90m."""
    if seconds <= 0:
        raise UsageError(f"a duration is at least one second, not {seconds!r}")
    size, unit = next((size, unit) for size, unit in UNITS if not seconds % size)
    return f"{seconds // size}{unit}"


def span(window: Window) -> str:
    """A window as it stands between brackets."""
    if isinstance(window, int):
        return duration(window)
    if window not in ("$window", "$__range", "$__interval"):
        raise UsageError(f"{window!r} is no window for counts: $window, $__range or $__interval, or seconds")
    return window


def sum_by(by: Collection[Label], inner: Vector) -> Vector:
    """The sum over everything but these labels; raises UnknownName for a label that is not there to sum by."""
    names = [label(each) for each in by]
    for name in names:
        if name not in inner.labels:
            raise _unknown("label", name, inner.labels, of="the summed expression")
    grouping = f" by ({', '.join(names)}) " if names else ""
    body = f"(\n{indent(inner.text, '  ')}\n)" if "\n" in inner.text else f"({inner.text})"
    return Vector(f"sum{grouping}{body}", frozenset(names))


def summed(recorded: Selector, by: Collection[Label], window: Window) -> Vector:
    """A sum over recorded increments. Each event stands in several of them: only ratios of sums mean anything."""
    return sum_by(by, Vector(f"sum_over_time({recorded}[{span(window)}])", recorded.labels))


def counted(recorded: Selector, by: Collection[Label], window: Window, *, overlap: int) -> Vector:
    """Events in the window, as whole numbers.

    Args:
        overlap: in how many recorded increments one event stands: their window divided by how often they are recorded.
    """
    total = summed(recorded, by, window)
    return Vector(f"round({total.text} / {overlap})", total.labels)


def ratio(part: Vector, whole: Vector) -> Vector:
    """Part of a whole: zero where the part has no series, no series where the whole is zero."""
    if part.labels != whole.labels:
        raise UsageError(f"both sides of a ratio have the same labels, not {set(part.labels)} and {set(whole.labels)}")
    text = f"(\n{indent(part.text, '  ')}\n  or\n{indent(whole.text, '  ')} * 0\n)\n/\n({whole.text} > 0)"
    return Vector(text, whole.labels)


def or_zero(value: Vector, like: Vector) -> Vector:
    """The value, and zero where only `like` has a series."""
    if value.labels != like.labels:
        raise UsageError(f"both have the same labels, not {set(value.labels)} and {set(like.labels)}")
    return Vector(f"{value.text}\nor\n{like.text} * 0", value.labels)


def guarded(value: Vector, *, above: float, events: Vector, at_least: int) -> Vector:
    """The value where it is above a limit and stands on enough events; the events to give are the bad ones."""
    if value.labels != events.labels:
        raise UsageError(f"value and events have the same labels, not {set(value.labels)} and {set(events.labels)}")
    names = ", ".join(sorted(value.labels, key=lambda name: (name != JOB, name)))
    text = f"(\n{indent(value.text, '  ')}\n) > {above:g}\nand on ({names})\n{events.text} >= {at_least}"
    return Vector(text, value.labels)


def quantile(q: float, recorded: Selector, by: Collection[Label], window: Window) -> Vector:
    """A quantile over recorded increments of a histogram's buckets; no series where there was no event."""
    if not 0 < q < 1:
        raise UsageError(f"a quantile lies between 0 and 1, not at {q!r}")
    buckets = summed(recorded, (LE, *by), window)
    events = summed(recorded.where(Matcher(LE, "=", "+Inf")), by, window)
    names = ", ".join(label(each) for each in by)
    return Vector(
        f"histogram_quantile({q:g}, {buckets.text})\nand on ({names})\n{events.text} > 0", frozenset(events.labels)
    )


def throughput(what: Metric, by: Collection[Label], *matchers: Matcher, part: Part = "") -> Vector:
    """Per second, of right now. Both generations of the metric's name are joined before they are aggregated."""
    series = select(what, *matchers, part=part)
    return sum_by(by, Vector(joined(series, of=what, window="$__rate_interval"), series.labels))


def joined(series: Selector, *, of: Metric, window: int | Literal["$__rate_interval"]) -> str:
    """Rates of the series of either generation of a metric's name. Who emits both at once is counted once."""
    over = f"[{duration(window) if isinstance(window, int) else window}]"
    rates = [f"rate({series}{over})"]
    suffix = series.name.removeprefix(of.prometheus)
    for successor in SUCCESSORS.get(of.prometheus, ()):
        added = dict(successor.adds)
        if not all(m.allows(added[m.label]) for m in series.matchers if m.label in added):
            continue
        kept = tuple(m for m in series.matchers if m.label not in added)
        rate = f"rate({replace(series, name=successor.name + suffix, matchers=kept)}{over})"
        for name, value in successor.adds:
            rate = f'label_replace({rate}, "{name}", "{value}", "", "")'
        rates.append(rate)
    return " or ".join(rates)


def share(recorded: Selector, by: Collection[Label], of: Collection[Label], window: Window) -> Vector:
    """How the events of each `of` divide among `by`, which names those labels and more."""
    each, whole = summed(recorded, by, window), summed(recorded, of, window)
    if not whole.labels < each.labels:
        raise UsageError(f"a share is of fewer labels than it is by: {sorted(whole.labels)}, {sorted(each.labels)}")
    names = ", ".join(label(name) for name in of)
    return Vector(f"{each.text}\n/ on ({names}) group_left ()\n({whole.text} > 0)", each.labels)


def earlier(value: Vector, seconds: int) -> Vector:
    """The same, that long ago: to compare with."""
    return Vector(re.sub(r"\[[^\]]+\]", rf"\g<0> offset {duration(seconds)}", value.text), value.labels)


def amount(recorded: Selector, by: Collection[Label], window: Window, *, overlap: int) -> Vector:
    """A quantity that comes in fractions, such as money; events are `counted`."""
    total = summed(recorded, by, window)
    return Vector(f"{total.text} / {overlap}", total.labels)


def happened(steps: Vector, recorded: Selector, by: Collection[Label]) -> Vector:
    """Counts per step, with their zeros, of what happened at all in a dashboard's time range, and nothing else.

    Without the zeros a lone event would be a bar as wide as the chart.
    """
    names = ", ".join(label(each) for each in by)
    ever = sum_by(by, Vector(f"sum_over_time({recorded}[$__range] @ end())", recorded.labels))
    return Vector(f"{steps.text}\nand on ({names})\n{ever.text} > 0", steps.labels)


def enough(value: Vector, *, events: Vector, at_least: int) -> Vector:
    """The value, where it stands on enough events."""
    if value.labels != events.labels:
        raise UsageError(f"value and events have the same labels, not {set(value.labels)} and {set(events.labels)}")
    names = ", ".join(sorted(value.labels, key=lambda name: (name != JOB, name)))
    return Vector(f"{value.text}\nand on ({names})\n{events.text} >= {at_least}", value.labels)


def quantile_now(q: float, what: Metric, by: Collection[Label], *matchers: Matcher) -> Vector:
    """A quantile of right now, over the histogram itself: recorded increments have no exemplars."""
    if not 0 < q < 1:
        raise UsageError(f"a quantile lies between 0 and 1, not at {q!r}")
    rate = throughput(what, (LE, *by), *matchers, part="bucket")
    return Vector(f"histogram_quantile({q:g}, {rate.text})", rate.labels - {LE})


def firing() -> str:
    """Our alerts that fire: for the chosen services, for none in particular, about the Collector, which serves all."""
    own = foreign("ALERTS", alertname="Endturn.+", alertstate="firing").where(Matcher(JOB, "=~", "$job|"))
    return f"{own} or {foreign('ALERTS', alertname='EndturnCollector.+', alertstate='firing')}"


def deployed(window: int, remembered: int) -> str:
    """Versions of the chosen services that report in a window and did not in the time before it."""
    info = foreign("target_info").where(chosen(JOB, "job"), Matcher("service_version", "!=", ""))
    by = f"by ({JOB}, service_version)"
    now = f"group {by} (last_over_time({info}[{duration(window)}]))"
    return f"{now}\nunless\ngroup {by} (last_over_time({info}[{duration(remembered)}] offset {duration(window)}))"
