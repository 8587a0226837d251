"""Grafana's own grammars of TraceQL and LogQL, run by Node; the packages are kept in the cache beside the stack."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest

from stack import build
from tests.support.processes import REPOSITORY

SOURCE = REPOSITORY / "tests" / "grammar"
PINS = ("package.json", "package-lock.json")
Language = Literal["traceql", "logql"]


def errors(queries: Sequence[tuple[Language, str]]) -> list[list[str]]:
    """For each query the places where the grammar does not fit; fails the test where Node or npm cannot serve."""
    folder = _installed()
    # Beside its packages: that is where Node looks for them.
    script = shutil.copy(SOURCE / "parse.mjs", folder)
    done = subprocess.run(
        ["node", script], input=json.dumps(queries), capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    answers: list[list[str]] = json.loads(done.stdout)
    return answers


def _installed() -> Path:
    if missing := [program for program in ("node", "npm") if shutil.which(program) is None]:
        pytest.fail(f"{' and '.join(missing)} missing: TraceQL and LogQL are not parsed (nodejs.org)")
    key = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in PINS)).hexdigest()[:12]
    folder = build.cache() / f"grammar-{key}"
    if not (folder / "node_modules" / ".package-lock.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        for name in PINS:
            shutil.copy(SOURCE / name, folder)
        install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.fail(f"npm could not fetch the grammars: {done.stderr.strip().splitlines()[-1:]}")
    return folder
