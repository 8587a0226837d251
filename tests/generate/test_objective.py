"""The objective's alerts hold where a plain model of burn rates says so."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from endturn.generate import manifests
from endturn.generate.config import FAST, SLOW, TICKET, RuleConfig
from tests.support import promtool

LIMITS = RuleConfig().limits
PAGE, BURNING = "EndturnTurnsUnfinished", "EndturnBudgetBurning"
HOUR, DAY = 60, 24 * 60
"""In minutes: what the model counts in, as the rules are evaluated once a minute."""
PAIRS = {PAGE: ((FAST, HOUR, 15), (SLOW, 6 * HOUR, 30)), BURNING: ((TICKET, 3 * DAY, 6 * HOUR),)}
"""Burn rate, long window, short window; alerts.yaml has the same."""


@dataclass(frozen=True)
class Service:
    """A service's turns: at which minute each ended, and which of them were handed over unfinished."""

    turns: Sequence[int]
    unfinished: Sequence[int]


def between(minutes: Sequence[int], end: int, window: int) -> int:
    """How many lie in the window of so many minutes that ends with the minute."""
    return bisect_right(minutes, end) - bisect_right(minutes, end - window)


def holds(service: Service, at: int, name: str, at_least: int = LIMITS.unfinished) -> bool:
    """The alert's condition, in numbers."""

    def share(window: int) -> float:
        whole = between(service.turns, at, window)
        return between(service.unfinished, at, window) / whole if whole else math.nan

    return any(
        between(service.unfinished, at, over) >= at_least
        and share(over) > rate * LIMITS.budget
        and share(also) > rate * LIMITS.budget
        for rate, over, also in PAIRS[name]
    )


# --- The model and the rules --------------------------------------------------------------------------------------


def counter(minutes: Sequence[int], length: int) -> str:
    """A counter's values in promtool's notation, minute by minute."""
    return " ".join(str(bisect_right(minutes, minute)) for minute in range(length + 1))


@pytest.mark.stack
def test_promtool_agrees_with_the_model(tmp_path: Path) -> None:
    """For services of every kind, the rules' conditions hold exactly where the model says so, at several moments."""
    expressions = {
        rule["alert"]: rule["expr"]
        for rule in yaml.safe_load(manifests.files(RuleConfig())[manifests.RULES])["groups"][1]["rules"]
    }
    source, length, blur = random.Random(3), 9 * HOUR, 12
    services = {}
    for number, (hourly, share) in enumerate(
        (hourly, share) for hourly in (4, 30, 240) for share in (0, 0.02, 0.1, 0.6)
    ):
        turns = sorted(source.randrange(20, length) for _ in range(hourly * 9))
        # Trouble begins in the third hour and ends in the eighth: short windows are over before long ones are.
        services[f"s{number}"] = Service(turns, [m for m in turns if 150 <= m < 460 and source.random() < share])
    series = {}
    for job, service in services.items():
        labels = f'job="{job}",instance="one",gen_ai_provider_name="openai",gen_ai_request_model="m"'
        series[f"endturn_turns_total{{{labels}}}"] = counter(service.turns, length)
        series[f"endturn_truncation_exits_total{{{labels}}}"] = counter(service.unfinished, length)
    checks: list[tuple[str, str, dict[str, float]]] = []
    fired = set()
    for name, expr in expressions.items():
        for at in (200, 300, 420, 520) if name in PAIRS else ():
            # A count is recorded over five evaluations: a window's edge is that much blurred. Asked is about services
            # of which the model says the same over the blur.
            sure = {
                job: {holds(service, at - back, name, few) for back in range(blur) for few in (9, 10, 11)}
                for job, service in services.items()
            }
            unsure = [job for job, said in sure.items() if len(said) > 1]
            jobs = sorted(job for job, said in sure.items() if said == {True})
            fired |= {(name, job) for job in jobs}
            assert len(unsure) <= len(services) // 2, "most services can be told"
            kept = f'endturn:service_turns:count5m{{job!~"{"|".join(unsure) or "none"}"}}'
            marked = f"count by (job) (({expr}) and on (job) {kept})"
            checks.append((marked, f"{at}m", {f'{{job="{job}"}}': 1.0 for job in jobs}))
    assert {name for name, _ in fired} == {PAGE, BURNING}, "each of them is seen"
    rules = manifests.files(RuleConfig())[manifests.RULES]
    promtool.evaluate(tmp_path, series, checks, rules=rules, interval="1m")
