"""The replies of a scripted provider, and their order.

A token here is a run of at most eight visible characters with the white space before it:
deterministic, and a text is the concatenation of its tokens. Only the limits and the usage of
scripted replies are counted so.
"""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal, get_args

from endturn.errors import UsageError
from endturn.vocabulary import Json, Request, StopReason, ToolCall, Usage

_TOKEN: Final = re.compile(r"\s*\S{1,8}|\s+")


def tokens(text: str) -> list[str]:
    """Return the text's tokens; joined they are the text."""
    return _TOKEN.findall(text)


class Ending(StrEnum):
    """The connection's behaviour after a reply's last byte."""

    COMPLETE = "complete"
    """The reply arrives completely."""
    WHOLE = "complete"
    """An alias of COMPLETE for one release."""
    BROKEN = "broken"
    """The connection closes before the terminal: the HTTP message itself is incomplete."""
    TIDY = "tidy"
    """The HTTP message is complete, the reply in it is not, as from a proxy that has lost its
    upstream."""
    HUNG_UP = "hung_up"
    """The connection closes before any response."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error response. A field that is None gets the provider's value for that status."""

    status: int
    code: str | None = None
    message: str | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply of a scripted provider; made by the functions below, adjusted with `but`.

    Attributes:
        text, reasoning, calls: the output.
        stop: a stop reason (sent in the format's spelling), a raw value (sent verbatim), or None
            for a null.
        fit: truncate the output to the request's max_tokens; if that removes anything, the reply
            stops with `max_tokens`.
        ending: the connection's behaviour at the end.
        failure: an error instead of a reply; with text and a stream, an error event after that
            text.
        usage: "counted" counts tokens; a Usage is sent as it is; None sends none.
        headers: further HTTP headers of the answer.
        delay_s: seconds before the answer begins; pace_s: seconds between the chunks of a stream.
    """

    text: str = ""
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason | str | None = StopReason.END_TURN
    fit: bool = False
    ending: Ending = Ending.COMPLETE
    failure: Failure | None = None
    usage: Usage | Literal["counted"] | None = "counted"
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    pace_s: float = 0.0

    def but(self, **changes: Any) -> Reply:
        """Return the same reply with some fields replaced.

        `say("hi").but(delay_s=0.2, usage=None)`.
        """
        return replace(self, **changes)

    def also(self, name: str, arguments: Json | str | None = None, *, id: str = "") -> Reply:
        """Return the same reply with one more tool call."""
        return replace(
            self,
            calls=(*self.calls, _call(name, arguments, id)),
            stop=_with_tool_call_stop(self.stop),
        )

    def clipped(self, maximum: int | None) -> Reply:
        """Return the reply truncated to `maximum` tokens, if `fit` is set.

        Reasoning first, then text, then calls.
        """
        if not self.fit or maximum is None or self.output_tokens <= maximum:
            return self
        remaining = maximum

        def take(text: str) -> str:
            nonlocal remaining
            pieces = tokens(text)[:remaining]
            remaining -= len(pieces)
            return "".join(pieces)

        reasoning = None if self.reasoning is None else take(self.reasoning)
        text, calls = take(self.text), []
        for call in self.calls:
            if remaining:
                arguments = call.arguments_raw or ""
                clipped = take(arguments)
                calls.append(call if clipped == arguments else _truncated_call(call, clipped))
        return replace(
            self, reasoning=reasoning, text=text, calls=tuple(calls), stop=StopReason.MAX_TOKENS
        )

    @property
    def output_tokens(self) -> int:
        """The tokens of everything in the reply."""
        arguments = (call.arguments_raw or "" for call in self.calls)
        return sum(len(tokens(part)) for part in (self.reasoning or "", self.text, *arguments))


def _call(name: str, arguments: Json | str | None, id: str) -> ToolCall:
    raw = (
        arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    )
    try:
        parsed = json.loads(raw)
    except ValueError:
        parsed = None
    return ToolCall(
        id=id, name=name, arguments_raw=raw, arguments=parsed if isinstance(parsed, dict) else None
    )


def _truncated_call(call: ToolCall, raw: str) -> ToolCall:
    return call.but(arguments_raw=raw, arguments=None, closed=False)


def _with_tool_call_stop(stop: StopReason | str | None) -> StopReason | str | None:
    return StopReason.TOOL_CALL if stop is StopReason.END_TURN else stop


def _first_tokens(text: str, after: int | None) -> str:
    return text if after is None else "".join(tokens(text)[:after])


def say(text: str) -> Reply:
    """Reply with the whole text and the end of the turn, whatever the request's max_tokens."""
    return Reply(text=text)


def truncate(text: str, *, after: int | None = None) -> Reply:
    """Reply with a text that the token limit ends after `after` tokens.

    By default after max_tokens.
    """
    return Reply(text=_first_tokens(text, after), stop=StopReason.MAX_TOKENS, fit=after is None)


def break_off(text: str, *, after: int | None = None, tidy: bool = False) -> Reply:
    """Lose the connection after `after` tokens of the text, before the stream's terminal.

    By default all of the text arrives.

    Args:
        text: the complete text.
        after: the tokens of a stream that arrive; a body that is not streamed never completes.
        tidy: the HTTP message ends properly, only the stream's terminal, or half of the JSON body,
            is missing.
    """
    return Reply(
        text=_first_tokens(text, after), stop=None, ending=Ending.TIDY if tidy else Ending.BROKEN
    )


cut = break_off
"""An alias for one release."""


def hang_up() -> Reply:
    """Close the connection without any response."""
    return Reply(ending=Ending.HUNG_UP)


def call(name: str, arguments: Json | str | None = None, *, text: str = "", id: str = "") -> Reply:
    """Reply with a tool call, after some text.

    Arguments given as text are sent verbatim, valid or not. More calls: `also`.
    """
    return Reply(text=text, calls=(_call(name, arguments, id),), stop=StopReason.TOOL_CALL)


def partial_call(
    name: str, arguments: Json | str, *, after: int | None = None, text: str = "", id: str = ""
) -> Reply:
    """Reply with a tool call whose JSON the token limit ends after `after` tokens.

    By default it ends at max_tokens.

    For one that a lost connection ends: `.but(ending=Ending.BROKEN)`.
    """
    complete = _call(name, arguments, id)
    partial = (
        complete
        if after is None
        else _truncated_call(complete, _first_tokens(complete.arguments_raw or "", after))
    )
    return Reply(text=text, calls=(partial,), stop=StopReason.MAX_TOKENS, fit=after is None)


def think(reasoning: str, *, text: str = "", after: int | None = None) -> Reply:
    """Reply with reasoning, then text. Without text the token limit ended the reasoning."""
    stop = StopReason.END_TURN if text else StopReason.MAX_TOKENS
    return Reply(reasoning=_first_tokens(reasoning, after), text=text, stop=stop)


def refuse(text: str = "I can't help with that.") -> Reply:
    """Reply that the model declines."""
    return Reply(text=text, stop=StopReason.REFUSED)


def block(text: str = "") -> Reply:
    """Reply with a text whose rest a filter withholds."""
    return Reply(text=text, stop=StopReason.SAFETY_BLOCKED)


def pause(text: str = "") -> Reply:
    """Interrupt a long run: the provider expects the same conversation again."""
    return Reply(text=text, stop=StopReason.PAUSED)


def empty() -> Reply:
    """Reply with the end of the turn and no text."""
    return Reply()


def reason(value: StopReason | str | None, text: str = "") -> Reply:
    """Reply with a text and any stop reason.

    One of ours, a raw value as a string ("some_new_value"), or a null.
    """
    return Reply(text=text, stop=value)


def fail(
    status: int,
    code: str | None = None,
    *,
    message: str | None = None,
    retry_after_s: float | None = None,
    text: str = "",
) -> Reply:
    """Reply with an error in the provider's shape.

    `fail(429, retry_after_s=2)`, `fail(400, "context_length_exceeded")`.

    With `text`, a stream begins with that text and then carries the error as an event.
    """
    return Reply(text=text, failure=Failure(status, code, message, retry_after_s))


CONTINUE_PROMPT: Final = re.compile(
    r"\b(continu\w*|resum\w*|keep going|go on|cut off|left off|truncated)\b", re.IGNORECASE
)
"""Words of a short user message that asks for the rest of the previous answer."""


def essay(text: str) -> Callable[[Request], Reply]:
    """Play a model whose complete answer is `text`.

    Each reply is the next piece, as long as the request's max_tokens allows.

    The text so far is read from the conversation: the assistant's text since the last user message
    that does not ask to continue. So an agent that continues gets the rest, one that does not stays
    truncated, and a new question gets the text from its beginning. White space that was stripped
    from the end of a piece is sent again.
    """

    def reply(request: Request) -> Reply:
        rest = text[_received_length(text, request) :]
        return Reply(text=rest, fit=True).clipped(request.max_tokens)

    return reply


def _received_length(text: str, request: Request) -> int:
    """Return the length of the part of `text` that the conversation has since its last question."""
    position = 0
    for message in request.messages:
        if message.role == "user" and not (
            len(message.text) <= 600 and CONTINUE_PROMPT.search(message.text)
        ):
            position = 0
        elif message.role == "assistant":
            piece, start = message.text.strip(), position + _leading_space(text[position:])
            if piece and text.startswith(piece, start):
                position = start + len(piece)
                if message.text[-1:].isspace():
                    position += _leading_space(text[position:])
    return position


def _leading_space(text: str) -> int:
    return len(text) - len(text.lstrip())


Line = Reply | Callable[[Request], Reply]
Lines = Line | Sequence[Line]
Script = Lines | Mapping[str, Lines]
"""Replies in order; or one function for every request; or either of them by model ("*" for the
others)."""

Exhausted = Literal["error", "last", "cycle"]


def _check_lines(lines: object) -> Sequence[Line] | Callable[[Request], Reply]:
    """Return the lines of a script; a single reply is a script of one.

    Raises:
        UsageError: the lines hold something else. It is not quoted.
    """
    if isinstance(lines, Reply):
        return (lines,)
    if callable(lines):
        return lines
    if not isinstance(lines, Sequence) or isinstance(lines, str | bytes):
        raise UsageError(
            f"a script must be a list of replies, [say('…')], or a function, not a "
            f"{type(lines).__name__}"
        )
    for line in lines:
        if not isinstance(line, Reply) and not callable(line):
            raise UsageError(
                f"a script's lines must be replies, like say('…'), or functions, not a "
                f"{type(line).__name__}"
            )
    return lines


def by_conversation(request: Request) -> str:
    """Return the key of a conversation: its first message that is not the system's."""
    return next((message.text for message in request.messages if message.role != "system"), "")


class Prompter:
    """Keeps the position in a script: one for each model of the mapping, and each value of `key`.

    Safe among threads.
    """

    def __init__(
        self, script: Script, *, key: Callable[[Request], str], exhausted: Exhausted
    ) -> None:
        if exhausted not in get_args(Exhausted):
            raise UsageError(
                f"exhausted={exhausted!r}: use one of {', '.join(get_args(Exhausted))}"
            )
        by_model = script if isinstance(script, Mapping) else {"*": script}
        self._script = {model: _check_lines(lines) for model, lines in by_model.items()}
        self._key = key
        self._exhausted = exhausted
        self._places: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def next(self, request: Request) -> Reply:
        """Return the reply to this request.

        Raises:
            UsageError: the script is exhausted, or has no lines for the request's model.
        """
        name = request.model if request.model in self._script else "*"
        if name not in self._script:
            models = ", ".join(map(repr, self._script))
            raise UsageError(
                f"the script has no lines for the model {request.model!r}, only for {models}; '*' "
                f"is any model"
            )
        lines = self._script[name]
        line = lines if callable(lines) else lines[self._place(name, len(lines), request)]
        reply = line(request) if callable(line) else line
        if not isinstance(reply, Reply):
            raise UsageError(
                f"a function of the script must return a reply, like say('…'), not a "
                f"{type(reply).__name__}"
            )
        return reply

    def _place(self, name: str, length: int, request: Request) -> int:
        key = (name, self._key(request))
        with self._lock:
            index = self._places[key]
            self._places[key] += 1
        if index < length:
            return index
        if self._exhausted == "error" or not length:
            raise UsageError(
                f"the script of {length} replies is exhausted, and {request.model!r} was called "
                f"once more; add a reply, or set exhausted='last' or 'cycle'"
            )
        return length - 1 if self._exhausted == "last" else index % length
