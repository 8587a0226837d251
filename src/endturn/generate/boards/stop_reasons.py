"""The dashboard *Stop reasons*: why do models stop, and does that change?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import barchart, dashboard, timeseries
from grafana_foundation_sdk.models import units

from endturn.generate import external_metrics as external
from endturn.generate.boards import frame, links, palettes, panels
from endturn.generate.boards.panels import description, series_name
from endturn.generate.boards.tables import Column, fill
from endturn.generate.config import RuleConfig
from endturn.generate.queries import (
    CALL,
    SERVICE,
    Matcher,
    Queries,
    Window,
    sum_by,
    variable_matchers,
)
from endturn.telemetry import INDICATORS, Count, Indicator, schema
from endturn.vocabulary import StopReason

QUERIES: Final = Queries(variable_matchers())
RESPONSES: Final = INDICATORS["responses"]
TRUNCATION: Final = INDICATORS["truncation"]
REASON: Final = schema.REASON.label
TRUNCATED_SHARE: Final = "Truncated share"


def stop_reasons(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-stops",
        title="Stop reasons",
        description=(
            "Why do models stop, and does that change? Most panels work for agents without endturn."
        ),
        config=config,
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("Mix").id(10))
    board.with_panel(shares().span(12).height(9))
    board.with_panel(by_model().span(12).height(9))

    board.with_row(dashboard.Row("Truncation").id(30))
    board.with_panel(truncation_by_model().span(12).height(10))
    board.with_panel(truncation_by_service().span(12).height(10))
    board.with_panel(truncated_responses().span(12).height(10))
    board.with_panel(withheld_responses().span(12).height(10))

    board.with_row(dashboard.Row("Change").id(40))
    board.with_panel(compared_with_yesterday().span(12).height(8))
    board.with_panel(responses_to_look_at(42, INDICATORS["unknown"]).span(6).height(8))
    board.with_panel(responses_to_look_at(43, INDICATORS["suspected"]).span(6).height(8))

    board.with_row(
        dashboard.Row("Servers and gateways")
        .id(50)
        .with_panel(vllm_reasons().span(12).height(8))
        .with_panel(vllm_truncation().span(12).height(8))
        .with_panel(sglang_requests().span(12).height(8))
        .with_panel(gateway_requests().span(12).height(8))
    )
    return board


# --- Mix ------------------------------------------------------------------------------------------


def shares() -> timeseries.Panel:
    """Show each stop reason's share over time."""
    part = QUERIES.increase(RESPONSES.count, by=(REASON,), over=Window.CHOSEN)
    total = QUERIES.increase(RESPONSES.count, over=Window.CHOSEN)
    panel = (
        panels.area_chart(21, "Stop reasons over time", legend=panels.RIGHT)
        .description(
            description(
                question="Does the mix of reasons shift?",
                formula="share of each stop reason in the responses of the chosen window",
                advice=(
                    "A band widens while traffic stays the same: a prompt, model or limit changed. "
                    "Compare with the blue marks of deployments."
                ),
                source=panels.FROM_RESPONSES,
            )
        )
        .unit(units.PercentUnit)
        .max(1)
    )
    panel.with_target(
        panels.over_time(f"{part}\n/ on () group_left () ({total} > 0) > 0").legend_format(
            series_name(REASON)
        )
    )
    return panels.paint(panel, palettes.STOP_REASONS)


REASON_GROUPS: Final = {
    "end_turn": (StopReason.END_TURN,),
    "tool_call": (StopReason.TOOL_CALL,),
    "max_tokens": (StopReason.MAX_TOKENS,),
    "context window": (StopReason.CONTEXT_WINDOW_EXCEEDED,),
    "missing": (StopReason.MISSING,),
    "withheld": (StopReason.SAFETY_BLOCKED, StopReason.REFUSED),
    "error": (StopReason.ERROR,),
    "other": (StopReason.UNKNOWN, StopReason.PAUSED, StopReason.CANCELLED),
}
"""Part of a bar -> its stop reasons; the part has the color of the first."""
MOST_MODELS: Final = 12


