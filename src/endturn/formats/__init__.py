"""Formats: modules of pure functions between our types and one provider's JSON, all with the same names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from endturn.errors import UsageError
from endturn.providers import PROVIDERS
from endturn.records import Strategy
from endturn.stop import Row, Stop, StopReason
from endturn.stop_reasons import COMPATIBLE

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Delta, Json, Request, Usage

FORMATS: Final = (
    "anthropic",
    "bedrock_converse",
    "bedrock_invoke",
    "cohere",
    "completions",
    "gemini",
    "gemini_interactions",
    "ollama",
    "openai_chat",
    "openai_responses",
)
"""The formats that endturn speaks."""

TAIL: Final = 64
"""How many visible characters of an answer's end are kept, in memory only, to recognise its continuation."""


class Framing(StrEnum):
    """How the events of a stream are told apart in its bytes."""

    SSE = "sse"
    """Server-sent events: `event:` and `data:` lines, a blank line after each."""
    NDJSON = "ndjson"
    """One JSON value to a line."""
    EVENTSTREAM = "eventstream"
    """AWS's binary messages: lengths, headers, payload, checksums."""


class Route(NamedTuple):
    """The method of a request, and its path below the base URL, query included."""

    method: str
    path: str


@dataclass(frozen=True, slots=True)
class Routed:
    """What the path of a request says where its body does not; None where the path does not say it either."""

    model: str | None = None
    stream: bool | None = None
    retrieve: str | None = None
    operation: str | None = None
    """The conventions' operation, where the path asks for another than the format's usual one."""


@dataclass(frozen=True, slots=True)
class Voice:
    """How a server of a format speaks beside its replies: for a provider that plays a script.

    Attributes:
        response_id, call_id: how the ids of responses and of calls begin.
        request_id: the header that holds the request's id.
        words: what is said for a reason, where it is not the first row of the table that means it.
    """

    response_id: str
    call_id: str
    request_id: str
    words: Mapping[StopReason, str] = field(default_factory=dict)


class Event(NamedTuple):
    """One parsed event of a stream: its name where the format has names, and its JSON data."""

    name: str | None
    data: Any


@dataclass(slots=True)
class RequestSummary:
    """What a call asks for, read in place from an SDK's arguments, or from our Request.

    Attributes:
        model: the requested model, "" where the call names none.
        maximum: the output limit that the request sets.
        choices: how many answers are asked for.
        stream: whether the answer is streamed.
        stream_usage: whether a stream's end tells the usage: OpenAI's chat streams must be asked to.
        generates: the model is to write, and will say why it stopped; it is not for embeddings, a ranking, a picture.
        background: the call starts a job on the server and does not wait for it.
        output_type: what the answer is to be, where the request says it: "text", "json", "image" or "speech".
        compaction: the call asks for nothing but a summary of the conversation (Anthropic's `compaction`).
        previous_id: the response that the call builds on.
        conversation_id: the conversation that the server keeps, where the call names one.
        temperature, top_p, top_k, seed, stop_sequences: as sent.
        reasoning_level: how much the model is to think, in the provider's word.
        system: a system prompt that travels beside the messages, in the format's own shape.
        history: the conversation's messages in the format's own shape; the host's own list, never copied or changed.
        length: how many messages `history` held when the call was made: a host may append to the same list later.
    """

    model: str = ""
    maximum: int | None = None
    choices: int = 1
    stream: bool = False
    stream_usage: bool = True
    generates: bool = True
    background: bool = False
    output_type: str | None = None
    compaction: bool = False
    previous_id: str | None = None
    conversation_id: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning_level: str | None = None
    system: Any = None
    history: Sequence[Any] = ()
    length: int = 0

    @property
    def json_format(self) -> bool:
        """Whether the answer is constrained to JSON."""
        return self.output_type == "json"


@dataclass(frozen=True, slots=True)
class Context:
    """What a format must know besides the bytes: which dialect, whose, what was asked, and the window if known."""

    dialect: str = ""
    provider: str = ""
    asked: RequestSummary = field(default_factory=RequestSummary)
    window: int | None = None


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """What instrumentation learns of a response without building it.

    Attributes:
        stop: of choice 0.
        reasons: the raw reason of every choice, in order; None where one never arrived.
        tail: the last 64 visible characters, for recognising a continuation; never exported.
    """

    stop: Stop
    usage: Usage | None = None
    id: str | None = None
    model: str | None = None
    tail: str = ""
    output_chars: int = 0
    reasons: tuple[str | None, ...] = ()


