"""What each record counts: facts taken from it where it happens, folded into sums and distributions later.

Facts are flat tuples of plain values. The garbage collector does not follow those, however many wait; a queue of
records, each with its turn and its span, would cost every call more than all its metrics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from opentelemetry.metrics import Histogram

from endturn.records import COMPLETE, Strategy, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import schema
from endturn.telemetry.attributes import port_shown
from endturn.telemetry.bulk import Where
from endturn.telemetry.schema import Metric
from endturn.telemetry.series import OTHER, Counter, Distribution, Label, Pairs, Values

if TYPE_CHECKING:
    from endturn.records import (
        CallEnded,
        ContinuationAttempted,
        DispatchBlocked,
        PayloadRepaired,
        TurnEnded,
        UsageEstimated,
    )

INPUT, OUTPUT = "input", "output"

BORN_TURNS: Final = (
    (False, False, TurnOutcome.COMPLETED),
    (True, False, TurnOutcome.NOT_CONTINUED),
    (True, True, TurnOutcome.COMPLETED),
    (True, True, TurnOutcome.RETRY_LIMIT),
)
"""Turns that exist at zero from a model's first call: both sides of the headline rate."""

KEYS: Final = 1_024
"""Combinations of a call's labels for which the keys are remembered."""

BornFacts = tuple[str, str, str | None]
"""Provider, model, agent."""
CallLabels = tuple[
    str, str, str, bool, bool, bool, str | None, bool, str, str | None, str | None, int | None, str | None
]  # fmt: skip
"""Provider, model, reason, suspected, mapped, continues, the outcome of a turn that it was alone; whether the
conventions' metrics are recorded, and for these operation, answering model, address, port, error."""
CallFacts = tuple[
    CallLabels, int | None, int | None, int | None, float | None, Where, float, float | None
]  # fmt: skip
"""Labels, maximum, input, output, cost, where, seconds, first chunk."""
TurnFacts = tuple[str, str, str | None, bool, bool, bool, str, bool, int, float, int, Where]
"""Provider, model, agent, truncated, continued, unfinished, outcome, complete, attempts, seconds, output, and where."""
LabelFacts = tuple[str, str, str, int]
"""Provider, model, the metric's own label, how many."""


def call_facts(
    ended: CallEnded, price: tuple[float, float] | None, where: Where, *, standard: bool, error: str | None
) -> CallFacts:
    """What metrics need of a call.

    Args:
        price: USD per million tokens, of the input and of the output.
        standard: the conventions' metrics are recorded too.
        error: the type of the error that the call failed with.
    """
    started, stop, usage = ended.started, ended.stop, ended.usage
    asked = answered = cost = outcome = None
    if usage is not None:
        asked, answered = usage.input_tokens, usage.output_tokens
        if price is not None:
            cost = ((asked or 0) * price[0] + (answered or 0) * price[1]) / 1e6
    labels = (
        started.provider, started.model, stop.reason.value, stop.suspected, stop.mapped,
        started.continuation is not None, outcome, standard, started.operation, ended.response_model,
        started.server_address, started.server_port, error,
    )  # fmt: skip
    return labels, started.maximum, asked, answered, cost, where, ended.duration_s, ended.first_chunk_s


def turn_facts(ended: TurnEnded, agent: str | None, where: Where) -> TurnFacts:
    """What the metrics need of a turn."""
    turn = ended.turn
    return (
        turn.provider, turn.model, agent, turn.truncated, turn.continued, turn.unfinished,
        ended.outcome.value, ended.complete, turn.continuations, ended.duration_s, turn.answer_tokens, where,
    )  # fmt: skip


def continuation_facts(record: ContinuationAttempted) -> LabelFacts:
    """What the metrics need of a continuation."""
    return record.provider, record.model, record.continuation.strategy.value, 1


def repair_facts(record: PayloadRepaired) -> LabelFacts:
    """What the metrics need of a repair."""
    result = "succeeded" if record.succeeded else "failed" if record.attempted else "not_attempted"
    return record.provider, record.model, result, 1


