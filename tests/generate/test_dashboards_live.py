"""Every question of every dashboard, asked of real data: the demo's, through the real Collector, without any rule."""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.generate.test_dashboards import BY_NAME, Panel, drawn, targets
from tests.support.processes import LOOPBACK, Collector, Prometheus, Series, eventually, free_port
from tests.ui.support import demo

pytestmark = pytest.mark.stack

STEP = 10
RESOURCE = "service.namespace=shop,service.version=1.2.3,deployment.environment.name=test"
DRAWN: dict[tuple[str, int], Panel] = {
    (name, panel["id"]): panel for name, board in BY_NAME.items() for panel in drawn(board) if targets(panel)
}
SILENT = yaml.safe_load(Path(__file__).with_name("silent.yaml").read_text())
EMPTY, PARTLY = (
    {(board, id_): why for board, panels in SILENT[which].items() for id_, why in panels.items()}
    for which in ("empty", "partly")
)
assert (EMPTY | PARTLY).keys() <= DRAWN.keys(), "declared is what there is"


@dataclass(frozen=True)
class Played:
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
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("live")
    port = free_port()
    with (
        Prometheus(folder, scrapes={"collector": [f"{LOOPBACK}:{port}"]}) as prometheus,
        Collector(folder, prometheus=prometheus.url, metrics_port=port) as collector,
    ):
        begin = math.floor(time.time()) - STEP
        played = demo(collector.url, "--once", OTEL_METRIC_EXPORT_INTERVAL="1000", OTEL_RESOURCE_ATTRIBUTES=RESOURCE)
        responses = sum(sum(row["responses"].values()) for row in played["models"])
        # The demo's counters are stale once it has ended: the last sample of each is what it sent at its exit.
        prometheus.client.wait_for(f"sum(last_over_time(endturn_responses_total[1h])) >= {responses}")
        # The last step ends after everything.
        end = begin + math.ceil((time.time() - begin) / STEP) * STEP
        eventually(lambda: time.time() > end, what="the end of the last step", timeout=2 * STEP)
        yield Played(prometheus, played, begin, end)


@pytest.mark.parametrize(("board", "id_"), DRAWN, ids=[f"{board}-{id_}" for board, id_ in DRAWN])
def test_every_panel_answers(path: Played, board: str, id_: int) -> None:
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


@pytest.mark.parametrize("name", BY_NAME)
def test_every_variable_offers_something(path: Played, name: str) -> None:
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
def test_every_annotation_runs(path: Played, name: str) -> None:
    """The demo's version is marked as deployed."""
    marks = {each["name"]: path.plain(each["target"]["expr"]) for each in BY_NAME[name]["annotations"]["list"]}
    times = {"start": path.begin, "end": path.end, "step": 1.0}
    found = path.prometheus.client.query_range(marks["Deployments"], **times)
    assert ("shop/endturn-demo", "1.2.3") in {(s.labels["job"], s.labels["service_version"]) for s in found}
    assert path.prometheus.client.query_range(marks["Alerts"], **times) == []


def test_panels_show_what_the_demo_printed(path: Played) -> None:
    """Tiles; tables by service, by model, and by model and reason; bars, with each response in one step: exactly."""
    rows = {(row["provider"], row["model"]): row for row in path.played["models"]}
    counts: dict[tuple[str, ...], Any] = {
        (why, *key): count for key, row in rows.items() for why, count in row["responses"].items()
    }
    reasons: Counter[str] = Counter()
    for (why, *_), count in counts.items():
        reasons[why] += count
    cut = reasons["max_tokens"] + reasons["missing"]
    turns, truncated, left = (
        sum(row[key] for row in rows.values()) for key in ("turns", "truncated_turns", "unfinished_turns")
    )
    service = ("test", "shop/endturn-demo")
    wanted: dict[tuple[str, int, int], dict[tuple[str, ...], float]] = {
        ("overview", 11, 0): {(): left / truncated},
        ("overview", 12, 0): {(): cut / (reasons.total() - reasons["error"])},
        ("overview", 13, 0): {(): left},
        ("continuations", 11, 0): {(): truncated},
        ("overview", 21, 0): {service: reasons.total()},
        ("overview", 21, 2): {service: turns},
        ("overview", 21, 3): {service: left},
        ("overview", 41, 0): {key: sum(row["responses"].values()) for key, row in rows.items()},
        ("overview", 41, 2): {key: row["unfinished_turns"] for key, row in rows.items()},
        ("stop-reasons", 22, 0): counts,
        ("overview", 31, 0): {(why,): count for why, count in reasons.items()},
    }
    assert truncated > left > 0
    assert {panel: path.shown(*panel) for panel in wanted} == wanted


def test_turns_without_an_attempt_are_those_that_were_not_continued(path: Played) -> None:
    """The bucket *none* holds what the turns themselves say: asking for a cut tool call again is an attempt, too."""
    ended = (
        'sum by (endturn_turn_continued) (max_over_time(endturn_turns_total{endturn_turn_truncated="true"}[$__range]))'
    )
    found = path.prometheus.client.query(path.plain(ended), time=path.end)
    turns = {each.labels["endturn_turn_continued"]: each.value for each in found}
    attempts = {float(le): count for (le,), count in path.shown("continuations", 22).items()}
    assert attempts[0] == turns["false"] > 0
    assert attempts[math.inf] == turns["false"] + turns["true"]
