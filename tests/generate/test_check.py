"""`endturn rules check`: valid files pass, and problems are reported, with promtool and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from endturn.cli._main import main
from endturn.generate import check
from tests.support.processes import REPOSITORY, require_stack

GOOD = """
groups:
  - name: g
    interval: 1m
    rules:
      - record: job:up:sum
        expr: sum by (job) (up)
      - alert: Down
        expr: job:up:sum == 0
        for: 5m
        keep_firing_for: 1h
        labels: {severity: warning}
        annotations: {summary: "{{ $labels.job }} is down"}
"""


def problems(text: str, tmp_path: Path, promtool: str | None = None) -> list[str]:
    file = tmp_path / "rules.yaml"
    file.write_text(text)
    [result] = check.check([file], promtool=promtool)
    return list(result.problems)


BROKEN = [
    pytest.param("sum by (job) (up)", "sum by (job (up)", "job:up:sum", id="an expression that is none"),
    pytest.param("for: 5m", "for: 5 minutes", "Down: for: String should match", id="a duration"),
    pytest.param("keep_firing_for", "keepFiringFor", "Down: keepFiringFor: Extra inputs", id="a misspelt key"),
    pytest.param("interval: 1m", "intervall: 1m", "group 'g': intervall: Extra", id="a group's misspelt key"),
    pytest.param("alert: Down", "record: a\n        alert: Down", "either `record` or `alert`", id="both at once"),
    pytest.param("expr: job:up:sum == 0", "expr: ''", "Down: expr: String should have", id="no expression"),
]


@pytest.mark.parametrize(("right", "wrong", "complaint"), BROKEN)
def test_problems_are_reported_without_promtool(
    right: str, wrong: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Structure and expressions are checked if promtool is not installed."""
    monkeypatch.setenv("PATH", "/nonexistent")
    assert problems(GOOD, tmp_path) == []
    assert complaint in "\n".join(problems(GOOD.replace(right, wrong), tmp_path))


@pytest.mark.stack
def test_promtool_finds_more_but_nothing_in_the_shipped_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only promtool finds an unknown function in a template, and a duplicate rule. By default, the rule files, the
    PrometheusRule and Grafana's alerts of this checkout are checked.
    """
    promtool = str(require_stack("prometheus")["promtool"])
    assert problems(GOOD, tmp_path, promtool) == []
    wrong = GOOD.replace("$labels.job }}", "$labels.job | unknwn }}")
    assert "unknwn" in "\n".join(problems(wrong, tmp_path, promtool))
    doubled = yaml.safe_load(GOOD)
    doubled["groups"][0]["rules"] *= 2
    assert "uplicate" in "\n".join(problems(yaml.safe_dump(doubled), tmp_path, promtool))
    monkeypatch.chdir(REPOSITORY)
    assert main(["rules", "check", "--promtool", promtool]) == 0
    lines = capsys.readouterr().out.splitlines()
    files = ("grafana-alerts/endturn.yaml", "kubernetes/prometheusrule.yaml", "rules/endturn.yaml")
    assert [line.partition(":")[0] for line in lines] == [f"dashboards/{file}" for file in files]
    assert all(line.endswith("promtool: ok") for line in lines)


def test_the_command_line_reports_invalid_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit status 1 and the rule's name for an invalid file; 2 for no file, no rule file, or a missing program."""
    monkeypatch.chdir(tmp_path)
    assert main(["rules", "check"]) == 2
    assert "no rule files found" in capsys.readouterr().err
    file = tmp_path / "rules.yaml"
    file.write_text(GOOD.replace("for: 5m", "for: soon"))
    assert main(["rules", "check", str(file)]) == 1
    assert capsys.readouterr().out.splitlines()[1].startswith("  Down: for: String should match")
    for text in ("a: b", "[1, 2", "groups: 3"):
        file.write_text(text)
        assert main(["rules", "check", str(file)]) == 2
        assert repr(str(file)) in capsys.readouterr().err
    assert main(["rules", "check", str(file), "--promtool", "/nonexistent/promtool"]) == 2
    assert "is not an executable program" in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install() -> None:
    """PyYAML is of the extra `grafana`, and `generate` and `rules check` say that they need it."""
    code = (
        "import sys; sys.modules['yaml'] = None\nfrom endturn.cli._main import main\nsys.exit(main(['rules', 'check']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'endturn[grafana]'" in done.stderr
