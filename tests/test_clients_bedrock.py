"""Our clients at Bedrock: signed as botocore signs and as AWS recomputes it, or with a key."""

from __future__ import annotations

import datetime
import hashlib
import hmac
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import httpx2
import pytest

from endturn.chat import Message, Request
from endturn.clients import AsyncClient, Client
from endturn.errors import ProviderUnavailable, UsageError
from endturn.formats.bedrock_converse import FORMAT as bedrock_converse
from endturn.scripted import ScriptedProvider, say
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.signing import signer

KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "IQoJb3JpZ2luX2VjEXAMPLE=="
URL = "https://bedrock-runtime.eu-west-1.amazonaws.com"
ARN = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-lite-v1:0"
ASKED = Request(model=ARN, messages=(Message(role="user", content="hi"),), max_tokens=50)
PATH = "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A123456789012%3Ainference-profile%2Fus.amazon.nova-lite-v1%3A0"
BEARER = "bedrock-api-key-YmVkcm9jaw"

botocore: Any = import_module("botocore.auth")  # Neither typed nor with stubs.
boto3: Any = import_module("boto3")


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No credentials but what a test sets: neither this machine's files nor its roles."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def expected(method: str, raw_path: str, headers: Mapping[str, str], content: bytes) -> str:
    """The signature that AWS computes over what arrived, written after its specification of Signature Version 4.

    Args:
        raw_path: as it was sent; AWS quotes it once more.
        headers: as they arrived, names in lower case.
    """
    _, fields = headers["authorization"].split(" ", 1)
    said = dict(part.split("=", 1) for part in fields.split(", "))
    names = said["SignedHeaders"].split(";")
    _, day, region, service, end = said["Credential"].split("/")
    path, _, query = raw_path.partition("?")
    canonical = [method, quote(path, safe="/-_.~"), "&".join(sorted(filter(None, query.split("&"))))]
    canonical += [f"{name}:{' '.join(headers[name].split())}" for name in names]
    canonical += ["", ";".join(names), hashlib.sha256(content).hexdigest()]
    digest = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
    scope = "/".join([day, region, service, end])
    signed = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, digest])
    key = f"AWS4{SECRET}".encode()
    for part in (day, region, service, end):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, signed.encode(), "sha256").hexdigest()


def lower(headers: Mapping[str, Any]) -> dict[str, str]:
    """Headers with names in lower case, values as text."""
    return {n.lower(): value.decode() if isinstance(value, bytes) else value for n, value in headers.items()}


def botocores(model: str, stream: bool) -> Any:
    """The HTTP request that boto3's client would send."""
    client = boto3.session.Session().client("bedrock-runtime", region_name="eu-west-1")  # not the process's own
    sent: list[Any] = []

    def caught(request: Any, **rest: Any) -> Any:
        sent.append(request)
        raise InterruptedError

    client.meta.events.register("before-send.bedrock-runtime.*", caught)
    with pytest.raises(InterruptedError):
        (client.converse_stream if stream else client.converse)(
            modelId=model, messages=[{"role": "user", "content": [{"text": "Grüezi"}]}]
        )
    return sent[0]


MODELS = [
    "anthropic.claude-3-haiku-20240307-v1:0",
    "eu.amazon.nova-lite-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:provisioned-model/abc_d~e.f-g",
]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
@pytest.mark.parametrize("model", MODELS)
def test_the_signature_is_botocores(
    model: str, token: str | None, stream: bool, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the same request at the same moment, ours and boto3's client send the same path and the same signature."""
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    moment = datetime.datetime(2026, 11, 21, 12, 0, 0)
    monkeypatch.setattr(botocore, "get_current_datetime", lambda *args: moment)
    theirs = botocores(model, stream)
    path = bedrock_converse.route(ASKED.but(model=model), stream=stream).path
    assert theirs.url == URL + path
    signed = lower(signer("eu-west-1")("POST", URL + path, {"content-type": "application/json"}, theirs.body))
    sent = lower(theirs.headers)
    assert signed == {name: sent[name] for name in signed}
    assert ("x-amz-security-token" in signed) is (token is not None)


@pytest.mark.parametrize(
    ("variable", "value"), [("AWS_ACCESS_KEY_ID", KEY), ("AWS_PROFILE", "nobody")], ids=["half a pair", "no profile"]
)
def test_credentials_that_cannot_be_used(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match="the AWS credentials cannot be used"):
        signer("eu-west-1")


def test_a_profile_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n", encoding="utf-8"
    )
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert f"Credential={KEY}/" in signer("eu-west-1")("POST", URL, {}, b"")["Authorization"]


def test_without_botocore_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """botocore is an extra; a Bedrock API key needs none."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    with pytest.raises(UsageError, match=r"pip install 'endturn\[bedrock\]'; or give api_key"):
        signer("eu-west-1")


def test_each_request_is_signed_anew(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signature holds for minutes: the same request an hour later has its own date."""
    sign = signer("eu-west-1")
    dates = []
    for hour in (12, 13):
        moment = datetime.datetime(2026, 11, 21, hour)
        monkeypatch.setattr(botocore, "get_current_datetime", lambda *args, now=moment: now)
        dates.append(lower(sign("POST", URL, {}, b"{}"))["x-amz-date"])
    assert dates == ["20261121T120000Z", "20261121T130000Z"]


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
@pytest.mark.usefixtures("keys")
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
        names = f"content-type;host;x-amz-date;{'x-amz-security-token;' if token else ''}x-amzn-bedrock-trace"
        assert f"/eu-central-1/bedrock/aws4_request, SignedHeaders={names}, " in said
        assert said.endswith(f"Signature={expected('POST', asked.path, asked.headers, asked.body)}")
        assert asked.headers.get("x-amz-security-token") == token


@pytest.mark.parametrize("given", ["argument", "environment"])
@pytest.mark.usefixtures("keys")
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


@pytest.mark.usefixtures("keys")
def test_without_credentials_there_is_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
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
)
@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.usefixtures("keys")
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


@pytest.mark.usefixtures("keys")
def test_neither_keys_nor_signatures_are_shown() -> None:
    """No repr of a client holds them, and what a scripted server received has none."""
    provider = ScriptedProvider([say("x")])
    with provider.serve() as url, Client("aws.bedrock", base_url=url) as sync:
        sync(ASKED)
        shown = repr(sync) + repr(vars(sync)) + repr(provider.received)
    for secret in ("wJalrXUtnFEMI", "Signature=", "AKIDEXAMPLE"):
        assert secret not in shown
