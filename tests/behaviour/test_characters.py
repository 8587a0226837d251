"""Half a surrogate pair reaches no text: not in a response, a turn, a transcript or telemetry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.continuation.controller import ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.transcript import recover
from endturn.formats.read_reply import read
from endturn.telemetry.attributes import of_call
from endturn.vocabulary.characters import PieceJoiner, fix_json_surrogates, fix_surrogates
from endturn.vocabulary.messages import CallFragment, ChatResponse, Delta, Message, Request
from endturn.vocabulary.stop import StopReason
from tests.support.api_bodies import BODIES
from tests.support.turns import SEARCH, Played, ask, cut, heard, said

TEXTS = st.text(st.sampled_from(["a", " ", "é", "😀", "\ud83d", "\ude00", "\ufffd"]), max_size=8)


def texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from (name, *texts(part))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts(part)


def assert_encodes(value: Any) -> None:
    for text in texts(value):
        text.encode()


def halves(text: str) -> list[str]:
    """A text as UTF-16 has it, unit by unit."""
    units = text.encode("utf-16-le", "surrogatepass")
    return [units[at : at + 2].decode("utf-16-le", "surrogatepass") for at in range(0, len(units), 2)]


@given(TEXTS, TEXTS)
def test_text_becomes_whole_and_stays_what_it_was(one: str, other: str) -> None:
    """Pairs are joined, halves alone are U+FFFD, and whole text is untouched."""
    assert_encodes(fix_surrogates(one))
    assert fix_surrogates(fix_surrogates(one)) == fix_surrogates(one)
    value = {one: [other, {"x": (one, 1, None)}]}
    assert_encodes(fix_json_surrogates(value))
    if not any("\ud800" <= character <= "\udfff" for character in one):
        assert fix_surrogates(one) is one
        assert fix_json_surrogates([one, {"x": one}]) == [one, {"x": one}]


@given(TEXTS)
def test_pieces_cut_anywhere_are_the_text(text: str) -> None:
    """Whatever unit of UTF-16 a server cuts at, the pieces joined are the text made whole."""
    pieces = PieceJoiner()
    came = "".join(pieces.take(piece, "x") for piece in halves(text)) + pieces.replacement("x")
    assert came == fix_surrogates("".join(halves(text)))
    assert_encodes(came)


@pytest.mark.parametrize("api", BODIES)
@given(TEXTS)
def test_no_half_is_read_from_a_body(api: str, text: str) -> None:
    """Text, thinking, arguments, ids, names and blocks of every format."""
    format, _, provider, write = BODIES[api]
    for parts in ([("think", text), ("text", text)], [("call", f"c{text}", {text: text})]):
        body = json.dumps(write("cut", parts)).replace('"search"', json.dumps(f"search{text}"))
        response = read(body, format=format, provider=provider)
        assert_encodes(response.model_dump(mode="python"))
        assert_encodes(response.blocks.items if response.blocks else ())
        assert_encodes([call.arguments for call in response.tool_calls])


@given(TEXTS, TEXTS)
def test_no_half_is_read_from_a_stream(one: str, other: str) -> None:
    """What servers split across events is joined."""
    events = [
        {"id": one, "model": other, "choices": [{"index": 0, "delta": {"content": piece, "reasoning_content": piece}}]}
        for piece in halves(one + other)
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    response = read([json.loads(json.dumps(event)) for event in events], format="openai_chat")
    assert response.text == fix_surrogates(one + other)
    assert response.reasoning == (fix_surrogates(one + other) or None)
    assert_encodes([response.id or "", response.model or ""])


@pytest.mark.behaviour(29, 32)
@given(TEXTS, TEXTS, st.booleans())
def test_no_half_reaches_a_turn(first: str, rest: str, streams: bool) -> None:
    """Cut within a character, its text, its deltas and its history can be encoded."""

    def provider(request: Request) -> Any:
        text, reason = script.pop(0)
        response = said(text, reason, reasoning=text or None)
        return iter([*(Delta(text=piece) for piece in halves(text)), response]) if streams else response

    script = [(f"One {first}", StopReason.MAX_TOKENS), (f"{rest} two", StopReason.END_TURN)]
    items = list(ContinuationController(provider, policy=ContinuationPolicy()).stream(ask()))
    result = items[-1]
    assert isinstance(result, TurnResult)
    assert_encodes([item.text for item in items if isinstance(item, Delta)])
    assert_encodes([result.text, result.answer])
    assert_encodes([message.model_dump(mode="json") for message in (*result.messages, *result.segments)])


def test_a_character_that_was_cut_leaves_nothing() -> None:
    """Both of its halves go at the seam (docs/controller.md, 29)."""
    provider = Played(cut("I see a \ud83d"), said("\ude00 smile."))
    assert ContinuationController(provider, policy=ContinuationPolicy()).run(ask()).text == "I see a  smile."


def test_a_lost_stream_keeps_whole_characters() -> None:
    """Neither text nor arguments of a stream that breaks off end in half a character."""
    deltas = [Delta(text="I see \ud83d"), Delta(call=CallFragment(0, "c\ud83d", "search", '{"q": "\ud83d'))]
    result = ContinuationController(Played(deltas), tools={"search": str}, policy=ContinuationPolicy()).run(
        ask(tools=(SEARCH,))
    )
    assert_encodes([message.model_dump(mode="json") for message in result.segments])
    assert result.text == "I see \ufffd"


def test_a_transcript_holds_whole_characters(tmp_path: Path) -> None:
    """What is read back can be encoded."""
    path = tmp_path / "turns.jsonl"
    request = ask("Is it \ud83d?").but(messages=(Message(role="user", content=[{"type": "text", "text": "\ud83d"}]),))
    provider = Played(cut("I see \ud83d", id="r\ude00"), said("\ude00."))
    ContinuationController(provider, policy=ContinuationPolicy(transcript=path)).run(request)
    (turn,) = recover(path)
    assert_encodes([message.model_dump(mode="json") for message in turn.messages])
    assert_encodes([answer.id or "" for answer in turn.answers if isinstance(answer, ChatResponse)])


def test_attributes_hold_whole_characters() -> None:
    """What a host names its model, its agent and its conversation by is exported without an error."""
    with heard() as records:
        ContinuationController(
            Played(said("Hi")), policy=ContinuationPolicy(), conversation_id="c\ud83d", provider_name="p\ud83d"
        ).run(ask(model="m\ud83d"))
    started = next(record.started for record in records if hasattr(record, "started"))
    assert_encodes(list(of_call(started).values()))
