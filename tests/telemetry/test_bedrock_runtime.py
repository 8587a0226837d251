"""boto3's client of bedrock-runtime: how its bodies are read, and which of its calls ask for text."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from importlib import import_module
from typing import Any

import pytest

from endturn.scripted import ScriptedProvider, say
from endturn.scripted.loopback import Answer, Server
from endturn.stop import StopReason
from tests.formats.replies import message, say as said_block
from tests.telemetry.mocked import Records

boto3: Any = import_module("boto3")  # Neither typed nor with stubs.
botocore_config: Any = import_module("botocore.config")
botocore_errors: Any = import_module("botocore.exceptions")
botocore_response: Any = import_module("botocore.response")

# botocore closes no connection of a stream that is dropped: it warns without us, too.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
PROMPT: dict[str, Any] = {
    "modelId": CLAUDE,
    "body": json.dumps({"max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}),
}


def made(url: str) -> Any:
    """boto3's client, asking there."""
    return boto3.client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=botocore_config.Config(retries={"total_max_attempts": 1}),
    )


def buffered(body: Any) -> bytes:
    whole, buffer = b"", bytearray(9)
    while size := body.readinto(buffer):
        whole += buffer[:size]
    return whole


WAYS: dict[str, Callable[[Any], bytes]] = {
    "read": lambda body: bytes(body.read()),
    "parts": lambda body: b"".join(iter(lambda: body.read(7), b"")),
    "chunks": lambda body: b"".join(body.iter_chunks(10)),
    "lines": lambda body: b"\n".join(body.iter_lines()),
    "buffer": buffered,
}


@pytest.mark.parametrize("length", [True, False], ids=["a length", "no length"])
def test_a_body_by_every_way_of_reading(records: Records, length: bool) -> None:
    """The SDK's own body comes back; it is one record when its host has read it, however it does."""
    content = json.dumps(message([said_block("One two")], "max_tokens")).encode()
    answer = Answer(
        headers={"content-type": "application/json"},
        chunks=(content[:20], content[20:]),
        length=len(content) if length else None,
    )
    with Server(lambda asked: answer).running() as url, closing(made(url)) as asking:
        for name, way in WAYS.items():
            body = asking.invoke_model(**PROMPT)["body"]
            assert type(body) is botocore_response.StreamingBody
            assert not records.ended
            assert way(body) == content, name
            ended = records.only()
            assert ended.stop.reason is StopReason.MAX_TOKENS, name
            assert (ended.started.model, ended.started.maximum) == (CLAUDE, 1000)
            records.clear()


def test_what_the_headers_say_of_tokens(records: Records) -> None:
    """A model whose body says nothing of them: Bedrock's headers do."""
    counted = {"x-amzn-bedrock-input-token-count": "5", "x-amzn-bedrock-output-token-count": "2"}
    replies = [say("Yes.").but(usage=None, headers=counted)]
    with ScriptedProvider(replies, format="bedrock_invoke").serve() as url, closing(made(url)) as asking:
        asking.invoke_model(modelId="mistral.mixtral-8x7b-instruct-v0:1", body=json.dumps({"prompt": "hi"}))[
            "body"
        ].read()
    usage = records.only().usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (5, 2)
