"""boto3 1.44.5, which has no async, over a real socket: it takes our replies for Bedrock's; what it gives is read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import import_module
from typing import Any

import pytest

from endturn.chat import Json, Message, Request, Tool
from endturn.formats import Context, Event, Framing, framing, summarize
from endturn.formats.bedrock_converse import FORMAT as bedrock_converse
from endturn.formats.format import Summarizer
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    block,
    call,
    cut,
    fail,
    hang_up,
    partial_call,
    say,
    think,
    truncate,
)
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.stop import StopReason
from tests.formats.replies_bedrock_converse import BODIES, STREAMS, event, said, stream

# Neither typed nor with stubs.
boto3: Any = import_module("boto3")
botocore: Any = import_module("botocore.exceptions")
urllib3: Any = import_module("urllib3.exceptions")

CTX = Context(provider="aws.bedrock")
HI = [{"role": "user", "content": [{"text": "hi"}]}]


@contextmanager
def client(url: str) -> Iterator[Any]:
    """boto3's client of bedrock-runtime at that address; it asks once."""
    made = boto3.session.Session().client(
        "bedrock-runtime",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="secret",
        config=import_module("botocore.config").Config(retries={"total_max_attempts": 1}),
    )
    try:
        yield made
    finally:
        made.close()


@contextmanager
def scripted(*replies: Reply) -> Iterator[Any]:
    """boto3's client, asking a provider that plays these replies."""
    with ScriptedProvider(list(replies)).serve() as url, client(url) as made:
        yield made


@contextmanager
def sending(body: Json, events: list[Event]) -> Iterator[Any]:
    """boto3's client, answered with this body, and this stream."""

    def respond(asked: RequestSummary) -> Answer:
        if not asked.path.endswith("/converse-stream"):
            content = json.dumps(body).encode()
            return Answer(headers={"content-type": "application/json"}, chunks=(content,), length=len(content))
        chunks = tuple(framing.frame(each, Framing.EVENTSTREAM) for each in events)
        return Answer(headers={"content-type": framing.CONTENT_TYPE[Framing.EVENTSTREAM]}, chunks=chunks)

    with Server(respond).running() as url, client(url) as made:
        yield made


def show(asking: Any, summarizer: Summarizer) -> None:
    """Show a summarizer what boto3 streams."""
    with closing(asking.converse_stream(modelId="m", messages=HI)["stream"]) as events:
        for each in events:
            summarizer.feed(each)


@pytest.mark.parametrize("name", BODIES)
def test_bodies(name: str) -> None:
    """boto3's answer to `converse` is read as the body is, and summarised so."""
    response = bedrock_converse.decode(BODIES[name], ctx=CTX)
    with sending(BODIES[name], []) as asking:
        got = asking.converse(modelId="m", messages=HI)
    again, seen = bedrock_converse.decode(got, ctx=CTX), summarize(bedrock_converse, CTX, got)
    assert again == response
    assert (seen.stop, seen.usage) == (response.stop, response.usage)


@pytest.mark.parametrize("name", STREAMS)
def test_streams(name: str) -> None:
    """boto3's own parser reads our events, and a summary learns from its dictionaries what a decoder does from ours."""
    decoder, summarizer = bedrock_converse.decoder(CTX), bedrock_converse.summarizer(CTX)
    for each in STREAMS[name]:
        list(decoder.feed(each))
    with sending({}, STREAMS[name]) as asking:
        show(asking, summarizer)
    response, seen = decoder.close(), summarizer.close()
    assert (seen.stop, seen.usage, seen.model) == (response.stop, response.usage, response.model)
    assert (seen.tail, seen.output_chars) == (response.text[-64:], len(response.text))


REPLIES = {
    "say": (say("Grüezi 👋🏽."), "end_turn", StopReason.END_TURN),
    "truncate": (truncate("One two three", after=2), "max_tokens", StopReason.MAX_TOKENS),
    "block": (block("Well"), "guardrail_intervened", StopReason.SAFETY_BLOCKED),
    "thinking": (think("Let me see", text="Yes"), "end_turn", StopReason.END_TURN),
    "call": (call("read", {"path": "ä"}, text="Reading."), "tool_use", StopReason.TOOL_CALL),
    "cut call": (partial_call("write", {"text": "long"}, after=2), "max_tokens", StopReason.MAX_TOKENS),
}


@pytest.mark.parametrize("name", REPLIES)
def test_scripted_replies(name: str) -> None:
    """Each kind of reply arrives in boto3, streamed and not, with its text and Converse's own reason."""
    reply, raw, reason = REPLIES[name]
    with scripted(reply, reply) as asking:
        got = asking.converse(modelId="eu.amazon.nova-lite-v1:0", messages=HI)
        events = list(asking.converse_stream(modelId="eu.amazon.nova-lite-v1:0", messages=HI)["stream"])
    text = "".join(each.get("text", "") for each in got["output"]["message"]["content"])
    deltas = [each["contentBlockDelta"]["delta"] for each in events if "contentBlockDelta" in each]
    assert text == "".join(each.get("text", "") for each in deltas) == reply.text
    assert (
        got["stopReason"] == next(each["messageStop"] for each in events if "messageStop" in each)["stopReason"] == raw
    )
    assert list(events[-1]) == ["metadata"]
    assert events[-1]["metadata"]["usage"] == got["usage"]
    summarizer = bedrock_converse.summarizer(CTX)
    for each in events:
        summarizer.feed(each)
    assert summarizer.close().stop.reason is summarize(bedrock_converse, CTX, got).stop.reason is reason


