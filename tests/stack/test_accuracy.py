"""What dashboards say is what happened, through outages and restarts; the page has it on production's clock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from benchmarks import accuracy
from tests.support.processes import REPOSITORY, require_stack

pytestmark = [pytest.mark.stack, pytest.mark.slow]

TIMES = 15
"""How much faster the clock is; an export is a second."""
LOST = {"killed"}
"""What takes telemetry with it that nobody else had: an export's, which is a third of all on this clock."""

ENDED = {"terminated"}
"""What may end an agent between a call and the note that it made it: one more is said than is known."""


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """Every situation, each with a stack of its own, at once."""
    require_stack("prometheus", "collector")
    with ThreadPoolExecutor(len(accuracy.SITUATIONS)) as pool:
        every = pool.map(lambda name: accuracy.measure(name, TIMES), accuracy.SITUATIONS)
        return dict(zip(accuracy.SITUATIONS, every, strict=True))


@pytest.mark.parametrize("name", accuracy.SITUATIONS)
def test_dashboards_say_what_happened(name: str, results: dict[str, dict[str, Any]]) -> None:
    """Totals exactly, but for what an agent that is killed takes with it; shares of panels and alerts by a twentieth.

    Nothing that is recorded is more than happened by more than a fifth.
    """
    result = results[name]
    said, recorded, happened = result["said"], result["recorded"], result["happened"]
    for key in ("responses", "turns", "truncated", "unfinished"):
        least = happened[key] / 3 if name in LOST else happened[key]
        most = happened[key] + 1 if name in ENDED else happened[key]
        assert least <= said[key] <= most, key
    for key in ("truncation", "unfinished share"):
        assert said[key] == pytest.approx(happened[key], rel=0.05), key
    share = happened["unfinished"] / happened["turns"]
    assert recorded["unfinished"] / recorded["turns"] == pytest.approx(share, rel=0.05, abs=0.02)
    assert recorded["turns"] <= 1.2 * happened["turns"]


def test_the_page_is_what_the_benchmark_writes(results: dict[str, dict[str, Any]]) -> None:
    """The same situations and the same words around the figures."""
    page = (REPOSITORY / "docs" / "accuracy.md").read_text()
    assert page.startswith(accuracy.HEAD)
    assert page == accuracy.with_turns(page)
    for result in results.values():
        assert f"| {result['title']} |" in page
