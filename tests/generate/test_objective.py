"""The objective's alerts: a model of their conditions over a thousand services, and promtool as the model's witness."""

from __future__ import annotations

import math
import random
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate import manifests
from endturn.generate.config import FAST, SLOW, TICKET, RuleConfig
from tests.support.processes import require_stack

LIMITS = RuleConfig().limits
PAGE, BURNING = "EndturnTurnsUnfinished", "EndturnBudgetBurning"
HOUR, DAY = 60, 24 * 60
"""In minutes: what the model counts in, as the rules are evaluated once a minute."""
DAYS = 30
PAIRS = {PAGE: ((FAST, HOUR, 15), (SLOW, 6 * HOUR, 30)), BURNING: ((TICKET, 3 * DAY, 6 * HOUR),)}
"""Burn rate, long window, short window; the witness below says that alerts.yaml has the same."""


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


def simulated(source: random.Random, *, a_day: float, unfinished: float, days: int = DAYS) -> Service:
    """A service whose turns come at random, each left unfinished with the same probability."""
    count = round(source.gauss(a_day * days, math.sqrt(a_day * days)))
    turns = sorted(source.randrange(days * DAY) for _ in range(max(count, 0)))
    return Service(turns, [minute for minute in turns if source.random() < unfinished])


def beginnings(service: Service, name: str, at_least: int = LIMITS.unfinished) -> Iterator[int]:
    """When the alert begins: its condition can begin to hold only where a turn is left, or a good one is forgotten."""
    windows = {window for _, *both in PAIRS[name] for window in both}
    moments = sorted(
        {minute + after for minute in service.unfinished for after in (0, *(window - 1 for window in windows))}
    )
    before = False
    for at in moments:
        now = holds(service, at, name, at_least)
        if now and not before:
            yield at
        before = now


def population(*, spent: float, services: int) -> list[Service]:
    """Services that spend this share of what the objective allows, with ten turns a day up to 3,000."""
    source = random.Random(7)
    volumes = [math.exp(source.uniform(math.log(10), math.log(3000))) for _ in range(services)]
    return [simulated(source, a_day=a_day, unfinished=spent * LIMITS.budget) for a_day in volumes]


@pytest.mark.slow
def test_a_thousand_healthy_services_page_nobody_for_a_month() -> None:
    """At half the allowed share, nobody is woken; nor is there a ticket."""
    services = population(spent=0.5, services=1000)
    assert sum(len(service.unfinished) for service in services) > 10_000, "there is something to be woken by"
    assert sum(1 for service in services for _ in beginnings(service, PAGE)) == 0
    assert sum(1 for service in services for _ in beginnings(service, BURNING)) == 0


def test_without_the_guard_they_would_page_all_the_time() -> None:
    """The counter-proof: were one unfinished turn enough, a hundred healthy services would page every day."""
    services = population(spent=0.5, services=100)
    assert sum(1 for service in services for _ in beginnings(service, PAGE, at_least=1)) > DAYS


@pytest.mark.parametrize(
    ("a_day", "unfinished", "expected", "within"),
    [
        pytest.param(24_000, 0.1, PAGE, HOUR, id="a busy service breaks: paged within an hour"),
        pytest.param(480, 1.0, PAGE, 2 * HOUR, id="a small one breaks wholly: paged within two hours"),
        pytest.param(2000, 0.05, PAGE, 6 * HOUR, id="a middling one breaks somewhat: paged within six hours"),
        pytest.param(2000, 0.02, BURNING, 3 * DAY, id="a slow leak: a ticket within three days"),
    ],
)
def test_what_is_broken_is_said(a_day: float, unfinished: float, expected: str, within: int) -> None:
    """A service that breaks after three healthy days is heard of in time, in 19 of 20 runs at least."""
    heard = 0
    for seed in range(20):
        source = random.Random(seed)
        healthy = simulated(source, a_day=a_day, unfinished=0, days=3)
        broken = simulated(source, a_day=a_day, unfinished=unfinished, days=3)
        turns = [*healthy.turns, *(minute + 3 * DAY for minute in broken.turns)]
        bad = [minute + 3 * DAY for minute in broken.unfinished]
        first = next(beginnings(Service(turns, bad), expected), math.inf)
        heard += first <= 3 * DAY + within
    assert heard >= 19


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
    series = []
    for job, service in services.items():
        labels = f'job="{job}",instance="one",gen_ai_provider_name="openai",gen_ai_request_model="m"'
        series += [
            {"series": f"endturn_turns_total{{{labels}}}", "values": counter(service.turns, length)},
            {"series": f"endturn_truncation_exits_total{{{labels}}}", "values": counter(service.unfinished, length)},
        ]
    checks: list[dict[str, Any]] = []
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
            samples = [{"labels": f'{{job="{job}"}}', "value": 1} for job in jobs]
            marked = f"count by (job) (({expr}) and on (job) {kept})"
            checks.append({"expr": marked, "eval_time": f"{at}m", "exp_samples": samples})
    assert {name for name, _ in fired} == {PAGE, BURNING}, "each of them is seen"
    (tmp_path / "rules.yaml").write_text(manifests.files(RuleConfig())[manifests.RULES])
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}],
    }
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(test))
    command: list[str | Path] = [require_stack("prometheus")["promtool"], "test", "rules", "model.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
