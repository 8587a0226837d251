"""Limits on output tokens: which ones requests set, and which ones would have been enough.

Everything is read from spans and turns, so it is exact and needs no metrics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from endturn.calls import FINISHED_REASONS, REPLACING_STRATEGIES, Strategy
from endturn.telemetry import schema
from endturn.ui.formatting import count
from endturn.ui.rows import MODEL_CALLS
from endturn.ui.store import Store
from endturn.ui.views import View
from endturn.vocabulary import StopReason

USED_SHARE: Final = 0.9
"""An answer that ended at its limit used at least this share of it. Below, another limit cut it."""
LEAST_LIMIT: Final = 64
"""The smallest limit that is recommended."""


class Model(NamedTuple):
    """A model, as a service uses it; an unknown provider or model is ""."""

    service: str
    provider: str
    model: str


class CutCause(StrEnum):
    """The cause of a truncation."""

    MAX_TOKENS = "max_tokens"
    OTHER_LIMIT = "other_limit"
    """A limit below `max_tokens`, which the request does not name."""
    CONTEXT_WINDOW = "context_window_exceeded"
    MISSING = "missing"
    """The stream ended before a stop reason arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncationGroup:
    """The truncated turns of one model with one cause, by their first truncated call.

    Attributes:
        unfinished: Turns that ended unfinished.
        lowest, highest: The limits of the truncated calls; None if no span has one.
        whole_answers: Truncated answers that were finished and have the tokens of every piece.
        longest_whole: Tokens of the longest of them that is longer than the limit that cut it, all
            pieces together; None without any. An answer that was requested again may be shorter.
        longest_open: Tokens of the longest truncated answer that was not finished.
    """

    model: Model
    cause: CutCause
    unfinished: int
    lowest: int | None
    highest: int | None
    whole_answers: int
    longest_whole: int | None
    longest_open: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedLimit:
    """The `max_tokens` of a model's requests.

    Attributes:
        latest: The limit of the latest request that has one.
        lowest, highest: The range of all limits.
        calls: First calls of an answer, continuations not counted.
        limited_calls: How many of them have a limit.
    """

    latest: int | None
    lowest: int | None
    highest: int | None
    calls: int
    limited_calls: int

    @property
    def text(self) -> str:
        """The limit as the page writes it; a dash without any."""
        if self.lowest is None or self.highest is None:
            return "–"
        if self.lowest == self.highest:
            return count(self.lowest)
        return f"{count(self.lowest)} to {count(self.highest)}"

    @property
    def note(self) -> str:
        """The reason why no single limit is shown; "" if there is one, which every call has."""
        if self.lowest is None:
            return "No request says its max_tokens, so the limit is the model's own or unknown."
        notes = []
        if self.limited_calls < self.calls:
            share = f"{count(self.limited_calls)} of {count(self.calls)}"
            notes.append(f"{share} requests set max_tokens.")
        if self.lowest != self.highest:
            notes.append(f"Requests set different limits, the latest {count(self.latest)}.")
        return " ".join(notes)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeededLimit:
    """The limit that would have been enough for a model's truncated answers.

    Attributes:
        tokens: A limit that holds each truncated answer that was finished; None if unknown.
        above: A limit that is known to be too low although nothing says which one is enough.
        answers: Answers that `tokens` follows from.
        word: A few words in place of the number, if it is unknown.
        note: The sentence that says where the number comes from, or why there is none.
    """

    tokens: int | None = None
    above: int | None = None
    answers: int = 0
    word: str = ""
    note: str


NOTHING_TRUNCATED: Final = NeededLimit(word="none cut", note="No turn was truncated.")
NO_TURN_ENDED: Final = NeededLimit(
    word="unknown", note="No turn with one of the truncated responses has ended here."
)
_NO_CURE: Final = {
    CutCause.OTHER_LIMIT: NeededLimit(
        word="not max_tokens",
        note="Answers broke off below their max_tokens: another limit cut them.",
    ),
    CutCause.CONTEXT_WINDOW: NeededLimit(
        word="context full",
        note="The context window was full: a larger max_tokens does not help.",
    ),
    CutCause.MISSING: NeededLimit(
        word="stream broke",
        note="The stream ended before a stop reason arrived: max_tokens is not the cause.",
    ),
}
_NONE_FINISHED: Final = (
    "None of the truncated answers was finished, so no limit is known to be enough."
)


