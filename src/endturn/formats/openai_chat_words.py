"""What the chat format says beside the stop, and where: words, thinking, errors, tokens."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from endturn.chat import Usage
from endturn.formats.reading import count, items, member, text

# DeepSeek, vLLM, Moonshot, Qwen write the first; OpenRouter, Groq, newer vLLM the second. Of both, the first counts.
THINKING: Final = ("reasoning_content", "reasoning")


def words_of(part: Any) -> tuple[str, str, str, str]:
    """The visible text, the thinking, the refusal, and what is spoken, of a message or delta.

    The transcript of a spoken answer is visible text: it is what the user hears. Beside text it is the same once more.
    """
    content = member(part, "content")
    visible, declined = text(content), text(member(part, "refusal"))
    thinking = next((found for name in THINKING if (found := text(member(part, name)))), "")
    for piece in items(content):  # Mistral answers, and everyone is asked, in parts.
        kind = member(piece, "type")
        if kind == "text":
            visible += text(member(piece, "text"))
        elif kind == "refusal":
            declined += text(member(piece, "refusal"))
        elif kind == "thinking":
            inner = member(piece, "thinking")
            thinking += text(inner) or "".join(text(member(each, "text")) for each in items(inner))
    heard = "" if visible else text(member(member(part, "audio"), "transcript"))
    return visible, thinking, declined, heard


def shows(message: Any) -> bool:
    """Whether a message holds an answer that is not words: sound (OpenAI), pictures (OpenRouter)."""
    return bool(member(message, "audio") or member(message, "images"))


def error_in(chunk: Any) -> Any:
    """The error that a chunk reports, if it does: an object, or Groq's word for it."""
    return member(chunk, "error") or member(member(chunk, "x_groq"), "error")


def usage_of(usage: Any) -> Usage | None:
    """Tokens as the chat format counts them: cached ones are part of the prompt's, reasoning of the completion's.

    xAI, and some gateways before Gemini, count reasoning beside the completion: the total tells
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits).
    """
    if usage is None:
        return None
    get = partial(member, usage)
    output, prompt = get("completion_tokens_details"), get("prompt_tokens_details")
    cached = None if prompt is None else count(member(prompt, "cached_tokens"))
    if cached is None:
        cached = count(get("prompt_cache_hit_tokens"))  # DeepSeek's own member.
    if cached is None:
        cached = count(get("cached_tokens"))  # Moonshot's.
    asked, answered = count(get("prompt_tokens")), count(get("completion_tokens"))
    reasoned = None if output is None else count(member(output, "reasoning_tokens"))
    written = None if prompt is None else count(member(prompt, "cache_write_tokens"))
    if answered is not None and reasoned and count(get("total_tokens")) == (asked or 0) + answered + reasoned:
        answered += reasoned
    if asked is None and answered is None and reasoned is None and cached is None and written is None:
        return None
    return Usage(asked, answered, reasoned, cached, written)
