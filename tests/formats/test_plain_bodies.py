"""Plain bodies are read like the formats' own readers do; others are left to those readers."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from endturn.formats import Context, format_of, plain_facts, summarize
from tests.formats.recorded import RECORDED
from tests.scan.test_sources import broken

FORMATS = ("openai_chat", "anthropic", "gemini")
BODIES = [
    pytest.param(name, RECORDED[name].contexts[case], body, id=f"{name}/{case}")
    for name in FORMATS
    for case, body in RECORDED[name].bodies.items()
]


def is_read_the_same(name: str, context: Context, body: Any) -> bool:
    """Compare both readings; return True if the body is plain."""
    api = format_of(name)
    rows = api.summarizer(context).rows
    plain = plain_facts(name, context, rows, body) if isinstance(body, dict) else None
    if plain is None:
        return False
    summary = summarize(api, context, body)
    assert plain.response == replace(summary.facts, output_chars=plain.response.output_chars)
    assert [*plain.tool_calls] == [*summary.tool_calls]
    return True


@pytest.mark.parametrize(("name", "context", "body"), BODIES)
def test_a_recorded_body_is_read_the_same(name: str, context: Context, body: Any) -> None:
    is_read_the_same(name, context, body)


@pytest.mark.parametrize("name", FORMATS)
def test_many_recorded_bodies_are_plain(name: str) -> None:
    recorded = RECORDED[name]
    plain = [is_read_the_same(name, recorded.contexts[case], body) for case, body in recorded.bodies.items()]
    assert sum(plain) > 20


@pytest.mark.parametrize(("name", "context", "body"), BODIES)
def test_a_body_with_other_members_is_read_the_same(name: str, context: Context, body: Any) -> None:
    for seed in range(12):
        is_read_the_same(name, context, broken(json.loads(json.dumps(body)), random.Random(seed)))
