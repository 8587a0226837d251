"""What a response of Cohere's chat API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Stop, find_row, find_stop, raw_text
from endturn.stop_reasons import rows_of, tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import PLAIN, Tail, arguments, count, items, member, text, text_or_none

REASONS: Final = tables("cohere")
"""dialect → raw value → row. The dialect "" is v2; Bedrock's Command R speaks "v1"."""


class _Call:
    """One call while it arrives."""

    __slots__ = ("closed",)

    def __init__(self, closed: bool = False) -> None:
        self.closed = closed


class Watch:
    """Reads what a response of Cohere's chat API says of its stop, in place: mappings or the SDK's objects.

    Both versions are read, each known by its shape: v2's events have a `type`, v1's an `event_type`; v2's body has a
    `message`, v1's a `text`. `see` is on the path of every event. A piece of text takes the short way through it.
    """

    __slots__ = (
        "_calls",
        "_ctx",
        "_detail",
        "_error",
        "_places",
        "_raw",
        "_say",
        "_tail",
        "_usage",
        "_whole",
        "broken",
        "id",
        "over",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        self._say = self._tail.add
        self._calls: list[_Call] = []
        self._places: dict[int, int] = {}
        self._raw: Any = None
        self._detail: str | None = None
        self._error: Any = None
        self._usage: Usage | None = None
        self._whole = False
        self.over = False
        # An error came instead of a reason.
        self.broken = False
        self.id: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        try:
            if event.__class__ is dict:
                if event["type"] == "content-delta":
                    piece = event["delta"]["message"]["content"].get("text")
                    if piece.__class__ is str:
                        self._say(piece)
                    return
            elif event.type == "content-delta":
                piece = event.delta.message.content.text
                if piece.__class__ is str:
                    self._say(piece)
                return
        except (AttributeError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before `message-end` (v1: `stream-end`) the stop is `missing`, or `error` where one was sent.

        Args:
            left: whoever read the stream stopped. The reason comes with the end: there is none to count without it.
        """
        stop = self._judge()
        return Seen(stop, self._usage, self.id, None, self._tail.last, self._tail.chars, (raw_text(self._raw),))

    @property
    def spoke(self) -> bool:
        """Whether there was visible text."""
        return self._tail.chars > 0

    def closed(self, position: int) -> bool:
        """Whether the call at that position is whole; right after `close`."""
        return position < len(self._calls) and self._calls[position].closed

    def place(self, index: Any) -> int | None:
        """The position of the call that an event with that index goes on with; without an index, of the last."""
        known = count(index)
        if known is None:
            return len(self._calls) - 1 if self._calls else None
        return self._places.get(known)

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
        match member(event, "type"):
            case "content-start" | "content-delta":
                self._tail.add(text(member(member(delta_of(event), "content"), "text")))
            case "tool-call-start":
                self._start(member(event, "index"))
            case "tool-call-end":
                position = self.place(member(event, "index"))
                if position is not None:
                    self._calls[position].closed = True
            case "message-start":
                self.id = self.id or text_or_none(member(event, "id"))
            case "message-end":
                end = member(event, "delta")
                self._end(member(end, "finish_reason"), member(end, "usage"), member(end, "error"))
            case "error":
                self._fail(member(event, "error") or event)
            case None:
                self._read_untyped(event)

    def _read_untyped(self, event: Any) -> None:
        """An event of v1, a whole body, or an error."""
        kind, message = member(event, "event_type"), member(event, "message")
        if kind is not None:
            self._read_v1(kind, event)
        elif message is not None and not isinstance(message, PLAIN):
            self._body(event, "id", member(event, "usage"))
            content = member(message, "content")
            self._tail.add(text(content) or "".join(text(member(part, "text")) for part in items(content)))
            self._body_calls(
                [
                    arguments(text(member(member(call, "function"), "arguments"))) is not None
                    for call in items(member(message, "tool_calls"))
                ]
            )
        elif member(event, "error") or text(message):
            self._fail(member(event, "error") or event)
        elif member(event, "text") is not None or member(event, "tool_calls") is not None:
            self._body(event, "generation_id", member(event, "meta"))
            self._tail.add(text(member(event, "text")))
            self._body_calls(
                [isinstance(member(call, "parameters"), Mapping) for call in items(member(event, "tool_calls"))]
            )

    def _body(self, body: Any, name: str, usage: Any) -> None:
        self._whole = True
        self.id = text_or_none(member(body, name)) or text_or_none(member(body, "response_id"))
        self._end(member(body, "finish_reason"), usage, None)

    def _body_calls(self, parsed: list[bool]) -> None:
        """Of a body's calls, all are whole; without any reason, nothing says so of the last but the call itself."""
        self._calls = [_Call(True) for _ in parsed]
        if self._calls and raw_text(self._raw) is None:
            self._calls[-1].closed = parsed[-1]

    def _read_v1(self, kind: Any, event: Any) -> None:
        match kind:
            case "stream-start":
                self.id = text_or_none(member(event, "generation_id"))
            case "text-generation":
                self._tail.add(text(member(event, "text")))
            case "tool-calls-chunk":
                delta = member(event, "tool_call_delta")
                self._tail.add(text(member(event, "text")) or text(member(delta, "text")))
                if text(member(delta, "name")):
                    self._start(member(delta, "index"))
            case "tool-calls-generation":
                self._finish_v1(event)
            case "stream-end":
                response = member(event, "response")
                self._finish_v1(response)
                self.id = self.id or text_or_none(member(response, "generation_id"))
                self.id = self.id or text_or_none(member(response, "response_id"))
                reason = member(event, "finish_reason") or member(response, "finish_reason")
                self._end(reason, member(response, "meta"), member(event, "error"))

    def _finish_v1(self, event: Any) -> None:
        """The whole of what chunks began: text, where none has come, and every call."""
        if not self.spoke:
            self._tail.add(text(member(event, "text")))
        calls = items(member(event, "tool_calls"))
        if calls:
            self._calls = [_Call(True) for _ in calls] + self._calls[len(calls) :]

    def _start(self, index: Any) -> None:
        known = count(index)
        self._places[len(self._calls) if known is None else known] = len(self._calls)
        self._calls.append(_Call())

    def _end(self, reason: Any, usage: Any, error: Any) -> None:
        """The first end counts."""
        if self.over:
            return
        self._usage = usage_of(usage)
        if error and raw_text(reason) is None:
            self._fail(error)
            return
        self.over, self._raw = True, reason
        self._detail = label_of(error) if error else None

    def _fail(self, error: Any) -> None:
        if self._error is None:
            self._error = error
            self.broken = not self.over

    def _judge(self) -> Stop:
        if self.broken:
            return broken(self._error)
        raw, rows = raw_text(self._raw), rows_of("cohere", self._ctx.dialect)
        row = None if raw is None else find_row(raw, rows)
        if self._calls and raw is not None and (row is None or row.incomplete):
            # A server may close the call that a limit cut.
            self._calls[-1].closed = False
        usage = self._usage
        return find_stop(
            raw,
            rows,
            terminal_seen=self._whole or (self.over and raw is not None),
            calls=len(self._calls),
            calls_closed=all(call.closed for call in self._calls),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=self._detail if self._error is None else label_of(self._error),
        )


def delta_of(event: Any) -> Any:
    """What an event adds to the message."""
    return member(member(event, "delta"), "message")


def usage_of(usage: Any) -> Usage | None:
    """Tokens as Cohere counts them: `tokens` are those that the model saw and made, `billed_units` those paid for."""
    get = partial(member, usage)
    made, billed = get("tokens"), get("billed_units")

    def of(name: str) -> int | None:
        found = count(member(made, name))
        return count(member(billed, name)) if found is None else found

    asked, answered, cached = of("input_tokens"), of("output_tokens"), count(get("cached_tokens"))
    if asked is None and answered is None and cached is None:
        return None
    return Usage(asked, answered, None, cached)
