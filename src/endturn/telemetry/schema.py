"""The declarations of all spans, events, metrics and attributes that endturn emits.

Documentation, dashboards and Collector files are generated from them.

Standard attributes are those of the OpenTelemetry GenAI semantic conventions
(semantic-conventions-genai, read 2026-11). They are constants of this module, because
OpenTelemetry's Python constants for GenAI are frozen and deprecated. endturn's own attributes start
with `endturn.`. The attributes of requests and responses are declared in endturn.calls.facts, once
for all signals. The descriptions of all others are in data/telemetry.tsv: each declaration here has
a row there.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final, Literal, NamedTuple, TypeVar

from endturn.calls import (
    INTERNAL_STEPS,
    EndpointFacts,
    Fact,
    On,
    RequestFacts,
    ResponseFacts,
    Strategy,
    TurnOutcome,
    facts_in,
    members_of,
)
from endturn.vocabulary import StopReason, package_data, read_tsv

SCHEMA_URL: Final = "https://endturn.dev/schemas/0.1.0"
SCOPE: Final = "endturn"
INSTANCE: Final = "service.instance.id"
"""The resource attribute that distinguishes the series of processes."""

Signal = TypeVar("Signal")
Type = Literal["string", "string[]", "int", "double", "boolean"]
Level = Literal["trace", "info", "warn", "error"]
Instrument = Literal["counter", "histogram"]
Bounds = tuple[float, ...]
Words = tuple[str, ...]
Example = str | int | float | bool


class Attribute(NamedTuple):
    """An attribute.

    Attributes:
        values: the closed set of its values, if it has one.
        opt_in: recorded only if the host enabled content capture.
    """

    key: str
    type: Type
    brief: str
    values: Words = ()
    examples: tuple[Example, ...] = ()
    opt_in: bool = False

    @property
    def label(self) -> str:
        """The name as a Prometheus label."""
        return self.key.replace(".", "_")

    @property
    def is_closed(self) -> bool:
        """True if the set of its values is closed."""
        return self.type == "boolean" or bool(self.values)


class Metric(NamedTuple):
    """A metric instrument.

    Attributes:
        attributes: the attributes of its series, with closed or capped sets of values.
        buckets: a histogram's upper bounds, as advice to the SDK.
        answers: the question that the metric answers.
    """

    name: str
    instrument: Instrument
    unit: str
    brief: str
    attributes: tuple[Attribute, ...]
    answers: str
    buckets: Bounds = ()

    @property
    def prometheus(self) -> str:
        """The name in Prometheus (default translation).

        A histogram's name is without `_bucket`, `_sum` and `_count`.
        """
        base = self.name.replace(".", "_")
        if self.unit == "s":
            base = f"{base}_seconds"
        return f"{base}_total" if self.instrument == "counter" else base


class LogEvent(NamedTuple):
    """A log record with an event name.

    Attributes:
        body: the log line, a format string for `%` with the attributes.
    """

    name: str
    severity: Level
    brief: str
    body: str
    attributes: tuple[Attribute, ...]
    severity_note: str = ""


class Span(NamedTuple):
    """A kind of span."""

    name: str
    kind: Literal["client", "internal"]
    brief: str
    attributes: tuple[Attribute, ...]


_texts: Final = {
    (kind, name): texts
    for _, (kind, name, *texts) in read_tsv(package_data(), "telemetry.tsv", range(3, 6))
}
"""The rows of data/telemetry.tsv that no declaration has used yet."""


def _take_texts(kind: str, name: str) -> list[str]:
    if (kind, name) not in _texts:
        raise KeyError(f"data/telemetry.tsv has no row for the {kind} {name}")
    return _texts.pop((kind, name))


def _attribute(
    key: str, type_: Type, *examples: Example, values: Words = (), opt_in: bool = False
) -> Attribute:
    (brief,) = _take_texts("attribute", key)
    return Attribute(key, type_, brief, values, examples, opt_in)


def _metric(
    name: str, instrument: Instrument, unit: str, *attributes: Attribute, buckets: Bounds = ()
) -> Metric:
    brief, answers = _take_texts("metric", name)
    return Metric(name, instrument, unit, brief, attributes, answers, buckets)


def _event(name: str, severity: Level, *attributes: Attribute) -> LogEvent:
    brief, body, *note = _take_texts("event", name)
    return LogEvent(name, severity, brief, body, attributes, *note)


def _span(name: str, kind: Literal["client", "internal"], *attributes: Attribute) -> Span:
    (brief,) = _take_texts("span", name)
    return Span(name, kind, brief, attributes)


@cache
def _recorded(declared: Fact) -> Attribute:
    """Return the attribute of a fact."""
    examples = declared.example if isinstance(declared.example, tuple) else (declared.example,)
    return Attribute(
        declared.key, declared.type, declared.doc, declared.values, examples, declared.opt_in
    )


def _attributes(declared: Mapping[str, Fact]) -> dict[str, Attribute]:
    """Return the attributes of facts, by field name."""
    return {name: _recorded(fact) for name, fact in declared.items()}


def _on(where: On, declared: Mapping[str, Fact]) -> tuple[Attribute, ...]:
    """Return the attributes that a signal always has: those that are not opt-in."""
    return tuple(
        _recorded(fact) for fact in declared.values() if where in fact.on and not fact.opt_in
    )


def _declared(kind: type[Signal]) -> tuple[Signal, ...]:
    """Return all declarations of a type in this module so far, in their order."""
    return tuple(value for value in globals().values() if isinstance(value, kind))


# --- Attributes of the GenAI conventions ----------------------------------------------------------

_ENDPOINT, _REQUEST, _RESPONSE = map(facts_in, (EndpointFacts, RequestFacts, ResponseFacts))
_STOP, _USAGE = members_of(ResponseFacts, "stop"), members_of(ResponseFacts, "usage")
ENDPOINT, REQUEST, RESPONSE, STOP = map(_attributes, (_ENDPOINT, _REQUEST, _RESPONSE, _STOP))
"""The attributes of the endpoint, the request, the response and its stop, by field name."""
OPERATION, PROVIDER = ENDPOINT["operation"], ENDPOINT["provider"]
SERVER_ADDRESS, SERVER_PORT = SERVER = ENDPOINT["server_address"], ENDPOINT["server_port"]
REQUEST_MODEL, REQUEST_MAX_TOKENS = REQUEST["model"], REQUEST["max_tokens"]
RESPONSE_ID, RESPONSE_MODEL = RESPONSE["id"], RESPONSE["model"]
FINISH_REASONS = _attribute("gen_ai.response.finish_reasons", "string[]", "length")
RESPONSE_FIRST_CHUNK = _attribute("gen_ai.response.time_to_first_chunk", "double", 0.31)
USAGE: Final = _attributes(_USAGE)
"""The attributes of token usage, by the field of `Usage`."""
INPUT_TOKENS, OUTPUT_TOKENS = USAGE["input_tokens"], USAGE["output_tokens"]
TOKEN_TYPE = _attribute("gen_ai.token.type", "string", values=("input", "output"))
TOKEN_MODALITY = _attribute("gen_ai.token.modality", "string", values=("unknown",))
CONVERSATION = _attribute("gen_ai.conversation.id", "string")
AGENT = _attribute("gen_ai.agent.name", "string", "support")
TOOL_NAME = _attribute("gen_ai.tool.name", "string", "search")
TOOL_CALL_ID = _attribute("gen_ai.tool.call.id", "string", "call_1")
ERROR_TYPE = _attribute("error.type", "string", "429")

SYSTEM_INSTRUCTIONS = _attribute("gen_ai.system_instructions", "string", opt_in=True)
INPUT_MESSAGES = _attribute("gen_ai.input.messages", "string", opt_in=True)
OUTPUT_MESSAGES = _attribute("gen_ai.output.messages", "string", opt_in=True)
TOOL_DEFINITIONS = _attribute("gen_ai.tool.definitions", "string", opt_in=True)

# --- Attributes of endturn ------------------------------------------------------------------------

REASON, RAW, STOP_TRUNCATED, SUSPECTED = (
    STOP[name] for name in ("reason", "raw", "truncated", "suspected")
)
TURN_ID = _attribute("endturn.turn.id", "string", "9f2c4e0d11aa87b3")
ITERATION = _attribute("endturn.turn.iteration", "int", 1)
CONTINUATION_INDEX = _attribute("endturn.continuation.index", "int")
COUNTED = _attribute("endturn.counted", "boolean")
ATTRIBUTE_COUNT = _attribute("endturn.span.attribute_count", "int", 19)
OUTCOME = _attribute("endturn.turn.outcome", "string", values=tuple(TurnOutcome))
COMPLETE = _attribute("endturn.turn.complete", "boolean")
TRUNCATED = _attribute("endturn.turn.truncated", "boolean", values=("true", "false"))
CONTINUED = _attribute("endturn.turn.continued", "boolean", values=("true", "false"))
ITERATIONS = _attribute("endturn.turn.iterations", "int", 2)
CONTINUATIONS = _attribute("endturn.turn.continuations", "int", 1)
TURN_REPAIRS = _attribute("endturn.turn.repairs", "int")
ESTIMATED = _attribute("endturn.turn.estimated", "boolean")
INFERRED = _attribute("endturn.turn.inferred", "boolean")
TOOLS_UNANSWERED = _attribute("endturn.turn.tools_unanswered", "boolean")
STRATEGY = _attribute("endturn.continuation.strategy", "string", values=tuple(Strategy))
ATTEMPTS = _attribute("endturn.continuation.attempts", "int")
ATTEMPTS_LEFT = _attribute("endturn.continuation.attempts_remaining", "int")
TOKENS_LEFT = _attribute("endturn.continuation.tokens_remaining", "int")
CHARS_LEFT = _attribute("endturn.continuation.chars_remaining", "int")
TOKENS_SO_FAR = _attribute("endturn.continuation.output_tokens", "int")
CHARS_SO_FAR = _attribute("endturn.continuation.output_chars", "int")
ISSUE = _attribute(
    "endturn.repair.issue", "string",
    values=("incomplete_json", "invalid_json", "schema_mismatch", "unverified_terminal",
            "suspected", "provider_rejected", "no_calls"),
)  # fmt: skip
REPAIR_CALLS = _attribute("endturn.repair.calls", "int", 1)
ATTEMPTED = _attribute("endturn.repair.attempted", "boolean")
SUCCEEDED = _attribute("endturn.repair.succeeded", "boolean")
REPAIR_RESULT = _attribute(
    "endturn.repair.result", "string", values=("succeeded", "failed", "not_attempted")
)
BLOCK_REASON = _attribute(
    "endturn.block.reason", "string",
    values=("truncated", "unverified_terminal", "suspected", "not_a_tool_call", "invalid_json",
            "schema_mismatch", "unknown_tool", "duplicate_id", "repair_failed", "repeated"),
)  # fmt: skip
BLOCKED_CALLS = _attribute("endturn.block.calls", "int", 1)
BLOCKED_NAMES = _attribute("endturn.block.names", "string[]", "search", opt_in=True)
SIGNAL = _attribute("endturn.termination.signal", "string", "finish_task")
STATUS = _attribute("endturn.termination.status", "string", "done")
MAX_ITERATIONS = _attribute("endturn.termination.max_iterations", "int")
REQUIRES_REVIEW = _attribute("endturn.termination.requires_review", "boolean")
CONTENT_CUT = _attribute("endturn.content.cut", "boolean", opt_in=True)
_CAPPED: Final = ("provider", "model", "agent", "server_address", "error_type", "all")
CAPPED = _attribute("endturn.series.capped_label", "string", values=_CAPPED)
LISTENER = _attribute("endturn.listener.name", "string", "Recorder", *INTERNAL_STEPS)

CONTENT: Final = (
    SYSTEM_INSTRUCTIONS, INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_DEFINITIONS,
    *(attribute for attribute in REQUEST.values() if attribute.opt_in), CONTENT_CUT,
)  # fmt: skip
"""The attributes of captured content. Recorded only if the host enabled it."""
CALL: Final = (*_on(On.OWN, _ENDPOINT), *_on(On.OWN, _REQUEST))
TURN: Final = (*CALL, AGENT)
_LABELS: Final = (*_on(On.LABEL, _ENDPOINT), *_on(On.LABEL, _REQUEST), *_on(On.LABEL, _RESPONSE))
OPERATIONS: Final = tuple(sorted(_LABELS, key=lambda label: label in SERVER))
"""The labels of OpenTelemetry's GenAI metrics, the server's last."""

# --- Metrics --------------------------------------------------------------------------------------

SECONDS: Final = (
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.28,
    2.56,
    5.12,
    10.24,
    20.48,
    40.96,
    81.92,
)
"""The bounds of the GenAI conventions for the duration of an operation."""
TOKENS: Final = tuple(4.0**n for n in range(14))
"""The bounds of the GenAI conventions for token usage, 1 … 67108864."""

RESPONSES = _metric("endturn.responses", "counter", "{response}", *CALL, REASON)
TURNS = _metric("endturn.turns", "counter", "{turn}", *TURN, TRUNCATED, CONTINUED, OUTCOME)
TRUNCATION_EXITS = _metric("endturn.truncation.exits", "counter", "{turn}", *TURN, OUTCOME)
CONTINUATIONS_METRIC = _metric(
    "endturn.continuations", "counter", "{continuation}", *CALL, STRATEGY
)
TURN_CONTINUATIONS = _metric(
    "endturn.turn.continuations",
    "histogram",
    "{continuation}",
    *CALL,
    buckets=(0, 1, 2, 3, 4, 5, 8, 13),
)
TURN_DURATION = _metric(
    "endturn.turn.duration", "histogram", "s", *CALL, TRUNCATED, CONTINUED,
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 300, 1000),
)  # fmt: skip
TURN_OUTPUT = _metric(
    "endturn.turn.output",
    "histogram",
    "{token}",
    *CALL,
    COMPLETE,
    buckets=tuple(2.0**n for n in range(6, 18)),
)
BUDGET_USED = _metric(
    "endturn.output.budget_used",
    "histogram",
    "1",
    *CALL,
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1),
)
CONTINUATION_TOKENS = _metric(
    "endturn.continuation.tokens", "counter", "{token}", *CALL, TOKEN_TYPE
)
CONTINUATION_COST = _metric("endturn.continuation.cost", "counter", "{USD}", *CALL)
REPAIRS = _metric("endturn.tool_payload.repairs", "counter", "{repair}", *CALL, REPAIR_RESULT)
BLOCKED = _metric("endturn.tool_calls.blocked", "counter", "{tool_call}", *CALL, BLOCK_REASON)
SUSPECTED_METRIC = _metric("endturn.truncations.suspected", "counter", "{response}", *CALL)
UNMAPPED = _metric("endturn.stop_reasons.unmapped", "counter", "{response}", *CALL)
OF_SPANS: Final = (RESPONSES, SUSPECTED_METRIC, UNMAPPED)
"""The metrics that the Collector derives from spans that no endturn library has counted."""
SERIES_CAPPED = _metric("endturn.series.capped", "counter", "{measurement}", CAPPED)
LISTENER_FAILURES = _metric("endturn.listener.failures", "counter", "{failure}", LISTENER)
OPERATION_DURATION = _metric(
    "gen_ai.client.operation.duration", "histogram", "s", *OPERATIONS, ERROR_TYPE, buckets=SECONDS
)
TOKEN_USAGE = _metric(
    "gen_ai.client.token.usage", "histogram", "{token}", *OPERATIONS, TOKEN_TYPE, buckets=TOKENS
)
FIRST_CHUNK = _metric(
    "gen_ai.client.operation.time_to_first_chunk", "histogram", "s", *OPERATIONS, buckets=SECONDS
)
OUTPUT_CHUNK = _metric(
    "gen_ai.client.operation.time_per_output_chunk", "histogram", "s", *OPERATIONS, buckets=SECONDS
)

LATER: Final = "gen_ai.client.inference"
"""The name prefix of the later generation of OpenTelemetry's GenAI metrics."""
INFERENCE_DURATION = OPERATION_DURATION._replace(name=f"{LATER}.duration")
INFERENCE_FIRST_CHUNK = FIRST_CHUNK._replace(name=f"{LATER}.time_to_first_chunk")
INFERENCE_OUTPUT_CHUNK = OUTPUT_CHUNK._replace(name=f"{LATER}.time_per_output_chunk")
INFERENCE_INPUT, INFERENCE_OUTPUT = (
    _metric(
        f"{LATER}.operation.{field}",
        "histogram",
        "{token}",
        *OPERATIONS,
        ERROR_TYPE,
        buckets=TOKENS,
    )
    for field in ("input_tokens", "output_tokens")
)
INFERENCE_USAGE: Final = {
    field: _metric(
        f"{LATER}.{attribute.key.removeprefix('gen_ai.')}",
        "counter",
        "{token}",
        *OPERATIONS,
        TOKEN_MODALITY,
    )
    for field, attribute in USAGE.items()
}
"""The token metrics of the later generation, by the field of `Usage`."""


