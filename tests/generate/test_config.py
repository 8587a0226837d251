"""The configuration file: its settings reach the rules, and invalid settings are rejected."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from endturn.errors import UsageError
from endturn.generate import config, dashboards, files as generated
from endturn.generate.alerts import ALERTS
from endturn.generate.config import AlertLimits, RuleConfig
from endturn.generate.rules import alert_rules
from tests.support.processes import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "alerts.md").read_text()
[SAMPLE] = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


def read(text: str, folder: Path) -> RuleConfig:
    file = folder / "endturn.toml"
    file.write_text(text)
    return config.read(file)


def test_an_empty_configuration_is_the_default(tmp_path: Path) -> None:
    """An empty file, empty sections, and the continuation policy's table beside them, change nothing."""
    assert read("", tmp_path) == RuleConfig()
    assert read("[alerts]\n[services]\n[agent]\nmax_tokens = 7\n", tmp_path) == RuleConfig()


def test_the_guides_sample_is_read(tmp_path: Path) -> None:
    """The guide's example is valid; a service without pages may have an objective that could never page."""
    made = read(SAMPLE, tmp_path)
    assert made.period == 28 * 86400
    cells = {cell.who: cell.limits for cell in made.cells()}
    assert cells["shop/watched"].page is False
    assert {limits.tickets for who, limits in cells.items() if "staging" in who} == {False}
    made = read("[services.batch]\npage = false\nobjective = 0.9", tmp_path)
    assert {cell.who: cell.limits.objective for cell in made.cells()} == {"": 0.995, "batch": 0.9}


def test_the_pages_name_every_alert_and_every_key() -> None:
    """The guide names each alert, the generated page each key, with its default and meaning."""
    assert [alert.name for alert in ALERTS if f"`{alert.name}`" not in GUIDE] == []
    page = (REPOSITORY / "docs" / "alert-configuration.md").read_text()
    names = {
        *(RuleConfig.model_fields.keys() - {"limits", "services"}),
        *(f"alerts.{n}" for n in AlertLimits.model_fields),
    }
    assert set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)) == names


def test_no_two_groups_of_services_overlap(tmp_path: Path) -> None:
    """Each series is in only one group, and dots in names match only dots."""
    text = '[services."shop.a"]\npage = false\n[services."*".environments.dev]\ntickets = false\n'
    assert [(cell.who, cell.where) for cell in read(text, tmp_path).cells()] == [
        ("", ('job!~"shop[.]a"', 'deployment_environment_name!~"dev"')),
        ("dev", ('job!~"shop[.]a"', 'deployment_environment_name="dev"')),
        ("shop.a", ('job="shop.a"', 'deployment_environment_name!~"dev"')),
        ("shop.a in dev", ('job="shop.a"', 'deployment_environment_name="dev"')),
    ]


def test_services_with_other_limits_have_their_own_rule(tmp_path: Path) -> None:
    """Its text has only its own limits, and a label names the service; all other services share one rule.

    Grafana distinguishes the rules of a folder by title and uid; the overview's tile, which covers all services, lists
    other objectives.
    """
    text = '[services."shop/a"]\nobjective = 0.99\n[services."shop/a".environments.dev]\nobjective = 0.95\n'
    made = read(text, tmp_path)
    texts = {(rule.alert.name, rule.limits_of): rule.description for rule in alert_rules(made)}
    for who, objective in (("", "99.5%"), ("shop/a", "99%"), ("shop/a in dev", "95%")):
        [said] = re.findall("objective is that (.*?) of turns finish", texts["EndturnTurnsUnfinished", who])
        assert said == objective
    assert [who for name, who in texts if name == "EndturnResponsesTruncated"] == [""]
    files = generated.files(made)
    rules = yaml.safe_load(files["dashboards/rules/endturn.yaml"])["groups"][1]["rules"]
    pages = [rule["labels"].get("limits_of") for rule in rules if rule["alert"] == "EndturnTurnsUnfinished"]
    assert pages == [None, "shop/a", "shop/a in dev"]
    assert re.findall("### For (.+)", files["docs/runbooks/EndturnTurnsUnfinished.md"]) == ["shop/a", "shop/a in dev"]
    [group] = yaml.safe_load(files["dashboards/grafana-alerts/endturn.yaml"])["groups"]
    titles = [rule["title"] for rule in group["rules"]]
    assert "EndturnTurnsUnfinished (shop/a)" in titles
    assert len(titles) == len({rule["uid"] for rule in group["rules"]}) == len({*titles})
    assert "objective of 0.995 (0.99 for shop/a, 0.95 for shop/a in dev)" in files["dashboards/overview.json"]


