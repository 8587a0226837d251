"""The rules: six counts, and alerts that each fire where they should and are quiet where they should."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from endturn.generate import alerts as declared, dashboards, manifests, rules
from endturn.generate.alerts import Alert
from endturn.generate.config import RuleConfig
from endturn.generate.promql import selectors
from endturn.telemetry import schema
from tests.support import promtool
from tests.support.processes import REPOSITORY, require_stack

RULES = REPOSITORY / "dashboards" / "rules"
CONFIG = RuleConfig()
ALERTS = declared.alerts(CONFIG)
RECORDED = {rule["record"]: rule["expr"] for rule in rules.recorded()}
ON_EVERY_SERIES = {"job", "instance", "deployment_environment_name", "cluster"}
LABELS = {"__name__", "job", "error_type", "error", "exporter", "receiver"}
COLLECTORS = (
    "up",
    "otelcol_exporter_queue_size",
    "otelcol_exporter_queue_capacity",
    "otelcol_kafka_receiver_current_offset",
    "otelcol_kafka_receiver_offset_lag",
)
OTHERS = {"ALERTS": {"alertname", "alertstate"}, "": LABELS} | {name: {"job"} for name in COLLECTORS}
"""Series that are not ours, and those that are read by a pattern for their names."""


def test_six_counts_are_recorded_and_no_more() -> None:
    """By service, provider and model, and by service; nobody has to read more than six lines."""
    assert list(RECORDED) == [
        "endturn:turns:count5m", "endturn:turns_truncated:count5m", "endturn:turns_unfinished:count5m",
        "endturn:service_turns:count5m", "endturn:service_truncated:count5m", "endturn:service_unfinished:count5m",
    ]  # fmt: skip
    assert all(len(expr.splitlines()) <= 6 for expr in RECORDED.values())
    assert all(len(alert.expr.splitlines()) <= 6 for alert in ALERTS)


def test_alerts_are_few() -> None:
    """One more has to be worth its reader's attention: say so where the number is raised."""
    assert len(ALERTS) <= 20  # a full queue wakes somebody, for what comes next is lost


def test_who_pages() -> None:
    """Half answers that reach people do, Collectors that are down, for then nobody could be told of those, and a full
    queue, for then telemetry is lost."""
    assert [alert.name for alert in ALERTS if alert.severity == "critical"] == [
        "EndturnTurnsUnfinished",
        "EndturnCollectorsDown",
        "EndturnQueueFull",
    ]


def test_turns_that_a_person_stopped_are_nowhere() -> None:
    """Cancelled and stopped turns are recorded on neither side of a share."""
    for name in ("turns", "turns_truncated", "turns_unfinished"):
        assert 'endturn_turn_outcome!~"cancelled|stopped"' in RECORDED[rules.name(name)]


@pytest.mark.parametrize("expr", [*RECORDED.values(), *(alert.expr for alert in ALERTS)])
def test_rules_read_what_exists(expr: str) -> None:
    """Each reads metrics of the schema or recorded counts, by labels that they have and values that there are."""
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


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_alerts_lead_somewhere(alert: Alert) -> None:
    """To a runbook page that is committed, and a dashboard that there is."""
    page = REPOSITORY / "docs" / "runbooks" / alert.annotations["runbook_url"].rpartition("/")[2]
    assert page.read_text().splitlines()[2] == f"# {alert.name}"
    uids = {json.loads(text)["uid"] for text in dashboards.files(CONFIG).values()}
    assert alert.dashboard in uids
    assert alert.annotations["dashboard_url"].startswith(f"{CONFIG.grafana}/d/{alert.dashboard}")


