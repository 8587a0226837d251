"""Our HTTP clients at Bedrock: signed or with a key, streamed in AWS's own framing, in both colours."""

from __future__ import annotations

from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import pytest

from endturn.chat import Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import ProviderUnavailable, UsageError
from endturn.scripted import (
    ScriptedProvider,
    say,
)
from endturn.scripted.loopback import Answer, RequestSummary, Server
from tests.test_signing import TOKEN, alone, expected, keys  # noqa: F401 - fixtures

ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0"
ASKED = Request(model=ARN, messages=(Message(role="user", content="hi"),), max_tokens=50)
PATH = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.amazon.nova-lite-v1%3A0"
BEARER = "bedrock-api-key-YmVkcm9jaw"

pytestmark = pytest.mark.usefixtures("keys")


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
        with pytest.raises(UsageError, match=r"no AWS credentials.*AWS_ACCESS_KEY_ID.*AWS_BEARER_TOKEN_BEDROCK"):
            kind("aws.bedrock")


AWS = "bedrock-runtime.eu-west-1.amazonaws.com"


@pytest.mark.parametrize(
    ("environment", "base_url", "host", "region"),
    [
        ({}, None, "bedrock-runtime.us-east-1.amazonaws.com", "us-east-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-1"}, None, AWS, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-3", "AWS_REGION": "eu-west-1"}, None, AWS, "eu-west-1"),
        ({"AWS_REGION": "eu-west-2"}, f"https://{AWS}", AWS, "eu-west-1"),
        ({}, "https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/", None, "us-gov-west-1"),
        ({}, "https://vpce-1.bedrock-runtime.ap-south-1.vpce.amazonaws.com", None, "ap-south-1"),
        ({"AWS_REGION": "eu-west-2"}, "https://gateway.example", None, "eu-west-2"),
    ],
    ids=["none", "default", "region before default", "the host's", "fips", "private", "somebody's gateway"],
)
@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
def test_the_region(
    library: Any,
    environment: dict[str, str],
    base_url: str | None,
    host: str | None,
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
    assert (request.url.host, request.url.raw_path.decode()) == (
        host or urlsplit(base_url or "").hostname,
        f"{PATH}/converse",
    )
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
