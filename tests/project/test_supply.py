"""What is shipped and tracked, and what the workflows run with which rights."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.y*ml"))
PINNED = re.compile(r"uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
"""An action at a commit, with its version beside it, which Dependabot moves together."""


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag or a branch of somebody else's repository can be moved."""
    used = re.findall(r"uses:.*", path.read_text(encoding="utf-8"))
    assert used
    assert [line for line in used if not PINNED.fullmatch(line.strip())] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_job_has_the_rights_that_it_needs(path: Path) -> None:
    """None by default; a job that may write runs nothing of the repository, nor of what the repository installs."""
    workflow: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"]
        steps = job["steps"]
        if set(job["permissions"].values()) != {"read"}:
            assert not any("run" in step or "checkout" in step.get("uses", "") for step in steps)
        for step in steps:
            assert "checkout" not in step.get("uses", "") or step["with"]["persist-credentials"] is False


SHIPPED = {
    "sdist": {"src", "dashboards", "collector", "docs", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml",
              "PKG-INFO", ".gitignore"},
    "wheel": {"endturn", "endturn-@version@.dist-info"},
}  # fmt: skip
"""What stands at the top of what is uploaded; hatchling adds the project's file, its metadata and .gitignore."""


@pytest.mark.parametrize("target", SHIPPED)
def test_what_is_shipped_holds_no_tests(target: str, tmp_path: Path) -> None:
    """Nor anything else that nobody listed."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, capture_output=True, check=True)
    (file,) = tmp_path.iterdir()
    version = file.name.split("-")[1].removesuffix(".tar.gz")
    if target == "wheel":
        with zipfile.ZipFile(file) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(file) as sdist:
            names = [name.partition("/")[2] for name in sdist.getnames()]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {top.replace("@version@", version) for top in SHIPPED[target]}
    shown = re.compile(r"(^|/)(tests?|conftest\.py|test_\w+\.py|\.coverage|__pycache__)(/|$)")
    rules = "dashboards/rules/tests/"  # promtool's, for whoever changes a threshold
    assert [name for name in names if shown.search(name) and rules not in f"{name}/"] == []


def test_nothing_that_a_run_leaves_behind_is_tracked() -> None:
    """Databases of coverage, caches, built packages: they hold paths of the machine that made them."""
    listed = ["git", "ls-files", "--cached", "--ignored", "--exclude-standard"]
    done = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    for name in (".coverage", ".coverage.host.1", "htmlcov/index.html", "dist/a.whl"):
        ignored = subprocess.run(["git", "check-ignore", "-q", name], cwd=REPOSITORY, check=False)
        assert (name, ignored.returncode) == (name, 0)
