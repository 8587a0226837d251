"""One HTTP request to a model API and its answer, as one call.

Whichever client sends it, however the host reads it.

    exchange = exchange.begin(method, request)                    None for all that asks no model
    with exchange.sending: …                                      its span is current
    exchange.failed(error)                                        no answer came
    exchange.answered(status, headers)                            then the bytes:
    exchange.feed(chunk) …  exchange.end() | exchange.cut(error) | exchange.left()

No method raises what it did not find raised. A destructor records nothing: it leaves that to
`telemetry.cleanup`.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, ref

from opentelemetry import context as contexts

from endturn.calls import (
    Call,
    Layer,
    RequestedCall,
    ResponseFacts,
    inference,
    listeners,
    log_exception,
    log_internal_error,
    open_call,
)
from endturn.errors import DecodeError
from endturn.formats import (
    Attempt,
    Context,
    RequestSummary,
    ResponseSummary,
    looks_random,
    role,
    text,
    text_of,
)
from endturn.instrumentation import background_responses, body
from endturn.instrumentation.addresses import Address, ErrorResponse, Outgoing
from endturn.instrumentation.recognition import Endpoint, endpoint
from endturn.telemetry import (
    AdoptedSpan,
    cleanup,
    comparable,
    endpoints_hash,
    foreign_spans,
    opening_hash,
    repeats_answer,
    results_at_end,
)
from endturn.vocabulary import Stop, StopReason

if TYPE_CHECKING:
    from endturn.formats import Format


SAME_END: Final = 2
"""What `repeats_answer` says of a message that ends as the answer did."""

UNSEEN: Final = ResponseSummary(
    ResponseFacts(stop=Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
)
"""What was seen where no answer came."""

_open: dict[int, ref[Exchange]] = {}
"""By their `id`, those whose response is being read. One that its host drops ends, and is taken
out, later."""
_streams: dict[int, WeakSet[Exchange]] = {}
"""Those of `_open` whose answer is streamed, by the hash of their first message."""


def begin(method: str, request: Outgoing) -> Exchange | None:
    """The exchange of a request that might be one.

    None where it asks no model, or is a part of another.
    """
    where, content, headers = request
    try:
        cleanup.run_jobs()
        if where is None:
            return None
        found = endpoint(method, where)
        if found is None or found.routed.retrieve is not None:
            return _fetch(method, where, found)
        given = body.json_object(content)
        found = found.of(given)
        if not found.is_asked(given):
            return None
        asked = found.asked(given or {})
        adoptable = foreign_spans.span_of_call()
        if not asked.generates or (
            adoptable is None and contexts.get_value("suppress_instrumentation")
        ):
            return None
        asked.attempt = _attempt(headers)
        if _open:
            _end_answered_streams(asked)
        call = open_call(
            Layer.HTTP,
            asked.facts,
            found.facts(),
            # unread, it cannot be told from a request that it is part of
            asked=None if given is None else asked,
            late=adoptable is not None,
        )
        if call is None:
            return None
        context = Context(found.dialect, found.provider, asked)
        said = (
            body.keep_content(call, found.format, given or {}, context)
            if listeners.takes_content()
            else None
        )
        return Exchange(
            found.format, context, found.known, call.step(), call, adoptable=adoptable, said=said
        )
    except Exception:
        log_internal_error("opening a call")
        return None


def _attempt(headers: Any) -> Attempt | None:
    """Read which attempt of an SDK's call a request is.

    `x-stainless-retry-count` counts the attempts before it (SDKs that Stainless generates: openai,
    anthropic, groq and others); AWS's SDKs give all attempts of a call one `amz-sdk-invocation-id`.
    """
    if headers is None or not hasattr(headers, "get"):
        return None
    retries = text(headers.get("x-stainless-retry-count"))
    if retries.isdecimal() and len(retries) < 4:
        return Attempt(retries=int(retries))
    invocation_id = headers.get("amz-sdk-invocation-id")
    if isinstance(invocation_id, bytes):
        invocation_id = invocation_id.decode("latin-1")
    return (
        Attempt(invocation_id=invocation_id)
        if isinstance(invocation_id, str) and invocation_id
        else None
    )


def _end_answered_streams(request: RequestSummary) -> None:
    """End the streams that a request goes on with.

    Their host stopped reading when the reason had come.

    It answers their tool calls, or follows their prompt and what came before they were truncated.
    """
    _end_truncated_streams(request)
    results, _ = results_at_end(request)
    answered = {result.call_id for result in results if result.call_id}
    # The response of a turn that waits for them has ended: it is no open stream's.
    if not answered or all(map(inference().turn_of_tool_call, answered)):
        return
    for exchange in _open_exchanges():
        calls = exchange.requested_calls()
        # Another agent's stream may have calls of the same ids, where a server only counts them.
        if any(call.id in answered and looks_random(call.id, (call.name,)) for call in calls):
            exchange.end(StopReason.CANCELLED, left=True)


def _end_truncated_streams(request: RequestSummary) -> None:
    opening = opening_hash(request) if _streams else None
    for exchange in _listed(_streams.get(opening, ()) if opening is not None else ()):
        before = exchange.context.request
        if (
            before.length >= request.length
            or role(answer := request.history[before.length]) != "assistant"
        ):
            continue
        if endpoints_hash(before, before.length) != endpoints_hash(request, before.length):
            continue
        tail = comparable(exchange.truncated_tail())
        if tail and repeats_answer(comparable(text_of(answer)), tail) == SAME_END:
            exchange.end(StopReason.CANCELLED, left=True)


def _open_exchanges() -> list[Exchange]:
    """List the exchanges whose response is being read."""
    return [exchange for open_ref in [*_open.values()] if (exchange := open_ref()) is not None]


def _listed(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """List the exchanges of a set, whatever other threads begin meanwhile."""
    while True:
        try:
            return list(exchanges)
        except RuntimeError:  # the set changed size
            continue


def _fetch(method: str, where: Address, found: Endpoint | None) -> Exchange | None:
    """Return the exchange that fetches or cancels a background response of this process."""
    if found is None and method == "POST" and where.path.endswith("/cancel"):
        found = endpoint("GET", where._replace(path=where.path.removesuffix("/cancel")))
    if found is None or found.routed.retrieve is None:
        return None
    job = found.format.name, found.routed.retrieve
    begun = background_responses.pending(job)
    if begun is None:
        return None
    format_, context = begun
    context = replace(context, request=context.request.with_facts(stream=bool(found.routed.stream)))
    return Exchange(format_, context, known=True, sending=nullcontext(), job=job)


def close_all() -> None:
    """End every exchange whose answer is still being read.

    The process, or its instrumentation, ends.
    """
    for exchange in _open_exchanges():
        exchange.abandoned()
    background_responses.close_all()


cleanup.at_the_end(close_all)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Exchange:
    """One request and its answer.

    Attributes:
        format: the format; context: what must be known to read the answer.
        known: the host is a provider's.
        sending: the step in which the request is sent: its span is current, and what is sent
            meanwhile is part of it.
        call: None where it is part of another.
        job: the response in the background that this one fetches.
        adoptable: another instrumentation's span around the request. Whether it is of this exchange
            shows when that is answered.
        said: captures what the answer says, where somebody takes it.
        is_over: its end has been seen.
    """

    format: Format
    context: Context
    known: bool
    sending: AbstractContextManager[object]
    call: Call | None = None
    job: background_responses.Key | None = None
    adoptable: AdoptedSpan | None = None
    said: body.CapturedEvents | None = None
    is_over: bool = False
    _answer: body.Answer | None = None
    _is_blind: bool = False
    _is_begun: bool = False
    """Of one that is blind: what came before says that it is a model's response."""
    _opening: int | None = None
    """Its key in `_streams`, where it is there."""
    _over_s: float | None = None
    """When its host let go of it, where that is recorded later."""

    # --- How it is answered -----------------------------------------------------------------------

    def failed(
        self, error: BaseException, response_of: Callable[[BaseException], ErrorResponse | None]
    ) -> None:
        """End the exchange with the exception that the client raised in place of a response.

        Args:
            error: the exception.
            response_of: returns the response that the exception carries; None if it carries none.
        """
        if not isinstance(error, Exception):
            self.cut(error)
            return
        try:
            status, headers, content = response_of(error) or (0, {}, b"")
            if status and self.answered(status, headers, is_read=True):
                self.feed(content)
                self.end(*(body.why_cut(error) if status < 300 else (None, error)))
            else:
                self.end(
                    StopReason.ERROR,
                    error,
                    "timeout" if "Timeout" in type(error).__name__ else None,
                )
        except Exception:
            log_internal_error("reading an error")

    def answered(self, status: int, headers: Mapping[str, str], *, is_read: bool = False) -> bool:
        """An answer has come: its bytes follow, as they travel (but see `comes_unpacked`).

        Args:
            is_read: the library has read it to its end, and unpacked it: all of it follows at once.

        Returns:
            Whether the bytes are wanted.
        """
        try:
            if status < 200 or 300 <= status < 400:
                self._discard()
                return False
            if self.call is not None and self.call.started is None:
                if status < 300 and self.adoptable is not None and not self.adoptable.is_taken:
                    # the first that succeeds within another's span
                    self.call.adopt = self.adoptable
                self.call.announced()
            identity = None if self.call is None else self.call.identity
            self._answer = body.Answer(
                self.format, self.context, status, headers, self.said, identity, is_unpacked=is_read
            )
            if is_read:
                return True
            _open[id(self)] = ref(self)
            if (
                self.context.request.facts.stream
                and (opening := opening_hash(self.context.request)) is not None
            ):
                _streams.setdefault(opening, WeakSet()).add(self)
                self._opening = opening
            return True
        except Exception:
            self.unreadable()
            return False

    def comes_unpacked(self) -> None:
        """The library has unpacked the bytes that follow."""
        if self._answer is not None:
            self._answer.unpacker = None

    # --- Its bytes --------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the answer. The time of a chunk counts also where it cannot be read."""
        if self.is_over:
            return
        answer = self._answer
        try:
            if self.call is not None and self.context.request.facts.stream:
                self.call.chunk()
            if answer is not None and answer.feed(chunk):
                self.end()
        except Exception:
            self._blind(answer)

    def whole(self, found: bytes) -> None:
        """All of an answer that the library has read."""
        self.feed(found)
        self.end()

    def unreadable(self) -> None:
        """The answer's bytes cannot be seen.

        Call it while the exception that says why is being handled.
        """
        self._blind(self._answer)
        self.end()

    def _blind(self, answer: body.Answer | None) -> None:
        """Nothing that follows is looked at.

        That a server sends another format is not our failure.
        """
        self._is_blind, self._answer = True, None
        self._is_begun = answer is not None and answer.is_begun
        if isinstance(sys.exc_info()[1], DecodeError):
            log_exception(
                logging.DEBUG, "endturn: a response of %s could not be read", self.context.provider
            )
        else:
            log_internal_error("reading a response")

    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """List the client tool calls of a stream whose reason has come; none before."""
        answer = self._answer
        if answer is None or self.is_over:
            return ()
        try:
            return answer.requested_calls()
        except Exception:  # what waited to be read
            self._blind(answer)
            return ()

    def truncated_tail(self) -> str:
        """Return the last visible characters of a stream whose stop reason means truncation.

        Returns "" for any other stream.
        """
        answer = self._answer
        if answer is None or self.is_over:
            return ""
        try:
            return answer.truncated_tail()
        except Exception:  # what waited to be read
            self._blind(answer)
            return ""

    # --- Its end ----------------------------------------------------------------------------------

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
            # A host may hold on to a stream that it no longer reads: over with the last bytes that
            # it took.
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
        over_s = self._over_s or time.perf_counter()
        _open.pop(id(self), None)
        if self._opening is not None and (beside := _streams.get(self._opening)) is not None:
            beside.discard(self)
            if not beside:
                _streams.pop(self._opening, None)
        answer, self._answer = self._answer, None
        try:
            seen = UNSEEN
            if answer is not None:
                try:
                    seen = answer.close(left=left)
                except Exception:
                    self._blind(answer)
            if self._is_blind:
                seen, is_models = body.UNREAD, self.known or self._is_begun
            else:
                # Somebody else's API may have the path and the members of a model's.
                is_begun = (
                    self.known or otherwise is not None or (answer is not None and answer.is_begun)
                )
                is_models = is_begun or not body.says_nothing(seen)
            if not is_models:
                self._discard()
                return
            if answer is not None:
                # An answer's bytes tell of an error that nobody raises, and perhaps only now of
                # their end.
                error = answer.error or error
                otherwise = None if answer.done else otherwise
            if otherwise is not None or error is not None:
                seen = body.or_else(seen, otherwise, error, detail)
            if self.job is not None:
                background_responses.fetched(self.job, seen)
            elif self.call is not None and not background_responses.keep(
                self.format, self.context, self.call, seen
            ):
                body.end_call(self.call, seen, error, over_s)
        except Exception:
            log_internal_error("ending a call")

    def _discard(self) -> None:
        """What was announced is no call of a model.

        A redirect, or an answer of somebody else's API.
        """
        self.is_over = True
        call, self.call = self.call, None
        if call is not None:
            call.withdraw()


def _forget() -> None:
    """In a forked child: what its parent reads, its parent ends."""
    for exchange in _open_exchanges():
        exchange.is_over = True
    _open.clear()
    _streams.clear()


cleanup.after_fork(_forget)
