"""Did the model end its turn, or was it cut off? The public names, resolved when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from endturn.chat import (
        ChatResponse as ChatResponse,
        Delta as Delta,
        Message as Message,
        Request as Request,
        Tool as Tool,
        ToolCall as ToolCall,
        Usage as Usage,
    )
    from endturn.clients import AsyncClient as AsyncClient, Client as Client
    from endturn.continuation.policy import ContinuationPolicy as ContinuationPolicy
    from endturn.controller import (
        AsyncContinuationController as AsyncContinuationController,
        ContinuationController as ContinuationController,
        TurnResult as TurnResult,
    )
    from endturn.errors import EndturnError as EndturnError, ProviderError as ProviderError, UsageError as UsageError
    from endturn.events import TurnOutcome as TurnOutcome
    from endturn.instrumentation.configure import configure as configure
    from endturn.instrumentation.decorators import (
        observe_provider_call as observe_provider_call,
        observe_turn as observe_turn,
    )
    from endturn.instrumentation.instrument import instrument as instrument, uninstrument as uninstrument
    from endturn.reasons import explain as explain, normalize as normalize
    from endturn.replies import read as read
    from endturn.scripted import ScriptedProvider as ScriptedProvider
    from endturn.stop import Resume as Resume, Stop as Stop, StopReason as StopReason
    from endturn.telemetry.span_processor import AdoptingSpanProcessor as AdoptingSpanProcessor

__version__: Final = "0.1.0"

_HOME: Final = {
    name: module
    for module, names in {
        "chat": ("ChatResponse", "Delta", "Message", "Request", "Tool", "ToolCall", "Usage"),
        "clients": ("AsyncClient", "Client"),
        "continuation.policy": ("ContinuationPolicy",),
        "controller": ("AsyncContinuationController", "ContinuationController", "TurnResult"),
        "errors": ("EndturnError", "ProviderError", "UsageError"),
        "events": ("TurnOutcome",),
        "instrumentation.configure": ("configure",),
        "instrumentation.decorators": ("observe_provider_call", "observe_turn"),
        "instrumentation.instrument": ("instrument", "uninstrument"),
        "reasons": ("explain", "normalize"),
        "replies": ("read",),
        "scripted": ("ScriptedProvider",),
        "stop": ("Resume", "Stop", "StopReason"),
        "telemetry.span_processor": ("AdoptingSpanProcessor",),
    }.items()
    for name in names
}
"""The module in which each public name is."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'endturn' has no attribute {name!r}")
    try:
        found = import_module(f"endturn.{_HOME[name]}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry.sdk"):
            raise
        return _without_sdk(name)
    value = globals()[name] = getattr(found, name)
    return value


def _without_sdk(name: str) -> type:
    """A class that cannot be made: whoever lists or imports all names need not have the SDK, whoever uses it does."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        raise __getattr__("UsageError")(f"{name} needs the OpenTelemetry SDK: pip install 'endturn[otlp]'")

    return type(name, (), {"__init__": refuse, "__module__": __name__})


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
