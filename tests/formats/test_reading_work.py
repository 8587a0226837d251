"""The work of reading, counted as calls of the package's functions, including each step of generators."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pydantic_core
import pytest

from benchmarks import reading
from endturn.formats import FORMATS, ResponseSummary, errors, format_of, summarize
from endturn.formats.format import Format
from endturn.vocabulary.messages import ChatResponse, Usage
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.work import functions_entered


def entered(work: Callable[[], object]) -> int:
    """Count the calls of the package's functions during some work."""
    work()  # tables are read once
    return functions_entered(work)


def summarizing(name: str, body: Any) -> Callable[[], object]:
    """The work of reading a body as telemetry does."""
    speaks = format_of(name)
    context = reading.context_of(speaks, stream=False)
    return lambda: summarize(speaks, context, body)


WHOLE = {
    "anthropic": 90,
    "bedrock_converse": 75,
    "bedrock_invoke": 148,
    "cohere": 90,
    "completions": 107,
    "gemini": 72,
    "gemini_interactions": 113,
    "ollama": 62,
    "openai_chat": 46,
    "openai_responses": 138,
}
"""Functions for a whole answer of text."""


@pytest.mark.parametrize("name", FORMATS)
def test_a_whole_answer_is_read_with_few_functions(name: str) -> None:
    """Each costs a cache miss in a host's process, which is most of what telemetry costs."""
    speaks = format_of(name)
    model, usage = reading.MODELS.get(name, "model"), Usage(input_tokens=25, output_tokens=180)
    said = ChatResponse(text="word " * 180, stop=Stop(StopReason.END_TURN), usage=usage, id="1", model=model)
    assert entered(summarizing(name, speaks.reply(said, stream=False))) <= WHOLE[name]


EACH = {
    "openai_chat: choices": 0,
    "openai_chat: calls": 1,
    "openai_chat: parts": 3,
    "openai_responses: items": 8,
    "openai_responses: parts": 0,
    "openai_responses: calls": 6,
    "anthropic: blocks": 3,
    "anthropic: calls": 4,
    "bedrock_invoke: blocks": 3,
    "bedrock_invoke: calls": 4,
    "bedrock_converse: blocks": 1,
    "bedrock_converse: calls": 2,
    "gemini: parts": 1,
    "gemini: calls": 3,
    "gemini: candidates": 12,
    "cohere: parts": 0,
    "cohere: calls": 1,
    "gemini_interactions: steps": 15,
    "gemini_interactions: parts": 0,
    "gemini_interactions: calls": 4,
    "ollama: calls": 1,
    "completions: choices": 17,
}
"""Functions for each item of a list."""


def test_each_item_is_read_with_few_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measured for each kind of list by adding a hundred items."""

    def counted(count: int) -> dict[str, int]:
        monkeypatch.setattr(reading, "ITEMS", count)
        return {f"{name}: {what}": entered(summarizing(name, body)) for name, what, body in reading.bodies()}

    few, many = counted(100), counted(200)
    assert few.keys() == EACH.keys()
    assert {what: (many[what] - few[what]) / 100 for what in few if many[what] - few[what] > EACH[what] * 100} == {}


@pytest.mark.parametrize(
    ("name", "data"), [pytest.param(name, data, id=f"{name}, {what}") for name, what, data in reading.error_bodies()]
)
def test_an_error_is_read_with_little_more_than_an_answer(name: str, data: bytes) -> None:
    """From its bytes, whatever its body is."""
    speaks, headers = format_of(name), {"content-type": "application/json"}
    model, usage = reading.MODELS.get(name, "model"), Usage(input_tokens=25, output_tokens=180)
    said = ChatResponse(text="word " * 180, stop=Stop(StopReason.END_TURN), usage=usage, id="1", model=model)
    body = json.dumps(speaks.reply(said, stream=False)).encode()
    answer = entered(reading.reading(speaks, headers, body))
    assert entered(reading.reading(speaks, headers, data, status=500)) <= 1.5 * answer


def list_in(body: Any) -> list[Any] | None:
    """The list of a body that holds the many items."""
    inner = body.values() if isinstance(body, dict) else body if isinstance(body, list) else ()
    if isinstance(body, list) and len(body) == reading.ITEMS:
        return body
    return next((found for each in inner if (found := list_in(each)) is not None), None)


def members_of(item: Any) -> Iterator[tuple[Any, str]]:
    """Each object in an item, with the name of each of its members."""
    for each in item.values() if isinstance(item, dict) else item if isinstance(item, list) else ():
        yield from members_of(each)
    if isinstance(item, dict):
        yield from ((item, name) for name in [*item])


ODD: tuple[Any, ...] = (
    *(None, "", 5, True, [], {}, "null", " ", "text", "stop", "length", "completed", "incomplete", "in_progress"),
    *("\ud83d", "é", '{"a": ', '{"a": NaN}', '{"a": 1, "a": 2}', '"a"', "[]", {"a": 1}, [1], "xs_call_1", "id_0"),
    *("function_call_output", "thinking", "tool_use"),
)
"""What may stand in the place of anything."""


def test_the_fast_path_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of texts and of calls, with any value for any member of one item, or without it."""
    modules = [module for name, module in sys.modules.items() if name.startswith("endturn.formats.")]
    monkeypatch.setattr(reading, "ITEMS", 4)
    made = [(f"{name}: {what}", format_of(name), body) for name, what, body in reading.bodies()]

    def summaries(row: tuple[str, Format, Any]) -> Iterator[tuple[str, ResponseSummary]]:
        what, speaks, original = row
        context = reading.context_of(speaks, stream=False)
        for place in (1, 3):
            listed = list_in(original)
            assert listed is not None
            for number in range(len([*members_of(listed[place])])):
                for odd in (..., *ODD):
                    body = deepcopy(original)
                    holder, name = [*members_of((list_in(body) or [])[place])][number]
                    holder.pop(name) if odd is ... else holder.update({name: odd})
                    yield f"{what}[{place}].{name} = {odd!r}", summarize(speaks, context, body)

    fast = [seen for row in made for seen in summaries(row)]
    for module in modules:
        if hasattr(module, "finished_calls"):
            monkeypatch.setattr(module, "finished_calls", lambda calls: [])
        if hasattr(module, "only_text"):
            monkeypatch.setattr(module, "only_text", lambda listed, kind=None: None)
        if hasattr(module, "plain_answers"):
            monkeypatch.setattr(module, "plain_answers", lambda choices: [])
    slow = [seen for row in made for seen in summaries(row)]
    assert [one for one, other in zip(fast, slow, strict=True) if one != other] == []


