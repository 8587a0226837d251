"""What a Collector does with telemetry: stop reasons, counts, samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Final

from endturn.generate import ottl
from endturn.generate.connections import duration, filled
from endturn.generate.ottl import scalar
from endturn.stop import StopReason
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """What tail sampling is built for.

    Attributes:
        decision_wait: seconds from a trace's first span until it is let go, if nothing kept it: a turn's time.
        traces_per_second: new traces that the memory is laid out for.
    """

    decision_wait: int = 600
    traces_per_second: int = 50

    @property
    def traces(self) -> int:
        """Undecided traces that are held: half as many again as arrive within the wait."""
        return self.decision_wait * self.traces_per_second * 3 // 2

    @property
    def remembered(self) -> int:
        """Kept traces that are remembered for spans that come later."""
        return 10 * self.traces


# --- Reasons, names --------------------------------------------------------------------------------------

_MEMORY: Final = """
# First in every pipeline: refuses data (senders retry) before the process runs out of memory.
memory_limiter:
  check_interval: 1s
  limit_mib: ${env:ENDTURN_COLLECTOR_MEMORY_MIB:-@mib@}
  spike_limit_mib: @spike@
"""

_REASONS: Final = """
# Spans of any instrumentation, in any language, get their stop reason in endturn's words, by the tables that the
# library uses. What has one of ours is left as it is. docs/emitters.md says whose reasons are found where.
transform/stop_reasons:
  error_mode: ignore # a span that cannot be understood goes on without a reason, and is logged
  trace_statements:
    - conditions:
        - @condition@
      statements:
@statements@
    # What becomes a label is bounded: names are cut, and what is no reason is none, whoever sent it.
    - conditions:
        - @judged@
      statements:
@bounded@
    - statements:
@service@
"""

EVENT_NAME: Final = """\
# Loki keeps attributes beside a line, but drops a record's event name (3.7). As an attribute it is `event_name`
# there.
transform/keep_event_name:
  error_mode: ignore
  log_statements:
    - conditions:
        - log.event_name != ""
      statements:
        - set(log.attributes["event.name"], log.event_name)"""

_DELTA: Final = """
# Prometheus answers delta points with an error, and a sender may be configured for them. Cumulative points pass
# through. A stream is forgotten this long after its last point: the default of 5 minutes would restart sparse
# counters at zero.
deltatocumulative:
  max_stale: @stale@
  max_streams: 100000
"""

HEARTBEAT: Final = """\
# The collector pushes its own metrics into its own receiver (see service.telemetry). One of them is the heartbeat
# of this path; the others would double what Prometheus scrapes from port 8888.
filter/heartbeat:
  error_mode: ignore
  metric_conditions:
    - resource.attributes["service.name"] == "endturn-collector" and metric.name != "otelcol_process_uptime\""""


