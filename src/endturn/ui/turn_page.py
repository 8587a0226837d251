"""The page of one turn: its calls and tools over time, its events, its answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from endturn import settings
from endturn.calls import ANEW
from endturn.telemetry import schema
from endturn.ui import content_names
from endturn.ui.axes import duration_step
from endturn.ui.bounds import parse_json, shorten
from endturn.ui.endings import TurnFacts, ending
from endturn.ui.messages_card import CallMessages, messages_card
from endturn.ui.recorded_messages import (
    TOOL_CALL,
    ContentEvent,
    RecordedCall,
    has_content,
    read_call,
)
from endturn.ui.rows import MODEL_CALLS, Row
from endturn.ui.store import AGED, Store
from endturn.ui.views import View, excerpt
from endturn.vocabulary import StopReason

MOST_TEXT: Final = 256 * 1024
"""Characters of an answer that a page shows."""
MOST_AT_EACH_END: Final = 100
"""The most spans, or events, that are shown from the start of a turn, and from its end."""
TOOL, REPAIRED = "execute_tool", schema.TOOL_PAYLOAD_REPAIR.name
SORT_OFFSET_NS: Final = {
    schema.STOP_REASON_UNMAPPED.name: 100_000,
    schema.TOOL_DISPATCH_BLOCKED.name: 200_000,
    schema.CONTINUATION_ATTEMPT.name: 300_000,
    schema.TOOL_PAYLOAD_REPAIR.name: 300_000,
    schema.TERMINATION_SIGNAL.name: 400_000,
    schema.CONTINUATION_TERMINATED.name: 1_000_000,
}
"""Nanoseconds that are added to the time of an event to sort events of the same time: causes come
before consequences."""
MOST_TICKS: Final = 6
"""The most marks on the time axis of a turn, not counting the one at its start."""
_REMAINING_BUDGET: Final = (
    ("Continuations left", schema.ATTEMPTS_LEFT.key),
    ("Tokens left", schema.TOKENS_LEFT.key),
    ("Characters left", schema.CHARS_LEFT.key),
)
"""The columns of the policy's remaining budget: the title, and the attribute of the event."""


@dataclass(slots=True)
class TurnStep:
    """A model call or a tool execution in a turn, as the page draws it.

    Attributes:
        kind: call, continuation or tool.
        title: its name on the page.
        offset, width: the position of its bar, in percent of the turn's duration.
        strategy: the strategy of the continuation request.
        attempt: the attributes of the event of the continuation request, with the remaining budget.
        continues: the number of the step whose answer it continues.
        replaced: its answer was discarded, since a later request replaced it.
        messages: its recorded messages.
        text: the text of its answer, if recorded.
        share: its part of the answer's tokens, in percent.
        notes: its events, in words.
    """

    number: int
    kind: str
    title: str
    row: Row
    offset: float
    width: float
    strategy: str = ""
    attempt: Mapping[str, Any] = field(default_factory=dict)
    continues: int | None = None
    replaced: bool = False
    messages: RecordedCall = field(default_factory=RecordedCall)
    text: str = ""
    share: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def short_title(self) -> str:
        """The title of a continuation without the number of the call; other titles unchanged."""
        return self.title.rpartition(", ")[2] if self.kind == "continuation" else self.title


