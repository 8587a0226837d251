"""LiteLLM: one record for each call of its that nothing below it announces, read from LiteLLM's own answer.

Hosts bind `litellm.completion` early, and LiteLLM itself keeps it in closures, so the names of its modules are no place
to patch. What every way in ends at (sync, async, text completions, the Router, its retries and fallbacks) is the
function that LiteLLM's decorator `client` keeps in a cell of its closure: that cell is filled anew. An answer from
LiteLLM's cache never gets there, and is no provider's call. Where the provider's SDK, or the HTTP client below, is
observed too, its record is the call's. To the latter it is said who answers: LiteLLM knows, wherever it sends to, and
what it hands on hides half of why a model stopped.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context as Variables
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import partial, wraps
from types import ModuleType
from typing import Any, Final
from urllib.parse import urlsplit
from weakref import ref

from endturn import announce
from endturn.calls import Call, Layer
from endturn.instrumentation import streams
from endturn.instrumentation.attempts import Relay
from endturn.instrumentation.hosts import ANY, Home
from endturn.instrumentation.patches import Undoable, fill, put
from endturn.instrumentation.sdk_call import opened
from endturn.instrumentation.wrapping import Begin, wrap
from endturn.stop import Stop, StopReason
from endturn.telemetry import janitor
from endturn.wires import Asked, Context, Seen, Wire, wire
from endturn.wires.framing import parse
from endturn.wires.reading import member

_CELL: Final = "original_function"
"""What the decorator calls the function that it keeps."""

_FOLLOWED: Final = "_endturn_followed"
"""Where a stream of LiteLLM's keeps what follows it."""

DIALECT: Final = "litellm"
"""The chat format's table for what LiteLLM says."""


@dataclass(frozen=True, slots=True)
class Api:
    """A function of LiteLLM's, sync and async.

    Attributes:
        wire: what its answers look like.
        names: the sync function, and the async one, which runs it in a thread.
    """

    wire: str
    names: tuple[str, str]


CHAT: Final = Api("openai_chat", ("completion", "acompletion"))
"""Chat; text completions are made through it, whatever the provider."""

RESPONSES: Final = Api("openai_responses", ("responses", "aresponses"))

NATIVE: Final = ("async_anthropic_messages_handler", "generate_content_handler", "async_generate_content_handler")
"""The methods of its HTTP handler that send what is asked in a provider's own format, sync and async."""

STREAMS: Final = (
    "CustomStreamWrapper",
    "MockResponsesAPIStreamingIterator",
    "ResponsesAPIStreamingIterator",
    "SyncResponsesAPIStreamingIterator",
)
"""The classes of its streams. Those that derive from one and make no call of their own read one that does."""

_streams: set[type] = set()


def patch(api: Api, module: ModuleType, active: Callable[[], bool]) -> Iterator[Undoable]:
    """Watch the functions of an API in the module that defines them."""
    for name in api.names:
        cell = _cell(module.__dict__.get(name))
        if cell is None:
            continue
        original = cell.cell_contents
        names = tuple(inspect.signature(original).parameters)
        yield fill(cell, wrap(original, _Begin(api, names, active)))


def patch_streams(module: ModuleType, active: Callable[[], bool]) -> Iterator[Undoable]:
    """See the streams of a module being read, those that `patch` has marked."""
    for name in STREAMS:
        kind = module.__dict__.get(name)
        if not isinstance(kind, type):
            continue
        _streams.add(kind)
        for method, make in (("__next__", _next), ("__anext__", _anext), ("aclose", _aclose)):
            if method in kind.__dict__:
                yield put(kind, method, make(kind.__dict__[method]))


def patch_native(module: ModuleType, active: Callable[[], bool]) -> Iterator[Undoable]:
    """Say who answers what is asked in a provider's own format. The answer is handed on as it is, and read below."""
    handler = module.__dict__.get("BaseLLMHTTPHandler")
    if not isinstance(handler, type):
        return
    for name in NATIVE:
        original = handler.__dict__.get(name)
        if original is not None:
            names = tuple(inspect.signature(original).parameters)
            yield put(handler, name, wrap(original, _Relayed.begin(names, active)))


