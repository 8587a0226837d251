"""The vocabulary: what find_stop makes of a raw value, and that every known raw value has its row."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest

from endturn.chat import ChatResponse
from endturn.formats import FORMATS, format_of
from endturn.formats.openai_chat import FORMAT as openai_chat
from endturn.stop import TRUNCATED, Resume, Stop, StopReason, find_row, find_stop, raw_text

ROWS = openai_chat.reasons[""]


class Reason(Enum):
    """As google-genai and others hold their reasons."""

    LENGTH = "length"
    BLANK = " "


@pytest.mark.parametrize("api", FORMATS)
def test_the_rows_are_consistent(api: str) -> None:
    """Only clean reasons are complete; what is complete has nothing to resume."""
    for rows in format_of(api).reasons.values():
        for raw, row in rows.items():
            # A refusal is whole in some APIs, and cut short in others; what tells nothing does not tell that either.
            if row.terminal and row.reason not in (StopReason.UNKNOWN, StopReason.REFUSED):
                assert row.incomplete == (row.reason not in (StopReason.END_TURN, StopReason.TOOL_CALL)), raw
            assert row.incomplete or row.resume is Resume.NONE, raw


def test_truncated_is_three_reasons() -> None:
    """Every metric, attribute, alert and sampling rule stands on this set."""
    assert {reason for reason in StopReason if Stop(reason).truncated} == TRUNCATED
    assert sorted(TRUNCATED) == ["context_window_exceeded", "max_tokens", "missing"]


def test_long_nonsense_is_looked_up_in_reasonable_time() -> None:
    """A value of 100 000 characters costs no more than a few passes over it."""
    assert find_row("ab" * 50_000, ROWS) is None


@pytest.mark.parametrize(
    ("given", "stop"),
    [
        pytest.param(Stop(StopReason.MAX_TOKENS, "length"), Stop(StopReason.MAX_TOKENS, "length"), id="a Stop"),
        pytest.param(StopReason.MAX_TOKENS, Stop(StopReason.MAX_TOKENS, incomplete=True), id="a reason"),
        pytest.param("max_tokens", Stop(StopReason.MAX_TOKENS, incomplete=True), id="its value"),
        pytest.param({"reason": "max_tokens", "raw": "length"}, Stop(StopReason.MAX_TOKENS, "length"), id="stored"),
    ],
)
def test_a_response_takes_a_stop_or_a_reason_of_ours(given: Any, stop: Stop) -> None:
    """Both become a Stop; a Stop stays the very object that it is."""
    response = ChatResponse(text="Half", stop=given)
    assert response.stop == stop
    assert response.stop_reason is StopReason.MAX_TOKENS
    assert response.stop is given or not isinstance(given, Stop)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param("length", r"as stop=endturn.normalize\('length'\)", id="a provider's value"),
        pytest.param(None, "it should be a Stop", id="nothing"),
        pytest.param({"type": "length"}, "Field required", id="a provider's mapping"),
    ],
)
def test_a_response_refuses_any_other_stop(given: Any, message: str) -> None:
    """At once, with a sentence that says what to give."""
    with pytest.raises(pydantic.ValidationError, match=message):
        ChatResponse(text="Half", stop=given)


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    "raw", [Reason.LENGTH, *(SimpleNamespace(**{at: "length"}) for at in ("value", "type", "reason"))]
)
def test_a_raw_value_may_be_an_object(raw: object) -> None:
    """As SDKs hold their reasons; what JSON can hold is in tests/functions."""
    stop = find_stop(raw, ROWS)
    assert (stop.reason, stop.raw, raw_text(raw)) == (StopReason.MAX_TOKENS, "length", "length")
    assert raw_text(Reason.BLANK) is None
