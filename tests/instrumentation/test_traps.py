"""What was met by running it: each was wrong once, or would be."""

from __future__ import annotations

import asyncio
import copy
import gc
import http.client
import io
import json
import threading
import time
import urllib.error
import urllib.request
import urllib.response
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import aiohttp
import httpx
import httpx2
import pytest
import requests
import urllib3

from endturn.calls import listeners
from endturn.calls.records import CallEnded
from endturn.instrumentation import exchange, http_clients
from endturn.instrumentation.body import json_object
from endturn.telemetry import cleanup
from endturn.testing.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.testing.scripted.loopback import LoopbackReply, Server
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import StopReason
from tests.instrumentation.clients import ASK, CLIENTS
from tests.instrumentation.test_exchanges import WORDS, asking, packed, seen
from tests.support.announced import Records

__all__ = ["seen"]

PATH = "/v1/chat/completions"
URL = f"http://vllm.internal{PATH}"


def scripted(library: Any, *replies: Reply) -> Any:
    return library.Client(transport=ScriptedProvider(list(replies)).transport())


# --- Destructors ----------------------------------------------------------------------------------------------------


def test_nothing_is_recorded_while_garbage_is_collected(seen: Records) -> None:
    """A collection may run inside anybody's plain lock, which a listener would wait for, for ever."""
    lock = threading.Lock()
    inside: list[bool] = []

    def listener(record: object) -> None:
        if isinstance(record, CallEnded):
            inside.append(lock.locked() and threading.current_thread() is threading.main_thread())

    stop = listeners.subscribe(listener)
    with asking(CLIENTS["Httpx"], say(WORDS), say(WORDS)) as client:
        for _ in range(2):
            made = client.stream()
            next(made)
            made.itself = made
            with lock:
                del made
                gc.collect()
        cleanup.run()
    stop()
    assert inside == [False, False]
    assert seen.reasons() == [StopReason.CANCELLED] * 2


# --- Recognition ----------------------------------------------------------------------------------------------------


def pieces() -> Iterator[bytes]:
    yield json.dumps(ASK).encode()


@pytest.mark.parametrize("library", [httpx, httpx2])
def test_a_body_that_is_not_in_memory_is_not_read(seen: Records, library: Any) -> None:
    """A generator is sent once: at a provider's home the path tells, elsewhere it passes unseen."""
    with scripted(library, say("Hi"), say("Hi")) as client:
        assert client.post(URL, content=pieces()).is_success
        assert not seen.started
        assert client.post("https://api.openai.com/v1/chat/completions", content=pieces()).is_success
    assert (seen.only().stop.reason, seen.only().started.request.model) == (StopReason.END_TURN, "")


@pytest.mark.parametrize("packs", [bytes, io.BytesIO, bytes.decode])
@pytest.mark.parametrize("more", [0, 1])
def test_a_request_that_is_too_large_is_recorded_without_what_it_asks(packs: Callable[[bytes], Any], more: int) -> None:
    """To parse it would take several times its size of memory."""
    head, tail = b'{"model":"m","messages":[{"role":"user","content":"', b'"}]}'
    content = head + b"x" * (16 * 1024 * 1024 - len(head) - len(tail) + more) + tail
    known = json_object(packs(content))
    assert known is None if more else known is not None


def test_a_large_request_to_a_provider_is_a_call(seen: Records) -> None:
    """Its path tells: it is recorded, and how it was answered."""
    content = json.dumps({**ASK, "messages": [{"role": "user", "content": "x" * 16 * 1024 * 1024}]})
    with scripted(httpx, say("Hi")) as client:
        assert client.post("https://api.openai.com/v1/chat/completions", content=content).is_success
    assert (seen.only().stop.reason, seen.only().started.request.model) == (StopReason.END_TURN, "")


@pytest.mark.parametrize("follow", [False, True])
def test_redirects(seen: Records, follow: bool) -> None:
    """Followed, they are part of the exchange; a 3xx that is handed out is none."""

    def answer(request: Any) -> Any:
        if request.url.path.startswith("/v1"):
            return httpx.Response(307, headers={"location": "/proxy/v1/chat/completions"})
        return ScriptedProvider([say("Hi")]).transport().handle_request(request)

    client = httpx.Client(transport=httpx.MockTransport(answer), follow_redirects=follow)
    client.post(URL, json=ASK)
    assert seen.reasons() == ([StopReason.END_TURN] if follow else [])


