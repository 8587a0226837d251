"""Where requests go: one table of URLs, read by the function and sent by every real HTTP client."""

from __future__ import annotations

import ast
import asyncio
import json
import logging
import socket
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import aiohttp
import boto3
import httpx
import httpx2
import pytest
import requests
import urllib3
from botocore.config import Config

from endturn.calls import listeners
from endturn.instrumentation import exchange, http_clients
from endturn.instrumentation.addresses import address
from endturn.telemetry import schema
from endturn.vocabulary.stop import StopReason
from tests.instrumentation.clients import ASK, CHAT
from tests.instrumentation.test_exchanges import seen
from tests.support.announced import Records
from tests.telemetry.conftest import stage
from tests.telemetry.stage import Stage

__all__ = ["seen", "stage"]

USER = "somebody:secret@"

# URL; host, port, path, query. Source: RFC 3986 (userinfo, ports, fragments), RFC 6874 (zones), RFC 5952 (the short
# form of an IPv6 address), RFC 5890 (international names).
URLS: dict[str, tuple[str, int | None, str, str] | None] = {
    "https://api.openai.com/v1/chat/completions": ("api.openai.com", None, CHAT, ""),
    "https://API.OpenAI.com.:443/v1/chat/completions?a=b": ("api.openai.com", None, CHAT, "a=b"),
    "http://h:443/x": ("h", 443, "/x", ""),
    "https://h:80/x": ("h", 80, "/x", ""),
    "http://h:/x#part": ("h", None, "/x", ""),
    f"http://{USER}h:8080/x": ("h", 8080, "/x", ""),
    f"https://{USER}[::1]:8443/x": ("::1", 8443, "/x", ""),
    "http://[::1]/x": ("::1", None, "/x", ""),
    "http://[0:0:0:0:0:0:0:1]:11434/x": ("::1", 11434, "/x", ""),
    "http://[2001:DB8::A]:80/x": ("2001:db8::a", None, "/x", ""),
    "http://[fe80::1%25eth0]:8080/x": ("fe80::1%eth0", 8080, "/x", ""),
    "http://bücher.example/x": ("xn--bcher-kva.example", None, "/x", ""),
    "http://xn--bcher-kva.example/x": ("xn--bcher-kva.example", None, "/x", ""),
    "http://h/x?to=http://other/y": ("h", None, "/x", "to=http://other/y"),
    "http://h:99999/x": None,
    "http://h:port/x": None,
    "http://[::1/x": None,
    "http:///x": None,
    "h/x": None,
    "/x": None,
}


@pytest.mark.parametrize("url", URLS)
def test_a_url(url: str) -> None:
    """It is read as text and as bytes; user names, passwords and fragments are nowhere."""
    found = address(url)
    assert found == URLS[url]
    if url.isascii():
        assert address(url.encode()) == found
    assert "secret" not in repr(found)


PARTS: list[tuple[str, str, str | bytes, int | str | None, tuple[str, int | None] | None]] = [
    (CHAT, "http", "::1", 8080, ("::1", 8080)),
    (CHAT, "http", "[::1]", "8080", ("::1", 8080)),
    (CHAT, "https", b"fe80::1%25eth0", 443, ("fe80::1%eth0", None)),
    (CHAT, "HTTPS", "API.OpenAI.com", None, ("api.openai.com", None)),
    (f"/{CHAT}", "http", "h", 80, ("h", None)),  # two slashes are no host
    (f"https://{USER}api.openai.com{CHAT}", "http", "proxy", 3128, ("api.openai.com", None)),
    (f"http://[::1]:81{CHAT}", "http", "proxy", 3128, ("::1", 81)),
    (CHAT, "http+unix", "/run/model.sock", None, ("/run/model.sock", None)),
    (CHAT, "http", "h", 99999, None),
    (CHAT, "http", "h", "port", None),
]


@pytest.mark.parametrize(("target", "scheme", "host", "port", "expected"), PARTS)
def test_parts(
    target: str, scheme: str, host: str | bytes, port: int | str | None, expected: tuple[str, int | None] | None
) -> None:
    """The parts that a client knows are read as the URL of the same parts; a whole URL, as a proxy gets it, wins."""
    found = address(target, scheme=scheme, host=host, port=port)
    assert (None if found is None else found[:2]) == expected
    assert found is None or found.path.lstrip("/") == CHAT.lstrip("/")


# --- Every client ----------------------------------------------------------------------------------------------------


def by_httpx(library: Any) -> Callable[[str], None]:
    def post(url: str) -> None:
        with library.Client(trust_env=False) as client:
            client.post(url, json=ASK)

    return post


def by_async_httpx(url: str) -> None:
    async def post() -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            await client.post(url, json=ASK)

    asyncio.run(post())


