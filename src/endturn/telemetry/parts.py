"""What was said, in the shape of the GenAI conventions: messages of parts, whatever wire they travelled on.

The schemas are those of semantic-conventions-genai (`model/gen-ai/gen-ai-*-messages.json`, read 2026-11). Media are
placeholders: their bytes are never copied, and an address loses what may hold a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Message, Request, ToolCall

Part = dict[str, Any]

_MODALITIES: Final = ("image", "audio", "video")
_ADDRESSES: Final = (
    "url",
    "uri",
    "fileUri",
    "file_uri",
    "file_url",
    "image_url",
    "audio_url",
    "video_url",
    "document_url",
)
_FILES: Final = ("file_id", "fileId")
_DATA: Final = ("data", "bytes", "file_data", "b64_json")
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")
_MEDIA: Final = frozenset(
    {"image", "image_url", "input_image", "inlineData", "inline_data", "fileData", "file_data", "input_audio", "audio",
     "document", "video", "video_url", "audio_url", "document_url", "file", "input_file", "media", "source", "images"}
)  # fmt: skip
_DEPTH: Final = 4
_KIND: Final = 64
"""The longest name of a kind of part that is handed on."""


def asked(request: Request, *, beside: bool) -> tuple[list[Part], list[Part]]:
    """The parts of the system prompt that travelled beside the conversation, and the conversation's messages."""
    messages: Sequence[Message] = request.messages
    system: list[Part] = []
    if beside and messages and messages[0].role == "system":
        system, messages = _parts(messages[0]), messages[1:]
    return system, [{"role": message.role, "parts": _parts(message)} for message in messages]


def answered(response: ChatResponse, finish_reason: str) -> Part:
    """One answer of the model: its thinking, its text, its calls."""
    parts: list[Part] = []
    if response.reasoning:
        parts.append({"type": "reasoning", "content": response.reasoning})
    if response.text:
        parts.append({"type": "text", "content": response.text})
    parts += map(_call, response.tool_calls)
    if response.blocks is not None:
        parts += _media_within(response.blocks.items)
    return {"role": "assistant", "parts": parts, "finish_reason": finish_reason}


def tools(request: Request) -> list[Part]:
    """The tools that were offered: functions whole, a provider's own by type and name."""
    known = {tool.name for tool in request.tools}
    found: list[Part] = [
        {"type": "function", "name": tool.name, "description": tool.description or None, "parameters": tool.parameters}
        for tool in request.tools
    ]
    offered = request.extra.get("tools")
    for raw in offered if isinstance(offered, list) else ():
        kind, name = _text(raw, "type"), _text(raw, "name")
        if kind and name not in known and kind != "function":
            found.append({"type": kind[:_KIND], "name": name or kind[:_KIND]})
    return found


def _parts(message: Message) -> list[Part]:
    content = message.content
    if message.role == "tool":
        result: Any = content if isinstance(content, str) else [part for raw in content if (part := _part(raw))]
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": result}]
    parts: list[Part] = []
    blocks = message.blocks.items if message.blocks is not None else ()
    if message.role == "assistant":
        parts += _thinking_within(blocks)
    if isinstance(content, str):
        parts += [{"type": "text", "content": content}] if content else []
        parts += _media_within(blocks)
    else:
        parts += [part for raw in content if (part := _part(raw))]
    parts += map(_call, message.tool_calls)
    return parts


def _call(call: ToolCall) -> Part:
    given = call.arguments if call.arguments is not None else call.arguments_raw
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": given}


def _part(raw: Mapping[str, Any]) -> Part | None:
    """One part of a message, in whatever wire's shape. Of what is not known, its kind alone."""
    thought = _thought(raw)
    if thought is not None:
        return {"type": "reasoning", "content": thought}
    said = _text(raw, "text") or _text(raw, "refusal")
    if said:
        return {"type": "text", "content": said}
    media = _media(raw)
    if media is not None:
        return media
    for name in ("json", "document"):  # Results of tools: Bedrock's and Cohere's.
        if isinstance(raw.get(name), Mapping):
            return {"type": "json", "content": raw[name]}
    inner = raw.get("guardContent")  # Bedrock's text that a guardrail looks at.
    if isinstance(inner, Mapping) and isinstance(inner.get("text"), Mapping):
        return {"type": "text", "content": _text(inner["text"], "text")}
    kind = _text(raw, "type") or next(iter(raw), "")
    return {"type": str(kind)[:_KIND]} if kind else None


