"""How other instrumentations' spans say what they are of, and what came of a call: each one's attributes.

Read with the packages as they are (2026-11): OpenTelemetry's genai-openai and genai-anthropic 1.3b0, the spans that
anthropic 2.12 makes itself, OpenInference 0.1.66, OpenLLMetry 0.62.4, OpenLIT 1.45, Logfire 5.2, Langfuse 5.0, Pydantic
AI 2.68. None of them is imported. A span is judged by its attributes as they are when it is asked: some come late.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final

from opentelemetry.trace import StatusCode

from endturn.errors import EndturnError
from endturn.events import TurnOutcome
from endturn.formats import Context, RequestSummary, format_of, summarize
from endturn.formats.reading import count, member, text_or_none
from endturn.providers import canonical
from endturn.stop import Stop, StopReason, raw_text
from endturn.tables import lines, shipped
from endturn.telemetry import schema

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
    **dict.fromkeys(("chat", "generate_content", "text_completion"), Kind.CALL),
    **dict.fromkeys(("invoke_agent", "invoke_workflow", "handle_conversation_turn"), Kind.AGENT),
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
    **dict.fromkeys(("openai.chat", "openai.response", "anthropic.chat", "anthropic.messages.create"), Kind.CALL),
    **_OPERATIONS,
}
"""The first words of names. OpenLLMetry begins spans without attributes, and `AlwaysRecordSampler` drops those that a
span begins with."""
_NAMED_BY: Final = ("opentelemetry.instrumentation.", "opentelemetry.util.genai", "com.anthropic.", "pydantic-ai")
"""The beginnings of scopes whose calls are known by name. An agent's or a tool's name tells in any scope."""
_RAW_REASON: Final = "anthropic.message.stop_reason"
"""The provider's own word, which comes before a translation."""
_JSON: Final = {"llm.invocation_parameters": "asked", "output.value": "body"}
"""OpenInference's attributes that hold the JSON of a request and of a response; what its members are called below."""
_SPELLINGS: Final = {key: names.split() for _, (key, names) in lines(shipped(), "span_attributes.tsv", range(2, 3))}
"""What other conventions call an attribute; the first that a span has counts."""
_NOTHING: Final = (None, "", ())
_ANSWERED: Final = (schema.FINISH_REASONS.key, schema.RESPONSE_ID.key, schema.OUTPUT_TOKENS.key)
_BEGUN: Final = (schema.RESPONSE_ID.key, schema.RESPONSE_MODEL.key, schema.RESPONSE_FIRST_CHUNK.key, "output.value")
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
    scope, known, name = scope_of(span), attributes_of(span), getattr(span, "name", "")
    if scope == schema.SCOPE:
        return None
    key = next((key for key in _KINDS if known.get(key) is not None), None)
    if key is not None:
        kind = _KINDS[key].get(str(known[key]))
    else:
        kind = _NAMES.get(name.partition(" ")[0])
        if kind is Kind.CALL and not scope.startswith(_NAMED_BY):
            return None
    if kind is Kind.CALL and name.endswith(_NO_CALLS):
        return None
    if kind is Kind.CALL and scope.startswith("logfire"):
        return {"log": Kind.STREAM_END, "pending_span": None}.get(str(known.get("logfire.span_type")), kind)
    return kind


def is_handed_over(span: Any) -> bool:
    """Whether a call's span that ends well says nothing of the response: Logfire says it when the stream ends."""
    is_logfires = scope_of(span).startswith("logfire")
    return is_logfires and not _has_failed(span) and attributes_of(span).keys().isdisjoint(_ANSWERED)


def facts_of(span: Any) -> dict[str, Any]:
    """A span's attributes by the conventions' names, whatever it calls them."""
    found = dict(attributes_of(span))
    for key, name in _JSON.items():
        body = _json(found.get(key))
        found |= {f"{name}.{each}": value for each, value in body.items()} if isinstance(body, dict) else {}
    if found.get(_RAW_REASON):
        found[schema.FINISH_REASONS.key] = found[_RAW_REASON]
    for key, spellings in _SPELLINGS.items():
        if found.get(key) in _NOTHING:
            found[key] = next((found[each] for each in spellings if found.get(each) not in _NOTHING), None)
    return found


def outcome_of(span: Any) -> TurnOutcome:
    """How an agent's turn ended, by its span's status."""
    failed = TurnOutcome.CANCELLED if _error_of(span) in _STOPPED else TurnOutcome.PROVIDER_ERROR
    return failed if _has_failed(span) else TurnOutcome.COMPLETED


