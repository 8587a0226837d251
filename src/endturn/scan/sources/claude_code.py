"""Sessions of Claude Code: JSON lines below `~/.claude/projects`.

Each content block of a response is a line of its own with the response's `message.id`. Versions
differ in where they write the stop reason: on each line (2.1.97 on), on the last line of a response
(up to 2.0.50, and 2.1.76) or nowhere (2.1.15 to 2.1.50). If it is null, a later line may show how
the response ended: the error that replaces a truncated answer, or the text of an interruption.

Source of the facts: session files that versions 1.0.60 to 2.1.332 wrote.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final

from endturn.calls import RequestFacts, ResponseFacts, Strategy
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import (
    CANCELLED_STOP,
    FAILED_STOP,
    TRUNCATED_STOP,
    UNRECORDED_STOP,
    Evidence,
    PastCall,
    PastTurn,
)
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Stop, Usage, find_stop, rows_of

TITLE: Final = "Claude Code"
NEEDLES: Final = (b'"assistant"', b'"user"', b'"system"', b'"api-request"')
"""Every line that matters has one of these types."""
SYNTHETIC: Final = "<synthetic>"
CONTINUATION: Final = "Output token limit hit"
ANEW: Final = "Your caller does not receive an answer in pieces"
"""Text of the prompt that requests a sub-agent's complete answer again."""
INTERRUPTED: Final = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
"""The complete text of lines that mark an interruption; a user may quote it in a message."""
OUTPUT_LIMIT: Final = re.compile(r"exceeded the (\d+) output token maximum")
API_ERROR: Final = "API Error"
"""The beginning of a line that marks a failed attempt."""
UNPARSED: Final = "__unparsedToolInput"
_OF_AGENTS: Final = ("sdk", "repl", "agent:")
"""Beginnings of `querySource` for requests whose answers are in the session; those of other
requests, such as for a title, are not."""
_TYPES: Final = frozenset(
    {"user", "assistant", "system", "summary", "progress", "attachment", "queue-operation"}
)


