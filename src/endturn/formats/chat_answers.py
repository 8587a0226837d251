"""The choices of a chat completion that hold only a text and a stop reason.

Most choices are of this kind, and a response may have many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

PLAIN_MEMBERS: Final = frozenset({"role", "content"})
"""The members of a message, or a delta, that holds only text."""
USUAL_MEMBERS: Final = frozenset({"index", "message", "delta", "logprobs", "finish_reason"})
"""The members of a choice whose end has no other details than a reason."""
NO_REASON: Final = frozenset({"null", "None"})
"""Texts that some servers send in place of a stop reason that has not arrived."""
_BODY_CHOICE_MEMBERS: Final = USUAL_MEMBERS - {"delta"}
_EMPTY: Final[tuple[Any, ...]] = (None, "", [])
"""Values of the other members of a message that hold no content."""


def plain_answers(choices: Sequence[Any]) -> list[tuple[int, str, str]]:
    """List the choices of a body, up to the first that holds more than a text and a reason.

    Each as index, text, reason.
    """
    answers = []
    for position, choice in enumerate(choices):
        if (
            choice.__class__ is not dict
            or not choice.keys() <= _BODY_CHOICE_MEMBERS
            or choice.get("index") != position
        ):
            break
        message, raw = choice.get("message"), choice.get("finish_reason")
        if message.__class__ is not dict or raw.__class__ is not str or raw in NO_REASON:
            break
        content = message.get("content")
        if content.__class__ is not str or not (
            content.isascii() and raw.isascii() and raw.strip()
        ):
            break
        if not message.keys() <= PLAIN_MEMBERS and not _has_no_other_content(message):
            break
        answers.append((position, content, raw))
    return answers


def _has_no_other_content(message: dict[str, Any]) -> bool:
    return all(value in _EMPTY for name, value in message.items() if name not in PLAIN_MEMBERS)
