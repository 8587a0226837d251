"""Every span, event, metric and attribute that endturn emits, declared once; everything else is generated from it.

Standard attributes are those of the OpenTelemetry GenAI semantic conventions (semantic-conventions-genai, read
2026-11), carried as our own constants because the Python constants for GenAI are frozen and deprecated. Ours live under
`endturn.`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar

from endturn.events import Strategy, TurnOutcome
from endturn.stop import StopReason

SCHEMA_URL: Final = "https://endturn.dev/schemas/0.1.0"
SCOPE: Final = "endturn"
INSTANCE: Final = "service.instance.id"
"""The resource attribute that tells one process's series from another's."""

Signal = TypeVar("Signal")
Type = Literal["string", "string[]", "int", "double", "boolean"]
Level = Literal["trace", "info", "warn", "error"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One attribute.

    Attributes:
        values: the closed set of its values, where it has one.
        opt_in: recorded only where the host asked for content.
    """

    key: str
    type: Type
    brief: str
    values: tuple[str, ...] = ()
    examples: tuple[str | int | float | bool, ...] = ()
    opt_in: bool = False

    @property
    def label(self) -> str:
        """Its name as a Prometheus label."""
        return self.key.replace(".", "_")


@dataclass(frozen=True, slots=True)
class Metric:
    """One instrument.

    Attributes:
        attributes: all it may carry: closed or capped sets only.
        buckets: a histogram's upper bounds, advised to the SDK.
        answers: the question that it is there for.
    """

    name: str
    instrument: Literal["counter", "histogram"]
    unit: str
    brief: str
    attributes: tuple[Attribute, ...]
    answers: str
    buckets: tuple[float, ...] = ()

    @property
    def prometheus(self) -> str:
        """Its name in Prometheus (default translation); a histogram's without `_bucket`, `_sum`, `_count`."""
        base = self.name.replace(".", "_")
        unit = {"s": "seconds", "1": "ratio"}.get(self.unit, "")
        if self.instrument == "histogram" and self.unit == "1":
            unit = ""  # the translation adds _ratio to gauges only
        if unit and unit not in base.split("_"):
            base = f"{base}_{unit}"
        return f"{base}_total" if self.instrument == "counter" else base


@dataclass(frozen=True, slots=True)
class Event:
    """One log record with an event name.

    Attributes:
        body: the line for people, for `%`.
    """

    name: str
    severity: Level
    brief: str
    body: str
    attributes: tuple[Attribute, ...]
    severity_note: str = ""


@dataclass(frozen=True, slots=True)
class Span:
    """One kind of span."""

    name: str
    kind: Literal["client", "internal"]
    brief: str
    attributes: tuple[Attribute, ...]


def _attribute(
    key: str,
    type_: Type,
    brief: str,
    *examples: str | int | float | bool,
    values: tuple[str, ...] = (),
    opt_in: bool = False,
) -> Attribute:
    return Attribute(key, type_, brief, values, examples, opt_in)


def _content(key: str, brief: str) -> Attribute:
    return _attribute(key, "string", f"{brief}: JSON; on the event a list.", opt_in=True)


def _declared(kind: type[Signal]) -> tuple[Signal, ...]:
    """All of a kind that stand above, in their order."""
    return tuple(each for each in globals().values() if isinstance(each, kind))


BOOLEANS: Final = ("true", "false")

# --- Attributes: the GenAI conventions' ---------------------------------------------------------------------------

