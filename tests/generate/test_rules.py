"""The rules: each alert fires where it should and is quiet where it should, and increments are what happened."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.errors import UsageError
from endturn.generate import alerts as catalogue
from endturn.generate import dashboards, losses, slo
from endturn.generate.config import RuleConfig
from endturn.generate.declare import Alert, Example, Runbook, alert
from endturn.generate.manifests import rule_files
from endturn.generate.promql import Vector
from endturn.generate.rules import recorded, recording_rules
from endturn.telemetry import indicators
from tests.generate.parsed import known, labels, parse, selectors
from tests.support.processes import REPOSITORY, require_stack
from tests.support.promtool import oldest

RULES = REPOSITORY / "dashboards" / "rules"
TESTS = sorted(file.name for file in (RULES / "tests").glob("*.yaml"))
CONFIG = RuleConfig()
ALERTS = catalogue.alerts(CONFIG)

RUNBOOK = Runbook(meaning="It is so.", impact="All.", look=("Here.",), act=("Mend it.",))
VALID: dict[str, Any] = {
    "severity": "warning",
    "expression": Vector("up == 0", frozenset({"job"})),
    "config": CONFIG,
    "summary": "{{ $value }} of {{ $labels.job }}",
    "description": "Down.",
    "runbook": RUNBOOK,
    "fires": Example(says="down", series={"up": "0x10"}, after=5, labels={"job": "a"}, shows="0"),
    "quiet": Example(says="up", series={"up": "1x10"}, after=5),
}


def test_a_valid_alert_can_be_declared() -> None:
    """The declaration that the next test breaks in many ways is accepted as it stands."""
    assert isinstance(alert("EndturnDown", **VALID), Alert)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"runbook": replace(RUNBOOK, meaning="")}, "needs a runbook"),
        ({"runbook": replace(RUNBOOK, act=())}, "needs a runbook"),
        ({"summary": "Something is down"}, "shows the value"),
        ({"description": ""}, "needs a description"),
        ({"fires": replace(VALID["fires"], series={})}, "an example that fires"),
        ({"fires": replace(VALID["fires"], labels=None)}, "an example that fires"),
        ({"fires": replace(VALID["fires"], labels={"instance": "a"})}, "labelled by"),
        ({"quiet": replace(VALID["quiet"], series={})}, "stays quiet"),
        ({"quiet": VALID["fires"]}, "stays quiet"),
    ],
)
def test_an_incomplete_alert_cannot_be_declared(change: dict[str, Any], complaint: str) -> None:
    """Without runbook text, a telling summary, a firing and a quiet example there is no alert."""
    with pytest.raises(UsageError, match=complaint):
        alert("EndturnDown", **VALID | change)


@pytest.mark.parametrize("name", ["Down", "Endturn", "Endturn_Down", "endturnDown"])
def test_an_alert_is_called_after_what_is_wrong(name: str) -> None:
    """A name that does not begin with Endturn, or is not in CamelCase, is refused."""
    with pytest.raises(UsageError, match="CamelCase"):
        alert(name, **VALID)


@pytest.mark.parametrize("missing", ["runbook", "fires", "quiet"])
def test_runbook_and_examples_cannot_be_left_out(missing: str) -> None:
    """They have no default."""
    with pytest.raises(TypeError, match=missing):
        alert("EndturnDown", **{key: value for key, value in VALID.items() if key != missing})


def test_one_alert_alone_pages() -> None:
    """Truncation without continuation is the first alert, and the only one that wakes somebody."""
    assert [each.name for each in ALERTS if each.severity == "critical"] == ["EndturnTruncatedTurnsNotContinued"]
    assert ALERTS[0].severity == "critical"
    assert len({each.name for each in ALERTS}) == len(ALERTS)


def test_the_central_alert_ignores_whom_a_person_stopped() -> None:
    """Cancelled and stopped turns are recorded in neither side of the headline rate."""
    expressions = {rule["record"]: rule["expr"] for rule in recording_rules(CONFIG)}
    for count in (indicators.NOT_CONTINUED.part.count, indicators.NOT_CONTINUED.whole.count):
        assert 'endturn_turn_outcome!~"cancelled|stopped"' in expressions[recorded(count, CONFIG).name]


@pytest.mark.parametrize("declared", ALERTS, ids=lambda declared: declared.name)
def test_alerts_lead_somewhere(declared: Alert) -> None:
    """Each alert has the labels that its links filter by, and a runbook page that is committed."""
    assert labels(parse(declared.expression.text)) == declared.expression.labels
    page = REPOSITORY / "docs" / "runbooks" / declared.runbook_url.rpartition("/")[2]
    assert page.read_text().splitlines()[2] == f"# {declared.name}"
    assert re.match(re.escape(CONFIG.grafana) + r"/d/endturn-\w+", declared.dashboard_url)


ELSEWHERE = {"Status → Rule health": "a page of Prometheus", "it": "no name, a word that is stressed"}


def test_runbooks_name_panels_that_there_are() -> None:
    """What a runbook sets in italics is the beginning of a panel's title, or a dashboard's name."""
    boards = [json.loads(text) for text in dashboards.files(CONFIG).values()]
    titles = [panel["title"] for board in boards for panel in board["panels"]]
    titles += [board["title"].removeprefix("endturn / ") for board in boards]
    for declared in ALERTS:
        for named in re.findall(
            r"(?<!\*)\*([^*`]+)\*(?!\*)", " ".join((*declared.runbook.look, *declared.runbook.act))
        ):
            assert named in ELSEWHERE or any(title.startswith(named) for title in titles), (declared.name, named)


def test_annotations_are_filled_in_as_prometheus_would() -> None:
    """Values and labels of the example stand in its annotations, escaped in links."""
    by_name = {each.name: each for each in ALERTS}
    shown = ALERTS[0].shown(ALERTS[0].fires[0])
    assert shown["summary"] == "50% of the truncated turns of shop/agent ended unfinished"
    exhausted = by_name["EndturnContinuationsExhausted"]
    shown = exhausted.shown(exhausted.fires[0])
    assert "var-job=shop%2Fagent&var-provider=openai" in shown["dashboard_url"]
    assert "{{" not in "".join(shown.values())


@pytest.mark.parametrize("config", [CONFIG, CONFIG.faster(60)], ids=["production", "60 times faster"])
def test_rules_read_what_exists(config: RuleConfig) -> None:
    """Every expression is understood, and reads declared or recorded series by labels that they have."""
    series = known(config)
    written = [yaml.safe_load(text) for path, text in rule_files(config).items() if "/tests/" not in path]
    for rule in [rule for file in written for group in file["groups"] for rule in group["rules"]]:
        for name, asked in selectors(rule["expr"]):
            assert name in series, f"{rule}: {name}"
            assert asked <= series[name], f"{rule}: {name}"


def test_recorded_series_have_the_labels_that_others_rely_on() -> None:
    """What a recording rule aggregates by is what its selector says it has."""
    expressions = {rule["record"]: rule["expr"] for rule in recording_rules(CONFIG)}
    for count in indicators.COUNTS:
        selector = recorded(count, CONFIG)
        assert labels(parse(expressions[selector.name])) == selector.labels
    expressions = {rule["record"]: rule["expr"] for rule in slo.recording_rules(CONFIG)}
    assert expressions.keys() == {selector.name for selector in slo.recorded(CONFIG)}
    for selector in slo.recorded(CONFIG):
        assert labels(parse(expressions[selector.name])) == selector.labels, selector.name
    kept = (losses.recorded("lost", CONFIG), losses.recorded("refused", CONFIG))
    for rule in [each for each in losses.recording_rules(CONFIG) if "labels" in each]:
        made = labels(parse(str(rule["expr"]))) | {losses.SIGNAL, losses.CAUSE}
        [selector] = [each for each in kept if each.name == rule["record"]]
        assert made <= selector.labels <= made | {losses.EXPORTER}


def test_a_faster_clock_scales_everything() -> None:
    """One configuration carries all durations: on a clock 60 times as fast, every duration is a 60th."""
    fast = CONFIG.faster(60)
    assert (fast.interval, fast.increase, fast.lookback, fast.window, fast.hold) == (1, 5, 60, 60, 2)
    assert fast.overlap == CONFIG.overlap
    written = yaml.safe_load(rule_files(fast)["dashboards/rules/alerts.yaml"])
    [group] = written["groups"]
    first = group["rules"][0]
    assert (group["interval"], first["for"], first["keep_firing_for"]) == ("1s", "2s", "1m")
    assert "endturn:slo_unfinished:ratio1m > 0.144" in first["expr"]
    written = yaml.safe_load(rule_files(fast)["dashboards/rules/slo.yaml"])
    assert "endturn:slo_unfinished:increase5s[1m]" in str(written)


@pytest.mark.parametrize(
    "change",
    [{"increase": 250}, {"heartbeats": ()}, {"window": 240}],
    ids=["uneven", "no heartbeat", "a window shorter than an increment"],
)
def test_a_configuration_that_cannot_work_is_refused(change: dict[str, Any]) -> None:
    """A window that is no multiple of the interval, no heartbeat."""
    with pytest.raises(UsageError):
        replace(CONFIG, **change)


def test_every_alert_is_tested_both_ways() -> None:
    """The committed rule tests have a firing and a quiet case for each alert."""
    tests = [test for file in TESTS for test in yaml.safe_load((RULES / "tests" / file).read_text())["tests"]]
    tests = [test for test in tests if "alert_rule_test" in test]
    seen = {(case["alertname"], "exp_alerts" in case) for test in tests for case in test["alert_rule_test"]}
    assert seen == {(declared.name, fires) for declared in ALERTS for fires in (True, False)}


def _promtool(*arguments: str, cwd: Path, program: Path | None = None) -> None:
    program = program or require_stack("prometheus")["promtool"]
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(params=["built", "2.42"])
def promtool(request: pytest.FixtureRequest) -> Path:
    """The promtool that is built from the pins, and the oldest that the rules promise to run on."""
    return require_stack("prometheus")["promtool"] if request.param == "built" else oldest()


FILES = ("increments.yaml", "slo.yaml", "collector.yaml", "alerts.yaml")


@pytest.mark.stack
def test_promtool_accepts_the_committed_rules(promtool: Path) -> None:
    """`promtool check rules` finds nothing, its lints included, in the current version and in 2.42."""
    assert {file.name for file in RULES.glob("*.yaml")} == set(FILES)
    _promtool("check", "rules", "--lint=all", "--lint-fatal", *FILES, cwd=RULES, program=promtool)


@pytest.mark.stack
@pytest.mark.parametrize("file", TESTS)
def test_the_oldest_promtool_runs_the_rule_tests(file: str) -> None:
    """The committed rule tests pass in Prometheus 2.42, too."""
    _promtool("test", "rules", file, cwd=RULES / "tests", program=oldest())


@pytest.mark.stack
@pytest.mark.parametrize(
    ("times", "file"),
    [*((1, file) for file in TESTS), (60, "increments.yaml"), (60, "alerts-slo.yaml")],
    ids=lambda value: f"{value} times as fast" if isinstance(value, int) else value,
)
def test_promtool_runs_the_rule_tests(file: str, times: int, tmp_path: Path) -> None:
    """`promtool test rules` passes, on production's clock (the committed files) and on a test's."""
    folder = RULES
    if times > 1:
        for path, text in rule_files(CONFIG.faster(times)).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        folder = tmp_path / "dashboards" / "rules"
    _promtool("test", "rules", file, cwd=folder / "tests")


@pytest.mark.stack
def test_counters_are_forgotten_at_last(tmp_path: Path) -> None:
    """Back after longer than it is known: an outage of the whole path invents no events, one sender's does."""
    for path, text in rule_files(replace(CONFIG, known=2 * CONFIG.lookback)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    only = "--run=than it is known|the same while the heartbeat"
    _promtool("test", "rules", only, "increments.yaml", cwd=tmp_path / "dashboards" / "rules" / "tests")


@pytest.mark.stack
def test_without_a_lead_the_heartbeat_would_invent_events(tmp_path: Path) -> None:
    """The counter-proof: without `lead`, a heartbeat that is back before an old counter makes its lifetime an event."""
    for path, text in rule_files(replace(CONFIG, lead=0, known=2 * CONFIG.lookback)).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    only = "--run=a minute and a half earlier"
    with pytest.raises(AssertionError, match=r"got: \{\} 2E"):
        _promtool("test", "rules", only, "increments.yaml", cwd=tmp_path / "dashboards" / "rules" / "tests")