def test_what_a_hook_asks_is_an_exchange_of_its_own(seen: Records) -> None:
    """A guard model that is asked while the request is sent; the same body further down is the same exchange."""
    guard = scripted(httpx, say("Fine."))

    def check(request: Any) -> None:
        guard.post(URL, json={**ASK, "model": "guard"})

    inner = scripted(httpx, truncate(WORDS, after=1))
    transport = httpx.MockTransport(lambda request: inner.post(request.url, content=request.content))
    httpx.Client(transport=transport, event_hooks={"request": [check]}).post(URL, json=ASK)
    found = [(ended.started.request.model, ended.stop.reason) for ended in seen.ended]
    assert found == [("guard", StopReason.END_TURN), ("m", StopReason.MAX_TOKENS)]


# --- Each client ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_urllib3_by_every_way_of_reading(seen: Records, size: int) -> None:
    """Each gives all bytes, and shows them once; the response is still one of its class."""

    def read1(response: Any) -> bytes:
        return b"".join(iter(lambda: response.read1(size), b""))

    def readinto(response: Any) -> bytes:
        buffer, found = bytearray(size), b""
        while count := response.readinto(buffer):
            found += buffer[:count]
        return found

    ways: list[Any] = [
        lambda response: response.read(),
        lambda response: b"".join(iter(lambda: response.read(size), b"")),
        lambda response: b"".join(response.stream(size)),
        lambda response: b"".join(response),
        lambda response: response.data,
        lambda response: b"".join(response.readlines()),
        read1,
        readinto,
    ]
    with ScriptedProvider([truncate(WORDS, after=2)], exhausted="cycle").serve() as url:
        pool = urllib3.PoolManager()
        for way in ways:
            response = pool.request("POST", f"{url}/v1/chat/completions", json=ASK, preload_content=False)
            assert isinstance(response, urllib3.HTTPResponse)
            assert json.loads(way(response))["choices"]
            assert seen.reasons() == [StopReason.MAX_TOKENS], way
            assert seen.only().output_chars == len("One two")
            seen.clear()


def test_urllib3s_own_retries_are_one_exchange(seen: Records) -> None:
    """They call `urlopen` again, from within; the last answer counts."""
    again = urllib3.Retry(3, status_forcelist=[500], allowed_methods=None, backoff_factor=0)
    with ScriptedProvider([fail(500), fail(500), say("Hi")]).serve() as url:
        urllib3.PoolManager(retries=again).request("POST", f"{url}/v1/chat/completions", json=ASK)
    assert seen.reasons() == [StopReason.END_TURN]


@pytest.mark.parametrize("auto", [False, True], ids=["as it travels", "unpacked"])
async def test_aiohttp_by_every_way_of_asking_and_reading(seen: Records, auto: bool) -> None:
    """A body in memory has many forms; what comes back compressed is unpacked, if only for us. `raise_for_status`
    raises from within the request; leaving early is told by `set_exception`."""
    sent = json.dumps(ASK).encode()
    bodies: list[Any] = [sent, io.BytesIO(sent), aiohttp.JsonPayload(ASK), aiohttp.BytesPayload(sent)]
    bodies.append(aiohttp.payload.BytesIOPayload(io.BytesIO(sent)))
    bodies.append(sent.decode())
    ways: list[Callable[[aiohttp.StreamReader], Any]] = [
        lambda content: content.iter_any(),
        lambda content: content.iter_chunks(),
        lambda content: content.iter_chunked(9),
        lambda content: content,
    ]
    replies = [truncate(WORDS, after=2)] * len(bodies) + [say(WORDS).but(pace_s=0.01), fail(429)]
    provider = ScriptedProvider(replies)
    taken: list[Any] = []

    def respond(asked: Any) -> LoopbackReply:
        taken.append(asked.body)
        answer = provider._respond(asked)
        return answer if answer.length is None else packed("deflate")(answer)

    with Server(respond).running() as url:
        async with aiohttp.ClientSession(url, auto_decompress=auto, raise_for_status=auto) as session:
            for body, way in zip(bodies, [*ways, None, None], strict=True):
                async with session.post(PATH, data=body) as response:
                    assert [chunk async for chunk in way(response.content)] if way else await response.read()
            async with session.post(f"{url}{PATH}", json={**ASK, "stream": True}) as response:
                await response.content.readline()
            with suppress(aiohttp.ClientResponseError):
                await session.post(PATH, json=ASK)
    gc.collect()
    cleanup.run()
    assert [json.loads(each) for each in taken[: len(bodies)]] == [ASK] * len(bodies)
    assert seen.reasons() == [StopReason.MAX_TOKENS] * len(bodies) + [StopReason.CANCELLED, StopReason.ERROR]
    assert seen.ended[-1].started.endpoint.server_address == "127.0.0.1"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_aiohttps_time_for_all_of_it_cuts_an_answer(seen: Records, stream: bool) -> None:
    """The session's own timeout raises from the reader without being known to it."""

    async def main(url: str) -> None:
        timeout = aiohttp.ClientTimeout(total=0.5)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, json={**ASK, "stream": stream}) as response,
        ):
            await response.read()

    body = json.dumps({"choices": [{"index": 0, "delta" if stream else "message": {"content": "Hi"}}]}).encode()
    half = b"data: " + body + b"\n\n" if stream else body[:-9]
    headers = {"content-type": "text/event-stream" if stream else "application/json"}
    answer = LoopbackReply(headers=headers, chunks=(half, b" "), pace_s=5, length=None if stream else len(body))
    with Server(lambda asked: answer).running() as url, pytest.raises(TimeoutError):
        asyncio.run(main(f"{url}/v1/chat/completions"))
    assert seen.only().stop.reason is StopReason.MISSING
    assert isinstance(seen.only().error, TimeoutError)


