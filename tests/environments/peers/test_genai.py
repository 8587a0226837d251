"""Beside OpenTelemetry's own instrumentations: their spans are enriched, or tell of the calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.environments.peers.cases import ASKED, alone, claude_early, dropped, early, enriched
from tests.environments.peers.scene import Scene, genai

UNTOLD = {(early, "cancelled"): "unknown", (claude_early, "cancelled"): "unknown"}
"""Of a stream that was closed it tells nothing but what had come."""


@ASKED
@pytest.mark.parametrize("first", ["emitter", "endturn"])
def test_a_call_enriches_their_span(ask: Callable[[Scene], None], reply: Any, reason: str, first: str) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(genai, ask, reply, reason, told=ask not in (dropped, claude_early), first=first)


@ASKED
def test_their_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """Where no request is seen their span is read when it ends, and what it does not tell stays unknown."""
    alone(genai, ask, reply, reason, UNTOLD)
