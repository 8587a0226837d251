"""Which requests ask a model: by path, members and host."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.instrumentation.exchange import may_begin
from endturn.instrumentation.recognition import endpoint

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
VERTEX = "/v1/projects/p/locations/l/publishers"


@pytest.mark.parametrize(
    ("host", "path", "body", "expected"),
    [
        ("api.openai.com", "/v1/chat/completions", CHAT, ("openai_chat", "openai", "")),
        ("api.openai.com", "/v1/chat/completions", None, ("openai_chat", "openai", "")),
        ("api.openai.com", "/v1/chat/completions/?a=b", CHAT, ("openai_chat", "openai", "")),
        ("api.openai.com", "/v1/responses", {"model": "m", "input": "hi"}, ("openai_responses", "openai", "")),
        ("vllm.internal", "/v1/chat/completions", CHAT, ("openai_chat", "openai", "compatible")),
        ("gateway.ai.cloudflare.com", "/v1/me/mine/openai/chat/completions", CHAT,
         ("openai_chat", "openai", "compatible")),
        ("me.cloud.databricks.com", "/serving-endpoints/chat/completions", CHAT,
         ("openai_chat", "openai", "compatible")),
        ("me.services.ai.azure.com", "/models/chat/completions?api-version=1", CHAT,
         ("openai_chat", "azure.ai.inference", "azure")),
        ("gateway.local", "/openai/deployments/d/chat/completions?api-version=1", {"messages": []},
         ("openai_chat", "azure.ai.openai", "azure")),
        ("me.openai.azure.com", "/openai/v1/responses", {"model": "m", "input": "hi"},
         ("openai_responses", "azure.ai.openai", "")),
        ("me.openai.azure.com", "/openai/deployments/d/completions?api-version=1", {"prompt": "x"},
         ("completions", "azure.ai.openai", "compatible")),
        ("api.anthropic.com", "/v1/complete", {"model": "claude-2.1", "prompt": "x", "max_tokens_to_sample": 17},
         ("completions", "anthropic", "")),
        ("gateway.local", f"{VERTEX}/anthropic/models/claude-9:rawPredict", {**CHAT, "max_tokens": 9},
         ("anthropic", "gcp.vertex_ai", "")),
        ("proxy.local", "/anthropic/v1/messages", {**CHAT, "max_tokens": 9}, ("anthropic", "anthropic", "")),
        ("proxy.local", "/v1beta/models/gemini-3:generateContent", {"contents": []}, ("gemini", "gcp.gemini", "")),
        ("us-east5-aiplatform.googleapis.com", f"{VERTEX}/anthropic/models/claude-9:streamRawPredict", CHAT,
         ("anthropic", "gcp.vertex_ai", "")),
        ("us-east5-aiplatform.googleapis.com", f"{VERTEX}/mistralai/models/m:rawPredict", CHAT,
         ("openai_chat", "gcp.vertex_ai", "mistral")),
        ("api.mistral.ai", "/v1/fim/completions", {"prompt": "x"}, ("openai_chat", "mistral_ai", "mistral")),
        ("api.mistral.ai", "/v1/agents/completions", {"agent_id": "a", "messages": []},
         ("openai_chat", "mistral_ai", "mistral")),
        ("localhost", "/api/generate", {"model": "m", "prompt": "hi"}, ("ollama", "ollama", "")),
        ("api.cohere.com", "/v1/chat", {"message": "hi"}, ("cohere", "cohere", "v1")),
        ("proxy.local", "/v1/chat", {"message": "hi"}, ("cohere", "cohere", "v1")),
        ("api.writer.com", "/v1/chat", CHAT, ("openai_chat", "writer", "compatible")),
        ("proxy.local", "/v1/generate", {"prompt": "hi"}, ("completions", "cohere", "command")),
        ("localhost", "/api/chat", CHAT, ("ollama", "ollama", "")),
        ("proxy.local", "/model/m%3A0/converse", {"messages": []}, ("bedrock_converse", "aws.bedrock", "")),
        # What is no call of a model, or in no format that its path tells.
        ("proxy.local", "/v1/chat", CHAT, None),
        ("survey.example.org", "/responses", {"answers": [1, 2]}, None),
        ("survey.example.org", "/v1/responses", {"input": "x"}, None),
        ("chat.example.org", "/v1/messages", {"to": "a", "text": "b"}, None),
        ("chat.example.org", "/v1/chat/completions", None, None),
        ("my.backend", "/api/chat", {"messages": []}, None),
        ("api.openai.com", "/v1/batches", {"input_file_id": "f"}, None),
        ("api.openai.com", "/v1/threads/t/messages", {"role": "user", "content": "hi"}, None),
        ("api.anthropic.com", "/v1/messages/batches", {"requests": []}, None),
        ("bucket.s3.amazonaws.com", "/v1/chat/completions", {}, None),
    ],
)  # fmt: skip
def test_requests(host: str, path: str, body: Any, expected: tuple[str, str, str] | None) -> None:
    """The host says who answers; on another than a provider's own, the members must be the format's."""
    found = endpoint("POST", f"https://{host}{path}") if may_begin("POST", path) else None
    if found is not None and not found.is_asked(body):
        found = None
    assert (found and (found.format.name, found.provider, found.dialect)) == expected


@pytest.mark.parametrize(("port", "provider"), [(11434, "ollama"), (1234, "lmstudio"), (8000, "openai")])
def test_servers_of_ones_own(port: int, provider: str) -> None:
    """Known by the ports that they choose for themselves."""
    found = endpoint("POST", f"http://127.0.0.1:{port}/v1/chat/completions")
    assert found is not None
    assert found.provider == provider


def test_a_get_is_looked_at_only_while_a_response_is_being_made() -> None:
    """Most requests of a process are none of ours."""
    assert not may_begin("GET", "/v1/responses/resp_1")
    assert not may_begin("POST", "/v1/users/7/orders")
