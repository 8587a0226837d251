"""What formats share where they write a scripted response: its words, calls, usage, reason and errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import accumulate
from string import Template
from typing import Any, Final, cast

from endturn.chat import ChatResponse, Json, ToolCall, Usage
from endturn.errors import UsageError
from endturn.formats.errors import error_words
from endturn.formats.reading import member
from endturn.formats.summaries import Event
from endturn.stop import Row, Stop, StopReason, find_row
from endturn.tables import shipped

_WORD: Final = re.compile(r"\s*\S+|\s+")


def words(text: str | None) -> list[str]:
    """The words of a text, each with the space before it: what one event of a stream says."""
    return _WORD.findall(text or "")


def written_arguments(call: ToolCall) -> str:
    """A call's arguments as text, as they were written where that is known."""
    return call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})


def written_reply(
    format: str, dialect: str, response: ChatResponse, stop: str | None, own: Json, *, stream: bool
) -> Json | list[Event]:
    """A response in the shapes that `data/scripted_replies.json` has: a body, or the events of a stream.

    A body has the `whole` of each block in its place. A stream is `head`, then of each block `start`, a `word` each,
    `last` and `stop`, then `end`; one that breaks off does so within its last block. `name` is the member that is the
    event's name, `done` that of an event without it. "$text", "$word" and their like stand for what is said; where
    nothing is known, a member is left out, unless it says what else is there: "$text or null". An `if` names what an
    object is left out without.

    Args:
        stop, own: the format's word for the Stop; what else its shapes have names for.
    """
    shape, usage = _shapes().get(f"{format} {dialect}") or _shapes()[format], response.usage
    breaks_off = stream and not response.stop.terminal_seen
    said = {"id": response.id, "model": response.model or "scripted", "stop": stop, **figures(usage)}
    spent = {name: value for name, value in filled(shape["usage"], said).items() if value != {}}
    said |= {"usage": None if usage is None else spent or None, "reasoning": None, "text": None, "refusal": None, **own}
    blocks = []
    for index, (kinds, block) in enumerate(_blocks(response, breaks_off=breaks_off)):
        block = {**said, **block, "index": index}
        blocks.append((kinds, {**block, "whole": filled(_of(shape["whole"], kinds), block)}))
    said |= {kinds[0]: block["text"] for kinds, block in blocks}
    said["blocks"] = [block["whole"] for _, block in blocks]
    said["calls"] = [block["whole"] for kinds, block in blocks if "call" in kinds] or None
    said["content"] = [block["whole"] for kinds, block in blocks if "call" not in kinds] or None
    said["body"] = filled(shape["body"], said)
    if not stream:
        return cast(Json, said["body"])
    if "word" not in shape:
        raise UsageError(f"the {format} dialect {dialect!r} does not stream")
    events = [*filled(shape["head"], said)]
    for kinds, block in blocks:
        events += filled(_of(shape["start"], kinds), block) or []
        pieces, word_shape = words(block["text"]), _of(shape["word"], kinds)
        for number, (word, so_far) in enumerate(zip(pieces, accumulate(pieces), strict=True), 1):
            events.append(filled(word_shape, {**block, "word": word, "so_far": so_far, "number": number}))
        events += filled(_of(shape["last"], kinds), block) or []
        is_cut = breaks_off and block["index"] == len(blocks) - 1
        events += [] if is_cut else filled(_of(shape["stop"], kinds), block) or []
    events += [] if breaks_off else filled(shape["end"], said)
    name = shape.get("name")
    return [Event((name and member(each, name)) or shape.get("done"), each) for each in events if each is not None]


_OTHERS: Final = ("context_length_exceeded", "content_filter")
"""Codes of OpenAI's: for these, others have words of their own."""


def written_error(
    format: str, status: int, code: str | None, message: str | None, *, number: int, stream: bool
) -> Json | Event:
    """An error in a format's shape: an answer's body, or the event that it is within a stream."""
    shape, said = _shapes()[format], error_words(format, status, code, message)
    word = code if code and code not in _OTHERS else said.type
    known = {"status": status, "type": said.type, "code": said.code, "word": word, "message": said.message}
    known |= {"label": said.code or said.type}
    known |= {"number": f"{number:08d}", "reason": "TIMEOUT" if status in (408, 504) else "ERROR"}
    body: Json = filled(shape.get("error event", shape["error"]) if stream else shape["error"], known)
    return Event(body.get(shape.get("name")), body) if stream else body


