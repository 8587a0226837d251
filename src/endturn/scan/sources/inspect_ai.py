"""Evaluation logs of Inspect: `.eval` files, which are zip archives of JSON, and `.json` files.

A sample is a turn; each of its `model` events is one call. Calls of a scorer, which grade the
sample, belong to no turn.

Source of the facts: logs that inspect-ai 0.3.285 wrote, and its types of events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestFacts, ResponseFacts, TurnOutcome
from endturn.scan.bodies import failed_call
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Resume, Row, StopReason, Usage, canonical, find_stop

TITLE: Final = "Inspect"
ROWS: Final = {
    "stop": Row(StopReason.END_TURN),
    "tool_calls": Row(StopReason.TOOL_CALL),
    "max_tokens": Row(StopReason.MAX_TOKENS, incomplete=True, resume=Resume.PROMPT),
    "model_length": Row(StopReason.CONTEXT_WINDOW_EXCEEDED, incomplete=True),
    "content_filter": Row(StopReason.SAFETY_BLOCKED, incomplete=True),
    "unknown": Row(StopReason.UNKNOWN),
}
"""The values of `stop_reason` and their meanings."""
_HEADERS: Final = ("_journal/start.json", "header.json")
_LIMITS: Final = {
    "token": TurnOutcome.TOKEN_BUDGET,
    "cost": TurnOutcome.COST_BUDGET,
    "time": TurnOutcome.DEADLINE,
    "working": TurnOutcome.DEADLINE,
    "message": TurnOutcome.MAX_ITERATIONS,
    "turn": TurnOutcome.MAX_ITERATIONS,
    "operator": TurnOutcome.STOPPED,
}
"""The limits of a sample that end it, and the outcome of its turn."""
_SCORING: Final = frozenset({"scorer", "scorers"})


def recognises(head: FileHead) -> bool:
    """Return whether an archive, or a JSON value, is a log."""
    if head.shape is FileShape.ARCHIVE:
        return any(name in head.names for name in _HEADERS) and any(
            name.startswith(("samples/", "_journal/")) for name in head.names
        )
    if head.shape is FileShape.VALUE and not head.records:
        return all(word in head.text for word in (b'"version"', b'"eval"', b'"run_id"', b'"task"'))
    first = next(iter(head.records), {})
    return "version" in first and {"run_id", "task"} <= mapping(first.get("eval")).keys()


def places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Yield the folder of logs."""
    if folder := environment.get("INSPECT_LOG_DIR"):
        yield Path(folder)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of a log's samples."""
    header: Mapping[str, Any] = {}
    turns: list[PastTurn] = []
    for name, value in _parts(file):
        if name in _HEADERS:
            header = mapping(value.get("eval")) or header
        else:
            turns += _turns_of(value)
    version = text(mapping(header.get("packages")).get("inspect_ai"))
    session = text(header.get("eval_id")) or text(header.get("run_id"))
    for turn in turns:
        turn.session, turn.project = session, text(header.get("task"))
        turn.id = turn.id if turn.id.partition(" ")[0] else f"{session}{turn.id}"
        for call in turn.calls:
            call.version = version
        yield turn


