"""What a response of Bedrock's Converse API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeGuard

from endturn.chat import Json, Usage
from endturn.stop import Stop, find_row, find_stop, raw_text
from endturn.stop_reasons import tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import Tail, count, items, member, text, text_or_none

REASONS: Final = tables("bedrock_converse")

_EVENTS: Final = frozenset(
    {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
)
_COUNTED: Final = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")


def client_call(use: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether a `toolUse` is the client's to run: its type is not `server_tool_use`. Some models write `tool_use`."""
    return isinstance(use, Mapping) and use.get("type") != "server_tool_use"


def place(payload: Any) -> int:
    """Which block an event is about."""
    return count(member(payload, "contentBlockIndex")) or 0


def visible(block: Any) -> str:
    """The text that a content block shows to the user; what stands beside citations is such text."""
    cited = items(member(member(block, "citationsContent"), "content"))
    return text(member(block, "text")) + "".join(text(member(part, "text")) for part in cited)


def _failure(name: Any, payload: Any) -> Json | None:
    """An exception event as an error, its type beside its message; None for any other event."""
    if not isinstance(name, str) or name in _EVENTS:
        return None
    if not name.endswith("Exception") and not text(member(payload, "message")):
        return None
    return {**(payload if isinstance(payload, Mapping) else {}), "type": name}


class Watch:
    """Reads what a response of the Converse API says of its stop, in place: bodies and events, as boto3 gives them too.

    `see` is on the path of every event. A piece of text takes the short way through it.
    """

    __slots__ = (
        "_calls",
        "_ctx",
        "_detail",
        "_raw",
        "_say",
        "_tail",
        "_tokens",
        "_whole",
        "broken",
        "error",
        "model",
        "over",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        self._say = self._tail.add
        # The client's calls by the index of their block: whether the wire ended it.
        self._calls: dict[int, bool] = {}
        self._tokens: dict[str, int] = {}
        self._raw: Any = None
        self._detail: str | None = None
        self._whole = False
        # The figures have come, which stand in the last event.
        self.over = False
        self.error: Json | None = None
        # An exception came before the end.
        self.broken = False
        # Where a prompt router was asked, the model that it chose; the API names no other.
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        try:
            piece = event["contentBlockDelta"]["delta"]["text"]
            if piece.__class__ is str:
                self._say(piece)
                return
        except (AttributeError, IndexError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before `messageStop` the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped; it makes no difference here, for the reason comes with the terminal.
        """
        stop = self._judge()
        return Seen(stop, self._usage(), None, self.model, self._tail.last, self._tail.chars, (raw_text(self._raw),))

    def closed(self, index: int) -> bool:
        """Whether the call in the block of that index is whole; right after `close`."""
        return self._calls.get(index, False)

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
        if not isinstance(event, Mapping):
            return
        if event.get("output") is not None:
            self._read_body(event)
            return
        for name, payload in event.items():
            match name:
                case "contentBlockStart":
                    use = member(member(payload, "start"), "toolUse")
                    if client_call(use):
                        self._calls[place(payload)] = False
                    else:
                        self._calls.pop(place(payload), None)
                case "contentBlockDelta":
                    # In an Event, or in a mapping that is no dict.
                    self._tail.add(text(member(member(payload, "delta"), "text")))
                case "contentBlockStop":
                    if place(payload) in self._calls:
                        self._calls[place(payload)] = True
                case "messageStop":
                    self._read_reason(payload)
                case "metadata":
                    self._read_figures(payload)
                    self.over = True
                case _ if self.error is None:
                    self.error = _failure(name, payload)
                    self.broken = self.error is not None and self._raw is None

    def _read_body(self, body: Mapping[str, Any]) -> None:
        self._whole = True
        self._read_reason(body)
        self._read_figures(body)
        for index, block in enumerate(items(member(member(body.get("output"), "message"), "content"))):
            if client_call(member(block, "toolUse")):
                self._calls[index] = True
            self._tail.add(visible(block))

    def _read_reason(self, holder: Any) -> None:
        raw = member(holder, "stopReason")
        if self._raw is not None or raw_text(raw) is None:
            return
        self._raw = raw
        # Only where the request asked for it: additionalModelResponseFieldPaths ["/stop_sequence"], and for streams
        # ["/delta/stop_sequence"], for the fields are those of the model's own last event.
        fields = member(holder, "additionalModelResponseFields")
        matched = text_or_none(member(fields, "stop_sequence"))
        self._detail = matched or text_or_none(member(member(fields, "delta"), "stop_sequence"))

    def _read_figures(self, holder: Any) -> None:
        usage = member(holder, "usage")
        for name in _COUNTED:
            tokens = count(member(usage, name))
            if tokens is not None:
                self._tokens[name] = tokens
        router = member(member(holder, "trace"), "promptRouter")
        self.model = self.model or text_or_none(member(router, "invokedModelId"))

    def _usage(self) -> Usage | None:
        tokens = self._tokens
        if not tokens:
            return None
        read, written = tokens.get("cacheReadInputTokens"), tokens.get("cacheWriteInputTokens")
        fresh = tokens.get("inputTokens")
        # inputTokens are those that went neither into a cache nor came from one (user guide, "Prompt caching").
        whole = None if fresh is None else fresh + (read or 0) + (written or 0)
        return Usage(whole, tokens.get("outputTokens"), None, read, written)

    def _judge(self) -> Stop:
        if self.broken:
            return broken(self.error)
        raw = raw_text(self._raw)
        row = None if raw is None else find_row(raw, REASONS[""])
        if self._calls and raw is not None and (row is None or row.incomplete):
            # The block that a limit cut is closed all the same, and its input filled up to valid JSON ({}).
            self._calls[max(self._calls)] = False
        usage = self._usage()
        return find_stop(
            raw,
            REASONS[""],
            # messageStop is the terminal; without a reason in it nothing was said.
            terminal_seen=self._whole or raw is not None,
            calls=len(self._calls),
            calls_closed=all(self._calls.values()),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=self._detail if self.error is None else label_of(self.error),
        )