def by_aiohttp(url: str) -> None:
    async def post() -> None:
        async with aiohttp.ClientSession() as session, session.post(url, json=ASK) as response:
            await response.read()

    asyncio.run(post())


def by_aiohttp_with_a_base(url: str) -> None:
    async def post() -> None:
        base, path = url.removesuffix(CHAT) + "/", CHAT.removeprefix("/")
        async with (
            aiohttp.ClientSession(base) as session,
            session.post(path, json=ASK, params={"to": "http://other/y"}) as response,
        ):
            await response.read()

    asyncio.run(post())


def by_urllib(url: str) -> None:
    request = urllib.request.Request(url, json.dumps(ASK).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request) as response:
        response.read()


def by_urllib3(url: str) -> None:
    urllib3.PoolManager(retries=False).request("POST", url, json=ASK)


def by_urllib3_pool(url: str) -> None:
    """A pool is asked for the path alone."""
    body = json.dumps(ASK).encode()
    urllib3.connection_from_url(url, retries=False).urlopen("POST", CHAT, body)


def by_requests(url: str) -> None:
    with requests.Session() as session:
        session.trust_env = False
        session.post(url, json=ASK)


def by_boto3(url: str) -> None:
    config = Config(retries={"total_max_attempts": 1}, proxies={})
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    client = boto3.client("bedrock-runtime", endpoint_url=url.removesuffix(CHAT), config=config, **keys)
    with suppress(Exception):  # the server speaks another format
        client.converse(modelId="m", messages=[{"role": "user", "content": [{"text": "hi"}]}])


SENDERS: dict[str, Callable[[str], None]] = {
    "httpx": by_httpx(httpx),
    "httpx2": by_httpx(httpx2),
    "async httpx": by_async_httpx,
    "aiohttp": by_aiohttp,
    "aiohttp with a base": by_aiohttp_with_a_base,
    "urllib": by_urllib,
    "urllib3": by_urllib3,
    "a pool of urllib3": by_urllib3_pool,
    "requests": by_requests,
    "boto3": by_boto3,
}
every_sender = pytest.mark.parametrize("post", SENDERS.values(), ids=SENDERS)


REPLY = json.dumps(
    {
        "id": "chatcmpl-1",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "One two"}}],
        "output": {"message": {"role": "assistant", "content": [{"text": "One two"}]}},  # Bedrock's
        "stopReason": "max_tokens",
    }
).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers every request with `REPLY`."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(REPLY)))
        self.end_headers()
        self.wfile.write(REPLY)

    def log_message(self, format: str, *args: Any) -> None: ...


class IPv6Server(ThreadingHTTPServer):
    address_family = socket.AF_INET6


