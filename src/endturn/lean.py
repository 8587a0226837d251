"""Frozen records that are built as fast as others: half of what a call's records cost is their own constructors."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

Record = TypeVar("Record")


def lean(kind: type[Record]) -> type[Record]:
    """A frozen dataclass with slots, given a constructor that assigns its fields instead of calling for each.

    A frozen class refuses assignment even to its own constructor, which therefore pays a call for every field. Here the
    record is of a class with the same slots that refuses nothing while it is filled, and of its own class afterwards.
    Signature, defaults and everything else stay what `dataclass` made of them.
    """
    assert not hasattr(kind, "__post_init__")
    slots: Any = kind.__dict__["__slots__"]
    scope: dict[str, Any] = {
        "_draft": type(kind.__name__, (), {"__slots__": slots}),
        "_kind": kind,
        "_missing": MISSING,
        "_set": object.__setattr__,
    }
    parameters, lines = ["self"], ["    _set(self, '__class__', _draft)"]
    for field in fields(kind):  # type: ignore[arg-type]  # whoever decorates it says that it is a dataclass
        name, value = field.name, field.name
        if field.kw_only and "*" not in parameters:
            parameters.append("*")
        if field.default_factory is not MISSING:
            scope[f"_default_{name}"] = field.default_factory
            parameters.append(f"{name}=_missing")
            value = f"_default_{name}() if {name} is _missing else {name}"
        elif field.default is not MISSING:
            scope[f"_default_{name}"] = field.default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"    self.{name} = {value}")
    lines.append("    self.__class__ = _kind")
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(lines), scope)  # noqa: S102 - as dataclass itself does
    made = scope["__init__"]
    made.__qualname__ = f"{kind.__qualname__}.__init__"
    made.__annotations__ = kind.__init__.__annotations__
    kind.__init__ = made  # type: ignore[method-assign]  # the one method that is replaced
    return kind
