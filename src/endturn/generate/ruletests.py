"""Rule tests for promtool: every alert fires on one series and is quiet on another; increments are what happened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from endturn.generate import promql, rules
from endturn.generate.declare import Alert, Example
from endturn.generate.promql import INSTANCE, JOB, Matcher
from endturn.generate.rules import RuleConfig
from endturn.telemetry import indicators, schema

INCREMENTS: Final = "endturn-increments"
SLO: Final = "endturn-slo"
COLLECTOR: Final = "endturn-collector"
ALERTS: Final = "endturn-alerts"
"""Names of the rule groups, and of their files; each reads what the ones before it record."""


def of_alerts(alerts: tuple[Alert, ...], config: RuleConfig) -> dict[str, dict[str, object]]:
    """The test files of the alerts by name: those that read the same recorded series together, and nothing else."""
    files: dict[str, list[Alert]] = {"alerts-slo": [], "alerts-collector": [], "alerts": []}
    for alert in alerts:
        read = re.search(r"\bendturn:(slo|collector)\b|\bendturn:(slo|collector)_", alert.expression.text)
        name = f"alerts-{read[1] or read[2]}" if read else "alerts"
        files[name].append(alert)
    groups = {"alerts-slo": [INCREMENTS, SLO], "alerts-collector": [COLLECTOR], "alerts": [INCREMENTS]}
    return {
        name: _file(
            [*groups[name], ALERTS],
            [_test(alert, example, config) for alert in some for example in (*alert.fires, *alert.quiet)],
            config,
        )
        for name, some in files.items()
    }


def _test(alert: Alert, example: Example, config: RuleConfig) -> dict[str, object]:
    verb, expected = "is quiet", []
    if example.labels is not None:
        verb = "fires"
        labels = {"severity": alert.severity, **{name: value for name, value in example.labels.items() if value}}
        expected = [{"exp_labels": labels, "exp_annotations": alert.shown(example)}]
    look: dict[str, object] = {"alertname": alert.name, "eval_time": _at(example.after, config)}
    return {
        "name": f"{alert.name} {verb}: {example.says}",
        "interval": promql.duration(config.interval),
        "input_series": _series(example.series),
        "alert_rule_test": [look | ({"exp_alerts": expected} if expected else {})],
    }


@dataclass(frozen=True, slots=True)
class _Life:
    """One counter's life, and how many events the recorded increments make of it.

    Attributes:
        values: of the counter; beats: of the heartbeat. A value for each evaluation.
        counts: (after how many evaluations, over how many of them, events).
    """

    says: str
    values: str
    beats: str
    counts: tuple[tuple[int, int, int], ...]


def _lives(config: RuleConfig) -> tuple[_Life, ...]:
    """Lives of counters, in evaluations; written for production's clock, where one is a minute."""
    always, hour = "0+1x400", config.steps(config.lookback)
    outage = hour + 10
    back = 30 + outage
    return (
        _Life("a counter is born at 3", "_x30 3x100", always, ((110, 100, 3),)),
        _Life("a process exports once and ends: one sample, 3", "_x30 3 _x100", always, ((110, 100, 3),)),
        _Life(
            "16, 17, 18, two hours apart, exported all the time: 1 each",
            "16x119 17x119 18x100",
            always,
            ((180, 90, 1), (300, 90, 1), (330, 300, 2)),
        ),
        _Life(
            "a live counter comes back at 5000 after an outage longer than the look-back",
            f"5000x29 _x{outage} 5000x100",
            f"0+1x29 _x{outage} {back}+1x100",
            ((back + 60, 90, 0),),
        ),
        _Life(
            "events after that outage count again",
            f"5000x29 _x{outage} 5000x19 5004x100",
            f"0+1x29 _x{outage} {back}+1x100",
            ((back + 60, 90, 4),),
        ),
        _Life(
            "an outage shorter than the look-back: what happened meanwhile is counted",
            "10x29 _x40 14x100",
            "0+1x29 _x40 70+1x100",
            ((120, 100, 4),),
        ),
        _Life("a zero is stamped 24 minutes before the first point", "_x30 0 _x23 1x100", always, ((110, 100, 1),)),
        _Life("a counter starts anew at 2 and goes on to 5", "7x29 2x9 5x100", always, ((100, 80, 5),)),
        _Life("nothing ever happens", "12x200", always, ((150, 100, 0),)),
        _Life(
            "an application is cut off for longer than the look-back while the heartbeat goes on: nothing is new",
            f"5000x{hour} _x{outage} 5000x100",
            f"0+1x{4 * hour}",
            ((hour + outage + 60, hour + outage, 0),),
        ),
        _Life(
            "the same, and 3 events meanwhile",
            f"5000x{hour} _x{outage} 5003x100",
            f"0+1x{4 * hour}",
            ((hour + outage + 60, hour + outage, 3),),
        ),
        _Life(
            "a sender that exports on change only, less often than the look-back",
            f"_x20 16 _x{2 * hour - 1} 17 _x100",
            f"0+1x{4 * hour}",
            ((90, 90, 16), (2 * hour + 80, hour, 1)),
        ),
        _Life("it starts anew at 90 after a gap: 90", "100x59 _x20 90x100", always, ((120, 100, 90),)),
        _Life(
            "it starts anew at 90 after a gap longer than the look-back: 90",
            f"100x{hour} _x{outage} 90x100",
            f"0+1x{hour} _x{outage} 0+1x100",
            ((hour + outage + 60, hour + outage, 90),),
        ),
        _Life("4 events, a minute later it starts anew at 2: 6", "100x59 104x1 2x100", always, ((120, 100, 6),)),
        _Life(
            "it starts anew and shows its zero, then as many as before", "3x59 _x19 0 3x100", always, ((150, 100, 3),)
        ),
        # What the increments are not good for, pinned so that nobody is surprised.
        _Life(
            "it starts anew after a gap with as many as before: no event", "3x59 _x20 3x100", always, ((150, 100, 0),)
        ),
    )