class Generation(NamedTuple):
    """The metrics of a call's times, as one generation of the GenAI conventions names them."""

    duration: Metric
    first_chunk: Metric
    output_chunk: Metric


OPERATION_METRICS: Final = Generation(OPERATION_DURATION, FIRST_CHUNK, OUTPUT_CHUNK)
"""The released generation (v1.41), which most instrumentations emit. Its token metric is
`gen_ai.client.token.usage`."""
INFERENCE_METRICS: Final = Generation(
    INFERENCE_DURATION, INFERENCE_FIRST_CHUNK, INFERENCE_OUTPUT_CHUNK
)
"""The later generation, of semantic-conventions-genai (its migration.md)."""

SEMCONV: Final = {
    "default": (OPERATION_METRICS,),
    "gen_ai_latest_experimental": (INFERENCE_METRICS,),
    "gen_ai_latest_experimental/dup": (OPERATION_METRICS, INFERENCE_METRICS),
}
"""The generations that are emitted, by the value of OTEL_SEMCONV_STABILITY_OPT_IN; `/dup` means
both."""

SUCCESSORS: Final[Mapping[Metric, tuple[tuple[Metric, Mapping[Attribute, str]], ...]]] = {
    OPERATION_DURATION: ((INFERENCE_DURATION, {}),),
    FIRST_CHUNK: ((INFERENCE_FIRST_CHUNK, {}),),
    OUTPUT_CHUNK: ((INFERENCE_OUTPUT_CHUNK, {}),),
    TOKEN_USAGE: (
        (INFERENCE_INPUT, {TOKEN_TYPE: "input"}),
        (INFERENCE_OUTPUT, {TOKEN_TYPE: "output"}),
    ),
}
"""The successors of a metric in the later generation, each with the attributes that its name
replaces."""