OPERATION = _attribute("gen_ai.operation.name", "string", "What was asked of the model.", "chat", "invoke_agent")
PROVIDER = _attribute("gen_ai.provider.name", "string", "Who answered, where that is known.", "openai", "anthropic")
REQUEST_MODEL = _attribute("gen_ai.request.model", "string", "The model, where the request names one.", "gpt-5-mini")
REQUEST_MAX_TOKENS = _attribute("gen_ai.request.max_tokens", "int", "The output limit that the request set.", 1024)
REQUEST_STREAM = _attribute("gen_ai.request.stream", "boolean", "The answer was streamed; only ever true.", True)
REQUEST_CHOICES = _attribute("gen_ai.request.choice.count", "int", "Answers asked for, where not one.", 2)
REQUEST_TEMPERATURE = _attribute("gen_ai.request.temperature", "double", "As requested.", 0.2)
REQUEST_TOP_P = _attribute("gen_ai.request.top_p", "double", "As requested.", 0.9)
REQUEST_TOP_K = _attribute("gen_ai.request.top_k", "int", "As requested.", 40)
REQUEST_SEED = _attribute("gen_ai.request.seed", "int", "As requested.", 7)
REQUEST_STOP_SEQUENCES = _attribute(
    "gen_ai.request.stop_sequences", "string[]", "The words at which the model is to stop.", "END", opt_in=True
)
REQUEST_REASONING_LEVEL = _attribute(
    "gen_ai.request.reasoning.level", "string", "How much the model is to think, in the provider's word.", "low"
)
REQUEST_PREVIOUS_RESPONSE = _attribute(
    "gen_ai.request.previous_response.id", "string", "The response that the request builds on.", "resp_123"
)
OUTPUT_TYPE = _attribute(
    "gen_ai.output.type", "string", "The output that was asked for.", values=("text", "json", "image", "speech")
)
RESPONSE_ID = _attribute("gen_ai.response.id", "string", "The provider's id of the response.", "chatcmpl-123")
RESPONSE_MODEL = _attribute("gen_ai.response.model", "string", "The model that answered.", "gpt-5-mini-2026-08-07")
FINISH_REASONS = _attribute(
    "gen_ai.response.finish_reasons",
    "string[]",
    "One per choice, in the conventions' words: stop, length, tool_call, content_filter, compaction, error, else raw.",
    "length",
)
RESPONSE_FIRST_CHUNK = _attribute(
    "gen_ai.response.time_to_first_chunk", "double", "Seconds to a stream's first chunk.", 0.31
)
INPUT_TOKENS = _attribute("gen_ai.usage.input_tokens", "int", "Tokens of the prompt.", 812)
OUTPUT_TOKENS = _attribute("gen_ai.usage.output_tokens", "int", "Tokens generated, reasoning included.", 1024)
REASONING_TOKENS = _attribute("gen_ai.usage.reasoning.output_tokens", "int", "The part that was reasoning.", 640)
CACHE_READ_TOKENS = _attribute("gen_ai.usage.cache_read.input_tokens", "int", "Prompt tokens read from a cache.", 512)
CACHE_WRITE_TOKENS = _attribute("gen_ai.usage.cache_write.input_tokens", "int", "Prompt tokens put into a cache.", 300)
TOKEN_TYPE = _attribute("gen_ai.token.type", "string", "Which tokens.", values=("input", "output"))
TOKEN_MODALITY = _attribute("gen_ai.token.modality", "string", "Of what the tokens are.", values=("unknown",))
CONVERSATION = _attribute("gen_ai.conversation.id", "string", "The host's id of the conversation, never invented.")
AGENT = _attribute("gen_ai.agent.name", "string", "The agent; on metrics off by default and capped at 10.", "support")
TOOL_NAME = _attribute("gen_ai.tool.name", "string", "The tool that was run.", "search")
TOOL_CALL_ID = _attribute("gen_ai.tool.call.id", "string", "The call's id.", "call_1")
SERVER_ADDRESS = _attribute("server.address", "string", "The provider's host.", "api.openai.com")
SERVER_PORT = _attribute("server.port", "int", "The provider's port, where not 443.", 8080)
ERROR_TYPE = _attribute("error.type", "string", "The HTTP status of the answer, else the error's class.", "429")

