"""What is the host's stays the host's: its process, and the classes and objects of its HTTP libraries."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from endturn.instrumentation import http_clients
from endturn.testing.scripted import ScriptedProvider, say
from endturn.vocabulary.stop import StopReason
from tests.instrumentation.clients import ASK
from tests.instrumentation.test_exchanges import WORDS, seen
from tests.support.announced import Records
from tests.support.import_orders import REPOSITORY

__all__ = ["seen"]

SENDING = {
    "httpx.Client.send",
    "httpx.AsyncClient.send",
    "httpx2.Client.send",
    "httpx2.AsyncClient.send",
    "urllib3.connectionpool.HTTPConnectionPool.urlopen",
    "aiohttp.client.ClientSession._request",
    "urllib.request.OpenerDirector.open",
}
READING = {
    *(
        f"urllib3.response.HTTPResponse.{name}"
        for name in ("read", "read1", "readinto", "readline", "read_chunked", "stream", "close", "__del__")
    ),
    *(f"http.client.HTTPResponse.{name}" for name in ("read", "read1", "readinto", "readline", "close", "__del__")),
}


@pytest.fixture
def url() -> Iterator[str]:
    with ScriptedProvider(say(WORDS), exhausted="last").serve() as address:
        yield f"{address}/v1/chat/completions"


def test_only_the_wrapped_methods_of_the_process_differ_and_nothing_after_uninstrument(url: str) -> None:
    """Environment, logging, signals, warnings, hooks of `sys`, and every class of the HTTP libraries."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.host_state", url.removesuffix("/v1/chat/completions")],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        check=False,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["import"] == []
    assert set(map(_public, found["instrument"])) == SENDING
    assert found["own classes"] == [True, True, True]
    assert found["records"] == 8
    assert set(map(_public, found["calls"])) == SENDING | READING
    assert found["uninstrument"] == []


def _public(name: str) -> str:
    """Return the name by which a class of httpx is imported; it is defined in a private module."""
    return name.replace("._client.", ".")


# --- Responses that are read like files ----------------------------------------------------------------------------


def post_by_urllib3(url: str) -> Any:
    return urllib3.PoolManager().request("POST", url, json=ASK, preload_content=False)


def post_by_requests(url: str) -> Any:
    return requests.post(url, json=ASK, stream=True, timeout=60).raw


def post_by_urllib(url: str) -> Any:
    body, headers = json.dumps(ASK).encode(), {"content-type": "application/json"}
    return urllib.request.urlopen(urllib.request.Request(url, body, headers))


@pytest.mark.parametrize(
    ("post", "own_class"),
    [
        (post_by_urllib3, urllib3.HTTPResponse),
        (post_by_requests, urllib3.HTTPResponse),
        (post_by_urllib, http.client.HTTPResponse),
    ],
)
def test_a_watched_response_has_its_own_class(seen: Records, url: str, post: Any, own_class: type) -> None:
    response = post(url)
    kind = type(response)
    assert kind is own_class
    assert WORDS in response.read().decode()
    assert seen.reasons() == [StopReason.END_TURN]


def test_another_response_of_a_wrapped_class_is_read_and_closed_unseen(seen: Records, url: str) -> None:
    pool = urllib3.PoolManager()
    other: Any = pool.request("GET", url, preload_content=False)
    with post_by_urllib3(url) as watched:
        body = other.read()  # of an error
        another: Any = pool.request("GET", url, preload_content=False)
        another.close()
        assert seen.reasons() == []
        assert watched.read()
    assert body
    assert seen.reasons() == [StopReason.END_TURN]


def test_the_methods_of_a_response_are_wrapped_once_and_restored(seen: Records, url: str) -> None:
    http_clients.uninstall()
    unwrapped = dict(vars(urllib3.HTTPResponse))
    http_clients.install(lambda: True)
    post_by_urllib3(url).read()
    wrapped = dict(vars(urllib3.HTTPResponse))
    post_by_urllib3(url).read()
    assert wrapped == dict(vars(urllib3.HTTPResponse))
    assert wrapped != unwrapped
    http_clients.uninstall()
    assert dict(vars(urllib3.HTTPResponse)) == unwrapped
    assert {"readline", "__del__"}.isdisjoint(unwrapped)  # inherited from io.IOBase


