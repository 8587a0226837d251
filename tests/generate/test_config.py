"""The configuration file: what it says is what the rules ask, and what it may not say is refused."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from endturn.errors import UsageError
from endturn.generate import alerts, config
from endturn.generate.config import Limits, RuleConfig
from endturn.instrumentation import sdk_providers
from tests.support.processes import REPOSITORY

GUIDE = (REPOSITORY / "docs" / "alerts.md").read_text()
[SAMPLE] = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)


def read(text: str, folder: Path) -> RuleConfig:
    file = folder / "endturn.toml"
    file.write_text(text)
    return config.read(file)


def test_nothing_said_is_the_default(tmp_path: Path) -> None:
    """An empty file, empty sections, and the continuation policy's table beside them, change nothing."""
    assert read("", tmp_path) == RuleConfig()
    assert read("[alerts]\n[services]\n[agent]\nmax_tokens = 7\n", tmp_path) == RuleConfig()


def test_the_rules_expect_what_configure_does() -> None:
    """Their windows are made from the interval at which `configure()` exports."""
    assert 1000 * config.EXPORT == sdk_providers.EXPORT_MS


def test_the_guides_sample_is_read(tmp_path: Path) -> None:
    """What the guide shows works as it stands."""
    made = read(SAMPLE, tmp_path)
    assert made.period == 28 * 86400
    cells = dict(made.cells())
    assert cells['job="shop/watched"', 'deployment_environment_name!~"staging"'].page is False
    assert {limits.tickets for where, limits in cells.items() if 'deployment_environment_name="staging"' in where} == {
        False
    }


def test_every_alert_is_in_the_guide() -> None:
    """The guide names each one."""
    for alert in alerts.alerts(RuleConfig()):
        assert f"`{alert.name}`" in GUIDE


def test_every_key_is_on_the_generated_page() -> None:
    """With its default and what it means."""
    page = (REPOSITORY / "docs" / "alert-configuration.md").read_text()
    names = {*(RuleConfig.model_fields.keys() - {"limits", "services"}), *(f"alerts.{n}" for n in Limits.model_fields)}
    assert set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE)) == names


def test_no_two_groups_of_services_overlap(tmp_path: Path) -> None:
    """Each series is asked by one group alone, and a name's dots are dots."""
    text = '[services."shop.a"]\npage = false\n[services."*".environments.dev]\ntickets = false\n'
    assert [where for where, _ in read(text, tmp_path).cells()] == [
        ('job!~"shop[.]a"', 'deployment_environment_name="dev"'),
        ('job!~"shop[.]a"', 'deployment_environment_name!~"dev"'),
        ('job="shop.a"', 'deployment_environment_name="dev"'),
        ('job="shop.a"', 'deployment_environment_name!~"dev"'),
    ]


def test_what_is_switched_off_everywhere_is_no_alert(tmp_path: Path) -> None:
    """An alert that no service is asked for is not written."""
    names = {alert.name for alert in alerts.alerts(read("[alerts]\npage = false\n", tmp_path))}
    assert "EndturnTurnsUnfinished" not in names
    assert "EndturnBudgetBurning" in names


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[alerts]\nobjctive = 0.9", "there is no key 'alerts.objctive'; did you mean 'objective'?"),
        ("[alerts]\nobjective = 1", "alerts.objective: input should be less than 1, not 1"),
        ("[alerts]\nobjective = 0.9", "alerts.objective: input should be greater than 0.93"),  # no page could fire
        ('[services."a"]\npag = true', "there is no key 'services.\"a\".pag'; did you mean 'page'?"),
        ('[services."a".environments.b]\ntruncated = 7', 'services."a".truncated: input should be less than 1, not 7'),
        ("[services]\na = 1", 'write [services."a"] and its keys below'),
        ("[services.'a\"b']\npage = true", "is no service"),
        ('period = "3x"', "period: a duration"),
        ('export = "0s"', "export: input should be greater than 0"),
        (r"collector = 'a\b'", "collector: a regular expression without quotes, backslashes"),
        ('grafana = "grafana"', "grafana: string should match pattern"),
        ("period = ", "cannot be read as TOML"),
    ],
)
def test_what_cannot_be_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    """The message names the file, the key and what it should be."""
    with pytest.raises(UsageError, match=re.escape(complaint)) as refused:
        read(text, tmp_path)
    assert "endturn.toml" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """With the reason."""
    with pytest.raises(UsageError, match=r"none\.toml.*No such file"):
        config.read(tmp_path / "none.toml")


def test_the_sample_is_toml() -> None:
    """And its sections are those of the guide."""
    assert {"alerts", "services"} <= tomllib.loads(SAMPLE).keys()
