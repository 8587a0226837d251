"""The stack that Compose starts, as far as it runs without containers: its files agree, and signals find their way.

Docker is not needed, and nothing here proves what it does with the files: they are read as YAML and compared with each
other, and the parts that can be built are run with them. Grafana, Loki and Tempo are not among those.
"""

from __future__ import annotations

import ast
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from endturn.generate.alerts import ALERTS
from endturn.telemetry import schema
from stack import build
from tests.support import promtool
from tests.support.containers import FILES, FLEET, LGTM, ONE, composed
from tests.support.processes import (
    ALL_IN_ONE,
    REPOSITORY,
    Collector,
    Engine,
    Prometheus,
    PrometheusClient,
    eventually,
    free_port,
    http,
    require_stack,
    shipped,
)

RESOURCE = Resource({"service.name": "agent", "service.namespace": "shop", "service.instance.id": "one"})
STAGING = Resource({"deployment.environment.name": "staging"})

KEYS = {
    "image", "command", "entrypoint", "environment", "ports", "volumes", "restart", "security_opt", "healthcheck",
    "depends_on", "mem_limit", "read_only", "user", "cap_drop", "extra_hosts",
}  # fmt: skip
"""What a service may say here: a misspelt key would be an error that only Docker tells."""
PINS = {
    part: f"{pin['image']}:${{{part.upper()}_TAG:-{pin['tag']}}}"
    for part, pin in build.versions().items()
    if "image" in pin
}
"""Each part's image, as a compose file names it."""
COLLECTOR = [f"collector/{file.name}" for file in ALL_IN_ONE]

Services = dict[str, dict[str, Any]]


def pushing(url: str, resource: Resource = RESOURCE, **settings: Any) -> MeterProvider:
    """A meter provider that exports to a Collector when it is flushed or shut down."""
    exporter = OTLPMetricExporter(endpoint=f"{url}/v1/metrics", **settings)
    return MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)], resource=resource)


@pytest.fixture(params=FILES)
def services(request: pytest.FixtureRequest) -> Services:
    """Those of each way of starting it. Docker is not needed: what follows is checked without starting anything."""
    found: Services = composed(request.param)["services"]
    return found


def settings(service: dict[str, Any]) -> str:
    """All that a service is told in words."""
    told = [*service.get("command", []), *service.get("environment", {}).values(), *service.get("volumes", [])]
    return " ".join(map(str, told))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Prometheus]]:
    folder = tmp_path_factory.mktemp("stack")
    with Prometheus(folder) as prometheus, Collector(folder, prometheus=prometheus.url) as collector:
        yield collector, prometheus


# The files


def test_every_image_is_pinned_and_every_pin_is_run() -> None:
    """By the service of the same name, where there is one image of each."""
    assert {each["image"] for file in FILES for each in composed(file)["services"].values()} == set(PINS.values())
    for file in (ONE, LGTM):
        found = {name: service["image"] for name, service in shipped(file)["services"].items()}
        assert found == {name: PINS[name] for name in found}


@pytest.mark.parametrize("file", FILES)
def test_a_compose_file_is_made_of_what_there_is(file: str) -> None:
    """Keys that Compose knows, declared services and volumes, files that a container may read, SELinux or not."""
    whole = composed(file)
    assert {key for key in whole if not key.startswith("x-")} == {"name", "services", "volumes"}
    services, mounts = whole["services"], set()
    for name, service in services.items():
        assert service.keys() <= KEYS, name
        assert set(service.get("depends_on", [])) <= services.keys()
        assert service.get("healthcheck", {"test": ["CMD"]})["test"][0] == "CMD", "a shell is not in every image"
        mounts |= set(service.get("volumes", []))
    assert {mount.split(":")[0] for mount in mounts if mount[0] != "."} == whole["volumes"].keys()
    assert [mount for mount in mounts if mount[0] == "." and not mount.endswith(":ro,z")] == []
    assert [mount for mount in mounts if mount[0] == "." and not (REPOSITORY / mount.split(":")[0]).exists()] == []


def test_a_collectors_memory_is_bounded(services: Services) -> None:
    """It refuses before Go frees garbage in a hurry, and that before its container is killed."""
    mib = {"": 1, "MiB": 1, "m": 1, "g": 1024}

    def default(text: str) -> int:
        found = re.fullmatch(r"\$\{\w+:-(\d+)(\w*)\}", text)
        assert found, text
        return int(found[1]) * mib[found[2]]

    bounded = [each for each in services.values() if "ENDTURN_COLLECTOR_ID" in each.get("environment", {})]
    assert bounded
    for service in bounded:
        refuses, frees = (service["environment"][name] for name in ("ENDTURN_COLLECTOR_MEMORY_MIB", "GOMEMLIMIT"))
        assert default(refuses) < default(frees) < default(service["mem_limit"])


