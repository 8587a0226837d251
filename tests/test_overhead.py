"""The benchmark of overhead runs, and says what it is asked; what it measures is no test's business."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "overhead.py"


def test_one_short_round_gives_every_figure() -> None:
    """Each variant of this environment runs in a process of its own, and the figures have the shape of the page."""
    command = [sys.executable, str(BENCHMARK), "--quick", "--rounds", "1", "--calls", "20", "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    found = json.loads(done.stdout)
    variants = found["environments"]["dev"]["variants"]
    assert list(variants) == ["floor", "ours", "nosdk"]
    assert all({"wall_us", "cpu_us", "chunk_us"} <= row.keys() for row in variants.values())
    assert found["environments"]["dev"]["versions"]["openai"]


def test_a_page_can_be_written_of_the_figures() -> None:
    """The page has a row for each variant, each goal, and what was not there."""
    overhead: Any = runpy.run_path(str(BENCHMARK))
    got = {
        kind: {
            name: [{"wall": 1e-3 + at * 1e-5, "cpu": 1e-3 + at * 1e-5}]
            for at, name in enumerate(overhead["ENVIRONMENTS"]["dev"])
        }
        for kind in overhead["KINDS"]
    }
    found = {
        "environments": {"dev": {**overhead["figures"](got), "versions": {"openai": "3.54.0"}}},
        "missing": ["openlit"],
        "import_ms": 1.0,
        "rounds": 1,
        "calls": 1,
        "machine": overhead["machine"](),
    }
    page = overhead["document"](found)
    assert "| ours | 20.0 | 2.00 (2.00 … 2.00) |" in page
    assert "left out: openlit" in page
    assert "{" not in page
