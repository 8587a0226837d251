"""The kinds of panels that the dashboards consist of, and the finishing pass over what the Foundation SDK writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from endturn.errors import UsageError
from endturn.generate.promql import Vector
from endturn.generate.sdk import (
    JSONEncoder,
    bargauge,
    common,
    common_models,
    dashboard,
    models,
    prometheus,
    prometheus_models,
    stat,
    table,
    timeseries,
)
from endturn.telemetry.indicators import Thresholds

P = TypeVar("P", stat.Panel, timeseries.Panel, table.Panel, bargauge.Panel)
AnyPanel = stat.Panel | timeseries.Panel | table.Panel | bargauge.Panel

DATASOURCE: Final = common_models.DataSourceRef(type_val="prometheus", uid="${prometheus_datasource}")
WIDTH: Final = 24
GREEN, YELLOW, RED, TEXT = "green", "yellow", "red", "text"
BY_NAME, BY_ORDER = models.FieldColorModeId.PALETTE_CLASSIC_BY_NAME, models.FieldColorModeId.PALETTE_CLASSIC
"""A model keeps its colour from panel to panel; a few words of one panel are told apart best."""


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel.

    Attributes:
        legend: with `{{label}}`, of labels that the expression keeps.
        at: "end" asks once, at the end of the time range; "steps" all along it.
    """

    expression: Vector | str
    legend: str = ""
    at: Literal["end", "steps"] = "steps"
    form: Literal["time_series", "table", "heatmap"] = "time_series"

    def build(self, ref: str) -> prometheus.Dataquery:
        form = prometheus_models.PromQueryFormat(self.form)
        query = prometheus.Dataquery().ref_id(ref).expr(str(self.expression)).format(form)
        query = query.datasource(DATASOURCE).editor_mode(prometheus_models.QueryEditorMode.CODE)
        if self.legend:
            query = query.legend_format(self.legend)
        return query.instant() if self.at == "end" else query.range()


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What every panel says of itself.

    Attributes:
        id: its number in links, never given to another panel.
        empty: shown where there is nothing to show.
    """

    id: int
    title: str
    question: str
    formula: str
    advice: str
    unit: str
    empty: str = "no traffic"
    decimals: int | None = None

    @property
    def description(self) -> str:
        return f"**{self.question}**\n\n{self.formula[:1].upper()}{self.formula[1:]}.\n\n{self.advice}"


def _base(panel: P, about: About, queries: Sequence[Query]) -> P:
    panel = panel.id(about.id).title(about.title).description(about.description).datasource(DATASOURCE)
    panel = panel.unit(about.unit).no_value(about.empty)
    if about.decimals is not None:
        panel = panel.decimals(about.decimals)
    for ref, query in zip("ABCDEFGH", queries, strict=False):
        panel = panel.with_target(query.build(ref))
    return panel


def _thresholds(limits: Thresholds | None, *, calm: str = GREEN) -> dashboard.ThresholdsConfig:
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
    about: About, query: Query, limits: Thresholds | None = None, says: Mapping[str, str] | None = None
) -> stat.Panel:
    """One figure over the whole range, coloured where it has limits.

    Args:
        says: what to show instead of a value, e.g. {"1": "alive"}.
    """
    panel = _base(stat.Panel(), about, [query]).thresholds(_thresholds(limits, calm=GREEN if limits else TEXT))
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


def bars(
    about: About, queries: Sequence[Query], *, step: str, colours: Mapping[str, str] | None = None
) -> timeseries.Panel:
    """Counts per step, stacked. A bar stands before its time: it holds what happened since the one before."""
    panel = _base(timeseries.Panel(), about, queries).interval(step).thresholds(_thresholds(None))
    panel = (
        panel.color_scheme(_colour(BY_ORDER if colours is not None else BY_NAME))
        .draw_style(common_models.GraphDrawStyle.BARS)
        .bar_alignment(common_models.BarAlignment.BEFORE)
        .bar_width_factor(0.8)
        .fill_opacity(80)
        .line_width(0)
        .stacking(common.StackingConfig().mode(common_models.StackingMode.NORMAL).group("A"))
        .min(0)
        .axis_soft_max(4)
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
) -> timeseries.Panel:
    """Values over time, with their limits as dashed lines."""
    panel = _base(timeseries.Panel(), about, queries).interval(step).thresholds(_thresholds(limits, calm="transparent"))
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
    for name in dashed:
        stroke = {"fill": "dash", "dash": [6, 6]}
        panel = panel.override_by_name(name, [models.DynamicConfigValue("custom.lineStyle", stroke)])
    return _painted(panel, colours or {})


def buckets(about: About, query: Query, names: Mapping[str, str]) -> bargauge.Panel:
    """How many values fell into each of a histogram's buckets, over the whole range.

    Args:
        names: what to call each bucket, by a regular expression for its upper bound.
    """
    panel = _base(bargauge.Panel(), about, [query]).thresholds(_thresholds(None, calm="blue")).min(0)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a query's value (`value_of`, its letter) or a label.

    Attributes:
        colours: of the cell's text, by value.
    """

    name: str
    label: str = ""
    value_of: str = ""
    unit: str = ""
    limits: Thresholds | None = None
    width: int | None = None
    bar: bool = False
    colours: Mapping[str, str] | None = None

    def properties(self) -> list[models.DynamicConfigValue]:
        settings: dict[str, Any] = {"unit": self.unit} if self.unit else {}
        if self.width:
            settings["custom.width"] = self.width
        if self.limits:
            steps = _thresholds(self.limits, calm=TEXT).build()
            settings["thresholds"] = {
                "mode": "absolute",
                "steps": [{"value": s.value, "color": s.color} for s in steps.steps],
            }
            settings["custom.cellOptions"] = {"type": "color-text"}
        if self.bar:
            settings |= {"min": 0, "max": 1, "color": {"mode": "fixed", "fixedColor": "blue"}}
            settings["custom.cellOptions"] = {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"}
        if self.colours:
            options = {value: {"color": colour, "index": n} for n, (value, colour) in enumerate(self.colours.items())}
            settings["mappings"] = [{"type": "value", "options": options}]
            settings["custom.cellOptions"] = {"type": "color-text"}
        return [models.DynamicConfigValue(key, value) for key, value in settings.items()]


def rows(about: About, queries: Sequence[Query], columns: Sequence[Column], *, sort: str) -> table.Panel:
    """A table with one row for each combination of labels; sorted by a column, the largest first."""
    panel = _base(table.Panel(), about, queries).thresholds(_thresholds(None, calm=TEXT))
    fields = [column.label or (f"Value #{column.value_of}" if len(queries) > 1 else "Value") for column in columns]
    organize = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {field: n for n, field in enumerate(fields)},
        "renameByName": {field: column.name for field, column in zip(fields, columns, strict=True)},
    }
    panel = panel.with_transformation(models.DataTransformerConfig(id_val="merge", options={}))
    panel = panel.with_transformation(models.DataTransformerConfig(id_val="organize", options=organize))
    for column in columns:
        if properties := column.properties():
            panel = panel.override_by_name(column.name, properties)
    return panel.sort_by([common.TableSortByFieldState().display_name(sort).desc(True)]).cell_height(
        common_models.TableCellHeight.SM
    )


