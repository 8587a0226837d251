"""The explicit end of a turn: terminator tools, their meaning, and the wallet guard.

The rules:

1. A mode recognises its own tool: `response` finish_response, `task` finish_task and its deprecated
   alias task_completed. The other mode's tool is an ordinary tool.
2. A call counts once it has passed the gate and its function has run without an error, so never
   from a truncated payload. All calls of its batch are run. Then the turn is over, whatever the
   stop reason; of several such calls, the first counts.
3. The status is `done`, `partial` or `blocked`; a task waits for review with any of them. The
   status is a field; for loops that see only text, it is also `[FINISH_STATUS:x]` at the very end
   of the result's text, after the summary, which may quote such a marker.
4. If such a tool was offered and is not called, the wallet guard checks each answer, in this order:
   `no_action`: it has text, and no tool calls; `echo`: it repeats a tool's result verbatim, or
   holds the label `[Tool Result]`; `repeated`: it repeats the previous answer: the same first 200
   characters, and the same calls; `trivial`: it is the third in a row with fewer than 10 characters
   and no tool calls. Each ends the turn as `implicit_completion`. After the first and the second
   trivial answer, the request is repeated. An answer in which that tool was called but did not run
   is not checked: the model gets the error, and can call again.
5. Three trivial answers in a turn without any text and tool runs are no completion, but
   `empty_response`.
6. A model without tools may write the tool's name, followed by its arguments, at the end of its
   answer: that counts if `text_signals` is on.
7. An answer with only calls is neither trivial nor repeated: models that call tools often write no
   text.

No I/O, no clock. The tools, their result texts, the statuses and the guard are those of Penguin's
engine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from endturn.calls import TurnOutcome
from endturn.vocabulary import Tool, ToolCall, package_data

Mode = Literal["response", "task"]
ToolFunction = Callable[[ToolCall], str]

IMPLICIT: Final = "implicit_completion"
EMPTY: Final = "empty_response"

MIN_ANSWER_CHARS: Final = 10
"""The minimum length of a non-trivial answer in characters, without the white space around them."""
MAX_TRIVIAL_ANSWERS: Final = 3
COMPARED_CHARS: Final = 200
"""The number of characters that are compared with the previous answer."""
RESULT_LABEL: Final = "[Tool Result]"

_STATUS_TEXT: Final[Mapping[object, str]] = {
    "done": "Task objective achieved",
    "partial": "Partial progress made",
    "blocked": "Task blocked - cannot proceed",
}
_MARKER: Final = re.compile(r"\[FINISH_STATUS:(\w+)\]\s*\Z")

FINISH_RESPONSE, FINISH_TASK = map(
    Tool.model_validate, json.loads(package_data().joinpath("terminators.json").read_text())
)
TASK_COMPLETED: Final = FINISH_TASK.but(
    name="task_completed", description="Deprecated: call finish_task instead."
)
"""For hosts whose prompts still mention it; `tools` does not offer it."""
TERMINATORS: Final[Mapping[str, Mapping[str, Any]]] = {
    tool.name: tool.parameters for tool in (FINISH_RESPONSE, FINISH_TASK, TASK_COMPLETED)
}
"""The schemas of the tools' arguments, by name."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a turn by a terminator tool or by the wallet guard.

    Attributes:
        signal: the tool that was called; IMPLICIT or EMPTY if the wallet guard ended the turn.
        status: `done`, `partial` or `blocked`; of the wallet guard, the rule that applied.
        summary: the model's summary.
    """

    signal: str
    status: str
    summary: str | None = None


# --- The tools ------------------------------------------------------------------------------------


def finish_response(call: ToolCall) -> str:
    """Run finish_response. Returns the result's text."""
    summary = _finish_arguments(call)[0]
    return f"Response complete. Summary: {summary}" if summary else "Response complete."


def finish_task(call: ToolCall) -> str:
    """Run finish_task, or its alias. Returns the result's text, the status marker at its end.

    Raises:
        ValueError: there is no such status. The model gets the message and can call again.
    """
    summary, status = _finish_arguments(call)
    if status not in _STATUS_TEXT:
        raise ValueError(
            f"unknown status {status!r}: use one of {', '.join(map(str, _STATUS_TEXT))}"
        )
    summary_text = f" Summary: {summary}" if summary else ""
    return (
        f"{_STATUS_TEXT[status]}. Marked for human review.{summary_text} [FINISH_STATUS:{status}]"
    )


