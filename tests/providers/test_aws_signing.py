"""Our clients for Bedrock: requests signed like botocore's and as AWS verifies them, or with a key."""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import httpx
import httpx2
import pytest

from endturn.errors import ProviderUnavailable, UsageError
from endturn.formats.apis.bedrock_converse import FORMAT as bedrock_converse
from endturn.providers.aws_signing import signer
from endturn.providers.http_client import AsyncClient, Client
from endturn.testing.scripted import ScriptedProvider, say
from endturn.vocabulary.messages import Message, Request
from tests.support.processes import REPOSITORY

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
    """Use only credentials that the test sets, none of this machine's files and roles."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)


def at(monkeypatch: pytest.MonkeyPatch, hour: int) -> None:
    """Make botocore sign for this time."""
    monkeypatch.setattr(botocore, "get_current_datetime", lambda *args: datetime.datetime(2026, 11, 21, hour))


def lower(headers: Mapping[str, Any]) -> dict[str, str]:
    """Headers with names in lower case, values as text."""
    return {n.lower(): value.decode() if isinstance(value, bytes) else value for n, value in headers.items()}


def botocores(model: str, stream: bool) -> Any:
    """The HTTP request that boto3's client would send."""
    client = boto3.session.Session().client("bedrock-runtime", region_name="eu-west-1")  # not the process's own

    def caught(request: Any, **rest: Any) -> Any:
        raise InterruptedError(request)

    client.meta.events.register("before-send.bedrock-runtime.*", caught)
    ask = client.converse_stream if stream else client.converse
    with pytest.raises(InterruptedError) as raised:
        ask(modelId=model, messages=[{"role": "user", "content": [{"text": "Grüezi"}]}])
    return raised.value.args[0]


MODELS = [
    "anthropic.claude-3-haiku-20240307-v1:0",
    "eu.amazon.nova-lite-v1:0",
    "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "arn:aws:bedrock:eu-west-1:123456789012:provisioned-model/abc_d~e.f-g",
]


@pytest.mark.parametrize("token", [None, TOKEN], ids=["keys", "session"])
@pytest.mark.parametrize("model", MODELS)
def test_the_signature_is_botocores(model: str, token: str | None, keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the same request at the same time, our client and boto3's send the same path and signature.

    A signature is valid for minutes, so each request is signed.
    """
    if token is not None:
        monkeypatch.setenv("AWS_SESSION_TOKEN", token)
    sign = signer("eu-west-1")
    for hour, stream in ((12, False), (13, True)):
        at(monkeypatch, hour)
        theirs = botocores(model, stream)
        path = bedrock_converse.route(ASKED.but(model=model), stream=stream).path
        assert theirs.url == URL + path
        signed = lower(sign("POST", URL + path, {"content-type": "application/json"}, theirs.body))
        sent = lower(theirs.headers)
        assert signed == {name: sent[name] for name in signed}
        assert ("x-amz-security-token" in signed) is (token is not None)


@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "no AWS credentials.*AWS_ACCESS_KEY_ID.*AWS_BEARER_TOKEN_BEDROCK"),
        ({"AWS_ACCESS_KEY_ID": KEY}, "the AWS credentials cannot be used"),
        ({"AWS_PROFILE": "nobody"}, "the AWS credentials cannot be used"),
        (None, r"pip install 'endturn\[bedrock\]'; or give api_key"),
    ],
    ids=["none", "half a pair", "no profile", "no botocore"],
)
def test_without_credentials_there_is_no_client(
    environment: dict[str, str] | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says what to pass or to install: botocore is an extra."""
    for name, value in (environment or {}).items():
        monkeypatch.setenv(name, value)
    if environment is None:
        monkeypatch.setitem(sys.modules, "botocore.session", None)
    for kind in (Client, AsyncClient):
        with pytest.raises(UsageError, match=says):
            kind("aws.bedrock")


def test_a_profile_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "credentials").write_text(
        f"[work]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n", encoding="utf-8"
    )
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert f"Credential={KEY}/" in signer("eu-west-1")("POST", URL, {}, b"")["Authorization"]


# --- Who asks ----------------------------------------------------------------------------------------------------


async def arrived(library: Any, base_url: str | None = None, **options: Any) -> list[Any]:
    """Return the requests of the sync and the async client, whole and streamed."""
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append(request)
        return library.Response(500)

    http = library.MockTransport(answer)
    with Client("aws.bedrock", base_url=base_url, http=http, **options) as sync:
        async with AsyncClient("aws.bedrock", base_url=base_url, http=http, **options) as other:
            for attempt in (lambda: sync(ASKED), lambda: list(sync.stream(ASKED))):
                with pytest.raises(ProviderUnavailable):
                    attempt()
            for awaited in (other(ASKED), anext(other.stream(ASKED))):
                with pytest.raises(ProviderUnavailable):
                    await awaited
    return seen


PLACES = [
    json.loads(line) for line in (REPOSITORY / "tests/data/bedrock_addresses.jsonl").read_text("utf-8").splitlines()
]
"""What is said of the address, where a request goes (`<path>` is the API's), and for which region it is signed."""


@pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place["sent"])
@pytest.mark.usefixtures("keys")
async def test_the_signed_bytes_are_sent(library: Any, place: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's own host names the region, else the environment does; no header that the HTTP library adds is signed."""
    environment, region = place["environment"], place["region"]
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    at(monkeypatch, 12)
    seen = await arrived(library, place["base_url"], headers={"X-Amzn-Bedrock-Trace": "ENABLED"})
    ends = ("/converse", "/converse-stream")
    urls = [f"{asked.url.scheme}://{asked.url.netloc.decode()}{asked.url.raw_path.decode()}" for asked in seen]
    assert urls == [place["sent"].replace("<path>", PATH + end) for end in ends] * 2
    token = environment.get("AWS_SESSION_TOKEN")
    ours = {"content-type": "application/json", "x-amzn-bedrock-trace": "ENABLED"}
    for asked, url in zip(seen, urls, strict=True):
        signed = lower(signer(region)("POST", url, ours, asked.content))
        assert {name: asked.headers[name] for name in signed} == signed
        names = f"content-type;host;x-amz-date;{'x-amz-security-token;' if token else ''}x-amzn-bedrock-trace"
        assert f"/{region}/bedrock/aws4_request, SignedHeaders={names}, " in signed["authorization"]
        assert asked.headers.get("x-amz-security-token") == token


@pytest.mark.parametrize("given", ["argument", "environment"])
async def test_a_bedrock_api_key_needs_no_signature(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a bearer token, comes before any credentials, and neither botocore nor credentials are needed."""
    monkeypatch.setitem(sys.modules, "botocore.session", None)
    if given == "environment":
        monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", BEARER)
    for asked in await arrived(httpx, api_key=BEARER if given == "argument" else None):
        assert asked.headers["authorization"] == f"Bearer {BEARER}"
        assert "x-amz-date" not in asked.headers


@pytest.mark.usefixtures("keys")
def test_neither_keys_nor_signatures_are_shown() -> None:
    """Neither a client's repr nor the scripted server's recorded requests contain them."""
    provider = ScriptedProvider([say("x")])
    with provider.serve() as url, Client("aws.bedrock", base_url=url) as sync:
        sync(ASKED)
        shown = repr(sync) + repr(vars(sync)) + repr(provider.received)
    for secret in ("wJalrXUtnFEMI", "Signature=", "AKIDEXAMPLE"):
        assert secret not in shown