def recognises(head: FileHead) -> bool:
    """Return whether the lines are those of a session."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    if record.get("type") == "summary":
        return "leafUuid" in record
    if record.get("type") == "queue-operation":
        return "sessionId" in record and "operation" in record
    if record.get("type") == "file-history-snapshot":  # a session may begin with many such lines
        return "messageId" in record and "snapshot" in record
    if text(record.get("type")) not in _TYPES or "sessionId" not in record or "uuid" not in record:
        return False
    # other tools use the same lines, with messages in another form
    return "parentUuid" in record and "parts" not in mapping(record.get("message"))


def is_companion(head: FileHead) -> bool:
    """Return whether a file describes a sub-agent's session."""
    return len(head.records) == 1 and "agentType" in head.records[0]


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folders of sessions."""
    if folder := environment.get("CLAUDE_CONFIG_DIR"):
        yield Path(folder) / "projects"
    yield home / ".claude" / "projects"
    yield home / ".config" / "claude" / "projects"


@dataclass(slots=True)
class _ClaudeRequest:
    """An `api-request` line: the settings of one request."""

    id: str
    model: str
    max_tokens: int | None
    at_ns: int | None
    offset: int
    version: str


@dataclass(slots=True, eq=False)
class _ClaudeResponse:
    """The lines of one response, and facts on it from later lines."""

    call: PastCall
    model: str = ""
    requested_model: str = ""
    request: str = ""
    reason: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    tools: list[str] = field(default_factory=list)
    last_block_is_tool: bool = False
    has_unparsed_input: bool = False
    is_aborted: bool = False
    limit: int | None = None
    is_cut: bool = False
    is_interrupted: bool = False
    request_strategy: Strategy | None = None
    results: dict[str, bool] = field(default_factory=dict)
    """The tool calls with a result, and whether it is a success."""


@dataclass(slots=True, eq=False)
class _Stream:
    """The lines of one agent in order: the session's own, or a sub-agent's.

    Attributes:
        pending: the latest request, until a line has its response.
        tool_owners: the responses that requested a tool call, by its id.
    """

    turn: PastTurn | None = None
    last: _ClaudeResponse | None = None
    pending: _ClaudeRequest | None = None
    tool_owners: dict[str, _ClaudeResponse] = field(default_factory=dict)


class _ClaudeSession:
    """Collects the turns of one file."""

    def __init__(self, file: ScannedFile) -> None:
        self._file = file
        self._streams: dict[str, _Stream] = {}
        self._roots: dict[str, str] = {}
        self._requests: dict[str, _ClaudeRequest] = {}
        self._responses: dict[str, _ClaudeResponse] = {}
        self._turns: list[PastTurn] = []
        self._of_turn: dict[int, list[_ClaudeResponse]] = {}
        self._parent_tool_call = _parent_tool_call(file.path)

    def add(self, line: Mapping[str, Any], offset: int) -> None:
        """Read one line."""
        match line.get("type"):
            case "user":
                self._add_user(line, offset)
            case "assistant":
                message = mapping(line.get("message"))
                if line.get("isApiErrorMessage") or message.get("model") == SYNTHETIC:
                    self._add_error(line, message, offset)
                else:
                    self._add_response(line, message, offset)
            case "system" if line.get("subtype") == "api_error":
                self._add_failed_attempt(line, offset)
            case "api-request":
                self._add_request(line, offset)

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns after all lines were read; a prompt without a model call is no turn."""
        for stream in self._streams.values():
            self._abandon_request(stream)
        rows = rows_of("anthropic", "")
        for turn in self._turns:
            responses = self._of_turn.get(id(turn), [])
            for response in responses:
                self._finish(response, rows)
            _connect(responses)
            if turn.has_record:
                yield turn

    # --- Lines ------------------------------------------------------------------------------------

    def _add_user(self, line: Mapping[str, Any], offset: int) -> None:
        stream = self._stream(line)
        content = mapping(line.get("message")).get("content")
        blocks = objects(content)
        words = text(content) or next(
            (text(block.get("text")) for block in blocks if block.get("type") == "text"), ""
        )
        last = stream.last
        if line.get("isMeta") or line.get("isCompactSummary"):
            if last is not None and words.startswith(CONTINUATION):
                last.request_strategy = Strategy.RETRY if ANEW in words else Strategy.PROMPT
            return
        has_result = False
        for block in blocks:
            if block.get("type") == "tool_result":
                has_result = True
                self._add_result(stream, block)
        if words.strip() in INTERRUPTED:
            last = self._abandon_request(stream) or last
            if stream.turn is not None:
                stream.turn.is_interrupted = True
            if last is not None and not any(last.results.values()):
                last.is_interrupted = True
        elif not has_result and (words or blocks):
            self._begin_turn(stream, line, offset)

    def _add_result(self, stream: _Stream, block: Mapping[str, Any]) -> None:
        call_id = text(block.get("tool_use_id"))
        # lines of the next response may precede it
        if (response := stream.tool_owners.get(call_id)) is not None:
            response.results[call_id] = block.get("is_error") is not True

    def _begin_turn(self, stream: _Stream, line: Mapping[str, Any], offset: int) -> None:
        self._abandon_request(stream)
        stream.turn = self._new_turn(line, text(line.get("uuid")))
        stream.turn.offset = offset
        stream.turn.started_ns = time_ns(line.get("timestamp"))
        stream.last = None

    def _new_turn(self, line: Mapping[str, Any], identity: str) -> PastTurn:
        session = text(line.get("sessionId"))
        is_sub_agent = line.get("isSidechain") is True
        turn = PastTurn(
            id=identity or f"{session} {len(self._turns)}",
            source=TITLE,
            session=session,
            project=text(line.get("cwd")),
            parent_session=session if is_sub_agent else None,
            parent_tool_call=self._parent_tool_call if is_sub_agent else None,
            runs_tools=True,
        )
        self._turns.append(turn)
        return turn

    def _turn(self, stream: _Stream, line: Mapping[str, Any], key: str) -> PastTurn:
        """Return the stream's turn; calls before its first message are no turn."""
        if stream.turn is None:
            stream.turn = self._new_turn(line, f"before {key}")
            stream.turn.has_user_message = False
        return stream.turn

    def _add_response(
        self, line: Mapping[str, Any], message: Mapping[str, Any], offset: int
    ) -> None:
        key = text(message.get("id")) or text(line.get("requestId")) or text(line.get("uuid"))
        at_ns = time_ns(line.get("timestamp"))
        stream = self._stream(line)
        response = self._responses.get(key)
        if response is None:
            call = PastCall(
                key=key, version=text(line.get("version")), offset=offset,
                is_copy="requestSessionId" in line,
            )  # fmt: skip
            turn = self._turn(stream, line, key)
            turn.error = None  # the turn continued
            response = self._new_response(turn, call)
        stream.last, stream.pending = response, None
        response.call.ended_ns = at_ns or response.call.ended_ns
        response.reason = text(message.get("stop_reason")) or response.reason
        response.model = text(message.get("model")) or response.model
        response.requested_model = text(line.get("requestedModel")) or response.requested_model
        response.request = text(line.get("requestRef")) or response.request
        response.is_aborted |= line.get("isAbortedMidStream") is True
        for name, value in mapping(message.get("usage")).items():
            if (tokens := count(value)) is not None:
                response.usage[name] = max(tokens, response.usage.get(name, 0))
        for block in objects(message.get("content")):
            response.last_block_is_tool = block.get("type") == "tool_use"
            if response.last_block_is_tool:
                response.tools.append(text(block.get("id")))
                stream.tool_owners[response.tools[-1]] = response
                response.has_unparsed_input |= UNPARSED in mapping(block.get("input"))

    def _add_error(self, line: Mapping[str, Any], message: Mapping[str, Any], offset: int) -> None:
        """Read a line that replaces an answer."""
        if not line.get("isApiErrorMessage"):
            return  # such as "No response requested."
        stream = self._stream(line)
        words = " ".join(text(block.get("text")) for block in objects(message.get("content")))
        limit = OUTPUT_LIMIT.search(words)
        if line.get("apiError") != "max_output_tokens" and limit is None:
            if stream.turn is not None:
                stream.turn.error = text(line.get("error")) or "api_error"
            is_answer = stream.pending is not None or count(line.get("apiErrorStatus")) is not None
            if is_answer or words.startswith(API_ERROR):
                self._add_failed_attempt(line, offset)
            return
        last = stream.last
        if last is not None and not last.results and last.reason and not _cuts(last.reason):
            # the previous line has another reason, which counts
            if stream.turn is not None:
                stream.turn.error = "max_output_tokens"
            return
        if last is None or last.results:
            # the truncated answer has no line
            key = text(line.get("uuid"))
            call = PastCall(
                key=key, version=text(line.get("version")), offset=offset,
                ended_ns=time_ns(line.get("timestamp")), is_copy="requestSessionId" in line,
            )  # fmt: skip
            last = stream.last = self._new_response(self._turn(stream, line, key), call)
            last.request = stream.pending.id if stream.pending is not None else ""
        stream.pending = None
        last.is_cut = True
        last.limit = int(limit[1]) if limit else None

    def _add_failed_attempt(self, line: Mapping[str, Any], offset: int) -> None:
        stream, key = self._stream(line), text(line.get("uuid"))
        error = mapping(line.get("error"))
        status = count(error.get("status")) or count(line.get("apiErrorStatus"))
        call = PastCall(
            key=key, response=ResponseFacts(stop=FAILED_STOP), evidence=Evidence.OTHER_RECORD,
            ended_ns=time_ns(line.get("timestamp")), version=text(line.get("version")),
            error=str(status or text(line.get("error")) or "connection"), offset=offset,
        )  # fmt: skip
        if stream.pending is not None:
            _add_request_facts(call, stream.pending)
        stream.pending = None
        self._turn(stream, line, key).calls.append(call)

    def _add_request(self, line: Mapping[str, Any], offset: int) -> None:
        params = mapping(line.get("params"))
        request = _ClaudeRequest(
            text(line.get("id")), text(params.get("model")), count(params.get("max_tokens")),
            time_ns(line.get("timestamp")), offset, text(line.get("version")),
        )  # fmt: skip
        self._requests[request.id] = request
        if not text(line.get("querySource")).startswith(_OF_AGENTS):
            return
        stream = self._stream(line)
        if (before := stream.pending) is not None and stream.turn is not None:
            # it was sent again: there is no line about the attempt in between
            call = PastCall(
                key=f"request {before.id}", response=ResponseFacts(stop=FAILED_STOP),
                error="no_answer", evidence=Evidence.OTHER_RECORD,
                version=before.version, offset=before.offset,
            )  # fmt: skip
            _add_request_facts(call, before)
            stream.turn.calls.append(call)
        stream.pending = request

    def _abandon_request(self, stream: _Stream) -> _ClaudeResponse | None:
        """Return the missing response to a request; None if there is no such request.

        Its agent was killed or interrupted before the answer, or still waits for it.
        """
        request, stream.pending = stream.pending, None
        if request is None or stream.turn is None:
            return None
        call = PastCall(
            key=f"request {request.id}", version=request.version, offset=request.offset
        )  # fmt: skip
        response = stream.last = self._new_response(stream.turn, call)
        response.request = request.id
        return response

    def _new_response(self, turn: PastTurn, call: PastCall) -> _ClaudeResponse:
        response = self._responses[call.key] = _ClaudeResponse(call)
        turn.calls.append(call)
        self._of_turn.setdefault(id(turn), []).append(response)
        return response

    def _stream(self, line: Mapping[str, Any]) -> _Stream:
        key = text(line.get("agentId"))
        if not key and line.get("isSidechain") is True:
            # early versions wrote sub-agents into the session's file, without a name
            uuid = text(line.get("uuid"))
            key = self._roots.get(text(line.get("parentUuid")), uuid)
            self._roots[uuid] = key
        return self._streams.setdefault(key, _Stream())

    # --- After the last line ----------------------------------------------------------------------

    def _finish(self, response: _ClaudeResponse, rows: Mapping[str, Any]) -> None:
        call, usage = response.call, response.usage
        request = self._requests.get(response.request)
        limit = request.max_tokens if request is not None else response.limit
        if request is not None and request.at_ns is not None:
            call.started_ns = request.at_ns
        model = response.requested_model or (request.model if request else "") or response.model
        call.request = RequestFacts(model=model, max_tokens=limit)
        # without a reason, the count may be that of the response's beginning
        output = usage.get("output_tokens") if response.reason else None
        stop, call.evidence = _stop_of(response, rows, limit, output)
        prompt = [usage.get(name) for name in _PROMPT if name in usage]
        tokens = Usage(
            input_tokens=sum(filter(None, prompt)) if prompt else None,
            output_tokens=output,
            cache_read_tokens=usage.get("cache_read_input_tokens"),
            cache_write_tokens=usage.get("cache_creation_input_tokens"),
        )
        call.response = ResponseFacts(
            stop=stop, id=call.key if response.model else None, model=response.model or None,
            usage=tokens if usage else None, reasons=(response.reason,),
        )  # fmt: skip
        call.tool_calls = tuple(response.tools)
        call.ran_cut_tool_call = (
            stop.truncated
            and response.last_block_is_tool
            and response.results.get(response.tools[-1], False)
        )


