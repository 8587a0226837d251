"""The attributes of spans and events: pure functions from emitted records to dictionaries of schema keys."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from endturn import events
from endturn.errors import ProviderError
from endturn.stop import Stop, StopReason, word_shown
from endturn.telemetry import schema as s

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]

TurnEvent = events.ContinuationAttempted | events.PayloadRepaired | events.DispatchBlocked | events.TerminationSignalled
"""What happens in a turn between its calls."""

MOST_CHOICES: Final = 128
"""Choices that a span tells the reasons of. The formats allow 128 at most; the SDK bounds a span to as many attributes,
but does not bound how many values one holds."""

_TOKEN_KEYS: Final = tuple(attribute.key for attribute in s.USAGE.values())
_tokens_of = attrgetter(*s.USAGE)


def declared(signal: s.Span | s.Event, found: Mapping[str, Value]) -> Attributes:
    """Of what is known, what the schema declares for a span or an event."""
    return {each.key: found[each.key] for each in signal.attributes if each.key in found}


def for_another(found: Attributes) -> Attributes:
    """Of what is known, what a span of another instrumentation is given: ours, and the reasons."""
    return {key: value for key, value in found.items() if key.startswith("endturn.") or key == s.FINISH_REASONS.key}


def of_call(started: events.CallStarted) -> Attributes:
    """What is known of the request, and where the call stands in its turn."""
    address, continuation = started.server_address, started.continuation
    return _known(
        {
            s.OPERATION.key: started.operation,
            s.PROVIDER.key: started.provider or None,
            s.REQUEST_MODEL.key: started.model or None,
            s.SERVER_ADDRESS.key: address,
            s.SERVER_PORT.key: None if address is None else port_shown(started.server_port),
            s.REQUEST_MAX_TOKENS.key: started.maximum,
            s.REQUEST_STREAM.key: started.stream or None,
            s.REQUEST_CHOICES.key: None if started.choices == 1 else started.choices,
            s.REQUEST_TEMPERATURE.key: started.temperature,
            s.REQUEST_TOP_P.key: started.top_p,
            s.REQUEST_TOP_K.key: started.top_k,
            s.REQUEST_SEED.key: started.seed,
            s.REQUEST_REASONING_LEVEL.key: started.reasoning_level,
            s.REQUEST_PREVIOUS_RESPONSE.key: started.previous_id,
            s.OUTPUT_TYPE.key: started.output_type,
            s.CONVERSATION.key: started.turn.conversation,
            s.TURN_ID.key: started.turn.id,
            s.ITERATION.key: started.iteration,
            s.CONTINUATION_INDEX.key: None if continuation is None else continuation.index,
        }
    )


def of_answer(ended: events.CallEnded, *, counted: bool) -> Attributes:
    """What the response said, and why it stopped; whether it is counted by metrics of this process."""
    stop, id_, by = ended.stop, ended.response_id, ended.response_model
    found = {
        s.RESPONSE_ID.key: None if id_ is None else events.name_shown(id_),
        s.RESPONSE_MODEL.key: None if by is None else events.name_shown(by),
        s.RESPONSE_FIRST_CHUNK.key: ended.first_chunk_s,
        s.FINISH_REASONS.key: finish_reasons(stop, ended.reasons),
        s.REASON.key: stop.reason.value,
        s.STOP_TRUNCATED.key: stop.truncated,
        s.RAW.key: None if stop.raw is None else word_shown(stop.raw),
        s.SUSPECTED.key: stop.suspected or None,
        s.COUNTED.key: counted or None,
        s.ERROR_TYPE.key: error_of(ended),
    }
    if ended.usage is not None:
        found.update(zip(_TOKEN_KEYS, _tokens_of(ended.usage), strict=True))
    return _known(found)


def finish_reasons(stop: Stop, raws: tuple[str | None, ...]) -> tuple[str, ...]:
    """One word for each of the first choices. Choice 0's is normalised, another's where its raw reason is the same.

    Only the format could normalise another's, so it stays raw.
    """
    first = s.finish_reason(stop.reason, None if stop.raw is None else word_shown(stop.raw))
    words = [first]
    for raw in raws[1:MOST_CHOICES]:
        same = raw == stop.raw and stop.promoted_from is None
        words.append("error" if raw is None else first if same else word_shown(raw))
    return tuple(words)


def of_turn(turn: events.Turn, outcome: events.TurnOutcome | None = None) -> Attributes:
    """What has come of a turn so far, or in the end."""
    return _known(
        {
            s.OPERATION.key: "invoke_agent",
            s.PROVIDER.key: turn.provider or None,
            s.REQUEST_MODEL.key: turn.model or None,
            s.TURN_ID.key: turn.id,
            s.AGENT.key: turn.agent,
            s.CONVERSATION.key: turn.conversation,
            s.OUTCOME.key: None if outcome is None else outcome.value,
            s.COMPLETE.key: None if outcome is None else outcome in events.COMPLETE and not turn.unfinished,
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
        }
    )


def of_tool(started: events.ToolStarted) -> Attributes:
    """A tool call's span."""
    return {
        s.OPERATION.key: "execute_tool",
        s.TOOL_NAME.key: started.name,
        s.TOOL_CALL_ID.key: events.name_shown(started.call_id),
        s.TURN_ID.key: started.turn.id,
    }


def of_event(event: s.Event, record: TurnEvent) -> Attributes:
    """What is known of an event of a turn: most attributes end in the name of the record's field."""
    found = {each.key: getattr(record, each.key.rpartition(".")[2], None) for each in event.attributes}
    found[s.TURN_ID.key] = record.turn.id
    found[s.ESTIMATED.key] = record.turn.estimated or None
    if not isinstance(record, events.TerminationSignalled):
        found |= {s.PROVIDER.key: record.provider or None, s.REQUEST_MODEL.key: record.model or None}
    if isinstance(record, events.ContinuationAttempted):
        found[s.CONTINUATION_INDEX.key] = record.continuation.index
        found[s.STRATEGY.key] = record.continuation.strategy.value
    if isinstance(record, events.DispatchBlocked):
        found[s.BLOCKED_CALLS.key] = len(record.names)
    return _known(found)


def error_of(ended: events.CallEnded) -> str | None:
    """The type of the error that a call failed with. Whoever stops a call on purpose sees its exception too."""
    return None if ended.stop.reason is StopReason.CANCELLED else error_type(ended.error)


def error_type(error: BaseException | None) -> str | None:
    """The class of an error, of ours the HTTP status that it was made from: the class is one for many of these.

    Its message may hold what was said, so it is recorded nowhere.
    """
    if isinstance(error, ProviderError) and error.status is not None:
        return str(error.status)
    return None if error is None else type(error).__name__


def port_shown(port: int | None) -> int | None:
    """A port, where it is not the usual one."""
    return None if port == 443 else port


def _known(found: Mapping[str, Value | None]) -> Attributes:
    """Those that have a value."""
    return {key: value for key, value in found.items() if value is not None}
