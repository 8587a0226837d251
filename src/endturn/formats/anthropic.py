"""The Messages API of Anthropic, and of those who speak it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.errors import UsageError
from endturn.formats.anthropic_reader import NAME as NAME, REASONS as REASONS, REPLY
from endturn.formats.anthropic_reply import reply as reply, reply_error as reply_error
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, resent
from endturn.formats.reading import SEGMENTS, items, text
from endturn.formats.request_members import asked
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.formats.tools import ToolShape
from endturn.records import Strategy

PROVIDER: Final = "anthropic"
_TOOL: Final = ToolShape(schema="input_schema")
FRAMING: Final = Framing.SSE
VOICE: Final = Voice("msg_", "toolu_", "request-id")

DEFAULT_MAX_TOKENS: Final = 4_096
"""Sent where a request sets no limit: the API demands one, and every model it serves accepts this one."""


_PATH: Final = re.compile(rf"{SEGMENTS}/v1/messages")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request for a message goes."""
    return Route("POST", "/v1/messages")


def routed(method: str, path: str) -> Routed | None:
    """`/v1/messages`, after whatever a gateway puts before it."""
    return Routed() if method == "POST" and _PATH.fullmatch(path.partition("?")[0]) else None


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /v1/messages. The API has no seed, and no JSON format without a schema: both are left out.

    Raises:
        UsageError: the request asks to fetch a response, which this format cannot.
    """
    if request.retrieve is not None:
        raise UsageError("the Messages API cannot fetch a message by its id: use a provider function that can")
    body: Json = {"model": request.model, "max_tokens": request.max_tokens or DEFAULT_MAX_TOKENS}
    system = [message for message in request.messages if message.role == "system" and message.blocks is None]
    if len(system) == 1:
        body["system"] = system[0].content
    elif system:
        body["system"] = [part for message in system for part in _parts(message.content)]
    body["messages"] = _messages(request.messages)
    if request.tools:
        body["tools"] = [_TOOL.written(tool) for tool in request.tools]
        if request.tool_choice != "auto":
            words = {"none": {"type": "none"}, "required": {"type": "any"}}
            body["tool_choice"] = words.get(request.tool_choice, {"type": "tool", "name": request.tool_choice})
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.format is not None and request.format != {"type": "json_object"}:
        body["output_config"] = {"format": {"type": "json_schema", "schema": request.format}}
    if stream:
        body["stream"] = True
    return body | request.extra


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    """The messages in the API's shape; the results of one batch of calls go together in one user message."""
    written: list[Json] = []
    results: list[Json] | None = None
    for message in messages:
        if message.role == "tool":
            if results is None:
                results = []
                written.append({"role": "user", "content": results})
            results.append(_result(message))
            continue
        results = None
        if message.role == "assistant":
            content = _said(message)
            if content:
                written.append({"role": "assistant", "content": content})
        elif message.blocks is not None and message.blocks.format == NAME and message.blocks.items:
            written.append(message.blocks.items[0])
        elif message.role == "user":
            written.append({"role": "user", "content": message.content})
    return written


def _result(message: Message) -> Json:
    if message.blocks is not None and message.blocks.format == NAME and message.blocks.items:
        return message.blocks.items[0]
    result: Json = {"type": "tool_result", "tool_use_id": message.tool_call_id or "", "content": message.content}
    return {**result, "is_error": True} if message.is_error else result


def _said(message: Message) -> str | list[Json]:
    """An assistant message's content; empty where it says nothing, which the API refuses."""
    if message.blocks is not None and message.blocks.format == NAME:
        kept = {call.id for call in message.tool_calls}
        return [block for block in message.blocks.items if _replayable(block, kept)]
    uses = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in message.tool_calls
    ]
    if not uses and isinstance(message.content, str):
        return message.content if message.content.strip() else ""
    return [block for block in _parts(message.content) if _replayable(block, frozenset())] + uses


def _replayable(block: Json, kept: set[str] | frozenset[str]) -> bool:
    """Whether the API takes a block back: no call that left the history, no unsigned thinking, no empty text."""
    match block.get("type"):
        case "tool_use":
            return block.get("id") in kept
        case "thinking":
            return bool(block.get("signature"))
        case "text":
            return bool(text(block.get("text")).strip())
        case _:
            return True


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut or paused response. The original's messages stand first, unchanged.

    A pause is resent: the assistant's blocks verbatim, no user message after them.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped: the API
            refuses it there); `resend`.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    blocks = _unfinished(cut)
    if strategy == Strategy.PREFILL and blocks and blocks[-1].get("type") == "text":
        blocks[-1] = {**blocks[-1], "text": text(blocks[-1].get("text")).rstrip()}
    partial = cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks))) if blocks else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy)


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The blocks of a cut response that may be replayed: no call without its result, no thinking at the end."""
    if cut.blocks is None or cut.blocks.format != NAME:
        return [{"type": "text", "text": cut.text}] if cut.text.strip() else []
    answered = {block.get("tool_use_id") for block in cut.blocks.items}
    kept = [
        block
        for block in cut.blocks.items
        if _replayable(block, frozenset())
        and (not text(block.get("type")).endswith("_tool_use") or block.get("id") in answered)
    ]
    while kept and kept[-1].get("type") in ("thinking", "redacted_thinking"):
        kept.pop()
    return kept


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for."""
    compacts = isinstance(kwargs.get("compaction"), Mapping)
    return asked(NAME, kwargs, items(kwargs.get("messages")), kwargs.get("system"), compaction=compacts)


FORMAT: Final = Format(
    name=NAME,
    provider=PROVIDER,
    framing=FRAMING,
    reasons=REASONS,
    voice=VOICE,
    replies=REPLY,
    route=route,
    routed=routed,
    request_summary=request_summary,
    encode=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
