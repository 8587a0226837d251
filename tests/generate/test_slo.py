"""The objective's alerts: a model of their rules over a thousand services, and promtool as the model's witness."""

from __future__ import annotations

import math
import random
import subprocess
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from endturn.generate import slo
from endturn.generate.config import Burn, RuleConfig, Slo
from endturn.generate.manifests import dump, rule_files
from tests.support.processes import require_stack

CONFIG = RuleConfig()
PAGE, BURNING, FEW = (
    "EndturnTruncatedTurnsNotContinued",
    "EndturnTruncatedTurnsBudgetBurning",
    "EndturnTruncatedTurnsUnfinished",
)
DAYS = 30
DAY = 24 * 60
"""In minutes: what the model counts in, as the rules are evaluated once a minute."""


@dataclass(frozen=True)
class Service:
    """A service's truncated turns: at which minute each ended, and which of them stayed unfinished."""

    truncated: Sequence[int]
    unfinished: Sequence[int]


def between(minutes: Sequence[int], end: int, seconds: int) -> int:
    """How many lie in the window of so many seconds that ends with the minute."""
    return bisect_right(minutes, end) - bisect_right(minutes, end - seconds // 60)


def burns(service: Service, at: int, pairs: tuple[Burn, ...], budget: float) -> bool:
    """The rules' expression `slo.burning`, in numbers."""

    def share(seconds: int) -> float:
        whole = between(service.truncated, at, seconds)
        return between(service.unfinished, at, seconds) / whole if whole else math.nan

    return any(
        between(service.unfinished, at, pair.over) >= pair.bad
        and share(pair.over) > pair.rate * budget
        and share(pair.also) > pair.rate * budget
        for pair in pairs
    )


def firing(service: Service, at: int, objective: Slo) -> set[str]:
    """The names of the alerts whose condition holds, for a service that continues turns."""
    found = set()
    if burns(service, at, objective.page, objective.budget):
        found.add(PAGE)
    if burns(service, at, objective.ticket, objective.budget):
        found.add(BURNING)
    bad, whole = (between(each, at, objective.day) for each in (service.unfinished, service.truncated))
    if bad >= objective.unfinished and whole < objective.few:
        found.add(FEW)
    return found


def poisson(source: random.Random, mean: float) -> int:
    """A random number of events (Knuth's method; means here are small)."""
    limit, product, count = math.exp(-mean), source.random(), 0
    while product > limit:
        product *= source.random()
        count += 1
    return count


def simulated(source: random.Random, *, a_day: float, unfinished: float, days: int = DAYS) -> Service:
    """A service whose truncated turns come at random, each left unfinished with the same probability."""
    hours = range(days * 24)
    whole = sorted(hour * 60 + source.randrange(60) for hour in hours for _ in range(poisson(source, a_day / 24)))
    return Service(whole, [minute for minute in whole if source.random() < unfinished])


def alerts(service: Service, objective: Slo) -> Iterator[tuple[int, set[str]]]:
    """Every change of what fires: conditions can change only where a turn enters or leaves a window."""
    windows = [0, *(window // 60 for window in objective.windows if window < objective.period)]
    # Without enough unfinished turns in its longer window none can begin: only what follows them need be looked at.
    moments = sorted({minute + window for minute in service.unfinished for window in windows} | set(service.unfinished))
    last: set[str] = set()
    for at in moments:
        now = firing(service, at, objective)
        if now != last:
            yield at, now
        last = now


def begun(services: Sequence[Service], objective: Slo) -> dict[str, int]:
    """How often each alert begins, over all services and days."""
    counts = dict.fromkeys((PAGE, BURNING, FEW), 0)
    for service in services:
        before: set[str] = set()
        for _, now in alerts(service, objective):
            for name in now - before:
                counts[name] += 1
            before = now
    return counts


def population(*, spent: float, most: float, services: int = 1000) -> list[Service]:
    """Services that spend this share of their error budget, with one truncated turn a week up to `most` a day."""
    source = random.Random(7)
    volumes = [math.exp(source.uniform(math.log(1 / 7), math.log(most))) for _ in range(services)]
    return [simulated(source, a_day=a_day, unfinished=spent * CONFIG.slo.budget) for a_day in volumes]


@pytest.mark.parametrize(
    ("spent", "most", "pages", "tickets"),
    [
        pytest.param(1.0, 20, 0, 100, id="small ones that spend all of their budget"),
        pytest.param(0.2, 200, 0, 100, id="small and middling ones that spend a fifth of it"),
        # Five unfinished of some eighty truncated turns within six hours do come about by chance, once in a while.
        pytest.param(0.5, 200, 2, 1000, id="small and middling ones that spend half of it"),
    ],
)
def test_a_thousand_healthy_services_do_not_page(spent: float, most: float, pages: int, tickets: int) -> None:
    """Over 30 days (30,000 of a service's days) nobody is woken, and no service has more than a ticket a month."""
    services = population(spent=spent, most=most)
    assert sum(len(service.unfinished) for service in services) > 1000, "there is something to be woken by"
    counts = begun(services, CONFIG.slo)
    assert counts[PAGE] <= pages
    assert counts[FEW] + counts[BURNING] <= tickets


def test_without_guards_they_would_page_all_the_time() -> None:
    """The counter-proof: were one unfinished turn enough, a hundred small healthy services would page every day."""
    bare = replace(CONFIG.slo, page=tuple(replace(pair, bad=1) for pair in CONFIG.slo.page))
    assert begun(population(spent=1.0, most=20, services=100), bare)[PAGE] > DAYS


@pytest.mark.parametrize(
    ("a_day", "unfinished", "expected", "within"),
    [
        pytest.param(2000, 0.3, PAGE, 60, id="a busy service breaks: paged within an hour"),
        pytest.param(200, 0.5, PAGE, 6 * 60, id="a middling one breaks: paged within six hours"),
        pytest.param(10, 1.0, FEW, DAY, id="a small one breaks: a ticket within a day"),
        pytest.param(200, 0.04, BURNING, 3 * DAY, id="a slow leak: a ticket within three days"),
    ],
)
def test_what_is_broken_is_said(a_day: float, unfinished: float, expected: str, within: int) -> None:
    """A service that breaks after three healthy days is heard of in time, in 19 of 20 runs at least."""
    heard = 0
    for seed in range(20):
        source = random.Random(seed)
        healthy = simulated(source, a_day=a_day, unfinished=0, days=3)
        broken = simulated(source, a_day=a_day, unfinished=unfinished, days=4)
        whole = [*healthy.truncated, *(minute + 3 * DAY for minute in broken.truncated)]
        bad = [minute + 3 * DAY for minute in broken.unfinished]
        first = next((at for at, now in alerts(Service(whole, bad), CONFIG.slo) if expected in now), None)
        heard += first is not None and first <= 3 * DAY + within
    assert heard >= 19


# --- The model and the rules -------------------------------------------------------------------------------------


def counter(minutes: Sequence[int], length: int) -> str:
    """A counter's values in promtool's notation, minute by minute."""
    values: list[tuple[int, int]] = []
    last: int | None = None
    for minute in range(length + 1):
        value, run = bisect_right(minutes, minute), 0
        if values and value == last:
            values[-1] = (value, values[-1][1] + 1)
        else:
            values.append((value, run))
        last = value
    return " ".join(f"{value}x{more}" if more else f"{value}" for value, more in values)


@pytest.mark.stack
def test_promtool_agrees_with_the_model(tmp_path: Path) -> None:
    """For services of every kind, the real rules fire exactly where the model says so, at several moments."""
    # Windows of days would need days of evaluations: they are shortened to hours.
    objective = replace(
        CONFIG.slo,
        page=(Burn(rate=14.4, over=3600, also=900, bad=10), Burn(rate=6, over=7200, also=3600, bad=5)),
        ticket=(Burn(rate=1, over=10800, also=7200, bad=3),),
        day=7200,
        continues=14400,
        period=14400,
    )
    config = replace(CONFIG, slo=objective, hold=60, keep=60)
    for path, text in rule_files(config).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    source, length, settle = random.Random(3), 240, 12
    kinds = [(hourly, share) for hourly in (2, 8, 30, 120) for share in (0.0, 0.02, 0.1, 0.3)]
    services = {}
    for number, (hourly, share) in enumerate(kinds):
        whole = sorted(source.randrange(20, length - settle) for _ in range(hourly * 4))
        # Trouble lasts from the second hour into the third: short windows are over before long ones are.
        services[f"s{number}"] = Service(whole, [m for m in whole if 60 <= m < 160 and source.random() < share])
    moments = [length - 60, length]
    series: list[dict[str, str]] = [
        {"series": 'otelcol_process_uptime_seconds_total{job="endturn-collector"}', "values": f"0+60x{length}"}
    ]
    for job, service in services.items():
        labels = f'job="{job}",instance="one",gen_ai_provider_name="openai",gen_ai_request_model="m"'
        finished = sorted(set_minus(service.truncated, service.unfinished))
        turns = {
            f'endturn_turns_total{{{labels},endturn_turn_truncated="true",endturn_turn_continued="true",'
            'endturn_turn_outcome="completed"}': finished,
            f'endturn_turns_total{{{labels},endturn_turn_truncated="true",endturn_turn_continued="false",'
            'endturn_turn_outcome="not_continued"}': service.unfinished,
            f'endturn_truncation_exits_total{{{labels},endturn_turn_outcome="not_continued"}}': service.unfinished,
        }
        series += [{"series": name, "values": counter(minutes, length)} for name, minutes in turns.items()]
    checks: list[dict[str, Any]] = []
    fired: set[tuple[str, int, str]] = set()
    conditions = {
        PAGE: slo.paging(config),
        BURNING: slo.burning(objective.ticket, config),
        FEW: slo.unfinished_few(config),
    }
    for name, condition in conditions.items():
        for at in moments:
            # An increment is recorded over five evaluations: a window's edge is that much blurred. Asked is about
            # services of which the model says the same over the blur.
            sure = {
                job: {name in firing(service, at - back, objective) for back in range(settle)}
                for job, service in services.items()
            }
            jobs = [job for job, said in sure.items() if said == {True}]
            unsure = [job for job, said in sure.items() if len(said) > 1]
            fired |= {(job, at, name) for job in jobs}
            keep = f'{{job!~"{"|".join(unsure) or "none"}"}}'
            marked = f"count by (job) (({condition}) and on (job) endturn:slo_truncated:increase5m{keep})"
            samples = [{"labels": f'{{job="{job}"}}', "value": 1} for job in sorted(jobs)]
            checks.append({"expr": marked, "eval_time": f"{at}m", "exp_samples": samples})
            assert len(unsure) <= len(services) // 3, "most services can be told"
    test = {
        "rule_files": ["../increments.yaml", "../slo.yaml"],
        "evaluation_interval": "1m",
        "group_eval_order": ["endturn-increments", "endturn-slo"],
        "tests": [{"interval": "1m", "input_series": series, "promql_expr_test": checks}],
    }
    assert {name for _, _, name in fired} == {PAGE, BURNING, FEW}, "each of them is seen"
    folder = tmp_path / "dashboards" / "rules" / "tests"
    (folder / "model.yaml").write_text(dump(test))
    promtool = require_stack("prometheus")["promtool"]
    done = subprocess.run(
        [promtool, "test", "rules", "model.yaml"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def set_minus(whole: Sequence[int], part: Sequence[int]) -> list[int]:
    """The first without one occurrence of each of the second."""
    rest = list(whole)
    for each in part:
        rest.remove(each)
    return rest
