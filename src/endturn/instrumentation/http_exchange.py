"""One HTTP request to a model API and its answer, as one call: whichever client sends it, however the host reads it.

    exchange = http_exchange.begin(method, path, host=…, port=…, content=…)     None for all that asks no model
    with exchange.sending(): …                                                  its span is current
    exchange.failed(error)                                                      no answer came
    exchange.answered(status, headers)                                          then the bytes:
    exchange.see(chunk) …  exchange.ended() | exchange.cut(error) | exchange.left()

No method raises what it did not find raised. A destructor records nothing: it leaves that to `telemetry.cleanup`.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from opentelemetry import context as contexts

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Call, Layer, open_call
from endturn.errors import DecodeError
from endturn.instrumentation import background_responses, http_clients
from endturn.instrumentation.body import (
    Answer,
    ErrorAnswer,
    PackedAnswer,
    StreamedAnswer,
    UnpackWhole,
    WholeAnswer,
    framing_of,
    json_object,
)
from endturn.instrumentation.recognition import Endpoint, endpoint, is_asked, may_ask_a_model
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup, foreign_spans
from endturn.telemetry.foreign_spans import AdoptedSpan
from endturn.wires import Context, Seen, Wire

if TYPE_CHECKING:
    from endturn.instrumentation.content_capture import ContentCapture

log = logging.getLogger("endturn")

OPERATIONS: Final = {"gemini": "generate_content", "completions": "text_completion"}
"""The conventions' operation of a format's calls, where it is not `chat`."""

UNREADABLE: Final = "unreadable"
"""The detail of a response that endturn could not read."""

ABANDONED: Final = "abandoned"
"""The detail of a response that its host dropped without closing it."""

_sending: ContextVar[Sending | None] = ContextVar("endturn_sending", default=None)
_open: WeakSet[Exchange] = WeakSet()


def may_begin(method: str, path: str) -> bool:
    """Whether `begin` might give an exchange: what is asked of every request before anything else is read of it."""
    return may_ask_a_model(method, path) or (method == "GET" and background_responses.are_pending())


def begin(method: str, path: str, *, host: str, port: int | None, content: object) -> Exchange | None:
    """The exchange of a request that is about to be sent; None where it asks no model, or is a part of another.

    Args:
        path: as it is sent, with its query.
        port: None for the scheme's own.
        content: the request's body: bytes, text, or what becomes its JSON; anything else is not in memory.
    """
    try:
        if not http_clients.are_observed() or not announce.listening():
            return None
        around = _sending.get()
        if around is not None and around.includes(content):
            return None
        cleanup.run()
        found = endpoint(method, host, port, path)
        if found is None or found.routed.retrieve is not None:
            return _fetch(method, path, found)
        body = json_object(content)
        if not is_asked(found, body):
            return None
        return _begun(found, body or {}, host, port, content)
    except Exception:
        swallow("opening a call")
        return None


def _begun(found: Endpoint, body: Mapping[str, Any], host: str, port: int | None, content: object) -> Exchange | None:
    speaks, routed = found.wire, found.routed
    if routed.model is not None:
        body = {"model": routed.model, **body}
    asked = speaks.inspect(body)
    if not asked.generates:
        return None
    if routed.stream is not None:
        asked.stream = routed.stream
    elif speaks.NAME == "ollama":
        asked.stream = body.get("stream") is not False  # the API streams where it is not said
    if routed.model:
        asked.model = routed.model
    facts = {
        "provider": found.provider,
        "model": asked.model,
        "operation": routed.operation or OPERATIONS.get(speaks.NAME, "chat"),
        "stream": asked.stream,
        "maximum": asked.maximum,
        "choices": asked.choices,
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "seed": asked.seed,
        "server_address": host or None,
        "server_port": port,
    }
    context = Context(found.dialect, found.provider, asked)
    exchange = Exchange(speaks, context, facts, body, content, known=found.known)
    exchange.adoptable = foreign_spans.span_of_call()
    if exchange.adoptable is None and contexts.get_value("suppress_instrumentation"):
        return None
    return exchange if exchange.open() else None


def _fetch(method: str, path: str, found: Endpoint | None) -> Exchange | None:
    """The exchange that fetches, or cancels, a response in the background that this process began."""
    cancelled = found is None and method == "POST" and path.partition("?")[0].endswith("/cancel")
    if cancelled:
        found = endpoint("GET", "", None, path.partition("?")[0].removesuffix("/cancel"))
    if found is None or found.routed.retrieve is None:
        return None
    job = background_responses.pending(found.wire.NAME, found.routed.retrieve)
    if job is None:
        return None
    context = replace(job.context, asked=replace(job.context.asked, stream=bool(found.routed.stream)))
    return Exchange(job.wire, context, {}, {}, None, known=True, job=job)


def close_all() -> None:
    """End every exchange whose answer is still being read: the process, or its instrumentation, ends."""
    for exchange in list(_open):
        exchange.abandoned()
    background_responses.close_all()


cleanup.at_the_end(close_all)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Exchange:
    """One request and its answer.

    Attributes:
        wire: the format; context: what must be known to read the answer.
        facts: what is announced of the request.
        known: the host is a provider's.
        job: the exchange that began the response in the background which this one fetches.
        call: None until it is announced.
        is_over: its end has been seen.
        has_begun: bytes of the answer have passed.
    """

    wire: Wire
    context: Context
    facts: dict[str, Any]
    body: Mapping[str, Any] | None
    content: object
    known: bool
    job: Exchange | None = None
    call: Call | None = None
    is_over: bool = False
    has_begun: bool = False
    adoptable: AdoptedSpan | None = None
    """Another instrumentation's span around the request. Whether it is of this exchange shows when that is answered."""
    _answer: Answer | None = None
    _content: ContentCapture | None = None
    _is_blind: bool = False
    _over_s: float | None = None
    """When its host let go of it, where that is recorded later."""

    # --- The request ---

    def open(self) -> bool:
        """Open the call. False where it is part of one that is open."""
        late = self.adoptable is not None
        self.call = open_call(Layer.HTTP, self.context.asked, late=late, **self.facts)
        self._keep_content()
        return self.call is not None

    def _announce(self, *, is_success: bool) -> None:
        """Announce a call that was opened late: the first that succeeds within another's span adopts that."""
        if self.call is not None and self.call.started is None:
            if is_success and self.adoptable is not None and not self.adoptable.is_taken:
                self.call.facts["adopt"] = self.adoptable
            self.call.announced()

    def _keep_content(self) -> None:
        if self.call is not None and announce.takes_content():
            from endturn.instrumentation.content_capture import capture

            self._content = capture(self.call, self.wire, self.body or {}, self.context)
        self.body = None

    def sending(self) -> Sending:
        """Make the call current while its request is sent."""
        content, self.content = self.content, None
        return Sending(self.call, content)

    def failed(
        self,
        error: BaseException,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes = b"",
    ) -> None:
        """No answer came, or one that is an error and was raised as such.

        Args:
            status, headers, content: of the answer, as far as they are known.
        """
        if self.is_over:
            return
        try:
            self._announce(is_success=False)
            if status is not None and status >= 400 and isinstance(error, Exception):
                self._answer = ErrorAnswer(self.wire, self.context, status, headers or {})
                self._answer.see(content)
                self._end(None, error)
            elif not isinstance(error, Exception):
                self._end(StopReason.CANCELLED, error)
            else:
                self._end(StopReason.ERROR, error, "timeout" if "Timeout" in type(error).__name__ else None)
        except Exception:
            swallow("reading an error")

    # --- The answer ---

    def answered(self, status: int, headers: Mapping[str, str], *, unpack_whole: UnpackWhole | None = None) -> bool:
        """An answer has come: its bytes follow, as they travel (but see `comes_unpacked`).

        Args:
            unpack_whole: what else the library can unpack than gzip and deflate.

        Returns:
            Whether the bytes are wanted.
        """
        if self.is_over:
            return False
        try:
            if status < 200 or 300 <= status < 400:
                self._discard()
                return False
            is_success = status < 300
            self._announce(is_success=is_success)
            if is_success:
                framing = framing_of(headers.get("content-type") or "", self.wire, self.context)
                watch = self.wire.watch(self.context)
                if self._content is not None:
                    watch = self._content.beside(watch)
                answer: Answer = StreamedAnswer(watch, framing) if framing else WholeAnswer(watch, headers)
            else:
                answer = ErrorAnswer(self.wire, self.context, status, headers)
            encoding = (headers.get("content-encoding") or "").strip().lower()
            if encoding not in ("", "identity"):
                answer = PackedAnswer(answer, encoding, unpack_whole)
            self._answer = answer
            _open.add(self)
            return True
        except Exception:
            self.unreadable()
            return False

    def comes_unpacked(self) -> None:
        """The library has unpacked the bytes that follow."""
        if isinstance(self._answer, PackedAnswer) and not self.has_begun:
            self._answer = self._answer.inner

    def unreadable(self) -> None:
        """The answer's bytes cannot be seen; call it while the exception that says why is being handled."""
        self._blind()
        self._end(None, None)

    def see(self, chunk: bytes) -> None:
        """The next bytes of the answer."""
        if self.is_over or self._is_blind or self._answer is None:
            return
        try:
            if not self.has_begun:
                self.has_begun = True
                if self.call is not None and self.context.asked.stream:
                    self.call.first_chunk()
            self._answer.see(chunk)
            if self._answer.done:
                self.ended()
        except Exception:
            self._blind()

    def ended(self) -> None:
        """The answer has been read to its end. Whether it was whole is what its bytes say."""
        self._end(None, None)

    def cut(self, error: BaseException) -> None:
        """Reading raised: the connection was lost, or the host was cancelled."""
        if not isinstance(error, Exception):
            self._end(StopReason.CANCELLED, error, left=True)
            return
        name = type(error).__name__
        self._end(StopReason.MISSING, error, "timeout" if "Timeout" in name else name)

    def left(self) -> None:
        """Its host has stopped reading. A response whose reason had already come keeps it."""
        if self.is_over:
            return
        if isinstance(sys.exc_info()[1], GeneratorExit):
            # A generator that closes the body may have been dropped: this is a destructor then.
            self._note()
        else:
            self._leave(None)

    def abandoned(self) -> None:
        """Its host has dropped the answer, or never read it to its end."""
        if not self.is_over:
            self._leave(ABANDONED)

    def _leave(self, detail: str | None) -> None:
        if isinstance(self._answer, PackedAnswer):
            try:
                self._answer.unpack()
            except Exception:
                self._blind()
            if not self._is_blind and self._answer.done:
                self.ended()
        self._end(StopReason.CANCELLED, None, detail, left=True)

    def __del__(self) -> None:
        # A destructor may run inside anybody's locked region.
        if not self.is_over and (self.call is not None or self.job is not None) and not sys.is_finalizing():
            self._note()

    def _note(self) -> None:
        """Have the end recorded elsewhere: here nothing may be."""
        self._over_s = time.perf_counter()
        cleanup.later(self.abandoned)

    # --- Its end ---

    def _blind(self) -> None:
        """Nothing that follows is looked at. That a server sends another format is not our failure."""
        self._is_blind = True
        if isinstance(sys.exc_info()[1], DecodeError):
            log.debug("endturn: a response of %s could not be read", self.facts.get("provider"), exc_info=True)
        else:
            swallow("reading a response")

    def _end(
        self,
        otherwise: StopReason | None,
        error: BaseException | None,
        detail: str | None = None,
        *,
        left: bool = False,
    ) -> None:
        """End the call: as the answer says, `otherwise` where it does not. `left`: it was not read to its end."""
        if self.is_over:
            return
        self.is_over = True
        _open.discard(self)
        try:
            seen = self._seen(left=left)
            if seen is None:
                if not self.known:
                    self._discard()
                    return
                seen = Seen(Stop(StopReason.UNKNOWN, detail=UNREADABLE))
            if error is None and self._answer is not None:
                # An answer's bytes tell of an error that nobody raises.
                error = self._answer.error
            stop = seen.stop
            if stop.reason is StopReason.MISSING and otherwise is not None:
                stop = replace(stop, reason=otherwise, detail=detail, incomplete=True)
            elif error is not None and stop.detail is None:
                # The first terminal wins: an error that came after it is a detail.
                stop = replace(stop, detail=detail)
            self._told(replace(seen, stop=stop), error)
        except Exception:
            swallow("ending a call")
        finally:
            self._answer = None

    def _seen(self, *, left: bool) -> Seen | None:
        """What the answer's bytes say; None where they are not of the format."""
        if self._is_blind:
            return None
        if self._answer is None:
            return Seen(Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
        try:
            return self._answer.close(left=left)
        except Exception:
            self._blind()
            return None

    def _told(self, seen: Seen, error: BaseException | None) -> None:
        job = self.job
        if job is not None:
            background_responses.fetched(job, seen)
        elif self.call is not None and not background_responses.keep(self, seen):
            end_call(self.call, seen, error, self._over_s)

    def _discard(self) -> None:
        """What was announced is no call of a model: a redirect, or an answer of somebody else's API."""
        self.is_over = True
        call, self.call = self.call, None
        if call is None or call.started is None:
            return
        call.ended = True
        turn = call.started.turn
        turn.iterations -= 1
        turn.open_streams -= call.started.stream


def end_call(call: Call, seen: Seen, error: BaseException | None = None, over_s: float | None = None) -> None:
    """End a call with what was seen of its answer."""
    call.end(
        seen.stop,
        usage=seen.usage,
        response_id=seen.id,
        response_model=seen.model,
        reasons=seen.reasons,
        output_chars=seen.output_chars,
        tail=seen.tail,
        error=error,
        over_s=over_s,
    )
    call.asked = call.outer = None  # a connection may keep the context in which it was opened, and the call with that


class Sending:
    """The step in which a request is sent: its span is current, and what is sent meanwhile is part of it.

    A connection that is opened meanwhile keeps the step's context for as long as it lives: so the step knows nothing of
    its exchange.
    """

    __slots__ = ("_content", "_step", "_token", "_under_way")

    def __init__(self, call: Call | None, content: object) -> None:
        self._content = content
        self._under_way = False
        self._step: AbstractContextManager[None] | None = None
        try:
            self._step = None if call is None else call.step()
        except Exception:
            swallow("making a call current")

    def includes(self, content: object) -> bool:
        """Whether a request that is sent now is part of this one: of a client on which its client stands, a retry.

        Args:
            content: the body; one that is not in memory cannot be told from this one's.
        """
        if not self._under_way or not isinstance(content, str | bytes | Mapping):
            return self._under_way
        mine = self._content
        if isinstance(mine, str) and isinstance(content, bytes):
            mine = mine.encode()
        return not isinstance(mine, type(content)) or mine == content

    def __enter__(self) -> None:
        self._under_way = True
        self._token: Token[Sending | None] = _sending.set(self)
        if self._step is not None:
            self._step.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        step, self._step = self._step, None
        if step is not None:
            step.__exit__(kind, value, trace)
        self._under_way = False
        self._content = None
        try:
            _sending.reset(self._token)
        except ValueError:  # a host that drives one coroutine from several contexts
            log.debug("endturn: a request was sent in another context than it began in")
        del self._token


def _forget() -> None:
    """In a forked child: what its parent reads, its parent ends."""
    for exchange in list(_open):
        exchange.is_over = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