SYSTEM_INSTRUCTIONS = _content("gen_ai.system_instructions", "The system prompt that travelled beside the conversation")
INPUT_MESSAGES = _content("gen_ai.input.messages", "What was asked")
OUTPUT_MESSAGES = _content("gen_ai.output.messages", "What was answered, a message for each choice")
TOOL_DEFINITIONS = _content("gen_ai.tool.definitions", "The tools that were offered")

# --- Attributes: ours ---------------------------------------------------------------------------------------------

REASON = _attribute("endturn.stop.reason", "string", "Why the model stopped, normalised.", values=tuple(StopReason))
RAW = _attribute(
    "endturn.stop.raw", "string", "The provider's own value, where it is a word of at most 64 characters.", "length"
)
STOP_TRUNCATED = _attribute(
    "endturn.stop.truncated", "boolean", "The response was cut off: max_tokens, context_window_exceeded or missing."
)
SUSPECTED = _attribute(
    "endturn.stop.suspected", "boolean", "A clean stop was claimed, yet the token budget was used up; only ever true."
)
TURN_ID = _attribute("endturn.turn.id", "string", "The turn that the call belongs to.", "9f2c4e0d11aa87b3")
ITERATION = _attribute("endturn.turn.iteration", "int", "Which call of the turn, from 1.", 1)
CONTINUATION_INDEX = _attribute(
    "endturn.continuation.index", "int", "Which continuation of the turn this call is, from 1; absent on other calls."
)
COUNTED = _attribute(
    "endturn.counted", "boolean", "This process counted the response in its metrics: who counts spans should skip it."
)
OUTCOME = _attribute("endturn.turn.outcome", "string", "How the turn ended.", values=tuple(TurnOutcome))
COMPLETE = _attribute("endturn.turn.complete", "boolean", "The turn's answer is whole.")
TRUNCATED = _attribute("endturn.turn.truncated", "boolean", "Some response of the turn was cut off.", values=BOOLEANS)
CONTINUED = _attribute("endturn.turn.continued", "boolean", "A continuation was requested.", values=BOOLEANS)
ITERATIONS = _attribute("endturn.turn.iterations", "int", "Calls of the turn.", 2)
CONTINUATIONS = _attribute("endturn.turn.continuations", "int", "Continuations of the turn.", 1)
TURN_REPAIRS = _attribute("endturn.turn.repairs", "int", "Calls of the turn that asked for cut tool calls again.")
ESTIMATED = _attribute(
    "endturn.turn.estimated", "boolean", "A provider counted no tokens: figures are estimates; only ever true."
)
INFERRED = _attribute(
    "endturn.turn.inferred", "boolean", "The turn was recognised from its calls, not declared; only ever true."
)
STRATEGY = _attribute("endturn.continuation.strategy", "string", "How the rest was asked for.", values=tuple(Strategy))
ATTEMPTS = _attribute("endturn.continuation.attempts", "int", "Continuations requested in the turn so far.")
ATTEMPTS_LEFT = _attribute("endturn.continuation.attempts_remaining", "int", "Continuations still allowed.")
TOKENS_LEFT = _attribute("endturn.continuation.tokens_remaining", "int", "Output tokens still allowed.")
CHARS_LEFT = _attribute("endturn.continuation.chars_remaining", "int", "Characters still allowed.")
TOKENS_SO_FAR = _attribute("endturn.continuation.output_tokens", "int", "Output tokens of the turn so far.")
CHARS_SO_FAR = _attribute("endturn.continuation.output_chars", "int", "Characters of the turn's answer so far.")
ISSUE = _attribute(
    "endturn.repair.issue", "string", "What was wrong with the tool payload.",
    values=("incomplete_json", "invalid_json", "schema_mismatch", "unverified_terminal", "suspected",
            "provider_rejected", "no_calls"),
)  # fmt: skip
REPAIR_CALLS = _attribute("endturn.repair.calls", "int", "How many calls the payload held.", 1)
ATTEMPTED = _attribute("endturn.repair.attempted", "boolean", "A complete payload was asked for.")
SUCCEEDED = _attribute("endturn.repair.succeeded", "boolean", "It came, and passed the gate.")
REPAIR_RESULT = _attribute(
    "endturn.repair.result", "string", "How a repair went.", values=("succeeded", "failed", "not_attempted")
)
BLOCK_REASON = _attribute(
    "endturn.block.reason", "string", "Why tool calls were not run.",
    values=("truncated", "unverified_terminal", "suspected", "not_a_tool_call", "invalid_json", "schema_mismatch",
            "unknown_tool", "duplicate_id", "repair_failed", "repeated"),
)  # fmt: skip
BLOCKED_CALLS = _attribute("endturn.block.calls", "int", "How many calls were not run.", 1)
BLOCKED_NAMES = _attribute("endturn.block.names", "string[]", "Their tools.", "search", opt_in=True)
SIGNAL = _attribute("endturn.termination.signal", "string", "What ended the turn.", "finish_task")
STATUS = _attribute("endturn.termination.status", "string", "The status that came with it.", "done")
MAX_ITERATIONS = _attribute("endturn.termination.max_iterations", "int", "The policy's limit of calls.")
REQUIRES_REVIEW = _attribute("endturn.termination.requires_review", "boolean", "A person has to approve the result.")
CONTENT_CUT = _attribute(
    "endturn.content.cut", "boolean", "What was said is longer than what is recorded; only ever true.", opt_in=True
)
CAPPED = _attribute(
    "endturn.series.capped_label", "string", "The label whose cap was reached.",
    values=("provider", "model", "agent", "server_address", "error_type"),
)  # fmt: skip
LISTENER = _attribute("endturn.listener.name", "string", "The listener that raised.", "Recorder")

