"""Responses in exceptions. The classes are of packages that are not installed here."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.errors import ProviderError, UsageError
from endturn.frameworks import of_exception
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.stops import PLAIN_VALUES

CHAT_COMPLETION = {
    "choices": [{"index": 0, "message": {"content": '{"a'}, "finish_reason": "length"}],
    "usage": None,
    "id": "c1",
}
ANTHROPIC_MESSAGE = {
    "type": "message",
    "content": [],
    "stop_reason": "max_tokens",
    "usage": {"output_tokens": 9, "input_tokens": 2},
}


def exception(name: str, message: str = "message", **attributes: Any) -> Exception:
    """Return an exception of a class with that package and name, and with these attributes."""
    package, _, class_name = name.partition(".")
    made: Exception = type(class_name, (Exception,), {"__module__": f"{package}.exceptions"})(message)
    for attribute, value in attributes.items():
        setattr(made, attribute, value)
    return made


def reason_of(error: BaseException) -> StopReason | None:
    summary = of_exception(error)
    return None if summary is None else summary.stop.reason


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("instructor.IncompleteOutputException", StopReason.MAX_TOKENS),
        ("strands.MaxTokensReachedException", StopReason.MAX_TOKENS),
        ("strands.ContextWindowOverflowException", StopReason.CONTEXT_WINDOW_EXCEEDED),
        ("litellm.ContextWindowExceededError", StopReason.CONTEXT_WINDOW_EXCEEDED),
        ("litellm.ContentPolicyViolationError", StopReason.SAFETY_BLOCKED),
        ("litellm.BlockedPiiEntityError", StopReason.SAFETY_BLOCKED),
        ("pydantic_ai.ModelContextWindowExceededError", StopReason.CONTEXT_WINDOW_EXCEEDED),
        ("pydantic_ai.RunCancelled", StopReason.CANCELLED),
        ("google.ContinuationInterruptedError", StopReason.ERROR),
    ],
)
def test_an_exception_class_means_a_reason(name: str, reason: StopReason) -> None:
    assert reason_of(exception(name)) is reason


@pytest.mark.parametrize(
    "name",
    [
        "instructor.InstructorRetryException",
        "agents.MaxTurnsExceeded",
        "mine.MaxTokensReachedException",
    ],
)
def test_other_classes_mean_no_reason(name: str) -> None:
    assert of_exception(exception(name)) is None


def test_a_subclass_means_the_same_reason() -> None:
    base = type(exception("strands.MaxTokensReachedException"))
    assert reason_of(type("Mine", (base,), {"__module__": "mine"})("no")) is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(
            exception("agents.ModelRefusalError", refusal="No."),
            StopReason.REFUSED,
            id="a refusal of OpenAI's Agents SDK",
        ),
        pytest.param(
            exception("litellm.GuardrailRaisedException", blocked_content=True),
            StopReason.SAFETY_BLOCKED,
            id="a guardrail of LiteLLM blocked content",
        ),
        pytest.param(
            exception("litellm.GuardrailRaisedException", blocked_content=False),
            None,
            id="a guardrail of LiteLLM failed",
        ),
        pytest.param(
            exception("mine.Failed", completion="done"),
            None,
            id="text in place of a completion",
        ),
    ],
)
def test_reads_attributes(error: Exception, reason: StopReason | None) -> None:
    assert reason_of(error) is reason


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "Responses stream ended with terminal event `response.incomplete`. status=incomplete; "
            "incomplete_details=IncompleteDetails(reason='max_output_tokens').",
            StopReason.MAX_TOKENS,
        ),
        ("Responses stream ended with terminal event `response.failed`.", StopReason.ERROR),
        ("Tool search not found in agent", None),
    ],
)
def test_reads_the_message_of_the_agents_sdk(message: str, reason: StopReason | None) -> None:
    assert reason_of(exception("agents.ModelBehaviorError", message)) is reason


@pytest.mark.parametrize("name", ["instructor.IncompleteOutputException", "instructor.InstructorRetryException"])
def test_reads_the_response_that_instructor_keeps(name: str) -> None:
    assert reason_of(exception(name, last_completion=CHAT_COMPLETION)) is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    "response",
    [
        pytest.param({"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}, id="completions"),
        pytest.param(ANTHROPIC_MESSAGE, id="anthropic"),
        pytest.param({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": []}}]}, id="gemini"),
        pytest.param(
            {
                "object": "response",
                "status": "incomplete",
                "incomplete_details": {"reason": "max_output_tokens"},
                "output": [],
            },
            id="openai_responses",
        ),
        pytest.param(
            {"stopReason": "max_tokens", "output": {"message": {"content": []}}},
            id="bedrock_converse",
        ),
        pytest.param({"done": True, "done_reason": "length", "message": {"content": "a"}}, id="ollama"),
        pytest.param({"id": "1", "finish_reason": "MAX_TOKENS", "message": {"content": []}}, id="cohere"),
        pytest.param({"id": "i", "status": "incomplete", "steps": []}, id="gemini_interactions"),
        pytest.param(
            {
                "kind": "response",
                "parts": [{"part_kind": "text"}],
                "usage": {"input_tokens": 5, "output_tokens": 32},
                "provider_name": "openai",
                "provider_response_id": "resp_1",
                "finish_reason": "length",
                "state": "complete",
            },
            id="Pydantic AI",
        ),
    ],
)
def test_reads_a_response_of_any_format(response: dict[str, Any]) -> None:
    error = exception("instructor.InstructorRetryException", last_completion=response)
    assert reason_of(error) is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("name", "wrapped", "reason"),
    [
        (
            "strands.EventLoopException",
            "strands.MaxTokensReachedException",
            StopReason.MAX_TOKENS,
        ),
        ("litellm.MidStreamFallbackError", "litellm.RateLimitError", None),
    ],
)
def test_reads_a_wrapped_exception(name: str, wrapped: str, reason: StopReason | None) -> None:
    assert reason_of(exception(name, original_exception=exception(wrapped))) is reason


def test_reads_causes_and_contexts_five_deep() -> None:
    """A context that `from None` hides is not read."""
    truncated = exception("strands.MaxTokensReachedException")
    for depth in range(1, 8):
        error: BaseException = truncated
        for _ in range(depth):
            outer = RuntimeError("outer")
            outer.__cause__ = error
            error = outer
        assert (of_exception(error) is not None) == (depth <= 5)
    handled = RuntimeError("while handling")
    handled.__context__ = truncated
    assert of_exception(handled) is not None
    handled.__suppress_context__ = True
    assert of_exception(handled) is None


def test_reads_the_last_exception_of_a_group() -> None:
    truncated = exception("strands.MaxTokensReachedException")
    assert of_exception(ExceptionGroup("all models failed", [ValueError("first"), truncated])) is not None
    assert of_exception(ExceptionGroup("all models failed", [truncated, ValueError("last")])) is None


def test_reads_our_own_exceptions() -> None:
    blocked = ProviderError("no", stop=Stop(StopReason.SAFETY_BLOCKED, "content_filter"))
    assert reason_of(blocked) is StopReason.SAFETY_BLOCKED
    assert of_exception(ValueError("maximum context length")) is None


def test_ignores_a_property_that_raises() -> None:
    class Odd(Exception):
        @property
        def completion(self) -> Any:
            raise ValueError("never received")

    assert of_exception(Odd("odd")) is None


@pytest.mark.parametrize("name", PLAIN_VALUES)
def test_rejects_what_is_no_exception(name: str) -> None:
    with pytest.raises(UsageError, match=r"of_exception\(\) reads "):
        of_exception(PLAIN_VALUES[name])
