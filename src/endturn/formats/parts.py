"""What a response says, in no provider's words: a format's reader yields these, the fold puts them together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from endturn.chat import Json, Usage
from endturn.formats.reading import at, count
from endturn.stop import Row
from endturn.tables import lines, shipped

if TYPE_CHECKING:
    from endturn.formats.format import Format
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


class Call(NamedTuple):
    """A client tool call, or a piece of one.

    Attributes:
        key: tells the calls of one response apart.
        id, name: given with the first piece; an id that the format does not send is minted by the reader.
        arguments: the next piece of their JSON text, or all of them as an object; None where nothing is said of them.
        closed: what the format says of it: ended, still open; None where it says nothing.
        replaces: these are all of the arguments, whatever pieces of them came.
        builtin: of a tool that the format itself defines (a computer, a shell): the client runs it, as its block says.
    """

    key: Hashable
    id: str = ""
    name: str = ""
    arguments: str | Json | None = None
    choice: int = 0
    closed: bool | None = None
    builtin: bool = False
    replaces: bool = False


class ServerCall(NamedTuple):
    """A call that was taken for the client's: the server runs it, as what followed says."""

    key: Hashable


class Block(NamedTuple):
    """Content in the format's own shape, or a piece of it, for a replay. Only where content is kept.

    `begins`: what came under this key before counts no more.
    """

    key: Hashable
    piece: Json
    begins: bool = False


class Tokens(NamedTuple):
    """Usage so far: later figures replace earlier ones. `beside`: a gateway's, where the response says none itself."""

    usage: Usage
    beside: bool = False


class Window(NamedTuple):
    """The context window that the server says it has."""

    tokens: int


class Vocabulary(NamedTuple):
    """The table of stop reasons that holds, where the response itself tells whose words it is in."""

    rows: Mapping[str, Row]


class InFormat(NamedTuple):
    """The response is in another format: how that answers, and what must be known to read it."""

    format: Format
    ctx: Context


class Unreadable(NamedTuple):
    """Something arrived, and it is in no known format: it may be no text at all, such as an embedding."""


class Token(NamedTuple):
    """A native continuation token; `checkpoint`: it continues an answer that breaks off, too."""

    token: str
    checkpoint: bool = False


class Reason(NamedTuple):
    """Why a choice stopped, in the provider's own word; None takes part in the list of choices, and says nothing.

    `own`: what the choice itself says, where a word that a gateway adds counts in its place.
    """

    raw: object
    choice: int = 0
    detail: str | None = None
    own: str | None = None


class Running(NamedTuple):
    """The server still makes the response, in its own word: what it says where no reason follows. None: no longer."""

    raw: str | None


class Reopened(NamedTuple):
    """The answer goes on: what was said of its end, and the token to continue it with, are taken back."""


class End(NamedTuple):
    """The last event of a response, in formats that have one; or, `whole`, the end of a body."""

    whole: bool = False


class Fault(NamedTuple):
    """An error inside a response."""

    error: Any


Part = (
    Head | Text | Reasoning | Call | ServerCall | Block
    | Tokens | Window | Vocabulary | InFormat | Unreadable | Token | Reason | Running | Reopened | End | Fault
)  # fmt: skip


@cache
def _figures() -> Mapping[str, Mapping[str, list[list[str]]]]:
    """format → field of Usage → where its figure stands, each as the paths whose sum it is."""
    found: dict[str, dict[str, list[list[str]]]] = {}
    for _, (format_, name, paths) in lines(shipped(), "usage_members.tsv", range(3, 4)):
        found.setdefault(format_, {})[name] = [path.split("+") for path in paths.split()]
    return found


def usage_in(format: str, said: Any) -> Usage | None:
    """Usage, by the format's rows in `data/usage_members.tsv`. What is told twice counts where it is told first."""
    found: Json = {}
    for name, places in _figures()[format].items():
        told = ([count(at(said, path)) for path in paths] for paths in places)
        if tokens := next((counts for counts in told if counts[0] is not None), None):
            found[name] = sum(filter(None, tokens))
    return Usage(**found) if found else None
