"""What is installed around the calls: nothing, the same signals by hand, endturn, or another instrumentation.

Each variant has providers of its own. Only one is in place at a time: `enter` puts its methods onto the classes of the
SDK and of its HTTP library, `put_bare_methods` takes them away.
"""

from __future__ import annotations

import importlib
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import openai
from openai.resources.chat.completions import AsyncCompletions, Completions
from opentelemetry import _logs, metrics, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from benchmarks.overhead.by_hand import Signals
from benchmarks.overhead.providers import Providers, Setup
from benchmarks.overhead.situations import http_library

METHODS: Final[tuple[tuple[Any, str], ...]] = (
    (Completions, "create"),
    (AsyncCompletions, "create"),
    (openai.OpenAI, "request"),
    (openai.AsyncOpenAI, "request"),
    (http_library.Client, "send"),
    (http_library.AsyncClient, "send"),
)
"""The methods that instrumentations of the SDK wrap."""

BARE, BY_HAND, ENDTURN = "bare", "by hand", "endturn"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another instrumentation of the openai SDK.

    Attributes:
        environment: name in tests/sdks/envs.toml.
        records: the signals that it records.
    """

    name: str
    environment: str
    package: str
    module: str
    records: str


GENAI: Final = Peer(
    "genai-openai",
    "peers",
    "opentelemetry-instrumentation-genai-openai",
    "opentelemetry.instrumentation.genai.openai",
    "spans, metrics",
)
OPENINFERENCE: Final = Peer(
    "openinference",
    "peers",
    "openinference-instrumentation-openai",
    "openinference.instrumentation.openai",
    "spans",
)
OPENLLMETRY: Final = Peer(
    "openllmetry",
    "peers",
    "opentelemetry-instrumentation-openai",
    "opentelemetry.instrumentation.openai",
    "spans, metrics",
)
OPENLIT: Final = Peer("openlit", "openlit", "openlit", "openlit", "spans, events, metrics")
PEERS: Final[Mapping[str, Peer]] = {peer.name: peer for peer in (GENAI, OPENINFERENCE, OPENLLMETRY, OPENLIT)}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndturnOptions:
    """How endturn is set up in a variant.

    Attributes:
        changes: keywords of `Setup`, in place of the group's.
        options: keywords of `endturn.instrument()`.
    """

    changes: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


ENDTURN_VARIANTS: Final[Mapping[str, EndturnOptions]] = {
    ENDTURN: EndturnOptions(),
    "without spans": EndturnOptions(changes={"spans": False}),
    "without events": EndturnOptions(changes={"events": False}),
    "without metrics": EndturnOptions(changes={"metrics": False}),
    "without the conventions' metrics": EndturnOptions(options={"gen_ai_metrics": False}),
    "without metrics of turns": EndturnOptions(changes={"dropped_metrics": ("endturn.turn.*", "endturn.output.*")}),
    "without exemplars": EndturnOptions(changes={"exemplars": False}),
    "with content": EndturnOptions(options={"content": "SPAN_AND_EVENT"}),
}


def current_methods() -> list[Any]:
    """The methods as they stand; None for one that its class inherits."""
    return [vars(owner).get(name) for owner, name in METHODS]


def put_methods(methods: list[Any]) -> None:
    """Put methods in place, as `current_methods` returned them."""
    for (owner, name), method in zip(METHODS, methods, strict=True):
        if method is not None:
            setattr(owner, name, method)
        elif name in vars(owner):
            delattr(owner, name)


_bare_methods: Final = current_methods()


def put_bare_methods() -> None:
    """Take every variant away."""
    put_methods(_bare_methods)


class Variant:
    """One variant, installed when it is made. `leave` or `enter` decides whether it sees the calls.

    Attributes:
        collect: collects the metrics and exports the rest; None where the variant has no providers.
    """

    _active: Variant | None = None
    """The endturn variant whose options are in force: a process has one `instrument()`."""

    def __init__(self, name: str, setup: Setup, *, truncated: bool = False) -> None:
        self._name = name
        endturn_options = ENDTURN_VARIANTS.get(name)
        self._options = {} if endturn_options is None else dict(endturn_options.options)
        self._is_endturn = endturn_options is not None
        if endturn_options is not None:
            setup = Setup(**{**_fields(setup), **endturn_options.changes})
        self._providers = Providers(setup)
        has_providers = name != BARE and bool(self._providers.arguments())
        self.collect: Callable[[], None] | None = self._providers.collect if has_providers else None
        if self._is_endturn:
            self._instrument()
        elif name == BY_HAND:
            signals = Signals(self._providers, truncated=truncated)
            Completions.create = signals.wrap(Completions.create)  # type: ignore[method-assign]
        elif name != BARE:
            install_peer(PEERS[name], self._providers)
        self._methods = current_methods()
        # By identity: a wrapper may call itself equal to what it wraps.
        if name != BARE and all(map(operator.is_, self._methods, _bare_methods)):
            raise RuntimeError(f"{name} has wrapped no method of the openai SDK")
        put_bare_methods()

    def enter(self) -> None:
        """Have this variant see the calls from now on."""
        if self._is_endturn and Variant._active is not self:
            self._instrument()
        put_methods(self._methods)

    def _instrument(self) -> None:
        import endturn

        endturn.uninstrument()
        endturn.instrument(**self._providers.arguments(), **self._options)
        Variant._active = self


def _fields(setup: Setup) -> dict[str, Any]:
    return {name: getattr(setup, name) for name in Setup.__dataclass_fields__}


def install_peer(peer: Peer, providers: Providers) -> None:
    """Install another instrumentation as its documentation says, with content recording off."""
    module: Any = importlib.import_module(peer.module)
    if peer is not OPENLIT:
        module.OpenAIInstrumentor().instrument(**providers.arguments())
        return
    # It takes the global providers, and prints spans and events where there are none: where metrics are alone, they get
    # providers that record nothing. By default it fetches prices and records content.
    trace.set_tracer_provider(providers.tracer_provider or TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False))
    _logs.set_logger_provider(providers.logger_provider or LoggerProvider(shutdown_on_exit=False))
    if providers.meter_provider is not None:
        metrics.set_meter_provider(providers.meter_provider)
    module.init(pricing_json=os.devnull, capture_message_content=False)
