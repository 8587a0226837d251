"""What text completions answer, as parts, in every service's shape; and where their requests hold what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Final

from endturn.chat import Usage
from endturn.formats.errors import shortened
from endturn.formats.fold import Reply
from endturn.formats.framing import DONE
from endturn.formats.parts import Fault, Head, Part, Reason, Text, Tokens, Vocabulary
from endturn.formats.reading import count, items, member, text, text_or_none
from endturn.formats.summaries import TAIL, Context
from endturn.stop import find_row, raw_text
from endturn.stop_reasons import rows_of
from endturn.tables import lines, shipped

NAME: Final = "completions"
FULL: Final = "limit+truncated=true"
"""llama.cpp's reason where the window was full."""

Path = tuple[str, ...]
Getter = Callable[[Any], Any]


def _at(name: str, *more: str) -> Getter:
    """What reads the end of a path of members."""
    if not more:
        return lambda thing: member(thing, name)
    return lambda thing: reduce(member, (name, *more), thing)


def _nothing(thing: Any) -> None:
    """The reader of what a service does not say."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where one service's requests and replies hold what. An event of its stream is read as a body is.

    Attributes:
        prompt: the request's member that holds the prompt.
        settings: the member that holds limit, temperature and seed; "" where they stand beside the prompt.
        limit, seed: their names; None where the service has no seed.
        names: the member that names the model; None where only the path does.
        demanded: the limit to send where a request sets none, of a service that demands one.
        fixed: settings that every request has.
        user_says, model_says: how a transcript's turns are told apart.
        heads: members by any of which a reply of this shape is known.
        answers: the member that lists the answers; "" where the reply is the answer.
        index: an answer's member that says which it is; "" where its place does.
        text, reason, matched: from an answer, what it says, why it stopped, and on which stop sequence.
        growing: each event holds the whole text so far.
        spent: field of Usage → where its figure stands, first from the answer, then from the reply.
        id, by: the response's id and model.
    """

    prompt: str = "prompt"
    settings: str = ""
    limit: str = "max_tokens"
    seed: str | None = None
    names: str | None = None
    demanded: int | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    user_says: str = "User: "
    model_says: str = "Assistant: "
    heads: Sequence[str]
    answers: str = ""
    index: str = ""
    text: Getter
    reason: Getter
    matched: Getter = _nothing
    growing: bool = False
    spent: Mapping[str, tuple[Path, ...]] = field(default_factory=dict)
    id: Path = ("id",)
    by: Path = ("model",)

    @cached_property
    def _figures(self) -> tuple[str, ...]:
        return tuple({path[0] for paths in self.spent.values() for path in paths})

    def counts(self, reply: Any) -> bool:
        """Whether there may be figures of usage in a reply, an event or an answer."""
        return _has(reply, self._figures)

    def fits(self, reply: Any) -> bool:
        """Whether a reply, or an event of a stream, is of this shape."""
        return _has(reply, self.heads)


def _has(thing: Any, names: Iterable[str]) -> bool:
    for name in names:  # noqa: SIM110 - a generator costs twice as much, and this is asked of every event
        if member(thing, name) is not None:
            return True
    return False


def _tgi_text(answer: Any) -> Any:
    """A body's whole text, or an event's token; special ones, such as the end's, are no part of the text."""
    token = member(answer, "token")
    if token is None:
        return member(answer, "generated_text")
    return None if member(token, "special") is True else member(token, "text")


_STOPPED: Final = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}


def _llamacpp_reason(answer: Any) -> str | None:
    """`stop_type`, or the older servers' three booleans, once `stop` is true.

    `truncated` says that the window was full: of two limits, that one counts (context shift is off by default).
    """
    if member(answer, "stop") is not True:
        return None
    kind = text_or_none(member(answer, "stop_type")) or next(
        (kind for name, kind in _STOPPED.items() if member(answer, name) is True), "none"
    )
    return FULL if kind == "limit" and member(answer, "truncated") is True else kind


def _sglang_matched(answer: Any) -> Any:
    """The stop string that matched (a number is a token's), or what an abort says of itself."""
    reason = member(member(answer, "meta_info"), "finish_reason")
    return text_or_none(member(reason, "matched")) or member(reason, "message")


_OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    "tgi": {"text": _tgi_text, "fixed": {"details": True}},  # Without it the reply says nothing of its reason.
    "llamacpp": {"reason": _llamacpp_reason},
    "sglang": {"matched": _sglang_matched, "growing": True},
    "claude_text": {"demanded": 4_096, "user_says": "\n\nHuman: ", "model_says": "\n\nAssistant:"},
}
"""What a shape has that is no path."""


def _shapes() -> Mapping[str, Shape]:
    found: dict[str, dict[str, Any]] = {}
    for _, (dialect, name, where) in lines(shipped(), "completion_shapes.tsv", range(3, 4)):
        shape = found.setdefault(dialect, {"spent": {}, **_OWN.get(dialect, {})})
        paths = tuple(tuple(path.split(".")) for path in where.split())
        if name.endswith("_tokens"):
            shape["spent"][name] = paths
        elif name in ("text", "reason", "matched"):
            shape[name] = _at(*paths[0])
        elif name in ("id", "by"):
            shape[name] = paths[0]
        else:
            shape[name] = where.split() if name == "heads" else where
    return {dialect: Shape(**shape) for dialect, shape in found.items()}


SHAPES: Final = _shapes()
"""dialect → its shape, in the order in which a reply is tried where nobody said whose it is."""


def told(reply: Any, dialect: str) -> str | None:
    """Whose shape a reply or an event has: the dialect's if it fits, else that of the first that does."""
    first = next(iter(reply), None) if isinstance(reply, list) else reply
    shape = SHAPES.get(dialect)
    if shape is not None and shape.fits(first):
        return dialect
    return next((name for name, shape in SHAPES.items() if shape.fits(first)), None)


def asked_in(body: Mapping[str, Any]) -> str:
    """The dialect that a request is written in, as far as its members tell: "" where they are OpenAI's, or anyone's."""
    for dialect, shape in SHAPES.items():
        own = shape.prompt != "prompt" or shape.limit in body
        if dialect and own and shape.limit != "max_tokens" and shape.prompt in body:
            return dialect
    return ""


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
                why = shape.reason(answer)
                raw = None if why is None else raw_text(why)
                if raw is not None or index not in self._begun:
                    yield self._reason(raw, index, shape, answer)
            head = event[0] if isinstance(event, list) else event
            if shape.counts(head) or (answers and shape.counts(answers[0])):
                yield from self._usage(shape, answers[0] if answers else None, head)
            if not self._named:
                named = text_or_none(reduce(member, shape.id, head)), text_or_none(reduce(member, shape.by, head))
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
                tokens = count(reduce(member, path, answer))
                if tokens is None:
                    tokens = count(reduce(member, path, event))
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
