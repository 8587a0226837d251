"""Options of `endturn.instrument` that it rejects."""

from __future__ import annotations

from typing import Any

import pytest

import endturn


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prices", {"m": 3}),
        ("prices", {"m": [1]}),
        ("prices", {"m": ["a", 2]}),
        ("prices", "cheap"),
        ("prices", {"m": [1.0, -2]}),
        ("agent", "yes"),
        ("counted", "no"),
        ("gen_ai_metrics", 1),
        ("semconv", "new"),
        ("content", "some"),
        ("content", "true"),
        ("content_max_chars", 0),
        ("content_max_chars", "9"),
        ("redact", "strict"),
    ],
)
def test_rejects_a_wrong_option_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        endturn.instrument(**{name: value})
