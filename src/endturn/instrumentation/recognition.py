"""Which HTTP requests ask a model: told by path, by the members of their JSON, and by the host where it is known.

The host only says who answers and whose words the answer is in. An unknown host with a path and members of a format is
a compatible server: a gateway, a proxy, a server of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

from endturn.formats import FORMATS, RequestSummary, Routed, dialect_in, format_of, request_summary
from endturn.formats.request_summary import routed_by
from endturn.providers import provider_at, provider_of_path
from endturn.stop_reasons import COMPATIBLE

if TYPE_CHECKING:
    from endturn.formats.format import Format

ENDS: Final = {
    "cancel", "chat", "chat_stream", "complete", "completion", "completions", "converse", "converse-stream",
    "generate", "generate_stream", "generateContent", "generation", "generation_stream", "interactions", "invoke",
    "invoke-with-response-stream", "messages", "rawPredict", "responses", "streamGenerateContent", "streamRawPredict",
}  # fmt: skip
"""What the path of a request that asks a model ends with, after its last slash or colon."""

_ORDER: Final = ("openai_chat", "anthropic", *sorted(set(FORMATS) - {"openai_chat", "anthropic"}))
"""The formats that most calls are in come first: a format is imported when it is first asked."""

_VERTEX: Final = r"/(?P<model>[^/:]+):(?:(?P<stream>streamR)|(?P<whole>r))awPredict"
_OWN: Final = (
    ({"", "cohere"}, routed_by(r".*/v1/chat"), "cohere", "v1"),
    ({"", "cohere"}, routed_by(r".*/v1/generate"), "completions", "command"),
    ({"writer"}, routed_by(r"/v1/chat"), "openai_chat", COMPATIBLE),
    ({"", "mistral_ai"}, routed_by(r".*/v1/(?:fim|agents)/completions"), "openai_chat", "mistral"),
    # But for counting tokens, and reading documents.
    ({"", "gcp.vertex_ai"}, routed_by(f".*/anthropic/models(?!/count-tokens:){_VERTEX}"), "anthropic", ""),
    ({"", "gcp.vertex_ai"}, routed_by(f".*/mistralai/models(?!/mistral-ocr){_VERTEX}"), "openai_chat", "mistral"),
)
"""Paths that one provider alone has, at its home or behind an unknown host: whose, which, format and dialect."""


class Endpoint(NamedTuple):
    """Who answers a request, in which format, and what the request's URL says.

    Attributes:
        dialect: the table of the format's stop reasons.
        known: the host is a provider's, and no compatible server.
        is_exact: the path is the format's own, and does not only end like it.
        port: None for the scheme's own.
    """

    format: Format
    dialect: str
    provider: str
    routed: Routed
    known: bool
    is_exact: bool
    host: str
    port: int | None

    def is_asked(self, body: Mapping[str, Any] | None) -> bool:
        """Whether the body asks a model: at its home it always does; elsewhere it has the members of the format.

        Args:
            body: the request's JSON object; None where there is none that could be read.
        """
        if self.known and self.is_exact:
            return True
        required = request_summary.required()
        ways = required.get(f"{self.format.name} {self.dialect}") or required[self.format.name]
        return body is not None and any(names <= body.keys() for names in ways)

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
def endpoint(method: str, url: str) -> Endpoint | None:
    """What answers at that URL; None where no format is spoken there."""
    parts = urlsplit(url)
    host, port, path = parts.hostname or "", parts.port, parts.path.rstrip("/")
    home = provider_at(host, port)
    provider = home or provider_of_path(f"{path}?{parts.query}")
    own = ((name, dialect, route(method, path)) for whose, route, name, dialect in _OWN if provider in whose)
    found = next(((format_of(name), dialect, routed) for name, dialect, routed in own if routed is not None), None)
    is_exact = True
    while path and found is None:
        for name in _ORDER:
            speaks = format_of(name)
            routed = speaks.routed(method, f"{path}?{parts.query}")
            if routed is not None:
                found = speaks, dialect_in(speaks, provider), routed
                break
        else:
            # A gateway may put a version of its own before the format's path, or leave that's out.
            path = path[path.find("/", 1) :] if path.find("/", 1) > 0 else ""
            is_exact = False
    if found is None:
        return None
    speaks, dialect, routed = found
    return Endpoint(speaks, dialect, provider or speaks.provider, routed, bool(home), is_exact, host, port)
