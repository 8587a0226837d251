"""What holds of every wire, for every reply: body, stream, mappings, SDK objects and cut bytes agree."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

import pytest
from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from endturn.chat import ChatResponse, Delta
from endturn.errors import DecodeError, ProviderError
from endturn.stop import Stop, StopReason
from endturn.wires import Asked, Context, Event, Wire, framing, wire
from tests.wires.replies import ANTHROPIC, ANTHROPIC_STREAMS, CHAT, CHAT_STREAMS, Json

CHAT_WIRE, ANTHROPIC_WIRE = wire("openai_chat"), wire("anthropic")
CTX = Context(provider="acme", asked=Asked(maximum=1000))
BODIES = [(CHAT_WIRE, name, body) for name, body in CHAT.items()] + [
    (ANTHROPIC_WIRE, name, body) for name, body in ANTHROPIC.items()
]
STREAMS = [(CHAT_WIRE, name, events) for name, events in CHAT_STREAMS.items()] + [
    (ANTHROPIC_WIRE, name, events) for name, events in ANTHROPIC_STREAMS.items()
]
CLEAN = (StopReason.END_TURN, StopReason.TOOL_CALL)

each_body = pytest.mark.parametrize(("api", "body"), [pytest.param(w, b, id=f"{w.NAME}-{n}") for w, n, b in BODIES])
each_stream = pytest.mark.parametrize(
    ("api", "events"), [pytest.param(w, e, id=f"{w.NAME}-{n}") for w, n, e in STREAMS]
)


def streamed(api: Wire, events: Iterable[Event], ctx: Context = CTX) -> tuple[list[Delta], ChatResponse]:
    """A decoder's deltas and response."""
    decoder = api.decoder(ctx)
    deltas = [delta for event in events for delta in decoder.feed(event)]
    return deltas, decoder.close()


def watched(api: Wire, things: Iterable[Any], ctx: Context = CTX) -> Stop:
    """What a watch makes of events or a body."""
    watch = api.watch(ctx)
    for thing in things:
        watch.see(thing)
    return watch.close().stop


def essence(response: ChatResponse) -> tuple[Any, ...]:
    """What body and stream must agree on."""
    closed = [(call.id, call.name, call.arguments) for call in response.tool_calls if call.closed]
    ids = [call.id for call in response.tool_calls]
    return response.stop, response.text, response.reasoning, ids, closed, response.usage, response.id, response.model


def objects(api: Wire, events: Iterable[Event]) -> list[Any]:
    """A stream's events as the SDK hands them out."""
    if api is CHAT_WIRE:
        construct = cast(Any, ChatCompletionChunk).construct
        return [construct(**event.data) for event in events if event.data != framing.DONE]
    from anthropic._models import construct_type  # what the SDK itself builds events with

    return [construct_type(type_=cast(Any, BetaRawMessageStreamEvent), value=event.data) for event in events]


@each_body
def test_body_and_stream_of_a_response_agree(api: Wire, body: Json) -> None:
    """What a body says, its stream says: the stop, the text, ids, the arguments of closed calls, usage."""
    whole = api.decode(body, ctx=CTX)
    events = cast(list[Event], api.reply(whole, stream=True))
    deltas, again = streamed(api, events)
    if body.get("choices", [{}])[0].get("finish_reason", "") is None:
        assert not again.stop.terminal_seen  # A stream with a null for its reason is a cut stream.
        return
    assert essence(again) == essence(whole)
    assert "".join(delta.text for delta in deltas) == whole.text
    assert "".join(delta.reasoning for delta in deltas) == (whole.reasoning or "")
    assert essence(api.decode(api.reply(whole, stream=False), ctx=CTX)) == essence(whole)


@each_body
def test_watch_and_decode_agree_on_bodies(api: Wire, body: Json) -> None:
    """A watch reads the same Stop and usage from a body, or the SDK's object of it, that decode reads."""
    expected = api.decode(body, ctx=CTX)
    assert watched(api, [body]) == expected.stop
    construct = cast(Any, ChatCompletion if api is CHAT_WIRE else BetaMessage).construct
    watch = api.watch(CTX)
    watch.see(construct(**body))
    seen = watch.close()
    assert (seen.stop, seen.usage, seen.id, seen.model) == (expected.stop, expected.usage, expected.id, expected.model)
    assert seen.tail == expected.text[-64:]
    assert seen.output_chars == len(expected.text)


@each_stream
def test_watch_and_decoder_agree_on_streams(api: Wire, events: list[Event]) -> None:
    """A watch reads the same from a stream's mappings, its events, or the SDK's objects, that the decoder reads."""
    deltas, response = streamed(api, events)
    assert "".join(delta.text for delta in deltas) == response.text
    plain = [event.data for event in events if event.data != framing.DONE]
    for things in (plain, events, objects(api, events)):
        watch = api.watch(CTX)
        for thing in things:
            watch.see(thing)
        seen = watch.close()
        assert seen.stop == response.stop
        assert seen.usage == response.usage
        assert (seen.tail, seen.output_chars) == (response.text[-64:], len(response.text))


@each_stream
def test_every_prefix_agrees_and_none_invents_an_end(api: Wire, events: list[Event]) -> None:
    """At every event, watch and decoder agree; before the terminal the stop is `missing`, never a clean reason."""
    decoder, watch = api.decoder(CTX), api.watch(CTX)
    text = ""
    assert decoder.close().stop.reason is StopReason.MISSING
    final = streamed(api, events)[1].stop
    for event in events:
        text += "".join(delta.text for delta in decoder.feed(event))
        watch.see(event)
        response = decoder.close()
        assert response.text == text
        assert watch.close().stop == response.stop
        assert response.stop.reason in (StopReason.MISSING, final.reason, StopReason.END_TURN)
        if response.stop.reason is StopReason.MISSING:
            assert not response.stop.terminal_seen


