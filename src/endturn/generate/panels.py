"""The kinds of panels that show numbers, and what every panel says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from endturn.generate.promql import Vector
from endturn.generate.sdk import (
    bargauge,
    common,
    common_models,
    dashboard,
    heatmap,
    heatmap_models,
    logs,
    models,
    prometheus,
    prometheus_models,
    stat,
    table,
    timeseries,
)
from endturn.telemetry.indicators import Thresholds

P = TypeVar("P", stat.Panel, timeseries.Panel, table.Panel, bargauge.Panel, heatmap.Panel)
AnyPanel = stat.Panel | timeseries.Panel | table.Panel | bargauge.Panel | heatmap.Panel | logs.Panel | dashboard.Panel

DATASOURCE: Final = common_models.DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
GREEN, YELLOW, RED, TEXT = "green", "yellow", "red", "text"
BY_NAME, BY_ORDER = models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME, models.FieldColorModeId.PALETTE_CLASSIC
"""A model keeps its colour from panel to panel; a few words of one panel are told apart best."""

Needs = Literal["responses", "process", "calls", "rules", "collector", "scraped", "spans", "events"]
NEEDS: Final[Mapping[Needs, str]] = {
    "responses": "Works without endturn in the process too: the Collector counts the responses of any language.",
    "process": "Needs endturn in the agent's process.",
    "calls": "From the GenAI conventions' metrics, whoever records them: endturn, or another instrumentation.",
    "rules": "From Prometheus itself.",
    "collector": "From the Collector's own metrics.",
    "scraped": "From what servers and gateways expose, where Prometheus scrapes them.",
    "spans": "From spans; of agents without endturn those whose stop reason the Collector normalises.",
    "events": "From events of endturn in the agent's process.",
}
"""Where a panel's data come from, so that an empty one is understood."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        legend: with `{{label}}`, of labels that the expression keeps.
        at: "end" asks once, at the end of the time range; "steps" all along it.
        exemplars: show single traces beside the values. Only histograms themselves have them, recorded series do not.
    """

    expression: Vector | str
    legend: str = ""
    at: Literal["end", "steps"] = "steps"
    form: Literal["time_series", "table", "heatmap"] = "time_series"
    exemplars: bool = False

    def build(self, ref: str) -> prometheus.Dataquery:
        form = prometheus_models.PromQueryFormat(self.form)
        query = prometheus.Dataquery().ref_id(ref).expr(str(self.expression)).format(form)
        query = query.datasource(DATASOURCE).editor_mode(prometheus_models.QueryEditorMode.CODE)
        if self.legend:
            query = query.legend_format(self.legend)
        if self.exemplars:
            query = query.exemplar(True)
        return query.instant() if self.at == "end" else query.range()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What every panel says of itself.

    Attributes:
        id: its number in links, never given to another panel of the dashboard.
        needs: where the data come from.
        empty: shown where there is nothing to show.
    """

    id: int
    title: str
    question: str
    formula: str
    advice: str
    unit: str
    needs: Needs = "process"
    empty: str = "no traffic"
    decimals: int | None = None

    @property
    def description(self) -> str:
        formula = f"{self.formula[:1].upper()}{self.formula[1:]}."
        return f"**{self.question}**\n\n{formula}\n\n{self.advice}\n\n{NEEDS[self.needs]}"


@dataclass(frozen=True, slots=True)
class Link:
    """Where a value leads, as Grafana's own links are written."""

    title: str
    url: str


def base(panel: P, about: About, queries: Sequence[Query], links: Sequence[Link] = ()) -> P:
    """What all panels over Prometheus have."""
    panel = panel.id(about.id).title(about.title).description(about.description).datasource(DATASOURCE)
    panel = panel.unit(about.unit).no_value(about.empty)
    if about.decimals is not None:
        panel = panel.decimals(about.decimals)
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel = panel.with_target(query.build(ref))
    if links:
        panel = panel.data_links([dashboard.DashboardLink(link.title).url(link.url) for link in links])
    return panel


