"""Which HTTP requests ask a model: told by path, by the members of their JSON, and by the host where it is known.

The host only says who answers and whose words the answer is in. An unknown host with a path and members of a format is
a compatible server: a gateway, a proxy, a server of one's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from endturn.exchange import PROVIDERS
from endturn.wires import WIRES, Asked, Routed, Wire, wire

ANY: Final = "compatible"
"""The dialect of whoever imitates the format and may use anybody's words."""

HOSTS: Final = {
    # Where our own clients ask, in the chat format.
    **{
        urlsplit(home.url).netloc: (name, home.dialect)
        for name, home in PROVIDERS.items()
        if home.url and home.key and home.wire == "openai_chat"
    },
    "openai.azure.com": ("azure.ai.openai", "azure"),
    "openai.azure.us": ("azure.ai.openai", "azure"),
    "openai.azure.cn": ("azure.ai.openai", "azure"),
    "cognitiveservices.azure.com": ("azure.ai.openai", "azure"),
    "services.ai.azure.com": ("azure.ai.inference", "azure"),
    "models.inference.ai.azure.com": ("azure.ai.inference", "azure"),
    "codestral.mistral.ai": ("mistral_ai", "mistral"),
    "api.together.ai": ("together", "together"),
    "api.perplexity.ai": ("perplexity", ANY),
    "api.moonshot.cn": ("moonshot_ai", "moonshot"),
    "generativelanguage.googleapis.com": ("gcp.gemini", ANY),
    "aiplatform.googleapis.com": ("gcp.vertex_ai", ANY),
    "amazonaws.com": ("aws.bedrock", ANY),
    "api.cohere.ai": ("cohere", ANY),
    "api.cohere.com": ("cohere", ANY),
    "ml.cloud.ibm.com": ("ibm.watsonx.ai", "watsonx"),
    "models.github.ai": ("github_models", ANY),
    "open.bigmodel.cn": ("z_ai", "zai"),
    "ollama.com": ("ollama", "ollama"),
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
    "localhost:11434": ("ollama", "ollama"),
    "localhost:1234": ("lmstudio", "lmstudio"),
}
"""A host, or the end of one, and who is behind it (the conventions' names where there is one)."""

_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})

_ENDS: Final = frozenset(
    {
        "cancel", "chat", "chat_stream", "complete", "completion", "completions", "converse", "converse-stream",
        "generate", "generate_stream", "generateContent", "generation", "generation_stream", "interactions", "invoke",
        "invoke-with-response-stream", "messages", "rawPredict", "responses", "streamGenerateContent",
        "streamRawPredict",
    }
)  # fmt: skip
"""What the path of a request that asks a model ends with, after its last slash or colon."""

_MEMBERS: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "anthropic": (frozenset({"messages", "max_tokens"}), frozenset({"messages", "anthropic_version"})),
    "bedrock_converse": (frozenset({"messages"}), frozenset({"promptVariables"})),
    "bedrock_invoke": tuple(frozenset({name}) for name in ("messages", "prompt", "inputText", "message", "input")),
    "cohere": (frozenset({"model", "messages"}),),
    "cohere v1": (frozenset({"message"}),),
    "completions": (frozenset({"prompt"}), frozenset({"inputs"}), frozenset({"input", "model_id"})),
    "gemini": (frozenset({"contents"}),),
    "gemini_interactions": (
        frozenset({"model", "input"}),
        frozenset({"agent", "input"}),
        frozenset({"previous_interaction_id"}),
    ),
    "ollama": (frozenset({"model", "messages"}), frozenset({"model", "prompt"})),
    "openai_chat": (frozenset({"messages"}), frozenset({"prompt", "model"})),
    "openai_responses": (
        *(frozenset({"model", name}) for name in ("input", "prompt", "previous_response_id", "conversation")),
        frozenset({"prompt", "input"}),
    ),
}
"""The members that a request of each format must have, in one of these ways, where its host is not known.

Of a dialect too, where it has others.
"""

_PATHS: Final = {
    "api-version=": ("azure.ai.openai", "azure"),
    "/openai/deployments/": ("azure.ai.openai", "azure"),
    "/publishers/": ("gcp.vertex_ai", ANY),
    "/v1/generate": ("cohere", ANY),
    "/v1/fim/": ("mistral_ai", "mistral"),
}
"""Parts of paths that one provider alone has."""

