"""boto3's client of bedrock-runtime, observed over a scripted server."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pytest

from endturn.errors import ProviderError
from endturn.instrumentation import exchange
from endturn.scripted import Reply, ScriptedProvider, cut, fail, hang_up, say, truncate
from endturn.scripted.loopback import Answer, Server
from endturn.stop import StopReason
from tests.telemetry.mocked import Records, settle
from tests.wires.others_bedrock_invoke import OTHERS, PICTURES, PROFILE
from tests.wires.replies import message
from tests.wires.replies import say as said_block
from tests.wires.replies_bedrock_invoke import MODELS

boto3: Any = import_module("boto3")  # Neither typed nor with stubs.
botocore_client: Any = import_module("botocore.client")
botocore_config: Any = import_module("botocore.config")
botocore_errors: Any = import_module("botocore.exceptions")
botocore_events: Any = import_module("botocore.eventstream")
botocore_response: Any = import_module("botocore.response")
botocore_stub: Any = import_module("botocore.stub")

# botocore closes no connection of a stream that is dropped: it warns without us, too.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")

WORDS = "One two three four five six seven"
ASK: dict[str, Any] = {
    "modelId": "anthropic.claude-sonnet-5",
    "messages": [{"role": "user", "content": [{"text": "hi"}]}],
    "inferenceConfig": {"maxTokens": 1000, "temperature": 0.5},
}
PROMPT: dict[str, Any] = {
    "modelId": MODELS["claude"],
    "body": json.dumps({"max_tokens": 1000, "messages": [{"role": "user", "content": "hi"}]}),
}


def made(url: str, *, attempts: int = 1, service: str = "bedrock-runtime", **config: Any) -> Any:
    """boto3's client of a service, asking there."""
    return boto3.client(
        service,
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="none",
        aws_secret_access_key="none",
        config=botocore_config.Config(retries={"total_max_attempts": attempts}, **config),
    )


@contextmanager
def client(*replies: Reply, wire: str = "bedrock_converse", **options: Any) -> Iterator[Any]:
    """boto3's client, asking a scripted server, without retries."""
    with ScriptedProvider(replies, wire=wire).serve() as url, closing(made(url, **options)) as asking:
        yield asking


INVOKE = "bedrock_invoke"


# Converse


def test_a_call(records: Records) -> None:
    """One record holds the request's facts and the response's stop and usage; a dictionary comes back."""
    with client(truncate("One two three", after=2)) as asking:
        answer = asking.converse(**ASK)
    assert type(answer) is dict
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    assert ended.usage is not None
    started = ended.started
    assert (started.provider, started.model, started.operation) == ("aws.bedrock", "anthropic.claude-sonnet-5", "chat")
    assert (started.maximum, started.temperature, started.stream) == (1000, 0.5, False)
    assert started.server_address == "127.0.0.1"
    assert started.server_port is not None


def test_a_guardrail(records: Records) -> None:
    """What a guardrail stopped is blocked for safety."""
    with client(say("No.").but(stop="guardrail_intervened")) as asking:
        asking.converse(**ASK)
    assert records.only().stop.reason is StopReason.SAFETY_BLOCKED


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (fail(429), StopReason.ERROR),
        (fail(503), StopReason.ERROR),
        (fail(400, "context_length_exceeded"), StopReason.CONTEXT_WINDOW_EXCEEDED),
    ],
    ids=["throttled", "down", "window"],
)
def test_refusals(records: Records, reply: Reply, reason: StopReason) -> None:
    """ClientError is raised as ever, and read."""
    with client(*[reply] * 2) as asking:
        for method in (asking.converse, asking.converse_stream):
            with pytest.raises(botocore_errors.ClientError):
                method(**ASK)
            assert isinstance(records.ended[-1].error, ProviderError)
    assert [ended.stop.reason for ended in records.ended] == [reason, reason]


def test_a_lost_connection_and_a_timeout(records: Records) -> None:
    """botocore's own exceptions; a timeout is told apart."""
    with client(hang_up(), say("late").but(delay_s=5), read_timeout=0.05) as asking:
        with pytest.raises(botocore_errors.ConnectionClosedError):
            asking.converse(**ASK)
        with pytest.raises(botocore_errors.ReadTimeoutError):
            asking.converse(**ASK)
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.ERROR, None),
        (StopReason.ERROR, "timeout"),
    ]


