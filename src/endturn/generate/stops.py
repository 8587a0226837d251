"""Stop reasons: why do models stop, does that change, and do the servers count the same?"""

from __future__ import annotations

from dataclasses import replace

from endturn.generate import panels, parts, promql, rules, servers
from endturn.generate.layout import Section
from endturn.generate.panels import About, Query
from endturn.generate.promql import JOB
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import timeseries
from endturn.generate.shown import FILTERS, about, by_model, figure, per_step, percentage, rate
from endturn.stop import TRUNCATED, StopReason
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Number, Part

DAY = 86400

CUT = Number(
    name="truncated_responses",
    title="Truncated responses by reason",
    question="What cuts answers off?",
    part=Part(count=indicators.RESPONSES, only=((schema.REASON, frozenset(map(str, TRUNCATED))),)),
    formula="responses with reason max_tokens, context_window_exceeded or missing",
    advice="`max_tokens`: raise the limit. `context_window_exceeded`: shorten the prompt. `missing`: streams break on "
    "their way; look at timeouts and proxies.",
)
WITHHELD = Number(
    name="withheld_responses",
    title="Withheld and failed responses",
    question="Which answers were not given at all?",
    part=Part(
        count=indicators.RESPONSES,
        only=(
            (
                schema.REASON,
                frozenset({StopReason.SAFETY_BLOCKED.value, StopReason.REFUSED.value, StopReason.ERROR.value}),
            ),
        ),
    ),
    formula="responses with reason safety_blocked, refused or error",
    advice="No truncations, and never continued. A jump means that prompts or a provider's filter changed.",
)


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    top = (
        (percentage(indicators.TRUNCATION, 11, config, empty="no traffic"), 6),
        (figure(indicators.RESPONSE_NUMBER, 12, config), 6),
        (figure(indicators.UNMAPPED_NUMBER, 13, config), 6),
        (figure(indicators.SUSPECTED_NUMBER, 14, config), 6),
    )
    cut = (
        (by_model(indicators.TRUNCATION, 31, config, empty="no traffic"), 12),
        (_by_service(32, config), 12),
    )
    kinds = (
        (per_step(CUT, 33, config, by=schema.REASON, colours=parts.REASONS), 12),
        (per_step(WITHHELD, 34, config, by=schema.REASON, colours=parts.REASONS), 12),
    )
    drift = (
        (_day_before(41, config), 12),
        (per_step(indicators.UNMAPPED_NUMBER, 42, config), 6),
        (per_step(indicators.SUSPECTED_NUMBER, 43, config), 6),
    )
    return [
        Section(10, "How are we doing?", ((4, top),)),
        Section(
            20,
            "Why do models stop?",
            (
                (9, ((parts.reasons(21, config), 12), (_shares(22, config), 12))),
                (9, ((parts.reasons_by_model(23, config), 24),)),
            ),
        ),
        Section(30, "Which answers are cut off, and by what?", ((8, cut), (8, kinds))),
        Section(40, "Does it change?", ((8, drift),)),
        servers.section(50, config),
    ]


def _shares(id_: int, config: RuleConfig) -> timeseries.Panel:
    recorded = rules.recorded(indicators.RESPONSES, config).where(*FILTERS)
    says = About(
        id=id_,
        title="Stop reasons, shares",
        question="Does the mix of reasons shift?",
        formula="each reason's part of the responses over the chosen window",
        advice="A band that widens while traffic does not change is a new prompt, model or limit. Compare with the "
        "marks of deployments.",
        unit="percentunit",
        needs="responses",
    )
    every = promql.summed(recorded, (schema.REASON,), "$window")
    whole = promql.summed(recorded, (), "$window")
    query = Query(f"{every} / on () group_left () ({whole} > 0) > 0", f"{{{{{schema.REASON.label}}}}}")
    return panels.areas(says, [query], colours=parts.REASONS)


def _by_service(id_: int, config: RuleConfig) -> timeseries.Panel:
    what = indicators.TRUNCATION
    says = about(
        what, id_, over="over the chosen window, by service", empty="no traffic", title="Truncation rate by service"
    )
    query = Query(rate(what, config, by=(JOB,), window="$window"), f"{{{{{JOB}}}}}")
    return panels.lines(says, [query], limits=what.thresholds, soft_max=2 * what.thresholds.act)


def _day_before(id_: int, config: RuleConfig) -> timeseries.Panel:
    what = indicators.TRUNCATION
    says = about(
        what,
        id_,
        over="over the chosen window, and the same a day before",
        empty="no traffic",
        title="Truncation rate, today and a day before",
    )
    says = replace(says, question="Is it worse than it was?")
    now = rate(what, config, by=(), window="$window")
    queries = [Query(now, "now"), Query(promql.earlier(now, DAY), "a day before")]
    colours = {"now": "orange", "a day before": "#8e8e8e"}
    return panels.lines(
        says,
        queries,
        limits=what.thresholds,
        soft_max=2 * what.thresholds.act,
        colours=colours,
        dashed=["a day before"],
    )
