"""Finish reasons in spans, as util-genai 1.3b0 and the instrumentations beside it write them."""

from __future__ import annotations

from typing import Any

import pytest

from endturn import frameworks
from endturn.errors import UsageError
from endturn.frameworks import otel
from endturn.telemetry.schema import finish_reason
from tests.support.stops import CONTENT, NOT_RESPONSES, WRONG_TYPES, StopFields

REASONS = [
    pytest.param(["length"], StopFields("max_tokens", "length"), id="the conventions' word"),
    pytest.param(["tool_calls"], StopFields("tool_call", "tool_calls"), id="plural"),
    pytest.param(["tool_call"], StopFields("tool_call", "tool_call"), id="singular"),
    pytest.param(["max_tokens"], StopFields("max_tokens", "max_tokens"), id="google-genai"),
    pytest.param(["continuation"], StopFields("paused", "continuation"), id="Gemini, lower case"),
    pytest.param(["pause_turn"], StopFields("paused", "pause_turn"), id="Anthropic, raw"),
    pytest.param(
        ["guardrail_intervened"],
        StopFields("safety_blocked", "guardrail_intervened"),
        id="Bedrock, raw",
    ),
    pytest.param(["compaction"], StopFields("paused", "compaction"), id="compaction"),
    pytest.param(["steered"], StopFields("paused", "steered"), id="Responses, raw"),
    pytest.param(["stop", "length"], StopFields("end_turn", "stop"), id="the first of several"),
    pytest.param(["new"], StopFields("unknown", "new", mapped=False), id="unknown"),
    pytest.param([], StopFields("missing", None), id="none"),
]

STATES = {
    "in_progress": StopFields("paused", "in_progress(background)"),
    "queued": StopFields("paused", "queued(background)"),
    "failed": StopFields("error", "failed"),
    "cancelled": StopFields("cancelled", "cancelled"),
    "completed": StopFields("end_turn", "completed"),
    None: StopFields("missing", None),
}
"""`gen_ai.response.status` of a response without a reason, and its stop."""


@pytest.mark.parametrize(("reasons", "expected"), REASONS)
def test_reads_finish_reasons(reasons: list[str], expected: StopFields) -> None:
    assert StopFields.of(otel(reasons)) == expected


@pytest.mark.parametrize(("reasons", "expected"), REASONS)
def test_reads_span_attributes(reasons: list[str], expected: StopFields) -> None:
    assert StopFields.of(otel({"gen_ai.response.finish_reasons": reasons})) == expected


def test_reads_one_reason_as_text() -> None:
    assert StopFields.of(otel("stop")) == StopFields("end_turn", "stop")


@pytest.mark.parametrize("status", STATES)
def test_the_status_argument_counts_without_a_reason(status: str | None) -> None:
    assert StopFields.of(otel([], status=status)) == STATES[status]


@pytest.mark.parametrize("status", STATES)
def test_the_status_attribute_counts_without_a_reason(status: str | None) -> None:
    attributes: dict[str, Any] = {
        "gen_ai.response.finish_reasons": [],
        "gen_ai.response.status": status,
    }
    assert StopFields.of(otel(attributes)) == STATES[status]


@pytest.mark.parametrize("status", STATES)
def test_a_reason_counts_before_the_status(status: str | None) -> None:
    attributes = {"gen_ai.response.finish_reasons": ["length"], "gen_ai.response.status": status}
    assert StopFields.of(otel(attributes)) == StopFields("max_tokens", "length")


def test_suspects_a_response_of_exactly_the_output_limit() -> None:
    attributes = {
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.request.max_tokens": 100,
        "gen_ai.usage.output_tokens": 100,
    }
    assert StopFields.of(otel(attributes)) == StopFields("tool_call", "tool_calls", suspected=True)


def test_reads_openinference_attributes() -> None:
    expected = StopFields("max_tokens", "MAX_TOKENS")
    assert StopFields.of(otel({"llm.finish_reason": "MAX_TOKENS"})) == expected


@pytest.mark.parametrize("value", [*WRONG_TYPES.values(), {}], ids=[*WRONG_TYPES, "no attributes"])
def test_attributes_without_a_reason_are_missing(value: dict[str, Any]) -> None:
    assert StopFields.of(otel(value)) == StopFields("missing", None)


@pytest.mark.parametrize("name", NOT_RESPONSES)
def test_rejects_what_is_no_model_call(name: str) -> None:
    with pytest.raises(UsageError, match=r"otel\(\) reads .* not ") as error:
        otel(NOT_RESPONSES[name])
    assert CONTENT not in str(error.value)


def test_rejects_a_number() -> None:
    with pytest.raises(UsageError, match=r"otel\(\) reads a span"):
        otel(3)


@pytest.mark.parametrize("word", sorted(frameworks.REASONS["otel.util-genai"]))
def test_reads_back_telemetrys_own_attributes(word: str) -> None:
    stop = otel((word,))
    assert finish_reason(stop.reason, stop.raw) == word