# ConverseStream


def test_a_stream_read_to_its_end(records: Records) -> None:
    """The SDK's own event stream comes back; its end is one record."""
    with client(say(WORDS)) as asking:
        answer = asking.converse_stream(**ASK)
        assert type(answer["stream"]) is botocore_events.EventStream
        assert not records.ended
        events = list(answer["stream"])
    said = "".join(event.get("contentBlockDelta", {}).get("delta", {}).get("text", "") for event in events)
    assert said == WORDS
    ended = records.only()
    assert ended.stop.reason is StopReason.END_TURN
    assert (ended.started.stream, ended.output_chars) == (True, len(WORDS))
    assert ended.first_chunk_s is not None
    assert ended.usage is not None


def close_unread(stream: Any) -> None:
    stream.close()


def close(stream: Any) -> None:
    with closing(stream):
        next(iter(stream))


def drop(stream: Any) -> None:
    next(iter(stream))


def drop_unread(stream: Any) -> None:
    pass


def stop_reading(stream: Any) -> None:
    for _ in stream:
        break


@pytest.mark.parametrize("how", [close_unread, close, drop, drop_unread, stop_reading])
@pytest.mark.parametrize("operation", ["converse_stream", "invoke_model_with_response_stream"])
def test_a_stream_that_is_left(records: Records, how: Callable[[Any], None], operation: str) -> None:
    """However its host stops reading, it has cancelled."""
    converse = operation == "converse_stream"
    with client(say(WORDS), wire="bedrock_converse" if converse else INVOKE) as asking:
        how(getattr(asking, operation)(**(ASK if converse else PROMPT))["stream" if converse else "body"])
        settle()
    ended = records.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert ended.stop.detail == (None if how in (close_unread, close) else exchange.ABANDONED)
    assert not ended.stop.truncated


def test_a_stream_that_is_left_after_its_reason_came(records: Records) -> None:
    """Hosts stop at `messageStop`: its reason stands."""
    with client(truncate(WORDS, after=3)) as asking:
        for event in asking.converse_stream(**ASK)["stream"]:
            if "messageStop" in event:
                break
        settle()
    assert records.only().stop.reason is StopReason.MAX_TOKENS


def test_a_stream_may_be_read_in_two_goes(records: Records) -> None:
    """Each `iter` of an event stream goes on where the last stopped."""
    with client(say(WORDS)) as asking:
        stream = asking.converse_stream(**ASK)["stream"]
        next(iter(stream))
        list(stream)
    assert records.only().stop.reason is StopReason.END_TURN


@pytest.mark.parametrize("tidy", [True, False])
def test_a_stream_that_is_cut(records: Records, tidy: bool) -> None:
    """Without `messageStop` the end is `missing`, with the error where there is one."""
    with client(cut(WORDS, after=2, tidy=tidy)) as asking:
        stream = asking.converse_stream(**ASK)["stream"]
        if tidy:
            list(stream)
        else:
            with pytest.raises(Exception, match=r"Connection broken|Response ended|InvalidChunkLength"):
                list(stream)
    ended = records.only()
    assert ended.stop.reason is StopReason.MISSING
    assert (ended.error is None) is tidy


@pytest.mark.parametrize("operation", ["converse_stream", "invoke_model_with_response_stream"])
def test_an_exception_within_a_stream(records: Records, operation: str) -> None:
    """botocore raises it instead of handing it on; what it is is read all the same."""
    converse = operation == "converse_stream"
    with client(fail(503, text="One two"), wire="bedrock_converse" if converse else INVOKE) as asking:
        answer = getattr(asking, operation)(**(ASK if converse else PROMPT))
        with pytest.raises(botocore_errors.EventStreamError):
            list(answer["stream" if converse else "body"])
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.ERROR, "serviceUnavailableException")
    assert isinstance(ended.error, ProviderError)


def test_many_streams_that_are_dropped(records: Records) -> None:
    """Nothing of them is left behind."""
    with client(*[say(WORDS)] * 60, max_pool_connections=60) as asking:
        for number in range(60):
            stream = asking.converse_stream(**ASK)["stream"]
            if number % 2:
                next(iter(stream))
            del stream
        settle()
        settle()  # what closing a generator raises in the first round holds its frames until the second
    assert len(records.ended) == len(records.started) == 60
    assert {ended.stop.reason for ended in records.ended} == {StopReason.CANCELLED}


