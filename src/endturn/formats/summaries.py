"""Summaries of a request and its response, independent of the format, and records of formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from endturn.calls import RequestedCall, RequestFacts, ResponseFacts
from endturn.errors import DecodeError
from endturn.vocabulary import Stop, StopReason

TAIL: Final = 64
"""The number of visible characters at an answer's end that are kept, only in memory, to recognise
its continuation."""


MAX_UNPARSED_BYTES: Final = 16 * 1024 * 1024
"""Bytes of one incomplete line, message or JSON body that telemetry buffers; a longer one is not
read."""


MAX_ITEMS: Final = 32_768
"""The most tool calls and choices of one response that are read: each takes about a kilobyte while
it is open."""


class TooLargeError(DecodeError):
    """An incomplete line, message or body is longer than its limit."""


def check_size(size: int, limit: float | None) -> None:
    """Check a size against a limit, if there is one.

    Raises:
        TooLargeError: the size is larger than the limit.
    """
    if limit is not None and size > limit:
        raise TooLargeError(
            f"the provider sent more than {limit:,} bytes without an end of the line or the message"
        )


class Framing(StrEnum):
    """The framing of a stream's events in its bytes."""

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
    """Facts of a request from its path, for formats whose body lacks them; None if unknown."""

    model: str | None = None
    stream: bool | None = None
    retrieve: str | None = None
    operation: str | None = None
    """The conventions' operation, if the path is for another than the format's usual one."""


@dataclass(frozen=True, slots=True)
class ScriptedStyle:
    """The id prefixes and stop reasons of a format's server, for a scripted provider.

    Attributes:
        response_id, call_id: prefixes of the ids of responses and of calls.
        request_id: the header that holds the request's id.
        words: a reason's raw value, if it differs from the table's first row with that reason.
    """

    response_id: str
    call_id: str
    request_id: str
    words: Mapping[StopReason, str] = field(default_factory=dict)


class Event(NamedTuple):
    """One parsed event of a stream: its name, if the format has names, and its JSON data."""

    name: str | None
    data: Any


class Attempt(NamedTuple):
    """One of the attempts that an SDK makes for one call, from the SDK's own header.

    Attributes:
        retries: the number of attempts before this one; None if the header lacks it.
        invocation_id: shared by all attempts for one call; None if the SDK sends none.
    """

    retries: int | None = None
    invocation_id: str | None = None


_NO_FACTS: Final = RequestFacts()


@dataclass(slots=True)
class RequestSummary:
    """The facts of a request, read in place from an SDK's arguments, or from our Request.

    Only `facts` are recorded. The other fields are for reading the response, and for inferring the
    turn that the call belongs to.

    Attributes:
        facts: the recorded facts.
        stream_usage: the stream's end reports the usage: OpenAI's chat streams do on request only.
        generates: the model generates a text and has a stop reason; not so for embeddings,
            rankings, images.
        background: the call starts a job on the server and does not wait for it.
        compaction: the call asks only for a summary of the conversation (Anthropic's
            `compaction`).
        conversation_id: the stored conversation on the server, if the call names one.
        system: a system prompt beside the messages, in the format's own shape.
        history: the conversation's messages in the format's own shape; the host's own list, never
            copied or changed.
        length: the number of messages in `history` when the call was made: a host may append to
            the same list later.
        forces_tool: the model has to call a tool: its call is the answer (structured output), not a
            step.
        attempt: the attempt of an SDK's call that this request is; None without such a header.
        results: the tool results at the end of the history, and the index where the response that
            they answer begins; None until `telemetry.tool_loops` has read them.
        briefs: the cache of `telemetry.fingerprints` for messages, by their index.
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
        """The answer is constrained to JSON."""
        return self.facts.output_type == "json"

    def with_facts(self, **changes: Any) -> RequestSummary:
        """Return the same summary with other facts."""
        return replace(self, facts=replace(self.facts, **changes))


@dataclass(frozen=True, slots=True)
class Context:
    """The context of a response: dialect, provider, request, and the context window if known."""

    dialect: str = ""
    provider: str = ""
    request: RequestSummary = field(default_factory=RequestSummary)
    window: int | None = None


@dataclass(frozen=True, slots=True)
class ResponseSummary:
    """The facts of a response, for telemetry, which does not keep its content.

    Attributes:
        facts: the recorded facts.
        tail: the last 64 visible characters, for recognising a continuation; never exported.
        tool_calls: the client tool calls of all choices, for recognising their results; never
            exported.
    """

    facts: ResponseFacts
    tail: str = ""
    tool_calls: tuple[RequestedCall, ...] = ()

    @property
    def stop(self) -> Stop:
        """The Stop of the response: that of choice 0."""
        return self.facts.stop

    def with_stop(self, stop: Stop) -> ResponseSummary:
        """Return the same summary with another stop."""
        return replace(self, facts=replace(self.facts, stop=stop))
