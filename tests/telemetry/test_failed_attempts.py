"""Failures and what follows them, over plain httpx: which are attempts of one call, whatever status they come under."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import pytest

from endturn.instrumentation._instrument import uninstrument
from tests.support.announced import Records, observed

Json = dict[str, Any]

CHAT: Final = "https://api.openai.com/v1/chat/completions"
RESPONSES: Final = "https://api.openai.com/v1/responses"
CLAUDE: Final = "https://api.anthropic.com/v1/messages"
GEMINI: Final = "https://generativelanguage.googleapis.com/v1beta/models/m:generateContent"
CONVERSE: Final = "https://bedrock-runtime.us-east-1.amazonaws.com/model/m/converse"

MESSAGES: Final[Json] = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Tides?"}]}
INPUT: Final[Json] = {"model": "m", "input": "Tides?"}
CONTENTS: Final[Json] = {"contents": [{"role": "user", "parts": [{"text": "Tides?"}]}]}
BLOCKS: Final[Json] = {"messages": [{"role": "user", "content": [{"text": "Tides?"}]}]}

BEGUN: Final[Json] = {"type": "message_start", "message": {"id": "msg_1", "model": "m", "usage": {"input_tokens": 1}}}


def whole(body: Json, status: int = 200, **headers: str) -> httpx.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, json=body, headers=names)


def streamed(*events: Json) -> httpx.Response:
    lines = "".join(f"event: {event.get('type', 'message')}\ndata: {json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, text=lines, headers={"content-type": "text/event-stream"})


def responses(status: str, **more: Any) -> Json:
    return {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": [], **more}


def chat(reason: str) -> Json:
    message = {"role": "assistant", "content": "The sun."}
    return {"id": "c1", "model": "m", "choices": [{"index": 0, "finish_reason": reason, "message": message}]}


def gemini(reason: str) -> Json:
    return {"candidates": [{"finishReason": reason, "content": {"role": "model", "parts": [{"text": "The sun."}]}}]}


CLAUDE_SAYS = {"id": "msg_2", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
ANSWERS: Final[Mapping[str, Json]] = {
    CHAT: chat("stop"),
    RESPONSES: responses("completed"),
    CLAUDE: {**CLAUDE_SAYS, "content": [{"type": "text", "text": "The sun."}]},
    GEMINI: gemini("STOP"),
    CONVERSE: {"output": {"message": {"role": "assistant", "content": [{"text": "Sun."}]}}, "stopReason": "end_turn"},
}
ASKED: Final[Mapping[str, Json]] = {
    CHAT: MESSAGES, RESPONSES: INPUT, CLAUDE: MESSAGES, GEMINI: CONTENTS, CONVERSE: BLOCKS,
}  # fmt: skip


def told_within(kind: str) -> httpx.Response:
    return streamed(BEGUN, {"type": "error", "error": {"type": kind, "message": "No."}})


FAILURES: Final[dict[str, tuple[str, httpx.Response, bool]]] = {
    "500": (CHAT, whole({"error": {"message": "No."}}, 500), True),
    "400": (CHAT, whole({"error": {"message": "No."}}, 400), False),
    "a malformed call": (GEMINI, whole(gemini("MALFORMED_FUNCTION_CALL")), True),
    "a reason that is an error": (CHAT, whole(chat("error")), True),
    "a response that failed": (RESPONSES, whole(responses("failed", error={"code": "server_error"})), True),
    "a response with too many requests": (
        RESPONSES, whole(responses("failed", error={"code": "rate_limit_exceeded"})), True,
    ),
    "a response that was refused": (RESPONSES, whole(responses("failed", error={"code": "invalid_prompt"})), False),
    "a response to a bad image": (RESPONSES, whole(responses("failed", error={"code": "invalid_image"})), False),
    "an overload within a stream": (CLAUDE, told_within("overloaded_error"), True),
    "a rate limit within a stream": (CLAUDE, told_within("rate_limit_error"), True),
    "a bad request within a stream": (CLAUDE, told_within("invalid_request_error"), False),
    "a gateway's code within a stream": (
        CHAT, streamed({"id": "c1", "choices": [], "error": {"code": 502, "message": "No."}}), True,
    ),
    "a gateway's refusal within a stream": (
        CHAT, streamed({"id": "c1", "choices": [], "error": {"code": 403, "message": "No."}}), False,
    ),
    "AWS's throttling": (
        CONVERSE, whole({"message": "Too many tokens"}, 400, x_amzn_errortype="ThrottlingException"), True,
    ),
    "AWS's throttling, in the body": (CONVERSE, whole({"__type": "ThrottlingException", "message": "No."}, 400), True),
    "AWS's refusal": (CONVERSE, whole({"message": "No."}, 400, x_amzn_errortype="ValidationException"), False),
}  # fmt: skip
"""Where it happens, the answer, and whether the same request is tried again after it."""


@pytest.fixture
def records() -> Iterator[Records]:
    with observed() as found:
        yield found


def ask(url: str, answer: httpx.Response, **headers: str) -> None:
    copy = httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)
    body = {**ASKED[url], **({"stream": True} if "event-stream" in copy.headers["content-type"] else {})}
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    with httpx.Client(transport=httpx.MockTransport(lambda request: copy)) as client:
        client.post(url, json=body, headers=names)


def answer_like(url: str, failure: httpx.Response) -> httpx.Response:
    """An answer to the same request."""
    if "event-stream" not in failure.headers["content-type"]:
        return whole(ANSWERS[url])
    if url == CHAT:
        return streamed({"id": "c2", "choices": [{"index": 0, "delta": {"content": "."}, "finish_reason": "stop"}]})
    ends: list[Json] = [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    return streamed(BEGUN, *ends)


@pytest.mark.parametrize("name", FAILURES)
def test_the_same_again_after_a_failure(records: Records, name: str) -> None:
    """Two failures of the server and an answer are one turn; what it refused is a turn of its own."""
    url, failure, is_retried = FAILURES[name]
    ask(url, failure)
    ask(url, failure)
    ask(url, answer_like(url, failure))
    uninstrument()  # as when the process ends
    alone = ["None 1 completed", "None 1 provider_error", "None 1 provider_error"]
    assert sorted(records.told()) == (["None 3 completed"] if is_retried else alone)


@pytest.mark.parametrize("name", [name for name, (url, _, _) in FAILURES.items() if url == CONVERSE])
def test_the_same_again_in_one_invocation(records: Records, name: str) -> None:
    """AWS's SDKs name the call that a request is an attempt of: two calls that fail at once are told apart."""
    url, failure, is_retried = FAILURES[name]
    for invocation in ("a", "b", "a", "b"):
        is_first = len(records.ended) < 2
        ask(url, failure if is_first else answer_like(url, failure), amz_sdk_invocation_id=invocation)
    uninstrument()
    alone = ["None 1 completed"] * 2 + ["None 1 provider_error"] * 2
    assert sorted(records.told()) == (["None 2 completed"] * 2 if is_retried else alone)


def test_samples_of_one_prompt_that_fail(records: Records) -> None:
    """Every third of a batch's calls fails, and none is tried again: each is a turn."""
    for number in range(9):
        ask(CHAT, whole({"error": {"message": "No."}}, 500) if number % 3 == 2 else whole(ANSWERS[CHAT]))
    uninstrument()
    assert sorted(records.told()) == ["None 1 completed"] * 6 + ["None 1 provider_error"] * 3
