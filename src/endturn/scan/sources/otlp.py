"""OTLP as JSON lines, such as the Collector's file exporter writes: one export request to a line.

Spans of endturn have the stop of each call; spans of other instrumentations are read by the
conventions that they follow, as live ones are. Metrics hold no calls, and of the logs only the
events of continuations are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, Strategy, TurnOutcome
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.telemetry import OperationKind, schema, span_conventions as conventions
from endturn.vocabulary import TRUNCATED, Stop, StopReason, Usage

TITLE: Final = "OTLP"
MEMBERS: Final = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
"""The signal of a request, by the member that it has."""
_OUTCOMES: Final = {outcome.value: outcome for outcome in TurnOutcome}
_REASONS: Final = {reason.value: reason for reason in StopReason}
_STRATEGIES: Final = {strategy.value: strategy for strategy in Strategy}
_ERROR_STATUSES: Final = (2, "STATUS_CODE_ERROR")


def recognises(head: FileHead) -> bool:
    """Return whether the records are export requests."""
    return any(isinstance(record.get(name), list) for record in head.records for name in MEMBERS)


@dataclass(slots=True)
class _Call:
    """A call, its position in its turn, and its continuation of an earlier call, if any.

    Attributes:
        iteration: its number within the turn; 0 if unknown.
        continuation: its number among the turn's continuations; 0 for an ordinary call.
        links: keys of the spans that its span links to, including the one that it continues.
    """

    call: PastCall
    iteration: int = 0
    continuation: int = 0
    links: frozenset[str] = frozenset()


@dataclass(slots=True)
class _OtlpTurn:
    turn: PastTurn
    calls: list[_Call] = field(default_factory=list)


class _Spans:
    """Collects the turns of one file, whose spans come in any order."""

    def __init__(self) -> None:
        self._turns: dict[str, _OtlpTurn] = {}
        self._strategies: dict[tuple[str, int], Strategy] = {}

    def add(self, request: Mapping[str, Any], offset: int) -> None:
        """Read the spans, or the events, of one request."""
        for resource in objects(request.get("resourceSpans")):
            attributes = _attributes(mapping(resource.get("resource")).get("attributes"))
            for scope in objects(resource.get("scopeSpans")):
                name = text(mapping(scope.get("scope")).get("name"))
                for span in objects(scope.get("spans")):
                    self._add_span(span, name, attributes, offset)

        for resource in objects(request.get("resourceLogs")):
            for scope in objects(resource.get("scopeLogs")):
                for record in objects(scope.get("logRecords")):
                    self._add_event(record)

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns that have a call, once all requests were read."""
        for turn_id, turn in self._turns.items():
            calls = turn.calls
            calls.sort(key=lambda entry: (entry.iteration, entry.call.started_ns or 0))
            for number, entry in enumerate(calls):
                if entry.continuation and number:
                    before = [earlier.call.key for earlier in calls[:number]]
                    linked_keys = (key for key in before if key in entry.links)
                    entry.call.continues = next(linked_keys, before[-1])
                    # the strategy is in an event, which may be in another file
                    entry.call.strategy = self._strategies.get(
                        (turn_id, entry.continuation), Strategy.PROMPT
                    )
            turn.turn.calls = [entry.call for entry in calls]
            if calls:
                yield turn.turn

    def _add_event(self, record: Mapping[str, Any]) -> None:
        attributes = _attributes(record.get("attributes"))
        index = count(attributes.get(schema.CONTINUATION_INDEX.key))
        strategy = _STRATEGIES.get(text(attributes.get(schema.STRATEGY.key)))
        if index and strategy is not None:
            self._strategies[text(attributes.get(schema.TURN_ID.key)), index] = strategy

    def _add_span(
        self, span: Mapping[str, Any], scope: str, resource: Mapping[str, Any], offset: int
    ) -> None:
        attributes = _attributes(span.get("attributes"))
        turn_id = text(attributes.get(schema.TURN_ID.key))
        call = (
            _own_call(span, attributes)
            if schema.REASON.key in attributes
            else _call_of(span, attributes, scope)
        )
        if call is not None:
            call.offset, call.version = offset, text(resource.get("service.version"))
            iteration = count(attributes.get(schema.ITERATION.key)) or 0
            turn = self._turn(turn_id or text(span.get("spanId")), span, attributes, resource)
            links = frozenset(map(_key, objects(span.get("links"))))
            continuation = count(attributes.get(schema.CONTINUATION_INDEX.key)) or 0
            turn.calls.append(_Call(call, iteration, continuation, links))
        elif turn_id and schema.OUTCOME.key in attributes:
            turn = self._turn(turn_id, span, attributes, resource)
            turn.turn.started_ns = _time(span, "startTimeUnixNano")
            outcome = text(attributes[schema.OUTCOME.key])
            turn.turn.outcome = _OUTCOMES.get(outcome)

    def _turn(
        self,
        turn_id: str,
        span: Mapping[str, Any],
        attributes: Mapping[str, Any],
        resource: Mapping[str, Any],
    ) -> _OtlpTurn:
        service = text(resource.get("service.name"))
        turn = self._turns.get(turn_id)
        if turn is None:
            session = text(attributes.get(schema.CONVERSATION.key)) or text(span.get("traceId"))
            past = PastTurn(id=turn_id, source=TITLE, session=session, project=service)
            turn = self._turns[turn_id] = _OtlpTurn(past)
        turn.turn.agent = text(attributes.get(schema.AGENT.key)) or turn.turn.agent or service
        return turn


