"""Detection of the conventions' metrics that another instrumentation records of a call.

Those are not recorded twice.

One rule decides: a metric of the conventions is left to another instrumentation where that one has
an instrument of this name in the meter provider that we record to, and watches the call, which its
spans tell. Instrumentations that make spans and no metrics (OpenInference, Langfuse) take nothing
away, nor does one that watches other calls.

OpenTelemetry has no function that lists the instruments of a provider. They are found by their
public types among the objects that the provider and its meters hold; these are only read.
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
"""Between two looks at a provider's instruments, outside of collections."""

_EVERYBODYS: Final = frozenset(
    {"opentelemetry", "instrumentation", "util", "com", "io", "org", "dev"}
)
"""First parts of a scope's name that do not say whose it is."""


@dataclass(slots=True, eq=False)
class Watchers:
    """The other instrumentations that watch a call.

    Attributes:
        scopes: of their spans. A span that is never current is added when it ends.
        is_known: no span means no watcher. Not so where spans are dropped by a sampler, or nobody
            records any: who has instruments of the conventions is taken to use them for every call
            then.
    """

    scopes: tuple[str, ...] = ()
    is_known: bool = True

    def add(self, scope: str) -> None:
        """Another span of the call is known."""
        if scope not in self.scopes:
            self.scopes = (*self.scopes, scope)

    def remove(self, scope: str) -> None:
        """An instrumentation looks at the call no longer."""
        self.scopes = tuple(name for name in self.scopes if name != scope)


class ForeignMetrics:
    """The instruments that other scopes hold in one meter provider.

    Args:
        provider: the meter provider; it is not kept alive.
    """

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = ref(provider)
        self._owners: dict[str, frozenset[str]] = {}
        self._can_see = False
        self._looked_s: float | None = None

    def look(self, *, again: bool = False) -> None:
        """Look at which instruments there are now.

        Args:
            again: even where that was done less than a second ago.
        """
        now_s = time.monotonic()
        provider = self._provider()
        if provider is None or (
            not again and self._looked_s is not None and now_s - self._looked_s < AGAIN_S
        ):
            return
        self._looked_s = now_s
        owners: dict[str, set[str]] = {}
        can_see = False
        try:
            for scope, name in _instruments(provider):
                can_see |= scope == schema.SCOPE
                if scope != schema.SCOPE and name in STANDARD:
                    owners.setdefault(name, set()).add(owner(scope))
        # another thread makes an instrument: what was known holds until the next look
        except RuntimeError:
            return
        except Exception:
            log_internal_error("looking at instruments")
            return
        self._owners = {name: frozenset(scopes) for name, scopes in owners.items()}
        self._can_see = can_see

    def record(self, name: str, watchers: Watchers) -> bool:
        """Whether another instrumentation records this metric of the call that these watch."""
        if not self._can_see:  # a provider that is built otherwise than the SDK's
            return any(owner(scope) in _KNOWN_OWNERS for scope in watchers.scopes)
        owners = self._owners.get(name)
        if owners is None:
            return False
        if not watchers.scopes:
            return not watchers.is_known
        return any(owner(scope) in owners for scope in watchers.scopes)


STANDARD: Final = frozenset(
    metric.name for metric in schema.METRICS if metric.name.startswith("gen_ai.")
)
"""The names of the conventions' metrics, of both generations."""


@lru_cache(maxsize=256)
def owner(scope: str) -> str:
    """The part of a scope's name that says whose it is.

    An instrumentation may name its meter otherwise than its tracer: `openlit.otel.metrics`,
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
"""Who is known to record some; asked only where a meter provider hides its instruments."""


def _instruments(provider: object) -> Iterator[tuple[str, str]]:
    """The instruments that a provider's meters hold: scope and name of each."""
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
    """What an object's attributes hold, and what is in those that are containers."""
    for value in list(getattr(holder, "__dict__", {}).values()):
        if isinstance(value, Mapping):
            yield from list(value.values())
        elif isinstance(value, list | tuple | set | WeakSet):
            yield from list(value)
        else:
            yield value
