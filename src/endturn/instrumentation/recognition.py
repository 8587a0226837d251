"""Which HTTP requests ask a model: told by path, by the members of their JSON, and by the host where it is known.

The host only says who answers and whose words the answer is in. An unknown host with a path and members of a format is
a compatible server: a gateway, a proxy, a server of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from endturn.formats import FORMATS, RequestSummary, Routed, dialect_in, format_of, request_summary
from endturn.providers import provider_at, provider_of_path
from endturn.stop_reasons import COMPATIBLE

if TYPE_CHECKING:
    from endturn.formats.format import Format

ENDS: Final = frozenset(
    {
        "cancel", "chat", "chat_stream", "complete", "completion", "completions", "converse", "converse-stream",
        "generate", "generate_stream", "generateContent", "generation", "generation_stream", "interactions", "invoke",
        "invoke-with-response-stream", "messages", "rawPredict", "responses", "streamGenerateContent",
        "streamRawPredict",
    }
)  # fmt: skip
"""What the path of a request that asks a model ends with, after its last slash or colon."""

_ORDER: Final = ("openai_chat", "anthropic", *sorted(set(FORMATS) - {"openai_chat", "anthropic"}))
"""The formats that most calls are in come first: a format is imported when it is first asked."""

_COHERE_V1: Final = re.compile(r".*/v1/(?P<way>chat|generate)")
_MISTRAL: Final = re.compile(r".*/v1/(?:fim|agents)/completions")
"""Both answer in the chat format."""
_VERTEX: Final = re.compile(
    # But for counting tokens, and reading documents.
    r".*/publishers/(?P<whose>anthropic|mistralai)/models/(?P<model>(?!count-tokens:|mistral-ocr)[^/:]+)"
    r":(?P<stream>stream)?[rR]awPredict"
)


class Endpoint(NamedTuple):
    """Who answers a request, in which format, and what the request's path says.

    Attributes:
        dialect: the table of the format's stop reasons.
        known: the host is a provider's, and no compatible server.
        is_exact: the path is the format's own, and does not only end like it.
    """

    format: Format
    dialect: str
    provider: str
    routed: Routed
    known: bool
    is_exact: bool = True

    def asked(self, body: Mapping[str, Any]) -> RequestSummary:
        """What a request asks for, by its JSON object and by its path."""
        routed = self.routed
        asked = self.format.request_summary({**body, "model": routed.model} if routed.model else body)
        if routed.stream is not None:
            asked.stream = routed.stream
        elif self.format.name == "ollama":
            asked.stream = body.get("stream") is not False  # the API streams where it is not said
        return asked


@lru_cache(maxsize=1024)
def endpoint(method: str, host: str, port: int | None, path: str) -> Endpoint | None:
    """What answers at that address; None where no format is spoken there.

    Args:
        path: as it is sent, with its query.
    """
    below, mark, query = path.partition("?")
    below = below.rstrip("/")
    path = f"{below}{mark}{query}"
    provider = provider_at(host, port)
    known = bool(provider)
    provider = provider or provider_of_path(path)
    own = _own(provider, below)
    if own is not None:
        speaks, whose, routed = own
        return Endpoint(speaks, whose, provider or speaks.provider, routed, known)
    is_exact = True
    while below:
        for name in _ORDER:
            speaks = format_of(name)
            found = speaks.routed(method, f"{below}?{query}")
            if found is not None:
                whose = dialect_in(speaks, provider)
                return Endpoint(speaks, whose, provider or speaks.provider, found, known, is_exact)
        # A gateway may put a version of its own before the format's path, or leave that's out.
        below = below[below.find("/", 1) :] if below.find("/", 1) > 0 else ""
        is_exact = False
    return None


def is_asked(found: Endpoint, body: Mapping[str, Any] | None) -> bool:
    """Whether the body asks a model: at its home it always does; elsewhere it has the members of the format.

    Args:
        body: the request's JSON object; None where there is none that could be read.
    """
    if found.known and found.is_exact:
        return True
    name = found.format.name
    required = request_summary.required()
    ways = required.get(f"{name} {found.dialect}") or required[name]
    return body is not None and any(names <= body.keys() for names in ways)


def _own(provider: str, path: str) -> tuple[Format, str, Routed] | None:
    """What is spoken at a path that one provider alone has, at its home or behind an unknown host."""
    if provider in ("", "cohere") and (cohere := _COHERE_V1.fullmatch(path)) is not None:
        speaks, dialect = ("cohere", "v1") if cohere["way"] == "chat" else ("completions", "command")
        return format_of(speaks), dialect, Routed()
    if provider == "writer" and path == "/v1/chat":
        return format_of("openai_chat"), COMPATIBLE, Routed()
    if provider in ("", "mistral_ai") and _MISTRAL.fullmatch(path):
        return format_of("openai_chat"), "mistral", Routed()
    if provider in ("", "gcp.vertex_ai") and (vertex := _VERTEX.fullmatch(path)) is not None:
        routed = Routed(unquote(vertex["model"]), vertex["stream"] is not None)
        if vertex["whose"] == "anthropic":
            return format_of("anthropic"), "", routed
        return format_of("openai_chat"), "mistral", routed
    return None
