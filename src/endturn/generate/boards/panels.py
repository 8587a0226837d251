"""Panels that the dashboards share.

Each helper returns a builder of the Grafana Foundation SDK with endturn's defaults, so a dashboard
continues with the SDK's own methods: `panels.stat_panel(...).unit(units.PercentUnit).decimals(1)`.
A builder is used once: `build()` returns its inner object, and a second use would change the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from string import ascii_uppercase
from typing import Final

from grafana_foundation_sdk.builders import (
    barchart,
    bargauge,
    common as build,
    dashboard,
    prometheus,
    stat,
    timeseries,
)
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import (
    BarAlignment,
    BarGaugeDisplayMode,
    BarGaugeValueMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueJustifyMode,
    BigValueTextMode,
    DataSourceRef,
    GraphDrawStyle,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLink,
    DashboardSpecialValueMapOptions,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    SpecialValueMap,
    SpecialValueMatch,
    Threshold,
    ValueMappingResult,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat, QueryEditorMode

from endturn.generate.boards.palettes import (
    OTHER_PROVIDERS,
    PLAIN,
    PROVIDERS,
    SERVICES,
    Color,
    Palette,
)
from endturn.telemetry import ENOUGH_EVENTS, Count, Indicator, schema

Step = tuple[float | None, Color]
"""A threshold: from this value on (None: without a lower bound) a color."""

PROMETHEUS: Final = DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
TEMPO: Final = DataSourceRef(type_val="tempo", uid="${tempo_datasource}")
LOKI: Final = DataSourceRef(type_val="loki", uid="${loki_datasource}")

GREY: Final[Color] = "#8e8e8e"
"""The color of the text for "no value": neither that of a number, nor of a verdict."""

RIGHT: Final = LegendPlacement.RIGHT
BOTTOM: Final = LegendPlacement.BOTTOM

COUNT: Final = units.Short
"""The unit of all counts: 53, 1.39 K, 1.39 Mil. (`sishort` writes 0.5 as 500 m.)"""

# Sources of a panel's data, which explain an empty panel to its reader.
FROM_RESPONSES: Final = (
    "Works without endturn in the agent's process: the Collector counts the responses of agents in "
    "any language. Each model call counts as one response."
)
FROM_PROCESS: Final = "Needs endturn in the agent's process."
FROM_TURNS: Final = (
    "Needs endturn in the agent's process. A turn is what an agent does for one user input; of "
    "agents in other languages the Collector counts responses only."
)
FROM_CALLS: Final = (
    "Source: the metrics of the GenAI conventions, recorded by endturn or by another "
    "instrumentation."
)
FROM_RULES: Final = "Needs the recording rules of `dashboards/rules`."
FROM_PROMETHEUS: Final = "Source: Prometheus itself."
FROM_COLLECTOR: Final = "Source: the Collector's own metrics."
FROM_SDK: Final = "Source: the OpenTelemetry SDK's own metrics, which `configure()` switches on."
FROM_SERVERS: Final = "Source: metrics of model servers and gateways that Prometheus scrapes."
FROM_SPANS: Final = (
    "Source: spans. Of agents without endturn, those whose stop reason the Collector normalises."
)
FROM_EVENTS: Final = "Source: events of endturn in the agent's process."
SOURCES: Final = (
    FROM_RESPONSES,
    FROM_PROCESS,
    FROM_TURNS,
    FROM_CALLS,
    FROM_RULES,
    FROM_PROMETHEUS,
    FROM_COLLECTOR,
    FROM_SDK,
    FROM_SERVERS,
    FROM_SPANS,
    FROM_EVENTS,
)

# --- Text -----------------------------------------------------------------------------------------


def description(*, question: str, formula: str, advice: str, source: str) -> str:
    """Return a panel's description: its question, formula, advice and data source."""
    formula = f"{formula[:1].upper()}{formula[1:]}."
    return f"**{question}**\n\n{formula}\n\n{advice}\n\n{source}"


def indicator_description(
    indicator: Indicator,
    *,
    scope: str = "in the time range",
    question: str = "",
    advice: str = "",
) -> str:
    """Return the description of a panel that shows an indicator.

    Args:
        scope: The time and the groups that each value covers.
        question: Defaults to the indicator's.
        advice: Defaults to the indicator's.
    """
    return description(
        question=question or indicator.question,
        formula=f"{scope}: {indicator.formula}",
        advice=advice or indicator.advice,
        source=indicator_source(indicator.count),
    )


def indicator_source(count: Count) -> str:
    """Return the sentence on the source of one of our counts."""
    if count.metric in schema.OF_SPANS:
        return FROM_RESPONSES
    turn_metrics = (schema.TURNS, schema.TRUNCATION_EXITS, schema.TURN_OUTPUT)
    return FROM_TURNS if count.metric in turn_metrics else FROM_PROCESS


