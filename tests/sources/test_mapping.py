"""What the designs want of a response, through the HTTP client; what its stop reason means, `tests/replies` shows."""

from __future__ import annotations

from typing import Any

import httpx

from endturn import Client
from tests.support.scripted_turns import ask


def test_a_response_holds_all_that_the_design_lists() -> None:
    """Text, calls, usage, thinking, what the headers say of quotas, and both stop reasons."""
    made = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": '{"q": "x"}'}}
    said: Any = {"role": "assistant", "content": "Hi", "reasoning_content": "Hm.", "tool_calls": [made]}
    choice = {"index": 0, "finish_reason": "tool_calls", "message": said}
    body = {"id": "x", "model": "m", "choices": [choice], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    headers = {"x-ratelimit-remaining-tokens": "1990"}
    http = httpx.MockTransport(lambda _: httpx.Response(200, json=body, headers=headers))
    with Client("deepseek", api_key="k", http=http) as client:
        response = client(ask())
    assert (response.text, response.reasoning) == ("Hi", "Hm.")
    assert [asked.arguments for asked in response.tool_calls] == [{"q": "x"}]
    assert response.usage is not None
    assert response.quota == {"remaining_tokens": "1990"}
    assert (response.stop_reason, response.raw_stop_reason) == ("tool_call", "tool_calls")
