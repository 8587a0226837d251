"""The HTTP clients whose requests are seen: one method of each is wrapped, as soon as the library is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import wrapt

from endturn.announce import swallow

Wrapper = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
"""Is given the method that is called, its object, and the arguments."""

CLIENTS: Final = {
    "httpx": "http_httpx",
    "httpx2": "http_httpx",
    "urllib3.connectionpool": "http_urllib3",
    "aiohttp.client": "http_aiohttp",
    "urllib.request": "http_stdlib",
}
"""A library's module, and ours that wraps its method: its `patch` gives what takes the wrapping away again."""

_undo: dict[str, list[Callable[[], None]]] = {}
_is_observed: Callable[[], bool] | None = None
_is_hooked = False


def install(is_observed: Callable[[], bool]) -> None:
    """Wrap the methods, of libraries that are imported later too. Requests are seen while `is_observed()` is true."""
    global _is_observed, _is_hooked
    _is_observed = is_observed
    if _is_hooked:
        for name in CLIENTS:
            module = sys.modules.get(name)
            if module is not None:
                _patch(module)
        return
    _is_hooked = True
    for name in CLIENTS:
        wrapt.register_post_import_hook(_patch, name)


def uninstall() -> None:
    """Put the libraries' own methods back."""
    global _is_observed
    _is_observed = None
    for name in list(_undo):
        for undo in reversed(_undo.pop(name)):
            undo()


def are_observed() -> bool:
    """Whether a request that is about to be sent is to be seen."""
    return _is_observed is not None and _is_observed()


def found() -> list[str]:
    """The libraries whose requests are seen."""
    return sorted(_undo)


def _patch(module: ModuleType) -> None:
    name = module.__name__
    if _is_observed is None or name in _undo:
        return
    try:
        _undo[name] = import_module(f"endturn.instrumentation.{CLIENTS[name]}").patch(module)
    except Exception:
        swallow(f"instrumenting {name}")


def wrap(owner: type, name: str, wrapper: Wrapper) -> Callable[[], None]:
    """Wrap a method. Where somebody has wrapped ours since, undoing leaves it inside: it lets calls through."""
    original = owner.__dict__[name]
    ours = wrapt.FunctionWrapper(original, wrapper)
    setattr(owner, name, ours)

    def undo() -> None:
        if owner.__dict__.get(name) is ours:
            setattr(owner, name, original)

    return undo
