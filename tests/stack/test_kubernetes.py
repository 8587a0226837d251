"""The manifests of a fleet, rendered by kustomize: every object has its schema's shape, and what it names is there."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from endturn.cli import _main
from stack import build
from tests.support import promtool
from tests.support.processes import REPOSITORY, collector_files, require_stack, shipped

pytestmark = pytest.mark.stack

Object = dict[str, Any]
PODS = [("DaemonSet", "endturn-agent"), ("StatefulSet", "endturn-gateway")]


def container(pods: Object, name: str) -> Object:
    [found] = [each for each in pods["spec"]["template"]["spec"]["containers"] if each["name"] == name]
    return dict(found)


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Object]:
    """By kind and name, without what kustomize appends to a generated ConfigMap's."""
    return render(REPOSITORY / "kubernetes")


def render(folder: Path) -> dict[tuple[str, str], Object]:
    command = [str(require_stack("kustomize")["kustomize"]), "build", str(folder)]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {}
    for each in yaml.safe_load_all(rendered):
        found[each["kind"], re.sub(r"-[a-z0-9]{10}$", "", each["metadata"]["name"])] = each
    return found


def test_every_object_has_the_shape_that_kubernetes_takes(objects: dict[tuple[str, str], Object]) -> None:
    """By the schemas of the newest Kubernetes, unknown fields refused. tests/generate checks the Operator's kind."""
    ours = [each for (kind, _), each in objects.items() if kind != "PrometheusRule"]
    kinds = {"DaemonSet", "StatefulSet", "Service", "PodDisruptionBudget", "ConfigMap"}
    assert {each["kind"] for each in ours} >= kinds
    for each in ours:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)


def test_rules_and_dashboards_are_the_generated_ones(objects: dict[tuple[str, str], Object]) -> None:
    rule = shipped("dashboards/kubernetes/prometheusrule.yaml")
    assert objects["PrometheusRule", "endturn"]["spec"] == rule["spec"]
    boards = [each for each in objects.values() if each["metadata"].get("labels", {}).get("grafana_dashboard")]
    files = {
        f"endturn-{file.name}": json.loads(file.read_text()) for file in (REPOSITORY / "dashboards").glob("*.json")
    }
    assert {name: json.loads(text) for each in boards for name, text in each["data"].items()} == files
    # A name that changes with the content leaves the old one beside the new, and Grafana has two dashboards of one uid.
    assert {each["metadata"]["name"] for each in boards} == {name.removesuffix(".json") for name in files}


def test_pods_run_the_pinned_images_with_the_shipped_configurations(objects: dict[tuple[str, str], Object]) -> None:
    """Every ConfigMap is there under the name that kustomize has given it, with every file; what is set is read."""
    maps = {each["metadata"]["name"]: each for (kind, _), each in objects.items() if kind == "ConfigMap"}
    pins = {f"{pin['image']}:{pin['tag']}" for pin in build.versions().values() if "image" in pin}
    for pods in PODS:
        pod = objects[pods]["spec"]["template"]["spec"]
        mounted = {each["name"]: maps[each["configMap"]["name"]] for each in pod["volumes"] if "configMap" in each}
        for container in pod["containers"]:
            assert container["image"] in pins
            assert all(source["configMapRef"]["name"] in maps for source in container.get("envFrom", []))
            folders = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            for file in re.findall(r"--config(?:\.file)?=(\S+)", " ".join(container["args"])):
                folder, _, base = file.rpartition("/")
                assert base in mounted[folders[folder]]["data"]
    texts = [file.read_text() for file in collector_files("collector", "kafka_agent", "kafka_gateway")]
    read = set(re.findall(r"\$\{env:(ENDTURN_\w+)", "".join(texts)))
    assert objects["ConfigMap", "endturn-fleet"]["data"].keys() <= read | {"ENDTURN_CLUSTER"}


def test_what_clusters_write_is_told_apart(objects: dict[tuple[str, str], Object]) -> None:
    """A writer labels every series with its cluster's name, which is set in one place; gateways of two clusters are two
    members of a group: Kubernetes puts in the value what is named before it, of `env`, and all of `envFrom`."""
    fleet = objects["ConfigMap", "endturn-fleet"]
    assert fleet["data"]["ENDTURN_CLUSTER"] == "default"
    written = yaml.safe_load(objects["ConfigMap", "endturn-writer"]["data"]["prometheus.yml"])
    assert written["global"]["external_labels"]["cluster"] == "${ENDTURN_CLUSTER}"
    dropped = [each["regex"] for each in written["remote_write"][0]["write_relabel_configs"] if "action" in each]
    assert dropped == ["pod"]
    key = {"name": fleet["metadata"]["name"], "key": "ENDTURN_CLUSTER"}
    named = {"name": "ENDTURN_CLUSTER", "valueFrom": {"configMapKeyRef": key}}
    for pods in PODS:
        assert named in container(objects[pods], "writer")["env"]
    gateway = container(objects["StatefulSet", "endturn-gateway"], "collector")
    names = [each["name"] for each in gateway["env"]]
    assert names.index("POD_NAME") < names.index("ENDTURN_COLLECTOR_ID")
    [told] = [each["value"] for each in gateway["env"] if each["name"] == "ENDTURN_COLLECTOR_ID"]
    assert told == "$(ENDTURN_CLUSTER)-$(POD_NAME)"
    assert {"name": fleet["metadata"]["name"]} in [each["configMapRef"] for each in gateway["envFrom"]]