def _add_request_facts(call: PastCall, request: _ClaudeRequest) -> None:
    call.request = RequestFacts(model=request.model, max_tokens=request.max_tokens)
    call.started_ns = request.at_ns


_PROMPT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def _cuts(reason: str) -> bool:
    return find_stop(reason, rows_of("anthropic", "")).truncated


def _stop_of(
    response: _ClaudeResponse, rows: Mapping[str, Any], limit: int | None, output: int | None
) -> tuple[Stop, Evidence]:
    if response.reason is not None:
        stop = find_stop(
            response.reason,
            rows,
            calls=len(response.tools),
            calls_closed=not response.has_unparsed_input,
            output_tokens=output,
            maximum=limit,
        )
        return stop, Evidence.RECORDED
    if response.is_cut:
        return TRUNCATED_STOP, Evidence.OTHER_RECORD
    if response.is_aborted or response.is_interrupted:
        return CANCELLED_STOP, Evidence.OTHER_RECORD
    return UNRECORDED_STOP, Evidence.NOT_RECORDED


def _connect(responses: Iterable[_ClaudeResponse]) -> None:
    """Mark the calls that continue the truncated response before them."""
    before: _ClaudeResponse | None = None
    for response in responses:
        if before is not None and (strategy := _strategy_after(before)) is not None:
            response.call.strategy = strategy
            response.call.continues = before.call.key
        before = response


