"""The dashboard *Turns*: single truncated answers, as events and as traces."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, logs, table
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, VariableHide

from endturn.generate.boards import frame, panels, search_panels
from endturn.generate.boards.links import dashboard_link
from endturn.generate.boards.panels import description
from endturn.generate.boards.tables import empty_table
from endturn.generate.config import RuleConfig
from endturn.generate.queries import JOB, VARIABLES, selector, variable_matchers
from endturn.telemetry import schema

EVENTS: Final = (
    '{service_name=~"$service", service_namespace=~"$namespace|", '
    'deployment_environment_name=~"$environment", k8s_cluster_name=~"$cluster|"}'
)
"""Stream selector of the selected services; events that name no namespace or cluster are kept."""
SPANS: Final = (
    'resource.service.name =~ "${service:pipe}" '
    "&& (resource.service.namespace = nil || "
    'resource.service.namespace =~ "${namespace:pipe}") '
    "&& (resource.deployment.environment.name = nil || "
    'resource.deployment.environment.name =~ "${environment:pipe}") '
    "&& (resource.k8s.cluster.name = nil || "
    'resource.k8s.cluster.name =~ "${cluster:pipe}") '
    '&& span.gen_ai.provider.name =~ "${provider:pipe}" '
    '&& span.gen_ai.request.model =~ "${model:pipe}"'
)
"""TraceQL conditions of the selected services; spans that lack an attribute are kept, which `.*`
does not match."""
SHOW_BELOW: Final = "Click a trace's id to draw it in the last row, with its events."


def turns(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    jobs = selector(schema.RESPONSES.prometheus, variable_matchers(["job"]))
    board = frame.new_dashboard(
        uid="endturn-turns",
        title="Turns",
        description="Truncated turns, one by one, as events and as traces.",
        config=config,
        sources=("prometheus", "tempo", "loki"),
    )
    # Traces and logs have service names without namespaces, and the namespaces separately.
    query = f"label_values({jobs}, {JOB})"
    board.with_variable(frame.derived_variable("service", query, regex=r"/([^\/]+)$/"))
    board.with_variable(frame.derived_variable("namespace", query, regex=r"/^(.+)\/[^\/]+$/"))
    board.with_variable(
        dashboard.TextBoxVariable("traceId")
        .label("Trace")
        .default_value("")
        .hide(VariableHide.HIDE_VARIABLE)
    )

    board.with_row(dashboard.Row("Truncated turns").id(40))
    board.with_panel(endings().span(24).height(9))

    board.with_row(dashboard.Row("Calls").id(20))
    board.with_panel(truncated_responses().span(12).height(10))
    board.with_panel(continuing_calls().span(12).height(10))

    board.with_row(dashboard.Row("Events").id(30))
    board.with_panel(continuation_events().span(12).height(9))
    board.with_panel(tool_events().span(6).height(9))
    board.with_panel(unknown_reasons().span(6).height(9))

    board.with_row(dashboard.Row("One trace").id(60))
    board.with_panel(trace().span(16).height(14))
    board.with_panel(trace_events().span(8).height(14))
    return board


def _events(*names: str, line: str) -> str:
    """Return a LogQL query for events of the selected models, each as one line of a template."""
    pattern = "|".join(name.replace(".", r"\\.") for name in names)
    return (
        f'{EVENTS} | event_name=~"{pattern}" | {schema.PROVIDER.label}=~"$provider" '
        f'| {schema.REQUEST_MODEL.label}=~"$model" | line_format "{line}"'
    )


def _field(attribute: schema.Attribute) -> str:
    """Return the field of an event, as a line template writes it."""
    return f"{{{{.{attribute.label}}}}}"


MODEL: Final = _field(schema.REQUEST_MODEL)
TURN: Final = f"turn={_field(schema.TURN_ID)}"


# --- Truncated turns ------------------------------------------------------------------------------


def endings() -> logs.Panel:
    """List how truncated turns ended."""
    line = (
        f"{MODEL} {_field(schema.OUTCOME)} continuations={_field(schema.ATTEMPTS)} "
        f"tokens={_field(schema.TOKENS_SO_FAR)} {TURN}"
    )
    return (
        search_panels.log_panel(41, "Endings")
        .description(
            description(
                question="How did each truncated turn end?",
                formula=(
                    "one event for each truncated turn: model, outcome, continuations, output "
                    "tokens and the turn's id"
                ),
                advice=(
                    "`completed`: a continuation finished the answer. Other outcomes: the user got "
                    "a truncated answer. Open a line for all attributes and the link to its trace."
                ),
                source=panels.FROM_EVENTS,
            )
        )
        .with_target(
            search_panels.log_query(_events(schema.CONTINUATION_TERMINATED.name, line=line))
        )
    )


# --- Calls ----------------------------------------------------------------------------------------


def _span_table(
    panel_id: int, title: str, *, condition: str, columns: tuple[schema.Attribute, ...]
) -> table.Panel:
    """Return a table of traces with spans that match a condition; ids link to the last row."""
    selected = ", ".join(f"span.{attribute.key}" for attribute in columns)
    show = dashboard_link(
        "Show it below",
        "endturn-turns",
        sets={"traceId": "${__value.raw}"},
        keeps=("prometheus_datasource", "tempo_datasource", "loki_datasource", *VARIABLES),
    )
    return (
        empty_table(panel_id, title)
        .datasource(panels.TEMPO)
        .unit(units.NoUnit)
        .no_value("none in Tempo")
        .override_by_name("traceID", [DynamicConfigValue("links", [show])])
        .with_target(
            search_panels.span_search(f"{{ {SPANS} && {condition} }} | select({selected})")
        )
    )


def truncated_responses() -> table.Panel:
    """List traces with truncated responses."""
    return _span_table(
        21,
        "Truncated responses",
        condition=f"span.{schema.STOP_TRUNCATED.key} = true",
        columns=(
            schema.PROVIDER,
            schema.REQUEST_MODEL,
            schema.REASON,
            schema.RAW,
            schema.TURN_ID,
        ),
    ).description(
        description(
            question="Which responses were truncated?",
            formula="spans of calls with a truncated response, for the selected variables",
            advice=SHOW_BELOW,
            source=panels.FROM_SPANS,
        )
    )


def continuing_calls() -> table.Panel:
    """List traces with calls that continue another."""
    return _span_table(
        31,
        "Continuing calls",
        condition=f"span.{schema.CONTINUATION_INDEX.key} >= 1",
        columns=(
            schema.PROVIDER,
            schema.REQUEST_MODEL,
            schema.CONTINUATION_INDEX,
            schema.REASON,
            schema.TURN_ID,
        ),
    ).description(
        description(
            question="Which calls continued an answer?",
            formula="spans of calls that continue another, for the selected variables",
            advice=SHOW_BELOW,
            source=panels.FROM_SPANS,
        )
    )


# --- Events ---------------------------------------------------------------------------------------


def continuation_events() -> logs.Panel:
    """List continuations."""
    line = (
        f"{MODEL} continuation={_field(schema.CONTINUATION_INDEX)} {_field(schema.STRATEGY)} "
        f"left={_field(schema.ATTEMPTS_LEFT)} {TURN}"
    )
    return (
        search_panels.log_panel(32, "Continuations, one by one")
        .description(
            description(
                question="Which continuations were made?",
                formula="one event for each: its number, its strategy, and how many are left",
                advice=(
                    "None is left and the turn is unfinished: the policy's limit or max_tokens is "
                    "too low."
                ),
                source=panels.FROM_EVENTS,
            )
        )
        .with_target(search_panels.log_query(_events(schema.CONTINUATION_ATTEMPT.name, line=line)))
    )


def tool_events() -> logs.Panel:
    """List repairs of tool payloads, and tool calls that were blocked."""
    line = f"{{{{.event_name}}}} {MODEL} {_field(schema.ISSUE)}{_field(schema.BLOCK_REASON)} {TURN}"
    return (
        search_panels.log_panel(42, "Truncated tool calls")
        .description(
            description(
                question="Which tool calls were truncated, and were they repaired?",
                formula="events of repairs, and of tool calls that were not run",
                advice=(
                    "A tool that appears often needs longer arguments than fit: split it, or raise "
                    "max_tokens."
                ),
                source=panels.FROM_EVENTS,
            )
        )
        .with_target(
            search_panels.log_query(
                _events(
                    schema.TOOL_PAYLOAD_REPAIR.name, schema.TOOL_DISPATCH_BLOCKED.name, line=line
                )
            )
        )
    )


def unknown_reasons() -> logs.Panel:
    """List stop reasons that are in no table."""
    line = f"{_field(schema.PROVIDER)} {MODEL} {_field(schema.RAW)}"
    return (
        search_panels.log_panel(51, "Unmapped stop reasons")
        .description(
            description(
                question="Which stop reasons are in no table?",
                formula="one event for each new combination of provider, model and raw value",
                advice=(
                    "Add the raw value to the provider's table. Until then such a turn counts as "
                    "not completed."
                ),
                source=panels.FROM_EVENTS,
            )
        )
        .with_target(search_panels.log_query(_events(schema.STOP_REASON_UNMAPPED.name, line=line)))
    )


# --- One trace ------------------------------------------------------------------------------------


def trace() -> dashboard.Panel:
    """Draw the trace that was clicked."""
    return (
        search_panels.trace_panel(61, "The trace")
        .description(
            description(
                question="What happened in this trace?",
                formula="the trace whose id was clicked above",
                advice=(
                    "A continuation is linked to the call that it continues. Empty: click a trace "
                    "above."
                ),
                source=panels.FROM_SPANS,
            )
        )
        .with_target(search_panels.trace_query("$traceId"))
    )


def trace_events() -> logs.Panel:
    """List the events of the trace that was clicked."""
    line = (
        f"{{{{.event_name}}}} {MODEL} {_field(schema.REASON)} "
        f"{_field(schema.STRATEGY)}{_field(schema.OUTCOME)}"
    )
    query = rf'{EVENTS} | event_name=~"endturn\\..+" | trace_id="$traceId" | line_format "{line}"'
    return (
        search_panels.log_panel(62, "Its events")
        .description(
            description(
                question="Which events belong to the trace?",
                formula="every event with this trace's id",
                advice="Empty: click a trace above.",
                source=panels.FROM_EVENTS,
            )
        )
        .with_target(search_panels.log_query(query))
    )
