"""The stack that Compose starts, as far as it runs without containers: its files agree, and signals find their way.

Docker is not needed, and nothing here proves what it does with the files: they are read as YAML and compared with each
other, and the parts that can be built are run with them. Grafana and Tempo are not among those.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import yaml
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource

from endturn.telemetry import schema
from stack import build
from tests.support import promtool
from tests.support.processes import (
    REPOSITORY,
    Collector,
    Prometheus,
    PrometheusClient,
    Server,
    eventually,
    free_port,
    require_stack,
)

RESOURCE = Resource({"service.name": "agent", "service.namespace": "shop", "service.instance.id": "one"})
STAGING = Resource({"deployment.environment.name": "staging"})


FILES = ("docker-compose.yml", "docker-compose.lgtm.yml")
KEYS = {
    "image", "command", "environment", "ports", "volumes", "restart", "security_opt", "healthcheck", "depends_on",
    "mem_limit", "read_only", "user", "cap_drop", "extra_hosts",
}  # fmt: skip
"""What a service may say here: a misspelt key would be an error that only Docker tells."""


def pushing(url: str, resource: Resource = RESOURCE, **settings: Any) -> MeterProvider:
    """A meter provider that exports to a Collector when it is flushed or shut down."""
    exporter = OTLPMetricExporter(endpoint=f"{url}/v1/metrics", **settings)
    return MeterProvider([PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)], resource=resource)


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((REPOSITORY / name).read_text())
    return loaded


def collector_files() -> list[str]:
    """The files of the repository that the Collector of Compose reads, in their order."""
    command = load("docker-compose.yml")["services"]["collector"]["command"]
    return [flag.replace("--config=/etc/endturn", "collector") for flag in command]


@pytest.fixture(scope="module", params=FILES)
def either(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each of the two compose files. Docker is not needed: what follows is checked without starting anything."""
    return load(request.param)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load("docker-compose.yml")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collector, Prometheus]]:
    folder = tmp_path_factory.mktemp("stack")
    with Prometheus(folder) as prometheus, Collector(folder, prometheus=prometheus.url) as collector:
        yield collector, prometheus


# The files


def test_compose_runs_the_pinned_versions(either: dict[str, Any]) -> None:
    pins = {part: pin for part, pin in build.versions().items() if "image" in pin}
    assert {name: service["image"] for name, service in either["services"].items()} == {
        part: f"{pins[part]['image']}:${{{part.upper()}_TAG:-{pins[part]['tag']}}}" for part in either["services"]
    }


def test_every_pin_is_run_by_one_file() -> None:
    run = {name for file in FILES for name in load(file)["services"]} | set(fleet_parts().values())
    assert run == {part for part, pin in build.versions().items() if "image" in pin}


def fleet_parts() -> dict[str, str]:
    """The pin that each service of the fleet runs which has an image of its own."""
    images = {
        f"{pin['image']}:${{{part.upper()}_TAG:-{pin['tag']}}}": part
        for part, pin in build.versions().items()
        if "image" in pin
    }
    services = load("docker-compose.fleet.yml")["services"]
    return {name: images[service["image"]] for name, service in services.items() if "image" in service}


