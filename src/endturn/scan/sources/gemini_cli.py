"""Sessions of Gemini CLI: JSON lines below `~/.gemini/tmp`, in early versions one JSON object.

A message is written again when it changes, and no message has a stop reason. Only the interactive
program writes a message of type `info` on why an answer stopped; without one, the reason is
unknown. It precedes its answer, which is written at the end of the stream (0.61.0), or follows it
in programs that write the answer first. Between two answers it belongs to the second if the first
one requested tools, which were run; otherwise it could belong to either, and is assigned to
neither.

Source of the facts: a session that 0.61.0 wrote on a terminal; chatRecordingService.ts,
geminiChat.ts and useGeminiStream.ts of google-gemini/gemini-cli.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import CANCELLED_STOP, UNRECORDED_STOP, Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage, find_stop, rows_of

TITLE: Final = "Gemini CLI"
_CONTEXT: Final = "<session_context>"
"""The beginning of the first message in the user's name, which the client writes."""
_INFOS: Final = {
    "Response truncated due to token limits.": "MAX_TOKENS",
    "Response stopped due to safety reasons.": "SAFETY",
    "Response stopped due to recitation policy.": "RECITATION",
    "Response stopped due to unsupported language.": "LANGUAGE",
    "Response stopped due to forbidden terms.": "BLOCKLIST",
    "Response stopped due to prohibited content.": "PROHIBITED_CONTENT",
    "Response stopped due to sensitive personally identifiable information.": "SPII",
    "Response stopped for other reasons.": "OTHER",
    "Response stopped due to malformed function call.": "MALFORMED_FUNCTION_CALL",
    "Response stopped due to image safety violations.": "IMAGE_SAFETY",
    "Response stopped due to unexpected tool call.": "UNEXPECTED_TOOL_CALL",
    "Response stopped due to prohibited image content.": "IMAGE_PROHIBITED_CONTENT",
    "Response stopped because no image was generated.": "NO_IMAGE",
}
"""The program's messages for finish reasons."""
_CANCELLATIONS: Final = ("Request cancelled.", "User cancelled the request.")


def recognises(head: FileHead) -> bool:
    """Return whether the file is a session."""
    if head.shape is FileShape.VALUE and not head.records:
        words = (b'"sessionId"', b'"projectHash"', b'"startTime"', b'"messages"')
        return all(word in head.text for word in words)
    return any(
        {"sessionId", "projectHash", "startTime"} <= record.keys() for record in head.records
    )


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folder of sessions, which also contains other files of the tool."""
    yield from sorted((home / ".gemini" / "tmp").glob("*/chats"))


class _GeminiCliSession:
    """Collects the messages of one file; the last one with an id counts."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._about: dict[str, Any] = {}
        self._messages: dict[str, tuple[int | None, Mapping[str, Any]]] = {}

    def add(self, record: Mapping[str, Any], offset: int | None) -> None:
        """Read one line."""
        if "sessionId" in record and "projectHash" in record:
            self._about.update(record)
        changes = mapping(record.get("$set"))
        for message in objects(record.get("messages")) + objects(changes.get("messages")):
            self._add_message(message, offset)
        if "type" in record:
            self._add_message(record, offset)

    def _add_message(self, message: Mapping[str, Any], offset: int | None) -> None:
        identity = text(message.get("id"))
        if identity:
            before = self._messages.get(identity)
            self._messages[identity] = (before[0] if before else offset), message

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns after all lines were read; a prompt without a model call is no turn."""
        turn: _GeminiCliTurn | None = None
        for offset, message in self._messages.values():
            match message.get("type"):
                case "user" if _is_prompt(message):
                    if turn is not None and turn.past.has_record:
                        yield turn.finished()
                    turn = _GeminiCliTurn(self._new_turn(message))
                case "gemini":
                    if turn is None:
                        turn = _GeminiCliTurn(self._new_turn(message))
                        turn.past.has_user_message = False
                    turn.add_call(_call_of(message, offset))
                case "info" if turn is not None:
                    turn.add_info(_words(message))
                case "error" if turn is not None:
                    turn.past.error = "error"
        if turn is not None and turn.past.has_record:
            yield turn.finished()

    def _new_turn(self, message: Mapping[str, Any]) -> PastTurn:
        is_sub_agent = self._about.get("kind") == "subagent"
        parent = self._path.parent.name if is_sub_agent and self._path is not None else None
        return PastTurn(
            id=text(message.get("id")),
            source=TITLE,
            session=text(self._about.get("sessionId")),
            project=text(self._about.get("projectHash")),
            started_ns=time_ns(message.get("timestamp")),
            parent_session=parent,
        )


def _words(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return text(content) or "".join(text(part.get("text")) for part in objects(content))


def _is_prompt(message: Mapping[str, Any]) -> bool:
    """Return whether a message in the user's name is from the user, and not a tool result."""
    parts = objects(message.get("content"))
    has_results_alone = bool(parts) and all("functionResponse" in part for part in parts)
    return not has_results_alone and not _words(message).lstrip().startswith(_CONTEXT)


