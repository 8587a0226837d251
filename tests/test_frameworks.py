"""Stop reasons as frameworks hand them out: payloads in the frameworks' own shapes, written down as mappings.

langchain-core 1.7 with its integrations' `response_metadata`; litellm 1.106 (`ModelResponse.model_dump()`); the AI
SDK's LanguageModelV4; pydantic-ai 2.68 (as its adapter dumps); util-genai 1.3b0 and the instrumentations beside it.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from endturn import frameworks
from endturn.errors import ProviderError, UsageError
from endturn.frameworks import of_exception
from endturn.stop import Resume, Stop, StopReason
from endturn.stop_reasons import apis
from endturn.telemetry.schema import finish_reason

TSV = Path(__file__).parent / "data" / "stop_reasons.tsv"
EVIDENCE = [
    row
    for row in csv.DictReader(TSV.read_text().splitlines(), delimiter="\t")
    if row["api"] in ("vercel.v4", "otel.util-genai")
]

CALL = {"name": "search", "args": {}, "id": "call_1", "type": "tool_call"}
BROKEN = {"name": "search", "args": '{"q', "id": "call_2", "error": None, "type": "invalid_tool_call"}


def said(stop: Stop) -> tuple[str, str | None, str]:
    """What the cases below compare: reason, raw value, and how it resumes."""
    return stop.reason.value, stop.raw, stop.resume.value


# --- Tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['api']}-{row['raw']}") for row in EVIDENCE])
def test_every_row_of_the_evidence_is_in_the_tables(row: dict[str, str]) -> None:
    """What was read in the frameworks' own sources is what the tables say."""
    found = frameworks.REASONS[row["api"]][row["raw"]]
    assert found.reason == row["normalized"]
    assert found.incomplete == (row["incomplete"] == "yes")
    assert found.resume == row["resume"]
    assert (found.detail or "") == row["detail"]


def test_every_framework_has_a_name_and_a_source() -> None:
    """Each table says where its words stand, and each row where its meaning was read."""
    assert apis("frameworks").keys() == frameworks.REASONS.keys()
    assert all(row.source for rows in frameworks.REASONS.values() for row in rows.values())


def test_the_evidence_has_no_other_rows() -> None:
    """The tables of the two documented vocabularies are exactly those."""
    for api in ("vercel.v4", "otel.util-genai"):
        assert set(frameworks.REASONS[api]) == {row["raw"] for row in EVIDENCE if row["api"] == api}