def _parts(file: ScannedFile) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the header and the samples of a log, each with its name in an archive."""
    if file.head.shape is not FileShape.ARCHIVE:
        log = mapping(file.value())
        yield _HEADERS[0], log
        yield from (("samples/", sample) for sample in objects(log.get("samples")))
        return
    for name, data in file.members():
        if name not in _HEADERS and not name.startswith("samples/"):
            continue
        try:
            yield name, mapping(json.loads(data))
        except (ValueError, RecursionError):
            file.damage.problem = f"{name!r} is damaged JSON"


class _Sample:
    """Collects the calls of one sample."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        name = f" {sample.get('id')} {sample.get('epoch')}"
        identity = text(sample.get("uuid")) + name
        self.turn = PastTurn(id=identity, source=TITLE, outcome=_outcome(sample))
        self.scoring = PastTurn(id=f"{identity} scoring", source=TITLE, has_user_message=False)
        self.turn.started_ns = time_ns(sample.get("started_at"))
        self.turn.error = "error" if sample.get("error") else None
        self._spans: set[str] = set()
        self._steps = self._calls = 0
        self._tools: dict[str, bool] = {}
        self._cut: list[tuple[PastCall, str]] = []

    def add(self, event: Mapping[str, Any]) -> None:
        """Read one event."""
        match event.get("event"):
            case "span_begin":
                is_inner = text(event.get("parent_id")) in self._spans
                if is_inner or text(event.get("type")) in _SCORING:
                    self._spans.add(text(event.get("id")))
            case "step" if text(event.get("type")) in _SCORING:
                self._steps += 1 if event.get("action") == "begin" else -1
            case "tool":
                self._tools[text(event.get("id"))] = not event.get("error")
            case "model" if event.get("pending") is not True and event.get("cache") != "read":
                is_scoring = self._steps > 0 or text(event.get("span_id")) in self._spans
                self._calls += 1
                call = _call_of(event, f"{self.turn.id} {self._calls}")
                (self.scoring if is_scoring else self.turn).calls.append(call)
                if call.truncated and call.tool_calls:
                    self._cut.append((call, call.tool_calls[-1]))

    def turns(self) -> Iterator[PastTurn]:
        """Yield the turns that have a call, once all events were read."""
        for call, tool in self._cut:
            call.ran_cut_tool_call = self._tools.get(tool, False)
        yield from (turn for turn in (self.turn, self.scoring) if turn.calls)


def _outcome(sample: Mapping[str, Any]) -> TurnOutcome | None:
    return _LIMITS.get(text(mapping(sample.get("limit")).get("type")))


def _turns_of(value: Mapping[str, Any]) -> Iterator[PastTurn]:
    sample, events = _Sample(value), objects(value.get("events"))
    if not events:
        # a sample that was logged without its events still has its last response
        output = mapping(value.get("output"))
        if objects(output.get("choices")):
            events = [{"event": "model", "output": output, "model": output.get("model")}]
    for event in events:
        sample.add(event)
    yield from sample.turns()


def _call_of(event: Mapping[str, Any], sample: str) -> PastCall:
    output, config = mapping(event.get("output")), mapping(event.get("config"))
    choice = next(iter(objects(output.get("choices"))), {})
    model, limit = text(event.get("model")), count(config.get("max_tokens"))
    provider = canonical(model.partition("/")[0]) if "/" in model else ""
    response_id = text(output.get("response_id"))
    key = text(event.get("uuid")) or response_id or f"{sample} {event.get('timestamp')}"
    raw = choice.get("stop_reason")
    if event.get("error") or (output.get("error") and not choice):
        call = failed_call(key, "error", model=model, provider=provider)
    else:
        call = PastCall(key=key, request=RequestFacts(model=model, max_tokens=limit))
        call.endpoint = EndpointFacts(provider=provider)
    call.started_ns, call.ended_ns = (
        time_ns(event.get("timestamp")),
        time_ns(event.get("completed")),
    )
    if call.error is not None or not isinstance(raw, str):
        return call
    tools = objects(mapping(choice.get("message")).get("tool_calls"))
    usage = _usage(mapping(output.get("usage")))
    call.tool_calls = tuple(text(tool.get("id")) for tool in tools)
    call.evidence = Evidence.RECORDED
    call.response = ResponseFacts(
        stop=find_stop(
            raw,
            ROWS,
            calls=len(tools),
            calls_closed=not any(tool.get("parse_error") for tool in tools),
            output_tokens=usage.output_tokens,
            maximum=limit,
        ),
        id=response_id or None,
        model=text(output.get("model")) or None,
        usage=usage,
        reasons=(raw,),
    )
    return call


def _usage(usage: Mapping[str, Any]) -> Usage:
    output, total = count(usage.get("output_tokens")), count(usage.get("total_tokens"))
    prompt = count(usage.get("input_tokens"))
    if total is not None and output is not None and total >= output:
        prompt = total - output  # including the tokens from a cache
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        reasoning_tokens=count(usage.get("reasoning_tokens")),
        cache_read_tokens=count(usage.get("input_tokens_cache_read")),
        cache_write_tokens=count(usage.get("input_tokens_cache_write")),
    )


SOURCE: Final = Source(
    name="inspect_ai",
    title=TITLE,
    shapes=(FileShape.ARCHIVE, FileShape.VALUE),
    recognises=recognises,
    read=read,
    places=places,
    advice="raise max_tokens of the task (`--max-tokens`): a cut answer is scored as it is",
)