def room_for(tokens: int) -> int:
    """Return a round limit that holds an answer: the next power of two, at least `LEAST_LIMIT`."""
    return max(LEAST_LIMIT, 1 << (tokens - 1).bit_length())


def needed_limit(groups: Iterable[TruncationGroup]) -> NeededLimit:
    """Return the limit that one model's truncated answers needed.

    Only truncated answers that were finished say how long an answer is. No limit is known to be
    enough if an unfinished one is already as long as the longest of them, or if they were
    requested again and came shorter than the limit that had cut them.
    """
    groups = list(groups)
    if not groups:
        return NOTHING_TRUNCATED
    at_limit = [group for group in groups if group.cause is CutCause.MAX_TOKENS]
    if not at_limit:
        return _NO_CURE[max(groups, key=lambda group: group.unfinished).cause]
    longest_whole = max((group.longest_whole or 0 for group in at_limit), default=0)
    longest_open = max((group.longest_open or 0 for group in at_limit), default=0)
    limit = max((group.highest or 0 for group in at_limit), default=0)
    answers = sum(group.whole_answers for group in at_limit)
    if longest_whole > max(longest_open, limit):
        return NeededLimit(
            tokens=room_for(longest_whole),
            answers=answers,
            note=(
                f"The longest of {count(answers)} truncated answers that were finished has "
                f"{count(longest_whole)} tokens."
                if answers > 1
                else f"The one truncated answer that was finished has {count(longest_whole)} "
                "tokens."
            ),
        )
    if longest_open > limit > 0:
        return NeededLimit(
            above=longest_open,
            note=f"An answer of {count(longest_open)} tokens was still not finished.",
        )
    if answers:
        return NeededLimit(
            word="unknown",
            answers=answers,
            note=(
                "The truncated answers that were finished were asked for anew, and came shorter "
                "than the limit."
                if not longest_whole
                else "An answer that was cut off later is as long as the longest that was finished."
            ),
        )
    return NeededLimit(word="none finished", note=_NONE_FINISHED)


# --- Queries --------------------------------------------------------------------------------------


def _words(values: Iterable[str]) -> str:
    """Return values of the schema, never user input, as an SQL list."""
    return ", ".join(f"'{value}'" for value in sorted(map(str, values)))


