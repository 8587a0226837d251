"""The declaration of a format, and the functions that follow from it.

It reads responses as a summary, as deltas, or as a ChatResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlencode

from endturn.errors import DecodeError, UsageError
from endturn.formats.accumulator import Reader, ResponseAccumulator
from endturn.formats.errors import error_of, safe_excerpt
from endturn.formats.framing import DONE
from endturn.formats.next_request import ResumeFunction, UnfinishedBlocks, unfinished_parts
from endturn.formats.parts import Part
from endturn.formats.reading import count, has_member, is_empty, text
from endturn.formats.request_summary import summarize_request
from endturn.formats.settings import present
from endturn.formats.summaries import (
    Context,
    Event,
    Framing,
    RequestSummary,
    Route,
    Routed,
    ScriptedStyle,
)
from endturn.vocabulary import (
    CHAT,
    PROVIDERS,
    ChatResponse,
    Delta,
    Json,
    Request,
    Row,
    private,
    rows_of,
    tables,
)


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    def __init__(self, format: Format, ctx: Context) -> None:
        self._format, self._ctx = format, ctx
        self._accumulator = ResponseAccumulator(ctx, format, keep_content=True)

    def feed(self, event: Event) -> Iterable[Delta]:
        """Return the deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds the response
                so far.
        """
        data, accumulator = event.data, self._accumulator
        if (problem := self._format.shape_error(data, False)) is not None:
            raise DecodeError(problem, provider=self._ctx.provider, body=safe_excerpt(repr(data)))
        deltas = []
        for part in accumulator.read(data):
            delta = accumulator.add(part)
            if delta is not None:
                deltas.append(delta)
        if accumulator.is_broken:
            body = self._format.error_in(data) or {**data, "error": accumulator.error}
            failure = error_of(200, {}, body, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return deltas

    def close(self) -> ChatResponse:
        """Return the response so far."""
        return self._accumulator.response()


class _Encoding(Protocol):
    def __call__(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json: ...


class _Scripting(Protocol):
    def __call__(
        self, response: ChatResponse, *, stream: bool, dialect: str = ""
    ) -> Json | list[Event]: ...


class _ErrorScripting(Protocol):
    def __call__(
        self,
        status: int,
        code: str | None,
        message: str | None,
        *,
        number: int = 0,
        stream: bool = False,
    ) -> Json | Event: ...


class PathRequest(NamedTuple):
    """The properties of a request that its path may depend on."""

    model: str
    stream: bool
    dialect: str


def constant_path(path: str) -> Callable[[PathRequest], str]:
    """Return the function for a path that is the same for every request."""
    return lambda request: path


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: converts between our types and one API's JSON, by pure functions.

    Formats differ mostly in the names of members and stop reasons: a format declares those. The
    fields that begin with `own` are for exceptions.

    Attributes:
        name: as in `FORMATS`.
        provider: the API's owner, as in `gen_ai.provider.name`.

        path: returns the path of a request, below the base URL. It raises UsageError if the
            dialect has none.
        match_path: reads a request's method and path; None if they are not of this format.
        is_request: returns whether a body of a dialect has the members that a request must have, if
            its host is not known.
        body: writes a request's body, for `encode`.
        resume: returns the request for the rest of a truncated or paused response.
        text_block: writes a text as a block of an answer.
        unfinished: returns the blocks of an incomplete answer that may be sent back.
        one_message: an answer is sent back as one message, its calls among its members.
        own_summary: summarizes a body or an SDK's arguments, if `data/request_members.tsv` is not
            enough.
        can_fetch: a response can be fetched by its id.
        inner: returns the format of a body's content, if this format is an envelope.

        reader: makes a reader from the context; True keeps the content.
        labels: phrases for a whole body and for an event, for error messages.
        required_members: members of which a whole body has at least one. They tell bodies and
            events of the format from those of others, as `other_members` do.
        event_types: a regular expression for the types of its events, if they have types.
        other_members: further members of a body or an event.
        misshapen_member: returns the path of the first member of a body or an event that should
            hold objects and does not; None if there is none.
        accepts_list: a body, or an event, may be a list of them.
        own_shape_error: returns a sentence on any other error in the shape of a body or an event.
        error_in: returns the error that an event or a body reports in place of an answer.
        headers: reads parts from a response's headers.
        blocks: makes a replay's blocks from those of the reader; None if they are the same.
        has_end: a response ends with an event of its own; otherwise with the reason.
        end_markers: each event that may end a stream, its last one or an error, has one of these in
            its bytes. Other events need not be read at once. None if there are no such words.
        reports_call_ends: the format reports the end of a call; otherwise the next call ends it, or
            a reason that is no truncation.
        splits_answer: several choices are parts of one answer, if the request asked for one.
        own_rows: returns the stop reasons of a response, if they are not its dialect's.
        own_reasons: dialect → raw value → row, if they are not in `data/stop_reasons.tsv`.

        reply: writes a scripted response as a server sends it: a body, or the events of a stream,
            which breaks off if the response's terminal was not seen. It raises UsageError if the
            format cannot express the response.
        reply_error: writes an error response's body, or with `stream` the error event of a stream.
            If code or message is None, the provider's own for the status is written; `number` is
            the request's.
    """

    name: str
    provider: str
    framing: Framing = Framing.SSE
    voice: ScriptedStyle

    path: Callable[[PathRequest], str]
    match_path: Callable[[str, str], Routed | None]
    is_request: Callable[[Mapping[str, Any], str], bool]
    body: _Encoding
    resume: ResumeFunction
    text_block: Callable[[str], Json] = lambda text: {"role": "assistant", "content": text}
    unfinished: UnfinishedBlocks = unfinished_parts
    one_message: bool = False
    own_summary: Callable[[Mapping[str, Any]], RequestSummary] | None = None
    can_fetch: bool = False
    inner: Callable[[Json], Format] | None = None

    reader: Callable[[Context, bool], Reader]
    labels: tuple[str, str] = ("a body", "an event")
    required_members: tuple[str, ...] = ()
    event_types: str = ""
    other_members: tuple[str, ...] = ()
    misshapen_member: Callable[[Json], str | None] = lambda data: None
    accepts_list: bool = False
    own_shape_error: Callable[[Any, bool], str | None] | None = None
    error_in: Callable[[Any], Any]
    headers: Callable[[Mapping[str, str]], Iterable[Part]] | None = None
    blocks: Callable[[ResponseAccumulator], Iterable[Json]] | None = None
    has_end: bool = False
    end_markers: tuple[bytes, ...] | None = None
    reports_call_ends: bool = True
    splits_answer: bool = False
    own_rows: Callable[[Context], Mapping[str, Row]] | None = None
    own_reasons: Mapping[str, Mapping[str, Row]] | None = None

    reply: _Scripting
    reply_error: _ErrorScripting

    # --- Requests ---------------------------------------------------------------------------------

    def route(self, request: Request, *, stream: bool, dialect: str = "") -> Route:
        """Return the method and path of a request.

        A fetched stream begins after the event that `extra` names in `starting_after`.

        Raises:
            UsageError: the dialect is a model family of Bedrock's, which only the format
                `bedrock_invoke` can call.
        """
        path = self.path(PathRequest(request.model, stream, dialect))
        if request.retrieve is not None and self.can_fetch:
            after = count(request.extra.get("starting_after"))
            query = present({"stream": "true", "starting_after": after}) if stream else {}
            target = f"{path}/{quote(request.retrieve, safe='')}"
            return Route("GET", f"{target}?{urlencode(query)}" if query else target)
        return Route("POST", path)

    def encode(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json:
        """Write a request's body in a dialect; an empty body to fetch a response.

        Raises:
            UsageError: the request is to fetch a response, and the format cannot.
        """
        if request.retrieve is None:
            return self.body(request, stream=stream, dialect=dialect)
        if not self.can_fetch:
            raise UsageError(
                f"the format {self.name!r} cannot fetch a response by its id: use a provider "
                f"function that can"
            )
        return {}

    def request_summary(self, kwargs: Mapping[str, Any]) -> RequestSummary:
        """Summarize a request's body, or an SDK's arguments."""
        return (
            summarize_request(self.name, kwargs)
            if self.own_summary is None
            else self.own_summary(kwargs)
        )

    # --- Responses --------------------------------------------------------------------------------

    @property
    def reasons(self) -> Mapping[str, Mapping[str, Row]]:
        """The rows by dialect and raw value; the dialect "" is the format's own provider."""
        return tables(self.name) if self.own_reasons is None else self.own_reasons

    def rows(self, ctx: Context) -> Mapping[str, Row]:
        """Return the table of stop reasons for a response."""
        return rows_of(self.name, ctx.dialect) if self.own_rows is None else self.own_rows(ctx)

    def borrowed_rows(self, ctx: Context) -> Mapping[str, Row]:
        """Return the provider's own chat API reasons, which it also uses in other formats."""
        provider = PROVIDERS.get(ctx.provider)
        has_own_words = (
            provider is not None and self.name != CHAT and provider.dialect not in self.reasons
        )
        return private(CHAT, provider.dialect) if provider is not None and has_own_words else {}

    def summarizer(self, ctx: Context) -> ResponseAccumulator:
        """Return an accumulator that keeps no content, for telemetry."""
        return ResponseAccumulator(ctx, self, keep_content=False)

    def decoder(self, ctx: Context) -> Decoder:
        """Return a decoder that builds a response from a stream's events."""
        return Decoder(self, ctx)

    def shape_error(self, data: Any, is_body: bool) -> str | None:
        """Return a sentence on the error in the shape of an event or a body; None if it is valid.

        Data of the wrong shape must not look like an empty answer.
        """
        # A stream may end with `[DONE]`, also from servers of chat that support this format too.
        if data == DONE and not is_body:
            return None
        label = self.labels[0 if is_body else 1]
        for entry in data if self.accepts_list and isinstance(data, list) and data else (data,):
            if not isinstance(entry, dict):
                return f"{label} must be an object, not {safe_excerpt(repr(data), 80)}"
            if (path := self.misshapen_member(entry)) is not None:
                return f"`{path}` of {label} must be an object"
            if is_body and self.required_members and not has_member(entry, self.required_members):
                return (
                    f"{label} must have `{'` or `'.join(self.required_members[:3])}`; this has "
                    f"{sorted(map(str, entry))[:8]}"
                )
        return self.own_shape_error(data, is_body) if self.own_shape_error is not None else None

    def decode(
        self, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None
    ) -> ChatResponse:
        """Decode a whole body.

        Raises:
            DecodeError: the body is not in this format.
            ProviderError: the body is an error under a status of success, as gateways send them.
        """
        if (error := self.error_in(body)) is not None:
            raise error_of(200, headers or {}, error, ctx=ctx)
        if (problem := self.shape_error(body, True)) is not None:
            raise DecodeError(problem, provider=ctx.provider, body=safe_excerpt(repr(body)))
        accumulator = ResponseAccumulator(ctx, self, keep_content=True)
        header_parts = self.headers(headers or {}) if self.headers is not None else ()
        for part in chain(header_parts, accumulator.read(body)):
            accumulator.add(part)
        return accumulator.response(headers)

    def matches_shape(self, data: Any) -> bool | None:
        """Return whether an event or a body has the format's shape; None if it is empty."""
        if data == DONE or is_empty(data):
            return None
        for entry in data if isinstance(data, list) else (data,):
            if not isinstance(entry, Mapping):
                return False
            event_type = text(entry.get("type")) or text(entry.get("event_type"))
            if event_type and self.event_types:
                return re.fullmatch(self.event_types, event_type) is not None
            members = {*self.required_members, *self.other_members}
            has_object_type = text(entry.get("object")).startswith(
                ("chat.completion", "text_completion", "response")
            )
            if not has_object_type and members.isdisjoint(entry):
                return False
            return self.misshapen_member(dict(entry)) is None
        return None


# --- Errors in bodies and events ------------------------------------------------------------------


def error_without(*members: str) -> Callable[[Any], Any]:
    """Return a function that finds the `error` of a body or an event without any of the members."""

    def find_error(data: Any) -> Any:
        is_error = (
            isinstance(data, Mapping)
            and data.get("error")
            and not any(data.get(name) for name in members)
        )
        return data if is_error else None

    return find_error