def series_name(*labels: str, separator: str = " · ") -> str:
    """Return a legend that names series by their labels."""
    return separator.join(f"{{{{{label}}}}}" for label in labels)


# --- Thresholds and overrides ---------------------------------------------------------------------


def thresholds(*steps: Step) -> dashboard.ThresholdsConfig:
    """Return absolute thresholds; the first step has no lower bound."""
    return dashboard.ThresholdsConfig().steps([Threshold(value, color) for value, color in steps])


def warning_steps(look: float, act: float, *, base: Color) -> tuple[Step, ...]:
    """Return the steps base, orange (look), red (act)."""
    return (None, base), (look, "orange"), (act, "red")


def indicator_steps(indicator: Indicator) -> tuple[Step, ...]:
    """Return the steps of an indicator: no verdict without data, green from zero, orange, red.

    Its query returns a zero only if there were enough events.
    """
    if (limits := indicator.thresholds) is None:
        return ((None, "text"),)
    return (None, "text"), (0, "green"), (limits.look, "orange"), (limits.act, "red")


TRUNCATION_STEPS: Final[tuple[Step, ...]] = (None, "text"), (0.05, "orange"), (0.2, "red")
UNFINISHED_STEPS: Final[tuple[Step, ...]] = (None, "text"), (1, "orange"), (10, "red")
"""Steps of a table's columns, which judge bad values only."""


def threshold_property(*steps: Step) -> DynamicConfigValue:
    """Return the override property that gives a series or column its own thresholds."""
    return DynamicConfigValue("thresholds", thresholds(*steps).build())


def fixed_color(color: Color) -> DynamicConfigValue:
    """Return the override property that paints a series in one color."""
    return DynamicConfigValue("color", {"mode": "fixed", "fixedColor": color})


def dashed() -> DynamicConfigValue:
    """Return the override property that draws a dashed line."""
    return DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [6, 6]})


def shades(color: Color) -> dashboard.FieldColor:
    """Return a color scheme of one color's shades.

    Blue for models and services, whose colors are no verdict; orange and red for bad events.
    """
    return dashboard.FieldColor().mode(FieldColorModeId.SHADES).fixed_color(color)


def paint(panel: timeseries.Panel, palette: Palette) -> timeseries.Panel:
    """Give each series the color of its name."""
    for name, color in palette.items():
        panel.override_by_name(str(name), [fixed_color(color)])
    return panel


def paint_models(panel: timeseries.Panel) -> timeseries.Panel:
    """Give each model a shade of its provider's hue; the legend begins with the provider."""
    panel.color_scheme(shades(OTHER_PROVIDERS))
    for provider, hue in PROVIDERS.items():
        shaded = DynamicConfigValue("color", {"mode": "shades", "fixedColor": hue})
        panel.override_by_regexp(f"/^{provider} ·/", [shaded])
    return panel


def paint_services(panel: timeseries.Panel) -> timeseries.Panel:
    """Give each service a hue that follows from its name, with which the legend begins."""
    panel.color_scheme(shades(PLAIN))
    for ending, hue in SERVICES.items():
        shaded = DynamicConfigValue("color", {"mode": "shades", "fixedColor": hue})
        panel.override_by_regexp(f"/^[^ ]*{ending}( |$)/i", [shaded])
    return panel


# --- Queries --------------------------------------------------------------------------------------


def prometheus_query(expression: str, ref_id: str, result: PromQueryFormat) -> prometheus.Dataquery:
    """Start a query; it is instant or over a range."""
    return (
        prometheus.Dataquery()
        .datasource(PROMETHEUS)
        .editor_mode(QueryEditorMode.CODE)
        .expr(expression)
        .format(result)
        .ref_id(ref_id)
    )


def latest(expression: str, ref_id: str = "A") -> prometheus.Dataquery:
    """Query one value, at the end of the time range."""
    return prometheus_query(expression, ref_id, PromQueryFormat.TIME_SERIES).instant()


def over_time(expression: str, ref_id: str = "A") -> prometheus.Dataquery:
    """Query values over the time range."""
    return prometheus_query(expression, ref_id, PromQueryFormat.TIME_SERIES).range()


def buckets(expression: str) -> prometheus.Dataquery:
    """Query the buckets of a histogram, at the end of the time range."""
    return prometheus_query(expression, "A", PromQueryFormat.HEATMAP).instant()


def lines(panel: timeseries.Panel, expressions: Mapping[str, str]) -> timeseries.Panel:
    """Add a query over the time range for each legend and its expression."""
    for ref_id, (legend, expression) in zip(ascii_uppercase, expressions.items(), strict=False):
        panel.with_target(over_time(expression, ref_id).legend_format(legend))
    return panel


