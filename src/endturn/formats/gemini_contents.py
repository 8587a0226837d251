"""Our messages as the contents of a generateContent request, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Message, ToolCall
from endturn.formats.gemini_reader import NAME, either
from endturn.formats.reading import items, member, text

_SIGNED: Final = ("thoughtSignature", "thought_signature")
# Parts that nothing but what follows them explains: thinking, and what the server was about to run.
_LEADING: Final = ("executableCode", "executable_code", "toolCall", "tool_call")

Called = dict[str, tuple[str, str | None]]
"""A call's id → its name, and the id that the format knows it by: most of Gemini's calls have none."""


def contents(messages: Iterable[Message]) -> list[Json]:
    """The contents of a request, but for system messages; the results of one batch of calls go together in one."""
    written: list[Json] = []
    results: list[Json] | None = None
    called: Called = {}
    for message in messages:
        if message.role == "tool":
            if results is None:
                results = []
                written.append({"role": "user", "parts": results})
            results.append(_result(message, called))
            continue
        results = None
        if message.role == "assistant":
            called |= _called(message)
            said = _said(message)
            if said:
                written.append({"role": "model", "parts": said})
        elif message.role == "user":
            written.append({"role": "user", "parts": parts(message.content)})
    return written


def parts(content: str | list[Json]) -> list[Json]:
    """A message's content as parts."""
    return [{"text": content}] if isinstance(content, str) else content


def _called(message: Message) -> Called:
    blocks = message.blocks if message.blocks is not None and message.blocks.format == NAME else None
    if blocks is None:
        return {call.id: (call.name, call.id) for call in message.tool_calls}
    sent = {text(member(_call_in(part), "id")) for part in blocks.items}
    return {call.id: (call.name, call.id if call.id in sent else None) for call in message.tool_calls}


def _call_in(part: Any) -> Any:
    return either(part, "functionCall", "function_call")


def _result(message: Message, called: Mapping[str, tuple[str, str | None]]) -> Json:
    """A tool's result. The format tells whose it is by the function's name, which the call in the history has."""
    if message.blocks is not None and message.blocks.format == NAME and message.blocks.items:
        return message.blocks.items[0]
    id_ = message.tool_call_id or ""
    name, sent = called.get(id_, (id_, id_ or None))
    result: Json = {"name": name, "response": {"error" if message.is_error else "output": message.text}}
    if sent is not None:
        result["id"] = sent
    media = [part for part in items(message.content) if "text" not in part]
    return {"functionResponse": {**result, "parts": media} if media else result}


def _said(message: Message) -> list[Json]:
    """An assistant message's parts; none where it says nothing, which the API refuses."""
    left = list(message.tool_calls)
    if message.blocks is not None and message.blocks.format == NAME:
        return [part for part in message.blocks.items if _replayable(part, left)]
    said = [part for part in parts(message.content) if _replayable(part, [])]
    return said + [{"functionCall": {"id": call.id, "name": call.name, "args": call.arguments or {}}} for call in left]


def _replayable(part: Json, left: list[ToolCall]) -> bool:
    """Whether the API takes a part back: no call that left the history, no unsigned thinking, no empty text.

    Args:
        left: the message's calls that no part has been found for yet; a part's call is taken out.
    """
    call = _call_in(part)
    if call is not None:
        return _take(call, left)
    if either(part, *_SIGNED) is not None:
        return True
    if part.get("thought") is True:
        return False
    return "text" not in part or bool(text(part["text"]).strip())


def _take(call: Any, left: list[ToolCall]) -> bool:
    id_, name, arguments = text(member(call, "id")), member(call, "name"), member(call, "args")
    for position, each in enumerate(left):
        # One without an id is known by what it asks for; of two that ask the same, it does not matter which.
        if each.id == id_ if id_ else each.name == name and (each.arguments or {}) == (arguments or {}):
            del left[position]
            return True
    return False


def unfinished(cut: ChatResponse) -> list[Json]:
    """The parts of a cut response that may be replayed: no call, and no end that only what was cut off explains."""
    if cut.blocks is None or cut.blocks.format != NAME:
        return [{"text": cut.text}] if cut.text.strip() else []
    kept = [part for part in cut.blocks.items if _replayable(part, [])]
    while kept and (kept[-1].get("thought") is True or any(name in kept[-1] for name in _LEADING)):
        kept.pop()
    return kept
