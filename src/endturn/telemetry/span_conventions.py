"""How other instrumentations' spans say what they are of, and what came of a call.

Each one's attributes.

Read with the packages as they are (2026-11): OpenTelemetry's genai-openai and genai-anthropic
1.3b0, the spans that anthropic 2.12 makes itself, OpenInference 0.1.66, OpenLLMetry 0.62.4, OpenLIT
1.45, Logfire 5.2, Langfuse 5.0, Pydantic AI 2.68, AgentOps 0.4.21. None of them is imported. A span
is judged by its attributes as they are when it is asked: some come late.
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
from endturn.vocabulary import Stop, StopReason, lines, raw_text, shipped

Attributes = Mapping[str, Any]


class Kind(Enum):
    """What a span is of."""

    CALL = auto()
    """One call to a model."""
    STREAM_END = auto()
    """The end of a streamed response: Logfire ends the call's own span when it hands over the
    stream."""
    AGENT = auto()
    """A run of an agent or a workflow: from the user's input to the answer handed back."""
    TOOL = auto()
    """One run of a tool."""


def _read_kinds() -> tuple[dict[str, dict[str, Kind]], dict[str, Kind]]:
    """Read what the attributes, and the first words of names, say that a span is of."""
    kinds: dict[str, dict[str, Kind]] = {}
    names: dict[str, Kind] = {}
    for _, (attribute, kind, values, named) in lines(shipped(), "span_kinds.tsv", range(4, 5)):
        row = dict.fromkeys(values.lower().split(), Kind[kind.upper()])
        kinds.setdefault(attribute, {}).update(row)
        if named == "yes":
            names |= row
    return kinds, names


_KINDS, _OPERATIONS = _read_kinds()
"""The attributes that say what a span is of, in the order in which they decide; and the operations
of names."""
_NAMES: Final = {
    **dict.fromkeys(
        ("openai.chat", "openai.response", "anthropic.chat", "anthropic.messages.create"), Kind.CALL
    ),
    **_OPERATIONS,
}
"""The first words of names. OpenLLMetry begins spans without attributes, and `AlwaysRecordSampler`
drops those that a span begins with."""
_NAMED_BY: Final = (
    "opentelemetry.instrumentation.",
    "opentelemetry.util.genai",
    "com.anthropic.",
    "pydantic-ai",
)
"""The beginnings of scopes whose calls are known by name. An agent's or a tool's name tells in any
scope."""
_RAW_REASON: Final = "anthropic.message.stop_reason"
"""The provider's own word, which comes before a translation."""
_JSON: Final = {"llm.invocation_parameters": "asked", "output.value": "body"}
"""OpenInference's attributes that hold the JSON of a request and of a response; what its members
are called below."""
_SPELLINGS: Final = {
    key: names.split() for _, (key, names) in lines(shipped(), "span_attributes.tsv", range(2, 3))
}
_SPELLINGS[schema.FINISH_REASONS.key] = [
    attribute
    for _, (attribute, _, _, readers) in lines(shipped(), "reason_attributes.tsv", range(4, 5))
    if readers in ("both", "library")
]
"""What other conventions call an attribute; the first that a span has counts."""
_NOTHING: Final = (None, "", ())
_ANSWERED: Final = (schema.FINISH_REASONS.key, schema.RESPONSE_ID.key, schema.OUTPUT_TOKENS.key)
_BEGUN: Final = (
    schema.RESPONSE_ID.key,
    schema.RESPONSE_MODEL.key,
    schema.RESPONSE_FIRST_CHUNK.key,
    "output.value",
)
_NO_CALLS: Final = ("._prepare_chat_with_tools",)
"""Ends of names of spans that are said to be of a call, and ask no model: OpenInference's of
LlamaIndex."""
_STOPPED: Final = frozenset(
    {"AbandonedStreamError", "Cancelled", "CancelledError", "GeneratorExit", "KeyboardInterrupt"}
)
"""Classes of exceptions that stop a call or a run on purpose."""
_LOST: Final = ("Connection", "Timeout", "Protocol", "ReadError", "IncompleteRead", "EOF")
"""Parts of the names of exceptions that mean a lost connection."""


NO_REASON: Final = "untold"
"""The detail of the stop of a span that says nothing of why the response stopped."""


def exported_span(
    name: str,
    attributes: Attributes,
    *,
    scope: str,
    has_failed: bool,
    description: str,
    events: Iterable[Attributes],
) -> Any:
    """Return a span that was exported as the functions of this module read it.

    Args:
        scope: the name of the instrumentation that made it.
        has_failed: its status is an error; description: what the status says of it.
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
    """A span's attributes as they are now; none of a span that records nothing."""
    return getattr(span, "attributes", None) or {}


def scope_of(span: Any) -> str:
    """The name of the instrumentation that made a span; "" where that is not known."""
    return getattr(getattr(span, "instrumentation_scope", None), "name", "")


