"""Cohere's chat API: v2, which our client speaks and a scripted server answers; v1's requests, bodies and events too.

Over HTTP, v1 streams lines of JSON where v2 streams server-sent events; Bedrock's Command R speaks v1 within AWS's
messages. Whoever has v1's events, each as an object, reads them here: the dialect "v1" is its words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.errors import UsageError
from endturn.formats import cohere_v1
from endturn.formats.cohere_reader import NAME as NAME, REASONS as REASONS, REPLY
from endturn.formats.cohere_reply import call_of, reply as reply, reply_error as reply_error
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, resent
from endturn.formats.reading import (
    SEGMENTS,
    items,
    member,
    text,
)
from endturn.formats.request_members import asked
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.formats.tools import FUNCTION
from endturn.records import Strategy

PROVIDER: Final = "cohere"
FRAMING: Final = Framing.SSE
VOICE: Final = Voice("c14c80c3-18eb-4519-9460-0000", "tool_", "x-debug-trace-id")

_PATH: Final = re.compile(rf"{SEGMENTS}/v2/chat")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a chat request goes."""
    return Route("POST", "/v1/chat" if dialect == "v1" else "/v2/chat")


def routed(method: str, path: str) -> Routed | None:
    """`/v2/chat`, after whatever a gateway puts before it."""
    return Routed() if method == "POST" and _PATH.fullmatch(path.partition("?")[0]) else None


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /v2/chat, or with the dialect "v1" that of /v1/chat.

    The API knows no choice of one tool among several: that tool is offered alone, and required.

    Raises:
        UsageError: the request asks to fetch a response, which this format cannot.
    """
    if request.retrieve is not None:
        raise UsageError("Cohere's chat API cannot fetch a response by its id: use a provider function that can")
    if dialect == "v1":
        return cohere_v1.encode(request, stream=stream)
    body: Json = {"model": request.model, "messages": _messages(request.messages)}
    named = [tool for tool in request.tools if tool.name == request.tool_choice]
    if request.tools:
        body["tools"] = [FUNCTION.written(tool) for tool in named or request.tools]
        if request.tool_choice != "auto":
            body["tool_choice"] = "NONE" if request.tool_choice == "none" else "REQUIRED"
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.seed is not None:
        body["seed"] = request.seed
    if request.format is not None:
        body["response_format"] = _format(request.format)
    if stream:
        body["stream"] = True
    return body | request.extra


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    return [written for message in messages if (written := _written(message)) is not None]


def _written(message: Message) -> Json | None:
    """One message in v2's shape; None for an assistant message that says nothing, which the API refuses."""
    if message.blocks is not None and message.blocks.format == NAME and message.blocks.items:
        block = message.blocks.items[0]
        return _replayed(message, block) if message.role == "assistant" else block
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content}
    if message.role != "assistant":
        return {"role": message.role, "content": message.content}
    written: Json = {"role": "assistant"}
    if message.text.strip():
        written["content"] = message.content
    if message.tool_calls:
        written["tool_calls"] = [call_of(call) for call in message.tool_calls]
    return written if len(written) > 1 else None


def _replayed(message: Message, block: Json) -> Json | None:
    """A message as the provider wrote it, but for empty parts, and calls that were taken out of the history since.

    Their plan goes with the last of them.
    """
    kept = {call.id for call in message.tool_calls}
    calls = [call for call in items(block.get("tool_calls")) if member(call, "id") in kept]
    content = block.get("content")
    if isinstance(content, list):
        content = [part for part in content if _says(part)]
    gone = ("content", "tool_calls") if calls else ("content", "tool_calls", "tool_plan")
    written = {name: value for name, value in block.items() if name not in gone}
    if content:
        written["content"] = content
    if calls:
        written["tool_calls"] = calls
    return written if calls or _visible(content) else None


def _says(part: Any) -> bool:
    kind = member(part, "type")
    return kind not in ("text", "thinking") or bool(text(member(part, kind)).strip())


def _visible(content: Any) -> bool:
    if isinstance(content, str):
        return bool(content.strip())
    return any(member(part, "type") != "thinking" for part in items(content))


def _format(format_: Json) -> Json:
    return format_ if format_ == {"type": "json_object"} else {"type": "json_object", "json_schema": format_}


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped);
            `resend` (the answer verbatim, nothing after it).
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    said = cut.text.rstrip() if strategy == Strategy.PREFILL else cut.text
    partial = cut.message().but(
        content=said, tool_calls=(), blocks=_unfinished(cut, strip=strategy == Strategy.PREFILL)
    )
    return asking_on(request, partial if said.strip() else None, prompt=prompt, strategy=strategy)


def _unfinished(cut: ChatResponse, *, strip: bool) -> Blocks | None:
    """The message of a cut response without its calls and their plan, and without thinking that led to nothing."""
    if cut.blocks is None or cut.blocks.format != NAME:
        return None
    message = cut.blocks.items[0]
    content = [dict(part) for part in items(message.get("content")) if _says(part)]
    while content and content[-1].get("type") == "thinking":
        content.pop()
    if strip and content and content[-1].get("type") == "text":
        content[-1]["text"] = text(content[-1].get("text")).rstrip()
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "tool_plan")}
    return Blocks(NAME, ({**kept, "content": content},))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for; of v1, the new message stands after its history."""
    history, system = items(kwargs.get("messages")), None
    if not history and isinstance(kwargs.get("message"), str):
        system = text(kwargs.get("preamble")) or None
        history = (*items(kwargs.get("chat_history")), {"role": "user", "content": kwargs["message"]})
    return asked(NAME, kwargs, history, system)


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
