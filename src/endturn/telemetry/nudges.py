"""Whether a message only says "go on", and which message a call answers, such messages left out."""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Final

from endturn.telemetry.said import only_text, role, text_of
from endturn.wires import Asked

NUDGE_CHARS: Final = 600
"""Longer than this, a message says more than "go on"."""

REMEMBERED: Final = 256
"""Texts that a controller nudged with, at most."""

GOING_ON: Final = re.compile(
    r"\b(?:continu(?:e|ing)|resume|go on|keep going|carry on|pick up|proceed|finish|complete)\b"
    r"|weiter|fahre fort|continúa|continuez|continua|继续|続けて|계속"
)
"""What asks to go on: a nudge has it."""

WORDS: Final = frozenset(  # a list of words reads better as text
    """
    continue continuing resume go going on keep carry pick up proceed finish complete generating writing
    please ok okay yes sorry now directly exactly immediately right just only seamlessly again still
    response answer output message reply text generation completion content part rest remainder remaining thought
    previous prior last above earlier so far already sent written said generated
    was were got has have been is are hit reached exceeded ran out of due because by at and or to with without if
    cut off short truncated truncation interrupted incomplete stopped ended too long left
    limit limits token tokens max maximum max_tokens maximum_tokens length budget finish_reason
    from where there here it its the a an this that any no not do don't your you my i in into for mid mid-thought
    happened already-sent anything nothing everything repeat repeating restart start over begin beginning
    apology apologies recap summary preamble explanation what doing
    point place character word sentence line system user
    intended tool call calls emit one payload break work smaller pieces
    weiter mach fahre fort continúa continuez continua 继续 请继续 続けて 続けてください 계속 계속해 주세요
    """.split()  # noqa: SIM905
)
"""All that a nudge says besides. A word that is not here says something new: "Continue the story with a dragon" is a
new request, and a turn that it ends was left."""

_WORD: Final = re.compile(r"[^\W\d]+(?:['’_-][^\W\d]+)*|\d+")
_EDGES: Final = " .!…:;\"'`*_-–—()[]<>/"


class Nudges:
    """Knows a nudge: by the declared patterns, or because a controller of this process sent the same text as one."""

    def __init__(self) -> None:
        self._learnt: OrderedDict[bytes, None] = OrderedDict()

    def learn(self, asked: Asked) -> None:
        """The last message of this request is a nudge."""
        if asked.length:
            last = asked.history[asked.length - 1]
            if role(last) == "user":
                self._learnt[_mark(_folded(text_of(last)))] = None
                if len(self._learnt) > REMEMBERED:
                    self._learnt.popitem(last=False)

    def is_one(self, message: Any) -> bool:
        """Whether this is a user's message that only asks to go on."""
        return role(message) == "user" and only_text(message) and self.known(text_of(message))

    def known(self, text: str) -> bool:
        """Whether this text only asks to go on."""
        if not text.strip() or len(text) > NUDGE_CHARS:
            return False
        return is_nudge(text) or _mark(_folded(text)) in self._learnt


def is_nudge(text: str) -> bool:
    """Whether a text asks to go on and says nothing new."""
    folded = _folded(text[: NUDGE_CHARS + 1])
    return len(text) <= NUDGE_CHARS and GOING_ON.search(folded) is not None and WORDS.issuperset(_WORD.findall(folded))


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_EDGES)


def _mark(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def question_of(asked: Asked) -> bytes | None:
    """What marks the latest message of a call that a user wrote, nudges left out; None where there is none."""
    for position in range(asked.length - 1, -1, -1):
        message = asked.history[position]
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not is_nudge(text):
            return _mark(_folded(text))
    return None
