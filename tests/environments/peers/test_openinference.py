"""Beside OpenInference: their spans are enriched, or tell of the calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from endturn.scripted import truncate
from tests.environments.peers.cases import ASKED, alone, enriched, lines, raw_stream
from tests.environments.peers.scene import Scene, openinference


@ASKED
@pytest.mark.parametrize("first", ["emitter", "endturn"])
def test_a_patched_call_enriches_their_span(ask: Callable[[Scene], None], reply: Any, reason: str, first: str) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(openinference, ask, reply, reason, first=first)


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_enriches_their_span(ask: Callable[[Scene], None], first: str) -> None:
    """A raw response is seen to its end, also where they had wrapped what the client inherits before it was patched."""
    enriched(openinference, ask, truncate("Hello there", after=1), "max_tokens", first=first)


@ASKED
def test_their_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """With nothing patched their span is read when it ends, and the same is counted."""
    alone(openinference, ask, reply, reason)