# InvokeModel


def by_read(body: Any) -> bytes:
    whole: bytes = body.read()
    return whole


def by_parts(body: Any) -> bytes:
    return b"".join(iter(lambda: body.read(7), b""))


def by_length(body: Any) -> bytes:
    part: bytes = body.read(int(body._content_length))
    return part


def by_chunks(body: Any) -> bytes:
    return b"".join(body.iter_chunks(10))


def by_iterating(body: Any) -> bytes:
    return b"".join(body)


def by_next(body: Any) -> bytes:
    return b"".join(iter(lambda: next(body, b""), b""))


def by_lines(body: Any) -> bytes:
    return b"\n".join(body.iter_lines())


def by_readlines(body: Any) -> bytes:
    return b"".join(body.readlines())


def by_buffer(body: Any) -> bytes:
    whole = b""
    buffer = bytearray(9)
    while size := body.readinto(buffer):
        whole += buffer[:size]
    return whole


def by_buffered_reader(body: Any) -> bytes:
    return io.BufferedReader(body).read()


def by_entering(body: Any) -> bytes:
    with body as raw:
        whole: bytes = raw.read()
        return whole


def by_streaming(body: Any) -> bytes:
    with body as raw:
        return b"".join(raw.stream(8))


WAYS = (
    by_read,
    by_parts,
    by_length,
    by_chunks,
    by_iterating,
    by_next,
    by_lines,
    by_readlines,
    by_buffer,
    by_buffered_reader,
    by_entering,
    by_streaming,
)


@pytest.mark.parametrize("way", WAYS)
def test_a_body(records: Records, way: Callable[[Any], bytes]) -> None:
    """The SDK's own body comes back; it is one record when its host has read it, however it does."""
    with client(truncate("One two three", after=2), wire=INVOKE) as asking:
        answer = asking.invoke_model(**PROMPT)
        assert type(answer["body"]) is botocore_response.StreamingBody
        assert not records.ended
        body = json.loads(way(answer["body"]))
    assert body["content"][0]["text"] == "One two"
    ended = records.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "max_tokens")
    assert (ended.started.model, ended.started.maximum) == (MODELS["claude"], 1000)
    assert ended.response_id == body["id"]


@pytest.mark.parametrize("way", [by_read, by_parts, by_chunks, by_buffer, by_readlines, by_streaming])
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "cut"])
def test_a_body_of_unknown_length(records: Records, way: Callable[[Any], bytes], whole: bool) -> None:
    """It is over when its host finds nothing more; what is cut tidily has no reason."""
    content = json.dumps(message([said_block("One two")], "max_tokens")).encode()
    chunks = (content[:20], content[20:] if whole else b'"')
    answer = Answer(headers={"content-type": "application/json"}, chunks=chunks)
    with Server(lambda asked: answer).running() as url, closing(made(url)) as asking:
        assert way(asking.invoke_model(**PROMPT)["body"]) == b"".join(chunks)
    assert records.only().stop.reason is (StopReason.MAX_TOKENS if whole else StopReason.MISSING)


def test_a_body_as_json_reads_it(records: Records) -> None:
    """`json.load(answer["body"])` is how most hosts read it."""
    with client(say("Yes."), wire=INVOKE) as asking:
        json.load(asking.invoke_model(**PROMPT)["body"])
    assert records.only().stop.reason is StopReason.END_TURN


def body_unread(body: Any) -> None:
    pass


def body_closed(body: Any) -> None:
    body.close()


def body_begun(body: Any) -> None:
    body.read(5)


def body_begun_and_closed(body: Any) -> None:
    body.read(5)
    body.close()


@pytest.mark.parametrize("how", [body_unread, body_closed, body_begun, body_begun_and_closed])
def test_a_body_that_is_not_read(records: Records, how: Callable[[Any], None]) -> None:
    """Nobody knows why the model stopped: its host did not want to."""
    with client(say(WORDS), wire=INVOKE) as asking:
        how(asking.invoke_model(**PROMPT)["body"])
        settle()
        ended = records.only()
    assert ended.stop.reason is StopReason.CANCELLED
    assert ended.stop.detail == (None if how in (body_closed, body_begun_and_closed) else exchange.ABANDONED)


