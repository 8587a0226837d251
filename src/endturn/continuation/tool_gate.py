"""The tool gate: which calls of a response may run, and what becomes of the rest.

A batch runs whole or not at all, and only on the provider's word that it is complete. What a cut or
doubtful response holds is asked for again, however well it parses: a call that was cut off can look
like a valid one (`{}`). A complete call that is wrong is answered with what is wrong, so that the
model can mend it. Nothing is ever brace-closed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from endturn.continuation.history import once
from endturn.continuation.policy import Dispatch
from endturn.continuation.termination import TERMINATORS, loaded
from endturn.formats import strict
from endturn.vocabulary import NO_GENERATION, ChatResponse, Json, Resume, StopReason, Tool, ToolCall


@dataclass(frozen=True, slots=True)
class Run:
    """The calls may run. Each has its `arguments`."""

    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """The calls are complete but wrong: none runs, each is answered with its error.

    Attributes:
        errors: what is wrong with each call, in order; duplicates of an id appear once.
        reason: of the first that is wrong, as in `schema.BLOCK_REASON`.
    """

    errors: tuple[tuple[ToolCall, str], ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Repair:
    """The payload is cut or cannot be trusted: every call of the response is to be asked for again.

    Attributes:
        issue: what is wrong, as in `schema.ISSUE`.
        reason: why nothing ran, as in `schema.BLOCK_REASON`.
    """

    issue: str
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """The response is no tool call, although it holds calls.

    They neither run nor are asked for again.
    """

    reason: str = "not_a_tool_call"


Verdict = Run | Answer | Repair | Refused


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
    """What is to become of a response's calls.

    Args:
        tools: the tools that the request declares, by name. None but these run, whatever has a
            function.
        runnable: the names that have a function; None where the host runs tools itself, and, if the
            request declares none, knows their names itself.
        dispatch, suspect_full_budget, promote: as in ContinuationPolicy.

    Returns:
        None where there is nothing to judge: no calls, and a reason that promised none.
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
    whole = stop.reason is not StopReason.MAX_TOKENS
    checked = [
        parse(
            call,
            tools,
            runnable=runnable,
            schema=dispatch != "tool_call_only",
            whole=whole and call.closed,
        )
        for call in calls
    ]
    is_open = not all(call.closed for call in calls)
    good = tuple(call for call in checked if isinstance(call, ToolCall))
    faults = [fault for fault in checked if isinstance(fault, Fault)]
    issue = next(
        (fault.issue for fault in faults if fault.issue != "unknown_tool"), "unverified_terminal"
    )
    if dispatch == "any_parsed" and (arrived := _arrived(response, checked)):
        return Run(once(arrived))
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
        told = "two calls of this response have the same id; none of them was run"
        return Answer(tuple((call, told) for call in once(calls)), "duplicate_id")
    if not faults:
        return Run(good)
    beside = "not run, because another call of the same response was not valid"
    told_each = (
        (call, each.message if isinstance(each, Fault) else beside)
        for call, each in zip(calls, checked, strict=True)
    )
    return Answer(tuple(told_each), faults[0].issue)


def _arrived(response: ChatResponse, checked: Sequence[ToolCall | Fault]) -> tuple[ToolCall, ...]:
    """The calls that parse, of a response of which those may run; see `any_parsed`."""
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
    """Whether all of a call came.

    What is no JSON at all was not cut: closed or not, the model is told of it.

    But for our own tools that take a text: half of one may go on with anything.
    """
    is_no_json = isinstance(checked, Fault) and checked.issue == "invalid_json"
    return call.closed or (is_no_json and call.name not in TERMINATORS)


def _has_arrived(call: ToolCall, *, is_last: bool) -> bool:
    """Whether a call's arguments came.

    `is_last`: a cut ended it, so that an empty text or object came to nothing.
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
    whole: bool = True,
) -> ToolCall | Fault:
    """The call with its arguments, parsed strictly; or what is wrong with it.

    Args:
        tools, runnable: as in `judge`. schema: the arguments are held against the tool's schema.
        whole: all of the call's text is known to have come.
    """
    offered = call.name in tools or (runnable is None and not tools)
    if not offered or (runnable is not None and call.name not in runnable):
        names = [name for name in tools if runnable is None or name in runnable]
        known = f"the tools are: {', '.join(names)}" if names else "no tools were offered"
        return Fault("unknown_tool", f"there is no tool called {call.name!r}; {known}")
    parameters = tools[call.name].parameters if call.name in tools else {}
    try:
        if call.arguments is not None and call.arguments_raw is None:
            given = call.arguments
            json.dumps(given, allow_nan=False)
        elif (call.arguments_raw or "").strip() or parameters.get("required"):
            given = _summary(call, parameters, whole=whole) or strict_object(
                call.arguments_raw or ""
            )
        else:
            given = {}  # some models send nothing for a tool that needs nothing
        wrong = _mismatch(given, parameters, call.name) if schema else None
    except Malformed as error:
        return Fault(error.issue, f"the arguments are not a JSON object: {error}")
    except (ValueError, TypeError, RecursionError) as error:
        return Fault("invalid_json", f"the arguments are not JSON: {error}")
    if wrong is not None:
        return Fault("schema_mismatch", f"the arguments do not fit the tool's schema: {wrong}")
    return call.but(arguments=given)


def _summary(call: ToolCall, parameters: Json, *, whole: bool) -> Json | None:
    """The arguments of a terminator, as we declare it, that are a summary alone.

    A JSON string, or plain text.
    """
    if parameters != TERMINATORS.get(call.name):
        return None
    text = (call.arguments_raw or "").strip()
    said = loaded(text)
    if said is text and (not whole or text[:1] in '{["'):
        # the beginning of an object or of a string; and half a plain text may go on with anything
        return None
    return {"summary": said} if isinstance(said, str) else None


def _mismatch(given: Json, parameters: Json, tool: str) -> str | None:
    if not parameters:
        return None
    # Here, for it imports jsonschema: a tenth of a second that a host without tools never pays.
    from endturn.continuation.schema_check import mismatch

    return mismatch(given, parameters, tool=tool)


# --- Strict JSON ----------------------------------------------------------------------------------


class Malformed(ValueError):
    """A text that is no strict JSON object.

    `issue`: `incomplete_json` where it is the beginning of a longer text.
    """

    def __init__(self, issue: str, message: str) -> None:
        super().__init__(message)
        self.issue = issue


def strict_object(text: str) -> Json:
    """The JSON object that a text is, and nothing else.

    Raises:
        Malformed: it is none, has a key twice, or holds a number that JSON does not know.
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


_STUB: Final = re.compile(r"tr?u?|fa?l?s?|nu?l?|-|\.|\.?\d*[eE][+-]?|u[0-9a-fA-F]{0,4}")
"""The beginning of a literal, of a number's fraction or exponent, of an escape."""


def _is_beginning(text: str, error: json.JSONDecodeError) -> bool:
    """Return whether parsing failed at the end of the text, which may thus be truncated."""
    rest = text[error.pos :].rstrip()
    return (
        not rest or error.msg.startswith("Unterminated string") or _STUB.fullmatch(rest) is not None
    )
