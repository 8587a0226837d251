"""The generated documents: the telemetry reference, the state diagram, one runbook page for each alert."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from endturn import reasons
from endturn.continuation import machine
from endturn.formats import FORMATS, dialect_in, format_of
from endturn.generate import promql, rules
from endturn.generate.alerts import Alert, alerts
from endturn.generate.config import Limits, RuleConfig
from endturn.generate.emitters import emitters_page
from endturn.generate.markdown import numbered, page, table
from endturn.providers import PROVIDERS, Auth, ProviderEndpoint
from endturn.stop import TRUNCATED
from endturn.stop_reasons import apis
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Indicator
from endturn.telemetry.schema import Attribute, Metric

OUTSIDE: Final = "[*]"
"""Mermaid's mark for where a diagram begins and ends."""


def files(config: RuleConfig) -> dict[str, str]:
    """The documents, by path from the root."""
    declared: dict[str, list[Alert]] = {}
    for alert in alerts(config):
        declared.setdefault(alert.name, []).append(alert)
    pages = {
        "docs/telemetry.md": reference(),
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
    own = [metric for metric in schema.METRICS if metric.name.startswith("endturn.")]
    standard = [metric for metric in schema.METRICS if not metric.name.startswith("endturn.")]
    return page(
        "Telemetry",
        "Everything that endturn emits. Names that begin with `endturn.` are ours, all others those of the "
        "OpenTelemetry GenAI semantic conventions. No message text, tool arguments or tool results, unless the host "
        "opts in.",
        "## Metrics",
        "In Prometheus a metric has the name of the second column, and an attribute its own with dots as underscores.",
        _metrics(own),
        "### Of the conventions",
        "Recorded unless another instrumentation that already records them made the span. Those of "
        "`gen_ai.client.inference` are the later names of the others, emitted where `semconv` asks for them.",
        _metrics(standard),
        "### Buckets",
        table(
            ("histogram", "upper bounds"),
            [
                (f"`{metric.name}`", ", ".join(f"{bound:g}" for bound in metric.buckets))
                for metric in own
                if metric.buckets
            ],
        ),
        "## What is recorded",
        f"Six rules count turns every {promql.duration(rules.INTERVAL)}, over {promql.duration(rules.WINDOW)}, so that "
        f"each turn stands in exactly {rules.OVERLAP} of them: a longer window's count is "
        f"`sum_over_time(rule[window]) / {rules.OVERLAP}`, and a share of two needs no division. Turns that a person "
        "stopped are in none. Alerts and windows beyond a day read these; everything else reads the counters.",
        table(
            ("rule", "expression"),
            [(f"`{rule['record']}`", f"`{' '.join(rule['expr'].split())}`") for rule in rules.recorded()],
        ),
        "What happens while Prometheus does not evaluate is missing from both sides of a share alike. What happens "
        f"while no telemetry arrives is counted when it does, after a gap of up to {promql.duration(rules.MEMORY)}. "
        "Where an id is used again, its count begins anew.",
        "## What is shown",
        table(("name", "question", "formula", "look from", "act from"), [*map(_shown, indicators.INDICATORS.values())]),
        "## Events",
        "Log records with an event name. A host without a logger provider gets them as span events, when "
        "`ENDTURN_EVENTS` says so.",
        table(
            ("event", "severity", "what", "attributes"),
            [
                (
                    f"`{event.name}`",
                    event.severity.upper() + (f"; {event.severity_note}" if event.severity_note else ""),
                    event.brief,
                    _keys(event.attributes),
                )
                for event in schema.EVENTS
            ],
        ),
        "## Spans",
        table(
            ("span", "kind", "what", "attributes"),
            [(f"`{span.name}`", span.kind.upper(), span.brief, _keys(span.attributes)) for span in schema.SPANS],
        ),
        "## Attributes",
        "### Ours",
        _attributes(attribute for attribute in schema.ATTRIBUTES if attribute.key.startswith("endturn.")),
        "### Of the conventions",
        _attributes(attribute for attribute in schema.ATTRIBUTES if not attribute.key.startswith("endturn.")),
    )


def _metrics(metrics: Sequence[Metric]) -> str:
    return table(
        ("metric", "in Prometheus", "instrument", "unit", "attributes", "answers"),
        [
            (
                f"`{metric.name}`",
                f"`{metric.prometheus}`"
                + (" (`_bucket`, `_sum`, `_count`)" if metric.instrument == "histogram" else ""),
                metric.instrument,
                f"`{metric.unit}`",
                _keys(metric.attributes),
                f"{metric.brief} {metric.answers}",
            )
            for metric in metrics
        ],
    )


def _shown(shown: Indicator) -> tuple[str, str, str, str, str]:
    limits = shown.thresholds
    style = ".0%" if shown.whole else "g"
    look, act = (format(limits.look, style), format(limits.act, style)) if limits else ("", "")
    return shown.title, shown.question, shown.formula, look, act


def _attributes(attributes: Iterable[Attribute]) -> str:
    return table(
        ("attribute", "type", "what", "values"),
        [
            (
                f"`{attribute.key}`",
                attribute.type,
                attribute.brief + (" Only where the host opted in." if attribute.opt_in else ""),
                ", ".join(f"`{value}`" for value in attribute.values)
                or (
                    f"e.g. {', '.join(f'`{example}`' for example in attribute.examples)}" if attribute.examples else ""
                ),
            )
            for attribute in attributes
        ],
    )


def _keys(attributes: Iterable[Attribute]) -> str:
    return ", ".join(f"`{attribute.key}`" for attribute in attributes)


# --- The state diagram --------------------------------------------------------------------------------------------


def state_diagram() -> str:
    """The continuation machine's table as a Mermaid state diagram: one arrow for all signals between two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, signal), transition in machine.TRANSITIONS.items():
        arrows.setdefault((state.value, transition.state.value), []).append(signal.value)
    lines = ["stateDiagram-v2", f"    {OUTSIDE} --> {machine.INITIAL.state.value}"]
    lines += [f"    {start} --> {end}: {', '.join(signals)}" for (start, end), signals in arrows.items()]
    lines += [f"    {state.value} --> {OUTSIDE}" for state in machine.State if state in machine.FINAL]
    return "\n".join(lines)


def diagram_page() -> str:
    """The diagram, and the table that it is drawn from."""
    rows = [
        (f"`{state.value}`", f"`{signal.value}`", f"`{transition.state.value}`", f"`{transition.step.value}`")
        for (state, signal), transition in machine.TRANSITIONS.items()
    ]
    return page(
        "The continuation machine",
        "Drawn from the table that the controllers follow (`endturn.continuation.machine`).",
        f"```mermaid\n{state_diagram()}\n```",
        "A pair that is not in this table raises `IllegalTransition` and changes nothing.",
        table(("in state", "signal", "leads to", "and there"), rows),
    )


# --- Alerts -------------------------------------------------------------------------------------------------------


def runbook(same: Sequence[Alert]) -> str:
    """The page of an alert, with its rules: more than one where the configuration asks services different things."""
    alert = same[0]
    return page(
        alert.name,
        f"Severity: {alert.severity}. {alert.meaning}",
        "## Whom it concerns",
        alert.impact,
        "## Where to look",
        numbered(alert.look),
        "## What to do",
        numbered(alert.act),
        "## The rule",
        *(block for each in same for block in _rule(each)),
        "Tested to fire when " + ", or when ".join(example["says"] for example in alert.fires)
        + "; and to stay quiet when " + ", or when ".join(example["says"] for example in alert.quiet) + ".",
    )  # fmt: skip


def _rule(alert: Alert) -> Iterable[str]:
    if alert.who:
        yield f"### Of {alert.who}"
    yield alert.annotations["description"]
    yield f"Fires when this holds for {alert.hold}:" if alert.hold else "Fires at once when this holds:"
    yield f"```promql\n{alert.expr}\n```"


def index(declared: Sequence[Alert]) -> str:
    """The list of all runbooks."""
    rows = [(f"[{alert.name}]({alert.name}.md)", alert.severity, alert.meaning) for alert in declared]
    return page("Runbooks", "What each alert means, and what to do.", table(("alert", "severity", "meaning"), rows))


def configuration() -> str:
    """Every key of the file that rules and dashboards are generated from."""

    def rows(model: type[RuleConfig] | type[Limits], prefix: str = "") -> list[tuple[str, str, str]]:
        return [
            (f"`{prefix}{name}`", f"`{_default(name, field.default)}`", field.description)
            for name, field in model.model_fields.items()
            if field.description and name != "services"
        ]

    def _default(name: str, value: object) -> str:
        if name == "period":
            return f'"{promql.duration(int(str(value)))}"'
        return str(value).lower() if isinstance(value, bool) else str(value)

    return page(
        "Configuration of alerts and dashboards",
        "What `endturn generate --config FILE` reads, in TOML; how it is used: [alerts.md](alerts.md). Durations are "
        'seconds, or written as "90s", "1h30m", "3d".',
        table(("key", "default", "what"), [*rows(RuleConfig), *rows(Limits, "alerts.")]),
        'The keys of `alerts` may also stand in `[services."shop/agent"]` for one service (its `job`), in '
        '`[services."shop/agent".environments.staging]` for one environment of it '
        '(`deployment.environment.name`), and under `[services."*"]` for every service that is not named.',
    )


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
    return page(
        "Providers",
        "Whom `Client` and `AsyncClient` know by name, and whom instrumentation recognises by their hosts: that of the "
        "address, those that stand beside it, and all below them. The name is that of `gen_ai.provider.name`. Any "
        "other is reached with `format` and `base_url`. How to use them: [clients.md](clients.md).",
        table(
            ("provider", "format", "dialect", "address", "also at", "key", "sent as"),
            [_provider(name, known) for name, known in sorted(PROVIDERS.items())],
        ),
        "## Formats",
        table(
            ("format", "stream", "APIs that it reads"),
            [
                (f"`{name}`", f"{format_of(name).framing}", ", ".join(api.name for api in apis(name).values()))
                for name in FORMATS
            ],
        ),
    )


def _provider(name: str, known: ProviderEndpoint) -> tuple[str, ...]:
    dialect = dialect_in(format_of(known.format), name)
    given = "`base_url`" + (f", or `{known.base_url_variable}`" if known.base_url_variable else "")
    return (
        f"`{name}`",
        f"`{known.format}`",
        f"`{dialect}`" if dialect else "",
        f"`{known.base_url}`" if known.base_url else given,
        " ".join(f"`{host}`" for host in known.hosts),
        f"`{known.key_variable}`" if known.key_variable else "`api_key`, if any",
        _WHO[known.auth],
    )


# --- Stop reasons -------------------------------------------------------------------------------------------------


def stop_reasons() -> str:
    """The vocabulary, and every value of every API that is translated into it."""
    return page(
        "Stop reasons",
        f"What the {len(reasons.table())} stop reasons of {len(reasons.apis())} APIs mean. `endturn reasons` prints "
        "this table, `endturn explain VALUE` says what one value means. A value that stands nowhere here is recorded "
        "as `unknown`, verbatim, and is neither taken for an end nor continued.",
        "## Our words",
        table(
            ("reason", "meaning", "counts as truncated"),
            [(f"`{each}`", says, "yes" if each in TRUNCATED else "") for each, says in reasons.MEANING.items()],
        ),
        "## How a response is taken up again",
        table(("resume", "how"), [(f"`{each}`", says) for each, says in reasons.RESUMES.items()]),
        "## What the APIs say",
        "More than the value decides: `end_turn` becomes `tool_call` where the response holds complete calls of the "
        "client's tools, and `refused` where the answer is a refusal; `max_tokens` becomes `context_window_exceeded` "
        "where usage shows a full window; a reason whose response has no end is `missing`.",
        *(block for api in reasons.apis() for block in _api(api)),
    )


def _api(name: str) -> Iterable[str]:
    entries = [entry for entry in reasons.table() if entry.api.name == name]
    api = entries[0].api
    yield f"### {name}"
    yield f"In a body `{api.path}`; in a stream `{api.stream_path}`."
    yield table(
        ("value", "reason", "incomplete", "resume", "detail", "read in"),
        [
            (
                f"`{entry.raw}`" if entry.raw else "(empty)",
                f"`{entry.normalized}`",
                "yes" if entry.row.incomplete else "",
                "" if entry.row.resume == "none" else f"`{entry.row.resume}`",
                entry.row.detail or "",
                entry.row.source,
            )
            for entry in entries
        ],
    )
