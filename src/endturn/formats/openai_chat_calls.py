"""The calls of a chat response while they arrive: which of them a fragment goes on with, and which it repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from endturn.chat import Json
from endturn.formats.reading import Nesting


class Call:
    """One call while it arrives."""

    __slots__ = ("again", "begun", "extra", "id", "index", "name", "nesting", "pieces", "position", "shape")

    def __init__(self, position: int, index: Any, shape: str) -> None:
        self.position = position
        self.index = index
        self.shape = shape
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.begun = False
        self.extra: Json = {}
        # Of a call that came without an id, what tells it from the next: where its arguments stand, and whether it was
        # named again after they were whole.
        self.nesting: Nesting | None = None
        self.again = False


def find(
    calls: Sequence[Call], last: Call | None, index: Any, id_: str, name: str, shape: str, piece: str
) -> Call | None:
    """The call that a fragment of a stream goes on with; None where it begins one.

    Gemini's and other servers' chat endpoints give every parallel call the same index, or none: there a new id with a
    name begins a new call. A new id alone does not: some servers mint one for every chunk. Without any id, another name
    begins one. The same name does only with a second object of arguments: some servers name the call in every chunk.
    """
    if shape == "function_call" or index is None:
        if last is None or last.shape != shape or (shape == "tool_calls" and name and not _same(last, id_, name)):
            return None
        return last
    same = [call for call in calls if call.index == index and call.shape == shape]
    if not same:
        return None
    if id_ and name and all(call.id != id_ for call in same):
        return None
    found = next((call for call in same if call.id == id_), same[-1])
    return None if not id_ and _anew(found, name, piece) else found


def _same(last: Call, id_: str, name: str) -> bool:
    """Whether a named fragment without an index goes on with the last call: by its id, or in the midst of an object."""
    nesting = last.nesting
    midst = nesting is not None and nesting.begun and not nesting.over
    return id_ == last.id or (not id_ and name == last.name and midst)


def _anew(call: Call, name: str, piece: str) -> bool:
    """Whether a fragment without an id begins another call although it stands where this one does."""
    if name and call.name and name != call.name:
        return True
    whole = call.nesting is not None and call.nesting.over
    return whole and (name != "" or call.again) and piece.lstrip().startswith("{")


def repeated(calls: Sequence[Call], position: int, id_: str, name: str, shape: str) -> Call | None:
    """The call of a stream that the one at this position of a whole message says again; None where it is a new one."""
    if id_:
        known = next((call for call in calls if call.id == id_), None)
        if known is not None:
            return known
    here = calls[position] if position < len(calls) else None
    # Of a call that had an id in the stream, another id is another call.
    again = (
        here is not None and here.shape == shape and name in ("", here.name) and (not id_ or here.nesting is not None)
    )
    return here if again else None
