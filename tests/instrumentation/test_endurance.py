"""Time and memory of a host do not grow with how many calls, events or cancelled tasks it has had."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from tests.instrumentation.enduring import BLOCKS, EVENTS, WAYS

ROOT = Path(__file__).resolve().parents[2]
REASONS = {
    "calls": {"end_turn", "max_tokens", "error"},
    "events": {"max_tokens"},
    "cancelled": {"cancelled"},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_time_and_memory_stay_flat(way: str) -> None:
    """100,000 calls, a million events, 10,000 cancelled tasks: the last blocks take what the first ones took."""
    command = [sys.executable, "-m", "tests.instrumentation.enduring", way]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=1_200)
    assert done.returncode == 0, done.stderr
    _, *blocks = (json.loads(line) for line in done.stdout.splitlines())  # the first fills what is bounded
    calls = WAYS[way] // EVENTS if way == "events" else WAYS[way]
    assert [block["calls"] for block in blocks] == [calls] * BLOCKS
    assert set(blocks[-1]["reasons"]) == REASONS[way]
    first, last = blocks[: BLOCKS // 2], blocks[BLOCKS // 2 :]
    times = [statistics.median(block["s"] for block in half) for half in (first, last)]
    assert times[1] < 1.5 * times[0], times
    assert blocks[-1]["mb"] - blocks[0]["mb"] < 16, blocks
    assert blocks[-1]["objects"] < 1.05 * blocks[0]["objects"] + 1_000, blocks
