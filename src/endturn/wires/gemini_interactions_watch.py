"""What a response of the Interactions API says of its stop, read in place; and what its words mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Resume, Row, Stop, StopReason, find_row, find_stop, raw_text
from endturn.stop_reasons import tables
from endturn.wires import Context, Event, Seen
from endturn.wires.failure import broken, label_of, says_of_stop
from endturn.wires.reading import Tail, count, items, member, text, text_or_none

REASONS: Final = tables("gemini_interactions")

_BLOCKED: Final = frozenset(
    {"safety", "recitation", "language", "prohibited_content", "spii", "blocklist", "content_blocked"}
    | {"image_safety", "image_prohibited_content", "image_recitation", "image_other"}
)
"""Codes of errors that say a filter struck: https://ai.google.dev/gemini-api/docs/api-errors."""

_MALFORMED: Final = frozenset({"malformed_function_call", "malformed_tool_call", "unexpected_tool_call"})
"""Codes of errors that say the model wrote a call that cannot be read, or of a tool that it was not offered."""

CLIENT_CALL: Final = "function_call"
"""Steps of other types that end in `_call` are calls of tools that the server runs."""

_COUNTED: Final = (
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_cached_tokens",
)


CONTENT: Final = frozenset({"text", "image", "audio", "video", "document"})
"""Types of content: what stands in a step of output, or of the user's input."""


def current(interaction: Any) -> Sequence[Any]:
    """The steps of a body that answer the request: those after the input that some answers repeat."""
    known = steps_of(interaction)
    inputs = [place for place, step in enumerate(known) if member(step, "type") == "user_input"]
    return known[inputs[-1] + 1 :] if inputs else known


def steps_of(interaction: Any) -> Sequence[Any]:
    """The steps of a body. Before revision 2026-05-20 they are `outputs`: the same, but content stands in no step."""
    steps = member(interaction, "steps")
    if steps is not None:
        return items(steps)
    found: list[Any] = []
    loose: list[Any] | None = None
    for output in items(member(interaction, "outputs")):
        if text(member(output, "type")) not in CONTENT:
            found.append(output)
            loose = None
        elif loose is None:
            loose = [output]
            found.append({"type": "model_output", "content": loose})
        else:
            loose.append(output)
    return found


def stop_of(error: Any) -> Stop | None:
    """What an error's code says about the model's stop: a filter struck, a call was malformed. None for any other."""
    code = text(member(error, "code"))
    if code in _BLOCKED:
        row = Row(StopReason.SAFETY_BLOCKED, True, source="Interactions API error codes")
    elif code in _MALFORMED:
        row = Row(StopReason.ERROR, True, Resume.REPAIR, source="Interactions API error codes")
    else:
        return None
    return find_stop(code, {code: row}, detail=label_of(error))


class _Step:
    """One step while it arrives."""

    __slots__ = ("closed", "kind")

    def __init__(self, kind: str, closed: bool = False) -> None:
        self.kind = kind
        self.closed = closed