def test_one_machines_collector_runs_the_all_in_one_with_its_queue_on_a_volume() -> None:
    """The files that tests of the Collector run. What it took survives its container, which can write nowhere else."""
    service, lgtm = shipped(ONE)["services"]["collector"], shipped(LGTM)["services"]["lgtm"]
    assert [flag.replace("--config=/etc/endturn", "collector") for flag in service["command"]] == COLLECTOR
    queue = shipped("collector/collector.yaml")["extensions"]["file_storage"]["directory"]
    assert f"collector:{queue.partition(':-')[2].rstrip('}')}" in service["volumes"]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert lgtm["environment"]["ENDTURN_COLLECTOR_DATA"].startswith("/data/")
    assert "lgtm:/data" in lgtm["volumes"]


def test_nothing_is_reached_from_another_machine(services: Services) -> None:
    """What is published is so once and on loopback; what is not, of a fleet, needs not be reached from outside."""
    published = [port for service in services.values() for port in service.get("ports", [])]
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []
    assert len({port.split(":")[1] for port in published}) == len(published)
    one = {name for file in (ONE, LGTM) for name in shipped(file)["services"]}
    assert {name for name, service in services.items() if "ports" not in service} & one == set()


def test_compose_holds_no_password(services: Services) -> None:
    """Grafana's password must come from the environment, and nothing else looks like a secret."""
    told = {name: str(value) for each in services.values() for name, value in each.get("environment", {}).items()}
    secrets = {key: value for key, value in told.items() if re.search("PASSWORD|SECRET|TOKEN|KEY", key)}
    assert set(secrets) == {"GF_SECURITY_ADMIN_PASSWORD"}
    assert re.fullmatch(r"\$\{GRAFANA_ADMIN_PASSWORD:\?.+\}", secrets["GF_SECURITY_ADMIN_PASSWORD"])
    assert told["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_every_prometheus_takes_what_one_takes() -> None:
    """The same labels, the same lateness, the same jobs; of the first two also that of Kubernetes.

    So does an older Prometheus, which takes no OTLP: it scrapes applications.
    """
    agent, one = shipped("stack/prometheus-agent.yml"), shipped("stack/prometheus.yml")
    beside = shipped("kubernetes/prometheus-agent.yml")
    assert (beside["otlp"], beside["storage"]) == (agent["otlp"], agent["storage"])
    assert agent["otlp"] == one["otlp"]
    older, window = shipped("stack/prometheus-2.yml"), "out_of_order_time_window"
    assert {each["storage"]["tsdb"][window] for each in (agent, one, older)} == {"30m"}
    jobs, others, olders = ([job["job_name"] for job in each["scrape_configs"]] for each in (agent, one, older))
    assert {*olders, *older} == {*others, "applications", *one} - {"otlp"}
    assert [job for job in jobs if job != "thanos"] == others
    [thanos] = [job for job in agent["scrape_configs"] if job["job_name"] == "thanos"]
    scraped = {target.split(":")[0] for config in thanos["static_configs"] for target in config["targets"]}
    assert scraped == {"receive-1", "receive-2", "rule"}, "what says how many series there are, and evaluates rules"
    flags = {name: set(composed(FLEET)["services"][name]["command"]) for name in ("writer", "topics")}
    assert {flag for flag in shipped(ONE)["services"]["prometheus"]["command"] if "enable" in flag} <= flags["writer"]
    created = re.findall(r"endturn\.\w+", str(flags["topics"]))
    for file in ("kafka_agent", "kafka_gateway"):
        text = (REPOSITORY / f"collector/{file}.yaml").read_text()
        assert re.findall(r"env:ENDTURN_KAFKA_\w+:-(endturn\.\w+)", text) == created, "the topics that are made"
    turns, truncated = (int(kept) for kept in re.findall(r"create endturn\.\w+ (\d+)", str(flags["topics"])))
    assert truncated > turns, "what was cut off outlasts the rest"


def test_the_lgtm_image_reads_our_files() -> None:
    """The paths that its scripts read are covered by our files, and rules stand where ours look for them."""
    lgtm = shipped("docker-compose.lgtm.yml")["services"]["lgtm"]
    volumes = lgtm["volumes"]
    mounts = {mount.split(":")[1]: mount.split(":")[0] for mount in volumes if mount[0] == "."}
    assert mounts["/otel-lgtm/otelcol-config.yaml"] == "./collector/collector.yaml"
    overlays = [flag.removeprefix("--config=") for flag in lgtm["environment"]["OTELCOL_EXTRA_ARGS"].split()]
    assert [f"{mounts[str(Path(file).parent)]}/{Path(file).name}" for file in overlays] == [
        f"./{file}" for file in COLLECTOR[1:]
    ]
    assert mounts["/otel-lgtm/prometheus.yaml"] == "./stack/prometheus.yml"
    [rules] = shipped("stack/prometheus.yml")["rule_files"]
    assert mounts["/otel-lgtm/" + rules.partition("/")[0]] == "./dashboards/rules"
    provider = shipped("dashboards/provisioning/dashboards/endturn.yaml")["providers"][0]
    assert mounts[provider["options"]["path"]] == "./dashboards"


def test_the_manifest_names_the_pinned_versions() -> None:
    pin = build.versions()["collector"]
    manifest = shipped("collector/manifest.yaml")
    components = {entry["gomod"] for kind, entries in manifest.items() if kind != "dist" for entry in entries}
    expected = {True: pin["providers"], False: pin["version"]}
    wrong = {gomod for gomod in components if gomod.split()[1] != expected["/confmap/provider/" in gomod]}
    assert not wrong
    assert manifest["dist"]["version"] == pin["tag"] == pin["version"].removeprefix("v")


KINDS = ("receivers", "processors", "exporters", "connectors", "extensions")
"""Where a Collector's configuration names components."""


def configured() -> Iterator[tuple[str, str]]:
    """Each component, by kind and type, in a configuration of ours, or in one that tests and benchmarks write."""
    ours = [*sorted((REPOSITORY / "collector").glob("*.yaml")), REPOSITORY / "stack" / "scraped.yaml"]
    for file in (*ours, REPOSITORY / "tests" / "data" / "store.yaml"):
        if file.name not in ("manifest.yaml", "kustomization.yaml"):
            content = yaml.safe_load(file.read_text())
            yield from ((kind, name.split("/")[0]) for kind in KINDS for name in content.get(kind) or {})
    for file in (each for folder in ("tests", "benchmarks") for each in (REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            for key, value in zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ():
                if isinstance(key, ast.Constant) and key.value in KINDS and isinstance(value, ast.Dict):
                    named = [name.value for name in value.keys if isinstance(name, ast.Constant)]
                    yield from ((str(key.value), str(name).split("/")[0]) for name in named)


@pytest.mark.stack
def test_the_collector_holds_what_is_used_and_nothing_else() -> None:
    """As the built one tells: `collector/manifest.yaml` names no component that no configuration names."""
    program = require_stack("collector")["otelcol"]
    told = subprocess.run([program, "components"], capture_output=True, text=True, check=True).stdout
    built = {(kind, each["name"]) for kind, found in yaml.safe_load(told).items() if kind in KINDS for each in found}
    assert built == set(configured())


def test_data_sources_use_names_that_there_are() -> None:
    """Fixed uids, by which they refer to each other; labels of metrics and of logs that are indexed; no bare dollar."""
    file = "dashboards/provisioning/datasources/endturn.yaml"
    text, sources = (REPOSITORY / file).read_text(), {each["uid"]: each for each in shipped(file)["datasources"]}
    assert sources.keys() == {"prometheus", "tempo", "loki", "alertmanager"}
    assert set(re.findall(r"datasourceUid: (\S+)", text)) <= sources.keys()
    assert re.findall(r"(?<!\$)\$(?!\$)", re.sub(r"#.*", "", text)) == []
    tempo = sources["tempo"]["jsonData"]
    tags = {tag["key"]: tag["value"] for tag in tempo["tracesToMetrics"]["tags"]}
    assert tags == {key.key: key.label for key in (schema.PROVIDER, schema.REQUEST_MODEL)}
    queries = " ".join(query["query"] for query in tempo["tracesToMetrics"]["queries"])
    assert set(re.findall(r"endturn\w+(?=\{)", queries)) == {schema.RESPONSES.prometheus}
    assert set(re.findall(r"by \((\w+)\)", queries)) <= {schema.REASON.label}
    assert tempo["tracesToLogsV2"]["tags"] == [{"key": "service.name", "value": "service_name"}]


# The programs' own checks


@pytest.mark.stack
@pytest.mark.parametrize(
    "command",
    [
        ["otelcol", "validate", *(f"--config={file}" for file in COLLECTOR)],
        ["otelcol", "validate", "--config=collector/kafka_gateway.yaml"],
        ["promtool", "check", "config", "--agent", "stack/prometheus-agent.yml"],
    ],
    ids=["Compose's Collector", "a gateway", "an agent of a fleet"],
)
def test_a_program_accepts_its_configuration(command: list[str]) -> None:
    """With no variable of its environment set."""
    program, *arguments = command
    promtool.run(*arguments, cwd=REPOSITORY, program=require_stack("collector", "prometheus")[program])


@pytest.mark.parametrize(
    ("name", "which"),
    [
        pytest.param("prometheus.yml", "built", marks=pytest.mark.stack),
        pytest.param("prometheus-2.yml", "built", marks=pytest.mark.stack),
        ("prometheus-2.yml", "2.42"),
    ],
)
def test_prometheus_accepts_its_configuration(name: str, which: str, tmp_path: Path) -> None:
    """`promtool check config` accepts each file together with the generated rules, as Compose mounts them."""
    (tmp_path / "rules").symlink_to(REPOSITORY / "dashboards" / "rules")
    (tmp_path / name).write_text((REPOSITORY / "stack" / name).read_text())
    program = promtool.oldest() if which == "2.42" else None
    promtool.run("check", "config", name, cwd=tmp_path, program=program)


@pytest.mark.stack
def test_the_running_parts_say_what_others_ask_of_them(running: tuple[Collector, Prometheus]) -> None:
    """Prometheus keeps as long as the objective looks back; the LGTM image's scripts wait for 200 at /ready."""
    collector, prometheus = running
    assert prometheus.client.get("status/runtimeinfo")["storageRetention"] == "30d"
    assert http.get(f"{collector.ready}ready").status_code == 200


# The way of a signal


@pytest.mark.stack
@pytest.mark.parametrize(
    "temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA], ids=lambda each: each.name
)
def test_a_counter_has_a_zero_at_its_start(
    temporality: AggregationTemporality, running: tuple[Collector, Prometheus]
) -> None:
    """Also one that an application exports as deltas: stored is 0 at its start, so that `increase` sees the first."""
    collector, prometheus = running
    name = f"endturn.test.{temporality.name.lower()}"
    provider = pushing(collector.url, preferred_temporality={Counter: temporality})
    counter = provider.get_meter("test").create_counter(name, unit="{turn}")
    for amount in (3, 4):
        counter.add(amount)
        time.sleep(0.05)  # a zero needs a millisecond of its own before the first point
        provider.force_flush()
    provider.shutdown()

    stored = name.replace(".", "_") + "_total"
    prometheus.client.wait_for(f"{stored} == 7")
    [series] = prometheus.client.query(f"{stored}[10m]")
    assert [*dict.fromkeys(value for _, value in series.points)] == [0.0, 3.0, 7.0]
    assert series.labels == {"__name__": stored, "job": "shop/agent", "instance": "one", "service_namespace": "shop"}
    exports = eventually(lambda: [each for each in collector.metrics() if each["name"] == name], what="the file")
    start = int(exports[0]["sum"]["dataPoints"][0]["startTimeUnixNano"])
    assert series.points[0][0] == pytest.approx(start / 1e9, abs=0.001)


@pytest.mark.stack
@pytest.mark.parametrize("which", ["built", "2.42"])
def test_what_is_scraped_is_what_is_pushed(which: str, running: tuple[Collector, Prometheus], tmp_path: Path) -> None:
    """By scraped.yaml and prometheus-2.yml a metric has the name and labels that OTLP gives it."""
    program = require_stack("prometheus")["prometheus"] if which == "built" else promtool.oldest().parent / "prometheus"
    port = free_port()
    config = shipped("stack/prometheus-2.yml") | {"rule_files": [], "alerting": {}}
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1m", "scrape_timeout": "1s"}
    jobs = [job for job in config["scrape_configs"] if job["job_name"] == "applications"]
    config["scrape_configs"] = [job | {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job in jobs]
    flags = (f"--storage.tsdb.path={tmp_path / 'data'}", "--enable-feature=exemplar-storage")
    older = Engine(tmp_path, "prometheus", config, *flags)
    older.command[0] = str(program)
    scraped = REPOSITORY / "stack" / "scraped.yaml"
    variables = {"ENDTURN_COLLECTOR_APPLICATIONS_PORT": str(port)}
    with older, Collector(tmp_path / "collector", configs=[scraped], environment=variables) as collector:
        client = PrometheusClient(older.url)
        for each in (collector, running[0]):
            provider = pushing(each.url, RESOURCE.merge(STAGING))
            provider.get_meter("test").create_counter("endturn.test.ways", unit="{turn}").add(3, {"a.b": "c"})
            provider.get_meter("test").create_histogram("endturn.test.times", unit="s").record(1.5)
            provider.shutdown()
        for name in ("endturn_test_ways_total", "endturn_test_times_seconds_count"):
            [theirs] = client.wait_for(name)
            [ours] = running[1].client.wait_for(name)
            assert theirs.value == ours.value
            assert theirs.labels["deployment_environment_name"] == "staging"
            # What else Prometheus promotes from the resource stands in target_info here.
            assert theirs.labels == {k: v for k, v in ours.labels.items() if k != "service_namespace"}


def test_alertmanager_silences_alerts_that_exist() -> None:
    names = {alert.name for alert in ALERTS}
    for rule in shipped("stack/alertmanager.yml")["inhibit_rules"]:
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname=~?"(.+)"', matchers[0])
            assert pattern is not None
            matched = {name for name in names if re.fullmatch(pattern[1], name)}
            assert len(matched) == 1 + matchers[0].count("|")
