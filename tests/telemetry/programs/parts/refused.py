"""A set-up that is refused."""

from collections.abc import Callable
from typing import Any

from opentelemetry import trace

import endturn
from endturn.calls import listeners as hooks


def refused(set_up: Callable[..., object] = endturn.configure, **options: Any) -> None:
    """Print why these options are refused; nothing is set up in part."""
    try:
        set_up(**options)
    except endturn.UsageError as error:
        print(error)
    assert type(trace.get_tracer_provider()) is trace.ProxyTracerProvider
    assert not hooks.listening()