# --- Numbers --------------------------------------------------------------------------------------


def stat_panel(panel_id: int, title: str) -> stat.Panel:
    """Start a panel that shows one number, or several with their names."""
    return (
        stat.Panel()
        .id(panel_id)
        .title(title)
        .datasource(PROMETHEUS)
        .no_value("no traffic")
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
        .color_mode(BigValueColorMode.VALUE)
        .graph_mode(BigValueGraphMode.NONE)
        .justify_mode(BigValueJustifyMode.CENTER)
        .text_mode(BigValueTextMode.VALUE)
        .reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .thresholds(thresholds((None, "text")))
        .mappings([_grey_nothing()])
    )


def _grey_nothing() -> SpecialValueMap:
    """Return the mapping that paints a panel's text for "no value" grey."""
    result = ValueMappingResult(color=GREY, index=0)
    options = DashboardSpecialValueMapOptions(match=SpecialValueMatch.NULL_AND_NAN, result=result)
    return SpecialValueMap(options=options)


def indicator_stat(panel_id: int, indicator: Indicator, *, title: str = "") -> stat.Panel:
    """Start a stat of an indicator over the time range: its title, text and unit."""
    panel = stat_panel(panel_id, title or indicator.title).description(
        indicator_description(indicator)
    )
    return panel.unit(units.PercentUnit).decimals(1) if indicator.denominator else panel.unit(COUNT)


def verdict_stat(
    panel_id: int, indicator: Indicator, *, title: str = "", events: str, short: str = ""
) -> stat.Panel:
    """Start a stat of an indicator whose value is a verdict: green, orange or red.

    Its query must return a zero only if there were `ENOUGH_EVENTS`.

    Args:
        events: The events that the indicator counts, in the plural.
        short: The same, for narrow panels. Defaults to `events`.
    """
    scope = f"Zero is shown from {ENOUGH_EVENTS} {events}. In the time range"
    return (
        indicator_stat(panel_id, indicator, title=title)
        .description(indicator_description(indicator, scope=scope))
        .no_value(f"below {ENOUGH_EVENTS} {short or events}")
        .thresholds(thresholds(*indicator_steps(indicator)))
    )


# --- Charts over time -----------------------------------------------------------------------------


def _chart(panel_id: int, title: str) -> timeseries.Panel:
    return (
        timeseries.Panel()
        .id(panel_id)
        .title(title)
        .datasource(PROMETHEUS)
        .no_value("no traffic")
        .interval("1m")
        .min(0)
        .axis_label("")
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.PALETTE_CLASSIC))
        .tooltip(
            build.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
        )
        # Grafana would write the label of the values below the time axis too.
        .override_by_field_type("time", [DynamicConfigValue("custom.axisLabel", "")])
    )


def _legend(
    placement: LegendPlacement | None, *, calculation: str, sort_by: str
) -> build.VizLegendOptions:
    return (
        build.VizLegendOptions()
        .show_legend(placement is not None)
        .placement(placement or LegendPlacement.BOTTOM)
        .display_mode(LegendDisplayMode.TABLE)
        .calcs([calculation])
        .sort_by(sort_by)
        .sort_desc(True)
    )


def _stacked() -> build.StackingConfig:
    return build.StackingConfig().group("A").mode(StackingMode.NORMAL)


def line_chart(panel_id: int, title: str, *, legend: LegendPlacement | None) -> timeseries.Panel:
    """Start a line chart; `legend=None` shows no legend."""
    return (
        _chart(panel_id, title)
        .draw_style(GraphDrawStyle.LINE)
        .line_width(2)
        .fill_opacity(0)
        .show_points(VisibilityMode.NEVER)
        .thresholds(thresholds((None, "transparent")))
        .legend(_legend(legend, calculation="lastNotNull", sort_by="Last *"))
    )


def area_chart(panel_id: int, title: str, *, legend: LegendPlacement) -> timeseries.Panel:
    """Start a chart of stacked areas."""
    return (
        _chart(panel_id, title)
        .draw_style(GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60)
        .show_points(VisibilityMode.NEVER)
        .stacking(_stacked())
        .thresholds(thresholds((None, "text")))
        .legend(_legend(legend, calculation="lastNotNull", sort_by="Last *"))
    )


def bar_chart(panel_id: int, title: str, *, legend: LegendPlacement | None) -> timeseries.Panel:
    """Start a chart of stacked bars; a bar ends at its time and holds what happened before it."""
    return (
        _chart(panel_id, title)
        .unit(COUNT)
        .max_data_points(72)  # five minutes each in six hours
        .draw_style(GraphDrawStyle.BARS)
        .bar_alignment(BarAlignment.BEFORE)
        .bar_width_factor(0.8)
        .fill_opacity(80)
        .line_width(0)
        .stacking(_stacked())
        .axis_soft_max(4)
        .thresholds(thresholds((None, "text")))
        .legend(_legend(legend, calculation="sum", sort_by="Total"))
    )


