"""A ChatResponse takes a Stop, or the word of one, and rejects a raw value."""

from __future__ import annotations

from typing import Any

import pytest

from endturn import ChatResponse
from endturn.vocabulary.stop import Stop, StopReason


def test_a_stop_can_be_its_word() -> None:
    response = ChatResponse(text="Half", stop="max_tokens")
    assert response.stop == Stop(StopReason.MAX_TOKENS, incomplete=True)
    assert response.stop_reason is StopReason.MAX_TOKENS


def test_a_stop_can_be_a_mapping() -> None:
    fields: Any = {"reason": "max_tokens", "raw": "length"}
    assert ChatResponse(text="Half", stop=fields).stop == Stop(StopReason.MAX_TOKENS, "length")


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ("length", r"as stop=endturn.normalize\('length'\)"),
        (None, "it should be a Stop"),
        ({"type": "length"}, "Field required"),
    ],
)
def test_rejects_values_that_are_no_stop(stop: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChatResponse(text="Half", stop=stop)