def test_the_fleet_is_made_of_what_there_is() -> None:
    """Laid over docker-compose.yml: keys, files, volumes, variables and hosts that are named exist."""
    below, fleet = load("docker-compose.yml"), load("docker-compose.fleet.yml")
    services = below["services"].keys() | fleet["services"].keys()
    read = {
        name
        for file in ("collector", "kafka_agent", "kafka_gateway")
        for name in re.findall(r"\$\{env:(ENDTURN_\w+)", (REPOSITORY / f"collector/{file}.yaml").read_text())
    }
    mounted, hosts = set(), set()
    for name, service in fleet["services"].items():
        assert service.keys() <= KEYS | {"entrypoint"}, name
        assert set(service.get("depends_on", [])) <= services
        assert {key for key in service.get("environment", {}) if "ENDTURN" in key} <= read
        assert "ports" not in service, "nothing of it needs to be reached from outside"
        for source, _, _ in (volume.partition(":") for volume in service.get("volumes", [])):
            assert source[0] != "." or (REPOSITORY / source).exists()
            mounted |= {source} if source[0] != "." else set()
        words = " ".join(map(str, [*service.get("command", []), *service.get("environment", {}).values()]))
        for file in re.findall(r"--config=/etc/endturn/(\S+)", words):
            needed = re.findall(r"\$\{env:(\w+)\}", (REPOSITORY / "collector" / file).read_text())
            assert set(needed) <= service.get("environment", {}).keys(), "a variable without a default is set"
        hosts |= set(re.findall(r"([a-z]+(?:-\d)?):\d{4,5}\b", words))
    assert mounted == fleet["volumes"].keys()
    assert hosts - services == set()
    agent = load("stack/prometheus-agent.yml")
    targets = [
        target for job in agent["scrape_configs"] for config in job["static_configs"] for target in config["targets"]
    ]
    named = {target.partition(":")[0] for target in targets} | {urlsplit(agent["remote_write"][0]["url"]).hostname}
    assert named - {"localhost"} <= services
    # What *Series in Prometheus* and *Rule evaluations* draw is said by these alone.
    holds = {name for name, each in fleet["services"].items() if {"receive", "rule"} & set(each.get("command", [])[:1])}
    assert (
        holds == {name for name in named if name.startswith(("receive", "rule"))} == {"receive-1", "receive-2", "rule"}
    )


def test_the_agent_beside_a_collector_takes_what_one_prometheus_takes() -> None:
    """The same labels, the same lateness, the same jobs."""
    agent, one = load("stack/prometheus-agent.yml"), load("stack/prometheus.yml")
    assert agent["otlp"] == one["otlp"]
    window = "out_of_order_time_window"
    assert agent["storage"]["tsdb"][window] == one["storage"]["tsdb"][window]
    jobs, others = ([job["job_name"] for job in each["scrape_configs"]] for each in (agent, one))
    assert [job for job in jobs if job != "thanos"] == others
    flags = set(load("docker-compose.fleet.yml")["services"]["writer"]["command"])
    assert {
        flag for flag in load("docker-compose.yml")["services"]["prometheus"]["command"] if "enable" in flag
    } <= flags


def test_the_fleets_topics_are_those_that_are_written_and_read() -> None:
    created = re.findall(r"endturn\.\w+", load("docker-compose.fleet.yml")["services"]["topics"]["command"][0])
    for file in ("kafka_agent", "kafka_gateway"):
        text = (REPOSITORY / f"collector/{file}.yaml").read_text()
        assert re.findall(r"env:ENDTURN_KAFKA_\w+:-(endturn\.\w+)", text) == created


def test_compose_uses_keys_that_compose_knows(either: dict[str, Any]) -> None:
    """Services use a known set of keys, mount declared volumes, and depend on services that there are."""
    named = {key for key in either if not key.startswith("x-")}
    assert named == {"name", "services", "volumes"}
    mounted = set()
    for name, service in either["services"].items():
        assert service.keys() <= KEYS, name
        assert set(service.get("depends_on", [])) <= either["services"].keys()
        mounted |= {volume.split(":")[0] for volume in service["volumes"] if volume[0] != "."}
        check = service.get("healthcheck", {"test": ["CMD"]})
        assert check["test"][0] == "CMD", "a shell is not in every image"
    assert mounted == either["volumes"].keys()


def test_compose_sets_what_the_collector_reads(either: dict[str, Any]) -> None:
    """Each ENDTURN_ variable of a file stands in the Collector's, and what has a meaning per machine is set."""
    texts = [(REPOSITORY / file).read_text() for file in collector_files()]
    read = set(re.findall(r"\$\{env:(ENDTURN_\w+)", "".join(texts)))
    said = {
        name for service in either["services"].values() for name in service.get("environment", {}) if "ENDTURN" in name
    }
    assert said <= read
    assert {"ENDTURN_COLLECTOR_HOST", "ENDTURN_TEMPO_ENDPOINT", "ENDTURN_COLLECTOR_ID"} <= said


def test_the_collectors_memory_is_bounded(either: dict[str, Any]) -> None:
    """It refuses before Go frees garbage in a hurry, and that before its container is killed."""
    [service] = [each for each in either["services"].values() if "ENDTURN_COLLECTOR_ID" in each.get("environment", {})]
    mib = {"": 1, "MiB": 1, "m": 1, "g": 1024}

    def default(text: str) -> int:
        found = re.fullmatch(r"\$\{\w+:-(\d+)(\w*)\}", text)
        assert found, text
        return int(found[1]) * mib[found[2]]

    refuses, frees = (default(service["environment"][name]) for name in ("ENDTURN_COLLECTOR_MEMORY_MIB", "GOMEMLIMIT"))
    assert refuses < frees < default(service["mem_limit"])


