"""boto3's client of bedrock-runtime: how its bodies are read, and which of its calls ask for text."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pytest

from endturn.scripted import Reply, ScriptedProvider, fail, say
from endturn.scripted.loopback import Answer, Server
from endturn.stop import StopReason
from tests.formats.others_bedrock_invoke import PICTURES, PROFILE
from tests.formats.replies import message, say as said_block
from tests.telemetry.mocked import Records

boto3: Any = import_module("boto3")  # Neither typed nor with stubs.
botocore_config: Any = import_module("botocore.config")
botocore_errors: Any = import_module("botocore.exceptions")
botocore_response: Any = import_module("botocore.response")

# botocore closes no connection of a stream that is dropped: it warns without us, too.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
ASK: dict[str, Any] = {
    "modelId": "anthropic.claude-sonnet-5",
    "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    "inferenceConfig": {"maxTokens": 1000, "temperature": 0.5},
}
PROMPT: dict[str, Any] = {
    "modelId": CLAUDE,
    "body": json.dumps({"max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}),
}


def made(url: str, *, service: str = "bedrock-runtime") -> Any:
    """boto3's client of a service, asking there."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=botocore_config.Config(retries={"total_max_attempts": 1}),
    )


@contextmanager
def client(*replies: Reply, format: str = "bedrock_invoke") -> Iterator[Any]:
    """boto3's client, asking a scripted server, without retries."""
    with ScriptedProvider(replies, format=format).serve() as url, closing(made(url)) as asking:
        yield asking


def parts(read: Callable[[], bytes]) -> bytes:
    return b"".join(iter(read, b""))


def buffered(body: Any) -> bytes:
    whole, buffer = b"", bytearray(9)
    while size := body.readinto(buffer):
        whole += buffer[:size]
    return whole


def entered(body: Any) -> bytes:
    with body as raw:
        return b"".join(raw.stream(8))


WAYS: dict[str, Callable[[Any], bytes]] = {
    "read": lambda body: bytes(body.read()),
    "parts": lambda body: parts(lambda: body.read(7)),
    "chunks": lambda body: b"".join(body.iter_chunks(10)),
    "iteration": lambda body: b"".join(body),
    "next": lambda body: parts(lambda: next(body, b"")),
    "lines": lambda body: b"\n".join(body.iter_lines()),
    "readlines": lambda body: b"".join(body.readlines()),
    "buffer": buffered,
    "reader": lambda body: io.BufferedReader(body).read(),
    "entered": entered,
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


@pytest.mark.parametrize("operation", ["converse_stream", "invoke_model_with_response_stream"])
def test_an_exception_within_a_stream(records: Records, operation: str) -> None:
    """botocore raises it instead of handing it on; what it is is read all the same."""
    converse = operation == "converse_stream"
    with client(fail(503, text="One two"), format="bedrock_converse" if converse else "bedrock_invoke") as asking:
        answer = getattr(asking, operation)(**(ASK if converse else PROMPT))
        with pytest.raises(botocore_errors.EventStreamError):
            list(answer["stream" if converse else "body"])
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.ERROR, "serviceUnavailableException")


def test_what_the_headers_say_of_tokens(records: Records) -> None:
    """A model whose body says nothing of them: Bedrock's headers do."""
    counted = {"x-amzn-bedrock-input-token-count": "5", "x-amzn-bedrock-output-token-count": "2"}
    with client(say("Yes.").but(usage=None, headers=counted)) as asking:
        asking.invoke_model(modelId="mistral.mixtral-8x7b-instruct-v0:1", body=json.dumps({"prompt": "hi"}))[
            "body"
        ].read()
    usage = records.only().usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (5, 2)


def test_what_nobody_could_know_is_not_cut(records: Records) -> None:
    """A profile that hides a model, a request that anybody might have: the answer is no text, and `unknown`."""
    answer = Answer(headers={"content-type": "application/json"}, chunks=(json.dumps(PICTURES).encode(),))
    with Server(lambda asked: answer).running() as url, closing(made(url)) as asking:
        asking.invoke_model(modelId=PROFILE, body=json.dumps({"prompt": "a cat"}))["body"].read()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.UNKNOWN, "unreadable")
    assert not ended.stop.truncated
