"""Digests of a history, in whatever format it is."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from json import JSONEncoder
from typing import Any, Final

from endturn.formats import RequestSummary
from endturn.formats.history import canonical, role, spoken, unwritten

_TEXT: Final = {"role", "content"}
"""The members of most messages. Where the content is text, no more need be read to know what is spoken."""

_json = JSONEncoder(sort_keys=True, default=unwritten).encode


def digests(request: RequestSummary, lengths: Sequence[int], *, bare: bool = False) -> dict[int, bytes]:
    """The hash of the first messages of a history, for each of the lengths (ascending), in one pass.

    With `bare`, of what is left of them without system prompts, which many hosts write anew for each call: the time is
    in it. Only where there are any, and anything besides.

    What hosts change from call to call without changing what is said does not count: cache marks, the ids that a
    server gave, and whether a text stands alone, in an object or in a list of one part. What a server keeps, which a
    call only names, counts by its name.
    """
    history = request.history[: lengths[-1]]
    is_system = [bare and role(message) == "system" for message in history]
    if bare and request.system is None and not any(is_system):
        return {}
    state = blake2b(digest_size=16, person=b"bare" if bare else b"")
    state.update(_written([None if bare else request.system, request.previous_id, request.conversation_id]))
    found: dict[int, bytes] = {}
    instructed, heard, wanted = request.system is not None, False, frozenset(lengths)
    for place, message in enumerate(history):
        if is_system[place]:
            instructed = True
        else:
            heard = True
            is_text = message.__class__ is dict and message.keys() == _TEXT and message["content"].__class__ is str
            state.update(_written([role(message), message["content"]] if is_text else spoken(message)))
        if place + 1 in wanted and (not bare or (instructed and heard)):
            found[place + 1] = state.copy().digest()
    return found


def _written(value: Any) -> bytes:
    """The same for the same, whoever wrote it."""
    match value:
        # Who speaks, and the text; or what comes before the history. Both are usual, and this is ten times as fast.
        case [str(), str()] | [str() | None, str() | None, str() | None]:
            return repr(value).encode("utf-8", "surrogatepass")
        case _:
            return _json(canonical(value)).encode()
