"""The oldest promtool that the rules promise to run on: Debian 12's, 2.42."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

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
