"""Selectors of the series that Collectors and SDKs report about themselves.

All names of their metrics are in `external_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from endturn.generate import external_metrics as external
from endturn.generate.external_metrics import ExternalMetric, MetricFamily
from endturn.generate.queries import JOB, Matcher


def _of_collectors(collector: str) -> Matcher:
    return Matcher(JOB, "=~", collector)


COLLECTOR_METRICS: Final = "the Collectors' own metrics"
"""The `needs` of a condition about Collectors."""


def is_up(collector: str) -> str:
    """Return the selector of the Collectors' `up`; empty without a Collector."""
    return external.UP.select(_of_collectors(collector)) if collector else ""


def collector_gauge(metric: ExternalMetric, collector: str) -> str:
    """Return the selector of one of the Collectors' gauges, under all of its names."""
    if metric.suffixes == ("",):
        return metric.select(_of_collectors(collector))
    return collector_counters(external.family(metric), collector)


def collector_counters(counters: MetricFamily, collector: str, *matchers: Matcher) -> str:
    """Return the selector of a family of the Collectors' counters.

    Args:
        collector: The `job` of the Collectors, a regular expression.
        matchers: Additional matchers.
    """
    return counters.select(*matchers, _of_collectors(collector))


def collector_increase(
    metric: ExternalMetric, collector: str, window: str, *matchers: Matcher
) -> str:
    """Return the increase of one of the Collectors' counters, under any of its names."""
    return metric.over("increase", window, *matchers, _of_collectors(collector))


def collectors_down_within(window: str) -> str:
    """Return whether EndturnCollectorsDown fired within a window.

    `ALERTS` itself would show a state from before a restart of Prometheus for five minutes more.
    """
    down = 'ALERTS{alertname="EndturnCollectorsDown", alertstate="firing"}'
    return f"last_over_time({down}[{window}])"


def sdk_drops(services: Sequence[Matcher]) -> str:
    """Return the selector of the counters of records that agents' SDKs dropped."""
    return external.ALL_SDK_RECORDS.select(Matcher(external.ERROR_TYPE, "!=", ""), *services)