def _own_call(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> PastCall:
    """Return the call of a span that endturn created, or added its attributes to."""
    word = text(attributes[schema.REASON.key])
    reason = _REASONS.get(word, StopReason.UNKNOWN)
    stop = Stop(
        reason,
        text(attributes.get(schema.RAW.key)) or None,
        suspected=attributes.get(schema.SUSPECTED.key) is True,
        incomplete=reason in TRUNCATED,
    )
    has_error = reason is StopReason.ERROR
    return _with_times(span, PastCall(
        key=_key(span),
        request=RequestFacts(
            model=text(attributes.get(schema.REQUEST_MODEL.key)),
            max_tokens=count(attributes.get(schema.REQUEST_MAX_TOKENS.key)),
        ),
        endpoint=EndpointFacts(provider=text(attributes.get(schema.PROVIDER.key))),
        response=ResponseFacts(
            stop=stop,
            id=text(attributes.get(schema.RESPONSE_ID.key)) or None,
            model=text(attributes.get(schema.RESPONSE_MODEL.key)) or None,
            usage=_usage(attributes),
        ),
        evidence=Evidence.RECORDED,
        error=(text(attributes.get(schema.ERROR_TYPE.key)) or "error") if has_error else None,
    ))  # fmt: skip


def _call_of(span: Mapping[str, Any], attributes: Mapping[str, Any], scope: str) -> PastCall | None:
    """Return the call of another instrumentation's span; None for a span of something else."""
    status = mapping(span.get("status"))
    exported = conventions.exported_span(
        text(span.get("name")),
        attributes,
        scope=scope,
        has_failed=status.get("code") in _ERROR_STATUSES,
        description=text(status.get("message")),
        events=[_attributes(event.get("attributes")) for event in objects(span.get("events"))],
    )
    kind = conventions.kind_of(exported)
    if kind not in (OperationKind.CALL, OperationKind.STREAM_END) or (
        kind is OperationKind.CALL and conventions.ended_before_stream(exported)
    ):
        return None
    request, endpoint = conventions.request_of(exported), conventions.endpoint_of(exported)
    response, error = conventions.result_of(
        exported, provider=endpoint.provider, maximum=request.max_tokens
    )
    is_unrecorded = response.stop.detail == conventions.NO_REASON and error is None
    return _with_times(span, PastCall(
        key=_key(span),
        request=request,
        endpoint=endpoint,
        response=response,
        evidence=Evidence.NOT_RECORDED if is_unrecorded else Evidence.RECORDED,
        error=None if error is None else str(error),
    ))  # fmt: skip


def _usage(attributes: Mapping[str, Any]) -> Usage:
    tokens: dict[str, Any] = {
        name: count(attributes.get(attribute.key)) for name, attribute in schema.USAGE.items()
    }
    return Usage(**tokens)


def _with_times(span: Mapping[str, Any], call: PastCall) -> PastCall:
    call.started_ns, call.ended_ns = (
        _time(span, "startTimeUnixNano"),
        _time(span, "endTimeUnixNano"),
    )
    return call


def _key(span: Mapping[str, Any]) -> str:
    return f"{text(span.get('traceId'))} {text(span.get('spanId'))}"


def _time(span: Mapping[str, Any], name: str) -> int | None:
    value = span.get(name)
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    return time_ns(value)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {text(pair.get("key")): _value(pair.get("value")) for pair in objects(pairs)}


def _value(value: Any) -> Any:
    for kind, content in mapping(value).items():
        match kind:
            case "intValue":
                is_text = isinstance(content, str) and content.lstrip("-").isdecimal()
                return int(content) if is_text else content
            case "arrayValue":
                return [_value(item) for item in objects(mapping(content).get("values"))]
            case "kvlistValue":
                return _attributes(mapping(content).get("values"))
            case _:
                return content
    return None


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of the spans in a file."""
    spans = _Spans()
    for offset, request in requests(file):
        spans.add(request, offset)
    yield from spans.turns()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of an answer from its span, if the instrumentation recorded it."""
    for resource in objects(next(iter(records), {}).get("resourceSpans")):
        for scope in objects(resource.get("scopeSpans")):
            for span in objects(scope.get("spans")):
                if _key(span) == key:
                    return _recorded_text(_attributes(span.get("attributes")))
    return ""


def _recorded_text(attributes: Mapping[str, Any]) -> str:
    """Return the text of an answer from its span's attributes, as in the conventions."""
    messages = attributes.get(schema.OUTPUT_MESSAGES.key)
    if isinstance(messages, str):
        try:
            messages = json.loads(messages)
        except (ValueError, RecursionError):
            messages = None
    first = next(iter(objects(messages)), None)
    if first is not None:
        parts = objects(first.get("parts"))
        return "".join(text(part.get("content")) for part in parts if part.get("type") == "text")
    return next((text(attributes[name]) for name in _TEXTS if text(attributes.get(name))), "")


_TEXTS: Final = (
    "gen_ai.completion.0.content",
    "llm.output_messages.0.message.content",
    "llm.output_messages.0.message.contents.0.message_content.text",
)
"""Attributes of OpenLLMetry and OpenInference that hold the text of an answer."""


def requests(file: ScannedFile) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the JSON objects of a file, each with its offset: one per line, or one for the file."""
    yield from file.records()


SOURCE: Final = Source(
    name="otlp",
    title=TITLE,
    shapes=(FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    read=read,
    text=answer_text,
)