def turn_page(view: View, store: Store) -> dict[str, object] | None:
    """Return the values of the template of a turn; None for a turn that is not stored."""
    turn_id = view.parameters["turn_id"]
    parameters = {"id": turn_id}
    turn = next(iter(store.read_rows("SELECT * FROM turns WHERE turn_id = $id", parameters)), None)
    if turn is None:
        return None
    spans, events = (store.read_rows(_ends_of(table), parameters) for table in ("spans", "events"))
    for row in (*spans, *events):
        row["attributes"] = parse_json(row["attributes"]) or {}
    events.sort(key=lambda event: event["at_ns"] + SORT_OFFSET_NS.get(event["name"], 0))
    steps = _steps(turn, spans, events)
    calls = [step for step in steps if step.kind != "tool"]
    _read_messages(store, calls)
    cuts = [step for step in calls if step.row["truncated"]]
    pieces = _pieces(calls)
    answer = "".join(step.text for step in pieces if not step.replaced)
    facts = _facts(
        turn, steps, events, pieces,
        has_tools=_has_tools(store, turn, steps), is_declared=_is_declared(spans),
    )  # fmt: skip
    last = {step.number for step in _last_chain(calls)}
    continued = {step.continues for step in calls}
    card = messages_card([
        CallMessages(
            messages=step.messages, is_truncated=bool(step.row["truncated"]),
            is_replaced=step.replaced, is_part=step.number in last,
            is_continued=step.number in continued, used=step.row["output_tokens"],
            limit=step.row["max_tokens"],
        )
        for step in calls
    ])  # fmt: skip
    return {
        "turn": turn, "ending": ending(facts), "steps": steps, "calls": calls, "pieces": pieces,
        "ticks": _ticks(turn), "events": events, "schema": schema, "card": card,
        "capture": settings.CAPTURE_CONTENT.name, "cuts": cuts,
        "is_past": store.past_messages is not None,
        "answer": shorten(answer, MOST_TEXT), "explicit": _is_declared(spans),
        "budget_columns": [
            column for column in _REMAINING_BUDGET if any(is_number(step.attempt.get(column[1]))
                                              for step in steps)
        ],
        "left_out": [rows[0]["in_all"] - len(rows) if rows else 0 for rows in (spans, events)],
    }  # fmt: skip


