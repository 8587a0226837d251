"""Recognition of HTTP requests to a model: by path, by the members of their JSON, and by host.

The host only determines the provider and the dialect. An unknown host with a path and members of a
format is a compatible server: a gateway, a proxy, a self-hosted server.
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
    routed_by,
)
from endturn.instrumentation.addresses import Address
from endturn.vocabulary import COMPATIBLE, provider_at, provider_of_path

if TYPE_CHECKING:
    from endturn.formats import Format

_FORMAT_NAMES: Final = (
    "openai_chat",
    "anthropic",
    *sorted(set(FORMATS) - {"openai_chat", "anthropic"}),
)
"""The most frequent formats come first: a format is imported when it is first tried."""

_VERTEX: Final = r"/(?P<model>[^/:]+):(?:(?P<stream>streamR)|(?P<whole>r))awPredict"
OPERATIONS: Final = {"gemini": "generate_content", "completions": "text_completion"}
"""The conventions' operation of a format's calls, if it is not `chat`."""

_PROVIDER_ROUTES: Final = (
    ({"", "cohere"}, routed_by(r".*/v1/chat"), "cohere", "v1"),
    ({"", "cohere"}, routed_by(r".*/v1/generate"), "completions", "command"),
    ({"writer"}, routed_by(r"/v1/chat"), "openai_chat", COMPATIBLE),
    ({"", "mistral_ai"}, routed_by(r".*/v1/(?:fim|agents)/completions"), "openai_chat", "mistral"),
    # Except for counting tokens, and reading documents.
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
"""Paths that only one provider has, at its own host or behind an unknown one: providers, route,
format and dialect."""

_SERVER_ROUTES: Final = routed_by(
    r"(?:.*/(?P<model>[^/]+))?/invocations|.*/endpoints/[^/:]+:(?:streamR"
    r"|r)awPredict"
)
"""Paths of model servers whose API the members of the request determine: vLLM's `/invocations`, and
the endpoints of SageMaker, Databricks and Vertex AI, which pass a request on to a server that their
owner chose."""


class Endpoint(NamedTuple):
    """The provider and format of a request, and the settings in its URL.

    Attributes:
        dialect: the table of the format's stop reasons.
        is_known_host: the host is a provider's, and no compatible server.
        is_exact: the path is the format's own, and does not only end like it.
        is_served: the request's members determine the format; see `with_body_format`.
        port: None for the scheme's own.
    """

    format: Format
    dialect: str
    provider: str
    route: Routed
    is_known_host: bool
    is_exact: bool
    host: str
    port: int | None
    is_served: bool = False

    def with_body_format(self, body: Mapping[str, Any] | None) -> Endpoint:
        """Return the endpoint, in the body's format if the path does not determine the format."""
        # A prompt alone may request a picture, or an agent.
        if self.is_served and body is not None and {"prompt", "max_tokens"} <= body.keys():
            return self._replace(format=format_of("completions"))
        return self

    def asks_model(self, body: Mapping[str, Any] | None) -> bool:
        """Return whether the body asks a model.

        At a provider's host it always does; elsewhere it has the members of the format.

        Args:
            body: the request's JSON object; None if it could not be read.
        """
        if self.is_served:
            return body is not None and ("messages" in body or self.format.name == "completions")
        if self.is_known_host and self.is_exact:
            return True
        return body is not None and self.format.is_request(body, self.dialect)

    def summarize_request(self, body: Mapping[str, Any]) -> RequestSummary:
        """Return the summary of a request, by its JSON object and its path."""
        route = self.route
        if route.model:
            # The name of an endpoint stands in for a model that the body does not name.
            model = (self.is_served and body.get("model")) or route.model
            body = {**body, "model": model}
        if route.stream is not None:
            body = {**body, "stream": route.stream}
        elif self.format.name == "ollama":
            # the API streams by default
            body = {**body, "stream": body.get("stream") is not False}
        return self.format.request_summary(body)

    def facts(self) -> EndpointFacts:
        """Return the recorded facts."""
        operation = self.route.operation or OPERATIONS.get(self.format.name, "chat")
        return _shared_facts(operation, self.provider, self.host or None, self.port)


@lru_cache(maxsize=1024)
def _shared_facts(
    operation: str, provider: str, server_address: str | None, server_port: int | None
) -> EndpointFacts:
    """Return the facts of an endpoint: one object for all of its calls."""
    return EndpointFacts(
        operation=operation,
        provider=provider,
        server_address=server_address,
        server_port=server_port,
    )


@lru_cache(maxsize=1024)
def endpoint(method: str, address: Address) -> Endpoint | None:
    """Return the model API at that address; None if it speaks no format that we read."""
    host, port, path, query = address
    path = path.rstrip("/")
    home = provider_at(host, port)
    provider = home or provider_of_path(f"{path}?{query}")
    provider_routes = (
        (name, dialect, read_route(method, path))
        for providers, read_route, name, dialect in _PROVIDER_ROUTES
        if provider in providers
    )
    match = next(
        (
            (format_of(name), dialect, route)
            for name, dialect, route in provider_routes
            if route is not None
        ),
        None,
    )
    server_route = _SERVER_ROUTES(method, path) if match is None else None
    if server_route is not None:
        chat_format, provider_name = format_of("openai_chat"), provider or "openai"
        return Endpoint(
            chat_format,
            COMPATIBLE,
            provider_name,
            server_route,
            bool(home),
            True,
            host,
            port,
            is_served=True,
        )
    is_exact = True
    while path and match is None:
        for name in _FORMAT_NAMES:
            format_ = format_of(name)
            route = format_.match_path(method, f"{path}?{query}")
            if route is not None:
                match = format_, dialect_in(format_, provider), route
                break
        else:
            # A gateway may add a version before the format's path, or omit that of the format.
            path = path[path.find("/", 1) :] if path.find("/", 1) > 0 else ""
            is_exact = False
    if match is None:
        return None
    format_, dialect, route = match
    return Endpoint(
        format_, dialect, provider or format_.provider, route, bool(home), is_exact, host, port
    )
