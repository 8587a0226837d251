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


@pytest.mark.parametrize("api", FORMATS)
def test_the_rows_are_consistent(api: str) -> None:
    """Only clean reasons are complete; what is complete has nothing to resume."""
    for rows in format_of(api).reasons.values():
        for raw, row in rows.items():
            # A refusal is whole in some APIs, and cut short in others; what tells nothing does not tell that either.
            if row.terminal and row.reason not in (StopReason.UNKNOWN, StopReason.REFUSED):
                assert row.incomplete == (row.reason not in (StopReason.END_TURN, StopReason.TOOL_CALL)), raw
            assert row.incomplete or row.resume is Resume.NONE, raw


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    ("raw", "reason", "kept"),
    [
        pytest.param("length", "max_tokens", "length", id="as it is"),
        pytest.param(" LENGTH\n", "max_tokens", " LENGTH\n", id="case and space"),
        pytest.param(Reason.LENGTH, "max_tokens", "length", id="enum"),
        pytest.param({"type": "length", "length": 12}, "max_tokens", "length", id="mapping"),
        pytest.param({"reason": "stop"}, "end_turn", "stop", id="mapping with a reason"),
        pytest.param(SimpleNamespace(type="length"), "max_tokens", "length", id="object"),
        pytest.param("STOPSTOP", "end_turn", "STOPSTOP", id="repeated"),
        pytest.param("lengthlengthlength", "max_tokens", "lengthlengthlength", id="repeated thrice"),
        pytest.param("stoplength", "unknown", "stoplength", id="two reasons are none"),
        pytest.param("stops", "unknown", "stops", id="no prefix match"),
        pytest.param("", "missing", None, id="empty"),
        pytest.param("  ", "missing", None, id="blank"),
        pytest.param(None, "missing", None, id="null"),
        pytest.param({}, "missing", None, id="empty mapping"),
        pytest.param({"type": {"type": {"type": "stop"}}}, "missing", None, id="nested mapping"),
        pytest.param(7, "unknown", "7", id="number"),
        pytest.param(["stop"], "unknown", "['stop']", id="list"),
    ],
)
def test_raw_values(raw: object, reason: str, kept: str | None) -> None:
    """A raw value is found whatever holds it, and kept verbatim."""
    stop = find_stop(raw, ROWS)
    assert (stop.reason, stop.raw) == (reason, kept)
    assert raw_text(raw) == kept


@pytest.mark.behaviour(2)
def test_a_value_without_a_row_is_unknown_and_unmapped() -> None:
    """Drift is reported, never taken for an end; complete calls do not promote it."""
    stop = find_stop("tired", ROWS, calls=1)
    assert stop == Stop(StopReason.UNKNOWN, "tired", mapped=False)
    assert not stop.truncated


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("raw", ["stop", "tool_calls", "length", None])
def test_without_a_terminal_it_is_missing(raw: str | None) -> None:
    """A reason without the response's end is kept as raw, and counts as truncation."""
    stop = find_stop(raw, ROWS, terminal_seen=False, calls=1)
    assert (stop.reason, stop.raw, stop.truncated, stop.terminal_seen) == (StopReason.MISSING, raw, True, False)


@pytest.mark.behaviour(4)
@pytest.mark.parametrize(
    ("calls", "closed", "reason"), [(1, True, "tool_call"), (1, False, "missing"), (0, True, "missing")]
)
def test_a_null_reason(calls: int, closed: bool, reason: str) -> None:
    """A whole body without a reason is a tool call if it holds complete calls, else missing."""
    assert find_stop(None, ROWS, calls=calls, calls_closed=closed).reason == reason


@pytest.mark.behaviour(5)
def test_stop_with_complete_calls_is_promoted() -> None:
    """The reason that the provider gave stays readable."""
    stop = find_stop("stop", ROWS, calls=2)
    assert (stop.reason, stop.raw, stop.promoted_from) == (StopReason.TOOL_CALL, "stop", StopReason.END_TURN)
    assert find_stop("stop", ROWS, calls=2, calls_closed=False).reason is StopReason.END_TURN
    assert find_stop("length", ROWS, calls=2).reason is StopReason.MAX_TOKENS


@pytest.mark.behaviour(6)
@pytest.mark.parametrize(
    ("raw", "tokens", "suspected"),
    [("stop", 100, True), ("tool_calls", 101, True), ("stop", 99, False), ("length", 100, False)],
)
def test_a_clean_reason_at_the_full_budget_is_suspected(raw: str, tokens: int, suspected: bool) -> None:
    """The reason stays; the suspicion is a field."""
    stop = find_stop(raw, ROWS, output_tokens=tokens, maximum=100)
    assert (stop.reason, stop.suspected) == (ROWS[raw].reason, suspected)


@pytest.mark.behaviour(7)
@pytest.mark.parametrize(
    ("maximum", "window", "reason"),
    [
        pytest.param(None, 30_000, "context_window_exceeded", id="window full"),
        pytest.param(None, 30_001, "max_tokens", id="window not full"),
        pytest.param(None, None, "max_tokens", id="window unknown"),
        pytest.param(14, 30_000, "max_tokens", id="limit reached at the same time"),
        pytest.param(400, 30_000, "context_window_exceeded", id="window before the limit"),
    ],
)
def test_length_at_the_window(maximum: int | None, window: int | None, reason: str) -> None:
    """`length` means the window only where the numbers prove it."""
    stop = find_stop("length", ROWS, prompt_tokens=29_986, output_tokens=14, maximum=maximum, window=window)
    assert stop.reason == reason
    assert stop.resume is (Resume.PROMPT if reason == "max_tokens" else Resume.NONE)


def test_a_refusal_beside_a_clean_reason() -> None:
    """Chat says `stop` and puts the refusal in the content; a cut refusal is still cut."""
    assert find_stop("stop", ROWS, refused=True).reason is StopReason.REFUSED
    assert find_stop("length", ROWS, refused=True).reason is StopReason.MAX_TOKENS


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