@contextmanager
def serving(kind: type[ThreadingHTTPServer], host: str) -> Iterator[int]:
    """Serve on a loopback address. Yields the port."""
    with kind((host, 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@every_sender
def test_an_ipv6_address(seen: Records, post: Callable[[str], None]) -> None:
    """The call is recorded once, with the address without its brackets: an answer, or where the machine has no IPv6 the
    error of connecting."""
    try:
        with serving(IPv6Server, "::1") as port:
            post(f"http://[::1]:{port}{CHAT}")
        expected = StopReason.MAX_TOKENS
    except OSError:
        port, expected = 9, StopReason.ERROR
        with suppress(Exception):
            post(f"http://[::1]:{port}{CHAT}")
    ended = seen.only()
    assert ended.stop.reason is expected
    assert (ended.started.endpoint.server_address, ended.started.endpoint.server_port) == ("::1", port)


@every_sender
def test_a_user_name_and_a_password(seen: Records, post: Callable[[str], None]) -> None:
    """They are no part of what is recorded, whatever the client makes of them."""
    with serving(ThreadingHTTPServer, "127.0.0.1") as port, suppress(Exception):
        post(f"http://{USER}127.0.0.1:{port}{CHAT}")
    assert seen.only().started.endpoint.server_address == "127.0.0.1"
    assert "secret" not in repr(seen)
    assert "somebody" not in repr(seen)


@every_sender
@pytest.mark.parametrize("url", [f"http://127.0.0.1:99999{CHAT}", f"http://127.0.0.1:port{CHAT}", f"http://[::1{CHAT}"])
def test_a_url_that_is_not_valid(
    seen: Records, post: Callable[[str], None], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the host's own mistake: nothing is recorded, and nothing of ours fails or is logged; its client says the
    same as without us."""

    def failure() -> str:
        try:
            post(url)
        except Exception as error:
            return f"{type(error)} {error}"
        return ""

    caplog.set_level(logging.DEBUG, "endturn")
    observed = failure()
    http_clients.uninstall()
    assert observed == failure()
    assert not seen
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("post", [by_requests, by_urllib3], ids=["requests", "urllib3"])
def test_a_proxy(seen: Records, post: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is sent the whole URL; the call is recorded with the host that the URL names."""
    with serving(ThreadingHTTPServer, "127.0.0.1") as port:
        proxy = f"http://127.0.0.1:{port}"
        if post is by_requests:
            requests.post(f"http://[::1]:81{CHAT}", json=ASK, proxies={"http": proxy})
        else:
            urllib3.ProxyManager(proxy, retries=False).request("POST", f"http://[::1]:81{CHAT}", json=ASK)
    ended = seen.only()
    assert ended.stop.reason is StopReason.MAX_TOKENS
    assert (ended.started.endpoint.server_address, ended.started.endpoint.server_port) == ("::1", 81)


PATHS = [
    "/serving-endpoints/m/invocations",
    "/endpoints/m/invocations",
    "/invocations",
    "/v1/text/chatcompletion_v2",
    "/v1/projects/p/locations/l/endpoints/1:rawPredict",
    "/openai/deployments/m/chat/completions",
    "/models/chat/completions",
    "/v1beta/openai/chat/completions",
    "/v1/account/gateway/compat/chat/completions",
]
"""Where an API that answers in the format of chat completions is found besides /v1/chat/completions."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("name", ["httpx", "httpx2", "async httpx", "aiohttp", "urllib", "urllib3", "requests"])
def test_another_path_of_the_same_api(seen: Records, name: str, path: str) -> None:
    """It is recorded, whichever client asks."""
    with serving(ThreadingHTTPServer, "127.0.0.1") as port:
        SENDERS[name](f"http://127.0.0.1:{port}{path}")
    ended = seen.only()
    assert (ended.stop.reason, ended.started.request.model) == (StopReason.MAX_TOKENS, "m")


def test_an_endpoint_of_sagemaker(seen: Records) -> None:
    """boto3 sends what its host wrote; the endpoint's name stands in for the model."""
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    body = json.dumps({"messages": ASK["messages"], "max_tokens": 2})
    with serving(ThreadingHTTPServer, "127.0.0.1") as port:
        client = boto3.client("sagemaker-runtime", endpoint_url=f"http://127.0.0.1:{port}", **keys)
        asked = {"EndpointName": "llama", "Body": body, "ContentType": "application/json"}
        answer = client.invoke_endpoint(**asked)["Body"].read()
    assert answer == REPLY
    ended = seen.only()
    assert (ended.stop.reason, ended.started.request.model) == (StopReason.MAX_TOKENS, "llama")


# --- Failures of endturn's own ---------------------------------------------------------------------------------------


def test_an_internal_failure_is_counted_where_it_happened(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The host's call goes on; the failure is in the metric under its step, and in the log once."""

    def failing(*_: object) -> None:
        raise LookupError("secret")

    monkeypatch.setattr(exchange, "endpoint", failing)
    monkeypatch.setattr(listeners, "_logged_labels", set())
    http_clients.install(lambda: True)
    try:
        with serving(ThreadingHTTPServer, "127.0.0.1") as port, pytest.MonkeyPatch.context() as patch:
            patch.setattr(listeners, "_is_strict", False)
            by_requests(f"http://127.0.0.1:{port}{CHAT}")
            by_urllib(f"http://127.0.0.1:{port}{CHAT}")
            with listeners.strict(), pytest.raises(LookupError):
                by_urllib(f"http://127.0.0.1:{port}{CHAT}")
    finally:
        http_clients.uninstall()
    stage.start(stage.turn())
    assert stage.points()["endturn.listener.failures"] == {("Recorder",): 0, ("opening a call",): 2}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "secret" not in caplog.text


def test_a_step_that_has_no_name_is_counted_as_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The label's values are a closed set."""
    monkeypatch.setattr(listeners, "_failure_counts", {})
    monkeypatch.setattr(listeners, "_logged_labels", set())
    try:
        raise LookupError
    except LookupError:
        listeners.log_internal_error("a test of the steps")
        listeners.log_internal_error("instrumenting a client", "a library")
    assert listeners.listener_failures() == {listeners.OTHER_STEP: 1, "instrumenting a client": 1}


def test_every_step_is_declared() -> None:
    """What the source logs as an internal error is one of the declared steps, and each of these is in use."""
    package = Path(listeners.__file__).parents[1]
    steps: list[str] = []
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "log_internal_error":
                step = node.args[0]
                assert isinstance(step, ast.Constant), f"{file}:{node.lineno}: name the step literally"
                steps.append(str(step.value))
    assert set(steps) == set(listeners.INTERNAL_STEPS)
    assert set(listeners.INTERNAL_STEPS) < set(schema.LISTENER.examples)
