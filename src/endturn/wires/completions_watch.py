"""What a text completion says of its stop, read in place."""

from __future__ import annotations

from typing import Any

from endturn.chat import Usage
from endturn.stop import Stop, find_row, find_stop, raw_text
from endturn.stop_reasons import rows_of
from endturn.wires import Context, Event, Seen
from endturn.wires.completions_shapes import SHAPES, Shape, told
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import Tail, count, items, member, text, text_or_none


class Watch:
    """Reads what a text completion says of its stop, in place: mappings or the SDK's objects.

    `see` is on the path of every event. One of OpenAI's shape with nothing but text takes the short way through it.

    Attributes:
        piece: what the last event added to the answer that counts, the first.
    """

    over = False  # the format has no last event that is JSON

    __slots__ = (
        "_apart",
        "_begun",
        "_ctx",
        "_detail",
        "_error",
        "_rows",
        "_say",
        "_spent",
        "_stops",
        "_tail",
        "id",
        "model",
        "piece",
    )

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._rows = rows_of("completions", ctx.dialect)
        self._tail = Tail()
        self._say = self._tail.add
        self._begun = False
        self._stops: dict[int, str | None] = {}
        self._detail: str | None = None
        self._error: Any = None
        self._spent: dict[str, Any] = {}
        # Events of a growing text that turned out to hold its pieces: SGLang with `--stream-output`.
        self._apart = False
        self.piece = ""
        self.id: str | None = None
        self.model: str | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        if self._begun:
            try:
                if event.__class__ is dict:
                    known = event
                    (choice,) = event["choices"]
                    strange = "error" in event or "errors" in event
                else:
                    # A model's members stand in its `__dict__`: all that its class declares.
                    known = event.__dict__
                    (found,) = known["choices"]
                    choice = found.__dict__
                    strange = event.__pydantic_extra__
                said = choice["text"]
                quiet = not strange and said.__class__ is str and choice.get("finish_reason") is None
                if quiet and choice["index"] == 0 and known.get("usage") is None:
                    self.piece = said
                    self._say(said)
                    return
            except (AttributeError, KeyError, TypeError, ValueError):
                pass  # Not a plain piece of text; the long way reads anything.
        self.piece = ""
        if isinstance(event, Event):
            event = event.data
        name = told(event, self._ctx.dialect)
        if name is not None:
            if not self._ctx.dialect:
                self._rows = rows_of("completions", name)
            self._read(SHAPES[name], event)
        error = error_in(event)
        if error and self._error is None:
            self._error = error
        # The short way is for a first answer that has not stopped, and where no other shape can be meant.
        home = name == "" and SHAPES.get(self._ctx.dialect, SHAPES[""]) is SHAPES[""]
        self._begun = home and self.id is not None and self.model is not None and self._stops.get(0, "") is None

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. Before a reason the stop is `missing`, or `error` where the stream said so.

        Args:
            left: whoever read the stream stopped. The reason is the terminal here: one that had come counts anyway.
        """
        usage = Usage(**self._spent) if self._spent else None
        return Seen(
            self._judge(usage),
            usage,
            self.id,
            self.model,
            self._tail.last,
            self._tail.chars,
            tuple(self._stops[index] for index in sorted(self._stops)),
        )

    @property
    def broken(self) -> bool:
        """An error came before any reason."""
        return self._error is not None and self._stops.get(0) is None

    def _read(self, shape: Shape, event: Any) -> None:
        answers = answers_in(shape, event)
        for position, answer in enumerate(answers):
            index = count(member(answer, shape.index)) if shape.index else None
            self._read_answer(shape, position if index is None else index, answer)
        head = event[0] if isinstance(event, list) else event
        self._read_usage(shape, answers[0] if answers else None, head)
        if self.id is None:
            self.id = text_or_none(_at(head, shape.id))
        if self.model is None:
            self.model = text_or_none(_at(head, shape.by))

    def _read_answer(self, shape: Shape, index: int, answer: Any) -> None:
        if self._stops.setdefault(index, None) is not None:
            return  # The first terminal wins.
        if index == 0:
            added = self._added(shape, text(shape.text(answer)))
            if added:
                self.piece += added
                self._tail.add(added)
        raw = raw_text(shape.reason(answer))
        if raw is None:
            return
        row = self._rows.get(raw) or find_row(raw, self._rows)
        if row is None or row.terminal:
            self._stops[index] = raw
            if index == 0:
                self._detail = text_or_none(shape.matched(answer))

    def _added(self, shape: Shape, said: str) -> str:
        """What a text adds to what was said, where events repeat it from the beginning."""
        if not shape.growing or self._apart or not said:
            return said
        last, chars = self._tail.last, self._tail.chars
        if said.startswith(last, chars - len(last)):
            return said[chars:]
        self._apart = True
        return said

    def _read_usage(self, shape: Shape, answer: Any, event: Any) -> None:
        """Keep the largest figure: those of a stream grow, and some services say 0, or nothing, on its later events."""
        for name, paths in shape.spent.items():
            for path in paths:
                tokens = count(_at(answer, path))
                if tokens is None:
                    tokens = count(_at(event, path))
                if tokens is not None and tokens >= self._spent.get(name, 0):
                    self._spent[name] = tokens

    def _judge(self, usage: Usage | None) -> Stop:
        if self.broken:
            return broken(self._error)
        return find_stop(
            self._stops.get(0),
            self._rows,
            output_tokens=usage.output_tokens if usage else None,
            prompt_tokens=usage.input_tokens if usage else None,
            maximum=self._ctx.asked.maximum,
            window=self._ctx.window,
            detail=self._detail if self._error is None else label_of(self._error),
        )


def answers_in(shape: Shape, reply: Any) -> Any:
    """The answers of a reply or an event: a list's, those that it lists, or itself."""
    if isinstance(reply, list):
        return reply
    listed = member(reply, shape.answers) if shape.answers else None
    return (reply,) if listed is None else items(listed)


def error_in(reply: Any) -> Any:
    """The error that a reply or an event reports, if it does: an object, a text, or the first of a list (watsonx)."""
    return member(reply, "error") or next(iter(items(member(reply, "errors"))), None)


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        thing = member(thing, name)
    return thing
