"""The dashboard *Stop reasons*: why do models stop, and does that change?"""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard, table, timeseries
from grafana_foundation_sdk.models import units

from endturn.generate import external_metrics as external
from endturn.generate.boards import frame, links, palettes, panels
from endturn.generate.boards.panels import description, series_name
from endturn.generate.boards.tables import Column, table_panel
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
from endturn.telemetry import INDICATORS, Indicator, schema

QUERIES: Final = Queries(variable_matchers())
RESPONSES: Final = INDICATORS["responses"]
TRUNCATION: Final = INDICATORS["truncation"]
REASON: Final = schema.REASON.label


def stop_reasons(config: RuleConfig) -> dashboard.Dashboard:
    """Build the dashboard for a configuration of addresses."""
    board = frame.new_dashboard(
        uid="endturn-stops",
        title="Stop reasons",
        description=(
            "Why do models stop, and does that change? Most of it works for agents without endturn "
            "too."
        ),
        config=config,
    ).with_variable(frame.window_variable())

    board.with_row(dashboard.Row("Mix").id(10))
    board.with_panel(shares().span(12).height(9))
    board.with_panel(by_model().span(12).height(9))

    board.with_row(dashboard.Row("Truncation").id(30))
    board.with_panel(truncation_by_model().span(12).height(8))
    board.with_panel(truncation_by_service().span(12).height(8))
    board.with_panel(truncated_responses().span(12).height(8))
    board.with_panel(withheld_responses().span(12).height(8))

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
    whole = QUERIES.increase(RESPONSES.count, over=Window.CHOSEN)
    panel = (
        panels.area_chart(21, "Stop reasons, shares", legend=panels.RIGHT)
        .description(
            description(
                question="Does the mix of reasons shift?",
                formula="each reason's part of the responses over the chosen window",
                advice=(
                    "A band that widens while traffic does not change is a new prompt, model or "
                    "limit. Compare with the marks of deployments."
                ),
                source=panels.FROM_RESPONSES,
            )
        )
        .unit(units.PercentUnit)
        .max(1)
    )
    panel.with_target(
        panels.over_time(f"{part}\n/ on () group_left () ({whole} > 0) > 0").legend_format(
            series_name(REASON)
        )
    )
    return panels.paint(panel, palettes.STOP_REASONS)


def by_model() -> table.Panel:
    """List models and their stop reasons, most responses first."""
    responses = QUERIES.events(RESPONSES.count, by=(*CALL, REASON))
    of_model = QUERIES.events(RESPONSES.count, by=CALL)
    columns = [
        Column(title="Provider", label=schema.PROVIDER.label, width=110),
        Column(
            title="Model",
            label=schema.REQUEST_MODEL.label,
            link=links.dashboard_link(
                "This model", "endturn-model", sets=links.ROW_MODEL, keeps=links.SERVICE
            ),
        ),
        Column(title="Stop reason", label=REASON, palette=palettes.STOP_REASONS),
        Column(title="Responses", query=f"{responses} > 0", decimals=0, width=100),
        Column(
            title="Share",
            query=f"{responses}\n/ on ({', '.join(CALL)}) group_left ()\n{of_model} > 0",
            unit=units.PercentUnit,
            decimals=1,
        ),
    ]
    return table_panel(
        22, "Stop reasons by provider and model", columns=columns, sort_by="Responses"
    ).description(
        description(
            question="Who stops for which reason?",
            formula="responses in the whole time range; the share is of that model's responses",
            advice=(
                "Look for a model that is cut off much more often than others at the same work."
            ),
            source=panels.FROM_RESPONSES,
        )
    )


# --- Truncation -----------------------------------------------------------------------------------


def truncation_by_model() -> timeseries.Panel:
    """Show the truncation rate of each model over time."""
    trend = QUERIES.ratio_trend(TRUNCATION, by=CALL, over=Window.CHOSEN)
    return (
        panels.indicator_lines(
            31,
            TRUNCATION,
            title="Truncation rate by model",
            scope="over the chosen window, by provider and model",
            legend=panels.RIGHT,
        )
        .data_links(panels.data_links(links.model_links()))
        .with_target(panels.over_time(trend).legend_format(series_name(*CALL)))
    )


