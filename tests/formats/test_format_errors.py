"""Error answers: whose fault, what they say of the stop, and nothing that looks like a key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.formats import Context, Event
from endturn.formats.anthropic import FORMAT as anthropic
from endturn.formats.errors import broken, error_of, label_of, quota, retry_after, says_of_stop, shortened
from endturn.formats.openai_chat import FORMAT as openai_chat
from endturn.stop import Resume, StopReason
from tests.formats.error_answers import ANSWERS, WINDOWS, Answer
from tests.formats.replies import anthropic_stream, chunk, said

CTX = Context(provider="openai")


def error(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    """The exception for an answer."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_of(status, headers or {}, raw, ctx=CTX)


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


@pytest.mark.parametrize("answer", [pytest.param(answer, id=name) for name, answer in ANSWERS.items()])
def test_answers_of_every_provider(answer: Answer) -> None:
    """Each real-shaped answer has its type, request id, stop and wait, and says in its message what was wrong."""
    raised = error(answer.status, answer.body, answer.headers)
    assert type(raised) is answer.kind
    assert raised.retryable is issubclass(answer.kind, ProviderUnavailable)
    assert (raised.status, raised.request_id) == (answer.status, answer.request_id)
    assert raised.retry_after_s == answer.retry_after_s
    assert answer.says in str(raised)
    stop = raised.stop
    assert (stop and stop.reason, stop and stop.raw) == (answer.stop, answer.raw)
    assert stop is None or stop.incomplete
    assert stop is None or (stop.resume is Resume.REPAIR) == (stop.reason is StopReason.ERROR)


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("said", [pytest.param(text, id=name) for name, text in WINDOWS.items()])
def test_every_sentence_for_a_full_window(said: str) -> None:
    """A prompt that is too large for the model is told in some thirty ways; none of them is an outage."""
    for status, body in ((400, {"error": {"message": said}}), (400, {"error": said}), (500, {"message": said})):
        raised = error(status, body)
        assert raised.stop is not None
        assert raised.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
        assert type(raised) is RequestRejected
    assert error(429, {"error": {"message": said}}).stop is None


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


def test_what_fastapi_found_wrong_is_said_without_what_was_sent() -> None:
    """It quotes the input beside each complaint: that is in the shortened body, not in the message."""
    raised = error(ANSWERS["fastapi"].status, ANSWERS["fastapi"].body)
    assert "secret" not in str(raised)
    assert label_of({"detail": [{"msg": "Field required"}]}) == "Field required"


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


@pytest.mark.parametrize("api", [openai_chat, anthropic], ids=lambda api: api.name)
def test_an_error_under_a_status_of_success_raises(api: Any) -> None:
    """Gateways send `{"error": …}` with HTTP 200; it is no response."""
    with pytest.raises(ProviderUnavailable):
        api.decode({"type": "error", "error": {"type": "server_error", "message": "no"}}, ctx=CTX)
