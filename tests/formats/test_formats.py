"""What the formats promise beside what the files of replies and requests show."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ollama import Options

from endturn.chat import ChatResponse, Json, Usage
from endturn.errors import UsageError
from endturn.formats import FORMATS, Context, Event, RequestSummary, format_of
from endturn.formats.completions import SHAPES
from endturn.stop import Resume, Stop, StopReason
from endturn.stop_reasons import rows_of
from tests.formats.recorded import RECORDED

chat, completions = format_of("openai_chat"), format_of("completions")
DIALECTS = [pytest.param(dialect, id=dialect or "openai") for dialect in SHAPES]


def streamed(name: str, events: list[Event], ctx: Context) -> ChatResponse:
    """The response of a stream."""
    decoder = format_of(name).decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


@pytest.mark.parametrize(
    ("name", "shows", "another"),
    [
        ("openai_chat", "no-call-id", {"id": "chatcmpl-other"}),
        ("ollama", "tool-calls", {"created_at": "2026-10-01T09:31:00Z"}),
    ],
)
def test_a_call_gets_an_id_that_is_no_other_responses(name: str, shows: str, another: Json) -> None:
    """What is minted differs within a response and between responses, and stands in the block too."""
    body = RECORDED[name].bodies[shows]
    first, again = (format_of(name).decode(each, ctx=Context()) for each in (body, {**body, **another}))
    ids = [call.id for response in (first, again) for call in response.tool_calls]
    assert len(set(ids)) == len(ids) == 4
    assert all(id_.startswith("call_") for id_ in ids)
    assert first.blocks is not None
    assert [call["id"] for call in first.blocks.items[0]["tool_calls"]] == ids[:2]


# --- Requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["openai_chat", "cohere", "ollama"])
def test_a_request_is_read_in_place(name: str) -> None:
    """The history is the host's own list, never a copy."""
    messages = [{"role": "user", "content": "hi"}]
    asked = format_of(name).request_summary({"model": "m", "messages": messages})
    assert asked.history is messages
    assert asked.length == 1


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"model": ..., "messages": ..., "max_tokens": ..., "response_format": ..., "message": ...},
        {"model": None, "messages": None, "max_tokens": object(), "n": object(), "stream": object()},
        {"messages": iter([]), "max_tokens": True, "n": 0, "temperature": "hot", "response_format": SimpleNamespace()},
    ],
)
def test_sentinels_of_sdks_are_as_good_as_nothing(kwargs: Json) -> None:
    """So are iterators and nonsense."""
    assert chat.request_summary(kwargs) == RequestSummary(stream_usage=False)
    assert format_of("cohere").request_summary(kwargs) == RequestSummary()


@pytest.mark.parametrize("kind", [dict, Options, SimpleNamespace])
def test_ollamas_options_may_be_an_object(kind: Any) -> None:
    """The SDK's own, or any."""
    options = kind(num_predict=64, temperature=0.5, top_p=0.9, seed=7)
    asked = format_of("ollama").request_summary({"model": "m", "options": options})
    assert (asked.maximum, asked.temperature, asked.top_p, asked.seed) == (64, 0.5, 0.9, 7)


def test_the_hosts_own_lists_are_not_grown() -> None:
    """What a stream says of pictures is joined elsewhere."""
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    delta = {"content": "", "images": images}
    response = streamed("openai_chat", [Event(None, {"choices": [{"index": 0, "delta": delta}]})] * 2, Context())
    assert response.blocks is not None
    assert response.blocks.items[0]["images"] == images * 2
    assert len(images) == 1


# --- The vocabulary -----------------------------------------------------------------------------------------------

EVIDENCE = (Path(__file__).parents[1] / "data" / "stop_reasons.tsv").read_text().splitlines()
UPSTREAM = ("anthropic.messages", "google.generateContent", "bedrock.converse", "cohere.v2", "cohere.v1")
NATIVE = [row for row in csv.DictReader(EVIDENCE, delimiter="\t") if row["api"] in UPSTREAM]


