"""The one configuration of all rules: windows, the objective and its burn rates, thresholds, addresses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from endturn.errors import UsageError
from endturn.generate import promql
from endturn.generate.promql import Selector
from endturn.telemetry import schema
from endturn.telemetry.indicators import REPAIR_FAILURE, TRUNCATION

SITE: Final = "https://github.com/endturn/endturn/blob/main"
HEARTBEATS: Final = (
    promql.foreign("otelcol_process_uptime_seconds_total", job="(.+/)?endturn-collector"),
    promql.select(schema.TURNS),
)
HOUR: Final = 3600
DAY: Final = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Burn:
    """When the error budget is being spent too fast.

    Attributes:
        rate: how many times faster than the budget allows; above that in both windows.
        over: the longer window, which says that it matters; also: the shorter one, which says that it still goes on.
        bad: unfinished turns in the longer window below which nothing is said.
    """

    rate: float
    over: int
    also: int
    bad: int

    def __post_init__(self) -> None:
        if not 0 < self.also < self.over:
            raise UsageError(f"the window that says it still goes on ({self.also} s) is shorter than {self.over} s")
        if self.rate <= 0 or self.bad < 1:
            raise UsageError(f"a burn rate and the unfinished turns it needs are above 0, not {self.rate}, {self.bad}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """What share of the truncated turns of one service (`job`) is to be finished.

    Attributes:
        objective, period: that share, over that time.
        page, ticket: what wakes somebody, what waits for the morning.
        few, unfinished, day: a service with fewer than `few` truncated turns in `day` seconds gets a ticket at
            `unfinished` of them: too few for a share to mean anything.
        continues: a service pages when it continued some turn within this time. Who only watches gets tickets.
        jobs: services that page though they do not continue.
    """

    objective: float = 0.99
    period: int = 30 * DAY
    page: tuple[Burn, ...] = (
        Burn(rate=14.4, over=HOUR, also=900, bad=10),
        Burn(rate=6, over=6 * HOUR, also=HOUR, bad=5),
    )
    ticket: tuple[Burn, ...] = (Burn(rate=1, over=3 * DAY, also=6 * HOUR, bad=3),)
    few: int = 20
    unfinished: int = 3
    day: int = DAY
    continues: int = 7 * DAY
    jobs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.objective < 1:
            raise UsageError(f"an objective lies between 0 and 1, not at {self.objective!r}")
        if not self.page or not self.ticket:
            raise UsageError("an objective has at least one burn rate that pages and one that makes a ticket")
        if self.unfinished >= self.few:
            raise UsageError(
                f"`few` ({self.few} truncated turns) is more than the unfinished ones that make a ticket "
                f"({self.unfinished})"
            )
        for burn in (*self.page, *self.ticket):
            if burn.rate * self.budget >= 1:
                raise UsageError(
                    f"a burn rate of {burn.rate:g} with an objective of {self.objective:g} asks for more than all "
                    f"turns to be unfinished: stay below {1 / self.budget:g}"
                )
            if burn.over > self.period:
                raise UsageError(f"a burn rate looks back {burn.over} s, longer than the objective's {self.period} s")

    @property
    def budget(self) -> float:
        """The share of truncated turns that may stay unfinished."""
        return round(1 - self.objective, 9)

    @property
    def windows(self) -> tuple[int, ...]:
        """Every window that turns are counted over, in seconds, the shortest first."""
        burns = (*self.page, *self.ticket)
        each = {window for burn in burns for window in (burn.over, burn.also)}
        return tuple(sorted(each | {self.day, self.period}))

    def faster(self, times: int) -> Slo:
        """The same on a clock that runs faster."""

        def quick(burns: tuple[Burn, ...]) -> tuple[Burn, ...]:
            return tuple(replace(b, over=max(b.over // times, 2), also=max(b.also // times, 1)) for b in burns)

        names = ("period", "day", "continues")
        scaled = {name: max(getattr(self, name) // times, 1) for name in names}
        return replace(self, page=quick(self.page), ticket=quick(self.ticket), **scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleConfig:
    """Windows, thresholds and addresses of all rules; the defaults are production's. Durations are whole seconds.

    Attributes:
        interval: how often rules are evaluated.
        increase: the window of one recorded increment; a multiple of `interval`.
        lookback: how far back a counter's previous value is looked for; known: how long a counter that was silent for
            longer than that is still recognised. One that comes back later is counted anew.
        lead: how much earlier than an application's next export the heartbeat may arrive after an outage.
        heartbeats: series that travel the same path as the metrics; the first that exists is taken. The Collector
            pushes its own uptime through its OTLP receiver; without it, our own metrics say that something arrives:
            one that the library alone writes, for what the Collector counts is scraped, and goes another way.
        slo: the objective, and what spends its budget too fast.
        window: what the other alerts look back on; slow: what those look back on that need many events.
        hold: how long a condition must last before its alert fires; keep: how long it fires on after the last time.
        absent: how long nothing may arrive; remembered: how long after that it is still missed.
        expected: services that must send something within so many seconds. Others may come and go.
        truncation, repair_failure: shares above which somebody should act.
        truncated, given_up, failed_repairs, unmapped, suspected, failures: events below which an alert stays quiet.
        continued_seconds, continued_quantile, continued: how long continued turns may take, at which quantile, and of
            how many it means something.
        budget_used, budget_quantile, budgeted: the same for the share of their token limit that responses use.
        collector: a regular expression for the `job` under which Prometheus scrapes the Collector.
        queue: how full one of its queues may be; lost, refused: records below which an alert stays quiet.
        runbooks, grafana: where the runbook pages and the dashboards are found.
    """

    interval: int = 60
    increase: int = 300
    lookback: int = HOUR
    known: int = DAY
    lead: int = 120
    heartbeats: tuple[Selector, ...] = HEARTBEATS
    slo: Slo = Slo()
    window: int = HOUR
    slow: int = 6 * HOUR
    hold: int = 120
    keep: int = HOUR
    absent: int = 600
    remembered: int = 7 * DAY
    expected: tuple[tuple[str, int], ...] = ()
    truncation: float = TRUNCATION.thresholds.act
    truncated: int = 10
    repair_failure: float = REPAIR_FAILURE.thresholds.act
    given_up: int = 3
    failed_repairs: int = 3
    unmapped: int = 1
    suspected: int = 3
    failures: int = 1
    continued_seconds: float = 100
    continued_quantile: float = 0.9
    continued: int = 10
    budget_used: float = 0.9
    budget_quantile: float = 0.9
    budgeted: int = 50
    collector: str = "collector"
    queue: float = 0.8
    lost: int = 1
    refused: int = 1
    runbooks: str = f"{SITE}/docs/runbooks"
    grafana: str = "http://127.0.0.1:3000"

    def __post_init__(self) -> None:
        if self.increase % self.interval:
            raise UsageError(
                f"the increase window ({self.increase} s) is no multiple of the interval ({self.interval} s)"
            )
        if self.known < 2 * self.lookback:
            raise UsageError(
                f"counters are known ({self.known} s) for at least twice as long as they are looked back on "
                f"({self.lookback} s)"
            )
        if not self.heartbeats:
            raise UsageError(
                "name at least one heartbeat: without it, new counters cannot be told from a path that was down"
            )
        # An event is recorded for as long as `increase`, and must still be looked back on when it has been for `hold`.
        least = 2 * (self.increase + self.interval) + self.hold
        if short := [each for each in (*self.slo.windows, self.window, self.slow) if each < least]:
            raise UsageError(f"a window of {short[0]} s is too short: this `increase` and `hold` need {least} s")
        for name, value, bounds in (
            ("continued_seconds", self.continued_seconds, schema.TURN_DURATION.buckets),
            ("budget_used", self.budget_used, schema.BUDGET_USED.buckets),
        ):
            if not bounds[0] <= value < bounds[-1]:
                # Above the last bound no quantile is known: the alert could never fire.
                raise UsageError(
                    f"{name} is at least {bounds[0]:g} and below {bounds[-1]:g}, not {value:g}: what is measured has "
                    f"the buckets {', '.join(f'{bound:g}' for bound in bounds)}"
                )

    @property
    def overlap(self) -> int:
        """In how many recorded increments one event stands."""
        return self.increase // self.interval

    def steps(self, seconds: int) -> int:
        """Evaluations in a duration, rounded up."""
        return -(-seconds // self.interval)

    def faster(self, times: int) -> RuleConfig:
        """The same rules on a clock that runs faster, for tests: every duration divided, at least one interval long."""
        spans = ("interval", "increase", "lookback", "known", "lead")
        names = (*spans, "window", "slow", "hold", "keep", "absent", "remembered")
        scaled = {name: max(getattr(self, name) // times, 1) for name in names}
        expected = tuple((job, max(within // times, 1)) for job, within in self.expected)
        return replace(self, slo=self.slo.faster(times), expected=expected, **scaled)