# --- LangChain ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        pytest.param(
            {"finish_reason": "length", "model_provider": "openai"}, ("max_tokens", "length", "prompt"), id="openai"
        ),
        pytest.param(
            {"object": "response", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            ("max_tokens", "incomplete:max_output_tokens", "prompt"),
            id="responses cut",
        ),
        pytest.param(
            {"object": "response", "status": "completed", "incomplete_details": None, "error": None},
            ("end_turn", "completed", "none"),
            id="responses",
        ),
        pytest.param(
            {"object": "response", "status": "failed", "error": {"code": "bio_policy"}},
            ("safety_blocked", "failed:bio_policy", "none"),
            id="responses failed",
        ),
        pytest.param(
            {"object": "response", "status": "failed", "error": {"code": "never_heard"}},
            ("error", "failed:never_heard", "none"),
            id="responses failed otherwise",
        ),
        pytest.param(
            {"object": "response", "status": "in_progress", "background": True},
            ("paused", "in_progress(background)", "retrieve_same_id"),
            id="responses in the background",
        ),
        pytest.param(
            {"object": "response", "status": "incomplete", "incomplete_details": {"reason": "steered"}},
            ("paused", "incomplete:steered", "server"),
            id="responses steered",
        ),
        pytest.param(
            {"stop_reason": "pause_turn", "stop_sequence": None, "model_provider": "anthropic"},
            ("paused", "pause_turn", "resend_unchanged"),
            id="anthropic",
        ),
        pytest.param(
            {"stop_reason": "model_context_window_exceeded"},
            ("context_window_exceeded", "model_context_window_exceeded", "none"),
            id="anthropic without a provider",
        ),
        pytest.param(
            {"finish_reason": "MAX_TOKENS", "model_provider": "google_genai", "safety_ratings": []},
            ("max_tokens", "MAX_TOKENS", "prompt"),
            id="gemini",
        ),
        pytest.param(
            {"finish_reason": "CONTINUATION", "model_provider": "google_genai"},
            ("paused", "CONTINUATION", "native_token"),
            id="gemini continuation",
        ),
        pytest.param(
            {"finish_reason": "OTHER", "model_provider": "google_vertexai"}, ("error", "OTHER", "none"), id="vertex"
        ),
        pytest.param(
            {"finish_reason": "MALFORMED_FUNCTION_CALL"},
            ("error", "MALFORMED_FUNCTION_CALL", "repair"),
            id="gemini without a provider",
        ),
        pytest.param(
            {"prompt_feedback": {"block_reason": "JAILBREAK"}}, ("safety_blocked", "JAILBREAK", "none"), id="blocked"
        ),
        pytest.param(
            {"stopReason": "guardrail_intervened", "model_provider": "bedrock_converse"},
            ("safety_blocked", "guardrail_intervened", "none"),
            id="bedrock",
        ),
        pytest.param(
            {"messageStop": {"stopReason": "max_tokens"}, "model_provider": "bedrock_converse"},
            ("max_tokens", "max_tokens", "prompt"),
            id="bedrock stream",
        ),
        pytest.param(
            {"completionReason": "CONTENT_FILTERED"}, ("safety_blocked", "CONTENT_FILTERED", "none"), id="titan"
        ),
        pytest.param({"finishReason": {"reason": "length"}}, ("max_tokens", "length", "prompt"), id="ai21"),
        pytest.param({"stop_reason": "length"}, ("max_tokens", "length", "prompt"), id="llama on bedrock"),
        pytest.param(
            {"done": True, "done_reason": "load", "model_provider": "ollama"}, ("end_turn", "load", "none"), id="ollama"
        ),
        pytest.param({"finish_reason": "COMPLETE"}, ("end_turn", "COMPLETE", "none"), id="cohere"),
        pytest.param(
            {"finish_reason": "model_length", "model_provider": "mistralai"},
            ("context_window_exceeded", "model_length", "none"),
            id="mistral",
        ),
        pytest.param({"finish_reason": "STOPSTOP"}, ("end_turn", "STOPSTOP", "none"), id="chunks added up"),
        pytest.param({"finish_reason": "lengthlength"}, ("max_tokens", "lengthlength", "prompt"), id="cut, added up"),
        pytest.param({"finish_reason": "stoplength"}, ("unknown", "stoplength", "none"), id="two reasons are none"),
        pytest.param(
            {"finish_reason": "new_word", "normalized_finish_reason": "length", "model_provider": "openai"},
            ("max_tokens", "new_word", "prompt"),
            id="its own word for an unknown value",
        ),
        pytest.param(
            {"finish_reason": "new_word", "normalized_finish_reason": "other"},
            ("unknown", "new_word", "none"),
            id="its own word tells nothing",
        ),
        pytest.param({"finish_reason": None, "model_provider": "openai"}, ("missing", None, "none"), id="null"),
        pytest.param({"model_provider": "openai"}, ("missing", None, "none"), id="none"),
    ],
)
def test_langchain_keys_tell_whose_reason_it_is(
    metadata: dict[str, Any], expected: tuple[str, str | None, str]
) -> None:
    """A message, a generation and bare metadata say the same, whatever key the integration left the reason under."""
    assert said(frameworks.langchain(metadata)) == expected
    assert said(frameworks.langchain({"content": "", "response_metadata": metadata})) == expected
    assert said(frameworks.langchain({"generations": [[{"text": "", "generation_info": metadata}]]})) == expected
    assert frameworks.langchain(metadata).mapped == (expected[0] != "unknown")


