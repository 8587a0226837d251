"""The attributes of spans and events.

Pure functions from emitted records to dictionaries of schema keys.
"""

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
from endturn.vocabulary import Stop, StopReason, cleaned, word_shown

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]

TurnEvent = (
    records.ContinuationAttempted
    | records.PayloadRepaired
    | records.DispatchBlocked
    | records.TerminationSignalled
)
"""What happens in a turn between its calls."""

MOST_CHOICES: Final = 128
"""Choices that a span tells the reasons of. The formats allow 128 at most; the SDK bounds a span to
as many attributes, but does not bound how many values one holds."""

_Row = tuple[str, tuple[object, ...], Callable[[Any], Any] | None]
_Table = tuple[tuple[_Row, ...], Callable[[object], tuple[Any, ...]]]


def _table(declared: Mapping[str, Fact]) -> _Table:
    """Return how facts are recorded on a call's signals, and what gives their values.

    A row is the attribute's key, the values that are not recorded, and what makes the others fit to
    be.
    """
    recorded = {
        name: fact for name, fact in declared.items() if On.CALL in fact.on and not fact.opt_in
    }
    return tuple((fact.key, fact.omit, fact.convert) for fact in recorded.values()), attrgetter(
        *recorded
    )


def _within(member: str, declared: Mapping[str, Fact]) -> dict[str, Fact]:
    """The facts of a member, by their paths from what holds it."""
    return {f"{member}.{name}": fact for name, fact in declared.items()}


_STARTED: Final = _table(
    _within("endpoint", facts_in(EndpointFacts)) | _within("request", facts_in(RequestFacts))
)
_RESPONSE: Final = _table(
    facts_in(ResponseFacts) | _within("stop", members_of(ResponseFacts, "stop"))
)
_USAGE: Final = _table(members_of(ResponseFacts, "usage"))


def _add(attributes: Attributes, table: _Table, facts: object) -> None:
    """Add what is recorded of these facts."""
    rows, values_of = table
    for (key, omit, shown), value in zip(rows, values_of(facts), strict=True):
        if value is None or value in omit:
            continue
        if shown is not None:
            value = shown(value)
        is_clean = value.isascii() if value.__class__ is str else value.__class__ is not tuple
        attributes[key] = value if is_clean else cleaned(value)


_SIGNALS: Final[tuple[s.Event | s.Span, ...]] = (*s.EVENTS, *s.SPANS)
_DECLARED: Final = {
    signal.name: tuple(attribute.key for attribute in signal.attributes) for signal in _SIGNALS
}
"""The keys that the schema declares for a span or an event, by its name."""


def declared(signal: s.Span | s.Event, attributes: Mapping[str, Value]) -> Attributes:
    """Of what is known, what the schema declares for a span or an event."""
    return {key: attributes[key] for key in _DECLARED[signal.name] if key in attributes}


def for_another(attributes: Attributes) -> Attributes:
    """Of what is known, what a span of another instrumentation is given: ours, and the reasons."""
    return {
        key: value
        for key, value in attributes.items()
        if key.startswith("endturn.") or key == s.FINISH_REASONS.key
    }


def with_count(last: Attributes, first: Mapping[str, Value] | None = None) -> Attributes:
    """Return the last attributes of a span of ours without content, with how many it has in all.

    A Collector need not search such a span for content. Where the host has added attributes to the
    span, or a limit has dropped some, the number is another, and the span is searched.

    Args:
        last: What is written at its end.
        first: What was written at its beginning.
    """
    return {**last, s.ATTRIBUTE_COUNT.key: len(last.keys() | (first or {}).keys()) + 1}


def of_call(started: records.CallStarted) -> Attributes:
    """What is known of the request, and where the call stands in its turn."""
    endpoint, turn = started.endpoint, started.turn
    attributes: Attributes = {}
    _add(attributes, _STARTED, started)
    if endpoint.server_address is None:
        attributes.pop(s.SERVER_PORT.key, None)
    if turn.conversation is not None:
        attributes[s.CONVERSATION.key] = cleaned(turn.conversation)
    attributes[s.TURN_ID.key] = turn.id
    attributes[s.ITERATION.key] = started.iteration
    if started.continuation is not None:
        attributes[s.CONTINUATION_INDEX.key] = started.continuation.index
    return attributes


def of_answer(ended: records.CallEnded, *, counted: bool) -> Attributes:
    """What the response said, and why it stopped.

    Whether it is counted by metrics of this process.
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
        attributes[s.ERROR_TYPE.key] = cleaned(error)
    return attributes


def finish_reasons(stop: Stop, raws: tuple[str | None, ...]) -> tuple[str, ...]:
    """One word for each of the first choices.

    Choice 0's is normalised, another's where its raw reason is the same.

    Only the format could normalise another's, so it stays raw.
    """
    first = s.finish_reason(stop.reason, None if stop.raw is None else word_shown(stop.raw))
    words = [first]
    for raw in raws[1:MOST_CHOICES]:
        same = raw == stop.raw and stop.promoted_from is None
        words.append("error" if raw is None else first if same else word_shown(raw))
    return tuple(words)


def of_turn(turn: _turn.Turn, outcome: outcomes.TurnOutcome | None = None) -> Attributes:
    """What has come of a turn so far, or in the end."""
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
    """A tool call's span."""
    return {
        s.OPERATION.key: "execute_tool",
        s.TOOL_NAME.key: started.name,
        s.TOOL_CALL_ID.key: bounds.shorten_name(started.call_id),
        s.TURN_ID.key: started.turn.id,
    }


def of_event(event: s.Event, record: TurnEvent) -> Attributes:
    """What is known of an event of a turn.

    Most attributes end in the name of the record's field.
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
    """The type of the error that a call failed with.

    Whoever stops a call on purpose sees its exception too.
    """
    if ended.error is None or ended.response.stop.reason is StopReason.CANCELLED:
        return None
    return error_type(ended.error)


class SpanError(EndturnError):
    """An error that only another instrumentation's span reports.

    Attributes:
        class_name: the class of the exception, as the span names it.
    """

    def __init__(self, class_name: str) -> None:
        super().__init__(class_name)
        self.class_name = class_name


def error_type(error: BaseException | None) -> str | None:
    """The class of an error, of ours the HTTP status that it was made from.

    The class is one for many of these.

    Its message may hold what was said, so it is recorded nowhere.
    """
    if isinstance(error, SpanError):
        return error.class_name
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return None if error is None else type(error).__name__


def port_shown(port: int | None) -> int | None:
    """A port, where it is not the usual one."""
    return None if port == 443 else port


def _without_none(pairs: Iterable[tuple[str, Value | None]]) -> Attributes:
    """Those that have a value."""
    attributes: Attributes = {}
    for key, value in pairs:
        if value is None:
            continue
        is_clean = value.isascii() if value.__class__ is str else value.__class__ is not tuple
        attributes[key] = value if is_clean else cleaned(value)
    return attributes
