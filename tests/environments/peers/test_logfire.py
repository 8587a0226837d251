"""Beside Logfire: its spans are enriched, or tell of the calls alone, as far as they tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.environments.peers.cases import ASKED, alone, claude_early, dropped, early, enriched, lost, responses, stream
from tests.environments.peers.scene import Scene, logfire

UNTOLD = {
    (lost, "missing"): "unknown",
    (early, "cancelled"): "unknown",
    (dropped, "cancelled"): "unknown",
    (claude_early, "cancelled"): "unknown",
    (responses, "end_turn"): "unknown",
    (responses, "max_tokens"): "unknown",
}
"""Of a stream that was not read to its end it tells nothing but what had come, of Responses never a reason (5.2)."""


@ASKED
def test_a_call_enriches_its_span(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """One response, one span that says why it stopped; of a stream, which its span does not outlive, none."""
    streams = ask in (stream, lost, early, dropped, claude_early)
    enriched(logfire, ask, reply, reason, told=not streams, first="endturn")


@ASKED
def test_its_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """Where no request is seen its span is read when it ends; what it does not tell stays unknown."""
    alone(logfire, ask, reply, reason, UNTOLD)