CONTENT: Final = (
    SYSTEM_INSTRUCTIONS, INPUT_MESSAGES, OUTPUT_MESSAGES, TOOL_DEFINITIONS, REQUEST_STOP_SEQUENCES, CONTENT_CUT,
)  # fmt: skip
"""What was said: only where the host asked for it."""
CALL: Final = (PROVIDER, REQUEST_MODEL)
TURN: Final = (PROVIDER, REQUEST_MODEL, AGENT)

# --- Metrics ------------------------------------------------------------------------------------------------------

SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The conventions' bounds for the duration of an operation."""
TOKENS: Final = tuple(4.0**n for n in range(14))
"""The conventions' bounds for token usage, 1 … 67108864."""

RESPONSES = Metric(
    "endturn.responses", "counter", "{response}", "Responses, by why they stopped.", (*CALL, REASON),
    "Why do models stop? The denominator of every response rate.",
)  # fmt: skip
TURNS = Metric(
    "endturn.turns", "counter", "{turn}", "Turns, by how they ended.", (*TURN, TRUNCATED, CONTINUED, OUTCOME),
    "How do turns end? The denominator of every turn rate.",
)  # fmt: skip
TRUNCATION_EXITS = Metric(
    "endturn.truncation.exits", "counter", "{turn}", "Turns that ended while a truncated response stood unfinished.",
    (*TURN, OUTCOME), "How many users were handed half an answer?",
)  # fmt: skip
CONTINUATIONS_METRIC = Metric(
    "endturn.continuations", "counter", "{continuation}", "Continuations requested.", (*CALL, STRATEGY),
    "How often must answers be finished, and by which means?",
)  # fmt: skip
TURN_CONTINUATIONS = Metric(
    "endturn.turn.continuations", "histogram", "{continuation}",
    "Continuations of one truncated turn, repairs of cut tool calls among them.", CALL,
    "How many attempts does a turn take?", (0, 1, 2, 3, 4, 5, 8, 13),
)  # fmt: skip
TURN_DURATION = Metric(
    "endturn.turn.duration", "histogram", "s", "From a turn's first call to its end.", (*CALL, TRUNCATED, CONTINUED),
    "How long do people wait, and how much longer for continued turns?",
    (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 300, 1000),
)  # fmt: skip
TURN_OUTPUT = Metric(
    "endturn.turn.output", "histogram", "{token}",
    "Output tokens of a turn's longest answer: of one response and of what continued it.", (*CALL, COMPLETE),
    "How long are whole answers, and what max_tokens would have sufficed?",
    tuple(2.0**n for n in range(6, 18)),
)  # fmt: skip
BUDGET_USED = Metric(
    "endturn.output.budget_used", "histogram", "1", "Output tokens divided by the request's maximum.", CALL,
    "How close to the limit do answers come, before any is cut?",
    (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1),
)  # fmt: skip
CONTINUATION_TOKENS = Metric(
    "endturn.continuation.tokens", "counter", "{token}", "Tokens of continuation calls.", (*CALL, TOKEN_TYPE),
    "What did finishing cost?",
)  # fmt: skip
CONTINUATION_COST = Metric(
    "endturn.continuation.cost", "counter", "{USD}", "Money spent on continuation calls, where prices are given.", CALL,
    "The same in money.",
)  # fmt: skip
REPAIRS = Metric(
    "endturn.tool_payload.repairs", "counter", "{repair}", "Cut or unverified tool payloads.", (*CALL, REPAIR_RESULT),
    "How often is a tool payload cut, and does asking again help?",
)  # fmt: skip
BLOCKED = Metric(
    "endturn.tool_calls.blocked", "counter", "{tool_call}", "Tool calls that were not run.", (*CALL, BLOCK_REASON),
    "What did the gate keep from running?",
)  # fmt: skip
SUSPECTED_METRIC = Metric(
    "endturn.truncations.suspected", "counter", "{response}",
    "Responses that claim a clean stop although they used the whole token budget.", CALL,
    "Which emitters and servers hide a truncation?",
)  # fmt: skip
UNMAPPED = Metric(
    "endturn.stop_reasons.unmapped", "counter", "{response}", "Responses whose stop reason has no row.", CALL,
    "Has a provider's vocabulary drifted?",
)  # fmt: skip
SERIES_CAPPED = Metric(
    "endturn.series.capped", "counter", "{measurement}", "Measurements whose label was replaced by `other`.", (CAPPED,),
    "Is a label's cap too low, or a model name unbounded?",
)  # fmt: skip
LISTENER_FAILURES = Metric(
    "endturn.listener.failures", "counter", "{failure}", "Telemetry that failed instead of breaking the call.",
    (LISTENER,), "Is endturn itself failing?",
)  # fmt: skip
OPERATION_DURATION = Metric(
    "gen_ai.client.operation.duration", "histogram", "s", "Duration of a call to a provider.",
    (OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT, ERROR_TYPE),
    "How long does one call take?", SECONDS,
)  # fmt: skip
TOKEN_USAGE = Metric(
    "gen_ai.client.token.usage", "histogram", "{token}", "Tokens of a call.",
    (OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT, TOKEN_TYPE),
    "How many tokens does one call take?", TOKENS,
)  # fmt: skip
FIRST_CHUNK = Metric(
    "gen_ai.client.operation.time_to_first_chunk", "histogram", "s", "Time to a stream's first chunk.",
    (OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT),
    "How long until something is seen?", SECONDS,
)  # fmt: skip
OUTPUT_CHUNK = Metric(
    "gen_ai.client.operation.time_per_output_chunk", "histogram", "s",
    "Time from one chunk of a stream to the next; of more than 8 chunks, for 4 to 7 evenly spread ones.",
    FIRST_CHUNK.attributes, "Does the answer flow, or stall?", SECONDS,
)  # fmt: skip

