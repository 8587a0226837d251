"""Digests of histories in any format, and recognition of messages that only ask to continue."""

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
from endturn.telemetry.cleanup import put_bounded
from endturn.telemetry.continuation_requests import (
    LONGEST,
    QUOTED,
    SHORT,
    comparable_text,
    is_continue_prompt,
    pattern,
)

_TEXT: Final = {"role", "content"}
"""The members of most messages. If the content is text, the rest of the message need not be
read."""

_json = JSONEncoder(sort_keys=True, default=json_fallback).encode


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a history.

    Attributes:
        length: the number of messages; a user's message that is repeated at once counts once.
        digest: the hash of the messages.
        end: the index of its end in the host's history.
    """

    length: int
    digest: bytes
    end: int


def prefixes(
    request: RequestSummary, lengths: Collection[int], *, ignore_system: bool = False
) -> list[Prefix]:
    """Hash the prefixes of a history that have these lengths, in one pass.

    The hash ignores differences that hosts make from call to call without a change of the text:
    cache marks, server-side ids, a text alone, in an object or in a list of one part, and a user's
    message that is there twice. Content that a server keeps counts by the id that the call names.

    Args:
        request: the summary of the request.
        lengths: the numbers of messages.
        ignore_system: ignore system prompts, which often contain the current time. Returns [] if
            there is no system prompt or nothing else.
    """
    return _hashed(request, frozenset(lengths), ignore_system=ignore_system)


def full_prefix(request: RequestSummary, *, ignore_system: bool = False) -> list[Prefix]:
    """Hash a complete history as `prefixes` does.

    Returns:
        One prefix; none if there is nothing to hash.
    """
    return _hashed(request, None, ignore_system=ignore_system)[-1:]


def _hashed(
    request: RequestSummary, lengths: Collection[int] | None, *, ignore_system: bool
) -> list[Prefix]:
    longest = request.length if lengths is None else max(lengths)
    history = request.history[: min(request.length, 2 * longest)]  # each message may occur twice
    is_system = [ignore_system and role(message) == "system" for message in history]
    if ignore_system and request.system is None and not any(is_system):
        return []
    state = blake2b(digest_size=16, person=b"bare" if ignore_system else b"")
    state.update(
        _encode(
            [
                None if ignore_system else request.system,
                request.facts.previous_response_id,
                request.conversation_id,
            ]
        )
    )
    prefixes_by_length: dict[int, Prefix] = {}
    has_instructions, has_message, length, before = request.system is not None, False, 0, b""
    for place, message in enumerate(history):
        if is_system[place]:
            has_instructions, before = True, b""
            length += 1
        else:
            has_message = True
            is_text = (
                message.__class__ is dict
                and message.keys() == _TEXT
                and message["content"].__class__ is str
            )
            encoded = _encode(
                [role(message), message["content"]] if is_text else canonical_message(message)
            )
            if encoded != before or role(message) != "user":
                state.update(encoded)
                length += 1
            before = encoded
        has_length = place + 1 == len(history) if lengths is None else length in lengths
        if has_length and (not ignore_system or (has_instructions and has_message)):
            prefixes_by_length[length] = Prefix(length, state.copy().digest(), place + 1)
        if length > longest:
            break
    return list(prefixes_by_length.values())


def _encode(value: Any) -> bytes:
    """Encode a value to hash; equal content in different formats has equal bytes."""
    match value:
        # A role and a text, or the settings before the history. Both are frequent, and this is ten
        # times as fast as JSON.
        case [str(), str()] | [str() | None, str() | None, str() | None]:
            return repr(value).encode("utf-8", "surrogatepass")
        case _:
            return _json(canonical(value)).encode()


# --- Messages that ask to continue: recognised by continuation_requests, or sent by a controller --

MAX_LEARNED_PROMPTS: Final = 256
"""Maximum number of a controller's continue prompts that are remembered."""

MOST_MESSAGES: Final = 3
"""Maximum number of messages in which a host asks to continue: one may mention the truncation, and
another ask."""

