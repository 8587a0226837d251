"""Ending on purpose.

The tools by which a model says that it is done, what calling them means, and the wallet guard.

The rules:

1. A mode listens to its own tool: `response` to finish_response, `task` to finish_task and its
   deprecated alias task_completed. The other mode's tool is a tool like any other.
2. A call counts once it has passed the gate and its function has run without an error: never from a
   cut payload. The batch that holds it is run whole. Then the turn is over, whatever the stop
   reason; of several, the first counts.
3. The status is `done`, `partial` or `blocked`; a task waits for review whatever it is. It stands
   in a field, and for loops that see text only as `[FINISH_STATUS:x]` at the very end of the
   result's text: a summary, which may quote such a marker, stands before it.
4. Where such a tool was offered and is not called, the wallet guard looks at each answer, in this
   order: `no_action`: it says something, and asks for nothing to be run; `echo`: it repeats a
   tool's result word for word, or holds the label `[Tool Result]`; `repeated`: it is the answer
   before once more: the same first 200 characters, and the same calls; `trivial`: it is the third
   in a row that has fewer than 10 characters and asks for nothing to be run. Each ends the turn as
   `implicit_completion`. What is less than three times trivial is asked again. An answer in which
   that tool was called, and did not run, is not looked at: the model is told why, and calls again.
5. Three trivial answers in a turn that has said nothing and run nothing are no completion, but
`empty_response`.
6. A model that has no tools may write the tool's name, and its arguments behind it, at the end of
   its answer: that counts where `text_signals` is on.
7. An answer of calls alone is neither trivial nor repeated: models that call tools often say
nothing beside.

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
from endturn.vocabulary import Tool, ToolCall, shipped

Mode = Literal["response", "task"]
ToolFunction = Callable[[ToolCall], str]

IMPLICIT: Final = "implicit_completion"
EMPTY: Final = "empty_response"

TRIVIAL_BELOW: Final = 10
"""Characters, without the white space around them, that an answer needs to say something."""
TRIVIAL_TIMES: Final = 3
COMPARED: Final = 200
"""Characters of an answer that are compared with the answer before."""
RESULT_LABEL: Final = "[Tool Result]"

_STATUS_TEXT: Final[Mapping[object, str]] = {
    "done": "Task objective achieved",
    "partial": "Partial progress made",
    "blocked": "Task blocked - cannot proceed",
}
_MARKER: Final = re.compile(r"\[FINISH_STATUS:(\w+)\]\s*\Z")

FINISH_RESPONSE, FINISH_TASK = map(
    Tool.model_validate, json.loads(shipped().joinpath("terminators.json").read_text())
)
TASK_COMPLETED: Final = FINISH_TASK.but(
    name="task_completed", description="Deprecated: call finish_task instead."
)
"""For hosts whose prompts still name it; `tools` does not offer it."""
TERMINATORS: Final[Mapping[str, Mapping[str, Any]]] = {
    tool.name: tool.parameters for tool in (FINISH_RESPONSE, FINISH_TASK, TASK_COMPLETED)
}
"""The schemas of the tools' arguments, by name."""


@dataclass(frozen=True, slots=True)
class Finish:
    """How a turn was ended on purpose.

    Attributes:
        signal: the tool that was called; IMPLICIT or EMPTY where the wallet guard ended the turn.
        status: `done`, `partial` or `blocked`; of the wallet guard, the rule that it went by.
        summary: what the model gave as one.
    """

    signal: str
    status: str
    summary: str | None = None


# --- The tools ------------------------------------------------------------------------------------


def finish_response(call: ToolCall) -> str:
    """Run finish_response. Returns the result's text."""
    summary = _given(call)[0]
    return f"Response complete. Summary: {summary}" if summary else "Response complete."


def finish_task(call: ToolCall) -> str:
    """Run finish_task, or its alias. Returns the result's text, the status marker at its end.

    Raises:
        ValueError: there is no such status. Told to the model, it lets it call again.
    """
    summary, status = _given(call)
    if status not in _STATUS_TEXT:
        raise ValueError(
            f"unknown status {status!r}: use one of {', '.join(map(str, _STATUS_TEXT))}"
        )
    said = f" Summary: {summary}" if summary else ""
    return f"{_STATUS_TEXT[status]}. Marked for human review.{said} [FINISH_STATUS:{status}]"


