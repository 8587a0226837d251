"""Figures of a scan: by agent, model and project, and the turns that need attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from endturn._version import __version__
from endturn.calls import ANEW, STOPPED_BY_PERSON, CallEnded, TurnOutcome
from endturn.errors import UsageError
from endturn.scan.live_records import EndedTurn
from endturn.scan.past_calls import Evidence, PastCall
from endturn.scan.reading import FileResult
from endturn.scan.registry import all_sources
from endturn.telemetry import FailCondition
from endturn.vocabulary import StopReason

NOT_RECORDED: Final = "not recorded"
"""The key among the stop reasons for responses whose reason is not in the file."""
_WITHHELD: Final = (StopReason.SAFETY_BLOCKED, StopReason.REFUSED)


@dataclass(slots=True)
class _Figures:
    """The counts of one agent's model in one project, or of all.

    Turns that a person stopped are in no rate of turns, and responses without a recorded reason in
    no rate of responses.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    truncated: int = 0
    failed_attempts: int = 0
    suspected: int = 0
    unmapped: int = 0
    turns: int = 0
    recorded_turns: int = 0
    truncated_turns: int = 0
    truncated_recorded_turns: int = 0
    continued_turns: int = 0
    unfinished_turns: int = 0
    failed_turns: int = 0
    continuations: int = 0
    repairs: int = 0

    @property
    def responses(self) -> int:
        return self.reasons.total()

    @property
    def recorded(self) -> int:
        return self.responses - self.reasons[NOT_RECORDED]

    def add_call(self, call: PastCall) -> None:
        if call.error is not None:
            self.failed_attempts += 1
            return
        stop = call.response.stop
        unrecorded = call.evidence is Evidence.NOT_RECORDED
        self.reasons[NOT_RECORDED if unrecorded else stop.reason.value] += 1
        self.truncated += stop.truncated
        self.suspected += stop.suspected
        self.unmapped += not unrecorded and not stop.mapped

    def add_turn(self, ended_turn: EndedTurn) -> None:
        turn = ended_turn.turn
        self.turns += 1
        self.continuations += turn.continuations
        self.repairs += turn.repairs
        if turn.outcome in STOPPED_BY_PERSON:
            return
        self.recorded_turns += ended_turn.is_recorded
        self.truncated_turns += turn.truncated
        self.truncated_recorded_turns += turn.truncated and ended_turn.is_recorded
        self.continued_turns += turn.truncated and turn.continued
        self.unfinished_turns += turn.unfinished
        self.failed_turns += turn.outcome is TurnOutcome.PROVIDER_ERROR

    def as_json(self) -> dict[str, Any]:
        return {
            "responses": dict(self.reasons.most_common()),
            "truncated_responses": self.truncated,
            "response_truncation_rate": _rate(self.truncated, self.recorded),
            "failed_attempts": self.failed_attempts,
            "turns": self.turns,
            "recorded_turns": self.recorded_turns,
            "truncated_turns": self.truncated_turns,
            "truncation_rate": _rate(self.truncated_recorded_turns, self.recorded_turns),
            "continued_turns": self.continued_turns,
            "unfinished_turns": self.unfinished_turns,
            "failed_turns": self.failed_turns,
            "unfinished_rate": _rate(self.unfinished_turns, self.truncated_turns),
        }

    def values(self) -> dict[str, float | None]:
        """Return the indicators that files contain, by their names."""
        return {
            "turns": self.turns,
            "truncated_turns": self.truncated_turns,
            "unfinished": self.unfinished_turns,
            "unfinished_share": _rate(self.unfinished_turns, self.truncated_turns),
            "responses": self.responses + self.failed_attempts,
            "truncated_responses": self.truncated,
            "truncation": _rate(self.truncated, self.recorded),
            "withheld": sum(self.reasons[reason.value] for reason in _WITHHELD)
            + self.failed_attempts
            + self.reasons[StopReason.ERROR.value],
            "continuations": self.continuations + self.repairs,
            "unknown": self.unmapped,
            "suspected": self.suspected,
        }


def _rate(part: int, total: int) -> float | None:
    return part / total if total else None


