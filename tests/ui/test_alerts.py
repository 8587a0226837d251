"""The page's alerts fire and stay quiet on the very series on which promtool says that the rules do."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.conditions import Condition, PrometheusOnly, to_promql
from endturn.generate.alerts.model import Alert, Firing, Quiet
from endturn.generate.recorded_counts import recording_rules
from endturn.telemetry import schema
from endturn.ui.alerts import SETTINGS, compare, evaluate
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.support import promtool
from tests.ui.support import SECOND, Answer, Served, point, write

ON_PAGE = [alert for alert in ALERTS if not isinstance(alert.condition(SETTINGS), PrometheusOnly)]
MODEL = {schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5"}
EXAMPLES = [
    pytest.param(alert, example, id=f"{alert.name}: {example.title}") for alert in ON_PAGE for example in alert.examples
]

METRICS = {each.prometheus: each for each in schema.METRICS}


def _values(text: str) -> Iterator[float | None]:
    """Values in promtool's notation: `0+5x480`, `9x280`, `_x40`, `7`."""
    for word in text.split():
        found = re.fullmatch(r"(_|-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", word)
        assert found, word
        first, step, times = found.groups()
        for n in range(int(times or 0) + (first != "_" or not times)):
            yield None if first == "_" else float(first) + n * float(step or 0)


@pytest.mark.parametrize(("alert", "example"), EXAMPLES)
def test_an_alert_is_true_where_the_rule_fires(alert: Alert, example: Firing | Quiet) -> None:
    """Each example of the alerts, at its time."""
    begun, after = time.time_ns() - 100 * 3600 * SECOND, int(example.at.total_seconds())
    every = int(example.interval.total_seconds())
    with closing(Store()) as store:
        for series in example.series:
            labels = dict(series.labels)
            labels["service"] = labels.pop("job")
            points = [
                point(METRICS[series.name], value, begun + n * every * SECOND, started_ns=begun, **labels)
                for n, value in enumerate(_values(series.values))
                if value is not None and n * every <= after
            ]
            store.write(Batch(points=points))
        # A rule goes on firing for a while when its condition is over, which the page does not.
        keeps = int(alert.keep_firing.total_seconds())
        for ago in (0, keeps) if isinstance(example, Firing) else (0,):
            scope = Scope(start_ns=0, end_ns=begun + (after - ago) * SECOND)
            true = evaluate(compare(alert.condition(SETTINGS), Numbers(store, scope)))
            if true:
                break
    assert bool(true) == isinstance(example, Firing), true
    if isinstance(example, Firing):
        ((labels_of, value),) = true.items()
        assert labels_of[0] == example.labels["job"]
        number, is_share = example.value.rstrip("%"), example.value.endswith("%")
        assert value == (pytest.approx(float(number) / 100, rel=0.05) if is_share else float(number))


def test_the_page_lists_every_alert(page: Served) -> None:
    """Those that need Prometheus or a Collector too, as such."""
    answer = page.ask("/alerts")
    assert [alert.name for alert in ALERTS if f'id="{alert.name}"' not in answer.text] == []
    assert answer.text.count("not here") == len(ALERTS) - len(ON_PAGE)