FUNCTIONS: Final[Mapping[Mode, Mapping[str, ToolFunction]]] = {
    "response": {FINISH_RESPONSE.name: finish_response},
    "task": {FINISH_TASK.name: finish_task, TASK_COMPLETED.name: finish_task},
}
"""The functions of the tools that each mode listens to, by name."""


def tools(mode: Mode) -> tuple[tuple[Tool, ToolFunction], ...]:
    """The tool that ends a turn in this mode, with its function, as a controller takes tools.

    A controller that runs tools, and whose policy has a mode, offers it by itself.
    """
    tool = FINISH_RESPONSE if mode == "response" else FINISH_TASK
    return ((tool, FUNCTIONS[mode][tool.name]),)


def functions(
    mode: Mode, own: Mapping[str, Callable[[ToolCall], Any]]
) -> dict[str, Callable[[ToolCall], Any]]:
    """A host's functions, and those of a mode's tools that it has not its own for.

    The alias goes with finish_task.
    """
    made = {**FUNCTIONS[mode], **own}
    if mode == "task":
        made[TASK_COMPLETED.name] = own.get(TASK_COMPLETED.name, made[FINISH_TASK.name])
    return made


def is_offered(mode: Mode | None, names: Iterable[str]) -> bool:
    """Whether one of the tools with these names would end a turn in this mode."""
    return mode is not None and not FUNCTIONS[mode].keys().isdisjoint(names)


def signal_of(call: ToolCall, mode: Mode | None) -> Finish | None:
    """What a call that was run means in a mode; None where it ends nothing."""
    if mode is None or call.name not in FUNCTIONS[mode]:
        return None
    summary, status = _given(call)
    if mode == "response":
        return Finish(call.name, "done", summary or None)
    return Finish(call.name, str(status), summary or None) if status in _STATUS_TEXT else None


def signal_in(text: str, mode: Mode) -> Finish | None:
    """What a text signals that ends with a mode's tool.

    Its name, and behind it an object or nothing.

    A text that begins with the name on a line of its own is all signal: what follows is its
    summary. An example in the middle of an answer is none.
    """
    found = _AT_END[mode].search(text) or _AT_START[mode].match(text)
    if found is None:
        return None
    given = (found["given"] or "").strip()
    call = ToolCall(id="text", name=found["name"], arguments_raw=given)
    is_torn = given.startswith("{") and isinstance(loaded(given), str)
    return None if is_torn else signal_of(call, mode)


def names_tool(text: str, mode: Mode) -> bool:
    """Whether a text names a mode's tool anywhere."""
    return any(name in text for name in FUNCTIONS[mode])


def signalled(calls: Iterable[ToolCall], mode: Mode | None) -> Finish | None:
    """What the first of these calls means that ends the turn."""
    return next(filter(None, (signal_of(call, mode) for call in calls)), None)


def status_in(text: str) -> str | None:
    """The status that a result of finish_task ends with; None where it ends with none."""
    found = _MARKER.search(text)
    return None if found is None else found[1]


_AT_END: Final[Mapping[Mode, re.Pattern[str]]] = {
    mode: re.compile(
        rf"^ {{0,3}}(?P<name>{'|'.join(functions)})\s*(?P<given>\{{.*\}})?\s*(?:```\s*)?\Z",
        re.MULTILINE | re.DOTALL,
    )
    for mode, functions in FUNCTIONS.items()
}
_AT_START: Final[Mapping[Mode, re.Pattern[str]]] = {
    mode: re.compile(rf"\s*(?P<name>{'|'.join(functions)})[ \t]*\n(?P<given>.*)", re.DOTALL)
    for mode, functions in FUNCTIONS.items()
}


