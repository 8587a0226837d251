"""What stands in for HTTP clients in tests, and lets some requests through: these are recorded once, in either order of
patching; nothing of the double breaks when endturn leaves."""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

import aiohttp
import aioresponses
import httpx
import pytest
import requests
import responses
import respx
import urllib3
import vcr

from endturn.calls import listeners
from endturn.instrumentation import http_clients
from endturn.vocabulary.stop import StopReason
from tests.support.announced import Records

ASK: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
CHOICE = {"index": 0, "finish_reason": "length", "message": {"role": "assistant", "content": "One two"}}
REPLY = json.dumps({"id": "chatcmpl-1", "model": "m", "choices": [CHOICE]}).encode()


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


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A model's API on the loopback interface."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.02,))
        thread.start()
        yield f"http://127.0.0.1:{listener.server_port}"
        listener.shutdown()
        thread.join()


@pytest.fixture
def seen() -> Iterator[Records]:
    """What is announced; nothing of ours may fail. Whoever tests, switches endturn on and off."""
    found = Records()
    stop = listeners.subscribe(found.append)
    try:
        with listeners.strict():
            yield found
    finally:
        http_clients.uninstall()
        stop()


def by_aiohttp(url: str) -> bytes:
    async def post() -> bytes:
        async with aiohttp.ClientSession() as session, session.post(url, json=ASK) as response:
            return await response.read()

    return asyncio.run(post())


def by_httpx(url: str) -> bytes:
    with httpx.Client(trust_env=False) as client:
        return client.post(url, json=ASK).content


def by_async_httpx(url: str) -> bytes:
    async def post() -> bytes:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(url, json=ASK)).content

    return asyncio.run(post())


def by_requests(url: str) -> bytes:
    return requests.post(url, json=ASK).content


def by_urllib3(url: str) -> bytes:
    return urllib3.PoolManager().request("POST", url, json=ASK).data


Post = Callable[[str], bytes]
METHODS = {
    "aiohttp": (by_aiohttp, aiohttp.ClientSession, "_request"),
    "httpx": (by_httpx, httpx.Client, "send"),
    "async httpx": (by_async_httpx, httpx.AsyncClient, "send"),
    "requests": (by_requests, urllib3.HTTPConnectionPool, "urlopen"),
}


@contextmanager
def through_aioresponses(url: str) -> Iterator[None]:
    with aioresponses.aioresponses(passthrough=[url]):
        yield


@contextmanager
def through_respx(url: str) -> Iterator[None]:
    with respx.mock(assert_all_called=False) as router:
        router.route().pass_through()
        yield


@contextmanager
def through_responses(url: str) -> Iterator[None]:
    with responses.RequestsMock(assert_all_requests_are_fired=False) as double:
        double.add_passthru(url)
        yield


def through_vcr(url: str) -> Any:
    return vcr.VCR(record_mode="all").use_cassette("/dev/null")


def through_a_patch(owner: type, name: str, *, by_dict: bool) -> Any:
    """A patch that hands on what it is given, to the method as the class has it or as its `__dict__` has it."""
    own = owner.__dict__[name] if by_dict else getattr(owner, name)

    @functools.wraps(own)
    def passing(self: Any, *args: Any, **kwargs: Any) -> Any:
        return own(self, *args, **kwargs)

    return mock.patch.object(owner, name, passing)


DOUBLES: dict[str, tuple[Post, Callable[[str], Any]]] = {
    "aioresponses": (by_aiohttp, through_aioresponses),
    "respx": (by_httpx, through_respx),
    "respx, async": (by_async_httpx, through_respx),
    "responses": (by_requests, through_responses),
    "vcr, aiohttp": (by_aiohttp, through_vcr),
    "vcr, httpx": (by_httpx, through_vcr),
    "vcr, requests": (by_requests, through_vcr),
    "vcr, urllib3": (by_urllib3, through_vcr),
    **{
        f"a patch of {name}{', by __dict__' * by_dict}": (
            post,
            lambda url, owner=owner, method=method, by_dict=by_dict: through_a_patch(owner, method, by_dict=by_dict),
        )
        for name, (post, owner, method) in METHODS.items()
        for by_dict in (False, True)
    },
}
every_double = pytest.mark.parametrize(("post", "through"), DOUBLES.values(), ids=DOUBLES)
KEEPS_THE_ORIGINAL = [(by_aiohttp, through_vcr)]
"""Calls the method that it found when it was imported: nobody who wraps the method later is asked."""


