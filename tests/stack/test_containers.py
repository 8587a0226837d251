"""Every image, port, path, flag and variable of the compose files and manifests, held against the built programs.

Containers cannot be started here. Grafana, Loki and Tempo are not built either: of those the ports alone are checked,
against `NOT_BUILT` and their files in `stack/`.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stack import build
from tests.support.containers import (
    FILES,
    NOT_BUILT,
    PROGRAMS,
    Container,
    defaults,
    help_of,
    of_compose,
    of_pods,
    references,
)
from tests.support.processes import REPOSITORY, require_stack, shipped

pytestmark = pytest.mark.stack

PODS = (("DaemonSet", "endturn-agent"), ("StatefulSet", "endturn-gateway"))
OUTSIDE = {"kafka-bootstrap.kafka", "tempo-distributor.tempo", "thanos-receive.thanos", "loki-gateway.loki"}
"""The engines that a cluster has already: `kubernetes/` names them as examples."""
OF_GO = {"GOMEMLIMIT", "GOGC"}
"""Variables that every program in Go reads."""
OF_IMAGES = ("GF_", "PROMETHEUS_EXTRA_ARGS", "OTELCOL_EXTRA_ARGS")
"""Variables of images that are not built: Grafana's, and those of otel-lgtm's scripts."""
SETTINGS_OF_KAFKA = """
import org.apache.kafka.server.config.AbstractKafkaConfig;
public class Names {
    public static void main(String[] arguments) {
        AbstractKafkaConfig.CONFIG_DEF.names().forEach(System.out::println);
    }
}
"""


@pytest.fixture(scope="module")
def rendered() -> dict[tuple[str, str], dict[str, Any]]:
    """The objects of `kubernetes/`, by kind and name."""
    command = [str(require_stack("kustomize")["kustomize"]), "build", str(REPOSITORY / "kubernetes")]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return {(each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(text)}


@pytest.fixture(scope="module")
def groups(rendered: dict[tuple[str, str], dict[str, Any]]) -> dict[str, list[Container]]:
    """The containers that see each other, by the compose file or the pod that they are of."""
    maps = {name: each["data"] for (kind, name), each in rendered.items() if kind == "ConfigMap"}
    pods = {f"{kind} {name}": [*of_pods(f"{kind} {name}", rendered[kind, name], maps)] for kind, name in PODS}
    return {file: [*of_compose(file)] for file in FILES} | pods


@pytest.fixture(scope="module")
def containers(groups: dict[str, list[Container]]) -> list[Container]:
    return [container for group in groups.values() for container in group]


def collectors(containers: list[Container]) -> Iterator[Container]:
    """Those that run a Collector of ours, also in the image of several programs."""
    for container in containers:
        if container.part == "collector" or "OTELCOL_EXTRA_ARGS" in container.environment:
            yield container


def test_every_part_is_run_somewhere(containers: list[Container]) -> None:
    parts = {part for part, pin in build.versions().items() if "image" in pin}
    assert {container.part for container in containers} == parts == {*PROGRAMS, *NOT_BUILT, "kafka"}


def test_a_program_has_every_flag_that_it_is_given(containers: list[Container]) -> None:
    """By its own help, and so for the features that are turned on, and the commands that ask how it is."""
    unknown = []
    for container in containers:
        if container.part in ("prometheus", "alertmanager", "thanos"):
            flags = defaults(container.program, container.subcommand)
            unknown += [f"{container}: --{flag}" for flag in container.flags if flag not in flags]
            features = ",".join(container.flags.get("enable-feature", [])).split(",")
            known = help_of(container.program)
            unknown += [f"{container}: feature {name}" for name in features if name not in known]
        if container.part == "collector":
            unknown += [f"{container}: {word}" for word in container.command if not word.startswith("--config=/")]
    assert unknown == []


def test_a_check_is_a_command_that_its_program_has(containers: list[Container]) -> None:
    programs = require_stack("prometheus", "alertmanager")
    asked = {check for container in containers for check in container.checks if check[0] in programs}
    assert {check[0] for check in asked} == {"promtool", "amtool"}
    for program, *words in asked:
        command = [str(programs[program]), *(word for word in words if not word.startswith("--")), "--help"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told.returncode == 0, (command, told.stderr)
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert flag in told.stdout + told.stderr, (command, flag)


def test_a_collector_takes_its_files_and_its_variables(containers: list[Container], tmp_path: Path) -> None:
    """`otelcol validate` with the files that are mounted, and no variable but those of the container."""
    found = [*collectors(containers)]
    assert len(found) == 8
    for number, container in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir()
        texts = container.configurations()
        flags = []
        for index, text in enumerate(texts):
            (folder / f"{index}.yaml").write_text(text)
            flags.append(f"--config={folder / f'{index}.yaml'}")
        assert len(flags) == (3 if container.part == "lgtm" else len(container.command)), container
        own = {name: value for name, value in container.environment.items() if name.startswith(("ENDTURN_", "GO"))}
        command = [str(require_stack("collector")["otelcol"]), "validate", *flags]
        told = subprocess.run(
            command, env={"PATH": os.environ["PATH"]} | own, capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, (str(container), told.stderr)


def test_every_variable_is_read_and_every_one_without_a_default_is_set(containers: list[Container]) -> None:
    """By the files of the container, by another variable, or by Go; a Collector's address, id and back end are set."""
    unread = []
    for container in containers:
        texts = container.configurations()
        read = {name for text in texts for name in re.findall(r"\$\{(?:env:)?(\w+)", text)}
        read |= {name for value in container.environment.values() for name in re.findall(r"\$\((\w+)\)", value)}
        own = [name for name in container.environment if not name.startswith(OF_IMAGES)]
        if container.part != "kafka":
            unread += [f"{container}: {name}" for name in own if name not in read | OF_GO]
        needed = {name for text in texts for name in re.findall(r"\$\{(?:env:)?(\w+)\}", text)} - {"HOSTNAME"}
        assert needed <= container.environment.keys(), container
    # The writers' ConfigMap is that of both kinds of pods: each reads a part of it.
    shared = shipped("kubernetes/kustomization.yaml")["configMapGenerator"][0]["literals"]
    common = tuple(f": {literal.partition('=')[0]}" for literal in shared)
    assert [each for each in unread if not each.endswith(common)] == []
    for container in collectors(containers):
        assert {
            "ENDTURN_COLLECTOR_HOST",
            "ENDTURN_TEMPO_ENDPOINT",
            "ENDTURN_COLLECTOR_ID",
        } <= container.environment.keys()


