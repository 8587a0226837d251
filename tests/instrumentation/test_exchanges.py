"""Every situation × every client: one record of each HTTP exchange with a model, and nothing else changed.

A situation is a test, a client a row of `clients`. The server is real, on loopback; what it does wrong is done to the
bytes that it sends. The files of tests/environments that have nothing else run it with other versions and SDKs.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from endturn.calls import listeners
from endturn.instrumentation import exchange, http_clients
from endturn.telemetry import attributes, cleanup
from endturn.testing.scripted import Ending, Reply, ScriptedProvider, fail, hang_up, say, truncate
from endturn.testing.scripted.loopback import LoopbackReply, ReceivedRequest, Server
from endturn.vocabulary.stop import StopReason
from tests.instrumentation.clients import CLIENTS, Client, Kind
from tests.support.announced import Records

# What closes no connection of a stream that is dropped warns without us, too.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning"),
]

WORDS = "One two three four five"


@pytest.fixture
def seen() -> Iterator[Records]:
    """Everything that is announced while the HTTP clients are watched; nothing of ours may fail."""
    found = Records()
    stop = listeners.subscribe(found.append)
    http_clients.install(lambda: True)
    try:
        with listeners.strict():
            yield found
    finally:
        http_clients.uninstall()
        exchange.close_all()
        stop()
        gc.collect()  # what an SDK left unclosed warns here, where that is expected
        gc.freeze()  # the SDKs' modules, imported by their first test, are not looked at in the next


def kinds(which: Callable[[Kind], bool]) -> pytest.MarkDecorator:
    """Each client that is so."""
    return pytest.mark.parametrize("kind", [*filter(which, CLIENTS.values())], ids=lambda kind: kind.name)


every_kind = kinds(lambda kind: True)
whole_and_streamed = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def each_in(*ways: str) -> pytest.MarkDecorator:
    """Each client in each of these ways; in `make test` in one of them, in turn."""
    return pytest.mark.parametrize(
        ("kind", "way"),
        [
            pytest.param(
                kind, way, id=f"{way}-{kind.name}", marks=[pytest.mark.slow] * (place != number // 2 % len(ways))
            )
            for number, kind in enumerate(CLIENTS.values())  # of two that follow each other one waits, and one awaits
            for place, way in enumerate(ways)
        ],
    )


def settle(seen: Records, client: Client) -> None:
    """Wait until what was dropped has been noticed: aiohttp keeps a response while bytes of it arrive."""
    for _ in range(200):
        client.run(asyncio.sleep(0.01))
        gc.collect()
        cleanup.run()
        if seen.ended:
            return


Change = Callable[[LoopbackReply], LoopbackReply]


@contextmanager
def asking(
    kind: Kind, *replies: Reply, change: Change = lambda answer: answer, tries: int = 1, timeout_s: float = 10.0
) -> Iterator[Any]:
    """A client of a server that gives these replies, then the last for ever, its answers changed on their way."""
    dialect = "mistral" if "Mistral" in kind.name else ""
    provider = ScriptedProvider(list(replies), format=kind.format, dialect=dialect, exhausted="last")

    def respond(asked: ReceivedRequest) -> LoopbackReply:
        return change(provider._respond(asked))

    with Server(respond).running() as url:
        client = Client(kind, url, timeout_s, tries)
        try:
            yield client
        finally:
            gc.collect()  # whoever was dropped in a test goes before its loop does
            client.close()


def packed(encoding: str) -> Change:
    """The body is compressed, each chunk flushed."""

    def pack(answer: LoopbackReply) -> LoopbackReply:
        packer = zlib.compressobj(wbits={"gzip": 31, "deflate": 15}[encoding])
        chunks = [packer.compress(chunk) + packer.flush(zlib.Z_SYNC_FLUSH) for chunk in answer.chunks]
        chunks.append(packer.flush())
        length = None if answer.length is None else sum(map(len, chunks))
        headers = {**answer.headers, "content-encoding": encoding}
        return replace(answer, chunks=tuple(chunks), length=length, headers=headers)

    return pack


# --- Answers that come whole ----------------------------------------------------------------------------------------


@every_kind
def test_a_whole_answer(seen: Records, kind: Kind) -> None:
    """One record, with the provider's own reason, usage, and what was asked; none after `uninstall`."""
    with asking(kind, truncate(WORDS, after=2)) as client:
        client.ask()
        if not kind.is_ours:
            http_clients.uninstall()
            client.ask()
            http_clients.install(lambda: True)
    ended, started = seen.only(), seen.only().started
    assert (ended.stop.reason, ended.error) == (StopReason.MAX_TOKENS, None)
    assert (started.endpoint.provider, started.request.model, started.request.stream) == (
        kind.provider,
        kind.model,
        False,
    )
    assert started.endpoint.operation == {"gemini": "generate_content", "completions": "text_completion"}.get(
        kind.format, "chat"
    )
    assert started.endpoint.server_address == "127.0.0.1"
    assert ended.response.usage is not None
    assert (ended.response.usage.output_tokens, ended.response.output_chars) == (2, len("One two"))


