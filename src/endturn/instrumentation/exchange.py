"""One HTTP request to a model API and its response, as one call, for every HTTP client.

    exchange = exchange.begin(method, request)                    None if it calls no model
    with exchange.sending: …                                      its span is current
    exchange.on_error(error)                                      no response arrived
    exchange.on_response(status, headers)                         then the bytes:
    exchange.feed(chunk) …
    exchange.end() | exchange.on_read_error(error) | exchange.on_close()

Methods never raise. A destructor records nothing: it leaves that to `telemetry.cleanup`.
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
    comparable_text,
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
"""The highest rating of `repeats_answer`: a message ends as the answer did."""

NO_RESPONSE: Final = ResponseSummary(
    ResponseFacts(stop=Stop(StopReason.MISSING, terminal_seen=False, incomplete=True))
)
"""The summary if no response arrived."""

_open: dict[int, ref[Exchange]] = {}
"""The exchanges whose response is being read, by their `id`. Weak references: an exchange that its
host drops is removed when its deferred end runs."""
_streams: dict[int, WeakSet[Exchange]] = {}
"""Those of `_open` whose response is streamed, by the hash of their first message."""


def begin(method: str, request: Outgoing) -> Exchange | None:
    """Return the exchange of a request.

    None if the request calls no model, or belongs to a call that is already being recorded.
    """
    address, content, headers = request
    try:
        cleanup.run_jobs()
        if address is None:
            return None
        target = endpoint(method, address)
        if target is None or target.route.retrieve is not None:
            return _begin_fetch(method, address, target)
        request_body = body.json_object(content)
        if target.is_served:
            target = target.with_body_format(request_body)
        if not target.asks_model(request_body):
            return None
        request_summary = target.summarize_request(request_body or {})
        adoptable_span = foreign_spans.adoptable_span()
        if not request_summary.generates or (
            adoptable_span is None and contexts.get_value("suppress_instrumentation")
        ):
            return None
        request_summary.attempt = _attempt(headers)
        if _open:
            _end_answered_streams(request_summary)
        call = open_call(
            Layer.HTTP,
            request_summary.facts,
            target.facts(),
            # A request without a readable body always counts as part of an enclosing call.
            summary=None if request_body is None else request_summary,
            is_deferred=adoptable_span is not None,
        )
        if call is None:
            return None
        context = Context(target.dialect, target.provider, request_summary)
        captured_events = (
            body.capture_content(call, target.format, request_body or {}, context)
            if listeners.takes_content()
            else None
        )
        return Exchange(
            target.format,
            context,
            target.is_known_host,
            call.step(),
            call,
            adoptable_span=adoptable_span,
            captured_events=captured_events,
        )
    except Exception:
        log_internal_error("opening a call")
        return None


def _attempt(headers: Any) -> Attempt | None:
    """Return the attempt of an SDK's call that a request is; None if unknown.

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
    """End the streams that a request continues: their host stopped reading after the stop reason.

    The request has the results of their tool calls, or follows their prompt and truncated text.
    """
    _end_truncated_streams(request)
    results, _ = results_at_end(request)
    answered_ids = {result.call_id for result in results if result.call_id}
    # Results that a turn waits for are those of an ended response, not of an open stream.
    if not answered_ids or all(map(inference().turn_of_tool_call, answered_ids)):
        return
    for exchange in _open_exchanges():
        calls = exchange.requested_calls()
        # Another agent's stream may have calls of the same ids, if a server only counts them.
        if any(call.id in answered_ids and looks_random(call.id, (call.name,)) for call in calls):
            exchange.end(StopReason.CANCELLED, is_abandoned=True)


def _end_truncated_streams(request: RequestSummary) -> None:
    opening = opening_hash(request) if _streams else None
    for exchange in _snapshot_of(_streams.get(opening, ()) if opening is not None else ()):
        open_request = exchange.context.request
        if (
            open_request.length >= request.length
            or role(answer := request.history[open_request.length]) != "assistant"
        ):
            continue
        if endpoints_hash(open_request, open_request.length) != endpoints_hash(
            request, open_request.length
        ):
            continue
        tail = comparable_text(exchange.truncated_tail())
        if tail and repeats_answer(comparable_text(text_of(answer)), tail) == SAME_END:
            exchange.end(StopReason.CANCELLED, is_abandoned=True)


def _open_exchanges() -> list[Exchange]:
    """List the exchanges whose response is being read."""
    return [exchange for open_ref in [*_open.values()] if (exchange := open_ref()) is not None]


def _snapshot_of(exchanges: Iterable[Exchange]) -> list[Exchange]:
    """List the exchanges of a set that other threads may change."""
    while True:
        try:
            return list(exchanges)
        except RuntimeError:  # the set changed size
            continue


