"""The indicators: all rates and counts of dashboards, alerts and the local page.

Each has a question, a formula and thresholds. Formulas are structures over the schema's metrics,
not query text, and each reader renders them in its own language: PromQL in `generate`, SQL in the
local page. The provider and model of all turn metrics are those of the turn's first truncated
response, else of its first call, so numerator and denominator of a turn rate have the same labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.calls import BUDGETS, STOPPED_BY_PERSON, TurnOutcome
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric
from endturn.vocabulary import TRUNCATED, StopReason

Condition = tuple[Attribute, frozenset[str]]


def _is(attribute: Attribute, *values: str) -> Condition:
    return attribute, frozenset(map(str, values))


@dataclass(frozen=True, slots=True)
class Count:
    """Events of a counter, or values of a histogram: with the labels `only`, without `never`."""

    metric: Metric
    only: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()


ENOUGH_EVENTS: Final = 20
"""Minimum number of events for a verdict. With fewer, a good value is shown without one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The values from which an indicator needs a look, and from which it needs action.

    Lower is better for all indicators.
    """

    look: float
    act: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicator:
    """A count, or a share if `denominator` is set.

    Lower is better everywhere. A share is zero where nothing bad happened, and undefined where
    nothing happened.

    Attributes:
        title, question, formula, advice: texts of dashboards, alerts and the reference: the name,
            the question that it answers, what is counted, and what to do about it.
        thresholds: None of a number that is no verdict.
    """

    count: Count
    denominator: Count | None = None
    title: str
    question: str
    formula: str
    advice: str
    thresholds: Thresholds | None = None


PERSON: Final = _is(schema.OUTCOME, *STOPPED_BY_PERSON)
"""Turns that a person or a timeout cancelled. They are neither finished nor unfinished, so no turn
rate has them."""
GIVEN_UP: Final = _is(schema.OUTCOME, TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT, *BUDGETS)
"""Outcomes of turns that were continued until a limit of the policy."""
ANSWERS: Final = _is(
    schema.REASON, *(reason for reason in StopReason if reason is not StopReason.ERROR)
)
"""Responses without errors: three attempts of an SDK may be two errors and one answer."""

TURNS: Final = Count(schema.TURNS, never=(PERSON,))
TRUNCATED_TURNS: Final = Count(schema.TURNS, only=(_is(schema.TRUNCATED, "true"),), never=(PERSON,))
UNFINISHED_TURNS: Final = Count(schema.TRUNCATION_EXITS, never=(PERSON,))

TRUNCATED_RESPONSES: Final = Count(schema.RESPONSES, only=(_is(schema.REASON, *TRUNCATED),))

REPAIRED: Final = Count(schema.REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed", "succeeded"),))
FAILED_REPAIRS: Final = Count(schema.REPAIRS, only=(_is(schema.REPAIR_RESULT, "failed"),))
INCOMPLETE: Final = Count(schema.TURN_OUTPUT, only=(_is(schema.COMPLETE, "false"),))
WITHHELD: Final = _is(
    schema.REASON, StopReason.SAFETY_BLOCKED, StopReason.REFUSED, StopReason.ERROR
)

INDICATORS: Final[dict[str, Indicator]] = {
    "unfinished_share": Indicator(
        count=UNFINISHED_TURNS,
        denominator=TRUNCATED_TURNS,
        title="Truncation without continuation",
        question="What share of truncated turns stayed unfinished?",
        formula=(
            "turns that ended with an unfinished truncated response ÷ turns with a truncated "
            "response; cancelled turns count in neither"
        ),
        advice=(
            "Users got truncated answers. Check the outcome: `not_continued` is a loop that "
            "never asks for the rest, a limit is a continuation policy that gave up."
        ),
        thresholds=Thresholds(look=0.01, act=0.05),
    ),
    "truncation": Indicator(
        count=TRUNCATED_RESPONSES,
        denominator=Count(schema.RESPONSES, only=(ANSWERS,)),
        title="Truncation rate",
        question="What share of responses is truncated?",
        formula=(
            "responses with reason max_tokens, context_window_exceeded or missing ÷ all "
            "responses except errors"
        ),
        advice=(
            "Each costs another call even if it is continued. Raise max_tokens for the "
            "models concerned."
        ),
        thresholds=Thresholds(look=0.05, act=0.2),
    ),
    "repair_failure": Indicator(
        count=FAILED_REPAIRS,
        denominator=REPAIRED,
        title="Tool payload repair failures",
        question="What share of tool payload repairs fails?",
        formula="failed repairs ÷ attempted repairs",
        advice=(
            "The payload probably never fits: raise max_tokens on requests with tools, or "
            "split the tool's input."
        ),
        thresholds=Thresholds(look=0.2, act=0.5),
    ),
    "incomplete": Indicator(
        count=INCOMPLETE,
        denominator=Count(schema.TURN_OUTPUT),
        title="Incomplete turns",
        question="Can the recommended limit be trusted?",
        formula="turns whose answer is incomplete ÷ all turns with output",
        advice="Above 1% the recommended limit is a lower bound: raise it, and check again.",
        thresholds=Thresholds(look=0.01, act=0.1),
    ),
    "turns": Indicator(
        count=Count(schema.TURNS),
        title="Turns",
        question="How many turns were there?",
        formula="turns, with any outcome",
        advice="Context for the rates.",
    ),
    "truncated_turns": Indicator(
        count=TRUNCATED_TURNS,
        title="Truncated turns",
        question="How many turns were truncated at least once?",
        formula="turns with a truncated response; cancelled turns are excluded",
        advice="Each of them was either continued or left unfinished.",
    ),
    "unfinished": Indicator(
        count=UNFINISHED_TURNS,
        title="Unfinished turns",
        question="How many turns ended with a truncated answer?",
        formula=(
            "turns that ended with an unfinished truncated response; cancelled turns are excluded"
        ),
        advice=(
            "`not_continued`: the loop never asks for the rest. `retry_limit` or a budget: "
            "the policy gave up. `stream_cut`: the connection broke."
        ),
        thresholds=Thresholds(look=1, act=10),
    ),
    "given_up": Indicator(
        count=Count(schema.TRUNCATION_EXITS, only=(GIVEN_UP,)),
        title="Given up",
        question=(
            "How many truncated turns were continued, but not finished within the policy's limits?"
        ),
        formula=(
            "unfinished turns with outcome retry_limit, resume_limit or one of the four budgets"
        ),
        advice="Raise the limit that ends them, or max_tokens.",
        thresholds=Thresholds(look=1, act=10),
    ),
    "responses": Indicator(
        count=Count(schema.RESPONSES),
        title="Responses",
        question="How many responses did models send?",
        formula="responses, with any stop reason; each attempt counts",
        advice="Without errors it is the denominator of the truncation rate.",
    ),
    "truncated_responses": Indicator(
        count=TRUNCATED_RESPONSES,
        title="Truncated responses",
        question="Why are responses truncated?",
        formula="responses with reason max_tokens, context_window_exceeded or missing",
        advice=(
            "`max_tokens`: raise the limit. `context_window_exceeded`: shorten the prompt. "
            "`missing`: streams lose their connection; check timeouts and proxies."
        ),
    ),
    "withheld": Indicator(
        count=Count(schema.RESPONSES, only=(WITHHELD,)),
        title="Withheld and failed responses",
        question="How many answers were withheld or failed?",
        formula="responses with reason safety_blocked, refused or error",
        advice=(
            "They are not truncations, and never continued. A jump means that prompts or a "
            "provider's filter changed."
        ),
    ),
    "continuations": Indicator(
        count=Count(schema.CONTINUATIONS_METRIC),
        title="Continuations",
        question="How often did an agent ask for the rest of an answer?",
        formula="continuations requested",
        advice="A larger max_tokens would have saved each of these calls.",
    ),
    "unknown": Indicator(
        count=Count(schema.UNMAPPED),
        title="Unknown stop reasons",
        question="Has a provider's vocabulary drifted?",
        formula="responses whose stop reason is in no table",
        advice=(
            "The raw value is in the event endturn.stop_reason_unmapped; it needs a row in "
            "the provider's table."
        ),
        thresholds=Thresholds(look=1, act=10),
    ),
    "suspected": Indicator(
        count=Count(schema.SUSPECTED_METRIC),
        title="Suspected truncations",
        question=(
            "Which responses report a normal stop although they used the entire token limit?"
        ),
        formula="responses with a normal stop that used the entire token limit",
        advice=(
            "A server or an emitter probably hides truncations: compare the raw reason with "
            "its documentation."
        ),
        thresholds=Thresholds(look=1, act=10),
    ),
    "blocked": Indicator(
        count=Count(schema.BLOCKED),
        title="Blocked tool calls",
        question="Which tool calls did the gate block?",
        formula="tool calls that were not run",
        advice=(
            "`truncated`: the payload was incomplete; check max_tokens. The other reasons "
            "are problems of the model's output."
        ),
    ),
    "repairs": Indicator(
        count=Count(schema.REPAIRS),
        title="Tool payload repairs",
        question="How often is a tool payload truncated, and does a repair help?",
        formula="truncated or unverified tool payloads",
        advice=(
            "Many failures: raise max_tokens on requests with tools. `not_attempted`: the "
            "policy allows no repair."
        ),
    ),
    "continuation_tokens": Indicator(
        count=Count(schema.CONTINUATION_TOKENS),
        title="Tokens of continuation calls",
        question="What do continuations cost in tokens?",
        formula="input and output tokens of continuation calls",
        advice=(
            "Much input for little output: long prompts are sent again for a few missing "
            "words. Raise max_tokens."
        ),
    ),
    "continuation_cost": Indicator(
        count=Count(schema.CONTINUATION_COST),
        title="Cost of continuation calls",
        question="What do continuations cost in money?",
        formula="US dollars of continuation calls, by the prices of the policy",
        advice=("Compare with the value of the answers; a cost budget in the policy limits it."),
    ),
    "recording_failures": Indicator(
        count=Count(schema.LISTENER_FAILURES),
        title="Recording failures",
        question="Is endturn itself failing?",
        formula="records that a listener lost",
        advice=(
            "The agent continued; these records are missing. The logger `endturn` has the "
            "exception."
        ),
        thresholds=Thresholds(look=1, act=10),
    ),
    "capped": Indicator(
        count=Count(schema.SERIES_CAPPED),
        title="Labels capped",
        question="Is a label unbounded?",
        formula="measurements that were recorded as `other`",
        advice=(
            "For example a model name that contains an id. Raise the cap only if there "
            "really are that many names."
        ),
        thresholds=Thresholds(look=1, act=10),
    ),
}
