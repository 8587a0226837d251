"""What is recorded of a stream does not depend on how many of its chunks wait to be read together."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import pytest

from endturn.calls import listeners
from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts
from endturn.calls.records import CallEnded
from endturn.formats import Context, Framing, RequestSummary, format_of, framing
from endturn.formats.format import Format
from endturn.instrumentation import background_responses, body
from endturn.instrumentation.exchange import Exchange
from endturn.vocabulary.stop import StopReason
from tests.formats.recorded import RECORDED, Recorded

each_format = pytest.mark.parametrize("recorded", [pytest.param(each, id=name) for name, each in RECORDED.items()])
BATCHES: Final = (2, 7, 64, 10**9)
"""How many chunks wait at most, beside 1: each is read as it comes."""


class Clock:
    """Tells how many chunks have come."""

    now_s = 1.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(time, "perf_counter", made)
    return made


@pytest.fixture
def ended() -> Iterator[list[CallEnded]]:
    found: list[CallEnded] = []
    stop = listeners.subscribe(lambda record: found.append(record) if isinstance(record, CallEnded) else None)
    try:
        with listeners.strict():
            yield found
    finally:
        stop()


def begin(speaks: Format, context: Context, content_type: str) -> Exchange:
    call = open_call(
        Layer.CLIENT,
        replace(context.request.facts, stream=True),
        EndpointFacts(provider=speaks.provider),
        summary=context.request,
    )
    assert call is not None
    made = Exchange(speaks, context, True, nullcontext(), call)
    assert made.on_response(200, {"content-type": content_type})
    return made


def read(made: Exchange, chunks: list[bytes], how: str, clock: Clock) -> int | None:
    """Feed the chunks, and end as a host does; give the number of the chunk with which the response was over."""
    over = None
    for number, chunk in enumerate(chunks):
        clock.now_s += 1
        made.feed(chunk)
        if made.is_over and over is None:
            over = number
    clock.now_s += 1
    match how:
        case "lost":
            made.on_read_error(OSError("gone"))
        case "left":
            made.on_close()
        case "abandoned":
            made.abandon()
        case _:
            made.end()
    return over


def streamed(recorded: Recorded, name: str) -> tuple[Context, list[bytes]]:
    """One of the format's streams on file: what was asked, and the bytes of each event."""
    context = recorded.contexts[name]
    context = replace(context, request=context.request.with_facts(stream=True))
    return context, [framing.frame(event, recorded.format.framing) for event in recorded.streams[name]]


def record(
    clock: Clock, ended: list[CallEnded], speaks: Format, context: Context, chunks: list[bytes], how: str
) -> Any:
    """All that is recorded of a stream, its times among it."""
    ended.clear()
    clock.now_s = 1.0
    made = begin(speaks, context, framing.CONTENT_TYPE[speaks.framing])
    over = read(made, chunks, how, clock)
    background_responses.close_all()  # a response that the server goes on making is recorded as it was seen last
    (record,) = ended
    times = over, record.duration_s, record.first_chunk_s, record.chunk_gaps_s
    identity = made.call and (made.call.identity.id is not None)
    seen = record.stop, record.usage, record.response_id, record.response_model, record.reasons
    return seen, record.output_chars, record.truncated_choices, repr(record.error), times, identity


def pieces(raw: bytes, size: int) -> list[bytes]:
    return [raw[at : at + size] for at in range(0, len(raw), size)]


@each_format
def test_a_batch_of_any_size_says_the_same_at_the_same_time(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch, clock: Clock, ended: list[CallEnded]
) -> None:
    """Every stream on file, cut after any event, in chunks of events and of bytes, however its host stops reading."""
    at_random = random.Random(1)
    for name in recorded.streams:
        context, events = streamed(recorded, name)
        raw = b"".join(events)
        size = at_random.choice((3, 7, 64, 700))
        place = at_random.randrange(len(events)) + 1
        cuts = {
            "": events,
            "lost": events[:place],
            "left": [*events[: place - 1], events[place - 1][: at_random.randrange(len(events[place - 1]))]],
            "abandoned": [b"".join(events[at : at + 2]) for at in range(0, len(events), 2)],
            "whole": pieces(raw, size),
        }
        for how, chunks in cuts.items():
            monkeypatch.setattr(body, "MAX_HELD_CHUNKS", 1)
            expected = record(clock, ended, recorded.format, context, chunks, how)
            for most in BATCHES:
                monkeypatch.setattr(body, "MAX_HELD_CHUNKS", most)
                found = record(clock, ended, recorded.format, context, chunks, how)
                assert found == expected, (name, how, most)


