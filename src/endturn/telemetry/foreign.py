"""Spans that other instrumentations make, read for what they are of, and for why the model stopped.

Read with the packages as they are (2026-11): OpenTelemetry's genai-openai and genai-anthropic 1.3b0, the spans that
anthropic 2.12 makes itself, OpenInference 0.1.66, OpenLLMetry 0.62.4, Logfire 5.2, Pydantic AI 2.68; Vercel's AI SDK
from its documentation. Nothing of any of them is imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from endturn import frameworks
from endturn.chat import Usage
from endturn.errors import EndturnError
from endturn.exchange import PROVIDERS
from endturn.frameworks.rows import named
from endturn.stop import Stop, StopReason, raw_text
from endturn.telemetry import schema
from endturn.wires import Asked, Context, wire
from endturn.wires.reading import count, items, member, number, text_or_none

Attributes = Mapping[str, Any]


class Role(Enum):
    """What a span is of."""

    CALL = auto()
    """One call to a provider."""
    REST = auto()
    """A call's response, told of once it has been streamed: Logfire ends a call's own span before anything is read."""
    TURN = auto()
    """A run of an agent, or of a workflow: from the user's input to the answer handed back."""
    TOOL = auto()
    """One run of a tool."""


_OPERATIONS: Final = {
    "chat": Role.CALL,
    "generate_content": Role.CALL,
    "text_completion": Role.CALL,
    "invoke_agent": Role.TURN,
    "invoke_workflow": Role.TURN,
    "handle_conversation_turn": Role.TURN,
    "execute_tool": Role.TOOL,
}
"""`gen_ai.operation.name`. Fetched responses, embeddings and the rest are nothing that stops."""
_KINDS: Final = {
    "LLM": Role.CALL,
    "AGENT": Role.TURN,
    "TOOL": Role.TOOL,
    "agent": Role.TURN,
    "workflow": Role.TURN,
    "tool": Role.TOOL,
}
"""`openinference.span.kind`, in capitals, and `traceloop.span.kind`."""
_VERCEL: Final = {
    "ai.generateText": Role.TURN,
    "ai.streamText": Role.TURN,
    "ai.generateObject": Role.TURN,
    "ai.streamObject": Role.TURN,
    "ai.toolCall": Role.TOOL,
}
"""`ai.operationId` of a whole loop; the calls that it makes end in `.doGenerate` and `.doStream`."""
_NAMES: Final = {
    "openai.chat": Role.CALL,
    "openai.response": Role.CALL,
    "anthropic.chat": Role.CALL,
    "anthropic.messages.create": Role.CALL,
    **_OPERATIONS,
}
"""By the first word of its name, of a span that begins without attributes: OpenLLMetry makes such, and a sampler that
records without sampling (`AlwaysRecordSampler`, SDK 1.45) drops those that a span is begun with."""
_NAMED_BY: Final = ("opentelemetry.instrumentation.", "opentelemetry.util.genai", "com.anthropic.", "pydantic-ai")
"""The scopes, or how they begin, whose names say that."""


def role_of(scope: str, name: str, known: Attributes) -> Role | None:
    """What a span is of, by what is known when it begins; None where that is nothing of ours."""
    kind = known.get("openinference.span.kind") or known.get("traceloop.span.kind")
    if kind is not None:
        return _KINDS.get(kind) if isinstance(kind, str) else None
    operation = known.get("gen_ai.operation.name")
    if operation is not None:
        role = _OPERATIONS.get(operation) if isinstance(operation, str) else None
        if role is Role.CALL and scope.startswith("logfire"):
            return {"log": Role.REST, "pending_span": None}.get(known.get("logfire.span_type") or "", role)
        return role
    if scope == "ai":
        vercel = str(known.get("ai.operationId") or name)
        return Role.CALL if vercel.endswith((".doGenerate", ".doStream")) else _VERCEL.get(vercel)
    if known.get("llm.request.type") in ("chat", "completion"):  # OpenLLMetry before 0.50
        return Role.CALL
    return _NAMES.get(name.partition(" ")[0]) if scope.startswith(_NAMED_BY) else None


class ReportedError(EndturnError):
    """An error that only a span tells of. Its class has the name of the one that was raised."""


