"""Conversations of the OpenHands SDK, and the completions that it logs.

A conversation is a folder: `base_state.json`, and a file for each event below `events`. Events have
the id of their response, but no stop reason. With `log_completions`, each response is a separate
JSON file in another folder, which the conversation's settings name: these have the reasons.

Source of the facts: a conversation and a completion that the SDK wrote, and its telemetry.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.calls import RequestFacts, ResponseFacts
from endturn.scan.bodies import call_of_body, format_in, turn_id
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import UNRECORDED_STOP, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage

TITLE: Final = "OpenHands"
STATE: Final = "base_state.json"
_STATE: Final = frozenset({"id", "agent", "workspace", "execution_status"})
_COMPLETION: Final = frozenset({"response", "timestamp", "cost"})
_LARGEST: Final = 64 * 1024 * 1024
"""The maximum size in bytes of an event or a completion."""

_LAST_TOOL: Final = "finish"
"""The tool that ends a conversation."""


def recognises(head: FileHead) -> bool:
    """Return whether the value is a conversation's state, or a logged completion."""
    if head.shape is FileShape.VALUE and not head.records:
        return b'"persistence_dir"' in head.text and b'"execution_status"' in head.text
    return len(head.records) == 1 and (
        _is_state(head.records[0]) or _is_completion(head.records[0])
    )


def _is_state(record: Mapping[str, Any]) -> bool:
    return record.keys() >= _STATE and "llm" in mapping(record.get("agent"))


def _is_completion(record: Mapping[str, Any]) -> bool:
    has_prompt = "messages" in record or "input" in record
    has_answer = format_in(mapping(record.get("response"))) is not None
    return has_prompt and has_answer and record.keys() >= _COMPLETION


