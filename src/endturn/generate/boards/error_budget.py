"""The error budget of each service: its objective as text, and the remaining budget in PromQL."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from endturn.generate.config import RuleConfig
from endturn.generate.queries import duration, variable_matchers

MIN_TURNS: Final = 100
"""No error budget is shown below this many turns: one turn would use much of it."""


def objectives(config: RuleConfig) -> str:
    """Return the objective, followed by the exceptions: `0.995 (0.9 for shop/agent)`."""
    default, *others = config.cells()
    objectives = {"": default.limits.objective} | {o.who: o.limits.objective for o in others}
    exceptions = [
        f"{objective:g} for {service}"
        for service, objective in objectives.items()
        # An environment with its service's objective is not listed.
        if objective != objectives.get(service.rpartition(" in ")[0], objectives[""])
    ]
    text = f"{objectives['']:g}"
    return f"{text} ({', '.join(exceptions)})" if exceptions else text


def budget_left(config: RuleConfig) -> str:
    """Return each service's remaining share of its error budget, from the recorded counts."""
    variables = variable_matchers(["job", "environment", "cluster"])
    cells = list(config.cells())
    if len({cell.limits.budget for cell in cells}) == 1:
        return _budget_left_of(variables, config.limits.budget, config.period)
    return "\nor ".join(
        _budget_left_of((*variables, *cell.where), cell.limits.budget, config.period)
        for cell in cells
    )


def _budget_left_of(services: Iterable[object], budget: float, period: int) -> str:
    matchers = ", ".join(map(str, services))
    window = f"{{{matchers}}}[{duration(period)}]"
    turns = f"sum_over_time(endturn:service_turns:count5m{window})"
    unfinished = f"sum_over_time(endturn:service_unfinished:count5m{window})"
    return f"1 - {unfinished} / {turns} / {budget:g} and {turns} / 5 >= {MIN_TURNS}"