_ORDER: Final = ("openai_chat", "anthropic", *sorted(set(WIRES) - {"openai_chat", "anthropic"}))
"""The formats that most calls are in come first: a wire is imported when it is first asked."""

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
        dialect: the table of the wire's stop reasons.
        known: the host is a provider's, and no compatible server.
        is_exact: the path is the format's own, and does not only end like it.
    """

    wire: Wire
    dialect: str
    provider: str
    routed: Routed
    known: bool
    is_exact: bool = True

    def asked(self, body: Mapping[str, Any]) -> Asked:
        """What a request asks for, by its JSON object and by its path."""
        routed = self.routed
        asked = self.wire.inspect({**body, "model": routed.model} if routed.model else body)
        if routed.stream is not None:
            asked.stream = routed.stream
        elif self.wire.NAME == "ollama":
            asked.stream = body.get("stream") is not False  # the API streams where it is not said
        return asked


def may_ask_a_model(path: str) -> bool:
    """Whether a request may ask a model, by the end of its path: every POST of a process is asked this."""
    return path.partition("?")[0].rpartition("/")[2].rpartition(":")[2] in _ENDS


@lru_cache(maxsize=1024)
def endpoint(method: str, host: str, port: int | None, path: str) -> Endpoint | None:
    """What answers at that address; None where no format is spoken there.

    Args:
        path: as it is sent, with its query.
    """
    provider, dialect = provider_of(host, port)
    known = bool(provider)
    if not known:
        # A gateway keeps the paths that only one provider has.
        provider, dialect = next((found for part, found in _PATHS.items() if part in path), (provider, dialect))
    own = _own(provider, path.partition("?")[0])
    if own is not None:
        speaks, whose, routed = own
        return Endpoint(speaks, whose, provider or speaks.PROVIDER, routed, known)
    below, _, query = path.partition("?")
    is_exact = True
    while below:
        for name in _ORDER:
            speaks = wire(name)
            found = speaks.routed(method, f"{below}?{query}")
            if found is not None:
                whose = _dialect(speaks, provider, dialect)
                return Endpoint(speaks, whose, provider or speaks.PROVIDER, found, known, is_exact)
        # A gateway may put a version of its own before the format's path, or leave that's out.
        below = below[below.find("/", 1) :] if below.find("/", 1) > 0 else ""
        is_exact = False
    return None


@lru_cache(maxsize=512)
def provider_of(host: str, port: int | None = None) -> tuple[str, str]:
    """Who answers at a host, and in which dialect; "" and any dialect of one that is not known."""
    name = host.lower().rstrip(".")
    if name in _LOOPBACK:
        name = f"localhost:{port}"
    elif name.endswith("-aiplatform.googleapis.com"):
        name = "aiplatform.googleapis.com"  # the region stands before it
    elif name.startswith("aws-external-anthropic."):
        name = "api.anthropic.com"  # Anthropic's own service, within AWS
    elif name.endswith("amazonaws.com") and "bedrock" not in name:
        return "", ANY  # most of what AWS answers is no model's
    while name and name not in HOSTS:
        name = name.partition(".")[2]
    return HOSTS.get(name, ("", ANY))


def is_asked(found: Endpoint, body: Mapping[str, Any] | None) -> bool:
    """Whether the body asks a model: at its home it always does; elsewhere it has the members of the format.

    Args:
        body: the request's JSON object; None where there is none that could be read.
    """
    if found.known and found.is_exact:
        return True
    name = found.wire.NAME
    members = _MEMBERS.get(f"{name} {found.dialect}") or _MEMBERS[name]
    return body is not None and any(names <= body.keys() for names in members)


def _own(provider: str, path: str) -> tuple[Wire, str, Routed] | None:
    """What is spoken at a path that one provider alone has, at its home or behind an unknown host."""
    if provider in ("", "cohere") and (cohere := _COHERE_V1.fullmatch(path)) is not None:
        speaks, dialect = ("cohere", "v1") if cohere["way"] == "chat" else ("completions", "command")
        return wire(speaks), dialect, Routed()
    if provider == "writer" and path == "/v1/chat":
        return wire("openai_chat"), ANY, Routed()
    if provider in ("", "mistral_ai") and _MISTRAL.fullmatch(path):
        return wire("openai_chat"), "mistral", Routed()
    if provider in ("", "gcp.vertex_ai") and (vertex := _VERTEX.fullmatch(path)) is not None:
        routed = Routed(unquote(vertex["model"]), vertex["stream"] is not None)
        if vertex["whose"] == "anthropic":
            return wire("anthropic"), "", routed
        return wire("openai_chat"), "mistral", routed
    return None


def _dialect(speaks: Wire, provider: str, dialect: str) -> str:
    """Whose words to read. A host's dialect is of the chat format; in the others it may be nobody's."""
    if speaks.NAME == "openai_chat":
        return dialect
    if speaks.NAME == "completions":
        # Its "mistral" is Bedrock's.
        return dialect if not dialect or (dialect in speaks.REASONS and dialect != "mistral") else ANY
    return "vertex" if speaks.NAME == "gemini" and provider == "gcp.vertex_ai" else ""
