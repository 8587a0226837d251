"""What is generated from the schema and committed.

Dashboards, rules and their tests, reference documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.generate.config import SITE as SITE, Limits as Limits
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "config": ("Limits", "SITE"),
        },
    )
