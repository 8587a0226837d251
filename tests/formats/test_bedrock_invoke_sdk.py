"""InvokeModel through the real boto3, over a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pytest

from endturn.chat import Message, Request, ToolCall, Usage
from endturn.formats import Context, Event, summarize
from endturn.formats.bedrock_invoke import FORMAT as bedrock_invoke
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, say, truncate
from endturn.stop import StopReason
from tests.formats.replies_bedrock_invoke import MODELS

boto3: Any = import_module("boto3")  # Neither typed nor with stubs.
botocore_config: Any = import_module("botocore.config")
botocore_errors: Any = import_module("botocore.exceptions")

FAMILIES = ["claude", "nova", "titan", "llama", "mistral", "command", "claude_text", "command_r", "jamba", "deepseek"]
USER = Message(role="user", content="Once upon")


@contextmanager
def boto(provider: ScriptedProvider) -> Iterator[Any]:
    """boto3's client, asking a scripted provider."""
    with provider.serve() as url:
        client = boto3.client(
            "bedrock-runtime",
            endpoint_url=url,
            region_name="us-east-1",
            aws_access_key_id="none",
            aws_secret_access_key="none",
            config=botocore_config.Config(retries={"total_max_attempts": 1}),
        )
        try:
            yield client
        finally:
            client.close()


def asked(family: str, *, stream: bool = False) -> dict[str, Any]:
    """The arguments of a call of boto3."""
    request = Request(model=MODELS[family], messages=(USER,), max_tokens=50)
    return {"modelId": MODELS[family], "body": json.dumps(bedrock_invoke.encode(request, stream=stream))}


def context(arguments: dict[str, Any]) -> Context:
    """What is known of such a call."""
    return Context("", "aws.bedrock", bedrock_invoke.request_summary(arguments))


@pytest.mark.parametrize("reply", [say("All of it. 👋🏽"), truncate("One two three", after=2)], ids=["say", "truncate"])
@pytest.mark.parametrize("family", FAMILIES)
def test_replies_reach_boto3(family: str, reply: Reply) -> None:
    """In each family's own words, streamed and not; body, summarizer and decoder agree."""
    provider = ScriptedProvider([reply, reply])
    with boto(provider) as client:
        arguments = asked(family)
        ctx = context(arguments)
        answer = client.invoke_model(**arguments)
        body = json.loads(answer["body"].read())
        whole = bedrock_invoke.decode(body, ctx=ctx)
        assert summarize(bedrock_invoke, ctx, body).stop == whole.stop
        stream = client.invoke_model_with_response_stream(**asked(family, stream=True))["body"]
        decoder, summarizer = bedrock_invoke.decoder(ctx), bedrock_invoke.summarizer(ctx)
        for event in stream:
            summarizer.feed(event)
            list(decoder.feed(Event(None, event)))
        response = decoder.close()
    expected = StopReason.END_TURN if reply.stop is StopReason.END_TURN else StopReason.MAX_TOKENS
    assert summarizer.close().stop == response.stop == whole.stop
    assert (response.text, response.stop.reason) == (whole.text, expected) == (reply.text, expected)
    assert response.usage is not None
    assert response.usage.output_tokens == reply.output_tokens
    for received in provider.received:
        assert (received.format, received.request.model) == ("bedrock_invoke", MODELS[family])
        assert received.request.max_tokens == 50
    assert [received.stream for received in provider.received] == [False, True]


@pytest.mark.parametrize("family", ["claude", "nova", "jamba"])
def test_calls_reach_boto3(family: str) -> None:
    """A tool call arrives whole, in each family's shape."""
    reply = call("read", {"path": "a b.txt"}, text="Reading.")
    with boto(ScriptedProvider([reply, reply])) as client:
        ctx = context(asked(family))
        whole = bedrock_invoke.decode(json.load(client.invoke_model(**asked(family))["body"]), ctx=ctx)
        decoder = bedrock_invoke.decoder(ctx)
        for event in client.invoke_model_with_response_stream(**asked(family))["body"]:
            list(decoder.feed(Event(None, event)))
    for response in (whole, decoder.close()):
        assert response.stop.reason is StopReason.TOOL_CALL
        assert [(each.name, each.arguments) for each in response.tool_calls] == [("read", {"path": "a b.txt"})]
        assert all(isinstance(each, ToolCall) and each.closed for each in response.tool_calls)


def test_a_cut_stream_reaches_boto3() -> None:
    """What a proxy cut has no reason."""
    with boto(ScriptedProvider([cut("One two", after=1, tidy=True)])) as client:
        summarizer = bedrock_invoke.summarizer(context(asked("claude")))
        for event in client.invoke_model_with_response_stream(**asked("claude"))["body"]:
            summarizer.feed(event)
    seen = summarizer.close()
    assert (seen.stop.reason, seen.tail) == (StopReason.MISSING, "One")


def test_errors_reach_boto3() -> None:
    """An error answer is a ClientError of its name; in mid-stream, boto3 raises the exception itself."""
    failures = [fail(429), fail(503, text="One two")]
    with boto(ScriptedProvider(failures)) as client:
        with pytest.raises(botocore_errors.ClientError) as raised:
            client.invoke_model(**asked("titan"))
        assert raised.value.response["Error"]["Code"] == "ThrottlingException"
        summarizer = bedrock_invoke.summarizer(context(asked("titan")))
        stream = client.invoke_model_with_response_stream(**asked("titan"))["body"]
        with closing(stream), pytest.raises(botocore_errors.EventStreamError, match="serviceUnavailableException"):
            list(map(summarizer.feed, stream))
    assert summarizer.close().stop.reason is StopReason.MISSING


def test_bedrocks_own_figures() -> None:
    """The last chunk has them, whatever the family: Mistral's text says nothing else of tokens."""
    reply = say("One two").but(usage=Usage(5, 2))
    with boto(ScriptedProvider([reply])) as client:
        events = list(client.invoke_model_with_response_stream(**asked("mistral"))["body"])
    last = json.loads(events[-1]["chunk"]["bytes"])
    assert last["amazon-bedrock-invocationMetrics"]["inputTokenCount"] == 5
    summarizer = bedrock_invoke.summarizer(context(asked("mistral")))
    for event in events:
        summarizer.feed(event)
    assert summarizer.close().usage == Usage(5, 2)


def test_the_events_that_boto3_knows_are_known() -> None:
    """The stream's members, as the installed botocore declares them: a chunk, and exceptions."""
    client = boto3.client(
        "bedrock-runtime", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
    )
    try:
        shape = client.meta.service_model.shape_for("ResponseStream")
    finally:
        client.close()
    odd = [name for name in shape.members if name != "chunk" and not name.endswith("Exception")]
    assert not odd, f"botocore declares events of InvokeModelWithResponseStream that nobody reads: {odd}"