def once(seen: Records, post: Post, server: str) -> bool:
    """Whether one call is recorded for one request, and its answer is the host's."""
    seen.clear()
    assert post(f"{server}/v1/chat/completions") == REPLY
    return seen.reasons() == [StopReason.MAX_TOKENS]


@every_double
def test_a_double_over_endturn(seen: Records, server: str, post: Post, through: Callable[[str], Any]) -> None:
    """It was there later, and goes first."""
    http_clients.install(lambda: True)
    with through(server):
        assert once(seen, post, server) is ((post, through) not in KEEPS_THE_ORIGINAL)
    assert once(seen, post, server)


@every_double
def test_endturn_over_a_double(seen: Records, server: str, post: Post, through: Callable[[str], Any]) -> None:
    """The double was there first. It puts back what it found, and takes endturn along: being switched on again, endturn
    is there again, once."""
    with through(server):
        http_clients.install(lambda: True)
        assert once(seen, post, server)
    http_clients.install(lambda: True)
    assert once(seen, post, server)


@every_double
def test_endturn_leaves_first(seen: Records, server: str, post: Post, through: Callable[[str], Any]) -> None:
    """The double goes on; what it puts back is switched off, and counts once when it is switched on again."""
    http_clients.install(lambda: True)
    with through(server):
        http_clients.uninstall()
        assert not once(seen, post, server)
        http_clients.install(lambda: True)
        assert once(seen, post, server)
        http_clients.uninstall()
    assert not once(seen, post, server)
    http_clients.install(lambda: True)
    assert once(seen, post, server)
    http_clients.uninstall()
    assert not once(seen, post, server)


@pytest.mark.httpx_mock(should_mock=lambda request: False)
@pytest.mark.parametrize("post", [by_httpx, by_async_httpx])
def test_pytest_httpx(seen: Records, server: str, post: Post, httpx_mock: Any) -> None:
    """Its fixture lets through what it is not to answer."""
    http_clients.install(lambda: True)
    assert once(seen, post, server)


@pytest.mark.parametrize(("post", "owner", "name"), METHODS.values(), ids=METHODS)
def test_a_method_out_of_the_dict(seen: Records, server: str, post: Post, owner: type, name: str) -> None:
    """Called with the client as its first argument, by keywords or on a subclass, it is the same exchange."""
    http_clients.install(lambda: True)
    method = owner.__dict__[name]

    calls = {
        "aiohttp": lambda url: _of_aiohttp(method, url),
        "httpx": lambda url: _of_httpx(method, url),
        "async httpx": lambda url: _of_async_httpx(method, url),
        "requests": lambda url: _of_urllib3(method, url),
    }
    (call,) = (calls[key] for key, row in METHODS.items() if row[0] is post)
    assert once(seen, call, server)


def _of_aiohttp(method: Any, url: str) -> bytes:
    async def post() -> bytes:
        async with aiohttp.ClientSession() as session:
            response = await method(session, method="POST", str_or_url=url, json=ASK)
            return await response.read()

    return asyncio.run(post())


class OwnClient(httpx.Client):
    """A subclass, as SDKs have."""


class OwnAsyncClient(httpx.AsyncClient):
    """A subclass, as SDKs have."""


def _of_httpx(method: Any, url: str) -> bytes:
    with OwnClient(trust_env=False) as client:
        return method(client, client.build_request("POST", url, json=ASK)).content


def _of_async_httpx(method: Any, url: str) -> bytes:
    async def post() -> bytes:
        async with OwnAsyncClient(trust_env=False) as client:
            return (await method(client, request=client.build_request("POST", url, json=ASK))).content

    return asyncio.run(post())


def _of_urllib3(method: Any, url: str) -> bytes:
    with urllib3.connection_from_url(url) as pool:
        body = json.dumps(ASK).encode()
        return method(pool, "POST", "/v1/chat/completions", body).data
