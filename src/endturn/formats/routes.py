"""What the paths of requests say, by each format's pattern."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, unquote

from endturn.formats.summaries import Routed

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
