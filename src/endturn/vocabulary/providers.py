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
from endturn.vocabulary.tsv import shipped


class Auth(StrEnum):
    """How a provider is told who asks."""

    BEARER = "authorization"
    """`Authorization: Bearer …`"""
    X_API_KEY = "x-api-key"
    API_KEY = "api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    SIGV4 = "sigv4"
    """A signature over the request, made with the credentials that AWS's SDKs find."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEndpoint:
    """Where a provider answers, in which format, and how it is asked.

    Attributes:
        base_url: up to the format's own path; may contain `{region}`. None: a client has to be
            given one.
        key_variable: the environment variable that its own SDK reads the key from.
        dialect: its stop reasons, in each format that knows it by this name.
        format: the format in which clients ask it, unless told another.
        base_url_variable: the environment variable that its own SDK reads another base URL from.
        base_path: what stands between a host that is given alone and the format's path.
        headers: those that every request in its format has, whoever answers.
        hosts: where else it answers, on this host and all below it; the host of `base_url` is
            known.
        paths: parts of paths that no other provider has.
        aliases: what frameworks call it, in lower case with underscores.
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
            f"providers.toml: [{name}] auth is one of {', '.join(Auth)}, not {row['auth']}"
        )
    return ProviderEndpoint(**{key: _value(key, value) for key, value in row.items()})


def _value(key: str, value: Any) -> Any:
    return Auth(value) if key == "auth" else tuple(value) if isinstance(value, list) else value


PROVIDERS: Final[Mapping[str, ProviderEndpoint]] = {
    name: _endpoint(name, row)
    for name, row in tomllib.loads(shipped().joinpath("providers.toml").read_text("utf-8")).items()
}
"""The providers known by name; names of the conventions where they have one. A client asks others
too, by address.

One that speaks several formats is asked in the first of them; `format` chooses another: OpenAI's
`openai_responses`, Gemini's `gemini_interactions`, Bedrock's `bedrock_invoke`, Ollama's
`openai_chat` with its own base URL.
"""

ALIASES: Final = {alias: name for name, known in PROVIDERS.items() for alias in known.aliases}
"""What frameworks call a provider → its name."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SHARED_ADDRESSES: Final = ("", "localhost:8000")
"""Servers of every kind listen on port 8000."""

_HOSTS: Final = {
    host: name
    for name, known in PROVIDERS.items()
    for host in (urlsplit(known.base_url or "").netloc, *known.hosts)
    if host not in _SHARED_ADDRESSES
}
_PATHS: Final = {part: name for name, known in PROVIDERS.items() for part in known.paths}


def provider_at(host: str, port: int | None = None) -> str:
    """Who answers at a host; "" for a host that is not known."""
    name = host.lower().rstrip(".")
    if name in _LOOPBACK:
        name = f"localhost:{port}"
    elif name.endswith("-aiplatform.googleapis.com"):
        return "gcp.vertex_ai"  # the region stands before it
    elif name.startswith("aws-external-anthropic."):
        return "anthropic"  # Anthropic's own service, within AWS
    elif name.endswith("amazonaws.com") and "bedrock" not in name:
        return ""  # most of what AWS answers is no model's
    while name and name not in _HOSTS:
        name = name.partition(".")[2]
    return _HOSTS.get(name, "")


def provider_of_path(path: str) -> str:
    """Who alone has such a path, at an unknown host (a gateway keeps it).

    "" where others have it too.
    """
    return next((name for part, name in _PATHS.items() if part in path), "")


def canonical(name: str) -> str:
    """Return the provider's name, by what a framework calls it ("google_genai", "xai.chat").

    Unknown ones stay as they are.
    """
    name = name.strip().lower().replace("-", "_")
    for said in (name, name.partition(".")[0]):
        known = ALIASES.get(said, said)
        if known in PROVIDERS:
            return known
    return name