def request_of(span: Any) -> dict[str, Any]:
    """What a call's span says of the request: the arguments of `open_call`."""
    known = facts_of(span)
    return {
        "provider": _provider(scope_of(span), known),
        "model": text_or_none(known.get(schema.REQUEST_MODEL.key)) or span.name.partition(" ")[2],
        "operation": text_or_none(known.get(schema.OPERATION.key)) or "chat",
        "stream": known.get(schema.REQUEST_STREAM.key) is True,
        "maximum": count(known.get(schema.REQUEST_MAX_TOKENS.key)),
        "choices": count(known.get(schema.REQUEST_CHOICES.key)) or 1,
        "server_address": text_or_none(known.get(schema.SERVER_ADDRESS.key)),
        "server_port": count(known.get(schema.SERVER_PORT.key)),
    }


def result_of(span: Any, *, provider: str, maximum: int | None) -> dict[str, Any]:
    """What a call's span says of the response, now that it has ended: the arguments of `Call.end`."""
    from endturn import frameworks  # with pydantic, which takes long to import, and most processes read no span
    from endturn.chat import Usage

    known = facts_of(span)
    tokens: dict[str, Any] = {name: count(known.get(attribute.key)) for name, attribute in schema.USAGE.items()}
    reasons = _reasons(known.get(schema.FINISH_REASONS.key))
    failed = _has_failed(span)
    if reasons and reasons[0] is not None:
        stop = frameworks.otel({**known, schema.FINISH_REASONS.key: list(reasons)}, provider=provider)
    elif failed:
        stop = _failure(span)
    else:
        stop = _of_body(known, provider, maximum) or Stop(StopReason.UNKNOWN, detail="untold")
    return {
        "stop": stop,
        "usage": Usage(**tokens),
        "response_id": text_or_none(known.get(schema.RESPONSE_ID.key)),
        "response_model": text_or_none(known.get(schema.RESPONSE_MODEL.key)),
        "reasons": reasons,
        "error": _reported(_error_of(span) or "_OTHER")() if failed else None,
    }


@lru_cache(maxsize=64)
def _reported(name: str) -> type[EndturnError]:
    """The class of an error that only a span tells of, with the name of the one that was raised."""
    return type(name, (EndturnError,), {})


def _provider(scope: str, known: Attributes) -> str:
    """The conventions' name of whoever answers; "" where the span does not say."""
    named = text_or_none(known.get(schema.PROVIDER.key))
    return canonical(named) if named else next((part for part in ("openai", "anthropic") if part in scope), "")


def _reasons(said: Any) -> tuple[str | None, ...]:
    """Why each choice stopped, in whatever words: one, a list, a list of messages, or the JSON of such a list."""
    listed = _json(said) or said
    found = listed if isinstance(listed, list | tuple) else (said,)
    words = (raw_text(member(each, "finish_reason") if isinstance(each, Mapping) else each) for each in found)
    return () if said is None else tuple(words)


def _failure(span: Any) -> Stop:
    """Why a response stopped whose span ended in an error: stopped on purpose, cut once it had begun, or failed."""
    name, is_abandoned = _error_of(span), span.status.description == "abandoned stream"
    if name in _STOPPED or is_abandoned:
        return Stop(StopReason.CANCELLED, detail="abandoned" if is_abandoned else None, incomplete=True)
    timeout = "timeout" if "Timeout" in name else None
    if any(part in name for part in _LOST) and not attributes_of(span).keys().isdisjoint(_BEGUN):
        return Stop(StopReason.MISSING, detail=timeout or name, terminal_seen=False, incomplete=True)
    return Stop(StopReason.ERROR, detail=timeout, incomplete=True)


def _of_body(known: Attributes, provider: str, maximum: int | None) -> Stop | None:
    """Why a response of OpenAI's Responses stopped: OpenInference keeps its body, and tells the reason nowhere else."""
    body = _json(known.get("output.value"))
    if member(body, "object") != "response" or not isinstance(member(body, "status"), str):
        return None
    return summarize(
        format_of("openai_responses"), Context(provider=provider, asked=RequestSummary(maximum=maximum)), body
    ).stop


def _has_failed(span: Any) -> bool:
    return getattr(getattr(span, "status", None), "status_code", None) is StatusCode.ERROR


def _error_of(span: Any) -> str:
    """The name of a failed span's error; "" where it does not say."""
    raised = [text_or_none((event.attributes or {}).get("exception.type")) for event in reversed(span.events or ())]
    said = text_or_none(attributes_of(span).get(schema.ERROR_TYPE.key)) or next(filter(None, raised), "")
    return said.rpartition(".")[2]


def _json(value: object) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    return None
