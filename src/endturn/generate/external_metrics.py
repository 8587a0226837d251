"""Metrics that others export and that dashboards read: names, and labels to filter or group by.

Sources: the Collector's internal telemetry, the OpenTelemetry SDK's own metrics, Prometheus, vLLM
(design/v1/metrics), SGLang (production metrics), LiteLLM (prometheus), agentgateway (metrics).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from endturn.generate.queries import Matcher, selector


@dataclass(frozen=True, slots=True)
class ExternalMetric:
    """A metric of another program.

    Attributes:
        name: Its name in Prometheus.
        labels: Labels that dashboards and rules may use, besides those of every series. suffixes:
            Possible endings of the name: some exporters add unit and type.
    """

    name: str
    labels: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ("",)

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names."""
        return tuple(f"{self.name}{suffix}" for suffix in self.suffixes)

    def select(self, *matchers: Matcher) -> str:
        """Return an instant vector of its series, under any of its names."""
        return _either(selector(name, matchers) for name in self.names)

    def over(self, function: str, window: str, *matchers: Matcher, offset: str = "") -> str:
        """Return a function of its series over a window, under any of its names.

        Args:
            function: The function's name, such as `rate`.
            offset: For how long before now the window ends.
        """
        ranges = (f"{selector(name, matchers)}[{window}]" for name in self.names)
        past = f" offset {offset}" if offset else ""
        return _either(f"{function}({selection}{past})" for selection in ranges)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Metrics that one selector reads.

    Functions that drop the name, such as `increase`, fail on it while a metric has series under two
    names, as after an upgrade; `ExternalMetric.over` does not.

    Attributes:
        pattern: The regular expression of their names, without suffixes.
        metrics: The metrics; a test holds that the expression has just their names.
    """

    pattern: str
    metrics: tuple[ExternalMetric, ...]

    def select(self, *matchers: Matcher) -> str:
        """Return an instant vector of all their series, under any of their names."""
        return f"{{{','.join(map(str, (self.name_matcher, *matchers)))}}}"

    @property
    def name_matcher(self) -> Matcher:
        """The matcher of all their names."""
        suffixes = "|".join(suffix for suffix in self.metrics[0].suffixes if suffix)
        optional = f"({suffixes})?" if suffixes else ""
        return Matcher("__name__", "=~", f"{self.pattern}{optional}")


def family(metric: ExternalMetric) -> MetricFamily:
    """Return a metric as a family: all of its names in one selector."""
    return MetricFamily(metric.name, (metric,))


def _either(expressions: Iterable[str]) -> str:
    """Return an expression for whichever series exists, without parentheses.

    One regular expression for all names would be an error while two exist, as after an upgrade:
    functions drop the name, and the series would be equal.
    """
    return " or ".join(expressions)


def _counter(name: str, *labels: str) -> ExternalMetric:
    """Return a counter of the Collector.

    It has no `_total` with the shipped configuration; with the Collector's defaults, a Prometheus
    reader adds that suffix.
    """
    return ExternalMetric(name, labels, ("", "_total"))


# --- Collector ------------------------------------------------------------------------------------

EXPORTER: Final = "exporter"
RECEIVER: Final = "receiver"
DATA_TYPE: Final = "data_type"
TOPIC: Final = "topic"
PARTITION: Final = "partition"
ERROR: Final = "error"
SIGNALS: Final = {
    "spans": "spans",
    "log records": "log_records",
    "metric points": "metric_points",
}
"""A signal's items, as text -> as in names of metrics."""

