"""Error answers: whose fault, what they say of the stop, and nothing that looks like a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.stop import Resume, StopReason
from endturn.wires import Context, Event, anthropic, openai_chat
from endturn.wires.failure import quota, retry_after, shortened
from tests.wires.replies import anthropic_stream, chunk, said

CTX = Context(provider="openai")


def error(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    """The exception for an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return openai_chat.decode_error(status, headers or {}, raw, ctx=CTX)


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "bad", "type": "invalid_request_error"}}, RequestRejected),
        (401, {"error": {"message": "no"}}, RequestRejected),
        (404, b"<html>not found</html>", RequestRejected),
        (422, {"detail": [{"msg": "field required"}]}, RequestRejected),
        (408, b"", ProviderTimeout),
        (409, b"", ProviderUnavailable),
        (429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}, ProviderUnavailable),
        (429, {"error": {"message": "pay first", "code": "insufficient_quota"}}, RequestRejected),
        (500, b"oops", ProviderUnavailable),
        (504, b"", ProviderTimeout),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, ProviderUnavailable),
    ],
)
def test_whose_fault(status: int, body: Any, kind: type[ProviderError]) -> None:
    """The type says whether sending the same again may help."""
    raised = error(status, body)
    assert type(raised) is kind
    assert (raised.status, raised.provider) == (status, "openai")
    assert str(status) in str(raised)


@pytest.mark.behaviour(8)
@pytest.mark.parametrize(
    ("status", "body", "reason", "raw"),
    [
        pytest.param(
            400,
            {
                "error": {
                    "message": "This model's maximum context length is 8192 tokens.",
                    "code": "context_length_exceeded",
                }
            },
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            "context_length_exceeded",
            id="openai",
        ),
        pytest.param(
            400,
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 2 tokens > 1"},
            },
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            "invalid_request_error",
            id="anthropic",
        ),
        pytest.param(
            400,
            {"object": "error", "message": "This model's maximum context length is 4 tokens", "code": 400},
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            "maximum context length",
            id="vllm, bare",
        ),
        pytest.param(
            400,
            {"error": {"code": 400, "type": "exceed_context_size_error", "message": "the request exceeds it"}},
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            "exceed_context_size_error",
            id="llama.cpp",
        ),
        pytest.param(
            400,
            {"error": {"code": "content_filter", "message": "The response was filtered", "status": 400}},
            StopReason.SAFETY_BLOCKED,
            "content_filter",
            id="azure",
        ),
        pytest.param(
            400,
            {"error": {"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}},
            StopReason.SAFETY_BLOCKED,
            "invalid_request_error",
            id="anthropic filter",
        ),
        pytest.param(
            400,
            {"error": {"code": "tool_use_failed", "message": "Failed to call a function", "failed_generation": "<f"}},
            StopReason.ERROR,
            "tool_use_failed",
            id="groq",
        ),
    ],
)
def test_errors_that_are_stop_reasons(status: int, body: Any, reason: StopReason, raw: str) -> None:
    """An error that says why the model could not go on is a stop reason, in the one vocabulary."""
    stop = error(status, body).stop
    assert stop is not None
    assert (stop.reason, stop.raw, stop.incomplete) == (reason, raw, True)
    assert stop.resume is (Resume.REPAIR if reason is StopReason.ERROR else Resume.NONE)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (429, "Request too large: tokens per min. Please reduce the length of the messages."),
        (400, "max_tokens must be at least 1"),
        (401, "Incorrect API key provided"),
        (500, "Internal error"),
    ],
)
def test_other_errors_say_nothing_of_the_stop(status: int, message: str) -> None:
    """A rate limit that speaks of tokens is not a full window."""
    assert error(status, {"error": {"message": message}}).stop is None


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


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"X-Request-ID": "req_1"}, {}, "req_1"),
        ({"request-id": "req_2"}, {}, "req_2"),
        ({"apim-request-id": "a-3"}, {}, "a-3"),
        ({}, {"type": "error", "error": {}, "request_id": "req_4"}, "req_4"),
        ({}, {}, None),
    ],
)
def test_request_ids(headers: dict[str, str], body: Any, expected: str | None) -> None:
    """The id to quote to the provider's support is found wherever it is put."""
    assert error(400, body, headers).request_id == expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Sat, 21 Nov 2026 10:00:30 GMT", "date": "Sat, 21 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    """Seconds, milliseconds and dates; nonsense is nothing."""
    assert retry_after(headers) == seconds
    assert error(429, {}, {name.title(): value for name, value in headers.items()}).retry_after_s == seconds


def test_x_should_retry_is_heeded() -> None:
    """The header that both SDKs heed decides."""
    assert error(429, {}, {"x-should-retry": "false"}).retryable is False
    assert error(400, {}, {"x-should-retry": "true"}).retryable is True


def test_quota() -> None:
    """Both spellings of rate-limit headers read the same."""
    assert quota({"X-RateLimit-Remaining-Tokens": "1990", "date": "x"}) == {"remaining_tokens": "1990"}
    assert quota({"anthropic-ratelimit-input-tokens-remaining": "7"}) == {"remaining_input_tokens": "7"}


def test_an_error_inside_a_chat_stream_raises_with_what_had_arrived() -> None:
    """Under HTTP 200 the error's own code stands for the status."""
    decoder = openai_chat.decoder(CTX)
    list(decoder.feed(chunk({"content": "Once"})))
    with pytest.raises(ProviderUnavailable) as raised:
        decoder.feed(Event(None, {"error": {"code": 502, "message": "Provider disconnected"}, "choices": []}))
    assert raised.value.status == 502
    assert raised.value.partial is not None
    assert raised.value.partial.text == "Once"
    assert raised.value.partial.stop.reason is StopReason.ERROR
    assert not raised.value.partial.stop.truncated


def test_an_error_event_of_a_message_stream_raises_with_what_had_arrived() -> None:
    """`overloaded_error` in mid-stream is what HTTP 529 is before it."""
    decoder = anthropic.decoder(CTX)
    for event in anthropic_stream([said("Once")])[:4]:
        decoder.feed(event)
    with pytest.raises(ProviderUnavailable) as raised:
        decoder.feed(Event("error", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}))
    assert raised.value.status == 529
    assert raised.value.partial is not None
    assert (raised.value.partial.text, raised.value.partial.stop.raw) == ("Once", "overloaded_error")


@pytest.mark.parametrize("api", [openai_chat, anthropic], ids=lambda api: api.NAME)
def test_an_error_under_a_status_of_success_raises(api: Any) -> None:
    """Gateways send `{"error": …}` with HTTP 200; it is no response."""
    with pytest.raises(ProviderUnavailable):
        api.decode({"type": "error", "error": {"type": "server_error", "message": "no"}}, ctx=CTX)
