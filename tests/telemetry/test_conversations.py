"""Conversations of agents whose true turns are known: every call is assigned to the turn of its question."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from tests.support import conversations

PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"


@pytest.mark.parametrize("family", conversations.KNOWN)
@given(seed=st.integers(0, 2**32))
def test_every_call_is_of_its_question_s_turn(family: str, seed: int) -> None:
    """All of them, in whatever order they come."""
    truth = conversations.infer(conversations.KNOWN[family], seed)
    assert len(truth.turns) >= 6
    assert truth.mistakes() == []


@pytest.mark.parametrize("family", [*conversations.KNOWN, *conversations.UNCERTAIN])
def test_the_page_has_the_figure_of_each_family(family: str) -> None:
    """`python benchmarks/accuracy.py --turns docs/accuracy.md` writes them."""
    assert f"{conversations.row(family)}\n" in PAGE.read_text()


def test_the_page_has_no_family_besides() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert rows == [*conversations.KNOWN, *conversations.UNCERTAIN]
