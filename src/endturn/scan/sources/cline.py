"""Tasks of Cline, Roo Code and early Kilo Code: `ui_messages.json` of a task's folder.

No record has the stop reason of an answer. Each request is recorded with its tokens, and with the
cause if it ended early: the user, or a broken stream.

Source of the facts: ExtensionMessage.ts of cline/cline.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import (
    CANCELLED_STOP,
    FAILED_STOP,
    UNRECORDED_STOP,
    Evidence,
    PastCall,
    PastTurn,
)
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage, canonical

TITLE: Final = "Cline"
MESSAGES: Final = "ui_messages.json"
_REQUEST: Final = "api_req_started"
_BY_USER: Final = frozenset({"task", "user_feedback"})
_EXTENSIONS: Final = {
    "saoudrizwan.claude-dev": TITLE,
    "rooveterinaryinc.roo-cline": "Roo Code",
    "kilocode.kilo-code": "Kilo Code",
}
"""The folders of the extensions below an editor's `globalStorage`, and the extensions' names."""
_EDITORS: Final = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")


def recognises(head: FileHead) -> bool:
    """Return whether the value is a list of a task's messages."""
    if head.shape is FileShape.VALUE and not head.records:
        return head.text[:1] == b"[" and f'"{_REQUEST}"'.encode() in head.text
    return any(
        record.get("say") == _REQUEST and "ts" in record and record.get("type") == "say"
        for record in head.records
    )


def is_companion(head: FileHead) -> bool:
    """Return whether a file is another file of a task's folder."""
    path = head.path
    is_other = head.shape is FileShape.VALUE and path is not None and path.name != MESSAGES
    return is_other and path is not None and (path.parent / MESSAGES).exists()


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield each editor's folder of tasks."""
    for settings in (home / ".config", home / "Library" / "Application Support"):
        for editor in _EDITORS:
            for extension in _EXTENSIONS:
                yield settings / editor / "User" / "globalStorage" / extension / "tasks"


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a task."""
    parts = file.path.parts if file.path is not None else ()
    agent = next((name for folder, name in _EXTENSIONS.items() if folder in parts), TITLE)
    session = file.path.parent.name if file.path is not None else ""
    turn: PastTurn | None = None
    messages = objects(file.value())
    first = next((message.get("ts") for message in messages), None)
    for place, message in enumerate(messages):
        kind = text(message.get("say"))
        if kind in _BY_USER or (place == 0 and kind == "text"):
            if turn is not None and turn.calls:
                yield turn
            turn = _new_turn(f"{first} {message.get('ts')}", agent, session)
            turn.started_ns = time_ns(message.get("ts"))
        elif kind == _REQUEST:
            if turn is None:
                turn = _new_turn(f"{first} before", agent, session)
                turn.has_user_message = False
            call = _call_of(message, f"{first} {message.get('ts')}")
            turn.is_interrupted = call.response.stop is CANCELLED_STOP
            turn.calls.append(call)
    if turn is not None and turn.calls:
        yield turn


def _new_turn(identity: str, agent: str, session: str) -> PastTurn:
    return PastTurn(id=identity, source=TITLE, agent=agent, session=session)


def _call_of(message: Mapping[str, Any], key: str) -> PastCall:
    details, model = _parsed(message.get("text")), mapping(message.get("modelInfo"))
    prompt = [count(details.get(name)) for name in ("tokensIn", "cacheReads", "cacheWrites")]
    call = PastCall(
        key=key,
        request=RequestFacts(model=text(model.get("modelId"))),
        endpoint=EndpointFacts(provider=canonical(text(model.get("providerId")))),
        started_ns=time_ns(message.get("ts")),
    )
    usage = Usage(
        input_tokens=sum(filter(None, prompt)) if prompt[0] is not None else None,
        output_tokens=count(details.get("tokensOut")),
        cache_read_tokens=prompt[1],
        cache_write_tokens=prompt[2],
    )
    match details.get("cancelReason"):
        case "user_cancelled":
            call.evidence, stop = Evidence.OTHER_RECORD, CANCELLED_STOP
        case str() as reason:
            call.evidence, call.error, stop = Evidence.OTHER_RECORD, reason, FAILED_STOP
        case _:
            stop = UNRECORDED_STOP
    call.response = ResponseFacts(stop=stop, usage=usage)
    return call


def _parsed(data: Any) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(data))
    except (TypeError, ValueError, RecursionError):
        return {}


SOURCE: Final = Source(
    name="cline",
    title=TITLE,
    shapes=(FileShape.VALUE,),
    recognises=recognises,
    is_companion=is_companion,
    read=read,
    places=places,
)
