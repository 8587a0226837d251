"""The attributes of spans and events, as pure functions of the emitted records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from endturn.calls import (
    EndpointFacts,
    Fact,
    On,
    RequestFacts,
    ResponseFacts,
    bounds,
    facts_in,
    members_of,
    outcomes,
    records,
    turn as _turn,
)
from endturn.errors import EndturnError, ProviderError
from endturn.telemetry import schema as s
from endturn.vocabulary import Stop, StopReason, fix_json_surrogates, sanitize_reason

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]

TurnEvent = (
    records.ContinuationAttempted
    | records.PayloadRepaired
    | records.DispatchBlocked
    | records.TerminationSignalled
)
"""The records of a turn between its calls."""

MOST_CHOICES: Final = 128
"""Maximum number of choices whose reasons a span has. The formats allow 128; the SDK limits the
attributes of a span to 128, but not the values of an attribute."""

_Row = tuple[str, tuple[object, ...], Callable[[Any], Any] | None]
_Table = tuple[tuple[_Row, ...], Callable[[object], tuple[Any, ...]]]


def _table(declared: Mapping[str, Fact]) -> _Table:
    """Return the rows of the facts that a call's signals have, and a getter of their values.

    A row is the attribute's key, the values to omit, and the conversion of the others.
    """
    facts = {
        name: fact for name, fact in declared.items() if On.CALL in fact.on and not fact.opt_in
    }
    rows = tuple((fact.key, fact.omit, fact.convert) for fact in facts.values())
    return rows, attrgetter(*facts)


def _within(member: str, declared: Mapping[str, Fact]) -> dict[str, Fact]:
    """Return the facts of a member, by their paths from its owner."""
    return {f"{member}.{name}": fact for name, fact in declared.items()}


_STARTED: Final = _table(
    _within("endpoint", facts_in(EndpointFacts)) | _within("request", facts_in(RequestFacts))
)
_RESPONSE: Final = _table(
    facts_in(ResponseFacts) | _within("stop", members_of(ResponseFacts, "stop"))
)
_USAGE: Final = _table(members_of(ResponseFacts, "usage"))


def _add(attributes: Attributes, table: _Table, facts: object) -> None:
    """Add the attributes of these facts."""
    rows, values_of = table
    for (key, omit, convert), value in zip(rows, values_of(facts), strict=True):
        if value is None or value in omit:
            continue
        if convert is not None:
            value = convert(value)
        is_clean = value.isascii() if value.__class__ is str else value.__class__ is not tuple
        attributes[key] = value if is_clean else fix_json_surrogates(value)


_SIGNALS: Final[tuple[s.LogEvent | s.Span, ...]] = (*s.EVENTS, *s.SPANS)
_DECLARED: Final = {
    signal.name: tuple(attribute.key for attribute in signal.attributes) for signal in _SIGNALS
}
"""The keys that the schema declares for a span or an event, by its name."""


def declared(signal: s.Span | s.LogEvent, attributes: Mapping[str, Value]) -> Attributes:
    """Return the attributes that the schema declares for a span or an event."""
    return {key: attributes[key] for key in _DECLARED[signal.name] if key in attributes}


def for_foreign_span(attributes: Attributes) -> Attributes:
    """Return the attributes for another instrumentation's span: endturn's, and finish reasons."""
    return {
        key: value
        for key, value in attributes.items()
        if key.startswith("endturn.") or key == s.FINISH_REASONS.key
    }


def with_attribute_count(last: Attributes, first: Mapping[str, Value] | None = None) -> Attributes:
    """Add the total number of attributes to those of a span without content.

    A Collector need not search such a span for content. If the host has added attributes to the
    span, or a limit has dropped some, the number differs, and the span is searched.

    Args:
        last: the attributes that are set at the span's end.
        first: the attributes that were set at its start.
    """
    return {**last, s.ATTRIBUTE_COUNT.key: len(last.keys() | (first or {}).keys()) + 1}


def of_call(started: records.CallStarted) -> Attributes:
    """Return the attributes of a call's start: of its request, and its position in the turn."""
    endpoint, turn = started.endpoint, started.turn
    attributes: Attributes = {}
    _add(attributes, _STARTED, started)
    if endpoint.server_address is None:
        attributes.pop(s.SERVER_PORT.key, None)
    if turn.conversation is not None:
        attributes[s.CONVERSATION.key] = fix_json_surrogates(turn.conversation)
    attributes[s.TURN_ID.key] = turn.id
    attributes[s.ITERATION.key] = started.iteration
    if started.continuation is not None:
        attributes[s.CONTINUATION_INDEX.key] = started.continuation.index
    return attributes


def of_response(ended: records.CallEnded, *, counted: bool) -> Attributes:
    """Return the attributes of a call's end: of its response and its stop.

    Args:
        ended: the record of the call's end.
        counted: metrics of this process count the response.
    """
    response = ended.response
    attributes: Attributes = {s.FINISH_REASONS.key: finish_reasons(response.stop, response.reasons)}
    _add(attributes, _RESPONSE, response)
    if response.usage is not None:
        _add(attributes, _USAGE, response.usage)
    if ended.first_chunk_s is not None:
        attributes[s.RESPONSE_FIRST_CHUNK.key] = ended.first_chunk_s
    if counted:
        attributes[s.COUNTED.key] = True
    error = error_of(ended)
    if error is not None:
        attributes[s.ERROR_TYPE.key] = fix_json_surrogates(error)
    return attributes


