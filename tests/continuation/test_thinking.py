"""Thinking in the text of an answer: if it used up the limit, its rest is not requested."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.thinking import without_thinking
from endturn.testing.scripted import Reply, ScriptedProvider, say
from endturn.vocabulary.messages import Usage
from endturn.vocabulary.stop import StopReason
from tests.support.turns import Played, ask, cut, said

THOUGHT = "The user asks for the capital of France. Let me think about what I know of it, step by step. " * 3
MARKS = [
    ("<think>", "</think>"),  # source: DeepSeek-R1's, Qwen3's chat templates
    ("<think>\n", "\n</think>\n\n"),
    ("\n<THINK>", "</THINK>"),
    ("<thinking>", "</thinking>"),  # source: Anthropic's guide to chain-of-thought prompts
    ("<reasoning>", "</reasoning>"),
    ("<thought>", "</thought>"),  # source: EXAONE Deep's chat template
    ("<seed:think>", "</seed:think>"),  # source: vLLM's seedoss_reasoning_parser
    ("[THINK]", "[/THINK]"),  # source: vLLM's mistral_reasoning_parser
    ("◁think▷", "◁/think▷"),  # source: SGLang's table of reasoning parsers
    ("<|START_THINKING|>", "<|END_THINKING|>"),  # source: vLLM's cohere_command_reasoning_parser
    # source: OpenAI's harmony format
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("<|start|>assistant<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ("Here is my thought process:\n", "\nHere is my response:\n"),  # source: Granite 3.2's chat template
]
marks = pytest.mark.parametrize(("opening", "closing"), MARKS, ids=[opening.strip() for opening, _ in MARKS])


async def played(script: list[Any], **policy: Any) -> list[tuple[TurnResult, int]]:
    """Play a turn whole, in pieces, and async; return the result and the number of requests."""
    results = []
    for chunk in (None, 1, 7):
        provider = Played(*script, chunk=chunk)
        result = ContinuationController(provider, policy=ContinuationPolicy(**policy)).run(ask())
        results.append((result, len(provider.requests)))
    provider = Played(*script, chunk=3)
    controller = AsyncContinuationController(provider.asynchronous, policy=ContinuationPolicy(**policy))
    results.append((await controller.run(ask()), len(provider.requests)))
    return results


@pytest.mark.behaviour(15)
@marks
async def test_thinking_that_used_up_the_limit_is_not_continued(opening: str, closing: str) -> None:
    """The mark may be closed at the very end, or not at all; a loop in it is still thinking."""
    for text in (f"{opening}{THOUGHT}", f"{opening}{THOUGHT}{closing}", f"{opening}{'hmm ' * 200}", opening):
        for result, requests in await played([cut(text), said("never asked")]):
            assert (result.outcome.value, result.complete, requests) == ("reasoning_exhausted", False, 1)
            assert result.text == text  # what was shown stays


@pytest.mark.behaviour(15)
@marks
async def test_a_truncated_answer_after_thinking_is_continued(opening: str, closing: str) -> None:
    """The closed block is not part of the answer; the text after it is."""
    text = f"{opening}{THOUGHT}{closing}The capital of France is the"
    assert without_thinking(text).strip() == "The capital of France is the"
    for result, requests in await played([cut(text), said(" city of Paris.")]):
        assert (result.outcome.value, requests) == ("completed", 2)
        assert result.text == f"{text} city of Paris."


@pytest.mark.behaviour(15)
@marks
async def test_a_continuation_that_only_thinks_ends_the_turn(opening: str, closing: str) -> None:
    """It added nothing to the answer."""
    for result, requests in await played([cut("The capital is"), cut(f"{opening}{THOUGHT}"), said("never asked")]):
        assert (result.outcome.value, requests) == ("reasoning_exhausted", 2)


@pytest.mark.behaviour(15)
@pytest.mark.parametrize(
    ("text", "reasoning", "visible"),
    [
        (THOUGHT, THOUGHT, ""),  # some servers say it in both members
        (f"\n{THOUGHT[:90]}", THOUGHT, ""),
        (f"{THOUGHT}Paris is", THOUGHT, "Paris is"),
        ("The", THOUGHT, "The"),  # an answer may begin with the same word
        ("The capital is", THOUGHT, "The capital is"),
        (f"<think>{THOUGHT}", THOUGHT, ""),
        (f"<think>{THOUGHT}</think>", THOUGHT, ""),
        ("", THOUGHT, ""),
        ("The tag `<think>` opens a", None, "The tag `<think>` opens a"),
        ("```xml\n<think>a", None, "```xml\n<think>a"),
        ("<thinker>A sculpture by", None, "<thinker>A sculpture by"),
        ("<b>bold", None, "<b>bold"),
        ("<think>a</think> <think>b</think>c", None, "c"),
        ("<think>a</think><think>b", None, ""),
    ],
)
async def test_thinking_is_separated_from_the_text(text: str, reasoning: str | None, visible: str) -> None:
    """Marks count at the beginning; repeated reasoning counts completely, or by its beginning."""
    assert without_thinking(text, reasoning).strip() == visible
    for result, requests in await played([cut(text, reasoning=reasoning), said(" more.")]):
        assert (result.outcome.value, requests) == (("completed", 2) if visible else ("reasoning_exhausted", 1))


@pytest.mark.behaviour(15)
async def test_the_policy_decides_the_request_after_thinking_in_the_text() -> None:
    """As for separate thinking: the same request again, with more tokens."""
    script = [cut(f"<think>{THOUGHT}", usage=Usage(5, 100)), said("Paris.")]
    for result, requests in await played(script, on_reasoning_only="escalate_once"):
        assert (result.outcome.value, result.answer, result.restarted, requests) == ("completed", "Paris.", True, 2)


@pytest.mark.behaviour(15)
@pytest.mark.parametrize("format", ["openai_chat", "openai_responses", "anthropic", "ollama", "completions"])
def test_thinking_in_the_text_of_any_format(format: str) -> None:
    """Over each format's own bytes, streamed and not."""
    for is_streamed in (False, True):
        provider = ScriptedProvider([Reply(text=f"<think>{THOUGHT}", stop=StopReason.MAX_TOKENS), say("no")],
                                    format=format)  # fmt: skip
        result = ContinuationController(provider.stream if is_streamed else provider).run(ask())
        assert (result.outcome.value, len(provider.requests)) == ("reasoning_exhausted", 1)


