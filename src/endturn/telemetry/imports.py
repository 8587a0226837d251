"""Does something to a module as soon as it has been imported, and imports nothing itself."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from endturn.announce import swallow

Then = Callable[[ModuleType], None]


class OnImport(MetaPathFinder):
    """Runs a function on each of some modules: on those that are imported already now, on others when they are.

    Importing openai costs half a second, which a host that never calls it should not pay: so it waits for the host's
    own import. An import that fails fails as it would have; what we do to the module never makes it fail.
    """

    def __init__(self, modules: Mapping[str, Then]) -> None:
        self._waiting = dict(modules)

    def start(self) -> None:
        """Begin."""
        sys.meta_path.insert(0, self)
        for name in list(self._waiting):
            if name in sys.modules:
                # Not sys.modules[name]: another thread may be in the midst of importing it, and this waits for it.
                self.imported(importlib.import_module(name))

    def stop(self) -> None:
        """No longer wait for what has not been imported yet."""
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def imported(self, module: ModuleType) -> None:
        """A module is there."""
        then = self._waiting.pop(module.__name__, None)
        if then is not None:
            try:
                then(module)
            except Exception:
                swallow(f"instrumenting {module.__name__}")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec as the other finders give it, with a loader that tells us when it has run."""
        if fullname not in self._waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Telling(spec.loader, self)
                return spec
        return None


class _Telling(Loader):
    """A loader that does what another does, and then tells."""

    def __init__(self, loader: Any, finder: OnImport) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # The module is to remember the loader that it would have had.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._finder.imported(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
