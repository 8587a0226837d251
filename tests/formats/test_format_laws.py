"""What holds of every format, for every reply: body, stream, mappings and cut bytes agree."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.errors import DecodeError, ProviderError
from endturn.formats import Context, Event, Framing, framing, summarize
from endturn.formats.errors import error_of
from endturn.formats.format import Format
from endturn.formats.request_body import request_of
from endturn.stop import Stop, StopReason
from endturn.stop_reasons import apis
from tests.formats.recorded import CTX, RECORDED, Recorded

BODIES = [(recorded, name) for recorded in RECORDED.values() for name in recorded.bodies]
STREAMS = [(recorded, name) for recorded in RECORDED.values() for name in recorded.streams]
CLEAN = (StopReason.END_TURN, StopReason.TOOL_CALL)

each_format = pytest.mark.parametrize("recorded", [pytest.param(r, id=r.format.name) for r in RECORDED.values()])
each_body = pytest.mark.parametrize(
    ("recorded", "name"), [pytest.param(r, n, id=f"{r.format.name}-{n}") for r, n in BODIES]
)
each_stream = pytest.mark.parametrize(
    ("recorded", "name"), [pytest.param(r, n, id=f"{r.format.name}-{n}") for r, n in STREAMS]
)


def streamed(api: Format, events: Iterable[Event], ctx: Context = CTX) -> tuple[list[Delta], ChatResponse]:
    """A decoder's deltas and response."""
    decoder = api.decoder(ctx)
    deltas = [delta for event in events for delta in decoder.feed(event)]
    return deltas, decoder.close()


def watched(api: Format, things: Iterable[Any], ctx: Context = CTX) -> Stop:
    """What a summarizer makes of events or a body."""
    summarizer = api.summarizer(ctx)
    for thing in things:
        summarizer.feed(thing)
    return summarizer.close().stop


@each_body
def test_watch_and_decode_agree_on_bodies(recorded: Recorded, name: str) -> None:
    """A summarizer reads the same Stop and usage from a body that decode reads."""
    api, ctx, body = recorded.format, recorded.context(name), recorded.bodies[name]
    expected = api.decode(body, ctx=ctx)
    seen = summarize(api, ctx, body)
    assert seen.stop == expected.stop
    assert (seen.usage, seen.id, seen.model) == (expected.usage, expected.id, expected.model)
    assert seen.tail == expected.text[-64:]
    assert seen.output_chars == len(expected.text)


@each_stream
def test_watch_and_decoder_agree_on_streams(recorded: Recorded, name: str) -> None:
    """A summary reads the same from a stream's mappings, or its events, that the decoder reads."""
    api, ctx, events = recorded.format, recorded.context(name), recorded.streams[name]
    deltas, response = streamed(api, events, ctx)
    assert "".join(delta.text for delta in deltas) == response.text
    plain = [event.data for event in events if event.data != framing.DONE]
    for things in (plain, events):
        summarizer = api.summarizer(ctx)
        for thing in things:
            summarizer.feed(thing)
        seen = summarizer.close()
        assert seen.stop == response.stop
        assert seen.usage == response.usage
        assert (seen.tail, seen.output_chars) == (response.text[-64:], len(response.text))


@each_stream
def test_every_prefix_agrees_and_none_invents_an_end(recorded: Recorded, name: str) -> None:
    """At every event, summarizer and decoder agree; before the terminal the stop is `missing`, never a clean reason."""
    api, ctx, events = recorded.format, recorded.context(name), recorded.streams[name]
    decoder, summarizer = api.decoder(ctx), api.summarizer(ctx)
    text = ""
    assert decoder.close().stop.reason is StopReason.MISSING
    final = streamed(api, events, ctx)[1].stop
    for event in events:
        text += "".join(delta.text for delta in decoder.feed(event))
        summarizer.feed(event)
        response = decoder.close()
        assert response.text == text
        assert summarizer.close().stop == response.stop
        assert response.stop.reason in (StopReason.MISSING, final.reason, StopReason.END_TURN)
        if response.stop.reason is StopReason.MISSING:
            assert not response.stop.terminal_seen


