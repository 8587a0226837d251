"""Types of environment variables: how the text of each is parsed and checked."""

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
"""Destinations of message content, as the GenAI conventions name them."""

SEMCONV_WORDS: Final = ("default", "gen_ai_latest_experimental", "gen_ai_latest_experimental/dup")
"""Generations of the conventions' metric names; `/dup` emits both."""


@dataclass(frozen=True, slots=True)
class ValueKind(Generic[Value]):
    """The type of a variable: how its text is parsed, and how it is documented.

    Attributes:
        label: its name in the documentation's tables, in Markdown.
        remedy: the values that are allowed, as an instruction: "use true or false".
        parse: returns the value of a text; raises ValueError or KeyError if it is invalid.
        words: the allowed words, if they can be listed.
    """

    label: str
    remedy: str
    parse: Callable[[str], Value]
    words: tuple[str, ...] = ()


def one_of(values: Mapping[str, Value], label: str = "") -> ValueKind[Value]:
    """Return the type of a value that is one of these words, in upper or lower case."""
    by_word = {word.lower(): value for word, value in values.items()}
    return ValueKind(
        label or ", ".join(f"`{word}`" for word in values),
        f"use one of {', '.join(values)}",
        lambda text: by_word[text.lower()],
        tuple(values),
    )


def exactly(*words: str) -> ValueKind[str]:
    """Return the type of a value that is exactly one of these words, as the SDK compares it."""
    return ValueKind(
        ", ".join(f"`{word}`" for word in words),
        f"use one of {', '.join(words)}",
        lambda text: {word: word for word in words}[text],
        words,
    )


FLAG: Final[ValueKind[bool]] = ValueKind(
    "`true`, `false`",
    "use true or false",
    lambda text: {"true": True, "false": False}[text.lower()],
    ("true", "false"),
)


def whole_number(unit: str, example: int) -> ValueKind[int]:
    """Return the type of a whole number above 0."""

    def parse(text: str) -> int:
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(text)
        return int(text)

    return ValueKind(f"number of {unit}", f"use a whole number of {unit}, such as {example}", parse)


def limit(unit: str, example: int) -> ValueKind[int | None]:
    """Return the type of a whole number of at least 0; an empty text means no limit."""

    def parse(text: str) -> int | None:
        value = int(text) if text else None
        if value is not None and value < 0:
            raise ValueError(text)
        return value

    return ValueKind(f"number of {unit}", f"use a whole number of {unit}, such as {example}", parse)


def number(unit: str, example: str, *, least: float = 0.0, most: float = inf) -> ValueKind[float]:
    """Return the type of a number above 0, or between two bounds."""

    def parse(text: str) -> float:
        value = float(text)
        if not (least < value < inf if most == inf else least <= value <= most):
            raise ValueError(text)
        return value

    bounds = "above 0" if most == inf else f"from {least:g} to {most:g}"
    return ValueKind(
        f"number of {unit}", f"use a number of {unit} {bounds}, such as {example}", parse
    )


def _any(text: str) -> str:
    return text


TEXT: Final[ValueKind[str]] = ValueKind("text", "use text", _any)
ADDRESS: Final[ValueKind[str]] = ValueKind(
    "address", "use an address, such as http://127.0.0.1:4318", _any
)
NAMES: Final[ValueKind[str]] = ValueKind("names, separated by commas", "use names", _any)
"""Names whose allowed values depend on installed packages, or on other variables."""

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


HEADERS: Final[ValueKind[list[str]]] = ValueKind(
    "`name=value`, separated by commas",
    "use name=value, such as Authorization=Bearer%20TOKEN, separated by commas",
    headers,
)


def _attributes(text: str) -> str:
    if any("=" not in pair for pair in text.split(",") if pair.strip()):
        raise ValueError(text)
    return text


ATTRIBUTES: Final[ValueKind[str]] = ValueKind(
    "`key=value`, separated by commas",
    "use key=value, such as service.namespace=support, separated by commas",
    _attributes,
)


def _file(text: str) -> str:
    if not os.path.isfile(text):
        raise ValueError(text)
    return text


FILE: Final[ValueKind[str]] = ValueKind("file", "use the path of a file that exists", _file)


def _function(text: str) -> str:
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *name.split("."))):
        raise ValueError(text)
    return text


FUNCTION: Final[ValueKind[str]] = ValueKind("`module:function`", "use module:function", _function)


def _semconv(text: str) -> str:
    """Return the requested generation; the variable may hold words for other areas too."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word.startswith("gen_ai") and word not in SEMCONV_WORDS:
            raise ValueError(word)
    # `/dup` takes precedence over the plain word
    return next((word for word in reversed(SEMCONV_WORDS) if word in words), "default")


SEMCONV: Final[ValueKind[str]] = ValueKind(
    ", ".join(f"`{word}`" for word in SEMCONV_WORDS),
    f"use one of {', '.join(SEMCONV_WORDS)}",
    _semconv,
    SEMCONV_WORDS,
)


def registered(group: str, words: tuple[str, ...], package: str) -> ValueKind[str]:
    """Return the type of a name that is built in, or that a package registers with the SDK."""

    def parse(text: str) -> str:
        name = text.lower()
        if name in words:
            return name
        from importlib.metadata import entry_points  # slow to import, and rarely needed

        if not entry_points(group=group, name=text):
            raise ValueError(text)
        return text

    listed = f"one of {', '.join(words)}, or " if words else ""
    return ValueKind(
        ", ".join([*(f"`{word}`" for word in words), "a registered name"]),
        f"use {listed}the name that an installed package registers as {package}",
        parse,
        words,
    )


def all_registered(group: str, package: str, *words: str) -> ValueKind[str]:
    """Return the type of a list of names, each one of `words` or registered by a package."""

    def parse(text: str) -> str:
        from importlib.metadata import entry_points

        names = [name.strip() for name in text.split(",")]
        for name in names:
            if name not in words and not entry_points(group=group, name=name):
                raise ValueError(name)
        return text

    return ValueKind(
        "registered names, separated by commas",
        f"use names that installed packages register as {package}",
        parse,
    )
