"""A short run of the fuzzer, the same each time; `make fuzz` runs it for longer, and differently."""

from __future__ import annotations

import pytest

from tests.formats import fuzz
from tests.formats.recorded import RECORDED


@pytest.mark.parametrize("format", RECORDED)
def test_damaged_replies_are_survived(format: str) -> None:
    """A thousand damaged replies: a response or a ProviderError each, read alike by decoder and summarizer."""
    ended, failed = fuzz.run(seconds=60, seed=0, only=format, rounds=1000)
    assert failed == []
    assert ended.total() == 1000
    assert {"DecodeError", "end_turn"} <= ended.keys()  # The damage is neither always fatal nor never noticed.
