"""Every rate and number that dashboards, alerts and the local page show: its question, its formula, what is too much.

Formulas are structures over the schema's metrics, not query text, so that each reader renders them in its own language:
PromQL over recorded increments in `generate`, SQL in the local page. A `Count` is recorded once; everything else is a
part of one, or one part divided by another. On every turn metric provider and model are those of the turn's first
truncated response, else of its first call, so both sides of a turn rate carry the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from endturn.records import BUDGETS, STOPPED_BY_PERSON, TurnOutcome
from endturn.stop import TRUNCATED, StopReason
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric

Condition = tuple[Attribute, frozenset[str]]
Unit = Literal["events", "share", "seconds"]


def _is(attribute: Attribute, *values: str) -> Condition:
    return attribute, frozenset(map(str, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """Events of one counter, or values of one histogram, that are recorded together.

    Attributes:
        name: tells it from the others, e.g. "turn_exits".
        by: what they can be told apart by afterwards, besides the service.
        only, never: which of the metric's events belong to it.
    """

    name: str
    metric: Metric
    by: tuple[Attribute, ...] = schema.CALL
    only: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where a value deserves a look, and from where somebody should act. Lower is better everywhere."""

    look: float
    act: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Some of a Count's events."""

    count: Count
    only: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """How many.

    Attributes:
        advice: what to do about it.
    """

    name: str
    title: str
    question: str
    part: Part
    formula: str
    advice: str
    thresholds: Thresholds | None = None
    unit: Unit = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """One part divided by another: zero where nothing bad happened, undefined where nothing happened."""

    name: str
    title: str
    question: str
    part: Part
    whole: Part
    formula: str
    advice: str
    thresholds: Thresholds
    unit: Unit = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How a histogram's values are distributed."""

    name: str
    title: str
    question: str
    part: Part
    advice: str
    unit: Unit


PERSON: Final = _is(schema.OUTCOME, *STOPPED_BY_PERSON)
"""Turns that a person stopped: neither a success nor a failure to finish, so in no turn rate."""
GIVEN_UP: Final = _is(schema.OUTCOME, TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT, *BUDGETS)
"""Outcomes in which continuing was tried, and a limit of the policy ended it."""

ANSWERS: Final = _is(schema.REASON, *(reason for reason in StopReason if reason is not StopReason.ERROR))
"""Responses that are no errors: an SDK that tries three times gets two errors and one answer."""

# --- What is recorded ---------------------------------------------------------------------------------------------

RESPONSES = Count(name="responses", metric=schema.RESPONSES, by=(*schema.CALL, schema.REASON))
TURNS = Count(name="turns", metric=schema.TURNS, by=(*schema.CALL, schema.OUTCOME))
TRUNCATED_TURNS = Count(
    name="turns_truncated",
    metric=schema.TURNS,
    by=(*schema.CALL, schema.OUTCOME),
    only=(_is(schema.TRUNCATED, "true"),),
    never=(PERSON,),
)
CONTINUED_TURNS = Count(name="turns_continued", metric=schema.TURNS, only=(_is(schema.CONTINUED, "true"),))
EXITS = Count(name="turn_exits", metric=schema.TRUNCATION_EXITS, by=(*schema.CALL, schema.OUTCOME), never=(PERSON,))
CONTINUATIONS = Count(name="continuations", metric=schema.CONTINUATIONS_METRIC, by=(*schema.CALL, schema.STRATEGY))
REPAIRS = Count(name="tool_payload_repairs", metric=schema.REPAIRS, by=(*schema.CALL, schema.REPAIR_RESULT))
BLOCKED = Count(name="tool_calls_blocked", metric=schema.BLOCKED, by=(*schema.CALL, schema.BLOCK_REASON))
SUSPECTED = Count(name="truncations_suspected", metric=schema.SUSPECTED_METRIC)
UNMAPPED = Count(name="stop_reasons_unmapped", metric=schema.UNMAPPED)
CAPPED = Count(name="series_capped", metric=schema.SERIES_CAPPED, by=(schema.CAPPED,))
LISTENER_FAILURES = Count(name="listener_failures", metric=schema.LISTENER_FAILURES, by=(schema.LISTENER,))
ATTEMPTS = Count(name="turn_continuations", metric=schema.TURN_CONTINUATIONS)
DURATIONS = Count(name="turn_duration", metric=schema.TURN_DURATION, by=(*schema.CALL, schema.CONTINUED))
OUTPUTS = Count(name="turn_output", metric=schema.TURN_OUTPUT, by=(*schema.CALL, schema.COMPLETE))
BUDGETS_USED = Count(name="budget_used", metric=schema.BUDGET_USED)
CONTINUATION_TOKENS = Count(
    name="continuation_tokens", metric=schema.CONTINUATION_TOKENS, by=(*schema.CALL, schema.TOKEN_TYPE)
)
CONTINUATION_COST = Count(name="continuation_cost", metric=schema.CONTINUATION_COST)