def test_the_collectors_queue_is_on_a_volume(compose: dict[str, Any]) -> None:
    """What it accepted survives its container, which can write nowhere else."""
    collector = load("collector/collector.yaml")
    folder = collector["extensions"]["file_storage"]["directory"].partition(":-")[2].rstrip("}")
    service = compose["services"]["collector"]
    assert f"collector:{folder}" in service["volumes"]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    lgtm = load("docker-compose.lgtm.yml")["services"]["lgtm"]
    assert lgtm["environment"]["ENDTURN_COLLECTOR_DATA"].startswith("/data/")
    assert "lgtm:/data" in lgtm["volumes"]


@pytest.mark.parametrize("file", FILES)
def test_parts_find_each_other(file: str) -> None:
    """Every host that our files name (scrapes, data sources, Alertmanager) is a service, or the one container."""
    services = load(file)["services"]
    hosts = {
        name
        for service in services.values()
        for name in (each.split(":")[0] for each in service.get("extra_hosts", []))
    }
    prometheus = load("stack/prometheus.yml")
    groups = [*prometheus["scrape_configs"], *prometheus["alerting"]["alertmanagers"]]
    targets = [target for group in groups for config in group["static_configs"] for target in config["targets"]]
    sources = load("dashboards/provisioning/datasources/endturn.yaml")["datasources"]
    named = {target.split(":")[0] for target in targets} | {urlsplit(source["url"]).hostname for source in sources}
    assert named - {"localhost"} <= services.keys() | hosts


def test_the_lgtm_image_reads_our_files() -> None:
    """The paths that its scripts read are covered by our files, and rules stand where ours look for them."""
    lgtm = load("docker-compose.lgtm.yml")["services"]["lgtm"]
    volumes = lgtm["volumes"]
    mounts = {mount.split(":")[1]: mount.split(":")[0] for mount in volumes if mount[0] == "."}
    assert mounts["/otel-lgtm/otelcol-config.yaml"] == "./collector/collector.yaml"
    overlays = [flag.removeprefix("--config=") for flag in lgtm["environment"]["OTELCOL_EXTRA_ARGS"].split()]
    assert [f"{mounts[str(Path(file).parent)]}/{Path(file).name}" for file in overlays] == [
        f"./{file}" for file in collector_files()[1:]
    ]
    assert mounts["/otel-lgtm/prometheus.yaml"] == "./stack/prometheus.yml"
    [rules] = load("stack/prometheus.yml")["rule_files"]
    assert mounts["/otel-lgtm/" + rules.partition("/")[0]] == "./dashboards/rules"
    provider = load("dashboards/provisioning/dashboards/endturn.yaml")["providers"][0]
    assert mounts[provider["options"]["path"]] == "./dashboards"


@pytest.mark.stack
def test_the_collector_answers_where_the_lgtm_image_asks(running: tuple[Collector, Prometheus]) -> None:
    """That image's scripts wait until /ready, at the port of the health check, says 200."""
    assert httpx.get(f"{running[0].ready}ready").status_code == 200


def test_the_manifest_names_the_pinned_versions() -> None:
    pin = build.versions()["collector"]
    manifest = yaml.safe_load((REPOSITORY / "collector" / "manifest.yaml").read_text())
    components = {entry["gomod"] for kind, entries in manifest.items() if kind != "dist" for entry in entries}
    expected = {True: pin["providers"], False: pin["version"]}
    wrong = {gomod for gomod in components if gomod.split()[1] != expected["/confmap/provider/" in gomod]}
    assert not wrong
    assert manifest["dist"]["version"] == pin["tag"] == pin["version"].removeprefix("v")


def test_every_service_is_published_once_and_on_loopback(either: dict[str, Any]) -> None:
    """Nothing that Compose starts can be reached from another machine, and no two want the same port of the host."""
    ports = [service.get("ports", []) for service in either["services"].values()]
    assert all(ports), "every service is reachable from this machine"
    published = [port for some in ports for port in some]
    assert [port for port in published if not re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)] == []
    assert len({port.split(":")[1] for port in published}) == len(published)


