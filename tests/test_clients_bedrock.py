"""Our HTTP clients at Bedrock: signed or with a key, streamed in AWS's own framing, in both colours."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import httpx
import httpx2
import pytest

from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    block,
    call,
    cut,
    empty,
    fail,
    partial_call,
    reason,
    say,
    think,
    truncate,
)
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.stop import StopReason
from tests.test_signing import TOKEN, alone, expected, keys  # noqa: F401 - fixtures

ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0"
ASKED = Request(model=ARN, messages=(Message(role="user", content="hi"),), max_tokens=50)
PATH = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.amazon.nova-lite-v1%3A0"
BEARER = "bedrock-api-key-YmVkcm9jaw"

pytestmark = pytest.mark.usefixtures("keys")


def finished(items: list[Delta | ChatResponse]) -> tuple[str, ChatResponse]:
    """The deltas' text, and the response that must come last."""
    *deltas, response = items
    assert isinstance(response, ChatResponse)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), response


REPLIES = {
    "say": say("Grüezi 👋🏽."),
    "truncate": truncate("One two three", after=2),
    "block": block("Well"),
    "empty": empty(),
    "unknown value": reason("some_new_value", "Hm"),
    "null": reason(None, "Hm").but(usage=None),
    "thinking alone": think("Let me see"),
    "call": call("read", {"path": "a"}, text="Reading.", id="1").also("list", {}, id="2"),
    "cut call": partial_call("write", {"path": "a.txt", "text": "long"}, after=2, id="1"),
}


@pytest.mark.parametrize("name", REPLIES)
async def test_every_colour_returns_the_same_response(name: str) -> None:
    """Sync and async, streamed and whole, over a socket and in process: one reply, one response."""
    provider = ScriptedProvider([REPLIES[name]], exhausted="last", format="bedrock_converse")
    expected_ = provider.complete(ASKED)
    with provider.serve() as url:
        with Client("aws.bedrock", base_url=url) as sync:
            whole = sync(ASKED)
            said, streamed = finished(list(sync.stream(ASKED)))
        async with AsyncClient("aws.bedrock", base_url=url) as other:
            awaited = await other(ASKED)
            said_async, streamed_async = finished([item async for item in other.stream(ASKED)])
    assert said == said_async == expected_.text
    for response in (whole, awaited, streamed, streamed_async):
        assert (response.text, response.reasoning, response.stop_reason, response.raw_stop_reason) == (
            expected_.text,
            expected_.reasoning,
            expected_.stop_reason,
            expected_.raw_stop_reason,
        )
        assert [made.name for made in response.tool_calls] == [made.name for made in expected_.tool_calls]
        assert response.usage == expected_.usage
    assert whole.stop == awaited.stop == expected_.stop
    assert {received.request.model for received in provider.received} == {ARN}


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (fail(400), RequestRejected),
        (fail(403), RequestRejected),
        (fail(408), ProviderTimeout),
        (fail(424), ProviderUnavailable),
        (fail(429, retry_after_s=7), ProviderUnavailable),
        (fail(503), ProviderUnavailable),
    ],
    ids=["400", "403", "408", "424", "429", "503"],
)
async def test_errors_say_whose_fault_it_is(reply: Reply, kind: type[ProviderError]) -> None:
    """Each status is an exception whose type says whose fault it is, with the request's id, in both colours."""
    assert reply.failure is not None
    with ScriptedProvider([reply], exhausted="last").serve() as url:
        with Client("aws.bedrock", base_url=url) as sync:
            for attempt in (lambda: sync(ASKED), lambda: list(sync.stream(ASKED))):
                with pytest.raises(kind) as caught:
                    attempt()
                assert (type(caught.value), caught.value.status) == (kind, reply.failure.status)
                assert caught.value.request_id is not None
                assert caught.value.retry_after_s == reply.failure.retry_after_s
        async with AsyncClient("aws.bedrock", base_url=url) as other:
            with pytest.raises(kind):
                await other(ASKED)


