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


def _error(source: str, detail: str | None = None) -> Row:
    return Row(StopReason.ERROR, True, detail=detail, source=source)


def _window(source: str) -> Row:
    return Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source=source)


def _blocked(source: str) -> Row:
    return Row(StopReason.SAFETY_BLOCKED, True, source=source)


# What gateways show beside their own word: the upstream's. A chat request cannot carry the upstream's own way of
# resuming (Anthropic's blocks, Gemini's token), so such a pause is left to the host.
_NATIVE: Final = {
    "end_turn": _end("anthropic 2.12"),
    "stop_sequence": _end("anthropic 2.12"),
    "tool_use": Row(StopReason.TOOL_CALL, source="anthropic 2.12"),
    "max_tokens": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source="anthropic 2.12, google-genai 3.4 MAX_TOKENS"),
    "pause_turn": Row(StopReason.PAUSED, True, source="anthropic 2.12"),
    "refusal": Row(StopReason.REFUSED, True, source="anthropic 2.12"),
    "model_context_window_exceeded": _window("anthropic 2.12"),
    "completed": _end("openai 3.54 Responses"),
    "max_output_tokens": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source="openai 3.54 Responses"),
    "SAFETY": _blocked("google-genai 3.4"),
    "RECITATION": _blocked("google-genai 3.4"),
    "BLOCKLIST": _blocked("google-genai 3.4"),
    "PROHIBITED_CONTENT": _blocked("google-genai 3.4"),
    "SPII": _blocked("google-genai 3.4"),
    "IMAGE_SAFETY": _blocked("google-genai 3.4"),
    "MODEL_ARMOR": _blocked("google-genai 3.4"),
    "MALFORMED_FUNCTION_CALL": Row(StopReason.ERROR, True, Resume.REPAIR, source="google-genai 3.4"),
    "UNEXPECTED_TOOL_CALL": Row(StopReason.ERROR, True, Resume.REPAIR, source="google-genai 3.4"),
    "TOO_MANY_TOOL_CALLS": _error("google-genai 3.4"),
    "MALFORMED_RESPONSE": _error("google-genai 3.4"),
}

_TGI: Final = {"eos_token": _end("TGI db931fcf"), "stop_sequence": _end("TGI db931fcf, leaks into chat")}
_VLLM: Final = {
    "abort": Row(StopReason.CANCELLED, True, source="vllm v1/engine"),
    "error": _error("vllm v1/engine"),
    "repetition": _error("vllm v1/engine", "repetition"),
}

_ADDED: Final[Mapping[str, Mapping[str, Row]]] = {
    "azure": {},
    "cerebras": {},
    "groq": {},
    "xai": {},
    # The proto enum's names, as xai-sdk gives them; the REST endpoint speaks OpenAI's words.
    "xai_grpc": {
        "REASON_STOP": _end("xai-sdk 1.21"),
        "REASON_MAX_LEN": Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source="xai-sdk 1.21"),
        "REASON_MAX_CONTEXT": _window("xai-sdk 1.21"),
        "REASON_TOOL_CALLS": Row(StopReason.TOOL_CALL, source="xai-sdk 1.21"),
        "REASON_TIME_LIMIT": _error("xai-sdk 1.21", "timeout"),
        # The enum's zero: nothing was set.
        "REASON_INVALID": Row(StopReason.UNKNOWN, source="xai-sdk 1.21"),
    },
    "watsonx": {
        "time_limit": _error("watsonx.ai API reference, text chat", "timeout"),
        "cancelled": Row(StopReason.CANCELLED, True, source="watsonx.ai API reference, text chat"),
        "error": _error("watsonx.ai API reference, text chat"),
    },
    "ollama": {},
    "copilot": {},
    "lmstudio": {},
    "llamacpp": {},
    "openrouter": {"error": _error("openrouter 1.3.84"), **_NATIVE},
    "litellm": {"error": _error("litellm 1.109"), "eos": _end("litellm 1.109"), **_NATIVE},
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

COMPATIBLE: Final = "compatible"
"""The dialect of a server that nobody named: every word that any dialect is known to use (none means two things)."""

REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": _HOME,
    **{dialect: {**_HOME, **added} for dialect, added in _ADDED.items()},
    COMPATIBLE: {word: row for added in _ADDED.values() for word, row in added.items()} | _HOME,
}
"""dialect → raw value → row. The dialect "" is OpenAI itself."""


_NAMES: Final = {"": "openai.chat", "moonshot": "moonshot(moonpalace)", "xai_grpc": "xai.grpc"}
_BARE: Final = frozenset({"sglang", "tgi"})
"""Servers whose chat endpoint and native one are one API in the table, as both say the same."""
_STREAM: Final = "choices[i].finish_reason (last content chunk), then usage chunk, then [DONE]"
_PATHS: Final = {
    "openrouter": "choices[i].finish_reason + native_finish_reason",
    "vllm": "choices[i].finish_reason + stop_reason",
    "sglang": "meta_info.finish_reason{type} or choices[i].finish_reason",
    "tgi": "details.finish_reason | choices[i].finish_reason",
    "xai_grpc": "outputs[i].finish_reason",
}

APIS: Final[Mapping[str, Api]] = {
    dialect: Api(
        _NAMES.get(dialect) or (dialect if dialect in _BARE else f"{dialect}.chat"),
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
