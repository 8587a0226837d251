"""Sessions of opencode, and of Kilo, which has the same tables.

Since 1.2 they are in a SQLite database, before that in a folder of JSON files: one for each
session, and folders with one for each message and each part. The files stay after the upgrade.

Each assistant message is one call, with the finish reason as Vercel's AI SDK gives it. An `error`
of a message takes precedence over its finish reason, which may be from before the error.

Source of the facts: a database that opencode 1.18.33 wrote, and packages/opencode/src/session.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, Strategy
from endturn.frameworks import vercel
from endturn.scan.databases import RowReader, ordered_rows, readable_rows
from endturn.scan.fields import count, mapping, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import (
    CANCELLED_STOP,
    FAILED_STOP,
    TRUNCATED_STOP,
    Evidence,
    PastCall,
    PastTurn,
)
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage, canonical

TITLE: Final = "opencode"
TABLES: Final = ("session", "message", "part")
_ABORTED_ERROR: Final = "MessageAbortedError"
_STEPS: Final = ("step-start", "step-finish")
_OUTPUT_LENGTH_ERROR: Final = "MessageOutputLengthError"
_ID: Final = re.compile(r"\w+")
INVALID_TOOL: Final = "invalid"
"""The tool name for a call whose arguments could not be parsed."""


def recognises(head: FileHead) -> bool:
    """Return whether a database has the tables, or lines are rows of them."""
    if head.shape is FileShape.DATABASE:
        return set(TABLES) <= set(head.names)
    if len(head.records) == 1 and _kind_of_file(head.records[0]) == "session":
        return True
    return any(
        text(record.get("table")) in TABLES and ("data" in record or "directory" in record)
        for record in head.records
    )


def is_companion(head: FileHead) -> bool:
    """Return whether a file is of a message or a part, which are read with their session."""
    return len(head.records) == 1 and _kind_of_file(head.records[0]) in ("message", "part")


def _kind_of_file(record: Mapping[str, Any]) -> str:
    identity = text(record.get("id"))
    if identity.startswith("ses_") and "projectID" in record:
        return "session"
    if identity.startswith("msg_") and "sessionID" in record:
        return "message"
    return "part" if identity.startswith("prt_") and "messageID" in record else ""


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the databases."""
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    yield from sorted((data / "opencode").glob("opencode*.db"))
    yield data / "opencode" / "storage"
    yield Path(environment.get("KILO_DB") or data / "kilo" / "kilo.db")


@dataclass(slots=True, eq=False)
class _OpencodeResponse:
    call: PastCall
    parent: str
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    """The tool parts of a truncated response."""