INFERENCE_DURATION = replace(OPERATION_DURATION, name="gen_ai.client.inference.duration")
INFERENCE_FIRST_CHUNK = replace(FIRST_CHUNK, name="gen_ai.client.inference.time_to_first_chunk")
INFERENCE_OUTPUT_CHUNK = replace(OUTPUT_CHUNK, name="gen_ai.client.inference.time_per_output_chunk")
INFERENCE_INPUT = Metric(
    "gen_ai.client.inference.operation.input_tokens", "histogram", "{token}",
    "Tokens of a call's prompt; 0 where the provider told none.", OPERATION_DURATION.attributes,
    "How long are prompts?", TOKENS,
)  # fmt: skip
INFERENCE_OUTPUT = replace(
    INFERENCE_INPUT, name="gen_ai.client.inference.operation.output_tokens", answers="How long are answers?",
    brief="Tokens that a call generated; 0 where the provider told none.",
)  # fmt: skip
INFERENCE_USAGE: Final = {
    each: Metric(
        f"gen_ai.client.inference.usage.{name}", "counter", "{token}", brief,
        (OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, SERVER_ADDRESS, SERVER_PORT, TOKEN_MODALITY),
        "How many tokens are used?",
    )
    for each, name, brief in (
        ("input_tokens", "input_tokens", "Tokens of prompts, cached ones included."),
        ("output_tokens", "output_tokens", "Tokens generated, reasoning included."),
        ("cache_read_tokens", "cache_read.input_tokens", "Prompt tokens read from a cache."),
        ("cache_write_tokens", "cache_write.input_tokens", "Prompt tokens put into a cache."),
        ("reasoning_tokens", "reasoning.output_tokens", "Generated tokens that were reasoning."),
    )
}  # fmt: skip
"""By the field of a `Usage`."""


