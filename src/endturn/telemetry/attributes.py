"""The attributes of spans and events: pure functions from announced records to dictionaries of schema keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn import events
from endturn.errors import ProviderError
from endturn.stop import Stop, word_shown
from endturn.telemetry import schema as s

Value = str | int | float | bool | tuple[str, ...]
Attributes = dict[str, Value]

MOST_CHOICES: Final = 128
"""Choices that a span tells the reasons of. The formats allow 128 at most; the SDK bounds a span to as many attributes,
but does not bound how many values one holds."""

TOKENS: Final = {
    "input_tokens": s.INPUT_TOKENS,
    "output_tokens": s.OUTPUT_TOKENS,
    "reasoning_tokens": s.REASONING_TOKENS,
    "cache_read_tokens": s.CACHE_READ_TOKENS,
    "cache_write_tokens": s.CACHE_WRITE_TOKENS,
}
"""By the field of a `Usage`."""


def known(*pairs: tuple[s.Attribute, Value | None]) -> Attributes:
    """Those that have a value."""
    return {attribute.key: value for attribute, value in pairs if value is not None}


def declared(signal: s.Span | s.Event, *found: Mapping[str, Value]) -> Attributes:
    """Of what is known, what the schema declares for a span or an event; what comes later goes first."""
    known_so_far = {key: value for each in found for key, value in each.items()}
    return {each.key: known_so_far[each.key] for each in signal.attributes if each.key in known_so_far}


def line(event: s.Event, found: Mapping[str, Value]) -> str:
    """An event's body: a line for people."""
    return event.body % _Shown(found)


class _Shown(dict[str, Value]):
    def __missing__(self, key: str) -> str:
        return "?"


def for_another(found: Attributes) -> Attributes:
    """Of what is known, what a span of another instrumentation is given: ours, and the reasons."""
    return {key: value for key, value in found.items() if key.startswith("endturn.") or key == s.FINISH_REASONS.key}


def of_call(started: events.CallStarted) -> Attributes:
    """What is known of the request, and where the call stands in its turn."""
    address, continuation = started.server_address, started.continuation
    return known(
        (s.OPERATION, started.operation),
        *_whose(started.provider, started.model),
        (s.SERVER_ADDRESS, address),
        (s.SERVER_PORT, None if address is None else port_shown(started.server_port)),
        (s.REQUEST_MAX_TOKENS, started.maximum),
        (s.REQUEST_STREAM, started.stream or None),
        (s.REQUEST_CHOICES, None if started.choices == 1 else started.choices),
        (s.REQUEST_TEMPERATURE, started.temperature),
        (s.REQUEST_TOP_P, started.top_p),
        (s.REQUEST_TOP_K, started.top_k),
        (s.REQUEST_SEED, started.seed),
        (s.REQUEST_REASONING_LEVEL, started.reasoning_level),
        (s.REQUEST_PREVIOUS_RESPONSE, started.previous_id),
        (s.OUTPUT_TYPE, started.output_type),
        (s.CONVERSATION, started.turn.conversation),
        (s.TURN_ID, started.turn.id),
        (s.ITERATION, started.iteration),
        (s.CONTINUATION_INDEX, None if continuation is None else continuation.index),
    )


def of_answer(ended: events.CallEnded, error: str | None, *, counted: bool) -> Attributes:
    """What the response said, and why it stopped.

    Args:
        error: the type of the error that the call failed with.
        counted: the response is counted by metrics of this process.
    """
    stop, by = ended.stop, ended.response_model
    return known(
        (s.RESPONSE_ID, None if ended.response_id is None else events.name_shown(ended.response_id)),
        (s.RESPONSE_MODEL, None if by is None else events.name_shown(by)),
        (s.RESPONSE_FIRST_CHUNK, ended.first_chunk_s),
        *((attribute, getattr(ended.usage, name, None)) for name, attribute in TOKENS.items()),
        (s.FINISH_REASONS, finish_reasons(stop, ended.reasons)),
        (s.REASON, stop.reason.value),
        (s.STOP_TRUNCATED, stop.truncated),
        (s.RAW, None if stop.raw is None else raw_shown(stop)),
        (s.SUSPECTED, stop.suspected or None),
        (s.COUNTED, counted or None),
        (s.ERROR_TYPE, error),
    )