def truncation_by_service() -> timeseries.Panel:
    """Show the truncation rate of each service over time."""
    trend = QUERIES.ratio_trend(TRUNCATION, by=SERVICE, over=Window.CHOSEN)
    return panels.indicator_lines(
        32,
        TRUNCATION,
        title="Truncation rate by service",
        scope="over the chosen window, by service",
        legend=panels.RIGHT,
    ).with_target(panels.over_time(trend).legend_format(series_name(*SERVICE, separator=" ")))


def truncated_responses() -> timeseries.Panel:
    """Show truncated responses over time by model."""
    indicator = INDICATORS["truncated_responses"]
    return (
        panels.indicator_bars(
            33,
            indicator,
            title="Truncated responses by model",
            noun="responses",
            legend=panels.RIGHT,
        )
        .data_links(panels.data_links(links.model_links()))
        .with_target(
            panels.over_time(QUERIES.events_per_step(indicator.count, by=CALL)).legend_format(
                series_name(*CALL)
            )
        )
    )


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
        title="Truncation rate, now and a day before",
        scope="over the chosen window, and the same a day before",
        question="Is it worse than it was?",
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
        panels.area_chart(51, "vLLM, requests by finished reason", legend=panels.RIGHT)
        .description(
            description(
                question="Why did the server stop?",
                formula=(
                    "vLLM's own count of finished requests, per minute, over the chosen window"
                ),
                advice=(
                    "`length` is a truncation, whatever became of it on its way to the agent. More "
                    "of it here than above: somebody between hides it, or is not instrumented."
                ),
                source=panels.FROM_SERVERS,
            )
        )
        .unit(units.Short)
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
    cut, finished = (
        sum_by((model,), f"rate({external.VLLM_REQUESTS.select(*where)}[{Window.CHOSEN}])")
        for where in ((Matcher(external.FINISHED_REASON, "=", "length"),), ())
    )
    panel = (
        panels.line_chart(52, "vLLM, truncation rate", legend=panels.RIGHT)
        .description(
            description(
                question="How many responses does the server itself cut off?",
                formula=(
                    "requests with finished_reason length ÷ all finished requests over the chosen "
                    "window, by served model"
                ),
                advice="Compare with the truncation rate above, which is what agents saw.",
                source=panels.FROM_SERVERS,
            )
        )
        .unit(units.PercentUnit)
        .no_value("no vLLM is scraped")
        .with_target(
            panels.over_time(
                f"(\n  {cut}\n  or 0 * {finished}\n)\n/ ({finished} > 0)"
            ).legend_format(series_name(model))
        )
    )
    return panels.threshold_lines(panel, 0.05, 0.2)


def sglang_requests() -> timeseries.Panel:
    """Show SGLang's requests and those that were aborted."""
    model = external.SGLANG_MODEL
    panel = (
        panels.line_chart(53, "SGLang, requests and aborted ones", legend=panels.RIGHT)
        .description(
            description(
                question="How much does the server do, and how much of it in vain?",
                formula=(
                    "SGLang's own counts, per minute, over the chosen window; it does not count by "
                    "finish reason"
                ),
                advice=(
                    "Aborted requests are clients that went away: streams that nobody read to "
                    "their end."
                ),
                source=panels.FROM_SERVERS,
            )
        )
        .unit(units.Short)
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
        panels.line_chart(54, "Gateways, requests and failures", legend=panels.RIGHT)
        .description(
            description(
                question="What do gateways pass on?",
                formula=(
                    "LiteLLM's requests and failed responses per minute, and agentgateway's tokens "
                    "per minute, over the chosen window; neither counts by finish reason"
                ),
                advice=(
                    "A gateway that shows traffic where nothing stands above it has agents that "
                    "are not instrumented."
                ),
                source=panels.FROM_SERVERS,
            )
        )
        .unit(units.Short)
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
