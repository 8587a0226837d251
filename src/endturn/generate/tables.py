"""The panels that list things: tables of numbers, of traces and of log lines, and one trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from endturn.generate.panels import TEXT, About, Link, Query, base, steps_of
from endturn.generate.sdk import (
    common,
    common_models,
    dashboard,
    logs,
    loki,
    loki_models,
    models,
    table,
    tempo,
    tempo_models,
)
from endturn.telemetry.indicators import Thresholds

TEMPO: Final = common_models.DataSourceRef(type_val="tempo", uid="${tempo_datasource}")
LOKI: Final = common_models.DataSourceRef(type_val="loki", uid="${loki_datasource}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a query's value (`value_of`, its letter) or a label.

    Attributes:
        colours: of the cell's text, by value.
        link: where the cell leads.
    """

    name: str
    label: str = ""
    value_of: str = ""
    unit: str = ""
    limits: Thresholds | None = None
    width: int | None = None
    bar: bool = False
    colours: Mapping[str, str] | None = None
    link: Link | None = None

    def properties(self) -> list[models.DynamicConfigValue]:
        settings: dict[str, Any] = {"unit": self.unit} if self.unit else {}
        if self.width:
            settings["custom.width"] = self.width
        if self.limits:
            steps = steps_of(self.limits, calm=TEXT).build()
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
        if self.link:
            settings["links"] = [{"title": self.link.title, "url": self.link.url}]
        return [models.DynamicConfigValue(key, value) for key, value in settings.items()]


def rows(about: About, queries: Sequence[Query], columns: Sequence[Column], *, sort: str) -> table.Panel:
    """A table with one row for each combination of labels; sorted by a column, the largest first."""
    panel = base(table.Panel(), about, queries).thresholds(steps_of(None, calm=TEXT))
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


def traces(about: About, query: str, link: Link) -> table.Panel:
    """Traces that a TraceQL search finds; the link is on their ids."""
    panel = table.Panel().id(about.id).title(about.title).description(about.description).datasource(TEMPO)
    panel = panel.with_target(_tempo(query).limit(50).spss(5).table_type(tempo_models.SearchTableType.TRACES))
    panel = panel.unit(about.unit).no_value(about.empty).thresholds(steps_of(None, calm=TEXT))
    links = models.DynamicConfigValue("links", [{"title": link.title, "url": link.url}])
    return panel.override_by_name("traceID", [links]).cell_height(common_models.TableCellHeight.SM)


def lines_of_log(about: About, query: str) -> logs.Panel:
    """Log lines, the newest first."""
    panel = logs.Panel().id(about.id).title(about.title).description(about.description).datasource(LOKI)
    asked = loki.Dataquery().ref_id("A").expr(query).query_type("range").max_lines(200)
    asked = asked.editor_mode(loki_models.QueryEditorMode.CODE).datasource(LOKI)
    return (
        panel.with_target(asked)
        .unit(about.unit)
        .no_value(about.empty)
        .show_time(True)
        .wrap_log_message(False)
        .enable_log_details(True)
        .sort_order(common_models.LogsSortOrder.DESCENDING)
        .dedup_strategy(common_models.LogsDedupStrategy.NONE)
    )


def one_trace(about: About, query: str) -> dashboard.Panel:
    """A trace as Grafana draws one; the SDK has no builder for this panel."""
    panel = dashboard.Panel().type("traces").id(about.id).title(about.title).description(about.description)
    return panel.datasource(TEMPO).with_target(_tempo(query)).options({})


def _tempo(query: str) -> tempo.Dataquery:
    return tempo.Dataquery().ref_id("A").query_type("traceql").query(query).datasource(TEMPO)
