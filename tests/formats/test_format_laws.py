"""Laws of every format, for every recorded reply and variants of it: bytes, histories, damage."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from endturn.errors import DecodeError, ProviderError
from endturn.formats import Context, Event, Framing, format_of, framing, summarize
from endturn.formats.errors import error_of
from endturn.formats.framing import DONE
from endturn.formats.request_body import request_of
from endturn.vocabulary.messages import Message, Request
from endturn.vocabulary.stop import StopReason, raw_text
from tests.formats.recorded import RECORDED, Recorded, streamed, summarized
from tests.replies.record import HERE

each_format = pytest.mark.parametrize("recorded", [pytest.param(each, id=name) for name, each in RECORDED.items()])


def a_stream(recorded: Recorded, data: st.DataObject) -> tuple[list[Event], Context]:
    """Generate one of the format's recorded streams that is not too long."""
    short = [name for name, events in recorded.streams.items() if len(events) < 100]
    name = data.draw(st.sampled_from(short))
    return recorded.streams[name], recorded.contexts[name]


# --- Bytes ---


@each_format
@given(data=st.data())
def test_any_chunking_gives_the_same_events(recorded: Recorded, data: st.DataObject) -> None:
    """The events do not depend on the chunks; a truncated stream has the first of them."""
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
def test_events_after_the_last_are_ignored(recorded: Recorded, data: st.DataObject) -> None:
    """A summarizer at the end of a response has its stop reason: only an error may add a detail."""
    events, ctx = a_stream(recorded, data)
    summarizer = recorded.format.summarizer(ctx)
    for event in events:
        summarizer.feed(event)
        # Google's SDK joins what follows a pause.
        if summarizer.is_over and summarizer.close().stop.reason is not StopReason.PAUSED:
            break
    seen, all_seen = summarizer.close().stop, summarized(recorded.format, events, ctx).stop
    assert (seen.reason, seen.raw, seen.terminal_seen) == (all_seen.reason, all_seen.raw, all_seen.terminal_seen)


# --- Histories ---


@each_format
@given(data=st.data())
def test_a_history_survives_the_format(recorded: Recorded, data: st.DataObject) -> None:
    """Stored as JSON and read back, it is written the same, with any answers and tool results."""
    api, answer, fails = recorded.format, data.draw(st.text(max_size=20)), data.draw(st.booleans())
    history = [Message(role="system", content="Be brief.")]
    for number in range(data.draw(st.integers(1, 5))):
        name = data.draw(st.sampled_from(list(recorded.bodies)))
        response = recorded.read(name, recorded.contexts[name])
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
    """Its blocks have no meaning in this format."""
    api, other = recorded.format, RECORDED["anthropic" if recorded.format.name != "anthropic" else "openai_chat"]
    cut = other.read("length", other.contexts["length"])
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    resumed = api.resume(asked, cut, prompt="Go on.")
    assert resumed.messages[0] == asked.messages[0]
    assert cut.text.strip() in str(api.encode(resumed))


# --- Damage ---

