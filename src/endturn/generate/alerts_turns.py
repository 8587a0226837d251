"""Alerts about turns: those that were cut off and stayed so, and what finishing the others took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import promql, rules, slo
from endturn.generate.config import RuleConfig
from endturn.generate.declare import Alert, Runbook, alert
from endturn.generate.examples import LABELS, MODEL, START, WHO, around, buckets, events, example
from endturn.generate.promql import JOB
from endturn.records import TurnOutcome
from endturn.telemetry import indicators, schema

SERVICE: Final = {JOB: LABELS[JOB]}
NAME: Final = "{{ $labels.job }}"
CUT: Final = {schema.TRUNCATED.label: "true", schema.CONTINUED.label: "false"}
LEFT: Final = {schema.OUTCOME.label: TurnOutcome.NOT_CONTINUED.value}
PERSON: Final = {schema.OUTCOME.label: TurnOutcome.CANCELLED.value}

LOOK: Final = (
    "Which model, and how do its turns end? The dashboard *Continuations*, *Unfinished turns by outcome*. "
    "`not_continued`: the loop takes a cut answer for a whole one. `retry_limit` or a budget: a policy continued, and "
    "gave up. `stream_cut`: streams break.",
    "*Responses by stop reason* for the same model: did `max_tokens` or `missing` jump, and when? Compare with "
    "deployments, changed prompts and changed limits.",
    "Traces in Tempo: `{ span.endturn.stop.truncated = true }`; logs in Loki: "
    '`{service_name=~".+"} | event_name="endturn.continuation_terminated"`.',
)
ACT: Final = (
    "`not_continued`: let `ContinuationController` run the turn, or continue in your own loop where "
    "`response.stop.truncated` is true.",
    "A limit: raise `max_tokens` of the request first (each continuation costs its prompt again), then the policy's "
    "`continuation_max_attempts` or budget.",
    "`stream_cut`: look at timeouts of proxies between agent and provider.",
)
IMPACT: Final = "Somebody, or some program, was handed half an answer as if it were whole."


def _turns(unfinished: int, finished: int, how: Mapping[str, str] = LEFT) -> dict[str, str]:
    """Truncated turns of which some end unfinished as they are, the others completed by continuing."""
    exits = events(schema.TRUNCATION_EXITS, unfinished, how)
    left = events(schema.TURNS, unfinished, {**CUT, **how})
    whole = {schema.OUTCOME.label: TurnOutcome.COMPLETED.value}
    done = {schema.TRUNCATED.label: "true", schema.CONTINUED.label: "true", **whole}
    return exits | left | (events(schema.TURNS, finished, done) if finished else {})


def not_continued(config: RuleConfig) -> Alert:
    """The central one: the budget is gone within days, and people are waiting."""
    burns = config.slo.page
    fast, slow = burns[0], burns[-1]
    share, mild = (burn.rate * config.slo.budget for burn in (fast, slow))
    many = 2 * max(burn.bad for burn in burns)
    fewest = min(burn.bad for burn in burns) - 1
    finished = many if share < 0.5 else 1
    between = round(slow.bad / ((share + mild) / 2))
    milder = (
        example(
            config,
            f"{slow.bad} of {between}, too few and too small a share for the fast pair of windows",
            _turns(slow.bad, between - slow.bad),
            labels=SERVICE,
            shows=f"{100 * slow.bad / between:.4g}%",
        ),
    )
    listed = LABELS[JOB] in config.slo.jobs
    alone = example(
        config,
        "a service that never continues is listed" if listed else "the service never continues: a ticket's business",
        _turns(many, 0),
        labels=SERVICE if listed else None,
        shows="100%",
    )
    over = START + config.steps(slow.also) + config.steps(config.keep) + config.overlap + 10
    said = "; ".join(
        f"more than {burn.rate * config.slo.budget:.1%} of them over {promql.duration(burn.over)} and over "
        f"{promql.duration(burn.also)}, and at least {burn.bad}"
        for burn in burns
    )
    return alert(
        "EndturnTruncatedTurnsNotContinued",
        dashboard="endturn-continuations",
        severity="critical",
        config=config,
        expression=slo.paging(config),
        summary=f"{{{{ $value | humanizePercentage }}}} of the truncated turns of {NAME} ended unfinished",
        description=f"Turns of {NAME} were cut off, and ended so: {said}. The objective is "
        f"{config.slo.objective:.4g} over {promql.duration(config.slo.period)}. Turns that a person stopped are not "
        "counted.",
        runbook=Runbook(
            meaning="Of the turns in which a response was cut off, too many ended while the cut answer stood "
            f"unfinished: it was never continued, or continuing did not finish it. {said[0].upper()}{said[1:]}.",
            impact=f"{IMPACT} It pages because this service does continue its answers (or is listed under "
            "`slo.page_jobs`), so something broke: a service that is only watched gets a ticket.",
            look=LOOK,
            act=ACT,
        ),
        fires=example(
            config,
            f"{many} of {many + finished} truncated turns are left unfinished",
            _turns(many, finished),
            labels=SERVICE,
            shows=f"{100 * many / (many + finished):.4g}%",
        ),
        also_fires=(*(milder if len(burns) > 1 else ()), *((alone,) if listed else ())),
        quiet=example(config, f"only {fewest} turns are left unfinished, half of all", _turns(fewest, fewest)),
        also_quiet=(
            example(config, "many are, but few among very many", _turns(many, round(many / mild * 1.5))),
            example(config, "a person stopped them all", _turns(0, many) | _turns(many, 0, PERSON)),
            *(() if listed else (alone,)),
            example(config, "it was over longer ago than the alert fires on", _turns(many, many), looked=over),
        ),
    )


def budget_burning(config: RuleConfig) -> Alert:
    """The slow one: at this pace the objective is missed."""
    burn = config.slo.ticket[0]
    share = burn.rate * config.slo.budget
    return alert(
        "EndturnTruncatedTurnsBudgetBurning",
        dashboard="endturn-continuations",
        severity="warning",
        config=config,
        expression=slo.burning(config.slo.ticket, config),
        summary=f"{{{{ $value | humanizePercentage }}}} of the truncated turns of {NAME} end unfinished",
        description=f"More than {share:.1%} over {promql.duration(burn.over)} and over {promql.duration(burn.also)}, "
        f"at least {burn.bad}: at this pace the objective of {config.slo.objective:.4g} over "
        f"{promql.duration(config.slo.period)} is missed. Also of services that never continue.",
        runbook=Runbook(
            meaning="Truncated turns stay unfinished for days, more of them than the objective allows.",
            impact=f"{IMPACT} Nothing burns, but it will not go away by itself.",
            look=("`endturn:slo:budget_remaining` of the service: how much is left?", *LOOK),
            act=(*ACT, "It is as it should be: give the objective the number that you mean (`slo.objective`)."),
        ),
        fires=example(
            config,
            "a service that never continues leaves all of its truncated turns as they are",
            _turns(burn.bad, 0),
            labels=SERVICE,
            shows="100%",
        ),
        quiet=example(config, "too few are, if half of all", _turns(burn.bad - 1, burn.bad - 1)),
        also_quiet=(
            example(config, "the share is within the objective", _turns(burn.bad, round(2 * burn.bad / share))),
        ),
    )


def few_unfinished(config: RuleConfig) -> Alert:
    """For services that are cut off too rarely for a share to mean anything."""
    few, bad, day = config.slo.few, config.slo.unfinished, promql.duration(config.slo.day)
    return alert(
        "EndturnTruncatedTurnsUnfinished",
        dashboard="endturn-continuations",
        severity="warning",
        config=config,
        expression=slo.unfinished_few(config),
        summary=f"{{{{ $value }}}} truncated turns of {NAME} ended unfinished within {day}",
        description=f"The service had fewer than {few} truncated turns in that time: too few for a share to mean "
        f"anything, but {bad} unfinished ones deserve a look.",
        runbook=Runbook(
            meaning=f"A service with few truncated turns (below {few} in {day}) left {bad} or more of them unfinished.",
            impact=IMPACT,
            look=LOOK,
            act=ACT,
        ),
        fires=example(config, f"{bad} of {bad} turns are left", _turns(bad, 0), labels=SERVICE, shows=f"{bad}"),
        quiet=example(config, f"only {bad - 1} are", _turns(bad - 1, 1)),
        also_quiet=(example(config, "the service is large enough for its share to be judged", _turns(bad, few)),),
    )


def given_up(config: RuleConfig) -> Alert:
    """Continuing was tried, and a limit ended it."""
    exits, limit = schema.TRUNCATION_EXITS, {schema.OUTCOME.label: TurnOutcome.RETRY_LIMIT.value}
    return alert(
        "EndturnContinuationsExhausted",
        dashboard="endturn-continuations",
        severity="warning",
        config=config,
        expression=rules.at_least(indicators.GIVEN_UP_NUMBER.part, config, by=MODEL, bad=config.given_up),
        summary=f"{{{{ $value }}}} truncated turns of {WHO} were continued and still not finished",
        description="Continuing ended at the policy's retry limit, resume limit or one of its budgets (tokens, "
        f"characters, cost, deadline) in the last {promql.duration(config.window)}.",
        runbook=Runbook(
            meaning="Truncated turns were continued as far as the policy allows, and are still unfinished.",
            impact="Tokens and time were spent on answers that are incomplete all the same.",
            look=(
                "*Unfinished turns by outcome*: which limit ends them?",
                "*Attempts per truncated turn*: do most turns need nearly as many attempts as are allowed?",
                "The event `endturn.continuation_terminated` has attempts, tokens and characters of each such turn.",
            ),
            act=(
                "`retry_limit`: raise `max_tokens`, so that fewer pieces are needed; else `continuation_max_attempts`.",
                "`token_budget`, `char_budget`, `cost_budget`, `deadline`: decide whether answers of that length are "
                "wanted. If so raise the budget, if not ask for shorter ones.",
                "A model that repeats itself never finishes: look at one trace before raising anything.",
            ),
        ),
        fires=example(
            config,
            f"{config.given_up} turns end at the retry limit",
            events(exits, config.given_up, limit),
            labels=LABELS,
            shows=f"{config.given_up}",
        ),
        quiet=example(
            config,
            "turns are not continued at all, which is another alert's business",
            events(exits, 5 * config.given_up, LEFT),
        ),
        also_quiet=(example(config, "too few do", events(exits, config.given_up - 1, limit)),),
    )


def repairs(config: RuleConfig) -> Alert:
    """Tool calls are cut, and asking for them again does not help."""
    failed, done = ({schema.REPAIR_RESULT.label: result} for result in ("failed", "succeeded"))
    bad = config.failed_repairs

    def case(failures: int, successes: int) -> dict[str, str]:
        return events(schema.REPAIRS, failures, failed) | events(schema.REPAIRS, successes, done)

    return alert(
        "EndturnToolPayloadRepairsFailing",
        dashboard="endturn-continuations",
        severity="warning",
        config=config,
        expression=rules.too_high(indicators.REPAIR_FAILURE, config, by=MODEL, above=config.repair_failure, bad=bad),
        summary=f"{{{{ $value | humanizePercentage }}}} of the tool payload repairs of {WHO} fail",
        description=f"Cut tool payloads were asked for again in the last {promql.duration(config.window)}, and more "
        f"than {config.repair_failure:.0%} did not come back whole either (at least {bad}). Their tools were not run.",
        runbook=Runbook(
            meaning="Tool calls are cut off within their arguments, and asking for them again mostly fails too.",
            impact="The agent cannot use its tools; turns end as `tool_repair_failed`.",
            look=(
                "*Tool payload repairs* and *Blocked tool calls* by reason.",
                "The event `endturn.tool_payload_repair` names the issue: `incomplete_json`, `schema_mismatch`, …",
            ),
            act=(
                "`incomplete_json`: the payload does not fit. Raise `max_tokens` where tools are offered, or let the "
                "tool take its input in smaller parts.",
                "`schema_mismatch`: make the tool's schema simpler, or its description clearer.",
            ),
        ),
        fires=example(config, "all repairs fail", case(bad, 0), labels=LABELS, shows="100%"),
        quiet=example(
            config,
            "no larger share of them fails than is allowed",
            case(bad, round(bad * (1 - config.repair_failure) / config.repair_failure)),
        ),
        also_quiet=(example(config, "all fail, but they are too few to tell", case(bad - 1, 0)),),
    )


def slow(config: RuleConfig) -> Alert:
    """Finishing a cut answer takes too long for whoever waits."""
    q, limit, enough = config.continued_quantile, config.continued_seconds, config.continued
    part = indicators.Part(count=indicators.DURATIONS, only=((schema.CONTINUED, frozenset({"true"})),))
    under, below, above, beyond = around(schema.TURN_DURATION.buckets, limit)

    def case(turns: int, least: float, most: float, *, continued: bool = True) -> dict[str, str]:
        extra = {schema.TRUNCATED.label: str(continued).lower(), schema.CONTINUED.label: str(continued).lower()}
        return buckets(schema.TURN_DURATION, {least: 0, most: turns}, extra)

    return alert(
        "EndturnContinuedTurnsSlow",
        dashboard="endturn-continuations",
        severity="warning",
        config=config,
        expression=rules.too_far(part, config, by=MODEL, q=q, above=limit, events=enough, window=config.slow),
        summary=f"One in {1 / (1 - q):.3g} continued turns of {WHO} takes longer than "
        "{{ $value | humanizeDuration }}",
        description=f"The {q:g} quantile of the duration of continued turns over {promql.duration(config.slow)} is "
        f"above {limit:g} s. At least {enough} turns were continued.",
        runbook=Runbook(
            meaning="Turns whose answer was cut off are finished, but whoever asked waits long for it.",
            impact="People give up, gateways time out: the continued answer arrives where nobody waits any more.",
            look=(
                "*Turn duration*, continued against plain: is the gap the continuations', or is the model slow?",
                "*Attempts per truncated turn*: two or more are a `max_tokens` that is far too small.",
                "One trace of such a turn: its calls one after the other, and what passes between them.",
            ),
            act=(
                "Raise `max_tokens`: one long call is faster than three that each read the prompt again.",
                "Give the policy a deadline that suits whoever waits.",
                f"It is as it should be (long documents, for instance): raise `alerts.continued_seconds` ({limit:g}).",
            ),
        ),
        fires=example(
            config,
            f"{enough} continued turns take between {above:g} and {beyond:g} s",
            case(enough, above, beyond),
            labels=LABELS,
            shows=_lasts(above + q * (beyond - above)),
        ),
        quiet=example(config, "they take less", case(enough, under, below)),
        also_quiet=(
            example(config, "turns that take so long were not continued", case(enough, above, beyond, continued=False)),
            example(config, "too few are continued", case(enough - 1, above, beyond)),
        ),
    )  # fmt: skip


def _lasts(seconds: float) -> str:
    """As Prometheus' humanizeDuration writes whole seconds."""
    left, words = round(seconds), list[str]()
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")):
        if words or left >= size or unit == "s":
            words.append(f"{left // size}{unit}")
        left %= size
    return " ".join(words)
