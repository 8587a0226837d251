"""Tool calls and choices of a response while it arrives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from endturn.formats.call_arguments import arguments, is_json_object, is_plain_text
from endturn.formats.reading import member, text
from endturn.vocabulary import TEXT_TOOLS, Json, ToolCall, join_surrogates


@dataclass(slots=True)
class PartialCall:
    """A tool call that may get more pieces."""

    id: str
    name: str
    choice: int
    position: int
    pieces: list[str] = field(default_factory=list)
    size: int = 0
    """Characters of all argument pieces, including those that were not kept."""
    arguments_object: Json | None = None
    has_arguments: bool = False
    closed: bool = False
    builtin: bool = False
    free_text: bool = False

    def is_complete(self) -> bool:
        """Return whether the arguments are complete: a JSON object, or nothing."""
        if self.builtin or self.free_text or not self.pieces:
            return True
        # Pieces win over an object: a block's start has an empty object in their place.
        raw = "".join(self.pieces).strip()
        return not raw or is_json_object(raw) or (self.name in TEXT_TOOLS and is_plain_text(raw))

    def tool_call(self, replacement: str) -> ToolCall:
        """Return the call so far.

        Args:
            replacement: stands for half a character at the end of its arguments; empty if there is
                none.
        """
        raw = "".join(self.pieces) + replacement
        return ToolCall(
            id=self.id,
            name=self.name,
            arguments_raw=raw or ("" if self.pieces and self.arguments_object is None else None),
            arguments=arguments(raw) if raw else self.arguments_object,
            closed=self.closed,
        )


@dataclass(slots=True)
class PartialChoice:
    """One of several answers: its stop reason, and facts on its content."""

    raw: str | None = None
    native: str | None = None
    detail: str | None = None
    has_resumed: bool = False  # content arrived after a reason
    has_content: bool = False
    is_refused: bool = False
    last_call: PartialCall | None = None


_UNSPLIT_MEMBERS: Final = ("type", "id", "name", "format")
"""Members whose text comes complete with each piece."""


def merge_pieces(pieces: Sequence[Mapping[str, Any]]) -> Json:
    """Merge the pieces of one object.

    Texts and lists are concatenated, objects merged; of other values the last counts.
    """
    columns: dict[str, list[Any]] = {}
    for piece in pieces:
        for name, value in piece.items():
            column = columns.setdefault(name, [])
            if value is not None:
                column.append(value)
    merged: Json = {}
    for name, column in columns.items():
        values = column or [None]
        if (
            len(values) > 1
            and all(isinstance(value, str) for value in values)
            and name not in _UNSPLIT_MEMBERS
        ):
            merged[name] = join_surrogates("".join(values))
        elif len(values) > 1 and all(isinstance(value, list) for value in values):
            merged[name] = [*chain.from_iterable(values)]
        elif len(values) > 1 and all(isinstance(value, Mapping) for value in values):
            merged[name] = merge_pieces(values)
        else:
            merged[name] = values[-1]
    return merged


_PIECE_KINDS: Final = ("text", "thinking", "refusal", "summary", "data")
"""The members of a part or an entry that arrive in pieces."""
_IDENTITY_MEMBERS: Final = ("type", "index", "id", "signature")
"""The members that say which entry a piece belongs to."""


def merge_entries(pieces: Iterable[Any]) -> list[Any]:
    """Merge the pieces of a list's entries: a content's parts, OpenRouter's reasoning details."""
    entries: list[list[Any]] = []
    last: Json = {}  # the members of the entry so far that the next piece must match
    for piece in pieces:
        is_same_entry = bool(entries) and _continues_entry(last, piece)
        last = last if is_same_entry else {}
        last |= {
            name: value for name in _IDENTITY_MEMBERS if (value := member(piece, name)) is not None
        }
        if is_same_entry:
            entries[-1].append(piece)
        else:
            entries.append([piece])
    return [merge_pieces(entry) if len(entry) > 1 else entry[0] for entry in entries]


def _continues_entry(last: Any, piece: Any) -> bool:
    """Return whether a piece belongs to the entry before it.

    A signature ends an entry: a provider refuses it with any other text.
    """
    kind, id_ = text(member(piece, "type")), member(piece, "id")
    has_words = kind in _PIECE_KINDS or kind.startswith("reasoning.")
    is_same_entry = all(member(last, name) == member(piece, name) for name in ("type", "index"))
    is_same_entry = is_same_entry and (id_ is None or member(last, "id") in (None, id_))
    # Encrypted data can be matched to its entry by index alone.
    is_separate = member(last, "signature") or (
        member(piece, "data") and member(piece, "index") is None
    )
    return has_words and is_same_entry and not is_separate