@dataclass(frozen=True, slots=True)
class Section:
    """A titled row of a dashboard: lines of panels, each as (panel, width of 24), all as high."""

    id: int
    title: str
    lines: tuple[tuple[int, tuple[tuple[AnyPanel, int], ...]], ...]


def lay_out(board: dashboard.Dashboard, sections: Sequence[Section]) -> dashboard.Dashboard:
    """Put sections onto a dashboard, from the top; raises UsageError where a line is not exactly as wide as it."""
    y = 0
    for section in sections:
        position = models.GridPos(h=1, w=WIDTH, x=0, y=y)
        board = board.with_row(dashboard.Row(section.title).id(section.id).grid_pos(position))
        y += 1
        for height, line in section.lines:
            if (width := sum(wide for _, wide in line)) != WIDTH:
                raise UsageError(f"a line of {section.title!r} is {width} wide, not {WIDTH}")
            x = 0
            for panel, wide in line:
                board = board.with_panel(panel.grid_pos(models.GridPos(h=height, w=wide, x=x, y=y)))
                x += wide
            y += height
    return board


NOISE: Final = frozenset({"placement", "repeatDirection", "auto", "auto_count", "auto_min", "builtIn", "footer"})
"""What the SDK writes unasked. `placement` even hides links and annotations in Grafana 12 and later; tables have no
`footer` in their options any more."""


def finish(board: dashboard.Dashboard) -> str:
    """The dashboard as its file: without the SDK's noise, keys sorted, the same for the same input."""
    content = json.loads(JSONEncoder().encode(board.build()))
    return json.dumps(_clean(content), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _clean(content: Any) -> Any:
    match content:
        case dict():
            return {key: _clean(value) for key, value in content.items() if key not in NOISE}
        case list():
            return [_clean(value) for value in content]
        case _:
            return content
