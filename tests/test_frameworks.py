"""Stop reasons as frameworks hand them out: data/framework_answers.jsonl has a line for each, in their own shapes.

langchain-core 1.7 with its integrations' `response_metadata`; litellm 1.106 (`ModelResponse.model_dump()`); the AI
SDK's LanguageModelV4; pydantic-ai 2.68 (as its adapter dumps); util-genai 1.3b0 and the instrumentations beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn import frameworks
from endturn.errors import ProviderError, UsageError
from endturn.frameworks import of_exception
from endturn.stop import Stop, StopReason
from endturn.telemetry.schema import finish_reason

ANSWERS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "framework_answers.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['reader']}: {row['name']}") for row in ANSWERS])
def test_an_answer_says_why_the_model_stopped(row: dict[str, Any]) -> None:
    """The provider's value where the framework kept it, else the framework's word; what is not said is the default."""
    stop = getattr(frameworks, row["reader"])(row["given"], **row.get("with", {}))
    unsaid = {"resume": "none", "detail": None, "promoted_from": None, "suspected": False, "mapped": True}
    assert {name: getattr(stop, name) for name in ("reason", "raw", *unsaid)} == unsaid | row["stop"]


@pytest.mark.parametrize("row", [row for row in ANSWERS if row["reader"] == "langchain" and "said by" in row["name"]])
def test_langchain_metadata_is_read_wherever_it_stands(row: dict[str, Any]) -> None:
    """A message and a generation say the same as bare metadata."""
    metadata = row["given"]
    stop = frameworks.langchain(metadata)
    assert frameworks.langchain({"content": "", "response_metadata": metadata}) == stop
    assert frameworks.langchain({"generations": [[{"text": "", "generation_info": metadata}]]}) == stop


@pytest.mark.parametrize("word", sorted(frameworks.REASONS["otel.util-genai"]))
def test_otel_reads_back_what_telemetry_writes(word: str) -> None:
    """The conventions' words come back as themselves."""
    stop = frameworks.otel((word,))
    assert finish_reason(stop.reason, stop.raw) == word


# --- Wrong calls --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [None, "stop", 3, ["stop"]], ids=repr)
def test_a_wrong_call_says_what_to_give(wrong: Any) -> None:
    """What is no answer of a framework's is the caller's mistake."""
    for read in (frameworks.langchain, frameworks.litellm, frameworks.pydantic_ai):
        with pytest.raises(UsageError, match=rf"{read.__name__}\(\) reads "):
            read(wrong)
    with pytest.raises(UsageError, match=r"of_exception\(\) reads an exception"):
        of_exception(wrong)
    with pytest.raises(UsageError, match=r"otel\(\) reads a span"):
        frameworks.otel(3)


READERS = ["langchain", "litellm", "otel", "pydantic_ai", "vercel"]


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "strange",
    [
        {"choices": 3, "generations": "x", "response_metadata": [1], "provider_details": 3, "parts": 7},
        {"choices": [None], "generations": [[]], "finish_reason": {"type": {"type": 1}}, "usage": [], "state": {}},
        {"response_metadata": {"finish_reason": 3, "model_provider": 5, "status": 2}, "unified": 5, "raw": object()},
        {"gen_ai.response.finish_reasons": (None,), "gen_ai.request.max_tokens": "many", "generations": {}},
    ],
    ids=["types", "nested", "values", "attributes"],
)
def test_nothing_raises_over_foreign_values(name: str, strange: Any) -> None:
    """Whatever stands where a reason should is no end of a turn."""
    known = {"kind": "response", "finish_reason": 3, "finishReason": [], "gen_ai.system": 1, "generations": None}
    stop = getattr(frameworks, name)(known | strange)
    assert stop.reason in (StopReason.MISSING, StopReason.UNKNOWN)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "foreign",
    [
        object(),
        ["stop", 3],
        {"role": "assistant", "content": "Hi."},
        {"type": "human", "content": "Hi.", "id": None},
        {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Hi."}], "instructions": None},
        {"model": {"messages": []}},
        {"http.request.method": "POST", "http.response.status_code": 200},
        {"attributes": [{"key": "gen_ai.request.model", "value": {"stringValue": "m"}}]},
    ],
    ids=["object", "list", "message", "human", "request", "update of a graph", "span of HTTP", "exported span"],
)
def test_what_is_no_answer_is_not_called_cut_off(name: str, foreign: Any) -> None:
    """A thing that holds no answer is the caller's mistake: the message says what it is, and nothing that it holds."""
    with pytest.raises(UsageError, match=rf"{name}\(\) reads .* not ") as error:
        getattr(frameworks, name)(foreign)
    assert "Hi." not in str(error.value)


