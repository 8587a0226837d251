"""InvokeModel: whose format a model is asked in. What it answers, and all else of its requests, `tests/replies` has."""

from __future__ import annotations

import pytest

from endturn.chat import Message, Request
from endturn.formats import format_of

bedrock_invoke = format_of("bedrock_invoke")
USER = Message(role="user", content="Once upon")


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", "claude"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "claude"),
        ("arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.anthropic.claude-opus-4-20250514-v1:0", "claude"),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-v2", "claude_text"),
        ("anthropic.claude-v2:1", "claude_text"),
        ("anthropic.claude-instant-v1", "claude_text"),
        ("apac.amazon.nova-pro-v1:0", "nova"),
        ("amazon.titan-text-lite-v1", "titan"),
        ("us.meta.llama4-scout-17b-instruct-v1:0", "llama"),
        ("mistral.mistral-7b-instruct-v0:2", "mistral"),
        ("mistral.mistral-large-2407-v1:0", "chat"),
        ("us.mistral.pixtral-large-2502-v1:0", "chat"),
        ("cohere.command-text-v14", "command"),
        ("cohere.command-light-text-v14", "command"),
        ("cohere.command-r-v1:0", "command_r"),
        ("ai21.j2-mid-v1", "ai21"),
        ("ai21.jamba-1-5-large-v1:0", "chat"),
        ("us.deepseek.r1-v1:0", "text"),
        ("deepseek.v3-v1:0", "chat"),
        ("openai.gpt-oss-20b-1:0", "chat"),
        ("qwen.qwen3-32b-v1:0", "chat"),
        ("", "chat"),
        ("arn:aws:bedrock:us-east-1:1:imported-model/abc", "chat"),
        ("claudia", "chat"),
    ],
)
def test_the_models_id_tells_the_family(model: str, family: str) -> None:
    """Without the region that a profile begins with, and the ARN around it; an unknown one is asked as chat."""
    asked = Request(model=model, messages=(USER,), temperature=0.5)
    assert bedrock_invoke.encode(asked) == bedrock_invoke.encode(asked.but(model=""), dialect=family)


def test_every_family_is_judged_by_its_own_table() -> None:
    """Under "" stands what no two families dispute."""
    agreed = bedrock_invoke.reasons[""]
    assert {"end_turn", "MAX_TOKENS"} <= agreed.keys()
    for rows in bedrock_invoke.reasons.values():
        for raw in rows.keys() & agreed.keys():
            assert (agreed[raw].reason, agreed[raw].incomplete) == (rows[raw].reason, rows[raw].incomplete)
