"""The page of one turn, drawn as it went."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from endturn import settings
from endturn.calls import ANEW
from endturn.telemetry import schema
from endturn.ui import content_names
from endturn.ui.axes import duration_step
from endturn.ui.bounds import parsed, shortened
from endturn.ui.endings import TurnFacts, ending
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
from endturn.ui.what_was_said import CallMessages, what_was_said
from endturn.vocabulary import StopReason

MOST_TEXT: Final = 256 * 1024
"""Characters of an answer that a page shows."""
AT_AN_END: Final = 100
"""How many spans, or events, of a turn are shown of its beginning and of its end."""
TOOL, REPAIRED = "execute_tool", schema.TOOL_PAYLOAD_REPAIR.name
AFTER_NS: Final = {
    schema.STOP_REASON_UNMAPPED.name: 100_000,
    schema.TOOL_DISPATCH_BLOCKED.name: 200_000,
    schema.CONTINUATION_ATTEMPT.name: 300_000,
    schema.TOOL_PAYLOAD_REPAIR.name: 300_000,
    schema.TERMINATION_SIGNAL.name: 400_000,
    schema.CONTINUATION_TERMINATED.name: 1_000_000,
}
"""How many nanoseconds an event is shown after one at the same time: what it is the consequence of
comes first."""
MOST_TICKS: Final = 6
"""How many marks the time axis of a turn has at most, beside that of its beginning."""
_LEFT: Final = (
    ("Continuations left", schema.ATTEMPTS_LEFT.key),
    ("Tokens left", schema.TOKENS_LEFT.key),
    ("Characters left", schema.CHARS_LEFT.key),
)
"""What the policy still allowed at a step: the column's title, and the event's attribute."""


@dataclass(slots=True)
class Step:
    """One thing that happened in a turn, as it is drawn.

    Attributes:
        kind: call, continuation or tool.
        title: its name on the page.
        left, width: where its bar is, in percent of the turn.
        asked_by: the strategy by which it was asked for.
        attempt: the attributes of the event with which it was asked for: the policy's remaining
            budget, among others.
        continues: the step whose answer it continues.
        replaced: its answer was not used, since it was asked for anew.
        messages: what is recorded of its messages.
        text: of its answer, where that is recorded.
        share: its part of the answer, in percent.
        notes: the events that happened in it, in words.
    """

    number: int
    kind: str
    title: str
    row: Row
    left: float
    width: float
    asked_by: str = ""
    attempt: Mapping[str, Any] = field(default_factory=dict)
    continues: int | None = None
    replaced: bool = False
    messages: RecordedCall = field(default_factory=RecordedCall)
    text: str = ""
    share: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def short_title(self) -> str:
        """The name without the number of the call, where that says what it is."""
        return self.title.rpartition(", ")[2] if self.kind == "continuation" else self.title


def turn_page(view: View, store: Store) -> dict[str, Any] | None:
    """Return everything that the template of a turn shows; None for a turn that is not stored."""
    turn_id = view.given["turn_id"]
    parameters = {"id": turn_id}
    turn = next(iter(store.read_rows("SELECT * FROM turns WHERE turn_id = $id", parameters)), None)
    if turn is None:
        return None
    spans, events = (store.read_rows(_ends_of(table), parameters) for table in ("spans", "events"))
    for row in (*spans, *events):
        row["attributes"] = parsed(row["attributes"]) or {}
    events.sort(key=lambda event: event["at_ns"] + AFTER_NS.get(event["name"], 0))
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
    card = what_was_said([
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
        "ticks": _ticks(turn), "events": events, "schema": schema, "said": card,
        "capture": settings.CAPTURE_CONTENT.name, "cuts": cuts,
        "is_past": store.past_messages is not None,
        "answer": shortened(answer, MOST_TEXT), "explicit": _is_declared(spans),
        "left_columns": [
            column for column in _LEFT if any(is_number(step.attempt.get(column[1]))
                                              for step in steps)
        ],
        "left_out": [rows[0]["in_all"] - len(rows) if rows else 0 for rows in (spans, events)],
    }  # fmt: skip


def is_number(value: object) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _ends_of(table: str) -> str:
    """Return the query for the first rows of a turn, and the last."""
    at = AGED[table]
    return (
        f"SELECT *, count(*) OVER () AS in_all FROM {table} WHERE turn_id = $id"
        f" QUALIFY least(row_number() OVER (ORDER BY {at}), row_number() OVER (ORDER BY {at} DESC))"
        f" <= {AT_AN_END} ORDER BY {at}"
    )


def _is_declared(spans: Iterable[Row]) -> bool:
    return any(span["operation"] == "invoke_agent" for span in spans)


def _facts(
    turn: Row,
    steps: Sequence[Step],
    events: Sequence[Row],
    pieces: Sequence[Step],
    *,
    has_tools: bool,
    is_declared: bool,
) -> TurnFacts:
    calls = [step.row for step in steps if step.kind != "tool"]
    cuts = [row for row in calls if row["truncated"]]
    cut = cuts[0] if cuts else {}
    last = max(calls, key=lambda row: row["start_ns"], default={})
    repairs = [
        event["attributes"].get(schema.SUCCEEDED.key)
        for event in events
        if event["name"] == REPAIRED
    ]
    first_cut = next((step for step in steps if step.row is cut), None)
    is_tool_call = first_cut is not None and any(
        part.kind == TOOL_CALL
        for message in first_cut.messages.output[:1]
        for part in message.parts
    )
    # The call after a tool call that was answered with an error is a repair, whoever runs the turn.
    is_repaired = repairs[-1:] == [True] or (
        not repairs and bool(turn["complete"]) and any(step.asked_by == "repair" for step in steps)
    )
    return TurnFacts(
        outcome=turn["outcome"] or "",
        is_complete=bool(turn["complete"]),
        model=turn["model"] or "",
        provider=turn["provider"] or "",
        raw=last.get("raw") or turn["reason"] or "",
        error=last.get("error") or "",
        reason=cut.get("reason") or "",
        limit=cut.get("max_tokens"),
        used=cut.get("output_tokens"),
        cuts=len(cuts),
        tokens=sum(step.row["output_tokens"] or 0 for step in pieces if not step.replaced),
        continuations=turn["continuations"],
        repairs=turn["repairs"],
        is_repaired=is_repaired,
        is_in_tool_call=is_tool_call or bool(repairs) or is_repaired,
        has_tools=has_tools,
        is_lone=turn["lone"],
        asks_for_tools=turn["reason"] == StopReason.TOOL_CALL and not is_declared,
        went_on=bool(cuts) and last is not cuts[-1],
    )


def _has_tools(store: Store, turn: Row, steps: Iterable[Step]) -> bool:
    """Return whether a truncated answer of the turn may hold a tool call.

    This turn may say so, or others of the same model in its service. Where the answers are recorded
    and hold none, there is none.
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
    return bool(store.read(query, {"service": turn["service"], "model": turn["model"]}))