@pytest.mark.parametrize(
    ("reason", "invalid", "expected"),
    [
        pytest.param("stop", [], (StopReason.TOOL_CALL, StopReason.END_TURN), id="clean"),
        pytest.param("stop", [BROKEN], (StopReason.END_TURN, None), id="one cannot be parsed"),
        pytest.param("length", [], (StopReason.MAX_TOKENS, None), id="cut arguments became a valid {}"),
        pytest.param("tool_calls", [], (StopReason.TOOL_CALL, None), id="said so"),
        pytest.param(None, [], (StopReason.TOOL_CALL, StopReason.MISSING), id="null in a whole answer"),
    ],
)
def test_langchain_calls_promote_a_clean_reason_only(
    reason: str | None, invalid: list[dict[str, Any]], expected: tuple[StopReason, StopReason | None]
) -> None:
    """LangChain completes cut JSON, so calls under a truncating reason prove nothing."""
    message = {
        "type": "ai",
        "response_metadata": {"finish_reason": reason},
        "tool_calls": [CALL],
        "invalid_tool_calls": invalid,
    }
    stop = frameworks.langchain(message)
    assert (stop.reason, stop.promoted_from) == expected


def test_langchain_chunk_without_a_reason_is_missing() -> None:
    """A sum of chunks that never got its reason is a cut stream, calls or not."""
    chunk = {"type": "AIMessageChunk", "response_metadata": {}, "tool_calls": [CALL]}
    assert frameworks.langchain(chunk).reason is StopReason.MISSING


def test_langchain_usage_raises_suspicion() -> None:
    """A clean end that used up the whole budget is suspected, where the budget is told."""
    message = {"response_metadata": {"finish_reason": "tool_calls"}, "usage_metadata": {"output_tokens": 64}}
    assert frameworks.langchain(message, maximum=64).suspected
    assert not frameworks.langchain(message, maximum=65).suspected
    assert not frameworks.langchain(message).suspected


def test_langchain_refusal_beside_a_clean_reason() -> None:
    """OpenAI refuses in the content, not in the reason."""
    metadata = {"finish_reason": "stop", "model_provider": "openai"}
    chat = {"response_metadata": metadata, "additional_kwargs": {"refusal": "No."}}
    parts = {"response_metadata": {"object": "response", "status": "completed"}, "content": [{"type": "refusal"}]}
    assert frameworks.langchain(chat).reason is StopReason.REFUSED
    assert frameworks.langchain(parts).reason is StopReason.REFUSED


def test_langchain_keeps_the_stop_sequence() -> None:
    """The matched sequence is the detail."""
    stop = frameworks.langchain({"stop_reason": "stop_sequence", "stop_sequence": "END"})
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "END")


def test_langchain_result_of_a_blocked_prompt() -> None:
    """Gemini gives no candidate then, and the result alone says why."""
    blocked = {"prompt_feedback": {"block_reason": "SAFETY"}}
    result = {"generations": [[{"message": {"response_metadata": {}}, "generation_info": {}}]], "llm_output": blocked}
    assert frameworks.langchain(result).reason is StopReason.SAFETY_BLOCKED


# --- LiteLLM ------------------------------------------------------------------------------------------------------


def litellm_body(finish: str | None, native: str | None = None, calls: bool = False) -> dict[str, Any]:
    """A dumped ModelResponse of litellm 1.106."""
    message: dict[str, Any] = {"content": "hi", "role": "assistant", "tool_calls": None, "function_call": None}
    if calls:
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    choice: dict[str, Any] = {"finish_reason": finish, "index": 0, "message": message}
    if native is not None:
        choice["provider_specific_fields"] = {"native_finish_reason": native}
    usage = {"completion_tokens": 16, "prompt_tokens": 4, "total_tokens": 20}
    return {"id": "chatcmpl-1", "model": "m", "object": "chat.completion", "choices": [choice], "usage": usage}


