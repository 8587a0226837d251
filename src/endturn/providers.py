"""Who answers: the one table of providers, by their names in `gen_ai.provider.name`.

Clients, instrumentation, frameworks, the Collector's rules and docs/providers.md read it. A new provider is one row;
one with stop reasons of its own also needs a row of data/dialects.tsv, which its `dialect` names, and its values in
data/stop_reasons.tsv.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from endturn.stop_reasons import COMPATIBLE


class Auth(StrEnum):
    """How a provider is told who asks."""

    BEARER = "authorization"
    """`Authorization: Bearer …`"""
    X_API_KEY = "x-api-key"
    API_KEY = "api-key"
    X_GOOG_API_KEY = "x-goog-api-key"
    SIGV4 = "sigv4"
    """A signature over the request, made with the credentials that AWS's SDKs find."""


@dataclass(frozen=True, slots=True)
class ProviderEndpoint:
    """Where a provider answers, in which format, and how it is asked.

    Attributes:
        base_url: up to the format's own path; may contain `{region}`. None: a client has to be given one.
        key_variable: the environment variable that its own SDK reads the key from.
        dialect: its stop reasons, in each format that knows it by this name.
        format: the format in which clients ask it, unless told another.
        base_url_variable: the environment variable that its own SDK reads another base URL from.
        base_path: what stands between a host that is given alone and the format's path.
        headers: those that every request in its format has, whoever answers.
        hosts: where else it answers, on this host and all below it; the host of `base_url` is known.
        paths: parts of paths that no other provider has.
        aliases: what frameworks call it, in lower case with underscores.
    """

    base_url: str | None = None
    key_variable: str | None = None
    dialect: str = COMPATIBLE
    _: KW_ONLY
    format: str = "openai_chat"
    base_url_variable: str | None = None
    base_path: str = ""
    auth: Auth = Auth.BEARER
    headers: Mapping[str, str] = field(default_factory=dict)
    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


