"""The alerts, the central one first: answers that were cut off and handed on as they were."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import promql, rules
from endturn.generate.declare import Alert, Example, Runbook, alert
from endturn.generate.examples import LABELS, START, after, beating, events, example, named, series
from endturn.generate.promql import JOB, Vector
from endturn.generate.rules import HEARTBEAT, RuleConfig
from endturn.records import TurnOutcome
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Part, Rate

MODEL: Final = (JOB, schema.PROVIDER, schema.REQUEST_MODEL)
WHO: Final = "{{ $labels.gen_ai_request_model }} in {{ $labels.job }}"

MISSED: Final = "prometheus_rule_group_iterations_missed_total"
FAILED: Final = "prometheus_rule_evaluation_failures_total"


def alerts(config: RuleConfig) -> tuple[Alert, ...]:
    """All alerts of a configuration."""
    make = (_not_continued, _given_up, _repairs, _unmapped, _listener, _absent, _unevaluated)
    return tuple(one(config) for one in make)


def _not_continued(config: RuleConfig) -> Alert:
    turns, exits = schema.TURNS, schema.TRUNCATION_EXITS
    cut = {schema.TRUNCATED.label: "true", schema.CONTINUED.label: "false"}
    left = {schema.OUTCOME.label: TurnOutcome.NOT_CONTINUED.value}
    whole = {schema.OUTCOME.label: TurnOutcome.COMPLETED.value}
    person = {schema.OUTCOME.label: TurnOutcome.CANCELLED.value}
    few, enough = config.unfinished - 1, 2 * config.unfinished
    many = round(10 * enough / config.not_continued)

    def case(unfinished: int, finished: int, how: Mapping[str, str]) -> dict[str, str]:
        series = events(config, exits, unfinished, how) | events(config, turns, unfinished, {**cut, **how})
        return series | events(config, turns, finished, {**cut, schema.CONTINUED.label: "true", **whole})

    return alert(
        "EndturnTruncatedTurnsNotContinued",
        severity="critical",
        config=config,
        expression=_too_high(indicators.NOT_CONTINUED, config, above=config.not_continued, at_least=config.unfinished),
        summary=f"{{{{ $value | humanizePercentage }}}} of the truncated turns of {WHO} ended unfinished",
        description="Turns of {{ $labels.gen_ai_provider_name }}'s {{ $labels.gen_ai_request_model }} were cut off, "
        f"and ended so: more than {config.not_continued:.0%} of them, and at least {config.unfinished}, in the last "
        f"{promql.duration(config.window)}. Turns that a person stopped are not counted.",
        runbook=Runbook(
            meaning=f"Of the turns in which a response was cut off, more than {config.not_continued:.0%} ended while "
            "the cut answer stood unfinished: it was never continued, or continuing did not finish it.",
            impact="Somebody, or some program, was handed half an answer as if it were whole.",
            look=(
                "The dashboard's *Unfinished turns by outcome*. `not_continued`: the loop takes a cut answer for "
                "a whole one. `retry_limit` or a budget: a policy continued, and gave up. `stream_cut`: streams break.",
                "*Responses by stop reason* for the same model: did `max_tokens` or `missing` jump, and when? Compare "
                "with deployments, changed prompts and changed limits.",
                "Traces in Tempo: `{ span.endturn.stop.truncated = true }`; logs in Loki: "
                '`{service_name=~".+"} | event_name="endturn.continuation_terminated"`.',
            ),
            act=(
                "`not_continued`: let `ContinuationController` run the turn, or continue in your own loop where "
                "`response.stop.truncated` is true.",
                "A limit: raise `max_tokens` of the request first (each continuation costs its prompt again), then the "
                "policy's `continuation_max_attempts` or budget.",
                "`stream_cut`: look at timeouts of proxies between agent and provider.",
            ),
        ),
        fires=example(
            config,
            f"{enough} of {2 * enough} truncated turns are left unfinished",
            case(enough, enough, left),
            labels=LABELS,
            shows="50%",
        ),
        quiet=example(config, f"only {few} turns are left unfinished, half of all", case(few, few, left)),
        also_quiet=(
            example(config, "many are, but few among very many", case(enough, many - enough, left)),
            example(config, "a person stopped them all", case(2 * enough, 0, person)),
        ),
    )


def _given_up(config: RuleConfig) -> Alert:
    exits, limit = schema.TRUNCATION_EXITS, {schema.OUTCOME.label: TurnOutcome.RETRY_LIMIT.value}
    return alert(
        "EndturnContinuationsExhausted",
        severity="warning",
        config=config,
        expression=_at_least(indicators.GIVEN_UP_NUMBER.part, config, by=MODEL, bad=config.given_up),
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
            events(config, exits, config.given_up, limit),
            labels=LABELS,
            shows=f"{config.given_up}",
        ),
        quiet=example(
            config,
            "turns are not continued at all, which is another alert's business",
            events(config, exits, 5 * config.given_up, {schema.OUTCOME.label: TurnOutcome.NOT_CONTINUED.value}),
        ),
    )


def _repairs(config: RuleConfig) -> Alert:
    failed, done = ({schema.REPAIR_RESULT.label: result} for result in ("failed", "succeeded"))
    bad = config.failed_repairs

    def case(failures: int, successes: int) -> dict[str, str]:
        return events(config, schema.REPAIRS, failures, failed) | events(config, schema.REPAIRS, successes, done)

    return alert(
        "EndturnToolPayloadRepairsFailing",
        severity="warning",
        config=config,
        expression=_too_high(indicators.REPAIR_FAILURE, config, above=config.repair_failure, at_least=bad),
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
        quiet=example(config, "as many succeed as fail", case(bad, bad)),
        also_quiet=(example(config, "all fail, but they are too few to tell", case(bad - 1, 0)),),
    )


def _unmapped(config: RuleConfig) -> Alert:
    return alert(
        "EndturnStopReasonUnknown",
        severity="warning",
        config=config,
        expression=_at_least(indicators.UNMAPPED_NUMBER.part, config, by=MODEL, bad=config.unmapped),
        summary=f"{{{{ $value }}}} responses of {WHO} stopped for a reason that endturn does not know",
        description="{{ $labels.gen_ai_provider_name }} sent a stop reason without a row in its table within the last "
        f"{promql.duration(config.window)}. Such a response never counts as a completed turn.",
        runbook=Runbook(
            meaning="A provider's vocabulary has changed, or a proxy in between invents values.",
            impact="Until the value has a row nobody can tell whether such answers are whole; they count as `unknown`.",
            look=(
                "The event `endturn.stop_reason_unmapped` has the raw value, once for each provider, model and value: "
                'in Loki `{service_name=~".+"} | event_name="endturn.stop_reason_unmapped"`.',
                "The provider's documentation and changelog for that value.",
            ),
            act=(
                "Upgrade endturn: the value may have a row by now.",
                "Else report the provider, the API and the raw value, so that it gets one.",
            ),
        ),
        fires=example(
            config,
            "one such response arrives",
            events(config, schema.UNMAPPED, config.unmapped),
            labels=LABELS,
            shows=f"{config.unmapped}",
        ),
        quiet=example(config, "one arrived long ago", series(schema.UNMAPPED, f"1x{after(config)}")),
    )


def _listener(config: RuleConfig) -> Alert:
    name = {schema.LISTENER.label: "Recorder"}
    return alert(
        "EndturnTelemetryFailing",
        severity="warning",
        config=config,
        expression=_at_least(
            Part(count=indicators.LISTENER_FAILURES), config, by=(JOB, schema.LISTENER), bad=config.failures
        ),
        summary="{{ $labels.endturn_listener_name }} failed {{ $value }} times in {{ $labels.job }}",
        description="A listener raised instead of recording. The calls that it watched went on, but what it would have "
        "counted is missing; after 100 failures in a row it is detached.",
        runbook=Runbook(
            meaning="Code that records telemetry raised an exception. endturn catches it, so that no call breaks.",
            impact="The numbers are too low for that process: every rate may be wrong.",
            look=("The logger `endturn` of that process has the first exception with its traceback.",),
            act=("A listener of your own: mend it. endturn's own `Recorder`: report the traceback.",),
        ),
        fires=example(
            config,
            "the recorder raises once",
            events(config, schema.LISTENER_FAILURES, config.failures, name),
            labels={JOB: LABELS[JOB], **name},
            shows=f"{config.failures}",
        ),
        quiet=example(config, "it raised long ago", series(schema.LISTENER_FAILURES, f"7x{after(config)}", name)),
    )


def _absent(config: RuleConfig) -> Alert:
    gone = promql.duration(config.absent)
    text = (
        f"last_over_time({HEARTBEAT}[{promql.duration(config.remembered)}])\n"
        f"and on ()\nabsent_over_time({HEARTBEAT}[{gone}])"
    )
    silent = START + config.overlap + config.steps(config.absent) + config.steps(config.hold) + 2
    beats = beating(config, START)
    return alert(
        "EndturnTelemetryAbsent",
        severity="critical",
        config=config,
        expression=Vector(text, frozenset()),
        summary=f"No telemetry has arrived for {gone}; the heartbeat had {{{{ $value }}}} series before",
        description="Neither the Collector's heartbeat nor any application's metrics reach Prometheus. While that "
        "lasts, every other alert is blind.",
        runbook=Runbook(
            meaning="The way from the applications over the Collector to Prometheus is interrupted.",
            impact="Nothing is counted. What happens in an outage longer than the queues last is lost.",
            look=(
                "Is the Collector up? It answers on port 13133, and Prometheus scrapes it as job `collector`.",
                "Its log: refused data (memory), or a full queue towards Prometheus.",
                "Prometheus: was it started with `--web.enable-otlp-receiver`?",
            ),
            act=("Restart what is down; queues and senders' retries bridge some 15 minutes.",),
        ),
        fires=Example(
            says="the heartbeat stops",
            series={name: f"{values} _x{silent}" for name, values in beats.items()},
            after=silent,
            labels={},
            shows="1",
        ),
        quiet=Example(says="the heartbeat goes on", series=beating(config, silent), after=silent),
        keep=0,
    )


def _unevaluated(config: RuleConfig) -> Alert:
    window = promql.duration(config.window)
    missed, failed = (promql.foreign(name, rule_group=".*;endturn-.*") for name in (MISSED, FAILED))
    text = (
        f"round(\n  sum by (rule_group) (increase({missed}[{window}]))\n"
        f"  + sum by (rule_group) (increase({failed}[{window}]))\n) > 0"
    )
    group = {"rule_group": "/etc/prometheus/rules/increments.yaml;endturn-increments"}

    def case(misses: int, of: Mapping[str, str]) -> dict[str, str]:
        steps = after(config)
        return {
            named(promql.foreign(MISSED), of): f"0x{START - 1} {misses}x{steps}",
            named(promql.foreign(FAILED), of): f"0x{START + steps}",
        }

    return alert(
        "EndturnRuleEvaluationsMissed",
        severity="warning",
        config=config,
        expression=Vector(text, frozenset(group)),
        summary="{{ $value }} evaluations of {{ $labels.rule_group }} were missed or failed",
        description=f"In the last {window} Prometheus skipped evaluations of endturn's rules, or they failed. Recorded "
        "increments are then too low, and so is every number that is summed from them.",
        runbook=Runbook(
            meaning="Each event is recorded by several evaluations in a row; some of them did not take place.",
            impact="Counts and rates of the last while are too low: an alert may have stayed quiet that should not.",
            look=(
                "Prometheus' page *Status → Rule health*: which rule fails, or how long does the group take?",
                "Is Prometheus short of CPU or disk?",
            ),
            act=(
                "Too slow: give Prometheus more CPU, or drop the recorded series that you do not need.",
                "A failing rule: the message names it; generate the rules anew with the installed version.",
            ),
        ),
        fires=Example(
            says="evaluations are skipped",
            series=case(30, group),
            after=after(config),
            labels=group,
            shows="30",
        ),
        quiet=Example(
            says="another group's are",
            series=case(30, {"rule_group": "/etc/prometheus/rules/other.yaml;other"}) | case(0, group),
            after=after(config),
        ),
    )


# --- What they share ----------------------------------------------------------------------------------------------


def _at_least(some: Part, config: RuleConfig, *, by: tuple[promql.Label, ...], bad: int) -> Vector:
    counted = rules.number(some, config, by=by, window=config.window)
    return Vector(f"{counted.text} >= {bad}", counted.labels)


def _too_high(what: Rate, config: RuleConfig, *, above: float, at_least: int) -> Vector:
    return promql.guarded(
        rules.rate(what, config, by=MODEL, window=config.window),
        above=above,
        events=rules.number(what.part, config, by=MODEL, window=config.window),
        at_least=at_least,
    )
