"""What a format declares of itself, and what follows from that.

Its responses as a summary, as deltas, or whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from endturn.errors import DecodeError, UsageError
from endturn.formats.errors import error_of, shortened
from endturn.formats.fold import Fold, Reader
from endturn.formats.framing import DONE
from endturn.formats.next_request import ResumeFunction, UnfinishedBlocks, unfinished_parts
from endturn.formats.parts import Part
from endturn.formats.reading import count, is_empty, text, value_at
from endturn.formats.request_summary import summarize_request
from endturn.formats.settings import present
from endturn.formats.summaries import Context, Event, Framing, RequestSummary, Route, Routed, Voice
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
        self._fold = Fold(ctx, format, keep=True)

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is not one of this format.
            ProviderError: the stream reports an error before its end; `partial` holds what had
                arrived.
        """
        data, fold = event.data, self._fold
        if (problem := self._format.faulty(data, False)) is not None:
            raise DecodeError(problem, provider=self._ctx.provider, body=shortened(repr(data)))
        deltas = []
        for part in fold.read(data):
            delta = fold.add(part)
            if delta is not None:
                deltas.append(delta)
        if fold.broken:
            body = self._format.failed(data) or {**data, "error": fold.error}
            failure = error_of(200, {}, body, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        return deltas

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        return self._fold.response()


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


def _quoted(model: str) -> str:
    return quote(model, safe="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format: between our types and one API's JSON, by pure functions.

    Most of what formats do is the same but for words and places: a format declares those. The
    members that begin with `own` are for what is not the usual.

    Attributes:
        name: as in `FORMATS`. provider: whose it is, as in `gen_ai.provider.name`.

        paths: dialect → where a request goes, below the base URL. `{model}` stands for the model;
            of `[whole|streamed]` one counts. None for a family of Bedrock's models.
        in_path: a model as the path has it.
        routed: what a request's method and path say; None where the format is not spoken there.
        body: a request's body; `encode` gives it.
        resume: the request that asks for the rest of a cut or paused response.
        text_block: a text as a block of an answer.
        unfinished: what may be sent back of an answer's blocks where some of its calls are not.
        one_message: an answer is sent back as one message, its calls among its members.
        own_summary: what a body asks for, or an SDK's arguments, beyond what
            `data/request_members.tsv` tells.
        fetches: a response can be fetched by its id.
        inner: the format that a body is in, where this one is an envelope.

        reader: makes a reader, given what must be known and whether content is kept.
        called: what the format calls a whole body, and an event.
        needs: paths, one of which a whole body has.
        kinds: a regular expression that the types of its events match, where they have types.
        objects: paths where objects stand; `[]` after a member stands for each of its list.
        lists: a body, or an event, may be a list of them.
        own_faulty: what else is wrong with a body or an event, in a sentence.
        failed: the error that an event or a body reports in the place of an answer.
        headers: what an answer's headers say of it.
        blocks: what a replay sends, of the blocks that the reader gave; None where they are it.
        has_end: an event of its own ends a response; otherwise the reason does.
        end_words: of these, each event has one that may end a stream: its last event, or an error
            in its place. Other events need not be read as they come. None where no such words stand
            in the bytes.
        closes_calls: the format says when a call is whole; otherwise the next call does, or a
            reason that is no cut.
        splits: several choices, where one was asked for, are parts of one answer.
        own_rows: the table of stop reasons that holds for a response, where it is not its
            dialect's.
        own_reasons: dialect → raw value → row, where `data/stop_reasons.tsv` does not tell.

        reply: writes a scripted response as a server sends it: a body, or the events of a stream,
            which breaks off where the response's terminal was not seen. It raises UsageError where
            the format cannot say it.
        reply_error: writes an error answer's body, or with `stream` the error event of a stream.
            Where code or message is None, the provider's own for the status is written; `number`
            is the request's.
    """

    name: str
    provider: str
    framing: Framing = Framing.SSE
    voice: Voice

    paths: Mapping[str, str | None]
    in_path: Callable[[str], str] = _quoted
    routed: Callable[[str, str], Routed | None]
    body: _Encoding
    resume: ResumeFunction
    text_block: Callable[[str], Json] = lambda text: {"role": "assistant", "content": text}
    unfinished: UnfinishedBlocks = unfinished_parts
    one_message: bool = False
    own_summary: Callable[[Mapping[str, Any]], RequestSummary] | None = None
    fetches: bool = False
    inner: Callable[[Json], Format] | None = None

    reader: Callable[[Context, bool], Reader]
    called: tuple[str, str] = ("a body", "an event")
    needs: tuple[str, ...] = ()
    kinds: str = ""
    objects: tuple[str, ...] = ()
    lists: bool = False
    own_faulty: Callable[[Any, bool], str | None] | None = None
    failed: Callable[[Any], Any]
    headers: Callable[[Mapping[str, str]], Iterable[Part]] | None = None
    blocks: Callable[[Fold], Iterable[Json]] | None = None
    has_end: bool = False
    end_words: tuple[bytes, ...] | None = None
    closes_calls: bool = True
    splits: bool = False
    own_rows: Callable[[Context], Mapping[str, Row]] | None = None
    own_reasons: Mapping[str, Mapping[str, Row]] | None = None

    reply: _Scripting
    reply_error: _ErrorScripting

    # --- Requests ---

    def route(self, request: Request, *, stream: bool, dialect: str = "") -> Route:
        """Where a request goes.

        A stream that is fetched begins after the event that `extra` says in `starting_after`.

        Raises:
            UsageError: it is a model family of Bedrock's, which only the format `bedrock_invoke`
                reaches.
        """
        path = self.paths.get(dialect, self.paths[""])
        if path is None:
            raise UsageError(
                f"the {self.name} dialect {dialect!r} has no path: use the format 'bedrock_invoke'"
            )
        if request.retrieve is not None and self.fetches:
            after = count(request.extra.get("starting_after"))
            query = present({"stream": "true", "starting_after": after}) if stream else {}
            target = f"{path}/{quote(request.retrieve, safe='')}"
            return Route("GET", f"{target}?{urlencode(query)}" if query else target)
        path = re.sub(r"\[(.*?)\|(.*?)\]", r"\2" if stream else r"\1", path)
        return Route("POST", path.replace("{model}", self.in_path(request.model)))

    def encode(self, request: Request, *, stream: bool = False, dialect: str = "") -> Json:
        """A request's body, in the words of a dialect; nothing where a response is fetched.

        Raises:
            UsageError: it asks to fetch a response, which the format cannot.
        """
        if request.retrieve is None:
            return self.body(request, stream=stream, dialect=dialect)
        if not self.fetches:
            raise UsageError(
                f"the format {self.name!r} cannot fetch a response by its id: use a provider "
                f"function that can"
            )
        return {}

    def request_summary(self, kwargs: Mapping[str, Any]) -> RequestSummary:
        """What a body asks for, or an SDK's arguments."""
        return (
            summarize_request(self.name, kwargs)
            if self.own_summary is None
            else self.own_summary(kwargs)
        )

    # --- Responses ---

    @property
    def reasons(self) -> Mapping[str, Mapping[str, Row]]:
        """Dialect → raw value → row; the dialect "" is the format's home."""
        return tables(self.name) if self.own_reasons is None else self.own_reasons

    def rows(self, ctx: Context) -> Mapping[str, Row]:
        """The table of stop reasons that holds for a response."""
        return rows_of(self.name, ctx.dialect) if self.own_rows is None else self.own_rows(ctx)

    def borrowed(self, ctx: Context) -> Mapping[str, Row]:
        """Return the provider's own chat API reasons, which it also uses in other formats."""
        provider = PROVIDERS.get(ctx.provider)
        has_own_words = (
            provider is not None and self.name != CHAT and provider.dialect not in self.reasons
        )
        return private(CHAT, provider.dialect) if provider is not None and has_own_words else {}

    def summarizer(self, ctx: Context) -> Fold:
        """Return what reads as much of a response as telemetry needs: no content is kept."""
        return Fold(ctx, self, keep=False)

    def decoder(self, ctx: Context) -> Decoder:
        """What builds a response from a stream's events."""
        return Decoder(self, ctx)

    def faulty(self, data: Any, is_body: bool) -> str | None:
        """What is wrong with the shape of an event, or of a body, in a sentence.

        It must not look like no answer.
        """
        # A stream may end with `[DONE]`, of this format or as chat's do, from servers that speak
        # both.
        if data == DONE and not is_body:
            return None
        label = self.called[0 if is_body else 1]
        for entry in data if self.lists and isinstance(data, list) and data else (data,):
            if not isinstance(entry, dict):
                return f"{label} is an object, not {shortened(repr(data), 80)}"
            for path in self.objects:
                if not _are_objects(entry, _steps(path)):
                    return f"`{path}` of {label} is no object"
            if is_body and self.needs and all(value_at(entry, path) is None for path in self.needs):
                return (
                    f"{label} has `{'` or `'.join(self.needs[:3])}`; this has "
                    f"{sorted(map(str, entry))[:8]}"
                )
        return self.own_faulty(data, is_body) if self.own_faulty is not None else None

    def decode(
        self, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None
    ) -> ChatResponse:
        """A whole body as a response.

        Raises:
            DecodeError: it is none of this format.
            ProviderError: it is an error that came under a status of success, as gateways send
                them.
        """
        if (error := self.failed(body)) is not None:
            raise error_of(200, headers or {}, error, ctx=ctx)
        if (problem := self.faulty(body, True)) is not None:
            raise DecodeError(problem, provider=ctx.provider, body=shortened(repr(body)))
        fold = Fold(ctx, self, keep=True)
        header_parts = self.headers(headers or {}) if self.headers is not None else ()
        for part in chain(header_parts, fold.read(body)):
            fold.add(part)
        return fold.response(headers)

    def is_spoken(self, data: Any) -> bool | None:
        """Return whether an event or a body has the format's shape, whatever it says.

        None where it is empty.
        """
        if data == DONE or is_empty(data):
            return None
        for entry in data if isinstance(data, list) else (data,):
            if not isinstance(entry, Mapping):
                return False
            event_type = text(entry.get("type")) or text(entry.get("event_type"))
            if event_type and self.kinds:
                return re.fullmatch(self.kinds, event_type) is not None
            roots = {_steps(path)[0][0] for path in (*self.needs, *self.objects)}
            has_object_type = text(entry.get("object")).startswith(
                ("chat.completion", "text_completion", "response")
            )
            if not has_object_type and roots.isdisjoint(entry):
                return False
            return all(_are_objects(dict(entry), _steps(path)) for path in self.objects)
        return None


# --- What a body or an event is where it is no answer: not an object at all, or an error ---


def error_without(*members: str) -> Callable[[Any], Any]:
    """Finds the error that a body or an event has in the place of an answer.

    Beside none of these members.
    """

    def failed(data: Any) -> Any:
        is_error = (
            isinstance(data, Mapping)
            and data.get("error")
            and not any(data.get(name) for name in members)
        )
        return data if is_error else None

    return failed


@cache
def _steps(path: str) -> tuple[tuple[str, bool], ...]:
    """The members on a path, each with whether it is a list."""
    return tuple((name.removesuffix("[]"), name.endswith("[]")) for name in path.split("."))


def _are_objects(holder: Any, steps: tuple[tuple[str, bool], ...]) -> bool:
    """Whether objects stand at the end of these steps, or nothing does."""
    name, is_list = steps[0]
    if (value := holder.get(name)) is None:
        return True
    if is_list and not isinstance(value, list):
        return False
    for entry in value if is_list else (value,):
        if not isinstance(entry, dict) or (len(steps) > 1 and not _are_objects(entry, steps[1:])):
            return False
    return True
