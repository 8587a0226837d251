"""How a history is known again, in whatever format it is.

Digests of it, and messages that only ask to go on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from json import JSONEncoder
from typing import Any, Final

from endturn.formats import (
    RequestSummary,
    ToolResult,
    body_of,
    canonical,
    canonical_message,
    items,
    json_fallback,
    only_text,
    own_result,
    results_of,
    role,
    text_of,
    tool_results,
)
from endturn.telemetry.cleanup import remember
from endturn.telemetry.continuation_requests import (
    LONGEST,
    QUOTED,
    SHORT,
    asks_to_go_on,
    comparable,
    pattern,
)

_TEXT: Final = {"role", "content"}
"""The members of most messages. Where the content is text, no more need be read to know what is
written."""

_json = JSONEncoder(sort_keys=True, default=json_fallback).encode


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a history.

    Attributes:
        length: how many messages it has; a user's that is repeated right away counts once.
        digest: their hash.
        end: where it ends in the history as the host wrote it.
    """

    length: int
    digest: bytes
    end: int


def prefixes(
    request: RequestSummary, lengths: Collection[int], *, bare: bool = False
) -> list[Prefix]:
    """Hash the beginnings of a history that have these lengths, in one pass.

    With `bare`, of what is left of them without system prompts, which many hosts write anew for
    each call: the time is in it. Only where there are any, and anything besides.

    What hosts change from call to call without changing what is said does not count: cache marks,
    the ids that a server gave, whether a text stands alone, in an object or in a list of one part,
    and whether a user's message is there twice. What a server keeps, which a call only names,
    counts by its name.
    """
    return _hashed(request, frozenset(lengths), bare=bare)


def full_prefix(request: RequestSummary, *, bare: bool = False) -> list[Prefix]:
    """Hash a whole history as `prefixes` does its beginnings.

    The one, or none where there is nothing to hash.
    """
    return _hashed(request, None, bare=bare)[-1:]


def _hashed(
    request: RequestSummary, lengths: Collection[int] | None, *, bare: bool
) -> list[Prefix]:
    longest = request.length if lengths is None else max(lengths)
    history = request.history[: min(request.length, 2 * longest)]  # each message may be there twice
    is_system = [bare and role(message) == "system" for message in history]
    if bare and request.system is None and not any(is_system):
        return []
    state = blake2b(digest_size=16, person=b"bare" if bare else b"")
    state.update(
        _written(
            [
                None if bare else request.system,
                request.facts.previous_response_id,
                request.conversation_id,
            ]
        )
    )
    prefixes_by_length: dict[int, Prefix] = {}
    instructed, has_message, length, before = request.system is not None, False, 0, b""
    for place, message in enumerate(history):
        if is_system[place]:
            instructed, before = True, b""
            length += 1
        else:
            has_message = True
            is_text = (
                message.__class__ is dict
                and message.keys() == _TEXT
                and message["content"].__class__ is str
            )
            encoded = _written(
                [role(message), message["content"]] if is_text else canonical_message(message)
            )
            if encoded != before or role(message) != "user":
                state.update(encoded)
                length += 1
            before = encoded
        is_wanted = place + 1 == len(history) if lengths is None else length in lengths
        if is_wanted and (not bare or (instructed and has_message)):
            prefixes_by_length[length] = Prefix(length, state.copy().digest(), place + 1)
        if length > longest:
            break
    return list(prefixes_by_length.values())


def _written(value: Any) -> bytes:
    """The same for the same, whoever wrote it."""
    match value:
        # Who speaks, and the text; or what comes before the history. Both are usual, and this is
        # ten times as fast.
        case [str(), str()] | [str() | None, str() | None, str() | None]:
            return repr(value).encode("utf-8", "surrogatepass")
        case _:
            return _json(canonical(value)).encode()


# --- Messages that ask to go on: as continuation_requests recognises them, or as a controller has a

REMEMBERED: Final = 256
"""Texts that a controller asked to go on with, at most."""

MOST_MESSAGES: Final = 3
"""In which a host may ask: it says in one that there was a cut, and in another to go on."""

_LINES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、"


