"""The parts of a message's content, in whatever format's shape: texts, thinking, media."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from endturn.formats.reading import text
from endturn.vocabulary import Message

_THOUGHTS: Final = ("thinking", "reasoningContent", "reasoning_content", "reasoning")
_THOUGHT_KINDS: Final = ("thinking", "reasoning", "redacted_thinking")
_TEXTS: Final = ("text", "refusal", "guardContent", "citationsContent")
"""Members that hold a text. The last two are Bedrock's: what a guardrail looks at, and text with
its sources."""
_OBJECTS: Final = ("json", "document")
"""Members that hold a tool's result: Bedrock's and Cohere's."""
_MODALITIES: Final = ("image", "audio", "video")
_MEDIA: Final = (*_MODALITIES, "document", "file", "media", "inlinedata", "inline_data")
"""Words in the names of the kinds of part that are media."""
_PLACES: Final = {
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
"""Where a medium is: the conventions' kinds of part, and the members that hold it."""
_TYPES: Final = ("media_type", "mime_type", "mimeType", "format")


_PART_TYPES: Final = frozenset(
    {"text", "input_text", "output_text", "image", "image_url", "input_image", "document", "file",
     "input_file", "input_audio", "search_result", "tool_reference"}
)  # fmt: skip
"""What content parts call themselves in the formats that name them: chat, Responses, Anthropic."""
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
    """Whether this is a content part of some format; any other object is data."""
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
        mime_type: as the part says it; "" where it does not.
        modality: "image", "audio", "video" or "document".
    """

    kind: str
    value: str | bytes
    mime_type: str
    modality: str


def medium(raw: Mapping[str, Any]) -> Medium | None:
    """The image, sound or file that a part is; None for what is none of these."""
    names = " ".join((text(raw.get("type")), *map(str, raw))).lower()
    told = dict(_members(raw)) if any(word in names for word in _MEDIA) else {}
    found = next(
        ((kind, told[name]) for kind, places in _PLACES.items() for name in places if name in told),
        None,
    )
    if found is None:
        return None
    kind, value = found
    mime = next((str(told[name]) for name in _TYPES if name in told), "")
    if isinstance(value, str) and value.startswith("data:"):
        kind, mime = "blob", re.split("[;,]", value[5:], maxsplit=1)[0] or mime
    modality = next((each for each in _MODALITIES if each in names + mime), "document")
    return Medium(kind, value, mime, modality)


def said(raw: Mapping[str, Any]) -> str:
    """The visible text of a part."""
    return next(filter(None, (_words(raw.get(name)) for name in _TEXTS)), "")


def result(raw: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that a part of a tool's result is."""
    return next((raw[name] for name in _OBJECTS if isinstance(raw.get(name), Mapping)), None)


def within(message: Message) -> Iterator[Mapping[str, Any]]:
    """The parts that may be media: a message's blocks, or what its one block holds."""
    for block in () if message.blocks is None else message.blocks.items:
        images, content = block.get("images"), block.get("content")
        if isinstance(images, list):  # Ollama's
            yield from ({"image": {"data": data}} for data in images)
        else:
            yield from content if isinstance(content, list) else (block,)


def thought(raw: Mapping[str, Any]) -> str | None:
    """The text of a part that is thinking; None where it is none. What is encrypted stays out."""
    if raw.get("thought") is True:
        return _words(raw)
    is_thought = raw.get("type") in _THOUGHT_KINDS or "reasoningContent" in raw
    names = (*_THOUGHTS, "summary", "content") if is_thought else _THOUGHTS
    return next(
        (said for name in names if (said := _words(raw.get(name)))), "" if is_thought else None
    )


def _words(value: Any) -> str:
    """The text of a string, of a part, or of a list of parts."""
    if isinstance(value, Mapping):
        return _words(value.get("text") or value.get("reasoningText") or value.get("content"))
    if isinstance(value, list | tuple):
        return "".join(map(_words, value))
    return value if isinstance(value, str) else ""


def _members(raw: Mapping[str, Any], depth: int = 3) -> Iterator[tuple[str, str | bytes]]:
    """The texts and bytes in an object, and in the objects within it."""
    for name, value in raw.items():
        if isinstance(value, Mapping) and depth:
            yield from _members(value, depth - 1)
        elif isinstance(value, str | bytes) and value:
            yield name, value