def test_a_stream_that_is_kept_unread_was_over_with_its_last_bytes(seen: Records) -> None:
    """Whoever breaks off at the reason may hold the response for long."""
    with ScriptedProvider([say(WORDS)]).serve() as url, httpx.Client() as client:
        request = client.build_request("POST", f"{url}/v1/chat/completions", json={**ASK, "stream": True})
        began_s = time.perf_counter()
        response = client.send(request=request, stream=True)  # by name, too
        chunks = response.iter_raw()
        while b'"finish_reason":"stop"' not in next(chunks):
            pass
        read_s = time.perf_counter() - began_s
        del response, chunks
        gc.collect()
        cleanup.run()
    assert seen.only().stop.reason is StopReason.END_TURN
    assert seen.only().duration_s <= read_s  # it was held for longer


def test_urllib_raises_what_it_raises(seen: Records) -> None:
    """The body of the error is the host's to read."""
    with asking(CLIENTS["Urllib"], fail(429, message="slow down")) as client:
        with pytest.raises(urllib.error.HTTPError) as raised:
            client.ask()
        assert b"slow down" in raised.value.read()
    assert seen.only().stop.reason is StopReason.ERROR


@pytest.mark.parametrize("name", ["Httpx", "AsyncHttpx", "Requests"])
def test_a_connection_keeps_no_exchange(seen: Records, name: str) -> None:
    """It keeps the context in which it was opened, as long as it lives."""
    with asking(CLIENTS[name], say(WORDS)) as client:
        cleanup.run()
        gc.collect()
        before = exchanges()
        client.ask()
        gc.collect()
        assert exchanges() <= before


def exchanges() -> set[int]:
    return {id(one) for one in gc.get_objects() if isinstance(one, exchange.Exchange)}


def test_what_bedrocks_headers_say_of_tokens(seen: Records) -> None:
    """A model whose body says nothing of them."""
    said = {"x-amzn-bedrock-input-token-count": "5", "x-amzn-bedrock-output-token-count": "2"}
    with asking(CLIENTS["Invoke"], say("Yes.").but(usage=None, headers=said)) as client:
        asked = {"modelId": "mistral.mixtral-8x7b-instruct-v0:1", "body": json.dumps({"prompt": "hi"})}
        client.made.invoke_model(**asked)["body"].read()
    assert seen.only().usage == Usage(5, 2)


# --- Somebody else's objects -------------------------------------------------------------------


def test_texts_are_cut_to_what_can_be_exported(seen: Records) -> None:
    """Every later export of the process would repeat them. Half a character is read as the server reads it."""
    with scripted(httpx, *[say("Hi")] * 3) as client:
        client.post(URL, json={**ASK, "model": "m" * 100_000})
        client.post(URL, content=json.dumps({**ASK, "model": "gpt\ud83d"}))
        client.post(URL, content=json.dumps({**ASK, "messages": [{"role": "user", "content": "a \udc80 name"}]}))
    assert [ended.started.request.model for ended in seen.ended] == ["m" * 256, "gpt?", "m"]
    assert set(seen.reasons()) == {StopReason.END_TURN}


