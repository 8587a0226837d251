"""The manifests of a fleet, rendered by kustomize: every object has its schema's shape, and what it names is there."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from stack import build
from tests.support import promtool
from tests.support.processes import REPOSITORY, require_stack

pytestmark = pytest.mark.stack

Object = dict[str, Any]


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Object]:
    """By kind and name, without what kustomize appends to a generated ConfigMap's."""
    command = [str(require_stack("kustomize")["kustomize"]), "build", str(REPOSITORY / "kubernetes")]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for each in yaml.safe_load_all(rendered):
        found[each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])] = each
    return found


def test_every_object_has_the_shape_that_kubernetes_takes(objects: dict[tuple[str, str], Object]) -> None:
    """By the schemas of the newest Kubernetes, unknown fields refused. tests/generate checks the Operator's kind."""
    ours = [each for (kind, _), each in objects.items() if kind != "PrometheusRule"]
    assert {each["kind"] for each in ours} >= {
        "DaemonSet",
        "StatefulSet",
        "Service",
        "PodDisruptionBudget",
        "ConfigMap",
    }
    for each in ours:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_rules_and_dashboards_are_the_generated_ones(objects: dict[tuple[str, str], Object]) -> None:
    rule = yaml.safe_load((REPOSITORY / "dashboards/kubernetes/prometheusrule.yaml").read_text())
    assert objects["PrometheusRule", "endturn"]["spec"] == rule["spec"]
    boards = {
        name: each
        for (kind, name), each in objects.items()
        if each["metadata"].get("labels", {}).get("grafana_dashboard")
    }
    files = {file.name: json.loads(file.read_text()) for file in (REPOSITORY / "dashboards").glob("*.json")}
    assert {name: json.loads(text) for each in boards.values() for name, text in each["data"].items()} == files


def test_pods_run_the_pinned_images_with_the_shipped_configurations(objects: dict[tuple[str, str], Object]) -> None:
    """Every ConfigMap that is mounted or read is there, under the name that kustomize has given it, with every file."""
    maps = {each["metadata"]["name"]: each for (kind, _), each in objects.items() if kind == "ConfigMap"}
    pins = {f"{pin['image']}:{pin['tag']}" for pin in build.versions().values() if "image" in pin}
    for kind, name in (("DaemonSet", "endturn-agent"), ("StatefulSet", "endturn-gateway")):
        pod = objects[kind, name]["spec"]["template"]["spec"]
        mounted = {
            volume["name"]: maps[volume["configMap"]["name"]] for volume in pod["volumes"] if "configMap" in volume
        }
        for container in pod["containers"]:
            assert container["image"] in pins
            assert all(source["configMapRef"]["name"] in maps for source in container.get("envFrom", []))
            folders = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            for file in re.findall(r"--config(?:\.file)?=(\S+)", " ".join(container["args"])):
                folder, _, base = file.rpartition("/")
                assert base in mounted[folders[folder]]["data"]


def test_what_is_set_is_what_the_collectors_read(objects: dict[tuple[str, str], Object]) -> None:
    texts = [
        (REPOSITORY / "collector" / f"{name}.yaml").read_text()
        for name in ("collector", "kafka_agent", "kafka_gateway")
    ]
    read = set(re.findall(r"\$\{env:(ENDTURN_\w+)", "".join(texts)))
    assert objects["ConfigMap", "endturn-fleet"]["data"].keys() <= read


@pytest.mark.parametrize(
    ("kind", "name", "jobs"),
    [
        ("DaemonSet", "endturn-agent", ["collector", "collector-counts"]),
        ("StatefulSet", "endturn-gateway", ["collector"]),
    ],
)
def test_a_writer_scrapes_what_its_collector_serves(
    objects: dict[tuple[str, str], Object], kind: str, name: str, jobs: list[str], tmp_path: Path
) -> None:
    """Of the files that its pod mounts, Prometheus takes these jobs; a gateway counts nothing."""
    volumes = {each["name"]: each for each in objects[kind, name]["spec"]["template"]["spec"]["volumes"]}
    said = objects["ConfigMap", "endturn-writer"]["data"]
    items = volumes["writer"]["configMap"].get("items", [{"key": each, "path": each} for each in said])
    for item in items:
        (tmp_path / item["path"]).write_text(said[item["key"]])
    promtool.run("check", "config", "--agent", "prometheus.yml", cwd=tmp_path)
    config = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    others = [tmp_path / file for file in config["scrape_config_files"] if (tmp_path / file).exists()]
    every = [config, *(yaml.safe_load(file.read_text()) for file in others)]
    assert [job["job_name"] for each in every for job in each["scrape_configs"]] == jobs


def test_the_writer_takes_what_one_prometheus_takes() -> None:
    beside, agent = (
        yaml.safe_load((REPOSITORY / file).read_text())
        for file in ("kubernetes/prometheus-agent.yml", "stack/prometheus-agent.yml")
    )
    assert beside["otlp"] == agent["otlp"]
    assert beside["storage"] == agent["storage"]