@pytest.mark.parametrize("dialect", ["openrouter", "litellm", "a gateway nobody knows"])
@pytest.mark.parametrize("row", NATIVE, ids=[f"{row['api']}-{row['raw']}" for row in NATIVE])
def test_a_gateway_passes_on_every_word_of_the_model_behind_it(row: Json, dialect: str) -> None:
    """Each upstream's word means through a gateway what it means at home; only its own way of resuming is left out."""
    native = {"native_finish_reason": row["raw"]}
    choice = {"message": {"content": "x"}, "finish_reason": "stop", "provider_specific_fields": native}
    stop = chat.decode({"choices": [choice]}, ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert stop.incomplete is (row["incomplete"] == "yes")
    assert stop.resume in {row["resume"], Resume.NONE} - {Resume.NATIVE_TOKEN, Resume.RESEND_UNCHANGED, Resume.SERVER}


@pytest.mark.parametrize("name", [name for name in FORMATS if name != chat.name])
def test_no_gateway_word_means_something_else_at_home(name: str) -> None:
    """Where another format's own table has a word that a gateway passes on, it is the same reason."""
    gateway, home = chat.reasons["openrouter"], format_of(name).reasons[""]
    assert [raw for raw in home.keys() & gateway.keys() if home[raw].reason is not gateway[raw].reason] == []


@pytest.mark.parametrize("name", ["openai_chat", "completions", "bedrock_invoke"])
def test_no_word_means_two_things(name: str) -> None:
    """Of all dialects' words, none has two meanings: a reply of nobody's in particular can be judged by their union.

    Of Bedrock's families some do: under "" stands what no two of them dispute.
    """
    every = format_of(name).reasons[""] if name == "bedrock_invoke" else rows_of(name, "never heard of")
    assert {"end_turn", "MAX_TOKENS"} <= every.keys() or name != "bedrock_invoke"
    for rows in format_of(name).reasons.values():
        for raw in rows.keys() & every.keys() if name == "bedrock_invoke" else rows:
            assert (every[raw].reason, every[raw].incomplete) == (rows[raw].reason, rows[raw].incomplete), raw
            assert name != "openai_chat" or every[raw].detail == rows[raw].detail, raw


# --- Completions in every service's words -------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nobody_need_say_whose_completion_it_is(dialect: str) -> None:
    """Without a dialect a reply is known by its members, and judged by its own service's words."""
    recorded = RECORDED["completions"]
    ours = {name: ctx for name, ctx in recorded.contexts.items() if ctx.dialect == dialect}
    assert ours
    for name, ctx in ours.items():
        stops = [
            completions.decode(recorded.bodies[name], ctx=each).stop
            if name in recorded.bodies
            else streamed("completions", recorded.streams[name], each).stop
            for each in (ctx, replace(ctx, dialect=""))
        ]
        assert stops[0] == stops[1]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("reason", ["end_turn", "max_tokens"])
def test_completions_in_every_dialect(dialect: str, reason: str) -> None:
    """A scripted reply in a service's own shape is read back as what it was, whole and streamed."""
    response = ChatResponse(text="One two 👋🏽", stop=Stop(StopReason(reason)), usage=Usage(12, 9), id="r-1", model="m")
    ctx = Context(dialect)
    read = [completions.decode(completions.reply(response, stream=False, dialect=dialect), ctx=ctx)]
    if dialect == "ai21":
        with pytest.raises(UsageError, match="stream"):
            completions.reply(response, stream=True, dialect=dialect)
    else:
        for ends in (True, False):
            stop = response.with_stop(terminal_seen=ends)
            events: Any = completions.reply(stop, stream=True, dialect=dialect)
            read.append(streamed("completions", events, ctx))
        assert read.pop().stop.reason is StopReason.MISSING
    for each in read:
        assert (each.text, each.stop.reason) == (response.text, reason)
        assert each.usage is None or each.usage.output_tokens == 9