class _OpencodeDatabase:
    """Collects the turns of one database."""

    def __init__(
        self,
        agent: str,
        sessions: Mapping[str, Mapping[str, Any]],
        parts_of: Callable[[str], Iterable[Any]],
    ) -> None:
        self._agent, self._sessions, self._parts_of = agent, sessions, parts_of
        self._turns: dict[str, PastTurn] = {}
        self._last: dict[str, _OpencodeResponse] = {}

    def add(self, identity: str, session_id: str, data: Mapping[str, Any]) -> None:
        """Read one message; messages arrive in order of time."""
        if data.get("role") == "user":
            turn = self._turn(identity, session_id)
            turn.has_user_message = True
            turn.started_ns = time_ns(mapping(data.get("time")).get("created"))
        elif data.get("role") == "assistant":
            self._add_response(identity, session_id, data)

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns that have a call, once all messages were read."""
        yield from (turn for turn in self._turns.values() if turn.calls)

    def _turn(self, identity: str, session_id: str) -> PastTurn:
        if identity not in self._turns:
            session = self._sessions.get(session_id, {})
            self._turns[identity] = PastTurn(
                id=identity,
                source=TITLE,
                agent=self._agent,
                session=session_id,
                project=text(session.get("directory")),
                has_user_message=False,
                parent_session=text(session.get("parent_id")) or None,
                runs_tools=True,
            )
        return self._turns[identity]

    def _add_response(self, identity: str, session_id: str, data: Mapping[str, Any]) -> None:
        parent = text(data.get("parentID")) or f"before {identity}"
        turn = self._turn(parent, session_id)
        error = text(mapping(data.get("error")).get("name"))
        finish = text(data.get("finish"))
        if not finish and not error:  # it was killed before it wrote the message again
            finish = _last_step(self._parts_of(identity))
        call = _call_of(identity, data, finish, error)
        call.version = text(self._sessions.get(session_id, {}).get("version"))
        response = _OpencodeResponse(call, parent)
        if call.truncated:
            response.tools = _tools(self._parts_of(identity))
            call.ran_cut_tool_call = _ran(response.tools)
        before = self._last.get(parent)
        if before is not None and (strategy := _strategy_after(before, data)) is not None:
            call.strategy, call.continues = strategy, before.call.key
        if error == _ABORTED_ERROR:
            turn.is_interrupted = True
        turn.calls.append(call)
        self._last[parent] = response


def _call_of(identity: str, data: Mapping[str, Any], finish: str, error: str) -> PastCall:
    times, model = mapping(data.get("time")), text(data.get("modelID"))
    call = PastCall(
        key=identity,
        request=RequestFacts(model=model),
        endpoint=EndpointFacts(provider=canonical(text(data.get("providerID")))),
        started_ns=time_ns(times.get("created")),
        ended_ns=time_ns(times.get("completed")),
    )
    if error:
        call.evidence = Evidence.OTHER_RECORD
        stop = {_ABORTED_ERROR: CANCELLED_STOP, _OUTPUT_LENGTH_ERROR: TRUNCATED_STOP}.get(
            error, FAILED_STOP
        )
        call.error = error if stop is FAILED_STOP else None
    elif finish:
        call.evidence = Evidence.RECORDED
        stop = vercel(finish)
    else:
        return call
    call.response = ResponseFacts(
        stop=stop, usage=_usage(mapping(data.get("tokens"))), reasons=(finish or None,)
    )
    return call


def _usage(tokens: Mapping[str, Any]) -> Usage | None:
    """Return the tokens of a message; zeros stand where none were counted."""
    cache = mapping(tokens.get("cache"))
    cache_read, cache_write = count(cache.get("read")), count(cache.get("write"))
    prompt = [count(tokens.get("input")), cache_read, cache_write]
    reasoning = count(tokens.get("reasoning"))
    output_counts = [count(tokens.get("output")), reasoning]
    if not any(prompt) and not any(output_counts):
        return None
    return Usage(
        input_tokens=sum(filter(None, prompt)),
        output_tokens=sum(filter(None, output_counts)),
        reasoning_tokens=reasoning,
        cache_read_tokens=cache_read,
        cache_write_tokens=cache_write,
    )


def _last_step(parts: Iterable[Any]) -> str:
    """Return the finish reason of a message's last step; "" where that has none."""
    steps = [part for part in parts if isinstance(part, dict) and part.get("type") in _STEPS]
    return text(steps[-1].get("reason")) if steps else ""


def _tools(parts: Iterable[Any]) -> list[Mapping[str, Any]]:
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "tool"]


