"""The other half of test_environments.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.project.test_environments import CASES, check_file
from tests.sdks.build import Env

pytestmark = pytest.mark.environments


@pytest.mark.parametrize(("env", "path"), CASES[1::2])
def test_each_other_file(env: Env, path: Path) -> None:
    """Every test of the file passes where its packages are installed, and there is at least one."""
    check_file(env, path)
