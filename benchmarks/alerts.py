"""A month of alerts: how often the alerts about turns fire for services that behave well, and how soon for others.

The alerts' own conditions are evaluated on simulated services, each with as many turns per minute as its traffic says,
of which a share is truncated and a share stays unfinished (both Poisson). Rules are evaluated each second minute, with
`for` and `keep_firing_for`; a month has 30 days, after three in which the longest window fills. A firing is one
notification; one that began before the month counts, too.

The first table counts firings per service and month. The second says after how many minutes an alert fires, median and
95th percentile, when a deploy begins to truncate a share of the turns of a service that never continues.

    python benchmarks/alerts.py [--services 50] [--seed 1]
"""

from __future__ import annotations

import argparse
import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from math import exp
from operator import sub
from random import Random

from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.conditions import CountAtLeast, ShareAbove, alternatives
from endturn.generate.alerts.model import Alert, AlertSettings
from endturn.generate.recorded_counts import OVERLAP, SERVICE_COUNTS
from endturn.generate.rules import ALERTS_INTERVAL
from endturn.telemetry import INDICATORS, TRUNCATED_TURNS, TURNS, UNFINISHED_TURNS, Count

DAY = 24 * 60
"""In minutes, as all times here."""
WARM_UP = 3 * DAY
MONTH = 30 * DAY
STEP = ALERTS_INTERVAL // 60
SETTINGS = AlertSettings()
NAMES = ("TurnsUnfinished", "BudgetBurning", "TruncatedNotContinued", "ResponsesTruncated")
OBSERVED = [alert for name in NAMES for alert in ALERTS if alert.name == f"Endturn{name}"]
RESPONSES = INDICATORS["truncation"]

Traffic = Callable[[int], float]
"""Turns per minute, by the minute of the month."""


def office_hours(minute: int) -> float:
    """Three turns a minute from 8 to 18 o'clock on workdays, else one in five minutes."""
    day, time = divmod(minute, DAY)
    return 3.0 if day % 7 < 5 and 8 * 60 <= time < 18 * 60 else 0.2


TRAFFICS: dict[str, Traffic] = {
    "1 turn a minute": lambda minute: 1.0,
    "100 turns a minute": lambda minute: 100.0,
    "office hours, 0.2 to 3 a minute": office_hours,
    "1,000 turns each night in 20 minutes": lambda minute: 50.0 if minute % DAY < 20 else 0.0,
    "60 turns each night in 20 minutes": lambda minute: 3.0 if minute % DAY < 20 else 0.0,
    "20 turns each hour, in 5 minutes": lambda minute: 4.0 if minute % 60 < 5 else 0.0,
}


@dataclass(frozen=True)
class Quality:
    """The shares of a service's turns that are truncated, and that stay unfinished."""

    title: str
    truncated: float
    unfinished: float


QUALITIES = (
    Quality("half of what is allowed (0.25% unfinished)", 0.1, 0.0025),
    Quality("the objective (0.5%)", 0.1, 0.005),
    Quality("the ticket's limit (1%)", 0.1, 0.01),
    Quality("20% of responses truncated, nearly all continued", 0.25, 0.0005),
)


HEALTHY = Quality("healthy", 0.001, 0.0005)


def steady(quality: Quality) -> Callable[[int], Quality]:
    """Return the same quality for each minute."""
    return lambda minute: quality


def deployed(quality: Quality) -> Callable[[int], Quality]:
    """Return the quality of a service that is healthy until a deploy at the end of the warm-up."""
    return lambda minute: quality if minute >= WARM_UP else HEALTHY


class Poisson:
    """Draws numbers of events, with a table for each mean."""

    def __init__(self, source: Random) -> None:
        self.source = source
        self.tables: dict[float, list[float]] = {}

    def __call__(self, mean: float) -> int:
        if not mean:
            return 0
        if mean not in self.tables:
            term, terms = exp(-mean), []
            for k in range(int(mean + 12 * mean**0.5 + 12)):
                terms.append(term)
                term *= mean / (k + 1)
            self.tables[mean] = list(accumulate(terms))
        return bisect_left(self.tables[mean], self.source.random())


@dataclass(frozen=True)
class Service:
    """Events per minute of one service, by what is counted."""

    events: dict[Count, list[int]]

    @property
    def length(self) -> int:
        return len(self.events[TURNS])


def service(poisson: Poisson, traffic: Traffic, quality: Callable[[int], Quality], length: int) -> Service:
    """Return a simulated service."""
    turns, truncated, unfinished = [], [], []
    for minute in range(length):
        rate, shares = traffic(minute), quality(minute)
        unfinished.append(poisson(rate * shares.unfinished))
        truncated.append(unfinished[-1] + poisson(rate * (shares.truncated - shares.unfinished)))
        turns.append(truncated[-1] + poisson(rate * (1 - shares.truncated)))
    assert RESPONSES.denominator is not None
    # A truncated turn that is continued has one more response, which ends it.
    responses = [sum(counts) for counts in zip(turns, map(sub, truncated, unfinished), strict=True)]
    counts = {TURNS: turns, TRUNCATED_TURNS: truncated, UNFINISHED_TURNS: unfinished}
    return Service(counts | {RESPONSES.count: truncated, RESPONSES.denominator: responses})