def _cell(function: Any) -> Any:
    """The cell that holds the function which a decorated one calls; None where there is none."""
    for _ in range(8):
        code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
        if code is not None and cells and _CELL in code.co_freevars:
            return cells[code.co_freevars.index(_CELL)]
        function = getattr(function, "__wrapped__", None)
    return None


@dataclass(frozen=True, slots=True)
class _Begin:
    """Opens the scope of a call of one API."""

    api: Api
    names: tuple[str, ...]
    active: Callable[[], bool]

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Followed | None:
        if not self.active() or not announce.listening():
            return None
        # Within the async function, which is followed. Not so an async text completion, which has none of its own.
        if kwargs.get(self.api.names[1]) is True and not kwargs.get("text_completion"):
            return None
        given = {**dict(zip(self.names, args, strict=False)), **kwargs} if args else kwargs
        under_way = opened(wire(self.api.wire), given, Home("", DIALECT), layer=Layer.WRAPPER)
        if under_way is None:
            return None
        call = under_way.call
        assert isinstance(call, Call)
        if given.get("text_completion"):
            call.facts["operation"] = "text_completion"
        # What encloses this one (a decorator, LiteLLM itself) has no record to make: this call will have one, here or
        # further below, but perhaps only when its stream has been read.
        outer = call.outer
        while outer is not None and not outer.covered:
            outer.covered = True
            outer = outer.outer
        return _Followed(call, self.api, under_way.wire, given)


class _Relayed:
    """A call in a provider's own format: a `wrapping.Run` that says who answers, and makes no record of its own."""

    def __init__(self, provider: str) -> None:
        self._relay = Relay(lambda: provider)

    @classmethod
    def begin(cls, names: tuple[str, ...], active: Callable[[], bool]) -> Begin:
        """What begins to follow a method whose parameters are called so."""

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Relayed | None:
            if not active() or not announce.listening():
                return None
            provider = {**dict(zip(names, args, strict=False)), **kwargs}.get("custom_llm_provider")
            return cls(_named(provider))

        return begin

    def step(self) -> AbstractContextManager[object]:
        return self._relay.step(nullcontext())

    def yielded(self, item: Any) -> None: ...

    returned = raised = yielded

    def closed(self) -> None: ...


