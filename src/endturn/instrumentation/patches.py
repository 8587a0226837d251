"""Methods and functions of somebody else's, replaced by ours; and put back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CellType, FunctionType, ModuleType
from typing import Any, Protocol


class Undoable(Protocol):
    """Something that was replaced, and can be put back."""

    def undo(self) -> None: ...


Patcher = Callable[[ModuleType, Callable[[], bool]], Iterator[Undoable]]
"""Patches a module that has just been imported, telling each patch as it is made. The function says whether calls are
observed: wrappers that could not be undone ask."""


@dataclass(frozen=True, slots=True)
class Patch:
    """One name of a class or a module that was replaced."""

    owner: type | ModuleType
    name: str
    original: Any
    wrapper: Any

    def undo(self) -> None:
        """Put the original back. Where somebody has wrapped ours since, ours stays inside and lets calls through."""
        if self.owner.__dict__.get(self.name) is self.wrapper:
            setattr(self.owner, self.name, self.original)


def put(owner: type | ModuleType, name: str, wrapper: Any) -> Patch:
    """Replace what a class or a module has under a name, in its own dictionary."""
    patch = Patch(owner, name, owner.__dict__[name], wrapper)
    setattr(owner, name, wrapper)
    return patch


@dataclass(frozen=True, slots=True)
class Filled:
    """A variable of a closure that was given another value: what a decorator calls, whoever holds the decorated."""

    cell: CellType
    original: Any
    wrapper: Any

    def undo(self) -> None:
        """Put the original back, unless somebody has put something else there since."""
        if self.cell.cell_contents is self.wrapper:
            self.cell.cell_contents = self.original


def fill(cell: CellType, wrapper: Any) -> Filled:
    """Replace what a closure's variable holds."""
    filled = Filled(cell, cell.cell_contents, wrapper)
    cell.cell_contents = wrapper
    return filled


@dataclass(frozen=True, slots=True)
class Enclosed:
    """What somebody's wrapper object calls, replaced."""

    around: Any
    original: Any
    wrapper: Any

    def undo(self) -> None:
        """Put the original back, unless somebody has put something else there since."""
        if self.around.__wrapped__ is self.wrapper:
            self.around.__wrapped__ = self.original


def enclose(base: type, name: str, original: Any, wrapper: Any) -> Iterator[Undoable]:
    """Replace a method that subclasses hold themselves: in wrappers of somebody's, who has wrapped what they inherit.

    Who has unwrapped it again has left them the method itself. Of wrappers only wrapt's objects call what their
    `__wrapped__` says; that of a function is a note.
    """
    below: list[type] = base.__subclasses__()
    while below:
        kind = below.pop()
        below += kind.__subclasses__()
        around = kind.__dict__.get(name)
        if around is original:
            yield put(kind, name, wrapper)
        while around is not None and type(around) is not FunctionType:  # they claim to be what they hold
            within = getattr(around, "__wrapped__", None)
            if within is original:
                around.__wrapped__ = wrapper
                yield Enclosed(around, original, wrapper)
                break
            around = within
