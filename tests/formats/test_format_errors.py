"""Errors inside streams, and nothing that looks like a key; error answers are in `replies/*/requests/error.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.errors import ProviderError
from endturn.formats import Context
from endturn.formats.errors import broken, error_of, quota, says_of_stop, shortened
from endturn.stop import StopReason

CTX = Context(provider="openai")


def error(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    """The exception for an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, headers or {}, raw, ctx=CTX)


def test_an_error_inside_a_stream_says_of_the_stop_what_an_answer_says() -> None:
    """A full window that AWS tells in mid-stream is a stop reason; a throttled stream with tokens in it is none."""
    full = {"type": "validationException", "message": "Input is too long for requested model."}
    slow = {"type": "throttlingException", "message": "Too many tokens, please wait before trying again."}
    stop = broken(full)
    assert (stop.reason, stop.raw) == (StopReason.CONTEXT_WINDOW_EXCEEDED, "validationException")
    assert stop.detail == "Input is too long for requested model."
    assert (broken(slow).reason, broken(slow).raw) == (StopReason.ERROR, "throttlingException")
    cause = {"type": "modelStreamErrorException", "message": "It failed.", "originalMessage": "prompt is too long"}
    assert broken(cause).reason is StopReason.CONTEXT_WINDOW_EXCEEDED


def test_a_rate_limit_inside_a_stream_is_no_full_window() -> None:
    """The code stands for 429 there, whatever the sentence advises."""
    limited = {"code": "rate_limit_exceeded", "message": "Please reduce the length of the messages."}
    assert says_of_stop(limited, 0) is None
    assert broken(limited).reason is StopReason.ERROR


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


def test_an_error_inside_a_stream_has_one_word() -> None:
    """Of code and type, the exception and what had arrived before it name the same."""
    told = {"type": "tokens", "code": "rate_limit_exceeded", "message": "Rate limit reached"}
    assert broken(told).raw == "rate_limit_exceeded"
    assert broken({"code": "sk-proj-abcdefghijklmnopqrstuvwx", "message": "no such key"}).raw == "[removed]"
    assert "429 rate_limit_exceeded" in str(error_of(200, {}, {"error": told}, ctx=CTX))


def test_quota() -> None:
    """Both spellings of rate-limit headers read the same."""
    assert quota({"X-RateLimit-Remaining-Tokens": "1990", "date": "x"}) == {"remaining_tokens": "1990"}
    assert quota({"anthropic-ratelimit-input-tokens-remaining": "7"}) == {"remaining_input_tokens": "7"}
