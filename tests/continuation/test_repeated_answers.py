"""Repeated text in continuations is released once, and natural repetition stays."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.stitching import stitch
from endturn.testing.scripted import ScriptedProvider, say, truncate
from tests.support.turns import Played, ask, cut, said

ROWS = "| yes | no |\n"
LONG_ROW = "| yes it is | no it is not |\n"
HEAD = "| a | b |\n|---|---|\n"
PARIS = "The capital of France is Paris"

ONCE: list[tuple[str, str, str]] = [
    # A whole short answer, repeated in full.
    ("42", "42", "42"),
    ("7", "7", "7"),
    ("A", "A", "A"),
    ("Paris", "Paris", "Paris"),
    ("Yes.", "Yes.", "Yes."),
    ("x = 42;", "x = 42;", "x = 42;"),
    ("- red\n- green", "- red\n- green", "- red\n- green"),
    ("東京です。", "東京です。", "東京です。"),
    ("Yes", "  Yes\n", "Yes"),
    (PARIS, PARIS, PARIS),
    (f"{PARIS}.", f"\n\n{PARIS}.", f"{PARIS}."),
    # With another end of the sentence.
    ("Paris", "Paris.", "Paris."),
    ("Paris.", "Paris", "Paris."),
    # Quoted, announced, in a code block.
    ("42", '"42"', "42"),
    ("42", "“42.”", "42"),
    ("42", "**42**", "42"),
    ("42", "```\n42\n```", "42"),
    ("print('hi')", "```python\nprint('hi')\n```", "print('hi')"),
    (f"{PARIS}.", f'"{PARIS}."', f"{PARIS}."),
    ("42", "Continuing from where I left off:\n\n42", "42"),
    ("```python\nprint('hi')\n```", "```python\nprint('hi')\n```", "```python\nprint('hi')\n```"),
    # Its beginning was repeated, and it goes on.
    ("The", "The answer is 42.", "The answer is 42."),
    ("The fir", "The first half.", "The first half."),
    ("```python\nx = 1", "```python\nx = 1\n```", "```python\nx = 1\n```"),
    # Its last words.
    (f"{PARIS}.", "capital of France is Paris.", f"{PARIS}."),
    ("The answer is forty-two.", "forty-two.", "The answer is forty-two."),
]  # fmt: skip
"""An answer that says `length`, what the model says when it is asked to go on, and what both are."""

BY_NATURE: list[tuple[str, str]] = [
    ("ha ha ha", " ha ha ha!"),
    ("ha ", "ha ha!"),
    ("哈哈哈", "哈哈哈"),
    ("no, no, no", ", no, no, no"),
    ("1\n2\n3", "3\n3"),
    ("10", "100"),
    (ROWS * 2, ROWS + "| no | no |\n"),
    (HEAD + LONG_ROW * 2, LONG_ROW + "| end | end |"),
    (HEAD + LONG_ROW * 3, LONG_ROW * 2 + "| end | end |"),
    ("<div><p>text</p></div>", "</div>"),
    ("```lua\nif a then b() end", " end"),
    ("red\ngreen\nblue", "\nblue"),
    ("The price of the machine", "machine-made"),
]
"""An answer that goes on with what it has said before: nothing of it is a repetition of the model's."""


async def played(script: list[Any]) -> list[TurnResult]:
    """Play a turn whole, in pieces of one and three characters, async, and over two formats."""
    results = [ContinuationController(Played(*script, chunk=chunk)).run(ask()) for chunk in (None, 1, 3)]
    results.append(await AsyncContinuationController(Played(*script, chunk=2).asynchronous).run(ask()))
    first, *others = script
    replies = [truncate(first.text, after=10_000), *(say(each.text) for each in others)]
    for format in ("openai_chat", "anthropic"):
        provider = ScriptedProvider(list(replies), format=format)
        results.append(ContinuationController(provider.stream).run(ask()))
    return results


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(("answer", "again", "text"), ONCE)
async def test_a_repeated_answer_is_released_once_and_is_complete(answer: str, again: str, text: str) -> None:
    """The clean end of the repetition is the clean end of the answer."""
    for result in await played([cut(answer), said(again)]):
        assert (result.text, result.answer, result.outcome.value, result.complete) == (text, text, "completed", True)
        assert [message.text for message in result.messages[1:]] == [text]


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("answer", ["42", PARIS, "The answer is because of"])
def test_a_truncated_repetition_is_no_progress(answer: str) -> None:
    """A model that always stops with `length` gets one continuation request, not three; the text is released once."""
    provider = Played(*[cut(answer)] * 4)
    result = ContinuationController(provider).run(ask())
    assert (result.text, result.outcome.value, len(provider.requests)) == (answer, "no_progress", 2)


@pytest.mark.behaviour(29)
def test_an_empty_continuation_of_a_torn_answer_does_not_complete_it() -> None:
    """Only the last words, or nothing, after half a sentence: the rest is missing, and the text is released once."""
    for again in ("", "said Tom"):
        result = ContinuationController(Played(cut("It is true, said Tom"), said(again))).run(ask())
        assert (result.text, result.outcome.value) == ("It is true, said Tom", "no_progress")


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(("answer", "more"), BY_NATURE)
async def test_natural_repetition_is_kept(answer: str, more: str) -> None:
    """Nothing of it is removed."""
    assert stitch(answer, more) == answer + more
    for result in await played([cut(answer), said(more)]):
        assert (result.text, result.outcome.value) == (answer + more, "completed")
