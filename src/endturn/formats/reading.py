"""Read foreign values in place, mappings or an SDK's objects, without trusting their types."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from hashlib import blake2s
from itertools import groupby
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

from endturn.calls import MOST, RequestedCall
from endturn.vocabulary import fix_json_surrogates

if TYPE_CHECKING:
    from endturn.vocabulary import Json  # with pydantic, which takes long to import

PLAIN: Final = (str, bytes, int, float, list, tuple)
"""Types without members: the attributes of text, numbers and lists are Python's ("abc".index)."""


def member(holder: Any, name: str) -> Any:
    """Return the member of a mapping, or the attribute of an object; None if there is none."""
    if holder.__class__ is dict:
        return holder.get(name)
    if holder is None or isinstance(holder, PLAIN):
        return None
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def member_getter(holder: Any) -> Callable[[str], Any]:
    """Return the function that reads a holder's members by name, for who reads many of them."""
    return holder.get if holder.__class__ is dict else partial(member, holder)


def has_member(holder: Any, names: Iterable[str]) -> bool:
    """Return whether a holder has one of these members."""
    get = holder.get if holder.__class__ is dict else partial(member, holder)
    for name in names:  # noqa: SIM110 - a generator costs twice as much, for each event
        if get(name) is not None:
            return True
    return False


def value_at(holder: Any, path: str) -> Any:
    """Return the value at the end of a path of members; None if one of them is missing."""
    return reduce(member, path.split("."), holder)


def is_object_or_missing(value: Any) -> bool:
    """Return whether a member is a JSON object, or missing."""
    return value is None or isinstance(value, dict)


def lists_objects(value: Any) -> bool:
    """Return whether a member is a list of JSON objects, or missing."""
    if value is None:
        return True
    if not isinstance(value, list):
        return False
    for entry in value:  # noqa: SIM110 - a generator costs more, for each event of a stream
        if not isinstance(entry, dict):
            return False
    return True


def first_member(holder: Any, *names: str) -> Any:
    """Return the first of several members that is not None."""
    get = holder.get if holder.__class__ is dict else partial(member, holder)
    for name in names:
        if (value := get(name)) is not None:
            return value
    return None


def first_text(holder: Any, *names: str) -> str:
    """Return the first of several members that is not None; "" if there is none, or no text."""
    get = holder.get if holder.__class__ is dict else partial(member, holder)
    for name in names:
        if (value := get(name)) is not None:
            return value if isinstance(value, str) else ""
    return ""


def text(value: Any) -> str:
    """Return the value if it is text, else the empty string."""
    return value if isinstance(value, str) else ""


