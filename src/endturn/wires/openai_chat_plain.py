"""Whole answers of the chat format that do nothing but speak."""

from __future__ import annotations

from typing import Any, Final

from endturn.wires import TAIL, Context
from endturn.wires.openai_chat_reasons import rows_of
from endturn.wires.openai_chat_watch import NO_REASON, Watch
from endturn.wires.openai_chat_words import error_in, usage_of
from endturn.wires.plain import Plain, read_with
from endturn.wires.reading import members

_BODY: Final = frozenset({"index", "message", "finish_reason", "logprobs"})
"""The members of a whole body's choice as OpenAI itself has them."""


def plain(ctx: Context, event: Any) -> Plain | None:
    """What counts of a body whose only choice does nothing but speak; None of any other."""
    body = members(event)
    if body is None:
        return None
    found = body.get("choices")
    if found.__class__ is not list or len(found) != 1 or body.get("error"):
        return None
    if "stats" in body or "model_info" in body:
        return None
    choice = members(found[0])
    if choice is None or not choice.keys() <= _BODY or choice.get("index"):
        return None
    part = members(choice.get("message"))
    raw = choice.get("finish_reason")
    if part is None or raw.__class__ is not str or not raw.strip() or raw in NO_REASON:
        return None  # SGLang's objects say more than the reason.
    content, said = part.get("content"), body.get("usage")
    if content.__class__ is not str or not content:
        return None
    if "x_groq" in body and (said is None or error_in(body)):
        return None
    if part.get("tool_calls") or part.get("function_call") or part.get("refusal"):
        return None
    return raw, usage_of(said), body.get("id"), body.get("model"), content[-TAIL:], len(content)


whole, glance = read_with(plain, lambda ctx: rows_of(ctx.dialect), Watch)
