"""Calls over plain httpx and httpx2: what these two have of their own, and what stands on them.

What every client does alike is in tests/instrumentation/test_exchanges.py.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import httpx2
import pytest

from endturn import hooks
from endturn.formats.framing import frame
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.scripted import Reply, ScriptedProvider, fail, say, truncate
from endturn.stop import StopReason
from endturn.telemetry import attributes
from tests.telemetry.mocked import CUT_STREAM, Records, settle

OPENAI = "https://api.openai.com/v1/chat/completions"
ASK: dict[str, Any] = {"model": "gpt-5.6", "messages": [{"role": "user", "content": "hi"}]}
STREAM: dict[str, Any] = {**ASK, "stream": True}
FRAMES = [frame(event) for event in CUT_STREAM]


@pytest.fixture(params=[httpx, httpx2], ids=["httpx", "httpx2"])
def library(request: pytest.FixtureRequest) -> Any:
    """Both libraries, which are alike."""
    return request.param


def scripted(library: Any, *replies: Reply, **options: Any) -> Any:
    """A client whose every request is answered by the next reply, wherever it goes."""
    return library.Client(transport=ScriptedProvider(list(replies)).transport(), **options)


class Pieces:
    """A body's pieces, and how many have been asked for."""

    def __init__(self, library: Any, pieces: list[bytes], error: Exception | None = None) -> None:
        self.taken = 0
        self.closed = False
        outer = self

        class Body(library.SyncByteStream):  # type: ignore[misc]  # either library's
            def __iter__(self) -> Iterator[bytes]:
                for piece in pieces:
                    outer.taken += 1
                    yield piece
                if error is not None:
                    raise error

            def close(self) -> None:
                outer.closed = True

        self.body = Body()

    def client(self, library: Any, **headers: str) -> Any:
        headers = {"content-type": "text/event-stream", **headers}
        return library.Client(
            transport=library.MockTransport(lambda request: library.Response(200, headers=headers, stream=self.body))
        )


# --- The response is the library's ---------------------------------------------------------------------------------


def test_the_response_is_untouched(records: Records, library: Any) -> None:
    """Its type, what it measures, and what a copy or a pickle of it has, whole and streamed."""
    assert inspect.iscoroutinefunction(library.AsyncClient.send)
    whole = scripted(library, say("Hello")).post(OPENAI, json=ASK)
    with scripted(library, say("Hello")).stream("POST", OPENAI, json=STREAM) as streamed:
        assert not {name for name, value in vars(streamed).items() if callable(value) and name != "stream"}
        streamed.read()
    for response in (whole, streamed):
        assert type(response) is library.Response
        assert response.is_closed
        assert response.elapsed.total_seconds() >= 0
        assert response.num_bytes_downloaded == len(response.content)
        assert pickle.loads(pickle.dumps(response)).content == copy.copy(response).content == response.content
    assert len(records.ended) == 2


@pytest.mark.parametrize(
    ("pieces", "kept"),
    [(1, 0), (8, 7), (9, 4), (1_000, 7)],
)
def test_the_times_between_chunks(records: Records, pieces: int, kept: int) -> None:
    """Of a short stream all of them; of a long one as many as a short one has, from all of its length."""
    word, *end = FRAMES[1:2] + FRAMES[-3:]
    client = Pieces(httpx, [word] * (pieces - 1) + [b"".join(end)]).client(httpx)
    with client.stream("POST", OPENAI, json=STREAM) as response:
        assert sum(1 for _ in response.iter_raw()) == pieces
    ended = records.only()
    assert ended.first_chunk_s is not None
    assert len(ended.chunk_gaps_s) == kept
    assert min(ended.chunk_gaps_s, default=0) >= 0
    assert sum(ended.chunk_gaps_s) <= ended.duration_s - ended.first_chunk_s


def test_nothing_is_read_ahead(library: Any) -> None:
    """The transport gives as many pieces as without us, when the host asks and not before."""

    def taken() -> list[int]:
        pieces = Pieces(library, FRAMES)
        request = library.Request("POST", OPENAI, json=STREAM)
        response = pieces.client(library).send(request, stream=True)
        counts = [pieces.taken]
        chunks = response.iter_bytes()
        for _ in range(3):
            next(chunks)
            counts.append(pieces.taken)
        response.close()
        assert pieces.closed
        return counts

    bare = taken()
    instrument()
    try:
        stop = hooks.subscribe(lambda record: None)
        assert taken() == bare
        stop()
    finally:
        uninstrument()


async def test_a_reader_that_stops_closes_what_it_read_from(records: Records, library: Any) -> None:
    """A body's generator ends with the reader, where the library sees to that, and not whenever the loop finds it."""

    async def finished(url: str) -> bool:
        left: list[bool] = []

        class Slow(library.AsyncByteStream):  # type: ignore[misc]  # either library's
            async def __aiter__(self) -> AsyncIterator[bytes]:
                try:
                    for piece in FRAMES:
                        yield piece
                finally:
                    left.append(True)

        async def answer(request: Any) -> Any:
            return library.Response(200, headers={"content-type": "text/event-stream"}, stream=Slow())

        client = library.AsyncClient(transport=library.MockTransport(answer))
        async with client.stream("POST", url, json=STREAM) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            await chunks.aclose()
            return bool(left)

    assert await finished(OPENAI) == await finished("https://example.com/")
    settle()
    assert records.only().stop.reason is StopReason.CANCELLED


# --- Errors and hooks ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_an_error_that_a_hook_raises(records: Records, library: Any, streamed: bool) -> None:
    """`raise_for_status` in an event hook: the exception is the host's, and comes through."""
    client = scripted(
        library, fail(429), event_hooks={"response": [lambda response: response.raise_for_status() and None]}
    )
    with pytest.raises(library.HTTPStatusError):
        client.send(library.Request("POST", OPENAI, json=STREAM if streamed else ASK), stream=streamed)
    ended = records.only()
    assert (ended.stop.reason, attributes.error_type(ended.error)) == (StopReason.ERROR, "429")


@pytest.mark.parametrize(
    ("hook", "reason"),
    [("read", StopReason.MAX_TOKENS), ("close", StopReason.CANCELLED)],
)
def test_a_hook_that_has_done_with_the_stream(records: Records, library: Any, hook: str, reason: StopReason) -> None:
    """What it has read is read, what it closed is cancelled, before the host has the response."""
    hooks = {"response": [lambda response: getattr(response, hook)() and None]}
    with scripted(library, truncate("One two", after=1), event_hooks=hooks).stream("POST", OPENAI, json=STREAM):
        assert records.only().stop.reason is reason


def test_an_auth_flow_is_part_of_the_call(records: Records, library: Any) -> None:
    """A 401 that its auth flow answers is no call of its own."""

    class Auth(library.Auth):  # type: ignore[misc]  # either library's
        def auth_flow(self, request: Any) -> Iterator[Any]:
            response: Any = yield request
            if response.status_code == 401:
                request.headers["authorization"] = "Bearer new"
                yield request

    client = scripted(library, fail(401), say("Hello"))
    assert client.post(OPENAI, json=ASK, auth=Auth()).is_success
    assert records.only().stop.reason is StopReason.END_TURN