def by_model() -> barchart.Panel:
    """Show one bar per model with its stop reasons, most truncated first."""
    columns = [
        Column(title="Provider", label=schema.PROVIDER.label),
        Column(title="Model", label=schema.REQUEST_MODEL.label),
        *(
            Column(title=title, query=QUERIES.events(_responses(*reasons), by=CALL))
            for title, reasons in REASON_GROUPS.items()
        ),
        Column(title=TRUNCATED_SHARE, query=QUERIES.ratio(TRUNCATION, by=CALL)),
    ]
    panel = fill(
        panels.share_bars(22, "Stop reasons by model", category="Model").description(
            description(
                question="Which models are truncated most?",
                formula=(
                    "share of each stop reason in the responses of the time range, most truncated "
                    f"model first, {MOST_MODELS} models at most"
                ),
                advice=(
                    "Look for a model that is truncated much more often than others at the same "
                    "work. Click its bar for the limit that it needs."
                ),
                source=panels.FROM_RESPONSES,
            )
        ),
        columns,
    )
    model = links.dashboard_link(
        "This model", "endturn-model", sets=links.ROW_MODEL, keeps=links.SERVICE
    )
    panel.data_links(panels.data_links([model]))
    for title, reasons in REASON_GROUPS.items():
        color = palettes.STOP_REASONS[reasons[0]]
        panel.override_by_name(title, [panels.fixed_color(color)])
    return panels.sorted_rows(panel, by=TRUNCATED_SHARE, limit=MOST_MODELS)


def _responses(*reasons: StopReason) -> Count:
    return Count(schema.RESPONSES, only=((schema.REASON, frozenset(map(str, reasons))),))


# --- Truncation -----------------------------------------------------------------------------------


def truncation_by_model() -> timeseries.Panel:
    """Show the truncation rate of each model over time."""
    trend = QUERIES.ratio_trend(TRUNCATION, by=CALL, over=Window.CHOSEN)
    panel = (
        panels.indicator_lines(
            31,
            TRUNCATION,
            title="Truncation rate by model",
            scope="over the chosen window, by provider and model",
            legend=panels.BOTTOM,
        )
        .data_links(panels.data_links(links.model_links()))
        .with_target(panels.over_time(trend).legend_format(series_name(*CALL)))
    )
    return panels.paint_models(panel)


def truncation_by_service() -> timeseries.Panel:
    """Show the truncation rate of each service over time."""
    trend = QUERIES.ratio_trend(TRUNCATION, by=SERVICE, over=Window.CHOSEN)
    panel = panels.indicator_lines(
        32,
        TRUNCATION,
        title="Truncation rate by service",
        scope="over the chosen window, by service",
        legend=panels.BOTTOM,
    )
    return panels.paint_services(panel).with_target(
        panels.over_time(trend).legend_format(series_name(*SERVICE, separator=" "))
    )


def truncated_responses() -> timeseries.Panel:
    """Show truncated responses over time by model."""
    indicator = INDICATORS["truncated_responses"]
    panel = (
        panels.indicator_bars(
            33,
            indicator,
            title="Truncated responses by model",
            noun="responses",
            legend=panels.BOTTOM,
        )
        .data_links(panels.data_links(links.model_links()))
        .with_target(
            panels.over_time(QUERIES.events_per_step(indicator.count, by=CALL)).legend_format(
                series_name(*CALL)
            )
        )
    )
    return panels.paint_models(panel)


def withheld_responses() -> timeseries.Panel:
    """Show withheld and failed responses over time by stop reason."""
    indicator = INDICATORS["withheld"]
    panel = panels.indicator_bars(34, indicator, noun="responses", legend=panels.RIGHT)
    panel.with_target(
        panels.over_time(QUERIES.events_per_step(indicator.count, by=(REASON,))).legend_format(
            series_name(REASON)
        )
    )
    return panels.paint(panel, palettes.STOP_REASONS)


# --- Change ---------------------------------------------------------------------------------------


def compared_with_yesterday() -> timeseries.Panel:
    """Compare the truncation rate with that of a day before."""
    panel = panels.indicator_lines(
        41,
        TRUNCATION,
        title="Truncation rate, compared with yesterday",
        scope="over the chosen window, and over the same window a day before",
        question="Is it worse than yesterday?",
        legend=panels.RIGHT,
    ).override_by_name("a day before", [panels.dashed()])
    panels.lines(
        panel,
        {
            "now": QUERIES.ratio_trend(TRUNCATION, over=Window.CHOSEN),
            "a day before": QUERIES.ratio_trend(TRUNCATION, over=Window.CHOSEN, offset="1d"),
        },
    )
    return panels.paint(panel, {"now": "orange", "a day before": "#8e8e8e"})


def responses_to_look_at(panel_id: int, indicator: Indicator) -> timeseries.Panel:
    """Show unknown stop reasons, or suspected truncations, over time by model."""
    return (
        panels.indicator_bars(panel_id, indicator, noun="responses", legend=panels.BOTTOM)
        .color_scheme(panels.shades("orange"))
        .data_links(panels.data_links(links.model_links()))
        .with_target(
            panels.over_time(QUERIES.events_per_step(indicator.count, by=CALL)).legend_format(
                series_name(schema.REQUEST_MODEL.label)
            )
        )
    )