ACCEPTED_ITEMS: Final = {
    words: _counter(f"otelcol_receiver_accepted_{name}", RECEIVER, "transport")
    for words, name in SIGNALS.items()
}
"""Items that receivers accepted, by signal."""
SENT_ITEMS: Final = {
    words: _counter(f"otelcol_exporter_sent_{name}", EXPORTER) for words, name in SIGNALS.items()
}
"""Items that exporters sent, by signal."""
ALL_SENT: Final = MetricFamily(
    "otelcol_exporter_sent_(spans|metric_points|log_records)", tuple(SENT_ITEMS.values())
)
LOSSES: Final = tuple(
    _counter(f"otelcol_{what}_{name}", EXPORTER, RECEIVER)
    for what in ("exporter_send_failed", "exporter_enqueue_failed", "receiver_refused")
    for name in SIGNALS.values()
)
"""Items that were given up or refused; each of these counters appears with the first such item."""
ALL_LOSSES: Final = MetricFamily(
    "otelcol_(exporter_(send|enqueue)_failed|receiver_refused)_(spans|metric_points|log_records)",
    LOSSES,
)
DELTA_POINTS: Final = _counter("otelcol_deltatocumulative_datapoints", ERROR)
"""Points of delta counters; without `error` those that were added up."""
QUEUE_SIZE: Final = ExternalMetric("otelcol_exporter_queue_size", (EXPORTER, DATA_TYPE))
QUEUE_CAPACITY: Final = ExternalMetric("otelcol_exporter_queue_capacity", (EXPORTER, DATA_TYPE))
MEMORY: Final = ExternalMetric("otelcol_process_memory_rss", (), ("", "_bytes"))
UPTIME: Final = ExternalMetric("otelcol_process_uptime", (), ("", "_total", "_seconds_total"))
KAFKA_LAG: Final = ExternalMetric(
    "otelcol_kafka_receiver_offset_lag", (TOPIC, PARTITION), ("", "_ratio")
)
KAFKA_OFFSET: Final = ExternalMetric(
    "otelcol_kafka_receiver_current_offset", (TOPIC, PARTITION), ("", "_ratio")
)
KAFKA_MESSAGES: Final = _counter("otelcol_kafka_receiver_messages", TOPIC, PARTITION)
_SAMPLING: Final = "otelcol_processor_tail_sampling"
TRACES_REMOVED: Final = ExternalMetric(
    f"{_SAMPLING}_sampling_trace_removal_age", (), ("_count", "_seconds_count")
)
TRACES_IN_MEMORY: Final = ExternalMetric(f"{_SAMPLING}_sampling_traces_on_memory")
TRACES_DECIDED: Final = _counter(f"{_SAMPLING}_global_count_traces_sampled", "sampled", "decision")

# --- OpenTelemetry SDK ----------------------------------------------------------------------------

ERROR_TYPE: Final = "error_type"
SDK_RECORDS: Final = tuple(
    ExternalMetric(f"otel_sdk_{what}_total", (ERROR_TYPE,))
    for what in (
        "processor_span_processed",
        "processor_log_processed",
        "exporter_span_exported",
        "exporter_log_exported",
    )
)
"""Spans and events that an SDK processed and exported; those with `error_type` failed."""
ALL_SDK_RECORDS: Final = MetricFamily(
    "otel_sdk_(processor_(span|log)_processed|exporter_(span|log)_exported)_total", SDK_RECORDS
)

# --- Prometheus -----------------------------------------------------------------------------------

RULE_GROUP: Final = "rule_group"
ALERTS: Final = ExternalMetric("ALERTS", ("alertname", "alertstate", "severity"))
UP: Final = ExternalMetric("up")
TARGET_INFO: Final = ExternalMetric("target_info", ("service_version",))
RULES_MISSED: Final = ExternalMetric("prometheus_rule_group_iterations_missed_total", (RULE_GROUP,))
RULES_FAILED: Final = ExternalMetric("prometheus_rule_evaluation_failures_total", (RULE_GROUP,))
HEAD_SERIES: Final = ExternalMetric("prometheus_tsdb_head_series")

# --- Model servers and gateways -------------------------------------------------------------------
# Only vLLM counts by stop reason.

FINISHED_REASON: Final = "finished_reason"
VLLM_MODEL: Final = "model_name"
SGLANG_MODEL: Final = "model_name"
LITELLM_MODEL: Final = "litellm_model_name"

VLLM_REQUESTS: Final = ExternalMetric("vllm:request_success_total", (VLLM_MODEL, FINISHED_REASON))
SGLANG_REQUESTS: Final = ExternalMetric("sglang:num_requests_total", (SGLANG_MODEL,))
SGLANG_ABORTED: Final = ExternalMetric("sglang:num_aborted_requests_total", (SGLANG_MODEL,))
LITELLM_REQUESTS: Final = ExternalMetric(
    "litellm_deployment_total_requests_total", (LITELLM_MODEL,)
)
LITELLM_FAILURES: Final = ExternalMetric(
    "litellm_deployment_failure_responses_total", (LITELLM_MODEL,)
)
AGENTGATEWAY_TOKENS: Final = ExternalMetric(
    "agentgateway_gen_ai_client_token_usage_sum", ("gen_ai_request_model", "gen_ai_token_type")
)

EXTERNAL_METRICS: Final = (
    *(value for value in list(globals().values()) if isinstance(value, ExternalMetric)),
    *ACCEPTED_ITEMS.values(),
    *SENT_ITEMS.values(),
    *LOSSES,
    *SDK_RECORDS,
)
"""All external metrics."""
