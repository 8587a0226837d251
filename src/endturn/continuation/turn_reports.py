"""Count and announce facts on a response: its usage, repairs, tool calls that are not run."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

from endturn.calls import (
    DispatchBlocked,
    PayloadRepaired,
    Strategy,
    Turn,
    UsageEstimated,
    plausible,
)
from endturn.continuation import result
from endturn.continuation.limits import BUDGETED_STRATEGIES, measure_usage
from endturn.continuation.machine import Signal
from endturn.continuation.phases import Requesting, Responded
from endturn.continuation.tool_gate import RunCalls, Verdict
from endturn.continuation.turn_state import TurnState
from endturn.vocabulary import ChatResponse, ToolCall, Usage

log = logging.getLogger("endturn")


def count_response(state: TurnState, latest: Responded, signal: Signal, added: str) -> None:
    """Count a response's usage; truncated ones and their continuations also use the budgets."""
    terms, record, call = state.terms, state.record, latest.call
    response = latest.response.but(usage=_reported_usage(terms.turn, latest.response))
    request = call.request
    if request.max_tokens is None:
        request = request.but(max_tokens=terms.output_limit)
    usage, estimate = measure_usage(response, request)
    record.add_usage(usage)
    terms.turn.estimated = terms.turn.estimated or estimate is not None
    _add_unrecorded_usage(state, call, usage)
    if call.strategy in BUDGETED_STRATEGIES or signal in (Signal.MAX_TOKENS, Signal.GATE_REFUSED):
        counters = record.counters
        counters.ceiling = counters.ceiling or terms.output_limit or usage.output_tokens or None
        counters.tokens += usage.output_tokens or 0
        counters.chars += len(added)


def count_unevaluated(state: TurnState, latest: Responded) -> None:
    """Count the usage of a call that is not evaluated. Nothing is estimated."""
    usage = plausible(_reported_usage(state.terms.turn, latest.response))
    if usage is not None:
        state.record.add_usage(usage)
        _add_unrecorded_usage(state, latest.call, usage)


def _add_unrecorded_usage(state: TurnState, call: Requesting, usage: Usage) -> None:
    """Add the tokens that the call's record lacks to the turn's tally.

    Then the result, the turn's span and the metrics agree.
    """
    turn = state.terms.turn
    recorded = plausible(turn.last_usage) or Usage()
    input_tokens = usage.input_tokens if recorded.input_tokens is None else None
    output_tokens = usage.output_tokens if recorded.output_tokens is None else None
    if input_tokens is None and output_tokens is None:
        return
    turn.input_tokens += input_tokens or 0
    turn.output_tokens += output_tokens or 0
    unrecorded_usage = Usage(input_tokens, output_tokens, estimated=usage.estimated)
    state.terms.emit(UsageEstimated, usage=unrecorded_usage, continues=call.strategy is not None)


def report_calls(
    state: TurnState, latest: Responded, signal: Signal, verdict: Verdict | None
) -> None:
    """Announce the result of a repair, and the calls that are not run."""
    response, call, record = latest.response, latest.call, state.record
    is_repair = call.strategy is Strategy.REPAIR
    if is_repair:
        missing = Counter(call.repair_calls) - Counter(
            tool_call.name for tool_call in response.tool_calls
        )
        if isinstance(verdict, RunCalls) and missing:
            record.repair_notice = result.NOT_ALL_CALLS
            names = (
                ", ".join(name for name in missing if name in state.terms.tools) or "unknown tools"
            )
            log.warning(
                "[repair] %d truncated tool calls were requested again and not made: %s",
                missing.total(),
                names,
            )
        succeeded = isinstance(verdict, RunCalls) and not missing
        report_repair(state, call.issue, call.repair_calls, attempted=True, succeeded=succeeded)
    if isinstance(verdict, RunCalls) and record.repair_notice == result.ANSWERED_IN_WORDS:
        record.repair_notice = None
    blocked: Sequence[ToolCall] = response.tool_calls
    # the complete calls of a truncated response run; see `any_parsed`
    if isinstance(verdict, RunCalls):
        run_ids = {tool_call.id for tool_call in verdict.calls}
        blocked, reason = (
            [tool_call for tool_call in response.tool_calls if tool_call.id not in run_ids],
            "truncated",
        )
    elif is_repair and signal in (Signal.GATE_REFUSED, Signal.REPAIR_REFUSED):
        reason = "repair_failed"
    else:
        reason = "not_a_tool_call" if verdict is None else verdict.reason
    if blocked:
        state.terms.emit(
            DispatchBlocked, reason=reason, names=tuple(tool_call.name for tool_call in blocked)
        )


def report_repair(
    state: TurnState, issue: str | None, calls: Sequence[str], *, attempted: bool, succeeded: bool
) -> None:
    """Announce the result of a repair, or that none was attempted."""
    if issue is not None:
        state.terms.emit(
            PayloadRepaired, issue=issue, calls=len(calls), attempted=attempted, succeeded=succeeded
        )


def _reported_usage(turn: Turn, response: ChatResponse) -> Usage | None:
    """Return the latest call's usage: from its record, else from the response."""
    usage, recorded = response.usage, turn.last_usage
    if usage is None or recorded is None:
        return usage or recorded
    values = {field.name: getattr(recorded, field.name) for field in fields(recorded)}
    return replace(usage, **{name: value for name, value in values.items() if value is not None})
