"""The output of commands, where it is no UTF-8, full or closed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SESSIONS = Path(__file__).parents[1] / "scan" / "claude_code"
SCAN = ("scan", str(SESSIONS / "four-cuts-then-gave-up"))
DEMO = ("demo", "--once")


def endturn(
    *arguments: str, encoding: str = "utf-8", stdout: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "endturn", *arguments],
        env=os.environ | {"PYTHONIOENCODING": encoding, "UV": ""},
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding=encoding,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("arguments", "encoding"),
    [
        *((SCAN, encoding) for encoding in ("ascii", "latin-1", "cp1252")),
        pytest.param(DEMO, "ascii", marks=pytest.mark.slow),  # plays forty turns for one table
    ],
)
def test_a_table_is_printed_in_any_encoding(arguments: tuple[str, ...], encoding: str) -> None:
    done = endturn(*arguments, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "truncated" in done.stdout
    assert "????" in done.stdout  # the line below the head of the table


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [SCAN, (*SCAN, "--json"), ("reasons",)], ids=" ".join)
def test_a_full_disk_is_one_line_and_no_verdict(arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        done = endturn(*arguments, stdout=full.fileno())
    assert (done.returncode, done.stderr) == (
        2,
        "endturn: the output cannot be written: No space left on device\n",
    )


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell of Unix")
def test_a_closed_output_is_no_failure() -> None:
    command = f'exec "{sys.executable}" -m endturn scan "{SCAN[1]}" >&-'
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
