"""Every question of every dashboard, asked of real data: the demo's, through the real Collector, without any rule."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.generate.test_dashboards import BY_NAME, Panel, drawn, targets
from tests.support.processes import LOOPBACK, REPOSITORY, Collector, Prometheus, Series, eventually, free_port

pytestmark = pytest.mark.stack

STEP = 10
DRAWN: dict[tuple[str, int], Panel] = {
    (name, panel["id"]): panel for name, board in BY_NAME.items() for panel in drawn(board) if targets(panel)
}
NO_SERVER = "no model server or gateway is scraped here"
NOTHING_LOST = "nothing is lost or dropped here"
NO_KAFKA = "nothing is read from Kafka here"
NEITHER = "no listener fails and no label is unbounded"
EMPTY: dict[tuple[str, int], str] = {
    ("continuations", 16): "the demo gives no prices",
    ("continuations", 62): "no repair of the demo fails: zeros",
    ("model", 13): "fewer than a hundred turns",
    ("model", 42): "the demo's model that is chosen here does not stream",
    ("model", 44): "no call fails before it answers",
    ("overview", 14): "no rule is loaded",
    ("overview", 17): "no rule is loaded",
    ("pipeline", 12): NEITHER,
    ("pipeline", 13): NEITHER,
    ("pipeline", 14): NOTHING_LOST,
    ("pipeline", 24): NOTHING_LOST,
    ("pipeline", 27): "nothing is sampled here",
    ("pipeline", 28): NOTHING_LOST,
    ("pipeline", 31): "no rule is loaded",
    ("pipeline", 41): NO_KAFKA,
    ("pipeline", 42): NO_KAFKA,
    ("pipeline", 43): NO_KAFKA,
    ("stop-reasons", 51): NO_SERVER,
    ("stop-reasons", 52): NO_SERVER,
    ("stop-reasons", 53): NO_SERVER,
    ("stop-reasons", 54): NO_SERVER,
}
"""Panels that have nothing to show here, or only zeros, and why."""
PARTLY: dict[tuple[str, int], str] = {
    ("stop-reasons", 41): "there was no day before",
    ("overview", 21): "no rule is loaded, so no budget is known",
}
"""Panels of which some query is empty, and why."""


@dataclass(frozen=True)
class Path_:
    """The running path after the demo has played, and what the demo itself printed."""

    prometheus: Prometheus
    played: dict[str, Any]
    begin: float
    end: float

    def ask(self, board: str, target: dict[str, Any]) -> list[Series]:
        """One query of a panel as Grafana asks it: at the end of the range, or all along it."""
        expr = self.plain(target["expr"], board)
        if target["instant"]:
            return self.prometheus.client.query(expr, time=self.end)
        return self.prometheus.client.query_range(expr, start=self.begin, end=self.end, step=STEP)

    def plain(self, expr: str, board: str = "") -> str:
        """The query as Grafana sends it with everything chosen; of a model's board, one model."""
        long = math.ceil(self.end - self.begin)
        values = {
            "$__rate_interval": f"{STEP + 1}s",  # a step, and what lies between two exports
            "$__interval": f"{STEP}s",
            "$__range_s": f"{long}",
            "$__range": f"{long}s",
            "$window": "1h",
            "$model": "gpt-5" if board == "model" else ".*",
        }
        for name, value in values.items():
            expr = expr.replace(name, value)
        return re.sub(r"\$[a-z]+", ".*", expr)

    def shown(self, board: str, id_: int, query: int = 0) -> dict[tuple[str, ...], float]:
        """What a tile or a table's column shows, by its labels' values; of bars their sums."""
        found = self.ask(board, DRAWN[board, id_]["targets"][query])
        return {
            tuple(value for _, value in sorted(each.labels.items())): sum(value for _, value in each.points)
            for each in found
        }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder = tmp_path_factory.mktemp("live")
    port = free_port()
    with (
        Prometheus(folder, scrapes={"collector": f"{LOOPBACK}:{port}"}) as prometheus,
        Collector(folder, prometheus=prometheus.url, metrics_port=port) as collector,
    ):
        begin = math.floor(time.time()) - STEP
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
            "OTEL_RESOURCE_ATTRIBUTES": "service.namespace=shop,service.version=1.2.3,deployment.environment.name=test",
        }
        done = subprocess.run(
            [sys.executable, "-m", "endturn.cli", "demo", "--once", "--json"],
            env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        played: dict[str, Any] = json.loads(done.stdout)
        responses = sum(sum(row["responses"].values()) for row in played["models"])
        # The demo's counters are stale once it has ended: the last sample of each is what it sent at its exit.
        eventually(
            lambda: (
                sum(each.value for each in prometheus.client.query("last_over_time(endturn_responses_total[1h])"))
                >= responses
            ),
            what="every response in Prometheus",
        )
        # The last step ends after everything.
        end = begin + math.ceil((time.time() - begin) / STEP) * STEP
        eventually(lambda: time.time() > end, what="the end of the last step", timeout=2 * STEP)
        yield Path_(prometheus, played, begin, end)


@pytest.mark.parametrize(("board", "id_"), DRAWN, ids=[f"{board}-{id_}" for board, id_ in DRAWN])
def test_every_panel_answers(path: Path_, board: str, id_: int) -> None:
    """Each query runs; what comes back empty, or only as zeros, is declared with the reason; nothing is NaN."""
    panel = DRAWN[board, id_]
    answers = [path.ask(board, target) for target in panel["targets"]]
    values = [value for answer in answers for series in answer for _, value in series.points]
    assert not any(math.isnan(value) for value in values), "NaN"
    if (board, id_) in EMPTY:
        assert not any(values), f"{panel['title']} shows something: {EMPTY[board, id_]!r} does not hold"
    elif (board, id_) in PARTLY:
        assert any(answers)
        assert not all(answers), f"{panel['title']} shows everything: {PARTLY[board, id_]!r} does not hold"
    else:
        assert all(answers), [t["expr"] for t, answer in zip(panel["targets"], answers, strict=True) if not answer]
        # What a legend puts in is a label that the series have.
        for target, answer in zip(panel["targets"], answers, strict=True):
            named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) - {"cluster"}
            assert all(named <= set(series.labels) for series in answer), panel["title"]


