"""The attributes of each span and event: pure functions from announced records to dictionaries of schema keys."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from endturn.errors import ProviderError
from endturn.records import (
    CallEnded,
    CallStarted,
    ContinuationAttempted,
    DispatchBlocked,
    PayloadRepaired,
    TerminationSignalled,
    ToolStarted,
    Turn,
    TurnEnded,
)
from endturn.stop import Stop, StopReason, word_shown
from endturn.telemetry import schema as s

Attributes = dict[str, str | int | float | bool | tuple[str, ...]]

LONGEST_NAME: Final = 256
MOST_CHOICES: Final = 128
"""Choices that a span tells the reasons of. The formats allow 128 at most; the SDK bounds a span to as many attributes,
but does not bound how many values one holds."""


def chat_named(started: CallStarted) -> str:
    """The name of a call's span: of a call that names no model, what it does."""
    return f"{started.operation} {started.model}" if started.model else started.operation


def chat_asked(started: CallStarted) -> Attributes:
    """What the conventions want to be known when the call begins, so that a sampler may look at it."""
    found: Attributes = {s.OPERATION.key: started.operation, **_whose(started.provider, started.model)}
    if started.server_address is not None:
        found[s.SERVER_ADDRESS.key] = started.server_address
        if started.server_port is not None and started.server_port != 443:
            found[s.SERVER_PORT.key] = started.server_port
    return found


def _whose(provider: str, model: str) -> Attributes:
    """Provider and model, as far as they are known: a call may be refused before, or go to an agent of a provider's."""
    if provider and model:
        return {s.PROVIDER.key: provider, s.REQUEST_MODEL.key: model}
    found: Attributes = {}
    if provider:
        found[s.PROVIDER.key] = provider
    if model:
        found[s.REQUEST_MODEL.key] = model
    return found


def chat_described(started: CallStarted) -> Attributes:
    """What else is known of the request, and where the call stands in its turn."""
    turn = started.turn
    found: Attributes = {s.TURN_ID.key: turn.id, s.ITERATION.key: started.iteration}
    if started.maximum is not None:
        found[s.REQUEST_MAX_TOKENS.key] = started.maximum
    if started.stream:
        found[s.REQUEST_STREAM.key] = True
    if started.choices != 1:
        found[s.REQUEST_CHOICES.key] = started.choices
    if started.temperature is not None:
        found[s.REQUEST_TEMPERATURE.key] = started.temperature
    if started.top_p is not None:
        found[s.REQUEST_TOP_P.key] = started.top_p
    if started.seed is not None:
        found[s.REQUEST_SEED.key] = started.seed
    if turn.conversation is not None:
        found[s.CONVERSATION.key] = turn.conversation
    if started.continuation is not None:
        found[s.CONTINUATION_INDEX.key] = started.continuation.index
    return found


def chat_answered(ended: CallEnded) -> Attributes:
    """What the response said, besides why it stopped."""
    found: Attributes = {}
    if ended.response_id is not None:
        found[s.RESPONSE_ID.key] = name_shown(ended.response_id)
    if ended.response_model is not None:
        found[s.RESPONSE_MODEL.key] = name_shown(ended.response_model)
    if ended.first_chunk_s is not None:
        found[s.RESPONSE_FIRST_CHUNK.key] = ended.first_chunk_s
    usage = ended.usage
    if usage is not None:
        if usage.input_tokens is not None:
            found[s.INPUT_TOKENS.key] = usage.input_tokens
        if usage.output_tokens is not None:
            found[s.OUTPUT_TOKENS.key] = usage.output_tokens
        if usage.reasoning_tokens is not None:
            found[s.REASONING_TOKENS.key] = usage.reasoning_tokens
        if usage.cache_read_tokens is not None:
            found[s.CACHE_READ_TOKENS.key] = usage.cache_read_tokens
        if usage.cache_write_tokens is not None:
            found[s.CACHE_WRITE_TOKENS.key] = usage.cache_write_tokens
    return found


def chat_stopped(ended: CallEnded, *, counted: bool) -> Attributes:
    """Why the call stopped: all that a span of another instrumentation is given besides the turn."""
    stop = ended.stop
    found: Attributes = {
        s.FINISH_REASONS.key: finish_reasons(stop, ended.reasons),
        s.REASON.key: stop.reason.value,
        s.STOP_TRUNCATED.key: stop.truncated,
    }
    if stop.raw is not None:
        found[s.RAW.key] = raw_shown(stop)
    if stop.suspected:
        found[s.SUSPECTED.key] = True
    if counted:
        found[s.COUNTED.key] = True
    return found


def chat_placed(started: CallStarted) -> Attributes:
    """Where the call stands in its turn."""
    found: Attributes = {s.TURN_ID.key: started.turn.id, s.ITERATION.key: started.iteration}
    if started.continuation is not None:
        found[s.CONTINUATION_INDEX.key] = started.continuation.index
    return found


def finish_reasons(stop: Stop, raws: tuple[str | None, ...]) -> tuple[str, ...]:
    """One word for each of the first choices. Choice 0's is normalised, another's where its raw reason is the same."""
    if len(raws) < 2:
        return _one_reason(stop.reason, stop.raw)
    (first,) = _one_reason(stop.reason, stop.raw)
    same = first if stop.promoted_from is None else None
    return (first, *(raw_word(raw, stop.raw, same) for raw in raws[1:MOST_CHOICES]))


@lru_cache(256)
def _one_reason(reason: StopReason, raw: str | None) -> tuple[str, ...]:
    return (s.finish_reason(reason, None if raw is None else word_shown(raw)),)