class _Followed:
    """A call of LiteLLM's that is under way: a `wrapping.Run`."""

    def __init__(self, call: Call, api: Api, speaks: Wire, given: Mapping[str, Any]) -> None:
        self.call = call
        self.api = api
        self.speaks = speaks
        self.reading: streams.Reading | None = None
        self.is_mock = any(given.get(name) is not None for name in ("mock_response", "mock_tool_calls"))
        self._logging: Any = given.get("litellm_logging_obj")
        self.relay = Relay(partial(_provider, self._logging))
        # The end is announced where the call began, whichever task or thread sees it: its turn is there.
        self._variables: Variables = copy_context()

    def step(self) -> AbstractContextManager[object]:
        """Make the call current while LiteLLM works on it; a stream's request may be sent as late as its first read."""
        if self.call.covered or self.call.first_chunk_s is not None:
            return nullcontext()
        return self.relay.step(self.call.step())

    def yielded(self, item: Any) -> None:
        """A stream that is a generator gives this."""
        if self.call.covered:
            self.call.ended = True
            return
        if self.reading is None:
            self.call.facts["stream"] = True
            self.reading = streams.begin(self.call, _Passing(self), self._variables)
        self.reading.passed(item)

    def returned(self, result: Any) -> None:
        """What LiteLLM hands to its host, before it does."""
        if self.call.covered:
            self.call.ended = True
            if isinstance(result, tuple(_streams)):
                _mark_below(result, self)
        elif self.reading is not None:
            self.reading.over()
        elif isinstance(result, tuple(_streams)):
            self.call.facts["stream"] = True
            self.reading = streams.begin(self.call, _Passing(self, result), self._variables)
            setattr(result, _FOLLOWED, self)
        else:
            self._end(self._read(result))

    def raised(self, error: BaseException) -> None:
        """LiteLLM raised. What it raises names a full context window and a filter."""
        from endturn import frameworks  # here and below: a host without LiteLLM does not pay for their import

        if self.reading is not None:
            self.reading.broke(error)
        elif isinstance(error, Exception):
            detail = "timeout" if "Timeout" in type(error).__name__ else None
            seen = frameworks.of_exception(error) or Seen(Stop(StopReason.ERROR, detail=detail, incomplete=True))
            self._end(seen, error)
        else:
            self._end(Seen(Stop(StopReason.CANCELLED, incomplete=True)), error)

    def closed(self) -> None:
        """A stream that is a generator was closed or dropped."""
        if self.reading is not None:
            self.reading.closed()
        else:
            self._end(Seen(Stop(StopReason.CANCELLED, incomplete=True)))

    def about(self) -> Context:
        """Who was asked, in the call's facts and for a wire: by the end of a call LiteLLM has found that out."""
        facts, asked = self.call.facts, self.call.asked
        assert isinstance(asked, Asked)
        known = _known(self._logging)
        provider, model = member(known, "custom_llm_provider"), member(known, "model")
        if isinstance(provider, str) and provider:
            facts["provider"] = _named(provider)
            if isinstance(model, str) and model:
                # "anthropic/claude-…" is LiteLLM's way of naming both.
                facts["model"] = asked.model = model.removeprefix(f"{provider}/")
        base = member(member(known, "litellm_params"), "api_base")
        if isinstance(base, str) and "//" in base:
            url = urlsplit(base)
            facts["server_address"], facts["server_port"] = url.hostname, None if url.port == 443 else url.port
        return Context(DIALECT if self.api is CHAT else "", facts["provider"], asked)

    def _read(self, result: Any) -> Seen:
        from endturn import frameworks

        if not hasattr(result, "choices") and not hasattr(result, "output") and not isinstance(result, Mapping):
            return Seen(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE))
        context = self.about()
        if self.api is not CHAT:
            return self.speaks.whole(context, result)
        if member(result, "object") == "text_completion":
            return wire("completions").whole(Context("", context.provider, context.asked), result)
        seen = self.speaks.whole(context, result)
        stop = self._original(context) or frameworks.litellm(result, maximum=context.asked.maximum)
        return replace(seen, stop=stop, reasons=(stop.raw, *seen.reasons[1:]))

    def _original(self, context: Context) -> Stop | None:
        """Why the model stopped by the provider's own body, where LiteLLM keeps it and a wire can read it.

        LiteLLM's word hides some reasons: Anthropic's `pause_turn` is a `stop` to it.
        """
        from endturn.exchange import PROVIDERS

        home = PROVIDERS.get(context.provider)
        body = member(_known(self._logging), "original_response")
        if home is None or self.is_mock or not isinstance(body, str) or not body.startswith("{"):
            return None
        dialect = ANY if home.wire == CHAT.wire else home.dialect  # a gateway may use anybody's words
        try:
            seen = wire(home.wire).whole(Context(dialect, context.provider, context.asked), parse(body.encode()))
        except Exception:  # another format of the same provider's, or not what it sent at all: a host may redact it
            return None
        return None if seen.stop.raw is None else seen.stop

    def _end(self, seen: Seen, error: BaseException | None = None) -> None:
        self.about()
        self._variables.copy().run(streams.end, self.call, seen, error)


