"""Continuations: what did finishing cut answers take, and was it worth it?"""

from __future__ import annotations

from endturn.generate import panels, parts, promql, rules
from endturn.generate.layout import Section
from endturn.generate.panels import About, Query
from endturn.generate.promql import Vector
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import stat, timeseries
from endturn.generate.shown import FILTERS, WHOLE, by_model, count, distribution, figure, per_step, percentage, steps
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Number, Part

TRUNCATED_TURNS = Number(
    name="truncated_turns",
    title="Truncated turns",
    question="How many turns were cut off at least once?",
    part=Part(count=indicators.TRUNCATED_TURNS),
    formula="turns with a truncated response; turns that a person stopped are left out",
    advice="Each of them was either continued or left unfinished: the charts below say which.",
)
ENDINGS = Number(
    name="endings",
    title="Truncated turns by outcome",
    question="How do truncated turns end?",
    part=Part(count=indicators.TRUNCATED_TURNS),
    formula="turns with a truncated response, by outcome",
    advice="Green is an answer that became whole all the same. Everything else was handed over cut.",
)
TOKENS = {"input": "blue", "output": "orange"}


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    top = (
        (percentage(indicators.NOT_CONTINUED, 11, config, empty="nothing truncated"), 6),
        (figure(TRUNCATED_TURNS, 12, config), 3),
        (figure(indicators.CONTINUATION_NUMBER, 13, config), 3),
        (figure(indicators.GIVEN_UP_NUMBER, 14, config), 3),
        (_tokens_spent(15, config), 3),
        (_money_spent(16, config), 3),
        (_longer(17, config), 3),
    )
    over_time = distribution(
        indicators.ATTEMPT_SPREAD,
        21,
        config,
        empty="nothing truncated",
        title="Attempts per truncated turn, over time",
    )
    endings = (
        (per_step(ENDINGS, 31, config, by=schema.OUTCOME, colours=parts.OUTCOMES), 8),
        (parts.unfinished(32, config), 8),
        (by_model(indicators.NOT_CONTINUED, 33, config, empty="nothing truncated"), 8),
    )
    tools = (
        (parts.repairs(61, config), 8),
        (by_model(indicators.REPAIR_FAILURE, 62, config, empty="nothing repaired"), 8),
        (parts.blocked(63, config), 8),
    )
    return [
        Section(10, "How are we doing?", ((5, top),)),
        Section(
            20,
            "How many attempts, and by which means?",
            ((9, ((over_time, 10), (parts.attempts(22, config), 6), (parts.strategies(23, config), 8))),),
        ),
        Section(30, "How do truncated turns end?", ((8, endings),)),
        Section(40, "What does finishing cost?", ((8, ((_tokens(41, config), 12), (_money(42, config), 12))),)),
        Section(50, "How much longer do people wait?", ((9, ((parts.durations(51, config, exemplars=True), 24),)),)),
        Section(60, "What becomes of cut tool payloads?", ((8, tools),)),
    ]


def _tokens_spent(id_: int, config: RuleConfig) -> stat.Panel:
    says = About(
        id=id_,
        title="Tokens spent",
        question="How many tokens did finishing take?",
        formula=f"{WHOLE}: input and output tokens of continuation calls",
        advice="The input part is the prompt, paid again with each continuation: a larger max_tokens saves it.",
        unit="short",
        empty="0",
    )
    spent = count(Part(count=indicators.CONTINUATION_TOKENS), config, by=(), window="$__range")
    return panels.number(says, Query(spent, at="end"))


def _cost(config: RuleConfig, by: tuple[schema.Attribute, ...], window: promql.Window) -> Vector:
    recorded = rules.recorded(indicators.CONTINUATION_COST, config).where(*FILTERS)
    return promql.amount(recorded, by, window, overlap=config.overlap)


def _money_spent(id_: int, config: RuleConfig) -> stat.Panel:
    says = About(
        id=id_,
        title="Money spent",
        question="What did finishing cost?",
        formula=f"{WHOLE}: US dollars of continuation calls, by the prices that the policy was given",
        advice="Nothing here: no prices are configured. They are an argument of the policy.",
        unit="currencyUSD",
        empty="no prices",
        decimals=2,
    )
    return panels.number(says, Query(_cost(config, (), "$__range"), at="end"))


def _median(config: RuleConfig, continued: str) -> Vector:
    series = rules.recorded(indicators.DURATIONS, config).where(*FILTERS, promql.only(schema.CONTINUED, continued))
    return promql.quantile(0.5, series, (), "$__range")


def _longer(id_: int, config: RuleConfig) -> stat.Panel:
    says = About(
        id=id_,
        title="Added wait",
        question="How much longer does a continued turn take?",
        formula=f"{WHOLE}: median duration of continued turns minus that of turns that needed no continuation",
        advice="What truncation costs people in time, even where every answer is finished.",
        unit="s",
        empty="–",
    )
    longer = f"({_median(config, 'true')})\n- on ()\n({_median(config, 'false')})"
    return panels.number(says, Query(longer, at="end"))


def _tokens(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Tokens of continuation calls",
        question="What does finishing cost in tokens?",
        formula="tokens of continuation calls in each step, by input and output",
        advice="Much input for little output: long prompts are sent again for a few missing words. Raise max_tokens.",
        unit="short",
        empty="none",
    )
    some = Part(count=indicators.CONTINUATION_TOKENS)
    query = Query(steps(some, config, by=(schema.TOKEN_TYPE,)), f"{{{{{schema.TOKEN_TYPE.label}}}}}")
    return panels.bars(says, [query], step=promql.duration(config.increase), colours=TOKENS)


def _money(id_: int, config: RuleConfig) -> timeseries.Panel:
    says = About(
        id=id_,
        title="Cost of continuation calls",
        question="What does finishing cost in money?",
        formula="US dollars of continuation calls in each step, by model, by the prices that the policy was given",
        advice="Compare with what the answers are worth; a cost budget in the policy ends what is not.",
        unit="currencyUSD",
        empty="no prices",
    )
    recorded = rules.recorded(indicators.CONTINUATION_COST, config).where(*FILTERS)
    by = (schema.REQUEST_MODEL,)
    spent = promql.happened(_cost(config, by, "$__interval"), recorded, by)
    query = Query(spent, f"{{{{{schema.REQUEST_MODEL.label}}}}}")
    return panels.bars(says, [query], step=promql.duration(config.increase), soft_max=0.01)
