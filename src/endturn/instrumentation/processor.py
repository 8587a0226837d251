"""A span processor that reads what other instrumentations' spans tell of model calls and of agents' turns.

Where a call is announced by itself (its SDK is patched, a controller makes it), the span that is already made of it is
enriched and none made beside it. Of every other call its span alone tells: it is read when it ends, and announced, so
that metrics and events come as from a call that was watched. An agent's span is a turn.

When a span ends it can no longer be written to: the SDK's `_on_ending` is called after it has been closed (1.40 to
1.45). So the `end` of the spans that are recognised is wrapped, on the span itself. Spans that cannot be wrapped, and
those that say only later what they are of, are read in `on_end`: metrics and events flow, attributes do not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.trace import NonRecordingSpan, StatusCode

from endturn import announce
from endturn.announce import swallow
from endturn.calls import Call, Layer
from endturn.instrumentation import http_exchange, sequence
from endturn.records import Record, TurnOutcome
from endturn.telemetry import attributes, enclosing, foreign, schema
from endturn.telemetry.enclosing import Foreign, attributes_of
from endturn.telemetry.foreign import Role
from endturn.telemetry.otel_providers import Options
from endturn.telemetry.recorder import Recorder
from endturn.turns import declared_turn, find_turns_with

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.sdk.trace import ReadableSpan, Span
    from opentelemetry.trace import TracerProvider


class AdoptingSpanProcessor(SpanProcessor):
    """Turns the spans of other instrumentations into stop reasons, turns and truncations; enriches them with these.

    Add it to a tracer provider where another instrumentation watches the model calls:
    `provider.add_span_processor(endturn.AdoptingSpanProcessor())`. `endturn.instrument()` does so itself. Without that,
    it records by itself what it is told of.

    Args:
        tracer_provider, meter_provider, logger_provider: where signals go; the global ones where not given. Only used
            until `endturn.instrument()` is called.
        options: the fields of `endturn.telemetry.otel_providers.Options`, e.g. `events`.

    Raises:
        TypeError: an option is not known.
        UsageError: an option's value cannot be used.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
        **options: Any,
    ) -> None:
        recorder = Recorder(tracer_provider, meter_provider, logger_provider, options=Options(**options))
        self._alone: _Alone | None = _Alone(recorder)
        self._start(announce.listen(self._alone))

    @classmethod
    def _beside(cls) -> AdoptingSpanProcessor:
        """One that leaves the recording to `instrument`."""
        made = cls.__new__(cls)
        made._alone = None
        made._start(None)
        return made

    def _start(self, stop_listening: Callable[[], None] | None) -> None:
        self._stop_listening = stop_listening
        self._active = False
        self._resume()

    def _resume(self) -> None:
        if not self._active:
            self._active = True
            _active.add(self)
            find_turns_with(enclosing.turn_here)
            announce.listen(enclosing.hearing)

    def _stop(self) -> None:
        """Take no more notice of spans. A provider does not let go of its processors."""
        self._active = False
        _active.discard(self)
        if not _active:
            sequence.close_all()
            enclosing.close_all()
            find_turns_with(None)

    # --- opentelemetry.sdk.trace.SpanProcessor ---

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """A span begins: look whether it is of a model call, a tool or an agent's run."""
        if not self._active:
            return
        try:
            made_by = span.instrumentation_scope
            scope = "" if made_by is None else made_by.name
            role = None if scope == schema.SCOPE else foreign.role_of(scope, span.name, attributes_of(span))
            if role is None and enclosing.is_idle():
                return
            one = enclosing.began(span, role)
            if one is None:
                return
            if role is Role.TOOL:
                sequence.interrupted(one.parent, one.around)
            else:
                self._wrap_end(span, one)
        except Exception:
            swallow("looking at a span")

    def _on_ending(self, span: Span) -> None:
        """The SDK's own hook: by then the span is closed."""

    def on_end(self, span: ReadableSpan) -> None:
        """A span has ended. One that could not be read before is read now."""
        if not self._active:
            return
        try:
            made_by, context = span.instrumentation_scope, span.context
            if context is None:
                return
            one = None if enclosing.is_idle() else enclosing.ended(context.span_id)
            sequence.left(context.span_id)
            scope = "" if made_by is None else made_by.name
            if one is None and scope != schema.SCOPE:
                one = self._recognised_late(span, scope)
            if one is not None and not one.over:
                self._ending(_Closed(span), one)
        except Exception:
            swallow("looking at a span")

    def shutdown(self) -> None:
        """End the turns that are open. Nothing is noticed afterwards."""
        try:
            self._stop()
            if self._stop_listening is not None:
                self._stop_listening()
        except Exception:
            swallow("ending turns")

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True

    # --- within ---

    def _wrap_end(self, span: Span, one: Foreign) -> None:
        """Have the span read while it can still be written to."""
        kind = type(span)

        def end(*args: Any, **kwargs: Any) -> None:
            # The span and this function hold each other, like a method and its object would: `start_span(…).end()`.
            if vars(span).get("end") is end:
                del span.end
            if self._active and not one.over and span.is_recording():
                try:
                    self._ending(span, one)
                except Exception:
                    swallow("reading a span")
            kind.end(span, *args, **kwargs)

        try:
            span.end = end  # type: ignore[method-assign]  # of this span alone
        except AttributeError:
            return  # a span with slots is read when it has ended

    def _recognised_late(self, span: ReadableSpan, scope: str) -> Foreign | None:
        """A span of a call that did not say so when it began; None if it is none."""
        if foreign.role_of(scope, span.name, attributes_of(span)) is not Role.CALL or span.context is None:
            return None
        parent = 0 if span.parent is None else span.parent.span_id
        return Foreign(
            Role.CALL,
            lambda: None,  # type: ignore[arg-type]  # stands for a reference to a span that is gone
            span.context.span_id,
            parent,
            scope,
            span.start_time or 0,
            around=enclosing.agent_of(parent),
            declared=declared_turn(),
        )

    def _ending(self, span: Any, one: Foreign) -> None:
        one.over = one.role is not Role.TURN
        known = attributes_of(span)
        failed = span.status.status_code is StatusCode.ERROR
        match one.role:
            case Role.TURN:
                one.end_turn(_outcome(span))
            case Role.REST:
                self._told_the_rest(span, one, known)
            case Role.CALL if not failed and foreign.is_begun_only(one.scope, known):
                enclosing.begun_only(one)
                self._mark(span)
            case Role.CALL if one.taken:
                if _is_read(one):
                    enclosing.release(span)
                    self._mark(span)
            case Role.CALL if schema.REASON.key in known or schema.COUNTED.key in known:
                pass  # another process's, or another processor's
            case Role.CALL if one.covered or enclosing.was_announced(known, one.started_ns):
                self._mark(span)
            case Role.CALL:
                _announce(span, one, known)
            case _:
                pass

    def _told_the_rest(self, span: Any, one: Foreign, known: Mapping[str, Any]) -> None:
        """A span that tells what came of a stream whose own span ended when it began."""
        begun = enclosing.begun_before(one)
        if begun is not None and begun.taken:
            if begun.ended is not None:
                placed = attributes.chat_placed(begun.ended.started)
                span.set_attributes(placed | attributes.chat_stopped(begun.ended, counted=self._counted()))
        elif begun is not None and begun.covered:
            self._mark(span)
        else:
            if begun is not None:
                one.started_ns, one.outer, one.within = begun.started_ns, begun.outer, begun.within
            _announce(span, one, known)

    def _mark(self, span: Any) -> None:
        """The response that this span tells of is counted under another."""
        if self._counted():
            span.set_attribute(schema.COUNTED.key, True)

    def _counted(self) -> bool:
        from endturn.instrumentation import instrument

        recorder = instrument.recorder()
        if recorder is None and self._alone is not None:
            recorder = self._alone.recorder
        return recorder is not None and recorder.counted()