COUNTS: Final = (
    RESPONSES, TURNS, TRUNCATED_TURNS, CONTINUED_TURNS, EXITS, CONTINUATIONS, REPAIRS, BLOCKED, SUSPECTED, UNMAPPED,
    CAPPED, LISTENER_FAILURES, ATTEMPTS, DURATIONS, OUTPUTS, BUDGETS_USED, CONTINUATION_TOKENS, CONTINUATION_COST,
)  # fmt: skip

# --- What is shown ------------------------------------------------------------------------------------------------

NOT_CONTINUED = Rate(
    name="truncation_without_continuation",
    title="Truncation without continuation",
    question="Of the turns that were cut off, how many stayed so?",
    part=Part(count=EXITS),
    whole=Part(count=TRUNCATED_TURNS),
    formula="turns that ended while a truncated response stood unfinished ÷ turns with a truncated response; "
    "turns that a person stopped are in neither",
    advice="Somebody was handed half an answer. See the outcomes below: `not_continued` is a loop that never asks for "
    "the rest, a limit is a continuation policy that gave up.",
    thresholds=Thresholds(look=0.01, act=0.05),
)
TRUNCATION = Rate(
    name="truncation",
    title="Truncation rate",
    question="How many responses are cut off?",
    part=Part(count=RESPONSES, only=(_is(schema.REASON, *TRUNCATED),)),
    whole=Part(count=RESPONSES, only=(ANSWERS,)),
    formula="responses with reason max_tokens, context_window_exceeded or missing ÷ all responses but errors",
    advice="Each costs another call even where it is continued. Raise max_tokens for the models concerned.",
    thresholds=Thresholds(look=0.05, act=0.2),
)
REPAIR_FAILURE = Rate(
    name="repair_failure",
    title="Tool payload repair failures",
    question="Does asking again for a cut tool payload help?",
    part=Part(count=REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed"),)),
    whole=Part(count=REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed", "succeeded"),)),
    formula="failed repairs ÷ attempted repairs",
    advice="The payload probably never fits: raise max_tokens where tools are offered, or split what the tool takes.",
    thresholds=Thresholds(look=0.2, act=0.5),
)

TURN_NUMBER = Number(
    name="turns",
    title="Turns",
    question="How much was asked?",
    part=Part(count=TURNS),
    formula="turns, however they ended",
    advice="Context for the rates.",
)
RESPONSE_NUMBER = Number(
    name="responses",
    title="Responses",
    question="How many responses did models give?",
    part=Part(count=RESPONSES),
    formula="responses, for whatever reason they stopped, each attempt for itself",
    advice="Without the errors it is the denominator of the truncation rate.",
)
CONTINUATION_NUMBER = Number(
    name="continuations",
    title="Continuations",
    question="How often was the rest of an answer asked for?",
    part=Part(count=CONTINUATIONS),
    formula="continuations requested",
    advice="Each is a call that a larger max_tokens would have saved.",
)
GIVEN_UP_NUMBER = Number(
    name="given_up",
    title="Given up",
    question="How many truncated turns were continued, but not finished within the policy's limits?",
    part=Part(count=EXITS, only=(GIVEN_UP,)),
    formula="unfinished turns with outcome retry_limit, resume_limit or one of the four budgets",
    advice="Raise the limit that ends them, or max_tokens.",
    thresholds=Thresholds(look=1, act=10),
)
UNMAPPED_NUMBER = Number(
    name="stop_reasons_unmapped",
    title="Unknown stop reasons",
    question="Has a provider's vocabulary drifted?",
    part=Part(count=UNMAPPED),
    formula="responses whose stop reason has no row",
    advice="The raw value is in the event endturn.stop_reason_unmapped; it needs a row in the provider's table.",
    thresholds=Thresholds(look=1, act=10),
)
SUSPECTED_NUMBER = Number(
    name="truncations_suspected",
    title="Suspected truncations",
    question="Which responses claim a clean stop although they used the whole token budget?",
    part=Part(count=SUSPECTED),
    formula="responses that claim a clean stop and used the whole token budget",
    advice="A server or an emitter probably hides truncations: compare the raw reason with the documentation.",
    thresholds=Thresholds(look=1, act=10),
)
BLOCKED_NUMBER = Number(
    name="tool_calls_blocked",
    title="Blocked tool calls",
    question="What did the gate keep from running?",
    part=Part(count=BLOCKED),
    formula="tool calls that were not run",
    advice="`truncated` protects from half a payload and points at max_tokens; the other reasons point at the model.",
)
REPAIR_NUMBER = Number(
    name="tool_payload_repairs",
    title="Tool payload repairs",
    question="How often is a tool payload cut, and does asking again help?",
    part=Part(count=REPAIRS),
    formula="cut or unverified tool payloads",
    advice="Many failures: raise max_tokens where tools are offered. `not_attempted`: the policy allows no repair.",
)
ATTEMPT_SPREAD = Spread(
    name="attempts",
    title="Attempts per truncated turn",
    question="How many continuations does a truncated turn take?",
    part=Part(count=ATTEMPTS),
    advice="Mostly one: fine. Often three or more: max_tokens is far too small for what is asked.",
    unit="events",
)
DURATION_SPREAD = Spread(
    name="turn_duration",
    title="Turn duration",
    question="How long do people wait, and how much longer for continued turns?",
    part=Part(count=DURATIONS),
    advice="The gap between the two is what truncation costs in time; a larger max_tokens closes it.",
    unit="seconds",
)

INDICATORS: Final = (
    NOT_CONTINUED, TRUNCATION, REPAIR_FAILURE, TURN_NUMBER, RESPONSE_NUMBER, CONTINUATION_NUMBER, GIVEN_UP_NUMBER,
    UNMAPPED_NUMBER, SUSPECTED_NUMBER, BLOCKED_NUMBER, REPAIR_NUMBER, ATTEMPT_SPREAD, DURATION_SPREAD,
)  # fmt: skip

REASON_COLOURS: Final = {
    StopReason.END_TURN: "green",
    StopReason.TOOL_CALL: "blue",
    StopReason.MAX_TOKENS: "orange",
    StopReason.CONTEXT_WINDOW_EXCEEDED: "dark-orange",
    StopReason.MISSING: "red",
    StopReason.SAFETY_BLOCKED: "purple",
    StopReason.REFUSED: "light-purple",
    StopReason.PAUSED: "light-blue",
    StopReason.CANCELLED: "#8e8e8e",
    StopReason.ERROR: "dark-red",
    StopReason.UNKNOWN: "yellow",
}
"""One colour for each reason, everywhere: calm where the model finished, warm where it was cut off."""
