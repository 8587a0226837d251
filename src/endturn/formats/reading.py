"""Reads foreign values in place, mappings or an SDK's objects, without trusting their types."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from hashlib import blake2s
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NoReturn

from endturn.events import MOST

if TYPE_CHECKING:
    from endturn.chat import Json  # with pydantic, which takes long to import

PLAIN: Final = (str, bytes, int, float, list, tuple)
"""What has no members: text, numbers and lists have attributes of their own ("abc".index) that are nobody's."""


def member(thing: Any, name: str) -> Any:
    """The member of a mapping, or the attribute of an object among a request's arguments; None where there is none."""
    if thing.__class__ is dict or isinstance(thing, Mapping):
        return thing.get(name)
    return None if thing is None or isinstance(thing, PLAIN) else getattr(thing, name, None)


def at(thing: Any, path: str) -> Any:
    """What stands at the end of a path of members; None where one of them is missing."""
    return reduce(member, path.split("."), thing)


def first(thing: Any, *names: str) -> Any:
    """The first of several members that is there."""
    return next((value for name in names if (value := member(thing, name)) is not None), None)


def text(value: Any) -> str:
    """The value if it is text, else the empty string."""
    return value if isinstance(value, str) else ""


def text_or_none(value: Any) -> str | None:
    """The value if it is text with something in it, else None."""
    return value if isinstance(value, str) and value else None


def count(value: Any) -> int | None:
    """The value if it is a number of things (12, or 12.0 as some servers write it), at most MOST, else None."""
    if value is None or value.__class__ is bool:
        return None
    if value.__class__ is int:
        return value if 0 <= value <= MOST else None
    if isinstance(value, float) and isfinite(value) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and 0 <= value <= MOST else None


def number(value: Any) -> float | None:
    """The value if it is a number that a setting may be, else None: SDKs stand a sentinel where one was not given."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST else None


def seed_of(value: Any) -> int | None:
    """The value if it is a whole number that 64 bits hold, as a seed may be any of them; else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63 else None


def texts(value: Any) -> tuple[str, ...]:
    """The texts of a list, or of one that stands alone."""
    return tuple(each for each in ((value,) if isinstance(value, str) else items(value)) if isinstance(each, str))


_OUTPUTS: Final = {
    "json": "json", "json_object": "json", "json_schema": "json", "application/json": "json",
    "text": "text", "text/plain": "text", "image": "image", "audio": "speech",
}  # fmt: skip


def output_type(form: Any, modalities: Any = None) -> str | None:
    """What a request's output format asks for, and its list of modalities: the first that is not text counts."""
    kinds = [_OUTPUTS.get(each.lower()) for each in texts(modalities)]
    other = next((kind for kind in kinds if kind in ("image", "speech")), None)
    if other is not None or form is None:
        return other
    if isinstance(form, type):  # the SDK makes a schema of it
        return "json"
    form = next(iter(items(form)), form)  # of several, the first
    return _OUTPUTS.get(text(form if isinstance(form, str) else member(form, "type")))


def items(value: Any) -> Sequence[Any]:
    """The value if it is a list or a tuple, else an empty one."""
    return value if isinstance(value, list | tuple) else ()


def plain(value: Any) -> Any:
    """A mapping or an SDK's object as plain JSON; anything else as it is."""
    dump = getattr(value, "model_dump", None)
    if dump is not None and not isinstance(value, Mapping):
        return dump(mode="json", exclude_unset=True, by_alias=True, warnings=False)
    return value


def arguments(raw: str | None) -> Json | None:
    """A call's arguments, parsed strictly: one JSON object without NaN, infinities or duplicate keys; else None."""
    if not raw:
        return None
    try:
        parsed = strict(raw)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def object_or_text(raw: str) -> Json | str:
    """A call's arguments; as text where they are not whole: what completed them could be taken for the model's."""
    parsed = arguments(raw)
    return raw if parsed is None else parsed


def strict(raw: str) -> Any:
    """JSON without NaN, infinities or duplicate keys.

    Raises:
        ValueError: it is something else, or too deep to read.
    """
    try:
        return json.loads(raw, parse_constant=_reject, parse_float=_finite, object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _reject(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number")


def _finite(digits: str) -> float:
    value = float(digits)
    if not isfinite(value):
        raise ValueError(f"{digits} is too large a number")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r} is given twice")
    return found


def minted(*parts: object) -> str:
    """A call id for a call that came without one: the same for the same call of the same response, so replays agree."""
    digest = blake2s("\x1f".join(map(str, parts)).encode("utf-8", "replace"), digest_size=12)
    return f"call_{digest.hexdigest()}"
