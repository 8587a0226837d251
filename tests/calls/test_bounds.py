"""Token counts that no response can have are not recorded."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.calls.facts import plausible
from endturn.vocabulary.messages import Usage


@pytest.mark.parametrize("output_tokens", [2**31, -1, float("inf")])
def test_drops_an_impossible_count(output_tokens: Any) -> None:
    usage = plausible(Usage(input_tokens=3, output_tokens=output_tokens))
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (3, None)