def estimate_facts(record: UsageEstimated, price: tuple[float, float] | None) -> EstimateFacts:
    """What the metrics need of tokens that a provider did not count.

    Args:
        price: USD per million tokens, of the input and of the output.
    """
    asked, answered = record.usage.input_tokens or 0, record.usage.output_tokens or 0
    cost = None if price is None else (asked * price[0] + answered * price[1]) / 1e6
    return record.provider, record.model, asked, answered, cost


def blocked_facts(record: DispatchBlocked) -> LabelFacts:
    """What the metrics need of calls that were not run."""
    return record.provider, record.model, record.reason, len(record.names) or 1


EstimateFacts = tuple[str, str, int, int, float | None]
"""Provider, model, input, output, cost."""


class _Keys(NamedTuple):
    """Under which values a call is counted, in each metric."""

    pair: tuple[str, str]
    response: Values
    suspected: bool
    mapped: bool
    continues: bool
    turn: Values | None
    plain: Values
    complete: Values
    common: Values
    duration: Values | None
    input: Values
    output: Values


class Tally:
    """The sums and distributions of one process, by metric. One thread at a time folds."""

    def __init__(self, create_histogram: Callable[[Metric], Histogram]) -> None:
        self.counters: dict[str, Counter] = {}
        self.distributions: dict[str, Distribution] = {}

        def counter(metric: Metric) -> Counter:
            self.counters[metric.name] = made = Counter(metric, self._cap)
            return made

        def distribution(metric: Metric) -> Distribution:
            self.distributions[metric.name] = made = Distribution(metric, self._cap, create_histogram(metric))
            return made

        self._responses = counter(schema.RESPONSES)
        self._turns = counter(schema.TURNS)
        self._exits = counter(schema.TRUNCATION_EXITS)
        self._continuations = counter(schema.CONTINUATIONS_METRIC)
        self._turn_continuations = distribution(schema.TURN_CONTINUATIONS)
        self._turn_duration = distribution(schema.TURN_DURATION)
        self._turn_output = distribution(schema.TURN_OUTPUT)
        self._budget_used = distribution(schema.BUDGET_USED)
        self._continuation_tokens = counter(schema.CONTINUATION_TOKENS)
        self._continuation_cost = counter(schema.CONTINUATION_COST)
        self._repairs = counter(schema.REPAIRS)
        self._blocked = counter(schema.BLOCKED)
        self._suspected = counter(schema.SUSPECTED_METRIC)
        self._unmapped = counter(schema.UNMAPPED)
        self._series_capped = counter(schema.SERIES_CAPPED)
        self.listener_failures = counter(schema.LISTENER_FAILURES)
        self._operation_duration = distribution(schema.OPERATION_DURATION)
        self._token_usage = distribution(schema.TOKEN_USAGE)
        self._first_chunk = distribution(schema.FIRST_CHUNK)

        self._keys: dict[CallLabels, _Keys] = {}
        self._times_capped = 0
        self._pair = Pairs(self._cap)
        self._agent = Label("agent", 10, self._cap)
        self._address = Label("server_address", 16, self._cap)
        self._port = Label("server_address", 64, self._cap)
        self._error = Label("error_type", 32, self._cap)
        for label in schema.CAPPED.values:
            self._series_capped.add((label,), 0)

    def empty(self) -> None:
        """Every sum back to zero, nothing waiting; the known attribute sets stay."""
        for counter in self.counters.values():
            counter.empty()
        for distribution in self.distributions.values():
            distribution.empty()

    def settle(self) -> None:
        """Let be seen what was counted, all of it together."""
        for counter in self.counters.values():
            counter.settle()

    def _cap(self, label: str) -> None:
        self._times_capped += 1
        self._series_capped.add((label,))

    def born(self, facts: BornFacts) -> None:
        """Bring the sums of a model into being."""
        provider, model, agent = facts
        pair = self._pair(provider, model)
        agent = self._agent(agent)
        for reason in StopReason:
            self._responses.add((*pair, reason.value), 0)
        for truncated, continued, outcome in BORN_TURNS:
            self._turns.add((*pair, agent, truncated, continued, outcome.value), 0)
            if truncated:
                self._exits.add((*pair, agent, outcome.value), 0)
        for strategy in Strategy:
            self._continuations.add((*pair, strategy.value), 0)
        for kind in (INPUT, OUTPUT):
            self._continuation_tokens.add((*pair, kind), 0)
        self._suspected.add(pair, 0)
        self._unmapped.add(pair, 0)

    def call(self, facts: CallFacts) -> None:
        """Count a call."""
        labels, maximum, asked, answered, cost, where, seconds, first = facts
        keys = self._keys.get(labels) or self._keys_of(labels)
        pair = keys.pair
        self._responses.add(keys.response)
        if keys.suspected:
            self._suspected.add(pair)
        if not keys.mapped:
            self._unmapped.add(pair)
        if maximum and answered is not None:
            self._budget_used.record(answered / maximum, pair, where)
        if keys.continues:
            self._continuation_tokens.add((*pair, INPUT), asked or 0)
            self._continuation_tokens.add((*pair, OUTPUT), answered or 0)
            if cost is not None:
                self._continuation_cost.add(pair, cost)
        if keys.turn is not None:
            self._turns.add(keys.turn)
            self._turn_duration.record(seconds, keys.plain, where)
            if answered:
                self._turn_output.record(answered, keys.complete, where)
        if keys.duration is None:
            return
        self._operation_duration.record(seconds, keys.duration, where)
        if asked is not None:
            self._token_usage.record(asked, keys.input, where)
        if answered is not None:
            self._token_usage.record(answered, keys.output, where)
        if first is not None:
            self._first_chunk.record(first, keys.common, where)

    def _keys_of(self, labels: CallLabels) -> _Keys:
        (provider, model, reason, suspected, mapped, continues, outcome, standard, operation, by, address, port,
         error) = labels  # fmt: skip
        capped = self._times_capped
        pair = self._pair(provider, model)
        common: Values = ()
        duration = None
        if standard:
            shown, requested = pair
            if by is not None:
                by = requested if by == model else self._pair(provider, by)[1]
            port = port_shown(port)
            if port is not None and self._port(str(port)) == OTHER:
                port = None
            common = operation, shown, requested, by, self._address(address), port
            duration = *common, self._error(error)
        keys = _Keys(
            pair,
            (*pair, reason),
            suspected,
            mapped,
            continues,
            None if outcome is None else (*pair, None, False, False, outcome),
            (*pair, False, False),
            (*pair, outcome in COMPLETE),
            common,
            duration,
            (*common, INPUT),
            (*common, OUTPUT),
        )
        if capped == self._times_capped and len(self._keys) < KEYS:  # what was capped is counted each time
            self._keys[labels] = keys
        return keys

    def turn(self, facts: TurnFacts) -> None:
        """Count a turn, and in the same step its exit."""
        (provider, model, agent, truncated, continued, unfinished, outcome, complete, attempts, seconds, output,
         where) = facts  # fmt: skip
        pair = self._pair(provider, model)
        agent = self._agent(agent)
        self._turns.add((*pair, agent, truncated, continued, outcome))
        if unfinished:
            self._exits.add((*pair, agent, outcome))
        if truncated:
            self._turn_continuations.record(attempts, pair, where)
        self._turn_duration.record(seconds, (*pair, truncated, continued), where)
        if output:  # 0: no call of the turn reported its usage
            self._turn_output.record(output, (*pair, complete), where)

    def continuation(self, facts: LabelFacts) -> None:
        """Count a continuation."""
        self._labelled(self._continuations, facts)

    def estimate(self, facts: EstimateFacts) -> None:
        """Count the estimated tokens of a continuation."""
        provider, model, asked, answered, cost = facts
        pair = self._pair(provider, model)
        self._continuation_tokens.add((*pair, INPUT), asked)
        self._continuation_tokens.add((*pair, OUTPUT), answered)
        if cost is not None:
            self._continuation_cost.add(pair, cost)

    def repair(self, facts: LabelFacts) -> None:
        """Count a cut or unverified tool payload."""
        self._labelled(self._repairs, facts)

    def blocked(self, facts: LabelFacts) -> None:
        """Count tool calls that were not run."""
        self._labelled(self._blocked, facts)

    def _labelled(self, counter: Counter, facts: LabelFacts) -> None:
        provider, model, label, count = facts
        counter.add((*self._pair(provider, model), label), count)
