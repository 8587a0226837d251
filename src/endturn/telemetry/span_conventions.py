"""The attributes of other instrumentations' spans: their kind, request and response.

As in these packages (2026-11): OpenTelemetry's genai-openai and genai-anthropic 1.3b0, the spans of
anthropic 2.12 itself, OpenInference 0.1.66, OpenLLMetry 0.62.4, OpenLIT 1.45, Logfire 5.2, Langfuse
5.0, Pydantic AI 2.68, AgentOps 0.4.21. None of them is imported. The functions read a span's
attributes at the time of the call: some are set late.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from enum import Enum, auto
from types import SimpleNamespace
from typing import Any, Final

from opentelemetry.trace import StatusCode

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, TurnOutcome
from endturn.formats import (
    Context,
    RequestSummary,
    count,
    format_of,
    member,
    summarize,
    text_or_none,
)
from endturn.telemetry import schema
from endturn.telemetry.attributes import SpanError
from endturn.vocabulary import Stop, StopReason, package_data, raw_text, read_tsv

Attributes = Mapping[str, Any]


class OperationKind(Enum):
    """The kind of operation that a span describes."""

    CALL = auto()
    """One call to a model."""
    STREAM_END = auto()
    """The end of a streamed response: Logfire ends the call's own span before the stream is
    read."""
    AGENT = auto()
    """A run of an agent or a workflow: from the user's input to the answer."""
    TOOL = auto()
    """A run of a tool."""


def _read_kinds() -> tuple[dict[str, dict[str, OperationKind]], dict[str, OperationKind]]:
    """Read the kinds by attribute and value, and by the first word of a span's name."""
    kinds: dict[str, dict[str, OperationKind]] = {}
    names: dict[str, OperationKind] = {}
    for _, (attribute, kind, values, named) in read_tsv(
        package_data(), "span_kinds.tsv", range(4, 5)
    ):
        row = dict.fromkeys(values.lower().split(), OperationKind[kind.upper()])
        kinds.setdefault(attribute, {}).update(row)
        if named == "yes":
            names |= row
    return kinds, names


_KINDS, _OPERATIONS = _read_kinds()
"""The kinds by attribute and value, in the order of precedence; and by the operation in a name."""
_NAMES: Final = {
    **dict.fromkeys(
        ("openai.chat", "openai.response", "anthropic.chat", "anthropic.messages.create"),
        OperationKind.CALL,
    ),
    **_OPERATIONS,
}
"""The kinds by the first word of a name, for spans without attributes: OpenLLMetry starts them so,
and `AlwaysRecordSampler` drops the attributes at the start."""
_NAMED_BY: Final = (
    "opentelemetry.instrumentation.",
    "opentelemetry.util.genai",
    "com.anthropic.",
    "pydantic-ai",
)
"""Prefixes of the scopes whose calls are recognised by name. The names of agents' and tools' spans
are recognised in any scope."""
_RAW_REASON: Final = "anthropic.message.stop_reason"
"""The provider's raw reason, which takes precedence over a normalised one."""
_JSON: Final = {"llm.invocation_parameters": "asked", "output.value": "body"}
"""OpenInference's attributes with the JSON of a request and of a response, and the prefixes of
their members' names in data/span_attributes.tsv."""
_SPELLINGS: Final = {
    key: names.split()
    for _, (key, names) in read_tsv(package_data(), "span_attributes.tsv", range(2, 3))
}
_SPELLINGS[schema.FINISH_REASONS.key] = [
    attribute
    for _, (attribute, _, _, readers) in read_tsv(
        package_data(), "reason_attributes.tsv", range(4, 5)
    )
    if readers in ("both", "library")
]
"""The names of an attribute in other conventions, in the order of precedence."""
_NOTHING: Final = (None, "", ())
_END_ATTRIBUTES: Final = (
    schema.FINISH_REASONS.key,
    schema.RESPONSE_ID.key,
    schema.OUTPUT_TOKENS.key,
)
"""Attributes that a span has if its response was read to its end."""
_BEGIN_ATTRIBUTES: Final = (
    schema.RESPONSE_ID.key,
    schema.RESPONSE_MODEL.key,
    schema.RESPONSE_FIRST_CHUNK.key,
    "output.value",
)
"""Attributes that a span has if its response has begun."""
_NO_CALLS: Final = ("._prepare_chat_with_tools",)
"""Suffixes of the names of spans whose attributes mean a call, but that ask no model: those of
OpenInference for LlamaIndex."""
_STOPPED: Final = frozenset(
    {"AbandonedStreamError", "Cancelled", "CancelledError", "GeneratorExit", "KeyboardInterrupt"}
)
"""Classes of exceptions that stop a call or a run on purpose."""
_CONNECTION_ERRORS: Final = (
    "Connection",
    "Timeout",
    "Protocol",
    "ReadError",
    "IncompleteRead",
    "EOF",
)
"""Parts of the names of exceptions that mean a lost connection."""


