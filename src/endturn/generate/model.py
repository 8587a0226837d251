"""Model: one provider and model, what limits its answers and how fast they come."""

from __future__ import annotations

from collections.abc import Sequence

from endturn.generate import panels, parts, promql, rules
from endturn.generate.layout import Section
from endturn.generate.panels import About, Query
from endturn.generate.promql import LE, Matcher, Vector
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import stat, timeseries
from endturn.generate.shown import EVERY_DIGIT, FILTERS, WHOLE, by_model, distribution, figure, percentage
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Part, Spread, Thresholds

ENOUGH = 100
"""Whole answers below which a 99th percentile says nothing."""
MANY_INCOMPLETE = 0.01
"""Share of incomplete answers above which the long ones are missing among the whole ones."""
ALL = Matcher(LE, "=", "+Inf")

BUDGET = Spread(
    name="budget_used",
    title="Token budget used",
    question="How close to the limit do answers come, before any is cut?",
    part=Part(count=indicators.BUDGETS_USED),
    advice="A crowd that moves towards 100% is truncation that begins tomorrow: raise max_tokens now.",
    unit="share",
)


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    top = (
        (percentage(indicators.TRUNCATION, 11, config, empty="no traffic"), 5),
        (percentage(indicators.NOT_CONTINUED, 12, config, empty="nothing truncated"), 5),
        (_recommended(13, config), 5),
        (_incomplete(14, config), 5),
        (figure(indicators.RESPONSE_NUMBER, 15, config), 4),
    )
    limits = (
        (distribution(BUDGET, 31, config, empty="no limit is set", title="Token budget used, over time"), 8),
        (_budget(32, config), 8),
        (_lengths(33, config), 8),
    )
    fast = (
        (_calls(41, schema.OPERATION_DURATION, "Call duration", "How long does one call take?"), 8),
        (_calls(42, schema.FIRST_CHUNK, "Time to the first chunk", "How long until something is seen?"), 8),
        (_tokens(43), 8),
    )
    finished = ((parts.strategies(51, config), 8), (parts.attempts(52, config), 8), (parts.durations(53, config), 8))
    return [
        Section(10, "How is it doing?", ((5, top),)),
        Section(
            20,
            "Why does it stop?",
            (
                (
                    8,
                    (
                        (parts.reasons(21, config), 12),
                        (by_model(indicators.TRUNCATION, 22, config, empty="no traffic"), 12),
                    ),
                ),
            ),
        ),
        Section(30, "Is its token limit large enough?", ((9, limits),)),
        Section(40, "How fast is it?", ((8, fast), (7, ((_failures(44), 12), (_per_call(45), 12))))),
        Section(50, "What becomes of its cut answers?", ((8, finished),)),
    ]


def _outputs(config: RuleConfig, *, complete: bool | None) -> promql.Selector:
    recorded = rules.recorded(indicators.OUTPUTS, config).where(*FILTERS)
    return recorded if complete is None else recorded.where(promql.only(schema.COMPLETE, str(complete).lower()))


def _recommended(id_: int, config: RuleConfig) -> stat.Panel:
    says = About(
        id=id_,
        title="max_tokens that would do",
        question="What limit would have let answers finish?",
        formula=f"{WHOLE}: 99th percentile of the output tokens of each complete turn's longest answer, "
        f"its continuations included, where there are {ENOUGH} or more",
        advice="Set max_tokens to at least this, reasoning tokens included. A lower bound where more than "
        f"{MANY_INCOMPLETE:.0%} of the turns are incomplete: the longest answers are then among those. The calls of a "
        "turn that asked for tools count one by one, as max_tokens limits them.",
        unit=EVERY_DIGIT,
        empty=f"below {ENOUGH} turns",
        decimals=0,
    )
    whole = _outputs(config, complete=True)
    events = promql.counted(whole.where(ALL), (), "$__range", overlap=config.overlap)
    value = promql.enough(promql.quantile(0.99, whole, (), "$__range"), events=events, at_least=ENOUGH)
    return panels.number(says, Query(value, at="end"))


def _incomplete(id_: int, config: RuleConfig) -> stat.Panel:
    says = About(
        id=id_,
        title="Incomplete turns",
        question="Can the recommendation be trusted?",
        formula=f"{WHOLE}: turns whose answer is not whole ÷ all turns with output",
        advice=f"Above {MANY_INCOMPLETE:.0%} the recommended limit is a lower bound: raise it, and look again.",
        unit="percentunit",
        decimals=1,
    )
    share = promql.ratio(
        promql.summed(_outputs(config, complete=False).where(ALL), (), "$__range"),
        promql.summed(_outputs(config, complete=None).where(ALL), (), "$__range"),
    )
    return panels.number(says, Query(share, at="end"), Thresholds(look=MANY_INCOMPLETE, act=0.1))


