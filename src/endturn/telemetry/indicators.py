"""The indicators: all rates and counts of dashboards, alerts and the local page.

Each has a question, a formula and thresholds. Formulas are structures over the schema's metrics,
not query text, and each reader renders them in its own language: PromQL in `generate`, SQL in the
local page. The provider and model of all turn metrics are those of the turn's first truncated
response, else of its first call, so numerator and denominator of a turn rate have the same labels.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import Final

from endturn.calls import BUDGETS, STOPPED_BY_PERSON, TurnOutcome
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Metric
from endturn.vocabulary import TRUNCATED, StopReason, shipped

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
    """A count, or a share if `denominator` is set. The texts are those of data/indicators.toml.

    A share is undefined if its denominator is zero.

    Attributes:
        count: the count, or a share's numerator; denominator: a share's.
        formula: the same in words; advice: what to do about a bad value.
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

_COUNTS: Final[dict[str, tuple[Count, ...]]] = {
    "unfinished_share": (UNFINISHED_TURNS, TRUNCATED_TURNS),
    "truncation": (TRUNCATED_RESPONSES, Count(schema.RESPONSES, only=(ANSWERS,))),
    "repair_failure": (FAILED_REPAIRS, REPAIRED),
    "incomplete": (INCOMPLETE, Count(schema.TURN_OUTPUT)),
    "turns": (Count(schema.TURNS),),
    "truncated_turns": (TRUNCATED_TURNS,),
    "unfinished": (UNFINISHED_TURNS,),
    "given_up": (Count(schema.TRUNCATION_EXITS, only=(GIVEN_UP,)),),
    "responses": (Count(schema.RESPONSES),),
    "truncated_responses": (TRUNCATED_RESPONSES,),
    "withheld": (Count(schema.RESPONSES, only=(WITHHELD,)),),
    "continuations": (Count(schema.CONTINUATIONS_METRIC),),
    "unknown": (Count(schema.UNMAPPED),),
    "suspected": (Count(schema.SUSPECTED_METRIC),),
    "blocked": (Count(schema.BLOCKED),),
    "repairs": (Count(schema.REPAIRS),),
    "continuation_tokens": (Count(schema.CONTINUATION_TOKENS),),
    "continuation_cost": (Count(schema.CONTINUATION_COST),),
    "recording_failures": (Count(schema.LISTENER_FAILURES),),
    "capped": (Count(schema.SERIES_CAPPED),),
}
"""The count of each indicator, and a share's denominator."""


def _indicators() -> dict[str, Indicator]:
    """Return the indicators by name.

    Raises:
        KeyError, TypeError: data/indicators.toml does not fit the counts.
    """
    words = tomllib.loads(shipped().joinpath("indicators.toml").read_text("utf-8"))
    if unpaired := sorted(words.keys() ^ _COUNTS.keys()):
        raise KeyError(f"not in both indicators.py and data/indicators.toml: {', '.join(unpaired)}")
    indicators = {}
    for name, (count, *denominators) in _COUNTS.items():
        row = words[name]
        limits = Thresholds(look=row.pop("look"), act=row.pop("act")) if "look" in row else None
        indicators[name] = Indicator(
            count=count, denominator=next(iter(denominators), None), thresholds=limits, **row
        )
    return indicators


INDICATORS: Final = _indicators()
