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
from endturn.generate.config import RuleConfig
from tests.support import faster
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

TIMES = 30
"""How much faster the rules' clock is: a minute is two seconds, the export interval half a second."""
STEP = 2.0
OFFSET = 2
"""How many seconds ago rules look."""

Panel = dict[str, Any]
BOARDS: dict[str, dict[str, Any]] = {
    Path(name).stem: json.loads(text) for name, text in dashboards.files(RuleConfig()).items()
}
DRAWN: dict[tuple[str, str], Panel] = {
    (name, panel["title"]): panel
    for name, board in BOARDS.items()
    for each in board["panels"]
    for panel in (each, *each.get("panels", []))
    if panel["type"] != "row" and panel["datasource"]["type"] == "prometheus"
}

EMPTY: dict[tuple[str, str], str] = {
    ("overview", "Error budget left"): "fewer than a hundred truncated turns",
    ("continuations", "Money spent"): "the demo gives no prices",
    ("continuations", "Tool payload repair failures"): "no repair of the demo fails, and a rate of none is zero",
    ("model", "max_tokens that would do"): "fewer than a hundred turns",
    ("model", "Incomplete turns"): "the model that is chosen here finishes all its turns",
    ("model", "Time to the first chunk"): "the demo's model that is chosen here does not stream",
    ("model", "Failed calls per minute"): "no call fails before it answers",
    ("pipeline", "Labels capped, by label"): "no label is unbounded",
    ("pipeline", "Recording failures, by listener"): "no listener fails",
    ("pipeline", "Dropped by SDKs"): "nothing is dropped",
    ("pipeline", "Lost or refused by the Collector"): "nothing is lost or refused",
    ("pipeline", "Rule evaluations missed or failed"): "none is missed",
    **{("stop-reasons", each["title"]): "none is scraped here"
       for panel in BOARDS["stop-reasons"]["panels"] for each in panel.get("panels", [])},
}  # fmt: skip
"""Panels that may have nothing to show, or only zeros, and why."""
PARTLY: dict[tuple[str, str], str] = {
    ("stop-reasons", "Truncation rate, now and a day before"): "there was no day before",
    ("overview", "Services, worst first"): "the budget needs a hundred truncated turns",
    ("overview", "Alerts firing"): "whether an alert still fires then is a matter of seconds",
    ("pipeline", "Delivered per second"): "what has not happened yet has no counter at the Collector",
}
"""Panels of which some query may be empty."""


@dataclass(frozen=True)
class Path_:
    """The running path after the demo has played, and what the demo itself printed."""

    prometheus: Prometheus
    played: dict[str, Any]
    begin: float
    end: float

    def plain(self, expression: str, *, board: str = "") -> str:
        """A query as Grafana sends it, with everything chosen, and on the rules' clock."""
        values = {
            "$__rate_interval": f"{STEP + 0.5:g}s".replace("2.5s", "2500ms"),
            "$__interval": f"{STEP:g}s",
            "$__range": f"{math.ceil(self.end - self.begin)}s",
            "$window": "2m",
            **{f"${name}": ".*" for name in ("job", "environment", "cluster", "provider", "model")},
        }
        for name, value in (values | ({"$model": "gpt-5"} if board == "model" else {})).items():
            expression = expression.replace(name, value)
        assert not re.findall(r"\$[a-z_]", expression)
        return expression


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder = tmp_path_factory.mktemp("live")
    port = free_port()
    with (
        Prometheus(
            folder,
            rules=faster.rules(folder, TIMES),
            rule_query_offset=f"{OFFSET}s",
            scrapes={"collector": f"{LOOPBACK}:{port}"},
        ) as prometheus,
        Collector(folder, prometheus=prometheus.url, metrics_port=port) as collector,
    ):
        began = time.time()
        played = _demo(collector)
        responses = sum(sum(row["responses"].values()) for row in played["models"])
        eventually(
            lambda: sum(each.value for each in prometheus.client.query("endturn_responses_total")) >= responses,
            what="every response in Prometheus",
        )
        yield Path_(prometheus, played, began, time.time())


def _demo(collector: Collector) -> dict[str, Any]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_METRIC_EXPORT_INTERVAL": "500",
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
    return client.query_range(expression, start=path.begin, end=path.end, step=STEP)


def total(series: list[Series]) -> float:
    return sum(each.value for each in series)


@pytest.mark.parametrize(("board", "title"), DRAWN, ids=[f"{board}: {title}" for board, title in DRAWN])
def test_every_panel_answers(path: Path_, board: str, title: str) -> None:
    """Each query runs; what comes back empty, or only as zeros, is declared with the reason; nothing is NaN."""
    panel = DRAWN[board, title]
    answers = [ask(path.prometheus.client, path, board, target) for target in panel["targets"]]
    values = [value for answer in answers for series in answer for _, value in series.points]
    assert not any(math.isnan(value) for value in values), "NaN"
    if (board, title) in EMPTY:
        assert not any(values), f"shows something: {EMPTY[board, title]!r} does not hold"
    elif (board, title) in PARTLY:
        assert any(answers) or len(answers) == 1
    else:
        empty = [target["expr"] for target, answer in zip(panel["targets"], answers, strict=True) if not answer]
        assert not empty