@each_stream
def test_what_follows_the_last_event_says_nothing(recorded: Recorded, name: str) -> None:
    """A summary that stops at a stream's last event is that of all of it, but for an error that comes late."""
    api, ctx, events = recorded.format, recorded.context(name), recorded.streams[name]
    whole, summarizer = api.summarizer(ctx), api.summarizer(ctx)
    for event in events:
        whole.feed(event)
    for event in events:
        assert not summarizer.over
        summarizer.feed(event)
        if summarizer.over:
            break
    seen, all_seen = summarizer.close(), whole.close()
    late = replace(seen.stop, detail=all_seen.stop.detail)
    assert replace(seen, stop=late) == all_seen


@each_stream
def test_a_stream_cut_at_any_byte(recorded: Recorded, name: str) -> None:
    """A stream cut anywhere in its bytes never ends clean before its terminal, keeps its text, and never crashes."""
    api, ctx, events = recorded.format, recorded.context(name), recorded.streams[name]
    short = events if len(events) < 100 else [*events[:6], *events[-5:]]
    data = b"".join(framing.frame(event, api.framing) for event in short)
    whole = streamed(api, short, ctx)[1]
    ended = _terminal(api, short, ctx)
    arrived: list[Event] | None = None
    for cut in range(len(data)):
        tail = framing.decoder(api.framing)
        before, arrived = arrived, [*tail.feed(data[:cut]), *tail.close()]
        if arrived != before:  # most bytes end no event, and change nothing
            response = streamed(api, arrived, ctx)[1]
        assert whole.text.startswith(response.text)
        if cut < ended:
            assert response.stop.reason is StopReason.MISSING
            assert all(not call.closed or call.arguments is not None for call in response.tool_calls)


_LINE_ENDS = {Framing.SSE: 2, Framing.NDJSON: 1, Framing.EVENTSTREAM: 0}
"""How many bytes at the end of a framed event may be missing without its being cut."""


def _terminal(api: Format, events: list[Event], ctx: Context) -> int:
    """Where in the bytes the first event ends that makes the stop known, less its line ends."""
    size = 0
    for index, event in enumerate(events):
        size += len(framing.frame(event, api.framing))
        if streamed(api, events[: index + 1], ctx)[1].stop.terminal_seen:
            return size - _LINE_ENDS[api.framing]
    return size  # A stream that its provider cut.


@each_format
def test_a_history_survives_the_format(recorded: Recorded) -> None:
    """Stored as JSON and read back, it is written the same: nothing that a replay needs is lost."""
    for name in recorded.bodies:
        _survives(recorded, [name])


@each_format
@given(data=st.data())
def test_a_long_history_survives_the_format(recorded: Recorded, data: st.DataObject) -> None:
    """So does a conversation of many answers, whatever they hold, and however they were answered."""
    names = data.draw(st.lists(st.sampled_from(list(recorded.bodies)), min_size=1, max_size=5))
    _survives(recorded, names, answer=data.draw(st.text(max_size=20)), fails=data.draw(st.booleans()))


def _survives(recorded: Recorded, names: list[str], *, answer: str = "14 °C", fails: bool = False) -> None:
    api = recorded.format
    history = [Message(role="system", content="Be brief.")]
    for number, name in enumerate(names):
        response = api.decode(recorded.bodies[name], ctx=recorded.context(name))
        history += [Message(role="user", content=f"Question {number}?"), response.message()]
        history += [
            Message(role="tool", tool_call_id=call.id, content=answer, is_error=fails)
            for call in response.tool_calls
            if call.closed
        ]
    history.append(Message(role="user", content="and?"))
    sent = Request(model="m", messages=tuple(history), max_tokens=64)
    written = api.encode(sent)
    stored = Request.model_validate_json(sent.model_dump_json())
    assert api.encode(stored) == written, f"{names}: stored as JSON and read back"


