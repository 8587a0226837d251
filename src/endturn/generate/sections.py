"""The Overview's sections, in the order in which one asks: how are we doing, why, what to do, and is it true?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import panels, promql, rules
from endturn.generate.declare import VARIABLES
from endturn.generate.panels import About, Column, Query, Section
from endturn.generate.promql import INSTANCE, JOB, LE, Label, Vector
from endturn.generate.rules import HEARTBEAT, RuleConfig
from endturn.generate.sdk import stat, timeseries
from endturn.generate.shown import (
    CALL,
    EVERY_DIGIT,
    FILTERS,
    WHO,
    about,
    count,
    figure,
    per_step,
    percentage,
    rate,
)
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Number, Part, Rate, Thresholds

PLAIN, CONTINUED = "#8ab8ff", "orange"
STRATEGIES: Final[Mapping[str, str]] = {
    "native_token": "green",
    "resend": "blue",
    "prefill": "light-blue",
    "prompt": "purple",
    "retry": "yellow",
    "repair": "orange",
}
OUTCOMES: Final[Mapping[str, str]] = {"not_continued": "red", "retry_limit": "orange", "stream_cut": "purple"}
RESULTS: Final[Mapping[str, str]] = {"succeeded": "green", "failed": "red", "not_attempted": "#8e8e8e"}


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    made = (_top, _stop_reasons, _truncation, _continuation, _latency, _unusual, _pipeline)
    return [section(config) for section in made]


def _top(config: RuleConfig) -> Section:
    return Section(
        10,
        "How are we doing?",
        (
            (
                5,
                (
                    (percentage(indicators.NOT_CONTINUED, 11, config, empty="nothing truncated"), 6),
                    (percentage(indicators.TRUNCATION, 12, config, empty="no traffic"), 6),
                    (figure(indicators.TURN_NUMBER, 13, config), 3),
                    (figure(indicators.RESPONSE_NUMBER, 14, config), 3),
                    (figure(indicators.CONTINUATION_NUMBER, 15, config), 3),
                    (figure(indicators.GIVEN_UP_NUMBER, 16, config), 3),
                ),
            ),
        ),
    )


def _stop_reasons(config: RuleConfig) -> Section:
    recorded = rules.recorded(indicators.RESPONSES, config).where(*FILTERS)
    by = (*CALL, schema.REASON)
    colours = {reason.value: colour for reason, colour in indicators.REASON_COLOURS.items()}
    over_time = About(
        id=21,
        title="Responses by stop reason",
        question="Why do models stop?",
        formula="responses in each step, by normalised reason",
        advice="Green and blue is a model that finished or wants a tool. Orange and red is an answer that was cut off.",
        unit="short",
        decimals=0,
    )
    by_model = About(
        id=22,
        title="Stop reasons by provider and model",
        question="Who stops for which reason?",
        formula="responses in the whole time range; the share is of that model's responses",
        advice="Look for a model that is cut off much more often than others at the same work.",
        unit=EVERY_DIGIT,
    )
    # Every reason's counter exists at zero; what did not happen need not be listed.
    counted = count(indicators.RESPONSE_NUMBER, config, by=by, window="$__range")
    counts = Query(f"{counted} > 0", at="end", form="table")
    shares = Query(f"{promql.share(recorded, by, CALL, '$__range')} > 0", at="end", form="table")
    columns = (
        Column(name="Provider", label=schema.PROVIDER.label, width=110),
        Column(name="Model", label=schema.REQUEST_MODEL.label),
        Column(name="Stop reason", label=schema.REASON.label, colours=colours),
        Column(name="Responses", value_of="A", width=100),
        Column(name="Share", value_of="B", unit="percentunit", bar=True),
    )
    steps = count(indicators.RESPONSE_NUMBER, config, by=(schema.REASON,), window="$__interval")
    reasons = Query(f"{steps} > 0", f"{{{{{schema.REASON.label}}}}}")
    step = promql.duration(config.increase)
    return Section(
        20,
        "Why do models stop?",
        (
            (
                10,
                (
                    (panels.bars(over_time, [reasons], step=step, colours=colours), 12),
                    (panels.rows(by_model, [counts, shares], columns, sort="Responses"), 12),
                ),
            ),
        ),
    )


def _truncation(config: RuleConfig) -> Section:
    def drawn(what: Rate, id_: int, empty: str) -> timeseries.Panel:
        says = about(what, id_, over="over the chosen window, by provider and model", empty=empty)
        query = Query(rate(what, config, by=CALL, window="$window"), WHO)
        return panels.lines(says, [query], limits=what.thresholds, soft_max=2 * what.thresholds.act)

    def total(part: Part) -> Vector:
        return count(part, config, by=CALL, window="$__range")

    responses = total(indicators.RESPONSE_NUMBER.part)
    queries = [
        Query(expression, at="end", form="table")
        for expression in (
            responses,
            rate(indicators.TRUNCATION, config, by=CALL, window="$__range"),
            promql.or_zero(total(Part(count=indicators.TRUNCATED_TURNS)), responses),
            promql.or_zero(total(Part(count=indicators.EXITS)), responses),
            rate(indicators.NOT_CONTINUED, config, by=CALL, window="$__range"),
        )
    ]
    columns = (
        Column(name="Provider", label=schema.PROVIDER.label),
        Column(name="Model", label=schema.REQUEST_MODEL.label),
        Column(name="Responses", value_of="A"),
        Column(name="Truncation rate", value_of="B", unit="percentunit", limits=indicators.TRUNCATION.thresholds),
        Column(name="Truncated turns", value_of="C"),
        Column(name="Left unfinished", value_of="D"),
        Column(
            name="Left unfinished, rate", value_of="E", unit="percentunit", limits=indicators.NOT_CONTINUED.thresholds
        ),
    )
    ranking = About(
        id=33,
        title="Models, worst first",
        question="Which model should be looked at first?",
        formula="everything over the whole time range",
        advice="Choose it above: the panels below say how it ended them.",
        unit=EVERY_DIGIT,
        empty="–",
    )
    return Section(
        30,
        "Which answers are cut off, and which stay so?",
        (
            (
                8,
                (
                    (drawn(indicators.TRUNCATION, 31, "no traffic"), 12),
                    (drawn(indicators.NOT_CONTINUED, 32, "nothing truncated"), 12),
                ),
            ),
            (7, ((panels.rows(ranking, queries, columns, sort="Left unfinished, rate"), 24),)),
        ),
    )


def _continuation(config: RuleConfig) -> Section:
    unfinished = Number(
        name="unfinished",
        title="Unfinished turns by outcome",
        question="How did the turns end that were left unfinished?",
        part=Part(count=indicators.EXITS),
        formula="turns that ended while a truncated response stood unfinished, by outcome",
        advice="`not_continued`: the loop never asks for the rest. `retry_limit` or a budget: the policy gave up. "
        "`stream_cut`: the connection broke.",
    )
    spread = indicators.ATTEMPT_SPREAD
    attempts = About(
        id=42,
        title=spread.title,
        question=spread.question,
        formula="truncated turns in the whole time range, by their continuations",
        advice=spread.advice,
        unit="short",
        empty="nothing truncated",
        decimals=0,
    )
    by_bound: tuple[Label, ...] = (LE,)
    events = promql.counted(
        rules.part(spread.part, config).where(*FILTERS), by_bound, "$__range", overlap=config.overlap
    )
    query = Query(events, f"{{{{{LE}}}}}", at="end", form="heatmap")
    return Section(
        40,
        "How are they finished?",
        (
            (
                8,
                (
                    (per_step(indicators.CONTINUATION_NUMBER, 41, config, by=schema.STRATEGY, colours=STRATEGIES), 8),
                    (panels.buckets(attempts, query, _names(schema.TURN_CONTINUATIONS.buckets)), 8),
                    (per_step(unfinished, 43, config, by=schema.OUTCOME, colours=OUTCOMES), 8),
                ),
            ),
        ),
    )


def _names(bounds: tuple[float, ...]) -> dict[str, str]:
    """What to call the buckets of whole numbers, by a pattern for their bounds: Prometheus 3 writes 1 as "1.0"."""
    names, below = {}, -1
    for bound in map(int, bounds):
        text = f"{bound}" if bound == below + 1 else f"{below + 1} to {bound}"
        names[f"^{bound}(\\.0)?$"] = "none" if bound == 0 else text
        below = bound
    return names | {r"^(\+Inf|Inf|Infinity)$": f"more than {below}"}


def _latency(config: RuleConfig) -> Section:
    spread = indicators.DURATION_SPREAD
    waits = About(
        id=51,
        title="Turn duration, continued and plain",
        question=spread.question,
        formula="quantiles over the chosen window, interpolated within the histogram's buckets",
        advice=spread.advice,
        unit="s",
    )
    series = rules.part(spread.part, config).where(*FILTERS)
    queries = [
        Query(
            promql.quantile(q, series.where(promql.only(schema.CONTINUED, continued)), (), "$window"),
            f"{name}, p{q * 100:g}",
        )
        for continued, name in (("true", "continued"), ("false", "plain"))
        for q in (0.5, 0.95)
    ]
    calls = About(
        id=52,
        title="Calls per minute",
        question="How much is asked of each provider?",
        formula="rate of finished calls, from the GenAI conventions' duration metric",
        advice="Context for everything above: a rate that moves while calls do not is worth a look.",
        unit="short",
    )
    rate = promql.throughput(schema.OPERATION_DURATION, (schema.PROVIDER,), *FILTERS, part="count")
    colours = {f"{name}, p{q}": c for name, c in (("continued", CONTINUED), ("plain", PLAIN)) for q in (50, 95)}
    return Section(
        50,
        "How long do people wait?",
        (
            (
                8,
                (
                    (panels.lines(waits, queries, colours=colours, dashed=["continued, p50", "plain, p50"]), 12),
                    (panels.lines(calls, [Query(f"60 * {rate}", f"{{{{{schema.PROVIDER.label}}}}}")]), 12),
                ),
            ),
        ),
    )


def _unusual(config: RuleConfig) -> Section:
    return Section(
        60,
        "What is unusual?",
        (
            (
                7,
                (
                    (per_step(indicators.UNMAPPED_NUMBER, 61, config), 6),
                    (per_step(indicators.SUSPECTED_NUMBER, 62, config), 6),
                    (per_step(indicators.BLOCKED_NUMBER, 63, config, by=schema.BLOCK_REASON, colours={}), 6),
                    (per_step(indicators.REPAIR_NUMBER, 64, config, by=schema.REPAIR_RESULT, colours=RESULTS), 6),
                ),
            ),
        ),
    )


def _pipeline(config: RuleConfig) -> Section:
    own = (promql.chosen(JOB, VARIABLES[JOB]),)
    beat, window = f"last_over_time({HEARTBEAT}[{promql.duration(config.increase)}])", "[$__range]"
    processes = f"last_over_time({promql.select(schema.RESPONSES).where(*FILTERS)}[{promql.duration(config.increase)}])"
    sent = [
        promql.foreign(f"otelcol_exporter_send_failed_{signal}") for signal in ("metric_points", "spans", "log_records")
    ]
    missed = promql.foreign("prometheus_rule_group_iterations_missed_total", rule_group=".*;endturn-.*")

    def gauge(
        id_: int, title: str, question: str, formula: str, advice: str, expression: str, limits: Thresholds | None
    ) -> stat.Panel:
        says = About(
            id=id_, title=title, question=question, formula=formula, advice=advice, unit="short", empty="0", decimals=0
        )
        return panels.number(says, Query(expression, at="end"), limits)

    def lost(count: indicators.Count) -> str:
        recorded = rules.recorded(count, config).where(*own)
        return promql.counted(recorded, (), "$__range", overlap=config.overlap).text

    alive = About(
        id=71,
        title="Heartbeat",
        question="Does telemetry arrive at all?",
        formula="the Collector's own uptime, or else any of our metrics, has come within the last minutes",
        advice="Silent: every number here is old. See the runbook of EndturnTelemetryAbsent.",
        unit="short",
        empty="silent",
    )
    some = Thresholds(look=1, act=10)
    line = (
        panels.number(
            alive, Query(f"min({beat} >= bool 1) or vector(0)", at="end"), says={"1": "alive", "0": "silent"}
        ),
        gauge(
            72, "Processes", "How many processes report?", "processes whose counters came within the last minutes",
            "Fewer than are running: some are not instrumented, or export elsewhere.",
            f"count(count by (job, {INSTANCE}) ({processes}))", None,
        ),
        gauge(
            73, "Recording failures", "Is endturn itself failing?",
            "records that a listener lost, in the whole time range",
            "See the runbook of EndturnTelemetryFailing.", lost(indicators.LISTENER_FAILURES), some,
        ),
        gauge(
            74, "Labels capped", "Is a label unbounded?",
            "measurements that were put under `other`, in the whole time range",
            "A model name with an id in it, for example. Raise the cap only where the names are really that many.",
            lost(indicators.CAPPED), some,
        ),
        gauge(
            75, "Evaluations missed", "Are the recorded increments complete?",
            "missed evaluations of our rules, in the whole time range",
            "See the runbook of EndturnRuleEvaluationsMissed.", f"round(sum(increase({missed}{window})))", some,
        ),
        gauge(
            76, "Collector failures", "Does the Collector deliver what it gets?",
            "metric points, spans and log records that it could not send, in the whole time range",
            "Its log names the exporter and the reason.",
            "round(" + " + ".join(f"(sum(increase({series}{window})) or vector(0))" for series in sent) + ")", some,
        ),
    )  # fmt: skip
    return Section(70, "Is the telemetry itself all right?", ((4, tuple((panel, 4) for panel in line)),))