def of_stop(ended: events.CallEnded) -> Attributes:
    """`endturn.stop_reason_observed`."""
    started, stop = ended.started, ended.stop
    return known(
        *_whose(started.provider, started.model),
        (s.REASON, stop.reason.value),
        (s.RAW, None if stop.raw is None else raw_shown(stop)),
        (s.TURN_ID, started.turn.id),
        (s.ITERATION, started.iteration),
    )


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


def raw_shown(stop: Stop) -> str:
    """A provider's value as it is recorded: verbatim, unless it is no word. Then it may be anything, a prompt too."""
    return word_shown(stop.raw or "")


def of_turn(turn: events.Turn, outcome: events.TurnOutcome | None = None) -> Attributes:
    """What has come of a turn so far, or in the end."""
    return known(
        (s.OPERATION, "invoke_agent"),
        *_whose(turn.provider, turn.model),
        (s.TURN_ID, turn.id),
        (s.AGENT, turn.agent),
        (s.CONVERSATION, turn.conversation),
        (s.OUTCOME, None if outcome is None else outcome.value),
        (s.COMPLETE, None if outcome is None else outcome in events.COMPLETE and not turn.unfinished),
        (s.TRUNCATED, turn.truncated),
        (s.CONTINUED, turn.continued),
        (s.ITERATIONS, turn.iterations),
        (s.CONTINUATIONS, turn.continuations),
        (s.ATTEMPTS, turn.continuations),
        (s.TURN_REPAIRS, turn.repairs),
        (s.INPUT_TOKENS, turn.input_tokens),
        (s.OUTPUT_TOKENS, turn.output_tokens),
        (s.TOKENS_SO_FAR, turn.output_tokens),
        (s.CHARS_SO_FAR, turn.output_chars),
        (s.INFERRED, turn.inferred or None),
        (s.ESTIMATED, turn.estimated or None),
    )


def tool_began(started: events.ToolStarted) -> Attributes:
    """A tool call's span."""
    return known(
        (s.OPERATION, "execute_tool"),
        (s.TOOL_NAME, started.name),
        (s.TOOL_CALL_ID, events.name_shown(started.call_id)),
        (s.TURN_ID, started.turn.id),
    )


def attempted(record: events.ContinuationAttempted) -> Attributes:
    """`endturn.continuation_attempt`."""
    return known(
        *_whose(record.provider, record.model),
        (s.TURN_ID, record.turn.id),
        (s.CONTINUATION_INDEX, record.continuation.index),
        (s.STRATEGY, record.continuation.strategy.value),
        (s.TOKENS_SO_FAR, record.output_tokens),
        (s.CHARS_SO_FAR, record.output_chars),
        (s.ATTEMPTS_LEFT, record.attempts_remaining),
        (s.TOKENS_LEFT, record.tokens_remaining),
        (s.CHARS_LEFT, record.chars_remaining),
        (s.ESTIMATED, record.turn.estimated or None),
    )


def repaired(record: events.PayloadRepaired) -> Attributes:
    """`endturn.tool_payload_repair`."""
    return known(
        *_whose(record.provider, record.model),
        (s.TURN_ID, record.turn.id),
        (s.ISSUE, record.issue),
        (s.REPAIR_CALLS, record.calls),
        (s.ATTEMPTED, record.attempted),
        (s.SUCCEEDED, record.succeeded),
    )


def blocked(record: events.DispatchBlocked, *, names: bool) -> Attributes:
    """`endturn.tool_dispatch_blocked`, with the tools' names only where the host opted in."""
    return known(
        *_whose(record.provider, record.model),
        (s.TURN_ID, record.turn.id),
        (s.BLOCK_REASON, record.reason),
        (s.BLOCKED_CALLS, len(record.names)),
        (s.BLOCKED_NAMES, record.names if names else None),
    )


def signalled(record: events.TerminationSignalled) -> Attributes:
    """`endturn.termination_signal`."""
    return known(
        (s.TURN_ID, record.turn.id),
        (s.SIGNAL, record.signal),
        (s.STATUS, record.status),
        (s.ITERATION, record.iteration),
        (s.MAX_ITERATIONS, record.max_iterations),
        (s.REQUIRES_REVIEW, record.requires_review),
    )


def _whose(provider: str, model: str) -> tuple[tuple[s.Attribute, str | None], ...]:
    """Provider and model, as far as they are known: a call may be refused before, or go to an agent of a provider's."""
    return (s.PROVIDER, provider or None), (s.REQUEST_MODEL, model or None)


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