async def test_reading_an_asynchronous_answer_synchronously(seen: Records) -> None:
    """It raises what it raises, and the other way round."""
    transport = ScriptedProvider([say(WORDS), say(WORDS)]).transport()
    async with httpx.AsyncClient(transport=transport) as client:
        response = await client.send(client.build_request("POST", URL, json=ASK), stream=True)
        with pytest.raises(RuntimeError, match="sync iterator on an async stream"):
            response.read()
        await response.aclose()
    with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, content=iter([b"{}"])))) as one:
        answer = one.send(one.build_request("POST", URL, json=ASK), stream=True)
        with pytest.raises(RuntimeError, match="async iterator on an sync stream"):
            await answer.aread()


async def test_somebody_elses_plain_wrapper_around_a_method_that_is_awaited(
    seen: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gives a coroutine, as what it wraps does."""
    http_clients.uninstall()
    own = httpx.AsyncClient.send
    monkeypatch.setattr(httpx.AsyncClient, "send", lambda self, *args, **kwargs: own(self, *args, **kwargs))
    http_clients.install(lambda: True)
    try:
        async with httpx.AsyncClient(transport=ScriptedProvider([say(WORDS)]).transport()) as client:
            assert (await client.post(URL, json=ASK)).status_code == 200
        assert seen.reasons() == [StopReason.END_TURN]
    finally:
        http_clients.uninstall()
        monkeypatch.undo()
        http_clients.install(lambda: True)


async def test_a_middleware_that_reads_the_answer(seen: Records) -> None:
    """aiohttp keeps the body: the host gets it from there, and so do we."""

    async def reading(request: aiohttp.ClientRequest, handler: Any) -> aiohttp.ClientResponse:
        response: aiohttp.ClientResponse = await handler(request)
        await response.read()
        return response

    with ScriptedProvider([truncate(WORDS, after=1)]).serve() as url:
        session = aiohttp.ClientSession(middlewares=(reading,))
        async with session, session.post(f"{url}{PATH}", json=ASK) as response:
            assert (await response.json())["choices"][0]["finish_reason"] == "length"
    assert seen.only().stop.reason is StopReason.MAX_TOKENS


def test_a_copied_response_reads_on(seen: Records) -> None:
    """Nobody watches it: the bytes are the same."""
    with ScriptedProvider([say(WORDS)]).serve() as url:
        response = requests.post(f"{url}/v1/chat/completions", json=ASK, stream=True)
        assert WORDS in copy.copy(response.raw).read().decode()
        response.close()


class Mocked(urllib.request.HTTPHandler):
    """Answers in the host's own way."""

    def http_open(self, request: Any) -> Any:
        found = io.BytesIO(b'{"choices": []}')
        answer: Any = urllib.response.addinfourl(found, http.client.HTTPMessage(), request.full_url, 200)
        answer.msg = "OK"
        return answer


def test_an_opener_that_answers_with_something_else(seen: Records, capfd: pytest.CaptureFixture[str]) -> None:
    """It is not watched, and reads as it does."""
    opener = urllib.request.build_opener(Mocked)
    with opener.open("http://chat.example.org/v1/chat/completions", json.dumps(ASK).encode()) as response:
        assert (response.read(5), type(response).__name__) == (b'{"cho', "addinfourl")
    del response
    gc.collect()
    assert seen.reasons() == []
    assert "Exception ignored" not in capfd.readouterr().err


async def test_a_coroutine_that_is_dropped_while_it_reads(seen: Records) -> None:
    """Its end is a destructor: nothing is recorded within."""

    class Slow(httpx.AsyncByteStream):
        async def __aiter__(self) -> Any:
            yield b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
            await asyncio.Event().wait()

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Slow())

    async def hold() -> None:
        client = httpx.AsyncClient(transport=httpx.MockTransport(answer))
        async with client.stream("POST", URL, json={**ASK, "stream": True}) as response:
            async for _ in response.aiter_raw():
                pass

    coroutine = hold()
    coroutine.send(None)  # up to where it waits
    coroutine.close()
    assert seen.reasons() == []
    cleanup.run()
    assert seen.reasons() == [StopReason.CANCELLED]
