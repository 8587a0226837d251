"""Reading a response takes bounded memory, whatever a server sends, and the host's bytes stay as they are."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from endturn.formats.errors import MAX_ERROR_BYTES
from endturn.formats.summaries import MAX_UNPARSED_BYTES
from tests.instrumentation.discarding import CLIENTS, SIZE

ROOT = Path(__file__).resolve().parents[2]
MOST_MB = 5 * MAX_UNPARSED_BYTES / 2**20
"""What is kept, the buffer that it grows out of, and what the HTTP library and the server's thread take."""

UNREADABLE = {"reason": "unknown", "detail": "unreadable", "error": None}
FAILED = {"reason": "error", "detail": None, "error": "500"}
ENDS = {
    "warm": {"reason": "max_tokens", "detail": None, "error": None},
    "line": UNREADABLE,
    "body": UNREADABLE,
    "error": FAILED,
    "packed error": FAILED,
    "bomb": UNREADABLE,
    "many events": {"reason": "max_tokens", "detail": None, "error": None},
    "many calls": UNREADABLE,
}


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS)
def test_a_host_that_discards_what_it_reads_does_not_grow(client: str) -> None:
    """What is too large to be read is unknown, and is counted; an error is one by its status; many events are read."""
    assert SIZE * 2**20 > 10 * MAX_UNPARSED_BYTES > MAX_ERROR_BYTES
    command = [sys.executable, "-m", "tests.instrumentation.discarding", client]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["name"] for line in lines] == list(ENDS)
    for line in lines:
        assert line["same"], line
        assert {name: line[name] for name in UNREADABLE} == ENDS[line["name"]], line
        assert line["name"] == "warm" or line["grown"] < MOST_MB, line
