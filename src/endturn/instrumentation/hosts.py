"""Who answers under a base URL: provider, dialect, address and port."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final
from weakref import ref


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
    "openai.azure.us": ("azure.ai.openai", "azure"),
    "openai.azure.cn": ("azure.ai.openai", "azure"),
    "cognitiveservices.azure.com": ("azure.ai.openai", "azure"),
    "services.ai.azure.com": ("azure.ai.inference", "azure"),
    "models.inference.ai.azure.com": ("azure.ai.inference", "azure"),
    "api.deepseek.com": ("deepseek", "deepseek"),
    "api.groq.com": ("groq", "groq"),
    "api.x.ai": ("x_ai", "xai"),
    "api.mistral.ai": ("mistral_ai", "mistral"),
    "codestral.mistral.ai": ("mistral_ai", "mistral"),
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
    "ml.cloud.ibm.com": ("ibm.watsonx.ai", "watsonx"),
    "api.cerebras.ai": ("cerebras", "cerebras"),
    "api.githubcopilot.com": ("github_copilot", "copilot"),
    "models.github.ai": ("github_models", ANY),
    "api.z.ai": ("z_ai", "zai"),
    "open.bigmodel.cn": ("z_ai", "zai"),
    "ollama.com": ("ollama", "ollama"),
    "router.huggingface.co": ("huggingface", "huggingface"),
    "endpoints.huggingface.cloud": ("huggingface", "huggingface"),
    "api.sambanova.ai": ("sambanova", ANY),
    "api.writer.com": ("writer", ANY),
    "api.ai21.com": ("ai21", ANY),
    "api.deepinfra.com": ("deepinfra", ANY),
    "api.minimax.io": ("minimax", ANY),
    "api.minimaxi.com": ("minimax", ANY),
    "api.novita.ai": ("novita", ANY),
    "api.siliconflow.cn": ("siliconflow", ANY),
    "api.siliconflow.com": ("siliconflow", ANY),
    "api.studio.nebius.com": ("nebius", ANY),
    "api.tokenfactory.nebius.com": ("nebius", ANY),
    "api.hyperbolic.xyz": ("hyperbolic", ANY),
    "api.venice.ai": ("venice", ANY),
    "inference.baseten.co": ("baseten", ANY),
    "integrate.api.nvidia.com": ("nvidia", ANY),
    "dashscope.aliyuncs.com": ("alibaba_cloud", ANY),
    "dashscope-intl.aliyuncs.com": ("alibaba_cloud", ANY),
    "dashscope-us.aliyuncs.com": ("alibaba_cloud", ANY),
    "volces.com": ("volcengine", ANY),
    "ai-gateway.vercel.sh": ("vercel", ANY),
    "api.aws": ("aws.bedrock", ANY),
    "api.anthropic.com": ("anthropic", ""),
    "claude.googleapis.com": ("anthropic", ""),
}
"""A host, or the end of one, and who is behind it (the conventions' names where there is one)."""

_CLIENTS: Final = {
    "Azure": ("azure.ai.openai", "azure"),
    "Foundry": ("azure.ai.inference", "azure"),
    "Bedrock": ("aws.bedrock", ANY),
}
"""What the name of a client's class says of who answers, whatever host it is pointed at: a gateway, a test."""


def of_host(host: str, default: str, port: int | None = None) -> Home:
    """Who answers at a host. One that is not listed (a proxy, a server of one's own) speaks for `default`."""
    name = host.lower().rstrip(".")
    provider, dialect = default, ANY
    if name.endswith("-aiplatform.googleapis.com"):
        name = "aiplatform.googleapis.com"  # the region stands before it
    elif name.startswith("aws-external-anthropic."):
        name = "api.anthropic.com"  # Anthropic's own service, within AWS
    for known, (whose, speaks) in HOSTS.items():
        if name == known or name.endswith(f".{known}"):
            provider, dialect = whose, speaks
            break
    return Home(provider, dialect, host or None, None if port == 443 else port)


_LOCAL: Final = {11434: ("ollama", "ollama"), 1234: ("lmstudio", "lmstudio")}
"""The ports that servers of models on one's own machine choose for themselves."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@lru_cache(maxsize=512)
def may_answer(host: str) -> bool:
    """Whether a host may be a model's: almost none is, and every HTTP request of a process comes by here."""
    if host in _LOOPBACK or host.endswith("-aiplatform.googleapis.com"):
        return True
    name = host.lower().rstrip(".")
    while name and name not in HOSTS:
        name = name.partition(".")[2]
    # Most of what AWS answers is no model's.
    return name in HOSTS and (name != "amazonaws.com" or "bedrock" in host or host.startswith("aws-external-"))


def at(host: str, port: int | None) -> Home | None:
    """Who answers at a host, where it is known to be a model's; None for the rest of the world."""
    if host in _LOOPBACK:
        return Home(*_LOCAL[port], host, port) if port in _LOCAL else None
    return of_host(host, "", port) if may_answer(host) else None


_known: dict[int, tuple[Any, object, Home]] = {}
"""By the client's identity, each as long as its client lives: a weak dictionary would make a reference to look."""


def of_client(client: Any, default: str) -> Home:
    """Who answers an SDK's client, remembered until its base URL changes."""
    url = client.base_url
    key = id(client)
    known = _known.get(key)
    if known is not None and known[1] is url:
        return known[2]
    home = of_host(url.host, default, url.port)
    # anthropic 2: the clients for Bedrock and Vertex say so themselves, whatever host they are pointed at.
    named = getattr(client, "_gen_ai_provider_name", None)
    if isinstance(named, str) and named != "anthropic":
        home = Home(named, "", home.address, home.port)
    elif home.provider == default:
        for word, (whose, speaks) in _CLIENTS.items():
            if word in type(client).__name__:
                home = Home(whose, speaks, home.address, home.port)
    _known[key] = (ref(client, lambda gone: _known.pop(key, None)), url, home)
    return home
