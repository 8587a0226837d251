"""Summarize a request by its path, and by the members in `data/request_members.tsv`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from endturn.calls import Fact, RequestFacts, facts_in
from endturn.formats.names import FORMATS
from endturn.formats.reading import (
    count,
    forces_tool,
    items,
    member,
    number,
    output_type,
    seed_of,
    text_or_none,
    texts,
)
from endturn.formats.summaries import RequestSummary, Routed
from endturn.vocabulary import package_data, read_tsv

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

FieldReader = Callable[[Any], Any]


def _input(value: Any) -> Sequence[Any]:
    """Return a conversation; a bare text is one message of the user."""
    value = {"role": "user", "content": value} if isinstance(value, str) and value else value
    return (value,) if isinstance(value, Mapping) else items(value)


def _is_true(value: Any) -> bool:
    return value is True


_READERS_BY_TYPE: Final[Mapping[str, FieldReader]] = {
    "string": text_or_none,
    "string[]": texts,
    "int": count,
    "double": number,
    "boolean": _is_true,
}
"""The reader of a fact, by the type of its attribute."""


def _reader_of(fact: Fact) -> FieldReader:
    """Return the reader of a fact."""
    # an integer that may be negative, or for which 0 means unset
    if fact.type == "int" and fact.least:
        return seed_of if fact.least < 0 else lambda value: count(value) or None
    return _READERS_BY_TYPE[fact.type]


_FACTS: Final = facts_in(RequestFacts)

_READERS: Final[Mapping[str, FieldReader]] = {
    **{name: _reader_of(declared) for name, declared in _FACTS.items()},
    # Facts with several shapes:
    "output_type": output_type,
    "schema": lambda value: "json" if value else None,
    "modalities": lambda value: output_type(None, value),
    # Fields that are not recorded:
    **dict.fromkeys(("stream_usage", "background"), _is_true),
    "conversation_id": text_or_none,
    "compaction": lambda value: isinstance(value, Mapping),
    "forces_tool": forces_tool,
    "messages": items,
    "input": _input,
    "system": lambda value: value if isinstance(value, str | list | tuple) else None,
}
"""The reader of each row of the table, for a member that is not missing or null."""

_FIELDS: Final = {
    "schema": "output_type",
    "modalities": "output_type",
    "messages": "history",
    "input": "history",
}
"""The field that a row fills, if it has another name."""

_GEMINI_SETTINGS: Final = frozenset({"generationConfig", "generation_config"})
"""The member of Gemini's requests whose members the rows of `gemini` name."""

_EMPTY_VALUES: Final[tuple[Any, ...]] = (None, "", ())


class _MemberPath(NamedTuple):
    """The path of a member of a request, and the field of its facts or summary that it fills."""

    member: str
    members_below: Sequence[str]
    field: str
    is_fact: bool
    coerce: FieldReader


@cache
def _member_paths() -> Mapping[str, Sequence[_MemberPath]]:
    return read_member_paths(package_data())


def read_member_paths(folder: Traversable) -> Mapping[str, Sequence[_MemberPath]]:
    """Return the paths of the members that are read, by format.

    Of a field's paths, the first with a value counts.

    Raises:
        ValueError: a row is invalid; the message begins with its file and number.
    """
    paths_by_format: dict[str, list[_MemberPath]] = {}
    rows: set[tuple[str, str]] = set()
    for location, (format_, row_name, paths) in read_tsv(
        folder, "request_members.tsv", range(3, 4)
    ):
        if format_ not in FORMATS:
            raise ValueError(
                f"{location}: {format_!r} is not a format: use one of {', '.join(FORMATS)}"
            )
        if row_name not in _READERS:
            raise ValueError(f"{location}: {row_name!r} must be one of {', '.join(_READERS)}")
        if (format_, row_name) in rows:
            raise ValueError(
                f"{location}: {format_!r} already has a row {row_name!r}: write all its paths "
                f"into one row, separated by spaces"
            )
        rows.add((format_, row_name))
        field = _FIELDS.get(row_name, row_name)
        for name, *below in (path.split(".") for path in paths.split()):
            if format_ == "gemini" and name in _GEMINI_SETTINGS:
                raise ValueError(
                    f"{location}: {'.'.join((name, *below))!r} must be relative to {name!r}: "
                    f"write {'.'.join(below) or 'the name of a member of it'!r}"
                )
            member_path = _MemberPath(name, below, field, field in _FACTS, _READERS[row_name])
            paths_by_format.setdefault(format_, []).append(member_path)
    return paths_by_format


@cache
def _reports_usage(format_: str) -> bool:
    """Return whether a stream of a format reports its usage by default.

    If a request has a member for it, it does not.
    """
    return all(member_path.field != "stream_usage" for member_path in _member_paths()[format_])


def summarize_request(
    format_: str, body: Any, *, facts: Mapping[str, Any] | None = None, **summary_fields: Any
) -> RequestSummary:
    """Summarize a request.

    Args:
        format_: the format whose members are read.
        body: the request's JSON, or the arguments of an SDK's method.
        facts: fields of RequestFacts that the format reads itself.
        summary_fields: other fields of the RequestSummary that the format reads itself.
    """
    fact_values: dict[str, Any] = {}
    summary_values: dict[str, Any] = {}
    get = body.get if body.__class__ is dict else partial(member, body)
    for name, below, field, is_fact, coerce in _member_paths()[format_]:
        if (value := get(name)) is None:
            continue
        values = fact_values if is_fact else summary_values
        if field in values:
            continue
        for nested_name in below:
            # of a list of output formats, the first
            value = member(next(iter(items(value)), value), nested_name)
        if value is not None and (value := coerce(value)) not in _EMPTY_VALUES:
            values[field] = value
    summary_values.setdefault("stream_usage", _reports_usage(format_))
    summary_values |= summary_fields
    if facts is not None:
        fact_values |= facts
    return RequestSummary(
        facts=RequestFacts(**fact_values),
        length=len(summary_values.get("history", ())),
        **summary_values,
    )


SEGMENTS: Final = r"(?:/(?!v\d+/)[^/]+)*"
"""A gateway's prefix of a format's own path: any segments except a version, which starts the path
itself."""


def routed_by(pattern: str) -> Callable[[str, str], Routed | None]:
    """Return a function that reads the method and the path of a request.

    It returns None if the path is not one of the format's.

    Args:
        pattern: for the whole path, without its query. It may have named groups: `model`; `id`, of
            a response that is fetched; `stream` and `whole`, which match if the path makes the
            response a stream, or not; `prompt`, which matches if the request completes a text in
            place of a chat.
    """
    fullmatch = re.compile(pattern).fullmatch

    def route(method: str, path: str) -> Routed | None:
        target, _, query = path.partition("?")
        match = fullmatch(target)
        groups = (
            {}
            if match is None
            else {name: value for name, value in match.groupdict().items() if value is not None}
        )
        id_, model = groups.get("id"), groups.get("model")
        if match is None or method != ("POST" if id_ is None else "GET"):
            return None
        if id_ is not None:
            return Routed(stream=parse_qs(query).get("stream") == ["true"], retrieve=unquote(id_))
        stream = True if "stream" in groups else False if "whole" in groups else None
        operation = "text_completion" if "prompt" in groups else None
        return Routed(None if model is None else unquote(model), stream, operation=operation)

    return route
