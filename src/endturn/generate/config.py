"""The configuration of rules and dashboards.

Objective, thresholds, settings of single services, addresses; read from TOML.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from endturn.errors import UsageError, did_you_mean
from endturn.generate.queries import ENVIRONMENT, JOB, Matcher

SITE: Final = "https://github.com/endturn/endturn/blob/main"
UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
FAST, SLOW = 14.4, 6
"""Multiples of the allowed rate of unfinished turns that page, over 1 h and over 6 h."""
TICKET, FAST_TICKET = 2, 4
"""Multiples that open a ticket, over 3 d and over 1 h."""
T = TypeVar("T", bound=BaseModel)
ANY: Final = "*"
"""In `services`: every service that is not listed."""
POLICY: Final = "agent"
"""The table of the same file with the continuation policy, which is not read here."""


def _seconds(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"(\d+[smhdw])+", value):
        return sum(
            int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", value)
        )
    if isinstance(value, str):
        raise ValueError('a duration such as "90s", "1h30m" or "3d", or whole seconds')
    return value


Seconds = Annotated[int, BeforeValidator(_seconds), Field(gt=0, strict=True)]
Share = Annotated[float, Field(gt=0, lt=1)]
Events = Annotated[int, Field(ge=1, strict=True)]
Address = Annotated[
    str, Field(pattern=r"^https?://\S+$"), AfterValidator(lambda url: url.rstrip("/"))
]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AlertLimits(_Table):
    """Alert limits of a service.

    Each number of events is the minimum for an alert to fire.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    objective: Annotated[float, Field(gt=1 - 1 / TICKET, lt=1)] = Field(
        0.995, description="share of all turns that must finish"
    )
    page: bool = Field(
        True, description="whether unfinished turns page; false for services that are only observed"
    )
    tickets: bool = Field(True, description="whether the other alerts about this service fire")
    unfinished: Events = Field(10, description="unfinished turns, in the windows of the objective")
    not_continued: Share = Field(0.2, description="share of truncated turns that stays unfinished")
    truncated: Share = Field(0.2, description="share of responses that is truncated")
    truncations: Events = Field(20, description="truncated responses in 30 minutes")
    exhausted: Events = Field(
        5, description="turns in 30 minutes that ended at a limit of their policy"
    )
    repair_failure: Share = Field(0.5, description="share of tool payload repairs that fails")
    failed_repairs: Events = Field(5, description="failed repairs in 30 minutes")
    unknown: Events = Field(3, description="responses in 30 minutes with an unknown stop reason")
    suspected: Events = Field(5, description="suspected truncations in 30 minutes")
    failures: Events = Field(3, description="records in 15 minutes that listeners lost")
    capped: Events = Field(
        10, description="measurements in 30 minutes with a label recorded as `other`"
    )

    @property
    def budget(self) -> float:
        """The share of turns that may end unfinished."""
        return round(1 - self.objective, 9)

    @property
    def values(self) -> dict[str, str]:
        """The limits by name, as used in alerts' expressions and texts.

        Shares are also there as `<name>_percent`.
        """
        numbers = {name: value for name, value in self if not isinstance(value, bool)}
        burns = {
            "fast": FAST * self.budget,
            "slow": SLOW * self.budget,
            "burn": TICKET * self.budget,
        }
        shares = {
            f"{name}_percent": f"{100 * value:.6g}%" for name, value in numbers.items() if value < 1
        }
        return {name: f"{value:.6g}" for name, value in (numbers | burns).items()} | shares


class Service(_Table):
    """Alert limits that differ for one service, and again for its environments."""

    limits: Mapping[str, Any] = {}
    environments: Mapping[str, Mapping[str, Any]] = {}


