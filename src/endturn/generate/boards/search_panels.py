"""Panels of log lines and traces, and their queries to Loki and Tempo."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard, logs, loki, tempo
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import LogsDedupStrategy, LogsSortOrder
from grafana_foundation_sdk.models.loki import QueryEditorMode as LogQueryEditorMode
from grafana_foundation_sdk.models.tempo import SearchTableType

from endturn.generate.boards import panels


def log_panel(panel_id: int, title: str) -> logs.Panel:
    """Start a panel of log lines, the newest first."""
    return (
        logs.Panel()
        .id(panel_id)
        .title(title)
        .datasource(panels.LOKI)
        .unit(units.NoUnit)
        .no_value("none in Loki")
        .dedup_strategy(LogsDedupStrategy.NONE)
        .enable_log_details(True)
        .prettify_log_message(False)
        .show_common_labels(False)
        .show_labels(False)
        .show_log_context_toggle(False)
        .show_time(True)
        .sort_order(LogsSortOrder.DESCENDING)
        .wrap_log_message(False)
    )


def log_query(expression: str) -> loki.Dataquery:
    """Query log lines of the time range."""
    return (
        loki.Dataquery()
        .datasource(panels.LOKI)
        .ref_id("A")
        .query_type("range")
        .editor_mode(LogQueryEditorMode.CODE)
        .expr(expression)
        .max_lines(200)
    )


def trace_panel(panel_id: int, title: str) -> dashboard.Panel:
    """Start a panel that draws one trace; the SDK has no builder of its own for it."""
    return (
        dashboard.Panel()
        .type("traces")
        .id(panel_id)
        .title(title)
        .datasource(panels.TEMPO)
        .unit(units.NoUnit)
        .no_value("no traffic")
        .options({})
    )


def trace_query(query: str) -> tempo.Dataquery:
    """Query one trace by its id."""
    return tempo.Dataquery().datasource(panels.TEMPO).ref_id("A").query_type("traceql").query(query)


def span_search(query: str) -> tempo.Dataquery:
    """Search spans, grouped by their traces."""
    return trace_query(query).limit(50).spss(5).table_type(SearchTableType.TRACES)
