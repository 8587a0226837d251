"""The kinds of values that an environment variable can have: how its text is read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

Value = TypeVar("Value", covariant=True)

EVENT_WORDS: Final = ("logs", "spans", "both")
"""Destinations of events."""

CAPTURE_WORDS: Final = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")
"""Where message content is recorded, in the words of the GenAI conventions."""

SEMCONV_WORDS: Final = ("default", "gen_ai_latest_experimental", "gen_ai_latest_experimental/dup")
"""Generations of the conventions' metric names; `/dup` emits both."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[Value]):
    """One kind of value.

    Attributes:
        label: its name in the documentation's tables, in Markdown.
        remedy: the values that are allowed, as an instruction: "use true or false".
        read: returns the value of a text; raises ValueError or KeyError if it is none.
        words: the allowed words, if they can be listed.
    """

    label: str
    remedy: str
    read: Callable[[str], Value]
    words: tuple[str, ...] = ()


def one_of(values: Mapping[str, Value], label: str = "") -> Kind[Value]:
    """Return a kind with these words, in any case."""
    by_word = {word.lower(): value for word, value in values.items()}
    return Kind(
        label or ", ".join(f"`{word}`" for word in values),
        f"use one of {', '.join(values)}",
        lambda text: by_word[text.lower()],
        tuple(values),
    )


def exactly(*words: str) -> Kind[str]:
    """Return a kind with these words, in this case only: the SDK knows no other."""
    return Kind(
        ", ".join(f"`{word}`" for word in words),
        f"use one of {', '.join(words)}",
        lambda text: {word: word for word in words}[text],
        words,
    )


FLAG: Final[Kind[bool]] = Kind(
    "`true`, `false`",
    "use true or false",
    lambda text: {"true": True, "false": False}[text.lower()],
    ("true", "false"),
)


def whole_number(unit: str, example: int) -> Kind[int]:
    """Return the kind of a whole number above 0."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(text)
        return int(text)

    return Kind(f"number of {unit}", f"use a whole number of {unit}, such as {example}", read)


def limit(unit: str, example: int) -> Kind[int | None]:
    """Return the kind of a whole number from 0 on; empty text is no limit."""

    def read(text: str) -> int | None:
        value = int(text) if text else None
        if value is not None and value < 0:
            raise ValueError(text)
        return value

    return Kind(f"number of {unit}", f"use a whole number of {unit}, such as {example}", read)


def number(unit: str, example: str, *, least: float = 0.0, most: float = inf) -> Kind[float]:
    """Return the kind of a number above 0 (or between two bounds)."""

    def read(text: str) -> float:
        value = float(text)
        if not (least < value < inf if most == inf else least <= value <= most):
            raise ValueError(text)
        return value

    bounds = "above 0" if most == inf else f"from {least:g} to {most:g}"
    return Kind(f"number of {unit}", f"use a number of {unit} {bounds}, such as {example}", read)


def _any(text: str) -> str:
    return text


TEXT: Final[Kind[str]] = Kind("text", "use text", _any)
ADDRESS: Final[Kind[str]] = Kind("address", "use an address, such as http://127.0.0.1:4318", _any)
NAMES: Final[Kind[str]] = Kind("names, separated by commas", "use names", _any)
"""Their allowed values depend on what is installed, or on other variables."""

_HEADER: Final = re.compile(
    r"[ \t]*[!#-'*+\-.0-9A-Z^-z|~]+[ \t]*=[ \t]*[ !#-+\--:<-\[\]-~]*[ \t]*", re.ASCII
)
"""One entry of headers, as OpenTelemetry's `parse_env_headers(…, liberal=True)` accepts it."""


_UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
"""Characters that no HTTP library sends in a header."""


def headers(text: str) -> list[str]:
    """Return the names of the headers in the text of a variable.

    Raises:
        ValueError: an entry is not `name=value`; its number is in the message, its text is not.
    """
    names = []
    for index, entry in enumerate(text.split(","), start=1):
        if not entry.strip():
            continue
        if not _HEADER.fullmatch(entry):
            name, equals, _ = entry.partition("=")
            why = "has a colon in place of the equals sign" if ":" in name else "is not name=value"
            if equals and entry.strip()[0] in "\"'":
                why = "begins with a quotation mark: remove the quotation marks"
            raise ValueError(f"entry {index} {why}")
        if _UNSENDABLE.search(unquote(entry)):
            raise ValueError(f"entry {index} has a line end or another control character")
        names.append(entry.partition("=")[0].strip().lower())
    return names


HEADERS: Final[Kind[list[str]]] = Kind(
    "`name=value`, separated by commas",
    "use name=value, such as Authorization=Bearer%20TOKEN, separated by commas",
    headers,
)


def _attributes(text: str) -> str:
    if any("=" not in pair for pair in text.split(",") if pair.strip()):
        raise ValueError(text)
    return text


ATTRIBUTES: Final[Kind[str]] = Kind(
    "`key=value`, separated by commas",
    "use key=value, such as service.namespace=support, separated by commas",
    _attributes,
)


def _file(text: str) -> str:
    if not os.path.isfile(text):
        raise ValueError(text)
    return text


FILE: Final[Kind[str]] = Kind("file", "use the path of a file that exists", _file)


def _function(text: str) -> str:
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise ValueError(text)
    return text


FUNCTION: Final[Kind[str]] = Kind("`module:function`", "use module:function", _function)


def _semconv(text: str) -> str:
    """Return the generation that is asked for; other areas have words in the variable too."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word.startswith("gen_ai") and word not in SEMCONV_WORDS:
            raise ValueError(word)
    # `/dup` takes precedence over the plain word
    return next((word for word in reversed(SEMCONV_WORDS) if word in words), "default")


SEMCONV: Final[Kind[str]] = Kind(
    ", ".join(f"`{word}`" for word in SEMCONV_WORDS),
    f"use one of {', '.join(SEMCONV_WORDS)}",
    _semconv,
    SEMCONV_WORDS,
)


def registered(group: str, words: tuple[str, ...], package: str) -> Kind[str]:
    """Return the kind of a name that is built in, or that a package registers with the SDK."""

    def read(text: str) -> str:
        name = text.lower()
        if name in words:
            return name
        from importlib.metadata import entry_points  # imports much, and is rarely needed

        if not entry_points(group=group, name=text):
            raise ValueError(text)
        return text

    listed = f"one of {', '.join(words)}, or " if words else ""
    return Kind(
        ", ".join([*(f"`{word}`" for word in words), "a registered name"]),
        f"use {listed}the name that an installed package registers as {package}",
        read,
        words,
    )


def all_registered(group: str, package: str, *words: str) -> Kind[str]:
    """Return the kind of names, separated by commas, each a word or registered by a package."""

    def read(text: str) -> str:
        from importlib.metadata import entry_points

        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in words and not entry_points(group=group, name=name):
                raise ValueError(name)
        return text

    return Kind(
        "registered names, separated by commas",
        f"use names that installed packages register as {package}",
        read,
    )
