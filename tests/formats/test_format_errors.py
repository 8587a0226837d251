"""Errors inside streams, and nothing that looks like a key; error answers are in `replies/*/requests/error.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.errors import ProviderError
from endturn.formats import Context
from endturn.formats.errors import broken, error_of, quota, shortened
from endturn.stop import StopReason

CTX = Context(provider="openai")


def error(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    """The exception for an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, headers or {}, raw, ctx=CTX)


SLOW = "Too many tokens, please wait before trying again."
TOLD = [
    ({"type": "validationException", "message": "Input is too long for requested model."},
     StopReason.CONTEXT_WINDOW_EXCEEDED, "validationException"),
    ({"type": "modelStreamErrorException", "message": "It failed.", "originalMessage": "prompt is too long"},
     StopReason.CONTEXT_WINDOW_EXCEEDED, "modelStreamErrorException"),
    ({"type": "throttlingException", "message": SLOW}, StopReason.ERROR, "throttlingException"),
    ({"type": "tokens", "code": "rate_limit_exceeded", "message": "Please reduce the length of the messages."},
     StopReason.ERROR, "rate_limit_exceeded"),
    ({"code": "sk-proj-abcdefghijklmnopqrstuvwx", "message": "no such key"}, StopReason.ERROR, "[removed]"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "reason", "raw"), TOLD)
def test_an_error_inside_a_stream_says_of_the_stop_what_an_answer_says(said: Any, reason: StopReason, raw: str) -> None:
    """A full window is a stop reason; a rate limit is none, whatever its sentence advises. Its code is the word."""
    assert (broken(said).reason, broken(said).raw, broken(said).detail) == (reason, raw, said["message"])
    assert raw == "[removed]" or raw in str(error_of(200, {}, {"error": said}, ctx=CTX))


WORDS = yaml.safe_load(Path(__file__).with_name("keys.yaml").read_text())


@pytest.mark.parametrize(("said", "secret"), WORDS["keys"], ids=lambda value: value[:12])
def test_no_key_of_any_provider_gets_out(said: str, secret: str) -> None:
    """Google's, AWS's, Azure's, Hugging Face's, Cohere's: as they are spelled, and wherever one is named as a key."""
    raised = error(401, {"error": {"message": said}})
    assert secret not in f"{raised} {raised.body}"
    assert secret not in shortened(said)


@pytest.mark.parametrize("said", WORDS["kept"])
def test_what_is_no_key_stays(said: str) -> None:
    """Ids to quote to the support, and plain words, are kept."""
    assert shortened(said) == said


def test_bodies_are_shortened() -> None:
    """A page of HTML does not travel in an exception, and costs little to look at."""
    raised = error(502, b"<p>bad gateway</p>" * 100_000)
    assert raised.body is not None
    assert len(raised.body) == 1_000
    assert len(str(raised)) < 400


def test_quota() -> None:
    """Both spellings of rate-limit headers read the same."""
    assert quota({"X-RateLimit-Remaining-Tokens": "1990", "date": "x"}) == {"remaining_tokens": "1990"}
    assert quota({"anthropic-ratelimit-input-tokens-remaining": "7"}) == {"remaining_input_tokens": "7"}
