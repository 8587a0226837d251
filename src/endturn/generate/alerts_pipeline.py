"""Alerts about the telemetry itself: whether it is recorded, arrives, and is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import promql, rules
from endturn.generate.config import DAY, RuleConfig
from endturn.generate.declare import Alert, Example, Runbook, alert
from endturn.generate.examples import LABELS, START, after, beating, events, named, series
from endturn.generate.examples import example as beaten
from endturn.generate.promql import INSTANCE, JOB, Vector
from endturn.generate.rules import HEARTBEAT
from endturn.telemetry import indicators, schema
from endturn.telemetry.indicators import Part

MISSED: Final = "prometheus_rule_group_iterations_missed_total"
FAILED: Final = "prometheus_rule_evaluation_failures_total"


def listener(config: RuleConfig) -> Alert:
    """Our own code fails."""
    name = {schema.LISTENER.label: "Recorder"}
    return alert(
        "EndturnTelemetryFailing",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=rules.at_least(
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
        fires=beaten(
            config,
            "the recorder raises",
            events(schema.LISTENER_FAILURES, config.failures, name),
            labels={JOB: LABELS[JOB], **name},
            shows=f"{config.failures}",
        ),
        quiet=beaten(config, "it raised long ago", series(schema.LISTENER_FAILURES, f"7x{after(config)}", name)),
    )


def absent(config: RuleConfig) -> Alert:
    """Nothing arrives at all."""
    gone = promql.duration(config.absent)
    text = (
        f"last_over_time({HEARTBEAT}[{promql.duration(config.remembered)}])\n"
        f"and on ()\nabsent_over_time({HEARTBEAT}[{gone}])"
    )
    silent = START + config.overlap + config.steps(config.absent) + config.steps(config.hold) + 2
    beats, days = beating(config, START), 3 * config.steps(DAY)
    lasting = max(silent, min(days, config.steps(config.remembered) // 2))
    return alert(
        "EndturnTelemetryAbsent",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=Vector(text, frozenset()),
        summary=f"No telemetry has arrived for {gone}; the heartbeat had {{{{ $value }}}} series before",
        description="Neither the Collector's heartbeat nor any application's metrics reach Prometheus. While that "
        "lasts, every other alert is blind.",
        runbook=Runbook(
            meaning="The way from the applications over the Collector to Prometheus is interrupted.",
            impact="Nothing is counted, and nobody is paged whatever happens. What happens in an outage longer than "
            "the queues last is lost.",
            look=(
                "Is the Collector up? It answers on port 13133, and Prometheus scrapes it as job `collector`.",
                "Its log: refused data (memory), or a full queue towards Prometheus.",
                "Prometheus: was it started with `--web.enable-otlp-receiver`?",
            ),
            act=(
                "Restart what is down; queues and senders' retries bridge some 15 minutes.",
                f"Nothing is to arrive any more? Take the rules out of Prometheus, or wait: after "
                f"{promql.duration(config.remembered)} the alert ends by itself.",
            ),
        ),
        fires=Example(
            says="the heartbeat stops",
            series={name: f"{values} _x{silent}" for name, values in beats.items()},
            after=silent,
            labels={},
            shows="1",
        ),
        also_fires=(
            Example(
                says="it has been gone for days",
                series={name: f"{values} _x{lasting}" for name, values in beats.items()},
                after=lasting,
                labels={},
                shows="1",
            ),
        ),
        quiet=Example(says="the heartbeat goes on", series=beating(config, silent), after=silent),
        keep=0,
    )


def silent(config: RuleConfig) -> Alert:
    """A service that the configuration expects sends nothing."""
    series_of = rules.recorded(indicators.RESPONSES, config)

    def gone(job: str, within: int) -> str:
        # Only once telemetry has been arriving for that long: a fresh Prometheus has nobody's.
        beat = f"last_over_time({HEARTBEAT}[{promql.duration(config.remembered)}] offset {promql.duration(within)})"
        silence = f"absent_over_time({series_of.where(promql.Matcher(JOB, '=', job))}[{promql.duration(within)}])"
        return f"{silence}\nand on () {beat}"

    job, within = config.expected[0]
    steps = START + config.steps(within) + config.overlap + config.steps(config.hold) + 3
    counter = promql.select(schema.RESPONSES)
    own = {JOB: job, INSTANCE: "one", schema.PROVIDER.label: "openai", schema.REQUEST_MODEL.label: "gpt-5"}
    listed = ", ".join(f"`{name}` within {promql.duration(seconds)}" for name, seconds in config.expected)
    # Others that are expected too, and do send something: one alert is looked at, for one service.
    others = {named(counter, own | {JOB: name}): f"1x{steps}" for name, _ in config.expected[1:]}
    return alert(
        "EndturnServiceSilent",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=Vector("\nor\n".join(gone(name, seconds) for name, seconds in config.expected), frozenset({JOB})),
        summary="{{ $labels.job }} sends nothing ({{ $value }} service is missed)",
        description=f"Expected by the configuration: {listed}. None of its counters has arrived for that long.",
        runbook=Runbook(
            meaning="A service that should send telemetry all the time sends none.",
            impact="It may be down; if it is not, nothing that happens in it is seen.",
            look=(
                "Does the service run, and does it answer?",
                "Is *it* instrumented, and where does it export to (`OTEL_EXPORTER_OTLP_ENDPOINT`)?",
                "Others arrive? Else see EndturnTelemetryAbsent.",
            ),
            act=(
                "Restart it, or mend its export.",
                "It is gone on purpose, or runs rarely: take it out of `expected`, or give it a longer time there.",
            ),
        ),
        fires=Example(
            says="the service has sent nothing for its time",
            series=beating(config, steps) | {named(counter, own): f"1x{START} _x{steps}"} | others,
            after=steps,
            labels={JOB: job},
            shows="1",
        ),
        quiet=Example(
            says="it sends, though nothing happens in it",
            series=beating(config, steps) | {named(counter, own): f"1x{steps}"} | others,
            after=steps,
        ),
        also_quiet=(
            Example(
                says="nothing was watched for as long as that yet",
                series=beating(config, config.steps(within) - 1),
                after=config.steps(within) - 1,
            ),
        ),
        keep=0,
    )


def unevaluated(config: RuleConfig) -> Alert:
    """Prometheus does not keep up with our rules, or cannot run them."""
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
        dashboard="endturn-pipeline",
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