_LINES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、"


class ContinuePrompts:
    """Recognises messages that ask to continue.

    By the patterns, or because a controller of this process sent them.
    """

    def __init__(self) -> None:
        self._learned_digests: OrderedDict[bytes, None] = OrderedDict()

    def learn(self, request: RequestSummary) -> None:
        """Remember the last message of a request as one that asks to continue."""
        last = request.history[request.length - 1] if request.length else None
        if role(last) == "user" and text_of(last).strip():
            put_bounded(
                self._learned_digests, _digest(text_of(last)), None, limit=MAX_LEARNED_PROMPTS
            )

    def matches(self, messages: Sequence[Any], tail: str = "") -> bool:
        """Return whether the messages after a truncated answer only request its rest.

        Args:
            messages: the messages.
            tail: the last visible characters of the answer.
        """
        if not 0 < len(messages) <= MOST_MESSAGES:
            return False
        if any(
            role(message) not in ("user", "system") or not only_text(message)
            for message in messages
        ):
            return False
        return all(self._matches_text(text_of(message), tail) for message in messages)

    def _matches_text(self, text: str, tail: str) -> bool:
        is_learnt = (
            len(text) <= LONGEST and text.strip() != "" and _digest(text) in self._learned_digests
        )
        return is_learnt or is_continue_prompt(text, tail)


def is_call_refused(messages: Sequence[Any], tail: str = "") -> bool:
    """Return whether messages only report that a truncated tool call or answer was not usable.

    Args:
        messages: the messages.
        tail: the last visible characters of the answer, comparable. A long message must quote them.
    """
    results = [result for message in messages for result in results_of(message)]
    if results and all(role(message) == "tool" or results_of(message) for message in messages):
        says_error = pattern("errors", "unread").search
        return any(is_error or says_error(text[:SHORT]) for text, is_error in results)
    (message, *more) = messages
    text = text_of(message) if role(message) == "user" and only_text(message) else ""
    if more or pattern("unread").search(text[:SHORT]) is None:
        return False
    return len(text) <= SHORT or (len(tail) >= QUOTED and tail in comparable_text(text))


_ENDS: Final = 256
"""Characters at either end of a text that its hash includes."""


Brief = tuple[int, str, tuple[ToolResult, ...]]
"""A message's hash (of its role, text and tool results), role and tool results."""


def message_brief(request: RequestSummary, place: int) -> Brief:
    """Return the brief of a message, which is computed once, in a time independent of its size."""
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
    """Return the length and both ends of a text, to compare it in constant time."""
    return len(text), text[:_ENDS], text[-_ENDS:]


def endpoints_hash(request: RequestSummary, length: int) -> int | None:
    """Hash the first `length` messages by two of them, in constant time.

    These are the last one, and the first one that is no system prompt. The hash is valid only in
    this process. None if there are fewer messages.
    """
    if not 0 < length <= request.length:
        return None
    first, last = request.briefs[_opening(request, length) or 0], message_brief(request, length - 1)
    return hash((length, first[0], last[0]))


def opening_hash(request: RequestSummary) -> int | None:
    """Hash the text of the first message that is no system prompt; None if there is none.

    It ignores the same differences as `prefixes`.
    """
    place = _opening(request, request.length)
    return None if place is None else hash(text_ends(text_of(request.history[place])))


def _opening(request: RequestSummary, length: int) -> int | None:
    """Find the first of `length` messages that is no system prompt; None if all are.

    Computes the briefs of the messages up to it.
    """
    for place in range(length):
        if message_brief(request, place)[1] != "system":
            return place
    return None


def question_of(request: RequestSummary) -> bytes | None:
    """Return the digest of the latest user message that does not only ask to continue.

    None if there is none.
    """
    for message in reversed(request.history[: request.length]):
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not is_continue_prompt(text):
            return _digest(text)
    return None


def _normalize(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_LINES)


def _digest(text: str) -> bytes:
    return blake2b(_normalize(text).encode("utf-8", "surrogatepass"), digest_size=16).digest()