# --- Messages -------------------------------------------------------------------------------------


def _read_messages(store: Store, calls: Sequence[Step]) -> None:
    """Read what is recorded of the calls' messages: on spans, in events, or in files."""
    events = _content_events(store, [step.row["span_id"] for step in calls])
    for step in calls:
        span_id, attributes = step.row["span_id"], step.row["attributes"]
        if span_id in events or has_content(attributes):
            step.messages = read_call(attributes, events.get(span_id, ()))
        elif store.past_messages is not None:
            step.messages = store.past_messages.call_messages(span_id)
        step.text = "".join(message.text() for message in step.messages.output[:1])


def _content_events(store: Store, span_ids: Sequence[str]) -> dict[str, list[ContentEvent]]:
    """Return the events with messages, by the span in which they happened."""
    query = (
        "SELECT span_id, name, body, attributes FROM events"
        " WHERE span_id IN (SELECT unnest($spans::VARCHAR[])) AND name IN (SELECT"
        f" unnest($names::VARCHAR[])) ORDER BY at_ns LIMIT {AT_AN_END * 20}"
    )
    parameters = {"spans": span_ids, "names": content_names.EVENTS}
    events: dict[str, list[ContentEvent]] = {}
    for span_id, name, body, attributes in store.read(query, parameters):
        event = ContentEvent(name, None if body == "null" else body, parsed(attributes) or {})
        events.setdefault(span_id, []).append(event)
    return events


