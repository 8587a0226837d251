"""The local page: receives OTLP over HTTP, stores it in DuckDB, shows how each turn ended.

Needs `endturn[ui]`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.ui.store import Store as Store
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "store": ("Store",),
        },
    )
