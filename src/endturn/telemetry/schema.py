"""The declarations of all spans, events, metrics and attributes that endturn emits.

Documentation, dashboards and Collector files are generated from them.

Standard attributes are those of the OpenTelemetry GenAI semantic conventions
(semantic-conventions-genai, read 2026-11). They are constants of this module, because
OpenTelemetry's Python constants for GenAI are frozen and deprecated. endturn's own attributes start
with `endturn.`. The attributes of requests and responses are declared in endturn.calls.facts, once
for all signals.
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
from endturn.vocabulary import StopReason

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


def _attribute(
    key: str, type_: Type, *examples: Example, brief: str, values: Words = (), opt_in: bool = False
) -> Attribute:
    return Attribute(key, type_, brief, values, examples, opt_in)


def _metric(
    name: str,
    instrument: Instrument,
    unit: str,
    *attributes: Attribute,
    brief: str,
    answers: str,
    buckets: Bounds = (),
) -> Metric:
    return Metric(name, instrument, unit, brief, attributes, answers, buckets)


def _event(
    name: str,
    severity: Level,
    *attributes: Attribute,
    brief: str,
    body: str,
    severity_note: str = "",
) -> LogEvent:
    return LogEvent(name, severity, brief, body, attributes, severity_note)


def _span(
    name: str, kind: Literal["client", "internal"], *attributes: Attribute, brief: str
) -> Span:
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
_CALL_FACTS: Final = (_ENDPOINT, _REQUEST, _STOP, _RESPONSE, _USAGE)
ENDPOINT, REQUEST, RESPONSE, STOP = map(_attributes, (_ENDPOINT, _REQUEST, _RESPONSE, _STOP))
"""The attributes of the endpoint, the request, the response and its stop, by field name."""
OPERATION, PROVIDER = ENDPOINT["operation"], ENDPOINT["provider"]
SERVER_ADDRESS, SERVER_PORT = SERVER = ENDPOINT["server_address"], ENDPOINT["server_port"]
REQUEST_MODEL, REQUEST_MAX_TOKENS = REQUEST["model"], REQUEST["max_tokens"]
RESPONSE_ID, RESPONSE_MODEL = RESPONSE["id"], RESPONSE["model"]
FINISH_REASONS = _attribute(
    "gen_ai.response.finish_reasons",
    "string[]",
    "length",
    brief=(
        "One per choice, in the conventions' terms: stop, length, tool_call, content_filter, "
        "compaction, error, else raw."
    ),
)
RESPONSE_FIRST_CHUNK = _attribute(
    "gen_ai.response.time_to_first_chunk",
    "double",
    0.31,
    brief="Seconds to a stream's first chunk.",
)
USAGE: Final = _attributes(_USAGE)
"""The attributes of token usage, by the field of `Usage`."""
INPUT_TOKENS, OUTPUT_TOKENS = USAGE["input_tokens"], USAGE["output_tokens"]
TOKEN_TYPE = _attribute(
    "gen_ai.token.type", "string", values=("input", "output"), brief="The type of the tokens."
)
TOKEN_MODALITY = _attribute(
    "gen_ai.token.modality",
    "string",
    values=("unknown",),
    brief="Token modality: text, audio, image.",
)
CONVERSATION = _attribute(
    "gen_ai.conversation.id", "string", brief="The host's id of the conversation, never invented."
)
AGENT = _attribute(
    "gen_ai.agent.name",
    "string",
    "support",
    brief="The agent; on metrics off by default and capped at 10.",
)
TOOL_NAME = _attribute("gen_ai.tool.name", "string", "search", brief="The tool that was run.")
TOOL_CALL_ID = _attribute(
    "gen_ai.tool.call.id", "string", "call_1", brief="The id of the tool call."
)
ERROR_TYPE = _attribute(
    "error.type",
    "string",
    "429",
    brief="The HTTP status of the response, else the class of the error.",
)

SYSTEM_INSTRUCTIONS = _attribute(
    "gen_ai.system_instructions",
    "string",
    opt_in=True,
    brief="The system prompt that is separate from the conversation: JSON; on the event a list.",
)
INPUT_MESSAGES = _attribute(
    "gen_ai.input.messages",
    "string",
    opt_in=True,
    brief="The messages of the request: JSON; on the event a list.",
)
OUTPUT_MESSAGES = _attribute(
    "gen_ai.output.messages",
    "string",
    opt_in=True,
    brief="The messages of the response, one for each choice: JSON; on the event a list.",
)
TOOL_DEFINITIONS = _attribute(
    "gen_ai.tool.definitions",
    "string",
    opt_in=True,
    brief="The tools that were offered: JSON; on the event a list.",
)

# --- Attributes of endturn ------------------------------------------------------------------------

REASON, RAW, STOP_TRUNCATED, SUSPECTED = (
    STOP[name] for name in ("reason", "raw", "truncated", "suspected")
)
TURN_ID = _attribute(
    "endturn.turn.id", "string", "9f2c4e0d11aa87b3", brief="The turn that the call belongs to."
)
ITERATION = _attribute(
    "endturn.turn.iteration", "int", 1, brief="Number of the call in the turn, from 1."
)
CONTINUATION_INDEX = _attribute(
    "endturn.continuation.index",
    "int",
    brief="Number of this continuation in the turn, from 1; absent on other calls.",
)
COUNTED = _attribute(
    "endturn.counted",
    "boolean",
    brief=(
        "This process counted the response in its metrics: other counters of spans should skip it."
    ),
)
ATTRIBUTE_COUNT = _attribute(
    "endturn.span.attribute_count",
    "int",
    19,
    brief=(
        "Attributes that endturn wrote on a span of its own without message content, this one "
        "included. A Collector searches a span for content if the number differs."
    ),
)
OUTCOME = _attribute(
    "endturn.turn.outcome", "string", values=tuple(TurnOutcome), brief="The outcome of the turn."
)
COMPLETE = _attribute("endturn.turn.complete", "boolean", brief="The turn's answer is complete.")
TRUNCATED = _attribute(
    "endturn.turn.truncated",
    "boolean",
    values=("true", "false"),
    brief="At least one response of the turn was truncated.",
)
CONTINUED = _attribute(
    "endturn.turn.continued",
    "boolean",
    values=("true", "false"),
    brief="A continuation was requested.",
)
ITERATIONS = _attribute("endturn.turn.iterations", "int", 2, brief="Calls of the turn.")
CONTINUATIONS = _attribute(
    "endturn.turn.continuations",
    "int",
    1,
    brief="Continuations of the turn, without repairs of truncated tool calls.",
)
TURN_REPAIRS = _attribute(
    "endturn.turn.repairs",
    "int",
    brief="Calls of the turn that requested truncated tool calls again.",
)
ESTIMATED = _attribute(
    "endturn.turn.estimated",
    "boolean",
    brief="A provider reported no token counts: figures are estimates. Set to true or absent.",
)
INFERRED = _attribute(
    "endturn.turn.inferred",
    "boolean",
    brief="The turn was inferred from its calls, not declared. Set to true or absent.",
)
TOOLS_UNANSWERED = _attribute(
    "endturn.turn.tools_unanswered",
    "boolean",
    brief=(
        "The turn's last response requested tools, and no call sent their results in time. Set to "
        "true or absent."
    ),
)
STRATEGY = _attribute(
    "endturn.continuation.strategy",
    "string",
    values=tuple(Strategy),
    brief="The way in which the rest was requested.",
)
ATTEMPTS = _attribute(
    "endturn.continuation.attempts", "int", brief="Continuations requested in the turn so far."
)
ATTEMPTS_LEFT = _attribute(
    "endturn.continuation.attempts_remaining", "int", brief="Continuations still allowed."
)
TOKENS_LEFT = _attribute(
    "endturn.continuation.tokens_remaining", "int", brief="Output tokens still allowed."
)
CHARS_LEFT = _attribute(
    "endturn.continuation.chars_remaining", "int", brief="Characters still allowed."
)
TOKENS_SO_FAR = _attribute(
    "endturn.continuation.output_tokens", "int", brief="Output tokens of the turn so far."
)
CHARS_SO_FAR = _attribute(
    "endturn.continuation.output_chars", "int", brief="Characters of the turn's answer so far."
)
ISSUE = _attribute(
    "endturn.repair.issue", "string",
    values=("incomplete_json", "invalid_json", "schema_mismatch", "unverified_terminal",
            "suspected", "provider_rejected", "no_calls"),
    brief="The problem with the tool payload.",
)  # fmt: skip
REPAIR_CALLS = _attribute(
    "endturn.repair.calls", "int", 1, brief="Number of tool calls in the payload."
)
ATTEMPTED = _attribute(
    "endturn.repair.attempted", "boolean", brief="A complete payload was requested."
)
SUCCEEDED = _attribute(
    "endturn.repair.succeeded", "boolean", brief="The complete payload arrived and passed the gate."
)
REPAIR_RESULT = _attribute(
    "endturn.repair.result",
    "string",
    values=("succeeded", "failed", "not_attempted"),
    brief="The result of a repair.",
)
BLOCK_REASON = _attribute(
    "endturn.block.reason", "string",
    values=("truncated", "unverified_terminal", "suspected", "not_a_tool_call", "invalid_json",
            "schema_mismatch", "unknown_tool", "duplicate_id", "repair_failed", "repeated"),
    brief="The reason for not running tool calls.",
)  # fmt: skip
BLOCKED_CALLS = _attribute(
    "endturn.block.calls", "int", 1, brief="Number of tool calls that were not run."
)
BLOCKED_NAMES = _attribute(
    "endturn.block.names", "string[]", "search", opt_in=True, brief="The names of their tools."
)
SIGNAL = _attribute(
    "endturn.termination.signal", "string", "finish_task", brief="The signal that ended the turn."
)
STATUS = _attribute(
    "endturn.termination.status", "string", "done", brief="The status in that signal."
)
MAX_ITERATIONS = _attribute(
    "endturn.termination.max_iterations", "int", brief="The policy's limit of calls."
)
REQUIRES_REVIEW = _attribute(
    "endturn.termination.requires_review", "boolean", brief="A person has to approve the result."
)
CONTENT_CUT = _attribute(
    "endturn.content.cut",
    "boolean",
    opt_in=True,
    brief="Some content is longer than the recorded part. Set to true or absent.",
)
_CAPPED: Final = ("provider", "model", "agent", "server_address", "error_type", "all")
CAPPED = _attribute(
    "endturn.series.capped_label",
    "string",
    values=_CAPPED,
    brief="The label whose cap was reached; `all`: a metric had too many label sets.",
)
LISTENER = _attribute(
    "endturn.listener.name",
    "string",
    "Recorder",
    *INTERNAL_STEPS,
    brief=(
        "The listener that raised, or the internal step that failed (`other` for a step without a "
        "name); `redact` for a host's redaction."
    ),
)

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

RESPONSES = _metric(
    "endturn.responses",
    "counter",
    "{response}",
    *CALL,
    REASON,
    brief="Responses, by stop reason.",
    answers="Why do models stop? The denominator of every response rate.",
)
TURNS = _metric(
    "endturn.turns",
    "counter",
    "{turn}",
    *TURN,
    TRUNCATED,
    CONTINUED,
    OUTCOME,
    brief="Turns, by outcome.",
    answers="How do turns end? The denominator of every turn rate.",
)
TRUNCATION_EXITS = _metric(
    "endturn.truncation.exits",
    "counter",
    "{turn}",
    *TURN,
    OUTCOME,
    brief="Turns that ended with an unfinished truncated response.",
    answers="How many users got a truncated answer?",
)
CONTINUATIONS_METRIC = _metric(
    "endturn.continuations",
    "counter",
    "{continuation}",
    *CALL,
    STRATEGY,
    brief="Continuations requested.",
    answers="How often are answers continued, and with which strategy?",
)
TURN_CONTINUATIONS = _metric(
    "endturn.turn.continuations",
    "histogram",
    "{continuation}",
    *CALL,
    buckets=(0, 1, 2, 3, 4, 5, 8, 13),
    brief="Continuations of one truncated turn, repairs of cut tool calls among them.",
    answers="How many continuations does a turn take?",
)
TURN_DURATION = _metric(
    "endturn.turn.duration", "histogram", "s", *CALL, TRUNCATED, CONTINUED,
    buckets=(0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 300, 1000),
    brief="From a turn's first call to its end.",
    answers="How long do users wait, and how much longer for continued turns?",
)  # fmt: skip
TURN_OUTPUT = _metric(
    "endturn.turn.output",
    "histogram",
    "{token}",
    *CALL,
    COMPLETE,
    buckets=tuple(2.0**n for n in range(6, 18)),
    brief="Output tokens of a turn's longest answer: one response and its continuations.",
    answers="How long are complete answers, and which max_tokens would have sufficed?",
)
BUDGET_USED = _metric(
    "endturn.output.budget_used",
    "histogram",
    "1",
    *CALL,
    buckets=(0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1),
    brief="Output tokens divided by the request's maximum.",
    answers="How close do answers come to the limit, before any is truncated?",
)
CONTINUATION_TOKENS = _metric(
    "endturn.continuation.tokens",
    "counter",
    "{token}",
    *CALL,
    TOKEN_TYPE,
    brief="Tokens of continuation calls.",
    answers="What did continuations cost?",
)
CONTINUATION_COST = _metric(
    "endturn.continuation.cost",
    "counter",
    "{USD}",
    *CALL,
    brief="Money spent on continuation calls, if prices are set.",
    answers="What did continuations cost in money?",
)
REPAIRS = _metric(
    "endturn.tool_payload.repairs",
    "counter",
    "{repair}",
    *CALL,
    REPAIR_RESULT,
    brief="Truncated or unverified tool payloads.",
    answers="How often is a tool payload truncated, and does a repair help?",
)
BLOCKED = _metric(
    "endturn.tool_calls.blocked",
    "counter",
    "{tool_call}",
    *CALL,
    BLOCK_REASON,
    brief="Tool calls that were not run.",
    answers="Which tool calls did the gate block?",
)
SUSPECTED_METRIC = _metric(
    "endturn.truncations.suspected",
    "counter",
    "{response}",
    *CALL,
    brief="Responses with a normal stop that used the entire token limit.",
    answers="Which emitters and servers hide a truncation?",
)
UNMAPPED = _metric(
    "endturn.stop_reasons.unmapped",
    "counter",
    "{response}",
    *CALL,
    brief="Responses whose stop reason is in no table.",
    answers="Has a provider's vocabulary drifted?",
)
OF_SPANS: Final = (RESPONSES, SUSPECTED_METRIC, UNMAPPED)
"""The metrics that the Collector derives from spans that no endturn library has counted."""
SERIES_CAPPED = _metric(
    "endturn.series.capped",
    "counter",
    "{measurement}",
    CAPPED,
    brief="Measurements whose label was replaced by `other`.",
    answers="Is a label's cap too low, or a model name unbounded?",
)
LISTENER_FAILURES = _metric(
    "endturn.listener.failures",
    "counter",
    "{failure}",
    LISTENER,
    brief="Records that were lost because recording failed; the call was not affected.",
    answers="Is endturn itself failing?",
)
OPERATION_DURATION = _metric(
    "gen_ai.client.operation.duration",
    "histogram",
    "s",
    *OPERATIONS,
    ERROR_TYPE,
    buckets=SECONDS,
    brief="Duration of a call to a provider.",
    answers="How long does one call take?",
)
TOKEN_USAGE = _metric(
    "gen_ai.client.token.usage",
    "histogram",
    "{token}",
    *OPERATIONS,
    TOKEN_TYPE,
    buckets=TOKENS,
    brief="Tokens of a call.",
    answers="How many tokens does one call take?",
)
FIRST_CHUNK = _metric(
    "gen_ai.client.operation.time_to_first_chunk",
    "histogram",
    "s",
    *OPERATIONS,
    buckets=SECONDS,
    brief="Time to a stream's first chunk.",
    answers="How long until the first output?",
)
OUTPUT_CHUNK = _metric(
    "gen_ai.client.operation.time_per_output_chunk",
    "histogram",
    "s",
    *OPERATIONS,
    buckets=SECONDS,
    brief=(
        "Time from one chunk of a stream to the next. A stream of more than 8 chunks records 4 to "
        "7 of these times, evenly spread."
    ),
    answers="Does the answer flow, or stall?",
)

LATER: Final = "gen_ai.client.inference"
"""The name prefix of the later generation of OpenTelemetry's GenAI metrics."""
INFERENCE_DURATION = OPERATION_DURATION._replace(name=f"{LATER}.duration")
INFERENCE_FIRST_CHUNK = FIRST_CHUNK._replace(name=f"{LATER}.time_to_first_chunk")
INFERENCE_OUTPUT_CHUNK = OUTPUT_CHUNK._replace(name=f"{LATER}.time_per_output_chunk")
INFERENCE_INPUT = _metric(
    f"{LATER}.operation.input_tokens",
    "histogram",
    "{token}",
    *OPERATIONS,
    ERROR_TYPE,
    brief="Tokens of a call's prompt; 0 if the provider reported none.",
    answers="How long are prompts?",
    buckets=TOKENS,
)
INFERENCE_OUTPUT = _metric(
    f"{LATER}.operation.output_tokens",
    "histogram",
    "{token}",
    *OPERATIONS,
    ERROR_TYPE,
    brief="Tokens that a call generated; 0 if the provider reported none.",
    answers="How long are answers?",
    buckets=TOKENS,
)
_USAGE_BRIEFS: Final = {
    "input_tokens": "Tokens of prompts, cached ones included.",
    "output_tokens": "Tokens generated, reasoning included.",
    "cache_read_tokens": "Prompt tokens read from a cache.",
    "cache_write_tokens": "Prompt tokens written to a cache.",
    "reasoning_tokens": "Generated tokens that were reasoning.",
}
INFERENCE_USAGE: Final = {
    field: _metric(
        f"{LATER}.{attribute.key.removeprefix('gen_ai.')}",
        "counter",
        "{token}",
        *OPERATIONS,
        TOKEN_MODALITY,
        brief=_USAGE_BRIEFS[field],
        answers="How many tokens are used?",
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
    *(attribute for facts in _CALL_FACTS for attribute in _on(On.STOP, facts)),
    TURN_ID,
    ITERATION,
    brief="A response arrived, with its stop reason.",
    body="%(gen_ai.request.model)s stopped: %(endturn.stop.reason)s (%(endturn.stop.raw)s)",
    severity_note="WARN when it was truncated",
)
CONTINUATION_ATTEMPT = _event(
    "endturn.continuation_attempt", "info", *CALL, TURN_ID, CONTINUATION_INDEX, STRATEGY,
    TOKENS_SO_FAR, CHARS_SO_FAR, ATTEMPTS_LEFT, TOKENS_LEFT, CHARS_LEFT, ESTIMATED,
    brief="A continuation of a truncated answer is about to be requested.",
    body=(
        "%(gen_ai.request.model)s is asked for the rest: continuation "
        "%(endturn.continuation.index)s, %(endturn.continuation.strategy)s"
    ),
)  # fmt: skip
CONTINUATION_TERMINATED = _event(
    "endturn.continuation_terminated", "warn", *CALL, TURN_ID, OUTCOME, COMPLETE, ATTEMPTS,
    TURN_REPAIRS, TOKENS_SO_FAR, CHARS_SO_FAR, ESTIMATED, TOOLS_UNANSWERED,
    brief="A truncated turn ended.",
    body=(
        "truncated turn of %(gen_ai.request.model)s ended: %(endturn.turn.outcome)s; "
        "continuations: %(endturn.continuation.attempts)s, repairs: %(endturn.turn.repairs)s"
    ),
    severity_note=(
        "INFO when the answer is complete, or continuing is not allowed; ERROR on the four budgets "
        "and `retry_limit`, else WARN"
    ),
)  # fmt: skip
TOOL_PAYLOAD_REPAIR = _event(
    "endturn.tool_payload_repair",
    "warn",
    *CALL,
    TURN_ID,
    ISSUE,
    REPAIR_CALLS,
    ATTEMPTED,
    SUCCEEDED,
    brief="A tool payload was truncated or could not be verified.",
    body=(
        "tool payload of %(gen_ai.request.model)s: %(endturn.repair.issue)s; repaired: "
        "%(endturn.repair.succeeded)s"
    ),
)
TOOL_DISPATCH_BLOCKED = _event(
    "endturn.tool_dispatch_blocked",
    "warn",
    *CALL,
    TURN_ID,
    BLOCK_REASON,
    BLOCKED_CALLS,
    BLOCKED_NAMES,
    brief="Tool calls were not run.",
    body=(
        "tool calls of %(gen_ai.request.model)s that were not run: %(endturn.block.calls)s "
        "(%(endturn.block.reason)s)"
    ),
)
STOP_REASON_UNMAPPED = _event(
    "endturn.stop_reason_unmapped",
    "warn",
    *CALL,
    RAW,
    brief="A stop reason is in no table; reported once per provider, model and value.",
    body="%(gen_ai.provider.name)s sent the stop reason %(endturn.stop.raw)s, which is in no table",
)
TERMINATION_SIGNAL = _event(
    "endturn.termination_signal",
    "info",
    TURN_ID,
    SIGNAL,
    STATUS,
    ITERATION,
    MAX_ITERATIONS,
    REQUIRES_REVIEW,
    brief="The model ended its turn on purpose, or the guard decided that it did.",
    body="the turn was ended by %(endturn.termination.signal)s: %(endturn.termination.status)s",
)
INFERENCE_DETAILS = _event(
    "gen_ai.client.inference.operation.details",
    "info",
    *INFERENCE,
    *CONTENT,
    brief=(
        "A call to a provider, with its content. An event of the conventions; recorded only if the "
        "host enables it."
    ),
    body="call to %(gen_ai.request.model)s",
)

EVENTS: Final = _declared(LogEvent)

# --- Spans ----------------------------------------------------------------------------------------

CHAT_SPAN = _span(
    "{gen_ai.operation.name} {gen_ai.request.model}", "client",
    *INFERENCE, COUNTED, ATTRIBUTE_COUNT, *CONTENT,
    brief=(
        "One attempt to call a provider: an HTTP request and its response. If another "
        "instrumentation makes this span, endturn writes to it. The span of a continuation is "
        "linked to that of the call that it continues. The first span of a sub-agent that runs in "
        "the span of a tool call (`gen_ai.tool.call.id`) is linked to that of the call that "
        "requested the tool, with its `endturn.turn.id`."
    ),
)  # fmt: skip
TURN_SPAN = _span(
    "invoke_agent {gen_ai.agent.name}", "internal",
    OPERATION, *TURN, CONVERSATION, TURN_ID, OUTCOME, COMPLETE, TRUNCATED, CONTINUED,
    ITERATIONS, CONTINUATIONS, TURN_REPAIRS, INFERRED, INPUT_TOKENS, OUTPUT_TOKENS, ESTIMATED,
    ERROR_TYPE, ATTRIBUTE_COUNT,
    brief=(
        "One declared turn: from the user's input to the answer, with the tokens of all its calls. "
        "An agent's span of another instrumentation gets endturn's attributes instead."
    ),
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
    brief="One tool call that passed the gate and was run.",
)

SPANS: Final = _declared(Span)

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