@lru_cache(maxsize=64)
def _reported(name: str) -> type[ReportedError]:
    return type(name, (ReportedError,), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a span says of the call that it is of."""

    provider: str
    model: str
    operation: str
    stream: bool
    maximum: int | None
    choices: int
    server_address: str | None
    server_port: int | None
    stop: Stop
    usage: Usage
    response_id: str | None
    response_model: str | None
    reasons: tuple[str | None, ...]
    first_chunk_s: float | None
    error: Exception | None


def told(
    scope: str, name: str, known: Attributes, *, failed: bool, sound: bool, said: str | None, raised: str | None
) -> Told:
    """What a span that is ending says of its call.

    Args:
        failed: its status is an error; sound: its status is OK.
        said: the description of its status; raised: the class of the last exception among its events.
    """
    asked = _json(known.get("llm.invocation_parameters"))
    provider = provider_of(scope, known)
    maximum, usage = _maximum(known, asked), _usage(known)
    streamed = _streamed(known, asked)
    reasons = reasons_of(known)
    error = text_or_none(known.get(schema.ERROR_TYPE.key)) or raised
    first_chunk = known.get(schema.RESPONSE_FIRST_CHUNK.key) or known.get(schema.FIRST_CHUNK.name)
    if raw_text(next(iter(reasons), None)) is not None:
        stop = _stop(known, reasons, provider, maximum, usage.output_tokens)
    elif failed:
        stop = _failure(error, said, begun=_had_begun(known))
    else:
        body = _json(known.get("output.value")) if sound else None
        stop = _of_body(body, provider, maximum) or _silence(scope, sound=sound, streamed=streamed)
    return Told(
        provider=provider,
        model=model_of(known, asked) or name.partition(" ")[2],
        operation=text_or_none(known.get(schema.OPERATION.key)) or "chat",
        stream=streamed,
        maximum=maximum,
        choices=count(known.get(schema.REQUEST_CHOICES.key)) or 1,
        server_address=text_or_none(known.get(schema.SERVER_ADDRESS.key)),
        server_port=count(known.get(schema.SERVER_PORT.key)),
        stop=stop,
        usage=usage,
        response_id=response_id_of(known),
        response_model=text_or_none(known.get(schema.RESPONSE_MODEL.key))
        or text_or_none(known.get("ai.response.model")),
        reasons=reasons,
        first_chunk_s=number(first_chunk),
        error=_reported(_class_name(error or "_OTHER"))() if failed else None,
    )


def provider_of(scope: str, known: Attributes) -> str:
    """The conventions' name of whoever answers; "" where the span does not say."""
    for key in (schema.PROVIDER.key, "gen_ai.system", "llm.provider", "llm.system", "ai.model.provider"):
        said = known.get(key)
        if isinstance(said, str) and said:
            name = named(said)
            first = name.partition(".")[0]
            return name if name in PROVIDERS or first not in PROVIDERS else first
    return next((part for part in ("openai", "anthropic") if part in scope), "")


def model_of(known: Attributes, asked: object = None) -> str:
    """The model as requested, else as answered; "" where the span does not say."""
    asked = asked if asked is not None else _json(known.get("llm.invocation_parameters"))
    for model in (
        known.get(schema.REQUEST_MODEL.key),
        known.get("llm.request.model_name"),
        member(asked, "model"),
        known.get("ai.model.id"),
        known.get("llm.model_name"),
        known.get(schema.RESPONSE_MODEL.key),
    ):
        if isinstance(model, str) and model:
            return model
    return ""


def response_id_of(known: Attributes) -> str | None:
    """The provider's id of the response."""
    return text_or_none(known.get(schema.RESPONSE_ID.key)) or text_or_none(known.get("ai.response.id"))


def is_begun_only(scope: str, known: Attributes) -> bool:
    """Whether a span that ends well is of a stream of which nothing has been read: Logfire tells the rest later."""
    answered = (schema.FINISH_REASONS.key, schema.RESPONSE_ID.key, schema.OUTPUT_TOKENS.key)
    return scope.startswith("logfire") and not any(key in known for key in answered)


def _json(value: object) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def reasons_of(known: Attributes) -> tuple[str | None, ...]:
    """Why each choice stopped, in whatever words; the provider's own before anybody's translation."""
    native = raw_text(known.get("anthropic.message.stop_reason"))
    if native is not None:
        return (native,)
    for key in (
        schema.FINISH_REASONS.key,
        "llm.response.finish_reasons",
        "ai.response.finishReason",
        "llm.finish_reason",
    ):
        said = known.get(key)
        listed = _json(said)
        found = items(listed if isinstance(listed, list) else said) or ((said,) if raw_text(said) is not None else ())
        if found:
            return tuple(map(raw_text, found))
    numbered = raw_text(known.get("gen_ai.completion.0.finish_reason"))  # OpenLLMetry before 0.50
    if numbered is not None:
        return (numbered,)
    # Beside the text, as the conventions had it before they moved it to an attribute of its own.
    messages: Sequence[Any] = items(_json(known.get("gen_ai.output.messages")))
    return tuple(raw_text(member(each, "finish_reason")) for each in messages)


def _stop(
    known: Attributes, reasons: Sequence[str | None], provider: str, maximum: int | None, output_tokens: int | None
) -> Stop:
    if "ai.response.finishReason" in known:
        stop = frameworks.vercel(reasons[0], provider=provider)
        full = maximum is not None and output_tokens is not None and output_tokens >= maximum
        return replace(stop, suspected=full and stop.reason in (StopReason.END_TURN, StopReason.TOOL_CALL))
    return frameworks.otel(
        {
            schema.FINISH_REASONS.key: list(reasons),
            schema.PROVIDER.key: provider,
            schema.OUTPUT_TOKENS.key: output_tokens,
            schema.REQUEST_MAX_TOKENS.key: maximum,
        }
    )


_STOPPED: Final = frozenset({"AbandonedStreamError", "CancelledError", "GeneratorExit", "KeyboardInterrupt"})
"""Classes of what stops a call on purpose."""


def is_stop(error: str) -> bool:
    """Whether an exception of that class stops a run on purpose."""
    return _class_name(error) in _STOPPED


_LOST: Final = ("Connection", "Timeout", "Protocol", "ReadError", "IncompleteRead", "EOF")
"""In the names of classes that tell of a connection: a response that had begun was cut off by it."""


def _failure(error: str | None, said: str | None, *, begun: bool) -> Stop:
    name = _class_name(error or "")
    if name in _STOPPED or said == "abandoned stream":
        return Stop(StopReason.CANCELLED, detail="abandoned" if said == "abandoned stream" else None, incomplete=True)
    detail = "timeout" if "Timeout" in name else name or None
    if begun and any(part in name for part in _LOST):
        return Stop(StopReason.MISSING, detail=detail, terminal_seen=False, incomplete=True)
    return Stop(StopReason.ERROR, detail="timeout" if detail == "timeout" else None, incomplete=True)


def _had_begun(known: Attributes) -> bool:
    """Whether anything of the response had come."""
    told = (schema.RESPONSE_ID.key, schema.RESPONSE_MODEL.key, schema.RESPONSE_FIRST_CHUNK.key, "output.value")
    return any(key in known for key in told)


_SILENCE: Final[tuple[tuple[str, bool | None, bool | None, StopReason], ...]] = (
    # Scope, status OK, streamed → what it means that no reason is told.
    ("opentelemetry.instrumentation.genai.", None, None, StopReason.CANCELLED),
    ("com.anthropic.", False, None, StopReason.CANCELLED),
    ("com.anthropic.", True, None, StopReason.MISSING),
    ("openinference.", False, None, StopReason.CANCELLED),
    ("openinference.", True, None, StopReason.MISSING),
    ("opentelemetry.instrumentation.openai", None, False, StopReason.MISSING),
    ("opentelemetry.instrumentation.anthropic", None, False, StopReason.MISSING),
)
"""Emitters that write a reason whenever they have one, so that its absence tells. OpenInference and anthropic say OK of
what was read to its end, nothing of what its host closed. OpenLLMetry says OK of streams that were closed, dropped and
cut off alike; Logfire nothing of any: there it stays unknown."""


def _silence(scope: str, *, sound: bool, streamed: bool) -> Stop:
    for prefix, ok, stream, reason in _SILENCE:
        if scope.startswith(prefix) and ok in (None, sound) and stream in (None, streamed):
            return Stop(reason, terminal_seen=reason is not StopReason.MISSING, incomplete=True)
    return Stop(StopReason.UNKNOWN, detail="untold")


def _of_body(body: Any, provider: str, maximum: int | None) -> Stop | None:
    """Why a response stopped, from its body: OpenInference keeps it, and of Responses tells the reason nowhere else."""
    if member(body, "object") != "response" or not isinstance(member(body, "status"), str):
        return None
    context = Context(provider=provider, asked=Asked(maximum=maximum))
    return wire("openai_responses").whole(context, body).stop


_TOKENS: Final = {
    "input_tokens": (
        schema.INPUT_TOKENS.key, "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "ai.usage.inputTokens",
        "ai.usage.promptTokens",
    ),
    "output_tokens": (
        schema.OUTPUT_TOKENS.key, "gen_ai.usage.completion_tokens", "llm.token_count.completion",
        "ai.usage.outputTokens", "ai.usage.completionTokens",
    ),
    "reasoning_tokens": (
        schema.REASONING_TOKENS.key, "gen_ai.usage.reasoning_tokens", "llm.token_count.completion_details.reasoning",
        "ai.usage.reasoningTokens",
    ),
    "cache_read_tokens": (
        schema.CACHE_READ_TOKENS.key, "llm.token_count.prompt_details.cache_read", "ai.usage.cachedInputTokens",
    ),
    "cache_write_tokens": (
        schema.CACHE_WRITE_TOKENS.key, "gen_ai.usage.cache_creation.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
}  # fmt: skip
"""Where each figure of the usage stands."""


def _usage(known: Attributes) -> Usage:
    def figure(name: str) -> int | None:
        return next((found for key in _TOKENS[name] if (found := count(known.get(key))) is not None), None)

    return Usage(
        figure("input_tokens"),
        figure("output_tokens"),
        figure("reasoning_tokens"),
        figure("cache_read_tokens"),
        figure("cache_write_tokens"),
    )


def _maximum(known: Attributes, asked: object) -> int | None:
    figures = (
        known.get(schema.REQUEST_MAX_TOKENS.key),
        *(member(asked, name) for name in ("max_completion_tokens", "max_output_tokens", "max_tokens")),
        known.get("ai.settings.maxOutputTokens"),
        known.get("ai.settings.maxTokens"),
    )
    return next((figure for each in figures if (figure := count(each)) is not None), None)


def _streamed(known: Attributes, asked: object) -> bool:
    return (
        known.get(schema.REQUEST_STREAM.key) is True
        or known.get("gen_ai.is_streaming") is True
        or member(asked, "stream") is True
        or str(known.get("ai.operationId", "")).endswith(".doStream")
    )


def _class_name(error: str) -> str:
    return error.rpartition(".")[2]