async def test_an_exception_inside_a_stream_keeps_the_partial() -> None:
    """It is raised after the text that came before it, and the text is in `partial`."""
    with ScriptedProvider([fail(429, text="So far")], exhausted="last").serve() as url:
        with Client("aws.bedrock", base_url=url) as sync, pytest.raises(ProviderUnavailable) as caught:
            list(sync.stream(ASKED))
        async with AsyncClient("aws.bedrock", base_url=url) as other:
            with pytest.raises(ProviderUnavailable):
                [_ async for _ in other.stream(ASKED)]
    assert caught.value.status == 429
    assert caught.value.partial is not None
    assert caught.value.partial.text == "So far"


def test_an_error_may_be_a_stop_reason() -> None:
    """An input that is too long for the model is the window."""
    provider = ScriptedProvider([fail(400, "context_length_exceeded")])
    with Client("aws.bedrock", http=provider.transport()) as sync, pytest.raises(RequestRejected) as caught:
        sync(ASKED)
    assert caught.value.stop is not None
    assert caught.value.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


@pytest.mark.parametrize(
    ("reply", "detail"),
    [(cut("One two"), "connection"), (cut("One two", tidy=True), None)],
    ids=["broken", "tidy"],
)
async def test_a_cut_stream_is_missing(reply: Reply, detail: str | None) -> None:
    """A stream that ends or breaks before its messageStop ends in a response: the partial text, stop `missing`."""
    with ScriptedProvider([reply], exhausted="last").serve() as url:
        with Client("aws.bedrock", base_url=url) as sync:
            results = [finished(list(sync.stream(ASKED)))]
        async with AsyncClient("aws.bedrock", base_url=url) as other:
            results.append(finished([item async for item in other.stream(ASKED)]))
    for said, response in results:
        assert said == response.text == "One two"
        assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, detail)


def test_a_damaged_stream_is_a_decode_error_with_the_partial() -> None:
    """Bytes that are no message after some that were."""
    provider = ScriptedProvider([cut("So far", tidy=True)])

    def answer(request: httpx.Request) -> httpx.Response:
        good = provider.transport().handle_request(request).read()
        return httpx.Response(
            200, headers={"content-type": "application/vnd.amazon.eventstream"}, content=good + b"x" * 16
        )

    with Client("aws.bedrock", http=httpx.MockTransport(answer)) as sync, pytest.raises(DecodeError) as caught:
        list(sync.stream(ASKED))
    assert (caught.value.provider, caught.value.status) == ("aws.bedrock", 200)
    assert caught.value.partial is not None
    assert caught.value.partial.text == "So far"


# --- Who asks ----------------------------------------------------------------------------------------------------


async def arrived(base: str = "", **options: Any) -> list[RequestSummary]:
    """What arrives at a server when each colour asks, whole and streamed. `base` is a path before the format's own."""
    seen: list[RequestSummary] = []

    def respond(asked: RequestSummary) -> Answer:
        seen.append(asked)
        return Answer(status=500, length=0)

    with Server(respond).running() as url:
        with Client("aws.bedrock", base_url=url + base, **options) as sync:
            for attempt in (lambda: sync(ASKED), lambda: list(sync.stream(ASKED))):
                with pytest.raises(ProviderUnavailable):
                    attempt()
        async with AsyncClient("aws.bedrock", base_url=url + base, **options) as other:
            with pytest.raises(ProviderUnavailable):
                await other(ASKED)
            with pytest.raises(ProviderUnavailable):
                [_ async for _ in other.stream(ASKED)]
    return seen


