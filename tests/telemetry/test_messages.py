"""Addresses of media in recorded messages, without credentials and queries."""

from __future__ import annotations

import pytest

from endturn.telemetry.messages import address


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://u:p@h/a?b=c#d", "https://h/a"),
        ("gs://b/k?x", "gs://b/k"),
        ("http://[", ""),
        ("http://h:nan/", "http://h/"),
    ],
)
def test_removes_credentials_and_query(url: str, expected: str) -> None:
    assert address(url) == expected