def finish_reasons(stop: Stop, raws: tuple[str | None, ...]) -> tuple[str, ...]:
    """Return the finish reasons of the first choices.

    That of choice 0 is normalised, and those with the same raw reason. Others stay raw: only the
    format could normalise them.
    """
    first = s.finish_reason(stop.reason, None if stop.raw is None else sanitize_reason(stop.raw))
    words = [first]
    for raw in raws[1:MOST_CHOICES]:
        same = raw == stop.raw and stop.promoted_from is None
        words.append("error" if raw is None else first if same else sanitize_reason(raw))
    return tuple(words)


def of_turn(turn: _turn.Turn, outcome: outcomes.TurnOutcome | None = None) -> Attributes:
    """Return the attributes of a turn so far, or of its end."""
    return _without_none(
        {
            s.OPERATION.key: "invoke_agent",
            s.PROVIDER.key: turn.provider or None,
            s.REQUEST_MODEL.key: turn.model or None,
            s.TURN_ID.key: turn.id,
            s.AGENT.key: turn.agent,
            s.CONVERSATION.key: turn.conversation,
            s.OUTCOME.key: None if outcome is None else outcome.value,
            s.COMPLETE.key: None
            if outcome is None
            else outcome in outcomes.COMPLETE and not turn.unfinished,
            s.TRUNCATED.key: turn.truncated,
            s.CONTINUED.key: turn.continued,
            s.ITERATIONS.key: turn.iterations,
            s.CONTINUATIONS.key: turn.continuations,
            s.ATTEMPTS.key: turn.continuations,
            s.TURN_REPAIRS.key: turn.repairs,
            s.INPUT_TOKENS.key: turn.input_tokens,
            s.OUTPUT_TOKENS.key: turn.output_tokens,
            s.TOKENS_SO_FAR.key: turn.output_tokens,
            s.CHARS_SO_FAR.key: turn.output_chars,
            s.INFERRED.key: turn.inferred or None,
            s.ESTIMATED.key: turn.estimated or None,
        }.items()
    )


def of_tool(started: records.ToolStarted) -> Attributes:
    """Return the attributes of a tool call's span."""
    return {
        s.OPERATION.key: "execute_tool",
        s.TOOL_NAME.key: started.name,
        s.TOOL_CALL_ID.key: bounds.shorten_name(started.call_id),
        s.TURN_ID.key: started.turn.id,
    }


def of_event(event: s.LogEvent, record: TurnEvent) -> Attributes:
    """Return the attributes of an event of a turn.

    The keys of most attributes end in the name of the record's field.
    """
    attributes = {
        attribute.key: getattr(record, attribute.key.rpartition(".")[2], None)
        for attribute in event.attributes
    }
    attributes[s.TURN_ID.key] = record.turn.id
    attributes[s.ESTIMATED.key] = record.turn.estimated or None
    if not isinstance(record, records.TerminationSignalled):
        attributes |= {
            s.PROVIDER.key: record.provider or None,
            s.REQUEST_MODEL.key: record.model or None,
        }
    if isinstance(record, records.ContinuationAttempted):
        attributes[s.CONTINUATION_INDEX.key] = record.continuation.index
        attributes[s.STRATEGY.key] = record.continuation.strategy.value
    if isinstance(record, records.DispatchBlocked):
        attributes[s.BLOCKED_CALLS.key] = len(record.names)
    return _without_none(attributes.items())


def error_of(ended: records.CallEnded) -> str | None:
    """Return the type of a call's error; None for an exception of a cancelled call."""
    if ended.error is None or ended.response.stop.reason is StopReason.CANCELLED:
        return None
    return error_type(ended.error)


class SpanError(EndturnError):
    """An error that only another instrumentation's span reports.

    Attributes:
        class_name: the class of the exception, as on the span.
    """

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        self.class_name = class_name


def error_type(error: BaseException | None) -> str | None:
    """Return the class name of an error; of a provider's error its HTTP status, if it has one.

    endturn has one class for many statuses. The message may hold content, so it is never recorded.
    """
    if isinstance(error, SpanError):
        return error.class_name
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return None if error is None else type(error).__name__


def non_default_port(port: int | None) -> int | None:
    """Return a port for an attribute; None for 443."""
    return None if port == 443 else port


def _without_none(pairs: Iterable[tuple[str, Value | None]]) -> Attributes:
    """Return the attributes that have a value."""
    attributes: Attributes = {}
    for key, value in pairs:
        if value is None:
            continue
        is_clean = value.isascii() if value.__class__ is str else value.__class__ is not tuple
        attributes[key] = value if is_clean else fix_json_surrogates(value)
    return attributes
