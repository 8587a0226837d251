"""On `configure()`'s own provider a new series is reported as 0 first: back ends see its first increment so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.telemetry.test_configure import run

KEPT = """
import json
from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.metrics import ObservableCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult

class Kept(MetricExporter):
    def export(self, metrics_data, timeout_millis=10_000, **more):
        metrics = metrics_data.resource_metrics[0].scope_metrics[0].metrics
        found = {
            metric.name: [(one.time_unix_nano, dict(one.attributes), one.value) for one in metric.data.data_points]
            for metric in metrics if hasattr(metric.data, "is_monotonic")
        }
        sys.stdout.write(json.dumps(found) + "\\\\n")
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=10_000): return True
    def shutdown(self, timeout_millis=30_000, **more): pass

def configure(**exporter):
    return endturn.configure(metric_exporter=Kept(**exporter))
"""

OTHERS_OFF = {"OTEL_TRACES_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}


def collections(code: str) -> list[dict[str, Any]]:
    """What a process exported, collection by collection."""
    return [json.loads(line) for line in run(KEPT.replace("\\\\n", "\\n") + code, **OTHERS_OFF)]


def truncated(found: dict[str, Any]) -> float | None:
    """The responses that were cut off, as a collection has them."""
    values = [
        value
        for _, labels, value in found.get("endturn.responses", ())
        if labels["endturn.stop.reason"] == "max_tokens"
    ]
    return values[0] if values else None


def test_a_short_process_is_collected_twice_at_its_end() -> None:
    """Everything is 0 first, and what it is then; back ends that keep milliseconds tell the two apart."""
    first, second = collections("configure()\ncall(); call()")
    assert all(value == 0 for points in first.values() for _, _, value in points)
    assert (truncated(first), truncated(second)) == (0, 2)
    assert {name: len(points) for name, points in first.items()} == {
        name: len(points) for name, points in second.items()
    }
    (earlier, *_), (later, *_) = first["endturn.responses"], second["endturn.responses"]
    assert later[0] // 1_000_000 > earlier[0] // 1_000_000


def test_a_delta_is_carried_over() -> None:
    """What was withheld from the first delta is in the second, once."""
    found = collections(
        "configure(preferred_temporality={ObservableCounter: AggregationTemporality.DELTA})\n"
        "call()\nget_meter_provider().force_flush()\ncall()\nget_meter_provider().force_flush()"
    )
    values = [truncated(each) or 0 for each in found]
    assert (values[0], sum(values)) == (0, 2)


def test_a_series_that_comes_later_is_new_too() -> None:
    """Each is 0 in its own first collection; those that were there are not."""
    found = collections(
        "configure()\nflush = get_meter_provider().force_flush\nflush()\ncall()\nflush()\nflush()\ncall()\nflush()"
    )
    assert [truncated(each) for each in found] == [None, 0, 1, 2, 2, 2]


def test_the_handle_exports_what_has_been_recorded() -> None:
    """`force_flush` collects again where something was withheld, and only there."""
    code = "telemetry = configure()\ncall()\ntelemetry.force_flush()\nprint('{}')\ntelemetry.force_flush()\nos._exit(0)"
    found = collections(code)
    assert [each and truncated(each) for each in found] == [0, 1, {}, 1]


@pytest.mark.parametrize("way", ["multiprocessing", "os.fork"])
def test_a_forked_worker_has_series_of_its_own(way: str) -> None:
    """They are 0 first, whatever its parent has reported."""
    code = f"""
import multiprocessing, warnings
warnings.simplefilter("ignore", DeprecationWarning)
telemetry = configure()
call(); telemetry.force_flush()
if {way == "multiprocessing"}:
    worker = multiprocessing.get_context("fork").Process(target=call)
    worker.start(); worker.join()
else:
    child = os.fork()
    if not child:
        call(); sys.exit(0)
    os.waitpid(child, 0)
os._exit(0)
"""
    assert [truncated(each) for each in collections(code)][:4] == [0, 1, 0, 1]


def test_a_provider_of_the_host_gets_the_value_at_once() -> None:
    """Nothing is known of its readers: one collection may be all there is."""
    code = """
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
endturn.instrument(meter_provider=MeterProvider([PeriodicExportingMetricReader(Kept())]))
call()
"""
    assert [truncated(each) for each in collections(code)] == [1]