QUANTILES = {"p50": parts.PLAIN, "p90": "blue", "p95": "blue", "p99": "purple"}


def _colours(queries: Sequence[Query]) -> dict[str, str]:
    return {query.legend: QUANTILES[query.legend] for query in queries}


def _quantiles(recorded: promql.Selector, *of: float) -> list[Query]:
    return [Query(promql.quantile(q, recorded, (), "$window"), f"p{q * 100:g}") for q in of]


def _budget(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Token budget used, quantiles",
        question="How much room is left?",
        formula="output tokens ÷ the request's max_tokens, quantiles over the chosen window",
        advice="p90 at 100% means that one answer in ten uses up its limit. Calls that set no limit are not in it.",
        unit="percentunit",
        empty="no limit is set",
    )
    recorded = rules.recorded(indicators.BUDGETS_USED, config).where(*FILTERS)
    limits = Thresholds(look=0.9, act=1.0)
    queries = _quantiles(recorded, 0.5, 0.9, 0.99)
    return panels.lines(says, queries, limits=limits, soft_max=1.05, colours=_colours(queries))


def _lengths(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Output tokens of whole answers",
        question="How long are whole answers?",
        formula="output tokens of each complete turn's longest answer, its continuations included: quantiles over the "
        "chosen window",
        advice="The limit of one call should be above p99: below it, one turn in a hundred needs a continuation.",
        unit="short",
    )
    queries = _quantiles(_outputs(config, complete=True), 0.5, 0.9, 0.99)
    return panels.lines(says, queries, colours=_colours(queries))


def _calls(id_: int, what: schema.Metric, title: str, question: str) -> timeseries.Panel:
    says = About(
        id=id_,
        title=title,
        question=question,
        formula="quantiles of right now; the points are single calls whose traces can be opened",
        advice="Compare p50 and p95: a gap that widens is a provider under load, or answers that got longer. Few calls "
        "make the lines jump.",
        unit="s",
        needs="calls",
        empty="no such calls",
    )
    queries = [
        Query(promql.quantile_now(q, what, (), *FILTERS), f"p{q * 100:g}", exemplars=q == 0.95) for q in (0.5, 0.95)
    ]
    return panels.lines(says, queries, step="5m", colours=_colours(queries))


def _tokens(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Tokens per minute",
        question="How many tokens go in and come out?",
        formula="rate of input and output tokens, per minute",
        advice="Input that grows while calls do not is a history that is never shortened; the context window ends it.",
        unit="short",
        needs="calls",
    )
    rate = promql.throughput(schema.TOKEN_USAGE, (schema.TOKEN_TYPE,), *FILTERS, part="sum")
    colours = {"input": "blue", "output": "orange"}
    return panels.lines(says, [Query(f"60 * {rate}", f"{{{{{schema.TOKEN_TYPE.label}}}}}")], step="5m", colours=colours)


def _failures(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Failed calls per minute",
        question="Which calls give no answer at all?",
        formula="calls that ended in an error, per minute, by its class",
        advice="No truncation, but the next thing that people notice. RateLimitError: spread the load, or ask for "
        "more.",
        unit="short",
        needs="calls",
        empty="none",
    )
    failed = Matcher(schema.ERROR_TYPE.label, "!=", "")
    rate = promql.throughput(schema.OPERATION_DURATION, (schema.ERROR_TYPE,), *FILTERS, failed, part="count")
    return panels.lines(says, [Query(f"60 * {rate}", f"{{{{{schema.ERROR_TYPE.label}}}}}")], step="5m")


def _per_call(id_: int) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Tokens per call",
        question="How large are prompts and answers?",
        formula="tokens ÷ calls, by input and output, of right now",
        advice="An average: the quantiles of whole answers above say more about limits.",
        unit="short",
        needs="calls",
    )

    def per(part: promql.Part) -> Vector:
        return promql.throughput(schema.TOKEN_USAGE, (schema.TOKEN_TYPE,), *FILTERS, part=part)

    query = Query(f"{per('sum')} / ({per('count')} > 0)", f"{{{{{schema.TOKEN_TYPE.label}}}}}")
    return panels.lines(says, [query], step="5m", colours={"input": "blue", "output": "orange"})
