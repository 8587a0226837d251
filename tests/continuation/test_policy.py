"""The policy: its defaults, its environment, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import UsageError


def test_the_defaults_are_the_contracts() -> None:
    """The source design's limits, and ours where it has none."""
    assert ContinuationPolicy().model_dump(exclude={"prompt"}) == {
        "continuation_max_attempts": 3,
        "continuation_max_total_completion_tokens": None,
        "continuation_max_output_chars": 120_000,
        "continuation_tool_repair_attempts": 1,
        "continuation_max_resumes": 10,
        "deadline_s": None,
        "max_iterations": 50,
        "dispatch": "verified_terminal",
        "suspect_full_budget": True,
        "min_overlap": 16,
        "max_overlap": 1_024,
        "max_cost": None,
        "prices": {},
        "on_reasoning_only": "stop",
        "on_context_exceeded": "abort",
        "stream_json": "held",
        "mode": None,
        "wallet_guard": True,
        "transcript": None,
    }


@pytest.mark.behaviour(26)
def test_the_recovery_prompt_is_the_source_designs() -> None:
    """The nudge is the four lines of the source design."""
    assert ContinuationPolicy().prompt.splitlines() == [
        "Previous response was truncated by token limit.",
        "Continue exactly from where you left off.",
        "If you intended a tool call, emit one complete tool call payload only.",
        "Do not repeat already-sent text.",
    ]


def test_the_environment_sets_a_key_and_a_keyword_wins() -> None:
    """ENDTURN_AGENT_ and the key in upper case; keywords are stronger; empty is unset."""
    environ = {
        "ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS": "5",
        "ENDTURN_AGENT_MAX_ITERATIONS": "7",
        "ENDTURN_AGENT_DEADLINE_S": "",
        "PATH": "/bin",
    }
    policy = ContinuationPolicy.from_environment(environ, max_iterations=9)
    assert (policy.continuation_max_attempts, policy.max_iterations, policy.deadline_s) == (5, 9, None)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"continuation_max_attempts": -1}, "continuation_max_attempts cannot be -1", id="negative"),
        pytest.param({"dispatch": "always"}, "dispatch cannot be 'always'", id="unknown word"),
        pytest.param({"max_attempts": 3}, "'max_attempts' is no setting; the keys are: continuation_max", id="no key"),
        pytest.param({"prompt": "  "}, "prompt cannot be '  '", id="blank prompt"),
        pytest.param({"min_overlap": 20, "max_overlap": 10}, r"min_overlap \(20\) is larger", id="overlaps crossed"),
    ],
)
def test_a_wrong_value_is_refused_with_a_sentence(values: dict[str, Any], message: str) -> None:
    """The error names the key and the value."""
    with pytest.raises(UsageError, match=message):
        ContinuationPolicy(**values)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ENDTURN_AGENT_MAX_ATTEMPTS", "3", "ENDTURN_AGENT_MAX_ATTEMPTS is no setting"),
        ("ENDTURN_AGENT_MAX_ITERATIONS", "many", "max_iterations cannot be 'many'"),
    ],
)
def test_a_wrong_variable_is_refused_with_a_sentence(name: str, value: str, message: str) -> None:
    """A misspelt variable is said, not ignored."""
    with pytest.raises(UsageError, match=message):
        ContinuationPolicy.from_environment({name: value})


def test_a_policy_does_not_change() -> None:
    """A policy is frozen."""
    with pytest.raises(ValueError, match="frozen"):
        ContinuationPolicy().max_iterations = 1  # type: ignore[misc]
