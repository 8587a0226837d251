"""Records with a lean constructor are what `dataclass` would have made of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from endturn.lean import lean


@dataclass(frozen=True, slots=True)
class Plain:
    first: int
    second: str = "x"
    many: list[int] = field(default_factory=list)
    last: bool = field(default=False, kw_only=True)


@lean
@dataclass(frozen=True, slots=True)
class Lean:
    first: int
    second: str = "x"
    many: list[int] = field(default_factory=list)
    last: bool = field(default=False, kw_only=True)


def test_a_lean_record_has_the_fields_and_defaults_that_it_declares() -> None:
    """Positions, names, defaults and factories are those of the dataclass; no two records share what a factory made."""
    made = Lean(1, last=True)
    assert repr(made) == repr(Plain(1, last=True)).replace("Plain", "Lean")
    assert made.many is not Lean(1).many
    assert replace(made, second="y") == Lean(1, "y", last=True)
    with pytest.raises(TypeError):
        Lean(1, "x", [], True)  # type: ignore[call-arg]  # what is tested


def test_a_lean_record_is_frozen() -> None:
    """Nobody can assign to a field once the record is built."""
    with pytest.raises(FrozenInstanceError):
        Lean(1).first = 2  # type: ignore[misc]  # what is tested