@given(data=st.data())
def test_any_chunking_gives_the_same_events(data: st.DataObject) -> None:
    """However the bytes arrive, the events are the same."""
    recorded, name = data.draw(st.sampled_from(STREAMS))
    if recorded.format.framing is not Framing.SSE:
        _any_chunking(data, recorded.format.framing, recorded.streams[name][-12:])
        return
    events = recorded.streams[name]
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    raw = b"\xef\xbb\xbf: hello\n\n" + b"".join(framing.frame(event) for event in events[-12:])
    raw = raw.replace(b"\n", end.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=40)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert list(framing.events(chunks)) == events[-12:]


def _any_chunking(data: st.DataObject, kind: Framing, events: list[Event]) -> None:
    raw = b"".join(framing.frame(event, kind) for event in events)
    whole = list(framing.events([raw], kind))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=40)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert list(framing.events(chunks, kind)) == whole
    assert len(whole) == len(events)


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
    api = recorded.format
    thing = data.draw(anything(WORDS[api.name]))
    ctx = recorded.context(data.draw(st.sampled_from(list(recorded.bodies))))
    summarizer = api.summarizer(ctx)
    summarizer.feed(thing)
    summarizer.close()
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
@given(data=st.data())
def test_one_wrong_value_anywhere_is_survived(recorded: Recorded, data: st.DataObject) -> None:
    """A good body with any one value replaced: a response, read alike by the summarizer, or a DecodeError."""
    api, name = recorded.format, data.draw(st.sampled_from(list(recorded.bodies)))
    good, ctx = recorded.bodies[name], recorded.context(name)
    path = data.draw(st.sampled_from(list(_paths(good))))
    bad = _replaced(good, path, data.draw(JSON))
    try:
        response = api.decode(bad, ctx=ctx)
    except ProviderError:
        return
    assert watched(api, [bad], ctx) == response.stop
    if response.stop.reason is StopReason.END_TURN:
        assert response.stop.raw is not None


@each_format
@given(data=st.data())
def test_one_wrong_value_in_a_stream_is_survived(recorded: Recorded, data: st.DataObject) -> None:
    """A good stream with any one value replaced: deltas, read alike by the summarizer, or a ProviderError."""
    api, name = recorded.format, data.draw(st.sampled_from(list(recorded.streams)))
    good, ctx = recorded.streams[name], recorded.context(name)
    index = data.draw(st.integers(0, len(good) - 1))
    if good[index].data == framing.DONE:
        return
    path = data.draw(st.sampled_from(list(_paths(good[index].data))))
    bad = [*good]
    bad[index] = Event(good[index].name, _replaced(good[index].data, path, data.draw(JSON)))
    try:
        response = streamed(api, bad, ctx)[1]
    except ProviderError:
        return
    assert watched(api, bad, ctx) == response.stop


def _paths(thing: Any, path: tuple[Any, ...] = ()) -> Iterable[tuple[Any, ...]]:
    if path:
        yield path
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, inner in pairs:
        yield from _paths(inner, (*path, key))


def _replaced(thing: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(thing) if isinstance(thing, dict) else list(thing)
    copy[path[0]] = _replaced(thing[path[0]], path[1:], value)
    return copy


@each_format
@pytest.mark.parametrize("bad", [None, 3, "x", [], ["x"]], ids=repr)
def test_what_is_no_object_is_a_decode_error(recorded: Recorded, bad: Any) -> None:
    """A body or an event that is no object is the provider's fault, and is said so."""
    ctx = recorded.context(next(iter(recorded.bodies)))
    with pytest.raises(DecodeError):
        recorded.format.decode(bad, ctx=ctx)
    with pytest.raises(DecodeError):
        streamed(recorded.format, [Event(None, bad)], ctx)


@each_format
def test_the_formats_have_all_the_names(recorded: Recorded) -> None:
    """Each module has every name of the Protocol."""
    names = [name for name in Format.__annotations__ | vars(Format) if not name.startswith("_")]
    assert [name for name in names if not hasattr(recorded.format, name)] == []


@each_format
def test_every_table_has_a_name_that_people_know(recorded: Recorded) -> None:
    """A dialect with a name has a table, and a table whose dialect is somebody's has a name."""
    named = apis(recorded.format.name)
    assert named
    assert named.keys() <= recorded.format.reasons.keys()


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
    assert [r.format.name for r in RECORDED.values() if r.format.routed(method, path) is not None] == [api.name]
