"""The rules: six counts, and alerts that fire, and stay quiet, on their examples."""

from __future__ import annotations

import itertools
import math
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from endturn.generate import manifests
from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.model import AlertSettings, Component
from endturn.generate.config import FAST, FAST_TICKET, SLOW, TICKET, AlertLimits, RuleConfig
from endturn.generate.recorded_counts import MODEL_COUNTS, recording_rules
from endturn.generate.rule_tests import filled_annotations
from endturn.generate.rules import AlertRule, alert_rules
from endturn.telemetry import schema
from tests.generate.test_dashboards import BY_NAME, PANELS
from tests.support import promtool
from tests.support.processes import REPOSITORY
from tests.support.promql import selectors

RULES = REPOSITORY / "dashboards" / "rules"
CONFIG = RuleConfig()
ALERT_RULES = alert_rules(CONFIG)
RECORDED = {rule["record"]: rule["expr"] for rule in recording_rules()}
ON_EVERY_SERIES = {"job", "instance", "deployment_environment_name", "cluster"}
LABELS = {"__name__", "job", "error_type", "error", "exporter", "receiver"}
GAUGES = ("up", "otelcol_exporter_queue_size", "otelcol_exporter_queue_capacity")
COUNTERS = {
    f"{name}{suffix}": {"job", label}
    for name, label in (
        ("otelcol_exporter_sent_spans", "exporter"),
        ("otelcol_receiver_accepted_spans", "receiver"),
        ("otelcol_kafka_receiver_messages", "topic"),
    )
    for suffix in ("", "_total")
}
OTHERS = COUNTERS | {"ALERTS": {"alertname", "alertstate"}, "": LABELS} | {name: {"job"} for name in GAUGES}
"""Series that are not ours, and those that are read by a pattern for their names."""


def test_six_counts_are_recorded() -> None:
    """By service, provider and model, and by service. Turns that a person stopped are on neither side of a share."""
    assert list(RECORDED) == [
        "endturn:turns:count5m", "endturn:turns_truncated:count5m", "endturn:turns_unfinished:count5m",
        "endturn:service_turns:count5m", "endturn:service_truncated:count5m", "endturn:service_unfinished:count5m",
    ]  # fmt: skip
    assert all(len(expr.splitlines()) <= 6 for expr in (*RECORDED.values(), *(rule.expression for rule in ALERT_RULES)))
    named = [RECORDED[name] for name in MODEL_COUNTS.values()]
    assert all('endturn_turn_outcome!~"cancelled|stopped"' in expr for expr in named)


def test_few_alerts_page() -> None:
    """Truncated answers that reach people do, Collectors that are down, since such answers would go unnoticed, and a
    full queue, since telemetry is lost.
    """
    pages = [alert.name for alert in ALERTS if alert.severity == "critical"]
    assert pages == ["EndturnTurnsUnfinished", "EndturnCollectorsDown", "EndturnQueueFull"]


@pytest.mark.parametrize("expr", [*RECORDED.values(), *(rule.expression for rule in ALERT_RULES)])
def test_rules_read_existing_series(expr: str) -> None:
    """Each reads metrics of the schema or recorded counts, by existing labels and values."""
    metrics = {metric.prometheus: metric.attributes for metric in schema.METRICS}
    for name, matchers in selectors(expr):
        if name in RECORDED:
            assert {label for label, _ in matchers} <= ON_EVERY_SERIES
        elif name in OTHERS:
            assert {label for label, _ in matchers} <= OTHERS[name]
        else:
            attributes = {attribute.label: attribute for attribute in metrics[name]}
            for label, value in matchers:
                known = {*attributes[label].values, "true", "false"}
                assert set(value.split("|")) <= known, (name, label)


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule.alert.name)
def test_alerts_lead_somewhere(rule: AlertRule) -> None:
    """Each alert links to a committed runbook page and an existing dashboard."""
    page = REPOSITORY / "docs" / "runbooks" / rule.runbook_url.rpartition("/")[2]
    assert page.read_text().splitlines()[2] == f"# {rule.alert.name}"
    assert rule.alert.dashboard in {board["uid"] for board in BY_NAME.values()}
    assert rule.dashboard_url.startswith(f"{CONFIG.grafana}/d/{rule.alert.dashboard}")


def test_runbooks_name_existing_panels() -> None:
    """Text in italics in a runbook is the beginning of a panel's title, or a dashboard's name."""
    titles = [panel["title"] for panel in PANELS]
    titles += [board["title"].removeprefix("endturn / ") for board in BY_NAME.values()]
    for alert in ALERTS:
        text = " ".join((*alert.runbook.diagnosis, *alert.runbook.actions))
        for named in re.findall(r"(?<!\*)\*([^*`]+)\*(?!\*)", text):
            assert any(title.startswith(named) for title in titles), (alert.name, named)


