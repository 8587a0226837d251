"""The page's alerts fire and stay quiet on the very series on which promtool says that the rules do."""

from __future__ import annotations

import itertools
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.conditions import (
    Condition,
    CountAtLeast,
    PrometheusOnly,
    ShareAbove,
    alternatives,
    to_promql,
)
from endturn.generate.alerts.model import Alert, Firing, Quiet
from endturn.generate.recorded_counts import recording_rules
from endturn.telemetry import Count, schema
from endturn.ui.alerts import SETTINGS, compare, evaluate
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.support import promtool
from tests.ui.support import SECOND, Answer, Served, point, span, write

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
    """Those that read what the page does not receive too, each with what it would need."""
    answer = page.ask("/alerts")
    assert [alert.name for alert in ALERTS if f'id="{alert.name}"' not in answer.text] == []
    elsewhere = len(ALERTS) - len(ON_PAGE)
    assert answer.text.count('class="card alert is-elsewhere"') == elsewhere == 10
    for needs, alerts in (
        ("the Collectors' own metrics", 8),
        ("the metrics of OpenTelemetry SDKs about themselves", 1),
        ("a day of counts that Prometheus recorded", 1),
    ):
        assert answer.words.count(f"It needs {needs}, which this page does not receive.") == alerts


def test_the_page_needs_nothing_of_the_extra_grafana() -> None:
    """Its alerts are those that rules are generated from, without what reads PromQL or builds dashboards."""
    code = (
        "import sys; sys.modules |= dict.fromkeys(('promql_parser', 'grafana_foundation_sdk')); "
        "from endturn.ui.alerts import ALERTS; print(len(ALERTS))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(len(ALERTS))


OUTCOME: dict[str, Any] = {schema.OUTCOME.label: "not_continued"}


def turns(page: Served, number: int, unfinished: int, *, instance: str = "one", finished: int = 0) -> Answer:
    """Have so many turns end, all truncated if `finished` of them were continued; the page of alerts then."""
    truncated = {schema.TRUNCATED.label: "true"} if finished else {}
    write(page.store, point(schema.TURNS, number, instance=instance, **OUTCOME | truncated))
    write(page.store, point(schema.TRUNCATION_EXITS, unfinished, instance=instance, **OUTCOME))
    return page.ask("/alerts")


def classes(answer: Answer) -> dict[str, str]:
    """The state of each alert of the page, as its style has it."""
    return {name: state for state, name in re.findall(r'class="card alert is-([a-z-]+)" id="(\w+)"', answer.text)}


def test_too_few_turns_are_a_state_of_their_own(page: Served) -> None:
    """Above the limit but of too few turns is neither firing nor quiet; the number says how many are missing."""
    answer = turns(page, 40, 4)
    assert classes(answer)["EndturnTurnsUnfinished"] == "few"
    assert "10.0% (limit 7.2%) · 4 of 10 needed" in answer.words
    assert (
        "Too few to tell : 10.0% of turns unfinished in 1 h (limit 7.2%) and 10.0% in 15 min, "
        "but only 4 unfinished turns (at least 10)."
    ) in answer.words
    assert f"None of {len(ON_PAGE)} fires now. 2 are above the limit, but of too few turns to tell." in answer.words


def test_a_firing_alert_leads_to_its_turns(page: Served) -> None:
    """With its service chosen, in the range of its window."""
    answer = turns(page, 40, 12)
    assert classes(answer)["EndturnTurnsUnfinished"] == "firing"
    assert 'href="/turns?range=1h&amp;state=unfinished&amp;service=agent"' in answer.text


def test_met_and_unmet_branches_are_told_apart(page: Served) -> None:
    """Five percent are too many for six hours, and not for one: the second branch is dim, and says what is missing."""
    answer = turns(page, 400, 20)
    assert (
        "Met : 5.0% of turns unfinished in 6 h (limit 3.0%) and 5.0% in 30 min and 20 unfinished turns (at least 10). "
        "or: not met: 5.0% of turns unfinished in 1 h (limit 7.2%) and 5.0% in 15 min; "
        "met: 20 unfinished turns (at least 10)."
    ) in answer.words
    met, unmet = re.findall(r'<p class="branch( dim)?">', answer.text)[:2]
    assert (met, unmet) == ("", " dim")


def test_a_service_that_is_only_observed_has_enough_turns(page: Served) -> None:
    """It never finished a truncated turn, which no number of turns would change: quiet, not too few to tell."""
    write(page.store, point(schema.TURNS, 40, **OUTCOME | {schema.TRUNCATED.label: "true"}))
    write(page.store, point(schema.TRUNCATION_EXITS, 40, **OUTCOME))
    answer = page.ask("/alerts")
    assert classes(answer)["EndturnTruncatedNotContinued"] == "quiet"
    assert "met: 100% of truncated turns unfinished in 6 h (limit 20.0%)" in answer.words


def test_nothing_is_not_quiet(page: Served) -> None:
    """Without metrics no alert is quiet, and the page says so; spans alone do not change that."""
    on_page = {alert.name for alert in ON_PAGE}
    for _ in range(2):
        answer = page.ask("/alerts")
        assert {name for name, state in classes(answer).items() if state == "no-data"} == on_page
        assert "No metrics have arrived, so no condition can be evaluated." in answer.words
        page.post("traces", span())
    assert classes(turns(page, 40, 0))["EndturnTurnsUnfinished"] == "quiet"


def test_old_numbers_are_no_data(page: Served) -> None:
    """What the condition looks back on is empty, though metrics came four days ago."""
    then = time.time_ns() - 4 * 86400 * SECOND
    write(page.store, point(schema.TURNS, 40, then, **OUTCOME))
    answer = page.ask("/alerts")
    assert set(classes(answer).values()) == {"no-data", "elsewhere"}
    assert "Nothing arrived in the time that the conditions look back on" in answer.words


def test_comparisons_of_the_same_counts_have_the_same_words() -> None:
    """A share is "of …", and a number has a singular and a plural; two alerts name one count alike."""
    words: dict[tuple[Count, Count | None], set[str | tuple[str, str]]] = {}
    for alert in ON_PAGE:
        for each in itertools.chain(*alternatives(alert.condition(SETTINGS))):
            if isinstance(each, ShareAbove):
                assert each.phrase.startswith("of ")
                words.setdefault((each.part, each.total), set()).add(each.phrase)
            else:
                assert len(set(each.noun)) == 2
                words.setdefault((each.count, each.without), set()).add(each.noun)
    assert [named for named in words.values() if len(named) > 1] == []


def test_an_alert_about_any_metric_has_words_and_pages(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its declaration alone is enough for the local page."""
    blocked = CountAtLeast(
        count=Count(schema.BLOCKED), over=timedelta(minutes=30), number=2, noun=("blocked call", "blocked calls")
    )
    alert = replace(ON_PAGE[0], name="EndturnCallsBlocked", condition=lambda _: blocked)
    monkeypatch.setattr("endturn.ui.alerts.ALERTS", (alert,))
    write(page.store, point(schema.TURNS, 40, **OUTCOME))
    write(page.store, point(schema.BLOCKED, 3, endturn_block_reason="truncated"))
    answer = page.ask("/alerts")
    assert classes(answer) == {"EndturnCallsBlocked": "firing"}
    assert "3 blocked calls in 30 min (at least 2)" in answer.words
    assert "The turns, worst first" in answer.words


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_every_runbook_is_on_the_page(page: Served, alert: Alert) -> None:
    """Each step and the expression; neither it nor the list leads to the internet."""
    answer = page.ask(f"/alerts/{alert.name}")
    assert answer.status == 200
    assert f'href="/alerts/{alert.name}"' in page.ask("/alerts").text
    plain = answer.words.replace(" ", "")
    for step in (*alert.runbook.diagnosis, *alert.runbook.actions, to_promql(alert.condition(SETTINGS))):
        assert re.sub(r"[`*\s]", "", step) in plain.replace("*", ""), step
    assert [link for link in answer.links() if "//" in link] == []


def test_a_runbook_of_no_alert_is_not_found(page: Served) -> None:
    assert page.ask("/alerts/EndturnNothing").status == 404
    assert [link for link in page.ask("/alerts").links() if "//" in link] == []


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


COUNTED = [
    each.part if isinstance(each, ShareAbove) else each.count
    for alert in ON_PAGE
    for each in itertools.chain(*alternatives(alert.condition(SETTINGS)))
]
"""What the alerts of the page count."""


def _series(counted: Count) -> str:
    """A series of what is counted, by its name and labels."""
    labels = ",".join(f'{attribute.label}="{min(values)}"' for attribute, values in counted.only)
    return f"{counted.metric.prometheus}{{{labels}}}"


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
            'endturn_tool_payload_repairs_total{endturn_repair_result="failed"}': self.unfinished,
            'endturn_tool_payload_repairs_total{endturn_repair_result="succeeded"}': self.continued,
            'endturn_series_capped_total{endturn_series_capped_label="model"}': self.unfinished,
            'endturn_series_capped_total{endturn_series_capped_label="agent"}': NO,
        }
        named = {series.partition("{")[0] for series in shares}
        shares |= {_series(each): self.unfinished for each in COUNTED if each.metric.prometheus not in named}
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
