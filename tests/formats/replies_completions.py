"""Text completions as the services send them, written out by hand.

OpenAI's legacy completions (openai 3.54), vLLM and Fireworks in its format, TGI (huggingface_hub 2.4's types, TGI 3),
llama.cpp's server (b5000s, and one of before `stop_type`), SGLang 0.5's /generate, watsonx.ai's text/generation
(2023-05-02), Aleph Alpha's /complete, and the bodies of Bedrock's text models (user guide, 2023-09-30).
"""

from __future__ import annotations

from typing import Any

from endturn.formats import Event

Json = dict[str, Any]


def openai(text: str, reason: Any = "stop", /, **more: Any) -> Json:
    """A completion of one choice."""
    return {
        "id": "cmpl-Cq7",
        "object": "text_completion",
        "created": 1763700000,
        "model": "gpt-3.5-turbo-instruct",
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": reason}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21},
        **more,
    }


def chunk(text: str, reason: Any = None, /, index: int = 0, **more: Any) -> Event:
    """A chunk of a completion's stream."""
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason, **more}
    head = {"id": "cmpl-Cq7", "object": "text_completion", "created": 1763700000, "model": "gpt-3.5-turbo-instruct"}
    return Event(None, {**head, "choices": [choice]})


def usage_chunk() -> Event:
    """The chunk after the last: usage, and no choice."""
    usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    return Event(None, {"id": "cmpl-Cq7", "model": "gpt-3.5-turbo-instruct", "choices": [], "usage": usage})


def claude(text: str, reason: str | None = "stop_sequence", stop: str | None = "\n\nHuman:") -> Json:
    """A body, or an event, of Claude's text completion."""
    return {"type": "completion", "completion": text, "stop_reason": reason, "stop": stop if reason else None}