@pytest.mark.parametrize(
    ("finish", "native", "expected"),
    [
        pytest.param("stop", "pause_turn", ("paused", "pause_turn", "none"), id="a pause that it calls stop"),
        pytest.param("length", "pause_turn", ("paused", "pause_turn", "none"), id="a pause that it calls length"),
        pytest.param("stop", "MALFORMED_FUNCTION_CALL", ("error", "MALFORMED_FUNCTION_CALL", "repair"), id="malformed"),
        pytest.param("stop", "TOO_MANY_TOOL_CALLS", ("error", "TOO_MANY_TOOL_CALLS", "none"), id="too many calls"),
        pytest.param(
            "length",
            "model_context_window_exceeded",
            ("context_window_exceeded", "model_context_window_exceeded", "none"),
            id="window",
        ),
        pytest.param("length", "CONTINUATION", ("paused", "CONTINUATION", "none"), id="no token is handed on"),
        pytest.param("length", "compaction", ("paused", "compaction", "none"), id="compaction"),
        pytest.param("content_filter", "refusal", ("refused", "refusal", "none"), id="refusal"),
        pytest.param("content_filter", "OTHER", ("error", "OTHER", "none"), id="other"),
        pytest.param("stop", "network_error", ("error", "network_error", "none"), id="network error"),
        pytest.param("stop", "ERROR", ("error", "ERROR", "none"), id="cohere's error"),
        pytest.param("length", "MAX_TOKENS", ("max_tokens", "MAX_TOKENS", "prompt"), id="maximum"),
        pytest.param("tool_calls", "tool_use", ("tool_call", "tool_use", "none"), id="calls"),
        pytest.param("stop", "weird", ("unknown", "weird", "none"), id="what it does not know is no end"),
        pytest.param("length", "STOP", ("max_tokens", "length", "prompt"), id="a native value that hides the cut"),
    ],
)
def test_litellm_native_reason_counts(finish: str, native: str, expected: tuple[str, str, str]) -> None:
    """LiteLLM's own word loses what the provider said; the native one is read first, and resumes as chat can."""
    body = litellm_body(finish, native)
    stop = frameworks.litellm(body)
    assert said(stop) == expected
    assert stop.detail is None
    assert frameworks.litellm(body["choices"][0]) == stop
    assert stop.mapped == (native != "weird")


@pytest.mark.parametrize(
    ("finish", "expected"),
    [
        pytest.param("stop", ("end_turn", "stop", "none"), id="stop"),
        pytest.param("length", ("max_tokens", "length", "prompt"), id="length"),
        pytest.param("content_filter", ("safety_blocked", "content_filter", "none"), id="filter"),
    ],
)
def test_litellm_word_alone_is_marked(finish: str, expected: tuple[str, str, str]) -> None:
    """Where only LiteLLM's word is there it counts, and the detail says whose it is."""
    stop = frameworks.litellm(litellm_body(finish))
    assert said(stop) == expected
    assert stop.detail == "litellm"


def test_litellm_calls_promote() -> None:
    """Gemini says STOP beside its calls."""
    stop = frameworks.litellm(litellm_body("tool_calls", "STOP", calls=True))
    assert (stop.reason, stop.raw, stop.promoted_from) == (StopReason.TOOL_CALL, "STOP", StopReason.END_TURN)
    assert frameworks.litellm(litellm_body("length", "MAX_TOKENS", calls=True)).reason is StopReason.MAX_TOKENS


def test_litellm_chunks() -> None:
    """A chunk in the midst has no reason; the last has LiteLLM's word alone."""
    delta = {"content": "", "role": None, "function_call": None, "tool_calls": None}
    chunk = {"object": "chat.completion.chunk", "choices": [{"finish_reason": None, "index": 0, "delta": delta}]}
    assert frameworks.litellm(chunk).reason is StopReason.MISSING
    chunk["choices"] = [{"finish_reason": "stop", "index": 0, "delta": delta}]
    assert said(frameworks.litellm(chunk)) == ("end_turn", "stop", "none")


def test_litellm_usage_raises_suspicion() -> None:
    """A clean end that used up the whole budget is suspected."""
    assert frameworks.litellm(litellm_body("stop"), maximum=16).suspected


