"""Trajectories of mini-swe-agent: one JSON value, with the provider's responses in its messages.

An answer that could not be used has no assistant message: its response is in the message that
requests another one, with `interrupt_type: "FormatError"`.

Source of the facts: a trajectory of format 1.1, and minisweagent/models of SWE-agent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from endturn.calls import Strategy, TurnOutcome
from endturn.scan.bodies import call_of_body, format_in
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import canonical

TITLE: Final = "mini-swe-agent"
_FORMAT: Final = "mini-swe-agent"
_ASKS_ANEW: Final = "FormatError"
_OUTCOMES: Final = {
    "TimeExceeded": TurnOutcome.DEADLINE,
    "UserInterruption": TurnOutcome.CANCELLED,
    "KeyboardInterrupt": TurnOutcome.CANCELLED,
}
"""The values of `exit_status` that are more specific on a turn's end than its last response."""


def recognises(head: FileHead) -> bool:
    """Return whether the value is a trajectory."""
    if not head.records:
        words = (b'"model_stats"', b'"api_calls"', b'"messages"')
        return all(word in head.text for word in words)
    record = head.records[0]
    if text(record.get("trajectory_format")).startswith(_FORMAT):
        return True
    info = mapping(record.get("info"))
    is_own = "model_stats" in info and ("mini_version" in info or "exit_status" in info)
    return is_own and isinstance(record.get("messages"), list)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turn of a trajectory."""
    value = mapping(file.value())
    info = mapping(value.get("info"))
    calls = _calls_of(objects(value.get("messages")), mapping(info.get("config")))
    if not calls:
        return
    for call in calls:
        call.version = text(info.get("mini_version"))
    outcome = _OUTCOMES.get(text(info.get("exit_status")))
    yield PastTurn(
        id=calls[0].key,
        source=TITLE,
        session=text(value.get("instance_id")),
        calls=calls,
        outcome=outcome,
        is_interrupted=outcome is TurnOutcome.CANCELLED,
        runs_tools=not info.get("exit_status"),
    )


def _calls_of(messages: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> list[PastCall]:
    model = mapping(config.get("model"))
    request = {"model": text(model.get("model_name"))}
    request |= {
        name: value
        for name, value in mapping(model.get("model_kwargs")).items()
        if count(value) is not None
    }
    calls: list[PastCall] = []
    refused: PastCall | None = None
    for place, message in enumerate(messages):
        extra = mapping(message.get("extra"))
        response = extra.get("response")
        if not isinstance(response, dict) and message.get("role") != "assistant":
            continue
        call = _call_of(mapping(response), request, f"{place} {extra.get('timestamp')}")
        call.ended_ns = time_ns(extra.get("timestamp"))
        if refused is not None:
            call.strategy = Strategy.REPAIR if refused.tool_calls else Strategy.RETRY
            call.continues = refused.key
        asks_anew = extra.get("interrupt_type") == _ASKS_ANEW
        refused = call if asks_anew and call.truncated else None
        call.ran_cut_tool_call = (
            call.truncated
            and message.get("role") == "assistant"
            and _has_result(messages[place + 1 :], call.tool_calls)
        )
        calls.append(call)
    return calls


def _call_of(response: Mapping[str, Any], request: Mapping[str, Any], name: str) -> PastCall:
    model = text(request.get("model"))
    provider = canonical(model.partition("/")[0]) if "/" in model else ""
    return call_of_body(
        response,
        format_name=format_in(response) or "openai_chat",
        provider=provider,
        request=request,
        key=name,
    )


def _has_result(later: Sequence[Mapping[str, Any]], tools: Sequence[str]) -> bool:
    """Return whether the last tool call of a response has a result."""
    return bool(tools) and any(message.get("tool_call_id") == tools[-1] for message in later)


SOURCE: Final = Source(
    name="mini_swe_agent",
    title=TITLE,
    shapes=(FileShape.VALUE,),
    recognises=recognises,
    read=read,
    advice="raise max_tokens in model_kwargs of the configuration",
)
