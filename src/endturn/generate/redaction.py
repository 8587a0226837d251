"""The OTTL statements that delete credentials and message content, built from `redacted_names`.

Every key of every span is matched against the regular expressions that are built here, which is
most of a Collector's work. Go's `regexp` reads a key only once, up to the first character that
matches no name ("one-pass"), if no two branches of an alternation begin alike, each branch ends
with `$`, and there are less than a thousand instructions, each a character or a branch. Otherwise
it takes ten times as long. `_join` therefore puts the names into a tree of common beginnings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import groupby, takewhile
from typing import Final, Literal

from endturn.generate.emitters import SOURCES
from endturn.generate.redacted_names import Kind, names_of

Group = Literal["content", "errors", "event_fields", "credentials"]
"""Names that one statement deletes; with content and credentials also the names of their trees."""

_EXACT: Final = r"\s*$"
_TREE: Final = r"(?:\s*|\.(?s:.*))$"
_INSTRUCTION: Final = re.compile(r"\\.|\[[^]]+\]|[^()?:\\\[]")
_MAX_INSTRUCTIONS: Final = 970
"""Go adds some at both ends; together they stay below a thousand."""

_CREDENTIAL_ENDING: Final = (
    r"(?i)(?:^|[._-])(?:api[._-]?key|(?:access|secret|private)[._-]?key|authorization|passw(?:or)?d"
    r"|passphrase|jwt|token|secret|cookie)\s*$"
)
"""An ending of a key that means a credential, whatever precedes it. It takes twenty times as
long as a list of names, so it is used for resources and scopes alone: there is one for each batch
of spans, and a resource's attributes become labels of `target_info`."""

_SENSITIVE_PARAMETER: Final = (
    r"(?i)((?:^|[?&;#])(?:[^=&;?#]*(?:key|key_?id|token|secret|signature|passw(?:or)?d|passphrase"
    r"|credentials?|auth|authorization|assertion)|sig|jwt|code|pwd)(?:\]|%5D)?)=[^&;#]*"
)
"""A parameter of a query or fragment that holds a secret, and its value. The conventions name four
(`AWSAccessKeyId`, `Signature`, `sig`, `X-Goog-Signature`); `key` is Gemini's."""
_URL_USER: Final = r"^([a-zA-Z][a-zA-Z0-9+.-]*:)?//[^/?#]*@"
"""The user and the password in front of a URL's host."""


def quoted(text: str) -> str:
    """Return the text as a string literal of OTTL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def delete(path: str, *groups: Group) -> str:
    """Return the statements that delete the keys of these groups from a map, one a line.

    Args:
        path: The map in OTTL, such as `span.attributes`.
        groups: Which keys; several groups share their regular expressions.
    """
    return "\n".join(
        f"delete_matching_keys({path}, {quoted(pattern)})" for pattern in key_patterns(*groups)
    )


def delete_by_ending(path: str) -> str:
    """Return the statement that deletes keys with the ending of a credential from a map."""
    return f"delete_matching_keys({path}, {quoted(_CREDENTIAL_ENDING)})"


def clean_urls(path: str) -> str:
    """Return the statements that replace users and secret parameters in a map's URLs, one a line.

    They are replaced by `REDACTED`, as in the conventions; other parameters stay.
    """
    lines = []
    for name in names_of("urls"):
        value = f'{path}["{name}"]'
        # The Collector's configuration escapes `$` as `$$`.
        for pattern, replacement in (
            (_URL_USER, "$$1//REDACTED@"),
            (_SENSITIVE_PARAMETER, "$$1=REDACTED"),
        ):
            arguments = f"{value}, {quoted(pattern)}, {quoted(replacement)}"
            lines.append(f"replace_pattern({arguments}) where {value} != nil")
    return "\n".join(lines)


def preserved_attributes() -> list[str]:
    """Return the attributes below redacted names from which a stop reason is read."""
    patterns = key_patterns("content", "errors")
    return [
        source.attribute
        for source in SOURCES
        if any(re.match(pattern, source.attribute) for pattern in patterns)
    ]


@cache
def key_patterns(*groups: Group) -> tuple[str, ...]:
    """Return the regular expressions that the keys of these groups match, in any case."""
    endings: dict[str, str] = {}
    for group in groups:
        for name, ending in _names(group):
            endings[name.lower()] = ending
    parts: list[list[tuple[str, str]]] = [[]]
    # Names of the conventions come first, so that most keys are decided by the first expression.
    conventions_first = sorted(
        endings.items(), key=lambda item: (not item[0].startswith("gen_ai."), item)
    )
    for item in conventions_first:
        longer = sorted([*parts[-1], item])
        if len(_INSTRUCTION.findall(_join(longer))) < _MAX_INSTRUCTIONS:
            parts[-1] = longer
        else:
            parts.append([item])
    return tuple(rf"(?i)^\s*{_join(part)}" for part in parts)


def _names(group: Group) -> list[tuple[str, str]]:
    """Return the names of a group, each with the expression for what may follow it."""
    exact: list[Kind] = [group]
    trees: list[Kind] = []
    patterns: list[tuple[str, str]] = []
    if group == "content":
        trees.append("content_trees")
        patterns += [(f"{name}.[0-9]+", _TREE) for name in names_of("content_lists")]
    elif group == "credentials":
        trees.append("credential_trees")
    patterns += [(name, _EXACT) for name in names_of(*exact)]
    return patterns + [(name, _TREE) for name in names_of(*trees)]


def _join(names: Iterable[tuple[str, str]]) -> str:
    """Return one expression of sorted names, each with the expression for what may follow it."""
    beginnings: dict[str, list[str]] = {}  # grouped by the rest: equal endings are written once
    for _, alike in groupby(names, key=lambda name: name[0][:1]):
        group = list(alike)
        pairs = zip(group[0][0], group[-1][0], strict=False)
        beginning = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        rest = (
            _join((name[len(beginning) :], ending) for name, ending in group)
            if beginning
            else group[0][1]
        )
        beginnings.setdefault(rest, []).append(beginning.replace(".", r"\."))
    return _either(_either(group) + rest for rest, group in beginnings.items())


def _either(branches: Iterable[str]) -> str:
    group = list(branches)
    return group[0] if len(group) == 1 else f"(?:{'|'.join(group)})"