def steps_of(limits: Thresholds | None, *, calm: str = GREEN) -> dashboard.ThresholdsConfig:
    """Limits as Grafana colours by them."""
    steps = [models.Threshold(value=None, color=calm)]
    if limits:
        steps += [models.Threshold(limits.look, YELLOW), models.Threshold(limits.act, RED)]
    return dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)


def _colour(mode: models.FieldColorModeId, fixed: str | None = None) -> dashboard.FieldColor:
    colour = dashboard.FieldColor().mode(mode)
    return colour.fixed_color(fixed) if fixed else colour


def _painted(panel: P, colours: Mapping[str, str]) -> P:
    for name, colour in colours.items():
        value = {"mode": "fixed", "fixedColor": colour}
        panel = panel.override_by_name(name, [models.DynamicConfigValue("color", value)])
    return panel


def _legend() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(True).display_mode(common_models.LegendDisplayMode.LIST)
    return legend.placement(common_models.LegendPlacement.BOTTOM).calcs([])


def _tooltip() -> common.VizTooltipOptions:
    tooltip = common.VizTooltipOptions().mode(common_models.TooltipDisplayMode.MULTI)
    return tooltip.sort(common_models.SortOrder.DESCENDING)


def number(
    about: About,
    query: Query,
    limits: Thresholds | None = None,
    says: Mapping[str, str] | None = None,
    links: Sequence[Link] = (),
) -> stat.Panel:
    """One figure over the whole range, coloured where it has limits.

    Args:
        says: what to show instead of a value, e.g. {"1": "alive"}.
    """
    panel = base(stat.Panel(), about, [query], links).thresholds(steps_of(limits, calm=GREEN if limits else TEXT))
    if says:
        shown = {
            value: models.ValueMappingResult(text=text, color=GREEN if value == "1" else RED)
            for value, text in says.items()
        }
        panel = panel.mappings([models.ValueMap(options=shown)])
    return (
        panel.color_scheme(_colour(models.FieldColorModeId.THRESHOLDS))
        .graph_mode(common_models.BigValueGraphMode.NONE)
        .color_mode(common_models.BigValueColorMode.VALUE)
        .text_mode(common_models.BigValueTextMode.VALUE)
        .justify_mode(common_models.BigValueJustifyMode.CENTER)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )


def remaining(about: About, query: Query, *, look: float) -> stat.Panel:
    """One figure, zero or more, of something that is used up: red when nothing is left, yellow below `look`."""
    # Where there is no value at all, the first colour is that of the words that say so.
    gone, some = models.Threshold(0, RED), models.Threshold(1e-6, YELLOW)
    steps = [models.Threshold(None, TEXT), gone, some, models.Threshold(look, GREEN)]
    limits = dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
    return number(about, query).thresholds(limits)


