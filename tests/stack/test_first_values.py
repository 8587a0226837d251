"""Jobs of a second whose OpenTelemetry is their own, and refused exports: what the real back ends have of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from endturn.testing.scripted import ScriptedProvider, essay, say
from endturn.testing.scripted.script import Script
from tests.support.otlp import Sent, post, spans
from tests.support.processes import REPOSITORY, Collector, Prometheus, Series, eventually, free_port, samples

pytestmark = pytest.mark.stack

SCRIPT: Script = {
    "done": [say("Done.")],
    "cut": essay("Twelve short words make an answer that the limit of tokens will cut."),
}
ASKED = ("done", "done", "cut", "done", "cut")
JOBS = 4
SENT = {
    "endturn_responses_total": JOBS * 5,
    "endturn_turns_total": JOBS * 5,
    "endturn_truncation_exits_total": JOBS * 2,
}
INCREMENTS = "gen_ai_client_operation_duration_seconds_count"


def environment(provider: str, **more: str) -> dict[str, str]:
    """A job's: nothing of OpenTelemetry's but where signals go, and `more`."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
    return own | {"OPENAI_BASE_URL": f"{provider}/v1", "OPENAI_API_KEY": "none", **more}


def run(program: str, *models: str, **variables: str) -> str:
    """Run a job to its end, against a scripted provider; what it logged."""
    with ScriptedProvider(SCRIPT, exhausted="last").serve() as url:
        command = [sys.executable, "-c", program] if "\n" in program else [sys.executable, program]
        done = subprocess.run(
            [*command, *models], env=environment(url, **variables), cwd=REPOSITORY, capture_output=True, text=True,
            check=True, timeout=120,
        )  # fmt: skip
    return done.stderr


def run_jobs(**endpoints: str) -> None:
    """Run the jobs, one after the other, each in a process of its own name."""
    for number in range(JOBS):
        instance = f"service.name=job,service.instance.id=job-{number}"
        run("tests/apps/own.py", *ASKED, OTEL_RESOURCE_ATTRIBUTES=instance, **endpoints)


def seen(prometheus: Prometheus, metric: str) -> float:
    """What a chart of a metric shows: of each series its highest sample less its first."""
    every: list[Series] = prometheus.client.query(f"{metric}[1h]")
    return sum(max(value for _, value in each.points) - each.points[0][1] for each in every)


def test_a_collector_counts_nothing_that_a_host_s_own_provider_counts(tmp_path: Path) -> None:
    """Each span says so from the first on, before a reader has collected; without it the Collector counts it."""
    with Collector(tmp_path) as collector:
        run_jobs(OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        sent = JOBS * len(ASKED)
        eventually(lambda: len(collector.spans()) == sent, what="all spans")
        assert Counter(span["attributes"].get("endturn.counted") for span in collector.spans()) == {True: sent}
        other = Sent(attributes={"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["stop"]})
        assert post(f"{collector.url}/v1/traces", spans([other], service="other")) == 200
        (counted,) = eventually(lambda: samples(collector.counts_address, "endturn_responses_total"), what="a count")
        assert 'job="other"' in counted


@pytest.mark.parametrize("way", ["Collector", "Prometheus"])
def test_first_values_of_a_host_s_own_provider(way: str, tmp_path: Path) -> None:
    """Each is an increment from zero, once: the Collector counts no response that the job has counted."""
    counts = free_port()
    with (
        Prometheus(tmp_path, scrapes={"collector-counts": [f"127.0.0.1:{counts}"]}) as prometheus,
        Collector(tmp_path, prometheus=prometheus.url, counts_port=counts) as collector,
    ):
        endpoints = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
        if way == "Prometheus":
            endpoints["OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"] = f"{prometheus.url}/api/v1/otlp/v1/metrics"
        run_jobs(**endpoints)
        prometheus.client.wait_for(f"sum(endturn_responses_total) >= {SENT['endturn_responses_total']}")
        prometheus.client.wait_for('count(up{job="collector-counts"} == 1)')
        assert {metric: seen(prometheus, metric) for metric in SENT} == SENT
        assert seen(prometheus, INCREMENTS) == JOBS * len(ASKED)


def test_refused_spans_and_events_are_in_the_counters_of_the_alert(tmp_path: Path) -> None:
    """An agent that exports all of it straight to Prometheus, which takes metrics alone."""
    agent = "import endturn, sys\nfrom tests.apps.bare import ask\nendturn.configure()\n"
    agent += "for model in sys.argv[1:]: ask(model, model)\nendturn.configure().force_flush()\n"
    with Prometheus(tmp_path) as prometheus:
        logged = run(agent, *ASKED, OTEL_EXPORTER_OTLP_ENDPOINT=f"{prometheus.url}/api/v1/otlp")
        refused = 'sum by (error_type) ({__name__=~"otel_sdk_exporter_(span|log)_exported_total",error_type!=""})'
        assert [(each.labels, each.value) for each in prometheus.client.wait_for(refused)] == [
            ({"error_type": "404"}, 2 * len(ASKED) + ASKED.count("cut"))
        ]
    assert logged.count("traces are refused") == logged.count("logs are refused") == 1
