"""The command line, `endturn`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.cli._main import main as main
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "_main": ("main",),
        },
    )