@pytest.mark.parametrize("base", ["", "/gateway/", "/gateway?stage=b&stage=a"], ids=["bare", "a path", "a query"])
@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
async def test_what_arrives_is_what_was_signed(token: str | None, base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signature is over the path as it was sent, and over no header that the HTTP library adds or changes."""
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    seen = await arrived(base, headers={"X-Amzn-Bedrock-Trace": "ENABLED"})
    before, _, query = base.partition("?")
    paths = [
        before.rstrip("/") + PATH + end + (f"?{query}" if query else "") for end in ("/converse", "/converse-stream")
    ]
    assert [asked.path for asked in seen] == paths * 2
    for asked in seen:
        said = asked.headers["authorization"]
        names = [
            "content-type",
            "host",
            "x-amz-date",
            *(["x-amz-security-token"] if token else []),
            "x-amzn-bedrock-trace",
        ]
        assert f"/eu-central-1/bedrock/aws4_request, SignedHeaders={';'.join(names)}, " in said
        assert said.endswith(f"Signature={expected('POST', asked.path, asked.headers, asked.body)}")
        assert asked.headers.get("x-amz-security-token") == token


@pytest.mark.parametrize("given", ["argument", "environment"])
async def test_a_bedrock_api_key_needs_no_signature(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a bearer token, comes before any credentials, and neither botocore nor credentials are needed."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setitem(import_module("sys").modules, "botocore.session", None)
    options = {"api_key": BEARER} if given == "argument" else {}
    if given == "environment":
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    for asked in await arrived(**options):
        assert asked.headers["authorization"] == f"Bearer {BEARER}"
        assert "x-amz-date" not in asked.headers


def test_without_credentials_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said when the client is made, not when it asks."""
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    for kind in (Client, AsyncClient):
        with pytest.raises(UsageError, match="no AWS credentials"):
            kind("aws.bedrock")


@pytest.mark.parametrize(
    ("environment", "base_url", "host", "region"),
    [
        ({}, None, "bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-3"}, None, "bedrock-runtime.eu-west-3.amazonaws.com", "eu-west-3"),
        (
            {"AWS_DEFAULT_REGION": "eu-west-3", "AWS_REGION": "eu-west-2"},
            None,
            "bedrock-runtime.eu-west-2.amazonaws.com",
            "eu-west-2",
        ),
        (
            {"AWS_REGION": "eu-west-2"},
            "https://bedrock-runtime.eu-west-1.amazonaws.com",
            "bedrock-runtime.eu-west-1.amazonaws.com",
            "eu-west-1",
        ),
        (
            {},
            "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/",
            "bedrock-runtime-fips.us-gov-west-1.amazonaws.com",
            "us-gov-west-1",
        ),
        (
            {},
            "https://vpce-1.bedrock-runtime.ap-south-1.vpce.amazonaws.com",
            "vpce-1.bedrock-runtime.ap-south-1.vpce.amazonaws.com",
            "ap-south-1",
        ),
        ({"AWS_REGION": "eu-west-2"}, "https://gateway.example", "gateway.example", "eu-west-2"),
    ],
    ids=["none", "default", "region before default", "the host's", "fips", "private", "somebody's gateway"],
)
@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_region(
    library: Any,
    environment: dict[str, str],
    base_url: str | None,
    host: str,
    region: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """AWS's own host names the one to sign for, else the environment does; both HTTP libraries send what was signed."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append(request)
        return library.Response(500)

    with library.Client(transport=library.MockTransport(answer)) as http:
        sync = Client("aws.bedrock", base_url=base_url, http=http)
        with pytest.raises(ProviderUnavailable):
            sync(ASKED)
    (request,) = seen
    said = request.headers["authorization"]
    assert (request.url.host, request.url.raw_path.decode()) == (host, f"{PATH}/converse")
    assert f"/{region}/bedrock/aws4_request" in said
    headers = {name.lower(): value for name, value in request.headers.items()}
    assert said.endswith(f"Signature={expected('POST', request.url.raw_path.decode(), headers, request.content)}")


def test_neither_keys_nor_signatures_are_shown() -> None:
    """No repr of a client holds them, and what a scripted server received has none."""
    provider = ScriptedProvider([say("x")])
    with provider.serve() as url, Client("aws.bedrock", base_url=url) as sync:
        sync(ASKED)
        shown = repr(sync) + repr(vars(sync)) + repr(provider.received)
    for secret in ("wJalrXUtnFEMI", "Signature=", "AKIDEXAMPLE"):
        assert secret not in shown
