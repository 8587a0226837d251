"""The demo's agents, written as people write them, and the script of the provider that they talk to."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from endturn.chat import Request
    from endturn.scripted import Reply, ScriptedProvider

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
QUESTIONS: Final = 8
"""How many different questions are asked; each round asks them anew."""


def _question(number: int, round_: int) -> str:
    return f"Question {number}, asked for the {round_}. time: why do answers stop early?"


def _number(question: str) -> int:
    """Which question it is, from 0."""
    found = re.match(r"Question (\d+)", question)
    return int(found[1]) - 1 if found else 0


def _answer(question: str, sentences: int) -> str:
    """A text of so many sentences, a different one for each question."""
    first = _number(question)
    return " ".join(_SENTENCES[(first + n) % len(_SENTENCES)] for n in range(sentences))


def _essayist(lengths: tuple[int, ...], *, delay_s: float) -> Callable[[Request], Reply]:
    """A model whose answers take so many sentences, by question; max_tokens cuts them where it cuts them."""
    from endturn.scripted import by_conversation, essay

    def reply(request: Request) -> Reply:
        question = by_conversation(request)
        sentences = lengths[_number(question) % len(lengths)]
        return essay(_answer(question, sentences))(request).but(delay_s=delay_s)

    return reply


def scripted_provider() -> ScriptedProvider:
    """The provider of the demo, by model. Every stop reason it gives is one that the real providers give."""
    from endturn.scripted import ScriptedProvider, by_conversation, call, cut, partial_call, reason, refuse, say

    weather = {"city": "Aarhus", "days": 3, "units": "metric"}
    return ScriptedProvider(
        {
            "gpt-5-mini": _essayist((1, 2, 1, 1, 2, 5, 1, 1), delay_s=0.03),
            "gpt-5": _essayist((2, 6, 1, 2, 9, 2, 1, 3), delay_s=0.05),
            "gpt-5-nano": _essayist((1, 2, 1, 3, 1, 1, 6, 1), delay_s=0.02),
            "claude-haiku-4-5": _essayist((1, 1, 2, 6, 1, 2, 1, 1), delay_s=0.03),
            "claude-sonnet-4-5": [
                # a tool call cut in its arguments: blocked, asked for again, run, answered
                partial_call("weather", weather, after=3),
                call("weather", weather),
                say("Three mild days, with rain on the second."),
            ],
            "claude-opus-4-1": [refuse()],
            "gpt-4.1": [cut(" ".join(_SENTENCES[:2]), after=9)],
            "gpt-oss-120b": [reason("tokens_exhausted", _SENTENCES[1])],
        },
        key=by_conversation,
        exhausted="cycle",
    )


# --- The agents ---------------------------------------------------------------------------------------------------

Agent = Callable[[str, str], None]


def _openai(url: str) -> Any:
    from openai import OpenAI

    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def _anthropic(url: str) -> Any:
    from anthropic import Anthropic

    return Anthropic(base_url=url, api_key="none", max_retries=0)


def one_shot(model: str, max_tokens: int) -> Agent:
    """An agent as most are written: one call, and its text is the answer, whatever the model stopped for."""

    def agent(url: str, question: str) -> None:
        with _openai(url) as client:
            messages = [{"role": "user", "content": question}]
            client.chat.completions.create(model=model, messages=messages, max_tokens=max_tokens)

    return agent


def streaming(model: str, max_tokens: int) -> Agent:
    """The same over Anthropic's stream."""

    def agent(url: str, question: str) -> None:
        messages = [{"role": "user", "content": question}]
        with (
            _anthropic(url) as client,
            client.messages.stream(model=model, messages=messages, max_tokens=max_tokens) as stream,
        ):
            for _ in stream.text_stream:
                pass

    return agent


def lost_stream(model: str) -> Agent:
    """A stream whose connection breaks."""

    def agent(url: str, question: str) -> None:
        from openai import OpenAIError

        messages = [{"role": "user", "content": question}]
        with _openai(url) as client:
            try:
                for _ in client.chat.completions.create(model=model, messages=messages, max_tokens=200, stream=True):
                    pass
            except OpenAIError:
                pass  # what the person sees is the half that arrived

    return agent


def hand_written_loop(model: str, max_tokens: int) -> Agent:
    """An agent whose author did read finish_reason, and asks once for the rest: recognised, not declared."""

    def agent(url: str, question: str) -> None:
        messages = [{"role": "user", "content": question}]
        with _openai(url) as client:
            for _ in range(2):
                answer = client.chat.completions.create(model=model, messages=messages, max_tokens=max_tokens)
                choice = answer.choices[0]
                if choice.finish_reason != "length":
                    break
                messages += [
                    {"role": "assistant", "content": choice.message.content},
                    {"role": "user", "content": "Continue from where you left off."},
                ]

    return agent


def controlled(model: str, max_tokens: int) -> Agent:
    """The openai SDK under the continuation controller: cut answers are finished within the policy's limits."""

    def agent(url: str, question: str) -> None:
        from endturn import ContinuationController, Message, Request

        with _openai(url) as client:
            controller = ContinuationController(client, agent="writer")
            controller.run(
                Request(model=model, messages=(Message(role="user", content=question),), max_tokens=max_tokens)
            )

    return agent


def controlled_with_tools(model: str) -> Agent:
    """The anthropic SDK under the controller, with a tool: a cut call is asked for again, never run."""

    def agent(url: str, question: str) -> None:
        from endturn import ContinuationController, Message, Request, Tool

        def weather(city: str, days: int, units: str) -> str:
            return f"{city}: 12, 9 and 14 degrees over {days} days ({units})"

        parameters = {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "units": {"type": "string"}},
            "required": ["city", "days", "units"],
        }
        tool = Tool(name="weather", description="The weather of the next days.", parameters=parameters)
        with _anthropic(url) as client:
            controller = ContinuationController(
                client, tools={"weather": lambda call: weather(**(call.arguments or {}))}, agent="forecaster"
            )
            messages = (Message(role="user", content=question),)
            controller.run(Request(model=model, messages=messages, tools=(tool,), max_tokens=64))

    return agent


AGENTS: Final = (
    one_shot("gpt-5-mini", 30),
    streaming("claude-haiku-4-5", 40),
    hand_written_loop("gpt-5-nano", 30),
    controlled("gpt-5", 40),
)
RARE: Final = (
    controlled_with_tools("claude-sonnet-4-5"),
    one_shot("gpt-oss-120b", 200),
    lost_stream("gpt-4.1"),
    streaming("claude-opus-4-1", 200),
)


def plan(minutes: float) -> Iterator[tuple[Agent, str]]:
    """Every agent with every question, and now and then something rare."""
    end = time.monotonic() + minutes * 60
    for round_ in itertools.count(1):
        for turn in range(QUESTIONS):
            question = _question(turn + 1, round_)
            yield from ((agent, question) for agent in AGENTS)
            yield RARE[turn % len(RARE)], question
        if time.monotonic() >= end:
            return
