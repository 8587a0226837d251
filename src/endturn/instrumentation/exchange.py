"""One HTTP request to a model API and its answer, as one call: whichever client sends it, however the host reads it.

    exchange = exchange.begin(is_observed, method, read)          None for all that asks no model
    with exchange.sending: …                                      its span is current
    exchange.failed(error)                                        no answer came
    exchange.answered(status, headers)                            then the bytes:
    exchange.feed(chunk) …  exchange.end() | exchange.cut(error) | exchange.left()

No method raises what it did not find raised. A destructor records nothing: it leaves that to `telemetry.cleanup`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from opentelemetry import context as contexts

from endturn import hooks
from endturn.errors import DecodeError
from endturn.formats import Context, ResponseSummary
from endturn.hooks import log_internal_error
from endturn.instrumentation import background_responses, body
from endturn.instrumentation.recognition import ENDS, Endpoint, endpoint
from endturn.scopes import Call, Layer, open_call
from endturn.stop import Stop, StopReason
from endturn.telemetry import cleanup, foreign_spans
from endturn.telemetry.foreign_spans import AdoptedSpan

if TYPE_CHECKING:
    from endturn.formats.format import Format

log = logging.getLogger("endturn")

OPERATIONS: Final = {"gemini": "generate_content", "completions": "text_completion"}
"""The conventions' operation of a format's calls, where it is not `chat`."""

_open: WeakSet[Exchange] = WeakSet()


def may_begin(method: str, path: str) -> bool:
    """Whether there might be an exchange, by the end of the path or URL: what is asked of every request first."""
    if method == "POST":
        return path.partition("?")[0].rstrip("/").rpartition("/")[2].rpartition(":")[2] in ENDS
    return method == "GET" and background_responses.are_pending()


def begin(is_observed: Callable[[], bool], method: str, read: Callable[[], tuple[str, object]]) -> Exchange | None:
    """The exchange of a request that `may_begin` one; None where it asks no model, or is a part of another.

    Args:
        is_observed: whether anybody records requests, now that there is one.
        read: gives the request's URL and its body: bytes, text, or what becomes its JSON; anything else is not in
            memory.
    """
    try:
        if not is_observed():
            return None
        url, content = read()
        cleanup.run()
        found = endpoint(method, url)
        if found is None or found.routed.retrieve is not None:
            return _fetch(method, url, found)
        given = body.json_object(content)
        if not found.is_asked(given):
            return None
        asked = found.asked(given or {})
        adoptable = foreign_spans.span_of_call()
        if not asked.generates or (adoptable is None and contexts.get_value("suppress_instrumentation")):
            return None
        call = open_call(
            Layer.HTTP,
            None if given is None else asked,  # what cannot be read cannot be told from a request that it is part of
            late=adoptable is not None,
            provider=found.provider,
            model=asked.model,
            operation=found.routed.operation or OPERATIONS.get(found.format.name, "chat"),
            stream=asked.stream,
            server_address=found.host or None,
            server_port=found.port,
        )
        if call is None:
            return None
        context = Context(found.dialect, found.provider, asked)
        said = body.keep_content(call, found.format, given or {}, context) if hooks.takes_content() else None
        return Exchange(found.format, context, found.known, call.step(), call, adoptable=adoptable, said=said)
    except Exception:
        log_internal_error("opening a call")
        return None


def _fetch(method: str, url: str, found: Endpoint | None) -> Exchange | None:
    """The exchange that fetches, or cancels, a response in the background that this process began."""
    if found is None and method == "POST" and url.endswith("/cancel"):
        found = endpoint("GET", url.removesuffix("/cancel"))
    if found is None or found.routed.retrieve is None:
        return None
    job = found.format.name, found.routed.retrieve
    begun = background_responses.pending(job)
    if begun is None:
        return None
    format_, context = begun
    context = replace(context, asked=replace(context.asked, stream=bool(found.routed.stream)))
    return Exchange(format_, context, known=True, sending=nullcontext(), job=job)


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
        format: the format; context: what must be known to read the answer.
        known: the host is a provider's.
        sending: the step in which the request is sent: its span is current, and what is sent meanwhile is part of it.
        call: None where it is part of another.
        job: the response in the background that this one fetches.
        adoptable: another instrumentation's span around the request. Whether it is of this exchange shows when that is
            answered.
        said: keeps what the answer says, where somebody takes it.
        is_over: its end has been seen.
    """

    format: Format
    context: Context
    known: bool
    sending: AbstractContextManager[object]
    call: Call | None = None
    job: background_responses.Key | None = None
    adoptable: AdoptedSpan | None = None
    said: list[Any] | None = None
    is_over: bool = False
    _answer: body.Answer | None = None
    _is_blind: bool = False
    _over_s: float | None = None
    """When its host let go of it, where that is recorded later."""

    # --- How it is answered ------------------------------------------------------------------------------------------

    def failed(self, error: BaseException, told: Callable[[BaseException], tuple[Any, ...]]) -> None:
        """No answer came, or one that is an error and was raised as such.

        Args:
            told: what the exception says of an answer: nothing, or its status, headers and body.
        """
        if not isinstance(error, Exception):
            self.cut(error)
            return
        try:
            status, headers, content = told(error) or (0, {}, b"")
            if status and self.answered(status, headers):
                self.comes_unpacked()
                self.feed(content)
                self.end(*(body.why_cut(error) if status < 300 else (None, error)))
            else:
                self.end(StopReason.ERROR, error, "timeout" if "Timeout" in type(error).__name__ else None)
        except Exception:
            log_internal_error("reading an error")

    def answered(self, status: int, headers: Mapping[str, str]) -> bool:
        """An answer has come: its bytes follow, as they travel (but see `comes_unpacked`).

        Returns:
            Whether the bytes are wanted.
        """
        try:
            if status < 200 or 300 <= status < 400:
                self._discard()
                return False
            if self.call is not None and self.call.started is None:
                if status < 300 and self.adoptable is not None and not self.adoptable.is_taken:
                    self.call.facts["adopt"] = self.adoptable  # the first that succeeds within another's span
                self.call.announced()
            self._answer = body.Answer(self.format, self.context, status, headers, self.said)
            _open.add(self)
            return True
        except Exception:
            self.unreadable()
            return False

    def comes_unpacked(self) -> None:
        """The library has unpacked the bytes that follow."""
        if self._answer is not None:
            self._answer.unpacker = None

    # --- Its bytes ---------------------------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the answer."""
        answer = self._answer
        if answer is None:
            return
        try:
            if self.call is not None and self.context.asked.stream:
                self.call.chunk()
            if answer.feed(chunk):
                self.end()
        except Exception:
            self._blind()

    def whole(self, found: bytes) -> None:
        """The library has read the answer to its end, and unpacked it."""
        self.comes_unpacked()
        self.feed(found)
        self.end()

    def unreadable(self) -> None:
        """The answer's bytes cannot be seen; call it while the exception that says why is being handled."""
        self._blind()
        self.end()

    def _blind(self) -> None:
        """Nothing that follows is looked at. That a server sends another format is not our failure."""
        self._is_blind, self._answer = True, None
        if isinstance(sys.exc_info()[1], DecodeError):
            log.debug("endturn: a response of %s could not be read", self.context.provider, exc_info=True)
        else:
            log_internal_error("reading a response")

    # --- Its end -----------------------------------------------------------------------------------------------------

    def cut(self, error: BaseException) -> None:
        """Reading raised: the connection was lost, or the host was cancelled."""
        if isinstance(error, GeneratorExit):
            self._dropped()  # a coroutine that was dropped: this may be a destructor
            return
        self.end(*body.why_cut(error), left=not isinstance(error, Exception))

    def left(self) -> None:
        """Its host has stopped reading. A response whose reason had already come keeps it."""
        if isinstance(sys.exc_info()[1], GeneratorExit):
            # A generator that closes the body may have been dropped: this is a destructor then.
            self._dropped()
        else:
            self.end(StopReason.CANCELLED, left=True)

    def abandoned(self) -> None:
        """Its host has dropped the answer, or never read it to its end."""
        self.end(StopReason.CANCELLED, detail=body.ABANDONED, left=True)

    def _dropped(self) -> None:
        """Have the end recorded elsewhere: a destructor may run inside anybody's locked region."""
        if not self.is_over and not sys.is_finalizing():
            # A host may hold on to a stream that it no longer reads: over with the last bytes that it took.
            self._over_s = (self.call is not None and self.call.last_chunk_s) or time.perf_counter()
            cleanup.later(self.abandoned)

    __del__ = _dropped

    def end(
        self,
        otherwise: StopReason | None = None,
        error: BaseException | None = None,
        detail: str | None = None,
        *,
        left: bool = False,
    ) -> None:
        """The answer has been read to its end. Whether it was whole is what its bytes say.

        Args:
            otherwise: how it ended where they do not say.
            left: it was not read to its end.
        """
        if self.is_over:
            return
        self.is_over = True
        _open.discard(self)
        answer, self._answer = self._answer, None
        try:
            seen = ResponseSummary(Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
            if answer is not None:
                try:
                    seen = answer.close(left=left)
                except Exception:
                    self._blind()
            if self._is_blind:
                seen, is_models = body.UNREAD, self.known
            else:
                # Somebody else's API may have the path and the members of a model's.
                is_begun = answer is not None and answer.is_begun
                is_models = self.known or is_begun or otherwise is not None or not body.says_nothing(seen)
            if not is_models:
                self._discard()
                return
            if answer is not None:
                # An answer's bytes tell of an error that nobody raises, and perhaps only now of their end.
                error = answer.error or error
                otherwise = None if answer.done else otherwise
            seen = body.or_else(seen, otherwise, error, detail)
            if self.job is not None:
                background_responses.fetched(self.job, seen)
            elif self.call is not None and not background_responses.keep(self.format, self.context, self.call, seen):
                body.end_call(self.call, seen, error, self._over_s)
        except Exception:
            log_internal_error("ending a call")

    def _discard(self) -> None:
        """What was announced is no call of a model: a redirect, or an answer of somebody else's API."""
        self.is_over = True
        call, self.call = self.call, None
        if call is not None:
            call.withdraw()


def _forget() -> None:
    """In a forked child: what its parent reads, its parent ends."""
    for exchange in list(_open):
        exchange.is_over = True


cleanup.after_fork(_forget)
