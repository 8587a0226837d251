"""What the Collector lost or refused, recorded: its counters too are born at their first event, and read as increments.

The names are those of the Collector's own metrics at 0.155, scraped from its port 8888 as collector.yaml exposes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from endturn.generate import increments, promql, rules
from endturn.generate.config import RuleConfig
from endturn.generate.increments import Memory
from endturn.generate.promql import INSTANCE, JOB, SIGNALS, Matcher, Selector, Vector, duration

What = Literal["lost", "refused"]
SIGNAL, CAUSE, EXPORTER = "signal", "cause", "exporter"
WATCHED: Final = Selector("endturn:collector_heartbeat:seen", frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """One counter of the Collector.

    Attributes:
        what: "lost" is gone; "refused" was handed back to its sender, who tries again.
        less: a counter of those among them that were no loss.
    """

    metric: str
    what: What
    signal: str
    cause: str
    only: tuple[Matcher, ...] = ()
    less: str = ""

    @property
    def metrics(self) -> tuple[str, ...]:
        """All that it is counted from."""
        return (self.metric, self.less) if self.less else (self.metric,)


LOSSES: Final = (
    *(Loss(metric=f"otelcol_exporter_send_failed_{s}", what="lost", signal=s, cause="send_failed") for s in SIGNALS),
    # Of the other signals, and in the agent, nothing stands between receiver and queue: where that is full the sender
    # is told so, still has what it sent, and the receiver counts it as refused.
    Loss(
        metric="otelcol_exporter_enqueue_failed_spans",
        what="lost",
        signal="spans",
        cause="queue_full",
        only=(Matcher(EXPORTER, "!=", "otlp_grpc/gateway"),),
    ),
    # What left memory and was not decided on. The processor's own ..._dropped_too_early also counts what it kept.
    Loss(
        metric="otelcol_processor_tail_sampling_sampling_trace_removal_age_count",
        less="otelcol_processor_tail_sampling_global_count_traces_sampled",
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
    """For each counter what was seen of it, and its increments; signal and cause are in its name, and become labels."""
    memory = rules.memory(config, WATCHED)
    uptime = promql.foreign("otelcol_process_uptime", job=config.collector)
    beats = f"count(last_over_time({uptime}[{duration(config.increase)}]))"
    made: list[dict[str, object]] = [{"record": WATCHED.name, "expr": beats}]
    for loss in LOSSES:
        every = [promql.foreign(metric, job=config.collector) for metric in loss.metrics]
        made += [{**rule} for rule in increments.recording_rules(every, memory)]
        made.append(
            {
                "record": recorded(loss.what, config).name,
                "expr": _increments(loss, config, memory).text,
                "labels": {SIGNAL: loss.signal, CAUSE: loss.cause},
            }
        )
    return made


def remembered() -> list[Selector]:
    """Everything that the increments remember of counters."""
    kinds = (increments.SEEN, increments.KNOWN)
    counters = [promql.foreign(metric) for loss in LOSSES for metric in loss.metrics]
    return [WATCHED, *(increments.remembered(counter, kind) for counter in counters for kind in kinds)]


def _increments(loss: Loss, config: RuleConfig, memory: Memory) -> Vector:
    counter = promql.foreign(loss.metric, job=config.collector).where(*loss.only)
    names = [JOB, INSTANCE, *([EXPORTER] if EXPORTER in counter.labels else [])]

    def gained(counter: Selector) -> str:
        body = increments.increments(counter, memory).text.replace("\n", "\n  ")
        return f"sum by ({', '.join(names)}) (\n  {body}\n)"

    text = gained(counter)
    if loss.less:  # which is not there before its first event
        decided = gained(promql.foreign(loss.less, job=config.collector))
        text = f"clamp_min(\n{text}\n- (\n{decided}\nor\n0 * {text}\n),\n0)"
    return Vector(text, frozenset(names))


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
