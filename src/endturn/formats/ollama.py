"""Ollama's own API: `/api/chat`, and what `/api/generate` says, in lines of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.errors import UsageError
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, resent
from endturn.formats.ollama_reader import NAME as NAME, REASONS as REASONS, REPLY
from endturn.formats.ollama_reply import call_of, reply as reply, reply_error as reply_error
from endturn.formats.reading import (
    SEGMENTS,
    items,
    member,
    minted,
    text,
)
from endturn.formats.request_members import asked
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.formats.tools import FUNCTION
from endturn.records import Strategy
from endturn.stop import StopReason

PROVIDER: Final = "ollama"
FRAMING: Final = Framing.NDJSON
VOICE: Final = Voice("", "call_", "x-request-id", {StopReason.TOOL_CALL: "stop"})

_OPTIONS: Final = {"num_predict": "max_tokens", "temperature": "temperature", "seed": "seed"}

_PATH: Final = re.compile(rf"{SEGMENTS}/api/(?:chat|generate)")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes."""
    return Route("POST", "/api/chat")


def routed(method: str, path: str) -> Routed | None:
    """`/api/chat` or `/api/generate`, after whatever a gateway puts before it."""
    bare = path.partition("?")[0]
    if method != "POST" or not _PATH.fullmatch(bare):
        return None
    return Routed(operation="text_completion" if bare.endswith("/generate") else None)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /api/chat. `stream` is always said: the API streams where it is not.

    The API cannot be told to call a tool: any choice but "none", which leaves the tools out, is the model's.

    Raises:
        UsageError: the request asks to fetch a response, which this format cannot.
    """
    if request.retrieve is not None:
        raise UsageError("Ollama cannot fetch a response by its id: use a provider function that can")
    body: Json = {"model": request.model, "messages": _messages(request.messages), "stream": stream}
    if request.tools and request.tool_choice != "none":
        body["tools"] = [FUNCTION.written(tool) for tool in request.tools]
    if request.format is not None:
        body["format"] = "json" if request.format == {"type": "json_object"} else request.format
    options = {name: value for name, ours in _OPTIONS.items() if (value := getattr(request, ours)) is not None}
    given = request.extra.get("options")
    if options or given is not None:
        body["options"] = options | given if isinstance(given, dict) else options
    return body | {name: value for name, value in request.extra.items() if name != "options"}


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    """The messages in the format's shape. A result names its tool, as far as the call is among the messages."""
    written: list[Json] = []
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        one = _written(message, names)
        if one is not None:
            written.append(one)
    return written


def _written(message: Message, names: Mapping[str, str]) -> Json | None:
    """One message in the format's shape; None for an assistant message that says nothing."""
    if message.blocks is not None and message.blocks.format == NAME and message.blocks.items:
        return _replayed(message, message.blocks.items[0])
    written: Json = {"role": message.role, "content": message.text}
    if message.role == "tool":
        call = message.tool_call_id or ""
        written["tool_call_id"] = call
        if call in names:
            written["tool_name"] = names[call]
    elif message.role == "assistant":
        if message.tool_calls:
            written["tool_calls"] = [call_of(call) for call in message.tool_calls]
        elif not message.text.strip():
            return None
    return written


def _replayed(message: Message, block: Json) -> Json | None:
    """A message as the server wrote it, but for calls that were taken out of the history since."""
    if message.role != "assistant":
        return block
    kept = {call.id for call in message.tool_calls}
    calls = [call for place, call in enumerate(items(block.get("tool_calls"))) if _id_of(call, place) in kept]
    written = {name: value for name, value in block.items() if name != "tool_calls"}
    if calls:
        written["tool_calls"] = calls
    return written if calls or text(written.get("content")).strip() or written.get("images") else None


def _id_of(call: Any, place: int) -> str:
    """A call's id; the one that it is given here, where the history's has none, as that of older servers and SDKs."""
    return text(member(call, "id")) or minted("history", place)


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, which the server goes on with, its
            trailing whitespace stripped); `resend` (the answer verbatim, nothing after it).
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    said = cut.text.rstrip() if strategy == Strategy.PREFILL else cut.text
    partial = cut.message().but(content=said, tool_calls=(), blocks=_visible(cut, said)) if said.strip() else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy)


def _visible(cut: ChatResponse, said: str) -> Blocks | None:
    """The message of a cut response without its calls; None where another format wrote it."""
    if cut.blocks is None or cut.blocks.format != NAME or not cut.blocks.items:
        return None
    kept = {name: value for name, value in cut.blocks.items[0].items() if name != "tool_calls"}
    return Blocks(NAME, ({**kept, "content": said},))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for.

    The API streams where `stream` is not said, the SDK does not; nothing tells the arguments of one from the body of
    the other. What is not said is read as the SDK means it: the SDK always says it in the bodies that it sends.
    """
    history, prompt, system = items(kwargs.get("messages")), kwargs.get("prompt"), kwargs.get("system")
    if not history and isinstance(prompt, str):
        history = ({"role": "user", "content": prompt},)
    return asked(NAME, kwargs, history, system if isinstance(system, str) else None)


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
