"""Selectors of the series that Collectors and SDKs report about themselves.

Counters of the Collector have two spellings: with and without the suffix `_total`, as its version
and its exporter write them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from endturn.generate.queries import Matcher, selector

COLLECTOR_METRICS: Final = "the Collectors' own metrics"
"""What a condition about Collectors needs."""


def is_up(collector: str) -> str:
    """Return the selector of the Collectors' `up`; empty without a Collector."""
    return f'up{{job=~"{collector}"}}' if collector else ""


def collector_gauge(name: str, collector: str) -> str:
    """Return the selector of one of the Collectors' gauges."""
    return f'{name}{{job=~"{collector}"}}'


def collector_counter(name: str, collector: str, *matchers: Matcher) -> str:
    """Return the selector of the Collectors' counters whose name matches, in both spellings.

    Functions that drop the name, such as `increase`, fail on it while both spellings exist, as
    after an upgrade; for them there is `collector_increase`.

    Args:
        name: A regular expression.
        collector: `job` of the Collectors, a regular expression.
        matchers: More matchers.
    """
    all_matchers = (
        Matcher("__name__", "=~", f"{name}(_total)?"),
        *matchers,
        Matcher("job", "=~", collector),
    )
    return f"{{{','.join(map(str, all_matchers))}}}"


def collector_increase(name: str, collector: str, window: str, *matchers: Matcher) -> str:
    """Return the increase of one of the Collectors' counters, in whichever spelling it exists."""
    all_matchers = (*matchers, Matcher("job", "=~", collector))
    return " or ".join(
        f"increase({selector(spelling, all_matchers)}[{window}])"
        for spelling in (name, f"{name}_total")
    )


def kafka_gauge(name: str, collector: str) -> str:
    """Return the selector of a gauge of the Kafka receiver, in both spellings.

    Its unit is 1, for which some exporters add `_ratio`.
    """
    return f'{{__name__=~"{name}(_ratio)?",job=~"{collector}"}}'


def collectors_down_within(window: str) -> str:
    """Return whether EndturnCollectorsDown fired within a window.

    `ALERTS` itself would show a state from before a restart of Prometheus for five minutes more.
    """
    down = 'ALERTS{alertname="EndturnCollectorsDown", alertstate="firing"}'
    return f"last_over_time({down}[{window}])"


def sdk_drops(services: Sequence[Matcher]) -> str:
    """Return the selector of the counters of records that agents' SDKs dropped."""
    drops = (
        '__name__=~"otel_sdk_(processor_(span|log)_processed|exporter_(span|log)_exported)_total",'
        'error_type!=""'
    )
    return f"{{{', '.join(map(str, (drops, *services)))}}}"
