"""Requests that ask no model to write: embeddings, rankings, pictures, speech, classes, counts of tokens."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.formats.others_bedrock_invoke import OTHERS, PROFILE
from tests.telemetry.mocked import Records

MESSAGES = [{"role": "user", "content": "hi"}]
EMBED = {"model": "m", "input": "hi"}
EMBED_TEXTS = {"model": "m", "texts": ["hi"], "input_type": "search_query"}
PICTURE = {"model": "m", "prompt": "a cat"}
RANK = {"model": "m", "query": "hi", "documents": ["a"]}
SPEECH = {"model": "m", "input": "hi", "voice": "v"}
COUNT = {"model": "m", "messages": MESSAGES}
CONTENTS = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
AZURE = "https://own.openai.azure.com/openai/deployments/m"
BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model"
GEMINI = "https://generativelanguage.googleapis.com/v1beta/models/m"
VERTEX = "https://us-east5-aiplatform.googleapis.com/v1/projects/p/locations/l"

REQUESTS: list[tuple[str, Any]] = [
    *((f"{base}/embeddings", EMBED) for base in ("https://api.openai.com/v1", AZURE, "https://api.mistral.ai/v1")),
    *((f"{base}/images/generations", PICTURE) for base in ("https://api.openai.com/v1", AZURE)),
    ("https://api.openai.com/v1/images/edits", PICTURE),
    ("https://api.openai.com/v1/audio/speech", SPEECH),
    ("https://api.openai.com/v1/audio/transcriptions", {"model": "m"}),
    ("https://api.openai.com/v1/moderations", {"input": "hi"}),
    *((f"https://api.openai.com/v1/responses/{what}", EMBED) for what in ("input_tokens", "compact")),
    *((f"https://{host}/v1/rerank", RANK) for host in ("openrouter.ai", "api.together.xyz", "api.cohere.com")),
    ("https://api.anthropic.com/v1/messages/count_tokens", COUNT),
    *((f"https://api.cohere.com/v{version}/embed", EMBED_TEXTS) for version in (1, 2)),
    ("https://api.cohere.com/v1/classify", {"inputs": ["hi"], "model": "m"}),
    ("https://api.cohere.com/v1/tokenize", {"text": "hi", "model": "m"}),
    (
        "https://api.mistral.ai/v1/ocr",
        {"model": "m", "document": {"type": "document_url", "document_url": "https://x"}},
    ),
    ("https://api.mistral.ai/v1/chat/moderations", {"model": "m", "input": [MESSAGES]}),
    ("http://localhost:11434/api/embed", EMBED),
    ("http://localhost:11434/api/embeddings", PICTURE),
    (f"{GEMINI}:embedContent", {"content": {"parts": [{"text": "hi"}]}}),
    (f"{GEMINI}:countTokens", CONTENTS),
    (f"{VERTEX}/publishers/anthropic/models/count-tokens:rawPredict", COUNT),
    (f"{VERTEX}/publishers/mistralai/models/mistral-ocr-2505:rawPredict", {"model": "mistral-ocr-2505"}),
    (f"{VERTEX}/publishers/google/models/gemini-embedding-001:predict", {"instances": [{"content": "hi"}]}),
    (f"{VERTEX}/publishers/google/models/imagen-4:predict", {"instances": [{"prompt": "a cat"}]}),
    (f"{VERTEX}/endpoints/1:predict", {"instances": []}),
    *((f"{BEDROCK}/{model}/invoke", asked) for model, (asked, _) in OTHERS.items()),
    # Where a profile hides the model, the body tells.
    *((f"{BEDROCK}/{PROFILE.replace('/', '%2F')}/invoke", asked) for asked, _ in OTHERS.values()),
    (f"{BEDROCK}/m/count-tokens", {"input": {"converse": {"messages": MESSAGES}}}),
    ("https://bedrock-runtime.us-east-1.amazonaws.com/guardrail/g/version/1/apply", {"source": "INPUT", "content": []}),
    ("https://bedrock-agent-runtime.us-east-1.amazonaws.com/knowledgebases/k/retrieve", {"retrievalQuery": {}}),
]


@pytest.mark.parametrize(("url", "asked"), REQUESTS, ids=[url.removeprefix("https://") for url, _ in REQUESTS])
def test_it_passes(records: Records, url: str, asked: Any) -> None:
    """The answer is the host's, and nothing is recorded."""
    answer = {"id": "x", "object": "list", "model": "m", "data": [], "results": [], "usage": {}, "embeddings": []}
    with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer))) as client:
        assert client.post(url, content=json.dumps(asked)).json() == answer
    assert not records