@dataclass(slots=True)
class Summary:
    """The result of a scan.

    Attributes:
        turns: the turns, without copies and those that `--since` excludes.
        results: the results of the files.
        copies: the number of copied calls that were left out.
        untimed: the number of turns without a time, which `--since` excludes.
        older_turns, older_calls: the number of turns and calls that began before `--since`.
        unreadable: path → the reason, for files and folders that could not be opened.
        is_interrupted: Ctrl-C ended the scan before all files were read.
        unread: the number of files that were not read; None if it ended before they were listed.
    """

    turns: Sequence[EndedTurn]
    results: Sequence[FileResult]
    copies: int = 0
    untimed: int = 0
    older_turns: int = 0
    older_calls: int = 0
    unreadable: dict[str, str] = field(default_factory=dict)
    is_interrupted: bool = False
    unread: int | None = 0

    def as_json(self, conditions: Iterable[FailCondition] = ()) -> dict[str, Any]:
        """Return all figures as JSON can carry them.

        Raises:
            UsageError: a condition has an indicator that files do not contain.
        """
        total = _Figures()
        rows: dict[tuple[str, str, str], _Figures] = {}
        versions: dict[tuple[str, str], Counter[str]] = {}
        for ended_turn in self.turns:
            self._add(ended_turn, total, rows, versions)
        values, files = total.values(), self._files()
        has_reasons = total.recorded > 0
        return {
            "version": __version__,
            "files": files,
            # of a condition that cannot be met in any case
            "certain": has_reasons and files["complete"],
            "interrupted": self.is_interrupted,
            "copies_removed": self.copies,
            "turns_without_time": self.untimed,
            "older_turns": self.older_turns,
            "older_calls": self.older_calls,
            "total": total.as_json(),
            "values": values,
            "rows": [
                {"agent": agent, "model": model, "project": project} | figures.as_json()
                for (agent, model, project), figures in sorted(rows.items())
            ],
            "evidence": [
                {"agent": agent, "tool_version": version}
                | {evidence.value: counts[evidence.value] for evidence in Evidence}
                for (agent, version), counts in sorted(versions.items())
            ],
            "ran_cut_tool_calls": [
                _call_row(ended_turn, call)
                for ended_turn in self.turns
                for call in ended_turn.past.calls
                if call.ran_cut_tool_call
            ],
            "not_continued": [
                _call_row(ended_turn, _last_cut(ended_turn))
                for ended_turn in self.turns
                if ended_turn.turn.unfinished and ended_turn.turn.outcome not in STOPPED_BY_PERSON
            ],
            "finished_after_truncation": [
                _call_row(ended_turn, truncated_call) | {"sufficient_limit": tokens}
                for ended_turn in self.turns
                for truncated_call, tokens in _sufficient_limits(ended_turn)
            ],
            "advice": self._advice(),
            "limits": [_limit_row(condition, values) for condition in conditions],
        }

    def _add(
        self,
        ended_turn: EndedTurn,
        total: _Figures,
        rows: dict[tuple[str, str, str], _Figures],
        versions: dict[tuple[str, str], Counter[str]],
    ) -> None:
        past, agent = ended_turn.past, ended_turn.turn.agent or ""
        main_model = _model(_first_cut(ended_turn) or _first_response(past.calls))
        for call in past.calls:
            # a failed attempt without a response has no model
            model = _model(call) or main_model
            row = rows.setdefault((agent, model, past.project), _Figures())
            total.add_call(call)
            row.add_call(call)
            if call.error is None:
                counts = versions.setdefault((agent, call.version), Counter())
                counts[call.evidence.value] += 1
        if past.has_user_message:
            total.add_turn(ended_turn)
            rows.setdefault((agent, main_model, past.project), _Figures()).add_turn(ended_turn)

    def _files(self) -> dict[str, Any]:
        read_results = [result for result in self.results if result.source is not None]
        damaged = [result for result in self.results if result.damage.problem]
        unreadable = {
            result.name: result.unreadable for result in self.results if result.unreadable
        } | self.unreadable
        damaged_lines = sum(result.damage.damaged_lines for result in read_results)
        long_lines = sum(result.damage.long_lines for result in read_results)
        return {
            "read": len(read_results),
            # a session in progress has an incomplete last line
            "complete": not (
                self.is_interrupted or damaged or unreadable or damaged_lines or long_lines
            ),
            "unread": self.unread,
            "bytes": sum(result.size for result in read_results),
            "by_source": dict(Counter(str(result.source) for result in read_results)),
            "unknown": [
                result.name
                for result in self.results
                if result.source is None
                and not result.is_companion
                and not result.unreadable
                and not result.damage.problem
            ],
            "unreadable": unreadable,
            "damaged": {result.name: result.damage.problem for result in damaged},
            "damaged_lines": damaged_lines,
            "long_lines": long_lines,
            "incomplete_last_lines": sum(
                result.damage.is_last_line_incomplete for result in read_results
            ),
        }

    def _advice(self) -> list[str]:
        sources_with_cuts = {
            ended_turn.past.source
            for ended_turn in self.turns
            if any(
                call.response.stop.reason is StopReason.MAX_TOKENS for call in ended_turn.past.calls
            )
        }
        return [
            f"{source.title}: {source.advice}."
            for source in all_sources()
            if source.title in sources_with_cuts and source.advice
        ]


