"""Beside other instrumentations of the same SDKs: their spans are enriched, or tell of the calls alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.environments.peers.cases import CUT, Ask, alone, each_case, enriched, lines, raw_stream
from tests.environments.peers.scene import genai, logfire, openinference, scene


def openinference_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [openinference(tracers, meters), genai(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


def genai_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [genai(tracers, meters), openinference(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


DROPPED = ("dropped", "claude-early")
ENDS_EARLIER: dict[Any, tuple[str, ...]] = {logfire: ("stream", "stream-cut", "stream-lost", "early", *DROPPED)}
"""Cases in which a span ends before its response does: no span says the reason, events and metrics do."""
UNTOLD: dict[Any, dict[str, str | None]] = {
    genai: dict.fromkeys(("early", "claude-early"), "unknown"),
    openinference: dict.fromkeys(("early", *DROPPED), "unknown"),
    logfire: dict.fromkeys(("early", *DROPPED, "stream-lost", "responses", "responses-cut"), "unknown"),
}
"""What a span does not tell. Of a stream that was not read to its end it tells what had come; Logfire's (5.2) of
Responses never a reason."""


@each_case
@pytest.mark.parametrize(
    ("emit", "first"),
    [
        *((emit, first) for emit in (genai, openinference) for first in ("emitter", "endturn")),
        (logfire, "endturn"),
        # Of two at once the inner one's span is enriched, and the other's marked as counted.
        (openinference_inside, "emitter"),
        (genai_inside, "emitter"),
    ],
)
def test_a_call_enriches_their_span(case: str, emit: Any, first: str) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(emit, case, untold=ENDS_EARLIER.get(emit, DROPPED), first=first)


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_enriches_their_span(ask: Ask, first: str) -> None:
    """A raw response is seen to its end, also where they had wrapped what the client inherits before it was patched."""
    with scene(CUT, emit=openinference, observed=True, first=first) as on:
        on.ask(ask)
        assert on.responses() == {"max_tokens": 1}
        assert on.told() == ["max_tokens"]
        assert on.uncounted() == []
        assert on.events().count("endturn.stop_reason_observed") == 1
        scopes = [span.instrumentation_scope.name for span in on.finished() if span.instrumentation_scope]
        assert "endturn" not in scopes


@each_case
@pytest.mark.parametrize("emit", UNTOLD)
def test_their_span_tells_of_a_call(case: str, emit: Any) -> None:
    """Where no request is seen their span is read when it ends, and what it does not tell stays unknown."""
    alone(emit, case, UNTOLD[emit])
