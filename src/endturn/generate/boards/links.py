"""Data links between the dashboards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from endturn.telemetry import schema

Link = dict[str, str]

SOURCE: Final = ("prometheus_datasource",)
SERVICE: Final = ("prometheus_datasource", "job", "environment", "cluster")
"""The variables that a link keeps: the data source, or also the selected services."""


def cell(title: str) -> str:
    """Return Grafana's reference to another column of the same row."""
    return f'${{__data.fields["{title}"]}}'


def series_label(label: str) -> str:
    """Return Grafana's reference to a label of the series that a link is on."""
    return f"${{__field.labels.{label}}}"


ROW_SERVICE: Final = {
    "job": cell("Service"),
    "environment": cell("Environment"),
    "cluster": cell("Cluster"),
}
"""The service of a table's row. A label that the row lacks selects series without it."""
ROW_MODEL: Final = {"provider": cell("Provider"), "model": cell("Model")}
SERIES_MODEL: Final = {
    "provider": series_label(schema.PROVIDER.label),
    "model": series_label(schema.REQUEST_MODEL.label),
}


def dashboard_link(title: str, uid: str, *, sets: Mapping[str, str], keeps: Iterable[str]) -> Link:
    """Return a data link to another dashboard.

    Args:
        title: The text of the link.
        uid: The dashboard.
        sets: Variables and their new values.
        keeps: Variables that stay as they are.
    """
    variables = [f"var-{name}={value}" for name, value in sets.items()]
    variables += [f"${{{name}:queryparam}}" for name in keeps]
    return {"title": title, "url": f"/d/{uid}?{'&'.join(variables)}&${{__url_time_range}}"}


def model_links() -> list[Link]:
    """Return the links of a series of one model: its dashboard, and its truncated turns."""
    return [
        dashboard_link("This model", "endturn-model", sets=SERIES_MODEL, keeps=SERVICE),
        dashboard_link("Its truncated turns", "endturn-turns", sets=SERIES_MODEL, keeps=SERVICE),
    ]
