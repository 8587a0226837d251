"""What a response of Ollama's own API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Stop, find_row, find_stop, raw_text
from endturn.stop_reasons import tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import Tail, count, items, member, text, text_or_none

REASONS: Final = tables("ollama")

_CLOSED: Final = "connection_closed"


def calls_in(line: Any) -> Sequence[Any]:
    """The calls of a line or a body: each comes whole, in one line."""
    found = items(member(member(line, "message"), "tool_calls"))
    return [call for call in found if member(call, "function") is not None] if found else ()


def text_in(line: Any) -> str:
    """The visible text of a line or a body: of `/api/chat` in its message, of `/api/generate` in the line itself."""
    message = member(line, "message")
    return text(member(line, "response")) if message is None else text(member(message, "content"))


class Watch:
    """Reads what a response of Ollama says of its stop, in place: lines and bodies, mappings or the SDK's objects.

    A body is a stream's only line, the one with `done: true`. `see` is on the path of every line; a piece of text takes
    the short way through it. A prompt that does not fit the window is cut by the server, and nothing in the response
    says so: `prompt_eval_count` counts what was left of it.
    """

    __slots__ = (
        "_calls",
        "_ctx",
        "_error",
        "_prompt",
        "_raw",
        "_said",
        "_say",
        "_tail",
        "broken",
        "id",
        "model",
        "over",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        self._say = self._tail.add
        self._calls = 0
        self._prompt: int | None = None
        self._said: int | None = None
        self._raw: Any = None
        self._error: Any = None
        self.over = False
        # An error came before the end.
        self.broken = False
        self.id: str | None = None
        """None: a response of Ollama has no id."""
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one line, or one whole body. Never raises over what a provider sent."""
        try:
            if self.model is not None:
                if event.__class__ is dict:
                    if event["done"] is False and "error" not in event:
                        message = event["message"]
                        piece = message["content"]
                        if piece.__class__ is str and "tool_calls" not in message:
                            self._say(piece)
                            return
                elif event.done is False:
                    message = event.message
                    piece = message.content
                    if piece.__class__ is str and message.tool_calls is None:
                        self._say(piece)
                        return
        except (AttributeError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before the line with `done` the stop is `missing`, or `error` where a line said so.

        Args:
            left: whoever read the stream stopped; no reason comes before the end, so that it changes nothing.
        """
        return Seen(
            self._judge(), self._usage(), None, self.model, self._tail.last, self._tail.chars, (raw_text(self._raw),)
        )

    def closed(self, position: int) -> bool:
        """Whether the call at that position is whole: all are but the last of a response that is cut."""
        return position < self._calls - 1 or not self._cut()

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
        error = member(event, "error")
        if error:
            if self._error is None:
                self._error = error
                self.broken = not self.over
            return
        self.model = text_or_none(member(event, "model")) or self.model
        self._tail.add(text_in(event))
        self._calls += len(calls_in(event))
        if member(event, "done") is True and not self.over:
            self.over = True
            self._raw = member(event, "done_reason")
            self._prompt = count(member(event, "prompt_eval_count"))
            self._said = count(member(event, "eval_count"))

    def _cut(self) -> bool:
        raw = raw_text(self._raw)
        row = REASONS[""][""] if raw is None else find_row(raw, REASONS[""])
        return self.over and (row is None or row.incomplete)

    def _usage(self) -> Usage | None:
        return None if self._prompt is None and self._said is None else Usage(self._prompt, self._said)

    def _judge(self) -> Stop:
        if self.broken:
            return broken(self._error)
        detail = None if self._error is None else label_of(self._error)
        if self.over and raw_text(self._raw) is None:
            # What is empty is no value elsewhere; here it is one, and has a row.
            return replace(find_stop(_CLOSED, {_CLOSED: REASONS[""][""]}, detail=detail), raw="")
        return find_stop(
            self._raw,
            REASONS[""],
            terminal_seen=self.over,
            calls=self._calls,
            calls_closed=not self._cut(),
            output_tokens=self._said,
            prompt_tokens=self._prompt,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=detail,
        )