@pytest.mark.parametrize("declared", [EMPTY, PARTLY], ids=["empty", "partly"])
def test_declared_panels_exist(declared: dict[tuple[str, int], str]) -> None:
    """What is declared to be empty is a panel of a dashboard."""
    assert set(declared) <= set(DRAWN)


@pytest.mark.parametrize("name", BY_NAME)
def test_every_variable_offers_something(path: Path_, name: str) -> None:
    """Each filter offers the demo's services, environments, providers and models; the hidden ones its parts."""
    rows = path.played["models"]
    wanted = {
        "job": {"shop/endturn-demo"},
        "environment": {"test"},
        "cluster": set(),
        "provider": {row["provider"] for row in rows},
        "model": {row["model"] for row in rows},
        "service": {"endturn-demo"},
        "namespace": {"shop"},
    }
    for each in BY_NAME[name]["templating"]["list"]:
        if each["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
            assert found
            match = urllib.parse.quote(path.plain(found[1]))
            bounds = f"start={path.begin:.3f}&end={path.end:.3f}"
            values = path.prometheus.client.get(f"label/{found[2]}/values?match[]={match}&{bounds}")
            shown = each.get("regex", "").strip("/")
            assert {m[1] if (m := re.search(shown, v)) and shown else v for v in values} == wanted[each["name"]]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_annotation_runs(path: Path_, name: str) -> None:
    """The demo's version is marked as deployed."""
    marks = {each["name"]: path.plain(each["target"]["expr"]) for each in BY_NAME[name]["annotations"]["list"]}
    times = {"start": path.begin, "end": path.end, "step": 1.0}
    found = path.prometheus.client.query_range(marks["Deployments"], **times)
    assert ("shop/endturn-demo", "1.2.3") in {(s.labels["job"], s.labels["service_version"]) for s in found}
    assert path.prometheus.client.query_range(marks["Alerts"], **times) == []


def test_tiles_are_what_the_demo_printed(path: Path_) -> None:
    """Truncated, unfinished, continued: exactly."""
    rows = path.played["models"]
    responses = sum(sum(row["responses"].values()) for row in rows)
    cut = sum(row["responses"].get(why, 0) for row in rows for why in ("max_tokens", "missing"))
    failed = sum(row["responses"].get("error", 0) for row in rows)
    truncated, left = (sum(row[key] for row in rows) for key in ("truncated_turns", "unfinished_turns"))
    assert truncated > left > 0
    assert path.shown("overview", 11) == {(): left / truncated}
    assert path.shown("overview", 12) == {(): cut / (responses - failed)}
    assert path.shown("overview", 13) == {(): left}
    assert path.shown("continuations", 11) == {(): truncated}


def test_turns_without_an_attempt_are_those_that_were_not_continued(path: Path_) -> None:
    """The bucket *none* holds what the turns themselves say: asking for a cut tool call again is an attempt, too."""
    ended = (
        'sum by (endturn_turn_continued) (max_over_time(endturn_turns_total{endturn_turn_truncated="true"}[$__range]))'
    )
    found = path.prometheus.client.query(path.plain(ended), time=path.end)
    turns = {each.labels["endturn_turn_continued"]: each.value for each in found}
    attempts = {float(le): count for (le,), count in path.shown("continuations", 22).items()}
    assert attempts[0] == turns["false"] > 0
    assert attempts[math.inf] == turns["false"] + turns["true"]


def test_tables_are_what_the_demo_printed(path: Path_) -> None:
    """By service, by model, and by model and reason: exactly."""
    rows = path.played["models"]
    service = ("test", "shop/endturn-demo")
    assert path.shown("overview", 21, 0) == {service: sum(sum(row["responses"].values()) for row in rows)}
    assert path.shown("overview", 21, 2) == {service: sum(row["turns"] for row in rows)}
    assert path.shown("overview", 21, 3) == {service: sum(row["unfinished_turns"] for row in rows)}
    by_model = {(row["provider"], row["model"]): row for row in rows}
    assert path.shown("overview", 41, 0) == {key: sum(row["responses"].values()) for key, row in by_model.items()}
    assert path.shown("overview", 41, 2) == {key: row["unfinished_turns"] for key, row in by_model.items()}
    assert path.shown("stop-reasons", 22) == {
        (reason, *key): count for key, row in by_model.items() for reason, count in row["responses"].items()
    }


def test_bars_add_up_to_what_the_demo_printed(path: Path_) -> None:
    """Each response is in one step."""
    rows = path.played["models"]
    reasons = {reason for row in rows for reason in row["responses"]}
    wanted = {(reason,): sum(row["responses"].get(reason, 0) for row in rows) for reason in reasons}
    assert path.shown("overview", 31) == wanted
