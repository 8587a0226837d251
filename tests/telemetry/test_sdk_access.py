"""What is read of the SDK's inside: that it is still there, and what happens where it is not."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn.telemetry import sdk_access


def test_points_are_forgotten() -> None:
    """Of the instruments that are named, and of no other; where it cannot be had, they stay."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    made = {name: provider.get_meter("x").create_histogram(name) for name in ("ours", "theirs")}
    for histogram in made.values():
        histogram.record(1)
    sdk_access.forget_points(object(), [made["theirs"]])
    sdk_access.forget_points(provider, [made["ours"]])
    made["ours"].record(3)
    data: Any = reader.get_metrics_data()
    (scope,) = data.resource_metrics[0].scope_metrics
    assert {metric.name: metric.data.data_points[0].sum for metric in scope.metrics} == {"ours": 3, "theirs": 1}
