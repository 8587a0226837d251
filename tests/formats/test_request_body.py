"""A body that somebody else wrote, as our Request: beside what `replies/*/requests/body.json` says of each format."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.chat import Message
from endturn.errors import DecodeError
from endturn.formats import format_of
from endturn.formats.request_body import request_of
from tests.replies.record import HERE

WRONG: list[Any] = [None, 5, 1.5, True, "x", "none", [], {}, [None], [5], [[]], {"type": 5}, {"text": 5}]
BODIES = [
    (path.parent.parent.name, case["body"])
    for path in sorted(HERE.glob("*/requests/body.json"))
    for case in json.loads(path.read_text())
]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where each value within a body stands."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    ):
        yield (*at, name)
        yield from places(inner, (*at, name))


@given(data=st.data())
def test_one_wrong_value_anywhere_is_survived(data: st.DataObject) -> None:
    """A good body with any one value replaced: a Request, or a DecodeError."""
    name, body = data.draw(st.sampled_from(BODIES))
    changed = copy.deepcopy(body)
    *way, last = data.draw(st.sampled_from([*places(body)] or [("model",)]))
    holder: Any = changed
    for step in way:
        holder = holder[step]
    holder[last] = data.draw(st.sampled_from(WRONG))
    with suppress(DecodeError):
        request_of(format_of(name), changed)


@pytest.mark.parametrize(
    ("answer", "said"),
    [({}, "{}"), ({"output": "12:00"}, "12:00"), ({"error": "broken"}, "broken"), ({"a": 1}, '{"a": 1}')],
)
def test_what_a_tool_answered_is_text(answer: dict[str, Any], said: str) -> None:
    """Gemini's results are objects: those with one text in them are that text, others JSON."""
    result = {"functionResponse": {"name": "clock", "response": answer}}
    body = {"model": "m", "contents": [{"role": "user", "parts": [result]}]}
    (message,) = request_of(format_of("gemini"), body).messages
    assert (message.role, message.text, message.is_error) == ("tool", said, "error" in answer)


def test_a_result_without_an_id_answers_the_call_that_waits() -> None:
    """The first of its name, or the first of all."""
    calls: list[dict[str, Any]] = [
        {"function": {"name": name, "arguments": {}}} for name in ("clock", "weather", "clock")
    ]
    results: list[dict[str, Any]] = [{"role": "tool", "content": "x", "tool_name": "weather"}]
    results += [{"role": "tool", "content": "y"}, {"role": "tool", "content": "z", "tool_name": "clock"}]
    body = {"model": "m", "messages": [{"role": "assistant", "content": "", "tool_calls": calls}, *results]}
    asked, *answers = request_of(format_of("ollama"), body).messages
    assert [answer.tool_call_id for answer in answers] == [asked.tool_calls[place].id for place in (1, 0, 2)]


def test_items_of_one_answer_are_one_message() -> None:
    """Thinking, text and calls of the Responses API: a replay needs them together."""
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    body = {"model": "m", "input": [{"role": "user", "content": "hi"}, *items]}
    user, answer = request_of(format_of("openai_responses"), body).messages
    assert user == Message(role="user", content="hi")
    assert (answer.text, [call.name for call in answer.tool_calls]) == ("Looking.", ["f"])
    assert answer.blocks is not None
    assert list(answer.blocks.items) == items