PROVIDERS: Final[Mapping[str, ProviderEndpoint]] = {
    "ai21": ProviderEndpoint(hosts=("api.ai21.com",)),
    "alibaba_cloud": ProviderEndpoint(
        hosts=("dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com", "dashscope-us.aliyuncs.com")
    ),
    "anthropic": ProviderEndpoint(
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "",
        format="anthropic",
        base_url_variable="ANTHROPIC_BASE_URL",
        auth=Auth.X_API_KEY,
        headers={"anthropic-version": "2023-06-01"},
        hosts=("claude.googleapis.com",),
    ),
    "aws.bedrock": ProviderEndpoint(
        "https://bedrock-runtime.{region}.amazonaws.com",
        "AWS_BEARER_TOKEN_BEDROCK",
        format="bedrock_converse",
        base_url_variable="AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
        auth=Auth.SIGV4,
        hosts=("amazonaws.com", "api.aws"),
        aliases=("amazon_bedrock", "bedrock", "bedrock_converse"),
    ),
    "azure.ai.inference": ProviderEndpoint(
        dialect="azure", hosts=("services.ai.azure.com", "models.inference.ai.azure.com")
    ),
    "azure.ai.openai": ProviderEndpoint(
        None,
        "AZURE_OPENAI_API_KEY",
        "azure",
        base_url_variable="AZURE_OPENAI_ENDPOINT",
        base_path="/openai/v1",
        auth=Auth.API_KEY,
        hosts=("openai.azure.com", "openai.azure.us", "openai.azure.cn", "cognitiveservices.azure.com"),
        paths=("api-version=", "/openai/deployments/"),
        aliases=("azure", "azure_openai"),
    ),
    "baseten": ProviderEndpoint(hosts=("inference.baseten.co",)),
    "cerebras": ProviderEndpoint("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "cerebras"),
    "cohere": ProviderEndpoint(
        "https://api.cohere.com",
        "CO_API_KEY",
        format="cohere",
        base_url_variable="CO_API_URL",
        hosts=("api.cohere.ai",),
        paths=("/v1/generate",),
    ),
    "deepinfra": ProviderEndpoint(hosts=("api.deepinfra.com",)),
    "deepseek": ProviderEndpoint("https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek"),
    "fireworks": ProviderEndpoint(
        "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY", "fireworks", aliases=("fireworks_ai",)
    ),
    "gcp.gemini": ProviderEndpoint(
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        format="gemini",
        base_url_variable="GOOGLE_GEMINI_BASE_URL",
        base_path="/v1beta",
        auth=Auth.X_GOOG_API_KEY,
        aliases=("gemini", "google", "google_genai", "google_gla"),
    ),
    # Either of Google's two, by the conventions.
    "gcp.gen_ai": ProviderEndpoint(format="gemini"),
    "gcp.vertex_ai": ProviderEndpoint(
        None,
        "GOOGLE_ACCESS_TOKEN",
        "vertex",
        format="gemini",
        hosts=("aiplatform.googleapis.com",),
        paths=("/publishers/",),
        aliases=("google_cloud", "google_vertex", "google_vertexai", "vertex_ai", "vertexai"),
    ),
    "github_copilot": ProviderEndpoint("https://api.githubcopilot.com", "GITHUB_COPILOT_TOKEN", "copilot"),
    "github_models": ProviderEndpoint(hosts=("models.github.ai",)),
    "groq": ProviderEndpoint("https://api.groq.com/openai/v1", "GROQ_API_KEY", "groq"),
    "huggingface": ProviderEndpoint(
        "https://router.huggingface.co/v1", "HF_TOKEN", "huggingface", hosts=("endpoints.huggingface.cloud",)
    ),
    "hyperbolic": ProviderEndpoint(hosts=("api.hyperbolic.xyz",)),
    "ibm.watsonx.ai": ProviderEndpoint(
        None,
        "WATSONX_TOKEN",
        "watsonx",
        base_url_variable="WATSONX_URL",
        base_path="/ml/v1?version=2025-02-11",
        hosts=("ml.cloud.ibm.com",),
    ),
    "lmstudio": ProviderEndpoint("http://localhost:1234/v1", None, "lmstudio"),
    "minimax": ProviderEndpoint(hosts=("api.minimax.io", "api.minimaxi.com")),
    "mistral_ai": ProviderEndpoint(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "mistral",
        hosts=("codestral.mistral.ai",),
        paths=("/v1/fim/",),
        aliases=("mistral", "mistralai"),
    ),
    "moonshot_ai": ProviderEndpoint(
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        "moonshot",
        hosts=("api.moonshot.cn",),
        aliases=("moonshotai",),
    ),
    "nebius": ProviderEndpoint(hosts=("api.studio.nebius.com", "api.tokenfactory.nebius.com")),
    "novita": ProviderEndpoint(hosts=("api.novita.ai",)),
    "nvidia": ProviderEndpoint(hosts=("integrate.api.nvidia.com",)),
    "ollama": ProviderEndpoint("http://localhost:11434", None, "ollama", format="ollama", hosts=("ollama.com",)),
    "openai": ProviderEndpoint("https://api.openai.com/v1", "OPENAI_API_KEY", "", base_url_variable="OPENAI_BASE_URL"),
    "openrouter": ProviderEndpoint("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", "openrouter"),
    "perplexity": ProviderEndpoint(hosts=("api.perplexity.ai",)),
    "sambanova": ProviderEndpoint(hosts=("api.sambanova.ai",)),
    "siliconflow": ProviderEndpoint(hosts=("api.siliconflow.cn", "api.siliconflow.com")),
    "together": ProviderEndpoint(
        "https://api.together.xyz/v1", "TOGETHER_API_KEY", "together", hosts=("together.ai",), aliases=("togetherai",)
    ),
    "venice": ProviderEndpoint(hosts=("api.venice.ai",)),
    "vercel": ProviderEndpoint(hosts=("ai-gateway.vercel.sh",)),
    "vllm": ProviderEndpoint("http://localhost:8000/v1", None, "vllm"),
    "volcengine": ProviderEndpoint(hosts=("volces.com",)),
    "writer": ProviderEndpoint(hosts=("api.writer.com",)),
    "x_ai": ProviderEndpoint("https://api.x.ai/v1", "XAI_API_KEY", "xai", aliases=("xai",)),
    "z_ai": ProviderEndpoint(
        "https://api.z.ai/api/paas/v4", "ZAI_API_KEY", "zai", hosts=("open.bigmodel.cn",), aliases=("zai",)
    ),
}
"""The providers known by name; names of the conventions where they have one. A client asks others too, by address.

One that speaks several formats is asked in the first of them; `format` chooses another: OpenAI's `openai_responses`,
Gemini's `gemini_interactions`, Bedrock's `bedrock_invoke`, Ollama's `openai_chat` with its own base URL.
"""

ALIASES: Final = {alias: name for name, known in PROVIDERS.items() for alias in known.aliases}
"""What frameworks call a provider → its name."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_NOBODYS: Final = ("", "localhost:8000")
"""Servers of every kind listen on port 8000."""

_HOSTS: Final = {
    host: name
    for name, known in PROVIDERS.items()
    for host in (urlsplit(known.base_url or "").netloc, *known.hosts)
    if host not in _NOBODYS
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
    """Who alone has such a path, at an unknown host (a gateway keeps it); "" where others have it too."""
    return next((name for part, name in _PATHS.items() if part in path), "")


def canonical(name: str) -> str:
    """The provider's name, by what a framework calls it ("google_genai", "xai.chat"); unknown ones stay as they are."""
    name = name.strip().lower().replace("-", "_")
    for said in (name, name.partition(".")[0]):
        known = ALIASES.get(said, said)
        if known in PROVIDERS:
            return known
    return name
