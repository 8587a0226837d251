"""What the finish reasons of the chat format mean, for OpenAI and for every dialect that added words of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.stop import Resume, Row, StopReason, find_row
from endturn.wires import Api

_HOME: Final = {
    "stop": Row(StopReason.END_TURN, source="openai 3.54"),
    # Also the context window: the SDK's own words are "exceeded max_tokens or max context length". Usage tells.
    "length": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source="openai 3.54"),
    "tool_calls": Row(StopReason.TOOL_CALL, source="openai 3.54"),
    "function_call": Row(StopReason.TOOL_CALL, source="openai 3.54"),
    "content_filter": Row(StopReason.SAFETY_BLOCKED, True, source="openai 3.54"),
}


def _end(source: str) -> Row:
    return Row(StopReason.END_TURN, source=source)


def _cut(source: str) -> Row:
    return Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source=source)


def _tools(source: str) -> Row:
    return Row(StopReason.TOOL_CALL, source=source)


def _error(source: str, detail: str | None = None) -> Row:
    return Row(StopReason.ERROR, True, detail=detail, source=source)


def _window(source: str) -> Row:
    return Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source=source)


def _blocked(source: str) -> Row:
    return Row(StopReason.SAFETY_BLOCKED, True, source=source)


# What gateways show beside their own word: the upstream's, judged as the upstream's own wire judges it. A chat request
# cannot carry the upstream's own way of resuming (Anthropic's blocks, Gemini's token), so such a pause is left to the
# host. Cohere's and Gemini's capitals are also found as the small letters of others ("STOP", "MAX_TOKENS", "ERROR").
_NATIVE: Final = {
    "end_turn": _end("anthropic 2.12"),
    "stop_sequence": _end("anthropic 2.12"),
    "tool_use": _tools("anthropic 2.12"),
    "max_tokens": _cut("anthropic 2.12, google-genai 3.4 MAX_TOKENS"),
    "pause_turn": Row(StopReason.PAUSED, True, source="anthropic 2.12"),
    "compaction": Row(StopReason.PAUSED, True, source="anthropic 2.12"),
    "refusal": Row(StopReason.REFUSED, True, source="anthropic 2.12"),
    "model_context_window_exceeded": _window("anthropic 2.12"),
    "completed": _end("openai 3.54 Responses"),
    "max_output_tokens": _cut("openai 3.54 Responses"),
    "max_messages": Row(StopReason.UNKNOWN, True, detail="server_limit", source="openai 3.54 Responses"),
    "steered": Row(StopReason.PAUSED, True, source="openai 3.54 Responses"),
    "failed": _error("openai 3.54 Responses"),
    "cancelled": Row(StopReason.CANCELLED, True, source="openai 3.54 Responses"),
    "CONTINUATION": Row(StopReason.PAUSED, True, source="google-genai 3.4"),
    **{
        word: _blocked("google-genai 3.4")
        for word in (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR", "ESCALATION"),
            *("PUP_LIMITED_DISABLED", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        )
    },
    "MALFORMED_FUNCTION_CALL": Row(StopReason.ERROR, True, Resume.REPAIR, source="google-genai 3.4"),
    "UNEXPECTED_TOOL_CALL": Row(StopReason.ERROR, True, Resume.REPAIR, source="google-genai 3.4"),
    **{
        word: _error("google-genai 3.4")
        for word in (
            *("LANGUAGE", "OTHER", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE"),
            *("NO_IMAGE", "IMAGE_OTHER"),
        )
    },
    "FINISH_REASON_UNSPECIFIED": Row(StopReason.UNKNOWN, source="google-genai 3.4"),
    "guardrail_intervened": _blocked("botocore 1.44 Converse"),
    "content_filtered": _blocked("botocore 1.44 Converse"),
    "malformed_model_output": _error("botocore 1.44 Converse"),
    "malformed_tool_use": Row(StopReason.ERROR, True, Resume.REPAIR, source="botocore 1.44 Converse"),
    "COMPLETE": _end("cohere 7.3"),
    "TOOL_CALL": _tools("cohere 7.3"),
    "TIMEOUT": _error("cohere 7.3", "timeout"),
    "ERROR_TOXIC": _blocked("cohere 7.3 v1"),
    "ERROR_LIMIT": _window("cohere 7.3 v1"),
    "USER_CANCEL": Row(StopReason.CANCELLED, True, source="cohere 7.3 v1"),
}

_TGI: Final = {"eos_token": _end("TGI db931fcf"), "stop_sequence": _end("TGI db931fcf, leaks into chat")}
# Its documentation shows two of them in its API's answers; its SDKs list them all.
_LMSTUDIO: Final = "LM Studio REST API v0, LLMPredictionStopReason"
_VLLM: Final = {
    "abort": Row(StopReason.CANCELLED, True, source="vllm v1/engine"),
    "error": _error("vllm v1/engine"),
    "repetition": _error("vllm v1/engine", "repetition"),
}

_SERVERS: Final[Mapping[str, Mapping[str, Row]]] = {
    "azure": {},
    "cerebras": {},
    "groq": {},
    "xai": {},
    # The proto enum's names, as xai-sdk gives them; the REST endpoint speaks OpenAI's words.
    "xai_grpc": {
        "REASON_STOP": _end("xai-sdk 1.21"),
        "REASON_MAX_LEN": _cut("xai-sdk 1.21"),
        "REASON_MAX_CONTEXT": _window("xai-sdk 1.21"),
        "REASON_TOOL_CALLS": _tools("xai-sdk 1.21"),
        "REASON_TIME_LIMIT": _error("xai-sdk 1.21", "timeout"),
        # The enum's zero: nothing was set.
        "REASON_INVALID": Row(StopReason.UNKNOWN, source="xai-sdk 1.21"),
    },
    "watsonx": {
        "time_limit": _error("watsonx.ai API reference, text chat", "timeout"),
        "cancelled": Row(StopReason.CANCELLED, True, source="watsonx.ai API reference, text chat"),
        "error": _error("watsonx.ai API reference, text chat"),
    },
    # Its `done_reason` leaks: a request without messages loads or unloads the model, and generates nothing.
    "ollama": {
        word: Row(StopReason.END_TURN, detail="no_generation", source="ollama openai/openai.go")
        for word in ("load", "unload")
    },
    "copilot": {},
    # What its own API says in `stats.stop_reason`, beside OpenAI's word.
    "lmstudio": {
        "eosFound": _end(_LMSTUDIO),
        "stopStringFound": _end(_LMSTUDIO),
        "toolCalls": _tools(_LMSTUDIO),
        "maxPredictedTokensReached": _cut(_LMSTUDIO),
        "contextLengthReached": _window(_LMSTUDIO),
        "userStopped": Row(StopReason.CANCELLED, True, source=_LMSTUDIO),
        "modelUnloaded": _error(_LMSTUDIO),
        "failed": _error(_LMSTUDIO),
    },
    "llamacpp": {},
    "deepseek": {"insufficient_system_resource": _error("vercel/ai ed857f50")},
    "mistral": {"model_length": _window("mistralai 3.7"), "error": _error("mistralai 3.7")},
    "together": {"eos": _end("together 3.1.1")},
    "fireworks": {"error": _error("fireworks-ai 1.2.30, completions endpoint")},
    "zai": {
        "sensitive": _blocked("pydantic-ai 2.68"),
        "model_context_window_exceeded": _window("pydantic-ai 2.68"),
        "network_error": _error("pydantic-ai 2.68"),
    },
    # The gateway stops a loop of the model: continuing it would only feed it.
    "moonshot": {"repeat": _error("MoonshotAI/moonpalace#3", "repetition")},
    "vllm": _VLLM,
    "sglang": {"abort": Row(StopReason.CANCELLED, True, source="sglang schedule_batch.py")},
    "tgi": _TGI,
    "huggingface": _TGI,
}
_SPOKEN: Final = {word: row for added in _SERVERS.values() for word, row in added.items()}
# A gateway may pass on the word of any server behind it.
_ADDED: Final[Mapping[str, Mapping[str, Row]]] = {
    **_SERVERS,
    "openrouter": {"error": _error("openrouter 1.3.84"), **_NATIVE, **_SPOKEN},
    "litellm": {"error": _error("litellm 1.109"), **_NATIVE, **_SPOKEN},
}

COMPATIBLE: Final = "compatible"
"""The dialect of a server that nobody named: every word that any dialect is known to use (none means two things)."""

REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": _HOME,
    **{dialect: {**_HOME, **added} for dialect, added in _ADDED.items()},
    COMPATIBLE: {**_HOME, **_NATIVE, **_SPOKEN},
}
"""dialect → raw value → row. The dialect "" is OpenAI itself."""


_NAMES: Final = {"": "openai.chat", "moonshot": "moonshot(moonpalace)", "xai_grpc": "xai.grpc"}
_STREAM: Final = "choices[i].finish_reason (last content chunk), then usage chunk, then [DONE]"
_PATHS: Final = {
    "openrouter": "choices[i].finish_reason + native_finish_reason",
    "vllm": "choices[i].finish_reason + stop_reason",
    "xai_grpc": "outputs[i].finish_reason",
}

APIS: Final[Mapping[str, Api]] = {
    dialect: Api(
        _NAMES.get(dialect, f"{dialect}.chat"),
        _PATHS.get(dialect, "choices[i].finish_reason"),
        "same, last chunk" if dialect == "xai_grpc" else _STREAM,
    )
    for dialect in ("", *_ADDED)
}
"""dialect → what people call it."""


def rows_of(dialect: str) -> Mapping[str, Row]:
    """The table of a dialect; of an unknown one, the union."""
    return REASONS.get(dialect) or REASONS[COMPATIBLE]


def chosen(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """The raw value that counts: a gateway's upstream's where it has a row, unless it hides that the answer is cut."""
    if raw is None or native is None:
        return raw
    above, below = find_row(raw, rows), find_row(native, rows)
    hides = above is not None and above.incomplete and below is not None and not below.incomplete
    return raw if below is None or hides else native


def rank(row: Row | None) -> int:
    """Which part of a split answer speaks for all, lowest first: an unknown end, a cut, a call of tools."""
    if row is None:
        return 0
    return 1 if row.incomplete else 2 if row.reason is StopReason.TOOL_CALL else 3