@pytest.mark.parametrize(
    ("name", "data"), [pytest.param(name, data, id=f"{name}, {what}") for name, what, data in reading.error_bodies()]
)
def test_only_the_beginning_of_an_error_is_searched(monkeypatch: pytest.MonkeyPatch, name: str, data: bytes) -> None:
    """Only the beginning of a long body is parsed, and less of it is searched."""
    parsed, searched = [0], [0]
    holds_any, from_json = errors._holds_any, pydantic_core.from_json

    def search(folded: str, words: Any) -> bool:
        searched.append(len(folded))
        return holds_any(folded, words)

    def parse(readable: str, **options: Any) -> Any:
        parsed.append(len(readable))
        return from_json(readable, **options)

    monkeypatch.setattr(errors, "_holds_any", search)
    monkeypatch.setattr(errors, "from_json", parse)
    reading.reading(format_of(name), {"content-type": "application/json"}, data, status=500)()
    assert max(parsed) <= 4_096
    # Once more only where keys take up what would be shown.
    assert max(searched) <= (2_304 if data.startswith((b"aB3", b"api_key")) or b"key" in data[:256] else 1_130)


def test_empty_members_of_a_message_are_not_read() -> None:
    """OpenAI's messages have a refusal, which is null, and a list of annotations, which is empty."""

    def answer(**beside: object) -> int:
        message = {"role": "assistant", "content": "word", **beside}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return entered(summarizing("openai_chat", {"id": "1", "model": "m", "choices": [choice]}))

    assert answer(refusal=None, annotations=[]) - answer() <= 4
    assert answer(refusal="No.") - answer() > 4


MESSAGE = {"type": "message", "content": [{"type": "output_text", "text": "word"}]}
CALL = {"type": "function_call", "name": "look", "arguments": "{}"}
REASONING = {"type": "reasoning", "summary": []}
OUTPUTS = (
    (MESSAGE, MESSAGE, CALL),
    (MESSAGE, CALL, CALL),
    (CALL, MESSAGE, MESSAGE),
    (MESSAGE, CALL, MESSAGE),
    (REASONING, MESSAGE, MESSAGE, CALL, MESSAGE),
    (MESSAGE, REASONING, MESSAGE, CALL),
    (CALL, MESSAGE, CALL),
)


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_minted_id_does_not_depend_on_the_fast_path(
    output: tuple[dict[str, Any], ...],
) -> None:
    speaks = format_of("openai_responses")
    context = reading.context_of(speaks, stream=False)
    body = {"id": "r", "object": "response", "status": "completed", "model": "m", "output": [*output]}
    summary, response = summarize(speaks, context, body), speaks.decode(body, ctx=context)
    assert [call.id for call in summary.tool_calls] == [call.id for call in response.tool_calls]
    assert summary.facts.output_chars == len(response.text) == 4 * output.count(MESSAGE)
