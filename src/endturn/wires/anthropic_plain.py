"""Whole messages of the Messages API that do nothing but speak."""

from __future__ import annotations

from typing import Any

from endturn.wires import TAIL, Context
from endturn.wires.anthropic_watch import Watch, counted, rows_of, summed
from endturn.wires.plain import Plain, read_with
from endturn.wires.reading import members


def plain(ctx: Context, body: Any) -> Plain | None:
    """What counts of a message whose only block is text; None of any other."""
    message = members(body)
    if message is None or message.get("type") != "message":
        return None
    content, raw = message.get("content"), message.get("stop_reason")
    if content.__class__ is not list or len(content) != 1 or raw.__class__ is not str or not raw.strip():
        return None
    if message.get("stop_sequence") is not None or message.get("stop_details") is not None:
        return None
    block = members(content[0])
    if block is None or block.get("type") != "text":
        return None
    words = block.get("text")
    if words.__class__ is not str:
        return None
    usage = summed(counted(message.get("usage")))
    return raw, usage, message.get("id"), message.get("model"), words[-TAIL:], len(words)


whole, glance = read_with(plain, rows_of, Watch)
