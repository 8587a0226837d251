"""Every rate and number that dashboards, alerts and the local page show: its question, its formula, what is too much.

Formulas are structures over the schema's metrics, not query text, so that each reader renders them in its own language:
PromQL in `generate`, SQL in the local page. On every turn metric provider and model are those of the turn's first
truncated response, else of its first call, so both sides of a turn rate carry the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.records import BUDGETS, STOPPED_BY_PERSON, TurnOutcome
from endturn.stop import TRUNCATED, StopReason
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric

Condition = tuple[Attribute, frozenset[str]]


def _is(attribute: Attribute, *values: str) -> Condition:
    return attribute, frozenset(map(str, values))


@dataclass(frozen=True, slots=True)
class Count:
    """Events of one counter, or values of one histogram; `only` and `never` say which of them."""

    metric: Metric
    only: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where a value deserves a look, and from where somebody should act. Lower is better everywhere."""

    look: float
    act: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicator:
    """A count, or where there is a `whole` its part of that.

    A share is zero where nothing bad happened, and undefined where nothing happened.

    Attributes:
        formula: the same in words; advice: what to do about it.
    """

    title: str
    question: str
    count: Count
    whole: Count | None = None
    formula: str
    advice: str
    thresholds: Thresholds | None = None


PERSON: Final = _is(schema.OUTCOME, *STOPPED_BY_PERSON)
"""Turns that a person stopped: neither a success nor a failure to finish, so in no turn rate."""
GIVEN_UP: Final = _is(schema.OUTCOME, TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT, *BUDGETS)
"""Outcomes in which continuing was tried, and a limit of the policy ended it."""
ANSWERS: Final = _is(schema.REASON, *(reason for reason in StopReason if reason is not StopReason.ERROR))
"""Responses that are no errors: an SDK that tries three times gets two errors and one answer."""

TURNS: Final = Count(schema.TURNS, never=(PERSON,))
TRUNCATED_TURNS: Final = Count(schema.TURNS, only=(_is(schema.TRUNCATED, "true"),), never=(PERSON,))
UNFINISHED_TURNS: Final = Count(schema.TRUNCATION_EXITS, never=(PERSON,))

