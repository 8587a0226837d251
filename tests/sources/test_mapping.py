"""The stop reasons that the designs map, in bodies as the providers send them, through the HTTP client."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from endturn import ChatResponse, Client
from tests.support.scripted_turns import ask

CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}


def chat(reason: str | None, calls: bool = False, **message: Any) -> Any:
    """A body of chat completions."""
    said = {"role": "assistant", "content": "Hi", **({"tool_calls": [CALL]} if calls else {}), **message}
    choice = {"index": 0, "finish_reason": reason, "message": said}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage}


def responses(status: str, why: str | None = None, calls: bool = False) -> Any:
    """An object of the Responses API."""
    content = [{"type": "output_text", "text": "Hi", "annotations": []}]
    output: list[Any] = [{"type": "message", "id": "m", "role": "assistant", "status": status, "content": content}]
    if calls:
        output.append({"type": "function_call", "id": "f", "call_id": "c", "name": "search",
                       "arguments": '{"q": "x"}', "status": "completed"})  # fmt: skip
    usage = {"input_tokens": 3, "output_tokens": 2}
    return {"id": "x", "object": "response", "created_at": 1, "model": "m", "status": status, "output": output,
            "incomplete_details": why and {"reason": why}, "usage": usage}  # fmt: skip


def answer(provider: str, body: Any, headers: dict[str, str] | None = None, **settings: Any) -> ChatResponse:
    """What the client makes of a body."""
    if provider == "aws.bedrock":
        settings["base_url"] = "https://bedrock-runtime.eu-west-1.amazonaws.com"
    http = httpx.MockTransport(lambda _: httpx.Response(200, json=body, headers=headers))
    with Client(provider, api_key="k", http=http, **settings) as client:
        return client(ask())


def test_a_response_holds_all_that_the_design_lists() -> None:
    """Text, calls, usage, thinking, what the headers say of quotas, and both stop reasons."""
    body = chat("tool_calls", calls=True, reasoning_content="Hm.")
    response = answer("deepseek", body, {"x-ratelimit-remaining-tokens": "1990"})
    assert (response.text, response.reasoning) == ("Hi", "Hm.")
    assert [asked.arguments for asked in response.tool_calls] == [{"q": "x"}]
    assert response.usage is not None
    assert response.quota == {"remaining_tokens": "1990"}
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_call", "tool_calls")


@pytest.mark.parametrize(
    ("provider", "body", "settings"),
    [
        ("openai", chat("stop", calls=True), {}),
        ("deepseek", chat(None, calls=True), {}),
        ("openai", responses("completed", calls=True), {"format": "openai_responses"}),
    ],
    ids=["chat stop", "chat null", "Responses completed"],
)
def test_a_complete_call_beside_a_clean_end_is_promoted(provider: str, body: Any, settings: Any) -> None:
    """In the reader of each format, so that a gate on the terminal alone loses no real call."""
    response = answer(provider, body, **settings)
    assert response.stop_reason == "tool_call"
    assert response.stop.promoted_from is not None


@pytest.mark.parametrize(("why", "reason"), [("max_output_tokens", "max_tokens"), ("content_filter", "safety_blocked")])
def test_an_incomplete_response_was_cut_or_filtered(why: str, reason: str) -> None:
    """Whatever calls it holds, they promote nothing."""
    response = answer("openai", responses("incomplete", why, calls=True), format="openai_responses")
    assert (response.stop_reason, response.stop.promoted_from) == (reason, None)
