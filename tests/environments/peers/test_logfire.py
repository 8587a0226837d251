"""Beside Logfire: its spans are enriched, or tell of the calls alone, as far as they tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.environments.peers.cases import ASKED, alone, dropped, early, enriched, lost, responses
from tests.environments.peers.scene import Scene, logfire

UNTOLD = {
    (lost, "missing"): "unknown",
    (early, "cancelled"): "unknown",
    (dropped, "cancelled"): "unknown",
    (responses, "end_turn"): "unknown",
    (responses, "max_tokens"): "unknown",
}
"""Of a stream that was not read to its end it tells nothing but what had come, of Responses never a reason (5.2)."""


@ASKED
def test_a_patched_call_enriches_its_span(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """One response, one span that says why it stopped: of a stream the one that Logfire makes when it is over."""
    enriched(logfire, ask, reply, reason, first="endturn")


@ASKED
def test_its_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """With nothing patched its span is read when it ends; what it does not tell stays unknown."""
    alone(logfire, ask, reply, reason, UNTOLD)
