"""The tracer provider whose spans are looked at, as soon as there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry import trace

from endturn.announce import swallow
from endturn.instrumentation.patches import put
from endturn.telemetry.outlets import installed


def look_at(given: Any) -> Callable[[], None]:
    """Have the spans of a tracer provider looked at; without one, those of the global one, whenever it is installed.

    Returns:
        A function that ends it.
    """
    undone: list[Callable[[], None]] = []

    def undo() -> None:
        while undone:
            undone.pop()()

    provider = given or trace.get_tracer_provider()
    if given is not None or installed(provider):
        _attach(provider, undone)
    elif hasattr(trace, "_set_tracer_provider"):
        # Every way of installing one goes through this function, of which there is no public form.
        original = trace._set_tracer_provider

        def _set_tracer_provider(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            if undone:
                _attach(trace.get_tracer_provider(), undone)

        undone.append(put(trace, "_set_tracer_provider", _set_tracer_provider).undo)
    return undo


def _attach(provider: Any, undone: list[Callable[[], None]]) -> None:
    if not hasattr(provider, "add_span_processor"):
        return  # of another kind than the SDK's: calls of patched SDKs are announced all the same
    try:
        from endturn.instrumentation import processor

        undone.append(processor.attach(provider))
    except Exception:
        swallow("adding a span processor")
