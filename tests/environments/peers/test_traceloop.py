"""Beside OpenLLMetry: its spans are enriched, or tell of the calls alone, as far as they tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from endturn.scripted import truncate
from tests.environments.peers.cases import (
    ASKED,
    alone,
    claude_early,
    dropped,
    early,
    enriched,
    lines,
    lost,
    raw_stream,
    responses,
)
from tests.environments.peers.scene import Scene, scene, traceloop

UNTOLD = {
    (lost, "missing"): "unknown",
    (early, "cancelled"): "unknown",
    (dropped, "cancelled"): "unknown",
    (claude_early, "cancelled"): "unknown",
    (responses, "max_tokens"): None,
}
"""It says OK of streams that were closed, dropped and cut off alike, and makes no span of a Responses call that is cut
off at its limit (0.62.4)."""


@ASKED
def test_a_call_enriches_its_span(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """One response, one span that says why it stopped; ours only of Responses, whose span it makes afterwards."""
    enriched(traceloop, ask, reply, reason, ours=ask is responses, told=ask not in (dropped, claude_early))


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_outlives_its_span(ask: Callable[[Scene], None], first: str) -> None:
    """Its span of a raw stream ends before that is read: the reason then stands in metrics and events alone."""
    with scene(truncate("Hello there", after=1), emit=traceloop, observed=True, first=first) as on:
        on.ask(ask)
        assert on.responses() == {"max_tokens": 1}
        assert sum(on.counted()["gen_ai.client.operation.duration"].values()) == 1
        assert on.marked() == on.uncounted() == []
        assert on.events().count("endturn.stop_reason_observed") == 1


@ASKED
def test_its_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str) -> None:
    """Where no request is seen its span is read when it ends; what it does not tell stays unknown."""
    alone(traceloop, ask, reply, reason, UNTOLD)
