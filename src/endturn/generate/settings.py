"""The rules' configuration as a TOML file: every key, what it means, and what it may be."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError, did_you_mean
from endturn.generate.config import Burn, RuleConfig, Slo
from endturn.generate.promql import duration

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
EXPORT: Final = 15
"""How often `configure()` exports metrics, in seconds, where OTEL_METRIC_EXPORT_INTERVAL says nothing else."""

Read = Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the file.

    Attributes:
        field: of RuleConfig, or of Slo for the section `slo`.
        read: checks a value and makes the field's of it; raises ValueError, with what it should be.
        says: what it is, for the reference.
    """

    name: str
    field: str
    read: Read
    says: str


def _duration(value: object) -> int:
    """Whole seconds, from `90`, "90s", "1h30m"."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if isinstance(value, str) and re.fullmatch(r"(\d+[smhdw])+", value):
        seconds = sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhdw])", value))
        if seconds:
            return seconds
    raise ValueError('a duration such as "90s", "1h30m" or "3d", or whole seconds')


def _share(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1:
        return float(value)
    raise ValueError("a share between 0 and 1, such as 0.05")


def _amount(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("a number above 0")


def _whole(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise ValueError("a whole number above 0")


def _text(value: object) -> str:
    if isinstance(value, str) and value and "\n" not in value:
        return value
    raise ValueError("a text")


def _pattern(value: object) -> str:
    try:
        re.compile(text := _text(value))
    except re.error:
        raise ValueError("a regular expression") from None
    return text


def _job(value: object) -> str:
    """A pattern that means the same to Python and to RE2, and needs no escapes in PromQL or YAML."""
    if re.search(r'["`\\]|\(\?(?!:)', text := _pattern(value)):
        raise ValueError(r'a regular expression without quotes, backslashes and look-around (write "[.]" for "\.")')
    return text


def _address(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"https?://\S+", value):
        return value.rstrip("/")
    raise ValueError('an address, such as "https://grafana.example.com"')


def _jobs(value: object) -> tuple[str, ...]:
    if isinstance(value, list) and all(isinstance(each, str) and each for each in value):
        return tuple(value)
    raise ValueError('a list of services as `job` names them, such as ["shop/agent"]')


def _burns(value: object) -> tuple[Burn, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise ValueError('a list such as [{ rate = 6, over = "6h", also = "1h", bad = 5 }]')
    return tuple(_burn(each) for each in value)


def _burn(table: Mapping[str, object]) -> Burn:
    readers: dict[str, Read] = {"rate": _amount, "over": _duration, "also": _duration, "bad": _whole}
    for name in table:
        if name not in readers:
            raise ValueError(_unknown("key", name, readers))
    if missing := readers.keys() - table.keys():
        raise ValueError(f"a table that has {sorted(missing)[0]!r} too")
    values = {}
    for name, read in readers.items():
        try:
            values[name] = read(table[name])
        except ValueError as error:
            raise ValueError(f"a table in which {name!r} is {error}") from None
    return Burn(**values)


SLO: Final = (
    Key("objective", "objective", _share, "the share of truncated turns that is to be finished"),
    Key("period", "period", _duration, "the time over which it is"),
    Key("page", "page", _burns, "burn rates that wake somebody: above `rate` `over` and `also`, with `bad` turns"),
    Key("ticket", "ticket", _burns, "burn rates that make a ticket"),
    Key("few", "few", _whole, "truncated turns a day below which a service is judged by number, not by share"),
    Key("unfinished", "unfinished", _whole, "unfinished turns a day that make a ticket for such a service"),
    Key("continues", "continues", _duration, "a service pages when it continued some turn within this time"),
    Key("page_jobs", "jobs", _jobs, "services that page though they never continue"),
)
ALERTS: Final = (
    Key("window", "window", _duration, "what alerts look back on"),
    Key("slow_window", "slow", _duration, "what those look back on that need many events"),
    Key("hold", "hold", _duration, "how long a condition must last (`for`)"),
    Key("keep_firing_for", "keep", _duration, "how long an alert fires on after its condition was last seen"),
    Key("absent", "absent", _duration, "how long nothing at all may arrive"),
    Key("remembered", "remembered", _duration, "how long it is missed when nothing arrives any more"),
    Key("truncation", "truncation", _share, "share of truncated responses"),
    Key("truncated", "truncated", _whole, "truncated responses below which that is quiet"),
    Key("given_up", "given_up", _whole, "turns that ended at a limit of their policy"),
    Key("repair_failure", "repair_failure", _share, "share of tool payload repairs that fail"),
    Key("failed_repairs", "failed_repairs", _whole, "failed repairs below which that is quiet"),
    Key("unmapped", "unmapped", _whole, "responses with an unknown stop reason"),
    Key("suspected", "suspected", _whole, "suspected truncations"),
    Key("failures", "failures", _whole, "records that a listener lost"),
    Key("continued_seconds", "continued_seconds", _amount, "seconds that continued turns may take"),
    Key("continued_quantile", "continued_quantile", _share, "at which quantile"),
    Key("continued", "continued", _whole, "continued turns below which that is quiet"),
    Key("budget_used", "budget_used", _share, "share of their token limit that responses may use"),
    Key("budget_quantile", "budget_quantile", _share, "at which quantile"),
    Key("budgeted", "budgeted", _whole, "responses below which that is quiet"),
)
COLLECTOR: Final = (
    Key("job", "collector", _job, "the `job` under which Prometheus scrapes the Collector, a regular expression"),
    Key("queue", "queue", _share, "how full one of its queues may be"),
    Key("lost", "lost", _whole, "records that it lost"),
    Key("refused", "refused", _whole, "records that it refused"),
)
EVALUATION: Final = (
    Key("interval", "interval", _duration, "how often rules are evaluated"),
    Key("increase", "increase", _duration, "the window of one recorded increment"),
    Key("lookback", "lookback", _duration, "how far back a counter's previous value is looked for"),
    Key("known", "known", _duration, "how long a counter that is silent for longer than that is still recognised"),
    Key("lead", "lead", _duration, "how much later than the heartbeat an application may be back after an outage"),
)
LINKS: Final = (
    Key("grafana", "grafana", _address, "where the dashboards are"),
    Key("runbooks", "runbooks", _address, "where the runbook pages are"),
)
SECTIONS: Final = {"slo": SLO, "alerts": ALERTS, "collector": COLLECTOR, "evaluation": EVALUATION, "links": LINKS}
EXPECTED: Final = "expected"
"""The section whose keys are the services that must send something: `"shop/agent" = "6h"`."""
POLICY: Final = "agent"
"""The table of the same file that is the continuation policy's, and is not read here."""


