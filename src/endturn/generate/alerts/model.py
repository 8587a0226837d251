"""The parts of an alert."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from endturn.generate.alerts.conditions import Condition
from endturn.generate.config import AlertLimits
from endturn.generate.queries import CALL, JOB, SERVICE, Labels, Matcher
from endturn.telemetry import Metric, schema

SERVICE_AND_MODEL: Final[Labels] = (*SERVICE, *CALL)
"""Labels of alerts about one model of a service."""

# --- Templates of notifications, rendered by Prometheus and Grafana -------------------------------

PERCENT: Final = "{{ $value | humanizePercentage }}"
"""The alert's value as a percentage."""
COUNT: Final = "{{ $value | printf `%.0f` }}"
"""The alert's value as a whole number."""
SERVICE_NAME: Final = (
    "{{ $labels.job }}{{ with $labels.deployment_environment_name }} in {{ . }}{{ end }}"
)
"""The service, with its environment if it has one."""
OF_CLUSTER: Final = "{{ with $labels.cluster }} of {{ . }}{{ end }}"
"""The cluster, if there is one."""


def label_value(label: str) -> str:
    """Return the template of a label's value."""
    return f"{{{{ $labels.{label} }}}}"


def percent(share: float) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.6g}%"


# --- Examples -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleSeries:
    """An input series of an example, with its values in promtool's notation."""

    name: str
    labels: Mapping[str, str]
    values: str

    def __str__(self) -> str:
        labels = ",".join(f'{label}="{value}"' for label, value in self.labels.items())
        return f"{self.name}{{{labels}}}"


_SERVICE_DEFAULTS: Final = {JOB: "shop/agent", "instance": "one"}
_MODEL_DEFAULTS: Final = {schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5"}
NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


def sample_series(
    metric: Metric, values: str, labels: Mapping[str, str] = NO_LABELS
) -> SampleSeries:
    """Return a series of an endturn metric, with defaults for the labels that are not set."""
    own = {attribute.label for attribute in metric.attributes}
    model = {label: value for label, value in _MODEL_DEFAULTS.items() if label in own}
    defaults = {
        label: value for label, value in (_SERVICE_DEFAULTS | model).items() if label not in labels
    }
    return SampleSeries(name=metric.prometheus, labels={**labels, **defaults}, values=values)


def sdk_series(name: str, values: str, **labels: str) -> SampleSeries:
    """Return a series that an agent's OpenTelemetry SDK reports about itself."""
    return SampleSeries(name=name, labels=labels | _SERVICE_DEFAULTS, values=values)


def scraped_series(name: str, values: str, **labels: str) -> SampleSeries:
    """Return a series of a scraped target, such as a Collector, with just these labels."""
    return SampleSeries(name=name, labels=labels, values=values)


def collector_series(
    name: str, values: str, *, instance: str = "collector:8888", **labels: str
) -> SampleSeries:
    """Return a series that a Collector reports about itself."""
    return scraped_series(name, values, job="collector", instance=instance, **labels)


def collector_up(values: str, *, instance: str = "collector:8888", **labels: str) -> SampleSeries:
    """Return the series that is 1 while a Collector answers its scrape, else 0."""
    return collector_series("up", values, instance=instance, **labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """Series for which an alert does not fire.

    Attributes:
        at: When the rule is looked at, from the first sample on.
        interval: Time between two samples.
    """

    title: str
    series: tuple[SampleSeries, ...]
    at: timedelta
    interval: timedelta = timedelta(seconds=15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Firing:
    """Series for which an alert fires.

    Attributes:
        at: When the rule is looked at, from the first sample on.
        interval: Time between two samples.
        labels: The labels of the firing alert, without those of the rule.
        value: The alert's value, as its annotations show it.
    """

    title: str
    series: tuple[SampleSeries, ...]
    at: timedelta
    interval: timedelta = timedelta(seconds=15)
    labels: Mapping[str, str] = field(default_factory=lambda: {JOB: _SERVICE_DEFAULTS[JOB]})
    value: str


# --- Alerts ---------------------------------------------------------------------------------------


class Severity(StrEnum):
    """Urgency of an alert: `critical` pages, `warning` opens a ticket."""

    CRITICAL = "critical"
    WARNING = "warning"


class Component(StrEnum):
    """Owner of an alert: the team of the service, or the operators of the telemetry pipeline."""

    SERVICE = "service"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Settings of the configuration for a group of services.

    Attributes:
        limits: Their limits.
        collector: `job` of the Collectors, a regular expression; "" without a Collector.
        services: Matchers of the services; none for all services.
    """

    limits: AlertLimits = field(default_factory=lambda: AlertLimits())
    collector: str = ""
    services: tuple[Matcher, ...] = ()


def pages(settings: AlertSettings) -> bool:
    """Return whether these services page."""
    return settings.limits.page


def opens_tickets(settings: AlertSettings) -> bool:
    """Return whether these services open tickets."""
    return settings.limits.tickets


def has_collector(settings: AlertSettings) -> bool:
    """Return whether there is a Collector."""
    return bool(settings.collector)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """The text of an alert's runbook page, in Markdown.

    Attributes:
        meaning: The failure.
        impact: The effect on users.
        diagnosis: Steps that find the cause.
        actions: Steps that remove it.
        recovery: How to see that it is fixed.
    """

    meaning: str
    impact: str
    diagnosis: tuple[str, ...]
    actions: tuple[str, ...]
    recovery: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert.

    Attributes:
        enabled: Returns whether the configuration enables the alert.
        condition: Returns when it is true.
        hold: How long the condition must hold before the alert fires.
        keep_firing: How long the alert keeps firing after the condition ends.
        dashboard: The uid of the dashboard that it links to.
        dashboard_labels: Labels of the alert that select values of the dashboard's variables.
        summary: One line for a notification; may use the alert's labels and value.
        description: Returns the text below it, with the limits.
        fires_when: Returns the rest of a sentence, "fires when …", with the limits.
        fires: Examples in which it fires.
        quiet: Examples in which it does not fire.
    """

    name: str
    severity: Severity
    component: Component
    enabled: Callable[[AlertSettings], bool]
    condition: Callable[[AlertSettings], Condition]
    hold: timedelta | None = None
    keep_firing: timedelta
    dashboard: str
    dashboard_labels: Labels = ()
    summary: str
    description: Callable[[AlertSettings], str]
    fires_when: Callable[[AlertSettings], str]
    runbook: Runbook
    fires: tuple[Firing, ...]
    quiet: tuple[Quiet, ...]

    @property
    def examples(self) -> tuple[Firing | Quiet, ...]:
        """All examples."""
        return (*self.fires, *self.quiet)
