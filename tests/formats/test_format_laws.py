"""What holds of every format, for every reply on file and for what is made of it: bytes, histories, damage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ChatResponse, Message, Request
from endturn.errors import DecodeError, ProviderError
from endturn.formats import Context, Event, Framing, format_of, framing, summarize
from endturn.formats.errors import error_of
from endturn.formats.format import Format
from endturn.formats.request_body import request_of
from endturn.stop import Stop, StopReason, raw_text
from tests.formats import damage
from tests.formats.recorded import RECORDED, Recorded
from tests.replies.record import HERE

each_format = pytest.mark.parametrize("recorded", [pytest.param(each, id=name) for name, each in RECORDED.items()])


def streamed(api: Format, events: Iterable[Event], ctx: Context) -> ChatResponse:
    """A decoder's response; its deltas are the text."""
    decoder = api.decoder(ctx)
    said = "".join(delta.text for event in events for delta in decoder.feed(event))
    response = decoder.close()
    assert said == response.text
    return response


def summarized(api: Format, things: Iterable[Any], ctx: Context) -> Stop:
    """What a summarizer makes of events or a body."""
    summarizer = api.summarizer(ctx)
    for thing in things:
        summarizer.feed(thing)
    return summarizer.close().stop


def a_body(recorded: Recorded, data: st.DataObject) -> tuple[Any, Context]:
    """One of the format's bodies on file."""
    name = data.draw(st.sampled_from(list(recorded.bodies)))
    return recorded.bodies[name], recorded.contexts[name]


def a_stream(recorded: Recorded, data: st.DataObject) -> tuple[list[Event], Context]:
    """One of the format's streams on file, not too long a one."""
    short = [name for name, events in recorded.streams.items() if len(events) < 100]
    name = data.draw(st.sampled_from(short))
    return recorded.streams[name], recorded.contexts[name]


# --- Bytes ---


@each_format
@given(data=st.data())
def test_any_chunking_gives_the_same_events(recorded: Recorded, data: st.DataObject) -> None:
    """However the bytes arrive, the events are the same; cut anywhere, they are the first ones."""
    kind, (events, _) = recorded.format.framing, a_stream(recorded, data)
    raw = b"".join(framing.frame(event, kind) for event in events)
    if kind is Framing.SSE:
        end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
        raw = (b"\xef\xbb\xbf: hello\n\n" + raw).replace(b"\n", end.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=40)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    whole = list(framing.events(chunks, kind))
    assert len(whole) == len(events)
    assert whole == list(framing.events([raw], kind))
    decoder = framing.decoder(kind)
    first = [*decoder.feed(raw[: data.draw(st.integers(0, len(raw)))]), *decoder.close()]
    assert first == whole[: len(first)]


@each_format
@given(data=st.data())
def test_what_follows_the_last_event_says_nothing(recorded: Recorded, data: st.DataObject) -> None:
    """A summarizer that says that a response is over knows why it stopped: only an error may add a detail."""
    events, ctx = a_stream(recorded, data)
    summarizer = recorded.format.summarizer(ctx)
    for event in events:
        summarizer.feed(event)
        if (
            summarizer.over and summarizer.close().stop.reason is not StopReason.PAUSED
        ):  # Google's SDK joins what follows
            break
    seen, all_seen = summarizer.close().stop, summarized(recorded.format, events, ctx)
    assert (seen.reason, seen.raw, seen.terminal_seen) == (all_seen.reason, all_seen.raw, all_seen.terminal_seen)


# --- Histories ---


@each_format
@given(data=st.data())
def test_a_history_survives_the_format(recorded: Recorded, data: st.DataObject) -> None:
    """Stored as JSON and read back, it is written the same, whatever the answers hold and how they were answered."""
    api, answer, fails = recorded.format, data.draw(st.text(max_size=20)), data.draw(st.booleans())
    history = [Message(role="system", content="Be brief.")]
    for number in range(data.draw(st.integers(1, 5))):
        body, ctx = a_body(recorded, data)
        response = api.decode(body, ctx=ctx)
        history += [Message(role="user", content=f"Question {number}?"), response.message()]
        history += [
            Message(role="tool", tool_call_id=call.id, content=answer, is_error=fails)
            for call in response.tool_calls
            if call.closed
        ]
    sent = Request(model="m", messages=(*history, Message(role="user", content="and?")), max_tokens=64)
    assert api.encode(Request.model_validate_json(sent.model_dump_json())) == api.encode(sent)


@each_format
def test_a_response_of_another_format_is_resumed_by_its_text(recorded: Recorded) -> None:
    """Its blocks mean nothing here."""
    api, other = recorded.format, RECORDED["anthropic" if recorded.format.name != "anthropic" else "openai_chat"]
    cut = other.format.decode(other.bodies["length"], ctx=other.contexts["length"])
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    resumed = api.resume(asked, cut, prompt="Go on.")
    assert resumed.messages[0] == asked.messages[0]
    assert cut.text.strip() in str(api.encode(resumed))