def _long_lives(config: RuleConfig) -> tuple[_Life, ...]:
    """Lives of counters that are silent for longer than they are known: too long for production's a day."""
    hour = config.steps(config.lookback)
    forgotten = config.steps(config.known) + hour
    again = 30 + forgotten
    if config.known > 3 * config.lookback:
        return ()
    return (
        _Life(
            "it comes back after longer than it is known, the heartbeat a minute and a half earlier",
            f"5000x29 _x{forgotten} 5000x100",
            f"0+1x29 _x{forgotten - 2} 0+1x102",
            ((again + 60, 90, 0),),
        ),
        _Life(
            "the same while the heartbeat goes on: its life is counted again",
            f"5000x29 _x{forgotten} 5000x100",
            f"0+1x{again + 100}",
            ((again + 60, 90, 5000),),
        ),
    )


def of_increments(config: RuleConfig) -> dict[str, object]:
    """The test file of the recorded increments."""
    count = indicators.UNMAPPED
    labels = {JOB: "shop/agent", INSTANCE: "one"} | dict(
        zip((a.label for a in count.by), ("openai", "gpt-5"), strict=True)
    )
    series = str(promql.select(count.metric).where(*(Matcher(name, "=", value) for name, value in labels.items())))
    beat = str(promql.foreign(config.heartbeats[0].name).where(Matcher(JOB, "=", "endturn-collector")))
    tests: list[dict[str, object]] = [
        {
            "name": life.says,
            "interval": promql.duration(config.interval),
            "input_series": _series({beat: life.beats, series: life.values}),
            "promql_expr_test": [_counts(count, config, *counts) for counts in life.counts],
        }
        for life in (*_lives(config), *_long_lives(config))
    ]
    return _file([INCREMENTS], [*tests, _rate_test(config)], config)


def _counts(count: indicators.Count, config: RuleConfig, after: int, over: int, events: int) -> dict[str, object]:
    window = over * config.interval
    return _expects(
        rules.number(indicators.Part(count=count), config, by=(), window=window).text, after, config, events
    )


def _rate_test(config: RuleConfig) -> dict[str, object]:
    """Zero for whom nothing was left unfinished, no series for whom nothing was truncated."""
    by = (schema.REQUEST_MODEL,)

    def turns(metric: schema.Metric, model: str, values: str, **extra: str) -> dict[str, str]:
        labels = {JOB: "shop/agent", INSTANCE: "one", schema.PROVIDER.label: "openai", by[0].label: model} | extra
        return {str(promql.select(metric).where(*(Matcher(k, "=", v) for k, v in labels.items()))): values}

    cut, whole = ({schema.TRUNCATED.label: truncated} for truncated in ("true", "false"))
    left = {schema.OUTCOME.label: "not_continued"}
    series = {
        **turns(schema.TURNS, "half", "0x19 4x60", **cut),
        **turns(schema.TRUNCATION_EXITS, "half", "0x19 2x60", **left),
        **turns(schema.TURNS, "all-finished", "0x19 4x60", **cut),
        **turns(schema.TURNS, "never-cut", "0x19 4x60", **whole),
    }
    rate = rules.rate(indicators.NOT_CONTINUED, config, by=by, window=config.window)
    looked = _expects(rate.text, 60, config, 0)
    looked["exp_samples"] = [
        {"labels": f'{{{by[0].label}="all-finished"}}', "value": 0},
        {"labels": f'{{{by[0].label}="half"}}', "value": 0.5},
    ]
    return {
        "name": "a rate is zero where nothing bad happened, and absent where nothing happened",
        "interval": promql.duration(config.interval),
        "input_series": _series(series),
        "promql_expr_test": [looked],
    }


def _expects(expression: str, after: int, config: RuleConfig, value: float) -> dict[str, object]:
    samples = [{"labels": "{}", "value": value}]
    return {"expr": expression, "eval_time": _at(after, config), "exp_samples": samples}


def _series(series: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def _at(steps: int, config: RuleConfig) -> str:
    return promql.duration(steps * config.interval)


def _file(groups: list[str], tests: list[dict[str, object]], config: RuleConfig) -> dict[str, object]:
    return {
        "rule_files": [f"../{group.removeprefix('endturn-')}.yaml" for group in groups],
        "evaluation_interval": promql.duration(config.interval),
        "group_eval_order": groups,
        "tests": tests,
    }
