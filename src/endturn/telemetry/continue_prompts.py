"""Whether a message only asks the model to go on: as data/continue_prompts.txt says, or as a controller has asked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any, Final, NamedTuple

from endturn.formats import RequestSummary
from endturn.formats.history import only_text, results_of, role, text_of
from endturn.telemetry.open_span import remember

LONGEST: Final = 600
"""Characters. A longer message says more than "go on"."""

REMEMBERED: Final = 256
"""Texts that a controller asked to go on with, at most."""

_DOTS: Final = ".…。"
_WORD: Final = re.compile(r"[^\W\d]+(?:['’_-][^\W\d]+)*|\d+")
_EDGES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、"


class _Patterns(NamedTuple):
    errors: re.Pattern[str]
    unread: re.Pattern[str]
    asks: re.Pattern[str]
    words: frozenset[str]
    alone: frozenset[str]
    rest: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    found: dict[str, list[str]] = {}
    for line in files("endturn").joinpath("data/continue_prompts.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            section.append(line)
    return _Patterns(
        re.compile("|".join(found["errors"] + found["unread"]), re.IGNORECASE),
        re.compile("|".join(found["unread"]), re.IGNORECASE),
        re.compile(rf"\b(?:{'|'.join(found['verbs'])})\b|{'|'.join(found['phrases'])}"),
        frozenset(" ".join(found["words"]).split()),
        frozenset(" ".join(_WORD.findall(text)) for text in found["alone"]),
        re.compile("|".join(found["rest"])),
    )


class ContinuePrompts:
    """Knows a message that asks to go on: by the patterns, or because a controller of this process sent it as one."""

    def __init__(self) -> None:
        self._learnt: dict[bytes, None] = {}

    def learn(self, asked: RequestSummary) -> None:
        """The last message of this request asks to go on."""
        last = asked.history[asked.length - 1] if asked.length else None
        if role(last) == "user" and text_of(last).strip():
            remember(self._learnt, _digest(text_of(last)), None, most=REMEMBERED)

    def is_one(self, message: Any) -> bool:
        """Whether this is a user's message that only asks to go on."""
        return role(message) == "user" and only_text(message) and self.known(text_of(message))

    def known(self, text: str) -> bool:
        """Whether this text only asks to go on."""
        return len(text) <= LONGEST and (asks_to_go_on(text) or (bool(text.strip()) and _digest(text) in self._learnt))


def asks_to_go_on(text: str) -> bool:
    """Whether a text asks to go on and says nothing new."""
    if len(text) > LONGEST:
        return False
    folded = _folded(text)
    if not folded:
        said = text.strip()
        return said != "" and not said.strip(_DOTS)
    patterns = _patterns()
    folded = patterns.rest.sub("continue", folded)
    words = _WORD.findall(folded)
    is_known = patterns.words.issuperset(words)
    return (is_known and patterns.asks.search(folded) is not None) or " ".join(words) in patterns.alone


def is_call_refused(messages: Sequence[Any]) -> bool:
    """Whether these only say that a cut tool call, or a cut answer, could not be read or run."""
    results = [result for message in messages for result in results_of(message)]
    if results and all(role(message) == "tool" or results_of(message) for message in messages):
        return any(is_error or _patterns().errors.search(said[:LONGEST]) for said, is_error in results)
    (message, *more) = messages
    said = text_of(message) if role(message) == "user" and only_text(message) else ""
    return not more and len(said) <= LONGEST and _patterns().unread.search(said) is not None


def question_of(asked: RequestSummary) -> bytes | None:
    """The digest of the latest message of a call in which a user asks something; None where there is none."""
    for position in range(asked.length - 1, -1, -1):
        message = asked.history[position]
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not asks_to_go_on(text):
            return _digest(text)
    return None


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_EDGES)


def _digest(text: str) -> bytes:
    return blake2b(_folded(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
