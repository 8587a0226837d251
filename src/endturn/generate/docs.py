"""The generated documents: the telemetry reference, the state diagram, one runbook page for each alert, and others.

Their words stand in `pages/*.md`; the tables and numbers in them are made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from endturn import cardinality, plan, reasons
from endturn.continuation import machine
from endturn.formats import FORMATS, dialect_in, format_of
from endturn.generate import promql, rules
from endturn.generate.alerts import Alert, alerts
from endturn.generate.config import Limits, RuleConfig
from endturn.generate.emitters import emitters_page
from endturn.generate.markdown import code, numbered, page, table
from endturn.providers import PROVIDERS, Auth, ProviderEndpoint
from endturn.reasons import Entry
from endturn.stop import TRUNCATED
from endturn.stop_reasons import apis
from endturn.telemetry import indicators, instruments, schema
from endturn.telemetry.indicators import Indicator
from endturn.telemetry.schema import Attribute, Metric

OUTSIDE: Final = "[*]"
"""Mermaid's mark for where a diagram begins and ends."""
OURS: Final = "endturn."


def files(config: RuleConfig) -> dict[str, str]:
    """The documents, by path from the root."""
    declared: dict[str, list[Alert]] = {}
    for alert in alerts(config):
        declared.setdefault(alert.name, []).append(alert)
    pages = {
        "docs/telemetry.md": reference(),
        "docs/cardinality.md": cardinality_page(),
        "docs/plan.md": plan_page(),
        "docs/providers.md": providers(),
        "docs/state-diagram.md": diagram_page(),
        "docs/stop-reasons.md": stop_reasons(),
        "docs/runbooks/README.md": index([same[0] for same in declared.values()]),
        "docs/alert-configuration.md": configuration(),
        "docs/emitters.md": emitters_page(),
    }
    return pages | {f"docs/runbooks/{name}.md": runbook(same) for name, same in declared.items()}


# --- The telemetry reference --------------------------------------------------------------------------------------


def reference() -> str:
    """Every span, event, metric and attribute, and what is recorded and shown of them."""
    own = [metric for metric in schema.METRICS if metric.name.startswith(OURS)]
    buckets = [(metric.name, ", ".join(f"{bound:g}" for bound in metric.buckets)) for metric in own if metric.buckets]
    recorded = [(rule["record"], " ".join(rule["expr"].split())) for rule in rules.recorded()]
    events = [(code([each.name]), _severity(each), each.brief, _keys(each.attributes)) for each in schema.EVENTS]
    spans = [(code([each.name]), each.kind.upper(), each.brief, _keys(each.attributes)) for each in schema.SPANS]
    shown = [*map(_shown, indicators.INDICATORS.values())]
    return page(
        "telemetry",
        metrics=_metrics(own),
        standard_metrics=_metrics([metric for metric in schema.METRICS if metric not in own]),
        buckets=table(("histogram", "upper bounds"), [(f"`{name}`", bounds) for name, bounds in buckets]),
        every=promql.duration(rules.INTERVAL),
        window=promql.duration(rules.WINDOW),
        overlap=rules.OVERLAP,
        memory=promql.duration(rules.MEMORY),
        recorded=table(("rule", "expression"), [(f"`{name}`", f"`{expr}`") for name, expr in recorded]),
        shown=table(("name", "question", "formula", "look from", "act from"), shown),
        events=table(("event", "severity", "what", "attributes"), events),
        spans=table(("span", "kind", "what", "attributes"), spans),
        attributes=_attributes(each for each in schema.ATTRIBUTES if each.key.startswith(OURS)),
        standard_attributes=_attributes(each for each in schema.ATTRIBUTES if not each.key.startswith(OURS)),
    )


def _metrics(metrics: Iterable[Metric]) -> str:
    return table(("metric", "in Prometheus", "instrument", "unit", "attributes", "answers"), map(_metric, metrics))


def _metric(metric: Metric) -> Sequence[str]:
    parts = " (`_bucket`, `_sum`, `_count`)" if metric.instrument == "histogram" else ""
    names = f"`{metric.name}`", f"`{metric.prometheus}`{parts}"
    says = f"{metric.brief} {metric.answers}"
    return (*names, metric.instrument, f"`{metric.unit}`", _keys(metric.attributes), says)