def _blocks(response: ChatResponse, *, breaks_off: bool) -> Iterator[tuple[tuple[str, ...], Json]]:
    """What a response says, in order: its kind, before what it is written as where a format does not tell it apart."""
    if response.reasoning:
        yield ("reasoning",), {"text": response.reasoning}
    if response.text:
        refuses = response.stop.reason is StopReason.REFUSED
        yield ("refusal", "text") if refuses else ("text",), {"text": response.text}
    for place, call in enumerate(response.tool_calls):
        is_open = call.arguments is None or (breaks_off and call is response.tool_calls[-1])
        kinds = ("cut call",) * (not call.closed) + ("open call",) * is_open + ("call",)
        about = {"call": call.id, "name": call.name, "text": written_arguments(call), "place": place}
        # In a body, the arguments of a call that was cut are an object all the same, an empty one.
        yield kinds, {**about, "arguments": call.arguments or {}}


def _of(shapes: Any, kinds: tuple[str, ...]) -> Any:
    """The shape of a block; a list is that of every one."""
    return shapes if isinstance(shapes, list) else next((shapes[kind] for kind in kinds if kind in shapes), None)


def figures(usage: Usage | None) -> Json:
    """What a usage's shapes have names for."""
    usage = usage or Usage()
    asked, said, thought = usage.input_tokens or 0, usage.output_tokens or 0, usage.reasoning_tokens
    cached, made = usage.cache_read_tokens, usage.cache_write_tokens
    return {
        "input": usage.input_tokens, "cache_read": cached, "cache_write": made,
        "fresh": max(0, asked - (cached or 0) - (made or 0)), "output": usage.output_tokens, "thought": thought,
        "visible": max(0, said - (thought or 0)), "total": asked + said,
    }  # fmt: skip


def filled(shape: Any, said: Json) -> Any:
    """A shape with what is said in its places; None for an object without what it has an `if` for."""
    if isinstance(shape, str) and not shape.startswith("$"):
        return Template(shape).substitute(said) if "$" in shape else shape
    if isinstance(shape, str):
        name, _, otherwise = shape[1:].partition(" or ")
        return json.loads(otherwise) if otherwise and said[name] is None else said[name]
    if isinstance(shape, list):
        return [value for each in shape if (value := filled(each, said)) is not None]
    if not isinstance(shape, dict):
        return shape
    if "if" in shape and filled(shape["if"], said) is None:
        return None
    made = {name: filled(each, said) for name, each in shape.items() if name != "if"}
    return {name: made[name] for name in made if made[name] is not None or str(shape[name]).endswith(("None", "null"))}


@cache
def _shapes() -> Json:
    return cast(Json, json.loads(shipped().joinpath("scripted_replies.json").read_text("utf-8")))


def raw_reason(stop: Stop, rows: Mapping[str, Row]) -> str | None:
    """The raw value that a Stop is written with: its own where the format knows it, else the format's word for it.

    Raises:
        UsageError: it has none of its own, and the format has no word for its reason.
    """
    if stop.reason is StopReason.MISSING or (stop.raw is None and stop.promoted_from is StopReason.MISSING):
        return None
    if stop.raw is not None and (stop.reason is StopReason.UNKNOWN or find_row(stop.raw, rows) is not None):
        return stop.raw
    found = next((raw for raw, row in rows.items() if row.reason is stop.reason and row.terminal), stop.raw)
    if found is None:
        raise UsageError(
            f"this format has no word for {stop.reason.value!r}, only for {listed(reasons_of(rows))}: "
            f"give the Stop a raw value that it has"
        )
    return found


def reasons_of(rows: Mapping[str, Row]) -> set[StopReason]:
    """The reasons that a format has words for."""
    return {row.reason for row in rows.values() if row.terminal}


def listed(reasons: Collection[StopReason]) -> str:
    """Reasons by name, in our own order."""
    return ", ".join(reason.value for reason in StopReason if reason in reasons)
