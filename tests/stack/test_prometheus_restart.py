"""A restart of the real Prometheus changes no count: neither on the boards, nor among the recorded ones."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import yaml

from benchmarks import accuracy
from endturn.generate.queries import JOB, Matcher
from endturn.generate.recorded_counts import MODEL_COUNTS, SERVICE_COUNTS, WINDOW
from endturn.telemetry import INDICATORS, TURNS
from tests.support import faster
from tests.support.processes import Collector, Prometheus, eventually

pytestmark = pytest.mark.stack

TIMES = 15
"""How much faster the clock is: an export is a second, and a recorded count covers 20 seconds."""
CALLS = 60
HAPPENED = {"responses": 60, "turns": 60, "truncated_turns": 20, "unfinished": 20}
PLANTED = "planted:service_turns:count5m"
"""A rule of the kind that is not shipped: it reads the result of another through the lookback."""


def rules(folder: Path) -> list[Path]:
    """The shipped rules, and the planted one in the same group."""
    [file] = faster.rules(folder, TIMES)
    content = yaml.safe_load(file.read_text())
    planted = {"record": PLANTED, "expr": f"sum by (job) ({MODEL_COUNTS[TURNS]})"}
    content["groups"][0]["rules"].append(planted)
    file.write_text(yaml.safe_dump(content, sort_keys=False, width=1000))
    return [file]


def evaluations(prometheus: Prometheus) -> str:
    """Return when the recording rules were evaluated for the last time."""
    moment: str = prometheus.client.get("rules")["groups"][0]["lastEvaluation"]
    return moment


def test_counts_are_the_same_after_a_restart_of_prometheus(tmp_path: Path) -> None:
    """A service ends, and Prometheus is stopped while the last recorded counts contain its turns.

    It is started when they are out of the rules' windows, but within the five minutes in which a plain selector still
    returns the recorded counts from before the stop. The planted rule counts them again, the shipped ones do not.
    """
    began = time.time()
    offset = f"{int(1000 * accuracy.EXPORT / TIMES)}ms"
    with (
        Prometheus(tmp_path / "prometheus", rules=rules(tmp_path), rule_query_offset=offset) as prometheus,
        Collector(tmp_path / "collector", prometheus=prometheus.url) as collector,
    ):
        stack = accuracy.Stack(tmp_path, prometheus, collector, TIMES, [])

        def on_boards() -> dict[str, float]:
            window = f"{int(time.time() - began) + 1}s"
            shown = {name: accuracy.shown(INDICATORS[name], window, Matcher(JOB, "=", "agent")) for name in HAPPENED}
            return {
                name: sum(series.value for series in prometheus.client.query(query)) for name, query in shown.items()
            }

        def recorded(name: str, until: float) -> float:
            query = f'sum_over_time({name}{{job="agent"}}[{int(until - began) + 1}s])'
            return sum(series.value for series in prometheus.client.query(query, time=until))

        stack.agent(60, CALLS).wait()
        eventually(lambda: on_boards() == HAPPENED, what="every count on the boards")
        prometheus.client.wait_for(f'{SERVICE_COUNTS[TURNS]}{{job="agent"}} > 0')
        prometheus.client.wait_for(f'{PLANTED}{{job="agent"}} > 0')
        prometheus.stop()
        stopped = time.time()
        stack.wait(WINDOW + 2 * accuracy.EXPORT)
        prometheus.start()
        for _ in range(3):
            last = evaluations(prometheus)
            eventually(partial(evaluations, prometheus), what="an evaluation", timeout=60, until=last.__ne__)
        assert on_boards() == HAPPENED
        now = time.time()
        for name in SERVICE_COUNTS.values():
            assert recorded(name, stopped) == recorded(name, now) > 0
        assert recorded(PLANTED, now) > recorded(
            PLANTED, stopped
        )  # so the restart is one that such a rule suffers from