# --- Vercel -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"unified": "stop", "raw": "pause_turn"}, ("paused", "pause_turn", "none"), id="pause"),
        pytest.param({"unified": "other", "raw": "compaction"}, ("paused", "compaction", "none"), id="compaction"),
        pytest.param({"unified": "stop", "raw": "end_turn"}, ("end_turn", "end_turn", "none"), id="clean"),
        pytest.param(
            {"unified": "length", "raw": "model_context_window_exceeded"},
            ("context_window_exceeded", "model_context_window_exceeded", "none"),
            id="window",
        ),
        pytest.param(
            {"unified": "length", "raw": "max_output_tokens"},
            ("max_tokens", "max_output_tokens", "prompt"),
            id="responses",
        ),
        pytest.param(
            {"unified": "length", "raw": "new"}, ("max_tokens", "new", "prompt"), id="a raw value without row"
        ),
        pytest.param({"unified": "other", "raw": "new"}, ("unknown", "new", "none"), id="neither says anything"),
        pytest.param({"unified": "length", "raw": None}, ("max_tokens", "length", "prompt"), id="no raw value"),
        pytest.param({"unified": "error", "raw": "stop"}, ("error", "error", "none"), id="the raw value hides it"),
        pytest.param("content-filter", ("safety_blocked", "content-filter", "none"), id="word"),
        pytest.param("other", ("unknown", "other", "none"), id="other"),
        pytest.param(
            {"finishReason": "length", "rawFinishReason": "MAX_TOKENS"},
            ("max_tokens", "MAX_TOKENS", "prompt"),
            id="a result",
        ),
        pytest.param(
            {"type": "finish", "finishReason": {"unified": "length", "raw": "length"}},
            ("max_tokens", "length", "prompt"),
            id="a stream's finish part",
        ),
        pytest.param(None, ("missing", None, "none"), id="none"),
        pytest.param({}, ("missing", None, "none"), id="empty"),
    ],
)
def test_vercel(given: object, expected: tuple[str, str | None, str]) -> None:
    """The provider's value counts where any table has it, unless it hides a cut."""
    assert said(frameworks.vercel(given)) == expected


def test_vercel_provider_gives_the_way_of_resuming() -> None:
    """Whose value it is decides how it resumes; a name of the SDK's own will do."""
    paused = {"unified": "stop", "raw": "pause_turn"}
    assert frameworks.vercel(paused, provider="anthropic.messages").resume is Resume.RESEND_UNCHANGED
    assert frameworks.vercel({"unified": "stop", "raw": "STOP"}, provider="google.generative-ai").mapped
    assert frameworks.vercel({"unified": "error", "raw": "malformed_tool_use"}, provider="amazon-bedrock").resume is (
        Resume.REPAIR
    )


def test_vercel_saw_the_calls() -> None:
    """It says `tool-calls` where the provider said STOP."""
    stop = frameworks.vercel({"unified": "tool-calls", "raw": "STOP"})
    assert (stop.reason, stop.promoted_from, stop.raw) == (StopReason.TOOL_CALL, StopReason.END_TURN, "STOP")
    assert frameworks.vercel({"unified": "tool-calls", "raw": "max_tokens"}).reason is StopReason.MAX_TOKENS


def test_vercel_unknown_is_drift_but_other_is_not() -> None:
    """`other` is a word of its own; a provider's value behind it that nobody knows is a new one."""
    assert frameworks.vercel("other").mapped
    assert not frameworks.vercel({"unified": "other", "raw": "new"}).mapped


# --- Pydantic AI --------------------------------------------------------------------------------------------------