def test_compose_holds_no_password(either: dict[str, Any]) -> None:
    """Grafana's password must come from the environment, and nothing else looks like a secret."""
    settings = {
        key: value for service in either["services"].values() for key, value in service.get("environment", {}).items()
    }
    secrets = {key: value for key, value in settings.items() if re.search("PASSWORD|SECRET|TOKEN|KEY", key)}
    assert set(secrets) == {"GF_SECURITY_ADMIN_PASSWORD"}
    assert re.fullmatch(r"\$\{GRAFANA_ADMIN_PASSWORD:\?.+\}", secrets["GF_SECURITY_ADMIN_PASSWORD"])
    assert settings["GF_AUTH_ANONYMOUS_ENABLED"] == "false"


def test_compose_mounts_existing_files_read_only(either: dict[str, Any]) -> None:
    """Every file of the repository that a container sees exists, and can be read by it alone, SELinux or not."""
    mounts = [volume for service in either["services"].values() for volume in service["volumes"] if volume[0] == "."]
    assert [mount for mount in mounts if not mount.endswith(":ro,z")] == []
    assert [mount for mount in mounts if not (REPOSITORY / mount.split(":")[0]).exists()] == []


def test_data_sources_have_the_uids_that_dashboards_name() -> None:
    """The provisioned data sources have fixed uids, refer to each other by them, and escape every dollar sign."""
    file = REPOSITORY / "dashboards" / "provisioning" / "datasources" / "endturn.yaml"
    uids = {source["uid"] for source in yaml.safe_load(file.read_text())["datasources"]}
    assert uids == {"prometheus", "tempo", "loki", "alertmanager"}
    assert set(re.findall(r"datasourceUid: (\S+)", file.read_text())) <= uids
    entries = re.sub(r"#.*", "", file.read_text())
    assert re.findall(r"(?<!\$)\$(?!\$)", entries) == []


def test_links_from_traces_use_names_that_there_are() -> None:
    """From a trace: to metrics by labels that they have, to logs by the label that Loki indexes."""
    sources = load("dashboards/provisioning/datasources/endturn.yaml")["datasources"]
    tempo = next(source["jsonData"] for source in sources if source["uid"] == "tempo")
    tags = {tag["key"]: tag["value"] for tag in tempo["tracesToMetrics"]["tags"]}
    assert tags == {key.key: key.label for key in (schema.PROVIDER, schema.REQUEST_MODEL)}
    for query in tempo["tracesToMetrics"]["queries"]:
        assert set(re.findall(r"endturn\w+(?=\{)", query["query"])) == {schema.RESPONSES.prometheus}
        assert set(re.findall(r"by \((\w+)\)", query["query"])) <= {schema.REASON.label}
    assert tempo["tracesToLogsV2"]["tags"] == [{"key": "service.name", "value": "service_name"}]
    indexed = load("stack/loki.yaml")["limits_config"]["otlp_config"]["resource_attributes"]["attributes_config"]
    assert "service.name" in indexed[0]["attributes"]


# The programs' own checks


@pytest.mark.stack
@pytest.mark.parametrize("files", [collector_files(), ["collector/kafka_gateway.yaml"]], ids=["Compose", "a gateway"])
def test_the_collector_accepts_its_configuration(files: list[str]) -> None:
    """`otelcol validate` finds nothing wrong with it, with no variable of its environment set."""
    _check(require_stack("collector")["otelcol"], "validate", *(f"--config={file}" for file in files))


@pytest.mark.stack
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-2.yml"])
def test_prometheus_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    """`promtool check config` accepts each file together with the generated rules, as Compose mounts them."""
    _check_prometheus(require_stack("prometheus")["promtool"], name, tmp_path)


@pytest.mark.stack
@pytest.mark.parametrize("file", ["stack/prometheus-agent.yml", "kubernetes/prometheus-agent.yml"])
def test_an_agent_of_a_fleet_accepts_its_configuration(file: str) -> None:
    _check(require_stack("prometheus")["promtool"], "check", "config", "--agent", str(REPOSITORY / file))


def test_the_oldest_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    _check_prometheus(promtool.oldest(), "prometheus-2.yml", tmp_path)


