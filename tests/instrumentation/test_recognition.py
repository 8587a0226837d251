"""Which requests ask a model to write text: by path, members and host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from endturn.instrumentation.addresses import address
from endturn.instrumentation.http_clients import may_begin
from endturn.instrumentation.recognition import endpoint
from tests.support.announced import Records
from tests.telemetry.conftest import records

__all__ = ["records"]

HERE = Path(__file__).parent
ASKED, UNKNOWN, OF_NO_TEXT = yaml.safe_load((HERE / "requests.yaml").read_text()).values()
BEDROCK = "https://bedrock-runtime.us-east-1.amazonaws.com/model"
PROFILE = "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile%2Fabc123"
NOTHING = {"id": "x", "object": "list", "model": "m", "data": [], "results": [], "usage": {}, "embeddings": []}
OF_NO_TEXT = [(url, asked, NOTHING) for url, asked in OF_NO_TEXT] + [
    (f"{BEDROCK}/{name}/invoke", asked, said)
    for model, (asked, said) in json.loads((HERE / "no_text_on_bedrock.json").read_text()).items()
    for name in (model, PROFILE)  # where a profile hides the model, the body tells
]
PORTS = [(11434, "ollama", "ollama"), (1234, "lmstudio", "lmstudio"), (8000, "openai", "compatible")]


@pytest.mark.parametrize(("url", "body", "expected"), [
    *((url, body, tuple(expected)) for url, body, *expected in ASKED),
    *((url, body, None) for url, body in UNKNOWN),
    # Servers of one's own are known by the ports that they choose for themselves.
    *((f"http://127.0.0.1:{port}/v1/chat/completions", {"model": "m", "messages": []},
       ("openai_chat", *answers)) for port, *answers in PORTS),
])  # fmt: skip
def test_requests(url: str, body: Any, expected: tuple[str, str, str] | None) -> None:
    """The host says who answers; on another than a provider's own, the members must be the format's."""
    where = address(url)
    assert where is not None
    found = endpoint("POST", where) if may_begin("POST", httpx.URL(url).raw_path.decode()) else None
    found = found and found.with_body_format(body)
    if found is not None and not found.asks_model(body):
        found = None
    assert (found and (found.format.name, found.provider, found.dialect)) == expected


@pytest.mark.parametrize(
    ("url", "asked", "said"), OF_NO_TEXT, ids=[url.removeprefix("https://") for url, *_ in OF_NO_TEXT]
)
def test_a_request_of_no_text_passes(records: Records, url: str, asked: Any, said: Any) -> None:
    """The answer is the host's, and nothing is recorded."""
    with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=said))) as client:
        assert client.post(url, content=json.dumps(asked)).json() == said
    assert not records


def test_a_get_is_looked_at_only_while_a_response_is_being_made() -> None:
    """Most requests of a process are none of ours."""
    assert not may_begin("GET", "/v1/responses/resp_1")
    assert not may_begin("POST", "/v1/users/7/orders")
