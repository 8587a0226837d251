"""The parts of a message's content in any format's shape: texts, thinking, media."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from endturn.formats.reading import text
from endturn.vocabulary import Message

_THINKING_MEMBERS: Final = ("thinking", "reasoningContent", "reasoning_content", "reasoning")
_THINKING_TYPES: Final = ("thinking", "reasoning", "redacted_thinking")
_TEXT_MEMBERS: Final = ("text", "refusal", "guardContent", "citationsContent")
"""Members that hold a text. The last two are Bedrock's: text for a guardrail, and text with
citations."""
_RESULT_MEMBERS: Final = ("json", "document")
"""Members that hold a tool's result: Bedrock's and Cohere's."""
_MODALITIES: Final = ("image", "audio", "video")
_MEDIA_WORDS: Final = (*_MODALITIES, "document", "file", "media", "inlinedata", "inline_data")
"""Words in the names of the kinds of part that are media."""
_MEDIA_MEMBERS: Final = {
    "file": ("file_id", "fileId"),
    "blob": ("data", "bytes", "file_data", "b64_json"),
    "uri": (
        "url",
        "uri",
        "fileUri",
        "file_uri",
        "file_url",
        "image_url",
        "audio_url",
        "video_url",
        "document_url",
    ),
}
"""The conventions' kinds of part for media → the members that hold the medium."""
_MIME_TYPE_MEMBERS: Final = ("media_type", "mime_type", "mimeType", "format")


_PART_TYPES: Final = frozenset(
    {"text", "input_text", "output_text", "image", "image_url", "input_image", "document", "file",
     "input_file", "input_audio", "search_result", "tool_reference"}
)  # fmt: skip
"""Types of content parts in the formats that have types: chat, Responses, Anthropic."""
_PART_MEMBERS: Final = frozenset(
    {
        "text",
        "json",
        "image",
        "document",
        "video",
        "searchResult",
        "inlineData",
        "inline_data",
        "fileData",
        "file_data",
    }
)
"""The one member of a content part in the formats that do not: Converse, Gemini."""


def is_part(value: object) -> bool:
    """Return whether a value is a content part of some format; any other object is data."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return False
    return value.get("type") in _PART_TYPES or (
        len(value) == 1 and not _PART_MEMBERS.isdisjoint(value)
    )


class Medium(NamedTuple):
    """An image, a sound or a file.

    Attributes:
        kind: the conventions' kind of part: "blob" where its data are in it, "uri", or "file" for
            an id.
        value: the data, the address or the id.
        mime_type: the part's own; "" if it has none.
        modality: "image", "audio", "video" or "document".
    """

    kind: str
    value: str | bytes
    mime_type: str
    modality: str


def medium(raw: Mapping[str, Any]) -> Medium | None:
    """Return a part as an image, sound or file; None if it is none of these."""
    names = " ".join((text(raw.get("type")), *map(str, raw))).lower()
    members = dict(_members(raw)) if any(word in names for word in _MEDIA_WORDS) else {}
    entry = next(
        (
            (kind, members[name])
            for kind, places in _MEDIA_MEMBERS.items()
            for name in places
            if name in members
        ),
        None,
    )
    if entry is None:
        return None
    kind, value = entry
    mime = next((str(members[name]) for name in _MIME_TYPE_MEMBERS if name in members), "")
    if isinstance(value, str) and value.startswith("data:"):
        kind, mime = "blob", re.split("[;,]", value[5:], maxsplit=1)[0] or mime
    modality = next((word for word in _MODALITIES if word in names + mime), "document")
    return Medium(kind, value, mime, modality)


def visible_text(raw: Mapping[str, Any]) -> str:
    """Return the visible text of a part."""
    return next(filter(None, (_text_in(raw.get(name)) for name in _TEXT_MEMBERS)), "")


def result_object(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the object in a part of a tool result; None if there is none."""
    return next((raw[name] for name in _RESULT_MEMBERS if isinstance(raw.get(name), Mapping)), None)


def message_parts(message: Message) -> Iterator[Mapping[str, Any]]:
    """Yield the parts that may be media: a message's blocks, or the content of its one block."""
    for block in () if message.blocks is None else message.blocks.items:
        images, content = block.get("images"), block.get("content")
        if isinstance(images, list):  # Ollama's
            yield from ({"image": {"data": data}} for data in images)
        else:
            yield from content if isinstance(content, list) else (block,)


def thinking_text(raw: Mapping[str, Any]) -> str | None:
    """Return the text of a part with thinking; None if it has none. Encrypted text is left out."""
    if raw.get("thought") is True:
        return _text_in(raw)
    is_thought = raw.get("type") in _THINKING_TYPES or "reasoningContent" in raw
    names = (*_THINKING_MEMBERS, "summary", "content") if is_thought else _THINKING_MEMBERS
    return next(
        (words for name in names if (words := _text_in(raw.get(name)))), "" if is_thought else None
    )


def _text_in(value: Any) -> str:
    """Return the text of a string, of a part, or of a list of parts."""
    if isinstance(value, Mapping):
        return _text_in(value.get("text") or value.get("reasoningText") or value.get("content"))
    if isinstance(value, list | tuple):
        return "".join(map(_text_in, value))
    return value if isinstance(value, str) else ""


def _members(raw: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, str | bytes]]:
    """Yield the texts and bytes in an object, and in the objects within it."""
    for name, value in raw.items():
        if isinstance(value, Mapping) and depth:
            yield from _members(value, depth - 1)
        elif isinstance(value, str | bytes) and value:
            yield name, value