class ContinuePrompts:
    """Knows a message that asks to go on.

    By the patterns, or because a controller of this process sent it as one.
    """

    def __init__(self) -> None:
        self._learnt: OrderedDict[bytes, None] = OrderedDict()

    def learn(self, request: RequestSummary) -> None:
        """The last message of this request asks to go on."""
        last = request.history[request.length - 1] if request.length else None
        if role(last) == "user" and text_of(last).strip():
            remember(self._learnt, _digest(text_of(last)), None, most=REMEMBERED)

    def ask(self, messages: Sequence[Any], tail: str = "") -> bool:
        """Return whether these messages, after a truncated answer, ask only for the rest of it.

        Args:
            tail: the last visible characters of the answer.
        """
        if not 0 < len(messages) <= MOST_MESSAGES:
            return False
        if any(
            role(message) not in ("user", "system") or not only_text(message)
            for message in messages
        ):
            return False
        return all(self._asks(text_of(message), tail) for message in messages)

    def _asks(self, text: str, tail: str) -> bool:
        is_learnt = len(text) <= LONGEST and text.strip() != "" and _digest(text) in self._learnt
        return is_learnt or asks_to_go_on(text, tail)


def is_call_refused(messages: Sequence[Any], tail: str = "") -> bool:
    """Tell whether these only say that a cut tool call, or a cut answer, could not be read or run.

    Args:
        tail: the last visible characters of the answer, comparable: a long message has to quote
            them.
    """
    results = [result for message in messages for result in results_of(message)]
    if results and all(role(message) == "tool" or results_of(message) for message in messages):
        says_error = pattern("errors", "unread").search
        return any(is_error or says_error(text[:SHORT]) for text, is_error in results)
    (message, *more) = messages
    text = text_of(message) if role(message) == "user" and only_text(message) else ""
    if more or pattern("unread").search(text[:SHORT]) is None:
        return False
    return len(text) <= SHORT or (len(tail) >= QUOTED and tail in comparable(text))


_ENDS: Final = 256
"""Characters at either end of a text by which it is known again."""


Brief = tuple[int, str, tuple[ToolResult, ...]]
"""The hash of a message by its role, its text and the tool results that it holds; the role; and
these results."""


def brief_at(request: RequestSummary, place: int) -> Brief:
    """Return the brief of a message, which is read once, whoever asks for it.

    It costs the same for any message.
    """
    brief: Brief | None = request.briefs.get(place)
    if brief is None:
        brief = request.briefs[place] = _brief(request.history[place])
    return brief


def _brief(message: Any) -> Brief:
    speaker, parts = role(message), 0
    results: tuple[ToolResult, ...] = ()
    text = message.get("content") if message.__class__ is dict else None
    if text.__class__ is not str:
        text = text_of(message)
        parts = 0 if text else len(items(body_of(message)))
        results = tuple(tool_results(message))
    elif speaker == "tool" or "type" in message:
        own = own_result(message, speaker)
        results = () if own is None else (own,)
    return hash((speaker, text_ends(text), parts, results)), speaker, results


def text_ends(text: str) -> tuple[int, str, str]:
    """Return by what a text is known again: its length and both ends."""
    return len(text), text[:_ENDS], text[-_ENDS:]


def endpoints_hash(request: RequestSummary, length: int) -> int | None:
    """Hash the first `length` messages by two of them.

    The first that is no system prompt, and the last.

    It costs the same for any history. Only this process can compute it again. None where there are
    not so many messages.
    """
    if not 0 < length <= request.length:
        return None
    first, last = request.briefs[_opening(request, length) or 0], brief_at(request, length - 1)
    return hash((length, first[0], last[0]))


def opening_hash(request: RequestSummary) -> int | None:
    """Hash the text of the first message that is no system prompt.

    Histories that begin alike have the same.

    What `prefixes` leaves out does not count here either. None where there is no such message.
    """
    place = _opening(request, request.length)
    return None if place is None else hash(text_ends(text_of(request.history[place])))


def _opening(request: RequestSummary, length: int) -> int | None:
    """Find the first of so many messages that is no system prompt; None where all are.

    The messages up to it have briefs then.
    """
    for place in range(length):
        if brief_at(request, place)[1] != "system":
            return place
    return None


def question_of(request: RequestSummary) -> bytes | None:
    """The digest of the latest message of a call in which a user asks something.

    None where there is none.
    """
    for message in reversed(request.history[: request.length]):
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not asks_to_go_on(text):
            return _digest(text)
    return None


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_LINES)


def _digest(text: str) -> bytes:
    return blake2b(_folded(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