def is_companion(head: FileHead) -> bool:
    """Return whether a file is an event of a conversation, or marks how many there are."""
    if len(head.records) == 1:
        event = head.records[0]
        return text(event.get("kind")).endswith("Event") and {"source", "timestamp"} <= event.keys()
    return not head.text and head.path is not None and (head.path.parent.parent / STATE).exists()


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a conversation, or the one call of a completion."""
    record = mapping(file.value())
    if _is_state(record):
        if file.path is not None:
            yield from _Conversation(record, file.path.parent).turns()
    elif _is_completion(record):
        yield _turn_of(record)


# --- A completion ---------------------------------------------------------------------------------


def _turn_of(record: Mapping[str, Any]) -> PastTurn:
    call = _call_of(record)
    # the conversation that it belongs to is the first record of it
    call.is_copy = True
    headers = mapping(mapping(record.get("kwargs")).get("extra_headers"))
    session = text(headers.get("x-litellm-session-id"))
    session = "" if session.startswith("<") else session
    return PastTurn(
        id=turn_id(session, record.get("messages")) or call.key,
        source=TITLE,
        session=session,
        calls=[call],
        started_ns=call.started_ns,
    )


def _call_of(record: Mapping[str, Any]) -> PastCall:
    body = mapping(record.get("response"))
    ended_ns = time_ns(record.get("timestamp"))
    call = call_of_body(
        body,
        format_name=format_in(body) or "openai_chat",
        request={**mapping(record.get("kwargs")), "model": text(body.get("model"))},
        key=f"{record.get('timestamp')}",
    )
    call.key = call.response.id or call.key  # the id in its events
    latency = record.get("latency_sec")
    call.ended_ns = ended_ns
    if ended_ns is not None and isinstance(latency, int | float) and 0 <= latency < 1e6:
        call.started_ns = ended_ns - int(latency * 1e9)
    return call


# --- A conversation -------------------------------------------------------------------------------


class _Conversation:
    """Collects the turns of one conversation's folder."""

    def __init__(self, state: Mapping[str, Any], folder: Path) -> None:
        self._state, self._folder = state, folder
        self._llm = mapping(mapping(state.get("agent")).get("llm"))
        self._usages = _usages_in(state)
        self._completions = _completions(self._llm, text(state.get("persistence_dir")), folder)
        self._calls: dict[str, PastCall] = {}
        self._turns: list[PastTurn] = []

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns; a prompt without a model call is no turn."""
        for path in sorted((self._folder / "events").glob("event-*.json")):
            self._add(_value_of(path))
        for turn in self._turns:
            if turn.calls:
                turn.started_ns = turn.calls[0].started_ns
            if turn.has_record:
                yield turn

    def _add(self, event: Mapping[str, Any]) -> None:
        kind, response_id = text(event.get("kind")), text(event.get("llm_response_id"))
        if kind == "MessageEvent" and event.get("source") == "user":
            self._begin_turn(event, has_user_message=True)
        elif response_id:
            if not self._turns:
                self._begin_turn(event, has_user_message=False)
            self._add_response(response_id, event)
        elif kind == "ConversationErrorEvent" and self._turns:
            self._turns[-1].error = text(event.get("code")) or "error"
        elif kind == "InterruptEvent" and self._turns:
            self._turns[-1].is_interrupted = True
        elif kind == "ObservationEvent" and self._turns and self._turns[-1].calls:
            last = self._turns[-1].calls[-1]
            is_last = last.tool_calls[-1:] == (text(event.get("tool_call_id")),)
            last.ran_cut_tool_call |= last.truncated and is_last

    def _begin_turn(self, event: Mapping[str, Any], *, has_user_message: bool) -> None:
        workspace = mapping(self._state.get("workspace"))
        self._turns.append(PastTurn(
            id=text(event.get("id")),
            source=TITLE,
            session=text(self._state.get("id")),
            project=text(workspace.get("working_dir")),
            has_user_message=has_user_message,
        ))  # fmt: skip

    def _add_response(self, response_id: str, event: Mapping[str, Any]) -> None:
        call = self._calls.get(response_id)
        if call is None:
            call = self._completions.get(response_id) or PastCall(
                key=response_id,
                request=RequestFacts(
                    model=text(self._llm.get("model")),
                    max_tokens=count(self._llm.get("max_output_tokens")),
                ),
                response=ResponseFacts(
                    stop=UNRECORDED_STOP, id=response_id, usage=self._usages.get(response_id)
                ),
            )
            self._calls[response_id] = call
            self._turns[-1].calls.append(call)
        self._turns[-1].runs_tools = event.get("tool_name") != _LAST_TOOL
        tool = text(event.get("tool_call_id"))
        if tool and tool not in call.tool_calls:
            call.tool_calls += (tool,)


def _usages_in(state: Mapping[str, Any]) -> dict[str, Usage]:
    metrics = mapping(mapping(state.get("stats")).get("usage_to_metrics"))
    return {
        text(usage.get("response_id")): Usage(
            input_tokens=count(usage.get("prompt_tokens")),
            output_tokens=count(usage.get("completion_tokens")),
            reasoning_tokens=count(usage.get("reasoning_tokens")),
            cache_read_tokens=count(usage.get("cache_read_tokens")),
            cache_write_tokens=count(usage.get("cache_write_tokens")),
        )
        for metric in metrics.values()
        for usage in objects(mapping(metric).get("token_usages"))
    }


def _completions(llm: Mapping[str, Any], persistence: str, folder: Path) -> dict[str, PastCall]:
    """Return the calls that were logged for a conversation, by their response's id.

    Args:
        persistence: the conversation's folder as the settings name it, perhaps relative to the
            folder where the agent ran; so is the folder of the completions.
    """
    logs = text(llm.get("log_completions_folder"))
    if not llm.get("log_completions") or not logs:
        return {}
    base, parts = folder.absolute(), Path(persistence).parts
    if not Path(logs).is_absolute():
        if not parts or base.parts[-len(parts) :] != parts:
            return {}
        base = base.parents[len(parts) - 1]
    calls = {}
    for path in sorted((base / logs).glob("*.json")):
        record = _value_of(path)
        if _is_completion(record):
            call = _call_of(record)
            calls[call.key] = call
    return calls


def _value_of(path: Path) -> Mapping[str, Any]:
    """Return the JSON object of a file; an empty one if it cannot be read."""
    try:
        if path.stat().st_size > _LARGEST:
            return {}
        return mapping(json.loads(path.read_bytes()))
    except (OSError, ValueError, RecursionError):
        return {}


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folder of conversations of the command line."""
    yield home / ".openhands" / "conversations"


SOURCE: Final = Source(
    name="openhands",
    title=TITLE,
    shapes=(FileShape.VALUE,),
    recognises=recognises,
    is_companion=is_companion,
    read=read,
    places=places,
    advice="raise max_output_tokens of the LLM; log_completions keeps the reasons",
)
