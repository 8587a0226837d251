"""Panel by panel: what the page says of the demo's agents is what a real Prometheus says of the same exports."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from endturn.generate import queries
from endturn.generate.queries import HistogramPart, Queries
from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS, Count
from endturn.telemetry.schema import Metric
from endturn.ui import panels, server
from endturn.ui.numbers import Labels, Numbers, Scope
from endturn.ui.store import Store
from tests.support.processes import Prometheus, PrometheusClient, Series, http
from tests.support.serving import ReceivedRequest, serving
from tests.ui.support import SECOND, demo

pytestmark = pytest.mark.stack

BY = {
    "all": (),
    "service": ("service",),
    "call": (schema.PROVIDER.label, schema.REQUEST_MODEL.label),
    "model": ("service", schema.PROVIDER.label, schema.REQUEST_MODEL.label),
}
"""The page's labels for each of the scopes that Prometheus' queries have."""
STEP = 5


@dataclass(frozen=True)
class Both:
    """The same traffic, asked twice; Prometheus' answers by the page's labels."""

    page: Numbers
    prometheus: PrometheusClient

    def said(self, expression: str, by: tuple[str, ...]) -> dict[Labels, float]:
        """What Prometheus says at the end; zeros left out."""
        found = self.prometheus.query(expression, time=self.page.scope.end_ns / SECOND)
        return {_labels(series, by): series.value for series in found if series.value}


def _labels(series: Series, by: tuple[str, ...]) -> Labels:
    return tuple(series.labels.get("job" if label == "service" else label, "") for label in by)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The demo has played for both of them, two jobs of it."""
    start = time.time_ns() // (STEP * SECOND) * STEP * SECOND - 60 * SECOND
    with (
        closing(Store()) as store,
        Prometheus(tmp_path_factory.mktemp("prometheus")) as prometheus,
        server.serving(store, server.listen("127.0.0.1", 0)) as url,
    ):

        def hand_on(export: ReceivedRequest) -> tuple[int, bytes, str]:
            """Every export to the page, and metrics to Prometheus too."""
            headers = {key: value for key, value in export.headers.items() if key.lower().startswith("content-")}
            for each in (url, f"{prometheus.url}/api/v1/otlp")[: 1 + (export.path == "/v1/metrics")]:
                http.post(f"{each}{export.path}", content=export.body, headers=headers).raise_for_status()
            return 200, b"", "text/plain"

        with serving(hand_on) as address:
            for name in ("writer", "reader"):
                demo(address, OTEL_METRIC_EXPORT_INTERVAL="1000", OTEL_SERVICE_NAME=name,
                     OTEL_RESOURCE_ATTRIBUTES="service.namespace=shop")  # fmt: skip
        prometheus.client.wait_for('sum(endturn_turns_total{job="shop/reader"}) > 39')
        steps = (time.time_ns() - start) // (STEP * SECOND) + 1
        scope = Scope(start_ns=start, end_ns=start + steps * STEP * SECOND)
        yield Both(Numbers(store, scope, STEP * SECOND), prometheus.client)


SCOPES: dict[str, queries.Labels] = {
    "all": queries.ALL,
    "service": queries.SERVICE,
    "call": queries.CALL,
    "model": (*queries.SERVICE, *queries.CALL),
}
"""Prometheus' labels for each of them."""


def _number(count: Count, labels: queries.Labels) -> str:
    """As the dashboards have it. A histogram has no zero to begin with, so what its first export held is lost there.

    The page counts it, since the process was young then; and so it stands in the last value.
    """
    if count.metric.instrument == "counter":
        return Queries().events(count, by=labels, over="1h")
    return queries.sum_by(labels, f"last_over_time({Queries().counter(count)}[1h])")


def _buckets(metric: Metric, labels: queries.Labels) -> str:
    buckets = Queries().histogram(metric, HistogramPart.BUCKET)
    return queries.sum_by((queries.BUCKET_BOUND, *labels), f"last_over_time({buckets}[1h])")


@pytest.mark.parametrize("scope", BY)
@pytest.mark.parametrize("name", INDICATORS)
def test_a_number_is_prometheus_number(asked: Both, name: str, scope: str) -> None:
    """Every count and every share, in all, by service and by model; of two jobs of forty turns."""
    indicator, labels, by = INDICATORS[name], SCOPES[scope], BY[scope]
    number = _number(indicator.count, labels)
    assert asked.page.number(indicator.count, by) == asked.said(number, by)
    if indicator.denominator is not None:
        share = queries.divide(number, _number(indicator.denominator, labels))
        shares = {key: value for key, value in asked.page.share(indicator, by).items() if value}
        assert shares == pytest.approx(asked.said(share, by))
    assert asked.page.total(INDICATORS["turns"].count) == 80


@pytest.mark.parametrize("bar_chart", panels.BARS, ids=lambda bar_chart: bar_chart.id)
def test_bars_are_prometheus_steps(asked: Both, bar_chart: panels.BarChart) -> None:
    """Each step of each series."""
    count, by = INDICATORS[bar_chart.indicator].count, (bar_chart.by,)
    expression = Queries().events_per_step(count, by=by).replace("$__interval", f"{STEP}s").replace("$__range", "1h")
    scope, steps = asked.page.scope, asked.page.steps(count, by)
    start, end = scope.start_ns / SECOND + STEP, scope.end_ns / SECOND
    found = asked.prometheus.query_range(expression, start=start, end=end, step=STEP)
    assert steps == {_labels(series, by): [value for _, value in series.points] for series in found} != {}


@pytest.mark.parametrize("panel", panels.HISTOGRAMS, ids=lambda panel: panel.id)
def test_histograms_are_prometheus_buckets(asked: Both, panel: panels.HistogramPanel) -> None:
    """Prometheus' buckets hold those below them."""
    metric, below = panel.metric, 0.0
    found = asked.said(_buckets(metric, ()), ("le",))
    cumulated = {float(le.replace("+Inf", "inf")): value for (le,), value in found.items()}
    for bound, count in sorted(asked.page.buckets(metric)[()].items()):
        below += count
        assert below == cumulated.get(bound, 0.0)


@pytest.mark.parametrize("q", [0.5, 0.95])
@pytest.mark.parametrize(
    ("metric", "by"),
    [
        (schema.TURN_DURATION, (schema.CONTINUED.label,)),
        (schema.OPERATION_DURATION, BY["call"]),
        (schema.TURN_OUTPUT, ()),
        (schema.BUDGET_USED, ()),
    ],
    ids=lambda value: value.name if isinstance(value, Metric) else "",
)
def test_quantiles_are_prometheus_quantiles(asked: Both, metric: Metric, by: tuple[str, ...], q: float) -> None:
    """Interpolated in the same way, over the same buckets."""
    expected = asked.said(f"histogram_quantile({q}, {_buckets(metric, by)})", by)
    assert expected
    assert asked.page.quantiles(q, metric, by) == pytest.approx(expected)
