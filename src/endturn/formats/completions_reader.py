"""What text completions answer, as parts, in every service's shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from endturn.chat import Usage
from endturn.formats.completions_shapes import SHAPES, Shape, told
from endturn.formats.errors import shortened
from endturn.formats.fold import Reply
from endturn.formats.framing import DONE
from endturn.formats.parts import Fault, Head, Part, Reason, Text, Tokens, Vocabulary
from endturn.formats.reading import count, items, member, text, text_or_none
from endturn.formats.summaries import TAIL, Context
from endturn.stop import find_row, raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "completions"


class Reader:
    """Reads events or a body, each known by its members; of no known shape (pings) they say nothing."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx, self._words = ctx, ctx.dialect
        self._stopped: set[int] = set()
        self._spent: dict[str, Any] = {}
        self._named = False
        self._begun: set[int] = set()
        # What was said, of a text that each event repeats: its end and its length. SGLang with `--stream-output` sends
        # pieces in the same shape: then nothing is repeated.
        self._tail, self._chars, self._apart = "", 0, False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of an event or a body."""
        name = told(event, self._ctx.dialect)
        if name is not None:
            if not self._ctx.dialect and name != self._words:
                self._words = name
                yield Vocabulary(rows_of(NAME, name))
            shape = SHAPES[name]
            answers = answers_in(shape, event)
            for position, answer in enumerate(answers):
                index = count(member(answer, shape.index)) if shape.index else None
                index = position if index is None else index
                if index in self._stopped:
                    continue  # the first terminal wins
                if index == 0 and (said := text(shape.text(answer))):
                    yield Text(self._added(said) if shape.growing else said)
                raw = raw_text(shape.reason(answer))
                if raw is not None or index not in self._begun:
                    yield self._reason(raw, index, shape, answer)
            head = event[0] if isinstance(event, list) else event
            if shape.counts(head) or (answers and shape.counts(answers[0])):
                yield from self._usage(shape, answers[0] if answers else None, head)
            if not self._named:
                named = text_or_none(_at(head, shape.id)), text_or_none(_at(head, shape.by))
                self._named = None not in named
                yield Head(*named)
        if error := error_in(event):
            yield Fault(error)

    def _reason(self, raw: str | None, index: int, shape: Shape, answer: Any) -> Reason:
        self._begun.add(index)
        row = None if raw is None else find_row(raw, rows_of(NAME, self._words))
        if raw is None or (row is not None and not row.terminal):
            return Reason(None, index)
        self._stopped.add(index)
        return Reason(raw, index, text_or_none(shape.matched(answer)))

    def _added(self, said: str) -> str:
        """What a text adds to what was said, where events repeat it from the beginning."""
        if not self._apart and said.startswith(self._tail, self._chars - len(self._tail)):
            added = said[self._chars :]
        else:
            self._apart, added = True, said
        self._tail, self._chars = (self._tail + added)[-TAIL:], self._chars + len(added)
        return added

    def _usage(self, shape: Shape, answer: Any, event: Any) -> Iterator[Part]:
        """The largest figures: those of a stream grow, and some services say 0, or nothing, on its later events."""
        for name, paths in shape.spent.items():
            for path in paths:
                tokens = count(_at(answer, path))
                if tokens is None:
                    tokens = count(_at(event, path))
                if tokens is not None and tokens >= self._spent.get(name, 0):
                    self._spent[name] = tokens
        if self._spent:
            yield Tokens(Usage(**self._spent))


def answers_in(shape: Shape, reply: Any) -> Any:
    """The answers of a reply or an event: a list's, those that it lists, or itself."""
    if isinstance(reply, list):
        return reply
    listed = member(reply, shape.answers) if shape.answers else None
    return (reply,) if listed is None else items(listed)


def error_in(reply: Any) -> Any:
    """The error that a reply or an event reports, if it does: an object, a text, or the first of a list (watsonx)."""
    listed = member(reply, "errors")
    return member(reply, "error") or (next(iter(items(listed)), None) if listed else None)


def _at(thing: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        thing = member(thing, name)
    return thing


def _faulty(data: Any, whole: bool) -> str | None:
    if data == DONE and not whole:
        return None
    replies = data if whole and isinstance(data, list) else [data]
    if not replies or not all(isinstance(reply, Mapping) for reply in replies):
        return (
            f"{'a completion' if whole else 'an event of a completion'} is an object, not {shortened(repr(data), 80)}"
        )
    name = told(data, "")
    if name is None:
        known = f"this has {sorted(map(str, replies[0]))[:8]}"
        return f"a completion has `choices` or another service's member in their place; {known}" if whole else None
    shape = SHAPES[name]
    listed = member(data, shape.answers) if shape.answers else None
    if not isinstance(listed, list | None) or not all(isinstance(each, Mapping) for each in answers_in(shape, data)):
        return "the answers of a completion are not objects"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    first = next(iter(data), None) if isinstance(data, list) else data
    error = error_in(first)
    return {**first, "error": error} if error and isinstance(first, Mapping) and told(data, "") is None else None


REPLY: Final = Reply(
    name=NAME, reader=Reader, rows=lambda ctx: rows_of(NAME, ctx.dialect), faulty=_faulty, failed=_failed
)