@pytest.mark.parametrize("name", ["litellm", "pydantic_ai"])
def test_nothing_at_all_is_no_answer(name: str) -> None:
    """Metadata, attributes and a reason may be empty; an answer is not."""
    for read in (frameworks.langchain, frameworks.otel, frameworks.vercel):
        assert read({}).reason is StopReason.MISSING
    with pytest.raises(UsageError):
        getattr(frameworks, name)({})


def test_langchain_state_of_a_graph() -> None:
    """A state is read by its last AI message, whatever came after it; one without any is no answer."""
    human = {"type": "human", "content": "Hi.", "response_metadata": {}}
    said = {"type": "ai", "content": "So", "response_metadata": {"finish_reason": "length"}}
    other = {"type": "ai", "content": "Yes.", "response_metadata": {"finish_reason": "stop"}}
    state = {"status": "open", "messages": [human, other, human, said, human]}
    assert frameworks.langchain(state).reason is StopReason.MAX_TOKENS
    for empty in ([], [human]):
        with pytest.raises(UsageError, match=rf"no AI message among its {len(empty)}$"):
            frameworks.langchain({"messages": empty})


# --- Exceptions ---------------------------------------------------------------------------------------------------


def raised(package: str, name: str, **members: Any) -> Exception:
    """An exception of a package that is not installed, as its class is found: by module and name."""
    made: Exception = type(name, (Exception,), {"__module__": f"{package}.exceptions"})("message")
    made.__dict__.update(members)
    return made


