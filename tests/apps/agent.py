"""An agent as a host writes it, instrumented by one line: plays what the end-to-end tests ask for, in its own process.

Its argument is JSON: {"url": URL, "turns": [[kind, model, question, max_tokens], …]}.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import anthropic
import openai

import endturn

endturn.configure()  # the one line

PLAN = json.loads(sys.argv[1])
CHAT: Any = openai.OpenAI(base_url=f"{PLAN['url']}/v1", api_key="sk-planted-secret", max_retries=0).chat.completions
MESSAGES: Any = anthropic.Anthropic(base_url=PLAN["url"], api_key="sk-ant-planted-secret", max_retries=0).messages


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def chat(question: str, **asked: Any) -> None:
    """One call; whatever comes is the answer."""
    CHAT.create(messages=[user(question)], **asked)


def chat_stream(question: str, **asked: Any) -> None:
    """The same, streamed; a lost connection is taken for the end, as many loops do."""
    with suppress(openai.OpenAIError):
        list(CHAT.create(messages=[user(question)], stream=True, **asked))


def chat_loop(question: str, **asked: Any) -> None:
    """A loop that asks for the rest until the model has ended its turn."""
    history = [user(question)]
    while (choice := CHAT.create(messages=history, **asked).choices[0]).finish_reason == "length":
        history += [{"role": "assistant", "content": choice.message.content or ""}]
        history += [user("Continue from where you left off.")]


def messages(question: str, **asked: Any) -> None:
    """One call of Anthropic's."""
    MESSAGES.create(messages=[user(question)], **asked)


def messages_stream(question: str, **asked: Any) -> None:
    """The same through the SDK's stream helper."""
    with MESSAGES.stream(messages=[user(question)], **asked) as stream:
        stream.get_final_message()


KINDS: dict[str, Callable[..., None]] = {
    kind.__name__: kind for kind in (chat, chat_stream, chat_loop, messages, messages_stream)
}

for kind, model, question, max_tokens in PLAN["turns"]:
    KINDS[kind](question, model=model, max_tokens=max_tokens)
