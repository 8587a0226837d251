"""Sessions of OpenAI's Codex: JSON lines below `~/.codex/sessions`.

Each line is `{timestamp, type, payload}`. The items of one response precede the record of its
tokens, or the tools' outputs. Up to 0.146 there is no stop reason; 0.171 writes a `status` into
each message, and the reason of a truncated answer into `task_complete.error`.

Source of the facts: session files that versions 0.60.1 to 0.171.0 wrote, and codex-rs/rollout.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, TurnOutcome
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import CANCELLED_STOP, UNRECORDED_STOP, Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Stop, StopReason, Usage, canonical, find_stop, rows_of

TITLE: Final = "Codex"
NEEDLES: Final = (
    b'"session_meta"', b'"turn_context"', b'"response_item"', b'"event_msg"',
    b'"token_usage_record"',
)  # fmt: skip
INCOMPLETE: Final = re.compile(r"Incomplete response returned, reason: (\w+)")
_ANSWERS: Final = frozenset({"message", "reasoning"})
_TOOL_CALLS: Final = frozenset({"function_call", "custom_tool_call", "local_shell_call"})
_ITEMS_WITH_STATUS: Final = frozenset({"custom_tool_call", "local_shell_call"})
"""Items that have a status even in versions that write none for the response."""
_OWN_TYPES: Final = frozenset({"session_meta", "turn_context", "response_item", "event_msg"})
_NO_PROMPT: Final = ("<", "# AGENTS.md instructions")
"""Beginnings of messages in the user's name that the client wrote."""