def test_what_agents_read_is_not_what_gateways_read(objects: dict[tuple[str, str], Object]) -> None:
    """So a change for the ones does not restart the others, and agents can be left out of `kubectl apply`."""
    mounted = [
        each["configMap"]["name"]
        for pods in PODS
        for each in objects[pods]["spec"]["template"]["spec"]["volumes"]
        if each["name"] == "configuration"
    ]
    assert len(mounted) == len(set(mounted)) == 2
    labelled = [key for key, each in objects.items() if "app.kubernetes.io/name" in each["metadata"].get("labels", {})]
    assert labelled == [("DaemonSet", "endturn-agent"), ("PrometheusRule", "endturn")]


def test_pods_have_time_to_end_and_may_run(objects: dict[tuple[str, str], Object]) -> None:
    """A Collector passes on what it holds; gateways are spread over nodes; the namespace admits folders of a node."""
    for pods in PODS:
        assert objects[pods]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 60
    level = objects["Namespace", "endturn"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert level == "privileged"
    gateway = objects["StatefulSet", "endturn-gateway"]["spec"]
    [spread] = gateway["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["labelSelector"] == gateway["selector"]


def test_an_overlay_of_the_documentation_puts_in_what_is_ones_own(tmp_path: Path) -> None:
    """Another cluster's name, rules and a dashboard of one's own configuration, and TLS towards Kafka."""
    (tmp_path / "endturn.toml").write_text('grafana = "https://grafana.example.com"\n[alerts]\nobjective = 0.99\n')
    own = ["generate", "--config", str(tmp_path / "endturn.toml"), "--output", str(tmp_path / "own")]
    assert _main.main(own) == 0
    page = (REPOSITORY / "docs/fleet.md").read_text()
    [written] = re.findall(r"```yaml\n(# overlay/kustomization.yaml\n.+?)```", page, re.DOTALL)
    where = os.path.relpath(REPOSITORY / "kubernetes", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(written.replace("../endturn/kubernetes", where))
    found = render(tmp_path)
    rule = yaml.safe_load((tmp_path / "own/dashboards/kubernetes/prometheusrule.yaml").read_text())
    assert found["PrometheusRule", "endturn"]["spec"] == rule["spec"]
    assert "127.0.0.1" not in json.dumps(rule)
    [board] = found["ConfigMap", "endturn-overview"]["data"].values()
    assert board == (tmp_path / "own/dashboards/overview.json").read_text()
    assert found["ConfigMap", "endturn-fleet"]["data"]["ENDTURN_CLUSTER"] == "eu-1"
    for pods in PODS:
        collector = container(found[pods], "collector")
        assert collector["args"][-1] == "--config=/etc/endturn/kafka_tls.yaml"
        assert {"secretRef": {"name": "endturn-kafka"}} in collector["envFrom"]


@pytest.mark.parametrize(("pods", "jobs"), [(PODS[0], ["collector", "collector-counts"]), (PODS[1], ["collector"])])
def test_a_writer_scrapes_what_its_collector_serves(
    objects: dict[tuple[str, str], Object], pods: tuple[str, str], jobs: list[str], tmp_path: Path
) -> None:
    """Of the files that its pod mounts, Prometheus takes these jobs; a gateway counts nothing."""
    volumes = {each["name"]: each for each in objects[pods]["spec"]["template"]["spec"]["volumes"]}
    said = objects["ConfigMap", "endturn-writer"]["data"]
    items = volumes["writer"]["configMap"].get("items", [{"key": each, "path": each} for each in said])
    for item in items:
        (tmp_path / item["path"]).write_text(said[item["key"]])
    promtool.run("check", "config", "--agent", "prometheus.yml", cwd=tmp_path)
    config = yaml.safe_load((tmp_path / "prometheus.yml").read_text())
    others = [tmp_path / file for file in config["scrape_config_files"] if (tmp_path / file).exists()]
    every = [config, *(yaml.safe_load(file.read_text()) for file in others)]
    assert [job["job_name"] for each in every for job in each["scrape_configs"]] == jobs
