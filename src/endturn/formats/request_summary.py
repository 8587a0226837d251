"""What a request asks for: by its path, and by the members that `data/request_members.tsv` names."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from endturn.formats.reading import count, member, number, output_type, seed_of, text, text_or_none, texts
from endturn.formats.summaries import RequestSummary, Routed
from endturn.tables import lines, shipped

_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "model": text,
    "maximum": count,
    "choices": count,
    "stream": lambda value: value is True,
    "stream_usage": lambda value: value is True,
    "background": lambda value: value is True,
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
}
"""How each member is read; what a row of the table may be called."""

_NOTHING: Final = (None, "", ())


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
def _members() -> Mapping[str, Mapping[str, Sequence[Sequence[str]]]]:
    """format → our name → paths."""
    found: dict[str, dict[str, list[list[str]]]] = {}
    for place, (format_, ours, paths) in lines(shipped(), "request_members.tsv", range(3, 4)):
        if ours == "required":
            continue
        if ours not in _READ:
            raise ValueError(f"{place}: {ours!r} is none of {', '.join(_READ)}")
        found.setdefault(format_, {})[ours] = [path.split(".") for path in paths.split()]
    return found


def asked(format_: str, body: Any, history: Sequence[Any], system: Any = None, **own: Any) -> RequestSummary:
    """What a request asks for.

    Args:
        format_: whose members they are.
        body: the request's JSON, or the arguments of an SDK's method.
        history: the conversation, in the format's own shape.
        system: the system prompt, where it stands beside the history.
        own: what the format reads itself.
    """
    found: dict[str, Any] = {}
    for ours, paths in _members()[format_].items():
        value = next((said for path in paths if (said := _READ[ours](_at(body, path))) not in _NOTHING), None)
        if value is not None:
            found[ours] = value
        elif ours == "stream_usage":  # only where a format has it, it must be asked for
            found[ours] = False
    kinds = [found.pop(name, None) for name in ("modalities", "schema", "output_type")]
    found["output_type"] = next((kind for kind in kinds if kind is not None), None)
    found["choices"] = found.get("choices") or 1
    system = system if isinstance(system, str | list | tuple) else None
    return RequestSummary(**{**found, **own}, system=system, history=history, length=len(history))


def _at(thing: Any, path: Sequence[str]) -> Any:
    for name in path:
        thing = member(thing, name)
    return thing


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