def raw_word(raw: str | None, known: str | None, word: str | None) -> str:
    """The word for another choice: only the wire could normalise it, so it stays raw unless choice 0 says the same."""
    if raw is None:
        return "error"
    if word is not None and raw == known:
        return word
    return word_shown(raw)


def raw_shown(stop: Stop) -> str:
    """A provider's value as it is recorded: verbatim, unless it is no word. Then it may be anything, a prompt too."""
    return word_shown(stop.raw or "")


def name_shown(name: str) -> str:
    """A name that a provider chose, such as an id: of its usual length, and in characters that can be sent."""
    if len(name) <= LONGEST_NAME and name.isascii():
        return name
    return name[:LONGEST_NAME].encode("utf-8", "replace").decode()


def turn_began(turn: Turn) -> Attributes:
    """What is known when a turn begins."""
    found: Attributes = {s.TURN_ID.key: turn.id}
    if turn.agent is not None:
        found[s.AGENT.key] = turn.agent
    if turn.conversation is not None:
        found[s.CONVERSATION.key] = turn.conversation
    if turn.inferred:
        found[s.INFERRED.key] = True
    return found


def turn_ended(ended: TurnEnded) -> Attributes:
    """A turn's tally."""
    turn = ended.turn
    found: Attributes = {
        s.OUTCOME.key: ended.outcome.value,
        s.COMPLETE.key: ended.complete,
        s.TRUNCATED.key: turn.truncated,
        s.CONTINUED.key: turn.continued,
        s.ITERATIONS.key: turn.iterations,
        s.CONTINUATIONS.key: turn.continuations,
        s.TURN_REPAIRS.key: turn.repairs,
        s.TURN_INPUT_TOKENS.key: turn.input_tokens,
        s.TURN_OUTPUT_TOKENS.key: turn.output_tokens,
    }
    if turn.inferred:
        found[s.INFERRED.key] = True
    return found | _estimated(turn)


def _estimated(turn: Turn) -> Attributes:
    return {s.ESTIMATED.key: True} if turn.estimated else {}


def tool_began(started: ToolStarted) -> Attributes:
    """A tool call's span."""
    return {
        s.OPERATION.key: "execute_tool",
        s.TOOL_NAME.key: started.name,
        s.TOOL_CALL_ID.key: name_shown(started.call_id),
        s.TURN_ID.key: started.turn.id,
    }


def observed(ended: CallEnded) -> Attributes:
    """`endturn.stop_reason_observed`."""
    started, stop = ended.started, ended.stop
    found: Attributes = {
        **_whose(started.provider, started.model),
        s.REASON.key: stop.reason.value,
        s.TURN_ID.key: started.turn.id,
        s.ITERATION.key: started.iteration,
    }
    if stop.raw is not None:
        found[s.RAW.key] = raw_shown(stop)
    return found


def unmapped(ended: CallEnded) -> Attributes:
    """`endturn.stop_reason_unmapped`."""
    return {
        **_whose(ended.started.provider, ended.started.model),
        s.RAW.key: raw_shown(ended.stop),
    }


def attempted(record: ContinuationAttempted) -> Attributes:
    """`endturn.continuation_attempt`."""
    found: Attributes = {
        **_whose(record.provider, record.model),
        s.TURN_ID.key: record.turn.id,
        s.CONTINUATION_INDEX.key: record.continuation.index,
        s.STRATEGY.key: record.continuation.strategy.value,
        s.TOKENS_SO_FAR.key: record.output_tokens,
        s.CHARS_SO_FAR.key: record.output_chars,
    }
    for attribute, left in (
        (s.ATTEMPTS_LEFT, record.attempts_remaining),
        (s.TOKENS_LEFT, record.tokens_remaining),
        (s.CHARS_LEFT, record.chars_remaining),
    ):
        if left is not None:
            found[attribute.key] = left
    return found | _estimated(record.turn)


def terminated(ended: TurnEnded) -> Attributes:
    """`endturn.continuation_terminated`."""
    turn = ended.turn
    return {
        **_whose(turn.provider, turn.model),
        s.TURN_ID.key: turn.id,
        s.OUTCOME.key: ended.outcome.value,
        s.ATTEMPTS.key: turn.continuations,
        s.TURN_REPAIRS.key: turn.repairs,
        s.TOKENS_SO_FAR.key: turn.output_tokens,
        s.CHARS_SO_FAR.key: turn.output_chars,
        **_estimated(turn),
    }


def repaired(record: PayloadRepaired) -> Attributes:
    """`endturn.tool_payload_repair`."""
    return {
        **_whose(record.provider, record.model),
        s.TURN_ID.key: record.turn.id,
        s.ISSUE.key: record.issue,
        s.REPAIR_CALLS.key: record.calls,
        s.ATTEMPTED.key: record.attempted,
        s.SUCCEEDED.key: record.succeeded,
    }


def blocked(record: DispatchBlocked, *, names: bool) -> Attributes:
    """`endturn.tool_dispatch_blocked`, with the tools' names only where the host opted in."""
    found: Attributes = {
        **_whose(record.provider, record.model),
        s.TURN_ID.key: record.turn.id,
        s.BLOCK_REASON.key: record.reason,
        s.BLOCKED_CALLS.key: len(record.names),
    }
    if names:
        found[s.BLOCKED_NAMES.key] = record.names
    return found


def signalled(record: TerminationSignalled) -> Attributes:
    """`endturn.termination_signal`."""
    return {
        s.TURN_ID.key: record.turn.id,
        s.SIGNAL.key: record.signal,
        s.STATUS.key: record.status,
        s.ITERATION.key: record.iteration,
        s.MAX_ITERATIONS.key: record.max_iterations,
        s.REQUIRES_REVIEW.key: record.requires_review,
    }


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