FUNCTIONS: Final[Mapping[Mode, Mapping[str, ToolFunction]]] = {
    "response": {FINISH_RESPONSE.name: finish_response},
    "task": {FINISH_TASK.name: finish_task, TASK_COMPLETED.name: finish_task},
}
"""The functions of the tools that each mode recognises, by name."""


def tools(mode: Mode) -> tuple[tuple[Tool, ToolFunction], ...]:
    """Return the tool that ends a turn in this mode, with its function, for a controller's tools.

    A controller that runs tools, and whose policy has a mode, offers it by itself.
    """
    tool = FINISH_RESPONSE if mode == "response" else FINISH_TASK
    return ((tool, FUNCTIONS[mode][tool.name]),)


def functions(
    mode: Mode, host_functions: Mapping[str, Callable[[ToolCall], Any]]
) -> dict[str, Callable[[ToolCall], Any]]:
    """Return a host's functions, and the functions of a mode's tools that it does not replace.

    The alias follows finish_task.
    """
    functions_by_name = {**FUNCTIONS[mode], **host_functions}
    if mode == "task":
        functions_by_name[TASK_COMPLETED.name] = host_functions.get(
            TASK_COMPLETED.name, functions_by_name[FINISH_TASK.name]
        )
    return functions_by_name


def is_offered(mode: Mode | None, names: Iterable[str]) -> bool:
    """Return whether one of the tools with these names would end a turn in this mode."""
    return mode is not None and not FUNCTIONS[mode].keys().isdisjoint(names)


def finish_of(call: ToolCall, mode: Mode | None) -> Finish | None:
    """Return the finish that a call signals in a mode; None if it ends nothing."""
    if mode is None or call.name not in FUNCTIONS[mode]:
        return None
    summary, status = _finish_arguments(call)
    if mode == "response":
        return Finish(call.name, "done", summary or None)
    return Finish(call.name, str(status), summary or None) if status in _STATUS_TEXT else None


def finish_in_text(text: str, mode: Mode) -> Finish | None:
    """Return the finish that a text signals by ending with the name of a mode's tool.

    An object may follow the name. A text that begins with the name on a separate line is a signal
    as a whole: the rest is its summary. An example in the middle of an answer is no signal.
    """
    match = _SIGNAL_AT_END[mode].search(text) or _SIGNAL_AT_START[mode].match(text)
    if match is None:
        return None
    arguments = (match["given"] or "").strip()
    call = ToolCall(id="text", name=match["name"], arguments_raw=arguments)
    is_torn = arguments.startswith("{") and isinstance(load_json(arguments), str)
    return None if is_torn else finish_of(call, mode)


def names_tool(text: str, mode: Mode) -> bool:
    """Return whether a text names a mode's tool anywhere."""
    return any(name in text for name in FUNCTIONS[mode])


def first_finish(calls: Iterable[ToolCall], mode: Mode | None) -> Finish | None:
    """Return the finish of the first of these calls that ends the turn."""
    return next(filter(None, (finish_of(call, mode) for call in calls)), None)


def status_in(text: str) -> str | None:
    """Return the status that a result of finish_task ends with; None if it has none."""
    match = _MARKER.search(text)
    return None if match is None else match[1]


_SIGNAL_AT_END: Final[Mapping[Mode, re.Pattern[str]]] = {
    mode: re.compile(
        rf"^ {{0,3}}(?P<name>{'|'.join(functions)})\s*(?P<given>\{{.*\}})?\s*(?:```\s*)?\Z",
        re.MULTILINE | re.DOTALL,
    )
    for mode, functions in FUNCTIONS.items()
}
_SIGNAL_AT_START: Final[Mapping[Mode, re.Pattern[str]]] = {
    mode: re.compile(rf"\s*(?P<name>{'|'.join(functions)})[ \t]*\n(?P<given>.*)", re.DOTALL)
    for mode, functions in FUNCTIONS.items()
}


def _finish_arguments(call: ToolCall) -> tuple[str, object]:
    """Return the summary ("" for none) and the status of a call.

    Its arguments are an object, a JSON string or plain text.
    """
    value: object = call.arguments
    text = (call.arguments_raw or "").strip()
    if value is None:
        value = load_json(text)
    if not isinstance(value, dict):
        return (value if isinstance(value, str) else text), "done"
    summary, status = value.get("summary"), value.get("status") or "done"
    return ("" if summary is None else str(summary)), status if isinstance(status, str) else str(
        status
    )