class Windows:
    """Sums over windows, at each evaluation."""

    def __init__(self, of: Service) -> None:
        self.of = of
        self._prefixes: dict[Count, list[float]] = {}
        self._sums: dict[tuple[Count, timedelta], list[float]] = {}

    def sums(self, count: Count, over: timedelta) -> list[float]:
        """Return the events within the window before each evaluation, as the rules count them."""
        if (count, over) not in self._sums:
            prefix, minutes = self._prefix(count), int(over / timedelta(minutes=1))
            ends = range(0, self.of.length, STEP)
            early = [prefix[end] for end in ends if end < minutes]
            late = map(sub, prefix[len(early) * STEP :: STEP], prefix[len(early) * STEP - minutes :: STEP])
            self._sums[count, over] = [*early, *late][: len(ends)]
        return self._sums[count, over]

    def _prefix(self, count: Count) -> list[float]:
        if count not in self._prefixes:
            events: Sequence[float] = self.of.events[count]
            if count in SERVICE_COUNTS:  # recorded over five minutes, so each event is in five samples
                whole = [0.0, *accumulate(events)]
                events = [(whole[end] - whole[max(0, end - OVERLAP)]) / OVERLAP for end in range(1, len(whole))]
            self._prefixes[count] = [0.0, *accumulate(events)]
        return self._prefixes[count]

    def holds(self, alert: Alert) -> list[bool]:
        """Return at which evaluations an alert's condition holds."""
        groups = [
            [self._compare(comparison) for comparison in group] for group in alternatives(alert.condition(SETTINGS))
        ]
        every = [list(map(all, zip(*group, strict=True))) for group in groups]
        return list(map(any, zip(*every, strict=True)))

    def _compare(self, comparison: ShareAbove | CountAtLeast) -> list[bool]:
        over = comparison.over
        match comparison:
            case ShareAbove(part=part, total=total, share=share):
                pairs = zip(self.sums(part, over), self.sums(total, over), strict=True)
                return [events > share * number for events, number in pairs]
            case CountAtLeast(count=count, without=without, number=least):
                numbers = self.sums(count, over)
                if without is not None:
                    numbers = list(map(sub, numbers, self.sums(without, over)))
                # Sums of fifths are a little off.
                return [number >= least - 1e-6 for number in numbers]


def firings(alert: Alert, holds: Sequence[bool]) -> list[tuple[int, int]]:
    """Return from which evaluation to which an alert fires."""
    hold = int((alert.hold or timedelta()).total_seconds()) // ALERTS_INTERVAL
    keep = int(alert.keep_firing.total_seconds()) // ALERTS_INTERVAL
    found: list[tuple[int, int]] = []
    since, last = -1, -1
    for now, is_true in enumerate(holds):
        if not is_true:
            since = -1
            continue
        since = now if since < 0 else since
        is_firing = bool(found) and now <= last + keep
        if is_firing or now - since >= hold:
            found = [*found[:-1], (found[-1][0], now)] if is_firing else [*found, (now, now)]
            last = now
    return [(start, end + keep) for start, end in found]


def month(services: int, seed: int) -> None:
    """Print the table of firings."""
    print(f"| {' | '.join(('traffic', *(each.title for each in QUALITIES)))} |")
    print("| --- " * (1 + len(QUALITIES)) + "|")
    for title, traffic in TRAFFICS.items():
        cells = []
        for quality in QUALITIES:
            poisson = Poisson(Random(f"{seed}{title}{quality.title}"))
            counts = dict.fromkeys(NAMES, 0)
            for _ in range(services):
                windows = Windows(service(poisson, traffic, steady(quality), WARM_UP + MONTH))
                for name, alert in zip(NAMES, OBSERVED, strict=True):
                    counts[name] += sum(end * STEP >= WARM_UP for _, end in firings(alert, windows.holds(alert)))
            cells.append(" / ".join(f"{count / services:.2g}" for count in counts.values()))
        print(f"| {title} | {' | '.join(cells)} |", flush=True)


def detection(services: int, seed: int) -> None:
    """Print the table of times to detect."""
    print(f"\n| {' | '.join(('deploy', *NAMES))} |")
    print("| --- " * (1 + len(NAMES)) + "|")
    for share in (0.05, 0.5):
        for title in list(TRAFFICS)[:2]:
            poisson, bad = Poisson(Random(f"{seed}{share}{title}")), Quality("bad", share, share)
            times: dict[str, list[int]] = {name: [] for name in NAMES}
            for _ in range(services):
                windows = Windows(service(poisson, TRAFFICS[title], deployed(bad), WARM_UP + DAY))
                for name, alert in zip(NAMES, OBSERVED, strict=True):
                    begun = [start * STEP - WARM_UP for start, _ in firings(alert, windows.holds(alert))]
                    times[name] += [next((time for time in begun if time >= 0), 10**6)]
            print(f"| {share:.0%}, {title} | {' | '.join(map(_times, times.values()))} |", flush=True)


def _times(minutes: list[int]) -> str:
    ordered = sorted(minutes)
    late = ordered[int(0.95 * (len(ordered) - 1))]
    return f"{statistics.median(ordered):g} ({late})" if late < 10**6 else "not within a day"


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"Firings per service and month: {' / '.join(NAMES)}; {arguments.services} services in each cell.\n")
    month(arguments.services, arguments.seed)
    detection(arguments.services, arguments.seed)


if __name__ == "__main__":
    main()
