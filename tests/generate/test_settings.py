"""The configuration file: what it says is what the rules do, and what it may not say is refused."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

from endturn import generate
from endturn.cli import main
from endturn.errors import UsageError
from endturn.generate import settings
from endturn.generate.alerts import alerts
from endturn.generate.config import Burn, RuleConfig, Slo
from endturn.generate.manifests import rule_files
from tests.support.processes import REPOSITORY, require_stack

GUIDE = (REPOSITORY / "docs" / "alerts.md").read_text()
SAMPLE = re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL)[0]


def test_nothing_said_is_the_default() -> None:
    """An empty file, and empty sections, change nothing."""
    assert settings.parse({}) == settings.parse({"slo": {}, "alerts": {}}) == RuleConfig()


def test_every_key_is_documented_and_is_a_field() -> None:
    """Each key stands in the guide and sets a field that there is; each number and duration of the rules has a key."""
    fields = {"slo": Slo.__dataclass_fields__}
    for section, keys in settings.SECTIONS.items():
        for key in keys:
            assert f"| `{section}.{key.name}` |" in GUIDE
            assert key.field in fields.get(section, RuleConfig.__dataclass_fields__)
    set_ = {key.field for keys in settings.SECTIONS.values() for key in keys} | {"expected", "slo"}
    # A day is what "a day" means, and the heartbeat is the Collector's own.
    assert RuleConfig.__dataclass_fields__.keys() - set_ == {"heartbeats"}
    assert Slo.__dataclass_fields__.keys() - set_ == {"day"}


def test_every_alert_is_in_the_guide() -> None:
    """The guide names each alert, also the one that only a configuration makes."""
    config = settings.parse(tomllib.loads(SAMPLE))
    for alert in alerts(config):
        short = alert.name.removeprefix("EndturnCollector")
        assert f"`{alert.name}`" in GUIDE or f"`…{short}`" in GUIDE


def test_values_are_read() -> None:
    """Durations in words or seconds, shares, burn rates, services and addresses arrive where they belong."""
    config = settings.parse(
        tomllib.loads(
            """
            [slo]
            objective = 0.95
            page = [{ rate = 10, over = "2h", also = 1200, bad = 7 }]
            page_jobs = ["a", "b"]
            [alerts]
            hold = "1m30s"
            truncation = 0.5
            [expected]
            "shop/agent" = "6h"
            [links]
            grafana = "https://g.example.com/"
            """
        )
    )
    assert (config.slo.objective, config.slo.jobs) == (0.95, ("a", "b"))
    assert config.slo.page == (Burn(rate=10, over=7200, also=1200, bad=7),)
    assert config.slo.ticket == Slo().ticket
    assert (config.hold, config.truncation) == (90, 0.5)
    assert config.expected == (("shop/agent", 21600),)
    assert config.grafana == "https://g.example.com"
    assert all(alert.dashboard_url.startswith("https://g.example.com/d/") for alert in alerts(config))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[sloo]", "no section 'sloo'; did you mean 'slo'"),
        ("[xyz]", "no section 'xyz'; there are: alerts, collector"),
        ("[slo]\nobjectiv = 0.9", r"\[slo\] has no key 'objectiv'; did you mean 'objective'"),
        ("slo = 1", "'slo' is a section"),
        ("[slo]\nobjective = 99", "slo.objective is a share between 0 and 1.*not 99"),
        ("[slo]\nobjective = true", "slo.objective is a share"),
        ("[slo]\nobjective = 0.9", "a burn rate of 14.4 with an objective of 0.9.*stay below 10"),
        ("[slo]\npage = []", "slo.page is a list such as"),
        ('[slo]\npage = [{ rate = 6, over = "6h", also = "1h" }]', "a table that has 'bad' too"),
        ('[slo]\npage = [{ rate = 6, over = "6h", also = "1h", bed = 3 }]', "did you mean 'bad'"),
        ('[slo]\npage = [{ rate = 6, over = "6x", also = "1h", bad = 3 }]', "a table in which 'over' is a duration"),
        ('[slo]\npage = [{ rate = 6, over = "1h", also = "6h", bad = 3 }]', "is shorter than 3600 s"),
        ("[slo]\nfew = 2", "is more than the unfinished ones"),
        ('[alerts]\nwindow = "1 hour"', "alerts.window is a duration"),
        ('[alerts]\nwindow = "0s"', "alerts.window is a duration"),
        ('[alerts]\nwindow = "5m"', "a window of 300 s is too short"),
        ("[alerts]\ngiven_up = 0", "alerts.given_up is a whole number above 0"),
        ("[alerts]\ncontinued_seconds = 5000", "continued_seconds is at least 0.1 and below 1000.*buckets 0.1,"),
        ("[alerts]\ncontinued_seconds = 1000", "below 1000, not 1000.*buckets"),
        ("[alerts]\nbudget_used = 1.0", "budget_used is a share between 0 and 1"),
        ('[evaluation]\nknown = "90m"', "at least twice as long"),
        ('[evaluation]\nincrease = "250s"', "no multiple of the interval"),
        ('[collector]\njob = "("', "collector.job is a regular expression"),
        ("[collector]\njob = 'a\"b'", "collector.job is a regular expression without quotes"),
        ("[collector]\njob = 'a[.]b|c\\d'", "collector.job is a regular expression without quotes, backslashes"),
        ("[collector]\njob = 'a(?=b)'", "collector.job is a regular expression without .*look-around"),
        ('[evaluation]\nlookback = "1m"', "look"),
        ('[evaluation]\nincrease = "1m"\nlookback = "3m"', "evaluation.lookback is 5m or more .*exports.*not 3m"),
        ('[slo]\ncontinues = "1m"', "slo.continues is 6h or more .*what pages look back on.*not 1m"),
        ('[expected]\n"shop" = "30s"', "expected.shop is between 5m and 30d .*not 30s"),
        ('[expected]\n"shop" = "40d"', "expected.shop is between 5m and 30d .*not 40d"),
        ('[links]\ngrafana = "grafana.example.com"', "links.grafana is an address"),
        ('[expected]\n"shop" = "soon"', "expected.shop is a duration"),
        ("not toml", "cannot be read as TOML"),
    ],
)
def test_what_cannot_be_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    """The file, the key and what it should be are named."""
    file = tmp_path / "endturn.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"(?s)endturn.toml.*{complaint}"):
        generate.read_config(file)


def test_the_command_line_writes_into_any_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`generate --config FILE --output DIR` writes what is put into use, as configured, and nothing else."""
    file, folder = tmp_path / "endturn.toml", tmp_path / "monitoring"
    file.write_text(SAMPLE)
    assert main(["generate", "--config", str(file), "--output", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == {"collector", "dashboards", "docs"}
    assert {path.name for path in (folder / "docs").iterdir()} == {"runbooks"}
    written = yaml.safe_load((folder / "dashboards" / "rules" / "alerts.yaml").read_text())
    names = {rule["alert"]: rule for rule in written["groups"][0]["rules"]}
    assert "EndturnServiceSilent" in names
    assert names["EndturnCollectorDown"]["annotations"]["runbook_url"].startswith("https://wiki.example.com/endturn/")
    assert main(["generate", "--check", "--config", str(file), "--output", str(folder)]) == 0
    assert main(["generate", "--check", "--output", str(folder)]) == 1
    capsys.readouterr()
    file.write_text("[slo]\nobjectives = 1")
    assert main(["generate", "--config", str(file), "--output", str(folder)]) == 2
    assert "did you mean 'objective'" in capsys.readouterr().err


@pytest.mark.stack
@pytest.mark.parametrize(
    ("text", "only"),
    [
        pytest.param(
            SAMPLE, "NotContinued|Silent", id="the guide's sample: a listed service pages, a silent one is missed"
        ),
        pytest.param(
            """
            [slo]
            objective = 0.999
            page = [{ rate = 100, over = "30m", also = "20m", bad = 4 }]
            unfinished = 5
            [alerts]
            continued_seconds = 40
            budget_used = 0.97
            truncation = 0.6
            repair_failure = 0.3
            given_up = 1
            hold = "1m"
            """,
            "TruncatedTurns|Slow|Nearly|ResponsesTruncated|Repairs|Exhausted",
            id="other thresholds",
        ),
        # All but the example that lasts for days, which would take as long as all the others.
        pytest.param('[evaluation]\ninterval = "30s"', "^[^E]|quiet|fires: [^i]|fuller", id="evaluated twice as often"),
    ],
)
def test_generated_examples_hold_for_other_configurations(text: str, only: str, tmp_path: Path) -> None:
    """The rule tests are generated with the rules, and pass in promtool whatever the thresholds."""
    for path, content in rule_files(settings.parse(tomllib.loads(text))).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    promtool, folder = require_stack("prometheus")["promtool"], tmp_path / "dashboards" / "rules" / "tests"
    for file in ("increments.yaml", "alerts.yaml", "alerts-slo.yaml", "alerts-collector.yaml"):
        done = subprocess.run(
            [promtool, "test", "rules", f"--run={only}", file], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