def _thought(raw: Mapping[str, Any]) -> str | None:
    """The text of a part that is thinking; None where it is none. What is encrypted stays out."""
    if raw.get("thought") is True:
        return _text(raw, "text")
    shown = raw.get("reasoningContent")
    if isinstance(shown, Mapping):
        inner = shown.get("reasoningText")
        return _text(inner if isinstance(inner, Mapping) else shown, "text")
    thinking = raw.get("thinking")
    if isinstance(thinking, str):
        return thinking
    kind = raw.get("type")
    if kind in ("thinking", "reasoning", "redacted_thinking"):
        return "".join(_texts(thinking)) or "".join(_texts(raw.get("summary"))) or "".join(_texts(raw.get("content")))
    return None


def _texts(parts: Any) -> Iterator[str]:
    for part in parts if isinstance(parts, list | tuple) else ():
        yield part if isinstance(part, str) else _text(part, "text")


def _thinking_within(blocks: Iterable[Mapping[str, Any]]) -> list[Part]:
    """The thinking of an assistant's message, from its own blocks: our text of it has none."""
    found: list[Part] = []
    for block in blocks:
        said = _thought(block) or _text(block, "reasoning_content") or _text(block, "reasoning")
        if said:
            found.append({"type": "reasoning", "content": said})
    return found


def _media_within(blocks: Iterable[Mapping[str, Any]]) -> list[Part]:
    """The media of a message whose text is known: among its blocks, or in the content of its one block."""
    found: list[Part] = []
    for block in blocks:
        if isinstance(block.get("images"), list):  # Ollama's.
            found += [_blob("image", None, data) for data in block["images"] if isinstance(data, str | bytes)]
            continue
        inner = block.get("content")
        for part in inner if isinstance(inner, list) else (block,):
            if isinstance(part, Mapping) and _thought(part) is None and not _text(part, "text"):
                media = _media(part)
                found += [] if media is None else [media]
    return found


def _media(raw: Mapping[str, Any]) -> Part | None:
    """A placeholder for an image, a sound or a file; None for what is none of these."""
    kind = _text(raw, "type")
    if kind not in _MEDIA and _MEDIA.isdisjoint(raw):
        return None
    found = _located(raw, _DEPTH)
    if found is None:
        return None
    where, value, mime = found
    if isinstance(value, str) and value.startswith("data:"):
        where, mime = "data", value[5:].partition(",")[0].partition(";")[0] or mime
    mime = mime[:_KIND] if mime and "/" in mime else None  # Bedrock says "png"
    names = " ".join((kind, mime or "", *map(str, raw))).lower()
    modality = next((each for each in _MODALITIES if each in names), "document")
    if where == "data":
        return _blob(modality, mime, value)
    if where == "file":
        return {"type": "file", "mime_type": mime, "modality": modality, "file_id": value}
    return {"type": "uri", "mime_type": mime, "modality": modality, "uri": address(value)}


def _located(raw: Any, depth: int, mime: str | None = None) -> tuple[str, Any, str | None] | None:
    """Where a medium is: "data", "file" or "uri", what stands there, and its type where it says so."""
    if not isinstance(raw, Mapping) or not depth:
        return None
    mime = next((raw[name] for name in _TYPES if isinstance(raw.get(name), str)), mime)
    for where, names in (("file", _FILES), ("data", _DATA), ("uri", _ADDRESSES)):
        for name in names:
            value = raw.get(name)
            if isinstance(value, str | bytes) and value:
                return (
                    where,
                    value.decode("utf-8", "replace") if where != "data" and type(value) is bytes else value,
                    mime,
                )
    for value in raw.values():
        found = _located(value, depth - 1, mime)
        if found is not None:
            return found
    return None


def _blob(modality: str, mime: str | None, data: str | bytes) -> Part:
    """Data that was sent within the message: how much of it, never the data."""
    size = len(data) if isinstance(data, bytes) else len(data.partition(",")[2] or data) * 3 // 4
    return {"type": "blob", "mime_type": mime, "modality": modality, "content": "", "size": size}


def address(url: str) -> str:
    """An address without user, password, query and fragment: signed links hold keys there."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    try:
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        port = ""
    return urlunsplit((parts.scheme, host + port, parts.path, "", ""))


def _text(raw: Any, name: str) -> str:
    value = raw.get(name) if isinstance(raw, Mapping) else None
    return value if isinstance(value, str) else ""