# source: the chat templates of the models; what proxies and templates put before a mark
BEFORE = ["\ufeff", "\u200b", "\n\u2060 ", "```\n", "``` \n\n", "\ufeff```\n"]
OTHER_MARKS = [
    ("<think >", "</think>"),
    ("<THINK\n>", "</think >"),
    ("<longcat_think>", "</longcat_think>"),
    ("<|thinking|>", "<|/thinking|>"),
    ("<unused94>thought\n", "<unused95>"),
]


@pytest.mark.parametrize("before", ["", *BEFORE])
@pytest.mark.parametrize(("opening", "closing"), [*MARKS, *OTHER_MARKS])
def test_a_thinking_mark_is_recognised_after_any_prefix(before: str, opening: str, closing: str) -> None:
    """Characters without width, the line that opens a block of code; white space within a mark."""
    assert without_thinking(f"{before}{opening}{THOUGHT}") == ""
    assert without_thinking(f"{before}{opening}{THOUGHT}{closing}Paris").strip() == "Paris"


@pytest.mark.parametrize("before", ["", "\n", "\ufeff"])
@pytest.mark.parametrize(
    "opening", [opening for opening, _ in [*MARKS, *OTHER_MARKS] if not opening.startswith("Here")]
)
def test_a_truncated_thinking_mark_is_thinking(opening: str, before: str) -> None:
    """A response that is only the beginning of a mark, of at least three characters."""
    for size in range(3, len(opening.strip())):
        assert without_thinking(before + opening.strip()[:size]) == "", size


@pytest.mark.parametrize(
    "text", ["<", "<t", "<table>", "<thin", "[1, 2", "[", "```python\nprint(", "H", "<div", "<|", "{"]
)
def test_text_that_resembles_a_mark_is_kept(text: str) -> None:
    """It is unchanged, and so is text that continues differently from a mark."""
    assert without_thinking(text) == ("" if text == "<thin" else text)
    assert without_thinking(f"{text} is an example").endswith(" is an example")


ANALYSIS = "<|channel|>analysis<|message|>Let me think.<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("text", "visible"),
    [  # source: OpenAI's harmony format, "Channels": a preamble is for the user to see
        (f"{ANALYSIS}<|channel|>commentary<|message|>I look at the weather", "I look at the weather"),
        (f"{ANALYSIS}<|channel|>commentary <|message|>Hi<|end|><|channel|>final<|message|>x", None),
        (f"{ANALYSIS}<|channel|>final<|message|>Paris <|channel|>commentary", "Paris <|channel|>commentary"),
        (f"{ANALYSIS}{ANALYSIS}<|channel|>final<|message|>Paris", "Paris"),
        (f'{ANALYSIS}<|channel|>commentary to=functions.f <|constrain|>json<|message|>{{"a', ""),
    ],
)
def test_a_preamble_of_the_harmony_format_is_visible(text: str, visible: str | None) -> None:
    """The thinking ends with the start of a message for the user; a call is no such message."""
    said = without_thinking(text)
    assert said.startswith("Hi") if visible is None else said == visible
