"""How a history is known again, in whatever format it is: digests of it, and messages that only ask to go on."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from json import JSONEncoder
from typing import Any, Final

from endturn.formats import RequestSummary
from endturn.formats.history import canonical, only_text, results_of, role, spoken, text_of, unwritten
from endturn.tables import shipped
from endturn.telemetry.cleanup import remember

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


# --- Messages that only ask to go on: as data/continue_prompts.txt says, or as a controller has asked -----------------

LONGEST: Final = 600
"""Characters. A longer message says more than "go on"."""

REMEMBERED: Final = 256
"""Texts that a controller asked to go on with, at most."""

_DOTS: Final = ".…。"
_WORD: Final = re.compile(r"[^\W\d]+(?:['’_-][^\W\d]+)*|\d+")
_EDGES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、"


@cache
def _section(name: str) -> tuple[str, ...]:
    """The lines of one section of the file."""
    text = shipped().joinpath("continue_prompts.txt").read_text("utf-8")
    _, _, rest = text.partition(f"\n[{name}]\n")
    lines = rest.partition("\n[")[0].splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def _pattern(*sections: str, word: bool = False) -> re.Pattern[str]:
    """What matches any line of these sections, in any case of letters."""
    lines = "|".join(line for name in sections for line in _section(name))
    return re.compile(rf"\b(?:{lines})\b" if word else lines, re.IGNORECASE)


@cache
def _words() -> frozenset[str]:
    return frozenset(" ".join(_section("words")).split())


@cache
def _alone() -> frozenset[str]:
    return frozenset(" ".join(_WORD.findall(text)) for text in _section("alone"))


class ContinuePrompts:
    """Knows a message that asks to go on: by the patterns, or because a controller of this process sent it as one."""

    def __init__(self) -> None:
        self._learnt: OrderedDict[bytes, None] = OrderedDict()

    def learn(self, request: RequestSummary) -> None:
        """The last message of this request asks to go on."""
        last = request.history[request.length - 1] if request.length else None
        if role(last) == "user" and text_of(last).strip():
            remember(self._learnt, _digest(text_of(last)), None, most=REMEMBERED)

    def is_one(self, message: Any) -> bool:
        """Whether this is a user's message that only asks to go on."""
        text = text_of(message) if role(message) == "user" and only_text(message) else ""
        return asks_to_go_on(text) or (len(text.strip()) > 0 and len(text) <= LONGEST and _digest(text) in self._learnt)


def asks_to_go_on(text: str) -> bool:
    """Whether a text asks to go on and says nothing new."""
    if len(text) > LONGEST:
        return False
    folded = _folded(text)
    if not folded:
        return text.strip() != "" and not text.strip().strip(_DOTS)
    folded = _pattern("rest").sub("continue", folded)
    words = _WORD.findall(folded)
    is_asked = _pattern("verbs", word=True).search(folded) or _pattern("phrases").search(folded)
    return (is_asked is not None and _words().issuperset(words)) or " ".join(words) in _alone()


def is_call_refused(messages: Sequence[Any]) -> bool:
    """Whether these only say that a cut tool call, or a cut answer, could not be read or run."""
    results = [result for message in messages for result in results_of(message)]
    if results and all(role(message) == "tool" or results_of(message) for message in messages):
        says_error = _pattern("errors", "unread").search
        return any(is_error or says_error(text[:LONGEST]) for text, is_error in results)
    (message, *more) = messages
    text = text_of(message) if role(message) == "user" and only_text(message) else ""
    return not more and len(text) <= LONGEST and _pattern("unread").search(text) is not None


def question_of(request: RequestSummary) -> bytes | None:
    """The digest of the latest message of a call in which a user asks something; None where there is none."""
    for message in reversed(request.history[: request.length]):
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not asks_to_go_on(text):
            return _digest(text)
    return None


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_EDGES)


def _digest(text: str) -> bytes:
    return blake2b(_folded(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