def _strategy_after(before: _ClaudeResponse) -> Strategy | None:
    if before.request_strategy is not None:
        return before.request_strategy
    if not before.call.truncated:
        return None
    if not before.results:
        # the client requests the rest, in most versions without a line about it
        return Strategy.PROMPT
    return None if before.call.ran_cut_tool_call else Strategy.REPAIR


def _parent_tool_call(path: Path | None) -> str | None:
    """Return the tool call that started a sub-agent, from the file next to its session."""
    if path is None or not path.name.startswith("agent-"):
        return None
    description_path = path.with_name(f"{path.name.partition('.')[0]}.meta.json")
    try:
        description = json.loads(description_path.read_bytes())
    except (OSError, ValueError):
        return None
    return text(mapping(description).get("toolUseId")) or None


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session."""
    session = _ClaudeSession(file)
    for offset, line in file.records(*NEEDLES):
        session.add(line, offset)
    yield from session.turns()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response, whose lines may have others between them."""
    pieces, identity = [], None
    for line in islice(records, 200):
        message = mapping(line.get("message"))
        identity = identity or message.get("id")
        if line.get("type") == "assistant" and message.get("id") == identity:
            pieces += [text(block.get("text")) for block in objects(message.get("content"))]
    return "".join(pieces)


def question_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a user's message."""
    content = mapping(next(iter(records), {}).get("message")).get("content")
    return text(content) or "".join(text(block.get("text")) for block in objects(content))


SOURCE: Final = Source(
    name="claude_code",
    title=TITLE,
    recognises=recognises,
    is_companion=is_companion,
    read=read,
    places=places,
    text=answer_text,
    question=question_text,
    advice="set CLAUDE_CODE_MAX_OUTPUT_TOKENS above the limit that cut its answers",
)