# --- Damage ---


@each_format
@given(seed=st.integers(0, 2**32))
def test_damaged_replies_are_survived(recorded: Recorded, seed: int) -> None:
    """Forty of them: a response or a ProviderError each, read alike by client and telemetry, after every event too.

    None is an `end_turn` that nobody said.
    """
    api, rng = recorded.format, random.Random(seed)
    for _ in range(40):
        name = rng.choice([*recorded.contexts])
        ctx = recorded.contexts[name]
        with suppress(ProviderError):
            if name in recorded.streams:
                decoder, summarizer = api.decoder(ctx), api.summarizer(ctx)
                for event in damage.damaged_events(recorded.streams[name], api.framing, rng):
                    list(decoder.feed(event))
                    summarizer.feed(event)
                    assert summarizer.close().stop == decoder.close().stop
                stop = decoder.close().stop
            else:
                body, others = recorded.bodies[name], list(recorded.bodies.values())
                if rng.random() < 0.5:
                    body = damage.damaged_json(body, others, rng)
                else:
                    body = framing.parse(damage.damaged_bytes(json.dumps(body).encode(), rng))
                stop = api.decode(body, ctx=ctx).stop
                assert summarized(api, [body], ctx) == summarize(api, ctx, body).stop == stop
            assert stop.reason is not StopReason.END_TURN or raw_text(stop.raw) is not None


BODIES = [
    (path.parent.parent.name, case["body"])
    for path in sorted(HERE.glob("*/requests/body.json"))
    for case in json.loads(path.read_text())
]


@given(at=st.sampled_from(BODIES), seed=st.integers(0, 2**32))
def test_a_damaged_request_is_survived(at: tuple[str, Any], seed: int) -> None:
    """A Request, or a DecodeError."""
    name, body = at
    damaged = damage.damaged_json(body, [body], random.Random(seed))
    with suppress(DecodeError):
        request_of(format_of(name), damaged if isinstance(damaged, dict) else {})


def _words(thing: Any) -> set[str]:
    """Every key, and every short text, of a JSON value."""
    if isinstance(thing, dict):
        return set(thing) | {word for inner in thing.values() for word in _words(inner)}
    if isinstance(thing, list):
        return {word for inner in thing for word in _words(inner)}
    return {thing} if isinstance(thing, str) and len(thing) < 30 else set()


def anything(words: Iterable[str] = ("stop", "end_turn")) -> st.SearchStrategy[Any]:
    """Any JSON, with some words among its texts and keys."""
    known = st.sampled_from(sorted(words))
    leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | known
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5) | known, inner, max_size=5),
        max_leaves=25,
    )


JSON = anything()
WORDS = {
    name: _words([*recorded.bodies.values(), *([event.data for event in s] for s in recorded.streams.values())])
    for name, recorded in RECORDED.items()
}


@each_format
@given(data=st.data())
def test_any_json_is_survived(recorded: Recorded, data: st.DataObject) -> None:
    """Whatever JSON arrives, as body, event or request arguments: a response or a ProviderError, nothing else."""
    api, thing, (_, ctx) = recorded.format, data.draw(anything(WORDS[recorded.format.name])), a_body(recorded, data)
    summarized(api, [thing], ctx)
    with suppress(ProviderError):
        api.decode(thing, ctx=ctx)
    with suppress(ProviderError):
        streamed(api, [Event(None, thing)], ctx)
    arguments = ("messages", "max_tokens", "system", "n", "contents", "config", "input", "prompt", "inferenceConfig")
    api.request_summary(thing if isinstance(thing, dict) else dict.fromkeys(arguments, thing))
    error_of(400, {}, repr(thing).encode("utf-8", "replace"), ctx=ctx)
    if isinstance(thing, dict):
        with suppress(ProviderError):
            request_of(api, thing)


@each_format
@pytest.mark.parametrize("bad", [None, 3, "x", [], ["x"]], ids=repr)
def test_what_is_no_object_is_a_decode_error(recorded: Recorded, bad: Any) -> None:
    """A body or an event that is no object is the provider's fault, and is said so."""
    with pytest.raises(DecodeError):
        recorded.format.decode(bad, ctx=Context())
    with pytest.raises(DecodeError):
        streamed(recorded.format, [Event(None, bad)], Context())


# --- What a format declares ---


@each_format
@pytest.mark.parametrize("stream", [False, True])
def test_a_server_knows_the_path_that_a_client_takes(recorded: Recorded, stream: bool) -> None:
    """What route writes, routed reads."""
    api = recorded.format
    asked = Request(model="vendor.some-model-v1:0", messages=(Message(role="user", content="hi"),))
    method, path = api.route(asked, stream=stream)
    routed = api.routed(method, path)
    assert routed is not None
    assert routed.model in (None, "vendor.some-model-v1:0")
    assert routed.stream in (None, stream)
    assert api.routed("DELETE", path) is None
    assert [name for name, each in RECORDED.items() if each.format.routed(method, path) is not None] == [api.name]