def test_the_broker_has_every_setting_that_it_is_given(containers: list[Container], tmp_path: Path) -> None:
    """Its image makes `log.dirs` of KAFKA_LOG_DIRS."""
    source = tmp_path / "Names.java"
    source.write_text(SETTINGS_OF_KAFKA)
    require_stack("kafka")
    command = ["java", "-cp", f"{build.recipes()['kafka'].folder}/*", str(source)]
    known = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    [broker] = [container for container in containers if "KAFKA_NODE_ID" in container.environment]
    given = [name.removeprefix("KAFKA_").lower().replace("_", ".") for name in broker.environment]
    assert len(given) > 8
    assert [name for name in given if name not in known] == []


def test_a_port_that_is_published_or_named_is_listened_on(groups: dict[str, list[Container]]) -> None:
    """Each port of a container, and each host and port in a command, a variable, a mounted file or a data source."""
    sources = (REPOSITORY / "dashboards/provisioning/datasources/endturn.yaml").read_text()
    for where, group in groups.items():
        listening = {container.name: container.listens() for container in group}
        in_pod = where not in FILES
        own = set().union(*listening.values())
        hosts = {"localhost": own, "127.0.0.1": own, "0.0.0.0": own} | listening
        hosts |= dict.fromkeys(("collector", "prometheus", "tempo", "loki"), own) if "lgtm" in listening else {}
        for container in group:
            assert container.ports <= listening[container.name], container
            texts = [*container.command, *container.environment.values(), *container.configurations()]
            texts += [word for check in container.checks for word in check]
            texts += [] if in_pod else [sources]
            for host, port in references([_plain(text) for text in texts]):
                if in_pod and host in OUTSIDE:
                    continue
                assert host in hosts, f"{container}: {host}:{port}"
                assert port in hosts[host], f"{container}: {host}:{port}"


