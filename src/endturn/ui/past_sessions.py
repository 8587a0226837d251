"""Past sessions on the local page, and in an HTML report."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from endturn.calls import CallEnded, TurnEnded
from endturn.errors import UsageError
from endturn.scan import CHANGED, EndedTurn, Evidence, PastCall, Summary, question_of, text_of
from endturn.telemetry import schema
from endturn.ui import server, views
from endturn.ui.bounds import WORD, attributes_json, shorten, word, word_or_none
from endturn.ui.recorded_messages import TEXT, Part, RecordedCall, RecordedMessage
from endturn.ui.report import style
from endturn.ui.rows import Batch, Row
from endturn.ui.store import Store

AT_ONCE: Final = 2000
"""Turns that are written to the store at a time."""


@dataclass(frozen=True, slots=True)
class HtmlReport:
    """Writes the figures of a scan as one HTML file.

    Attributes:
        with_content: include the text of each listed truncated answer.
    """

    path: Path
    with_content: bool = False

    def __call__(self, summary: Summary, figures: Mapping[str, Any]) -> None:
        """Write the file.

        Raises:
            UsageError: it cannot be written, or is one of the input files.
        """
        if any(
            result.source and _is_same_file(self.path, result.name) for result in summary.results
        ):
            raise UsageError(f"--report {str(self.path)!r} is one of the files that were read")
        template = views.templates().get_template("scan.html")
        answers = _listed_answers(summary, figures) if self.with_content else {}
        page = template.render(figures, style=style(), answers=answers)
        try:
            # the name of a file may contain bytes that are not text
            self.path.write_text(page, encoding="utf-8", errors="replace")
        except OSError as error:
            raise UsageError(
                f"--report {str(self.path)!r} cannot be written: {error.strerror}"
            ) from None


def _listed_answers(summary: Summary, figures: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """Return the text of the listed answers, by the ids of their turns and calls."""
    rows = [*figures["ran_cut_tool_calls"], *figures["not_continued"]]
    listed_calls = {(row["turn"], row["call"]) for row in rows}
    return {
        (ended.past.id, call.key): text_of(ended.past, call)
        for ended in summary.turns
        for call in ended.past.calls
        if (ended.past.id, call.key) in listed_calls
    }


def _is_same_file(path: Path, name: str) -> bool:
    try:
        return path.samefile(name)
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class LocalPage:
    """Serves the turns of a scan on a local page until Ctrl-C.

    Attributes:
        with_content: the page of a turn shows the text of its answers, read again from its file.
    """

    with_content: bool = True

    def __call__(self, summary: Summary, figures: Mapping[str, Any]) -> None:
        """Serve the page."""
        with closing(Store()) as store, suppress(KeyboardInterrupt):
            fill(store, summary.turns, with_content=self.with_content)
            listener = server.listen("127.0.0.1", 0)
            with server.serving(store, listener) as address:
                print(
                    f"The past turns are at {address}/turns?range=all  (Ctrl-C ends it)", flush=True
                )
                server.browse(f"{address}/turns?range=all")
                threading.Event().wait()


def fill(store: Store, turns: Sequence[EndedTurn], *, with_content: bool = True) -> None:
    """Write the turns of a scan to a store, without the content of their messages.

    Args:
        with_content: let the store read messages from their files when a page shows them.
    """
    store.past_messages = _Files(turns if with_content else ())
    for start in range(0, len(turns), AT_ONCE):
        batch = Batch(from_file=True)
        for ended in turns[start : start + AT_ONCE]:
            batch.spans += _spans(ended)
            batch.events += _events(ended)
        store.write(batch)


class _Files:
    """Reads messages again from the files of past sessions, and stores none."""

    def __init__(self, turns: Sequence[EndedTurn]) -> None:
        self._turns = {word(ended.past.id): ended for ended in turns}
        self._calls = {
            _span_id(ended, call.key): (ended, call) for ended in turns for call in ended.past.calls
        }

    def call_messages(self, span_id: str) -> RecordedCall:
        """Return the answer of a call, and the user's message if it is the first of its turn."""
        ended, call = self._calls.get(span_id, (None, None))
        if ended is None or call is None:
            return RecordedCall()
        place = next(at for at, other in enumerate(ended.past.calls) if other is call)
        question = question_of(ended.past) if place == 0 and ended.past.has_user_message else ""
        answer = text_of(ended.past, call)
        if (
            answer == CHANGED
            and place
            and text_of(ended.past, ended.past.calls[place - 1]) == CHANGED
        ):
            answer = ""  # the page joins the answers of a turn; the notice appears once
        return RecordedCall(_message("user", question), _message("assistant", answer))

    def question(self, turn_id: str) -> str:
        """Return the beginning of the user's message as one line; "" if it cannot be read."""
        ended = self._turns.get(turn_id)
        text = "" if ended is None else question_of(ended.past, is_quick=True)
        return shorten(" ".join(text.split()), WORD)


