"""The Overview: is everything all right? In the order in which one asks: how are we doing, why, and is it true?"""

from __future__ import annotations

from endturn.generate import panels, parts, pipeline, promql, slo
from endturn.generate.declare import VARIABLES
from endturn.generate.layout import Section
from endturn.generate.panels import About, Link, Query
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import stat, timeseries
from endturn.generate.shown import FILTERS, by_model, figure, per_step, percentage
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Thresholds


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    top = (
        (percentage(indicators.NOT_CONTINUED, 11, config, empty="nothing truncated"), 5),
        (percentage(indicators.TRUNCATION, 12, config, empty="no traffic"), 3),
        (_budget(18), 3),
        (_firing(17), 3),
        (figure(indicators.GIVEN_UP_NUMBER, 16, config), 2),
        (figure(indicators.TURN_NUMBER, 13, config), 2),
        (figure(indicators.RESPONSE_NUMBER, 14, config), 3),
        (figure(indicators.CONTINUATION_NUMBER, 15, config), 3),
    )
    cut = (
        (by_model(indicators.TRUNCATION, 31, config, empty="no traffic"), 12),
        (by_model(indicators.NOT_CONTINUED, 32, config, empty="nothing truncated"), 12),
    )
    finished = ((parts.strategies(41, config), 8), (parts.attempts(42, config), 8), (parts.unfinished(43, config), 8))
    unusual = (
        (per_step(indicators.UNMAPPED_NUMBER, 61, config), 6),
        (per_step(indicators.SUSPECTED_NUMBER, 62, config), 6),
        (parts.blocked(63, config), 6),
        (parts.repairs(64, config), 6),
    )
    return [
        Section(10, "How are we doing?", ((5, top),)),
        Section(
            20,
            "Why do models stop?",
            ((10, ((parts.reasons(21, config), 12), (parts.reasons_by_model(22, config), 12))),),
        ),
        Section(
            30, "Which answers are cut off, and which stay so?", ((8, cut), (7, ((parts.ranking(33, config), 24),)))
        ),
        Section(40, "How are they finished?", ((8, finished),)),
        Section(50, "How long do people wait?", ((8, ((parts.durations(51, config), 12), (_calls(52), 12))),)),
        Section(60, "What is unusual?", ((7, unusual),)),
        Section(70, "Is the telemetry itself all right?", ((4, pipeline.health(config, FILTERS)),)),
    ]


def _budget(id_: int) -> stat.Panel:
    says = About(
        id=id_,
        title="Error budget left",
        question="Is the objective kept?",
        formula="of the service that is worst off: what is left, over the objective's period, of the truncated turns "
        "that may end unfinished",
        advice="Nothing left: the objective is missed. *Models, worst first* says where it went.",
        unit="percentunit",
        needs="process",
        empty="nothing truncated",
        decimals=0,
    )
    left = slo.REMAINING.where(promql.chosen(promql.JOB, VARIABLES[promql.JOB]))
    return panels.remaining(says, Query(f"clamp_min(min({left}), 0)", at="end"), look=0.25)


def _firing(id_: int) -> stat.Panel:
    says = About(
        id=id_,
        title="Alerts firing",
        question="Does anything need somebody?",
        formula="our alerts that fire at the end of the time range: for the chosen services, for none in particular, "
        "and about the Collector, whichever service is chosen",
        advice="Each has a runbook; which they are stands in the annotations of every chart.",
        unit="short",
        needs="rules",
        empty="0",
        decimals=0,
    )
    runbook = Link("What watches over this", "/alerting/list?search=Endturn")
    return panels.number(says, Query(f"count({promql.firing()})", at="end"), Thresholds(look=1, act=1), links=[runbook])


def _calls(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Calls per minute",
        question="How much is asked of each provider?",
        formula="rate of finished calls, from the GenAI conventions' duration metric",
        advice="Context for everything above: a rate that moves while calls do not is worth a look.",
        unit="short",
        needs="calls",
    )
    rate = promql.throughput(schema.OPERATION_DURATION, (schema.PROVIDER,), *FILTERS, part="count")
    return panels.lines(says, [Query(f"60 * {rate}", f"{{{{{schema.PROVIDER.label}}}}}")])