@pytest.mark.parametrize(
    ("name", "labels", "leads"),
    [
        (
            "StopReasonUnknown",
            {"job": "shop/agent", "deployment_environment_name": "prod eu", "gen_ai_request_model": "gpt-5"},
            "stops?var-job=shop%2Fagent&var-environment=prod+eu&var-model=gpt-5",
        ),
        ("CollectorsDown", {"cluster": "a b"}, "pipeline?var-cluster=a+b"),
        ("CollectorsDown", {}, "pipeline"),
    ],
)
def test_a_link_opens_the_dashboard_on_what_the_alert_is_about(name: str, labels: dict[str, str], leads: str) -> None:
    """It sets service, provider, model, environment and cluster; without these, the dashboard shows everything."""
    [rule] = [each for each in ALERT_RULES if each.alert.name == f"Endturn{name}"]
    example = replace(rule.alert.fires[0], labels=labels)
    url = filled_annotations(rule, example)["dashboard_url"]
    assert url.endswith(f"/d/endturn-{leads}")


def test_alerts_are_routed_by_component() -> None:
    """`pipeline` has the alerts that need a Collector; each rule has the label, and the guide names it."""
    without = {rule.alert.name for rule in alert_rules(RuleConfig(collector=""))}
    assert {each.name for each in ALERTS if each.component == "service"} == without
    assert all(rule.labels["component"] == rule.alert.component for rule in ALERT_RULES)
    page = (REPOSITORY / "docs" / "alerts.md").read_text()
    assert all(f'component="{component}"' in page for component in Component)


def test_the_guide_has_a_row_for_each_alert() -> None:
    """With its severity, and when it fires: a part of a sentence, with the limits that are configured by default."""
    page = (REPOSITORY / "docs" / "alerts.md").read_text()
    rows = re.findall(r"^\| `(Endturn\w+)` \| (critical|warning) \| (.+) \|$", page, re.MULTILINE)
    assert [name for name, _, _ in rows] == [alert.name for alert in ALERTS]
    assert [severity for _, severity, _ in rows] == [alert.severity for alert in ALERTS]
    assert [name for name, _, when in rows if when.endswith(".")] == []
    [suspected] = [alert for alert in ALERTS if alert.name == "EndturnTruncationSuspected"]
    assert suspected.fires_when(AlertSettings(limits=AlertLimits(suspected=7))).startswith("7 responses")


def test_commands_of_runbooks_can_be_pasted() -> None:
    """None has an ellipsis or an angle bracket for a part that the reader must fill in."""
    for alert in ALERTS:
        steps = (*alert.runbook.diagnosis, *alert.runbook.actions, alert.runbook.recovery)
        commands = [code for step in steps for code in re.findall("`([^`]+)`", step) if " " in code]
        assert [code for code in commands if re.search(r"…|\.\.\.|<\w+>", code)] == [], alert.name


@pytest.mark.parametrize("expression", [*RECORDED.values(), *(rule.expression for rule in ALERT_RULES)])
def test_no_rule_reads_a_rules_result_through_the_lookback(expression: str) -> None:
    """Recorded series and `ALERTS` are read only as ranges.

    An instant selector has, for five minutes after a restart of Prometheus, the value from before the restart.
    """
    assert [name for name in _instant_selectors(promql_parser.parse(expression)) if _is_result(name)] == []


def test_the_law_about_the_lookback_finds_a_breach() -> None:
    for breach in ("sum(endturn:turns:count5m)", "max_over_time(endturn:turns:count5m[1h:1m])", "up unless ALERTS"):
        assert any(map(_is_result, _instant_selectors(promql_parser.parse(breach))))


def _is_result(name: str) -> bool:
    return name.startswith("endturn:") or name == "ALERTS"


def _instant_selectors(node: Any) -> Iterator[str]:
    """The names of an expression's instant selectors, within subqueries too."""
    match node:
        case promql_parser.VectorSelector():
            yield str(node.name or "")
        case promql_parser.MatrixSelector():
            return
        case _:
            children = [getattr(node, name, None) for name in ("expr", "lhs", "rhs")]
            for child in (*children, *(getattr(node, "args", None) or ())):
                if child is not None:
                    yield from _instant_selectors(child)


