"""Did the model end its turn, or was it cut off? The public names, resolved when first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from endturn._version import __version__ as __version__

if TYPE_CHECKING:
    from endturn.calls import TurnOutcome as TurnOutcome
    from endturn.continuation import (
        AsyncContinuationController as AsyncContinuationController,
        ContinuationController as ContinuationController,
        ContinuationPolicy as ContinuationPolicy,
        TurnResult as TurnResult,
    )
    from endturn.errors import (
        EndturnError as EndturnError,
        ProviderError as ProviderError,
        UsageError as UsageError,
    )
    from endturn.formats import read as read
    from endturn.frameworks import explain as explain, normalize as normalize
    from endturn.instrumentation import (
        configure as configure,
        instrument as instrument,
        observe_provider_call as observe_provider_call,
        observe_turn as observe_turn,
        uninstrument as uninstrument,
    )
    from endturn.providers import AsyncClient as AsyncClient, Client as Client
    from endturn.telemetry import AdoptingSpanProcessor as AdoptingSpanProcessor
    from endturn.testing import ScriptedProvider as ScriptedProvider
    from endturn.vocabulary import (
        ChatResponse as ChatResponse,
        Delta as Delta,
        Message as Message,
        Request as Request,
        Resume as Resume,
        Stop as Stop,
        StopReason as StopReason,
        Tool as Tool,
        ToolCall as ToolCall,
        Usage as Usage,
    )

_HOME: Final = {
    name: package
    for package, names in {
        "vocabulary": (
            *("ChatResponse", "Delta", "Message", "Request", "Resume"),
            *("Stop", "StopReason", "Tool", "ToolCall", "Usage"),
        ),
        "providers": ("AsyncClient", "Client"),
        "continuation": (
            *("AsyncContinuationController", "ContinuationController"),
            *("ContinuationPolicy", "TurnResult"),
        ),
        "errors": ("EndturnError", "ProviderError", "UsageError"),
        "calls": ("TurnOutcome",),
        "instrumentation": (
            "configure",
            "instrument",
            "observe_provider_call",
            "observe_turn",
            "uninstrument",
        ),
        "frameworks": ("explain", "normalize"),
        "formats": ("read",),
        "testing": ("ScriptedProvider",),
        "telemetry": ("AdoptingSpanProcessor",),
    }.items()
    for name in names
}
"""The package from which each public name is."""

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'endturn' has no attribute {name!r}")
    try:
        value = getattr(import_module(f"endturn.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry.sdk"):
            raise
        return _without_sdk(name)
    globals()[name] = value
    return value


def _without_sdk(name: str) -> type:
    """Return a class that raises when it is called.

    To list or import all names needs no SDK, to use this one does.
    """

    class NeedsSdk:
        def __init__(self, *args: object, **kwargs: object) -> None:
            raise __getattr__("UsageError")(
                f"{name} needs the OpenTelemetry SDK: pip install 'endturn[otlp]'"
            )

    NeedsSdk.__name__ = NeedsSdk.__qualname__ = name
    return NeedsSdk


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