def indicator_lines(
    panel_id: int,
    indicator: Indicator,
    *,
    title: str,
    scope: str,
    question: str = "",
    legend: LegendPlacement | None,
) -> timeseries.Panel:
    """Start a line chart of an indicator's share, with its thresholds as dashed lines."""
    panel = (
        line_chart(panel_id, title, legend=legend)
        .description(indicator_description(indicator, scope=scope, question=question))
        .unit(units.PercentUnit)
        .decimals(1)
    )
    if (limits := indicator.thresholds) is None:
        return panel
    return threshold_lines(panel, limits.look, limits.act)


def threshold_lines(panel: timeseries.Panel, look: float, act: float) -> timeseries.Panel:
    """Draw two thresholds as dashed lines that always stay visible."""
    style = build.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
    return (
        panel.thresholds(thresholds(*warning_steps(look, act, base="transparent")))
        .thresholds_style(style)
        .axis_soft_max(2 * act)
    )


def indicator_bars(
    panel_id: int,
    indicator: Indicator,
    *,
    title: str = "",
    noun: str,
    legend: LegendPlacement,
) -> timeseries.Panel:
    """Start a bar chart of an indicator's events.

    Args:
        noun: The events that a bar counts, in the plural.
    """
    return (
        bar_chart(panel_id, title or indicator.title, legend=legend)
        .description(indicator_description(indicator, scope="in each step (a minute or more)"))
        .axis_label(f"{noun} per step")
        .no_value("none")
    )


def logarithmic(panel: timeseries.Panel) -> timeseries.Panel:
    """Use a logarithmic scale that begins at 1."""
    scale = build.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10)
    return panel.scale_distribution(scale).min(1)


# --- Other panels ---------------------------------------------------------------------------------


def bucket_gauge(panel_id: int, title: str) -> bargauge.Panel:
    """Start a bar for each bucket of a histogram."""
    return (
        bargauge.Panel()
        .id(panel_id)
        .title(title)
        .datasource(PROMETHEUS)
        .no_value("no traffic")
        .unit(COUNT)
        .min(0)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.FIXED).fixed_color("blue"))
        .thresholds(thresholds((None, "blue")))
        .display_mode(BarGaugeDisplayMode.BASIC)
        .legend(
            build.VizLegendOptions()
            .show_legend(False)
            .placement(LegendPlacement.BOTTOM)
            .display_mode(LegendDisplayMode.LIST)
        )
        .orientation(VizOrientation.HORIZONTAL)
        .reduce_options(build.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
        .show_unfilled(False)
        .value_mode(BarGaugeValueMode.TEXT)
    )


def share_bars(panel_id: int, title: str, *, category: str) -> barchart.Panel:
    """Start a chart of horizontal bars of equal length, whose parts are shares.

    Args:
        category: The column whose values name the bars.
    """
    return (
        barchart.Panel()
        .id(panel_id)
        .title(title)
        .datasource(PROMETHEUS)
        .no_value("no traffic")
        .unit(COUNT)
        .color_scheme(dashboard.FieldColor().mode(FieldColorModeId.FIXED).fixed_color(GREY))
        .thresholds(thresholds((None, "text")))
        .orientation(VizOrientation.HORIZONTAL)
        .stacking(StackingMode.PERCENT)
        .x_field(category)
        .show_value(VisibilityMode.NEVER)
        .fill_opacity(80)
        .line_width(0)
        .bar_width(0.8)
        .legend(
            build.VizLegendOptions()
            .show_legend(True)
            .placement(LegendPlacement.BOTTOM)
            .display_mode(LegendDisplayMode.LIST)
        )
        .tooltip(build.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.NONE))
    )


def sorted_rows(panel: barchart.Panel, *, by: str, limit: int) -> barchart.Panel:
    """Sort rows by a column, largest first, keep the first ones, and drop the column."""
    sort = {"sort": [{"field": by, "desc": True}]}
    return (
        panel.with_transformation(DataTransformerConfig("sortBy", options=sort))
        .with_transformation(DataTransformerConfig("limit", options={"limitField": limit}))
        .with_transformation(
            DataTransformerConfig("organize", options={"excludeByName": {by: True}})
        )
    )


def data_links(links: Iterable[Mapping[str, str]]) -> list[Builder[DashboardLink]]:
    """Return links of a panel's values in the form that the SDK's builders accept."""
    return [dashboard.DashboardLink(link["title"]).url(link["url"]) for link in links]