class Decoder(Protocol):
    """Builds a ChatResponse from a stream's events. `close` may be called at any point; what is missing stays so."""

    def feed(self, event: Event) -> Iterable[Delta]: ...

    def close(self) -> ChatResponse: ...


class Summarizer(Protocol):
    """Reads what instrumentation needs from events or a body, mappings or an SDK's objects, in place.

    `see` is on the path of every chunk: it builds nothing. `close` takes `left` where whoever read the stream stopped
    reading it: a reason that had come counts then, although the end that confirms it was not waited for.

    Attributes:
        over: the format's last event has passed; never so where it has none, or none but the word `[DONE]`.
        broken: an error came before the end.
    """

    @property
    def over(self) -> bool: ...

    @property
    def broken(self) -> bool: ...

    @property
    def feed(self) -> Callable[[Any], None]: ...

    def close(self, *, left: bool = False) -> ResponseSummary: ...


class Format(Protocol):
    """The names that every format module has."""

    NAME: str
    PROVIDER: str
    """Whose format it is, as in `gen_ai.provider.name`."""
    FRAMING: Framing
    REASONS: Mapping[str, Mapping[str, Row]]
    """dialect → raw value → row. The dialect "" is the format's home."""
    VOICE: Voice

    def route(self, request: Request, *, stream: bool, dialect: str = "") -> Route:
        """Where the request goes."""

    def routed(self, method: str, path: str) -> Routed | None:
        """What a request's method and path say; None where this format is not spoken there."""

    def encode(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json: ...

    def decode(self, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse: ...

    def decoder(self, ctx: Context) -> Decoder: ...

    def resume(
        self, request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
    ) -> Request: ...

    def request_summary(self, kwargs: Mapping[str, Any]) -> RequestSummary: ...

    def summarizer(self, ctx: Context) -> Summarizer: ...

    def request(self, body: Json) -> Request:
        """A request's body as ours; `model` and `stream` are in it, wherever the format has them."""

    def reply(self, response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
        """A response as a server sends it. Streamed, one whose terminal was not seen breaks off: nothing closes it.

        Raises:
            UsageError: the format cannot say it.
        """

    def reply_error(
        self, status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
    ) -> Json | Event:
        """An error answer's body as a server sends it; with `stream`, as the event that it is within a stream.

        What is None is filled with what the provider says with that status. `number` is the request's.
        """


@cache
def format_of(name: str) -> Format:
    """The format module of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"no format is called {name!r}; the formats are: {', '.join(FORMATS)}")
    module: Any = import_module(f"endturn.formats.{name}")
    return module  # type: ignore[no-any-return]  # a module is checked against the Protocol in tests/typing/api.py


def summarize(speaks: Format, ctx: Context, body: Any) -> ResponseSummary:
    """What telemetry needs of a whole body."""
    summarizer = speaks.summarizer(ctx)
    summarizer.feed(body)
    return summarizer.close()


def dialect_in(speaks: Format, provider: str) -> str:
    """A provider's dialect in a format: its own where the format has it, else anybody's, else the format's home.

    Args:
        provider: as in `gen_ai.provider.name`; it need not be known.
    """
    dialect = PROVIDERS[provider].dialect if provider in PROVIDERS else COMPATIBLE
    # In other formats "mistral" is the family of models on Bedrock.
    if dialect in speaks.REASONS and (dialect != "mistral" or speaks.NAME == "openai_chat"):
        return dialect
    return COMPATIBLE if COMPATIBLE in speaks.REASONS else ""


def known_dialect(speaks: Format, dialect: str) -> str:
    """A dialect's name, checked.

    Raises:
        UsageError: the format has no such dialect.
    """
    if dialect not in speaks.REASONS:
        known = ", ".join(filter(None, speaks.REASONS)) or "none"
        raise UsageError(f"{speaks.NAME} has no dialect {dialect!r}; it has: {known}")
    return dialect