def _message(role: str, text: str) -> tuple[RecordedMessage, ...]:
    return (RecordedMessage(role, (Part(TEXT, text),)),) if text else ()


def _digest(*parts: str, size: int) -> str:
    return blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=size).hexdigest()


def _span_id(ended: EndedTurn, key: str) -> str:
    return _digest(ended.past.source, ended.past.id, key, size=8)


def _common(ended: EndedTurn) -> Row:
    """Return the columns that all rows of a turn have."""
    return {
        "trace_id": _digest(ended.past.source, ended.past.session, ended.past.id, size=16),
        "service": word(ended.turn.agent or ended.past.source),
        "environment": None,
        "cluster": word_or_none(ended.past.project or None),
        # calls without a preceding user message are not a turn
        "turn_id": word(ended.past.id) if ended.past.has_user_message else None,
    }


def _spans(ended: EndedTurn) -> Iterator[Row]:
    records = [record for record in ended.records if isinstance(record, CallEnded)]
    (over,) = (record for record in ended.records if isinstance(record, TurnEnded))
    root = _span_id(ended, "")
    times: list[int] = []
    for record, call in zip(records, ended.past.calls, strict=True):
        row = _call_span(ended, record, call) | {"parent_id": root}
        times += row["start_ns"], row["end_ns"]
        yield row
    if not ended.past.has_user_message:
        return
    turn = ended.turn
    start = turn.started_ns or min(times, default=0)
    attributes_of_turn = {
        schema.CONVERSATION.key: ended.past.session, schema.TRUNCATED.key: turn.truncated,
        schema.CONTINUED.key: turn.continued, schema.CONTINUATIONS.key: turn.continuations,
        schema.TURN_REPAIRS.key: turn.repairs,
        # the name of a file may contain bytes that are not text
        "log.file.path": ended.past.path.encode("utf-8", "replace").decode(),
    }  # fmt: skip
    yield _EMPTY | _common(ended) | {
        "span_id": root, "name": f"invoke_agent {turn.agent}", "scope": schema.SCOPE,
        "operation": "invoke_agent", "agent": word_or_none(turn.agent), "start_ns": start,
        "end_ns": max([start, *times]), "outcome": over.outcome.value, "complete": over.complete,
        "links": "[]", "attributes": attributes_json(attributes_of_turn),
    }  # fmt: skip


def _call_span(ended: EndedTurn, record: CallEnded, call: PastCall) -> Row:
    started, response = record.started, record.response
    end_ns = call.ended_ns or started.started_ns
    is_recorded = call.evidence is not Evidence.NOT_RECORDED
    usage = response.usage
    links = [_span_id(ended, call.continues)] if call.continues else []
    return _EMPTY | _common(ended) | {
        "span_id": _span_id(ended, call.key), "name": f"chat {started.request.model}",
        "scope": schema.SCOPE, "operation": "chat", "start_ns": min(started.started_ns, end_ns),
        "end_ns": end_ns, "provider": word_or_none(started.endpoint.provider or None),
        "model": word_or_none(started.request.model or None), "iteration": started.iteration,
        "continuation": started.continuation.index if started.continuation else None,
        "reason": response.stop.reason.value if is_recorded else None,
        "raw": word_or_none(response.stop.raw), "truncated": response.stop.truncated,
        "max_tokens": started.request.max_tokens,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "error": word_or_none(call.error), "links": json.dumps(links),
        "conversation": word_or_none(ended.past.session or None),
        "response_id": word_or_none(response.id or None),
        "attributes": attributes_json({schema.RESPONSE_ID.key: response.id} if response.id else {}),
    }  # fmt: skip


def _events(ended: EndedTurn) -> Iterator[Row]:
    """Yield an event for each continuation, from which the page shows the strategy."""
    for record in ended.records:
        if not isinstance(record, CallEnded) or record.started.continuation is None:
            continue
        again = record.started.continuation
        attributes_of_continuation = {
            schema.CONTINUATION_INDEX.key: again.index,
            schema.STRATEGY.key: again.strategy.value,
        }
        yield _common(ended) | {
            "at_ns": record.started.started_ns, "span_id": None, "severity": "info", "body": "",
            "name": schema.CONTINUATION_ATTEMPT.name, "provider": None, "outcome": None,
            "model": word_or_none(record.started.request.model or None),
            "attributes": attributes_json(attributes_of_continuation),
        }  # fmt: skip


_EMPTY: Final[Row] = dict.fromkeys((
    "parent_id", "agent", "provider", "model", "iteration", "continuation", "reason", "raw",
    "truncated", "max_tokens", "input_tokens", "output_tokens", "outcome", "complete", "error",
    "conversation", "response_id",
))  # fmt: skip
"""Columns that only some kinds of spans have, each None."""
