"""The agents of the demo, written as users write them, and the script of their provider."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import httpx
from anthropic import Anthropic
from openai import OpenAI, OpenAIError
from openai.types.chat import ChatCompletionMessageParam

from endturn import ContinuationController, Message, Request, Tool, Usage
from endturn.testing import scripted

_SENTENCES: Final = (
    "A response that stops at the token limit looks like any other response.",
    "Its text ends in the middle of a thought, its tool call in the middle of an argument.",
    "The provider does say so, in one field that most loops never read.",
    "An agent that reads it can ask for the rest, within a budget.",
    "One that does not hands half an answer to a person, or runs half a command.",
    "So the first question about a fleet of agents is how often that happens.",
    "The second is how often somebody noticed and finished the answer.",
    "Both are counters, and their ratio is worth being woken for.",
)
QUESTIONS: Final = (
    "What is a stop reason?",
    "Why did my answer end in the middle of a sentence?",
    "Where does a provider say that an answer is cut off?",
    "How does an agent get the rest of an answer?",
    "What happens when nobody asks for the rest?",
    "How often are our agents cut off?",
    "How often does somebody finish the answer?",
    "Which of these numbers should wake me up?",
)
"""Repeated in each round with its number, so that each conversation is distinct."""


def _number(question: str) -> int:
    """Return the index of a question."""
    return next((n for n, text in enumerate(QUESTIONS) if question.startswith(text)), 0)


def _answer(question: str, sentences: int) -> str:
    """Return a text of that many sentences, a different one for each question."""
    first = _number(question)
    return " ".join(_SENTENCES[(first + n) % len(_SENTENCES)] for n in range(sentences))


def _essayist(lengths: tuple[int, ...], *, delay_s: float) -> Callable[[Request], scripted.Reply]:
    """Return a scripted model: question n gets `lengths[n]` sentences, cut at max_tokens."""

    def reply(request: Request) -> scripted.Reply:
        question = scripted.by_conversation(request)
        sentences = lengths[_number(question) % len(lengths)]
        return scripted.essay(_answer(question, sentences))(request).but(delay_s=delay_s)

    return reply


def scripted_provider() -> scripted.ScriptedProvider:
    """Return the scripted provider of the demo: a script for each model.

    Real providers send the same stop reasons.
    """
    weather = {"city": "Aarhus", "days": 3, "units": "metric"}
    return scripted.ScriptedProvider(
        {
            "gpt-5-mini": _essayist((1, 2, 1, 1, 2, 5, 1, 1), delay_s=0.03),
            "gpt-5": _essayist((2, 6, 1, 2, 9, 2, 1, 3), delay_s=0.05),
            "gpt-5-nano": _essayist((1, 2, 1, 3, 1, 1, 6, 1), delay_s=0.02),
            "claude-haiku-4-5": _essayist((1, 1, 2, 6, 1, 2, 1, 1), delay_s=0.03),
            "claude-sonnet-5-5": [
                # a tool call truncated in its arguments: blocked, repaired, run, answered
                scripted.partial_call("weather", weather, after=3).but(usage=Usage(12, 64)),
                scripted.call("weather", weather),
                scripted.say("Three mild days, with rain on the second."),
            ],
            "claude-opus-4-1": [scripted.refuse()],
            "gpt-4.1": [scripted.break_off(" ".join(_SENTENCES[:2]), after=9)],
            "gpt-oss-120b": [scripted.reason("tokens_exhausted", _SENTENCES[1])],
        },
        key=scripted.by_conversation,
        exhausted="cycle",
    )


# --- The agents -----------------------------------------------------------------------------------

Agent = Callable[[str, str], None]


def _openai(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _anthropic(url: str) -> Anthropic:
    return Anthropic(base_url=url, api_key="none", max_retries=0)


def one_shot(url: str, question: str, *, model: str, max_tokens: int) -> None:
    """Run an agent as most are written: one call, whose stop reason is not checked."""
    with _openai(url) as client:
        client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": question}], max_tokens=max_tokens
        )


def streaming(url: str, question: str, *, model: str, max_tokens: int) -> None:
    """Run the same agent over a stream of the anthropic SDK."""
    with (
        _anthropic(url) as client,
        client.messages.stream(
            model=model, messages=[{"role": "user", "content": question}], max_tokens=max_tokens
        ) as stream,
    ):
        for _ in stream.text_stream:
            pass


def lost_stream(url: str, question: str, *, model: str) -> None:
    """Read a stream whose connection breaks."""
    with _openai(url) as client:
        try:
            for _ in client.chat.completions.create(
                model=model,
                messages=[{"role": "user", "content": question}],
                max_tokens=200,
                stream=True,
            ):
                pass
        # early versions of the SDK raise the httpx error
        except (OpenAIError, httpx.TransportError):
            pass  # the user sees only the part that arrived


def hand_written_loop(url: str, question: str, *, model: str, max_tokens: int) -> None:
    """Run an agent that reads finish_reason and asks once for the rest.

    It does not declare its turns, so endturn infers them.
    """
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": question}]
    with _openai(url) as client:
        for _ in range(2):
            answer = client.chat.completions.create(
                model=model, messages=messages, max_tokens=max_tokens
            )
            choice = answer.choices[0]
            if choice.finish_reason != "length":
                break
            messages.append({"role": "assistant", "content": choice.message.content})
            messages.append({"role": "user", "content": "Continue from where you left off."})


def controlled(url: str, question: str, *, model: str, max_tokens: int) -> None:
    """Run the openai SDK under the controller.

    Truncated answers are finished within the policy's limits.
    """
    messages = (Message(role="user", content=question),)
    with _openai(url) as client:
        controller = ContinuationController(client, agent="writer")
        controller.run(Request(model=model, messages=messages, max_tokens=max_tokens))


def controlled_with_tools(url: str, question: str, *, model: str) -> None:
    """Run the anthropic SDK under the controller, with a tool: a truncated call is never run."""
    types = {"city": "string", "days": "integer", "units": "string"}
    parameters = {
        "type": "object", "properties": {name: {"type": kind} for name, kind in types.items()},
        "required": [*types],
    }  # fmt: skip
    tool = Tool(name="weather", description="The weather of the next days.", parameters=parameters)

    def weather(city: str, days: int, units: str) -> str:
        return f"{city}: 12, 9 and 14 degrees over {days} days ({units})"

    messages = (Message(role="user", content=question),)
    with _anthropic(url) as client:
        tools = {"weather": lambda call: weather(**(call.arguments or {}))}
        controller = ContinuationController(client, tools=tools, agent="forecaster")
        controller.run(Request(model=model, messages=messages, tools=(tool,), max_tokens=64))


AGENTS: Final = (
    partial(one_shot, model="gpt-5-mini", max_tokens=30),
    partial(streaming, model="claude-haiku-4-5", max_tokens=40),
    partial(hand_written_loop, model="gpt-5-nano", max_tokens=30),
    partial(controlled, model="gpt-5", max_tokens=40),
)
RARE: Final = (
    partial(controlled_with_tools, model="claude-sonnet-5-5"),
    partial(one_shot, model="gpt-oss-120b", max_tokens=200),
    partial(lost_stream, model="gpt-4.1"),
    partial(streaming, model="claude-opus-4-1", max_tokens=200),
)


def plan(minutes: float) -> Iterator[tuple[Agent, str]]:
    """Yield every agent with every question, and one rare case after each question."""
    end = time.monotonic() + minutes * 60
    for round_ in itertools.count(1):
        for turn, text in enumerate(QUESTIONS):
            question = text if round_ == 1 else f"{text} (Round {round_}.)"
            yield from ((agent, question) for agent in AGENTS)
            yield RARE[turn % len(RARE)], question
        if time.monotonic() >= end:
            return
