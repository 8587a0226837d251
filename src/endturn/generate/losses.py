"""What the Collector lost or refused, recorded: its counters too are born at their first event, and read as increments.

The names are those of the Collector's own metrics at 0.155, scraped from its port 8888 as collector.yaml exposes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from endturn.generate import promql
from endturn.generate.config import RuleConfig
from endturn.generate.promql import INSTANCE, JOB, SIGNALS, Matcher, Selector, Vector, duration

What = Literal["lost", "refused"]
SIGNAL, CAUSE, EXPORTER = "signal", "cause", "exporter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One counter of the Collector.

    Attributes:
        what: "lost" is gone; "refused" was handed back to its sender, who tries again.
    """

    metric: str
    what: What
    signal: str
    cause: str
    only: tuple[Matcher, ...] = ()


LOSSES: Final = (
    *(Loss(metric=f"otelcol_exporter_send_failed_{s}", what="lost", signal=s, cause="send_failed") for s in SIGNALS),
    *(Loss(metric=f"otelcol_exporter_enqueue_failed_{s}", what="lost", signal=s, cause="queue_full") for s in SIGNALS),
    Loss(
        metric="otelcol_processor_tail_sampling_sampling_trace_dropped_too_early",
        what="lost",
        signal="traces",
        cause="undecided",
    ),
    Loss(
        metric="otelcol_deltatocumulative_datapoints",
        what="lost",
        signal="metric_points",
        cause="delta_dropped",
        only=(Matcher("error", "!=", ""),),
    ),
    *(Loss(metric=f"otelcol_receiver_refused_{s}", what="refused", signal=s, cause="receiver") for s in SIGNALS),
    *(
        Loss(metric=f"otelcol_processor_memory_limiter_refused_{s}", what="refused", signal=s, cause="memory")
        for s in SIGNALS
    ),
)


def recorded(what: What, config: RuleConfig) -> Selector:
    """The recorded increments, by Collector, signal and cause; by exporter where one is to blame."""
    labels = {JOB, INSTANCE, SIGNAL, CAUSE} | ({EXPORTER} if what == "lost" else set())
    return Selector(f"endturn:collector_{what}:increase{duration(config.increase)}", frozenset(labels))


def recording_rules(config: RuleConfig) -> list[dict[str, object]]:
    """One rule for each counter; signal and cause are in the counters' names, and become labels."""
    return [
        {
            "record": recorded(loss.what, config).name,
            "expr": _increments(loss, config).text,
            "labels": {SIGNAL: loss.signal, CAUSE: loss.cause},
        }
        for loss in LOSSES
    ]


def _increments(loss: Loss, config: RuleConfig) -> Vector:
    counter = promql.foreign(loss.metric, job=config.collector).where(*loss.only)
    gained = promql.increments(
        counter,
        window=config.increase,
        lookback=config.lookback,
        heartbeat=promql.foreign("otelcol_process_uptime", job=config.collector),
        lead=config.lead,
    )
    names = [JOB, INSTANCE, *([EXPORTER] if EXPORTER in counter.labels else [])]
    body = f"sum by ({', '.join(names)}) (\n  " + gained.text.replace("\n", "\n  ") + "\n)"
    return Vector(body, frozenset(names))


def at_least(what: What, config: RuleConfig, *, records: int) -> Vector:
    """How many records, by Collector, signal and cause, where they are enough."""
    by = sorted(recorded(what, config).labels - {JOB})
    total = f"sum by ({', '.join([JOB, *by])}) (sum_over_time({recorded(what, config)}[{duration(config.window)}]))"
    return Vector(f"round({total} / {config.overlap}) >= {records}", recorded(what, config).labels)


def queues(config: RuleConfig) -> Vector:
    """How full a queue of the Collector is, where that is too full."""
    by = f"max by ({JOB}, {INSTANCE}, {EXPORTER}, data_type)"
    size, capacity = (
        promql.foreign(f"otelcol_exporter_queue_{name}", job=config.collector) for name in ("size", "capacity")
    )
    text = f"{by} ({size})\n/\n({by} ({capacity}) > 0)\n> {config.queue:g}"
    return Vector(text, frozenset({JOB, INSTANCE, EXPORTER, "data_type"}))