def _shown(shown: Indicator) -> tuple[str, str, str, str, str]:
    limits = shown.thresholds
    style = ".0%" if shown.whole else "g"
    look, act = (format(limits.look, style), format(limits.act, style)) if limits else ("", "")
    return shown.title, shown.question, shown.formula, look, act


def _severity(event: schema.Event) -> str:
    return event.severity.upper() + (f"; {event.severity_note}" if event.severity_note else "")


def _attributes(attributes: Iterable[Attribute]) -> str:
    return table(("attribute", "type", "what", "values"), map(_attribute, attributes))


def _attribute(attribute: Attribute) -> Sequence[str]:
    what = attribute.brief + (" Only where the host opted in." if attribute.opt_in else "")
    values = code(attribute.values) or ("e.g. " * bool(attribute.examples) + code(attribute.examples))
    return f"`{attribute.key}`", attribute.type, what, values


def _keys(attributes: Iterable[Attribute]) -> str:
    return code(attribute.key for attribute in attributes)


def cardinality_page() -> str:
    """How many series there can be, metric by metric, and in all."""
    every = {generation: cardinality.bounds(generation) for generation in schema.SEMCONV}
    totals = [(f"`{generation}`", f"{sum(each.total for each in found):,}") for generation, found in every.items()]
    rows = [
        (f"`{each.metric.name}`", each.formula, f"{each.sets:,}", f"{each.series}", f"{each.total:,}")
        for each in every["default"]
    ]
    caps = [(f"`{label}`", f"{cap}") for label, cap in instruments.CAPS.items()]
    return page(
        "cardinality",
        caps=table(("label", "values let in by one process"), caps),
        length=instruments.LENGTH,
        sets=f"{instruments.SETS:,}",
        pairs=cardinality.PAIRS,
        model=instruments.CAPS["model"],
        provider=instruments.CAPS["provider"],
        bounds=table(("metric", "sets of labels, at most", "=", "series each", "series at most"), rows),
        totals=table(("names of the conventions", "series of one process, at most"), totals),
    )


def plan_page() -> str:
    """What a fleet needs, at three sizes."""
    inputs = [
        (
            f"`--{each.name.replace('_', '-')}`",
            "required" if each.default is None else f"{each.default:g}",
            each.unit,
            each.says,
        )
        for each in plan.INPUTS
    ]
    constants = [(f"`{each.name}`", plan.shown(each.value), each.unit, each.source) for each in plan.CONSTANTS]
    sizes = [plan.figures(turns=turns) for turns in (10, 1_000, 1_000_000)]
    rows = [
        (
            f"`{same[0].name}`",
            same[0].says,
            *(plan.shown(each.value) for each in same),
            same[0].unit,
            f"`{same[0].formula}`",
        )
        for same in zip(*sizes, strict=True)
    ]
    return page(
        "plan",
        inputs=table(("option", "default", "unit", "what"), inputs),
        figures=table(("figure", "what", "10 turns/s", "1,000", "1,000,000", "unit", "formula"), rows),
        constants=table(("constant", "value", "unit", "from"), constants),
    )


# --- The state diagram --------------------------------------------------------------------------------------------


