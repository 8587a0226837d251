"""The table of providers by `gen_ai.provider.name`, read from data/providers.toml.

Clients, instrumentation, frameworks, the Collector's rules and docs/providers.md read it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from endturn.vocabulary.stop_reason_tables import COMPATIBLE
from endturn.vocabulary.tsv import package_data


class Auth(StrEnum):
    """The way in which a provider authenticates a request."""

    BEARER = "authorization"
    """`Authorization: Bearer …`"""
    X_API_KEY = "x-api-key"
    API_KEY = "api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    SIGV4 = "sigv4"
    """A signature over the request, with the credentials that AWS's SDKs find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """A provider's address, format and authentication.

    Attributes:
        base_url: up to the format's own path; may contain `{region}`. None: a client needs a
            `base_url`.
        key_variable: the environment variable that its own SDK reads the key from.
        dialect: its stop reasons, in each format that has a dialect of this name.
        format: the default format of clients.
        base_url_variable: the environment variable that its own SDK reads another base URL from.
        base_path: the path between a bare host and the format's path.
        headers: headers of every request in its format, with any provider.
        hosts: further hosts, each with all hosts below it, besides that of `base_url`.
        paths: parts of paths that no other provider has.
        aliases: the names that frameworks have for it, in lower case with underscores.
    """

    base_url: str | None = None
    key_variable: str | None = None
    dialect: str = COMPATIBLE
    format: str = "openai_chat"
    base_url_variable: str | None = None
    base_path: str = ""
    auth: Auth = Auth.BEARER
    headers: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


def _endpoint(name: str, row: Mapping[str, Any]) -> ProviderEndpoint:
    if unknown := row.keys() - ProviderEndpoint.__dataclass_fields__.keys():
        raise ValueError(f"providers.toml: [{name}] has {sorted(unknown)}, which are unknown keys")
    if row.get("auth", Auth.BEARER) not in list(Auth):
        raise ValueError(
            f"providers.toml: [{name}] auth must be one of {', '.join(Auth)}, not {row['auth']}"
        )
    return ProviderEndpoint(**{key: _value(key, value) for key, value in row.items()})


def _value(key: str, value: Any) -> Any:
    return Auth(value) if key == "auth" else tuple(value) if isinstance(value, list) else value


PROVIDERS: Final[Mapping[str, ProviderEndpoint]] = {
    name: _endpoint(name, row)
    for name, row in tomllib.loads(
        package_data().joinpath("providers.toml").read_text("utf-8")
    ).items()
}
"""The providers that clients know by name, under the conventions' names where there are any. Other
providers need a base URL.

A provider with several formats has the first as the default; `format` selects another: OpenAI's
`openai_responses`, Gemini's `gemini_interactions`, Bedrock's `bedrock_invoke`, Ollama's
`openai_chat` with its own base URL.
"""

ALIASES: Final = {alias: name for name, endpoint in PROVIDERS.items() for alias in endpoint.aliases}
"""A framework's name of a provider → the provider."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SHARED_ADDRESSES: Final = ("", "localhost:8000")
"""Servers of every kind listen on port 8000."""

_PROVIDERS_BY_HOST: Final = {
    host: name
    for name, endpoint in PROVIDERS.items()
    for host in (urlsplit(endpoint.base_url or "").netloc, *endpoint.hosts)
    if host not in _SHARED_ADDRESSES
}
_PROVIDERS_BY_PATH: Final = {
    part: name for name, endpoint in PROVIDERS.items() for part in endpoint.paths
}


def provider_at(host: str, port: int | None = None) -> str:
    """Return the provider at a host; "" for an unknown host."""
    name = host.lower().rstrip(".")
    if name in _LOOPBACK:
        name = f"localhost:{port}"
    elif name.endswith("-aiplatform.googleapis.com"):
        return "gcp.vertex_ai"  # the region precedes it
    elif name.startswith("aws-external-anthropic."):
        return "anthropic"  # Anthropic's own service, within AWS
    elif name.endswith("amazonaws.com") and "bedrock" not in name:
        return ""  # most services of AWS serve no models
    while name and name not in _PROVIDERS_BY_HOST:
        name = name.partition(".")[2]
    return _PROVIDERS_BY_HOST.get(name, "")


def provider_of_path(path: str) -> str:
    """Return the only provider with such a path, for an unknown host (gateways keep the path).

    "" if no provider has it alone.
    """
    return next((name for part, name in _PROVIDERS_BY_PATH.items() if part in path), "")


def canonical(name: str) -> str:
    """Return the provider for a framework's name ("google_genai", "xai.chat").

    Unknown names are returned in lower case with underscores.
    """
    name = name.strip().lower().replace("-", "_")
    for candidate in (name, name.partition(".")[0]):
        provider = ALIASES.get(candidate, candidate)
        if provider in PROVIDERS:
            return provider
    return name