INDICATORS: Final[dict[str, Indicator]] = {
    "unfinished_share": Indicator(
        title="Truncation without continuation",
        question="Of the turns that were cut off, how many stayed so?",
        count=UNFINISHED_TURNS,
        whole=TRUNCATED_TURNS,
        formula="turns that ended while a truncated response stood unfinished ÷ turns with a truncated response; "
        "turns that a person stopped are in neither",
        advice="Somebody was handed half an answer. See how they ended: `not_continued` is a loop that never asks for "
        "the rest, a limit is a continuation policy that gave up.",
        thresholds=Thresholds(look=0.01, act=0.05),
    ),
    "truncation": Indicator(
        title="Truncation rate",
        question="How many responses are cut off?",
        count=Count(schema.RESPONSES, only=(_is(schema.REASON, *TRUNCATED),)),
        whole=Count(schema.RESPONSES, only=(ANSWERS,)),
        formula="responses with reason max_tokens, context_window_exceeded or missing ÷ all responses but errors",
        advice="Each costs another call even where it is continued. Raise max_tokens for the models concerned.",
        thresholds=Thresholds(look=0.05, act=0.2),
    ),
    "repair_failure": Indicator(
        title="Tool payload repair failures",
        question="Does asking again for a cut tool payload help?",
        count=Count(schema.REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed"),)),
        whole=Count(schema.REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed", "succeeded"),)),
        formula="failed repairs ÷ attempted repairs",
        advice="The payload probably never fits: raise max_tokens where tools are offered, or split what the tool "
        "takes.",
        thresholds=Thresholds(look=0.2, act=0.5),
    ),
    "incomplete": Indicator(
        title="Incomplete turns",
        question="Can the recommended limit be trusted?",
        count=Count(schema.TURN_OUTPUT, only=(_is(schema.COMPLETE, "false"),)),
        whole=Count(schema.TURN_OUTPUT),
        formula="turns whose answer is not whole ÷ all turns with output",
        advice="Above 1% the recommended limit is a lower bound: raise it, and look again.",
        thresholds=Thresholds(look=0.01, act=0.1),
    ),
    "turns": Indicator(
        title="Turns",
        question="How much was asked?",
        count=Count(schema.TURNS),
        formula="turns, however they ended",
        advice="Context for the rates.",
    ),
    "truncated_turns": Indicator(
        title="Truncated turns",
        question="How many turns were cut off at least once?",
        count=TRUNCATED_TURNS,
        formula="turns with a truncated response; turns that a person stopped are left out",
        advice="Each of them was either continued or left unfinished.",
    ),
    "unfinished": Indicator(
        title="Unfinished turns",
        question="How many turns were handed over half answered?",
        count=UNFINISHED_TURNS,
        formula="turns that ended while a truncated response stood unfinished; turns that a person stopped are left "
        "out",
        advice="`not_continued`: the loop never asks for the rest. `retry_limit` or a budget: the policy gave up. "
        "`stream_cut`: the connection broke.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "given_up": Indicator(
        title="Given up",
        question="How many truncated turns were continued, but not finished within the policy's limits?",
        count=Count(schema.TRUNCATION_EXITS, only=(GIVEN_UP,)),
        formula="unfinished turns with outcome retry_limit, resume_limit or one of the four budgets",
        advice="Raise the limit that ends them, or max_tokens.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "responses": Indicator(
        title="Responses",
        question="How many responses did models give?",
        count=Count(schema.RESPONSES),
        formula="responses, for whatever reason they stopped, each attempt for itself",
        advice="Without the errors it is the denominator of the truncation rate.",
    ),
    "truncated_responses": Indicator(
        title="Truncated responses",
        question="What cuts answers off?",
        count=Count(schema.RESPONSES, only=(_is(schema.REASON, *TRUNCATED),)),
        formula="responses with reason max_tokens, context_window_exceeded or missing",
        advice="`max_tokens`: raise the limit. `context_window_exceeded`: shorten the prompt. `missing`: streams break "
        "on their way; look at timeouts and proxies.",
    ),
    "withheld": Indicator(
        title="Withheld and failed responses",
        question="Which answers were not given at all?",
        count=Count(
            schema.RESPONSES,
            only=(_is(schema.REASON, StopReason.SAFETY_BLOCKED, StopReason.REFUSED, StopReason.ERROR),),
        ),
        formula="responses with reason safety_blocked, refused or error",
        advice="No truncations, and never continued. A jump means that prompts or a provider's filter changed.",
    ),
    "continuations": Indicator(
        title="Continuations",
        question="How often was the rest of an answer asked for?",
        count=Count(schema.CONTINUATIONS_METRIC),
        formula="continuations requested",
        advice="Each is a call that a larger max_tokens would have saved.",
    ),
    "unknown": Indicator(
        title="Unknown stop reasons",
        question="Has a provider's vocabulary drifted?",
        count=Count(schema.UNMAPPED),
        formula="responses whose stop reason has no row",
        advice="The raw value is in the event endturn.stop_reason_unmapped; it needs a row in the provider's table.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "suspected": Indicator(
        title="Suspected truncations",
        question="Which responses claim a clean stop although they used the whole token budget?",
        count=Count(schema.SUSPECTED_METRIC),
        formula="responses that claim a clean stop and used the whole token budget",
        advice="A server or an emitter probably hides truncations: compare the raw reason with the documentation.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "blocked": Indicator(
        title="Blocked tool calls",
        question="What did the gate keep from running?",
        count=Count(schema.BLOCKED),
        formula="tool calls that were not run",
        advice="`truncated` protects from half a payload and points at max_tokens; the other reasons point at the "
        "model.",
    ),
    "repairs": Indicator(
        title="Tool payload repairs",
        question="How often is a tool payload cut, and does asking again help?",
        count=Count(schema.REPAIRS),
        formula="cut or unverified tool payloads",
        advice="Many failures: raise max_tokens where tools are offered. `not_attempted`: the policy allows no repair.",
    ),
    "continuation_tokens": Indicator(
        title="Tokens of continuation calls",
        question="What does finishing cost in tokens?",
        count=Count(schema.CONTINUATION_TOKENS),
        formula="input and output tokens of continuation calls",
        advice="Much input for little output: long prompts are sent again for a few missing words. Raise max_tokens.",
    ),
    "continuation_cost": Indicator(
        title="Cost of continuation calls",
        question="What does finishing cost in money?",
        count=Count(schema.CONTINUATION_COST),
        formula="US dollars of continuation calls, by the prices that the policy was given",
        advice="Compare with what the answers are worth; a cost budget in the policy ends what is not.",
    ),
    "recording_failures": Indicator(
        title="Recording failures",
        question="Is endturn itself failing?",
        count=Count(schema.LISTENER_FAILURES),
        formula="records that a listener lost",
        advice="The agent went on; its telemetry is short of these. The logger `endturn` has the exception.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "capped": Indicator(
        title="Labels capped",
        question="Is a label unbounded?",
        count=Count(schema.SERIES_CAPPED),
        formula="measurements that were put under `other`",
        advice="A model name with an id in it, for example. Raise the cap only where the names are really that many.",
        thresholds=Thresholds(look=1, act=10),
    ),
}
