"""The installed packages that concern endturn, from their metadata; none is imported."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib.metadata import PackageNotFoundError, distribution, distributions
from typing import Final

_LEAVES_METRICS: Final = (
    "endturn writes to its spans, and leaves gen_ai.client.* metrics to it where it records them"
)
_WRITES: Final = "endturn writes to its spans, and records the metrics that it lacks"

HTTP_CLIENTS: Final = {
    "httpx": "",
    "httpx2": "",
    "urllib3": "also requests and boto3",
    "aiohttp": "also aiobotocore",
}
"""The HTTP clients that are observed besides `urllib.request`, each with a remark or ""."""

MODEL_SDKS: Final = {
    "ai21": "",
    "anthropic": "",
    "boto3": "",
    "cohere": "",
    "google-genai": "",
    "groq": "",
    "huggingface-hub": "",
    "litellm": "",
    "mistralai": "",
    "ollama": "",
    "openai": "",
    "together": "",
    "xai-sdk": "not observed: it uses gRPC; decorate the function that calls it"
    " (endturn.observe_provider_call)",
    "claude-agent-sdk": "not observed: another process makes the calls; send that process's"
    " telemetry to the same endpoint",
}
"""Libraries that call models; the remark says why one is not observed."""

FRAMEWORKS: Final = (
    "ag2",
    "agent-framework-core",
    "agno",
    "crewai",
    "dspy",
    "google-adk",
    "haystack-ai",
    "langchain",
    "langgraph",
    "llama-index-core",
    "openai-agents",
    "pydantic-ai",
    "pydantic-ai-slim",
    "semantic-kernel",
    "smolagents",
    "strands-agents",
)

INSTRUMENTATIONS: Final = {
    "openinference-instrumentation-*": _WRITES,
    "opentelemetry-instrumentation-genai-*": _LEAVES_METRICS,
    "opentelemetry-instrumentation-openai-v2": f"{_LEAVES_METRICS}; it records no tokens of"
    " streams",
    "opentelemetry-instrumentation-openai": f"OpenLLMetry: {_LEAVES_METRICS}",
    "opentelemetry-instrumentation-anthropic": f"OpenLLMetry: {_LEAVES_METRICS}",
    "opentelemetry-instrumentation-langchain": f"OpenLLMetry: {_LEAVES_METRICS}; its spans are"
    " never current, so endturn makes its own beside them",
    "opentelemetry-instrumentation-bedrock": f"OpenLLMetry: {_LEAVES_METRICS}",
    "traceloop-sdk": f"OpenLLMetry: {_LEAVES_METRICS}",
    "openlit": _LEAVES_METRICS,
    "logfire": f"{_WRITES}; it suppresses other spans within its own, so a failed call there has"
    " metrics and events only",
    "langfuse": "if it keeps a tracer provider of its own, endturn writes nothing to its spans",
    "langsmith": "its runs are not OpenTelemetry spans unless it is told so; calls over HTTP are"
    " observed beside it",
    "arize-phoenix-otel": "pass replace_default_processor=False with AdoptingSpanProcessor, or its"
    " exporter is replaced",
    "arize-otel": "add AdoptingSpanProcessor by TracerProvider.add_span_processor, or its exporter"
    " is replaced",
    "ddtrace": "not tested beside endturn: it sends to Datadog's agent by its own protocol",
    "agentops": "it sets up a tracer provider of its own; call endturn.configure() first, or"
    " endturn.instrument() after it",
}
"""Other instrumentations, as patterns of package names, each with how it behaves together with
endturn (docs/other-instrumentations.md)."""

_REQUIREMENT: Final = re.compile(r"([\w.-]+)(?:\[[\w,]+\])?\s*(?:>=|~=)\s*([\d.]+)")


@dataclass(frozen=True, slots=True)
class Package:
    """One installed distribution. `remark` is "" if there is nothing to say."""

    name: str
    version: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The installed packages, by their role."""

    http_clients: tuple[Package, ...]
    model_sdks: tuple[Package, ...]
    frameworks: tuple[Package, ...]
    instrumentations: tuple[Package, ...]
    outdated: tuple[str, ...]
    """A sentence for each package below the lowest version that endturn supports."""


def versions() -> dict[str, str]:
    """Return the version of each installed distribution, by its normalised name."""
    version_of: dict[str, str] = {}
    for package in distributions():
        name = package.metadata["Name"]
        if name:
            version_of.setdefault(_normalised(name), package.version)
    return version_of


def inventory(installed: Mapping[str, str]) -> Inventory:
    """Sort the installed distributions by their role."""
    matched = {
        name: remark
        for pattern, remark in INSTRUMENTATIONS.items()
        for name in installed
        if fnmatchcase(name, pattern)
    }
    return Inventory(
        http_clients=_packages_in(installed, HTTP_CLIENTS),
        model_sdks=_packages_in(installed, MODEL_SDKS),
        frameworks=_packages_in(installed, dict.fromkeys(FRAMEWORKS, "")),
        instrumentations=_packages_in(installed, matched),
        outdated=tuple(_outdated(installed, _requirements())),
    )


def _packages_in(installed: Mapping[str, str], remarks: Mapping[str, str]) -> tuple[Package, ...]:
    return tuple(
        Package(name, installed[name], remark)
        for name, remark in sorted(remarks.items())
        if name in installed
    )


def _requirements() -> list[str]:
    """Return the requirements of endturn, including those of its extras."""
    try:
        return distribution("endturn").requires or []
    except PackageNotFoundError:  # not installed, but run from a folder
        return []


def _outdated(installed: Mapping[str, str], requirements: Iterable[str]) -> Iterable[str]:
    lowest = {
        _normalised(match[1]): match[2]
        for requirement in requirements
        if (match := _REQUIREMENT.match(requirement)) is not None
    }
    for name, least in sorted(lowest.items()):
        if name in installed and _release(installed[name]) < _release(least):
            yield (
                f"{name} {installed[name]} is older than endturn supports: "
                f"pip install '{name}>={least}'"
            )


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _release(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version: (1, 2) for `1.2rc1`."""
    numbers = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    parts = [int(part) for part in numbers[1].split(".")] if numbers else []
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
