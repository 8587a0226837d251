"""What is known of a request and learned of its response, in no format's words.

And what formats say of themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from endturn.calls import RequestedCall, RequestFacts, ResponseFacts
from endturn.errors import DecodeError
from endturn.vocabulary import Stop, StopReason

TAIL: Final = 64
"""How many visible characters of an answer's end are kept, in memory only, to recognise its
continuation."""


MAX_UNPARSED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one unfinished line, message or JSON body that telemetry keeps; a longer one is not
read."""


MAX_ITEMS: Final = 32_768
"""Tool calls and choices of one response that are read at most: each costs about a kilobyte while
it is open."""


class TooLargeError(DecodeError):
    """An unfinished line, message or body is longer than its limit."""


def check_size(size: int, limit: int | None) -> None:
    """Refuse what is longer than the limit, where there is one.

    Raises:
        TooLargeError: it is.
    """
    if limit is not None and size > limit:
        raise TooLargeError(
            f"the provider sent more than {limit:,} bytes without an end of the line or the message"
        )


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
    """What the path of a request says where its body does not.

    None where the path does not say it either.
    """

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


class Attempt(NamedTuple):
    """One of the attempts that an SDK makes for one call, as the SDK's own header says.

    Attributes:
        retries: how many attempts came before this one; None where the header does not say.
        invocation_id: shared by all attempts for one call; None where the SDK sends none.
    """

    retries: int | None = None
    invocation_id: str | None = None


_NO_FACTS: Final = RequestFacts()


@dataclass(slots=True)
class RequestSummary:
    """What a call asks for, read in place from an SDK's arguments, or from our Request.

    Only the facts are recorded. All else is for reading the response, and for telling which turn
    the call belongs to.

    Attributes:
        facts: what is recorded of it.
        stream_usage: whether a stream's end tells the usage: OpenAI's chat streams must be asked
            to.
        generates: the model is to write, and will say why it stopped; it is not for embeddings, a
            ranking, a picture.
        background: the call starts a job on the server and does not wait for it.
        compaction: the call asks for nothing but a summary of the conversation (Anthropic's
            `compaction`).
        conversation_id: the conversation that the server keeps, where the call names one.
        system: a system prompt that travels beside the messages, in the format's own shape.
        history: the conversation's messages in the format's own shape; the host's own list, never
            copied or changed.
        length: how many messages `history` held when the call was made: a host may append to the
            same list later.
        forces_tool: the model has to call a tool: its call is the answer (structured output), not a
            step.
        attempt: which attempt of an SDK's call this request is; None where no header says so.
        results: the tool results that the history ends with, and where the response that they
            answer begins; None until `telemetry.tool_loops` has read them.
        briefs: what `telemetry.fingerprints` has read of messages, by their place.
    """

    facts: RequestFacts = _NO_FACTS
    stream_usage: bool = True
    generates: bool = True
    background: bool = False
    compaction: bool = False
    conversation_id: str | None = None
    system: Any = None
    history: Sequence[Any] = ()
    length: int = 0
    forces_tool: bool = False
    attempt: Attempt | None = None
    results: tuple[list[Any], int] | None = field(default=None, compare=False, repr=False)
    briefs: dict[int, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def json_format(self) -> bool:
        """Whether the answer is constrained to JSON."""
        return self.facts.output_type == "json"

    def with_facts(self, **changes: Any) -> RequestSummary:
        """Return the same summary with other facts."""
        return replace(self, facts=replace(self.facts, **changes))


@dataclass(frozen=True, slots=True)
class Context:
    """What a format must know besides the bytes.

    Which dialect, whose, what was asked, and the window if known.
    """

    dialect: str = ""
    provider: str = ""
    asked: RequestSummary = field(default_factory=RequestSummary)
    window: int | None = None


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """What instrumentation learns of a response without building it.

    Attributes:
        facts: what is recorded of it.
        tail: the last 64 visible characters, for recognising a continuation; never exported.
        tool_calls: the client tool calls of all choices, for recognising their results; never
            exported.
    """

    facts: ResponseFacts
    tail: str = ""
    tool_calls: tuple[RequestedCall, ...] = ()

    @property
    def stop(self) -> Stop:
        """Why the response stopped: that of choice 0."""
        return self.facts.stop

    def with_stop(self, stop: Stop) -> ResponseSummary:
        """Return the same summary with another stop."""
        return replace(self, facts=replace(self.facts, stop=stop))