def response(
    finish: str | None,
    raw: str | None = None,
    *,
    state: str = "complete",
    provider: str = "openai",
    parts: tuple[str, ...] = ("text",),
    **details: Any,
) -> dict[str, Any]:
    """A ModelResponse as Pydantic AI dumps it."""
    if raw is not None:
        details["finish_reason"] = raw
    return {
        "parts": [{"part_kind": kind} for kind in parts],
        "usage": {"input_tokens": 5, "output_tokens": 32},
        "model_name": "m",
        "provider_name": provider,
        "provider_details": details or None,
        "provider_response_id": "resp_1",
        "finish_reason": finish,
        "state": state,
        "kind": "response",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(response("length", "max_output_tokens"), ("max_tokens", "max_output_tokens", "prompt"), id="cut"),
        pytest.param(response("stop", "completed"), ("end_turn", "completed", "none"), id="responses"),
        pytest.param(response(None, "max_messages"), ("unknown", "max_messages", "none"), id="server limit"),
        pytest.param(response(None, "steered"), ("paused", "steered", "server"), id="steered"),
        pytest.param(
            response("length", "model_context_window_exceeded", provider="anthropic"),
            ("context_window_exceeded", "model_context_window_exceeded", "none"),
            id="window",
        ),
        pytest.param(
            response("stop", "pause_turn", state="suspended", provider="anthropic"),
            ("paused", "pause_turn", "resend_unchanged"),
            id="suspended by anthropic",
        ),
        pytest.param(
            response(None, "in_progress", state="suspended", background=True),
            ("paused", "in_progress", "retrieve_same_id"),
            id="suspended in the background",
        ),
        pytest.param(
            response(None, "in_progress", state="incomplete"), ("missing", "in_progress", "none"), id="cut off"
        ),
        pytest.param(response("stop", "stop", state="incomplete"), ("missing", "stop", "none"), id="still streaming"),
        pytest.param(response(None, state="interrupted"), ("cancelled", None, "none"), id="interrupted"),
        pytest.param(
            response(None, "OTHER", provider="google"), ("error", "OTHER", "none"), id="a value that it does not map"
        ),
        pytest.param(
            response("length", "CONTINUATION", provider="google"),
            ("paused", "CONTINUATION", "native_token"),
            id="token",
        ),
        pytest.param(
            response("content_filter", provider="google", block_reason="JAILBREAK"),
            ("safety_blocked", "JAILBREAK", "none"),
            id="blocked prompt",
        ),
        pytest.param(
            response("content_filter", refusal="I can't."), ("refused", "content_filter", "none"), id="openai refusal"
        ),
        pytest.param(
            response("content_filter", "refusal", provider="anthropic", refusal="I can't.", refusal_category="bio"),
            ("refused", "refusal", "none"),
            id="anthropic refusal",
        ),
        pytest.param(response("error", provider="groq"), ("error", "error", "none"), id="groq's failed call"),
        pytest.param(response("length", provider="function"), ("max_tokens", "length", "prompt"), id="its word alone"),
        pytest.param(response(None, provider="function"), ("missing", None, "none"), id="nothing at all"),
    ],
)
def test_pydantic_ai(given: dict[str, Any], expected: tuple[str, str | None, str]) -> None:
    """The state decides first, then the provider's value, then the framework's word."""
    assert said(frameworks.pydantic_ai(given)) == expected


def test_pydantic_ai_calls() -> None:
    """Calls of the client's tools promote a clean end; the provider's own do not, nor does a cut."""
    assert frameworks.pydantic_ai(response("stop", "stop", parts=("tool-call",))).reason is StopReason.TOOL_CALL
    assert frameworks.pydantic_ai(response("stop", "stop", parts=("builtin-tool-call",))).reason is StopReason.END_TURN
    assert frameworks.pydantic_ai(response("length", "length", parts=("tool-call",))).reason is StopReason.MAX_TOKENS


def test_pydantic_ai_interrupted_after_the_end() -> None:
    """A run that stopped at a usage limit had its whole response."""
    stop = frameworks.pydantic_ai(response("stop", "stop", state="interrupted"))
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "interrupted")


def test_pydantic_ai_details() -> None:
    """The category of a refusal is the detail, and a full budget is suspected."""
    refused = response("content_filter", "refusal", provider="anthropic", refusal_category="bio")
    assert frameworks.pydantic_ai(refused).detail == "bio"
    assert frameworks.pydantic_ai(response("stop", "stop"), maximum=32).suspected