def bars(
    about: About,
    queries: Sequence[Query],
    *,
    step: str,
    colours: Mapping[str, str] | None = None,
    links: Sequence[Link] = (),
    soft_max: float = 4,
) -> timeseries.Panel:
    """Counts per step, stacked. A bar stands before its time: it holds what happened since the one before."""
    panel = base(timeseries.Panel(), about, queries, links).interval(step).thresholds(steps_of(None))
    panel = (
        panel.color_scheme(_colour(BY_ORDER if colours is not None else BY_NAME))
        .draw_style(common_models.GraphDrawStyle.BARS)
        .bar_alignment(common_models.BarAlignment.BEFORE)
        .bar_width_factor(0.8)
        .fill_opacity(80)
        .line_width(0)
        .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
        .min(0)
        .axis_soft_max(soft_max)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return _painted(panel, colours or {})


def lines(
    about: About,
    queries: Sequence[Query],
    *,
    limits: Thresholds | None = None,
    soft_max: float | None = None,
    step: str = "1m",
    colours: Mapping[str, str] | None = None,
    dashed: Sequence[str] = (),
    dotted: Sequence[str] = (),
    links: Sequence[Link] = (),
    logarithmic: bool = False,
) -> timeseries.Panel:
    """Values over time, with their limits as dashed lines."""
    panel = base(timeseries.Panel(), about, queries, links).interval(step)
    panel = panel.thresholds(steps_of(limits, calm="transparent"))
    panel = (
        panel.color_scheme(_colour(BY_NAME))
        .draw_style(common_models.GraphDrawStyle.LINE)
        .line_width(2)
        .fill_opacity(0)
        .show_points(common_models.VisibilityMode.NEVER)
        .min(0)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    if limits:
        style = common_models.GraphThresholdsStyleMode.DASHED
        panel = panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(style))
    if soft_max is not None:
        panel = panel.axis_soft_max(soft_max)
    if logarithmic:  # symmetric: a zero stays visible
        scale = common.ScaleDistributionConfig().type(common_models.ScaleDistribution.SYMLOG)
        panel = panel.scale_distribution(scale.log(10).linear_threshold(1))
    for name in dashed:
        stroke = {"fill": "dash", "dash": [6, 6]}
        panel = panel.override_by_name(name, [models.DynamicConfigValue("custom.lineStyle", stroke)])
    for name in dotted:
        points = {"custom.drawStyle": "points", "custom.pointSize": 6}
        panel = panel.override_by_name(name, [models.DynamicConfigValue(key, value) for key, value in points.items()])
    return _painted(panel, colours or {})


def areas(about: About, queries: Sequence[Query], *, colours: Mapping[str, str]) -> timeseries.Panel:
    """Parts of a whole over time, one upon the other."""
    panel = base(timeseries.Panel(), about, queries).interval("1m").thresholds(steps_of(None))
    panel = (
        panel.color_scheme(_colour(BY_ORDER))
        .draw_style(common_models.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(60)
        .show_points(common_models.VisibilityMode.NEVER)
        .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
        .min(0)
        .max(1)
        .legend(_legend())
        .tooltip(_tooltip())
    )
    return _painted(panel, colours)


def buckets(about: About, query: Query, names: Mapping[str, str]) -> bargauge.Panel:
    """How many values fell into each of a histogram's buckets, over the whole range.

    Args:
        names: what to call each bucket, by a regular expression for its upper bound.
    """
    panel = base(bargauge.Panel(), about, [query]).thresholds(steps_of(None, calm="blue")).min(0)
    for pattern, name in names.items():
        panel = panel.override_by_regexp(pattern, [models.DynamicConfigValue("displayName", name)])
    return (
        panel.color_scheme(_colour(models.FieldColorModeId.FIXED, "blue"))
        .display_mode(common_models.BarGaugeDisplayMode.BASIC)
        .value_mode(common_models.BarGaugeValueMode.TEXT)
        .show_unfilled(False)
        .orientation(common_models.VizOrientation.HORIZONTAL)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False))
    )


def heat(about: About, query: Query, *, step: str) -> heatmap.Panel:
    """How many values fell into each of a histogram's buckets, over time: the warmer, the more."""
    panel = base(heatmap.Panel(), about, [query]).interval(step).thresholds(steps_of(None))
    colour = heatmap.HeatmapColorOptions().mode(heatmap_models.HeatmapColorMode.SCHEME).scheme("Oranges")
    colour = colour.scale(heatmap_models.HeatmapColorScale.EXPONENTIAL).exponent(0.5).steps(64).fill("dark-orange")
    axis = heatmap.YAxisConfig().unit(about.unit).axis_placement(common_models.AxisPlacement.LEFT)
    if about.decimals is not None:
        axis = axis.decimals(about.decimals)
    return (
        panel.calculate(False)
        .color(colour)
        .y_axis(axis)
        .cell_gap(1)
        .cell_values(heatmap.CellValues().unit("locale").decimals(0))
        # Empty cells stay empty: a zero drawn is a zero looked at.
        .filter_values(heatmap.FilterValueRange().le(1e-9))
        .rows_frame(heatmap.RowsHeatmapOptions().layout(common_models.HeatmapCellLayout.LE))
        .tooltip(heatmap.HeatmapTooltip().mode(common_models.TooltipDisplayMode.SINGLE).y_histogram(False))
        .exemplars_color("rgba(255,0,255,0.7)")
        .show_legend()
    )