def test_what_boto3_sends_is_what_encode_writes() -> None:
    """Its arguments are the body's members: the scripted server reads the same request back, model and all."""
    asked = Request(
        model="arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.x-v1:0",
        messages=(Message(role="system", content="Be brief."), Message(role="user", content="hi")),
        tools=(Tool(name="weather", description="The weather."),),
        tool_choice="required",
        max_tokens=64,
        temperature=0.5,
        format={"type": "object"},
        extra={"additionalModelRequestFields": {"top_k": 5}},
    )
    body = bedrock_converse.encode(asked)
    provider = ScriptedProvider([say("whole"), say("streamed")])
    with provider.serve() as url, client(url) as asking:
        asking.converse(modelId=asked.model, **body)
        list(asking.converse_stream(modelId=asked.model, **body)["stream"])
    assert provider.requests == [asked, asked]
    assert [received.stream for received in provider.received] == [False, True]
    assert {name: value for name, value in provider.received[0].body.items() if name in body} == body


ERRORS = {
    400: "ValidationException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


@pytest.mark.parametrize("status", ERRORS)
def test_error_answers(status: int) -> None:
    """boto3 raises a scripted failure as the exception that its model has for the status, streamed or not."""
    with scripted(fail(status), fail(status)) as asking:
        for ask in (asking.converse, asking.converse_stream):
            with pytest.raises(getattr(asking.exceptions, ERRORS[status])) as raised:
                ask(modelId="m", messages=HI)
            answer = raised.value.response
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == status
            assert answer["ResponseMetadata"]["RequestId"].startswith("req_")
            assert answer["Error"]["Message"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(429, "throttlingException"), (500, "internalServerException"), (400, "validationException")],
)
def test_an_exception_inside_a_stream_is_raised_not_given(status: int, code: str) -> None:
    """boto3 raises EventStreamError for it and never hands the event out: a summary of its stream sees a cut stream."""
    summarizer = bedrock_converse.summarizer(CTX)
    failing = fail(status, message="So it goes", text="So far")
    with scripted(failing) as asking, pytest.raises(botocore.EventStreamError) as raised:
        show(asking, summarizer)
    assert raised.value.response["Error"] == {"Code": code, "Message": "So it goes"}
    seen = summarizer.close()
    assert (seen.stop.reason, seen.tail) == (StopReason.MISSING, "So far")
    # What the wrapper of a stream can do with what was raised: show it to the summarizer as the event that it was.
    error = raised.value.response["Error"]
    summarizer.feed({error["Code"]: {"message": error["Message"]}})
    assert (summarizer.close().stop.reason, summarizer.close().stop.raw) == (StopReason.ERROR, code)


def test_an_exception_after_the_end_is_raised_by_boto3_all_the_same() -> None:
    """The answer was whole by then."""
    late = event("internalServerException", message="too late")
    summarizer = bedrock_converse.summarizer(CTX)
    with sending({}, [*stream([said(0, "ok")]), late]) as asking, pytest.raises(botocore.EventStreamError):
        show(asking, summarizer)
    assert summarizer.close().stop.reason is StopReason.END_TURN


def test_a_stream_that_ends_early_ends_silently_in_boto3() -> None:
    """No messageStop, and boto3's iteration ends as after any other: only the summarizer says that it was cut."""
    summarizer = bedrock_converse.summarizer(CTX)
    with scripted(cut("One two three", after=2, tidy=True)) as asking:
        show(asking, summarizer)
    seen = summarizer.close()
    assert (seen.stop.reason, seen.stop.truncated, seen.tail) == (StopReason.MISSING, True, "One two")


def test_a_lost_connection() -> None:
    """Within a stream it is urllib3's error, before an answer botocore's."""
    with scripted(cut("One two"), hang_up()) as asking:
        with pytest.raises(urllib3.ProtocolError):
            show(asking, bedrock_converse.summarizer(CTX))
        with pytest.raises(botocore.ConnectionClosedError):
            asking.converse(modelId="m", messages=HI)


# Drift


def declared(shape: str) -> Any:
    """A shape of the service model that the installed botocore carries."""
    session = import_module("botocore.session").get_session()
    return session.get_service_model("bedrock-runtime").shape_for(shape)


def test_every_reason_of_the_installed_sdk_has_a_row() -> None:
    """A value that botocore's model gained is missing in stop_reasons.tsv; one that it lost is no longer evidence."""
    theirs, ours = set(declared("StopReason").enum), set(bedrock_converse.reasons[""])
    assert theirs - ours == set(), "stop_reasons.tsv lacks these rows of bedrock_converse"
    assert ours - theirs == set(), "botocore's StopReason no longer has these values"


def test_every_event_of_the_installed_sdk_is_known() -> None:
    """Events that are not exceptions are read by name; a new one may carry what the summarizer should know."""
    known = {"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"}
    members = declared("ConverseStreamOutput").members
    assert {name for name, shape in members.items() if not shape.metadata.get("exception")} == known
    assert {name for name in members if name.endswith("Exception")} == set(members) - known


def test_the_servers_tools_are_still_told_apart_by_a_type() -> None:
    """A client's call has none in botocore's model; a new one here would be taken for the client's."""
    assert declared("ToolUseType").enum == ["server_tool_use"]
