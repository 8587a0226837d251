"""Messages as OpenAI's chat format has them, and everybody who took it over: written, and sent back."""

from __future__ import annotations

from endturn.chat import Json, Message
from endturn.formats.reading import items, member, text
from endturn.formats.scripting import function_call


def written_message(message: Message) -> Json | None:
    """A message; None for one of the assistant's that says nothing, which servers refuse."""
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content}
    if message.role != "assistant":
        return {"role": message.role, "content": message.content}
    said: Json = {"content": message.content} if message.text.strip() else {}
    calls: Json = {"tool_calls": [function_call(call) for call in message.tool_calls]} if message.tool_calls else {}
    return {"role": "assistant", **said, **calls} if said or calls else None


def without_lost_calls(message: Message, block: Json) -> Json:
    """A message as its provider wrote it, but for calls that were taken out of the history since.

    Of calls without an id, which older servers and SDKs of Ollama's write, nothing tells that they were.
    """
    kept = {"", *(call.id for call in message.tool_calls)}
    calls = [call for call in items(block.get("tool_calls")) if text(member(call, "id")) in kept]
    rest = {name: value for name, value in block.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest
