"""Detection of OpenTelemetry's GenAI metrics that another instrumentation records for a call.

They are not recorded twice. A metric is left to another instrumentation if that one has an
instrument of this name in the meter provider that endturn records to, and has a span of the call.
An instrumentation without metrics (OpenInference, Langfuse), or without a span of this call, is
ignored.

OpenTelemetry has no function that lists the instruments of a provider. They are found by their
public types among the attributes of the provider and its meters, which are only read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from weakref import WeakSet, ref

from opentelemetry.metrics import Instrument, Meter, MeterProvider

from endturn.calls import log_internal_error
from endturn.telemetry import schema

AGAIN_S: Final = 1.0
"""Seconds between two listings of a provider's instruments, outside of collections."""

_EVERYBODYS: Final = frozenset(
    {"opentelemetry", "instrumentation", "util", "com", "io", "org", "dev"}
)
"""Leading parts of scope names that do not identify the owner."""


@dataclass(slots=True, eq=False)
class ForeignInstrumentations:
    """The other instrumentations of a call.

    Attributes:
        scopes: the scopes of their spans. That of a span that is never current is added at its end.
        is_complete: every other instrumentation of the call has a scope here. False if a sampler
            drops spans, or nobody records them: then any instrumentation with instruments is
            assumed to record every call.
    """

    scopes: tuple[str, ...] = ()
    is_complete: bool = True

    def add(self, scope: str) -> None:
        """Add the scope of a span of the call."""
        if scope not in self.scopes:
            self.scopes = (*self.scopes, scope)

    def remove(self, scope: str) -> None:
        """Remove an instrumentation that does not measure the response."""
        self.scopes = tuple(name for name in self.scopes if name != scope)


class ForeignMetrics:
    """The instruments of other scopes in one meter provider.

    Args:
        provider: the meter provider; it is not kept alive.
    """

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = ref(provider)
        self._owners: dict[str, frozenset[str]] = {}
        self._can_see = False
        self._refreshed_s: float | None = None

    def refresh(self, *, again: bool = False) -> None:
        """List the present instruments.

        Args:
            again: also if they were listed less than a second ago.
        """
        now_s = time.monotonic()
        provider = self._provider()
        if provider is None or (
            not again and self._refreshed_s is not None and now_s - self._refreshed_s < AGAIN_S
        ):
            return
        self._refreshed_s = now_s
        owners: dict[str, set[str]] = {}
        can_see = False
        try:
            for scope, name in _instruments(provider):
                can_see |= scope == schema.SCOPE
                if scope != schema.SCOPE and name in STANDARD:
                    owners.setdefault(name, set()).add(owner(scope))
        # another thread creates an instrument: keep the previous list
        except RuntimeError:
            return
        except Exception:
            log_internal_error("looking at instruments")
            return
        self._owners = {name: frozenset(scopes) for name, scopes in owners.items()}
        self._can_see = can_see

    def record(self, name: str, instrumentations: ForeignInstrumentations) -> bool:
        """Return whether another instrumentation of the call records this metric."""
        if not self._can_see:  # a provider with other attributes than the SDK's
            return any(owner(scope) in _KNOWN_OWNERS for scope in instrumentations.scopes)
        owners = self._owners.get(name)
        if owners is None:
            return False
        if not instrumentations.scopes:
            return not instrumentations.is_complete
        return any(owner(scope) in owners for scope in instrumentations.scopes)


STANDARD: Final = frozenset(
    metric.name for metric in schema.METRICS if metric.name.startswith("gen_ai.")
)
"""The names of OpenTelemetry's GenAI metrics, of both generations."""


@lru_cache(maxsize=256)
def owner(scope: str) -> str:
    """Return the part of a scope's name that identifies its owner.

    The names of an instrumentation's meter and tracer may differ: `openlit.otel.metrics`,
    `openlit.instrumentation.openai`.
    """
    parts = scope.lower().split(".")
    return next((part for part in parts if part not in _EVERYBODYS), scope)


_KNOWN_OWNERS: Final = frozenset(
    {
        *("genai", "openai", "openai_v2", "anthropic", "langchain", "pydantic-ai"),
        *("agent_framework", "gcp", "openlit"),
    }
)
"""Owners that record such metrics. Used only for providers whose instruments cannot be listed."""


def _instruments(provider: object) -> Iterator[tuple[str, str]]:
    """Yield scope and name of each instrument of a provider's meters."""
    pending, visited = [provider], set()
    while pending:
        holder = pending.pop()
        if id(holder) in visited:
            continue
        visited.add(id(holder))
        for member in _members(holder):
            if isinstance(member, Meter | MeterProvider):
                pending.append(member)
            elif isinstance(member, Instrument) and isinstance(holder, Meter):
                yield holder.name, str(getattr(member, "name", ""))


def _members(holder: object) -> Iterator[object]:
    """Yield the values of an object's attributes, and the items of those that are containers."""
    for value in list(getattr(holder, "__dict__", {}).values()):
        if isinstance(value, Mapping):
            yield from list(value.values())
        elif isinstance(value, list | tuple | set | WeakSet):
            yield from list(value)
        else:
            yield value