class RuleConfig(_Table):
    """The configuration that rules and dashboards are generated from.

    Durations are whole seconds.
    """

    limits: AlertLimits = Field(default_factory=lambda: AlertLimits(), alias="alerts")
    services: Mapping[str, Service] = Field({}, description="limits of single services")
    period: Seconds = Field(30 * 86400, description="the time that the objective covers")
    collector: str = Field(
        # Helm's DaemonSet is `<release>-opentelemetry-collector-agent`; for a Collector `otel`, the
        # OpenTelemetry Operator creates `otel-collector-monitoring`.
        "(.+/)?((.+-)?(endturn|otel|opentelemetry)-)?collector(-agent|-monitoring)?",
        description='`job` of the Collector, a regular expression; "" without one',
    )
    grafana: Address = Field("http://127.0.0.1:3000", description="address of the dashboards")
    runbooks: Address = Field(f"{SITE}/docs/runbooks", description="address of the runbook pages")

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    @field_validator("services", mode="before")
    @classmethod
    def _split(cls, services: object) -> object:
        """Split a service's table into its limits and those of its `environments`."""
        if not isinstance(services, dict):
            return services
        tables = {}
        for name, table in services.items():
            path = f'services."{name}"'
            limits = {
                key: value
                for key, value in _named(name, table, f"[{path}]").items()
                if key != "environments"
            }
            _checked(AlertLimits, limits, f"{path}.")
            environments = table.get("environments", {})
            if not isinstance(environments, dict):
                raise ValueError(f'write [{path}.environments."its name"] and its keys below')
            for environment, changed in environments.items():
                inner = f'{path}.environments."{environment}"'
                if environment == ANY:
                    raise ValueError(
                        f"{inner}: put the settings for every environment into [{path}]"
                    )
                _checked(AlertLimits, _named(environment, changed, f"[{inner}]"), f"{inner}.")
            tables[name] = {"limits": limits, "environments": environments}
        return tables

    @field_validator("collector")
    @classmethod
    def _pattern(cls, text: str) -> str:
        # A regular expression that Python and RE2 read alike, and that needs no escapes in PromQL,
        # YAML or templates.
        try:
            re.compile(text)
        except re.error as error:
            raise ValueError(f"a regular expression ({error})") from None
        if re.search(r'["`\\]|\(\?(?!:)|\{\{|\}\}', text) or not text.isprintable():
            raise ValueError(
                "a regular expression without quotes, backslashes, doubled braces, control "
                "characters and look-around "
                r'("[.]" for "\.")'
            )
        return text

    @model_validator(mode="after")
    def _can_page(self) -> Self:
        for who, _, limits in self.cells():
            if limits.page and FAST * limits.budget >= 1:
                where = f"services.{who}" if who else "alerts"
                raise ValueError(
                    f"{where}: with an objective of {limits.objective:g} nothing could burn {FAST} "
                    f"times as fast as it allows: give more than {1 - 1 / FAST:.3g}, or page = "
                    f"false"
                )
        return self

    def cells(self) -> Iterator[Cell]:
        """Group the services with equal limits, such that no two groups share a series.

        The group of all other services comes first.
        """
        own = self.limits.model_dump()
        named = {name: service for name, service in sorted(self.services.items()) if name != ANY}
        others = self.services.get(ANY, Service())
        for name, service in {"": others, **named}.items():
            limits = own | {**others.limits, **service.limits}
            environments = {name: {**others.environments.get(name, {}),
                                   **service.environments.get(name, {})}
                            for name in sorted({*others.environments,
                                                *service.environments})}  # fmt: skip
            job = _matchers(JOB, name, [*named])
            rest = _matchers(ENVIRONMENT, "", [*environments])
            yield Cell(name, (*job, *rest), AlertLimits(**limits))
            for environment_name, changed in environments.items():
                who = f"{name} in {environment_name}" if name else environment_name
                environment = _matchers(ENVIRONMENT, environment_name, [])
                yield Cell(who, (*job, *environment), AlertLimits(**limits | changed))


class Cell(NamedTuple):
    """Services with equal limits.

    Its fields are the name ("" for services that are not listed), the matchers of the series, and
    the limits.
    """

    who: str
    matchers: tuple[Matcher, ...]
    limits: AlertLimits

    @property
    def where(self) -> tuple[str, ...]:
        """The matchers as text."""
        return tuple(map(str, self.matchers))


def _matchers(label: str, name: str, others: Sequence[str]) -> tuple[Matcher, ...]:
    """Match the label's value; if it is empty, every value except the others."""
    if name:
        return (Matcher(label, "=", name),)
    return (Matcher(label, "!~", "|".join(map(_exact, others))),) if others else ()


def _named(name: str, table: object, path: str) -> dict[str, Any]:
    """Return the table of a service or environment, after checking its name.

    The name must be valid in PromQL, YAML and templates without escapes.
    """
    if (
        re.search(
            r'^$|["\\^`$]|\{\{'
            r"|\}\}",
            name,
        )
        or not name.isprintable()
        or ("*" in name and name != ANY)
    ):
        raise ValueError(
            f"{path!r}: write one name, without patterns, quotes, backslashes, control characters, "
            f"^, $, {{{{ and }}}}"
        )
    if not isinstance(table, dict):
        raise ValueError(f"write {path} and its keys below")
    return table


def _exact(name: str) -> str:
    """Return a regular expression that matches only this name, without backslashes."""
    return re.sub(r"[.+*?()|\[\]{}$]", r"[\g<0>]", name)


def read(file: Path) -> RuleConfig:
    """Read a configuration from a file; missing keys keep their defaults.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has an unknown key or an invalid value.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(file)!r} cannot be read as TOML: {error}") from error
    content.pop(POLICY, None)
    try:
        return _checked(RuleConfig, content)
    except ValueError as error:
        raise UsageError(f"{str(file)!r}: {error}") from error


def _checked(model: type[T], content: Mapping[str, Any], path: str = "") -> T:
    """Validate content as this model; raise ValueError with all problems in one line."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ValueError(
            "; ".join(_problem(model, detail, path) for detail in error.errors())
        ) from None


def _problem(model: type[BaseModel], error: ErrorDetails, path: str) -> str:
    name = path + ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        table = AlertLimits if error["loc"][0] == "alerts" and len(error["loc"]) > 1 else model
        known_keys = [field.alias or field_name for field_name, field in table.model_fields.items()]
        known_keys += (
            ["environments"] if path.startswith("services") and "environments" not in path else []
        )
        return f"unknown key {name!r}; {did_you_mean(str(error['loc'][-1]), known_keys)}"
    says = error["msg"].removeprefix("Value error, ")
    # this error names its place itself
    if error["type"] == "value_error" and error["loc"] in {("services",), ()}:
        return str(says)
    return f"{name}: {says[:1].lower()}{says[1:]}, not {error['input']!r}"
