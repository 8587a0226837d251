"""The stack that Compose starts, as far as it runs without containers: its files agree, and signals find their way."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from stack import build
from tests.support.processes import REPOSITORY, Alertmanager, Collector, Prometheus, Webhook, eventually, require_stack

CONTENT = {
    "gen_ai.input.messages": "planted-input",
    "gen_ai.output.messages": "planted-output",
    "gen_ai.system_instructions": "planted-system",
    "gen_ai.tool.call.arguments": "planted-arguments",
    "gen_ai.tool.call.result": "planted-result",
    "gen_ai.prompt.0.content": "planted-prompt",
    "gen_ai.completion.0.content": "planted-completion",
}
HARMLESS = {"gen_ai.request.model": "gpt-5", "gen_ai.prompt.name": "greeting", "endturn.stop.reason": "max_tokens"}
RESOURCE = Resource({"service.name": "agent", "service.namespace": "shop", "service.instance.id": "one"})


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Prometheus]]:
    folder = tmp_path_factory.mktemp("stack")
    with Prometheus(folder) as prometheus, Collector(folder, prometheus=prometheus.url) as collector:
        yield collector, prometheus


# The files


def test_compose_runs_the_pinned_versions(compose: dict[str, Any]) -> None:
    """Each service's image and default tag are those of versions.toml, and the environment can override the tag."""
    pins = {part: pin for part, pin in build.versions().items() if "image" in pin}
    assert {name: service["image"] for name, service in compose["services"].items()} == {
        part: f"{pin['image']}:${{{part.upper()}_TAG:-{pin['tag']}}}" for part, pin in pins.items()
    }


def test_the_manifest_names_the_pinned_versions() -> None:
    """Every component of the collector's manifest has the pinned version of its kind."""
    pin = build.versions()["collector"]
    manifest = yaml.safe_load((REPOSITORY / "collector" / "manifest.yaml").read_text())
    components = {entry["gomod"] for kind, entries in manifest.items() if kind != "dist" for entry in entries}
    expected = {True: pin["providers"], False: pin["version"]}
    wrong = {gomod for gomod in components if gomod.split()[1] != expected["/confmap/provider/" in gomod]}
    assert not wrong
    assert manifest["dist"]["version"] == pin["tag"] == pin["version"].removeprefix("v")