_TRUNCATED_TURNS: Final = f"""
WITH truncated_turns AS MATERIALIZED (
    SELECT
        rowid AS turn, turn_id, state, service,
        coalesce(provider, '') AS provider, coalesce(model, '') AS model
    FROM turns WHERE {{where}} AND truncated AND state IN ('finished', 'unfinished')
),
requests AS (
    SELECT
        turn,
        try_cast(attributes ->> '$."{schema.CONTINUATION_INDEX.key}"' AS BIGINT) AS continuation,
        any_value(attributes ->> '$."{schema.STRATEGY.key}"') AS strategy
    FROM events JOIN truncated_turns USING (turn_id)
    WHERE name = '{schema.CONTINUATION_ATTEMPT.name}'
    GROUP BY ALL
),
-- A truncated answer is a call that was truncated, and its continuations: no other call matters.
pieces AS (
    SELECT
        turn, start_ns, reason, max_tokens, output_tokens AS tokens, truncated, strategy,
        coalesce(continuation, 0) = 0 AS is_first,
        count_if(coalesce(continuation, 0) = 0) OVER in_order AS answer,
        lead(strategy) OVER in_order AS next_strategy
    FROM spans JOIN truncated_turns USING (turn_id)
        LEFT JOIN requests USING (turn, continuation)
    WHERE spans.start_ns >= $start AND (spans.truncated OR continuation >= 1)
        AND operation IN ({_words(MODEL_CALLS)})
    WINDOW in_order AS (PARTITION BY turn ORDER BY start_ns, continuation NULLS FIRST)
),
answers AS (
    SELECT
        turn,
        answer,
        coalesce(any_value(reason) FILTER (is_first), min(reason) FILTER (truncated),
            '{StopReason.MAX_TOKENS}') AS reason,
        any_value(max_tokens) FILTER (is_first) AS max_tokens,
        any_value(tokens) FILTER (is_first) AS used,
        sum(tokens) FILTER (NOT is_replaced) AS tokens,
        count_if(NOT is_replaced AND tokens IS NULL) = 0 AS is_counted,
        coalesce(arg_max_null(reason, start_ns) IN ({_words(FINISHED_REASONS)}), false) AS is_whole
    FROM (
        SELECT
            *,
            coalesce(next_strategy IN ({_words(REPLACING_STRATEGIES)})
                OR (next_strategy = '{Strategy.RESEND}' AND truncated), false) AS is_replaced
        FROM pieces
    )
    GROUP BY turn, answer
),
by_turn AS (
    SELECT
        turn,
        arg_min(
            CASE WHEN reason = '{StopReason.MAX_TOKENS}' AND used < {USED_SHARE} * max_tokens
                THEN '{CutCause.OTHER_LIMIT}' ELSE reason END, answer) AS cause,
        arg_min_null(max_tokens, answer) AS max_tokens,
        count_if(is_whole AND is_counted) AS whole_answers,
        max(tokens) FILTER (is_whole AND is_counted AND tokens > coalesce(max_tokens, 0))
            AS longest_whole,
        max(tokens) FILTER (NOT is_whole) AS longest_open
    FROM answers GROUP BY turn
)
SELECT
    service, provider, model, cause,
    count_if(state = 'unfinished')::BIGINT AS unfinished,
    min(max_tokens)::BIGINT AS lowest,
    max(max_tokens)::BIGINT AS highest,
    sum(whole_answers)::BIGINT AS whole_answers,
    max(longest_whole)::BIGINT AS longest_whole,
    max(longest_open)::BIGINT AS longest_open
FROM truncated_turns JOIN by_turn USING (turn)
GROUP BY ALL
ORDER BY unfinished DESC, service, provider, model, cause
"""
_REQUESTED_LIMITS: Final = f"""
SELECT
    service, coalesce(provider, ''), coalesce(model, ''), arg_max(max_tokens, start_ns),
    min(max_tokens), max(max_tokens), count(*), count(max_tokens)
FROM spans
WHERE {{where}} AND operation IN ({_words(MODEL_CALLS)}) AND coalesce(continuation, 0) = 0
GROUP BY ALL
"""


_CAUSES: Final = frozenset(CutCause)


def truncated_turns(view: View, store: Store) -> Sequence[TruncationGroup]:
    """Return the truncated turns that ended, by model and cause, most unfinished first."""
    where, parameters = view.where()
    rows = store.read_tuples(_TRUNCATED_TURNS.format(where=where), parameters)
    return [
        TruncationGroup(
            model=Model(service, provider, model),
            cause=CutCause(cause) if cause in _CAUSES else CutCause.MAX_TOKENS,
            unfinished=unfinished,
            lowest=lowest,
            highest=highest,
            whole_answers=whole_answers,
            longest_whole=longest_whole,
            longest_open=longest_open,
        )
        for (
            service, provider, model, cause, unfinished, lowest, highest, whole_answers,
            longest_whole, longest_open,
        ) in rows
    ]  # fmt: skip


def requested_limits(view: View, store: Store) -> dict[Model, RequestedLimit]:
    """Return the limits that the requests of each model set."""
    where, parameters = view.where()
    return {
        Model(service, provider, model): RequestedLimit(
            latest=latest, lowest=lowest, highest=highest, calls=calls, limited_calls=limited
        )
        for service, provider, model, latest, lowest, highest, calls, limited in store.read_tuples(
            _REQUESTED_LIMITS.format(where=where), parameters
        )
    }
