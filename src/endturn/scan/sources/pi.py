"""Sessions of pi, and of openclaw, which writes the same lines.

The lines are a tree by `id` and `parentId`: abandoned branches hold answers too. Each
assistant message has its `stopReason`. A tool call that the limit cut is run, with the arguments
that were completed for it.

Source of the facts: session files of pi 1.6.0, and docs/session.md of badlogic/pi-mono.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, Strategy
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Resume, Row, StopReason, Usage, canonical, find_stop

TITLE: Final = "pi"
NEEDLES: Final = (b'"message"', b'"session"')
ROWS: Final = {
    "stop": Row(StopReason.END_TURN),
    "toolUse": Row(StopReason.TOOL_CALL),
    "length": Row(StopReason.MAX_TOKENS, incomplete=True, resume=Resume.PROMPT),
    "error": Row(StopReason.ERROR, incomplete=True),
    "aborted": Row(StopReason.CANCELLED, incomplete=True),
}
"""The values of `stopReason` and their meanings."""
_ROLES: Final = frozenset({"user", "assistant", "toolResult"})
_OPENCLAW: Final = frozenset({".openclaw", ".clawdbot"})


def recognises(head: FileHead) -> bool:
    """Return whether the lines are those of a session."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    if record.get("type") == "session":
        return "id" in record and "cwd" in record and "timestamp" in record
    is_message = record.get("type") == "message" and "parentId" in record
    return is_message and text(mapping(record.get("message")).get("role")) in _ROLES


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folders of sessions."""
    yield Path(environment.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent") / "sessions"
    yield home / ".openclaw" / "agents"
    yield home / ".clawdbot" / "agents"


@dataclass(slots=True, eq=False)
class _PiResponse:
    call: PastCall
    last_block_is_tool: bool = False
    results: dict[str, bool] = field(default_factory=dict)
    """The tool calls with a result, and whether it is a success."""


@dataclass(slots=True, eq=False)
class _PiPlace:
    """The position of an entry in the tree: its turn, and the previous response in that turn."""

    turn: PastTurn | None = None
    last: _PiResponse | None = None


class _PiSession:
    """Collects the turns of one file."""

    def __init__(self, file: ScannedFile) -> None:
        parts = file.path.parts if file.path is not None else ()
        self._agent = TITLE if _OPENCLAW.isdisjoint(parts) else "openclaw"
        self._header: Mapping[str, Any] = {}
        self._places: dict[str, _PiPlace] = {}
        self._latest = _PiPlace()
        self._responses: list[_PiResponse] = []
        self.turns: list[PastTurn] = []

    def add(self, line: Mapping[str, Any], offset: int) -> None:
        """Read one line."""
        if line.get("type") == "session":
            self._header = line
            return
        parent = line.get("parentId")
        # entries between two messages, such as a change of the model, may have been left out
        before = self._places.get(text(parent), self._latest)
        place = _PiPlace(before.turn, before.last)
        message = mapping(line.get("message"))
        match message.get("role"):
            case "user":
                place = _PiPlace(self._new_turn(line, message, offset))
            case "assistant":
                self._add_response(place, line, message, offset)
            case "toolResult" if place.last is not None:
                succeeded = message.get("isError") is not True
                place.last.results[text(message.get("toolCallId"))] = succeeded
        self._places[text(line.get("id"))] = self._latest = place

    def _new_turn(
        self, line: Mapping[str, Any], message: Mapping[str, Any], offset: int | None
    ) -> PastTurn:
        moment = message.get("timestamp") or line.get("timestamp")
        turn = PastTurn(
            id=f"{text(line.get('id'))} {moment}",
            source=TITLE,
            agent=self._agent,
            session=text(self._header.get("id")),
            project=text(self._header.get("cwd")),
            started_ns=time_ns(line.get("timestamp")) or time_ns(moment),
            runs_tools=True,
            offset=offset,
        )
        self.turns.append(turn)
        return turn

    def _add_response(
        self, place: _PiPlace, line: Mapping[str, Any], message: Mapping[str, Any], offset: int
    ) -> None:
        if place.turn is None:
            place.turn = self._new_turn(line, message, None)
            place.turn.has_user_message = False
        call = _call_of(line, message, offset)
        blocks = objects(message.get("content"))
        response = _PiResponse(call, bool(blocks) and blocks[-1].get("type") == "toolCall")
        if place.last is not None and (strategy := _strategy_after(place.last)) is not None:
            call.strategy, call.continues = strategy, place.last.call.key
        if call.response.stop.reason is StopReason.CANCELLED:
            place.turn.is_interrupted = True
        place.turn.calls.append(call)
        place.last = response
        self._responses.append(response)

    def finish(self) -> Iterator[PastTurn]:
        """Yield the turns that have a call, after all lines were read."""
        for response in self._responses:
            response.call.ran_cut_tool_call = response.call.truncated and _ran(response)
        yield from (turn for turn in self.turns if turn.calls)


def _call_of(line: Mapping[str, Any], message: Mapping[str, Any], offset: int) -> PastCall:
    model, raw = text(message.get("model")), message.get("stopReason")
    tools = [
        text(block.get("id"))
        for block in objects(message.get("content"))
        if block.get("type") == "toolCall"
    ]
    identity = text(message.get("responseId")) or text(line.get("id"))
    moment = message.get("timestamp") or line.get("timestamp")
    usage = mapping(message.get("usage"))
    prompt = [tokens for name in _PROMPT if (tokens := count(usage.get(name))) is not None]
    stop = find_stop(raw, ROWS, calls=len(tools)) if isinstance(raw, str) else None
    call = PastCall(
        key=f"{identity} {moment} {model}",
        request=RequestFacts(model=model),
        endpoint=EndpointFacts(provider=canonical(text(message.get("provider")))),
        started_ns=time_ns(message.get("timestamp")),
        ended_ns=time_ns(line.get("timestamp")),
        tool_calls=tuple(tools),
        offset=offset,
    )
    if stop is None:
        return call
    call.evidence = Evidence.RECORDED
    call.error = "error" if stop.reason is StopReason.ERROR else None
    call.response = ResponseFacts(
        stop=stop,
        id=text(message.get("responseId")) or None,
        usage=Usage(
            input_tokens=sum(prompt) if prompt else None,
            output_tokens=count(usage.get("output")),
            cache_read_tokens=count(usage.get("cacheRead")),
            cache_write_tokens=count(usage.get("cacheWrite")),
        ),
        reasons=(raw,),
    )
    return call


_PROMPT: Final = ("input", "cacheRead", "cacheWrite")


def _strategy_after(before: _PiResponse) -> Strategy | None:
    """Return how a response continues the previous one, without a user's message in between."""
    if not before.call.truncated:
        return None
    if not before.results:
        return Strategy.PROMPT
    return None if _ran(before) else Strategy.REPAIR


def _ran(response: _PiResponse) -> bool:
    """Return whether the tool call at the end of a truncated response was run."""
    tools = response.call.tool_calls
    return response.last_block_is_tool and response.results.get(tools[-1], False)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session."""
    session = _PiSession(file)
    for offset, line in file.records(*NEEDLES):
        session.add(line, offset)
    yield from session.finish()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    message = mapping(next(iter(records), {}).get("message"))
    return "".join(text(block.get("text")) for block in objects(message.get("content")))


def question_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a user's message."""
    content = mapping(next(iter(records), {}).get("message")).get("content")
    return text(content) or "".join(text(block.get("text")) for block in objects(content))


SOURCE: Final = Source(
    name="pi",
    title=TITLE,
    recognises=recognises,
    read=read,
    places=places,
    text=answer_text,
    question=question_text,
    advice="raise maxTokens of the model in models.json: it runs tool calls that the limit cut",
)
