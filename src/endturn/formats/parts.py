"""The parts of a response, independent of its format.

A format's reader yields parts, the `ResponseAccumulator` assembles them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from endturn.calls import RequestedCall
from endturn.vocabulary import Json, Row, Usage

if TYPE_CHECKING:
    from endturn.formats.summaries import Context


class Head(NamedTuple):
    """The response's id and its model; with `replaces`, in place of earlier ones."""

    id: str | None = None
    model: str | None = None
    replaces: bool = False


class Text(NamedTuple):
    """Visible text; `refusal` if the format marks it as the model's refusal; it may be empty."""

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
        key: distinguishes the calls of one response.
        id, name: come with the first piece; the reader mints an id if the format has none.
        arguments: the next piece of their JSON text, or all of them as an object; None if the part
            has none.
        closed: the call has ended, or is open; None if the format does not report it.
        replaces: these are all of the arguments, whatever pieces came before.
        builtin: the tool is one of the format's own (a computer, a shell): the client runs it as
            its block describes.
        free_text: the tool takes text: its arguments need not be JSON.
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
    """Client calls that are complete, because another call follows them.

    Only if no content is kept: telemetry needs just their ids and names.
    """

    calls: Sequence[RequestedCall]
    choice: int = 0


class FinishedAnswers(NamedTuple):
    """Complete choices, each of a text, which may be empty, and a stop reason.

    Only if no content is kept. Texts and reasons are ASCII, and each choice comes once.

    Attributes:
        answers: the index, the text and the raw reason of each choice.
    """

    answers: Sequence[tuple[int, str, str]]


class Approval(NamedTuple):
    """A tool that the server runs if the client's next request approves it by this id."""

    id: str
    name: str = ""


class ServerCall(NamedTuple):
    """A call that looked like a client call until a later part showed that it is the server's."""

    key: Hashable


class Block(NamedTuple):
    """Content in the format's own shape, or a piece of it, for a replay.

    Only if content is kept. `begins`: earlier pieces under this key no longer count.
    """

    key: Hashable
    piece: Json
    begins: bool = False


class Tokens(NamedTuple):
    """Usage so far: later figures replace earlier ones.

    `is_fallback`: a gateway's figures, for a response that has none itself.
    """

    usage: Usage
    is_fallback: bool = False


class ContextWindow(NamedTuple):
    """The context window that the server reports."""

    tokens: int


class Vocabulary(NamedTuple):
    """The table of stop reasons, if the response itself shows which one applies."""

    rows: Mapping[str, Row]


class ResponseFormat(Protocol):
    """The members of a Format that reading a response needs; see `Format` for each."""

    @property
    def name(self) -> str: ...
    @property
    def reader(self) -> Callable[[Context, bool], Callable[[Any], Iterator[Part]]]: ...
    @property
    def has_end(self) -> bool: ...
    @property
    def reports_call_ends(self) -> bool: ...
    @property
    def splits_answer(self) -> bool: ...
    @property
    def blocks(self) -> Callable[[Any], Iterable[Json]] | None: ...
    def rows(self, ctx: Context, /) -> Mapping[str, Row]: ...
    def borrowed_rows(self, ctx: Context, /) -> Mapping[str, Row]: ...


class InFormat(NamedTuple):
    """The format that the response is really in, with its context."""

    format: ResponseFormat
    ctx: Context


class Unreadable(NamedTuple):
    """Data in no known format; perhaps not text at all, such as an embedding."""


class Token(NamedTuple):
    """A native continuation token; `checkpoint`: it also continues an answer that breaks off."""

    token: str
    checkpoint: bool = False


class Reason(NamedTuple):
    """A choice's stop reason as the provider wrote it.

    None counts as a choice without a reason. `native`: the reason of the provider behind a gateway,
    if the gateway replaced it by one of its own.
    """

    raw: object
    choice: int = 0
    detail: str | None = None
    native: str | None = None


class Unfinished(NamedTuple):
    """A report by a piece of the response that the piece is incomplete.

    It counts whatever the status of the response is.
    """


class Running(NamedTuple):
    """The server's status of a running response, which counts if no reason follows.

    None: it no longer runs.
    """

    raw: str | None


class Reopened(NamedTuple):
    """The answer goes on: its reasons, its end and its continuation token no longer count."""


class End(NamedTuple):
    """The last event of a response, in formats that have one; or, `is_body`, the end of a body."""

    is_body: bool = False


class ErrorPart(NamedTuple):
    """An error inside a response."""

    error: Any


Part = (
    Head | Text | Reasoning | ToolCallPart | FinishedCalls | FinishedAnswers | Approval
    | ServerCall | Block | Tokens | ContextWindow | Vocabulary | InFormat | Unreadable | Token
    | Reason | Unfinished | Running | Reopened | End | ErrorPart
)  # fmt: skip


def usage_of_counts(
    input_tokens: int | None = None,
    output_tokens: int | None = None,
    reasoning_tokens: int | None = None,
    cache_read_tokens: int | None = None,
    cache_write_tokens: int | None = None,
) -> Usage | None:
    """Return the usage with these counts; None if the provider reported none of them."""
    counts = input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens
    return None if counts == _NO_COUNTS else Usage(*counts)


_NO_COUNTS: Final = (None,) * 5