def _limit_row(condition: FailCondition, values: dict[str, float | None]) -> dict[str, Any]:
    if condition.name not in values:
        raise UsageError(
            f"--fail-on {condition.text!r}: files do not hold {condition.name!r}; a scan gives "
            f"{', '.join(sorted(values))}"
        )
    value = values[condition.name]
    return {"text": condition.text, "value": value, "met": condition.is_met(value)}


def _model(call: PastCall | None) -> str:
    return "" if call is None else call.request.model or call.response.model or ""


def _first_response(calls: Sequence[PastCall]) -> PastCall | None:
    return next((call for call in calls if call.error is None), None)


def _first_cut(ended_turn: EndedTurn) -> PastCall | None:
    return next((call for call in ended_turn.past.calls if call.truncated), None)


def _last_cut(ended_turn: EndedTurn) -> PastCall:
    return next(call for call in reversed(ended_turn.past.calls) if call.truncated)


def _call_row(ended_turn: EndedTurn, call: PastCall) -> dict[str, Any]:
    """Return the location of a truncated call."""
    at_ns = call.ended_ns or call.started_ns or ended_turn.past.started_ns
    usage = call.response.usage
    return {
        "agent": ended_turn.turn.agent,
        "model": _model(call),
        "project": ended_turn.past.project,
        "session": ended_turn.past.session,
        "turn": ended_turn.past.id,
        "call": call.key,
        "sub_agent": ended_turn.past.parent_session is not None,
        "parent_turn": None if ended_turn.turn.around is None else ended_turn.turn.around.id,
        "time": None if at_ns is None else _iso(at_ns),
        "reason": call.response.stop.reason.value,
        "limit": call.request.max_tokens,
        "output_tokens": None if usage is None else usage.output_tokens,
        "continuations": ended_turn.turn.continuations + ended_turn.turn.repairs,
        "file": ended_turn.past.path,
        "offset": call.offset,
    }


def _tokens(call: PastCall) -> int:
    return (call.response.usage and call.response.usage.output_tokens) or 0


def _iso(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 10**9, UTC).isoformat().replace("+00:00", "Z")


def _sufficient_limits(ended_turn: EndedTurn) -> Iterable[tuple[PastCall, int | None]]:
    """Yield the truncated calls that a later complete answer finished, and that answer's tokens.

    None if the file lacks the tokens of one of its parts, or if the context window truncated it.
    """
    calls = {call.key: call for call in ended_turn.past.calls}
    whole_calls = {
        record.started.number
        for record in ended_turn.records
        if isinstance(record, CallEnded) and record.is_finished
    }
    numbers = [r.started.number for r in ended_turn.records if isinstance(r, CallEnded)]
    for call, number in zip(ended_turn.past.calls, numbers, strict=True):
        if number not in whole_calls or call.strategy is None:
            continue
        parts = [call]
        while parts[-1].strategy is not None and parts[-1].continues in calls:
            before = calls[parts[-1].continues or ""]
            if before in parts:
                break
            parts.append(before)
        answer = parts[:1] if call.strategy in ANEW else parts
        usages = [part.response.usage for part in answer]
        tokens = [None if usage is None else usage.output_tokens for usage in usages]
        tokens_together = sum(filter(None, tokens)) if None not in tokens else None
        if (
            tokens_together is not None
            and call.strategy in ANEW
            and tokens_together <= _tokens(parts[-1])
        ):
            tokens_together = None  # not the answer that was truncated
        if parts[-1].response.stop.reason is not StopReason.MAX_TOKENS:
            tokens_together = None  # no limit would have sufficed
        if parts[-1].truncated:
            yield parts[-1], tokens_together