def test_somebody_elses_wrapper_around_ours_stays_and_counts_a_response_once(
    seen: Records, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed by its owner after `uninstrument()`, it puts ours back, which lets calls through."""
    post_by_urllib3(url).read()
    ours = urllib3.HTTPResponse.read
    calls: list[int] = []

    def read(self: Any, *args: Any, **kwargs: Any) -> bytes:
        calls.append(1)
        return ours(self, *args, **kwargs)

    read.__wrapped__ = ours  # type: ignore[attr-defined]  # as functools.wraps sets it
    with monkeypatch.context() as patch:
        patch.setattr(urllib3.HTTPResponse, "read", read)
        http_clients.uninstall()
        assert urllib3.HTTPResponse.read is read
        http_clients.install(lambda: True)
        assert WORDS in post_by_urllib3(url).read().decode()
        assert urllib3.HTTPResponse.read is read
        http_clients.uninstall()
    assert WORDS in post_by_urllib3(url).read().decode()
    assert (len(calls), seen.reasons()) == (1, [StopReason.END_TURN] * 2)
    http_clients.install(lambda: True)
    http_clients.uninstall()
    assert urllib3.HTTPResponse.read is not ours


class OwnResponse(http.client.HTTPResponse):
    """A class of the host's, as boto's and VCR's, that reads in its own way."""

    def read(self, amt: int | None = None) -> bytes:
        return super().read(amt)


def test_a_subclass_of_the_hosts_is_watched_and_what_it_inherits_may_be_replaced_later(
    seen: Records, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http.client.HTTPConnection, "response_class", OwnResponse)
    response = post_by_urllib(url)
    assert type(response) is OwnResponse
    assert WORDS in response.read().decode()
    assert seen.reasons() == [StopReason.END_TURN]
    monkeypatch.setattr(http.client.HTTPResponse, "readline", lambda self, limit=-1: b"replaced")
    assert response.readline() == b"replaced"
    assert "read" in vars(OwnResponse)


# --- httpx and aiohttp ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [httpx, httpx2])
async def test_a_stream_of_httpx_is_of_its_clients_kind_alone(seen: Records, library: Any) -> None:
    transport = ScriptedProvider([say(WORDS), say(WORDS)]).transport()
    made: Any = library.Client(transport=transport)
    with made as client, client.stream("POST", "http://vllm.internal/v1/chat/completions", json=ASK) as response:
        assert isinstance(response.stream, library.SyncByteStream)
        assert not isinstance(response.stream, library.AsyncByteStream)
        assert WORDS in response.read().decode()
    made = library.AsyncClient(transport=transport)
    async with made as client, client.stream("POST", "http://vllm.internal/v1/chat/completions", json=ASK) as response:
        assert isinstance(response.stream, library.AsyncByteStream)
        assert not isinstance(response.stream, library.SyncByteStream)
        assert WORDS in (await response.aread()).decode()
    assert seen.reasons() == [StopReason.END_TURN] * 2


async def test_aiohttps_content_is_a_stream_reader_with_one_state(seen: Records, url: str) -> None:
    """What the host sets on it, or asks of it, is the state that aiohttp itself uses."""
    async with aiohttp.ClientSession() as session, session.post(url, json=ASK) as response:
        content = response.content
        assert isinstance(content, aiohttp.StreamReader)
        ends: list[str] = []
        content.on_eof(lambda: ends.append("end"))
        content.set_read_chunk_size(8)
        assert await content.readexactly(1) == b"{"
        assert not content.at_eof()
        assert await content.readuntil(b"}")
        await content.read()
        assert content.at_eof()
        assert ends == ["end"]
    assert seen.reasons() == [StopReason.END_TURN]


WATCHED = {"read", "readany", "readline", "readuntil", "readexactly", "readchunk", "read_nowait"}
ITERATORS = {"iter_any", "iter_chunked", "iter_chunks"}
READ_NOTHING = {
    *("at_eof", "begin_http_chunk_receiving", "end_http_chunk_receiving", "exception", "feed_data", "feed_eof"),
    *("get_read_buffer_limits", "is_eof", "on_eof", "set_read_chunk_size", "total_raw_bytes"),
    *("unread_data", "wait_eof"),
}


def test_every_reading_method_of_aiohttps_reader_is_known() -> None:
    """A method that a new version adds would be read past us: say here which kind it is."""
    from endturn.instrumentation.http_aiohttp import WatchedReader

    methods = {name for name, value in vars(aiohttp.StreamReader).items() if callable(value) and name[0] != "_"}
    assert methods - READ_NOTHING == WATCHED | ITERATORS | {"set_exception"}
    assert vars(WatchedReader).keys() >= WATCHED | ITERATORS | {"set_exception", "__aiter__"}