def memory(mib: int) -> str:
    """The limit of the process' heap, by default that many MiB."""
    return filled(_MEMORY, mib=mib, spike=mib // 4)


def stop_reasons() -> str:
    """The statements that understand spans of others."""
    groups = {"statements": ottl.statements(), "bounded": ottl.bounded(), "service": ottl.service()}
    return filled(
        _REASONS,
        condition=scalar(ottl.condition()),
        judged=scalar(f"{ottl.REASON} != nil"),
        **{name: "\n".join(f"{' ' * 8}- {scalar(each)}" for each in every) for name, every in groups.items()},
    )


def delta(stale: int) -> str:
    """Applications' deltas as running totals."""
    return filled(_DELTA, stale=duration(stale))


# --- Counting -----------------------------------------------------------------------------------------------------

BATCH: Final = """\
# Only where responses are counted, and for that reason: behind it a full queue cannot refuse. A sender that is
# refused sends again, and what was counted by then would be counted twice. What a full queue drops behind it is
# counted (otelcol_exporter_enqueue_failed_spans), and alerted on. Everything else is batched in the exporters'
# queues.
batch:
  timeout: 200ms
  send_batch_size: 2048
  send_batch_max_size: 8192"""

_COUNTED: Final = """
# Two Collectors must not write one series: each one's counts carry its own id, which stays the same over restarts.
transform/counted:
  error_mode: propagate # rather nothing than two writers in one series
  metric_statements:
    - statements:
        - set(resource.attributes["service.instance.id"], @own@)
        - delete_key(resource.attributes, "signal_to_metrics.service.instance.id")

# The connector tells what came with each batch; here it becomes a running total. One that is not told of for longer
# than this starts again at zero. A new one beyond the limit (model names without end) is dropped, and counted as
# dropped.
deltatocumulative/counted:
  max_stale: @stale@
  max_streams: 10000
"""

_COUNT: Final = """
# Counts the responses that no process counted itself (@counted@), under the names and with the labels of the
# library. A head-sampled span counts for those that it stands for.
signal_to_metrics:
  error_mode: ignore
  spans:
@counters@
"""

_COUNTER: Final = """
- name: @name@
  description: @brief@
  unit: '@unit@'
  include_resource_attributes: # nothing of one process: each of them would be a series of its own
    - key: service.name
      default_value: unknown_service
    - key: service.namespace
      optional: true
  attributes:
@attributes@
  conditions:
    - @condition@
  sum:
    value: AdjustedCount() # 1.96 for one of 51 %: a whole number would lose the rest each time
    monotonic: true
"""


def counted(stale: int) -> str:
    """The connector's deltas as running totals of each Collector; kept for `stale` seconds without a response."""
    own = 'resource.attributes["signal_to_metrics.service.instance.id"]'
    return filled(_COUNTED, own=own, stale=duration(stale))


def count() -> str:
    """The connector that counts responses."""
    seen = (
        f"{ottl.REASON} != nil and {_attribute(schema.COUNTED)} != true "
        f"and not {ottl.FETCHED} "
        'and not IsMatch(instrumentation_scope.name, "${env:ENDTURN_UNCOUNTED_SCOPES:-every scope is counted}")'
    )
    counters = (
        _counter(schema.RESPONSES, seen),
        _counter(schema.SUSPECTED_METRIC, f"{seen} and {_true(schema.SUSPECTED)}"),
        _counter(schema.UNMAPPED, f"{seen} and {ottl.unmapped()}"),
    )
    return filled(_COUNT, counted=schema.COUNTED.key, counters=indent("\n".join(counters), " " * 4))


def _counter(metric: Metric, condition: str) -> str:
    attributes = "\n".join(f"    - key: {each.key}\n      default_value: unknown" for each in metric.attributes)
    return filled(
        _COUNTER,
        name=metric.name,
        brief=scalar(metric.brief),
        unit=metric.unit,
        attributes=attributes,
        condition=scalar(condition),
    )


# --- Sampling -----------------------------------------------------------------------------------------------------

_TAIL: Final = """
# A trace is kept as soon as one of its spans says why; what came before was held, what comes later follows. What
# nothing has kept @wait@ after its first span is let go: not when the root has ended, because the root of a remote
# caller may end long before the turn below it. A turn that takes longer is counted all the same, its events are
# kept (logs are not sampled), and what comes late is judged anew, by itself.
tail_sampling:
  sampling_strategy: span-ingest
  decision_wait: @wait@
  # Undecided traces in memory: @rate@ new ones per second x decision_wait x 1.5. Beyond, the oldest is let go
  # early: what was in memory is gone, what comes later is judged anew, by itself. How many: those that left memory
  # (otelcol_processor_tail_sampling_sampling_trace_removal_age_count) less those that were decided on
  # (otelcol_processor_tail_sampling_global_count_traces_sampled). sampling_trace_dropped_too_early, in spite of its
  # name, also counts each trace that was kept, when the wait is over.
  num_traces: ${env:ENDTURN_SAMPLING_TRACES:-@traces@}
  expected_new_traces_per_sec: @rate@
  decision_cache:
    sampled_cache_size: ${env:ENDTURN_SAMPLING_CACHE:-@remembered@} # ten times as many
    non_sampled_cache_size: 0 # or what is cut off late in a trace that was let go would follow it
  policies: # any of them keeps a trace
    - name: unfinished-or-continued
      type: ottl_condition
      ottl_condition:
        error_mode: ignore
        span:
@spans@
        spanevent:
@events@
    - name: failed
      type: status_code
      status_code:
        status_codes: [ERROR]
    - name: share-of-the-rest
      type: probabilistic
      probabilistic:
        sampling_percentage: ${env:ENDTURN_SAMPLE_PERCENT:-10}
"""

_NOTABLE: Final = tuple(
    reason
    for reason in StopReason
    if reason not in (StopReason.END_TURN, StopReason.TOOL_CALL, StopReason.PAUSED, StopReason.CANCELLED)
)
"""Reasons that are worth a trace, whatever the turn made of them."""
_EVENTS: Final = (
    schema.CONTINUATION_ATTEMPT, schema.CONTINUATION_TERMINATED, schema.TOOL_PAYLOAD_REPAIR,
    schema.TOOL_DISPATCH_BLOCKED, schema.STOP_REASON_UNMAPPED,
)  # fmt: skip
"""Events that are, where they are mirrored onto spans (`ENDTURN_EVENTS=spans` or `both`)."""


def tail(sampling: Sampling) -> str:
    """The choice of traces."""
    spans = (
        _true(schema.STOP_TRUNCATED),
        _true(schema.SUSPECTED),
        f'IsMatch({_attribute(schema.REASON)}, "^({"|".join(_NOTABLE)})$")',
        _true(schema.TRUNCATED),
        _true(schema.CONTINUED),
        f"{_attribute(schema.COMPLETE)} == false",
        f"{_attribute(schema.CONTINUATION_INDEX)} != nil",
    )
    return filled(
        _TAIL,
        wait=duration(sampling.decision_wait),
        rate=sampling.traces_per_second,
        traces=sampling.traces,
        remembered=sampling.remembered,
        spans=_conditions(spans),
        events=_conditions([f'spanevent.name == "{each.name}"' for each in _EVENTS]),
    )


def _conditions(every: Sequence[str]) -> str:
    return "\n".join(f"          - {scalar(each)}" for each in every)


def _attribute(attribute: Attribute) -> str:
    return f'span.attributes["{attribute.key}"]'


def _true(attribute: Attribute) -> str:
    return f"{_attribute(attribute)} == true"
