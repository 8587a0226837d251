"""Digests of a history, in whatever format it is, and what they are made of: who speaks, and what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from endturn.wires import Asked
from endturn.wires.reading import items, member, plain

_LONG: Final = 65_536
_ENDS: Final = 4_096

_ROLES: Final = {
    "model": "assistant",  # Gemini
    "chatbot": "assistant",  # Cohere v1
    "human": "user",
    "developer": "system",
    "function": "tool",
}
"""What formats call who speaks, where it is not "system", "user", "assistant" or "tool"."""

_KINDS: Final = {
    # Items of OpenAI's Responses, steps of Gemini's Interactions: they say what they are in place of who speaks.
    "user_input": "user",
    "input_text": "user",
    "text": "user",
    "model_output": "assistant",
    "output_text": "assistant",
    "function_call": "assistant",
    "custom_tool_call": "assistant",
    "function_call_output": "tool",
    "custom_tool_call_output": "tool",
    "function_result": "tool",
    "reasoning": "thought",
    "thought": "thought",
}

_BODY: Final = ("content", "parts", "message", "text")
"""Where a message keeps what it says: most formats, Gemini, Cohere v1, a part that stands alone."""

_SAID: Final = frozenset({*_BODY, "role", "type", "id", "status", "phase", "annotations", "logprobs", "cache_control"})
"""The members of a message that is nothing but text: what it says, and what a server adds to it."""


def role(message: Any) -> str:
    """Who speaks: "system", "user", "assistant", "tool", "thought" for what is not said aloud; "" where unreadable."""
    if isinstance(message, str):
        return "user"
    value = member(message, "role")
    if isinstance(value, str) and value:
        known = str(value).lower()
        return _ROLES.get(known, known)
    kind = member(message, "type")
    if isinstance(kind, str):
        return _KINDS.get(kind, "")
    # Gemini's: a Content whose role goes without saying, or a part alone.
    said = member(message, "parts") is not None or isinstance(member(message, "text"), str)
    return "user" if said else ""


def _body(message: Any) -> Any:
    if isinstance(message, str):
        return message
    for name in _BODY:
        body = member(message, name)
        if body is not None:
            return body
    return None


def text_of(message: Any) -> str:
    """The visible text of a message: a string, or the text parts of a list."""
    body = _body(message)
    if isinstance(body, str):
        return body
    if not isinstance(body, list | tuple):
        body = (body,)
    return "".join(text for part in body if (text := _text(part)) is not None and member(part, "thought") is not True)


def _text(part: Any) -> str | None:
    """The text of a part; None where it is something else."""
    if isinstance(part, str):
        return part
    text = member(part, "text")
    return text if isinstance(text, str) else None


def only_text(message: Any) -> bool:
    """Whether a message holds nothing but text: no image, no tool's result."""
    body = _body(message)
    return isinstance(body, str) or all(_text(part) is not None for part in items(body))


def digests(asked: Asked, lengths: Sequence[int], *, bare: bool = False) -> dict[int, bytes]:
    """The hash of the first messages of a history, for each of the lengths (ascending), in one pass.

    With `bare`, of what is left of them without system prompts, which many hosts write anew for each call: the time is
    in it. Only where there are any, and anything besides.

    What hosts change from call to call without changing what is said does not count: cache marks, the ids that a
    server gave, and whether a text stands alone, in an object or in a list of one part. What a server keeps, which a
    call only names, counts by its name.
    """
    instructed = asked.system is not None
    if bare and not instructed and not any(role(message) == "system" for message in asked.history[: lengths[-1]]):
        return {}
    state = blake2b(digest_size=16, person=b"bare" if bare else b"")
    heard = 0
    if not bare:
        _absorb(state, asked.system)
    for kept in (asked.previous_id, asked.conversation_id):
        if kept is not None:
            _absorb(state, kept)
    found, position = {}, 0
    for length in lengths:
        for message in asked.history[position:length]:
            if bare and role(message) == "system":
                instructed = True
                continue
            heard += 1
            _message(state, message)
        position = length
        if not bare or (instructed and heard):
            found[length] = state.copy().digest()
    return found


def _message(state: Any, message: Any) -> None:
    """Who speaks and the text, where that is all that a message holds; else all of it."""
    read = plain(message)
    if isinstance(read, str):
        _absorb(state, ("user", read))
        return
    if isinstance(read, Mapping):
        extra = any(value not in (None, [], "") for name, value in read.items() if name not in _SAID)
        if not extra and _body(read) is not None and only_text(read):
            _absorb(state, (role(read), text_of(read)))
            return
    _absorb(state, read)


def _absorb(state: Any, value: Any) -> None:
    if isinstance(value, str):
        if len(value) > _LONG:  # an image's bytes, a file: its ends tell it from another
            value = f"{value[:_ENDS]}{len(value)}{value[-_ENDS:]}"
        state.update(value.encode("utf-8", "surrogatepass"))
        state.update(b"\0")
    elif isinstance(value, Mapping):
        if value.get("type") == "text" and isinstance(value.get("text"), str):
            _absorb(state, value["text"])
            return
        for name in sorted(value, key=str):
            part = value[name]
            if part is not None and name != "cache_control":
                _absorb(state, str(name))
                _absorb(state, part)
    elif isinstance(value, list | tuple):
        for part in value:
            _absorb(state, part)
    elif isinstance(value, bytes):
        state.update(value)
    elif isinstance(value, bool | int | float):
        _absorb(state, repr(value))
    elif value is not None:
        read = plain(value)
        _absorb(state, type(value).__name__ if read is value else read)