def test_the_page_needs_nothing_of_the_extra_grafana() -> None:
    """Its alerts are those that rules are generated from, without what reads PromQL or builds dashboards."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(('promql_parser', 'grafana_foundation_sdk')); "
        "from endturn.ui.alerts import ALERTS; print(len(ALERTS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(len(ALERTS))


def test_a_row_says_how_far_it_is_from_its_limit(page: Served) -> None:
    """A quiet one its value, limit and least number; a true one leads to its turns."""
    outcome: dict[str, Any] = {schema.OUTCOME.label: "not_continued"}

    def come(unfinished: int, instance: str) -> Answer:
        write(page.store, point(schema.TURNS, 40, instance=instance, **outcome | {schema.TRUNCATED.label: "true"}))
        write(page.store, point(schema.TRUNCATION_EXITS, unfinished, instance=instance, **outcome))
        return page.ask("/alerts")

    text = come(4, "one").words
    assert "10.0% (limit 7.2%) · 4 (at least 10)" in text
    assert "Unfinished turns of turns 1 h 10.0% above 7.2%" in text
    assert "No condition is true" in text
    assert "make up" not in text
    assert 'href="/turns?range=1h&amp;state=unfinished&amp;service=agent"' in come(8, "two").text


# --- Rules and page on the same situations -------------------------------------------------------------------------

HOURS = 8
SHAPES = {
    "all the time": (0, 480),
    "since forty minutes": (440, 480),
    "until three hours ago": (60, 300),
    "for five minutes, twenty minutes ago": (455, 460),
}
"""The minutes in which something happens in a situation, of 480 in all."""
NO, SOME, MOST = 0, 3, 17
"""Events in a hundred of one kind."""


@dataclass(frozen=True)
class Situation:
    """A service: when it works, at how many turns a minute, and what becomes of a hundred of them."""

    minutes: tuple[int, int]
    rate: int
    continued: int
    unfinished: int

    def counters(self) -> dict[str, list[int]]:
        """Each counter's value at the end of every minute, by its name and labels."""
        begin, end = self.minutes
        passed = [max(0, min(minute, end) - begin) * self.rate for minute in range(60 * HOURS + 1)]
        whole = 100 - self.continued - self.unfinished
        shares = {
            'endturn_turns_total{endturn_turn_outcome="completed"}': whole,
            'endturn_turns_total{endturn_turn_truncated="true",endturn_turn_outcome="completed"}': self.continued,
            'endturn_turns_total{endturn_turn_truncated="true",endturn_turn_outcome="retry_limit"}': self.unfinished,
            'endturn_turns_total{endturn_turn_outcome="cancelled"}': SOME,
            'endturn_truncation_exits_total{endturn_turn_outcome="retry_limit"}': self.unfinished,
            'endturn_truncation_exits_total{endturn_turn_outcome="cancelled"}': SOME,
            'endturn_responses_total{endturn_stop_reason="max_tokens"}': self.continued + self.unfinished,
            'endturn_responses_total{endturn_stop_reason="end_turn"}': whole,
            'endturn_responses_total{endturn_stop_reason="error"}': 50,
            "endturn_stop_reasons_unmapped_total{}": self.unfinished,
            "endturn_truncations_suspected_total{}": self.continued,
            'endturn_tool_payload_repairs_total{endturn_repair_result="failed"}': self.unfinished,
            'endturn_tool_payload_repairs_total{endturn_repair_result="succeeded"}': self.continued,
            'endturn_listener_failures_total{endturn_listener_name="Recorder"}': self.unfinished,
            'endturn_series_capped_total{endturn_series_capped_label="model"}': self.unfinished,
            'endturn_series_capped_total{endturn_series_capped_label="agent"}': NO,
        }
        return {series: [number * share // 100 for number in passed] for series, share in shares.items()}


SITUATIONS = {
    f"s{number}": Situation(*each)
    for number, each in enumerate(itertools.product(SHAPES.values(), (1, 60), (NO, SOME, 30), (NO, SOME, MOST)))
}


def _sure(condition: Condition, store: Store, begun: int) -> dict[str, bool]:
    """What the page answers for each service, where it says the same a few minutes earlier and is far from a limit."""
    answers: dict[str, set[bool]] = {job: set() for job in SITUATIONS}
    for minutes in (480, 477, 474):
        groups = compare(condition, Numbers(store, Scope(start_ns=0, end_ns=begun + minutes * 60 * SECOND)))
        true = {labels[0] for labels in evaluate(groups)}
        near = {
            labels[0]
            for group in groups
            for each in group
            for labels, value in each.values.items()
            if 0.6 * each.limit <= value <= 1.6 * each.limit
        }
        for job, said in answers.items():
            said |= {True, False} if job in near else {job in true}
    return {job: said.pop() for job, said in answers.items() if len(said) == 1}


@pytest.mark.stack
def test_rule_and_page_agree(tmp_path: Path) -> None:
    """For services of every kind, each rule's condition holds where the page says that it is true, and nowhere else."""
    begun = time.time_ns() - 100 * 3600 * SECOND
    series = {}
    points = []
    for job, situation in SITUATIONS.items():
        for text, values in situation.counters().items():
            name, _, inner = text.partition("{")
            own = {attribute.label for attribute in METRICS[name].attributes}
            model = {label: value for label, value in MODEL.items() if label in own}
            labels = dict(re.findall(r'(\w+)="([^"]*)"', inner)) | model | {"instance": job}
            written = ",".join(f'{key}="{value}"' for key, value in (labels | {"job": job}).items())
            series[f"{name}{{{written}}}"] = " ".join(map(str, values))
            changes = [n for n in range(len(values)) if n in (0, 480) or values[n] != values[n - 1]]
            points += [
                point(METRICS[name], values[n], begun + n * 60 * SECOND, started_ns=begun, service=job, **labels)
                for n in changes
            ]
    checks: list[tuple[str, str, dict[str, float]]] = []
    with closing(Store()) as store:
        store.write(Batch(points=points))
        for alert in ON_PAGE:
            condition = alert.condition(SETTINGS)
            sure = _sure(condition, store, begun)
            assert len(sure) > len(SITUATIONS) / 2, (alert.name, sorted(sure))
            assert {*sure.values()} == {True, False}, (alert.name, "is seen both ways")
            asked = f'endturn_turns_total{{job=~"{"|".join(sure)}"}}'
            rule = f"count by (job) (count by (job) ({to_promql(condition)}) and on (job) {asked})"
            checks.append((rule, "8h", {f'{{job="{job}"}}': 1.0 for job, said in sure.items() if said}))
    rules = yaml.safe_dump({"groups": [{"name": "recorded", "interval": "1m", "rules": recording_rules()}]})
    promtool.evaluate(tmp_path, series, checks, rules=rules, interval="1m")
