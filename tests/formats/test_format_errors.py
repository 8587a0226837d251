"""Errors inside streams, and nothing that looks like a key; error answers are in `replies/*/requests/error.json`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.formats import Context
from endturn.formats.errors import broken, error_of, quota, says_of_stop, shortened
from endturn.stop import StopReason

CTX = Context(provider="openai")


def error(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    """The exception for an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, headers or {}, raw, ctx=CTX)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}, ProviderUnavailable, 503),
        ({"error": {"message": "Quota", "status": "RESOURCE_EXHAUSTED"}}, ProviderUnavailable, 429),
        ({"error": {"message": "Too late", "status": "DEADLINE_EXCEEDED"}}, ProviderTimeout, 504),
        ({"error": {"message": "No", "status": "PERMISSION_DENIED"}}, RequestRejected, 403),
        ({"throttlingException": {"message": "Too many requests"}}, ProviderUnavailable, 429),
        ({"type": "modelStreamErrorException", "message": "Broke off"}, ProviderUnavailable, 424),
        ({"modelTimeoutException": {"message": "Too late"}}, ProviderTimeout, 408),
        ({"validationException": {"message": "Bad"}}, RequestRejected, 400),
        ({"internalServerException": {}}, ProviderUnavailable, 500),
        ({"error": {"message": "Bad", "code": "tool_use_failed", "status_code": 400}}, RequestRejected, 400),
        ({"error": {"message": "Slow down", "type": "rate_limit_error", "code": "429"}}, ProviderUnavailable, 429),
        ({"response": {"error": {"code": "invalid_prompt", "message": "Bad"}}}, RequestRejected, 400),
        ({"error": "Broke off", "error_type": "incomplete_generation"}, ProviderUnavailable, 500),
        ({"error": "an unknown error"}, ProviderUnavailable, 500),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_inside_streams(body: Any, kind: type[ProviderError], status: int) -> None:
    """Under HTTP 200 the error's number, code, type or status word stands for the status."""
    raised = error_of(200, {}, body, ctx=CTX)
    assert (type(raised), raised.status) == (kind, status)


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


@pytest.mark.parametrize(
    ("said", "secret"),
    [
        ("the key is AIzaSyA1234567890abcdefghijklmnopqrstu", "AIzaSyA1234567890abcdefghijklmnopqrstu"),
        ("POST /v1/models/m:generate?alt=sse&key=short-1", "short-1"),
        ("token ya29.a0AfH6SMBx-1_2 has expired", "a0AfH6SMBx"),
        ("ASIAIOSFODNN7EXAMPLE is no longer valid", "ASIAIOSFODNN7EXAMPLE"),
        ("x-amz-security-token:IQoJb3JpZ2luX2VjE", "IQoJb3JpZ2luX2VjE"),
        ("secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY1", "wJalrXUtnFEMI"),
        ("session " + "Ab1/" * 150, "Ab1/Ab1"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz", "hf_AbCdEfGh"),
        ("api-key: 0123456789abcdef0123456789abcdef", "0123456789abcdef"),
        ("api-key: " + "4ZaB9" * 16 + "JQQJ", "4ZaB9"),
        ('{"Ocp-Apim-Subscription-Key": "0123456789abcdef0123456789abcdef"}', "0123456789abcdef"),
        ("invalid api token: qF3kLm9ZxT0aBcDeFgHiJkLmNoPqRsTuVwXyZ1234", "qF3kLm9ZxT0"),
        ("Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "QWxhZGRpbjpvcGVu"),
        ("authorization: bearer abc.def-ghi", "abc.def-ghi"),
        ("github_pat_11ABCDEFG0abcdefgh", "11ABCDEFG0"),
    ],
    ids=lambda value: value[:12],
)
def test_no_key_of_any_provider_gets_out(said: str, secret: str) -> None:
    """Google's, AWS's, Azure's, Hugging Face's, Cohere's: as they are spelled, and wherever one is named as a key."""
    raised = error(401, {"error": {"message": said}})
    assert secret not in f"{raised} {raised.body}"
    assert secret not in shortened(said)


@pytest.mark.parametrize(
    "said",
    [
        "trace f8a07210b001efe4c862b642f3ece475",
        "request ca47a5ce-e260-4824-aa0e-2e62669d5d6e",
        "basic usage is free",
        "model accounts/fireworks/models/llama",
    ],
)
def test_what_is_no_key_stays(said: str) -> None:
    """Ids to quote to the support, and plain words, are kept."""
    assert shortened(said) == said


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdefghijklmnop",
        "sk-ant-api03-abcdefghijk",
        "gsk_abcdefghijklmnop",
        "AIzaSyA1234567890abcdefghijkl",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.abc",
        "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4MTIz",
    ],
)
def test_no_key_gets_out(secret: str) -> None:
    """Neither the message nor the body of an exception repeats a key."""
    raised = error(401, {"error": {"message": f"Incorrect API key provided: {secret}. See the docs."}})
    assert secret not in f"{raised} {raised.body}"
    assert "See the docs" in str(raised)
    assert secret not in shortened(f"Authorization: Bearer {secret}")
    assert secret not in shortened(json.dumps({"api_key": secret}))


def test_bodies_are_shortened() -> None:
    """A page of HTML does not travel in an exception, and costs little to look at."""
    raised = error(502, b"<p>bad gateway</p>" * 100_000)
    assert raised.body is not None
    assert len(raised.body) == 1_000
    assert len(str(raised)) < 400


def test_a_limit_that_left_no_room_for_an_answer_is_a_stop_reason() -> None:
    """OpenAI and Azure say 400 where a reasoning model used the whole limit before its answer."""
    sentence = "Could not finish the message because max_tokens or model output limit was reached."
    told = {"message": sentence, "type": "invalid_request_error", "param": None, "code": None}
    raised = error(400, {"error": told})
    assert type(raised) is RequestRejected
    assert raised.stop is not None
    assert (raised.stop.reason, raised.stop.truncated) == (StopReason.MAX_TOKENS, True)


@pytest.mark.parametrize(
    ("provider", "kind"), [("groq", ProviderUnavailable), ("cohere", RequestRejected)], ids=["groq", "cohere"]
)
def test_status_498_is_no_room_at_groq_and_a_bad_key_at_cohere(provider: str, kind: type[ProviderError]) -> None:
    """A status that no standard knows means what its provider says."""
    assert type(error_of(498, {}, b"{}", ctx=Context(provider=provider))) is kind


@pytest.mark.parametrize("status", [302, 307, 308])
def test_a_redirect_that_nobody_followed_has_its_own_status(status: int) -> None:
    """Sending it again leads to the same redirect."""
    raised = error(status, b"", {"location": "https://elsewhere.example/v1"})
    assert (type(raised), raised.status) == (RequestRejected, status)


@pytest.mark.parametrize(
    "told",
    [
        {"type": "insufficient_quota", "message": "You exceeded your current quota."},
        {"type": "exceeded_current_quota_error", "message": "Your account is suspended."},
        {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."},
    ],
    ids=["openai", "moonshot", "z_ai"],
)
def test_a_used_up_balance_is_no_rate_limit(told: dict[str, str]) -> None:
    """It comes with the same status, and waiting does not help."""
    assert type(error(429, {"error": told})) is RequestRejected


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
