"""Sessions of Qwen Code: JSON lines below `~/.qwen/projects`, a tree like Claude Code's.

There are no stop reasons, and answers that the program continued by itself are consecutive lines.

Source of the facts: chatRecordingService.ts of QwenLM/qwen-code, and sessions of 0.15.10.
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

TITLE: Final = "Qwen Code"
NEEDLES: Final = (b'"user"', b'"assistant"', b'"system"')


def recognises(head: FileHead) -> bool:
    """Return whether the lines are those of a session."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    if not {"uuid", "sessionId", "parentUuid"} <= record.keys():
        return False
    is_message = isinstance(mapping(record.get("message")).get("parts"), list)
    return is_message or record.get("subtype") == "ui_telemetry"


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folder of sessions."""
    yield home / ".qwen" / "projects"


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session; a sub-agent's lines are separate turns."""
    turns: list[PastTurn] = []
    latest: dict[str, PastTurn] = {}
    for offset, line in file.records(*NEEDLES):
        is_sub_agent = line.get("isSidechain") is True
        stream = text(line.get("agentId")) or str(is_sub_agent)
        parts = objects(mapping(line.get("message")).get("parts"))
        match line.get("type"):
            case "user" if any(text(part.get("text")) for part in parts):
                latest[stream] = _new_turn(line, is_sub_agent)
                turns.append(latest[stream])
            case "assistant":
                if stream not in latest:
                    latest[stream] = _new_turn(line, is_sub_agent)
                    latest[stream].has_user_message = False
                    turns.append(latest[stream])
                latest[stream].error = None
                latest[stream].calls.append(_call_of(line, offset))
            case "system" if line.get("subtype") == "turn_result" and stream in latest:
                if mapping(line.get("systemPayload")).get("error"):
                    latest[stream].error = "error"
    yield from (turn for turn in turns if turn.has_record)


def _new_turn(line: Mapping[str, Any], is_sub_agent: bool) -> PastTurn:
    session = text(line.get("sessionId"))
    return PastTurn(
        id=text(line.get("uuid")),
        source=TITLE,
        session=session,
        project=text(line.get("cwd")),
        started_ns=time_ns(line.get("timestamp")),
        parent_session=session if is_sub_agent else None,
    )


def _call_of(line: Mapping[str, Any], offset: int) -> PastCall:
    tokens, model = mapping(line.get("usageMetadata")), text(line.get("model"))
    output_tokens = count(tokens.get("candidatesTokenCount"))
    thoughts = count(tokens.get("thoughtsTokenCount"))
    usage = Usage(
        input_tokens=count(tokens.get("promptTokenCount")),
        output_tokens=output_tokens,
        reasoning_tokens=thoughts,
        cache_read_tokens=count(tokens.get("cachedContentTokenCount")),
    )
    return PastCall(
        key=text(line.get("uuid")),
        request=RequestFacts(model=model),
        response=ResponseFacts(
            stop=UNRECORDED_STOP, model=model or None, usage=usage if tokens else None
        ),
        ended_ns=time_ns(line.get("timestamp")),
        version=text(line.get("version")),
        offset=offset,
        is_copy="forkedFrom" in line,
    )


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    message = mapping(next(iter(records), {}).get("message"))
    parts = objects(message.get("parts"))
    return "".join(text(part.get("text")) for part in parts if not part.get("thought"))


SOURCE: Final = Source(
    name="qwen_code",
    title=TITLE,
    recognises=recognises,
    read=read,
    places=places,
    text=answer_text,
)