@dataclass(frozen=True, slots=True)
class Generation:
    """What one generation of the conventions calls the times of a call."""

    duration: Metric
    first_chunk: Metric
    output_chunk: Metric


OPERATION_METRICS: Final = Generation(OPERATION_DURATION, FIRST_CHUNK, OUTPUT_CHUNK)
"""As released (v1.41), and as most instrumentations emit them; tokens are `gen_ai.client.token.usage`."""
INFERENCE_METRICS: Final = Generation(INFERENCE_DURATION, INFERENCE_FIRST_CHUNK, INFERENCE_OUTPUT_CHUNK)
"""As semantic-conventions-genai has them since (its migration.md)."""

SEMCONV: Final = {
    "default": (OPERATION_METRICS,),
    "gen_ai_latest_experimental": (INFERENCE_METRICS,),
    "gen_ai_latest_experimental/dup": (OPERATION_METRICS, INFERENCE_METRICS),
}
"""Which generations are emitted, by the words of OTEL_SEMCONV_STABILITY_OPT_IN; `/dup` means both there."""

SUCCESSORS: Final[Mapping[Metric, tuple[tuple[Metric, Mapping[Attribute, str]], ...]]] = {
    OPERATION_DURATION: ((INFERENCE_DURATION, {}),),
    FIRST_CHUNK: ((INFERENCE_FIRST_CHUNK, {}),),
    OUTPUT_CHUNK: ((INFERENCE_OUTPUT_CHUNK, {}),),
    TOKEN_USAGE: ((INFERENCE_INPUT, {TOKEN_TYPE: "input"}), (INFERENCE_OUTPUT, {TOKEN_TYPE: "output"})),
}
"""What a metric is called in the later generation, with the attributes that the new name says instead."""

METRICS: Final = (*_declared(Metric), *INFERENCE_USAGE.values())