NO_REASON: Final = "untold"
"""The detail of the stop if a span has no finish reason."""


def exported_span(
    name: str,
    attributes: Attributes,
    *,
    scope: str,
    has_failed: bool,
    description: str,
    events: Iterable[Attributes],
) -> Any:
    """Return a span object, of exported data, for the functions of this module.

    Args:
        name: the span's name.
        attributes: its attributes.
        scope: the name of the instrumentation.
        has_failed: the status is an error; description: the description of the status.
        events: the attributes of its events.
    """
    return SimpleNamespace(
        name=name,
        attributes=attributes,
        instrumentation_scope=SimpleNamespace(name=scope),
        status=SimpleNamespace(
            status_code=StatusCode.ERROR if has_failed else StatusCode.UNSET,
            description=description,
        ),
        events=[SimpleNamespace(attributes=event) for event in events],
    )


def attributes_of(span: Any) -> Attributes:
    """Return a span's present attributes; none if it is not recording."""
    return getattr(span, "attributes", None) or {}


def scope_of(span: Any) -> str:
    """Return the name of a span's instrumentation; "" if it is unknown."""
    return getattr(getattr(span, "instrumentation_scope", None), "name", "")


def kind_of(span: Any) -> OperationKind | None:
    """Return a span's kind by its present attributes.

    None for endturn's own spans, and for those of other operations.
    """
    scope, attributes, name = scope_of(span), attributes_of(span), getattr(span, "name", "")
    if scope == schema.SCOPE:
        return None
    key = next((key for key in _KINDS if attributes.get(key) is not None), None)
    if key is not None:
        kind = _KINDS[key].get(str(attributes[key]).lower())
    else:
        kind = _NAMES.get(name.partition(" ")[0])
        if kind is OperationKind.CALL and not scope.startswith(_NAMED_BY):
            return None
    if kind is OperationKind.CALL and name.endswith(_NO_CALLS):
        return None
    if kind is OperationKind.CALL and scope.startswith("logfire"):
        return {"log": OperationKind.STREAM_END, "pending_span": None}.get(
            str(attributes.get("logfire.span_type")), kind
        )
    return kind


def ended_before_stream(span: Any) -> bool:
    """Return whether a call's span ended without an error before its stream was read.

    Logfire records the response on another span, when the stream ends.
    """
    is_logfires = scope_of(span).startswith("logfire")
    has_response = not attributes_of(span).keys().isdisjoint(_END_ATTRIBUTES)
    return is_logfires and not _has_failed(span) and not has_response


def facts_of(span: Any) -> dict[str, Any]:
    """Return a span's attributes under the names of OpenTelemetry's conventions."""
    facts = dict(attributes_of(span))
    for key, name in _JSON.items():
        body = _json(facts.get(key))
        facts |= (
            {f"{name}.{member_name}": value for member_name, value in body.items()}
            if isinstance(body, dict)
            else {}
        )
    if facts.get(_RAW_REASON):
        facts[schema.FINISH_REASONS.key] = facts[_RAW_REASON]
    for key, spellings in _SPELLINGS.items():
        if facts.get(key) in _NOTHING:
            facts[key] = next(
                (facts[spelling] for spelling in spellings if facts.get(spelling) not in _NOTHING),
                None,
            )
    return facts


def outcome_of(span: Any) -> TurnOutcome:
    """Return the outcome of an agent's turn, by its span's status."""
    if not _has_failed(span):
        return TurnOutcome.COMPLETED
    return TurnOutcome.CANCELLED if _error_of(span) in _STOPPED else TurnOutcome.PROVIDER_ERROR


def request_of(span: Any) -> RequestFacts:
    """Return the facts of the request on a call's span."""
    facts = facts_of(span)
    return RequestFacts(
        model=text_or_none(facts.get(schema.REQUEST_MODEL.key)) or span.name.partition(" ")[2],
        stream=facts.get(schema.REQUEST["stream"].key) is True,
        max_tokens=count(facts.get(schema.REQUEST_MAX_TOKENS.key)),
        choice_count=count(facts.get(schema.REQUEST["choice_count"].key)) or 1,
    )


