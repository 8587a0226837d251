"""How other instrumentations' spans say what they are of, and what came of a call: each one's attributes.

Read with the packages as they are (2026-11): OpenTelemetry's genai-openai and genai-anthropic 1.3b0, the spans that
anthropic 2.12 makes itself, OpenInference 0.1.66, OpenLLMetry 0.62.4, OpenLIT 1.45, Logfire 5.2, Langfuse 5.0, Pydantic
AI 2.68. None of them is imported. A span is judged by its attributes as they are when it is asked: some come late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from opentelemetry.trace import StatusCode

from endturn.errors import EndturnError
from endturn.records import TurnOutcome
from endturn.stop import Stop, StopReason, raw_text
from endturn.telemetry import schema
from endturn.wires import Asked, Context, wire
from endturn.wires.reading import count, items, member, number, text_or_none

Attributes = Mapping[str, Any]


class Kind(Enum):
    """What a span is of."""

    CALL = auto()
    """One call to a model."""
    STREAM_END = auto()
    """The end of a streamed response: Logfire ends the call's own span when it hands over the stream."""
    AGENT = auto()
    """A run of an agent or a workflow: from the user's input to the answer handed back."""
    TOOL = auto()
    """One run of a tool."""


_OPERATIONS: Final = {
    "chat": Kind.CALL,
    "generate_content": Kind.CALL,
    "text_completion": Kind.CALL,
    "invoke_agent": Kind.AGENT,
    "invoke_workflow": Kind.AGENT,
    "handle_conversation_turn": Kind.AGENT,
    "execute_tool": Kind.TOOL,
}
"""Embeddings, fetched responses and the rest of the conventions' operations do not stop."""
_KINDS: Final[Mapping[str, Mapping[str, Kind]]] = {
    "openinference.span.kind": {"LLM": Kind.CALL, "AGENT": Kind.AGENT, "TOOL": Kind.TOOL},
    "traceloop.span.kind": {"agent": Kind.AGENT, "workflow": Kind.AGENT, "tool": Kind.TOOL},
    "langfuse.observation.type": {"generation": Kind.CALL, "agent": Kind.AGENT, "tool": Kind.TOOL},
    schema.OPERATION.key: _OPERATIONS,
    "llm.request.type": {"chat": Kind.CALL, "completion": Kind.CALL},  # OpenLLMetry before 0.50
}
"""The attributes that say what a span is of; the first that a span has decides."""
_NAMES: Final = {
    "openai.chat": Kind.CALL,
    "openai.response": Kind.CALL,
    "anthropic.chat": Kind.CALL,
    "anthropic.messages.create": Kind.CALL,
    **_OPERATIONS,
}
"""The first words of names. OpenLLMetry begins spans without attributes, and `AlwaysRecordSampler` drops those that a
span begins with."""
_NAMED_BY: Final = ("opentelemetry.instrumentation.", "opentelemetry.util.genai", "com.anthropic.", "pydantic-ai")
"""The beginnings of scopes whose calls are known by name. An agent's or a tool's name tells in any scope."""
_PROVIDER: Final = (schema.PROVIDER.key, "gen_ai.system", "llm.provider", "llm.system")
_MODEL: Final = (
    schema.REQUEST_MODEL.key,
    "llm.request.model_name",
    "langfuse.observation.model.name",
    "llm.model_name",
    schema.RESPONSE_MODEL.key,
)
_REASONS: Final = (
    "anthropic.message.stop_reason",
    schema.FINISH_REASONS.key,
    "llm.response.finish_reasons",
    "llm.finish_reason",
    "gen_ai.completion.0.finish_reason",  # OpenLLMetry before 0.50
)
"""The provider's own word comes before a translation."""
_MAXIMUM: Final = ("max_completion_tokens", "max_output_tokens", "max_tokens")
_TOKENS: Final = {
    "input_tokens": (schema.INPUT_TOKENS.key, "gen_ai.usage.prompt_tokens", "llm.token_count.prompt"),
    "output_tokens": (schema.OUTPUT_TOKENS.key, "gen_ai.usage.completion_tokens", "llm.token_count.completion"),
    "reasoning_tokens": (
        schema.REASONING_TOKENS.key,
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
    "cache_read_tokens": (schema.CACHE_READ_TOKENS.key, "llm.token_count.prompt_details.cache_read"),
    "cache_write_tokens": (
        schema.CACHE_WRITE_TOKENS.key,
        "gen_ai.usage.cache_creation.input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
}
_NO_CALLS: Final = ("._prepare_chat_with_tools",)
"""Ends of names of spans that are said to be of a call, and ask no model: OpenInference's of LlamaIndex."""
_STOPPED: Final = frozenset({"AbandonedStreamError", "CancelledError", "GeneratorExit", "KeyboardInterrupt"})
"""Classes of exceptions that stop a call or a run on purpose."""
_LOST: Final = ("Connection", "Timeout", "Protocol", "ReadError", "IncompleteRead", "EOF")
"""Parts of the names of exceptions that mean a lost connection."""


def attributes_of(span: Any) -> Attributes:
    """A span's attributes as they are now; none of a span that records nothing."""
    return getattr(span, "attributes", None) or {}


def scope_of(span: Any) -> str:
    """The name of the instrumentation that made a span; "" where that is not known."""
    return getattr(getattr(span, "instrumentation_scope", None), "name", "")


def kind_of(span: Any) -> Kind | None:
    """What a span is of, as far as it says so now. Our own spans, and those that are of nothing here, have no kind."""
    scope, known = scope_of(span), attributes_of(span)
    if scope == schema.SCOPE:
        return None
    for key, kinds in _KINDS.items():
        said = known.get(key)
        if said is not None:
            kind = kinds.get(said) if isinstance(said, str) else None
            break
    else:
        kind = _NAMES.get(getattr(span, "name", "").partition(" ")[0])
        if kind is Kind.CALL and not scope.startswith(_NAMED_BY):
            kind = None
    if kind is Kind.CALL and getattr(span, "name", "").endswith(_NO_CALLS):
        return None
    if kind is Kind.CALL and scope.startswith("logfire"):
        return {"log": Kind.STREAM_END, "pending_span": None}.get(known.get("logfire.span_type", ""), kind)
    return kind


def is_handed_over(span: Any) -> bool:
    """Whether a call's span that ends well says nothing of the response: Logfire says it when the stream ends."""
    answered = (schema.FINISH_REASONS.key, schema.RESPONSE_ID.key, schema.OUTPUT_TOKENS.key)
    known = attributes_of(span)
    return scope_of(span).startswith("logfire") and not _has_failed(span) and not any(key in known for key in answered)


def agent_of(span: Any) -> str | None:
    """The name of the agent whose run a span is of."""
    known = attributes_of(span)
    return text_or_none(known.get(schema.AGENT.key)) or text_or_none(known.get("agent_name"))


def outcome_of(span: Any) -> TurnOutcome:
    """How an agent's turn ended, by its span's status."""
    if not _has_failed(span):
        return TurnOutcome.COMPLETED
    return TurnOutcome.CANCELLED if _class_name(_error_of(span)) in _STOPPED else TurnOutcome.PROVIDER_ERROR


def response_id_of(span: Any) -> str | None:
    """The provider's id of the response that a span tells of; OpenInference keeps it in the body alone."""
    known = attributes_of(span)
    said = known.get(schema.RESPONSE_ID.key) or member(_json(known.get("output.value")), "id")
    return text_or_none(said)


def model_of(span: Any) -> str:
    """The model as requested, else as answered; "" where the span does not say."""
    known = attributes_of(span)
    said = (known.get(_MODEL[0]), member(_parameters(known), "model"), *(known.get(key) for key in _MODEL[1:]))
    return next((model for model in said if isinstance(model, str) and model), "")


def request_of(span: Any) -> dict[str, Any]:
    """What a call's span says of the request: the arguments of `open_call`."""
    known = attributes_of(span)
    asked = _parameters(known)
    maximum = (known.get(schema.REQUEST_MAX_TOKENS.key), *(member(asked, name) for name in _MAXIMUM))
    return {
        "provider": _provider(scope_of(span), known),
        "model": model_of(span) or span.name.partition(" ")[2],
        "operation": text_or_none(known.get(schema.OPERATION.key)) or "chat",
        "stream": True
        in (known.get(schema.REQUEST_STREAM.key), known.get("gen_ai.is_streaming"), member(asked, "stream")),
        "maximum": next((figure for each in maximum if (figure := count(each)) is not None), None),
        "choices": count(known.get(schema.REQUEST_CHOICES.key)) or 1,
        "server_address": text_or_none(known.get(schema.SERVER_ADDRESS.key)),
        "server_port": count(known.get(schema.SERVER_PORT.key)),
    }


def result_of(span: Any, *, provider: str, maximum: int | None) -> dict[str, Any]:
    """What a call's span says of the response, now that it has ended: the arguments of `Call.end`."""
    from endturn import frameworks  # with pydantic, which takes long to import, and most processes read no span
    from endturn.chat import Usage

    known = attributes_of(span)
    reasons = _reasons(known)
    tokens: dict[str, Any] = {name: _first_count(known, keys) for name, keys in _TOKENS.items()}
    usage = Usage(**tokens)
    failed = _has_failed(span)
    if next(iter(reasons), None) is not None:
        told = {
            schema.FINISH_REASONS.key: list(reasons),
            schema.PROVIDER.key: provider,
            schema.OUTPUT_TOKENS.key: usage.output_tokens,
            schema.REQUEST_MAX_TOKENS.key: maximum,
        }
        stop = frameworks.otel(told)
    elif failed:
        stop = _failure(span, known)
    else:
        stop = _of_body(known, provider, maximum) or Stop(StopReason.UNKNOWN, detail="untold")
    return {
        "stop": stop,
        "usage": usage,
        "response_id": response_id_of(span),
        "response_model": text_or_none(known.get(schema.RESPONSE_MODEL.key)),
        "reasons": reasons,
        "error": _reported(_class_name(_error_of(span)) or "_OTHER")() if failed else None,
    }


def first_chunk_of(span: Any) -> float | None:
    """Seconds until the first piece of a stream came."""
    known = attributes_of(span)
    return number(known.get(schema.RESPONSE_FIRST_CHUNK.key) or known.get(schema.FIRST_CHUNK.name))


class ReportedError(EndturnError):
    """An error that only a span tells of. Its class has the name of the one that was raised."""


@lru_cache(maxsize=64)
def _reported(name: str) -> type[ReportedError]:
    return type(name, (ReportedError,), {})


def _provider(scope: str, known: Attributes) -> str:
    """The conventions' name of whoever answers; "" where the span does not say."""
    from endturn.exchange import PROVIDERS
    from endturn.frameworks.rows import named

    for key in _PROVIDER:
        said = known.get(key)
        if isinstance(said, str) and said:
            name = named(said)
            first = name.partition(".")[0]
            return name if name in PROVIDERS or first not in PROVIDERS else first
    return next((part for part in ("openai", "anthropic") if part in scope), "")


def _reasons(known: Attributes) -> tuple[str | None, ...]:
    """Why each choice stopped, in whatever words."""
    for key in _REASONS:
        said = known.get(key)
        listed = _json(said)
        found = items(listed if isinstance(listed, list) else said) or ((said,) if raw_text(said) is not None else ())
        if found:
            return tuple(map(raw_text, found))
    messages = items(_json(known.get("gen_ai.output.messages")))  # the conventions before they had an attribute for it
    return tuple(raw_text(member(each, "finish_reason")) for each in messages)


def _failure(span: Any, known: Attributes) -> Stop:
    """Why a response stopped whose span ended in an error: stopped on purpose, cut once it had begun, or failed."""
    name, said = _class_name(_error_of(span)), span.status.description
    if name in _STOPPED or said == "abandoned stream":
        return Stop(StopReason.CANCELLED, detail="abandoned" if said == "abandoned stream" else None, incomplete=True)
    timeout = "timeout" if "Timeout" in name else None
    begun = (schema.RESPONSE_ID.key, schema.RESPONSE_MODEL.key, schema.RESPONSE_FIRST_CHUNK.key, "output.value")
    if any(key in known for key in begun) and any(part in name for part in _LOST):
        return Stop(StopReason.MISSING, detail=timeout or name, terminal_seen=False, incomplete=True)
    return Stop(StopReason.ERROR, detail=timeout, incomplete=True)


def _of_body(known: Attributes, provider: str, maximum: int | None) -> Stop | None:
    """Why a response of OpenAI's Responses stopped: OpenInference keeps its body, and tells the reason nowhere else."""
    body = _json(known.get("output.value"))
    if member(body, "object") != "response" or not isinstance(member(body, "status"), str):
        return None
    return wire("openai_responses").whole(Context(provider=provider, asked=Asked(maximum=maximum)), body).stop


def _has_failed(span: Any) -> bool:
    return getattr(getattr(span, "status", None), "status_code", None) is StatusCode.ERROR


def _error_of(span: Any) -> str:
    """The class of a failed span's error; "" where it does not say."""
    said = text_or_none(attributes_of(span).get(schema.ERROR_TYPE.key))
    if said is not None:
        return said
    raised = [(event.attributes or {}).get("exception.type") for event in span.events or ()]
    return next((name for name in reversed(raised) if isinstance(name, str)), "")


def _class_name(error: str) -> str:
    return error.rpartition(".")[2]


def _first_count(known: Attributes, keys: tuple[str, ...]) -> int | None:
    return next((found for key in keys if (found := count(known.get(key))) is not None), None)


def _parameters(known: Attributes) -> Any:
    """OpenInference's JSON of what was asked for."""
    return _json(known.get("llm.invocation_parameters"))


def _json(value: object) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None