INFERENCE: Final = (
    OPERATION, PROVIDER, REQUEST_MODEL, REQUEST_MAX_TOKENS, REQUEST_STREAM, REQUEST_CHOICES, REQUEST_TEMPERATURE,
    REQUEST_TOP_P, REQUEST_TOP_K, REQUEST_SEED, REQUEST_REASONING_LEVEL, REQUEST_PREVIOUS_RESPONSE,
    OUTPUT_TYPE, RESPONSE_ID, RESPONSE_MODEL, FINISH_REASONS, RESPONSE_FIRST_CHUNK,
    INPUT_TOKENS, OUTPUT_TOKENS, REASONING_TOKENS, CACHE_READ_TOKENS, CACHE_WRITE_TOKENS, CONVERSATION, SERVER_ADDRESS,
    SERVER_PORT, ERROR_TYPE, REASON, RAW, STOP_TRUNCATED, SUSPECTED, TURN_ID, ITERATION, CONTINUATION_INDEX,
)  # fmt: skip
"""What is known of one call to a provider."""

# --- Events -------------------------------------------------------------------------------------------------------

STOP_REASON_OBSERVED = Event(
    "endturn.stop_reason_observed", "info", "A response arrived, and why it stopped.",
    "%(gen_ai.request.model)s stopped: %(endturn.stop.reason)s (%(endturn.stop.raw)s)",
    (PROVIDER, REQUEST_MODEL, REASON, RAW, TURN_ID, ITERATION), "WARN when it was truncated",
)  # fmt: skip
CONTINUATION_ATTEMPT = Event(
    "endturn.continuation_attempt", "info", "The rest of a cut answer is about to be asked for.",
    "%(gen_ai.request.model)s is asked for the rest: continuation %(endturn.continuation.index)s, "
    "%(endturn.continuation.strategy)s",
    (PROVIDER, REQUEST_MODEL, TURN_ID, CONTINUATION_INDEX, STRATEGY, TOKENS_SO_FAR, CHARS_SO_FAR, ATTEMPTS_LEFT,
     TOKENS_LEFT, CHARS_LEFT, ESTIMATED),
)  # fmt: skip
CONTINUATION_TERMINATED = Event(
    "endturn.continuation_terminated", "warn", "A turn that was truncated has ended.",
    "cut turn of %(gen_ai.request.model)s ended: %(endturn.turn.outcome)s, "
    "%(endturn.continuation.attempts)s continuations",
    (PROVIDER, REQUEST_MODEL, TURN_ID, OUTCOME, ATTEMPTS, TURN_REPAIRS, TOKENS_SO_FAR, CHARS_SO_FAR, ESTIMATED),
    "INFO when it was completed, or continuing is not allowed; ERROR on the four budgets and `retry_limit`, else WARN",
)  # fmt: skip
TOOL_PAYLOAD_REPAIR = Event(
    "endturn.tool_payload_repair", "warn", "A tool payload was cut or could not be verified.",
    "tool payload of %(gen_ai.request.model)s: %(endturn.repair.issue)s",
    (PROVIDER, REQUEST_MODEL, TURN_ID, ISSUE, REPAIR_CALLS, ATTEMPTED, SUCCEEDED),
)  # fmt: skip
TOOL_DISPATCH_BLOCKED = Event(
    "endturn.tool_dispatch_blocked", "warn", "Tool calls were not run.",
    "%(endturn.block.calls)s tool calls of %(gen_ai.request.model)s were not run: %(endturn.block.reason)s",
    (PROVIDER, REQUEST_MODEL, TURN_ID, BLOCK_REASON, BLOCKED_CALLS, BLOCKED_NAMES),
)  # fmt: skip
STOP_REASON_UNMAPPED = Event(
    "endturn.stop_reason_unmapped", "warn", "A stop reason has no row; said once per provider, model and value.",
    "%(gen_ai.provider.name)s gave the stop reason %(endturn.stop.raw)s, which has no row",
    (PROVIDER, REQUEST_MODEL, RAW),
)  # fmt: skip
TERMINATION_SIGNAL = Event(
    "endturn.termination_signal", "info", "The model ended its turn on purpose, or was found to have done so.",
    "the turn was ended by %(endturn.termination.signal)s: %(endturn.termination.status)s",
    (TURN_ID, SIGNAL, STATUS, ITERATION, MAX_ITERATIONS, REQUIRES_REVIEW),
)  # fmt: skip

