"""Every rate and number that dashboards, alerts and the local page show.

Its question, its formula, what is too much.

Formulas are structures over the schema's metrics, not query text, so that each reader renders them
in its own language: PromQL in `generate`, SQL in the local page. On every turn metric provider and
model are those of the turn's first truncated response, else of its first call, so both sides of a
turn rate carry the same labels.
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
    """Events of one counter, or values of one histogram; `only` and `never` say which of them."""

    metric: Metric
    only: tuple[Condition, ...] = ()
    never: tuple[Condition, ...] = ()


ENOUGH_EVENTS: Final = 20
"""From so many events on a good value is a verdict. Of fewer, and of none, it is only a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """From where a value deserves a look, and from where somebody should act.

    Lower is better everywhere.
    """

    look: float
    act: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Indicator:
    """A count, or where there is a `whole` its part of that.

    In words, as data/indicators.toml has them.

    A share is zero where nothing bad happened, and undefined where nothing happened.

    Attributes:
        formula: the same in words; advice: what to do about it.
    """

    count: Count
    whole: Count | None = None
    title: str
    question: str
    formula: str
    advice: str
    thresholds: Thresholds | None = None


PERSON: Final = _is(schema.OUTCOME, *STOPPED_BY_PERSON)
"""Cancelled turns, by a person or a timeout: neither a success nor a failure to finish, so in no
turn rate."""
GIVEN_UP: Final = _is(schema.OUTCOME, TurnOutcome.RETRY_LIMIT, TurnOutcome.RESUME_LIMIT, *BUDGETS)
"""Outcomes in which continuing was tried, and a limit of the policy ended it."""
ANSWERS: Final = _is(
    schema.REASON, *(reason for reason in StopReason if reason is not StopReason.ERROR)
)
"""Responses that are no errors: an SDK that tries three times gets two errors and one answer."""

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
"""What each indicator counts, and of a share its whole."""


def _indicators() -> dict[str, Indicator]:
    """By name. KeyError, TypeError: the file and the counts do not fit each other."""
    words = tomllib.loads(shipped().joinpath("indicators.toml").read_text("utf-8"))
    if unpaired := sorted(words.keys() ^ _COUNTS.keys()):
        raise KeyError(f"not in both indicators.py and data/indicators.toml: {', '.join(unpaired)}")
    found = {}
    for name, (count, *whole) in _COUNTS.items():
        said = words[name]
        limits = Thresholds(look=said.pop("look"), act=said.pop("act")) if "look" in said else None
        found[name] = Indicator(
            count=count, whole=next(iter(whole), None), thresholds=limits, **said
        )
    return found


INDICATORS: Final = _indicators()
