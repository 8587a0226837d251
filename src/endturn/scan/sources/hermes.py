"""Sessions of hermes-agent: the tables `sessions` and `messages` of its SQLite database.

Each row of the assistant is one response, with a finish reason in the words of the chat format. A
row in the user's name that begins with `[System: ` was written by the client: it requests the rest
of a truncated answer, or another answer.

Source of the facts: hermes_state_common.py of NousResearch/hermes-agent.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, Strategy
from endturn.scan.databases import RowReader, ordered_rows, readable_rows
from endturn.scan.fields import mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Row, canonical, find_stop, rows_of

TITLE: Final = "hermes"
_TABLES: Final = frozenset({"sessions", "messages", "schema_version"})
_OWN_TABLES: Final = frozenset({"state_meta", "messages_fts"})
"""Tables that other agents with the same three tables lack."""
_COLUMNS: Final = frozenset({"session_id", "role", "content", "finish_reason", "timestamp"})
_BY_CLIENT: Final = "[System: "
_CONTINUATIONS: Final = {
    "[System: Your previous response was truncated by the output length limit": Strategy.PROMPT,
    "[System: The previous response was cut off by a network error": Strategy.PROMPT,
    "[System: Your previous tool call ": Strategy.REPAIR,
}
"""Beginnings of the client's continuation requests, and their strategies."""
_NEW_SESSIONS: Final = ("_branched_from", "_reset_from")
"""Marks of sessions that a user started from an earlier one."""
_ENDED: Final = frozenset({
    "compression", "branched", "session_reset", "session_switch", "idle", "daily", "suspended",
    "resume_pending_expired", "new_session",
})  # fmt: skip
"""Ends of a session after which its child sessions are no sub-agents."""


def recognises(head: FileHead) -> bool:
    """Return whether a database has the tables."""
    return set(head.names) >= _TABLES and not _OWN_TABLES.isdisjoint(head.names)


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the database."""
    yield Path(environment.get("HERMES_HOME") or home / ".hermes") / "state.db"


@dataclass(slots=True)
class _HermesPlace:
    """The position of a session's rows."""

    turn: PastTurn | None = None
    last: PastCall | None = None
    results: int = 0
    strategy: Strategy | None = None


class _HermesDatabase:
    """Collects the turns of one database."""

    def __init__(self, sessions: Mapping[str, Mapping[str, Any]]) -> None:
        self._sessions = sessions
        self._rows: Mapping[str, Row] = {
            **rows_of("anthropic", ""),
            **rows_of("openai_chat", ""),
        }
        self._places: dict[str, _HermesPlace] = {}
        self.turns: list[PastTurn] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """Read one row of the messages; those of a session arrive in order."""
        session_id = str(row.get("session_id"))
        place = self._places.setdefault(session_id, _HermesPlace())
        match row.get("role"):
            case "user" if row.get("observed") != 1 and row.get("_compressed_summary") != 1:
                self._add_user(place, session_id, row)
            case "assistant":
                self._add_response(place, session_id, row)
            case "tool" if place.last is not None:
                place.results += 1
                is_last = place.last.tool_calls[-1:] == (text(row.get("tool_call_id")),)
                place.last.ran_cut_tool_call |= place.last.truncated and is_last

    def _add_user(self, place: _HermesPlace, session_id: str, row: Mapping[str, Any]) -> None:
        content = text(row.get("content"))
        if content.startswith(_BY_CLIENT) or row.get("display_kind") == "hidden":
            place.strategy = next(
                (asks for begin, asks in _CONTINUATIONS.items() if content.startswith(begin)), None
            )
            return
        self._begin_turn(place, session_id, row)

    def _begin_turn(self, place: _HermesPlace, session_id: str, row: Mapping[str, Any]) -> PastTurn:
        session = self._sessions.get(session_id, {})
        place.turn = PastTurn(
            id=_identity(row),
            source=TITLE,
            session=session_id,
            project=text(session.get("cwd")),
            started_ns=time_ns(row.get("timestamp")),
            parent_session=self._parent_of(session),
            runs_tools=True,
        )
        place.last, place.strategy = None, None
        self.turns.append(place.turn)
        return place.turn

    def _parent_of(self, session: Mapping[str, Any]) -> str | None:
        """Return the session that started this sub-agent's session; None for a user's session."""
        parent_id = text(session.get("parent_session_id"))
        config = _parsed(session.get("model_config"))
        if not parent_id or any(mapping(config).get(mark) for mark in _NEW_SESSIONS):
            return None
        end_reason = text(self._sessions.get(parent_id, {}).get("end_reason"))
        return None if end_reason in _ENDED else parent_id

    def _add_response(self, place: _HermesPlace, session_id: str, row: Mapping[str, Any]) -> None:
        turn = place.turn
        if turn is None:
            turn = self._begin_turn(place, session_id, row)
            turn.has_user_message = False
        call, before = self._call_of(row, self._sessions.get(session_id, {})), place.last
        if before is not None:
            strategy = place.strategy
            if strategy is None and before.truncated and not place.results:
                strategy = Strategy.REPAIR if before.tool_calls else Strategy.PROMPT
            if strategy is not None:
                call.strategy, call.continues = strategy, before.key
        turn.calls.append(call)
        place.last, place.results, place.strategy = call, 0, None

    def _call_of(self, row: Mapping[str, Any], session: Mapping[str, Any]) -> PastCall:
        raw = row.get("finish_reason")
        tool_calls = objects(_parsed(row.get("tool_calls")))
        tools = tuple(text(tool.get("id")) or text(tool.get("call_id")) for tool in tool_calls)
        call = PastCall(
            key=_identity(row),
            request=RequestFacts(model=text(session.get("model"))),
            endpoint=EndpointFacts(provider=canonical(text(session.get("billing_provider")))),
            ended_ns=time_ns(row.get("timestamp")),
            tool_calls=tools,
        )
        if isinstance(raw, str) and raw:
            call.evidence = Evidence.RECORDED
            stop = find_stop(raw, self._rows, calls=len(tools))
            call.response = ResponseFacts(stop=stop, reasons=(raw,))
        return call


def _identity(row: Mapping[str, Any]) -> str:
    """Return the identity of a row, which copies in other sessions share."""
    digest = blake2b(digest_size=12)
    for name in ("role", "content", "tool_calls"):
        digest.update(str(row.get(name)).encode("utf-8", "replace") + b"\0")
    return f"{row.get('timestamp')} {digest.hexdigest()}"


def _parsed(data: Any) -> Any:
    try:
        return json.loads(data)
    except (TypeError, ValueError, RecursionError):
        return None


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a database."""
    with file.database() as connection:
        if connection is not None:
            yield from _turns_of(file, connection)


def _turns_of(file: ScannedFile, connection: sqlite3.Connection) -> list[PastTurn]:
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        return _turns_of_tables(connection, ordered_rows)
    except sqlite3.DatabaseError as error:
        file.note_damaged_database(error)
    return _turns_of_tables(connection, readable_rows)


def _turns_of_tables(connection: sqlite3.Connection, read_rows: RowReader) -> list[PastTurn]:
    database = _HermesDatabase({str(row["id"]): row for row in read_rows(connection, "sessions")})
    for row in read_rows(connection, "messages", "session_id", "id"):
        if not row.keys() >= _COLUMNS:
            return []
        database.add(row)
    return [turn for turn in database.turns if turn.calls]


SOURCE: Final = Source(
    name="hermes",
    title=TITLE,
    shapes=(FileShape.DATABASE,),
    recognises=recognises,
    read=read,
    places=places,
    advice="raise max_tokens of the model in config.yaml",
)