# --- Servers and gateways -------------------------------------------------------------------------


def _per_minute(metric: external.ExternalMetric, label: str) -> str:
    return f"60 * {sum_by((label,), f'rate({metric.name}[{Window.CHOSEN}])')}"


def vllm_reasons() -> timeseries.Panel:
    """Show the requests that vLLM finished, by its own reason."""
    panel = (
        panels.area_chart(51, "vLLM: requests by finished reason", legend=panels.RIGHT)
        .description(
            description(
                question="Why did the server stop?",
                formula="finished requests per minute as vLLM counts them, over the chosen window",
                advice=(
                    "`length` is a truncation. More of it here than above: a gateway hides it, or "
                    "an agent is not instrumented."
                ),
                source=panels.FROM_SERVERS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("requests per minute")
        .no_value("no vLLM is scraped")
    )
    panels.lines(
        panel,
        {
            series_name(external.FINISHED_REASON): _per_minute(
                external.VLLM_REQUESTS, external.FINISHED_REASON
            )
        },
    )
    return panels.paint(panel, palettes.VLLM_FINISHED_REASONS)


def vllm_truncation() -> timeseries.Panel:
    """Show the share of requests that vLLM cut off at their limit."""
    model = external.VLLM_MODEL
    truncated, finished = (
        sum_by((model,), f"rate({external.VLLM_REQUESTS.select(*where)}[{Window.CHOSEN}])")
        for where in ((Matcher(external.FINISHED_REASON, "=", "length"),), ())
    )
    panel = (
        panels.line_chart(52, "vLLM: truncation rate", legend=panels.RIGHT)
        .description(
            description(
                question="What share of responses does the server truncate?",
                formula=(
                    "requests with finished_reason length ÷ all finished requests over the chosen "
                    "window, by served model"
                ),
                advice="Compare with the truncation rate above, which agents observed.",
                source=panels.FROM_SERVERS,
            )
        )
        .unit(units.PercentUnit)
        .no_value("no vLLM is scraped")
        .with_target(
            panels.over_time(
                f"(\n  {truncated}\n  or 0 * {finished}\n)\n/ ({finished} > 0)"
            ).legend_format(series_name(model))
        )
    )
    return panels.threshold_lines(panel, 0.05, 0.2)


def sglang_requests() -> timeseries.Panel:
    """Show SGLang's requests and those that were aborted."""
    model = external.SGLANG_MODEL
    panel = (
        panels.line_chart(53, "SGLang: requests, aborted requests", legend=panels.RIGHT)
        .description(
            description(
                question="How many requests does the server receive, and how many are aborted?",
                formula=(
                    "requests per minute as SGLang counts them, over the chosen window; it does "
                    "not count by finish reason"
                ),
                advice="Aborted requests: the client disconnected before the stream ended.",
                source=panels.FROM_SERVERS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("requests per minute")
        .no_value("no SGLang is scraped")
    )
    return panels.lines(
        panel,
        {
            series_name(model): _per_minute(external.SGLANG_REQUESTS, model),
            f"{series_name(model)}, aborted": _per_minute(external.SGLANG_ABORTED, model),
        },
    )


def gateway_requests() -> timeseries.Panel:
    """Show what gateways pass on."""
    litellm, agentgateway = external.LITELLM_MODEL, schema.REQUEST_MODEL.label
    panel = (
        panels.line_chart(54, "Gateways: requests and failures", legend=panels.RIGHT)
        .description(
            description(
                question="How much traffic do gateways forward?",
                formula=(
                    "LiteLLM's requests and failed responses per minute, and agentgateway's tokens "
                    "per minute, over the chosen window; neither counts by finish reason"
                ),
                advice="Traffic here and none above: its agents are not instrumented.",
                source=panels.FROM_SERVERS,
            )
        )
        .unit(panels.COUNT)
        .axis_label("per minute")
        .no_value("no gateway is scraped")
    )
    return panels.lines(
        panel,
        {
            f"LiteLLM · {series_name(litellm)}": _per_minute(external.LITELLM_REQUESTS, litellm),
            f"LiteLLM · {series_name(litellm)}, failed": _per_minute(
                external.LITELLM_FAILURES, litellm
            ),
            f"agentgateway · {series_name(agentgateway)}, tokens": _per_minute(
                external.AGENTGATEWAY_TOKENS, agentgateway
            ),
        },
    )