def _begin_fetch(method: str, address: Address, target: Endpoint | None) -> Exchange | None:
    """Return the exchange that fetches or cancels a background response of this process."""
    if target is None and method == "POST" and address.path.endswith("/cancel"):
        target = endpoint("GET", address._replace(path=address.path.removesuffix("/cancel")))
    if target is None or target.route.retrieve is None:
        return None
    job = target.format.name, target.route.retrieve
    original = background_responses.pending(job)
    if original is None:
        return None
    format_, context = original
    context = replace(context, request=context.request.with_facts(stream=bool(target.route.stream)))
    return Exchange(format_, context, is_known_host=True, sending=nullcontext(), job=job)


def close_all() -> None:
    """End every exchange whose response is still being read: the process or endturn ends."""
    for exchange in _open_exchanges():
        exchange.abandon()
    background_responses.close_all()


cleanup.register_shutdown(close_all)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Exchange:
    """One request and its response.

    Attributes:
        format: the format of the request and the response.
        context: the context for reading the response.
        is_known_host: the host is a provider's.
        sending: the step in which the request is sent: its span is current, and requests that are
            sent meanwhile are part of it.
        call: None for a fetch.
        job: the background response that this one fetches.
        adoptable_span: another instrumentation's span around the request. It is adopted when the
            first successful response within it arrives.
        captured_events: the captured content, if a listener takes it.
        is_over: the exchange has ended.
    """

    format: Format
    context: Context
    is_known_host: bool
    sending: AbstractContextManager[object]
    call: Call | None = None
    job: background_responses.Key | None = None
    adoptable_span: AdoptedSpan | None = None
    captured_events: body.CapturedEvents | None = None
    is_over: bool = False
    _reader: body.BodyReader | None = None
    _is_unreadable: bool = False
    _is_recognised: bool = False
    """As `BodyReader.is_recognised`, kept from a reader that failed."""
    _opening_hash: int | None = None
    """Its key in `_streams`; None if it is not streamed."""
    _ended_s: float | None = None
    """The time of the last byte, if the host dropped the exchange and its end is deferred."""

    # --- The response -----------------------------------------------------------------------------

    def on_error(
        self, error: BaseException, response_of: Callable[[BaseException], ErrorResponse | None]
    ) -> None:
        """End the exchange with the exception that the client raised in place of a response.

        Args:
            error: the exception.
            response_of: returns the response that the exception carries; None if it carries none.
        """
        if not isinstance(error, Exception):
            self.on_read_error(error)
            return
        try:
            status, headers, content = response_of(error) or (0, {}, b"")
            if status and self.on_response(status, headers, is_read=True):
                self.feed(content)
                self.end(*(body.reason_of_read_error(error) if status < 300 else (None, error)))
            else:
                self.end(
                    StopReason.ERROR,
                    error,
                    "timeout" if "Timeout" in type(error).__name__ else None,
                )
        except Exception:
            log_internal_error("reading an error")

    def on_response(
        self, status: int, headers: Mapping[str, str], *, is_read: bool = False
    ) -> bool:
        """Start reading a response. Its bytes follow, as sent (but see `expect_decompressed`).

        Args:
            is_read: the library has read and decompressed it: all of it follows at once.

        Returns:
            Whether the exchange needs the bytes.
        """
        try:
            if status < 200 or 300 <= status < 400:  # not final, or a redirect
                self._discard()
                return False
            if self.call is not None and self.call.started is None:
                if (
                    status < 300
                    and self.adoptable_span is not None
                    and not self.adoptable_span.is_adopted
                ):
                    # the first one that succeeds within the other instrumentation's span
                    self.call.adopt = self.adoptable_span
                self.call.ensure_started()
            identity = None if self.call is None else self.call.identity
            self._reader = body.BodyReader(
                self.format,
                self.context,
                status,
                headers,
                self.captured_events,
                identity,
                is_unpacked=is_read,
            )
            if is_read:
                return True
            _open[id(self)] = ref(self)
            if (
                self.context.request.facts.stream
                and (opening := opening_hash(self.context.request)) is not None
            ):
                _streams.setdefault(opening, WeakSet()).add(self)
                self._opening_hash = opening
            return True
        except Exception:
            self.end_unreadable()
            return False

    def expect_decompressed(self) -> None:
        """Expect bytes that the library has decompressed."""
        if self._reader is not None:
            self._reader.unpacker = None

    # --- Its bytes --------------------------------------------------------------------------------

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes. A chunk's arrival time is recorded even if parsing it fails."""
        if self.is_over:
            return
        reader = self._reader
        try:
            if self.call is not None and self.context.request.facts.stream:
                self.call.record_chunk()
            if reader is not None and reader.feed(chunk):
                self.end()
        except Exception:
            self._stop_parsing(reader)

    def feed_all(self, content: bytes) -> None:
        """Take a complete response that the library has read."""
        self.feed(content)
        self.end()

    def end_unreadable(self) -> None:
        """End an exchange whose bytes cannot be observed.

        Call it while the causing exception is being handled.
        """
        self._stop_parsing(self._reader)
        self.end()

    def _stop_parsing(self, reader: body.BodyReader | None) -> None:
        """Ignore all further bytes. Another format than expected is no failure of endturn."""
        self._is_unreadable, self._reader = True, None
        self._is_recognised = reader is not None and reader.is_recognised
        if isinstance(sys.exc_info()[1], DecodeError):
            log_exception(
                logging.DEBUG, "endturn: a response of %s could not be read", self.context.provider
            )
        else:
            log_internal_error("reading a response")

    def requested_calls(self) -> tuple[RequestedCall, ...]:
        """List the client tool calls of a stream whose stop reason has arrived; none before."""
        reader = self._reader
        if reader is None or self.is_over:
            return ()
        try:
            return reader.requested_calls()
        except Exception:  # of chunks that waited to be read
            self._stop_parsing(reader)
            return ()

    def truncated_tail(self) -> str:
        """Return the last visible characters of a stream whose stop reason means truncation.

        Returns "" for any other stream.
        """
        reader = self._reader
        if reader is None or self.is_over:
            return ""
        try:
            return reader.truncated_tail()
        except Exception:  # of chunks that waited to be read
            self._stop_parsing(reader)
            return ""

    # --- Its end ----------------------------------------------------------------------------------

    def on_read_error(self, error: BaseException) -> None:
        """End after reading raised: the connection was lost, or the application was cancelled."""
        if isinstance(error, GeneratorExit):
            self._defer_abandon()  # a coroutine that was dropped: this may be a destructor
            return
        self.end(*body.reason_of_read_error(error), is_abandoned=not isinstance(error, Exception))

    def on_close(self) -> None:
        """End because the host stopped reading. A stop reason that has arrived is kept."""
        if isinstance(sys.exc_info()[1], GeneratorExit):
            # A dropped generator may close the body: this is a destructor then.
            self._defer_abandon()
        else:
            self.end(StopReason.CANCELLED, is_abandoned=True)

    def abandon(self) -> None:
        """End because the host dropped the response, or never read it to its end."""
        self.end(StopReason.CANCELLED, detail=body.ABANDONED, is_abandoned=True)

    def _defer_abandon(self) -> None:
        """Record the end later: a destructor may run while any lock is held."""
        if not self.is_over and not sys.is_finalizing():
            # A host may keep a stream that it no longer reads: it ended with the last bytes read.
            self._ended_s = (
                self.call is not None and self.call.last_chunk_s
            ) or time.perf_counter()
            cleanup.defer(self.abandon)

    __del__ = _defer_abandon

    def end(
        self,
        fallback_reason: StopReason | None = None,
        error: BaseException | None = None,
        detail: str | None = None,
        *,
        is_abandoned: bool = False,
    ) -> None:
        """End the exchange. The response's bytes determine whether it was complete.

        Args:
            fallback_reason: the stop reason if the bytes have none.
            is_abandoned: the response was not read to its end.
        """
        if self.is_over:
            return
        self.is_over = True
        ended_s = self._ended_s or time.perf_counter()
        _open.pop(id(self), None)
        if (
            self._opening_hash is not None
            and (siblings := _streams.get(self._opening_hash)) is not None
        ):
            siblings.discard(self)
            if not siblings:
                _streams.pop(self._opening_hash, None)
        reader, self._reader = self._reader, None
        try:
            summary = NO_RESPONSE
            if reader is not None:
                try:
                    summary = reader.close(is_abandoned=is_abandoned)
                except Exception:
                    self._stop_parsing(reader)
            if self._is_unreadable:
                summary, is_model_response = (
                    body.UNPARSED,
                    self.is_known_host or self._is_recognised,
                )
            else:
                # An unknown host may serve another API at the same path.
                is_recognised = (
                    self.is_known_host
                    or fallback_reason is not None
                    or (reader is not None and reader.is_recognised)
                )
                is_model_response = is_recognised or not body.is_empty(summary)
            if not is_model_response:
                self._discard()
                return
            if reader is not None:
                # `close` has parsed the last bytes, which may hold the provider's error.
                error = reader.error or error
                fallback_reason = None if reader.is_done else fallback_reason
            if fallback_reason is not None or error is not None:
                summary = body.with_fallback_reason(summary, fallback_reason, error, detail)
            if self.job is not None:
                background_responses.on_fetched(self.job, summary)
            elif self.call is not None and not background_responses.keep_open(
                self.format, self.context, self.call, summary
            ):
                body.end_call(self.call, summary, error, ended_s)
        except Exception:
            log_internal_error("ending a call")

    def _discard(self) -> None:
        """Cancel the call: the response is a redirect, or one of another API."""
        self.is_over = True
        call, self.call = self.call, None
        if call is not None:
            call.cancel()


def _forget() -> None:
    """In a forked child, forget the exchanges: the parent reads and ends them."""
    for exchange in _open_exchanges():
        exchange.is_over = True
    _open.clear()
    _streams.clear()


cleanup.register_after_fork(_forget)