class _Alone:
    """Records what is announced while `instrument` has not been called."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def __call__(self, record: Record) -> announce.Activation | None:
        return None if self._is_relieved() else self.recorder(record)

    def awake(self) -> bool:
        """Whether anything would come of a record now."""
        return not self._is_relieved() and self.recorder.awake()

    @staticmethod
    def _is_relieved() -> bool:
        from endturn.instrumentation import instrument

        return instrument.recorder() is not None


class _Closed(NonRecordingSpan):
    """A span that has ended: it can be read, and what is written to it is lost."""

    def __init__(self, span: ReadableSpan) -> None:
        assert span.context is not None
        super().__init__(span.context)
        self.name = span.name
        self.attributes = span.attributes
        self.status = span.status
        self.events = span.events
        self.start_time = span.start_time
        self.end_time = span.end_time
        self.instrumentation_scope = span.instrumentation_scope


def _announce(span: Any, one: Foreign, known: Mapping[str, Any]) -> None:
    """Announce a call of which only its span tells."""
    if not announce.listening():
        return
    told = foreign.told(
        one.scope,
        span.name,
        known,
        failed=span.status.status_code is StatusCode.ERROR,
        sound=span.status.status_code is StatusCode.OK,
        said=span.status.description,
        raised=_raised(span),
    )
    now_ns = getattr(span, "end_time", None) or time.time_ns()
    took_s = max(0, now_ns - one.started_ns) / 1e9
    call = Call(
        Layer.SDK,
        one.within,
        {
            "provider": told.provider,
            "model": told.model,
            "operation": told.operation,
            "stream": told.stream,
            "maximum": told.maximum,
            "choices": told.choices,
            "server_address": told.server_address,
            "server_port": told.server_port,
            "adopt": span,
        },
        None,
        one.started_ns,
        time.perf_counter() - took_s,
        placed=sequence.place(one, provider=told.provider, model=told.model),
    )
    call.first_chunk_s = told.first_chunk_s
    ended = call.end(
        told.stop,
        usage=told.usage,
        response_id=told.response_id,
        response_model=told.response_model,
        reasons=told.reasons,
        error=told.error,
    )
    if ended is not None:
        sequence.ended(one, ended, now_ns)


def _is_read(one: Foreign) -> bool:
    """Whether the response of the call is being read on: its span ended when the stream was handed over."""
    return one.call is not None and not one.call.ended and http_exchange.exchange_of(one.call) is not None


def _raised(span: Any) -> str | None:
    """The class of the last exception among a span's events."""
    for event in reversed(span.events or ()):
        raised = (event.attributes or {}).get("exception.type")
        if isinstance(raised, str):
            return raised
    return None


def _outcome(span: Any) -> TurnOutcome:
    """How an agent's turn ended, as `observe_turn` would say it."""
    known = attributes_of(span)
    failed = span.status.status_code is StatusCode.ERROR
    error = known.get(schema.ERROR_TYPE.key) or _raised(span) if failed else None
    if error is not None and foreign.is_stop(str(error)):
        return TurnOutcome.CANCELLED
    return TurnOutcome.PROVIDER_ERROR if failed else TurnOutcome.COMPLETED


_active: WeakSet[AdoptingSpanProcessor] = WeakSet()
_attached: list[tuple[ref[Any], AdoptingSpanProcessor]] = []
"""Providers are compared by identity: not every one can be hashed."""


def attach(provider: Any) -> Callable[[], None]:
    """Have a tracer provider's spans looked at, once however often it is asked for.

    Returns:
        A function that ends it.
    """
    _attached[:] = [(known, made) for known, made in _attached if known() is not None]
    made = next((made for known, made in _attached if known() is provider), None)
    if made is None:
        made = AdoptingSpanProcessor._beside()
        provider.add_span_processor(made)
        _attached.append((ref(provider), made))
    made._resume()
    return made._stop
