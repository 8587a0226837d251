"""The calls of an agent, as they were observed and as its log has them: for tests in any environment."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from endturn.calls import CallEnded
from endturn.scan import scan
from endturn.vocabulary import Usage
from tests.support.announced import Records


class LoggedCall(NamedTuple):
    """What the log of a call must say as it was observed."""

    reason: str
    raw: str | None
    maximum: int | None
    input_tokens: int | None
    output_tokens: int | None
    tool_calls: bool


class LoggedTurn(NamedTuple):
    """What the log of a turn must say as it was observed."""

    calls: int
    truncated: bool
    complete: bool


def _call(ended: CallEnded) -> LoggedCall:
    usage, stop = ended.response.usage or Usage(), ended.stop
    return LoggedCall(
        stop.reason.value,
        stop.raw,
        ended.started.request.max_tokens,
        usage.input_tokens,
        usage.output_tokens,
        stop.reason.value == "tool_call",
    )


def observed_calls(records: Records) -> list[LoggedCall]:
    return [_call(ended) for ended in records.ended]


def observed_turns(records: Records) -> list[LoggedTurn]:
    return [LoggedTurn(ended.turn.iterations, ended.turn.truncated, ended.complete) for ended in records.turns]


def scanned(paths: Iterable[Path]) -> tuple[list[LoggedCall], list[LoggedTurn]]:
    """The calls and the turns of a log, in the order of time."""
    turns = [ended for ended in scan(paths).turns if ended.past.has_user_message]
    records = Records(record for ended in turns for record in ended.records)
    return observed_calls(records), observed_turns(records)