def endpoint_of(span: Any) -> EndpointFacts:
    """Return the facts of the endpoint on a call's span."""
    facts = facts_of(span)
    return EndpointFacts(
        operation=text_or_none(facts.get(schema.OPERATION.key)) or "chat",
        provider=_provider(scope_of(span), facts),
        server_address=text_or_none(facts.get(schema.SERVER_ADDRESS.key)),
        server_port=count(facts.get(schema.SERVER_PORT.key)),
    )


def result_of(
    span: Any, *, provider: str, maximum: int | None
) -> tuple[ResponseFacts, SpanError | None]:
    """Return the facts of the response on an ended call's span, and its error."""
    # With pydantic, which takes long to import, and most processes read no span.
    from endturn import frameworks
    from endturn.vocabulary import Usage

    span_facts = facts_of(span)
    tokens: dict[str, Any] = {
        name: count(span_facts.get(attribute.key)) for name, attribute in schema.USAGE.items()
    }
    reasons = _reasons(span_facts.get(schema.FINISH_REASONS.key))
    has_failed, error_name = _has_failed(span), _error_of(span)
    if reasons and reasons[0] is not None:
        stop = frameworks.otel(
            {**span_facts, schema.FINISH_REASONS.key: list(reasons)}, provider=provider
        )
    elif has_failed:
        stop = _failure(span)
    else:
        stop = _of_body(span_facts, provider, maximum) or Stop(StopReason.UNKNOWN, detail=NO_REASON)
    # A host that stops reading after the stop reason gets an exception, but the call has not
    # failed.
    is_error = has_failed and (error_name not in _STOPPED or stop.reason is StopReason.CANCELLED)
    facts = ResponseFacts(
        stop=stop,
        id=text_or_none(span_facts.get(schema.RESPONSE_ID.key)),
        model=text_or_none(span_facts.get(schema.RESPONSE_MODEL.key)),
        usage=Usage(**tokens),
        reasons=reasons,
    )
    return facts, SpanError(error_name or "_OTHER") if is_error else None


def _provider(scope: str, facts: Attributes) -> str:
    """Return the conventions' name of the provider; "" if the span does not have it."""
    from endturn.vocabulary import canonical

    named = text_or_none(facts.get(schema.PROVIDER.key))
    return (
        canonical(named)
        if named
        else next((part for part in ("openai", "anthropic") if part in scope), "")
    )


def _reasons(finish_reasons: Any) -> tuple[str | None, ...]:
    """Return the reasons of all choices, as on the span.

    The value is one reason, a list, a list of messages, or the JSON of such a list.
    """
    parsed = _json(finish_reasons) or finish_reasons
    entries = parsed if isinstance(parsed, list | tuple) else (finish_reasons,)
    words = (
        raw_text(member(entry, "finish_reason") if isinstance(entry, Mapping) else entry)
        for entry in entries
    )
    return () if finish_reasons is None else tuple(words)


def _failure(span: Any) -> Stop:
    """Return the stop of a response whose span ended with an error.

    It was stopped on purpose, lost after it had begun, or failed.
    """
    name, is_abandoned = _error_of(span), span.status.description == "abandoned stream"
    if name in _STOPPED or is_abandoned:
        return Stop(
            StopReason.CANCELLED, detail="abandoned" if is_abandoned else None, incomplete=True
        )
    timeout = "timeout" if "Timeout" in name else None
    is_lost = any(part in name for part in _CONNECTION_ERRORS)
    if is_lost and not attributes_of(span).keys().isdisjoint(_BEGIN_ATTRIBUTES):
        return Stop(
            StopReason.MISSING, detail=timeout or name, terminal_seen=False, incomplete=True
        )
    return Stop(StopReason.ERROR, detail=timeout, incomplete=True)


def _of_body(facts: Attributes, provider: str, maximum: int | None) -> Stop | None:
    """Return the stop of a response of OpenAI's Responses API, from its body.

    OpenInference records the body, and no finish reason.
    """
    body = _json(facts.get("output.value"))
    if member(body, "object") != "response" or not isinstance(member(body, "status"), str):
        return None
    return summarize(
        format_of("openai_responses"),
        Context(provider=provider, request=RequestSummary(facts=RequestFacts(max_tokens=maximum))),
        body,
    ).stop


def _has_failed(span: Any) -> bool:
    return getattr(getattr(span, "status", None), "status_code", None) is StatusCode.ERROR


def _error_of(span: Any) -> str:
    """Return the name of a failed span's error; "" if it has none."""
    raised = [
        text_or_none((event.attributes or {}).get("exception.type"))
        for event in reversed(span.events or ())
    ]
    error_name = text_or_none(attributes_of(span).get(schema.ERROR_TYPE.key)) or next(
        filter(None, raised), ""
    )
    return error_name.rpartition(".")[2]


def _json(value: object) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(value)
    return None
