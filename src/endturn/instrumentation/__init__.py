"""Instrumentation of existing agents: SDKs, HTTP clients, decorators, spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.instrumentation._configure import configure as configure
    from endturn.instrumentation._instrument import (
        instrument as instrument,
        uninstrument as uninstrument,
    )
    from endturn.instrumentation.decorators import (
        observe_provider_call as observe_provider_call,
        observe_turn as observe_turn,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "_configure": ("configure",),
            "_instrument": ("instrument", "uninstrument"),
            "decorators": ("observe_provider_call", "observe_turn"),
        },
    )