# --- Steps ----------------------------------------------------------------------------------------


def _steps(turn: Row, spans: Sequence[Row], events: Sequence[Row]) -> list[Step]:
    length = max(turn["end_ns"] - turn["start_ns"], 1)
    attempts = {
        str(event["attributes"].get(schema.CONTINUATION_INDEX.key)): event["attributes"]
        for event in events
        if event["name"] == schema.CONTINUATION_ATTEMPT.name
    }
    steps: list[Step] = []
    calls = sum(span["operation"] in MODEL_CALLS for span in spans)
    for span in spans:
        if span["operation"] not in (*MODEL_CALLS, TOOL):
            continue
        kind = "continuation" if span["continuation"] else "call"
        kind = "tool" if span["operation"] == TOOL else kind
        step = Step(
            number=len(steps) + 1,
            kind=kind,
            title="",
            row=span,
            left=(span["start_ns"] - turn["start_ns"]) / length * 100,
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


def _title(step: Step, nth: int) -> str:
    """Return the name of a step: each call has its number, and a continuation says what it is."""
    if step.kind == "tool":
        return excerpt(step.row["attributes"].get(schema.TOOL_NAME.key) or step.row["name"])
    call = f"Call {nth}" if nth else "Call"
    if step.kind != "continuation":
        return call
    if step.asked_by == "repair":
        return f"{call}, repair"
    return f"{call}, continuation {step.row['continuation']}"


def _note(event: Row) -> str:
    """Return what an event says of the step in which it happened; "" for another event."""

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


def _link_to_cut_step(step: Step, before: Iterable[Step], attempt: Mapping[str, Any]) -> None:
    """Set by what a continuation was asked for, and which step it continues."""
    step.asked_by, step.attempt = str(attempt.get(schema.STRATEGY.key, "")), attempt
    linked = set(parsed(step.row["links"]) or ())
    calls = [earlier for earlier in before if earlier.kind != "tool"]
    of = next(
        (earlier for earlier in calls if earlier.row["span_id"] in linked),
        calls[-1] if calls else None,
    )
    if of is not None:
        # A retry takes the place of the attempt that failed, and still continues what was cut off
        # before that.
        failed = [
            earlier for earlier in calls if earlier.continues == of.number and earlier.row["error"]
        ]
        (failed[-1] if failed else of).replaced |= step.asked_by in ANEW
        step.continues = of.number


def _last_chain(calls: Sequence[Step]) -> list[Step]:
    """Return the last call that is no continuation, with its continuations."""
    starts = [number for number, step in enumerate(calls) if step.kind == "call"]
    return list(calls[starts[-1] if starts else 0 :])


def _pieces(calls: Sequence[Step]) -> list[Step]:
    """Return the calls whose answers make up the last answer, in order, with their shares."""
    chain = _last_chain(calls)
    # A turn whose last call is no continuation is shown by its longest chain: what was cut is what
    # one looks for.
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
    """Return the marks of the time axis: where, in percent, and after how many seconds."""
    seconds = max((turn["end_ns"] - turn["start_ns"]) / 1e9, 1e-6)
    every = duration_step(seconds / MOST_TICKS)
    return [(n * every / seconds * 100, n * every) for n in range(int(seconds / every) + 1)]