def kind_of(span: Any) -> Kind | None:
    """What a span is of, as far as it says so now.

    Our own spans, and those that are of nothing here, have no kind.
    """
    scope, attributes, name = scope_of(span), attributes_of(span), getattr(span, "name", "")
    if scope == schema.SCOPE:
        return None
    key = next((key for key in _KINDS if attributes.get(key) is not None), None)
    if key is not None:
        kind = _KINDS[key].get(str(attributes[key]).lower())
    else:
        kind = _NAMES.get(name.partition(" ")[0])
        if kind is Kind.CALL and not scope.startswith(_NAMED_BY):
            return None
    if kind is Kind.CALL and name.endswith(_NO_CALLS):
        return None
    if kind is Kind.CALL and scope.startswith("logfire"):
        return {"log": Kind.STREAM_END, "pending_span": None}.get(
            str(attributes.get("logfire.span_type")), kind
        )
    return kind


def is_handed_over(span: Any) -> bool:
    """Whether a call's span that ends well says nothing of the response.

    Logfire says it when the stream ends.
    """
    is_logfires = scope_of(span).startswith("logfire")
    return (
        is_logfires and not _has_failed(span) and attributes_of(span).keys().isdisjoint(_ANSWERED)
    )


def facts_of(span: Any) -> dict[str, Any]:
    """A span's attributes by the conventions' names, whatever it calls them."""
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
    """How an agent's turn ended, by its span's status."""
    failed = TurnOutcome.CANCELLED if _error_of(span) in _STOPPED else TurnOutcome.PROVIDER_ERROR
    return failed if _has_failed(span) else TurnOutcome.COMPLETED


def request_of(span: Any) -> RequestFacts:
    """Return what a call's span says of the request."""
    facts = facts_of(span)
    return RequestFacts(
        model=text_or_none(facts.get(schema.REQUEST_MODEL.key)) or span.name.partition(" ")[2],
        stream=facts.get(schema.REQUEST["stream"].key) is True,
        max_tokens=count(facts.get(schema.REQUEST_MAX_TOKENS.key)),
        choice_count=count(facts.get(schema.REQUEST["choice_count"].key)) or 1,
    )


def endpoint_of(span: Any) -> EndpointFacts:
    """Return whom a call's span says was asked."""
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
    """Return what an ended call's span says of the response, and the error that it ended with."""
    # with pydantic, which takes long to import, and most processes read no span
    from endturn import frameworks
    from endturn.vocabulary import Usage

    known = facts_of(span)
    tokens: dict[str, Any] = {
        name: count(known.get(attribute.key)) for name, attribute in schema.USAGE.items()
    }
    reasons = _reasons(known.get(schema.FINISH_REASONS.key))
    failed, name = _has_failed(span), _error_of(span)
    if reasons and reasons[0] is not None:
        stop = frameworks.otel(
            {**known, schema.FINISH_REASONS.key: list(reasons)}, provider=provider
        )
    elif failed:
        stop = _failure(span)
    else:
        stop = _of_body(known, provider, maximum) or Stop(StopReason.UNKNOWN, detail=NO_REASON)
    # Who stops reading after the reason has come sees an exception of its own: the call has not
    # failed.
    is_error = failed and (name not in _STOPPED or stop.reason is StopReason.CANCELLED)
    facts = ResponseFacts(
        stop=stop,
        id=text_or_none(known.get(schema.RESPONSE_ID.key)),
        model=text_or_none(known.get(schema.RESPONSE_MODEL.key)),
        usage=Usage(**tokens),
        reasons=reasons,
    )
    return facts, SpanError(name or "_OTHER") if is_error else None


def _provider(scope: str, facts: Attributes) -> str:
    """The conventions' name of whoever answers; "" where the span does not say."""
    from endturn.vocabulary import canonical

    named = text_or_none(facts.get(schema.PROVIDER.key))
    return (
        canonical(named)
        if named
        else next((part for part in ("openai", "anthropic") if part in scope), "")
    )


def _reasons(finish_reasons: Any) -> tuple[str | None, ...]:
    """Why each choice stopped, in whatever words.

    One, a list, a list of messages, or the JSON of such a list.
    """
    parsed = _json(finish_reasons) or finish_reasons
    entries = parsed if isinstance(parsed, list | tuple) else (finish_reasons,)
    words = (
        raw_text(member(entry, "finish_reason") if isinstance(entry, Mapping) else entry)
        for entry in entries
    )
    return () if finish_reasons is None else tuple(words)


def _failure(span: Any) -> Stop:
    """Why a response stopped whose span ended in an error.

    Stopped on purpose, cut once it had begun, or failed.
    """
    name, is_abandoned = _error_of(span), span.status.description == "abandoned stream"
    if name in _STOPPED or is_abandoned:
        return Stop(
            StopReason.CANCELLED, detail="abandoned" if is_abandoned else None, incomplete=True
        )
    timeout = "timeout" if "Timeout" in name else None
    if any(part in name for part in _LOST) and not attributes_of(span).keys().isdisjoint(_BEGUN):
        return Stop(
            StopReason.MISSING, detail=timeout or name, terminal_seen=False, incomplete=True
        )
    return Stop(StopReason.ERROR, detail=timeout, incomplete=True)


def _of_body(facts: Attributes, provider: str, maximum: int | None) -> Stop | None:
    """Why a response of OpenAI's Responses stopped.

    OpenInference keeps its body, and tells the reason nowhere else.
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
    """The name of a failed span's error; "" where it does not say."""
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
