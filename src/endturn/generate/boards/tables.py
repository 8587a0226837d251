"""Tables: a row for each combination of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import TypeVar

from grafana_foundation_sdk.builders import barchart, common as build, table
from grafana_foundation_sdk.models.common import FieldTextAlignment
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from endturn.generate.boards import panels
from endturn.generate.boards.palettes import Palette

Filled = TypeVar("Filled", table.Panel, barchart.Panel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: a label of the results, or the value of a query.

    Attributes:
        label: The label that the column shows.
        query: The expression whose value the column shows.
        width: In pixels. Defaults to an equal part of the remaining width.
        steps: Thresholds that color the text.
        palette: Colors of the text by value.
        is_hidden: It is not shown; links and sorting read it.
        link: The target of a click on a cell.
    """

    title: str
    label: str | None = None
    query: str | None = None
    unit: str | None = None
    decimals: int | None = None
    width: int | None = None
    steps: Sequence[panels.Step] = ()
    palette: Palette | None = None
    link: Mapping[str, str] | None = None
    is_hidden: bool = False

    def properties(self) -> list[DynamicConfigValue]:
        """Return the override properties of the column."""
        properties = []
        if self.is_hidden:
            # Grafana 12 reads the first, Grafana 13 the second.
            properties.append(DynamicConfigValue("custom.hidden", True))
            hide_from = {"legend": False, "tooltip": False, "viz": True}
            properties.append(DynamicConfigValue("custom.hideFrom", hide_from))
        if self.unit is not None:
            properties.append(DynamicConfigValue("unit", self.unit))
        if self.decimals is not None:
            properties.append(DynamicConfigValue("decimals", self.decimals))
        if self.width is not None:
            properties.append(DynamicConfigValue("custom.width", self.width))
        if self.steps:
            properties.append(panels.threshold_property(*self.steps))
        if self.palette is not None:
            options = {
                value: {"color": color, "index": index}
                for index, (value, color) in enumerate(self.palette.items())
            }
            mappings = [{"type": "value", "options": options}]
            properties.append(DynamicConfigValue("mappings", mappings))
        if self.steps or self.palette is not None:
            properties.append(DynamicConfigValue("custom.cellOptions", {"type": "color-text"}))
        if self.link is not None:
            properties.append(DynamicConfigValue("links", [self.link]))
        return properties


def empty_table(panel_id: int, title: str) -> table.Panel:
    """Start a table without columns."""
    return (
        table.Panel()
        .id(panel_id)
        .title(title)
        .datasource(panels.PROMETHEUS)
        .no_value("–")
        .unit(panels.COUNT)
        .align(FieldTextAlignment.AUTO)
        .thresholds(panels.thresholds((None, "text")))
    )


def table_panel(
    panel_id: int, title: str, *, columns: Sequence[Column], sort_by: str
) -> table.Panel:
    """Return a table with one row per combination of labels.

    Args:
        sort_by: Title of the column with the values of which the rows are sorted, largest first.
    """
    panel = empty_table(panel_id, title).sort_by(
        [build.TableSortByFieldState().display_name(sort_by).desc(True)]
    )
    return fill(panel, columns)


def fill(panel: Filled, columns: Sequence[Column]) -> Filled:
    """Add the columns to a panel that shows rows: their queries, joined by the labels."""
    letters = iter(ascii_uppercase)
    is_alone = sum(column.query is not None for column in columns) == 1
    fields: dict[str, str] = {}
    for column in columns:
        if column.label is not None:
            fields[column.label] = column.title
        elif column.query is not None:
            letter = next(letters)
            fields["Value" if is_alone else f"Value #{letter}"] = column.title
            query = panels.prometheus_query(column.query, letter, PromQueryFormat.TABLE)
            panel.with_target(query.instant())
        if properties := column.properties():
            panel.override_by_name(column.title, properties)
    organize = {
        "excludeByName": {"Time": True},
        "includeByName": {},
        "indexByName": {field: index for index, field in enumerate(fields)},
        "renameByName": fields,
    }
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=organize))
    return panel