METRICS: Final = (*_declared(Metric), *INFERENCE_USAGE.values())

_OF_RESPONSE: Final = _on(On.CALL, _RESPONSE)
INFERENCE: Final = (
    *(attribute for attribute in _on(On.CALL, _ENDPOINT) if attribute not in SERVER),
    *_on(On.CALL, _REQUEST),
    *(attribute for attribute in _OF_RESPONSE if attribute.key.startswith("gen_ai.")),
    FINISH_REASONS,
    RESPONSE_FIRST_CHUNK, *sorted(USAGE.values(), key=lambda attribute: "cache" in attribute.key),
    CONVERSATION, *SERVER, ERROR_TYPE, *_on(On.CALL, _STOP),
    *(attribute for attribute in _OF_RESPONSE if attribute.key.startswith("endturn.")),
    TURN_ID, ITERATION,
    CONTINUATION_INDEX,
)  # fmt: skip
"""The attributes of a call to a provider."""

# --- Events ---------------------------------------------------------------------------------------

STOP_REASON_OBSERVED = _event(
    "endturn.stop_reason_observed",
    "info",
    *CALL,
    *_on(On.STOP, _STOP),
    *_on(On.STOP, _RESPONSE),
    TURN_ID,
    ITERATION,
)
CONTINUATION_ATTEMPT = _event(
    "endturn.continuation_attempt", "info", *CALL, TURN_ID, CONTINUATION_INDEX, STRATEGY,
    TOKENS_SO_FAR, CHARS_SO_FAR, ATTEMPTS_LEFT, TOKENS_LEFT, CHARS_LEFT, ESTIMATED,
)  # fmt: skip
CONTINUATION_TERMINATED = _event(
    "endturn.continuation_terminated", "warn", *CALL, TURN_ID, OUTCOME, COMPLETE, ATTEMPTS,
    TURN_REPAIRS, TOKENS_SO_FAR, CHARS_SO_FAR, ESTIMATED, TOOLS_UNANSWERED,
)  # fmt: skip
TOOL_PAYLOAD_REPAIR = _event(
    "endturn.tool_payload_repair", "warn", *CALL, TURN_ID, ISSUE, REPAIR_CALLS, ATTEMPTED, SUCCEEDED
)
TOOL_DISPATCH_BLOCKED = _event(
    "endturn.tool_dispatch_blocked",
    "warn",
    *CALL,
    TURN_ID,
    BLOCK_REASON,
    BLOCKED_CALLS,
    BLOCKED_NAMES,
)
STOP_REASON_UNMAPPED = _event("endturn.stop_reason_unmapped", "warn", *CALL, RAW)
TERMINATION_SIGNAL = _event(
    "endturn.termination_signal",
    "info",
    TURN_ID,
    SIGNAL,
    STATUS,
    ITERATION,
    MAX_ITERATIONS,
    REQUIRES_REVIEW,
)
INFERENCE_DETAILS = _event(
    "gen_ai.client.inference.operation.details", "info", *INFERENCE, *CONTENT
)

