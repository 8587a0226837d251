"""Runs of LangSmith as JSON: lines, or one list, of a project's export or of its API.

A run of the type `llm` is one call; the runs of a trace are one turn. LangChain keeps the stop
reason in the metadata of a generation or of its message; other runs hold the provider's own body.

Source of the facts: LangSmith's documentation of the run's format, and LangChain's messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts
from endturn.errors import UsageError
from endturn.frameworks import langchain
from endturn.scan.bodies import call_of_body, failed_call, format_in
from endturn.scan.fields import count, items, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import StopReason, Usage, canonical

TITLE: Final = "LangSmith"
NEEDLES: Final = (b'"llm"',)
_RUN: Final = frozenset({"id", "run_type", "trace_id", "start_time", "outputs"})


def recognises(head: FileHead) -> bool:
    """Return whether the records are runs."""
    if head.shape is FileShape.VALUE and not head.records:
        words = (b'"run_type"', b'"start_time"', b'"extra"')
        return all(word in head.text for word in words)
    return any(record.keys() >= _RUN for record in head.records)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of the runs in a file, which come in any order."""
    turns: dict[str, PastTurn] = {}
    for offset, run in _runs(file):
        if run.get("run_type") != "llm" or not run.keys() >= _RUN:
            continue
        call = _call_of(run)
        call.offset = offset
        trace = text(run.get("trace_id")) or call.key
        metadata = mapping(mapping(run.get("extra")).get("metadata"))
        if trace not in turns:
            turns[trace] = PastTurn(
                id=trace,
                source=TITLE,
                session=text(metadata.get("session_id"))
                or text(metadata.get("thread_id"))
                or trace,
                project=text(run.get("session_name")),
            )
        turns[trace].calls.append(call)
    for turn in turns.values():
        turn.calls.sort(key=lambda call: (call.started_ns or 0, call.key))
        turn.started_ns = turn.calls[0].started_ns
        yield turn


def _runs(file: ScannedFile) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    if file.head.shape is FileShape.LINES:
        yield from file.records(*NEEDLES)
        return
    value = file.value()
    for run in objects(value if isinstance(value, list) else [value]):
        yield None, run


def _call_of(run: Mapping[str, Any]) -> PastCall:
    metadata = mapping(mapping(run.get("extra")).get("metadata"))
    provider = canonical(text(metadata.get("ls_provider")))
    model, limit = text(metadata.get("ls_model_name")), count(metadata.get("ls_max_tokens"))
    outputs, key = mapping(run.get("outputs")), text(run.get("id"))
    if run.get("error") and not outputs:
        call = failed_call(key, "error", model=model, provider=provider)
    elif (format_name := format_in(outputs)) is not None:
        request = {"model": model, "max_tokens": limit}
        call = call_of_body(
            outputs, format_name=format_name, provider=provider, request=request, key=key
        )
        call.key = key
    else:
        call = PastCall(
            key=key,
            request=RequestFacts(model=model, max_tokens=limit),
            endpoint=EndpointFacts(provider=provider),
        )
        _add_generation(call, outputs, limit)
    call.started_ns, call.ended_ns = _utc_ns(run.get("start_time")), _utc_ns(run.get("end_time"))
    return call


def _add_generation(call: PastCall, outputs: Mapping[str, Any], limit: int | None) -> None:
    """Read LangChain's facts on a response."""
    first = next(iter(items(outputs.get("generations"))), None)
    generation = mapping(next(iter(items(first)), None) if isinstance(first, list) else first)
    message = mapping(generation.get("message"))
    message = mapping(message.get("kwargs")) or mapping(message.get("data")) or message
    answer = {"message": message, "generation_info": mapping(generation.get("generation_info"))}
    usage = mapping(message.get("usage_metadata"))
    metadata = mapping(message.get("response_metadata"))
    try:
        stop = langchain(answer, maximum=limit)
    except UsageError:
        return
    if stop.raw is None and stop.reason in (StopReason.MISSING, StopReason.TOOL_CALL):
        return
    call.evidence = Evidence.RECORDED
    call.tool_calls = tuple(text(tool.get("id")) for tool in objects(message.get("tool_calls")))
    call.response = ResponseFacts(
        stop=stop,
        id=text(metadata.get("id")) or text(message.get("id")) or None,
        model=text(metadata.get("model_name")) or None,
        usage=Usage(
            input_tokens=count(usage.get("input_tokens")),
            output_tokens=count(usage.get("output_tokens")),
        ),
        reasons=(stop.raw,),
    )


def _utc_ns(value: Any) -> int | None:
    """Return a time; LangSmith writes UTC without a zone."""
    moment_ns = time_ns(value)
    return time_ns(f"{value}+00:00") if moment_ns is None and isinstance(value, str) else moment_ns


SOURCE: Final = Source(
    name="langsmith",
    title=TITLE,
    shapes=(FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    read=read,
    advice="raise max_tokens of the chat model",
)