class Watch:
    """Reads what a response of the Interactions API says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every event. A piece of text takes the short way through it.

    The SDK follows continuation tokens by itself, and hands out the streams of all hops as one: an interaction that is
    created after one that needs continuation, or after one that broke off, goes on where that one stopped.

    Attributes:
        token: what a next request continues from: of the end, or of a checkpoint that nothing came after.
    """

    __slots__ = (
        "_base",
        "_ctx",
        "_earlier",
        "_error",
        "_held",
        "_raw",
        "_say",
        "_silent",
        "_status",
        "_steps",
        "_tail",
        "_tokens",
        "_whole",
        "_working",
        "broken",
        "id",
        "late",
        "model",
        "over",
        "token",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._tail = Tail()
        self._say = self._tail.add
        self._steps: dict[int, _Step] = {}
        # Where the indices of this hop begin, and its steps whose text is not shown.
        self._base = 0
        self._silent: set[Any] = set()
        self._tokens: dict[str, int] = {}
        self._earlier: Usage | None = None
        # The status of the end; the last one before it; the last that said the interaction is still being made.
        self._raw: Any = None
        self._status: str | None = None
        self._working: str | None = None
        # Something is known that output which follows would belie: a final status without the end, a checkpoint.
        self._held = False
        self._error: Any = None
        self._whole = False
        self.over = False
        # The steps stood in the end alone.
        self.late = False
        # An error came before the end. After a status for which the answer is cut anyway it changes nothing.
        self.broken = False
        self.id: str | None = None
        self.model: str | None = None
        self.token: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        try:
            if event.__class__ is dict:
                if event["event_type"] == "step.delta" and not self._held:
                    delta = event["delta"]
                    if delta["type"] == "text" and event["index"] not in self._silent:
                        piece = delta["text"]
                        if piece.__class__ is str:
                            self._say(piece)
                            return
            elif event.event_type == "step.delta" and not self._held:
                delta = event.delta
                if delta.type == "text" and event.index not in self._silent:
                    piece = delta.text
                    if piece.__class__ is str:
                        self._say(piece)
                        return
        except (AttributeError, KeyError, TypeError):
            pass  # Not a plain piece of text; the long way reads anything.
        self._read(event)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before the end the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped; no status comes before the end, so that it changes nothing.
        """
        stop = self._judge()
        return Seen(
            stop, self._usage(), self.id, self.model, self._tail.last, self._tail.chars, (raw_text(self._known()),)
        )

    def closed(self, place: int) -> bool:
        """Whether the step at that place is whole; right after `close`."""
        return place in self._steps and self._steps[place].closed

    def place(self, event: Any) -> int | None:
        """Where the step of an event stands among those of all hops; None where the event does not say."""
        index = count(member(event, "index"))
        return None if index is None else self._base + index

    def visible(self, event: Any) -> bool:
        """Whether the text that an event brings is shown."""
        return count(member(event, "index")) not in self._silent

    def _read(self, event: Any) -> None:
        if isinstance(event, Event):
            event = event.data
        kind = member(event, "event_type")
        if kind == "step.delta":
            self._goes_on()
            delta = member(event, "delta")
            if member(delta, "type") == "text" and self.visible(event):
                self._tail.add(text(member(delta, "text")))
            self._read_usage(member(member(event, "metadata"), "total_usage"))
        elif kind == "step.start":
            self._goes_on()
            self._start(count(member(event, "index")), member(event, "step"))
        elif kind == "step.stop":
            step = self._steps.get(self.place(event) or self._base)
            if step is not None:
                step.closed = True
            self._read_usage(member(event, "usage"))  # Of the interaction so far; `step_usage` is the step's own.
        elif kind == "interaction.created":
            self._hop()
            self._read_head(member(event, "interaction"))
            self._take(member(member(event, "interaction"), "status"))
        elif kind == "interaction.status_update":
            self._read_update(event)
        elif kind == "interaction.completed":
            self._complete(member(event, "interaction"))
        elif kind == "error":
            self._fail(member(event, "error") or "error")
        elif kind is None and any(member(event, name) is not None for name in ("status", "steps", "outputs")):
            self._whole = True
            self._complete(event)

    def _start(self, index: int | None, step: Any, *, closed: bool = False) -> None:
        kind = text(member(step, "type"))
        place = len(self._steps) if index is None else self._base + index
        self._steps[place] = _Step(kind, closed)
        if kind != "model_output":
            self._silent.add(index)
            return
        self._silent.discard(index)
        for part in items(member(step, "content")):
            if member(part, "type") == "text":
                self._tail.add(text(member(part, "text")))

    def _goes_on(self) -> None:
        """Output comes: a status before it was no end, and what starts from a checkpoint before it would repeat it."""
        if self._held and not self.over:
            self._status, self.token, self._held = self._working, None, False

    def _take(self, status: Any) -> None:
        """A status that is not the end's."""
        self._status = text_or_none(status) or self._status
        row = self._row()
        if row is not None and row.resume is Resume.RETRIEVE_SAME_ID:
            self._working = self._status
        self._held = self.token is not None or self._status != self._working

    def _hop(self) -> None:
        """An interaction begins: the first, or the next of those that the SDK joins."""
        if self._steps and (not self.over or self._paused()):
            self._base = max(self._steps) + 1
            self._silent = set()
            self._earlier, self._tokens = self._usage(), {}
            self._raw = self._status = self._working = self.token = None
            self.over = False

    def _read_head(self, interaction: Any) -> None:
        self.id = text_or_none(member(interaction, "id")) or self.id
        named = text_or_none(member(interaction, "model")) or text_or_none(member(interaction, "agent"))
        self.model = named or self.model
        self._read_usage(member(interaction, "usage"))

    def _read_update(self, event: Any) -> None:
        if self.over:
            return
        self.id = text_or_none(member(event, "interaction_id")) or self.id
        self.token = text_or_none(member(event, "continuation_token")) or self.token
        self._take(member(event, "status"))
        self._read_usage(member(event, "usage"))

    def _complete(self, interaction: Any) -> None:
        if self.over:
            return
        self._read_head(interaction)
        status = member(interaction, "status")
        self._raw = status if raw_text(status) is not None else None
        # The end is the authority: without a token in it there is nothing to continue from.
        self.token = text_or_none(member(interaction, "continuation_token"))
        if not self._steps and not self._tail.chars:  # A body; or a stream whose end alone tells what was said.
            self.late = not self._whole
            for index, step in enumerate(current(interaction)):
                self._start(index, step, closed=True)
        if self._raw is not None or self._whole:
            self.over = True
        reported = items(member(interaction, "errors"))
        if reported and self._error is None:
            self._error = reported[0]

    def _fail(self, error: Any) -> None:
        if self._error is None:
            self._error = error
            row = self._row()
            self.broken = not self.over and not (row is not None and row.incomplete and self._raw is not None)

    def _read_usage(self, usage: Any) -> None:
        """Overwrite: the figures are totals of the interaction so far."""
        if usage is None:
            return
        for name in _COUNTED:
            tokens = count(member(usage, name))
            if tokens is not None:
                self._tokens[name] = tokens

    def _usage(self) -> Usage | None:
        tokens = self._tokens
        if not tokens:
            return self._earlier
        asked, tools = tokens.get("total_input_tokens"), tokens.get("total_tool_use_tokens")
        said, thought = tokens.get("total_output_tokens"), tokens.get("total_thought_tokens")
        # Neither what tools put into the prompt nor the thinking is in the figure beside it: total_tokens is their sum.
        usage = Usage(
            None if asked is None and tools is None else (asked or 0) + (tools or 0),
            None if said is None and thought is None else (said or 0) + (thought or 0),
            thought,
            tokens.get("total_cached_tokens"),
        )
        return usage if self._earlier is None else self._earlier + usage

    def _known(self) -> Any:
        """The status of the end; in a stream that ended without one, the last."""
        return self._status if self._raw is None else self._raw

    def _row(self) -> Row | None:
        raw = raw_text(self._known())
        return None if raw is None else find_row(raw, REASONS[""])

    def _paused(self) -> bool:
        row = self._row()
        return row is not None and row.resume is Resume.NATIVE_TOKEN

    def _ended(self) -> bool:
        """Whether the status tells what became of the interaction: an unfinished one goes on only in the background."""
        if self.over or self._raw is not None:
            return True
        return self._status is not None and (self._ctx.asked.background or self._status != self._working)

    def _judge(self) -> Stop:
        if self.broken:
            return stop_of(self._error) or broken(self._error)
        raw, row, ended = raw_text(self._known()), self._row(), self._ended()
        calls = [self._steps[place] for place in sorted(self._steps) if self._steps[place].kind == CLIENT_CALL]
        if calls and raw is not None and ended and (row is None or row.incomplete):
            # The limit may have struck within the last call, whatever closed it.
            calls[-1].closed = False
        rows = REASONS[""]
        if raw is not None and row is not None and row.reason is StopReason.ERROR:
            said = stop_of(self._error) or says_of_stop(self._error, 0)
            rows = rows if said is None else {raw: Row(said.reason, True, said.resume)}
        usage = self._usage()
        return find_stop(
            raw,
            rows,
            terminal_seen=ended and (raw is not None or self._whole),
            calls=len(calls),
            calls_closed=all(step.closed for step in calls),
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=None if self._error is None else label_of(self._error),
        )