def load_json(text: str) -> object:
    """Return the JSON value of a text; the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def status_of(outcome: TurnOutcome, mode: Mode | None, finish: Finish | None) -> str:
    """Return the source designs' name of an outcome."""
    if mode == "task" and outcome is TurnOutcome.COMPLETED and finish is not None:
        return "pending_review"
    return _STATUS[mode].get(outcome, outcome.group)


_STATUS_IN_ALL_MODES: Final = {TurnOutcome.EMPTY_RESPONSE: "llm_empty_response_error"}
_STATUS_IN_A_MODE: Final = {
    **_STATUS_IN_ALL_MODES,
    TurnOutcome.CANCELLED: "stopped",
    TurnOutcome.PROVIDER_ERROR: "error",
}
_STATUS: Final[Mapping[Mode | None, Mapping[TurnOutcome, str]]] = {
    None: _STATUS_IN_ALL_MODES,
    "response": {**_STATUS_IN_A_MODE, TurnOutcome.IMPLICIT_COMPLETION: "completed"},
    "task": {**_STATUS_IN_A_MODE, TurnOutcome.MAX_ITERATIONS: "iterations_exceeded"},
}
"""The statuses that differ from the outcome's group."""

# --- The wallet guard -----------------------------------------------------------------------------


def is_trivial(text: str) -> bool:
    """Return whether an answer is too short to be one."""
    return len(text.strip()) < MIN_ANSWER_CHARS


class WalletGuard:
    """Recognises the end of a turn in any loop that passes it each answer. One for each turn.

        guard = WalletGuard("task")
        while (finish := guard.see(text, results=[("finish_task", result)])) is None:
            …

    Args:
        mode: the mode whose tool was offered to the model.
        wallet_guard: if False, only that tool ends the turn.
    """

    __slots__ = (
        "_is_enabled",
        "_is_idle",
        "_last_fingerprint",
        "_mode",
        "_results",
        "_trivial_count",
    )

    def __init__(self, mode: Mode, *, wallet_guard: bool = True) -> None:
        self._mode: Mode = mode
        self._is_enabled = wallet_guard
        self._last_fingerprint: tuple[str, ...] | None = None
        self._results: frozenset[str] = frozenset()
        self._trivial_count = 0
        self._is_idle = True

    def see(
        self, text: str, *, calls: Sequence[str] = (), results: Sequence[tuple[str, str]] = ()
    ) -> Finish | None:
        """Check one answer, after its tool calls were run.

        Args:
            text: the model's complete text.
            calls: its tool calls, each as text, if they are not part of `text`.
            results: the name of each tool that was run for it, and the text of its result.

        Returns:
            The finish; None if the turn goes on: with the results, or the same request again.
        """
        for name, result in results:
            if name in FUNCTIONS[self._mode]:
                # The result of a failed finish_task has no marker.
                status = "done" if self._mode == "response" else status_in(result)
                if status is not None:
                    return Finish(name, status)
        return self._guard(text, calls, results) if self._is_enabled else None

    def _guard(
        self, text: str, calls: Sequence[str], results: Sequence[tuple[str, str]]
    ) -> Finish | None:
        stripped, has_calls, is_short = text.strip(), bool(calls or results), is_trivial(text)
        is_echo = RESULT_LABEL in stripped or stripped in self._results
        fingerprint = None if is_short else (stripped[:COMPARED_CHARS], *calls)
        is_repeated = fingerprint is not None and fingerprint == self._last_fingerprint
        self._last_fingerprint = fingerprint
        self._results = frozenset(result.strip() for _, result in results if not is_trivial(result))
        self._is_idle = self._is_idle and not stripped and not has_calls
        self._trivial_count = self._trivial_count + 1 if is_short and not has_calls else 0
        if not has_calls and not is_short:
            return Finish(IMPLICIT, "no_action")
        if is_echo:
            return Finish(IMPLICIT, "echo")
        if is_repeated:
            return Finish(IMPLICIT, "repeated")
        if self._trivial_count >= MAX_TRIVIAL_ANSWERS:
            return Finish(EMPTY if self._is_idle else IMPLICIT, "trivial")
        return None