@each_stream
def test_a_stream_cut_at_any_byte(api: Wire, events: list[Event]) -> None:
    """A stream cut anywhere in its bytes never ends clean before its terminal, keeps its text, and never crashes."""
    short = events if len(events) < 100 else [*events[:6], *events[-5:]]
    data = b"".join(framing.frame(event) for event in short)
    whole = streamed(api, short)[1]
    ended = _terminal(api, short)
    for cut in range(len(data)):
        tail = framing.SSEDecoder()
        response = streamed(api, [*tail.feed(data[:cut]), *tail.close()])[1]
        assert whole.text.startswith(response.text)
        if cut < ended:
            assert response.stop.reason is StopReason.MISSING
            assert all(not call.closed or call.arguments is not None for call in response.tool_calls)


def _terminal(api: Wire, events: list[Event]) -> int:
    """Where in the bytes the first event ends that makes the stop known, less its blank line and line end."""
    size = 0
    for index, event in enumerate(events):
        size += len(framing.frame(event))
        if streamed(api, events[: index + 1])[1].stop.terminal_seen:
            return size - 2
    raise AssertionError("a stream without a terminal")


@given(data=st.data())
def test_any_chunking_gives_the_same_events(data: st.DataObject) -> None:
    """However the bytes arrive, the events are the same."""
    _, _, events = data.draw(st.sampled_from(STREAMS))
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    raw = b"\xef\xbb\xbf: hello\n\n" + b"".join(framing.frame(event) for event in events[-12:])
    raw = raw.replace(b"\n", end.encode())
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=40)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert list(framing.events(chunks)) == events[-12:]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["stop", "end_turn"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.text(max_size=5)
            | st.sampled_from(
                [
                    "type",
                    "message",
                    "delta",
                    "content",
                    "choices",
                    "index",
                    "finish_reason",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "usage",
                    "id",
                    "error",
                    "text",
                    "stop_reason",
                    "content_block",
                    "input",
                    "message_start",
                    "content_block_delta",
                    "role",
                    "prompt_tokens",
                    "code",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@pytest.mark.parametrize("api", [CHAT_WIRE, ANTHROPIC_WIRE], ids=lambda api: api.NAME)
@given(thing=JSON)
def test_any_json_is_survived(api: Wire, thing: Any) -> None:
    """Whatever JSON arrives, as body, event or request arguments: a response or a ProviderError, nothing else."""
    watch = api.watch(CTX)
    watch.see(thing)
    watch.close()
    with suppress(ProviderError):
        api.decode(thing, ctx=CTX)
    with suppress(ProviderError):
        streamed(api, [Event(None, thing)])
    api.inspect(
        thing if isinstance(thing, dict) else {"messages": thing, "max_tokens": thing, "system": thing, "n": thing}
    )
    api.decode_error(400, {}, repr(thing).encode("utf-8", "replace"), ctx=CTX)


@pytest.mark.parametrize(("api", "good"), [(CHAT_WIRE, CHAT["tool calls"]), (ANTHROPIC_WIRE, ANTHROPIC["tool use"])])
@given(data=st.data())
def test_one_wrong_value_anywhere_is_survived(api: Wire, good: Json, data: st.DataObject) -> None:
    """A good body with any one value replaced: a response, read alike by the watch, or a DecodeError."""
    path = data.draw(st.sampled_from(list(_paths(good))))
    bad = _replaced(good, path, data.draw(JSON))
    try:
        response = api.decode(bad, ctx=CTX)
    except ProviderError:
        return
    assert watched(api, [bad]) == response.stop
    if response.stop.reason is StopReason.END_TURN:
        assert response.stop.raw is not None


@pytest.mark.parametrize(
    ("api", "good"), [(CHAT_WIRE, CHAT_STREAMS["tool calls"]), (ANTHROPIC_WIRE, ANTHROPIC_STREAMS["tool use"])]
)
@given(data=st.data())
def test_one_wrong_value_in_a_stream_is_survived(api: Wire, good: list[Event], data: st.DataObject) -> None:
    """A good stream with any one value replaced: deltas, read alike by the watch, or a ProviderError."""
    index = data.draw(st.integers(0, len(good) - 1))
    if good[index].data == framing.DONE:
        return
    path = data.draw(st.sampled_from(list(_paths(good[index].data))))
    bad = [*good]
    bad[index] = Event(None, _replaced(good[index].data, path, data.draw(JSON)))
    try:
        response = streamed(api, bad)[1]
    except ProviderError:
        return
    assert watched(api, bad) == response.stop


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


@pytest.mark.parametrize("api", [CHAT_WIRE, ANTHROPIC_WIRE], ids=lambda api: api.NAME)
@pytest.mark.parametrize("bad", [None, 3, "x", [], ["x"]], ids=repr)
def test_what_is_no_object_is_a_decode_error(api: Wire, bad: Any) -> None:
    """A body or an event that is no object is the provider's fault, and is said so."""
    with pytest.raises(DecodeError):
        api.decode(bad, ctx=CTX)
    with pytest.raises(DecodeError):
        streamed(api, [Event(None, bad)])


def test_the_wires_have_all_the_names() -> None:
    """Each module has every name of the Protocol."""
    names = [name for name in Wire.__annotations__ | vars(Wire) if not name.startswith("_")]
    for api in (CHAT_WIRE, ANTHROPIC_WIRE):
        assert [name for name in names if not hasattr(api, name)] == []
