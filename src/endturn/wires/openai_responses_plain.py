"""Whole responses of the Responses API that do nothing but speak, after thinking or not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.stop import Row
from endturn.wires import TAIL, Context
from endturn.wires.openai_responses_objects import usage_of
from endturn.wires.openai_responses_reasons import rows_of
from endturn.wires.openai_responses_watch import Watch
from endturn.wires.plain import Plain, read_with
from endturn.wires.reading import members

_DONE: Final = "completed"


def plain(ctx: Context, body: Any) -> Plain | None:
    """What counts of a response that completed, and holds one message of one text; None of any other."""
    response = members(body)
    if response is None or response.get("status") != _DONE or response.get("object") != "response":
        return None
    output = response.get("output")
    if output.__class__ is not list or not output or "type" in response or response.get("error") is not None:
        return None
    if response.get("background") or ctx.asked.background or response.get("incomplete_details") is not None:
        return None
    for thinking in output[:-1]:
        item = members(thinking)
        if item is None or item.get("type") != "reasoning":
            return None
    item = members(output[-1])
    if item is None or item.get("type") != "message" or item.get("status") != _DONE:
        return None
    content = item.get("content")
    if content.__class__ is not list or len(content) != 1:
        return None
    part = members(content[0])
    if part is None or part.get("type") != "output_text":
        return None
    words = part.get("text")
    if words.__class__ is not str:
        return None
    usage = usage_of(response.get("usage"))
    return _DONE, usage, response.get("id"), response.get("model"), words[-TAIL:], len(words)


def _rows(ctx: Context) -> Mapping[str, Row]:
    return rows_of(_DONE, background=False)


whole, glance = read_with(plain, _rows, Watch)
