"""Spans that begin before OpenTelemetry is set up, such as an agent's around its first model call.

Until a provider is installed, OpenTelemetry's API returns tracers that record nothing. Under
`endturn run` providers are installed when the first model call begins, which is after the span of
the agent that makes it. So earlier tracers record to a provider that is not installed, and exports
nothing. If it is installed at the first model call, the spans that are open then, and those that
ended within them, are exported with the rest. If the program installs its own before, that takes
precedence, as if there had been no other; and in a process that calls no model nothing is exported,
and nothing started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from inspect import iscoroutinefunction
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import trace
from opentelemetry.trace import Span, Tracer

from endturn import settings
from endturn.calls import log_internal_error
from endturn.telemetry import cleanup, installed

if TYPE_CHECKING:
    from endturn.instrumentation.early_provider import EarlyProvider

GET_TRACER: Final = "get_tracer"


class EarlySpans:
    """Keeps spans until it is decided whose provider is installed."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.RLock] = {}
        self._is_over = False
        self._is_beginning = False
        self._provider: EarlyProvider | None = None
        self._stand_in: Any = None
        cleanup.register_after_fork(self._locks.clear)

    def start(self) -> None:
        """Make tracers that are requested from now on record.

        Does nothing if a provider is installed.
        """
        stand_in: Any = trace.get_tracer_provider()
        if installed(stand_in.__class__):
            return
        self._stand_in = stand_in
        make_tracer = stand_in.get_tracer

        @wraps(make_tracer)
        def get_tracer(*args: Any, **kwargs: Any) -> Tracer:
            tracer: Tracer = make_tracer(*args, **kwargs)
            return (
                tracer
                if self.is_over
                else EarlyTracer(
                    self, tracer, lambda provider: provider.get_tracer(*args, **kwargs)
                )
            )

        vars(stand_in)[GET_TRACER] = get_tracer  # of this one object, not of its class

    @property
    def is_over(self) -> bool:
        """True if it is decided: a provider is installed, or none will be."""
        if not self._is_over and installed(trace.get_tracer_provider().__class__):
            self.discard()
        return self._is_over

    def provider(self) -> EarlyProvider | None:
        """Return the provider that records the spans, created on the first request.

        None once it is decided which provider is installed.
        """
        if self.is_over:
            return None
        if self._provider is None:
            # Created late: a host's first line may replace threading's locks by green ones.
            lock = self._locks.get("") or self._locks.setdefault("", threading.RLock())
            with lock:
                if self._provider is None and not self._is_beginning:
                    self._is_beginning = True  # its imports may begin spans
                    self._begin()
        return self._provider

    def _begin(self) -> None:
        try:
            with settings.unusable_hidden():
                from endturn.instrumentation import early_provider

                self._provider = early_provider.begin()
        except ImportError:
            pass  # no SDK; the first model call logs that
        except Exception:
            log_internal_error("recording the spans before the first model call")
        if self._provider is None:
            self._end()

    def take(self) -> EarlyProvider | None:
        """Return the provider with the spans of this process, to be installed.

        None if no span has begun.
        """
        provider, self._provider = None if self.is_over else self._provider, None
        self._end()
        return provider

    def discard(self) -> None:
        """Forget the spans: another provider is installed, or nothing is recorded."""
        provider, self._provider = self._provider, None
        self._end()
        if provider is not None:
            provider.discard()

    def _end(self) -> None:
        self._is_over = True
        if self._stand_in is not None:
            vars(self._stand_in).pop(GET_TRACER, None)


class EarlyTracer(Tracer):
    """A tracer of the API's stand-in provider, which records before there is another provider.

    Args:
        api_tracer: the API's own: it records nothing until a provider is installed, and to that one
            from then on.
        tracer_of: returns the same tracer of another provider.
    """

    def __init__(
        self, early: EarlySpans, api_tracer: Tracer, tracer_of: Callable[[Any], Tracer]
    ) -> None:
        self._early = early
        self._api_tracer = api_tracer
        self._tracer_of = tracer_of
        self._recording: Tracer | None = None

    def _tracer(self) -> Tracer:
        early = self._early.provider()
        if early is None:
            self._recording = None
            return self._api_tracer
        if self._recording is None:
            self._recording = self._tracer_of(early.tracers)
        return self._recording

    def start_span(self, *args: Any, **kwargs: Any) -> Span:
        """Start a span of the current tracer."""
        return self._tracer().start_span(*args, **kwargs)

    def start_as_current_span(self, *args: Any, **kwargs: Any) -> Any:
        """Return a context manager, also a decorator, that makes a span current."""
        return _CurrentSpan(lambda: self._tracer().start_as_current_span(*args, **kwargs))


class _CurrentSpan(AbstractContextManager[Span]):
    """A context manager that is created on entry; as a decorator, for each call."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make

    def __enter__(self) -> Span:
        self._context_manager = self._make()
        span: Span = self._context_manager.__enter__()
        return span

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        result: bool | None = self._context_manager.__exit__(kind, value, traceback)
        return result

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if iscoroutinefunction(function):

            @wraps(function)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                with self._make():
                    return await function(*args, **kwargs)

            return run_async

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._make():
                return function(*args, **kwargs)

        return run
