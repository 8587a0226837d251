"""Did the model end its turn, or was it cut off? The public names, resolved when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
    from endturn.clients import AsyncClient, Client
    from endturn.continuation.policy import ContinuationPolicy
    from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
    from endturn.errors import EndturnError, ProviderError, UsageError
    from endturn.events import TurnOutcome
    from endturn.instrumentation.configure import configure
    from endturn.instrumentation.decorators import observe_provider_call, observe_turn
    from endturn.instrumentation.instrument import instrument, uninstrument
    from endturn.reasons import explain, normalize
    from endturn.replies import read
    from endturn.scripted import ScriptedProvider
    from endturn.stop import Resume, Stop, StopReason
    from endturn.telemetry.span_processor import AdoptingSpanProcessor

__version__: Final = "0.1.0"

__all__ = [
    "AdoptingSpanProcessor",
    "AsyncClient",
    "AsyncContinuationController",
    "ChatResponse",
    "Client",
    "ContinuationController",
    "ContinuationPolicy",
    "Delta",
    "EndturnError",
    "Message",
    "ProviderError",
    "Request",
    "Resume",
    "ScriptedProvider",
    "Stop",
    "StopReason",
    "Tool",
    "ToolCall",
    "TurnOutcome",
    "TurnResult",
    "Usage",
    "UsageError",
    "configure",
    "explain",
    "instrument",
    "normalize",
    "observe_provider_call",
    "observe_turn",
    "read",
    "uninstrument",
]

_HOME: Final = {
    "chat": ("ChatResponse", "Delta", "Message", "Request", "Tool", "ToolCall", "Usage"),
    "clients": ("AsyncClient", "Client"),
    "continuation.policy": ("ContinuationPolicy",),
    "controller": ("AsyncContinuationController", "ContinuationController", "TurnResult"),
    "errors": ("EndturnError", "ProviderError", "UsageError"),
    "reasons": ("explain", "normalize"),
    "events": ("TurnOutcome",),
    "replies": ("read",),
    "scripted": ("ScriptedProvider",),
    "stop": ("Resume", "Stop", "StopReason"),
    "instrumentation.instrument": ("instrument", "uninstrument"),
    "instrumentation.decorators": ("observe_provider_call", "observe_turn"),
    "instrumentation.configure": ("configure",),
    "telemetry.span_processor": ("AdoptingSpanProcessor",),
}


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            try:
                found = import_module(f"endturn.{module}")
            except ModuleNotFoundError as error:
                if not (error.name or "").startswith("opentelemetry.sdk"):
                    raise
                return _without_sdk(name)
            value = globals()[name] = getattr(found, name)
            return value
    raise AttributeError(f"module 'endturn' has no attribute {name!r}")


def _without_sdk(name: str) -> type:
    """A class that cannot be made: whoever lists or imports all names need not have the SDK, whoever uses it does."""

    def refuse(self: object, *args: object, **kwargs: object) -> None:
        from endturn.errors import UsageError

        raise UsageError(f"{name} needs the OpenTelemetry SDK: pip install 'endturn[otlp]'")

    return type(name, (), {"__init__": refuse, "__module__": __name__})


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
