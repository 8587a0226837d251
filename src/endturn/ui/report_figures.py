"""The figures of a report, independent of its format."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from endturn._version import __version__
from endturn.telemetry import INDICATORS, FailCondition, schema
from endturn.ui import panels, turn_page
from endturn.ui.advice import NOT_CONTINUED, Headline, TurnCounts, headline
from endturn.ui.axes import NS
from endturn.ui.charts import Chart
from endturn.ui.endings import TurnEnding
from endturn.ui.formatting import count, plural
from endturn.ui.limits import NeededLimit, RequestedLimit, requested_limits, truncated_turns
from endturn.ui.numbers import Numbers, step_of
from endturn.ui.rows import MODEL_CALLS, Contents, Row
from endturn.ui.span_counts import span_counts
from endturn.ui.store import Store
from endturn.ui.trend import trend
from endturn.ui.views import View, clock
from endturn.vocabulary import TRUNCATED

WORST: Final = 20
"""Unfinished turns that a report for people lists."""
ROWS: Final = 50
"""Services and models, files, or stop reasons that a report for people lists."""
_ORDER: Final = "coalesce(output_tokens, 0) DESC, end_ns - start_ns DESC, start_ns DESC, turn_id"
_UNFINISHED: Final = """
    SELECT turn_id, trace_id, service, provider, model, reason, outcome, calls, continuations,
    output_tokens, start_ns, end_ns FROM turns WHERE {where} AND state = 'unfinished' ORDER BY
"""
_PERIOD: Final = """
    SELECT min(since), max(until) FROM (
        SELECT start_ns AS since, end_ns AS until FROM spans
        UNION ALL SELECT at_ns, at_ns FROM events
        UNION ALL SELECT at_ns, at_ns FROM increments
    ) WHERE since > 0
"""


def _quoted(words: Iterable[str]) -> str:
    """Return words of the schema as a list in SQL."""
    return ", ".join(f"'{word}'" for word in words)


_CALLS: Final = f"operation IN ({_quoted(MODEL_CALLS)}) AND reason IS NOT NULL"
_IS_TRUNCATED: Final = f"reason IN ({_quoted(sorted(TRUNCATED))})"


@dataclass(frozen=True, slots=True)
class ReportInput:
    """A file that a report is about, and what it contains."""

    name: str
    contents: Contents


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionResult:
    """A condition of `--fail-on`: the indicator, its value, and True in `met` if it exceeds."""

    text: str
    indicator: str
    limit: float
    value: float | None
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The figures of a report.

    Attributes:
        period: the times of the first and the last record, in nanoseconds; None without records.
        measured: there are metrics. Without them `values` and `models` are counted from spans, and
            no condition is evaluated.
        values: each indicator by its name; None where nothing happened.
        reasons: responses by stop reason, the most frequent first.
        models: a row for each service and model, most unfinished turns first, with the limit of
            its requests and the limit that would have been enough.
        headline: how many truncated turns stayed unfinished, and what to change.
        unfinished: turns that ended unfinished, the worst first: those that spent the most output
            tokens, then those that took longest.
        unfinished_total: how many of them there are.
        endings: for the first of `unfinished`, why it ended and what to change.
        waiting: turns that have not ended.
        trend: the headline over time.
        limits: the result of each condition of `--fail-on`.
    """

    inputs: Sequence[ReportInput]
    period: tuple[int, int] | None
    measured: bool
    values: Mapping[str, float | None]
    reasons: Mapping[str, float]
    models: Sequence[Row]
    headline: Headline
    unfinished: Sequence[Row]
    unfinished_total: int
    endings: Sequence[TurnEnding]
    waiting: int
    trend: Chart
    limits: Sequence[ConditionResult]

    @property
    def level(self) -> str:
        """The severity of the headline: `act`, `look` or ""."""
        return panels.level(INDICATORS["unfinished_share"], self.values["unfinished_share"])

    @property
    def verdict(self) -> str:
        """A sentence that summarises the report."""
        number = {name: value or 0.0 for name, value in self.values.items()}
        if any(number[name] for name in ("turns", "truncated_turns", "unfinished")):
            return self.headline.sentence
        if number["responses"]:
            return (
                f"{count(number['truncated_responses'])} of "
                f"{plural(number['responses'], 'response')} were truncated; which turns "
                "they belong to is not recorded."
            )
        return "No call to a model is recorded."

    @property
    def most(self) -> str:
        """The service and model with most unfinished turns, if only metrics name them; else ""."""
        rows = [row for row in self.models if row["unfinished"]]
        if self.headline.changes or not rows or not rows[0]["model"]:
            return ""
        number = "All of them" if len(rows) == 1 else f"{count(rows[0]['unfinished'])} of them"
        return f"{number}: {rows[0]['model']} of {rows[0]['service']}."

    def as_json(self) -> dict[str, object]:
        """Return the figures for programs: unrounded numbers, complete lists."""
        return {
            "version": __version__,
            "files": [
                {
                    "name": file.name,
                    "spans": file.contents.spans,
                    "events": file.contents.events,
                    "metric_points": file.contents.points,
                }
                for file in self.inputs
            ],
            "period": None
            if self.period is None
            else dict(zip(("start", "end"), map(clock, self.period), strict=True)),
            "measured": self.measured,
            "verdict": self.verdict,
            "limits": [asdict(result) for result in self.limits],
            "values": dict(self.values),
            "reasons": dict(self.reasons),
            "models": [_model_as_json(row) for row in self.models],
            "waiting": self.waiting,
            "unfinished": [
                {name: value for name, value in row.items() if not name.endswith("_ns")}
                | {
                    "start": clock(row["start_ns"]),
                    "duration_seconds": (row["end_ns"] - row["start_ns"]) / NS,
                }
                for row in self.unfinished
            ],
        }