def read(file: Path) -> RuleConfig:
    """The configuration that a file describes; what it leaves out stays as it is by default.

    Raises:
        UsageError: it cannot be read, is no TOML, has a section or key that there is not (the nearest is named), or a
            value that cannot be.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{str(file)!r} cannot be read as TOML: {error}") from error
    try:
        return parse(content)
    except UsageError as error:
        raise UsageError(f"{str(file)!r}: {error}") from error


def parse(content: Mapping[str, object]) -> RuleConfig:
    """The same, of a file's content."""
    fields: dict[str, Any] = {}
    for name, table in content.items():
        if name == POLICY:
            continue
        if name not in SECTIONS and name != EXPECTED:
            raise UsageError(_unknown("section", name, [*SECTIONS, EXPECTED]))
        if not isinstance(table, dict):
            raise UsageError(f"{name!r} is a section: write [{name}] and its keys below")
        if name == EXPECTED:
            fields["expected"] = tuple((job, _value(f"{name}.{job}", _duration, table[job])) for job in sorted(table))
            continue
        values = _section(name, table)
        fields |= {"slo": Slo(**values)} if name == "slo" else values
    return _checked(RuleConfig(**fields))


def _checked(config: RuleConfig) -> RuleConfig:
    """The same, if its durations go together.

    Not a matter of RuleConfig itself: tests run the rules on a faster clock, on which no application exports.
    """
    several = 5 * max(config.interval, EXPORT)
    paging = max(burn.over for burn in config.slo.page)
    period = config.slo.period
    _between(
        "evaluation.lookback",
        config.lookback,
        several,
        None,
        "several exports: else counters count from zero again",
    )
    # Of a service whose continuation breaks, the page would end while the budget burns on.
    _between("slo.continues", config.slo.continues, paging, None, "at least what pages look back on")
    for job, within in config.expected:
        _between(
            f"{EXPECTED}.{job}", within, max(several, config.increase), period, "several exports, up to slo.period"
        )
    return config


def _between(path: str, seconds: int, least: int, most: int | None, why: str) -> None:
    if seconds < least or (most is not None and seconds > most):
        limits = f"between {duration(least)} and {duration(most)}" if most else f"{duration(least)} or more"
        raise UsageError(f"{path} is {limits} ({why}), not {duration(seconds)}")


def _section(name: str, table: Mapping[str, object]) -> dict[str, Any]:
    keys = {key.name: key for key in SECTIONS[name]}
    values = {}
    for each, value in table.items():
        if each not in keys:
            raise UsageError(_unknown("key", each, keys, of=f"[{name}]"))
        values[keys[each].field] = _value(f"{name}.{each}", keys[each].read, value)
    return values


def _value(path: str, read_: Read, value: object) -> Any:
    try:
        return read_(value)
    except ValueError as error:
        raise UsageError(f"{path} is {error}, not {value!r}") from error


def _unknown(kind: str, name: str, known: Any, *, of: str = "") -> str:
    hint = did_you_mean(name, known)
    return f"{of} has no {kind} {name!r}; {hint}".lstrip() if of else f"there is no {kind} {name!r}; {hint}"
