"""Beside two other instrumentations at once: one response, and one span that says why the model stopped."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest

import endturn
from tests.environments.peers.cases import ASKED, claude_early, dropped, enriched
from tests.environments.peers.scene import Scene, genai, openinference


def openinference_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [openinference(tracers, meters), genai(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


def genai_inside(tracers: Any, meters: Any) -> Callable[[], None]:
    undo = [genai(tracers, meters), openinference(tracers, meters)]
    return lambda: [each() for each in reversed(undo)] and None


def test_the_environment_holds_what_it_names() -> None:
    """The versions under test are those that are pinned."""
    assert endturn.__version__
    assert version("opentelemetry-instrumentation-genai-openai") == "1.3b0"


@ASKED
@pytest.mark.parametrize("both", [openinference_inside, genai_inside])
def test_two_of_them_at_once(ask: Callable[[Scene], None], reply: Any, reason: str, both: Any) -> None:
    """The inner one's span is enriched, and the other's marked as counted."""
    enriched(both, ask, reply, reason, told=ask not in (dropped, claude_early))
