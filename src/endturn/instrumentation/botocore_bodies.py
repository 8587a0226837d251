"""What botocore and aiobotocore hand on while it still arrives, seen as its host reads it: a stream of events, a body.

The objects stay the SDK's own; methods of theirs are replaced on the instance. Nothing of that refers back to the
object, which would keep itself alive. The bodies of aiobotocore have their class's methods wrapped instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from endturn.instrumentation import http_bytes, streams
from endturn.instrumentation.patches import Patch, put
from endturn.instrumentation.streams import Reading, Sees

if TYPE_CHECKING:
    from endturn.instrumentation.background import Scope


def watch_events(call: Scope, watch: Sees, stream: Any, *, asynchronous: bool) -> None:
    """See an `EventStream` being read: its raw events tell the end, what it makes of each tells the rest."""
    reading = streams.begin(call, watch)
    this, kind = ref(stream), type(stream)

    def parsed(event: Any) -> Any:
        try:
            made = kind._parse_event(this(), event)
        except BaseException as error:
            _broke(reading, error)
            raise
        reading.passed(made)
        return made

    async def aparsed(event: Any) -> Any:
        try:
            made = await kind._parse_event(this(), event)
        except BaseException as error:
            _broke(reading, error)
            raise
        reading.passed(made)
        return made

    def close() -> Any:
        reading.closed()
        now = this()
        return None if now is None else kind.close(now)

    raw = stream._event_generator
    stream._event_generator = _AsyncEvents(raw, reading) if asynchronous else _Events(raw, reading)
    stream._parse_event = aparsed if asynchronous else parsed
    stream.close = close


def _broke(reading: Reading, error: BaseException) -> None:
    """An event is an exception of the provider's. botocore raises it: the watch is shown what it was."""
    answer = getattr(error, "response", None)
    said = answer.get("Error") if isinstance(answer, Mapping) else None
    if isinstance(said, Mapping) and isinstance(said.get("Code"), str):
        reading.passed({said["Code"]: {"message": said.get("Message")}})
    reading.broke(error)


