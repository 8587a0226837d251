"""Alerts about the Collector: whether it answers, what it lost or refused, and how full its queues are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.generate import losses, promql
from endturn.generate.config import RuleConfig
from endturn.generate.declare import Alert, Example, Runbook, alert
from endturn.generate.examples import LASTING, START, after, named
from endturn.generate.losses import CAUSE, EXPORTER, SIGNAL
from endturn.generate.promql import INSTANCE, JOB, Vector

COLLECTOR: Final = {JOB: "collector", INSTANCE: "collector:8888"}
WHERE: Final = "{{ $labels.instance }}"


def _counter(metric: str, values: str, **labels: str) -> dict[str, str]:
    return {named(promql.foreign(metric), COLLECTOR | labels): values}


def _example(
    config: RuleConfig, says: str, series: Mapping[str, str], labels: Mapping[str, str] | None = None, shows: str = ""
) -> Example:
    """An example in which the Collector has been scraped all the time."""
    scraped = _counter("otelcol_process_uptime", f"0+60x{LASTING}")
    return Example(says=says, series=scraped | dict(series), after=after(config), labels=labels, shows=shows)


def down(config: RuleConfig) -> Alert:
    """The Collector does not answer its scrape."""
    up = promql.foreign("up", job=config.collector)
    return alert(
        "EndturnCollectorDown",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=Vector(f"{up} == 0", frozenset({JOB, INSTANCE})),
        summary=f"The Collector at {WHERE} does not answer (up is {{{{ $value }}}})",
        description="Prometheus cannot scrape the Collector's own metrics. Senders retry for some minutes, then what "
        "they have is lost.",
        runbook=Runbook(
            meaning="The Collector is down, or Prometheus cannot reach its port 8888.",
            impact="While it is down nothing is counted, and no trace or event is kept.",
            look=(
                "Does the process run? Its health check answers on port 13133.",
                "Its last log lines: out of memory, a configuration that is refused, a full disk?",
            ),
            act=(
                "Restart it: what its queues held on disk is sent then.",
                "Out of memory: raise `ENDTURN_COLLECTOR_MEMORY_MIB`, or sample fewer traces.",
            ),
        ),
        fires=_example(config, "a scrape fails", _counter("up", f"1x{START} 0x{LASTING}"), COLLECTOR, "0"),
        quiet=_example(config, "it answers", _counter("up", f"1x{LASTING}")),
        also_quiet=(
            _example(
                config,
                "another target is down",
                {named(promql.foreign("up"), {JOB: "shop", INSTANCE: "one"}): f"0x{LASTING}"},
            ),
        ),
        keep=0,
    )


def losing(config: RuleConfig) -> Alert:
    """What the Collector had is gone."""
    window, lost = promql.duration(config.window), config.lost
    names = {SIGNAL: "spans", CAUSE: "send_failed", EXPORTER: "otlp_grpc/tempo"}
    metric = "otelcol_exporter_send_failed_spans"
    exporter = {EXPORTER: names[EXPORTER]}
    return alert(
        "EndturnCollectorLosingTelemetry",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=losses.at_least("lost", config, records=lost),
        summary=f"The Collector at {WHERE} lost {{{{ $value }}}} {{{{ $labels.signal }}}} "
        "({{ $labels.cause }} {{ $labels.exporter }})",
        description=f"In the last {window} the Collector gave up on records that it had accepted, or had no room for "
        "them behind a point where nobody tries again.",
        runbook=Runbook(
            meaning="Telemetry is lost in the Collector. `send_failed`: a back end refused it for good, or was away "
            "for longer than it is tried again. `queue_full`: there was no room in the queue towards it, behind "
            "a point where nobody tries again (traces only: of other signals the sender is told, see "
            "EndturnCollectorRefusingTelemetry). `undecided`: traces were dropped before it was decided whether to "
            "keep them. `delta_dropped`: points of a sender with delta temporality could not be added up.",
            impact="Traces and events of truncated turns are missing, or counts are too low.",
            look=(
                "The Collector's log has the back end's answer.",
                "The dashboard *Pipeline*: which exporter, since when, how full is its queue?",
            ),
            act=(
                "`send_failed`: mend the back end; an answer that says the data is wrong (4xx) is a bug to report.",
                "`queue_full`: a faster back end, a larger `sending_queue.queue_size`, or a queue on disk.",
                "`undecided`: raise `num_traces` of the tail sampling, and the memory with it.",
                "`delta_dropped`: raise `max_streams`, or let the senders export cumulative values.",
            ),
        ),
        fires=_example(
            config,
            "a counter is born at its first loss",
            _counter(metric, f"_x{START} {lost}x{LASTING}", **exporter),
            COLLECTOR | names,
            f"{lost}",
        ),
        also_fires=(
            _example(
                config,
                "a queue is full",
                _counter("otelcol_exporter_enqueue_failed_spans", f"0x{START} 7x{LASTING}", **exporter),
                COLLECTOR | names | {CAUSE: "queue_full"},
                "7",
            ),
            _example(
                config,
                "delta points are dropped",
                _counter("otelcol_deltatocumulative_datapoints", f"0x{START} 9x{LASTING}", error="limit"),
                COLLECTOR | {SIGNAL: "metric_points", CAUSE: "delta_dropped", EXPORTER: ""},
                "9",
            ),
        )
        if lost <= 7
        else (),
        quiet=_example(config, "it lost some long ago", _counter(metric, f"5x{LASTING}", **exporter)),
        also_quiet=(
            _example(
                config,
                "a queue of logs is full: the sender is told, and still has them",
                _counter(
                    "otelcol_exporter_enqueue_failed_log_records",
                    f"0x{START} 7000x{LASTING}",
                    **{EXPORTER: "otlp_http/loki"},
                ),
            ),
            _example(
                config,
                "an agent's queue is full: the same of its traces",
                _counter(
                    "otelcol_exporter_enqueue_failed_spans",
                    f"0x{START} 7000x{LASTING}",
                    **{EXPORTER: "otlp_grpc/gateway"},
                ),
            ),
            _example(
                config,
                "delta points are added up as they should be",
                _counter("otelcol_deltatocumulative_datapoints", f"0+100x{LASTING}"),
            ),
        ),
    )


def refusing(config: RuleConfig) -> Alert:
    """Senders are sent away, and come again."""
    window, refused = promql.duration(config.window), config.refused
    metric, limiter = "otelcol_receiver_refused_log_records", "otelcol_processor_memory_limiter_refused_spans"
    names = {SIGNAL: "log_records", CAUSE: "receiver"}
    return alert(
        "EndturnCollectorRefusingTelemetry",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=losses.at_least("refused", config, records=refused),
        summary=f"The Collector at {WHERE} refused {{{{ $value }}}} {{{{ $labels.signal }}}} ({{{{ $labels.cause }}}})",
        description=f"In the last {window} the Collector sent records back to their senders, who try again for a while "
        "and then lose them.",
        runbook=Runbook(
            meaning="The Collector has no room. `memory`: its memory limiter refuses; `receiver`: what stands behind "
            "the receiver does (the limiter, or a full queue).",
            impact="Nothing is lost yet. When it lasts for minutes, senders drop what they hold.",
            look=(
                "The dashboard *Pipeline*: is a queue full, or is memory short?",
                "How much comes in, and is that more than usual?",
            ),
            act=(
                "Memory: raise `ENDTURN_COLLECTOR_MEMORY_MIB`; a gateway that tail-samples needs most.",
                "A full queue: mend or speed up the back end behind it.",
                "More than one Collector: scale out by trace id.",
            ),
        ),
        fires=_example(
            config,
            "log records are refused",
            _counter(metric, f"_x{START} {refused}x{LASTING}", receiver="otlp"),
            COLLECTOR | names,
            f"{refused}",
        ),
        also_fires=(
            _example(
                config,
                "memory is short",
                _counter(limiter, f"_x{START} {refused}x{LASTING}", processor="memory_limiter"),
                COLLECTOR | {SIGNAL: "spans", CAUSE: "memory"},
                f"{refused}",
            ),
        ),
        quiet=_example(config, "it refused some long ago", _counter(metric, f"5x{LASTING}", receiver="otlp")),
    )


def filling(config: RuleConfig) -> Alert:
    """A queue of the Collector is about to be full."""
    who = {EXPORTER: "otlp_http/prometheus", "data_type": "metrics"}

    def case(size: float) -> dict[str, str]:
        return _counter("otelcol_exporter_queue_size", f"{size:g}x{LASTING}", **who) | _counter(
            "otelcol_exporter_queue_capacity", f"1000x{LASTING}", **who
        )

    full = round(1000 * config.queue)
    return alert(
        "EndturnCollectorQueueFilling",
        dashboard="endturn-pipeline",
        severity="warning",
        config=config,
        expression=losses.queues(config),
        summary=f"A queue of the Collector at {WHERE} is {{{{ $value | humanizePercentage }}}} full "
        "({{ $labels.exporter }}, {{ $labels.data_type }})",
        description=f"More than {config.queue:.0%} of the queue towards a back end is taken: it does not keep up, or "
        "is away. When it is full, records are refused or lost.",
        runbook=Runbook(
            meaning="The Collector cannot get rid of what it receives as fast as it comes.",
            impact="None yet: the queue is there for this. When it is full, records are refused or lost.",
            look=(
                "Does the back end behind that exporter answer? The Collector's log says what it answers.",
                "How much comes in, and is that more than usual?",
            ),
            act=("Mend or speed up the back end.", "Or give the queue more room (`sending_queue.queue_size`)."),
        ),
        fires=_example(config, "it is fuller than it should be", case((1000 + full) / 2), COLLECTOR | who,
                       f"{(1000 + full) / 20:.4g}%"),
        quiet=_example(config, "there is room", case(full)),
    )  # fmt: skip
