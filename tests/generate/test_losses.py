"""What the Collector loses is seen: its real counters, scraped by a real Prometheus, through the shipped rules."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from endturn.generate.config import RuleConfig
from endturn.generate.losses import recorded
from endturn.generate.manifests import rule_files
from tests.support.processes import LOOPBACK, Collector, Prometheus, free_port

pytestmark = pytest.mark.stack

FAST = RuleConfig().faster(60)


@pytest.fixture
def refusing() -> Iterator[str]:
    """A back end that says of everything that it is wrong, so that it is not tried again."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://{LOOPBACK}:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_points_that_a_back_end_refuses_are_counted_as_lost(refusing: str, tmp_path: Path) -> None:
    """A 400 is final: the Collector's counter is born, recorded, and makes a ticket that names exporter and cause."""
    rules = []
    for path, text in rule_files(FAST).items():
        if Path(path).parent.name == "rules" and Path(path).stem in ("collector", "alerts"):
            rules.append(tmp_path / Path(path).name)
            rules[-1].write_text(text)
    port = free_port()
    scraped = {"collector": f"{LOOPBACK}:{port}"}
    with (
        Prometheus(tmp_path, rules=rules, scrapes=scraped, rule_query_offset="1s") as prometheus,
        Collector(tmp_path, prometheus=refusing, metrics_port=port),
    ):
        # The Collector's own heartbeat goes the way that is refused.
        [lost] = prometheus.client.wait_for(f'{recorded("lost", FAST)}{{signal="metric_points"}} > 0', timeout=60)
        assert (lost.labels["job"], lost.labels["cause"]) == ("collector", "send_failed")
        assert lost.labels["exporter"] == "otlp_http/prometheus"
        alert = 'ALERTS{alertname="EndturnCollectorLosingTelemetry", alertstate="firing"}'
        [fired] = prometheus.client.wait_for(alert, timeout=60)
        assert (fired.labels["severity"], fired.labels["exporter"]) == ("warning", "otlp_http/prometheus")
        assert prometheus.client.query('ALERTS{alertname=~"EndturnCollector(Down|QueueFilling)"}') == []
        # The names that the other rules read are there as well.
        for name in ("otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity"):
            [queue] = prometheus.client.query(f'{name}{{job="collector",exporter="otlp_http/prometheus"}}')
            assert queue.labels["data_type"] == "metrics"
