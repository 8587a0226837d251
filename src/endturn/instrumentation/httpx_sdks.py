"""SDKs that stand on httpx (cohere, mistralai, ollama): which method of theirs is one call, and whose its client is.

What they send and get is read from the HTTP traffic itself; nothing here relies on more than a method's name and on
where the HTTP client is kept. Whatever of it is missing, the SDK's calls to its provider's own host are seen as
anybody's are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any, Final

from endturn.instrumentation import attempts
from endturn.instrumentation.attempts import Owner
from endturn.instrumentation.patches import Patch, Patcher, put

_How = Callable[[Any, Callable[[Any], Any], Owner, Callable[[], bool]], Any]


@dataclass(frozen=True, slots=True)
class Method:
    """A method of an SDK, what is made of it, and where its object keeps the HTTP client."""

    kind: str
    name: str
    how: _How
    http: Callable[[Any], Any]


def _cohere_http(client: Any) -> Any:
    return client.httpx_client


def _mistral_http(sdk: Any) -> Any:
    return sdk.sdk_configuration.client


def _mistral_ahttp(sdk: Any) -> Any:
    return sdk.sdk_configuration.async_client


def _ollama_http(client: Any) -> Any:
    return client._client


COHERE: Final = (
    # Tries again by calling itself. Its streams are sent once, within a context manager.
    Method("HttpClient", "request", attempts.as_one, _cohere_http),
    Method("AsyncHttpClient", "request", attempts.as_one_awaited, _cohere_http),
    Method("HttpClient", "stream", attempts.owned, _cohere_http),
    Method("AsyncHttpClient", "stream", attempts.owned, _cohere_http),
)
MISTRAL: Final = (
    # Streams too: what it returns is the HTTP response, which its stream object reads.
    Method("BaseSDK", "do_request", attempts.as_one, _mistral_http),
    Method("BaseSDK", "do_request_async", attempts.as_one_awaited, _mistral_ahttp),
)
OLLAMA: Final = (
    # Sends once; a stream is sent by the generator that it returns.
    Method("Client", "_request", attempts.owned, _ollama_http),
    Method("AsyncClient", "_request", attempts.owned, _ollama_http),
)


def patch(methods: tuple[Method, ...], owner: Owner, module: ModuleType, active: Callable[[], bool]) -> Iterator[Patch]:
    """Wrap an SDK's methods, telling each as it is replaced.

    Args:
        active: whether calls are observed; wrappers that could not be undone ask.
    """
    for method in methods:
        kind: Any = module.__dict__.get(method.kind)
        if kind is not None and method.name in kind.__dict__:
            yield put(kind, method.name, method.how(kind.__dict__[method.name], method.http, owner, active))


_SPAN: Final = "_tracing_span"
"""Where mistralai keeps the span that it makes of a call."""

PATCHERS: Final[dict[str, Patcher]] = {
    "cohere.core.http_client": partial(patch, COHERE, Owner("cohere")),
    "mistralai.client.basesdk": partial(patch, MISTRAL, Owner("mistral_ai", "mistral", _SPAN)),
    "mistralai.azure.client.basesdk": partial(patch, MISTRAL, Owner("azure.ai.inference", "mistral", _SPAN)),
    "mistralai.gcp.client.basesdk": partial(patch, MISTRAL, Owner("gcp.vertex_ai", "mistral", _SPAN)),
    "mistralai.basesdk": partial(patch, MISTRAL, Owner("mistral_ai", "mistral", _SPAN)),  # before 2
    "ollama._client": partial(patch, OLLAMA, Owner("ollama")),
}
"""The module that makes an SDK's calls, and what patches it."""