def recognises(head: FileHead) -> bool:
    """Return whether the lines are those of a session."""
    return any(
        text(record.get("type")) in _OWN_TYPES and isinstance(record.get("payload"), dict)
        for record in head.records
    )


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folders of sessions."""
    folder = Path(environment.get("CODEX_HOME") or home / ".codex")
    yield folder / "sessions"
    yield folder / "archived_sessions"


@dataclass(slots=True, eq=False)
class _CodexResponse:
    """The items of one response."""

    call: PastCall
    content: Any = field(default_factory=lambda: blake2b(digest_size=16))
    status: str = ""
    item_status: str = ""
    """The status of an item that is weaker evidence on its response."""
    item_id: str = ""
    tools: list[str] = field(default_factory=list)
    has_output: bool = False
    is_cancelled: bool = False
    incomplete_reason: str = ""
    usage: Usage | None = None
    response_id: str = ""


class _CodexSession:
    """Collects the turns of one file."""

    def __init__(self) -> None:
        self.turns: list[PastTurn] = []
        self._meta: Mapping[str, Any] = {}
        self._seed = ""
        self._history = blake2b(digest_size=16)
        self._model = ""
        self._turn: PastTurn | None = None
        self._has_task = False
        self._open: _CodexResponse | None = None
        self._last: _CodexResponse | None = None
        self._responses: list[_CodexResponse] = []
        self._total: Any = None
        self._tasks: list[PastTurn] = []
        """The turns with an event of their start or end."""
        self._without_message: list[PastTurn] = []
        """The turns that ended without a last message of the agent, and without an error."""
        self._chain = ""

    def add(self, line: Mapping[str, Any], offset: int) -> None:
        """Read one line."""
        payload = mapping(line.get("payload"))
        at_ns = time_ns(line.get("timestamp"))
        match line.get("type"):
            case "session_meta":
                # a fork begins with its own metadata, followed by those of the sessions that it
                # copies
                self._meta = self._meta or payload
                if not self._responses:
                    self._seed = text(payload.get("id"))
            case "turn_context":
                self._model = text(payload.get("model")) or self._model
                self._open = None
            case "response_item":
                self._add_item(payload, at_ns, offset)
            case "token_usage_record":
                self._add_usage(payload, at_ns, offset)
            case "event_msg":
                self._add_event(payload, at_ns, offset)

    def finish(self) -> Iterator[PastTurn]:
        """Yield the turns after all lines were read.

        A message without an answer is a turn if the file shows that the agent began it: it was
        killed, still works, or ended without an answer.
        """
        for response in self._responses:
            self._finish(response)
        for turn in self._without_message:
            if turn.calls and not turn.calls[-1].truncated:
                turn.outcome = TurnOutcome.UNKNOWN_REASON
        tasks = {id(turn) for turn in self._tasks if turn.has_user_message}
        yield from (turn for turn in self.turns if turn.calls or id(turn) in tasks)

    # --- Lines ------------------------------------------------------------------------------------

    def _add_item(self, item: Mapping[str, Any], at_ns: int | None, offset: int) -> None:
        kind = text(item.get("type"))
        is_answer = kind in _ANSWERS and item.get("role", "assistant") == "assistant"
        if not is_answer and kind not in _TOOL_CALLS:
            self._open = None
            if kind == "message" and item.get("role") == "user":
                self._add_prompt(item, offset)
            elif kind.endswith("_output"):
                if self._last is not None:
                    self._last.has_output = True
                self._remember(kind, text(item.get("call_id")))
            return
        response = self._open
        if response is None or response.status == "incomplete":  # nothing follows half an item
            response = self._begin(at_ns, offset)
        response.call.ended_ns = at_ns or response.call.ended_ns
        call_id = text(item.get("call_id"))
        for part in (kind, call_id, *_texts(item)):
            response.content.update(part.encode("utf-8", "replace") + b"\0")
        if kind in _TOOL_CALLS:
            response.tools.append(call_id)
        if kind != "reasoning":
            response.item_id = response.item_id or text(item.get("id"))
        status = text(item.get("status"))
        if kind in _ITEMS_WITH_STATUS and status != "incomplete":
            response.item_status = status
        elif status and response.status != "incomplete":
            response.status = status

    def _add_prompt(self, item: Mapping[str, Any], offset: int) -> None:
        words = "".join(_texts(item))
        self._remember("user", words)
        if self._turn is not None and words and not words.startswith(_NO_PROMPT):
            self._turn.has_user_message = True
            if self._turn.offset is None:
                self._turn.offset = offset

    def _remember(self, *parts: str) -> None:
        for part in parts:
            self._history.update(part.encode("utf-8", "replace") + b"\0")

    def _add_event(self, event: Mapping[str, Any], at_ns: int | None, offset: int) -> None:
        match event.get("type"):
            case "task_started":
                self._has_task = True
                self._tasks.append(
                    self._begin_turn(text(event.get("turn_id")), at_ns, has_user_message=False)
                )
            case "user_message":
                if not self._has_task:
                    self._begin_turn("", at_ns, has_user_message=True)
                elif self._turn is not None:
                    self._turn.has_user_message = True
                if self._turn is not None and self._turn.offset is None:
                    self._turn.offset = offset
            case "item_completed" if mapping(event.get("item")).get("type") == "UserMessage":
                if self._turn is not None:
                    self._turn.has_user_message = True
            case "token_count":
                self._add_count(mapping(event.get("info")))
            case "task_complete":
                self._complete(event, at_ns, offset)
            case "turn_aborted":
                self._abort(text(event.get("reason")))

    def _begin_turn(self, turn_id: str, at_ns: int | None, *, has_user_message: bool) -> PastTurn:
        source = mapping(mapping(self._meta.get("source")).get("subagent"))
        parent = mapping(source.get("thread_spawn")).get("parent_thread_id")
        session = text(self._meta.get("id"))
        self._turn = PastTurn(
            # in a copy, everything before is the same
            id=turn_id or f"{self._seed} {len(self.turns)} {self._history.hexdigest()}",
            source=TITLE,
            session=session,
            project=text(self._meta.get("cwd")),
            started_ns=at_ns,
            has_user_message=has_user_message,
            parent_session=(text(parent) or session) if source else None,
            runs_tools=True,
        )
        self.turns.append(self._turn)
        self._open = self._last = None
        return self._turn

    def _begin(self, at_ns: int | None, offset: int) -> _CodexResponse:
        if self._turn is None:
            self._begin_turn("", at_ns, has_user_message=False)
        assert self._turn is not None
        call = PastCall(
            key="",
            request=RequestFacts(model=self._model),
            endpoint=EndpointFacts(provider=canonical(text(self._meta.get("model_provider")))),
            ended_ns=at_ns,
            version=text(self._meta.get("cli_version")),
            offset=offset,
        )
        self._open = self._last = _CodexResponse(call)
        self._turn.calls.append(call)
        self._responses.append(self._open)
        return self._open

    def _add_usage(self, record: Mapping[str, Any], at_ns: int | None, offset: int) -> None:
        """Read the tokens of one response, which this record separates from the next."""
        response = self._open
        if response is None:
            is_late = self._last is not None and not self._last.response_id
            response = self._last if is_late else None
        # without items, the response was truncated before any output
        response = response or self._begin(at_ns, offset)
        response.response_id = text(record.get("response_id"))
        response.usage = _usage(mapping(record.get("usage")))
        self._open = None

    def _add_count(self, info: Mapping[str, Any]) -> None:
        total = info.get("total_token_usage")
        if not total or total == self._total:
            if not info:
                self._open = None  # the headers of the next response
            return
        self._total = total
        # only the items right before it: some versions write the items after the count
        response = self._open
        last = mapping(info.get("last_token_usage"))
        if response is not None and response.usage is None and count(last.get("total_tokens")):
            response.usage = _usage(last)
        self._open = None

    def _complete(self, event: Mapping[str, Any], at_ns: int | None, offset: int) -> None:
        error = mapping(event.get("error"))
        if self._turn is not None and error:
            reason = INCOMPLETE.search(text(error.get("message")))
            if reason is not None:
                last = self._last
                if last is None or last.has_output:  # it was truncated before any output
                    last = self._begin(at_ns, offset)
                last.incomplete_reason = reason[1]
            else:
                info = error.get("codex_error_info")
                kinds = [*info] if isinstance(info, dict) else [text(info)]
                self._turn.error = next(iter(kinds), "") or "error"
        elif self._turn is not None and event.get("last_agent_message", "") is None:
            self._without_message.append(self._turn)
        self._end_turn()

    def _abort(self, reason: str) -> None:
        if self._turn is not None:
            if reason in ("interrupted", "replaced", ""):
                self._turn.is_interrupted = True
            elif reason != "review_ended":
                self._turn.error = reason
            if self._open is not None and self._turn.is_interrupted:
                self._open.is_cancelled = True
        self._end_turn()

    def _end_turn(self) -> None:
        if self._turn is not None:
            self._tasks.append(self._turn)
        self._turn = self._open = self._last = None

    # --- After the last line ----------------------------------------------------------------------

    def _finish(self, response: _CodexResponse) -> None:
        call = response.call
        # in a copy, everything before is the same as in the session that was copied
        content = response.content.hexdigest()
        self._chain = blake2b(f"{self._chain} {content}".encode(), digest_size=16).hexdigest()
        call.key = response.item_id or response.response_id or f"{self._seed} {self._chain}"
        call.tool_calls = tuple(filter(None, response.tools))
        stop, call.evidence = _stop_of(response)
        call.response = ResponseFacts(
            stop=stop, id=response.response_id or None, model=None, usage=response.usage
        )


def _stop_of(response: _CodexResponse) -> tuple[Stop, Evidence]:
    rows = rows_of("openai_responses", "")
    if response.incomplete_reason:
        raw = f"incomplete:{response.incomplete_reason}"
        return find_stop(raw, rows), Evidence.OTHER_RECORD
    if response.status == "incomplete":
        # no record has the cause of the truncation
        return Stop(StopReason.UNKNOWN, "incomplete", incomplete=True), Evidence.RECORDED
    # the versions that record each response's id have no other status either
    status = response.status or (response.item_status if response.response_id else "")
    if status == "completed":
        return find_stop("completed", rows, calls=len(response.tools)), Evidence.RECORDED
    if response.is_cancelled:
        return CANCELLED_STOP, Evidence.OTHER_RECORD
    return UNRECORDED_STOP, Evidence.NOT_RECORDED


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    for block in objects(item.get("content")):
        yield text(block.get("text"))
    yield text(item.get("name"))
    yield text(item.get("arguments"))
    yield text(item.get("encrypted_content"))[:256]


def _usage(tokens: Mapping[str, Any]) -> Usage:
    return Usage(
        input_tokens=count(tokens.get("input_tokens")),
        output_tokens=count(tokens.get("output_tokens")),
        reasoning_tokens=count(tokens.get("reasoning_output_tokens")),
        cache_read_tokens=count(tokens.get("cached_input_tokens")),
        cache_write_tokens=count(tokens.get("cache_write_input_tokens")),
    )


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a session."""
    session = _CodexSession()
    for offset, line in file.records(*NEEDLES):
        session.add(line, offset)
    yield from session.finish()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response, up to the record of its tokens or the next message."""
    pieces: list[str] = []
    for line in islice(records, 50):
        item = mapping(line.get("payload"))
        if line.get("type") == "token_usage_record" or item.get("role") == "user":
            break
        if line.get("type") == "response_item" and item.get("role") == "assistant":
            pieces += [text(block.get("text")) for block in objects(item.get("content"))]
        elif pieces and item.get("type") == "token_count":
            break
    return "".join(pieces)


def question_text(records: Iterable[Mapping[str, Any]]) -> str:
    """Return the text of a user's message: an item of the history, or an event."""
    item = mapping(next(iter(records), {}).get("payload"))
    blocks = objects(item.get("content"))
    return text(item.get("message")) or "".join(text(block.get("text")) for block in blocks)


SOURCE: Final = Source(
    name="codex",
    title=TITLE,
    recognises=recognises,
    read=read,
    places=places,
    text=answer_text,
    question=question_text,
)
