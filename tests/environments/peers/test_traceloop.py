"""Beside OpenLLMetry: its spans are enriched, or tell of the calls alone, as far as they tell."""

from __future__ import annotations

import pytest

from tests.environments.peers.cases import CUT, Ask, alone, each_case, enriched, lines, raw_stream
from tests.environments.peers.scene import scene, traceloop

UNTOLD = {
    **dict.fromkeys(("stream-lost", "early", "dropped", "claude-early"), "unknown"),
    "responses-cut": None,
}
"""It says OK of streams that were closed, dropped and cut off alike, and makes no span of a Responses call that is cut
off at its limit (0.62.4)."""


@each_case
def test_a_call_enriches_its_span(case: str) -> None:
    """One response, one span that says why it stopped; ours only of Responses, whose span it makes afterwards."""
    enriched(traceloop, case, ours=case.startswith("responses"), untold=("dropped", "claude-early"))


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_outlives_its_span(ask: Ask, first: str) -> None:
    """Its span of a raw stream ends before that is read: the reason then stands in metrics and events alone."""
    with scene(CUT, emit=traceloop, observed=True, first=first) as on:
        on.ask(ask)
        assert on.responses() == {"max_tokens": 1}
        assert sum(on.counted("gen_ai.client.operation.duration").values()) == 1
        assert on.told() == on.uncounted() == []
        assert on.events().count("endturn.stop_reason_observed") == 1


@each_case
def test_its_span_tells_of_a_call(case: str) -> None:
    """Where no request is seen its span is read when it ends; what it does not tell stays unknown."""
    alone(traceloop, case, UNTOLD)