@pytest.mark.parametrize("declared", [EMPTY, PARTLY], ids=["empty", "partly"])
def test_declared_panels_exist(declared: dict[tuple[str, str], str]) -> None:
    """What is declared to be empty is a panel of a dashboard."""
    assert set(declared) <= set(DRAWN)


@pytest.mark.parametrize("name", BOARDS)
def test_every_variable_offers_something(path: Path_, name: str) -> None:
    """Each filter offers the demo's services, providers and models; the hidden one their bare names."""
    offered = {}
    for each in BOARDS[name]["templating"]["list"]:
        if each["type"] == "query" and each["name"] not in ("environment", "cluster"):
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


def test_every_annotation_runs(path: Path_) -> None:
    """The demo's version is marked as deployed; alerts need longer than this run."""
    marks = {each["name"]: each["target"]["expr"] for each in BOARDS["overview"]["annotations"]["list"]}
    times = {"start": path.begin, "end": path.end, "step": 1.0}
    found = path.prometheus.client.query_range(path.plain(marks["Deployments"]), **times)
    [deployed] = [series for series in found if series.labels["job"] == "shop/endturn-demo"]
    assert deployed.labels["service_version"] == "1.2.3"
    for series in path.prometheus.client.query_range(path.plain(marks["Alerts"]), **times):
        assert series.labels["alertname"].startswith("Endturn")


def _shown(path: Path_, board: str, title: str, query: int = 0) -> list[Series]:
    return ask(path.prometheus.client, path, board, DRAWN[board, title]["targets"][query])


def test_figures_are_exactly_what_the_demo_printed(path: Path_) -> None:
    """Both headline rates, unfinished turns and the table's columns are those of the demo's own report."""
    rows = path.played["models"]
    responses = sum(sum(row["responses"].values()) for row in rows)
    answers = responses - sum(row["responses"].get("error", 0) for row in rows)
    cut = sum(row["responses"].get(why, 0) for row in rows for why in ("max_tokens", "missing"))
    truncated, left = (sum(row[key] for row in rows) for key in ("truncated_turns", "unfinished_turns"))
    assert truncated
    assert total(_shown(path, "overview", "Truncation without continuation")) == pytest.approx(left / truncated)
    assert total(_shown(path, "overview", "Truncation rate")) == pytest.approx(cut / answers)
    assert total(_shown(path, "overview", "Unfinished turns")) == left
    services = [total(_shown(path, "overview", "Services, worst first", query)) for query in (0, 2, 3)]
    assert services == [responses, sum(row["turns"] for row in rows), left]
    assert total(_shown(path, "continuations", "Truncated turns")) == truncated


def test_the_table_of_reasons_is_the_demos(path: Path_) -> None:
    """By provider, model and reason, the table counts what the demo counted, exactly."""
    found = {
        (
            each.labels["gen_ai_provider_name"],
            each.labels["gen_ai_request_model"],
            each.labels["endturn_stop_reason"],
        ): each.value
        for each in _shown(path, "stop-reasons", "Stop reasons by provider and model")
    }
    assert found == {
        (row["provider"], row["model"], reason): count
        for row in path.played["models"]
        for reason, count in row["responses"].items()
    }


def test_bars_add_up(path: Path_) -> None:
    """Each response stands in one bar: their sum is what the demo counted, but for the last step's."""
    bars = _shown(path, "overview", "Responses by stop reason")
    responses = sum(sum(row["responses"].values()) for row in path.played["models"])
    whole = sum(value for series in bars for at, value in series.points)
    late = total(
        path.prometheus.client.query(
            f"sum(endturn_responses_total) - sum(endturn_responses_total offset {math.ceil(STEP)}s)", time=path.end
        )
    )
    assert responses - late <= whole <= responses


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


@pytest.mark.parametrize(("board", "title"), DRAWN, ids=[f"{board}: {title}" for board, title in DRAWN])
def test_the_oldest_prometheus_answers_the_same(path: Path_, old: PrometheusClient, board: str, title: str) -> None:
    """Prometheus 2.42 understands each query, and finds the same series."""
    for target in DRAWN[board, title]["targets"]:
        theirs = _comparable(ask(old, path, board, target))
        ours = _comparable(ask(path.prometheus.client, path, board, target))
        # Ranges are closed on the left there and open here, and what was stale here has no end there: numbers differ by
        # a sample at the edges. That a series is found is the same.
        tied = "topk by" in target["expr"]  # which of two that are equal is first is anybody's choice
        assert len(theirs) == len(ours) if tied else theirs.keys() >= ours.keys(), target["expr"]
