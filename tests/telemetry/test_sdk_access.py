"""What is read of the SDK's inside: that it is still there, and what happens where it is not."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from endturn.telemetry import sdk_access


@pytest.mark.parametrize("readers", [0, 1])
def test_whether_a_provider_has_a_reader(readers: int) -> None:
    """Known before any has collected; where it cannot be told, nobody is believed to export."""
    provider = MeterProvider([InMemoryMetricReader() for _ in range(readers)], shutdown_on_exit=False)
    assert sdk_access.has_reader(provider) is bool(readers)
    assert sdk_access.has_reader(object()) is False


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
