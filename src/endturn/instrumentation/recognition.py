"""Which HTTP requests ask a model.

Told by path, by the members of their JSON, and by the host where it is known.

The host only says who answers and whose words the answer is in. An unknown host with a path and
members of a format is a compatible server: a gateway, a proxy, a server of one's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from endturn.calls import EndpointFacts
from endturn.formats import (
    FORMATS,
    RequestSummary,
    Routed,
    dialect_in,
    format_of,
    request_summary,
    routed_by,
)
from endturn.instrumentation.addresses import Address
from endturn.vocabulary import COMPATIBLE, provider_at, provider_of_path

if TYPE_CHECKING:
    from endturn.formats import Format

_ORDER: Final = ("openai_chat", "anthropic", *sorted(set(FORMATS) - {"openai_chat", "anthropic"}))
"""The formats that most calls are in come first: a format is imported when it is first asked."""

_VERTEX: Final = r"/(?P<model>[^/:]+):(?:(?P<stream>streamR)|(?P<whole>r))awPredict"
OPERATIONS: Final = {"gemini": "generate_content", "completions": "text_completion"}
"""The conventions' operation of a format's calls, where it is not `chat`."""

_OWN: Final = (
    ({"", "cohere"}, routed_by(r".*/v1/chat"), "cohere", "v1"),
    ({"", "cohere"}, routed_by(r".*/v1/generate"), "completions", "command"),
    ({"writer"}, routed_by(r"/v1/chat"), "openai_chat", COMPATIBLE),
    ({"", "mistral_ai"}, routed_by(r".*/v1/(?:fim|agents)/completions"), "openai_chat", "mistral"),
    # But for counting tokens, and reading documents.
    (
        {"", "gcp.vertex_ai"},
        routed_by(f".*/anthropic/models(?!/count-tokens:){_VERTEX}"),
        "anthropic",
        "",
    ),
    (
        {"", "gcp.vertex_ai"},
        routed_by(f".*/mistralai/models(?!/mistral-ocr){_VERTEX}"),
        "openai_chat",
        "mistral",
    ),
    ({"", "minimax"}, routed_by(r".*/v1/text/chatcompletion_v2"), "openai_chat", COMPATIBLE),
)
"""Paths that one provider alone has, at its home or behind an unknown host: whose, which, format
and dialect."""

_SERVED: Final = routed_by(
    r"(?:.*/(?P<model>[^/]+))?/invocations|.*/endpoints/[^/:]+:(?:streamR"
    r"|r)awPredict"
)
"""Where a server of models answers in the API that the members of a request belong to: vLLM's
`/invocations`, and the endpoints of SageMaker, Databricks and Vertex AI, which hand a request on to
a server that their owner chose."""


class Endpoint(NamedTuple):
    """Who answers a request, in which format, and what the request's URL says.

    Attributes:
        dialect: the table of the format's stop reasons.
        known: the host is a provider's, and no compatible server.
        is_exact: the path is the format's own, and does not only end like it.
        is_served: the format is that of the request's members; see `of`.
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
    is_served: bool = False

    def of(self, body: Mapping[str, Any] | None) -> Endpoint:
        """Return the endpoint, in the body's format if the path does not determine the format."""
        # A prompt alone may ask for a picture, or an agent.
        if self.is_served and body is not None and {"prompt", "max_tokens"} <= body.keys():
            return self._replace(format=format_of("completions"))
        return self

    def is_asked(self, body: Mapping[str, Any] | None) -> bool:
        """Whether the body asks a model: at its home it always does.

        Elsewhere it has the members of the format.

        Args:
            body: the request's JSON object; None where there is none that could be read.
        """
        if self.is_served:
            return body is not None and ("messages" in body or self.format.name == "completions")
        if self.known and self.is_exact:
            return True
        required = request_summary.required_members()
        ways = required.get(f"{self.format.name} {self.dialect}") or required[self.format.name]
        return body is not None and any(names <= body.keys() for names in ways)

    def asked(self, body: Mapping[str, Any]) -> RequestSummary:
        """What a request asks for, by its JSON object and by its path."""
        routed = self.routed
        if routed.model:
            # The name of an endpoint stands in for a model that the body does not name.
            model = (self.is_served and body.get("model")) or routed.model
            body = {**body, "model": model}
        if routed.stream is not None:
            body = {**body, "stream": routed.stream}
        elif self.format.name == "ollama":
            # the API streams where it is not said
            body = {**body, "stream": body.get("stream") is not False}
        return self.format.request_summary(body)

    def facts(self) -> EndpointFacts:
        """Return what is recorded of it."""
        operation = self.routed.operation or OPERATIONS.get(self.format.name, "chat")
        return EndpointFacts(
            operation=operation,
            provider=self.provider,
            server_address=self.host or None,
            server_port=self.port,
        )


@lru_cache(maxsize=1024)
def endpoint(method: str, where: Address) -> Endpoint | None:
    """Return the model API at that address; None if it speaks no format that we read."""
    host, port, path, query = where
    path = path.rstrip("/")
    home = provider_at(host, port)
    provider = home or provider_of_path(f"{path}?{query}")
    own = (
        (name, dialect, route(method, path))
        for whose, route, name, dialect in _OWN
        if provider in whose
    )
    found = next(
        ((format_of(name), dialect, routed) for name, dialect, routed in own if routed is not None),
        None,
    )
    served = _SERVED(method, path) if found is None else None
    if served is not None:
        chat, who = format_of("openai_chat"), provider or "openai"
        return Endpoint(chat, COMPATIBLE, who, served, bool(home), True, host, port, is_served=True)
    is_exact = True
    while path and found is None:
        for name in _ORDER:
            speaks = format_of(name)
            routed = speaks.match_path(method, f"{path}?{query}")
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
    return Endpoint(
        speaks, dialect, provider or speaks.provider, routed, bool(home), is_exact, host, port
    )