@every_kind
def test_a_stream(seen: Records, kind: Kind) -> None:
    """Its end is seen when its last byte has passed, before the host is told."""
    with asking(kind, truncate(WORDS, after=2)) as client:
        pieces = list(client.stream())
        assert seen.reasons() == [StopReason.MAX_TOKENS]
    assert pieces
    ended = seen.only()
    assert (ended.stop.truncated, ended.error, ended.response.output_chars) == (True, None, len("One two"))
    assert ended.started.request.stream
    assert ended.first_chunk_s is not None


@kinds(lambda kind: kind.format not in ("openai_chat", "completions", "gemini"))  # whose last event is no JSON, or any
def test_read_up_to_the_last_event(seen: Records, kind: Kind) -> None:
    """A host that has had the format's last event may wait for no end of the bytes, and keep the stream."""
    with asking(kind, truncate(WORDS, after=2)) as client:
        count = len(list(client.stream()))
        kept = client.stream()
        for _ in range(count):
            next(kept)
        assert seen.reasons() == [StopReason.MAX_TOKENS] * 2
        assert seen.ended[0].usage == seen.ended[1].usage is not None
        del kept


@kinds(lambda kind: not kind.is_ours)
def test_a_whole_answer_that_is_cut(seen: Records, kind: Kind) -> None:
    """It had begun: its end is missing, wherever its body is read."""

    def halved(answer: LoopbackReply) -> LoopbackReply:
        (chunk,) = answer.chunks
        return replace(answer, chunks=(chunk[: len(chunk) // 2],), ending=Ending.BROKEN)

    with asking(kind, truncate(WORDS, after=2), change=halved) as client, suppress(Exception):
        client.ask()
    assert seen.only().stop.reason is StopReason.MISSING


@each_in("gzip", "deflate", "streamed gzip", "streamed deflate")
def test_compressed(seen: Records, kind: Kind, way: str) -> None:
    """The body is unpacked beside, or by the library that unpacks it for its host, or by nobody but us."""
    streamed, encoding = way.startswith("streamed"), way.split()[-1]
    streamed = streamed and not kind.format.startswith("bedrock")  # whose SDK does not unpack what it reads
    with asking(kind, truncate(WORDS, after=2), change=packed(encoding)) as client, suppress(ValueError):
        _ = list(client.stream()) if streamed else client.ask()
    cleanup.run()  # Mistral's keeps a stream that it has read up to its last word
    assert seen.only().stop.reason is StopReason.MAX_TOKENS


# --- Streams that do not come to their end --------------------------------------------------------------------------


SENDS_WHEN_IT_IS_READ = ("Google", "AsyncGoogle", "Cohere", "Ollama", "Client", "AsyncClient")


@kinds(
    lambda kind: kind.name != "AsyncClient"
)  # a generator of this loop, which runs at times: tests/providers/test_http_client.py
@pytest.mark.parametrize("how", ["left early", "dropped", "never read"])
def test_a_stream_that_its_host_leaves(seen: Records, kind: Kind, how: str) -> None:
    """It is cancelled; what is dropped is noted by the garbage collector, and recorded outside of it. The event loop
    has nothing to report, as without us."""
    reports: list[str] = []
    with asking(kind, say(WORDS).but(pace_s=0.01)) as client:
        client.loop.set_exception_handler(lambda loop, context: reports.append(context["message"]))
        stream = client.stream()
        if how != "never read" or kind.name in SENDS_WHEN_IT_IS_READ:
            next(stream)
        if how != "dropped":
            stream.close()
        del stream
        settle(seen, client)
        assert seen.reasons() == [StopReason.CANCELLED]
    assert not seen.only().stop.truncated
    assert [each for each in reports if not each.startswith("Unclosed")] == []  # which aiohttp says of what is dropped


@each_in(Ending.BROKEN, Ending.TIDY)
def test_cut_at_each_event(seen: Records, kind: Kind, way: Ending) -> None:
    """Wherever a stream is cut off, its end is never invented; a reason that had come counts."""
    counts: list[int] = []

    def cut(answer: LoopbackReply) -> LoopbackReply:
        """The first is whole, each other one has a chunk more than the one before."""
        counts.append(len(answer.chunks))
        after = len(counts) - 1
        return replace(answer, chunks=answer.chunks[:after], ending=way) if after else answer

    with asking(kind, truncate(WORDS, after=2), change=cut) as client:
        list(client.stream())
        seen.clear()
        for _ in range(1, counts[0]):
            with suppress(Exception):
                list(client.stream())
    cleanup.run()
    reasons = seen.reasons()
    assert len(reasons) == counts[0] - 1
    assert set(reasons) <= {StopReason.MISSING, StopReason.MAX_TOKENS}
    assert reasons == sorted(reasons, key=lambda reason: reason is StopReason.MAX_TOKENS)
    assert StopReason.MISSING in reasons


@every_kind
def test_an_error_inside_a_stream(seen: Records, kind: Kind) -> None:
    """An error event is an error, no truncation, whether the SDK raises it or not."""
    with asking(kind, fail(500, text="One two")) as client, suppress(Exception):
        list(client.stream())
    cleanup.run()
    ended = seen.only()
    assert ended.stop.reason is StopReason.ERROR
    assert ended.error is not None or kind.format == "cohere"  # which tells of errors as reasons


# --- No answer ------------------------------------------------------------------------------------------------------


@each_in("whole", "streamed")
def test_an_error_answer(seen: Records, kind: Kind, way: str) -> None:
    """A 400 is an error, with the status."""
    with asking(kind, fail(400)) as client, suppress(Exception):
        _ = list(client.stream()) if way == "streamed" else client.ask()
    gc.collect()
    cleanup.run()
    ended = seen.only()
    assert (ended.stop.reason, attributes.error_type(ended.error)) == (StopReason.ERROR, "400")


@kinds(lambda kind: kind.retries)
def test_each_attempt_is_an_exchange(seen: Records, kind: Kind) -> None:
    """An SDK's 500, 500, 200 is three."""
    again = fail(500).but(headers={"retry-after-ms": "1", "retry-after": "0"})
    with asking(kind, again, again, say(WORDS), tries=3) as client:
        client.ask()
    assert seen.reasons() == [StopReason.ERROR, StopReason.ERROR, StopReason.END_TURN]
    assert [ended.error is None for ended in seen.ended] == [False, False, True]


@every_kind
def test_no_answer(seen: Records, kind: Kind) -> None:
    """None in time is an error, and says so; so is a server that hangs up."""
    with asking(kind, say(WORDS).but(delay_s=5), timeout_s=0.2) as client, suppress(Exception):
        client.ask()
    ended = seen.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.ERROR, "timeout")
    with asking(kind, hang_up()) as client, suppress(Exception):
        client.ask()
    assert set(seen.reasons()) == {StopReason.ERROR}
    assert len(seen.ended) > 1


@kinds(lambda kind: kind.is_async)
@whole_and_streamed
def test_a_cancelled_task(seen: Records, kind: Kind, streamed: bool) -> None:
    """A task that is cancelled while it waits has cancelled its call."""
    slow = say(WORDS).but(pace_s=1) if streamed else say(WORDS).but(delay_s=5)
    with asking(kind, slow) as client:
        begun = asyncio.Event()

        async def read() -> None:
            if not streamed:
                await kind.ask(client.made)
                return
            made = await kind.stream(client.made)
            async for _ in made[0] if isinstance(made, tuple) else made:
                begun.set()

        async def main() -> None:
            task = asyncio.create_task(read())
            while not (begun.is_set() if streamed else seen.started):
                await asyncio.sleep(0.01)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        client.run(main())
        assert seen.reasons() == [StopReason.CANCELLED]
    seen.only()


@kinds(lambda kind: not kind.is_ours)
def test_stopped_at_each_event(seen: Records, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a cancelled task or Ctrl-C stops a host: a reason that had come counts, and the call has not failed."""
    feed, counts, sent, fed = exchange.Exchange.feed, list[int](), 0, 0

    def held(answer: LoopbackReply) -> LoopbackReply:
        """The first is whole, each other one has a chunk more than the one before, and no end."""
        nonlocal sent
        counts.append(len(answer.chunks))
        if (after := len(counts) - 1) == 0:
            return answer
        first = b"".join(answer.chunks[:after])
        sent = len(first)
        return replace(answer, chunks=(first, b"never sent"), pace_s=60)

    def count(self: exchange.Exchange, chunk: bytes) -> None:
        nonlocal fed
        feed(self, chunk)
        fed += len(chunk)

    def interrupted(read: Any) -> Any:
        def reading(self: Any, *args: Any) -> Any:
            if threading.current_thread() is threading.main_thread() and 0 < sent == fed:
                raise KeyboardInterrupt
            return read(self, *args)

        return reading

    async def cancelled() -> None:
        async def read() -> None:
            made = await kind.stream(client.made)
            async for _ in made[0] if isinstance(made, tuple) else made:
                pass

        task = asyncio.create_task(read())
        while not 0 < sent == fed and not task.done():
            await asyncio.sleep(0.001)
        task.cancel()
        await task

    monkeypatch.setattr(exchange.Exchange, "feed", count)
    if not kind.is_async:
        monkeypatch.setattr(socket.SocketIO, "readinto", interrupted(socket.SocketIO.readinto))
        monkeypatch.setattr(socket.socket, "recv", interrupted(socket.socket.recv), raising=False)
    with asking(kind, truncate(WORDS, after=2), change=held) as client:
        list(client.stream())
        seen.clear()
        for _ in range(counts[0]):
            sent = fed = 0
            with suppress(KeyboardInterrupt, asyncio.CancelledError):
                client.run(cancelled()) if kind.is_async else list(client.stream())
            sent = 0
    gc.collect()
    cleanup.run()
    reasons = seen.reasons()
    assert len(reasons) == counts[0]
    assert set(reasons) == {StopReason.CANCELLED, StopReason.MAX_TOKENS}
    assert reasons == sorted(reasons, key=lambda reason: reason is StopReason.MAX_TOKENS)
    assert {ended.error for ended in seen.ended if ended.stop.reason is StopReason.MAX_TOKENS} == {None}


# --- Many at once ---------------------------------------------------------------------------------------------------


@every_kind
def test_two_streams_interleaved(seen: Records, kind: Kind) -> None:
    """Each is read by its own."""
    with asking(kind, truncate(WORDS, after=3), say(WORDS)) as client:
        first = client.stream()
        next(first)
        second = client.stream()
        next(second)
        list(first)
        list(second)
    assert sorted(seen.reasons()) == [StopReason.END_TURN, StopReason.MAX_TOKENS]
    assert {ended.response.output_chars for ended in seen.ended} == {len("One two three"), len(WORDS)}


@kinds(lambda kind: not kind.is_async)
def test_a_thread_pool(seen: Records, kind: Kind) -> None:
    """Nothing of one call is another's."""
    with asking(kind, truncate(WORDS, after=2)) as client, ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(client.ask) for _ in range(8)]:
            future.result()
    assert seen.reasons() == [StopReason.MAX_TOKENS] * 8