def _call_of(message: Mapping[str, Any], offset: int | None) -> PastCall:
    tokens = mapping(message.get("tokens"))
    output_counts = [count(tokens.get(name)) for name in ("output", "thoughts")]
    usage = Usage(
        input_tokens=count(tokens.get("input")),
        output_tokens=sum(filter(None, output_counts)) if output_counts[0] is not None else None,
        reasoning_tokens=output_counts[1],
        cache_read_tokens=count(tokens.get("cached")),
    )
    model = text(message.get("model"))
    return PastCall(
        key=text(message.get("id")),
        request=RequestFacts(model=model),
        endpoint=EndpointFacts(provider="gcp.gen_ai"),
        response=ResponseFacts(
            stop=UNRECORDED_STOP, model=model or None, usage=usage if tokens else None
        ),
        ended_ns=time_ns(message.get("timestamp")),
        tool_calls=tuple(text(tool.get("id")) for tool in objects(message.get("toolCalls"))),
        offset=offset,
    )


@dataclass(slots=True)
class _GeminiCliTurn:
    """A turn, and the finish reason of an `info` message since its latest answer."""

    past: PastTurn
    reason: str | None = None

    def add_call(self, call: PastCall) -> None:
        """Add an answer, with the reason from the message before it."""
        before = self.past.calls[-1] if self.past.calls else None
        self.past.error = None
        self.past.calls.append(call)
        reason, self.reason = self.reason, None
        if reason is not None and (before is None or before.tool_calls):
            _set_reason(call, reason)

    def add_info(self, words: str) -> None:
        """Read a message that the program showed."""
        reason = next((reason for info, reason in _INFOS.items() if info in words), None)
        self.reason = reason or self.reason
        if not any(cancellation in words for cancellation in _CANCELLATIONS):
            return
        self.past.is_interrupted = True
        if self.past.calls and not self.past.calls[-1].tool_calls:
            last = self.past.calls[-1]
            # the tokens of an answer are written when it is complete
            if last.response.usage is None and last.evidence is Evidence.NOT_RECORDED:
                last.evidence = Evidence.OTHER_RECORD
                last.response = replace(last.response, stop=CANCELLED_STOP)

    def finished(self) -> PastTurn:
        """Return the turn after all of its messages were read."""
        if self.reason is not None and self.past.calls:
            last = self.past.calls[-1]
            if last.evidence is Evidence.NOT_RECORDED:
                _set_reason(last, self.reason)
        return self.past


def _set_reason(call: PastCall, reason: str) -> None:
    call.evidence = Evidence.OTHER_RECORD
    stop = find_stop(reason, rows_of("gemini", ""))
    call.response = replace(call.response, stop=stop, reasons=(reason,))


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session."""
    session = _GeminiCliSession(file.path)
    if file.head.shape is FileShape.VALUE and not file.head.is_list:
        session.add(mapping(file.value()), None)
    else:
        for offset, record in file.records():
            session.add(record, offset)
    yield from session.turns()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response: the last line with its id."""
    words, identity = "", None
    for record in records:
        identity = identity or record.get("id")
        if identity and record.get("id") == identity:
            words = _words(record)
    return words


SOURCE: Final = Source(
    name="gemini_cli",
    title=TITLE,
    shapes=(FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    read=read,
    places=places,
    text=answer_text,
    advice="raise maxOutputTokens of the model in settings.json",
)