INFERENCE_DETAILS = Event(
    "gen_ai.client.inference.operation.details", "info",
    "A call to a provider, with what was said in it. The conventions' own; only where the host asked for it.",
    "call to %(gen_ai.request.model)s",
    (*INFERENCE, *CONTENT),
)  # fmt: skip

EVENTS: Final = _declared(Event)

# --- Spans --------------------------------------------------------------------------------------------------------

CHAT_SPAN = Span(
    "{gen_ai.operation.name} {gen_ai.request.model}", "client",
    "One attempt to call a provider: an HTTP request and its answer. Where another instrumentation makes this span, "
    "ours enriches it.",
    (*INFERENCE, COUNTED, *CONTENT),
)  # fmt: skip
TURN_SPAN = Span(
    "invoke_agent {gen_ai.agent.name}", "internal",
    "One explicit turn: from the user's input to the answer handed back, with the tokens of all its calls. An agent's "
    "span of another instrumentation is given our attributes instead.",
    (OPERATION, PROVIDER, REQUEST_MODEL, AGENT, CONVERSATION, TURN_ID, OUTCOME, COMPLETE, TRUNCATED, CONTINUED,
     ITERATIONS, CONTINUATIONS, TURN_REPAIRS, INFERRED, INPUT_TOKENS, OUTPUT_TOKENS, ESTIMATED, ERROR_TYPE),
)  # fmt: skip
TOOL_SPAN = Span(
    "execute_tool {gen_ai.tool.name}", "internal", "One tool call that passed the gate and was run.",
    (OPERATION, TOOL_NAME, TOOL_CALL_ID, TURN_ID, ERROR_TYPE),
)  # fmt: skip

SPANS: Final = _declared(Span)

_SIGNALS: Final[tuple[Span | Event | Metric, ...]] = (*SPANS, *EVENTS, *METRICS)

ATTRIBUTES: Final = tuple(
    sorted(
        {attribute for signal in _SIGNALS for attribute in signal.attributes},
        key=lambda attribute: attribute.key,
    )
)

METRIC_EMITTERS: Final = (
    "opentelemetry.instrumentation.genai.openai",
    "opentelemetry.instrumentation.genai.anthropic",
    "opentelemetry.util.genai",
    "opentelemetry.instrumentation.openai",
    "opentelemetry.instrumentation.anthropic",
    "pydantic-ai",
)
"""Scopes whose instrumentations already record the `gen_ai.client.*` metrics: adopting their span, we do not again.

OpenTelemetry's, OpenLLMetry's; Pydantic AI's, which lacks the duration. What is below a scope is meant too.
"""


CONTENT_EMITTERS: Final = ("opentelemetry.instrumentation.genai", "opentelemetry.util.genai")
"""Scopes whose instrumentations record what is said where the conventions' variable asks for it, as we do."""


def finish_reason(reason: StopReason, raw: str | None) -> str:
    """The conventions' word for a reason (gen-ai-output-messages schema, FinishReason); raw where it has none."""
    return _FINISH.get(reason) or ("compaction" if raw == "compaction" else raw or reason.value)


_FINISH: Final = {
    StopReason.END_TURN: "stop",
    StopReason.TOOL_CALL: "tool_call",
    StopReason.MAX_TOKENS: "length",
    StopReason.CONTEXT_WINDOW_EXCEEDED: "length",
    StopReason.SAFETY_BLOCKED: "content_filter",
    StopReason.REFUSED: "content_filter",
    StopReason.CANCELLED: "error",
    StopReason.ERROR: "error",
    # semconv-genai#363: a position whose reason never arrived reports `error`.
    StopReason.MISSING: "error",
}
