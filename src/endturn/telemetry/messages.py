"""Captured content in the message schemas of the GenAI conventions.

Each text is redacted and then shortened, and the total size is limited.

The schemas are those of semantic-conventions-genai (`model/gen-ai/gen-ai-*-messages.json`, read
2026-11). Media are placeholders: their bytes are never copied, and the parts of an address that may
hold a key are removed. Of an unknown kind of part only the kind is recorded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit, urlunsplit

from endturn.formats import content_parts, text
from endturn.telemetry import schema
from endturn.vocabulary import ChatResponse, Message, Tool, ToolCall, sanitize_reason

Part = dict[str, Any]
Item = TypeVar("Item")

TEXTS: Final = 8
"""The number of texts of maximum length that fit into one attribute."""

_OVERHEAD: Final = 8
"""Characters that each item counts besides its text: a million empty strings are not small."""
_DEPTH: Final = 32
_KIND: Final = 64
"""Maximum length of the name of a part's kind, or of a media type."""

_HOST: Final = re.compile(r"(\[.*\]|[^:]*)(:\d+)?")


class RedactionFailed(Exception):
    """The host's redaction raised, or returned no text; see the cause."""


class MessageWriter:
    """Writes messages into attributes of limited size.

    Args:
        longest: maximum number of characters of one text.
        redact: the host's redaction.

    Attributes:
        is_incomplete: a part of the content was left out.
    """

    def __init__(self, longest: int, redact: Callable[[str], str] | None) -> None:
        self.is_incomplete = False
        self._longest = longest
        self._left = 0
        self._redact = redact

    def attribute(self, write: Callable[[Item], Part | None], items: Iterable[Item]) -> list[Part]:
        """Return the value of one attribute: the first items, as many as fit.

        Raises:
            RedactionFailed: nothing may be recorded.
        """
        self._left = self._longest * TEXTS
        return self._all(write, items)

    def message(self, message: Message) -> Part:
        """Write a message of a conversation."""
        content = message.content
        if message.role == "tool":
            result = (
                self._value(content) if isinstance(content, str) else self._all(self.part, content)
            )
            parts = [
                {**self._typed("tool_call_response", id=message.tool_call_id), "response": result}
            ]
        else:
            blocks = (
                message.blocks.items
                if message.blocks is not None and message.role == "assistant"
                else ()
            )
            parts = self._parts(
                message,
                *(thought for block in blocks if (thought := content_parts.thinking_text(block))),
            )
        return {"role": message.role, "parts": parts}

    def answer(self, response: ChatResponse) -> Part:
        """Write a response."""
        parts = self._parts(response.message(include_cut=True), response.reasoning or "")
        reason = schema.finish_reason(
            response.stop.reason, sanitize_reason(response.stop.raw or "")
        )
        return {"role": "assistant", "parts": parts, "finish_reason": reason}

    def tool(self, tool: Tool | Mapping[str, str]) -> Part:
        """Write a tool of the request: a function completely, a provider's by type and name."""
        if isinstance(tool, Mapping):
            return self._typed(tool["type"][:_KIND], name=tool["name"])
        about = tool.description or None
        return self._typed(
            "function", name=tool.name, description=about, parameters=tool.parameters
        )

    def part(self, raw: Mapping[str, Any]) -> Part | None:
        """Write a part of a message, in the shape of any format."""
        if (thought := content_parts.thinking_text(raw)) is not None:
            return self._typed("reasoning", content=thought)
        if visible := content_parts.visible_text(raw):
            return self._typed("text", content=visible)
        if media := self._media(raw):
            return media
        if (result := content_parts.result_object(raw)) is not None:
            return self._typed("json", content=result)
        kind = text(raw.get("type")) or str(next(iter(raw), ""))
        return {"type": kind[:_KIND]} if kind else None

    # --- Parts ---

    def _all(self, write: Callable[[Item], Part | None], items: Iterable[Item]) -> list[Part]:
        return [part for item in self._while_room(items) if (part := write(item)) is not None]

    def _parts(self, message: Message, *thoughts: str) -> list[Part]:
        """Write reasoning, text, media and tool calls.

        If the content is text, the media are in the format's own blocks.
        """
        content = message.content
        blocks = [{"text": content}] if isinstance(content, str) and content else content or ()
        parts = self._all(
            self.part, [*({"thinking": thought} for thought in thoughts if thought), *blocks]
        )
        if isinstance(content, str):
            parts += self._all(self._media, content_parts.message_parts(message))
        return parts + self._all(self._call, message.tool_calls)

    def _typed(self, kind: str, **members: Any) -> Part:
        return {"type": kind, **{name: self._value(value) for name, value in members.items()}}

    def _call(self, call: ToolCall) -> Part:
        arguments = call.arguments if call.arguments is not None else call.arguments_raw
        return self._typed("tool_call", id=call.id, name=call.name, arguments=arguments)

    def _media(self, raw: Mapping[str, Any]) -> Part | None:
        """Write a placeholder for an image, a sound or a file; None for another part."""
        medium = content_parts.medium(raw)
        if medium is None:
            return None
        kind, value, mime, modality = medium
        # Bedrock has "png" instead of a media type.
        about = {"mime_type": mime[:_KIND] if "/" in mime else None, "modality": modality}
        if kind == "blob":  # the size, never the data
            size = (
                len(value) if isinstance(value, bytes) else len(value.rpartition(",")[2]) * 3 // 4
            )
            return self._typed(kind, **about, content="", size=size)
        location = {"uri": address(str(value))} if kind == "uri" else {"file_id": str(value)}
        return self._typed(kind, **about, **location)

    # --- Texts and values ---

    def _while_room(self, items: Iterable[Item]) -> Iterator[Item]:
        for item in items:
            if self._left <= 0:
                self.is_incomplete = True
                return
            self._left -= _OVERHEAD
            yield item

    def _value(self, value: Any, depth: int = _DEPTH) -> Any:
        """Write a value of the host or the model as JSON."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, int | float):
            # A number that no exporter can send, or JSON does not have, becomes text.
            readable = self.text(str(value))
            return value if readable == str(value) and abs(value) < 1 << 63 else readable
        if isinstance(value, Mapping) and depth:
            pairs = self._while_room(value.items())
            return {self.text(str(key)): self._value(inner, depth - 1) for key, inner in pairs}
        if isinstance(value, list | tuple) and depth:
            return [self._value(inner, depth - 1) for inner in self._while_room(value)]
        self.is_incomplete = True  # Too deep, or a type that JSON does not have, such as bytes.
        return None

    def text(self, text: str) -> str:
        """Redact and then shorten a text: a redaction would not recognise half of a secret."""
        try:
            readable = text if self._redact is None else self._redact(text)
            # No exporter can send characters that UTF-8 does not have.
            readable = readable.encode("utf-8", "replace").decode()
        except (Exception, SystemExit) as error:
            raise RedactionFailed from error
        room = max(0, min(self._longest, self._left))
        if len(readable) > room:
            self.is_incomplete = True
            readable = f"{readable[:room]}… [{len(readable) - room:,} more characters]"
        self._left -= len(readable)
        return readable


def address(url: str) -> str:
    """Return a URL without user, password, query and fragment, where signed links hold keys."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    host = _HOST.match(parts.netloc.rpartition("@")[2])
    return urlunsplit((parts.scheme, host[0] if host else "", parts.path, "", ""))
