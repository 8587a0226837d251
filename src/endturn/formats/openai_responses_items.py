"""A conversation as the Responses API is sent it: one list of items, messages and calls alike, as they were said."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from endturn.chat import Json, Message, ToolCall
from endturn.formats.openai_responses_objects import GIVEN, client_call
from endturn.formats.openai_responses_reader import NAME
from endturn.formats.reading import items, member, text

_RESULT: Final = "function_call_output"


def written(messages: Iterable[Message], *, stored: bool) -> list[Json]:
    """The items of a history.

    Args:
        stored: the server keeps responses. Where it does not, it cannot find a reasoning item by its id: only one that
            brings its content, encrypted or not, is sent.
    """
    found: list[Json] = []
    custom: set[str] = set()
    for message in messages:
        ours = message.blocks.items if message.blocks is not None and message.blocks.format == NAME else None
        if message.role == "assistant":
            said = _said(message) if ours is None else _replayed(message, ours, stored)
            custom |= {text(item.get("call_id")) for item in said if item.get("type") == "custom_tool_call"}
            found += said
        elif ours is not None:
            found += ours
        elif message.role == "tool":
            found.append(_result(message, "custom_tool_call_output" if message.tool_call_id in custom else _RESULT))
        else:
            found.append({"role": message.role, "content": message.content})
    return found


def _result(message: Message, kind: str) -> Json:
    """The result of a call. The API has no member that says that it is a failure."""
    return {"type": kind, "call_id": message.tool_call_id or "", "output": message.content}


def _said(message: Message) -> list[Json]:
    """An assistant message of another format; nothing where it says nothing, which the API refuses."""
    said: list[Json] = [{"role": "assistant", "content": message.text}] if message.text.strip() else []
    return said + [call_of(call) for call in message.tool_calls]


def call_of(call: ToolCall) -> Json:
    """A call as an item of the conversation."""
    raw = call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})
    return {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": raw}


def _replayed(message: Message, blocks: Iterable[Json], stored: bool) -> list[Json]:
    """The items of a response as they came, but for calls that were taken out of the history since."""
    held = {"", *(call.id for call in message.tool_calls), *answered(blocks)}
    return paired(
        blocks,
        lambda item: (
            (not _ours(item) or text(item.get("call_id")) in held)
            and (
                stored or item.get("type") != "reasoning" or bool(item.get("encrypted_content") or item.get("content"))
            )
        ),
    )


def _ours(item: Json) -> bool:
    """Whether an item is a call that our messages have."""
    return text(item.get("type")) in GIVEN and client_call(item)


def answered(blocks: Iterable[Json]) -> set[str]:
    """The calls whose results stand beside them: the server ran them."""
    return {text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")} - {""}


def paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """The items to keep, without empty messages, and without reasoning whose own items all went.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    kept: list[Json] = []
    waiting: list[Json] = []
    led = False
    for item in blocks:
        if item.get("type") == "reasoning":
            if led:
                waiting = []
            led = False
            if keep(item):
                waiting.append(item)
            continue
        led = True
        if keep(item) and not _blank(item):
            kept += [*waiting, item]
            waiting = []
    return kept


def _blank(item: Json) -> bool:
    return item.get("role") == "assistant" and not _visible(item).strip()


def _visible(item: Json) -> str:
    """The text of a message, its refusals included."""
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(text(member(part, "text")) or text(member(part, "refusal")) for part in items(content))