def as_text(value: Any) -> str:
    """Return a model's output as text.

    Some servers send a token that looks like JSON as its value (0, true).
    """
    if value.__class__ is str:
        return str(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    return text(value)


def number_or_text(value: Any) -> str:
    """Return thinking as text; "" for a flag in its place."""
    return "" if isinstance(value, bool) else as_text(value)


def id_text(value: Any) -> str:
    """Return an id as text: some servers number their calls and responses."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else text(value)


def as_arguments(value: Any) -> str | Json | None:
    """Return a call's arguments as they arrived: an object, or text.

    Any other value becomes JSON text; otherwise the call would seem to have no arguments.
    """
    return (
        value
        if value is None or isinstance(value, str | dict)
        else json.dumps(value, ensure_ascii=False)
    )


def text_or_none(value: Any) -> str | None:
    """Return the value if it is text and not empty, else None."""
    return value if isinstance(value, str) and value else None


_DIGITS: Final = re.compile(r"[0-9]{1,15}(?:\.0+)?")


def count(value: Any) -> int | None:
    """Return the value if it is a count of at most MOST, else None.

    Some servers write 12 as 12.0 or "12".
    """
    if value is None or value.__class__ is bool:
        return None
    if value.__class__ is int:
        return value if 0 <= value <= MOST else None
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value)
    if isinstance(value, float) and isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MOST else None


def number(value: Any) -> float | None:
    """Return the value if it is a number in the range of a setting, else None.

    SDKs have sentinels for missing arguments.
    """
    return (
        value
        if isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST
        else None
    )


def seed_of(value: Any) -> int | None:
    """Return the value if it is an integer of at most 64 bits, as a seed may be; else None."""
    return (
        value
        if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
        else None
    )


def texts(value: Any) -> tuple[str, ...]:
    """Return the texts of a list, or a single text as a tuple."""
    return tuple(
        entry
        for entry in ((value,) if isinstance(value, str) else items(value))
        if isinstance(entry, str)
    )


_OUTPUT_TYPES: Final = {
    "json": "json", "json_object": "json", "json_schema": "json", "application/json": "json",
    "text": "text", "text/plain": "text", "image": "image", "audio": "speech",
}  # fmt: skip


def output_type(output_format: Any, modalities: Any = None) -> str | None:
    """Return the conventions' output type of a request's output format and list of modalities.

    The first that is not text counts.
    """
    kinds = [_OUTPUT_TYPES.get(modality.lower()) for modality in texts(modalities)]
    other = next((kind for kind in kinds if kind in ("image", "speech")), None)
    if other is not None or output_format is None:
        return other
    if isinstance(output_format, type):  # the SDK turns it into a schema
        return "json"
    output_format = next(iter(items(output_format)), output_format)  # of several, the first
    return _OUTPUT_TYPES.get(
        text(output_format if isinstance(output_format, str) else member(output_format, "type"))
    )


_FREE_CHOICES: Final = frozenset({"", "auto", "none", "validated"})
"""Tool choices that let the model decide, or forbid tool calls."""


def forces_tool(choice: Any) -> bool:
    """Return whether a request's tool choice makes the model call a tool.

    Args:
        choice: in any API's shape: a word ("required", "any"), an object with the word in `type` or
            `mode` (Anthropic, OpenAI, Gemini), or one whose only member is the word (Bedrock
            Converse).
    """
    if isinstance(choice, str):
        return choice.lower() not in _FREE_CHOICES
    for name in ("mode", "type"):
        word = member(choice, name)
        if isinstance(word, str):
            # {"type": "allowed_tools", "allowed_tools": {"mode": "auto"}}
            inner = member(choice, word)
            return (
                forces_tool(inner)
                if word == "allowed_tools" and inner
                else word.lower() not in _FREE_CHOICES
            )
    if isinstance(choice, Mapping):
        inner = choice.get("allowed_tools")
        return forces_tool(inner) if inner else any(forces_tool(name) for name in choice)
    return False  # None, or an SDK's sentinel for a missing argument


def items(value: Any) -> Sequence[Any]:
    """Return the value if it is a list or a tuple, else an empty tuple."""
    return value if isinstance(value, list | tuple) else ()


def plain(value: Any) -> Any:
    """Return an SDK's object as plain JSON; anything else as it is."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, Mapping):
        return dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
    return value


def is_empty(value: Any) -> bool:
    """Return whether a JSON value is empty: null, "", 0, or a container of such values."""
    if isinstance(value, Mapping):
        return all(map(is_empty, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_empty, value))
    return not value and value is not False


def runs(entries: Iterable[Any], kind: Callable[[Any], Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Group consecutive entries of one kind; yield the kind and the entries of each group."""
    return ((key, [*run]) for key, run in groupby(entries, kind))


def only_text(parts: Sequence[Any], kind: str | None = None) -> str | None:
    """Return the text of a list of parts; None if one of them is not a text part of that type."""
    texts = [
        part["text"]
        for part in parts
        if part.__class__ is dict and part.get("type") == kind and part.get("text").__class__ is str
    ]
    return "".join(texts) if len(texts) == len(parts) else None


def strict(raw: str) -> Any:
    """Parse JSON without NaN, infinities or duplicate keys.

    Raises:
        ValueError: the text is not such JSON, or is nested too deeply.
    """
    try:
        value = json.loads(
            raw, parse_constant=_reject, parse_float=_finite, object_pairs_hook=_unique
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return (
        fix_json_surrogates(value) if "\\ud" in raw or "\\uD" in raw or not raw.isascii() else value
    )


_MARK: Final = re.compile(r'["{}\[\]]')
_STRING_MARK: Final = re.compile(r'["\\]')
_NOT_SPACE: Final = re.compile(r"\S")


class JsonObjectEnd:
    """Finds the end of a JSON object that arrives in pieces, without keeping the pieces.

    It follows brackets and strings only, and does not check the rest.
    """

    __slots__ = ("_depth", "_is_escaped", "_is_other", "_is_string")

    def __init__(self) -> None:
        self._depth: int | None = None
        self._is_string = self._is_escaped = self._is_other = False

    @property
    def is_whole(self) -> bool:
        """True if the object has ended, with only white space before and after it."""
        return self._depth == 0 and not self._is_other

    def feed(self, piece: str) -> None:
        """Take the next piece."""
        position = 0
        while position < len(piece) and not self._is_other:
            if self._is_escaped:
                self._is_escaped = False
                position += 1
                continue
            pattern = _STRING_MARK if self._is_string else _MARK if self._depth else _NOT_SPACE
            match = pattern.search(piece, position)
            if match is None:
                return
            self._mark(match[0])
            position = match.end()

    def _mark(self, mark: str) -> None:
        if self._is_string:
            self._is_escaped = mark == "\\"
            self._is_string = self._is_escaped
        elif self._depth:
            self._is_string = mark == '"'
            self._depth += 0 if self._is_string else 1 if mark in "{[" else -1
        elif self._depth is None and mark == "{":
            self._depth = 1
        else:
            self._is_other = True


def _reject(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) != len(pairs):
        duplicate = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {duplicate!r} occurs twice")
    return members


def mint_id(*parts: object) -> str:
    """Return a call id for a call that came without one.

    It is the same for the same call of the same response, so that replays agree.
    """
    digest = blake2s("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=12)
    return f"call_{digest.hexdigest()}"


def is_minted(call_id: str) -> bool:
    """Return whether an id is from `mint_id`. OpenAI's have letters of both cases."""
    return _MINTED_ID.fullmatch(call_id) is not None


class _NamedCall(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def name(self) -> str: ...


def requested_calls(calls: Iterable[_NamedCall]) -> tuple[RequestedCall, ...]:
    """List tool calls by their ids and names. Without ids from `mint_id`, which no result has."""
    return tuple([RequestedCall(call.id, call.name) for call in calls])


_MIN_RANDOM_CHARS: Final = 8
"""Characters that the random part of an id has at least."""


def looks_random(call_id: str, names: Iterable[str]) -> bool:
    """Return whether a call id looks random.

    A counter ("call_0") and a function's name ("functions.search:0") do not.

    Args:
        names: of the tools.
    """
    parts = re.split(r"[_:.|/-]", call_id)
    if not set(parts[-2:]).isdisjoint(names) or call_id in names:
        return False
    tails = parts[-1], re.sub(r"[^0-9A-Za-z]", "", call_id)[-2 * _MIN_RANDOM_CHARS :]
    return any(
        len(tail) >= _MIN_RANDOM_CHARS
        and any(map(str.isdigit, tail))
        and any(map(str.isalpha, tail))
        and not re.fullmatch(r"[A-Za-z]+\d{1,6}", tail)
        for tail in tails
    )


_MINTED_ID: Final = re.compile(r"call_[0-9a-f]{24}")