# --- OpenTelemetry ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(("length",), ("max_tokens", "length", "none"), id="convention"),
        pytest.param(["tool_calls"], ("tool_call", "tool_calls", "none"), id="plural"),
        pytest.param(("tool_call",), ("tool_call", "tool_call", "none"), id="singular"),
        pytest.param(("max_tokens",), ("max_tokens", "max_tokens", "none"), id="google-genai on the span"),
        pytest.param(("continuation",), ("paused", "continuation", "none"), id="raw, lower-cased"),
        pytest.param(("pause_turn",), ("paused", "pause_turn", "none"), id="anthropic, raw"),
        pytest.param(("guardrail_intervened",), ("safety_blocked", "guardrail_intervened", "none"), id="bedrock, raw"),
        pytest.param(("compaction",), ("paused", "compaction", "none"), id="compaction"),
        pytest.param(("steered",), ("paused", "steered", "none"), id="responses, raw"),
        pytest.param(("stop", "length"), ("end_turn", "stop", "none"), id="the first of several"),
        pytest.param("stop", ("end_turn", "stop", "none"), id="one string"),
        pytest.param(("new",), ("unknown", "new", "none"), id="unknown"),
        pytest.param((), ("missing", None, "none"), id="empty"),
    ],
)
def test_otel_spellings(given: Any, expected: tuple[str, str | None, str]) -> None:
    """Whatever an instrumentation writes is read, alone or as a span's attribute; nothing resumes from a span."""
    assert said(frameworks.otel(given)) == expected
    if not isinstance(given, str):
        assert said(frameworks.otel({"gen_ai.response.finish_reasons": given})) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param("in_progress", "paused", id="under way"),
        pytest.param("queued", "paused", id="queued"),
        pytest.param("failed", "error", id="failed"),
        pytest.param("cancelled", "cancelled", id="cancelled"),
        pytest.param("completed", "end_turn", id="completed"),
        pytest.param(None, "missing", id="unsaid"),
    ],
)
def test_otel_status_of_a_response_without_a_reason(status: str | None, expected: str) -> None:
    """A polled response may have a status before it has a reason; the reason counts once it is there."""
    attributes: dict[str, Any] = {"gen_ai.response.finish_reasons": (), "gen_ai.response.status": status}
    assert frameworks.otel(attributes).reason == expected
    assert frameworks.otel((), status=status).reason == expected
    assert frameworks.otel(attributes | {"gen_ai.response.finish_reasons": ("length",)}).reason == "max_tokens"


def test_otel_attributes_raise_suspicion() -> None:
    """The span knows the limit that was asked for and what was used of it."""
    attributes = {
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.request.max_tokens": 100,
        "gen_ai.usage.output_tokens": 100,
    }
    assert frameworks.otel(attributes).suspected


def test_otel_of_openinference() -> None:
    """OpenInference writes one string, raw."""
    assert frameworks.otel({"llm.finish_reason": "MAX_TOKENS"}).reason is StopReason.MAX_TOKENS


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
        pytest.param(
            raised("langchain_core", "OutputParserException", llm_output='{"a'), None, id="langchain, text only"
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


def test_a_kept_response_is_read_with_its_usage() -> None:
    """Reason and usage are the response's own."""
    seen = of_exception(raised("instructor", "IncompleteOutputException", last_completion=USED))
    assert seen is not None
    assert seen.stop.raw == "max_tokens"
    assert seen.usage is not None
    assert seen.usage.output_tokens == 9


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
        pytest.param(response("length", "length"), id="pydantic-ai"),
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


def test_a_response_in_the_text_of_a_body() -> None:
    """Pydantic AI keeps the filtered response as JSON."""
    body = json.dumps([response("content_filter", "refusal", provider="anthropic")])
    seen = of_exception(raised("pydantic_ai", "ContentFilterError", body=body))
    assert seen is not None
    assert seen.stop.reason is StopReason.REFUSED
    assert seen.id == "resp_1"


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


def test_a_circle_of_causes_ends() -> None:
    """Exceptions may point at each other."""
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    assert of_exception(one) is None


def test_a_property_that_raises_is_no_matter() -> None:
    """What a foreign exception does when it is looked at stays its own."""

    class Odd(Exception):
        @property
        def completion(self) -> Any:
            raise ValueError("never received")

    assert of_exception(Odd("odd")) is None
