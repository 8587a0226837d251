"""How an alert is declared: with a runbook, a series on which it fires and one on which it is quiet, or not at all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote_plus

from endturn.errors import UsageError
from endturn.generate import promql
from endturn.generate.promql import INSTANCE, JOB, Vector
from endturn.generate.rules import RuleConfig
from endturn.telemetry import schema

Severity = Literal["critical", "warning", "info"]

Dashboard = Literal[
    "endturn-overview", "endturn-stops", "endturn-continuations", "endturn-model", "endturn-turns", "endturn-pipeline"
]
DASHBOARD: Final = "endturn-overview"
VARIABLES: Final[Mapping[str, str]] = {
    JOB: "job",
    schema.PROVIDER.label: "provider",
    schema.REQUEST_MODEL.label: "model",
}
"""The dashboard's variables, by the label that each one filters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """What whoever is told has to know.

    Attributes:
        meaning: what is the case when it fires.
        impact: for whom that is bad, and how.
        look: where to look, in order; act: what mends it.
    """

    meaning: str
    impact: str
    look: tuple[str, ...]
    act: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """Series of a test in promtool's notation, one value for each evaluation.

    Attributes:
        says: what is the case.
        after: how many evaluations later the alert is looked at.
        labels: of the one alert that fires, None where none does. An empty one is a label that it lacks this time.
        shows: the value as its annotations have it.
    """

    says: str
    series: Mapping[str, str]
    after: int
    labels: Mapping[str, str] | None = None
    shows: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert rule. Made by `alert` alone."""

    name: str
    severity: Severity
    expression: Vector
    hold: int
    keep: int
    summary: str
    description: str
    dashboard: Dashboard
    dashboard_url: str
    runbook_url: str
    runbook: Runbook
    fires: tuple[Example, ...]
    quiet: tuple[Example, ...]

    @property
    def annotations(self) -> dict[str, str]:
        """As Prometheus is given them, templates and all."""
        return {
            "summary": self.summary,
            "description": self.description,
            "runbook_url": self.runbook_url,
            "dashboard_url": self.dashboard_url,
        }

    def shown(self, example: Example) -> dict[str, str]:
        """The annotations as Prometheus fills them in for an example that fires."""
        labels = example.labels or {}

        def fill(found: re.Match[str]) -> str:
            value = labels[found[1]] if found[1] else example.shows
            return quote_plus(value) if found[2] == "urlquery" else value

        pattern = re.compile(r"\{\{ \$(?:labels\.(\w+)|value)(?: \| (\w+))? \}\}")
        return {key: pattern.sub(fill, text) for key, text in self.annotations.items()}


def alert(
    name: str,
    *,
    severity: Severity,
    expression: Vector,
    config: RuleConfig,
    summary: str,
    description: str,
    runbook: Runbook,
    fires: Example,
    quiet: Example,
    also_fires: tuple[Example, ...] = (),
    also_quiet: tuple[Example, ...] = (),
    dashboard: Dashboard = DASHBOARD,
    hold: int | None = None,
    keep: int | None = None,
) -> Alert:
    """Declare an alert.

    Args:
        dashboard: where to look first.
        hold, keep: seconds for which the condition must last, and for which the alert fires on after it was last
            seen, where not the configuration's.

    Raises:
        UsageError: something is empty, the summary hides the value, or an example does not fit what it is there for.
    """
    if not re.fullmatch("Endturn([A-Z][a-z]+)+", name):
        raise UsageError(f"{name!r}: an alert is called Endturn and then what is wrong, in CamelCase")
    if not all((runbook.meaning, runbook.impact, runbook.look, runbook.act)):
        raise UsageError(f"{name!r} needs a runbook that says meaning, impact, where to look and how to act")
    if "$value" not in summary or not description:
        raise UsageError(f"{name!r} needs a description, and a summary that shows the value")
    loud = (fires, *also_fires)
    if any(not one.series or one.labels is None or set(one.labels) != expression.labels for one in loud):
        raise UsageError(f"{name!r} needs an example that fires, labelled by {sorted(expression.labels)}")
    silent = (quiet, *also_quiet)
    if any(example.labels is not None or not example.series for example in silent):
        raise UsageError(f"{name!r} needs an example with series on which it stays quiet")
    link = f"{config.grafana}/d/{dashboard}"
    chosen = "&".join(
        f"var-{variable}={{{{ $labels.{label} | urlquery }}}}"
        for label, variable in VARIABLES.items()
        # Where an instance is to blame, `job` is what scrapes the Collector, and no service to choose.
        if label in expression.labels and INSTANCE not in expression.labels
    )
    return Alert(
        name=name,
        severity=severity,
        expression=expression,
        hold=config.hold if hold is None else hold,
        keep=config.keep if keep is None else keep,
        summary=summary,
        description=description,
        dashboard=dashboard,
        dashboard_url=f"{link}?{chosen}" if chosen else link,
        runbook_url=f"{config.runbooks}/{name}.md",
        runbook=runbook,
        fires=loud,
        quiet=silent,
    )


def alerting_rule(declared: Alert) -> dict[str, object]:
    """An alert as a rule file has it."""
    rule: dict[str, object] = {"alert": declared.name, "expr": declared.expression.text}
    if declared.hold:
        rule["for"] = promql.duration(declared.hold)
    if declared.keep:
        rule["keep_firing_for"] = promql.duration(declared.keep)
    return rule | {"labels": {"severity": declared.severity}, "annotations": declared.annotations}