@each_format
def test_chunks_of_any_size_say_the_same(recorded: Recorded, clock: Clock, ended: list[CallEnded]) -> None:
    """Every short stream on file: byte by byte, and in every other size, as in one chunk."""
    for name in recorded.streams:
        context, events = streamed(recorded, name)
        raw = b"".join(events)
        if len(raw) > 2_000:
            continue
        expected = record(clock, ended, recorded.format, context, [raw], "")[:4]
        for size in (1, 2, 5, 16, 333):
            found = record(clock, ended, recorded.format, context, pieces(raw, size), "")[:4]
            assert found == expected, (name, size)


WORD: Final = b'data: {"id":"chatcmpl-1","model":"m","choices":[{"index":0,"delta":{"content":"word "}}]}\n\n'
CALL: Final = (
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_Q7xPzR2kLm","function":'
    b'{"name":"f","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n'
)


def chat(stream: bool = True) -> Exchange:
    context = Context("", "openai", RequestSummary(facts=RequestFacts(model="m", stream=stream)))
    return begin(format_of("openai_chat"), context, "text/event-stream")


def test_plain_chunks_wait_and_are_read_when_the_host_stops(ended: list[CallEnded]) -> None:
    """Without waiting, a chunk is read between two steps of the host's."""
    made = chat()
    for _ in range(20):
        made.feed(WORD)
    assert made._reader is not None
    assert len(made._reader._held_chunks) == 20 - body.EAGER_CHUNKS
    made.on_close()
    assert (ended[0].output_chars, ended[0].stop.reason) == (20 * len("word "), StopReason.CANCELLED)


def test_what_waits_is_bounded() -> None:
    """However many chunks come, and however long they are."""
    made = chat()
    answer = made._reader
    assert answer is not None
    long = WORD.replace(b"word ", b"w" * body.MAX_HELD_CHUNK_BYTES)
    for number in range(1_000):
        made.feed(long if number % 7 == 0 else WORD)
        assert len(answer._held_chunks) < body.MAX_HELD_CHUNKS
        assert sum(map(len, answer._held_chunks)) <= body.MAX_HELD_CHUNKS * body.MAX_HELD_CHUNK_BYTES
    made.abandon()


@pytest.mark.parametrize("marks", [[b"data: [DONE]\n\n"], [b"data: [DO", b"NE]\n\n"], [b"data: [DONE]\n", b"\n"]])
def test_a_last_event_ends_the_call_at_once(ended: list[CallEnded], marks: list[bytes]) -> None:
    """Also where it comes in two chunks: its host may neither read on nor close the stream."""
    made = chat()
    for chunk in (*[WORD] * 10, *marks):
        assert not ended
        made.feed(chunk)
    assert ended[0].output_chars == 10 * len("word ")


def test_an_event_that_cannot_be_read_spoils_the_batch_as_it_does_a_stream(ended: list[CallEnded]) -> None:
    """It is recorded as unreadable, not as cut, when its host stops reading."""
    made = chat()
    for chunk in (*[WORD] * 10, b"data: {no\n\n", WORD):
        made.feed(chunk)
    made.end()
    assert (ended[0].stop.reason, ended[0].stop.detail) == (StopReason.UNKNOWN, "unreadable")


def test_the_calls_of_a_stream_are_known_though_their_chunk_waits(ended: list[CallEnded]) -> None:
    """A request that brings the results of a stream's calls ends it, also from another thread."""
    made = chat()
    for chunk in (*[WORD] * 10, CALL):
        made.feed(chunk)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(made.requested_calls()))
    thread.start()
    thread.join()
    assert [call.id for call in found] == ["call_Q7xPzR2kLm"]
    made.on_close()
    assert ended[0].stop.reason is StopReason.TOOL_CALL


def test_only_formats_whose_bytes_hide_their_events_have_no_end_words() -> None:
    """AWS's messages tell their ends in binary, an invoked model's words travel in base64."""
    without = {name for name, recorded in RECORDED.items() if recorded.format.end_markers is None}
    assert without == {"bedrock_converse", "bedrock_invoke"}
    assert {format_of(name).framing for name in without} == {Framing.EVENTSTREAM}


def test_a_chunk_is_kept_as_it_came(ended: list[CallEnded]) -> None:
    """A transport may use one buffer for all of its chunks."""
    made, buffer = chat(), bytearray(WORD)
    for _ in range(10):
        made.feed(buffer)  # type: ignore[arg-type]
    buffer[:] = b"x" * len(buffer)
    made.on_close()
    assert ended[0].output_chars == 10 * len("word ")
