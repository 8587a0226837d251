"""Tests of packages that cannot stand in the development environment: each file runs where they are installed.

A file of tests runs in one process: every other case is in test_environments_too.py, for the other core.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.sdks.build import Env, envs

pytestmark = pytest.mark.environments

ROOT = Path(__file__).parents[2]
CASES = [
    pytest.param(env, path, id=f"{name}-{path.stem.removeprefix('test_')}")
    for name, env in envs().items()
    if env.tests
    for path in sorted((ROOT / env.tests).glob("test_*.py"))
]


@pytest.mark.parametrize(("env", "path"), CASES[::2])
def test_each_file(env: Env, path: Path) -> None:
    """Every test of the file passes where its packages are installed, and there is at least one."""
    check_file(env, path)


def check_file(env: Env, path: Path) -> None:
    """Run the tests of a file where its packages are installed."""
    if env.version and not env.built:
        pytest.skip(f"{env.says}: Python {env.version} is not to be had here")
    assert env.built, f"{env.says}: not installed: python tests/sdks/build.py {env.name}"
    # Plugins that packages bring along are none of ours; what they warn of is theirs.
    ours = ["-p", "no:cacheprovider", "-p", "no:logfire", "-W", "default", f"--confcutdir={path.parent.parent}"]
    command = [str(env.python), "-m", "pytest", str(path), "-q", "-ra", *ours]
    ran = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=1800,  # it may hang; a slow machine takes ten minutes
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8_000:] + ran.stderr[-2_000:]
    passed = re.search(r"(\d+) passed", ran.stdout)
    assert passed is not None, ran.stdout
    assert "skipped" not in ran.stdout, ran.stdout
