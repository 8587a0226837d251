"""Signatures over requests to Bedrock: those that botocore's own client makes, and that AWS would recompute."""

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

import pytest

from endturn.chat import Message, Request
from endturn.errors import UsageError
from endturn.formats.bedrock_converse import FORMAT as bedrock_converse
from endturn.signing import signer

KEY, SECRET, TOKEN = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "IQoJb3JpZ2luX2VjEXAMPLE=="
URL = "https://bedrock-runtime.eu-west-1.amazonaws.com"
ASKED = Request(model="m", messages=(Message(role="user", content="hi"),))

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
    """A pair of keys in the environment."""
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
    assert signed["authorization"].startswith(
        f"AWS4-HMAC-SHA256 Credential={KEY}/20261121/eu-west-1/bedrock/aws4_request, SignedHeaders=content-type;host;"
    )
    seen = {**signed, "host": urlsplit(URL).netloc}
    assert signed["authorization"].endswith(f"Signature={expected('POST', path, seen, theirs.body)}")


@pytest.mark.parametrize(
    ("variable", "value"), [("AWS_ACCESS_KEY_ID", KEY), ("AWS_PROFILE", "nobody")], ids=["half a pair", "no profile"]
)
def test_credentials_that_cannot_be_used(variable: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What botocore says of them is said, as a UsageError."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(UsageError, match="the AWS credentials cannot be used"):
        signer("eu-west-1")


def test_a_profile_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Credentials are looked for where boto3 looks."""
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
