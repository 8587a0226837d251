"""An agent as a host writes it, instrumented by one line: plays what the end-to-end tests ask for, in its own process.

Its argument is JSON: {"openai": URL, "anthropic": URL, "turns": [[kind, model, question, max_tokens], …]}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import anthropic
import openai

import endturn

endturn.configure()  # the one line

PLAN = json.loads(sys.argv[1])
OPENAI = openai.OpenAI(base_url=f"{PLAN['url']}/v1", api_key="sk-planted-secret", max_retries=0)
ANTHROPIC = anthropic.Anthropic(base_url=PLAN["url"], api_key="sk-ant-planted-secret", max_retries=0)


def chat(model: str, question: str, max_tokens: int) -> None:
    """One call; whatever comes is the answer."""
    messages = [{"role": "user", "content": question}]
    OPENAI.chat.completions.create(model=model, messages=messages, max_tokens=max_tokens)  # type: ignore[arg-type]


def chat_stream(model: str, question: str, max_tokens: int) -> None:
    """The same, streamed; a lost connection is taken for the end, as many loops do."""
    messages = [{"role": "user", "content": question}]
    try:
        for _ in OPENAI.chat.completions.create(
            model=model,
            messages=messages,  # type: ignore[arg-type]
            max_tokens=max_tokens,
            stream=True,
        ):
            pass
    except openai.OpenAIError:
        pass


def chat_loop(model: str, question: str, max_tokens: int) -> None:
    """A loop that asks for the rest until the model has ended its turn."""
    messages = [{"role": "user", "content": question}]
    while True:
        answer = OPENAI.chat.completions.create(model=model, messages=messages, max_tokens=max_tokens)  # type: ignore[arg-type]
        choice = answer.choices[0]
        if choice.finish_reason != "length":
            return
        messages += [
            {"role": "assistant", "content": choice.message.content or ""},
            {"role": "user", "content": "Continue from where you left off."},
        ]


def messages(model: str, question: str, max_tokens: int) -> None:
    """One call of Anthropic's."""
    ANTHROPIC.messages.create(model=model, max_tokens=max_tokens, messages=[{"role": "user", "content": question}])


def messages_stream(model: str, question: str, max_tokens: int) -> None:
    """The same through the SDK's stream helper."""
    with ANTHROPIC.messages.stream(
        model=model, max_tokens=max_tokens, messages=[{"role": "user", "content": question}]
    ) as stream:
        stream.get_final_message()


KINDS: dict[str, Callable[[str, str, int], None]] = {
    kind.__name__: kind for kind in (chat, chat_stream, chat_loop, messages, messages_stream)
}

for kind, model, question, max_tokens in PLAN["turns"]:
    KINDS[kind](model, question, max_tokens)
