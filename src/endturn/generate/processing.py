"""What a Collector does with telemetry: stop reasons, no content, counts, samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Final

import yaml

from endturn.generate import ottl
from endturn.generate.connections import duration, filled
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


# --- Reasons, content, names --------------------------------------------------------------------------------------

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
"""

_CONTENT: Final = """
# What people wrote and models answered stays where it was said. An application that records message content has
# opted in for itself; that it is also stored, and shown to all who may see a trace, is a second decision. To make
# it, take this processor out of the pipelines below. gen_ai.prompt.name, the name of a stored prompt, is no
# content.
transform/drop_message_content:
  error_mode: propagate # refuse rather than let content pass because a statement failed
  # One group for each kind of thing: in a common group the span's statement would run once for each of its events,
  # so not at all without any.
  trace_statements:
    - statements:
        - @span@
    - statements:
        - @spanevent@
  log_statements:
    - statements:
        - @log@
    # Before they were attributes, messages were the bodies of events, named in a field or in an attribute.
    - conditions: # any of them
        - @named@
        - @also@
      statements:
        - set(log.body, "")
"""

_CONTENT_PLACES: Final = (
    # The conventions, of today and before.
    r"gen_ai\.(input\.messages|output\.messages|system_instructions|tool\.definitions|tool\.call\.(arguments|result))",
    r"gen_ai\.(retrieval\.(query\.text|documents)|(prompt|completion)(\.[0-9]+\..*)?|content\.(prompt|completion))",
    # OpenInference
    r"llm\.((input|output)_messages|prompts|completions|prompt_template\.variables|tools)(\..*)?",
    r"(input|output)\.value|tool\.parameters",
    # Traceloop, Vercel's AI SDK
    r"traceloop\.entity\.(input|output)",
    r"ai\.(prompt(\..*)?|response\.(text|object|reasoning|toolCalls)|toolCall\.(args|result))",
    r"ai\.result\.(text|object|toolCalls)",
    # Logfire, Pydantic AI
    r"request_data|response_data|all_messages_events|pydantic_ai\.(all_messages|final_result)",
    r"tool_(arguments|response)",
)
"""Where messages, tool arguments and results stand in telemetry of the conventions, and of others."""

_CONTENT_EVENTS: Final = (
    r"^gen_ai\.((system|user|assistant|tool)\.message|choice|client\.inference\.operation\.details)$"
)

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
    statements = "\n".join(f"- {_scalar(each)}" for each in ottl.statements())
    return filled(_REASONS, condition=_scalar(ottl.condition()), statements=indent(statements, " " * 8))


def content() -> str:
    """The removal of what people wrote and models answered."""
    places = ottl.quoted(f"^({'|'.join(_CONTENT_PLACES)})$")
    events = ottl.quoted(_CONTENT_EVENTS)
    deleted = {
        name: _scalar(f"delete_matching_keys({name}.attributes, {places})") for name in ("span", "spanevent", "log")
    }
    return filled(
        _CONTENT,
        **deleted,
        named=_scalar(f"IsMatch(log.event_name, {events})"),
        also=_scalar(f'IsMatch(log.attributes["event.name"], {events})'),
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
    value: Int(AdjustedCount())
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
        f'and {_attribute(schema.OPERATION)} != "{ottl.FETCH}" '
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
        brief=_scalar(metric.brief),
        unit=metric.unit,
        attributes=attributes,
        condition=_scalar(condition),
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
  # early, and counted (otelcol_processor_tail_sampling_sampling_trace_dropped_too_early).
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
    return "\n".join(f"          - {_scalar(each)}" for each in every)


def _attribute(attribute: Attribute) -> str:
    return f'span.attributes["{attribute.key}"]'


def _true(attribute: Attribute) -> str:
    return f"{_attribute(attribute)} == true"


def _scalar(text: str) -> str:
    """The text as YAML in one line, quoted where it must be."""
    return yaml.safe_dump(text, width=10**6, allow_unicode=True).removesuffix("\n").removesuffix("\n...")
