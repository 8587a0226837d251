"""The objective: what share of a service's truncated turns is finished, over several windows, and what is left of it.

The increments are first summed to one series for each service, so that windows of days and weeks stay cheap.
"""

from __future__ import annotations

from textwrap import indent
from typing import Final, Literal

from endturn.generate import promql, rules
from endturn.generate.config import Burn, RuleConfig
from endturn.generate.promql import JOB, Label, Selector, Vector, duration
from endturn.telemetry import indicators
from endturn.telemetry.indicators import Part

What = Literal["unfinished", "truncated", "continued"]
COUNTED: Final[dict[What, Part]] = {
    "unfinished": indicators.NOT_CONTINUED.part,
    "truncated": indicators.NOT_CONTINUED.whole,
    "continued": Part(count=indicators.CONTINUED_TURNS),
}

OBJECTIVE: Final = Selector("endturn:slo:objective", frozenset())
BUDGET: Final = Selector("endturn:slo:budget", frozenset())
PAGES: Final = Selector("endturn:slo:pages", frozenset({JOB}))
"""1 for each service that pages: it continued some turn lately, or the configuration names it."""
REMAINING: Final = Selector("endturn:slo:budget_remaining", frozenset({JOB}))
"""What is left of the error budget: 1 all of it, 0 nothing, negative where more was spent than there was."""


def increments(what: What, config: RuleConfig) -> Selector:
    """A service's increments."""
    return Selector(f"endturn:slo_{what}:increase{duration(config.increase)}", frozenset({JOB}))


def count(what: What, window: int) -> Selector:
    """A service's turns in a window, as whole numbers."""
    return Selector(f"endturn:slo_{what}:count{duration(window)}", frozenset({JOB}))


def ratio(window: int) -> Selector:
    """The share of a service's truncated turns in a window that ended unfinished."""
    return Selector(f"endturn:slo_unfinished:ratio{duration(window)}", frozenset({JOB}))


def burn_rate(window: int) -> Selector:
    """How many times faster than allowed the budget was spent in a window: 1 spends it exactly in the period."""
    return Selector(f"endturn:slo:burn_rate{duration(window)}", frozenset({JOB}))


def recorded(config: RuleConfig) -> list[Selector]:
    """Everything that these rules record."""
    slo = config.slo
    every = [increments(what, config) for what in COUNTED]
    for window in slo.windows:
        every += [count("unfinished", window), count("truncated", window), ratio(window), burn_rate(window)]
    return [*every, OBJECTIVE, BUDGET, PAGES, REMAINING]


def recording_rules(config: RuleConfig) -> list[dict[str, str]]:
    """One series for each service and window; the objective itself, so that dashboards need not know it."""
    slo = config.slo
    made = {increments(what, config): _increments(what, config) for what in COUNTED}
    made[OBJECTIVE] = f"vector({slo.objective:g})"
    made[BUDGET] = f"vector({slo.budget:g})"
    for window in slo.windows:
        unfinished, truncated = count("unfinished", window), count("truncated", window)
        made[unfinished] = _counted("unfinished", window, config)
        made[truncated] = _counted("truncated", window, config)
        made[ratio(window)] = f"{unfinished} / ({truncated} > 0)"
        made[burn_rate(window)] = f"{ratio(window)} / {slo.budget:g}"
    made[REMAINING] = f"1 - {burn_rate(slo.period)}"
    made[PAGES] = _pages(config)
    return [{"record": selector.name, "expr": text} for selector, text in made.items()]


def _increments(what: What, config: RuleConfig) -> str:
    by: tuple[Label, ...] = (JOB,)

    def summed(some: What) -> str:
        series = rules.part(COUNTED[some], config)
        return promql.sum_by(by, Vector(str(series), series.labels)).text

    # Zero where turns were truncated and none stayed so: every window then has both sides of its share.
    return summed(what) if what != "unfinished" else f"{summed(what)}\nor\n{summed('truncated')} * 0"


def _counted(what: What, window: int, config: RuleConfig) -> str:
    return f"round(sum_over_time({increments(what, config)}[{duration(window)}]) / {config.overlap})"


def _pages(config: RuleConfig) -> str:
    turns = f"sum_over_time({increments('continued', config)}[{duration(config.slo.continues)}])"
    listed = [f'label_replace(vector(1), "{JOB}", {_quoted(job)}, "", "")' for job in sorted(set(config.slo.jobs))]
    return "\nor\n".join([f"({turns} > 0) * 0 + 1", *listed])


def _quoted(text: str) -> str:
    """As PromQL writes a string; a dollar sign would begin a reference to a group in `label_replace`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{escaped}"'


def burning(burns: tuple[Burn, ...], config: RuleConfig) -> Vector:
    """The share of unfinished turns of services that spend their budget too fast, over the first pair that says so."""
    pairs = [f"(\n{indent(_pair(burn, config), '  ')}\n)" if len(burns) > 1 else _pair(burn, config) for burn in burns]
    return Vector("\nor\n".join(pairs), frozenset({JOB}))


def _pair(burn: Burn, config: RuleConfig) -> str:
    above = f"{burn.rate * config.slo.budget:.9g}"
    return (
        f"{ratio(burn.over)} > {above}\nand on ({JOB}) {ratio(burn.also)} > {above}\n"
        f"and on ({JOB}) {count('unfinished', burn.over)} >= {burn.bad}"
    )


def paging(config: RuleConfig) -> Vector:
    """What wakes somebody: of services that continue turns, or are listed."""
    inner = burning(config.slo.page, config)
    return Vector(f"(\n{indent(inner.text, '  ')}\n)\nand on ({JOB}) {PAGES}", inner.labels)


def unfinished_few(config: RuleConfig) -> Vector:
    """How many turns of a service stayed unfinished that has too few truncated turns for a share to mean anything."""
    slo = config.slo
    text = (
        f"{count('unfinished', slo.day)} >= {slo.unfinished}\nand on ({JOB}) {count('truncated', slo.day)} < {slo.few}"
    )
    return Vector(text, frozenset({JOB}))