MANY = min(40, settings().max_examples // 2)
"""How many are damaged in an example: forty, and in the fast tests a dozen."""
VALUES: list[list[Any]] = [
    [None],
    [True, False],
    [0, -1, 2**63, 10**400, 1.5, float("inf"), float("nan")],
    ["", " ", "stop", "STOPSTOP", "end_turn", "\ud800", "x" * 20_000],
    [[], {}, [None, 3, "x"], {"type": "text", "text": 7}],
    [json.loads('[{"type":' * depth + '"x"' + "}]" * depth) for depth in (2, 30, 60)],
]
"""What nobody expects, by its kind."""
BYTES = (
    *(b"\xff\xfe", b"\xc3", b"\x00", b"\r", b"\n\n", b"data: ", b'"'),
    *(b"{", b"}", b"\\u0000", b"\\ud800", b"NaN", b"1e999"),
)


def _containers(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every dictionary and list, with each of its keys."""
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, inner in pairs:
        yield thing, key
        yield from _containers(inner)


def damaged_json(thing: Any, others: list[Any], rng: random.Random) -> Any:
    """Generate JSON with a few values replaced, dropped, renamed, or taken from another reply."""
    thing = deepcopy(thing)
    for _ in range(rng.randint(1, 3)):
        places = list(_containers(thing))
        if not places:
            return rng.choice(rng.choice(VALUES))
        container, key = rng.choice(places)
        match rng.randrange(4):
            case 0:
                container[key] = deepcopy(rng.choice(rng.choice(VALUES)))
            case 1:
                del container[key]
            case 2 if isinstance(container, dict):
                container[rng.choice(["type", "error", "index", "content", str(key).upper()])] = container.pop(key)
            case _:
                donor = rng.choice(others)
                donors = [holder[name] for holder, name in _containers(donor)] or [donor]
                container[key] = deepcopy(rng.choice(donors))
    return thing


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Generate bytes with a few flipped, removed, doubled or inserted, or without their end."""
    for _ in range(rng.randint(1, 4)):
        at, size = rng.randrange(len(data) + 1), rng.randrange(1, 40)
        before, here, after = data[:at], data[at : at + size], data[at + size :]
        flipped = bytes(each ^ 1 << rng.randrange(8) for each in here[:1]) + here[1:]
        bad = rng.choice([flipped, b"", here * 2, rng.choice(BYTES) + here])
        data = before + rng.choice([bad + after] * 4 + [b""])
    return data


def damaged_events(events: list[Event], kind: Framing, rng: random.Random) -> list[Event]:
    """Generate events with damaged JSON, order or bytes.

    Raises:
        DecodeError: no events can be read of the bytes.
    """
    found, others = list(events), [event.data for event in events]
    match rng.randrange(3):
        case 0:
            for at in rng.choices(range(len(found)), k=rng.randint(1, 3)):
                if found[at].data != DONE:
                    found[at] = Event(found[at].name, damaged_json(found[at].data, others, rng))
        case 1:
            for _ in range(rng.randint(1, 4)):
                found.insert(rng.randrange(len(found)), rng.choice(found))
                if rng.random() < 0.7:
                    del found[rng.randrange(len(found))]
        case _:
            data = damaged_bytes(b"".join(framing.frame(event, kind) for event in events), rng)
            cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
            return list(framing.events([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)], kind))
    return found


@each_format
@given(seed=st.integers(0, 2**32))
def test_damaged_replies_are_tolerated(recorded: Recorded, seed: int) -> None:
    """Each gives a response or a ProviderError, the same for client and telemetry, also after every event. None is an
    `end_turn` that was not sent.
    """
    api, rng = recorded.format, random.Random(seed)
    for _ in range(MANY):
        name = rng.choice([*recorded.contexts])
        ctx = recorded.contexts[name]
        with suppress(ProviderError):
            if name in recorded.streams:
                decoder, summarizer = api.decoder(ctx), api.summarizer(ctx)
                for event in damaged_events(recorded.streams[name], api.framing, rng):
                    list(decoder.feed(event))
                    summarizer.feed(event)
                    assert summarizer.close().stop == decoder.close().stop
                stop = decoder.close().stop
            else:
                body, others = recorded.bodies[name], list(recorded.bodies.values())
                if rng.random() < 0.5:
                    body = damaged_json(body, others, rng)
                else:
                    data = damaged_bytes(json.dumps(body).encode(), rng)
                    error_of(400, {}, data, ctx=ctx)
                    body = framing.parse(data)
                stop = api.decode(body, ctx=ctx).stop
                assert summarized(api, [body], ctx).stop == summarize(api, ctx, body).stop == stop
            assert stop.reason is not StopReason.END_TURN or raw_text(stop.raw) is not None


@each_format
def test_half_of_a_surrogate_pair_in_any_text_is_tolerated(recorded: Recorded) -> None:
    """Python's strings can hold it after a JSON escape; most text parsers raise a TypeError for it."""
    for name, body in recorded.bodies.items():
        ctx = recorded.contexts[name]
        for number, (container, key) in enumerate(_containers(body)):
            if isinstance(container[key], str):
                damaged = deepcopy(body)
                holder, at = list(_containers(damaged))[number]
                holder[at] += "\ud800"
                with suppress(ProviderError):
                    stop = recorded.format.decode(damaged, ctx=ctx).stop
                    assert summarize(recorded.format, ctx, damaged).stop == stop, (name, key)


OTHERS: list[Any] = [["x"], {"x": []}, 7, "x"]


@pytest.mark.slow
@each_format
def test_any_value_of_a_wrong_type_is_tolerated(recorded: Recorded) -> None:
    """Each value of a reply is replaced by a list, an object, a number and a text: readings agree, and never raise."""
    for name, ctx in recorded.contexts.items():
        events = recorded.streams.get(name) or [Event(None, recorded.bodies[name])]
        if len(events) > 40:
            continue
        for place, event in enumerate(events):
            for number, _ in enumerate(_containers(event.data)):
                for other in OTHERS:
                    data = deepcopy(event.data)
                    holder, key = list(_containers(data))[number]
                    holder[key] = deepcopy(other)
                    _read_alike(recorded, name, [*events[:place], Event(event.name, data), *events[place + 1 :]], ctx)


def _read_alike(recorded: Recorded, name: str, events: list[Event], ctx: Context) -> None:
    api = recorded.format
    with suppress(ProviderError):
        if name in recorded.streams:
            decoder, summarizer = api.decoder(ctx), api.summarizer(ctx)
            for event in events:
                list(decoder.feed(event))
                summarizer.feed(event)
            assert summarizer.close().stop == decoder.close().stop, name
        else:
            (event,) = events
            assert api.decode(event.data, ctx=ctx).stop == summarize(api, ctx, event.data).stop, name


@each_format
def test_events_after_the_last_are_read_alike(recorded: Recorded) -> None:
    """After the last event follows one of those before it: client and telemetry agree."""
    for name, events in recorded.streams.items():
        ctx = recorded.contexts[name]
        for ending, late in product((events[-1:], events[-2:]), events[:60]):
            decoder, summarizer = recorded.format.decoder(ctx), recorded.format.summarizer(ctx)
            with suppress(ProviderError):
                for event in (*ending, late):
                    list(decoder.feed(event))
                    summarizer.feed(event)
                assert summarizer.close().stop == decoder.close().stop, (name, late)


BODIES = [
    (path.parent.parent.name, case["body"])
    for path in sorted(HERE.glob("*/requests/body.json"))
    for case in json.loads(path.read_text())
]


@given(seed=st.integers(0, 2**32))
def test_damaged_requests_are_tolerated(seed: int) -> None:
    """Each gives a Request or a DecodeError; telemetry summarizes the readable parts."""
    rng = random.Random(seed)
    for _ in range(MANY):
        name, body = rng.choice(BODIES)
        damaged = damaged_json(body, [body], rng)
        if isinstance(damaged, dict):
            format_of(name).request_summary(damaged)
            with suppress(DecodeError):
                request_of(format_of(name), damaged)


@each_format
@pytest.mark.parametrize("bad", [None, 3, "x", [], ["x"]], ids=repr)
def test_a_value_that_is_no_object_is_a_decode_error(recorded: Recorded, bad: Any) -> None:
    """A body or an event that is not an object is reported as the provider's fault."""
    with pytest.raises(DecodeError):
        recorded.format.decode(bad, ctx=Context())
    with pytest.raises(DecodeError):
        streamed(recorded.format, [Event(None, bad)], Context())
