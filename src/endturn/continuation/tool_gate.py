"""The tool gate: decides which calls of a response may run, and how the rest is handled.

A batch runs completely or not at all, and only if the provider reports it as complete. The calls of
a truncated or suspected response are requested again, even if they parse: a truncated call can look
like a valid one (`{}`). A complete but invalid call is answered with its error, so that the model
can correct it. JSON is never completed by closing braces.
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
    """The payload is truncated or suspected: every call of the response is requested again.

    Attributes:
        issue: the problem, as in `schema.ISSUE`.
        reason: the reason for running nothing, as in `schema.BLOCK_REASON`.
    """

    issue: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The response holds calls but is not a tool call.

    They are neither run nor requested again.
    """

    reason: str = "not_a_tool_call"


Verdict = RunCalls | ReportErrors | Repair | Refused


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of one tool call, with a message for the model.

    The issue is one of `schema.ISSUE` or `schema.BLOCK_REASON`.
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
        tools: the tools that the request declares, by name. Only these run, even if others have a
            function.
        runnable: the names that have a function; None if the host runs tools itself (and, if the
            request declares none, knows their names).
        dispatch, suspect_full_budget, promote: as in ContinuationPolicy.

    Returns:
        The verdict; None if there are no calls, and the stop reason announced none.
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
    checked = [
        parse(
            call,
            tools,
            runnable=runnable,
            schema=dispatch != "tool_call_only",
            is_finished=is_finished and call.closed,
        )
        for call in calls
    ]
    is_open = not all(call.closed for call in calls)
    parsed_calls = tuple(call for call in checked if isinstance(call, ToolCall))
    faults = [fault for fault in checked if isinstance(fault, Fault)]
    issue = next(
        (fault.issue for fault in faults if fault.issue != "unknown_tool"), "unverified_terminal"
    )
    if dispatch == "any_parsed" and (arrived := _arrived_calls(response, checked)):
        return RunCalls(unique_calls(arrived))
    match stop.reason:
        case StopReason.MAX_TOKENS:
            return Repair(issue, "truncated")
        case StopReason.MISSING:
            return Repair(issue, "unverified_terminal")
        case StopReason.TOOL_CALL | StopReason.END_TURN if not (
            stop.terminal_seen and all(map(_is_complete, calls, checked))
        ):
            return Repair("incomplete_json", "unverified_terminal")
        case StopReason.TOOL_CALL:
            pass
        case StopReason.END_TURN if is_open:
            pass
        case _:
            return Refused()
    if suspect_full_budget and stop.suspected and not is_open:
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
        (call, checked_call.message if isinstance(checked_call, Fault) else message)
        for call, checked_call in zip(calls, checked, strict=True)
    )
    return ReportErrors(tuple(errors), faults[0].issue)


def _arrived_calls(
    response: ChatResponse, checked: Sequence[ToolCall | Fault]
) -> tuple[ToolCall, ...]:
    """Return the calls that parse, if the response allows running them; see `any_parsed`."""
    stop, calls = response.stop, response.tool_calls
    if stop.reason not in _ANY_PARSED or stop.detail == NO_GENERATION:
        return ()
    is_cut = stop.reason is StopReason.MAX_TOKENS or stop.suspected
    return tuple(
        parsed
        for call, parsed in zip(calls, checked, strict=True)
        if isinstance(parsed, ToolCall) and _has_arrived(call, is_last=is_cut and call is calls[-1])
    )


def _is_complete(call: ToolCall, checked: ToolCall | Fault) -> bool:
    """Return whether a call arrived completely.

    Arguments that are not JSON at all were not truncated: closed or not, the model gets the error.
    Our own tools that take a text are the exception: any text could be incomplete.
    """
    is_no_json = isinstance(checked, Fault) and checked.issue == "invalid_json"
    return call.closed or (is_no_json and call.name not in TERMINATORS)


def _has_arrived(call: ToolCall, *, is_last: bool) -> bool:
    """Return whether a call's arguments arrived.

    `is_last`: it is the last call of a truncated response, so empty arguments are incomplete.
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
    schema: bool = True,
    is_finished: bool = True,
) -> ToolCall | Fault:
    """Return the call with its arguments, parsed strictly; or its fault.

    Args:
        tools, runnable: as in `judge`. schema: the arguments are validated by the tool's schema.
        is_finished: the call's text is known to be complete.
    """
    offered = call.name in tools or (runnable is None and not tools)
    if not offered or (runnable is not None and call.name not in runnable):
        names = [name for name in tools if runnable is None or name in runnable]
        tool_list = f"the tools are: {', '.join(names)}" if names else "no tools were offered"
        return Fault("unknown_tool", f"there is no tool called {call.name!r}; {tool_list}")
    parameters = tools[call.name].parameters if call.name in tools else {}
    try:
        if call.arguments is not None and call.arguments_raw is None:
            arguments = call.arguments
            json.dumps(arguments, allow_nan=False)
        elif (call.arguments_raw or "").strip() or parameters.get("required"):
            arguments = _summary(call, parameters, is_finished=is_finished) or strict_object(
                call.arguments_raw or ""
            )
        else:
            arguments = {}  # some models send no arguments for a tool without required ones
        mismatch = _mismatch(arguments, parameters, call.name) if schema else None
    except Malformed as error:
        return Fault(error.issue, f"the arguments are not a JSON object: {error}")
    except (ValueError, TypeError, RecursionError) as error:
        return Fault("invalid_json", f"the arguments are not JSON: {error}")
    if mismatch is not None:
        return Fault("schema_mismatch", f"the arguments do not fit the tool's schema: {mismatch}")
    return call.but(arguments=arguments)


def _summary(call: ToolCall, parameters: Json, *, is_finished: bool) -> Json | None:
    """Return a terminator tool's arguments if they are only a summary: a JSON string or text."""
    if parameters != TERMINATORS.get(call.name):
        return None
    text = (call.arguments_raw or "").strip()
    summary = load_json(text)
    if summary is text and (not is_finished or text[:1] in '{["'):
        # the beginning of an object or a string; any plain text could be incomplete
        return None
    return {"summary": summary} if isinstance(summary, str) else None


def _mismatch(arguments: Json, parameters: Json, tool: str) -> str | None:
    if not parameters:
        return None
    # Imported here because it imports jsonschema, which takes 0.1 s that a host without tools need
    # not spend.
    from endturn.continuation.schema_check import mismatch

    return mismatch(arguments, parameters, tool=tool)


# --- Strict JSON ----------------------------------------------------------------------------------


class Malformed(ValueError):
    """A text is not a strict JSON object.

    `issue`: `incomplete_json` if it is the beginning of a longer text.
    """

    def __init__(self, issue: str, message: str) -> None:
        super().__init__(message)
        self.issue = issue


def strict_object(text: str) -> Json:
    """Parse a text as a strict JSON object.

    Raises:
        Malformed: it is not an object, has a key twice, or holds a number that JSON does not allow.
    """
    try:
        value = strict(text)
    except json.JSONDecodeError as error:
        issue = "incomplete_json" if _is_beginning(text, error) else "invalid_json"
        raise Malformed(issue, str(error)) from None
    except ValueError as error:
        raise Malformed("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise Malformed("invalid_json", f"it is of type {type(value).__name__}")
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
