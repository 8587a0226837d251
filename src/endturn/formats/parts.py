"""What a response says, in no provider's words.

A format's reader yields these, the fold puts them together.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from endturn.calls import RequestedCall
from endturn.formats.reading import count, member
from endturn.vocabulary import Json, Row, Usage, lines, shipped

if TYPE_CHECKING:
    from endturn.formats.summaries import Context


class Head(NamedTuple):
    """The response's id and the model that answers; `replaces` those that were named before."""

    id: str | None = None
    model: str | None = None
    replaces: bool = False


class Text(NamedTuple):
    """Visible text; `refusal` where the model says that it declines, be it without a word."""

    text: str
    choice: int = 0
    refusal: bool = False


class Reasoning(NamedTuple):
    """Visible thinking."""

    text: str
    choice: int = 0


class ToolCallPart(NamedTuple):
    """A client tool call, or a piece of one.

    Attributes:
        key: tells the calls of one response apart.
        id, name: given with the first piece; an id that the format does not send is minted by the
            reader.
        arguments: the next piece of their JSON text, or all of them as an object; None where
            nothing is said of them.
        closed: what the format says of it: ended, still open; None where it says nothing.
        replaces: these are all of the arguments, whatever pieces of them came.
        builtin: of a tool that the format itself defines (a computer, a shell): the client runs it,
            as its block says.
        free_text: of a tool that takes text: its arguments need not be JSON.
    """

    key: Hashable
    id: str = ""
    name: str = ""
    arguments: str | Json | None = None
    choice: int = 0
    closed: bool | None = None
    builtin: bool = False
    replaces: bool = False
    free_text: bool = False


class FinishedCalls(NamedTuple):
    """Client calls of which nothing more can come.

    A call follows them, and their arguments are whole.

    Only where no content is kept: of each, telemetry needs no more than its id and its name.
    """

    calls: Sequence[RequestedCall]
    choice: int = 0


class FinishedAnswers(NamedTuple):
    """Choices of which nothing more can come.

    Each is a text, which may be empty, and the reason for its end.

    Only where no content is kept. Texts and reasons are in ASCII, and each choice is told of once.

    Attributes:
        answers: the index, the text and the raw reason of each choice.
    """

    answers: Sequence[tuple[int, str, str]]


class Approval(NamedTuple):
    """The server runs a tool once the client allows it.

    The client's next request says so by this id.
    """

    id: str
    name: str = ""


class ServerCall(NamedTuple):
    """A call that was taken for the client's: the server runs it, as what followed says."""

    key: Hashable


class Block(NamedTuple):
    """Content in the format's own shape, or a piece of it, for a replay.

    Only where content is kept.

    `begins`: what came under this key before counts no more.
    """

    key: Hashable
    piece: Json
    begins: bool = False


class Tokens(NamedTuple):
    """Usage so far: later figures replace earlier ones.

    `beside`: a gateway's, where the response says none itself.
    """

    usage: Usage
    beside: bool = False


class Window(NamedTuple):
    """The context window that the server says it has."""

    tokens: int


class Vocabulary(NamedTuple):
    """The table of stop reasons that applies, where the response tells whose words it uses."""

    rows: Mapping[str, Row]


class ResponseFormat(Protocol):
    """What reading a response needs of its format.

    `endturn.formats.format.Format` describes each.
    """

    @property
    def name(self) -> str: ...
    @property
    def reader(self) -> Callable[[Context, bool], Callable[[Any], Iterator[Part]]]: ...
    @property
    def has_end(self) -> bool: ...
    @property
    def closes_calls(self) -> bool: ...
    @property
    def splits(self) -> bool: ...
    @property
    def blocks(self) -> Callable[[Any], Iterable[Json]] | None: ...
    def rows(self, ctx: Context, /) -> Mapping[str, Row]: ...
    def borrowed(self, ctx: Context, /) -> Mapping[str, Row]: ...


class InFormat(NamedTuple):
    """The response is in another format: how that answers, and what must be known to read it."""

    format: ResponseFormat
    ctx: Context


class Unreadable(NamedTuple):
    """Something arrived, and it is in no known format.

    It may be no text at all, such as an embedding.
    """


class Token(NamedTuple):
    """A native continuation token; `checkpoint`: it continues an answer that breaks off, too."""

    token: str
    checkpoint: bool = False


class Reason(NamedTuple):
    """Why a choice stopped, in the provider's own word.

    None takes part in the list of choices, and says nothing.

    `own`: what the choice itself says, where a word that a gateway adds counts in its place.
    """

    raw: object
    choice: int = 0
    detail: str | None = None
    own: str | None = None


class Unfinished(NamedTuple):
    """A report by a piece of the response that the piece is incomplete.

    It counts whatever the response says of itself.
    """


class Running(NamedTuple):
    """The server still makes the response, in its own word: what it says where no reason follows.

    None: no longer.
    """

    raw: str | None


class Reopened(NamedTuple):
    """The answer goes on.

    What was said of its end, and the token to continue it with, are taken back.
    """


class End(NamedTuple):
    """The last event of a response, in formats that have one; or, `whole`, the end of a body."""

    whole: bool = False


class ErrorPart(NamedTuple):
    """An error inside a response."""

    error: Any


Part = (
    Head | Text | Reasoning | ToolCallPart | FinishedCalls | FinishedAnswers | Approval
    | ServerCall | Block | Tokens | Window | Vocabulary | InFormat | Unreadable | Token
    | Reason | Unfinished | Running | Reopened | End | ErrorPart
)  # fmt: skip


_Path = Sequence[str]


@cache
def _figures() -> Mapping[str, Sequence[tuple[str, Sequence[Sequence[_Path]]]]]:
    """Return, by format, the paths of the figures of each field of Usage.

    A field has a figure in one of several places; in each it is the sum of the values at the paths.
    """
    figures: dict[str, list[tuple[str, list[list[_Path]]]]] = {}
    for _, (format_, name, members) in lines(shipped(), "usage_members.tsv", range(3, 4)):
        places: list[list[_Path]] = [
            [path.split(".") for path in place.split("+")] for place in members.split()
        ]
        figures.setdefault(format_, []).append((name, places))
    return figures


def usage_in(format: str, usage: Any) -> Usage | None:
    """Usage, by the format's rows in `data/usage_members.tsv`.

    What is told twice counts where it is told first.
    """
    if not usage:
        return None
    figures: dict[str, Any] = {}
    for name, places in _figures()[format]:
        for place in places:
            tokens = _figure(usage, place[0])
            if tokens is not None:
                figures[name] = (
                    tokens + sum(_figure(usage, path) or 0 for path in place[1:])
                    if place[1:]
                    else tokens
                )
                break
    return Usage(**figures) if figures else None


def _figure(usage: Any, path: _Path) -> int | None:
    """Return the number at the end of a path of members; None where there is none."""
    for name in path:
        usage = usage.get(name) if usage.__class__ is dict else member(usage, name)
        if usage is None:
            return None
    return count(usage)
