"""Who answers under a base URL: provider, dialect, address and port."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary


@dataclass(frozen=True, slots=True)
class Home:
    """Where a client sends its calls.

    Attributes:
        provider: as in `gen_ai.provider.name`.
        dialect: the wire's table to read stop reasons with.
        port: None for 443.
    """

    provider: str
    dialect: str = ""
    address: str | None = None
    port: int | None = None


ANY: Final = "compatible"
"""The dialect of whoever imitates the format and may use anybody's words."""

HOSTS: Final = {
    "api.openai.com": ("openai", ""),
    "openai.azure.com": ("azure.ai.openai", "azure"),
    "cognitiveservices.azure.com": ("azure.ai.openai", "azure"),
    "services.ai.azure.com": ("azure.ai.inference", "azure"),
    "models.inference.ai.azure.com": ("azure.ai.inference", "azure"),
    "api.deepseek.com": ("deepseek", "deepseek"),
    "api.groq.com": ("groq", "groq"),
    "api.x.ai": ("x_ai", "xai"),
    "api.mistral.ai": ("mistral_ai", "mistral"),
    "openrouter.ai": ("openrouter", "openrouter"),
    "api.together.xyz": ("together", "together"),
    "api.together.ai": ("together", "together"),
    "api.perplexity.ai": ("perplexity", ANY),
    "api.moonshot.ai": ("moonshot_ai", "moonshot"),
    "api.moonshot.cn": ("moonshot_ai", "moonshot"),
    "api.fireworks.ai": ("fireworks", "fireworks"),
    "generativelanguage.googleapis.com": ("gcp.gemini", ANY),
    "aiplatform.googleapis.com": ("gcp.vertex_ai", ANY),
    "amazonaws.com": ("aws.bedrock", ANY),
    "api.cohere.ai": ("cohere", ANY),
    "api.cohere.com": ("cohere", ANY),
    "ml.cloud.ibm.com": ("ibm.watsonx.ai", ANY),
    "api.cerebras.ai": ("cerebras", "cerebras"),
    "api.githubcopilot.com": ("github_copilot", "copilot"),
    "models.github.ai": ("github_models", ANY),
    "api.z.ai": ("z_ai", "zai"),
    "open.bigmodel.cn": ("z_ai", "zai"),
    "router.huggingface.co": ("huggingface", "huggingface"),
    "api.anthropic.com": ("anthropic", ""),
}
"""A host, or the end of one, and who is behind it (the conventions' names where there is one)."""


def of_host(host: str, default: str, port: int | None = None) -> Home:
    """Who answers at a host. One that is not listed (a proxy, a server of one's own) speaks for `default`."""
    name = host.lower().rstrip(".")
    provider, dialect = default, ANY
    if name.endswith("-aiplatform.googleapis.com"):
        name = "aiplatform.googleapis.com"  # the region stands before it
    for known, (whose, speaks) in HOSTS.items():
        if name == known or name.endswith(f".{known}"):
            provider, dialect = whose, speaks
            break
    return Home(provider, dialect, host or None, None if port == 443 else port)


_known: WeakKeyDictionary[Any, tuple[object, Home]] = WeakKeyDictionary()


def of_client(client: Any, default: str) -> Home:
    """Who answers an SDK's client, remembered until its base URL changes."""
    url = client.base_url
    known = _known.get(client)
    if known is not None and known[0] is url:
        return known[1]
    home = of_host(url.host, default, url.port)
    # anthropic 2: the clients for Bedrock and Vertex say so themselves, whatever host they are pointed at.
    named = getattr(client, "_gen_ai_provider_name", None)
    if isinstance(named, str) and named != "anthropic":
        home = Home(named, "", home.address, home.port)
    elif home.provider == default and "Azure" in type(client).__name__:
        home = Home("azure.ai.openai", "azure", home.address, home.port)
    _known[client] = (url, home)
    return home