def figures(
    store: Store,
    inputs: Sequence[ReportInput],
    conditions: Sequence[FailCondition],
    *,
    all_turns: bool,
) -> Figures:
    """Read the figures of everything that is stored.

    Args:
        all_turns: read every unfinished turn instead of the worst ones, and no endings.
    """
    view = View.of(store, {"range": "all"}, time.time_ns())
    numbers = Numbers(store, view.scope, step_of(view.scope.end_ns - view.scope.start_ns))
    where, parameters = view.where()
    ((total, waiting),) = store.read_tuples(
        "SELECT count(*) FILTER (state = 'unfinished'), count(*) FILTER (state = 'open')"
        f" FROM turns WHERE {where}", parameters
    )  # fmt: skip
    worst = f"{_UNFINISHED.format(where=where)} {_ORDER}"
    unfinished = store.read_rows(worst if all_turns else f"{worst} LIMIT {WORST}", parameters)
    ((first, last),) = store.read_tuples(_PERIOD)
    measured = numbers.measured
    counts = _measured(numbers) if measured else _unmeasured(view, store)
    groups = truncated_turns(view, store)
    turn_counts = TurnCounts(
        turns=counts.values["turns"],
        truncated=max(counts.values["truncated_turns"] or 0, counts.values["unfinished"] or 0),
        unfinished=counts.values["unfinished"] or 0,
        not_continued=counts.not_continued,
        waiting=waiting,
    )
    return Figures(
        inputs=inputs,
        period=None if first is None else (first, last),
        measured=measured,
        values=counts.values,
        reasons=_reasons(numbers) if measured else _reasons_of_spans(store, where, parameters),
        models=panels.with_limits(counts.models, groups, requested_limits(view, store)),
        headline=headline(turn_counts, groups, view),
        unfinished=unfinished,
        unfinished_total=total,
        endings=[] if all_turns else [_ending(view, store, row["turn_id"]) for row in unfinished],
        waiting=waiting,
        trend=trend(view, store, numbers),
        limits=[_result(condition, counts.values if measured else {}) for condition in conditions],
    )


@dataclass(frozen=True, slots=True)
class _Counts:
    """The indicators, a row for each model, and the turns in which nothing asked for the rest."""

    values: Mapping[str, float | None]
    models: Sequence[Row]
    not_continued: float


def _measured(numbers: Numbers) -> _Counts:
    """Count from metrics."""
    values = {name: numbers.value(name) for name in INDICATORS}
    return _Counts(values, panels.models(numbers), numbers.total(NOT_CONTINUED))


def _unmeasured(view: View, store: Store) -> _Counts:
    """Count from spans and turns, in place of missing metrics."""
    total, rows = span_counts(view, store)
    values = dict.fromkeys(INDICATORS) | total
    return _Counts({name: values[name] for name in INDICATORS}, rows, total["not_continued"])


def _reasons(numbers: Numbers) -> dict[str, float]:
    rows = numbers.number(INDICATORS["responses"].count, (schema.REASON.label,))
    return dict(sorted(((name, number) for (name,), number in rows.items()), key=_most_first))


def _reasons_of_spans(
    store: Store, where: str, parameters: Mapping[str, object]
) -> dict[str, float]:
    rows = store.read_tuples(
        f"SELECT reason, count(*) FROM spans WHERE {_CALLS} AND {where} GROUP BY reason", parameters
    )
    return dict(sorted(rows, key=_most_first))


def _most_first(row: tuple[str, float]) -> tuple[float, str]:
    return -row[1], row[0]


def _ending(view: View, store: Store, turn_id: str) -> TurnEnding:
    """Return the texts about the end of a turn, as on its page."""
    page = turn_page.turn_page(replace(view, parameters={"turn_id": turn_id}), store)
    assert page is not None
    ending = page["ending"]
    assert isinstance(ending, TurnEnding)
    return ending


def _model_as_json(row: Row) -> Row:
    requested: RequestedLimit | None = row["requested"]
    needed: NeededLimit = row["needed"]
    return {name: value for name, value in row.items() if name not in ("requested", "needed")} | {
        "limit_lowest": requested and requested.lowest,
        "limit_highest": requested and requested.highest,
        "limit_needed": needed.tokens,
        "limit_needed_note": needed.note if requested else "No span names a limit.",
    }


def _result(condition: FailCondition, values: Mapping[str, float | None]) -> ConditionResult:
    value = values.get(condition.name)
    return ConditionResult(
        text=condition.text,
        indicator=condition.name,
        limit=condition.limit,
        value=value,
        met=condition.is_met(value),
    )
