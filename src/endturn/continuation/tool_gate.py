"""The tool gate: decides whether the tool calls of a response may run, and what happens if not.

All calls of a response run, or none, and only if the provider reports the response as complete. If
it is truncated, or suspected to be (`Stop.suspected`), its calls are requested again, even if they
parse: a truncated call can look like a valid one (`{}`). A complete but invalid call is answered
with its error, so that the model can correct it. JSON is never completed by closing braces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from endturn.continuation.history import unique_calls
from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import TERMINATORS, load_json
from endturn.formats import strict
from endturn.vocabulary import NO_GENERATION, ChatResponse, Json, Resume, StopReason, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class RunCalls:
    """The calls may run. Each has its `arguments`."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class ReportErrors:
    """The calls are complete but invalid: none runs, and each is answered with its error.

    Attributes:
        errors: the error of each call, in order; duplicates of an id appear once.
        reason: the reason for the first invalid call, as in `schema.BLOCK_REASON`.
    """

    errors: tuple[tuple[ToolCall, str], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The response is truncated, or suspected to be: all of its calls are requested again.

    Attributes:
        issue: the defect of the calls, for the metric of repairs: one of `schema.ISSUE`.
        reason: the reason for blocking the calls, for the log event: one of `schema.BLOCK_REASON`.
    """

    issue: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The stop reason is not that of a tool call, although the response has calls.

    They are neither run nor requested again.
    """

    reason: str = "not_a_tool_call"


Verdict = RunCalls | ReportErrors | Repair | Refused


@dataclass(frozen=True, slots=True)
class Fault:
    """The defect of one tool call that does not run.

    Attributes:
        issue: one of `schema.ISSUE` or `schema.BLOCK_REASON`.
        message: the error message for the model.
    """

    issue: str
    message: str


def judge(
    response: ChatResponse,
    tools: Mapping[str, Tool],
    *,
    runnable: Container[str] | None = None,
    dispatch: Dispatch = "verified_terminal",
    suspect_full_budget: bool = True,
    promote: bool = True,
) -> Verdict | None:
    """Return the verdict on a response's tool calls.

    Args:
        tools: the tools that the request declares, by name. A call of another tool does not run.
        runnable: the names of the tools that have a function. None if the host runs tools itself:
            then, if the request declares no tools, any name is accepted.
        dispatch, suspect_full_budget, promote: as in ContinuationPolicy.

    Returns:
        The verdict; None if the response has no calls, and its stop reason is not TOOL_CALL.
    """
    stop, calls = response.stop, response.tool_calls
    if stop.reason is StopReason.ERROR and stop.resume is Resume.REPAIR:
        return Repair("provider_rejected", "not_a_tool_call")
    if not calls:
        return (
            Repair("no_calls", "unverified_terminal")
            if stop.reason is StopReason.TOOL_CALL
            else None
        )
    if not promote and (stop.promoted_from is not None or stop.reason is StopReason.END_TURN):
        return Refused()
    is_finished = stop.reason is not StopReason.MAX_TOKENS
    results = [
        parse(
            call,
            tools,
            runnable=runnable,
            checks_schema=dispatch != "tool_call_only",
            is_finished=is_finished and call.closed,
        )
        for call in calls
    ]
    has_open_calls = not all(call.closed for call in calls)
    parsed_calls = tuple(call for call in results if isinstance(call, ToolCall))
    faults = [fault for fault in results if isinstance(fault, Fault)]
    issue = next(
        (fault.issue for fault in faults if fault.issue != "unknown_tool"), "unverified_terminal"
    )
    if dispatch == "any_parsed" and (arrived_calls := _arrived_calls(response, results)):
        return RunCalls(unique_calls(arrived_calls))
    match stop.reason:
        case StopReason.MAX_TOKENS:
            return Repair(issue, "truncated")
        case StopReason.MISSING:
            return Repair(issue, "unverified_terminal")
        case StopReason.TOOL_CALL | StopReason.END_TURN if not (
            stop.terminal_seen and all(map(_is_complete, calls, results))
        ):
            return Repair("incomplete_json", "unverified_terminal")
        case StopReason.TOOL_CALL:
            pass
        case StopReason.END_TURN if has_open_calls:
            pass  # open calls that are not JSON: the model gets their errors
        case _:
            return Refused()
    if suspect_full_budget and stop.suspected and not has_open_calls:
        return Repair("suspected", "suspected")
    if any(fault.issue == "incomplete_json" for fault in faults):
        return Repair("incomplete_json", "invalid_json")
    if len({call.id for call in calls}) < len(calls):
        duplicate_message = "two calls of this response have the same id; none of them was run"
        return ReportErrors(
            tuple((call, duplicate_message) for call in unique_calls(calls)), "duplicate_id"
        )
    if not faults:
        return RunCalls(parsed_calls)
    message = "not run, because another call of the same response was not valid"
    errors = (
        (call, result.message if isinstance(result, Fault) else message)
        for call, result in zip(calls, results, strict=True)
    )
    return ReportErrors(tuple(errors), faults[0].issue)


def _arrived_calls(
    response: ChatResponse, results: Sequence[ToolCall | Fault]
) -> tuple[ToolCall, ...]:
    """Return the calls that parse, if the response allows running them; see `any_parsed`."""
    stop, calls = response.stop, response.tool_calls
    if stop.reason not in _ANY_PARSED or stop.detail == NO_GENERATION:
        return ()
    may_be_truncated = stop.reason is StopReason.MAX_TOKENS or stop.suspected
    return tuple(
        parsed
        for call, parsed in zip(calls, results, strict=True)
        if isinstance(parsed, ToolCall)
        and _has_arrived(call, is_last=may_be_truncated and call is calls[-1])
    )


def _is_complete(call: ToolCall, result: ToolCall | Fault) -> bool:
    """Return whether a call arrived completely.

    Arguments that are not the beginning of JSON cannot be truncated JSON. So such a call counts as
    complete even if it is open, and the model gets its error. endturn's terminator tools are an
    exception: they accept plain text, and any text may be truncated.
    """
    is_invalid_json = isinstance(result, Fault) and result.issue == "invalid_json"
    return call.closed or (is_invalid_json and call.name not in TERMINATORS)


def _has_arrived(call: ToolCall, *, is_last: bool) -> bool:
    """Return whether a call's arguments arrived.

    Args:
        is_last: the response is truncated and ends with this call: it must have arguments, even if
            it is closed.
    """
    if call.closed and not is_last:
        return True
    return bool(call.arguments) if call.arguments_raw is None else bool(call.arguments_raw.strip())


_ANY_PARSED: Final = frozenset({StopReason.TOOL_CALL, StopReason.END_TURN, StopReason.MAX_TOKENS})


def parse(
    call: ToolCall,
    tools: Mapping[str, Tool],
    *,
    runnable: Container[str] | None = None,
    checks_schema: bool = True,
    is_finished: bool = True,
) -> ToolCall | Fault:
    """Return the call with its arguments, parsed strictly; or its fault.

    Args:
        tools, runnable: as in `judge`.
        checks_schema: validate the arguments by the tool's schema.
        is_finished: the call's text is known to be complete.
    """
    is_offered = call.name in tools or (runnable is None and not tools)
    if not is_offered or (runnable is not None and call.name not in runnable):
        names = [name for name in tools if runnable is None or name in runnable]
        tool_list = f"the tools are: {', '.join(names)}" if names else "no tools were offered"
        return Fault("unknown_tool", f"there is no tool called {call.name!r}; {tool_list}")
    parameters = tools[call.name].parameters if call.name in tools else {}
    try:
        if call.arguments is not None and call.arguments_raw is None:
            arguments = call.arguments
            json.dumps(arguments, allow_nan=False)
        elif (call.arguments_raw or "").strip() or parameters.get("required"):
            arguments = _summary_arguments(
                call, parameters, is_finished=is_finished
            ) or strict_object(call.arguments_raw or "")
        else:
            arguments = {}  # some models send no arguments for a tool without required ones
        mismatch = _schema_mismatch(arguments, parameters, call.name) if checks_schema else None
    except MalformedJsonError as error:
        return Fault(error.issue, f"the arguments are not a JSON object: {error}")
    except (ValueError, TypeError, RecursionError) as error:
        return Fault("invalid_json", f"the arguments are not JSON: {error}")
    if mismatch is not None:
        return Fault("schema_mismatch", f"the arguments do not fit the tool's schema: {mismatch}")
    return call.but(arguments=arguments)


def _summary_arguments(call: ToolCall, parameters: Json, *, is_finished: bool) -> Json | None:
    """Return the arguments of a terminator tool whose text is only the summary, not an object.

    None for other tools, and for an object.
    """
    if parameters != TERMINATORS.get(call.name):
        return None
    text = (call.arguments_raw or "").strip()
    summary = load_json(text)
    if summary is text and (not is_finished or text[:1] in '{["'):
        # the beginning of an object or a string; any plain text could be incomplete
        return None
    return {"summary": summary} if isinstance(summary, str) else None


def _schema_mismatch(arguments: Json, parameters: Json, tool: str) -> str | None:
    if not parameters:
        return None
    # Imported here because it imports jsonschema, which takes 0.1 s that a host without tools need
    # not spend.
    from endturn.continuation.schema_check import mismatch

    return mismatch(arguments, parameters, tool=tool)


# --- Strict JSON ----------------------------------------------------------------------------------


class MalformedJsonError(ValueError):
    """A text is not a strict JSON object.

    Attributes:
        issue: "incomplete_json" if the text is the beginning of an object, else "invalid_json".
    """

    def __init__(self, issue: str, message: str) -> None:
        super().__init__(message)
        self.issue = issue


def strict_object(text: str) -> Json:
    """Parse a text as a strict JSON object.

    Raises:
        MalformedJsonError: it is not an object, has a key twice, or has a number that JSON does not
            allow.
    """
    try:
        value = strict(text)
    except json.JSONDecodeError as error:
        issue = "incomplete_json" if _is_beginning(text, error) else "invalid_json"
        raise MalformedJsonError(issue, str(error)) from None
    except ValueError as error:
        raise MalformedJsonError("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise MalformedJsonError("invalid_json", f"it is of type {type(value).__name__}")
    return value


_LITERAL_PREFIX: Final = re.compile(r"tr?u?|fa?l?s?|nu?l?|-|\.|\.?\d*[eE][+-]?|u[0-9a-fA-F]{0,4}")
"""A pattern of incomplete literals, fractions, exponents and escapes."""


def _is_beginning(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether parsing failed at the end of the text, which may thus be truncated."""
    rest = text[error.pos :].rstrip()
    return (
        not rest
        or error.msg.startswith("Unterminated string")
        or _LITERAL_PREFIX.fullmatch(rest) is not None
    )
