"""The real OpenAI and Anthropic SDKs, asking a scripted provider in process or over a socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anthropic
import httpx2
import openai

from endturn.scripted import ScriptedProvider

FORMATS = ("openai_chat", "anthropic")
WAYS = ("transport", "server")


@dataclass
class Heard:
    """What an SDK made of an answer."""

    text: str = ""
    reason: str | None = None
    calls: list[tuple[str, str]] = field(default_factory=list)
    refusal: str = ""


class OpenAI:
    """Asks through the real OpenAI SDK."""

    lost = openai.APIConnectionError
    status = openai.APIStatusError

    def __init__(self, url: str, http: Any = None) -> None:
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, http_client=http)

    def ask(self, text: str = "hi", *, model: str = "m", max_tokens: int = 1000) -> Heard:
        answer = self.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], max_completion_tokens=max_tokens
        )
        choice = answer.choices[0]
        calls = [
            (c.function.name, c.function.arguments) for c in choice.message.tool_calls or () if c.type == "function"
        ]
        return Heard(choice.message.content or "", choice.finish_reason, calls, choice.message.refusal or "")

    def stream(
        self, text: str = "hi", *, model: str = "m", max_tokens: int = 1000, heard: Heard | None = None
    ) -> Heard:
        heard = heard or Heard()
        with self.client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": text}], max_completion_tokens=max_tokens, stream=True
        ) as chunks:
            for chunk in chunks:
                for choice in chunk.choices:
                    heard.text += choice.delta.content or ""
                    heard.refusal += choice.delta.refusal or ""
                    heard.reason = choice.finish_reason or heard.reason
                    for piece in choice.delta.tool_calls or ():
                        assert piece.function is not None
                        if piece.function.name:
                            heard.calls.append((piece.function.name, ""))
                        name, so_far = heard.calls[-1]
                        heard.calls[-1] = (name, so_far + (piece.function.arguments or ""))
        return heard


class Anthropic:
    """Asks through the real Anthropic SDK."""

    lost = anthropic.APIConnectionError
    status = anthropic.APIStatusError

    def __init__(self, url: str, http: Any = None) -> None:
        self.client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, http_client=http)

    def ask(self, text: str = "hi", *, model: str = "m", max_tokens: int = 1000) -> Heard:
        answer = self.client.messages.create(
            model=model, messages=[{"role": "user", "content": text}], max_tokens=max_tokens
        )
        said = "".join(block.text for block in answer.content if block.type == "text")
        calls = [(block.name, json.dumps(block.input)) for block in answer.content if block.type == "tool_use"]
        return Heard(said, answer.stop_reason, calls)

    def stream(
        self, text: str = "hi", *, model: str = "m", max_tokens: int = 1000, heard: Heard | None = None
    ) -> Heard:
        heard = heard or Heard()
        with self.client.messages.create(
            model=model, messages=[{"role": "user", "content": text}], max_tokens=max_tokens, stream=True
        ) as events:
            for event in events:
                if event.type == "content_block_start" and event.content_block.type == "tool_use":
                    heard.calls.append((event.content_block.name, ""))
                elif event.type == "content_block_delta" and event.delta.type == "text_delta":
                    heard.text += event.delta.text
                elif event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                    name, so_far = heard.calls[-1]
                    heard.calls[-1] = (name, so_far + event.delta.partial_json)
                elif event.type == "message_delta":
                    heard.reason = event.delta.stop_reason
        return heard


Sdk = OpenAI | Anthropic
KINDS: dict[str, type[Sdk]] = {"openai_chat": OpenAI, "anthropic": Anthropic}


@contextmanager
def sdk(provider: ScriptedProvider, format: str, way: str) -> Iterator[Sdk]:
    """A real SDK whose requests reach the provider, in process or over a socket."""
    if way == "server":
        with provider.serve() as url:
            asking = KINDS[format](url)
            with asking.client:
                yield asking
    else:
        asking = KINDS[format]("http://scripted", httpx2.Client(transport=provider.transport()))
        with asking.client:
            yield asking