class _Passing:
    """A `Sees` of the chunks of one of LiteLLM's streams."""

    def __init__(self, followed: _Followed, stream: Any = None) -> None:
        self._watch = followed.speaks.watch(followed.about())
        self._about = followed.about
        self._is_chat = followed.api is CHAT
        self._is_mock = followed.is_mock
        self._stream = (lambda: None) if stream is None else ref(stream)
        self._last: Any = None

    def see(self, chunk: Any, /) -> None:
        """A chunk passes."""
        self._last = chunk
        self._watch.see(chunk)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen. A stream that lost its end LiteLLM closes with a `stop` of its own: that is not one."""
        self._about()
        if not self._is_chat:
            return self._watch.close(left=left)
        usage = member(getattr(self._last, "_hidden_params", None), "usage")
        if member(usage, "completion_tokens"):
            self._watch.see({"choices": [], "usage": usage})
        seen = self._watch.close(left=left)
        if seen.stop.raw is not None and seen.stop.detail is None:
            # LiteLLM's own word, which may hide the provider's: no chunk has that.
            seen = replace(seen, stop=replace(seen.stop, detail=DIALECT))
        stream = self._stream()
        if self._is_mock or stream is None or _has_reason(stream):
            return seen
        return replace(seen, stop=Stop(StopReason.MISSING, terminal_seen=False, incomplete=True), reasons=(None,))


def _known(logging: Any) -> object:
    """What LiteLLM has found out of a call by now."""
    return getattr(logging, "model_call_details", None)


def _provider(logging: Any) -> str:
    """Who answers a call; "" where LiteLLM has yet to find out."""
    return _named(member(_known(logging), "custom_llm_provider"))


def _named(provider: object) -> str:
    """The conventions' name of a provider, by LiteLLM's."""
    from endturn.frameworks.rows import named

    return named(provider) if isinstance(provider, str) else ""


def _has_reason(stream: Any) -> bool:
    """Whether a reason has arrived in a stream, as far as LiteLLM lets one know."""
    places = (getattr(stream, name, "") for name in ("received_finish_reason", "intermittent_finish_reason"))
    return any(said is not None for said in places)


class _Below:
    """A body that is seen below. A stream of LiteLLM's ends when it has what it wants, and others may keep the body."""

    def __init__(self, body: streams.Reading) -> None:
        self._body = body
        self.over = self.closed = body.closed
        self.broke = body.broke

    def __del__(self) -> None:
        # Its host let go of the stream: a destructor leaves a note, as a reading's own does.
        if not self._body.call.ended and not sys.is_finalizing():
            janitor.later(partial(self._body.closed, streams.ABANDONED))

    @property
    def reading(self) -> _Below:
        """What is told how the stream is read."""
        return self

    def step(self) -> AbstractContextManager[object]:
        """The call is announced: nothing needs to know of it."""
        return nullcontext()

    def passed(self, item: Any) -> None:
        """The body has passed already."""


def _mark_below(stream: Any, followed: _Followed) -> _Below | None:
    """Have what is below a stream follow it, now that its call has been announced there; None where that is over."""
    followed.call.ended = True
    body = followed.relay.reading()
    if body is None:
        stream.__dict__.pop(_FOLLOWED, None)
        return None
    below = _Below(body)
    setattr(stream, _FOLLOWED, below)
    return below


def _following(stream: Any) -> tuple[_Followed | _Below, streams.Reading | _Below] | tuple[None, None]:
    """What follows a stream, and what is told how it is read."""
    followed: _Followed | _Below | None = stream.__dict__.get(_FOLLOWED)
    if isinstance(followed, _Followed) and followed.call.covered:
        followed = _mark_below(stream, followed)
    reading = None if followed is None else followed.reading
    return (None, None) if followed is None or reading is None else (followed, reading)


def _next(original: Any) -> Any:
    @wraps(original)
    def __next__(self: Any) -> Any:
        followed, reading = _following(self)
        if followed is None or reading is None:
            return original(self)
        try:
            with followed.step():
                item = original(self)
        except StopIteration:
            reading.over()
            raise
        except BaseException as error:
            reading.broke(error)
            raise
        _, reading = _following(self)  # perhaps it was sent, and announced below, just now
        if reading is not None:
            reading.passed(item)
        return item

    return __next__


def _anext(original: Any) -> Any:
    @wraps(original)
    async def __anext__(self: Any) -> Any:
        followed, reading = _following(self)
        if followed is None or reading is None:
            return await original(self)
        try:
            with followed.step():
                item = await original(self)
        except StopAsyncIteration:
            reading.over()
            raise
        except BaseException as error:
            reading.broke(error)
            raise
        _, reading = _following(self)  # perhaps it was sent, and announced below, just now
        if reading is not None:
            reading.passed(item)
        return item

    return __anext__


def _aclose(original: Any) -> Any:
    @wraps(original)
    async def aclose(self: Any) -> Any:
        _, reading = _following(self)
        if reading is not None:
            reading.closed()
        return await original(self)

    return aclose