def state_diagram() -> str:
    """The continuation machine's table as a Mermaid state diagram: one arrow for all signals between two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, signal), leads_to in machine.TRANSITIONS.items():
        arrows.setdefault((state.value, leads_to.value), []).append(signal.value)
    lines = ["stateDiagram-v2", f"    {OUTSIDE} --> {machine.INITIAL.value}"]
    lines += [f"    {start} --> {end}: {', '.join(signals)}" for (start, end), signals in arrows.items()]
    lines += [f"    {state.value} --> {OUTSIDE}" for state in machine.State if state in machine.FINAL]
    return "\n".join(lines)


def diagram_page() -> str:
    """The diagram, and the table that it is drawn from."""
    rows = [
        (f"`{state.value}`", f"`{signal.value}`", f"`{leads_to.value}`")
        for (state, signal), leads_to in machine.TRANSITIONS.items()
    ]
    transitions = table(("in state", "signal", "leads to"), rows)
    return page("state-diagram", diagram=state_diagram(), transitions=transitions)


# --- Alerts -------------------------------------------------------------------------------------------------------


def runbook(same: Sequence[Alert]) -> str:
    """The page of an alert, with its rules: more than one where the configuration asks services different things."""
    alert = same[0]
    return page(
        "runbook",
        name=alert.name,
        severity=alert.severity,
        meaning=alert.meaning,
        impact=alert.impact,
        look=numbered(alert.look),
        act=numbered(alert.act),
        rules="\n\n".join(block for each in same for block in _rule(each)),
        fires=", or when ".join(example["says"] for example in alert.fires),
        quiet=", or when ".join(example["says"] for example in alert.quiet),
    )


def _rule(alert: Alert) -> Iterator[str]:
    if alert.who:
        yield f"### Of {alert.who}"
    yield alert.annotations["description"]
    yield f"Fires when this holds for {alert.hold}:" if alert.hold else "Fires at once when this holds:"
    yield f"```promql\n{alert.expr}\n```"


def index(declared: Sequence[Alert]) -> str:
    """The list of all runbooks."""
    rows = [(f"[{alert.name}]({alert.name}.md)", alert.severity, alert.meaning) for alert in declared]
    return page("runbooks", alerts=table(("alert", "severity", "meaning"), rows))


def configuration() -> str:
    """Every key of the file that rules and dashboards are generated from."""
    rows = [
        (f"`{prefix}{name}`", f"`{_default(name, field.default)}`", field.description)
        for model, prefix in ((RuleConfig, ""), (Limits, "alerts."))
        for name, field in model.model_fields.items()
        if field.description and name != "services"
    ]
    return page("alert-configuration", keys=table(("key", "default", "what"), rows))


def _default(name: str, value: object) -> str:
    if name == "period":
        return f'"{promql.duration(int(str(value)))}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- Providers ----------------------------------------------------------------------------------------------------

_WHO: Final = {
    Auth.BEARER: "bearer token",
    Auth.X_API_KEY: "`x-api-key`",
    Auth.API_KEY: "`api-key`",
    Auth.X_GOOG_API_KEY: "`x-goog-api-key`",
    Auth.SIGV4: "AWS signature, or a bearer token where there is a key",
}


def providers() -> str:
    """Who is known by name."""
    known = [_provider(name, endpoint) for name, endpoint in sorted(PROVIDERS.items())]
    read = [
        (f"`{name}`", format_of(name).framing, ", ".join(api.name for api in apis(name).values())) for name in FORMATS
    ]
    return page(
        "providers",
        providers=table(("provider", "format", "dialect", "address", "also at", "key", "sent as"), known),
        formats=table(("format", "stream", "APIs that it reads"), read),
    )


def _provider(name: str, known: ProviderEndpoint) -> tuple[str, ...]:
    dialect = dialect_in(format_of(known.format), name)
    given = "`base_url`" + (f", or `{known.base_url_variable}`" if known.base_url_variable else "")
    return (
        f"`{name}`",
        f"`{known.format}`",
        f"`{dialect}`" if dialect else "",
        f"`{known.base_url}`" if known.base_url else given,
        code(known.hosts, " "),
        f"`{known.key_variable}`" if known.key_variable else "`api_key`, if any",
        _WHO[known.auth],
    )


# --- Stop reasons -------------------------------------------------------------------------------------------------


def stop_reasons() -> str:
    """The vocabulary, and every value of every API that is translated into it."""
    words = [(f"`{each}`", says, "yes" if each in TRUNCATED else "") for each, says in reasons.MEANING.items()]
    return page(
        "stop-reasons",
        count=len(reasons.table()),
        api_count=len(reasons.apis()),
        words=table(("reason", "meaning", "counts as truncated"), words),
        resumes=table(("resume", "how"), [(f"`{each}`", says) for each, says in reasons.RESUMES.items()]),
        apis="\n\n".join(block for api in reasons.apis() for block in _api(api)),
    )


def _api(name: str) -> Iterator[str]:
    entries = [entry for entry in reasons.table() if entry.api.name == name]
    api = entries[0].api
    yield f"### {name}"
    yield f"In a body `{api.path}`; in a stream `{api.stream_path}`."
    yield table(("value", "reason", "incomplete", "resume", "detail", "read in"), map(_value, entries))


def _value(entry: Entry) -> Sequence[str]:
    row = entry.row
    incomplete, resume = "yes" if row.incomplete else "", "" if row.resume == "none" else f"`{row.resume}`"
    raw = f"`{entry.raw}`" if entry.raw else "(empty)"
    return raw, f"`{entry.normalized}`", incomplete, resume, row.detail or "", row.source
