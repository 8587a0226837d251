"""The headline of the overview: how many truncated turns stayed unfinished, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from endturn.calls import TurnOutcome
from endturn.telemetry import ENOUGH_EVENTS, UNFINISHED_TURNS, Count, schema
from endturn.ui.formatting import count
from endturn.ui.limits import CutCause, NeededLimit, TruncationGroup, needed_limit
from endturn.ui.views import View

MOST_CHANGES: Final = 3
"""Causes that the headline names; it only counts the others."""
MOST_NAME: Final = 40
"""Characters of a model's name in the headline."""
NOT_CONTINUED: Final = Count(
    UNFINISHED_TURNS.metric,
    only=((schema.OUTCOME, frozenset({TurnOutcome.NOT_CONTINUED.value})),),
)
"""Unfinished turns in which nothing asked for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendedChange:
    """Unfinished turns of one model with one cause, and what to change.

    Attributes:
        turns: The number of turns.
        model: The model, with its service if the view has several.
        text: The rest of the sentence.
        link: The address of the turns.
    """

    turns: int
    model: str
    text: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The first card of the overview.

    Attributes:
        share: Share of truncated turns that ended unfinished; None if none was truncated.
        color: The verdict: `lost` or `good`, or "" without one.
        sentence: What happened, with the numbers.
        listed: Unfinished turns that are stored; the other numbers may come from metrics.
        link: The address of that list.
        changes: What to change, most turns first.
        others: Unfinished turns that `changes` does not cover.
    """

    share: float | None
    color: str
    sentence: str
    listed: int
    link: str
    changes: tuple[RecommendedChange, ...]
    others: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCounts:
    """The numbers of turns in a view.

    Attributes:
        turns: Turns that ended; None if unknown.
        truncated, unfinished: How many of them were truncated, and ended unfinished.
        not_continued: Unfinished turns in which nothing asked for the rest.
        waiting: Truncated turns that have not ended.
    """

    turns: float | None
    truncated: float
    unfinished: float
    not_continued: float
    waiting: int


def headline(counts: TurnCounts, groups: Sequence[TruncationGroup], view: View) -> Headline:
    """Return the headline of a view.

    Args:
        counts: The numbers of turns.
        groups: The truncated turns of the view, by model and cause.
        view: The view, for the addresses.
    """
    share = counts.unfinished / counts.truncated if counts.truncated else None
    is_good = share == 0 and not counts.waiting and counts.truncated >= ENOUGH_EVENTS
    unfinished = sorted(
        (group for group in groups if group.unfinished),
        key=lambda group: (-group.unfinished, group.cause is not CutCause.MAX_TOKENS),
    )
    changes = tuple(_change(group, groups, view) for group in unfinished[:MOST_CHANGES])
    return Headline(
        share=share,
        color="lost" if share else "good" if is_good else "",
        sentence=_sentence(counts),
        listed=sum(group.unfinished for group in unfinished),
        link=view.link("/turns", state="unfinished"),
        changes=changes,
        others=sum(group.unfinished for group in unfinished[MOST_CHANGES:]),
    )


def _sentence(counts: TurnCounts) -> str:
    truncated, unfinished = count(counts.truncated), count(counts.unfinished)
    if not counts.truncated:
        if not counts.turns:
            return "No turn ended in this time range."
        if counts.turns == 1:
            return "The one turn that ended was not truncated."
        return f"None of the {count(counts.turns)} turns that ended was truncated."
    if not counts.unfinished:
        if counts.truncated == 1:
            return "The one truncated turn was finished."
        return f"All {truncated} truncated turns were finished."
    if counts.truncated == 1:
        fate = "was not continued" if counts.not_continued else "was continued, but not finished"
        return f"The one truncated turn {fate}."
    verb = "was" if counts.unfinished == 1 else "were"
    of = f"{unfinished} of {truncated} truncated turns"
    if counts.not_continued >= counts.unfinished:
        return f"{of} {verb} not continued."
    if not counts.not_continued:
        return f"{of} {verb} continued, but not finished."
    first = count(counts.not_continued)
    rest = count(counts.unfinished - counts.not_continued)
    were = "was" if counts.not_continued == 1 else "were"
    return f"{of} stayed unfinished: {first} {were} not continued, {rest} not to the end."


def _change(
    group: TruncationGroup, groups: Sequence[TruncationGroup], view: View
) -> RecommendedChange:
    model = group.model
    name = model.model or "an unknown model"
    if len(name) > MOST_NAME:  # ARNs of models differ at their end
        name = f"…{name[-MOST_NAME:]}"
    if len(view.choices.get("service", ())) > 1 and not view.scope.only.get("service"):
        name = f"{name} of {model.service}"
    chosen = {field: value for field, value in model._asdict().items() if value}
    return RecommendedChange(
        turns=group.unfinished,
        model=name,
        text=_text(group, needed_limit(other for other in groups if other.model == model)),
        link=view.link("/turns", state="unfinished", **chosen),
    )


def _text(group: TruncationGroup, needed: NeededLimit) -> str:
    match group.cause:
        case CutCause.OTHER_LIMIT:
            return (
                f"broke off below max_tokens {_limits(group)}, which is not the cause: look for a "
                "lower limit of a gateway, of the model, or for reasoning."
            )
        case CutCause.CONTEXT_WINDOW:
            return (
                "filled the context window: a larger max_tokens does not help, a shorter history "
                "does."
            )
        case CutCause.MISSING:
            return (
                "broke off before a stop reason arrived: max_tokens is not the cause, timeouts of "
                "proxies may be."
            )
        case CutCause.MAX_TOKENS:
            at = f"at max_tokens {_limits(group)}" if group.highest else "at an unknown limit"
            return f"{at}; {_limit_advice(needed)}"


def _limits(group: TruncationGroup) -> str:
    if group.lowest == group.highest:
        return count(group.lowest)
    return f"{count(group.lowest)} to {count(group.highest)}"


def _limit_advice(needed: NeededLimit) -> str:
    if needed.tokens is not None:
        finished = (
            "the one that was finished"
            if needed.answers == 1
            else f"the {count(needed.answers)} that were finished"
        )
        return f"{count(needed.tokens)} would have been enough for {finished}."
    if needed.above is not None:
        return f"{count(needed.above)} would not have been enough."
    if not needed.answers:
        return "none of its truncated answers was finished, so no limit is known to be enough."
    return f"{needed.note[:1].lower()}{needed.note[1:]}"
