"""For tests: a scripted provider, and the pytest plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.testing.scripted.provider import ScriptedProvider as ScriptedProvider
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__, {"scripted.provider": ("ScriptedProvider",)}
    )
