"""Every question of every dashboard, asked of real data: the demo's, through the real Collector, on both Prometheus.

The current Prometheus holds what came by OTLP and what its rules made of it. Prometheus 2.42, which has no OTLP
receiver, gets exactly the same samples as blocks: what is compared there is PromQL.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from endturn.generate import dashboards
from endturn.generate.files import rule_files
from endturn.generate.rules import RuleConfig
from tests.support.processes import (
    LOOPBACK,
    REPOSITORY,
    Collector,
    Prometheus,
    PrometheusClient,
    Series,
    Server,
    eventually,
    free_port,
)
from tests.support.promtool import oldest

pytestmark = pytest.mark.stack

FAST = RuleConfig().faster(30)
OFFSET = 2
"""How many seconds ago rules look."""
LATE = 1 / FAST.overlap
"""On this clock one evaluation may miss what was still under way."""

Panel = dict[str, Any]
BOARDS: dict[str, dict[str, Any]] = {Path(name).stem: json.loads(text) for name, text in dashboards.files(FAST).items()}
DRAWN: dict[tuple[str, int], Panel] = {
    (name, panel["id"]): panel
    for name, board in BOARDS.items()
    for each in board["panels"]
    for panel in (each, *each.get("panels", []))
    if panel["type"] != "row" and panel["datasource"]["type"] == "prometheus"
}

NO_SERVER = "no model server or gateway is scraped here"
NO_PRICES = "the demo gives no prices"
NOTHING_LOST = "nothing is lost, refused or missed here"
NO_LIMIT = "no policy of the demo gives up"
ENDED = "the demo has ended: its counters are stale"
NEITHER = "no listener fails and no label is unbounded"
EMPTY: dict[tuple[str, int], str] = {
    ("continuations", 16): NO_PRICES,
    ("continuations", 42): NO_PRICES,
    ("continuations", 62): "no repair of the demo fails, and a rate of none is zero or nothing",
    ("model", 13): "fewer than a hundred turns",
    ("model", 42): "the demo's model that is chosen here does not stream",
    ("model", 44): "no call fails before it answers",
    ("overview", 16): NO_LIMIT,
    ("continuations", 14): NO_LIMIT,
    ("overview", 72): ENDED,
    ("pipeline", 72): ENDED,
    ("overview", 73): NEITHER,
    ("overview", 74): NEITHER,
    ("pipeline", 73): NEITHER,
    ("pipeline", 74): NEITHER,
    ("pipeline", 12): NEITHER,
    ("pipeline", 13): NEITHER,
    ("overview", 76): NOTHING_LOST,
    ("pipeline", 76): NOTHING_LOST,
    ("pipeline", 22): NOTHING_LOST,
    ("pipeline", 25): NOTHING_LOST,
    ("pipeline", 31): NOTHING_LOST,
    ("stop-reasons", 51): NO_SERVER,
    ("stop-reasons", 52): NO_SERVER,
    ("stop-reasons", 53): NO_SERVER,
    ("stop-reasons", 54): NO_SERVER,
}
"""Panels that may have nothing to show, or only zeros, and why."""
PARTLY: dict[tuple[str, int], str] = {
    ("stop-reasons", 41): "there was no day before",
    ("overview", 17): "whether an alert still fires then is a matter of seconds",
    ("pipeline", 21): "what has not happened yet has no counter at the Collector",
}
"""Panels of which some query may be empty."""


@dataclass(frozen=True)
class Path_:
    """The running path after the demo has played, and what the demo itself printed."""

    prometheus: Prometheus
    played: dict[str, Any]
    begin: float
    end: float

    def values(self) -> dict[str, str]:
        """What Grafana would put in for its variables, with everything chosen."""
        return {
            "$__rate_interval": "20s",
            "$__interval": f"{FAST.increase}s",
            "$__range": f"{math.ceil(self.end - self.begin)}s",
            "$window": f"{FAST.window}s",
            "$job": ".*",
            "$provider": ".*",
            "$model": ".*",
        }

    def plain(self, expression: str, *, board: str = "") -> str:
        """A query as Grafana sends it."""
        for name, value in (self.values() | ({"$model": "gpt-5"} if board == "model" else {})).items():
            expression = expression.replace(name, value)
        assert not re.findall(r"\$[a-z_]", expression)
        return expression


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder = tmp_path_factory.mktemp("live")
    rules = []
    for name, text in rule_files(FAST).items():
        if "/tests/" not in name and name.startswith("dashboards/rules/"):
            rules.append(folder / Path(name).name)
            rules[-1].write_text(text)
    port = free_port()
    scrapes = {"collector": f"{LOOPBACK}:{port}"}
    with (
        Prometheus(folder, rules=rules, rule_query_offset=f"{OFFSET}s", scrapes=scrapes) as prometheus,
        Collector(folder, prometheus=prometheus.url, metrics_port=port) as collector,
    ):
        began = time.time()
        # Counters that are born are told from a path that was down by the heartbeat having been there before.
        eventually(
            lambda: prometheus.client.query("endturn:heartbeat", time=time.time() - FAST.increase - FAST.lead - OFFSET),
            what="a heartbeat older than the window of increments",
            timeout=60,
        )
        played = _demo(collector)
        responses = sum(sum(row["responses"].values()) for row in played["models"])
        eventually(
            lambda: sum(each.value for each in prometheus.client.query("endturn_responses_total")) >= responses,
            what="every response in Prometheus",
        )
        arrived = time.time()
        settled = arrived + FAST.increase + OFFSET + 2 * FAST.interval
        eventually(
            lambda: prometheus.client.query(f"timestamp(endturn:heartbeat) >= {settled:.0f}"),
            what="rules that have looked at everything",
            timeout=90,
        )
        # The demo has ended: its counters are asked for at a moment at which they are not stale yet.
        yield Path_(prometheus, played, began, time.time())


def _demo(collector: Collector) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=shop,service.version=1.2.3",
    }
    done = subprocess.run(
        [sys.executable, "-m", "endturn.cli", "demo", "--once", "--json"],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def ask(client: PrometheusClient, path: Path_, board: str, target: dict[str, Any]) -> list[Series]:
    """One query of a panel as Grafana asks it: at the end of the range, or all along it."""
    expression = path.plain(target["expr"], board=board)
    if target.get("instant"):
        return client.query(expression, time=path.end)
    return client.query_range(expression, start=path.begin, end=path.end, step=FAST.increase)


def total(series: list[Series]) -> float:
    return sum(each.value for each in series)


@pytest.mark.parametrize(("board", "id_"), DRAWN, ids=[f"{board}-{id_}" for board, id_ in DRAWN])
def test_every_panel_answers(path: Path_, board: str, id_: int) -> None:
    """Each query runs; what comes back empty, or only as zeros, is declared with the reason; nothing is NaN."""
    panel = DRAWN[board, id_]
    answers = [ask(path.prometheus.client, path, board, target) for target in panel["targets"]]
    values = [value for answer in answers for series in answer for _, value in series.points]
    assert not any(math.isnan(value) for value in values), "NaN"
    if (board, id_) in EMPTY:
        assert not any(values), f"{panel['title']} shows something: {EMPTY[board, id_]} does not hold"
    elif (board, id_) in PARTLY:
        assert any(answers) or len(answers) == 1, panel["title"]
    else:
        empty = [target["expr"] for target, answer in zip(panel["targets"], answers, strict=True) if not answer]
        assert not empty, panel["title"]


@pytest.mark.parametrize("declared", [EMPTY, PARTLY], ids=["empty", "partly"])
def test_declared_panels_exist(declared: dict[tuple[str, int], str]) -> None:
    """What is declared to be empty is a panel of a dashboard."""
    assert set(declared) <= set(DRAWN)


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_offers_something(path: Path_, name: str) -> None:
    """Each filter offers the demo's services, providers and models; the hidden one their bare names."""
    offered = {}
    for each in BOARDS[name]["templating"]["list"]:
        if each["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
            assert found
            match = urllib.parse.quote(path.plain(found[1]))
            bounds = f"start={path.begin:.3f}&end={path.end:.3f}"
            values = path.prometheus.client.get(f"label/{found[2]}/values?match[]={match}&{bounds}")
            shown = each.get("regex", "").strip("/")
            offered[each["name"]] = {m[1] if (m := re.search(shown, v)) and shown else v for v in values}
    wanted = {
        "job": {"shop/endturn-demo"},
        "provider": {row["provider"] for row in path.played["models"]},
        "model": {row["model"] for row in path.played["models"]},
        "service": {"endturn-demo"},
    }
    assert offered == {each: wanted[each] for each in offered}


@pytest.mark.parametrize("name", BOARDS)
def test_every_annotation_runs(path: Path_, name: str) -> None:
    """The demo's version is marked as deployed, once; alerts need longer than this run."""
    marks = {each["name"]: each["target"]["expr"] for each in BOARDS[name]["annotations"]["list"]}
    times = {"start": path.begin, "end": path.end, "step": 1.0}
    found = path.prometheus.client.query_range(path.plain(marks["Deployments"]), **times)
    [deployed] = [series for series in found if series.labels["job"] == "shop/endturn-demo"]
    assert deployed.labels["service_version"] == "1.2.3"
    assert deployed.points[-1][0] - deployed.points[0][0] <= FAST.increase + 5, "one mark, not one that lasts"
    for series in path.prometheus.client.query_range(path.plain(marks["Alerts"]), **times):
        assert series.labels["alertname"].startswith("Endturn")


def _shown(path: Path_, board: str, id_: int, query: int = 0) -> list[Series]:
    return ask(path.prometheus.client, path, board, DRAWN[board, id_]["targets"][query])


def test_figures_are_what_the_demo_printed(path: Path_) -> None:
    """Responses, turns and both headline rates are those of the demo's own report."""
    rows = path.played["models"]
    responses = sum(sum(row["responses"].values()) for row in rows)
    cut = sum(row["responses"].get(why, 0) for row in rows for why in ("max_tokens", "missing"))
    truncated, left = (sum(row[key] for row in rows) for key in ("truncated_turns", "given_up_turns"))
    assert truncated
    assert total(_shown(path, "overview", 14)) == pytest.approx(responses, rel=LATE)
    assert total(_shown(path, "overview", 13)) == pytest.approx(sum(row["turns"] for row in rows), rel=LATE)
    assert total(_shown(path, "overview", 12)) == pytest.approx(cut / responses, rel=LATE)
    assert total(_shown(path, "overview", 11)) == pytest.approx(left / truncated, rel=LATE)
    assert total(_shown(path, "continuations", 12)) == pytest.approx(truncated, rel=LATE)


def test_the_table_of_reasons_is_the_demos(path: Path_) -> None:
    """By provider, model and reason, the table counts what the demo counted."""
    found: dict[tuple[str, str, str], float] = {
        (
            each.labels["gen_ai_provider_name"],
            each.labels["gen_ai_request_model"],
            each.labels["endturn_stop_reason"],
        ): each.value
        for each in _shown(path, "stop-reasons", 23)
    }
    wanted = {
        (row["provider"], row["model"], reason): count
        for row in path.played["models"]
        for reason, count in row["responses"].items()
    }
    assert found.keys() == wanted.keys()
    for key, count in wanted.items():
        assert found[key] == pytest.approx(count, abs=max(1, LATE * count)), key


# --- The oldest Prometheus ----------------------------------------------------------------------------------------


class Old(Server):
    """Prometheus 2.42 over the samples of a current one, as blocks."""

    def __init__(self, folder: Path, samples: Path) -> None:
        promtool = oldest()
        data, config = folder / "old", folder / "old.yml"
        config.write_text("{}\n")
        made: list[str | Path] = [promtool, "tsdb", "create-blocks-from", "openmetrics", samples, data]
        done = subprocess.run(made, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        address = f"{LOOPBACK}:{free_port()}"
        self.client = PrometheusClient(f"http://{address}")
        command: list[str | Path] = [
            promtool.with_name("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
            f"--web.listen-address={address}",
        ]  # fmt: skip
        super().__init__("prometheus 2.42", command, log=folder / "old.log", ready=f"{self.client.url}/-/ready")


def _samples(path: Path_, file: Path) -> None:
    """Every sample of the current Prometheus, in OpenMetrics."""
    families: dict[str, list[str]] = defaultdict(list)
    names = path.prometheus.client.get("label/__name__/values")
    back = math.ceil(time.time() - path.begin) + 60
    for name in names:
        if name == "ALERTS_FOR_STATE" or name.startswith(("go_", "net_", "prometheus_sd")):
            continue
        for series in path.prometheus.client.query(f'{{__name__="{name}"}}[{back}s]', time=path.end):
            carried = ",".join(
                f"{key}={json.dumps(value)}" for key, value in series.labels.items() if key != "__name__"
            )
            families[name] += [
                f"{name}{{{carried}}} {value!r} {at:.3f}" for at, value in series.points if not math.isnan(value)
            ]
    with file.open("w") as out:
        for name, lines in sorted(families.items()):
            out.write(f"# TYPE {name} unknown\n")
            out.writelines(f"{line}\n" for line in lines)
        out.write("# EOF\n")


@pytest.fixture(scope="module")
def old(path: Path_, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusClient]:
    oldest()
    folder = tmp_path_factory.mktemp("old")
    samples = folder / "samples"
    _samples(path, samples)
    with Old(folder, samples) as server:
        yield server.client


def _comparable(answer: list[Series]) -> dict[tuple[tuple[str, str], ...], list[tuple[int, float]]]:
    """By labels; bounds of buckets as numbers: Prometheus 3 writes 1 as 1.0."""
    return {
        tuple(sorted((key, str(float(value)) if key == "le" else value) for key, value in each.labels.items())): [
            (round(at), round(value, 6)) for at, value in each.points
        ]
        for each in answer
    }


@pytest.mark.parametrize(("board", "id_"), DRAWN, ids=[f"{board}-{id_}" for board, id_ in DRAWN])
def test_the_oldest_prometheus_answers_the_same(path: Path_, old: PrometheusClient, board: str, id_: int) -> None:
    """Prometheus 2.42 understands each query, and over recorded increments finds the same series."""
    for target in DRAWN[board, id_]["targets"]:
        theirs = _comparable(ask(old, path, board, target))
        ours = _comparable(ask(path.prometheus.client, path, board, target))
        # Ranges are closed on the left there and open here, and what was stale here has no end there: numbers differ by
        # a sample at the edges. That a series is found is the same.
        assert theirs.keys() >= ours.keys(), target["expr"]


@pytest.mark.parametrize("name", BOARDS)
def test_the_oldest_prometheus_runs_annotations(path: Path_, old: PrometheusClient, name: str) -> None:
    """Prometheus 2.42 understands the annotations too, and marks the same deployment."""
    for each in BOARDS[name]["annotations"]["list"]:
        times = {"start": path.begin, "end": path.end, "step": 1.0}
        found = old.query_range(path.plain(each["target"]["expr"]), **times)
        assert bool(found) or each["name"] == "Alerts"
