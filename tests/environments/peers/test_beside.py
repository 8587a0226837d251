"""Beside other instrumentations of the same SDKs: their spans are enriched, or tell of the calls alone."""

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
    stream,
)
from tests.environments.peers.scene import Scene, genai, logfire, openinference


def openinference_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [openinference(tracers, meters), genai(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


def genai_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [genai(tracers, meters), openinference(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


ENDS_EARLIER: dict[Any, tuple[Any, ...]] = {
    logfire: (stream, lost, early, dropped, claude_early),
    **dict.fromkeys((genai, openinference, openinference_inside, genai_inside), (dropped, claude_early)),
}
"""Calls whose span ends before their response does: no span says the reason, events and metrics do."""
UNTOLD: dict[Any, dict[tuple[Any, str], str | None]] = {
    genai: {(ask, "cancelled"): "unknown" for ask in (early, claude_early)},
    openinference: {(ask, "cancelled"): "unknown" for ask in (early, dropped, claude_early)},
    logfire: {(ask, "cancelled"): "unknown" for ask in (early, dropped, claude_early)}
    | {(lost, "missing"): "unknown", (responses, "end_turn"): "unknown", (responses, "max_tokens"): "unknown"},
}
"""What a span does not tell. Of a stream that was not read to its end it tells what had come; Logfire's (5.2) of
Responses never a reason."""


@ASKED
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
def test_a_call_enriches_their_span(
    ask: Callable[[Scene], None], reply: Any, reason: str, emit: Any, first: str
) -> None:
    """Whoever is set up first: one response, one span that says why it stopped, and none of ours."""
    enriched(emit, ask, reply, reason, told=ask not in ENDS_EARLIER[emit], first=first)


@pytest.mark.parametrize("first", ["emitter", "endturn"])
@pytest.mark.parametrize("ask", [raw_stream, lines])
def test_a_raw_stream_enriches_their_span(ask: Callable[[Scene], None], first: str) -> None:
    """A raw response is seen to its end, also where they had wrapped what the client inherits before it was patched."""
    enriched(openinference, ask, truncate("Hello there", after=1), "max_tokens", first=first)


@ASKED
@pytest.mark.parametrize("emit", UNTOLD)
def test_their_span_tells_of_a_call(ask: Callable[[Scene], None], reply: Any, reason: str, emit: Any) -> None:
    """Where no request is seen their span is read when it ends, and what it does not tell stays unknown."""
    alone(emit, ask, reply, reason, UNTOLD[emit])