def test_runbooks_name_panels_that_there_are() -> None:
    """What a runbook sets in italics is the beginning of a panel's title, or a dashboard's name."""
    boards = [json.loads(text) for text in dashboards.files(CONFIG).values()]
    panels = [inner for board in boards for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
    titles = [panel["title"] for panel in panels] + [board["title"].removeprefix("endturn / ") for board in boards]
    for alert in ALERTS:
        for named in re.findall(r"(?<!\*)\*([^*`]+)\*(?!\*)", " ".join((*alert.look, *alert.act))):
            assert any(title.startswith(named) for title in titles), (alert.name, named)


def test_links_carry_the_environment_where_there_is_one() -> None:
    """The dashboard opens on the service, provider, model and environment that the alert is about."""
    [unknown] = [alert for alert in ALERTS if alert.name == "EndturnStopReasonUnknown"]
    labels = {"job": "shop/agent", "deployment_environment_name": "prod eu", "gen_ai_request_model": "gpt-5"}
    url = declared.shown(unknown, {"labels": labels, "shows": "3"})["dashboard_url"]
    assert url.endswith("/d/endturn-stops?var-job=shop%2Fagent&var-environment=prod+eu&var-model=gpt-5")


def test_the_page_of_a_cluster_opens_the_dashboard_on_it() -> None:
    """Where there are no clusters, on everything."""
    [down] = [alert for alert in ALERTS if alert.name == "EndturnCollectorsDown"]
    urls = [
        declared.shown(down, {"labels": labels, "shows": "0"})["dashboard_url"] for labels in ({"cluster": "a b"}, {})
    ]
    assert [url.rpartition("/")[2] for url in urls] == ["endturn-pipeline?var-cluster=a+b", "endturn-pipeline"]


def test_the_page_on_alerts_says_which_concern_the_platform() -> None:
    """The names to route on are those of the alerts that there are with a Collector alone."""
    page = (REPOSITORY / "docs" / "alerts.md").read_text()
    [pattern] = re.findall(r'`alertname=~"(.+)"`', page)
    without = {alert.name for alert in declared.alerts(RuleConfig(collector=""))}
    assert {a.name for a in ALERTS if re.fullmatch(pattern, a.name)} == {a.name for a in ALERTS} - without


def test_every_alert_is_tested_both_ways() -> None:
    """The committed rule tests have a firing and a quiet case for each alert."""
    tests = yaml.safe_load((REPOSITORY / manifests.TESTS).read_text())["tests"]
    seen = {(case["alertname"], "exp_alerts" in case) for test in tests for case in test["alert_rule_test"]}
    assert seen == {(alert.name, fires) for alert in ALERTS for fires in (True, False)}


# --- Promtool -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["built", "2.42"])
def program(request: pytest.FixtureRequest) -> Path:
    """The promtool that is built from the pins, and the oldest that the rules promise to run on."""
    return require_stack("prometheus")["promtool"] if request.param == "built" else promtool.oldest()


@pytest.mark.stack
def test_promtool_accepts_and_runs_the_committed_rules(program: Path) -> None:
    """No lint finds anything, and every example fires or is quiet, in the current version and in 2.42."""
    promtool.run("check", "rules", "--lint=all", "--lint-fatal", "endturn.yaml", cwd=RULES, program=program)
    promtool.run("test", "rules", "endturn.yaml", cwd=RULES / "tests", program=program)


@pytest.mark.stack
@pytest.mark.parametrize(
    ("values", "turns"),
    [
        pytest.param("0x40 0+10x40 400x60", 400, id="telemetry without a gap"),
        pytest.param("0x40 _x12 400x90", 400, id="a gap of three minutes"),
        pytest.param("0x40 _x38 400x90", 400, id="a gap of nearly ten minutes"),
        pytest.param("7x40 _x80 400x90", 0, id="a gap of twenty: a new beginning"),
        pytest.param("0 7 _x100", 7, id="a process that ends at once"),
        pytest.param("_x3 7x100", 0, id="a first value that had no zero before it"),
        # Two in a hundred may be missing then: `increase` sees no zero in its window.
        pytest.param("0+10x40 400x19 0+10x10 100x60", 500, id="an id that begins anew"),
        pytest.param("500x40 _x6 0+10x20 200x60", 200, id="an id that begins anew after a gap"),
        pytest.param("0+12x40 480x20 0 0 0+12x40 480x60", 960, id="an id that begins anew and comes as far"),
    ],
)
def test_each_turn_is_counted_once_whatever_gaps_there_are(values: str, turns: int, tmp_path: Path) -> None:
    """`sum_over_time(rule[window]) / 5` is the number of turns, to within a fortieth."""
    counted = f"round(sum_over_time(endturn:service_turns:count5m[2h]) / 5, {max(1, turns // 20)})"
    series = {'endturn_turns_total{job="a",endturn_turn_outcome="completed"}': values}
    rules = (RULES / "endturn.yaml").read_text()
    promtool.evaluate(tmp_path, series, [(counted, "2h", {'{job="a"}': turns})], rules=rules)


@pytest.mark.stack
def test_a_service_apart_is_asked_what_its_section_says(tmp_path: Path) -> None:
    """One service is only watched, another has a milder objective, and nothing is asked of any staging environment."""
    config = RuleConfig.model_validate(
        {
            "services": {
                "shop/watched": {"page": False},
                "shop/rough": {"objective": 0.95},
                "*": {"environments": {"staging": {"page": False, "tickets": False}}},
            }
        }
    )
    series = {}
    for job, environment in (("agent", "prod"), ("agent", "staging"), ("watched", "prod"), ("rough", "prod")):
        labels = f'job="shop/{job}",deployment_environment_name="{environment}",instance="one"'
        series[f"endturn_turns_total{{{labels}}}"] = "0+10x480"
        series[f"endturn_truncation_exits_total{{{labels}}}"] = "0+2x480"
    looked = " or ".join(
        f'count by (alertname, job, deployment_environment_name) (ALERTS{{alertname="{name}",alertstate="firing"}})'
        for name in ("EndturnTurnsUnfinished", "EndturnBudgetBurning")
    )
    fires = [
        ("EndturnTurnsUnfinished", "shop/agent"),
        *(("EndturnBudgetBurning", job) for job in ("shop/agent", "shop/rough", "shop/watched")),
    ]
    expected = {f'{{alertname="{name}",job="{job}",deployment_environment_name="prod"}}': 1.0 for name, job in fires}
    text = manifests.files(config)[manifests.RULES]
    promtool.evaluate(tmp_path, series, [(looked, "1h30m", expected)], rules=text)
    promtool.run("check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", cwd=tmp_path)
