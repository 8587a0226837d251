"""Where answers of frameworks say something, and what is an answer at all: the rest is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from endturn.errors import UsageError
from endturn.formats.reading import PLAIN, items, member
from endturn.tables import shipped

DATA: Final[Mapping[str, Mapping[str, Any]]] = tomllib.loads(
    shipped().joinpath("framework_answers.toml").read_text("utf-8")
)
READS: Final[Mapping[str, str]] = DATA["reads"]
PROVIDERS_REASON: Final[Mapping[str, Sequence[str]]] = DATA["providers_reason"]
METADATA: Final = (*(path.partition("/")[0] for path in PROVIDERS_REASON), *DATA["metadata"]["members"])


def at(thing: Any, *paths: str) -> Any:
    """What stands at the first path that says something; None where none does.

    A path is members of members, `/` between them, `0` for the first of a list.
    """
    for path in paths:
        found = thing
        for step in path.split("/"):
            found = next(iter(items(found)), None) if step == "0" else member(found, step)
        if found is not None and found != "":
            return found
    return None


def answer_of(framework: str, thing: Any) -> Any:
    """What was handed over, where it is an answer of the framework's.

    Raises:
        UsageError: it is none.
    """
    speaks(framework, thing)
    if not holds(framework, thing):
        raise wrong(framework, thing)
    return thing


def holds(framework: str, thing: Any) -> bool:
    """Whether a thing has what marks an answer of the framework's."""
    return any(_has(thing, mark) for mark in DATA["marks"][framework])


def _has(thing: Any, path: str) -> bool:
    """Whether a mapping or an object has such a member, whatever it holds."""
    within, _, name = path.rpartition("/")
    holder = member(thing, within) if within else thing
    if isinstance(holder, Mapping):
        return name in holder
    return holder is not None and bool(asked(lambda: hasattr(holder, name)))


def asked(question: Callable[[], Any]) -> Any:
    """What a foreign object answers, if it does."""
    with suppress(Exception):
        return question()
    return None


def speaks(framework: str, thing: Any) -> None:
    """Refuse what has no members at all.

    Raises:
        UsageError: it is text, a number, a list or nothing.
    """
    if thing is None or isinstance(thing, PLAIN):
        raise UsageError(f"{framework}() reads {READS[framework]}, not {type(thing).__name__} {thing!r:.40}")


def wrong(framework: str, thing: Any) -> UsageError:
    """The exception for what is something else: it names the class, or a mapping's keys, not what they hold."""
    what = type(thing).__name__
    if isinstance(thing, Mapping):
        what = f"a mapping with {sorted(map(str, thing))[:5]}"
    elif isinstance(thing, PLAIN):
        what = f"{what} {thing!r:.40}"
    return UsageError(f"{framework}() reads {READS[framework]}, not {what}")