def test_every_published_port_is_on_loopback(compose: dict[str, Any]) -> None:
    """Nothing that Compose starts can be reached from another machine."""
    ports = {name: service.get("ports", []) for name, service in compose["services"].items()}
    assert all(ports.values()), "every service is reachable from this machine"
    assert [port for some in ports.values() for port in some if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []


def test_compose_holds_no_password(compose: dict[str, Any]) -> None:
    """Grafana's password must come from the environment, and nothing else looks like a secret."""
    settings = {
        key: value for service in compose["services"].values() for key, value in service.get("environment", {}).items()
    }
    secrets = {key: value for key, value in settings.items() if re.search("PASSWORD|SECRET|TOKEN|KEY", key)}
    assert set(secrets) == {"GF_SECURITY_ADMIN_PASSWORD"}
    assert re.fullmatch(r"\$\{GRAFANA_ADMIN_PASSWORD:\?.+\}", secrets["GF_SECURITY_ADMIN_PASSWORD"])
    assert settings["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_compose_mounts_existing_files_read_only(compose: dict[str, Any]) -> None:
    """Every file of the repository that a container sees exists and cannot be written by it."""
    mounts = [volume for service in compose["services"].values() for volume in service["volumes"] if volume[0] == "."]
    assert [mount for mount in mounts if not mount.endswith(":ro")] == []
    assert [mount for mount in mounts if not (REPOSITORY / mount.split(":")[0]).exists()] == []


def test_data_sources_have_the_uids_that_dashboards_name() -> None:
    """The provisioned data sources have fixed uids, refer to each other by them, and escape every dollar sign."""
    file = REPOSITORY / "dashboards" / "provisioning" / "datasources" / "endturn.yaml"
    uids = {source["uid"] for source in yaml.safe_load(file.read_text())["datasources"]}
    assert uids == {"prometheus", "tempo", "loki", "alertmanager"}
    assert set(re.findall(r"datasourceUid: (\S+)", file.read_text())) <= uids
    entries = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    assert re.findall(r"(?<!\$)\$(?!\$)", entries.replace("$__rate_interval", "")) == []


# The programs' own checks


@pytest.mark.stack
def test_the_collector_accepts_its_configuration() -> None:
    """`otelcol validate` finds nothing wrong with collector.yaml, with no variable of its environment set."""
    _check(require_stack("collector")["otelcol"], "validate", "--config", "collector/collector.yaml")


@pytest.mark.stack
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    """`promtool check config` accepts prometheus.yml together with the generated rules, as Compose mounts them."""
    (tmp_path / "prometheus.yml").write_text((REPOSITORY / "stack" / "prometheus.yml").read_text())
    (tmp_path / "rules").symlink_to(REPOSITORY / "dashboards" / "rules")
    _check(require_stack("prometheus")["promtool"], "check", "config", str(tmp_path / "prometheus.yml"))


@pytest.mark.stack
def test_alertmanager_accepts_its_configuration() -> None:
    """`amtool check-config` accepts alertmanager.yml."""
    _check(require_stack("alertmanager")["amtool"], "check-config", "stack/alertmanager.yml")


# The way of a signal


@pytest.mark.stack
def test_a_counter_born_at_three_has_a_zero_at_its_start(running: tuple[Collector, Prometheus]) -> None:
    """A counter exported once, at 3, is stored as 0 at its start timestamp and 3, so that `increase` sees the three."""
    collector, prometheus = running
    reader = PeriodicExportingMetricReader(
        OTLPMetricExporter(endpoint=f"{collector.url}/v1/metrics"), export_interval_millis=3_600_000
    )
    provider = MeterProvider([reader], resource=RESOURCE)
    provider.get_meter("test").create_counter("endturn.test.births", unit="{turn}").add(3)
    time.sleep(0.05)  # a zero needs a millisecond of its own before the first point
    provider.shutdown()

    [series] = prometheus.client.wait_for("endturn_test_births_total[10m]")
    assert [value for _, value in series.points] == [0.0, 3.0]
    assert series.labels == {
        "__name__": "endturn_test_births_total",
        "job": "shop/agent",
        "instance": "one",
        "service_namespace": "shop",
    }
    written = eventually(
        lambda: [metric for metric in collector.metrics() if metric["name"] == "endturn.test.births"], what="the file"
    )
    start = int(written[0]["sum"]["dataPoints"][0]["startTimeUnixNano"])
    assert series.points[0][0] == pytest.approx(start / 1e9, abs=0.001)


@pytest.mark.stack
def test_the_collectors_heartbeat_travels_the_applications_path(running: tuple[Collector, Prometheus]) -> None:
    """The collector's uptime arrives through its own OTLP receiver, beats on, and is the only series that comes so."""
    _, prometheus = running
    [first] = prometheus.client.wait_for("otelcol_process_uptime_seconds_total")
    assert first.labels["job"] == "endturn-collector"
    assert set(first.labels) == {"__name__", "job", "instance", "service_version"}
    prometheus.client.wait_for(f"otelcol_process_uptime_seconds_total > {first.value}")
    names = {series.labels["__name__"] for series in prometheus.client.query('{job="endturn-collector"}')}
    assert names - {"target_info"} == {"otelcol_process_uptime_seconds_total"}


@pytest.mark.stack
def test_a_delta_counter_arrives_as_a_cumulative_one(running: tuple[Collector, Prometheus]) -> None:
    """An application that exports deltas, which Prometheus refuses, is stored as the running total all the same."""
    collector, prometheus = running
    exporter = OTLPMetricExporter(
        endpoint=f"{collector.url}/v1/metrics", preferred_temporality={Counter: AggregationTemporality.DELTA}
    )
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    provider = MeterProvider([reader], resource=RESOURCE)
    counter = provider.get_meter("test").create_counter("endturn.test.deltas", unit="{turn}")
    for amount in (3, 4):
        counter.add(amount)
        time.sleep(0.05)
        provider.force_flush()
    provider.shutdown()

    [series] = prometheus.client.wait_for("endturn_test_deltas_total == 7")
    assert series.labels["job"] == "shop/agent"
    [series] = prometheus.client.query("endturn_test_deltas_total[10m]")
    assert [value for _, value in series.points] == [0.0, 3.0, 7.0]


@pytest.mark.stack
def test_a_firing_alert_reaches_the_webhook(tmp_path: Path) -> None:
    """Prometheus evaluates a rule file and Alertmanager tells the webhook, within seconds in the tests' set-up."""
    rule = {"alert": "Always", "expr": "vector(1)", "labels": {"severity": "warning"}}
    rules = tmp_path / "always.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "test", "interval": "1m", "rules": [rule]}]}))
    with (
        Webhook() as webhook,
        Alertmanager(tmp_path, webhook=webhook.url) as alertmanager,
        Prometheus(tmp_path, rules=[rules], rules_interval="1s", alertmanager=alertmanager.url),
    ):
        first, *_ = eventually(lambda: webhook.alerts, what="the alert")
    assert (first["status"], first["labels"]["alertname"], first["labels"]["severity"]) == (
        "firing",
        "Always",
        "warning",
    )


@pytest.mark.stack
def test_message_content_on_spans_is_dropped(running: tuple[Collector, Prometheus]) -> None:
    """Messages, instructions, tool arguments and results are gone from spans and span events; everything else stays."""
    collector, _ = running
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("outer", attributes=CONTENT | HARMLESS) as span:
        span.add_event("gen_ai.choice", CONTENT | HARMLESS)
        tracer.start_span("inner, without events", attributes=CONTENT | HARMLESS).end()
    provider.shutdown()

    inner, outer = eventually(lambda: two if len(two := collector.spans()) == 2 else [], what="two spans")
    assert inner["attributes"] == outer["attributes"] == HARMLESS
    assert [event["attributes"] for event in outer["events"]] == [HARMLESS]
    assert "planted" not in collector.file("traces").read_text()


@pytest.mark.stack
def test_message_content_on_events_is_dropped(running: tuple[Collector, Prometheus]) -> None:
    """GenAI events lose content attributes and bodies; other log records keep their bodies, with or without a name."""
    collector, _ = running
    provider = LoggerProvider(resource=RESOURCE)
    provider.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(endpoint=f"{collector.url}/v1/logs")))
    logger = provider.get_logger("test")
    details = "gen_ai.client.inference.operation.details"
    for record in (
        LogRecord(event_name=details, attributes=CONTENT | HARMLESS, severity_number=SeverityNumber.INFO),
        LogRecord(event_name="gen_ai.choice", body={"message": "planted-choice"}),
        LogRecord(body={"content": "planted-question"}, attributes={"event.name": "gen_ai.user.message"}),
        LogRecord(event_name="endturn.continuation_attempt", body="kept", attributes=HARMLESS),
        LogRecord(body="kept too"),
    ):
        logger.emit(record)
    provider.shutdown()

    written = eventually(lambda: five if len(five := collector.log_records()) == 5 else [], what="five log records")
    assert [record["attributes"] for record in written if record.get("eventName") == details] == [
        HARMLESS | {"event.name": details}
    ]
    assert {record.get("body", {}).get("stringValue", "") for record in written} == {"", "kept", "kept too"}
    assert "planted" not in collector.file("logs").read_text()


def _check(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
