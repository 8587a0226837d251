"""What a request asks for: by its path, and by the members that `data/request_members.tsv` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from endturn.formats.reading import count, items, member, number, output_type, seed_of, text, text_or_none, texts
from endturn.formats.summaries import RequestSummary, Routed
from endturn.tables import lines, shipped

Read = Callable[[Any], Any]


def _input(value: Any) -> Sequence[Any]:
    """A conversation; a bare text is one message of the user."""
    value = {"role": "user", "content": value} if isinstance(value, str) and value else value
    return (value,) if isinstance(value, Mapping) else items(value)


_READ: Final[Mapping[str, Read]] = {
    "model": text,
    "maximum": count,
    "choices": lambda value: count(value) or None,
    **dict.fromkeys(("stream", "stream_usage", "background"), lambda value: value is True),
    "output_type": output_type,
    "schema": lambda value: "json" if value else None,
    "modalities": lambda value: output_type(None, value),
    "previous_id": text_or_none,
    "conversation_id": text_or_none,
    "temperature": number,
    "top_p": number,
    "top_k": count,
    "seed": seed_of,
    "stop_sequences": texts,
    "reasoning_level": text_or_none,
    "compaction": lambda value: isinstance(value, Mapping),
    "messages": items,
    "input": _input,
    "system": lambda value: value if isinstance(value, str | list | tuple) else None,
}
"""How each member is read, unless it is missing or null; what a row of the table may be called."""

_FIELDS: Final = {"schema": "output_type", "modalities": "output_type", "messages": "history", "input": "history"}
"""The field of a summary that a member fills, where it has another name."""

_NOTHING: Final[tuple[Any, ...]] = (None, "", ())


@cache
def required() -> Mapping[str, tuple[frozenset[str], ...]]:
    """format, or format and dialect → the members that a request must have, in one of several ways."""
    rows = lines(shipped(), "request_members.tsv", range(3, 4))
    return {
        of: tuple(frozenset(way.split()) for way in ways.split("|"))
        for _, (of, ours, ways) in rows
        if ours == "required"
    }


@cache
def _members() -> Mapping[str, Mapping[str, Sequence[tuple[Read, str, Sequence[str]]]]]:
    """format → field of a summary → how to read it, from which member, and from which below that."""
    found: dict[str, dict[str, list[tuple[Read, str, Sequence[str]]]]] = {}
    for place, (format_, ours, paths) in lines(shipped(), "request_members.tsv", range(3, 4)):
        if ours == "required":
            continue
        if ours not in _READ:
            raise ValueError(f"{place}: {ours!r} is none of {', '.join(_READ)}")
        for name, *below in (path.split(".") for path in paths.split()):
            found.setdefault(format_, {}).setdefault(_FIELDS.get(ours, ours), []).append((_READ[ours], name, below))
    return found


def asked(format_: str, body: Any, **own: Any) -> RequestSummary:
    """What a request asks for.

    Args:
        format_: whose members they are.
        body: the request's JSON, or the arguments of an SDK's method.
        own: what the format reads itself.
    """
    members = _members()[format_]
    found: dict[str, Any] = {"stream_usage": "stream_usage" not in members}  # where a format has it, it must be asked
    look = body.get if body.__class__ is dict else partial(member, body)
    for field, places in members.items():
        for read, name, below in places:
            value = look(name)
            for deeper in below:
                value = member(next(iter(items(value)), value), deeper)  # of several forms of an answer, the first
            if value is not None and (value := read(value)) not in _NOTHING:
                found[field] = value
                break
    found |= own
    return RequestSummary(**found, length=len(found.get("history", ())))


SEGMENTS: Final = r"(?:/(?!v\d+/)[^/]+)*"
"""What a gateway puts before a format's own path: any segments but a version, with which the path itself begins."""


def routed_by(pattern: str) -> Callable[[str, str], Routed | None]:
    """What reads the method and the path of a request; it returns None where the path is none of the format's.

    Args:
        pattern: of the whole path, without its query. It may have named groups: `model`; `id`, of a response that is
            fetched; `stream` and `whole`, which match where the path says that the answer is streamed, or that it is
            not; `prompt`, which matches where a text is to be completed and not a chat.
    """
    fullmatch = re.compile(pattern).fullmatch

    def routed(method: str, path: str) -> Routed | None:
        place, _, query = path.partition("?")
        found = fullmatch(place)
        named = {} if found is None else {name: said for name, said in found.groupdict().items() if said is not None}
        id_, model = named.get("id"), named.get("model")
        if found is None or method != ("POST" if id_ is None else "GET"):
            return None
        if id_ is not None:
            return Routed(stream=parse_qs(query).get("stream") == ["true"], retrieve=unquote(id_))
        stream = True if "stream" in named else False if "whole" in named else None
        operation = "text_completion" if "prompt" in named else None
        return Routed(None if model is None else unquote(model), stream, operation=operation)

    return routed
