"""Arguments that the decorators reject."""

from __future__ import annotations

from typing import Any

import pytest

import endturn
from endturn.errors import UsageError

NAME: Any = "support"


def test_observe_turn_takes_the_agent_by_keyword() -> None:
    expected = r"by keyword, not as a str: @observe_turn\(agent='…'\)"
    with pytest.raises(UsageError, match=expected):
        endturn.observe_turn(NAME)


def test_observe_provider_call_takes_the_provider_by_keyword() -> None:
    expected = r"by keyword, not as a str: @observe_provider_call\(provider='…'\)"
    with pytest.raises(UsageError, match=expected):
        endturn.observe_provider_call(NAME)


def test_observe_provider_call_suggests_a_format() -> None:
    with pytest.raises(UsageError, match="openai"):
        endturn.observe_provider_call(format="opnai")
