"""Does something to a module as soon as it has been imported, and imports nothing itself."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from endturn.announce import swallow

log = logging.getLogger("endturn")

Then = Callable[[ModuleType], None]


class OnImport(MetaPathFinder):
    """Runs a function on each of some modules: on those that are imported already now, on others when they are.

    Importing openai costs half a second, which a host that never calls it should not pay: so it waits for the host's
    own import. An import that fails fails as it would have; what we do to the module never makes it fail. A module
    that is reloaded, or imported anew, has lost what was done to it: it is done again.

    Other finders of this kind (wrapt's post-import hooks) may come before or after: whichever is asked first asks the
    other, and each sees the module once.
    """

    def __init__(self, modules: Mapping[str, Then]) -> None:
        self._then = dict(modules)
        self._told: set[str] = set()
        self._asking = threading.local()

    def start(self) -> None:
        """Begin."""
        sys.meta_path.insert(0, self)
        for name in list(self._then):
            _await_import(name)
            module = sys.modules.get(name)  # None, too, where the host has forbidden the import
            if module is not None and name not in self._told:  # it may have come through this finder by now
                self.imported(module)

    def stop(self) -> None:
        """Look no longer."""
        self._then.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def imported(self, module: ModuleType) -> None:
        """A module is there."""
        then = self._then.get(module.__name__)
        if then is not None:
            self._told.add(module.__name__)
            try:
                then(module)
            except Exception:
                swallow(f"instrumenting {module.__name__}")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec as the other finders give it, with a loader that tells us when it has run."""
        if fullname not in self._then:
            return None
        asking: set[str] = self._asking.__dict__.setdefault("names", set())
        if fullname in asking:  # a finder that we asked asks all finders in turn
            return None
        asking.add(fullname)
        try:
            for finder in list(sys.meta_path):
                if finder is self or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return self._watched(spec)
        finally:
            asking.discard(fullname)
        return None

    def _watched(self, spec: ModuleSpec) -> ModuleSpec:
        loader: Any = spec.loader
        # A namespace package has no code to run; a loader of the old kind (`load_module`) is left to itself. A finder
        # that keeps its specs gives one that is watched already.
        if hasattr(loader, "exec_module") and not (isinstance(loader, _Telling) and loader.finder is self):
            spec.loader = _Telling(loader, self)
        return spec


def _await_import(name: str) -> None:
    """Wait for another thread that is in the midst of importing a module, and may not have asked this finder."""
    try:
        # Python says nowhere else whether an import is under way; the lock of the module's name is free otherwise.
        from importlib._bootstrap import _ModuleLockManager  # type: ignore[attr-defined]

        with _ModuleLockManager(name):
            pass
    except Exception:
        log.debug("endturn: an import of %s could not be waited for", name, exc_info=True)


class _Telling(Loader):
    """A loader that does what another does, and then tells."""

    def __init__(self, loader: Any, finder: OnImport) -> None:
        self._loader = loader
        self.finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        # The module is to remember the loader that it would have had.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self.finder.imported(module)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":  # a copy that is being made: it has nothing yet
            raise AttributeError(name)
        return getattr(self._loader, name)
