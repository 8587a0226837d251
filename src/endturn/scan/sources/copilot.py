"""Sessions of GitHub's Copilot CLI: `events.jsonl` below `~/.copilot/session-state`.

The event with the finish reason is not written to the file. Interruptions and errors are.

Source of the facts: session-events.ts of github/copilot-sdk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.calls import RequestFacts, ResponseFacts
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import UNRECORDED_STOP, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage

TITLE: Final = "Copilot CLI"
NEEDLES: Final = (b'"session.', b'"user.message"', b'"assistant.message"', b'"abort"')
_TYPES: Final = ("session.", "user.", "assistant.", "tool.", "abort")


def recognises(head: FileHead) -> bool:
    """Return whether the lines are events of a session."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    is_event = {"type", "id", "timestamp", "parentId"} <= record.keys()
    is_own_type = text(record.get("type")).startswith(_TYPES)
    return is_event and is_own_type and isinstance(record.get("data"), dict)


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folders of sessions."""
    if state := environment.get("XDG_STATE_HOME"):
        yield Path(state) / ".copilot" / "session-state"
    yield home / ".copilot" / "session-state"


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session."""
    session: Mapping[str, Any] = {}
    model = ""
    turn: PastTurn | None = None
    for offset, event in file.records(*NEEDLES):
        data = mapping(event.get("data"))
        match event.get("type"):
            case "session.start":
                session = data
                model = text(data.get("selectedModel"))
            case "session.model_change":
                model = text(data.get("newModel")) or model
            case "user.message":
                if turn is not None and turn.has_record:
                    yield turn
                turn = _new_turn(event, session)
            case "assistant.message":
                if turn is None:
                    turn = _new_turn(event, session)
                    turn.has_user_message = False
                turn.error = None
                turn.calls.append(_call_of(event, data, model, offset))
                turn.calls[-1].version = text(session.get("copilotVersion"))
            case "abort" if turn is not None:
                turn.is_interrupted = True
            case "session.error" if turn is not None:
                turn.error = text(data.get("errorType")) or "error"
    if turn is not None and turn.has_record:
        yield turn


def _new_turn(event: Mapping[str, Any], session: Mapping[str, Any]) -> PastTurn:
    return PastTurn(
        id=text(event.get("id")),
        source=TITLE,
        session=text(session.get("sessionId")),
        project=text(mapping(session.get("context")).get("cwd")),
        started_ns=time_ns(event.get("timestamp")),
    )


def _call_of(
    event: Mapping[str, Any], data: Mapping[str, Any], model: str, offset: int
) -> PastCall:
    output = count(data.get("outputTokens"))
    return PastCall(
        key=text(data.get("messageId")) or text(event.get("id")),
        request=RequestFacts(model=text(data.get("model")) or model),
        response=ResponseFacts(
            stop=UNRECORDED_STOP, usage=None if output is None else Usage(output_tokens=output)
        ),
        ended_ns=time_ns(event.get("timestamp")),
        tool_calls=tuple(
            text(tool.get("toolCallId")) for tool in objects(data.get("toolRequests"))
        ),
        offset=offset,
    )


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    return text(mapping(next(iter(records), {}).get("data")).get("content"))


SOURCE: Final = Source(
    name="copilot",
    title=TITLE,
    recognises=recognises,
    read=read,
    places=places,
    text=answer_text,
)