def _given(call: ToolCall) -> tuple[str, object]:
    """Return the summary ("" for none) and the status that a call gives.

    Its arguments are an object, a JSON string or plain text.
    """
    given: Any = call.arguments
    text = (call.arguments_raw or "").strip()
    if given is None:
        given = loaded(text)
    if not isinstance(given, dict):
        return (given if isinstance(given, str) else text), "done"
    summary, status = given.get("summary"), given.get("status") or "done"
    return ("" if summary is None else str(summary)), status if isinstance(status, str) else str(
        status
    )


def loaded(text: str) -> Any:
    """What a text says as JSON; itself where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def status_of(outcome: TurnOutcome, mode: Mode | None, finish: Finish | None) -> str:
    """An outcome in the source designs' words."""
    if mode == "task" and outcome is TurnOutcome.COMPLETED and finish is not None:
        return "pending_review"
    return _STATUS[mode].get(outcome, outcome.group)


_ALWAYS: Final = {TurnOutcome.EMPTY_RESPONSE: "llm_empty_response_error"}
_IN_A_MODE: Final = {
    **_ALWAYS,
    TurnOutcome.CANCELLED: "stopped",
    TurnOutcome.PROVIDER_ERROR: "error",
}
_STATUS: Final[Mapping[Mode | None, Mapping[TurnOutcome, str]]] = {
    None: _ALWAYS,
    "response": {**_IN_A_MODE, TurnOutcome.IMPLICIT_COMPLETION: "completed"},
    "task": {**_IN_A_MODE, TurnOutcome.MAX_ITERATIONS: "iterations_exceeded"},
}
"""Where that is not the outcome's group."""

# --- The wallet guard -----------------------------------------------------------------------------


def is_trivial(text: str) -> bool:
    """Whether an answer is too short to say anything."""
    return len(text.strip()) < TRIVIAL_BELOW


class WalletGuard:
    """Says whether a turn is over, to a loop of any make that shows it each answer.

    One for each turn.

        guard = WalletGuard("task")
        while (finish := guard.see(text, results=[("finish_task", result)])) is None:
            …

    Args:
        mode: whose tool was offered to the model.
        wallet_guard: False leaves the end to that tool alone.
    """

    __slots__ = ("_guards", "_last", "_mode", "_nothing_yet", "_results", "_trivial")

    def __init__(self, mode: Mode, *, wallet_guard: bool = True) -> None:
        self._mode: Mode = mode
        self._guards = wallet_guard
        self._last: tuple[str, ...] | None = None
        self._results: frozenset[str] = frozenset()
        self._trivial = 0
        self._nothing_yet = True

    def see(
        self, text: str, *, calls: Sequence[str] = (), results: Sequence[tuple[str, str]] = ()
    ) -> Finish | None:
        """Look at one answer, after what it asked for was run.

        Args:
            text: what the model said, the whole of it.
            calls: what it asked to be run, each as text, where that is not part of `text`.
            results: the name of each tool that was run for it, and the text of its result.

        Returns:
            How the turn ended; None where it goes on: with the results, or the same question again.
        """
        for name, result in results:
            if name in FUNCTIONS[self._mode]:
                # A finish_task that failed has no marker.
                status = "done" if self._mode == "response" else status_in(result)
                if status is not None:
                    return Finish(name, status)
        return self._guard(text, calls, results) if self._guards else None

    def _guard(
        self, text: str, calls: Sequence[str], results: Sequence[tuple[str, str]]
    ) -> Finish | None:
        said, acted, trivial = text.strip(), bool(calls or results), is_trivial(text)
        echo = RESULT_LABEL in said or said in self._results
        seen = None if trivial else (said[:COMPARED], *calls)
        repeated = seen is not None and seen == self._last
        self._last = seen
        self._results = frozenset(result.strip() for _, result in results if not is_trivial(result))
        self._nothing_yet = self._nothing_yet and not said and not acted
        self._trivial = self._trivial + 1 if trivial and not acted else 0
        if not acted and not trivial:
            return Finish(IMPLICIT, "no_action")
        if echo:
            return Finish(IMPLICIT, "echo")
        if repeated:
            return Finish(IMPLICIT, "repeated")
        if self._trivial >= TRIVIAL_TIMES:
            return Finish(EMPTY if self._nothing_yet else IMPLICIT, "trivial")
        return None
