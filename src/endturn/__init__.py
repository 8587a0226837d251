"""Did the model end its turn, or was it cut off? The public names, resolved when first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

__version__: Final = "0.1.0"

_HOME: Final = {
    "AsyncClient": "clients",
    "AsyncContinuationController": "controller",
    "ChatResponse": "chat",
    "Client": "clients",
    "ContinuationController": "controller",
    "ContinuationPolicy": "continuation.policy",
    "Delta": "chat",
    "EndturnError": "errors",
    "Message": "chat",
    "ProviderError": "errors",
    "Request": "chat",
    "Resume": "stop",
    "ScriptedProvider": "scripted",
    "Stop": "stop",
    "StopReason": "stop",
    "Tool": "chat",
    "ToolCall": "chat",
    "TurnOutcome": "announce",
    "TurnResult": "controller",
    "Usage": "chat",
    "configure": "telemetry.setup",
    "instrument": "telemetry.instrument",
    "normalize": "stop",
    "observe_provider_call": "telemetry.observe",
    "observe_turn": "telemetry.observe",
    "uninstrument": "telemetry.instrument",
}

__all__ = sorted(["__version__", *_HOME])


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'endturn' has no attribute {name!r}")
    value = getattr(import_module(f"endturn.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