PYDANTIC = {
    "kind": "response", "parts": [{"part_kind": "text"}], "usage": {"input_tokens": 5, "output_tokens": 32},
    "provider_name": "openai", "provider_response_id": "resp_1", "finish_reason": "length", "state": "complete",
}  # fmt: skip
CUT = {"choices": [{"index": 0, "message": {"content": '{"a'}, "finish_reason": "length"}], "usage": None, "id": "c1"}
USED = {"type": "message", "content": [], "stop_reason": "max_tokens", "usage": {"output_tokens": 9, "input_tokens": 2}}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        pytest.param(
            raised("instructor", "IncompleteOutputException", last_completion=CUT), "max_tokens", id="instructor"
        ),
        pytest.param(raised("instructor", "IncompleteOutputException"), "max_tokens", id="instructor, no completion"),
        pytest.param(
            raised("instructor", "InstructorRetryException", last_completion=USED), "max_tokens", id="retries"
        ),
        pytest.param(raised("instructor", "InstructorRetryException"), None, id="retries, nothing kept"),
        pytest.param(raised("strands", "MaxTokensReachedException"), "max_tokens", id="strands"),
        pytest.param(
            raised("strands", "ContextWindowOverflowException"), "context_window_exceeded", id="strands, window"
        ),
        pytest.param(
            raised("strands", "EventLoopException", original_exception=raised("strands", "MaxTokensReachedException")),
            "max_tokens",
            id="strands, wrapped",
        ),
        pytest.param(raised("agents", "ModelRefusalError", refusal="No."), "refused", id="agents"),
        pytest.param(raised("agents", "MaxTurnsExceeded"), None, id="agents, its own limit"),
        pytest.param(raised("litellm", "ContextWindowExceededError"), "context_window_exceeded", id="litellm"),
        pytest.param(raised("litellm", "ContentPolicyViolationError"), "safety_blocked", id="litellm, filter"),
        pytest.param(
            raised("litellm", "GuardrailRaisedException", blocked_content=True), "safety_blocked", id="guardrail"
        ),
        pytest.param(raised("litellm", "GuardrailRaisedException", blocked_content=False), None, id="no verdict"),
        pytest.param(
            raised("litellm", "MidStreamFallbackError", original_exception=raised("litellm", "RateLimitError")),
            None,
            id="litellm, wrapped",
        ),
        pytest.param(raised("mine", "MaxTokensReachedException"), None, id="the name alone is nothing"),
        pytest.param(raised("mine", "Failed", completion="done"), None, id="a completion of another kind"),
        pytest.param(ValueError("maximum context length"), None, id="nobody's"),
        pytest.param(
            ProviderError("no", stop=Stop(StopReason.SAFETY_BLOCKED, "content_filter")), "safety_blocked", id="ours"
        ),
    ],
)
def test_what_an_exception_hides(error: BaseException, expected: str | None) -> None:
    """By its class and module, and by the response that it keeps."""
    seen = of_exception(error)
    assert (None if seen is None else seen.stop.reason.value) == expected


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(CUT, id="chat"),
        pytest.param({"choices": [{"index": 0, "text": "a", "finish_reason": "length"}]}, id="completions"),
        pytest.param(USED, id="anthropic"),
        pytest.param({"candidates": [{"finishReason": "MAX_TOKENS", "content": {"parts": []}}]}, id="gemini"),
        pytest.param(
            {"object": "response", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
            | {"output": []},
            id="responses",
        ),
        pytest.param({"stopReason": "max_tokens", "output": {"message": {"content": []}}}, id="bedrock"),
        pytest.param({"done": True, "done_reason": "length", "message": {"content": "a"}}, id="ollama"),
        pytest.param({"id": "1", "finish_reason": "MAX_TOKENS", "message": {"content": []}}, id="cohere"),
        pytest.param({"id": "i", "status": "incomplete", "steps": []}, id="interactions"),
        pytest.param(PYDANTIC, id="pydantic-ai"),
    ],
)
def test_a_kept_response_may_be_in_any_format(body: dict[str, Any]) -> None:
    """Its own members tell which; the format of that format reads it."""
    seen = of_exception(raised("instructor", "InstructorRetryException", last_completion=body))
    assert seen is not None
    assert seen.stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        pytest.param(
            "Responses stream ended with terminal event `response.incomplete`. status=incomplete; "
            "incomplete_details=IncompleteDetails(reason='max_output_tokens').",
            "max_tokens",
            id="cut",
        ),
        pytest.param("Responses stream ended with terminal event `response.failed`.", "error", id="failed"),
        pytest.param("Tool search not found in agent", None, id="something else"),
    ],
)
def test_agents_sdk_says_it_in_a_sentence(sentence: str, expected: str | None) -> None:
    """OpenAI's Agents SDK raises over a stream that ended incomplete, and keeps the status in the message alone."""
    error = type("ModelBehaviorError", (Exception,), {"__module__": "agents.exceptions"})(sentence)
    seen = of_exception(error)
    assert (None if seen is None else seen.stop.reason.value) == expected


def test_an_exception_behind_it() -> None:
    """Causes and contexts are followed, five deep; a context that `from None` hides is not."""
    cut = raised("strands", "MaxTokensReachedException")
    for depth in range(1, 8):
        error: BaseException = cut
        for _ in range(depth):
            outer = RuntimeError("outer")
            outer.__cause__ = error
            error = outer
        assert (of_exception(error) is not None) == (depth <= 5)
    handled = RuntimeError("while handling")
    handled.__context__ = cut
    assert of_exception(handled) is not None
    handled.__suppress_context__ = True
    assert of_exception(handled) is None
    group = ExceptionGroup("all models failed", [ValueError("first"), cut])
    assert of_exception(group) is not None


def test_a_property_that_raises_is_no_matter() -> None:
    """What a foreign exception does when it is looked at stays its own."""

    class Odd(Exception):
        @property
        def completion(self) -> Any:
            raise ValueError("never received")

    assert of_exception(Odd("odd")) is None
