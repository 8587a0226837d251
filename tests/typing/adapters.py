"""What an HTTP library's adapter must have: never run, only type-checked, with unused ignores as errors."""

from __future__ import annotations

from typing import Any

from endturn.instrumentation.http_clients import HttpAdapter, wrap


class Misspelt:
    """It reads errors under another name."""

    def target(self, client: Any, *args: Any, **kwargs: Any) -> tuple[str, str]:
        return "GET", "/"


def refused(adapter: HttpAdapter) -> None:
    """mypy refuses an unknown keyword, and an adapter that lacks a method."""
    wrap(object, "send", adapter, told=None)  # type: ignore[call-arg]
    wrap(object, "send", Misspelt())  # type: ignore[arg-type]
