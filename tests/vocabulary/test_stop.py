"""Find the stop for a raw value and facts of its response, and sanitise values for telemetry."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.formats import format_of
from endturn.vocabulary.stop import Stop, find_stop, sanitize_reason

CHAT = format_of("openai_chat").reasons[""]
OLLAMA = format_of("ollama").reasons[""]


def fields(stop: Stop, expected: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a stop that an expectation names."""
    return {name: getattr(stop, name) for name in expected}


# --- The raw value ----------------------------------------------------------------------------


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("length", {"reason": "max_tokens", "raw": "length"}),
        (" LENGTH\n", {"reason": "max_tokens", "raw": " LENGTH\n"}),
        ({"type": "length", "length": 12}, {"reason": "max_tokens", "raw": "length"}),
        ({"reason": "stop"}, {"reason": "end_turn", "raw": "stop"}),
        ("STOPSTOP", {"reason": "end_turn", "raw": "STOPSTOP"}),
        ("lengthlengthlength", {"reason": "max_tokens", "raw": "lengthlengthlength"}),
        ("FinishReason.LENGTH", {"reason": "max_tokens", "raw": "FinishReason.LENGTH"}),
        ("filter: content_filter", {"reason": "safety_blocked", "raw": "filter: content_filter"}),
        ("stop, length", {"reason": "max_tokens", "raw": "stop, length"}),
        ("length/stop", {"reason": "max_tokens", "raw": "length/stop"}),
        ("stop tool_calls", {"reason": "tool_call", "raw": "stop tool_calls"}),
        ({"value": "length"}, {"reason": "max_tokens", "raw": "length"}),
        ({"type": {"type": {"type": "stop"}}}, {"reason": "end_turn", "raw": "stop"}),
        ({"reason": {"type": "length"}}, {"reason": "max_tokens", "raw": "length"}),
        (
            {"type": None, "reason": {"value": {"name": "length"}}},
            {"reason": "max_tokens", "raw": "length"},
        ),
        ("function_call_filter: content_filter", {"reason": "safety_blocked", "mapped": True}),
        ("length: 4096", {"reason": "max_tokens", "resume": "prompt"}),
        ("<FinishReason.LENGTH: 2>", {"reason": "max_tokens", "resume": "prompt"}),
        (["stop"], {"reason": "end_turn", "raw": "['stop']"}),
    ],
)
def test_finds_the_reason_in_a_raw_value(raw: object, expected: dict[str, Any]) -> None:
    assert fields(find_stop(raw, CHAT), expected) == expected


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("stopgoes", {"reason": "unknown", "raw": "stopgoes"}),
        ("stoplength", {"reason": "unknown", "raw": "stoplength"}),
        ("the user asked to stop", {"reason": "unknown", "mapped": False}),
        ("stop: brand_new", {"reason": "unknown", "mapped": False}),
        ({"because": "tired"}, {"reason": "unknown", "mapped": False}),
        ("stops", {"reason": "unknown", "raw": "stops"}),
        (
            {"type": {"type": {"type": {"type": {"type": {"type": "stop"}}}}}},
            {"reason": "unknown", "raw": "[nested]", "mapped": False},
        ),
        (7, {"reason": "unknown", "raw": "7"}),
    ],
)
def test_keeps_an_unknown_raw_value(raw: object, expected: dict[str, Any]) -> None:
    assert fields(find_stop(raw, CHAT), expected) == expected


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    "raw",
    [
        "stop: not length",
        "error: no length limit reached",
        "stop (not finished, length)",
        "STOP: NOT LENGTH",
        "length was not it",
        "{'stop': True, 'because': 'length'}",
    ],
)
def test_a_sentence_that_negates_a_reason_is_unknown(raw: str) -> None:
    expected = {"reason": "unknown", "resume": "none", "incomplete": True, "mapped": False}
    assert fields(find_stop(raw, CHAT), expected) == expected


@pytest.mark.behaviour(1)
@pytest.mark.parametrize("raw", [False, "", "  ", None, {}])
def test_an_empty_value_is_missing(raw: object) -> None:
    stop = find_stop(raw, CHAT)
    assert (stop.reason, stop.raw) == ("missing", None)


@pytest.mark.behaviour(2)
def test_an_unknown_value_is_never_promoted_to_a_tool_call() -> None:
    expected = {
        "reason": "unknown",
        "raw": "tired",
        "mapped": False,
        "truncated": False,
        "promoted_from": None,
    }
    assert fields(find_stop("tired", CHAT, calls=1), expected) == expected


# --- What else the response says --------------------------------------------------------------


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("raw", ["stop", "tool_calls", "length", None])
def test_a_stream_without_its_end_is_missing(raw: str | None) -> None:
    stop = find_stop(raw, CHAT, terminal_seen=False, calls=1)
    assert (stop.reason, stop.raw, stop.truncated, stop.terminal_seen) == (
        "missing",
        raw,
        True,
        False,
    )


