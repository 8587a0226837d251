"""What is known of a request and learned of its response, in no format's words; and what formats say of themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from endturn.stop import Stop, StopReason

if TYPE_CHECKING:
    from endturn.chat import Usage

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