@pytest.mark.stack
@pytest.mark.parametrize("which", ["built", "2.42"])
def test_a_restart_counts_nothing_again(which: str, tmp_path: Path) -> None:
    """The test records two minutes after a restart, while results from before it are still within the lookback.

    The service ended with 193 turns in the minute of the last evaluation before Prometheus stopped; five minutes later
    they are outside the window, and are not counted again, although the results are visible for another minute.
    """
    program = promtool.oldest() if which == "2.42" else None
    labels = 'job="shop/agent",gen_ai_provider_name="openai",gen_ai_request_model="m"'
    series = {
        f'endturn_turns_total{{{labels},instance="one"}}': "0 193x3 _x20",
        f"endturn:turns:count5m{{{labels}}}": "_x3 193 _x20",
        f"endturn:turns_truncated:count5m{{{labels}}}": "_x3 7 _x20",
        f"endturn:turns_unfinished:count5m{{{labels}}}": "_x3 7 _x20",
    }
    checks: list[tuple[str, str, dict[str, float]]] = [
        (f"({expression}) > 0", "7m30s", {}) for expression in RECORDED.values()
    ]
    before = [("sum(endturn:turns:count5m)", "7m30s", {"{}": 193.0})]
    promtool.evaluate(tmp_path, series, [*checks, *before], interval="1m", program=program)


@pytest.mark.stack
@pytest.mark.parametrize("which", ["built", "2.42"])
def test_both_spellings_of_a_counter_may_exist_at_once(which: str, tmp_path: Path) -> None:
    """After an upgrade of the Collector, no rule about it fails because two names give the same series."""
    program = promtool.oldest() if which == "2.42" else None
    kafka = {"exporter": "kafka/turns", "receiver": "kafka/turns", "topic": "endturn.turns", "partition": "0"}
    labels = ",".join(f'{key}="{value}"' for key, value in ({"job": "collector", "instance": "a"} | kafka).items())
    names = re.findall(r"otelcol_\w+", " ".join(rule.expression for rule in ALERT_RULES))
    counters = {name for name in names if f"{name}_total" in names or "kafka" in name}
    series = {f"{name}{{{labels}}}": "0+9x900" for name in counters}
    rules = [rule for rule in ALERT_RULES if "kafka" in rule.expression]
    checks = [(f"absent(({rule.expression}) < 0) * 0", "12h", {"{}": 0.0}) for rule in rules]
    promtool.evaluate(tmp_path, series, checks, interval="1m", program=program)


def test_every_alert_is_tested_both_ways() -> None:
    """The committed rule tests have a firing and a quiet case for each alert."""
    files = (REPOSITORY / manifests.TESTS).glob("*.yaml")
    tests = [test for file in files for test in yaml.safe_load(file.read_text())["tests"]]
    seen = {(case["alertname"], "exp_alerts" in case) for test in tests for case in test["alert_rule_test"]}
    assert seen == {(alert.name, fires) for alert in ALERTS for fires in (True, False)}


# --- Promtool -----------------------------------------------------------------------------------------------------


@pytest.mark.stack
@pytest.mark.parametrize("which", ["built", "2.42"])
def test_promtool_accepts_and_runs_the_committed_rules(which: str) -> None:
    """No lint reports a problem, and all examples pass, in the current version and the oldest supported one."""
    program = promtool.oldest() if which == "2.42" else None
    promtool.run("check", "rules", "--lint=all", "--lint-fatal", "endturn.yaml", cwd=RULES, program=program)
    tests = [file.name for file in (RULES / "tests").glob("*.yaml")]
    promtool.run("test", "rules", *sorted(tests), cwd=RULES / "tests", program=program)


def test_rule_tests_test_the_shipped_rules() -> None:
    """Each tested rule is identical to a shipped one, and the rules that it reads are included."""
    shipped = [
        rule for group in yaml.safe_load((RULES / "endturn.yaml").read_text())["groups"] for rule in group["rules"]
    ]
    tested = []
    for file in (RULES / "tests" / "rules").glob("*.yaml"):
        rules = [rule for group in yaml.safe_load(file.read_text())["groups"] for rule in group["rules"]]
        recorded = {rule["record"] for rule in rules if "record" in rule}
        read = {name for rule in rules for name, _ in selectors(rule["expr"]) if name.startswith("endturn:")}
        assert read == recorded
        tested += [rule["alert"] for rule in rules if rule.get("alert") == file.stem]
        assert [rule for rule in rules if rule not in shipped] == []
    assert sorted(tested) == sorted(alert.name for alert in ALERTS)


