"""The benchmark of overhead runs, and the page is what it wrote; what it measures is no test's business."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_the_benchmark_runs_and_the_page_is_what_it_writes(tmp_path: Path) -> None:
    """Both have the same words around their figures, and a row for each."""
    page = tmp_path / "overhead.md"
    command = [sys.executable, str(ROOT / "benchmarks" / "overhead.py"), "--quick", "--rounds", "2", "--write"]
    subprocess.run([*command, str(page)], check=True, capture_output=True, timeout=900)
    written, committed = (without_figures(each.read_text()) for each in (page, ROOT / "docs" / "overhead.md"))
    assert written == committed


def without_figures(text: str) -> list[str]:
    """The lines of the page, but for what differs from machine to machine and the table of the others."""
    text = re.sub(r"## Beside other instrumentations\n.*?\n\nThey", "They", text, flags=re.DOTALL)
    text = re.sub(r"\nOn .*?\. The variants", "\nThe variants", text, flags=re.DOTALL)
    return [re.sub(r"[−-]?\d[\d.]*|missed", "", line) for line in text.splitlines()]
