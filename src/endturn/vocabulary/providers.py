"""The table of providers by `gen_ai.provider.name`, read from data/providers.toml.

Clients, instrumentation, frameworks, the Collector's rules and docs/providers.md read it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from endturn.vocabulary.stop_reason_tables import COMPATIBLE
from endturn.vocabulary.tsv import package_data

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


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


_FILE: Final = "providers.toml"
_LISTS: Final = frozenset({"hosts", "paths", "aliases"})
_TABLES: Final = frozenset({"headers"})


def read_providers(folder: Traversable) -> Mapping[str, ProviderEndpoint]:
    """Read the table of providers of a folder.

    Raises:
        ValueError: the file is no valid TOML, or a table is invalid; the message begins with the
            file, and names the table.
    """
    file = folder.joinpath(_FILE)
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f"{file}: {error}: correct the TOML there (each provider has one table)"
        ) from error
    providers: dict[str, ProviderEndpoint] = {}
    for name, table in tables.items():
        try:
            providers[name] = _endpoint(table)
        except ValueError as error:
            raise ValueError(f"{file}: [{name}] {error}") from error
    return providers


def _endpoint(table: Any) -> ProviderEndpoint:
    if not isinstance(table, dict):
        raise ValueError(f"must be a table, not {table!r}: move the key below its provider's name")
    keys = ProviderEndpoint.__dataclass_fields__
    if unknown := sorted(table.keys() - keys.keys()):
        raise ValueError(
            f"has the unknown keys {unknown}; the keys are: {', '.join(keys)} "
            f'(a name with a dot is quoted: ["aws.bedrock"])'
        )
    for key, value in table.items():
        _check_type(key, value)
    base_url = table.get("base_url")
    if base_url is not None and not base_url.startswith(("http://", "https://")):
        raise ValueError(f"base_url must begin with 'https://' or 'http://', not {base_url!r}")
    if table.get("auth", Auth.BEARER) not in list(Auth):
        raise ValueError(f"auth must be one of {', '.join(Auth)}, not {table['auth']!r}")
    return ProviderEndpoint(**{key: _value(key, value) for key, value in table.items()})


def _check_type(key: str, value: Any) -> None:
    if key in _LISTS:
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise ValueError(f'{key} must be a list of texts, such as ["…"], not {value!r}')
    elif key in _TABLES:
        if not isinstance(value, dict):
            raise ValueError(f'{key} must be a table, such as {{ name = "…" }}, not {value!r}')
    elif not isinstance(value, str):
        raise ValueError(f"{key} must be a text, not {value!r}")


def _value(key: str, value: Any) -> Any:
    return Auth(value) if key == "auth" else tuple(value) if isinstance(value, list) else value


PROVIDERS: Final[Mapping[str, ProviderEndpoint]] = read_providers(package_data())
"""The providers that clients know by name, under the conventions' names where there are any. Other
providers need a base URL.

A provider with several formats has the first as the default; `format` selects another: OpenAI's
`openai_responses`, Gemini's `gemini_interactions`, Bedrock's `bedrock_invoke`, Ollama's
`openai_chat` with its own base URL.
"""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SHARED_ADDRESSES: Final = ("", "localhost:8000")
"""Servers of every kind listen on port 8000."""


def names_by_alias(providers: Mapping[str, ProviderEndpoint]) -> dict[str, str]:
    """Return the names of providers by alias.

    Raises:
        ValueError: two providers have the same alias, or a provider's alias is another's name.
    """
    by_alias = _names_by("aliases", ((name, row.aliases) for name, row in providers.items()))
    for alias, name in by_alias.items():
        if alias in providers and alias != name:
            raise ValueError(
                f"{_FILE}: the alias {alias!r} of [{name}] is the name of [{alias}]: remove it"
            )
    return by_alias


def names_by_host(providers: Mapping[str, ProviderEndpoint]) -> dict[str, str]:
    """Return the names of providers by host.

    Raises:
        ValueError: two providers have the same host.
    """
    return _names_by("base_url or hosts", ((name, _hosts(row)) for name, row in providers.items()))


def names_by_path(providers: Mapping[str, ProviderEndpoint]) -> dict[str, str]:
    """Return the names of providers by a part of a path.

    Raises:
        ValueError: two providers have the same part.
    """
    return _names_by("paths", ((name, row.paths) for name, row in providers.items()))


def _hosts(endpoint: ProviderEndpoint) -> Iterable[str]:
    hosts = (urlsplit(endpoint.base_url or "").netloc, *endpoint.hosts)
    return (host for host in hosts if host not in _SHARED_ADDRESSES)


def _names_by(keys: str, entries: Iterable[tuple[str, Iterable[str]]]) -> dict[str, str]:
    """Return the name of the provider that has a value, by value."""
    names: dict[str, str] = {}
    for name, values in entries:
        for value in values:
            if (first := names.setdefault(value, name)) != name:
                raise ValueError(
                    f"{_FILE}: [{first}] and [{name}] both have {value!r} in their {keys}: "
                    f"remove it from one of them"
                )
    return names


ALIASES: Final = names_by_alias(PROVIDERS)
"""A framework's name of a provider → the provider."""

_PROVIDERS_BY_HOST: Final = names_by_host(PROVIDERS)
_PROVIDERS_BY_PATH: Final = names_by_path(PROVIDERS)


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