@pytest.mark.stack
def test_a_service_apart_is_asked_what_its_section_says(tmp_path: Path) -> None:
    """One service is only observed, another has a lower objective, and staging environments have no alerts."""
    services = {
        "shop/watched": {"page": False},
        "shop/rough": {"objective": 0.95},
        "*": {"environments": {"staging": {"page": False, "tickets": False}}},
    }
    config = RuleConfig.model_validate({"services": services})
    series = {}
    for job, environment in (("agent", "prod"), ("agent", "staging"), ("watched", "prod"), ("rough", "prod")):
        labels = f'job="shop/{job}",deployment_environment_name="{environment}",instance="one"'
        series[f"endturn_turns_total{{{labels}}}"] = "0+10x480"
        series[f"endturn_truncation_exits_total{{{labels}}}"] = "0+2x480"
    looked = " or ".join(
        f'count by (alertname, job, deployment_environment_name) (ALERTS{{alertname="{name}",alertstate="firing"}})'
        for name in ("EndturnTurnsUnfinished", "EndturnBudgetBurning")
    )
    fires = [("TurnsUnfinished", "agent"), *(("BudgetBurning", job) for job in ("agent", "rough", "watched"))]
    expected = {
        f'{{alertname="Endturn{name}",job="shop/{job}",deployment_environment_name="prod"}}': 1.0 for name, job in fires
    }
    text = manifests.files(config)[manifests.RULES]
    promtool.evaluate(tmp_path, series, [(looked, "1h30m", expected)], rules=text)
    promtool.run("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)


# --- A model of burn rates ----------------------------------------------------------------------------------------

HOUR, DAY = 60, 24 * 60
"""In minutes: what the model counts in, as the rules are evaluated once a minute."""
PAIRS = {
    "EndturnTurnsUnfinished": ((FAST, HOUR, 15), (SLOW, 6 * HOUR, 30)),
    "EndturnBudgetBurning": ((TICKET, 3 * DAY, 6 * HOUR), (FAST_TICKET, HOUR, 15)),
}
"""Burn rate, long window, short window; the alerts have the same."""
Service = tuple[Sequence[int], Sequence[int]]
"""A service's turns: at which minute each ended, and which of them were handed over unfinished."""


def between(minutes: Sequence[int], end: int, window: int) -> int:
    """Return the number of events in a window of this many minutes that ends with the minute."""
    return bisect_right(minutes, end) - bisect_right(minutes, end - window)


def holds(service: Service, at: int, name: str, at_least: int) -> bool:
    """Return whether the alert's condition holds, from numbers."""
    turns, unfinished = service

    def share(window: int) -> float:
        whole = between(turns, at, window)
        return between(unfinished, at, window) / whole if whole else math.nan

    return any(
        between(unfinished, at, over) >= at_least
        and share(over) > rate * CONFIG.limits.budget
        and share(also) > rate * CONFIG.limits.budget
        for rate, over, also in PAIRS[name]
    )


def counter(minutes: Sequence[int], length: int) -> str:
    """Return a counter's values per minute, in promtool's notation."""
    return " ".join(str(bisect_right(minutes, minute)) for minute in range(length + 1))


@pytest.mark.stack
def test_promtool_agrees_with_the_model(tmp_path: Path) -> None:
    """For services of every kind, the rules' conditions hold exactly if the model's do, at several times."""
    rules = manifests.files(CONFIG)[manifests.RULES]
    expressions = {rule["alert"]: rule["expr"] for rule in yaml.safe_load(rules)["groups"][1]["rules"]}
    source, length, blur = random.Random(3), 9 * HOUR, 12
    services: dict[str, Service] = {}
    series = {}
    for hourly, share in itertools.product((4, 30, 240), (0, 0.02, 0.1, 0.6)):
        turns = sorted(source.randrange(20, length) for _ in range(hourly * 9))
        # Trouble begins in the third hour and ends in the eighth: short windows are over before long ones are.
        unfinished = [minute for minute in turns if 150 <= minute < 460 and source.random() < share]
        job = f"s{len(services)}"
        services[job] = turns, unfinished
        labels = f'job="{job}",instance="one",gen_ai_provider_name="openai",gen_ai_request_model="m"'
        series[f"endturn_turns_total{{{labels}}}"] = counter(turns, length)
        series[f"endturn_truncation_exits_total{{{labels}}}"] = counter(unfinished, length)
    checks: list[tuple[str, str, dict[str, float]]] = []
    for name, at in itertools.product(PAIRS, (200, 300, 420, 520)):
        # A count is recorded over five evaluations: a window's edge is that much blurred. Asked is about services of
        # which the model says the same over the blur.
        sure = {
            job: {holds(service, at - back, name, few) for back in range(blur) for few in (9, 10, 11)}
            for job, service in services.items()
        }
        unsure = [job for job, said in sure.items() if len(said) > 1]
        assert len(unsure) <= len(services) // 2, "most services can be told"
        kept = f'endturn:service_turns:count5m{{job!~"{"|".join(unsure) or "none"}"}}'
        marked = f"count by (job) (({expressions[name]}) and on (job) {kept})"
        checks.append((marked, f"{at}m", {f'{{job="{job}"}}': 1.0 for job, said in sure.items() if said == {True}}))
    assert all(any(fires for expr, _, fires in checks if expressions[name] in expr) for name in PAIRS), "each is seen"
    promtool.evaluate(tmp_path, series, checks, rules=rules, interval="1m")