def test_what_the_headers_say_of_tokens(records: Records) -> None:
    """A model whose body says nothing of them: Bedrock's headers do."""
    counted = {"x-amzn-bedrock-input-token-count": "5", "x-amzn-bedrock-output-token-count": "2"}
    with client(say("Yes.").but(usage=None, headers=counted), wire=INVOKE) as asking:
        asking.invoke_model(modelId=MODELS["mistral"], body=json.dumps({"prompt": "hi"}))["body"].read()
    usage = records.only().usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (5, 2)


def test_a_stream_of_a_family(records: Records) -> None:
    """Invoked models stream in their family's own words."""
    with client(truncate(WORDS, after=3), wire=INVOKE) as asking:
        list(asking.invoke_model_with_response_stream(**PROMPT)["body"])
    ended = records.only()
    assert (ended.stop.reason, ended.started.stream) == (StopReason.MAX_TOKENS, True)


@pytest.mark.parametrize("model", OTHERS)
@pytest.mark.parametrize("hidden", [False, True], ids=["named", "profile"])
def test_what_asks_for_no_text_passes(records: Records, model: str, hidden: bool) -> None:
    """Embeddings, rankings, pictures: whole, streamed or refused, also where a profile hides the model."""
    body, said = OTHERS[model]
    asked = {"modelId": PROFILE if hidden else model, "body": json.dumps(body)}
    answer = Answer(headers={"content-type": "application/json"}, chunks=(json.dumps(said).encode(),))
    answers = [Answer(status=400, chunks=(b"{}",)), answer, answer]
    with Server(lambda asked: answers.pop()).running() as url, closing(made(url)) as asking:
        assert json.loads(asking.invoke_model(**asked)["body"].read()) == said
        asking.invoke_model_with_response_stream(**asked)["body"].close()
        with pytest.raises(botocore_errors.ClientError):
            asking.invoke_model(**asked)
    settle()
    assert not records


def test_what_nobody_could_know_is_not_cut(records: Records) -> None:
    """A profile that hides a model, a request that anybody might have: the answer is no text, and `unknown`."""
    answer = Answer(headers={"content-type": "application/json"}, chunks=(json.dumps(PICTURES).encode(),))
    with Server(lambda asked: answer).running() as url, closing(made(url)) as asking:
        asking.invoke_model(modelId=PROFILE, body=json.dumps({"prompt": "a cat"}))["body"].read()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.UNKNOWN, exchange.UNREADABLE)
    assert not ended.stop.truncated


# Whose calls


GUARDED = dict.fromkeys(
    (
        "topicPolicyUnits",
        "contentPolicyUnits",
        "wordPolicyUnits",
        "sensitiveInformationPolicyUnits",
        "sensitiveInformationPolicyFreeUnits",
        "contextualGroundingPolicyUnits",
    ),
    0,
)
JOB = "arn:aws:bedrock:us-east-1:111122223333:async-invoke/abcdefghijkl"


def test_other_services_pass(records: Records) -> None:
    """Another service's operations are not looked at, nor are others of this one's."""
    other = made("http://127.0.0.1:1", service="bedrock-agent-runtime")
    with closing(other), botocore_stub.Stubber(other) as stubbed:
        stubbed.add_client_error("retrieve")
        with pytest.raises(botocore_errors.ClientError):
            other.retrieve(knowledgeBaseId="0123456789", retrievalQuery={"text": "hi"})
    with closing(made("http://127.0.0.1:1")) as asking, botocore_stub.Stubber(asking) as stubbed:
        stubbed.add_response("count_tokens", {"inputTokens": 3})
        asking.count_tokens(modelId="m", input={"converse": {"messages": ASK["messages"]}})
        stubbed.add_response("apply_guardrail", {"usage": GUARDED, "action": "NONE", "outputs": [], "assessments": []})
        asking.apply_guardrail(guardrailIdentifier="g", guardrailVersion="1", source="INPUT", content=[])
        stubbed.add_response("start_async_invoke", {"invocationArn": JOB})
        asking.start_async_invoke(
            modelId="luma.ray-v2:0",
            modelInput={"prompt": "a cat"},
            outputDataConfig={"s3OutputDataConfig": {"s3Uri": "s3://b/"}},
        )
    assert not records
