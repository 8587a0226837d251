"""Promtool: built from the pins, and the oldest that the rules promise to run on (2.42, of Debian 12)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from tests.support.processes import require_stack

OLDEST = "2.42"


def oldest() -> Path:
    """The program: what `ENDTURN_PROMTOOL_OLDEST` names, or a promtool 2.42 on the PATH; skips the test without one."""
    found = os.environ.get("ENDTURN_PROMTOOL_OLDEST") or shutil.which("promtool")
    advice = f"no promtool {OLDEST}: `apt-get install prometheus` on Debian 12, or name one in ENDTURN_PROMTOOL_OLDEST"
    if not found:
        pytest.skip(advice)
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    version = re.search(r"version (\S+)", said.stdout + said.stderr)
    if not version or not version[1].startswith(f"{OLDEST}."):
        pytest.skip(f"{advice}; {found} is {version[1] if version else 'of no known version'}")
    return Path(found)


def run(*arguments: str, cwd: Path, program: Path | None = None) -> None:
    """Run the built promtool, or another; fails the test with what it says."""
    program = program or require_stack("prometheus")["promtool"]
    done = subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def evaluate(
    folder: Path,
    series: Mapping[str, str],
    expected: Sequence[tuple[str, str, Mapping[str, float]]],
    *,
    rules: str = "groups: []",
    interval: str = "15s",
    program: Path | None = None,
) -> None:
    """Evaluate expressions over series in promtool's notation, one value each `interval`.

    Args:
        expected: an expression, when it is evaluated, and the samples that it gives: labels in braces → value.
        rules: the text of a rule file that is evaluated each minute.
    """
    checks = [
        {"expr": expr, "eval_time": at, "exp_samples": [{"labels": each, "value": n} for each, n in samples.items()]}
        for expr, at, samples in expected
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    (folder / "rules.yaml").write_text(rules)
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": interval, "input_series": inputs, "promql_expr_test": checks}],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test))
    run("test", "rules", "test.yaml", cwd=folder, program=program)