class _Events:
    """A stream's raw events, before they are parsed: their end, and what breaks the connection, is seen here."""

    __slots__ = ("_inner", "_reading")

    def __init__(self, inner: Iterator[Any], reading: Reading) -> None:
        self._inner = inner
        self._reading = reading

    def __iter__(self) -> _Events:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._inner)
        except StopIteration:
            self._reading.over()
            raise
        except BaseException as error:
            self._reading.broke(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _AsyncEvents:
    """`_Events`, of what arrives asynchronously."""

    __slots__ = ("_inner", "_reading")

    def __init__(self, inner: AsyncIterator[Any], reading: Reading) -> None:
        self._inner = inner
        self._reading = reading

    def __aiter__(self) -> _AsyncEvents:
        return self

    async def __anext__(self) -> Any:
        try:
            return await anext(self._inner)
        except StopAsyncIteration:
            self._reading.over()
            raise
        except BaseException as error:
            self._reading.broke(error)
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def watch_body(call: Scope, watch: Sees, body: Any, *, asynchronous: bool) -> None:
    """See a `StreamingBody` while its host reads the bytes; nothing is read that the host does not read."""
    reading = streams.begin(call, http_bytes.Bytes(watch, None))
    passing = _Passing(reading, _length(body))
    if asynchronous:
        setattr(body, _PASSING, passing)
    else:
        # The body reads through its raw response, which `with body as raw` hands on, too.
        _put(body._raw_stream, passing)


def _length(body: Any) -> int | None:
    said = str(getattr(body, "_content_length", None))
    return int(said) if said.isascii() and said.isdigit() else None


class _Passing:
    """A body's bytes as they pass; it is over when all that was announced has, or a reader finds nothing more."""

    __slots__ = ("_depth", "_left", "reading")

    def __init__(self, reading: Reading, length: int | None) -> None:
        self.reading = reading
        self._left = length
        self._depth = 0

    @contextmanager
    def step(self) -> Iterator[None]:
        """One call of a method that reads. One may be made of another: what passes within both is seen once."""
        self._depth += 1
        try:
            yield
        except BaseException as error:
            self.reading.broke(error)
            raise
        finally:
            self._depth -= 1

    def saw(self, chunk: bytes, *, all_of_it: bool = False, wanted: bool = True) -> None:
        """Within a step: what was read; `wanted`, unless no byte was asked for."""
        if self._depth > 1:
            return
        if chunk:
            self.reading.passed(chunk)
            if self._left is not None:
                self._left -= len(chunk)
        if all_of_it or (wanted and not chunk) or self._left == 0:
            self.reading.over()


def _put(raw: Any, passing: _Passing) -> None:
    """Have a raw response (urllib3's, or what a host has put in its place) show what is read of it."""
    this, kind = ref(raw), type(raw)

    def read(amt: int | None = None, *args: Any, **kwargs: Any) -> Any:
        with passing.step():
            chunk = kind.read(this(), amt, *args, **kwargs)
            passing.saw(chunk, all_of_it=amt is None or amt < 0, wanted=amt != 0)
        return chunk

    def read1(amt: int | None = None, *args: Any, **kwargs: Any) -> Any:
        with passing.step():
            chunk = kind.read1(this(), amt, *args, **kwargs)
            passing.saw(chunk, wanted=amt != 0)
        return chunk

    def readinto(buffer: Any) -> Any:
        with passing.step():
            length = kind.readinto(this(), buffer)
            passing.saw(bytes(memoryview(buffer)[:length]), wanted=len(buffer) > 0)
        return length

    def read_chunked(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        chunks = kind.read_chunked(this(), *args, **kwargs)
        while True:
            with passing.step():
                chunk = next(chunks, b"")
                passing.saw(chunk)
            if not chunk:
                return
            yield chunk

    def close() -> Any:
        now = this()
        if now is None:
            return None
        if not getattr(now, "_finalizing", False):  # it is dropped, and this runs in its destructor
            passing.reading.closed()
        return kind.close(now)

    for method in (read, read1, readinto, read_chunked, close):
        if hasattr(kind, method.__name__):
            setattr(raw, method.__name__, method)


_PASSING: Final = "_self_endturn"
"""Where an asynchronous body holds what watches it; on a proxy of wrapt's (aiobotocore 2), such a name stays there."""


def patch(module: ModuleType, active: Callable[[], bool]) -> Iterator[Patch]:
    """Wrap the asynchronous bodies of `aiobotocore.response`: all their ways of reading are made of these methods.

    They are read by `await (…)["body"].read()`: a method on the instance, which cannot hold it, would outlive it.
    """
    wrappers = (("read", _aread), ("readinto", _areadinto), ("close", _closing), ("aclose", _closing))
    for kind in filter(None, (getattr(module, name, None) for name in ("StreamingBody", "HttpxStreamingBody"))):
        for name, wrapper in wrappers:
            if name in kind.__dict__:
                yield put(kind, name, wrapper(kind.__dict__[name]))


def _aread(original: Any) -> Any:
    @wraps(original)
    async def read(self: Any, amt: int | None = None) -> Any:
        passing = getattr(self, _PASSING, None)
        if passing is None:
            return await original(self, amt)
        with passing.step():
            chunk = await original(self, amt)
            passing.saw(chunk, all_of_it=amt is None or amt < 0, wanted=amt != 0)
        return chunk

    return read


def _areadinto(original: Any) -> Any:
    @wraps(original)
    async def readinto(self: Any, b: Any) -> Any:
        passing = getattr(self, _PASSING, None)
        if passing is None:
            return await original(self, b)
        with passing.step():
            length = await original(self, b)
            passing.saw(bytes(memoryview(b)[:length]), wanted=len(b) > 0)
        return length

    return readinto


def _closing(original: Any) -> Any:
    @wraps(original)
    def close(self: Any) -> Any:
        passing = getattr(self, _PASSING, None)
        if passing is not None:
            passing.reading.closed()
        return original(self)

    return close