def test_budgets_are_those_of_each_services_objective(tmp_path: Path) -> None:
    """The overview's tile and table divide by each service's allowed share."""
    made = read('[services."shop/a"]\nobjective = 0.99\n', tmp_path)
    board = json.loads(dashboards.files(made)["dashboards/overview.json"])
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    [tile, column] = [expr for expr in asked if "[30d]" in expr]
    for expr in (tile, column):
        assert re.findall(r'job(=|!~)"shop/a".*/ (0\.\d+) and', expr) == [("!~", "0.005"), ("=", "0.01")]


def test_an_alert_that_is_disabled_everywhere_has_no_rule(tmp_path: Path) -> None:
    """An alert without a service is not written, and without a Collector there are no alerts on it.

    A slash at an address's end is not doubled.
    """
    names = {rule.alert.name for rule in alert_rules(read("[alerts]\npage = false\n", tmp_path))}
    assert "EndturnTurnsUnfinished" not in names
    assert "EndturnBudgetBurning" in names
    made = alert_rules(read('collector = ""\ngrafana = "https://grafana.example/"\n', tmp_path))
    assert not [rule for rule in made if "Collector" in rule.alert.name]
    assert all(rule.dashboard_url.startswith("https://grafana.example/d/") for rule in made)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (("[alerts]\nobjctive = 0.9"), "unknown key 'alerts.objctive'; did you mean 'objective'?"),
        (("[alerts]\nobjective = 1"), "alerts.objective: input should be less than 1, not 1"),
        (("[alerts]\nobjective = 0.9"), "alerts: with an objective of 0.9 nothing could burn 14.4 times as fast"),
        (("[services.a]\nobjective = 0.9"), "services.a: with an objective of 0.9 nothing could"),
        (("[alerts]\npage = false\nobjective = 0.5"), "alerts.objective: input should be greater than 0.5"),
        (('[services."shop*"]\npage = true'), "write one name, without patterns"),
        (('[services."a"]\npag = true'), "unknown key 'services.\"a\".pag'; did you mean 'page'?"),
        (
            ('[services."a".environments.b]\ntruncated = 7'),
            '"a".environments."b".truncated: input should be less than 1',
        ),
        (
            ('[services."a".environments."*"]\npage = true'),
            'put the settings for every environment into [services."a"]',
        ),
        (('[services.a]\nenvironments = "x"'), 'write [services."a".environments."its name"] and its keys below'),
        (('[services."a^b"]\npage = true'), "without patterns, quotes, backslashes, control"),
        (('[services."a"]\nenvironment = 1'), "did you mean 'environments'?"),
        (("[services]\na = 1"), 'write [services."a"] and its keys below'),
        (('[services."a{{b"]\nobjective = 0.99'), "control characters, ^, $, {{ and }}"),
        (('[services."a\\nb"]\npage = false'), '[services."a\\nb"]\': write one name, without'),
        (('[services."a"]\npage = "yes"'), "services.\"a\".page: input should be a valid boolean, not 'yes'"),
        (('[alerts]\ntruncated = "0.3"'), "alerts.truncated: input should be a valid number, not '0.3'"),
        (("[alerts]\nunfinished = true"), "alerts.unfinished: input should be a valid integer, not True"),
        ("alerts = 1", "alerts: input should be a valid dictionary or instance of AlertLimits, not 1"),
        ('period = "3x"', "period: a duration"),
        ('period = "0s"', "period: input should be greater than 0"),
        ('collector = "a{{"', "collector: a regular expression without quotes, backslashes, doubled braces"),
        ("collector = 'a\\b'", "collector: a regular expression without quotes, backslashes"),
        ('grafana = "grafana"', "grafana: string should match pattern"),
        ("period = ", "cannot be read as TOML"),
    ],
)
def test_rejects_a_wrong_configuration_file(text: str, message: str, tmp_path: Path) -> None:
    """The message names the file, the key and what it should be."""
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        read(text, tmp_path)
    assert "endturn.toml" in str(refused.value)
    with pytest.raises(UsageError, match=r"none\.toml.*No such file"):
        config.read(tmp_path / "none.toml")
