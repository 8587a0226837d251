"""Whole answers of the chat format that do nothing but speak: most are, and need no watch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Usage
from endturn.stop import Row, StopReason, normalize
from endturn.wires import TAIL, Context, Reader, Seen
from endturn.wires.openai_chat_reasons import rows_of
from endturn.wires.openai_chat_watch import NO_REASON, Watch
from endturn.wires.openai_chat_words import error_in, usage_of
from endturn.wires.reading import members, text_or_none

_BODY: Final = frozenset({"index", "message", "finish_reason", "logprobs"})
"""The members of a whole body's choice as OpenAI itself has them."""


def whole(ctx: Context, body: Any) -> Seen:
    """What a whole body says of its stop. One whose only choice does nothing but speak is read the short way."""
    plain = _plain(body)
    if plain is not None:
        return _judged(plain, rows_of(ctx.dialect), ctx.asked.maximum, ctx.window)
    watch = Watch(ctx)
    watch.see(body)
    return watch.close()


def glance(ctx: Context, body: Any) -> Reader | None:
    """What gives, later, what `whole` would, of a plain body whose reason is that the model was done; else None."""
    plain = _plain(body)
    if plain is None:
        return None
    rows = rows_of(ctx.dialect)
    row = rows.get(plain[0])
    if row is None or row.reason is not StopReason.END_TURN or not row.terminal:
        return None
    return _judged, plain, rows, ctx.asked.maximum, ctx.window


_Plain = tuple[str, Usage | None, Any, Any, str, int]
"""Of a plain body: why it stopped, its usage, id and model, its last characters, and how many there are."""


def _plain(event: Any) -> _Plain | None:
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


def _judged(plain: _Plain, rows: Mapping[str, Row], maximum: int | None, window: int | None) -> Seen:
    """What `Watch` would have seen, without one."""
    raw, usage, id_, model, tail, chars = plain
    stop = normalize(
        raw,
        rows,
        output_tokens=usage.output_tokens if usage else None,
        prompt_tokens=usage.input_tokens if usage else None,
        maximum=maximum,
        window=window,
    )
    return Seen(stop, usage, text_or_none(id_), text_or_none(model), tail, chars, (raw,))