def is_number(value: object) -> bool:
    """Return True for a number; a bool is not one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends_of(table: str) -> str:
    """Return the query for the first and the last rows of a turn."""
    at = AGED[table]
    return (
        f"SELECT *, count(*) OVER () AS in_all FROM {table} WHERE turn_id = $id"
        f" QUALIFY least(row_number() OVER (ORDER BY {at}), row_number() OVER (ORDER BY {at} DESC))"
        f" <= {MOST_AT_EACH_END} ORDER BY {at}"
    )


def _is_declared(spans: Iterable[Row]) -> bool:
    return any(span["operation"] == "invoke_agent" for span in spans)


def _facts(
    turn: Row,
    steps: Sequence[TurnStep],
    events: Sequence[Row],
    pieces: Sequence[TurnStep],
    *,
    has_tools: bool,
    is_declared: bool,
) -> TurnFacts:
    calls = [step.row for step in steps if step.kind != "tool"]
    truncated_calls = [row for row in calls if row["truncated"]]
    first_truncated = truncated_calls[0] if truncated_calls else {}
    last = max(calls, key=lambda row: row["start_ns"], default={})
    repairs = [
        event["attributes"].get(schema.SUCCEEDED.key)
        for event in events
        if event["name"] == REPAIRED
    ]
    first_truncated_step = next((step for step in steps if step.row is first_truncated), None)
    is_tool_call = first_truncated_step is not None and any(
        part.kind == TOOL_CALL
        for message in first_truncated_step.messages.output[:1]
        for part in message.parts
    )
    # A call after a tool call that was answered with an error is a repair, also without endturn's
    # controller.
    is_repaired = repairs[-1:] == [True] or (
        not repairs and bool(turn["complete"]) and any(step.strategy == "repair" for step in steps)
    )
    return TurnFacts(
        outcome=turn["outcome"] or "",
        is_complete=bool(turn["complete"]),
        model=turn["model"] or "",
        provider=turn["provider"] or "",
        raw=last.get("raw") or turn["reason"] or "",
        error=last.get("error") or "",
        reason=first_truncated.get("reason") or "",
        limit=first_truncated.get("max_tokens"),
        used=first_truncated.get("output_tokens"),
        cuts=len(truncated_calls),
        tokens=sum(step.row["output_tokens"] or 0 for step in pieces if not step.replaced),
        continuations=turn["continuations"],
        repairs=turn["repairs"],
        is_repaired=is_repaired,
        is_in_tool_call=is_tool_call or bool(repairs) or is_repaired,
        has_tools=has_tools,
        is_lone=turn["lone"],
        asks_for_tools=turn["reason"] == StopReason.TOOL_CALL and not is_declared,
        went_on=bool(truncated_calls) and last is not truncated_calls[-1],
    )


def _has_tools(store: Store, turn: Row, steps: Iterable[TurnStep]) -> bool:
    """Return True if a truncated answer of the turn may contain a tool call.

    That is so if this turn has tools, or another turn of the same model in its service; but not if
    the truncated answers are recorded and contain no tool call.
    """
    answers = [
        message
        for step in steps
        if step.kind != "tool" and step.row["truncated"]
        for message in step.messages.output
    ]
    if answers and not any(part.kind == TOOL_CALL for item in answers for part in item.parts):
        return False
    for step in steps:
        definitions = step.row["attributes"].get(schema.TOOL_DEFINITIONS.key)
        if step.kind == "tool" or definitions not in (None, "", "[]", []):
            return True
    query = (
        "SELECT 1 FROM spans WHERE service = $service AND model IS NOT DISTINCT FROM $model"
        f" AND reason = '{StopReason.TOOL_CALL.value}' LIMIT 1"
    )
    return bool(store.read_tuples(query, {"service": turn["service"], "model": turn["model"]}))


# --- Messages -------------------------------------------------------------------------------------


def _read_messages(store: Store, calls: Sequence[TurnStep]) -> None:
    """Read the recorded messages of calls: from spans, events or files of past sessions."""
    events = _content_events(store, [step.row["span_id"] for step in calls])
    for step in calls:
        span_id, attributes = step.row["span_id"], step.row["attributes"]
        if span_id in events or has_content(attributes):
            step.messages = read_call(attributes, events.get(span_id, ()))
        elif store.past_messages is not None:
            step.messages = store.past_messages.call_messages(span_id)
        step.text = "".join(message.text() for message in step.messages.output[:1])


def _content_events(store: Store, span_ids: Sequence[str]) -> dict[str, list[ContentEvent]]:
    """Return the events with messages, by the id of their span."""
    query = (
        "SELECT span_id, name, body, attributes FROM events"
        " WHERE span_id IN (SELECT unnest($spans::VARCHAR[])) AND name IN (SELECT"
        f" unnest($names::VARCHAR[])) ORDER BY at_ns LIMIT {MOST_AT_EACH_END * 20}"
    )
    parameters = {"spans": span_ids, "names": content_names.EVENTS}
    events: dict[str, list[ContentEvent]] = {}
    for span_id, name, body, attributes in store.read_tuples(query, parameters):
        event = ContentEvent(name, None if body == "null" else body, parse_json(attributes) or {})
        events.setdefault(span_id, []).append(event)
    return events


# --- Steps ----------------------------------------------------------------------------------------


def _steps(turn: Row, spans: Sequence[Row], events: Sequence[Row]) -> list[TurnStep]:
    length = max(turn["end_ns"] - turn["start_ns"], 1)
    attempts = {
        str(event["attributes"].get(schema.CONTINUATION_INDEX.key)): event["attributes"]
        for event in events
        if event["name"] == schema.CONTINUATION_ATTEMPT.name
    }
    steps: list[TurnStep] = []
    calls = sum(span["operation"] in MODEL_CALLS for span in spans)
    for span in spans:
        if span["operation"] not in (*MODEL_CALLS, TOOL):
            continue
        kind = "continuation" if span["continuation"] else "call"
        kind = "tool" if span["operation"] == TOOL else kind
        step = TurnStep(
            number=len(steps) + 1,
            kind=kind,
            title="",
            row=span,
            offset=(span["start_ns"] - turn["start_ns"]) / length * 100,
            width=max((span["end_ns"] - span["start_ns"]) / length * 100, 0.4),
        )
        if kind == "continuation":
            _link_to_cut_step(step, steps, attempts.get(str(span["continuation"]), {}))
        nth = span["iteration"] or 1 + sum(earlier.kind != "tool" for earlier in steps)
        step.title = _title(step, nth if calls > 1 else 0)
        steps.append(step)
    for event in events:
        near = [
            step for step in steps if step.kind != "tool" and step.row["start_ns"] <= event["at_ns"]
        ]
        if near and (note := _note(event)):
            near[-1].notes.append(note)
    return steps


def _title(step: TurnStep, nth: int) -> str:
    """Return the title of a step, such as `Call 2, continuation 1`."""
    if step.kind == "tool":
        return excerpt(step.row["attributes"].get(schema.TOOL_NAME.key) or step.row["name"])
    call = f"Call {nth}" if nth else "Call"
    if step.kind != "continuation":
        return call
    if step.strategy == "repair":
        return f"{call}, repair"
    return f"{call}, continuation {step.row['continuation']}"


def _note(event: Row) -> str:
    """Return the note about an event at its step; "" for an event without one."""

    def word(attribute: schema.Attribute) -> str:
        value = event["attributes"].get(attribute.key)
        return "–" if value is None else excerpt(value)

    match event["name"]:
        case schema.TOOL_DISPATCH_BLOCKED.name:
            return f"tool call not run: {word(schema.BLOCK_REASON)}"
        case schema.TOOL_PAYLOAD_REPAIR.name:
            has_succeeded = event["attributes"].get(schema.SUCCEEDED.key) is True
            return f"{'repaired' if has_succeeded else 'not repaired'}: {word(schema.ISSUE)}"
        case schema.TERMINATION_SIGNAL.name:
            return f"ended by {word(schema.SIGNAL)}"
        case schema.STOP_REASON_UNMAPPED.name:
            return f"no row for {word(schema.RAW)}"
        case _:
            return ""


def _link_to_cut_step(
    step: TurnStep, before: Iterable[TurnStep], attempt: Mapping[str, Any]
) -> None:
    """Set the strategy of a continuation, and the step that it continues."""
    step.strategy, step.attempt = str(attempt.get(schema.STRATEGY.key, "")), attempt
    linked = set(parse_json(step.row["links"]) or ())
    calls = [earlier for earlier in before if earlier.kind != "tool"]
    of = next(
        (earlier for earlier in calls if earlier.row["span_id"] in linked),
        calls[-1] if calls else None,
    )
    if of is not None:
        # A retry replaces the failed attempt, and continues the same truncated step.
        failed_attempts = [
            earlier for earlier in calls if earlier.continues == of.number and earlier.row["error"]
        ]
        (failed_attempts[-1] if failed_attempts else of).replaced |= step.strategy in ANEW
        step.continues = of.number


def _last_chain(calls: Sequence[TurnStep]) -> list[TurnStep]:
    """Return the last call that is not a continuation, with its continuations."""
    starts = [number for number, step in enumerate(calls) if step.kind == "call"]
    return list(calls[starts[-1] if starts else 0 :])


def _pieces(calls: Sequence[TurnStep]) -> list[TurnStep]:
    """Return the calls whose answers make up the last answer, in order, with their shares."""
    chain = _last_chain(calls)
    # If the last call is not a continuation, the chain of the truncated answer is shown instead.
    continuing = [step for step in calls if step.continues is not None]
    if len(chain) == 1 and continuing:
        numbers = {continuing[-1].number} | {step.continues for step in continuing}
        chain = [step for step in calls if step.number in numbers]
    chain = [step for step in chain if not step.replaced or step.row["output_tokens"]]
    total = sum(step.row["output_tokens"] or 0 for step in chain)
    for step in chain:
        step.share = (step.row["output_tokens"] or 0) / total * 100 if total else 100 / len(chain)
    return chain


def _ticks(turn: Row) -> list[tuple[float, float]]:
    """Return the marks of the time axis: the position in percent, and the time in seconds."""
    seconds = max((turn["end_ns"] - turn["start_ns"]) / 1e9, 1e-6)
    every = duration_step(seconds / MOST_TICKS)
    return [(n * every / seconds * 100, n * every) for n in range(int(seconds / every) + 1)]