def test_prometheus_is_told_what_otlp_needs(compose: dict[str, Any]) -> None:
    """It takes OTLP, zeroes at a counter's start, exemplars, and samples that come late; it promotes no process id."""
    config = load("stack/prometheus.yml")
    flags = compose["services"]["prometheus"]["command"]
    assert "--web.enable-otlp-receiver" in flags
    features = next(flag for flag in flags if flag.startswith("--enable-feature=")).partition("=")[2].split(",")
    assert {"created-timestamp-zero-ingestion", "exemplar-storage"} <= set(features)
    assert config["storage"]["tsdb"]["out_of_order_time_window"] == "30m"
    assert not [flag for flag in flags if "retention" in flag], "it is in the file; the flag is deprecated"
    assert config["storage"]["exemplars"]["max_exemplars"] > 0
    assert "service.instance.id" not in config["otlp"]["promote_resource_attributes"]
    older = load("stack/prometheus-2.yml")
    assert {job["job_name"] for job in config["scrape_configs"]} | {"applications"} == {
        job["job_name"] for job in older["scrape_configs"]
    }
    assert older.keys() == config.keys() - {"otlp"}


@pytest.mark.stack
def test_prometheus_keeps_as_long_as_the_objective_looks_back(running: tuple[Collector, Prometheus]) -> None:
    assert running[1].client.get("status/runtimeinfo")["storageRetention"] == "30d"


# The way of a signal


@pytest.mark.stack
def test_a_counter_born_at_three_has_a_zero_at_its_start(running: tuple[Collector, Prometheus]) -> None:
    """A counter exported once, at 3, is stored as 0 at its start timestamp and 3, so that `increase` sees the three."""
    collector, prometheus = running
    provider = pushing(collector.url)
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
def test_a_delta_counter_arrives_as_a_cumulative_one(running: tuple[Collector, Prometheus]) -> None:
    """An application that exports deltas, which Prometheus refuses, is stored as the running total all the same."""
    collector, prometheus = running
    provider = pushing(collector.url, preferred_temporality={Counter: AggregationTemporality.DELTA})
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
@pytest.mark.parametrize("which", ["built", "2.42"])
def test_what_is_scraped_is_what_is_pushed(which: str, running: tuple[Collector, Prometheus], tmp_path: Path) -> None:
    """By scraped.yaml and prometheus-2.yml a metric has the name and labels that OTLP gives it."""
    program = require_stack("prometheus")["prometheus"] if which == "built" else promtool.oldest().parent / "prometheus"
    port, address = free_port(), f"127.0.0.1:{free_port()}"
    config = load("stack/prometheus-2.yml") | {"rule_files": [], "alerting": {}}
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1m", "scrape_timeout": "1s"}
    jobs = [job for job in config["scrape_configs"] if job["job_name"] == "applications"]
    config["scrape_configs"] = [job | {"static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job in jobs]
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    command: list[str | Path] = [
        program,
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address={address}",
        "--enable-feature=exemplar-storage",
    ]
    older = Server("prometheus 2", command, log=tmp_path / "older.log", ready=f"http://{address}/-/ready")
    scraped = REPOSITORY / "stack" / "scraped.yaml"
    variables = {"ENDTURN_COLLECTOR_APPLICATIONS_PORT": str(port)}
    with older, Collector(tmp_path / "collector", configs=[scraped], environment=variables) as collector:
        client = PrometheusClient(f"http://{address}")
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


def _check_prometheus(program: Path, name: str, folder: Path) -> None:
    (folder / name).write_text((REPOSITORY / "stack" / name).read_text())
    (folder / "rules").symlink_to(REPOSITORY / "dashboards" / "rules")
    _check(program, "check", "config", str(folder / name))


def _check(*command: str | Path) -> None:
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alertmanager_silences_alerts_that_exist() -> None:
    names = {
        rule["alert"]
        for file in (REPOSITORY / "dashboards" / "rules").glob("*.yaml")
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    for rule in load("stack/alertmanager.yml")["inhibit_rules"]:
        for matchers in (rule["source_matchers"], rule["target_matchers"]):
            pattern = re.fullmatch(r'alertname=~?"(.+)"', matchers[0])
            assert pattern is not None
            matched = {name for name in names if re.fullmatch(pattern[1], name)}
            assert len(matched) == 1 + matchers[0].count("|")