def _plain(text: str) -> str:
    """Without the defaults of a Collector's own variables, which are for a machine without containers."""
    return re.sub(r"\$\{env:(\w+):-[^}]*\}", "", text)


def test_a_path_in_a_command_is_mounted(containers: list[Container]) -> None:
    """A file is there, a folder of data is on a volume, and a Collector's queues are."""
    for container in containers:
        if container.part in NOT_BUILT:
            continue
        for flag, values in container.flags.items():
            for path in (value for value in values if value.startswith("/")):
                if flag.startswith(("config", "rule-file")):
                    assert container.text_of(path) is not None or "*" in path, f"{container}: {path}"
                else:
                    assert path in container.volumes, f"{container}: {path}"
        for path in re.findall(r":-(/[\w/]+)\}", "".join(container.configurations())):
            assert path in container.volumes, f"{container}: {path}"
        [rules] = [[*map(Path, container.flags.get("rule-file", []))]]
        for rule in rules:
            source = container.files[str(rule.parent)]
            assert isinstance(source, Path)
            assert [*source.glob(rule.name)]


def test_documented_ports_are_those_of_the_files() -> None:
    """What is written down of the programs that are not built, as far as our files set it."""
    tempo, loki = shipped("stack/tempo.yaml"), shipped("stack/loki.yaml")
    [received] = tempo["distributor"]["receivers"]["otlp"]["protocols"].values()
    ports = {tempo["server"]["http_listen_port"], int(received["endpoint"].rpartition(":")[2])}
    assert ports == NOT_BUILT["tempo"]
    assert {loki["server"]["http_listen_port"]} == NOT_BUILT["loki"]


# Kubernetes


def test_probes_and_services_name_ports_that_there_are(rendered: dict[tuple[str, str], dict[str, Any]]) -> None:
    names: dict[str, dict[str, int]] = {}
    for kind, name in PODS:
        spec = rendered[kind, name]["spec"]["template"]["spec"]
        for container in spec["containers"]:
            ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
            names.setdefault(name, {}).update(ports)
            for probe in ("readinessProbe", "livenessProbe"):
                asked = container.get(probe, {}).get("httpGet")
                assert asked is None or (asked["port"] in ports and asked["path"] == "/")
    services = [each for (kind, _), each in rendered.items() if kind == "Service"]
    assert len(services) == len(PODS)
    for service in services:
        ports = names[service["spec"]["selector"]["app.kubernetes.io/name"]]
        for port in service["spec"]["ports"]:
            assert ports[port.get("targetPort", port["name"])] == port["port"]


def test_every_container_is_asked_how_it_is(rendered: dict[tuple[str, str], dict[str, Any]]) -> None:
    """A Collector by its health check, a writer from inside the pod, which stays in the Service while it is away."""
    for key in PODS:
        by_name = {each["name"]: each for each in rendered[key]["spec"]["template"]["spec"]["containers"]}
        assert by_name.keys() == {"collector", "writer"}
        assert {"readinessProbe", "livenessProbe"} <= by_name["collector"].keys()
        writer = by_name["writer"]
        assert "readinessProbe" not in writer
        [address] = [word for word in writer["args"] if word.startswith("--web.listen-address=")]
        assert f"--url=http://{address.partition('=')[2]}" in writer["livenessProbe"]["exec"]["command"]


def test_every_node_has_the_agent_that_its_pods_are_led_to(rendered: dict[tuple[str, str], dict[str, Any]]) -> None:
    """The Service leads to the agent of the caller's node alone, so no taint may keep one away."""
    service = rendered["Service", "endturn-agent"]["spec"]
    assert service["internalTrafficPolicy"] == "Local"
    pod = rendered["DaemonSet", "endturn-agent"]["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod.keys().isdisjoint({"nodeSelector", "affinity"})
