"""Shared helpers for writing requests: members, tools, messages."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from endturn.formats.next_request import SEPARATE_SERVER_RESULTS, own_blocks, without_unanswered
from endturn.formats.settings import LIMIT_MEMBERS, present, with_extra
from endturn.vocabulary import Json, Message, Request, Tool, ToolCall


def request_body(
    members: Mapping[str, Any],
    extra: Mapping[str, Any],
    *,
    conversation: str,
    merges: Iterable[str] = (),
) -> Json:
    """Return a request's body: the members that are neither None nor empty, and `extra`.

    Args:
        extra: members in the API's own shape; they win.
        conversation: the member that holds the conversation; it stays where it is empty.
        merges: objects that are merged with those in `extra`, besides the settings.
    """
    body = {
        name: value
        for name, value in members.items()
        if value is not None and (value not in ({}, []) or name == conversation)
    }
    return with_extra(body, extra, merges)


def output_limit(request: Request) -> int | None:
    """Return a request's own limit of output tokens; None where its `extra` has one."""
    return None if LIMIT_MEMBERS & request.extra.keys() else request.max_tokens


def tool_description(tool: Tool) -> str | None:
    """Return a tool's description; None for a blank one, which APIs refuse."""
    return tool.description if tool.description.strip() else None


def function_tool(tool: Tool) -> Json:
    """Return a tool in the shape of OpenAI's chat format, which several others use."""
    function = {
        "name": tool.name,
        "description": tool_description(tool),
        "parameters": tool.parameters,
    }
    return {"type": "function", "function": present(function)}


def arguments_text(call: ToolCall) -> str:
    """Return a call's arguments as JSON text, verbatim if their text is known."""
    return (
        call.arguments_raw if call.arguments_raw is not None else json.dumps(call.arguments or {})
    )


def function_call(call: ToolCall, arguments: str) -> Json:
    """Return a call in the shape of OpenAI's chat format."""
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def content_parts(content: str | list[Json], text_part: Callable[[str], Json]) -> list[Json]:
    """Return a message's content as a new list of parts."""
    return [text_part(content)] if isinstance(content, str) else [*content]


def conversation(
    messages: Iterable[Message], format_name: str
) -> Iterator[tuple[Message, tuple[Json, ...] | None]]:
    """Pair each message with its blocks in the format's own shape; None where it has none.

    A call of a server tool without a result is left out of an answer that other messages follow:
    the server continues such a call only in the last message.
    """
    messages = [*messages]
    for message, following in zip_longest(messages, messages[1:]):
        native_blocks = own_blocks(message, format_name)
        is_followed = following is not None and following.role != "assistant"
        if (
            native_blocks
            and message.role == "assistant"
            and is_followed
            and format_name in SEPARATE_SERVER_RESULTS
        ):
            native_blocks = tuple(without_unanswered(native_blocks))
        yield message, native_blocks


def system_messages(request: Request, format_name: str) -> list[Message]:
    """List the system messages, for APIs that have them outside the conversation."""
    return [
        message
        for message in request.messages
        if message.role == "system" and own_blocks(message, format_name) is None
    ]


def replays_message(message: Message, native_blocks: Sequence[Json]) -> bool:
    """Return whether an answer is sent back as the provider's own message, which holds the calls.

    Otherwise, if that message lacks some of the calls, the answer is written from our fields.
    """
    return bool(native_blocks[0].get("tool_calls")) or not message.tool_calls
