"""Beside OpenInference: their spans are enriched, or tell of the calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from endturn.scripted import truncate
from tests.environments.peers.cases import ASKED, alone, claude_early, dropped, early, enriched, lines, raw_stream
from tests.environments.peers.scene import Scene, openinference

UNTOLD = {(ask, "cancelled"): "unknown" for ask in (early, dropped, claude_early)}
"""Of a stream that was closed or dropped it tells nothing but what had come."""


@ASKED
@pytest.mark.parametrize("first", ["emitter", "endturn"])
def test_a_call_enriches_their_span(ask: Callable[[Scene], None], reply: Any, reason: str, first: str) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(openinference, ask, reply, reason, told=ask not in (dropped, claude_early), first=first)


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_enriches_their_span(ask: Callable[[Scene], None], first: str) -> None:
    """A raw response is seen to its end, also where they had wrapped what the client inherits before it was patched."""
    enriched(openinference, ask, truncate("Hello there", after=1), "max_tokens", first=first)


@ASKED
def test_their_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """Where no request is seen their span is read when it ends, and what it does not tell stays unknown."""
    alone(openinference, ask, reply, reason, UNTOLD)
