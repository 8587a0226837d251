"""What the reasons of text completion mean, for every service that continues a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.stop import Resume, Row, StopReason
from endturn.wires import Api

FULL: Final = "limit+truncated=true"
"""llama.cpp's reason where the window was full."""


def _end(source: str, detail: str | None = None) -> Row:
    return Row(StopReason.END_TURN, detail=detail, source=source)


def _cut(source: str) -> Row:
    return Row(StopReason.MAX_TOKENS, True, Resume.PROMPT, source=source)


def _window(source: str) -> Row:
    return Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source=source)


def _blocked(source: str) -> Row:
    return Row(StopReason.SAFETY_BLOCKED, True, source=source)


def _error(source: str, detail: str | None = None) -> Row:
    return Row(StopReason.ERROR, True, detail=detail, source=source)


def _cancelled(source: str) -> Row:
    return Row(StopReason.CANCELLED, True, source=source)


_OPENAI: Final = "openai 3.54 CompletionChoice"
_TGI: Final = "TGI db931fcf"
_WATSONX: Final = "watsonx.ai API reference, text generation"
_ALEPHALPHA: Final = "Aleph Alpha API reference, complete"
_COMMAND: Final = "Bedrock user guide, Cohere Command"

_HOME: Final = {
    "stop": _end(_OPENAI),
    # "the maximum number of tokens specified in the request was reached"; the full window too, as usage tells.
    "length": _cut(_OPENAI),
    "content_filter": _blocked(_OPENAI),
}
_ADDED: Final = {
    "fireworks": {"error": _error("fireworks-ai 1.2.30, completions endpoint")},
    "vllm": {
        "abort": _cancelled("vllm v1/engine"),
        "error": _error("vllm v1/engine"),
        "repetition": _error("vllm v1/engine", "repetition"),
    },
    # Its other endpoint speaks OpenAI's words, at another path.
    "llamacpp": {
        # The request is still being served, or the server cannot say.
        "none": Row(StopReason.UNKNOWN, source="llama.cpp server"),
        "eos": _end("llama.cpp server"),
        "word": _end("llama.cpp server", "stop_sequence"),
        "limit": _cut("llama.cpp server"),
        FULL: _window("llama.cpp server"),
    },
    "sglang": {"abort": _cancelled("sglang schedule_batch.py")},
}

COMPATIBLE: Final = "compatible"
"""The dialect of a server of OpenAI's format that nobody named: every word that such a one is known to use."""

REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": _HOME,
    **{dialect: {**_HOME, **added} for dialect, added in _ADDED.items()},
    COMPATIBLE: {word: row for added in _ADDED.values() for word, row in added.items()} | _HOME,
    "tgi": {
        "length": _cut(_TGI),
        "eos_token": _end(_TGI),
        "stop_sequence": _end(_TGI),
        "stop": _end(_TGI),
    },
    "watsonx": {
        "eos_token": _end(_WATSONX),
        "stop_sequence": _end(_WATSONX),
        "max_tokens": _cut(_WATSONX),
        # The limit of the plan or of the server, not the request's: asking for the rest would meet it again.
        "token_limit": Row(StopReason.MAX_TOKENS, True, source=_WATSONX),
        "time_limit": _error(_WATSONX, "timeout"),
        "cancelled": _cancelled(_WATSONX),
        "error": _error(_WATSONX),
        # On every event of a stream but the last.
        "not_finished": Row(StopReason.MISSING, terminal=False, source=_WATSONX),
    },
    "alephalpha": {
        "maximum_tokens": _cut(_ALEPHALPHA),
        "end_of_text": _end(_ALEPHALPHA),
        "stop_sequence_reached": _end(_ALEPHALPHA),
    },
    "titan": {
        "FINISH": _end("Bedrock user guide, Titan text"),
        "LENGTH": _cut("Bedrock user guide, Titan text"),
        "CONTENT_FILTERED": _blocked("Bedrock user guide, Titan text"),
    },
    "llama": {
        "stop": _end("Bedrock user guide, Meta Llama"),
        "length": _cut("Bedrock user guide, Meta Llama"),
    },
    "mistral": {
        "stop": _end("Bedrock user guide, Mistral text completion"),
        "length": _cut("Bedrock user guide, Mistral text completion"),
    },
    "command": {
        "COMPLETE": _end(_COMMAND),
        "STOP_SEQUENCE": _end("cohere 7.3.1 FinishReason"),
        "MAX_TOKENS": _cut(_COMMAND),
        "ERROR": _error(_COMMAND),
        "ERROR_TOXIC": _blocked(_COMMAND),
        "ERROR_LIMIT": _window("cohere 7.3.1 FinishReason"),
        "USER_CANCEL": _cancelled("cohere 7.3.1 FinishReason"),
        "TIMEOUT": _error("cohere 7.3.1 FinishReason", "timeout"),
    },
    "ai21": {
        "endoftext": _end("AI21 Jurassic-2 API reference"),
        "length": _cut("AI21 Jurassic-2 API reference"),
        "stop": _end("AI21 Jurassic-2 API reference"),
    },
    "claude_text": {
        "stop_sequence": _end("anthropic 2.12 Completion", "stop_sequence"),
        "max_tokens": _cut("anthropic 2.12 Completion"),
    },
}
"""dialect → raw value → row. The dialect "" is OpenAI itself."""

EVERY: Final[Mapping[str, Row]] = {
    **{word: row for rows in REASONS.values() for word, row in rows.items()},
    **_HOME,
}
"""Every word that any dialect uses; none means two things."""

_CHOICES: Final = (
    "choices[i].finish_reason",
    "choices[i].finish_reason (last content chunk), then usage chunk, [DONE]",
)
_CHUNK: Final = "last chunk.bytes"

APIS: Final[Mapping[str, Api]] = {
    "": Api("openai.completions", *_CHOICES),
    "fireworks": Api("fireworks.completions", *_CHOICES),
    "vllm": Api("vllm.completions", *_CHOICES),
    "tgi": Api("tgi", "details.finish_reason", "details on last event"),
    "llamacpp": Api("llamacpp.native", "stop_type + truncated", "final event stop:true"),
    "sglang": Api("sglang", "meta_info.finish_reason{type}", "same"),
    "watsonx": Api("watsonx.generate", "results[i].stop_reason", "results[i].stop_reason (not_finished until last)"),
    "alephalpha": Api("alephalpha", "completions[i].finish_reason", "stream_summary.finish_reason"),
    "titan": Api("bedrock.invoke.titan", "results[i].completionReason", "completionReason in last chunk.bytes"),
    "llama": Api("bedrock.invoke.llama", "stop_reason", _CHUNK),
    "mistral": Api("bedrock.invoke.mistral", "outputs[i].stop_reason", _CHUNK),
    "command": Api("bedrock.invoke.command", "generations[i].finish_reason", _CHUNK),
    "ai21": Api("bedrock.invoke.ai21", "completions[i].finishReason{reason}", "-"),
    "claude_text": Api("bedrock.invoke.claude_text", "stop_reason", _CHUNK),
}
"""dialect → what people call it."""


def rows_of(dialect: str) -> Mapping[str, Row]:
    """The table of a dialect; of an unknown one, all words of OpenAI's format."""
    return REASONS.get(dialect) or REASONS[COMPATIBLE]