EVENTS: Final = _declared(LogEvent)

# --- Spans ----------------------------------------------------------------------------------------

CHAT_SPAN = _span(
    "{gen_ai.operation.name} {gen_ai.request.model}", "client",
    *INFERENCE, COUNTED, ATTRIBUTE_COUNT, *CONTENT,
)  # fmt: skip
TURN_SPAN = _span(
    "invoke_agent {gen_ai.agent.name}", "internal",
    OPERATION, *TURN, CONVERSATION, TURN_ID, OUTCOME, COMPLETE, TRUNCATED, CONTINUED,
    ITERATIONS, CONTINUATIONS, TURN_REPAIRS, INFERRED, INPUT_TOKENS, OUTPUT_TOKENS, ESTIMATED,
    ERROR_TYPE, ATTRIBUTE_COUNT,
)  # fmt: skip
TOOL_SPAN = _span(
    "execute_tool {gen_ai.tool.name}",
    "internal",
    OPERATION,
    TOOL_NAME,
    TOOL_CALL_ID,
    TURN_ID,
    ERROR_TYPE,
    ATTRIBUTE_COUNT,
)

SPANS: Final = _declared(Span)

if _texts:
    raise KeyError("telemetry.tsv has rows that schema.py does not declare", *_texts)

_SIGNALS: Final[tuple[Span | LogEvent | Metric, ...]] = (*SPANS, *EVENTS, *METRICS)

ATTRIBUTES: Final = tuple(
    sorted(
        {attribute for signal in _SIGNALS for attribute in signal.attributes},
        key=lambda attribute: attribute.key,
    )
)

CONTENT_EMITTERS: Final = ("opentelemetry.instrumentation.genai", "opentelemetry.util.genai")
"""Prefixes of the scopes whose instrumentations record content if the conventions' variable enables
it, as endturn does."""


def finish_reason(reason: StopReason, raw: str | None) -> str:
    """Return the GenAI conventions' value for a reason (gen-ai-output-messages, FinishReason).

    The raw reason if they have none.
    """
    return _FINISH.get(reason) or raw or reason.value


_FINISH: Final = {
    StopReason.END_TURN: "stop",
    StopReason.TOOL_CALL: "tool_call",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW_EXCEEDED: "length",
    StopReason.SAFETY_BLOCKED: "content_filter",
    StopReason.REFUSED: "content_filter",
    StopReason.CANCELLED: "error",
    StopReason.ERROR: "error",
    # semconv-genai#363: a choice whose reason never arrived has `error`.
    StopReason.MISSING: "error",
}