def _ran(tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the last tool call of a truncated response was run."""
    if not tools or tools[-1].get("tool") == INVALID_TOOL:
        return False
    return mapping(tools[-1].get("state")).get("status") == "completed"


def _strategy_after(before: _OpencodeResponse, data: Mapping[str, Any]) -> Strategy | None:
    """Return how a message continues the one before it, which answers the same user message."""
    if not before.call.truncated or data.get("summary") is True:
        return None
    if not before.tools:
        return Strategy.PROMPT
    return None if before.call.ran_cut_tool_call else Strategy.REPAIR


# --- Sources of the rows ----------------------------------------------------------------------


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a database, or of its rows as JSON lines."""
    is_kilo = file.path is not None and file.path.name.startswith("kilo")
    agent = "Kilo" if is_kilo else TITLE
    if file.head.shape is not FileShape.DATABASE:
        records = file.head.records
        if len(records) == 1 and _kind_of_file(records[0]) == "session":
            yield from _turns_of_files(file, records[0], agent)
        else:
            yield from _turns_of_rows(file, agent)
        return
    with file.database() as connection:
        if connection is not None:
            yield from _turns_of(file, connection, agent)


def _turns_of(file: ScannedFile, connection: sqlite3.Connection, agent: str) -> list[PastTurn]:
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    try:
        return _turns_of_tables(file, connection, agent, ordered_rows)
    except sqlite3.DatabaseError as error:
        file.note_damaged_database(error)
    return _turns_of_tables(file, connection, agent, readable_rows)


def _turns_of_tables(
    file: ScannedFile, connection: sqlite3.Connection, agent: str, read_rows: RowReader
) -> list[PastTurn]:
    sessions = {str(row["id"]): row for row in read_rows(connection, "session")}

    def parts_of(message: str) -> Iterator[Any]:
        query = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
        try:
            for (data,) in connection.execute(query, [message]):
                yield _parsed(data)
        except sqlite3.DatabaseError as error:
            file.note_damaged_database(error)

    database = _OpencodeDatabase(agent, sessions, parts_of)
    damaged_rows = 0
    for row in read_rows(connection, "message", "time_created", "id"):
        message = _parsed(row.get("data"))
        if message is None:
            damaged_rows += 1
        else:
            database.add(str(row["id"]), str(row["session_id"]), message)
    file.damage.damaged_lines += damaged_rows
    return list(database.turns())


def _turns_of_rows(file: ScannedFile, agent: str) -> list[PastTurn]:
    sessions: dict[str, Mapping[str, Any]] = {}
    messages: list[tuple[str, str, Mapping[str, Any]]] = []
    parts: dict[str, list[Any]] = {}
    for _, row in file.records():
        data = row.get("data")
        content = data if isinstance(data, dict) else _parsed(data)
        match row.get("table"):
            case "session":
                sessions[text(row.get("id"))] = row
            case "message" if content is not None:
                messages.append((text(row.get("id")), text(row.get("session_id")), content))
            case "part" if content is not None and content.get("type") in ("tool", *_STEPS):
                parts.setdefault(text(row.get("message_id")), []).append(content)
    database = _OpencodeDatabase(agent, sessions, lambda message: parts.get(message, ()))
    for message in messages:
        database.add(*message)
    return list(database.turns())


def _turns_of_files(file: ScannedFile, session: Mapping[str, Any], agent: str) -> list[PastTurn]:
    """Return the turns of a session whose messages and parts are files of their own.

    They are in `storage/session/<project>/<session>.json`, `storage/message/<session>/*.json` and
    `storage/part/<message>/*.json`.
    """
    if file.path is None or len(file.path.parents) < 3:
        return []
    storage, identity = file.path.parents[2], text(session.get("id"))
    session_row = {
        "directory": session.get("directory"),
        "version": session.get("version"),
        "parent_id": session.get("parentID"),
    }

    def parts_of(message: str) -> Iterator[Any]:
        return _files_in(file, storage / "part", message)

    messages = list(_files_in(file, storage / "message", identity))
    messages.sort(
        key=lambda message: (
            time_ns(mapping(message.get("time")).get("created")) or 0,
            text(message.get("id")),
        )
    )
    database = _OpencodeDatabase(agent, {identity: session_row}, parts_of)
    for message in messages:
        database.add(text(message.get("id")), identity, message)
    return list(database.turns())


def _files_in(file: ScannedFile, folder: Path, identity: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of the files in the folder of an id, sorted by name."""
    if not _ID.fullmatch(identity):
        return  # an id must not lead out of the folder
    for path in sorted((folder / identity).glob("*.json")):
        try:
            content = _parsed(path.read_bytes())
        except OSError:
            content = None
        if content is None:
            file.damage.problem = f"{path.name} is damaged, or cannot be read"
        else:
            yield content


def _parsed(data: Any) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (TypeError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def stored_text(file: ScannedFile, key: str) -> str:
    """Return the text of the message with an id."""
    if file.head.shape is FileShape.DATABASE:
        with file.database() as connection:
            if connection is None:
                return ""
            query = "SELECT data FROM part WHERE message_id = ? ORDER BY id"
            return _text_in(_parsed(data) for (data,) in connection.execute(query, [key]))
        return ""
    if len(file.head.records) == 1 and _kind_of_file(file.head.records[0]) == "session":
        folder = file.path.parents[2] / "part" if file.path is not None else Path()
        return _text_in(_files_in(file, folder, key))
    parts = (row for _, row in file.records() if text(row.get("message_id")) == key)
    return _text_in(
        row["data"] if isinstance(row.get("data"), dict) else _parsed(row.get("data"))
        for row in parts
    )


def _text_in(parts: Iterable[Mapping[str, Any] | None]) -> str:
    """Return the text of a message's parts, without text that the client added."""
    return "".join(
        text(part.get("text"))
        for part in parts
        if part is not None and part.get("type") == "text" and part.get("synthetic") is not True
    )


SOURCE: Final = Source(
    name="opencode",
    title=TITLE,
    shapes=(FileShape.DATABASE, FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    is_companion=is_companion,
    read=read,
    places=places,
    stored_text=stored_text,
    advice="set OPENCODE_EXPERIMENTAL_OUTPUT_TOKEN_MAX above the limit that cut its answers",
)
