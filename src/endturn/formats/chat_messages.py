"""Messages as OpenAI's chat format has them, and everybody who took it over: put together, written, sent back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from endturn.chat import Json, Message
from endturn.formats.fold import joined
from endturn.formats.reading import items, member, text


def without_lost_calls(message: Message, block: Json) -> Json:
    """A message as its provider wrote it, but for calls that were taken out of the history since.

    Of calls without an id, which older servers and SDKs of Ollama's write, nothing tells that they were.
    """
    kept = {"", *(call.id for call in message.tool_calls)}
    calls = [call for call in items(block.get("tool_calls")) if text(member(call, "id")) in kept]
    rest = {name: value for name, value in block.items() if name != "tool_calls"}
    return {**rest, "tool_calls": calls} if calls else rest


_WORDS: Final = ("text", "thinking", "refusal", "summary", "data")
"""The members of a part or an entry that arrive in pieces."""


def joined_entries(pieces: Iterable[Any]) -> list[Any]:
    """The entries of a list that a stream sends in pieces: the parts of a content, OpenRouter's reasoning details."""
    entries: list[Any] = []
    for piece in pieces:
        if entries and _goes_on(entries[-1], piece):
            entries[-1] = joined((entries[-1], piece))
        else:
            entries.append(piece)
    return entries


def _goes_on(last: Any, piece: Any) -> bool:
    """Whether a piece belongs to the entry before it. A signature ends one: a provider refuses it beside other text."""
    kind, ids = text(member(piece, "type")), {member(last, "id"), member(piece, "id")} - {None}
    has_words = kind in _WORDS or kind.startswith("reasoning.")
    alike = all(member(last, name) == member(piece, name) for name in ("type", "index")) and len(ids) < 2
    # Encrypted data says nothing of what it belongs to but its index.
    alone = member(last, "signature") or (member(piece, "data") and member(piece, "index") is None)
    return has_words and alike and not alone
