"""Messages that ask for the rest of a truncated answer, told from those that ask for something new."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from endturn.telemetry.continuation_requests import (
    COMPARED,
    LONGEST,
    comparable_text,
    is_continue_prompt,
    mentions_truncation,
    repeats_answer,
)

HERE = Path(__file__).parent
MESSAGES: dict[str, list[str]] = json.loads((HERE / "continuations.json").read_text())
"""`collected` from agents and frameworks that are public, `formulated` for the test, `missed` of those; `follow-ups`
of ordinary chats."""
ASKING = [*MESSAGES["collected"], *MESSAGES["formulated"]]
PAGE = (HERE.parent.parent / "docs" / "accuracy.md").read_text()


@pytest.mark.parametrize("text", ASKING)
def test_a_message_that_asks_for_the_rest(text: str) -> None:
    assert is_continue_prompt(text)


@pytest.mark.parametrize("text", MESSAGES["follow-ups"])
def test_a_message_that_asks_for_something_new(text: str) -> None:
    assert not is_continue_prompt(text)


@pytest.mark.parametrize("text", MESSAGES["missed"])
def test_a_message_that_is_known_to_be_missed(text: str) -> None:
    """When one is recognised, it moves to the others, and the figures of the page change."""
    assert not is_continue_prompt(text)


def test_the_page_has_these_figures() -> None:
    asked, missed = len(ASKING) + len(MESSAGES["missed"]), len(MESSAGES["missed"])
    assert f"| ask for the rest | {asked} | {asked - missed} |" in PAGE
    assert f"| ask for something new | {len(MESSAGES['follow-ups'])} | 0 |" in PAGE


WRAPPED = [
    "{}",
    "  {}\n",
    "<system-reminder>\n{}\n</system-reminder>",
    "**{}**",
    "[{}]",
    "User: {}",
    "{}\n\nThank you.",
]


@pytest.mark.parametrize("wrapped", WRAPPED)
@pytest.mark.parametrize("text", MESSAGES["collected"])
def test_what_a_framework_wraps_around_it(text: str, wrapped: str) -> None:
    """Tags, white space and courtesies change nothing."""
    assert is_continue_prompt(wrapped.format(text))


def test_a_message_that_quotes_the_end_of_the_answer() -> None:
    """The words of the quotation are the answer's, and say nothing new."""
    tail = "the moon and the sun pull at the sea, and in the Bay of Fundy"
    assert is_continue_prompt(f"Continue from here: {tail}", tail)
    assert not is_continue_prompt(f"Continue from here: {tail}")
    assert not is_continue_prompt(f"What is meant by '{tail}'?", tail)


def test_a_longer_message_has_to_say_both() -> None:
    """That there was a cut, and to go on; a very long one says more than that."""
    asks, rules = "Your answer was cut off. Continue where you left off.", "Keep the tone of the text. " * 30
    assert is_continue_prompt(f"{asks} {rules}")
    assert not is_continue_prompt(f"Continue. {rules}")
    assert not is_continue_prompt(asks + " " * LONGEST)


@pytest.mark.parametrize(
    ("text", "is_stated"),
    [
        ("Your last answer was cut off.", True),
        ("Output token limit hit.", True),
        ("Continue where you left off.", False),
        ("Why was your answer cut off?", False),
        ("I was cut off at the lights.", False),
        ("Write a function that truncates strings.", False),
        ("[output truncated]", True),
        ("", False),
    ],
)
def test_a_statement_of_the_cut(text: str, is_stated: bool) -> None:
    assert mentions_truncation(text) is is_stated


LONG = "In 1492 the ships went west, and nobody knew how far it was to the"
SHORT = "It is"


@pytest.mark.parametrize(
    ("said", "answer", "likeness"),
    [
        (LONG, LONG, 2),
        (f"  {LONG}\n", LONG, 2),
        (LONG.replace(" ", "\n"), LONG, 2),
        (f"What came before it. {LONG}", LONG, 2),
        (SHORT, SHORT, 2),
        # smolagents closes the code and appends its calls.
        (f"{LONG}</code>\nCalling tools:\n[{{'id': 'call_1', 'name': 'python_interpreter'}}]", LONG, 1),
        (f"{SHORT}</code>\nCalling tools:\n[]", SHORT, 1),
        (f"{LONG} ```", LONG, 1),
        (f"{LONG}… [truncated]", LONG, 1),
        (f"{SHORT}...", SHORT, 1),
        # The unfinished end was removed: a word, a sentence, a tag.
        (LONG.removesuffix(" the"), LONG, 1),
        (LONG.partition(",")[0], LONG, 1),
        # Another answer to the same prompt.
        ("It is Paris.", SHORT, 0),
        ("It was", SHORT, 0),
        ("In 1492 Columbus sailed.", LONG, 0),
        ("", LONG, 0),
        (LONG[:12], LONG, 0),
    ],
)
def test_a_partial_answer_in_a_history(said: str, answer: str, likeness: int) -> None:
    assert repeats_answer(comparable_text(said), comparable_text(answer[-64:])) == likeness


def test_what_was_appended_has_a_bound() -> None:
    """A partial answer is looked for in the end of a message, not in a megabyte."""
    assert repeats_answer(comparable_text(LONG + " x" * 1_000), comparable_text(LONG)) == 1
    assert repeats_answer(comparable_text(LONG + " x" * COMPARED), comparable_text(LONG)) == 0


@pytest.mark.parametrize(
    "piece", ["continue ", "you to ", "it is ", "last answer ", "not ", "続け", "<a", "the ", ", "]
)
def test_time_grows_as_the_text_does(piece: str) -> None:
    """No pattern takes much longer than another for a text that nearly matches it."""

    def seconds(size: int) -> float:
        text = (piece * size)[:size]
        begun = time.process_time()
        for _ in range(5):
            is_continue_prompt(text)
            mentions_truncation(text)
        return time.process_time() - begun

    seconds(100)  # compiles the patterns
    assert seconds(LONGEST) < 100 * max(seconds(LONGEST // 10), 0.002)