@pytest.mark.behaviour(3)
def test_a_closed_connection_of_ollama_is_an_error() -> None:
    stop = find_stop(None, OLLAMA)
    assert (stop.reason, stop.raw, stop.detail) == ("error", "", "connection_closed")


@pytest.mark.behaviour(4)
@pytest.mark.behaviour(5)
@pytest.mark.parametrize(
    ("raw", "facts", "expected"),
    [
        (None, {"calls": 1}, {"reason": "tool_call", "promoted_from": "missing"}),
        (None, {"calls": 1, "calls_closed": True}, {"reason": "tool_call"}),
        (None, {"calls": 1, "calls_closed": False}, {"reason": "missing"}),
        (None, {"calls": 0, "calls_closed": True}, {"reason": "missing"}),
        ("stop", {"calls": 2}, {"reason": "tool_call", "raw": "stop", "promoted_from": "end_turn"}),
        (
            "stop",
            {"calls": 2, "calls_closed": False},
            {"reason": "end_turn", "promoted_from": None},
        ),
        ("length", {"calls": 2}, {"reason": "max_tokens"}),
    ],
)
def test_complete_tool_calls_promote_a_missing_reason_and_a_clean_end(
    raw: str | None, facts: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert fields(find_stop(raw, CHAT, **facts), expected) == expected


@pytest.mark.behaviour(6)
@pytest.mark.parametrize(
    ("raw", "output_tokens", "expected"),
    [
        ("stop", 100, {"reason": "end_turn", "suspected": True}),
        ("tool_calls", 101, {"reason": "tool_call", "suspected": True}),
        ("stop", 99, {"reason": "end_turn", "suspected": False}),
        ("length", 100, {"reason": "max_tokens", "suspected": False}),
    ],
)
def test_suspects_a_clean_end_that_used_up_the_output_limit(
    raw: str, output_tokens: int, expected: dict[str, Any]
) -> None:
    stop = find_stop(raw, CHAT, output_tokens=output_tokens, maximum=100)
    assert fields(stop, expected) == expected


@pytest.mark.behaviour(7)
@pytest.mark.parametrize(
    ("maximum", "window", "expected"),
    [
        (None, 30000, {"reason": "context_window_exceeded", "resume": "none"}),
        (None, 30001, {"reason": "max_tokens", "resume": "prompt"}),
        (None, None, {"reason": "max_tokens", "resume": "prompt"}),
        (14, 30000, {"reason": "max_tokens", "resume": "prompt"}),
        (400, 30000, {"reason": "context_window_exceeded", "resume": "none"}),
    ],
)
def test_a_response_that_filled_the_window_exceeded_it(
    maximum: int | None, window: int | None, expected: dict[str, Any]
) -> None:
    stop = find_stop("length", CHAT, prompt_tokens=29986, output_tokens=14, maximum=maximum, window=window)
    assert fields(stop, expected) == expected


@pytest.mark.behaviour(7)
@pytest.mark.parametrize(
    ("raw", "tokens", "expected"),
    [
        ("stop", {"prompt_tokens": 90, "output_tokens": 10, "window": 100}, "end_turn"),
        ("length", {"output_tokens": 10, "window": 10}, "max_tokens"),
        ("length", {"prompt_tokens": 10, "window": 10}, "max_tokens"),
    ],
)
def test_the_window_counts_for_a_truncated_response_with_both_token_counts(
    raw: str, tokens: dict[str, Any], expected: str
) -> None:
    assert find_stop(raw, CHAT, **tokens).reason == expected


@pytest.mark.parametrize(("raw", "expected"), [("stop", "refused"), ("length", "max_tokens")])
def test_a_refusal_counts_before_a_clean_end(raw: str, expected: str) -> None:
    assert find_stop(raw, CHAT, refused=True).reason == expected


# --- What of a value is shown -----------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        "some_new-value.2",
        " stop ",
        "xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxx",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
        "length (max_tokens)",
        "maxPredictedTokensReached",
    ],
)
def test_shows_words(raw: str) -> None:
    assert sanitize_reason(raw) == raw


@pytest.mark.parametrize(
    "raw",
    [
        "xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx_xxxxxxxxxx",
        "the user said this",
        "{'type': 'x'}",
        "é",
        "sk-proj-abcdef1234567890",
        "AKIAIOSFODNN7EXAMPLE",
        "4111111111111111",
        "Bearer abcdefghij",
        "A_B C_D E_F G_H I_J K_L M_N O_P Q_R S_T U_V W_X Y_Z A_A B_B C_C D_D",
    ],
)
def test_hides_values_that_are_no_word(raw: str) -> None:
    assert sanitize_reason(raw) == "[not a word]"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("error: Connection reset by peer 10.0.0.1", "error: …"),
        ("stop reason: my password is hunter2 ok", "stop reason: …"),
        ("content_filter: sk-proj-abcdef1234567890", "content_filter: …"),
    ],
)
def test_hides_the_text_after_a_word(raw: str, shown: str) -> None:
    assert sanitize_reason(raw) == shown
