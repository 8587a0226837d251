"""The pages of turns: the table, and one turn drawn as it went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.calls import ANEW, TurnOutcome
from endturn.telemetry import schema
from endturn.ui.axes import duration_step
from endturn.ui.bounds import parsed, shortened
from endturn.ui.formatting import plural
from endturn.ui.rows import MODEL_CALLS, Row, data
from endturn.ui.store import AGED, Store
from endturn.ui.views import View, excerpt
from endturn.vocabulary import StopReason

A_PAGE: Final = 50
DEEPEST: Final = 99
"""The last page that can be asked for: each one costs a sort of all those before it."""
TEXTS: Final[dict[str, Any]] = data("turns.yaml")
STATES, SORTS = TEXTS["states"], TEXTS["sorts"]
ENDINGS: Final[dict[str, dict[str, str]]] = data("endings.yaml")
"""Templates by what became of a turn. Nothing but these is ever formatted: what was sent here is a
value in them."""
MOST_TEXT: Final = 256 * 1024
"""How much of an answer a page shows, in characters."""
AT_AN_END: Final = 100
"""How many spans, or events, of a turn are shown of its beginning and of its end."""
OUTCOMES: Final = frozenset(outcome.value for outcome in TurnOutcome)
TOOL, REPAIRED = "execute_tool", schema.TOOL_PAYLOAD_REPAIR.name
MOST_TICKS: Final = 6
"""How many marks the time axis of a turn has at most, beside that of its beginning."""


def listed(view: View, store: Store) -> dict[str, Any]:
    """Turns, a page of them."""
    sort = view.given.get("sort", "newest") if view.given.get("sort") in SORTS else "newest"
    state = view.given.get("state", "") if view.given.get("state") in STATES else ""
    where, asked = view.where()
    counts = dict(
        store.read(f"SELECT state, count(*) FROM turns WHERE {where} GROUP BY state", asked)
    )
    counts[""] = sum(counts.values())
    total = counts.get(state, 0)
    last = min(max(0, (total - 1) // A_PAGE), DEEPEST)
    number = min(
        int(given) if (given := view.given.get("page", "0")).isdecimal() and len(given) < 7 else 0,
        last,
    )
    chosen = (
        f"SELECT * FROM turns WHERE {where} AND $state IN ('', state) ORDER BY {SORTS[sort][1]}"
    )
    rows = store.read_rows(
        f"{chosen} LIMIT {A_PAGE} OFFSET {number * A_PAGE}", asked | {"state": state}
    )
    longest = max((row["end_ns"] - row["start_ns"] for row in rows), default=1) or 1
    return {
        "anything": bool(store.read("SELECT 1 FROM turns LIMIT 1")),
        "rows": rows, "longest": longest, "total": total, "counts": counts,
        "states": STATES, "state": state, "sorts": SORTS, "sort": sort, "number": number,
        "last": last, "first": number * A_PAGE + 1, "deepest": DEEPEST,
    }  # fmt: skip


# --- One turn -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """One thing that happened in a turn, as it is drawn.

    Attributes:
        kind: call, continuation or tool.
        left, width: where its bar is, in percent of the turn.
        asked_by: the strategy by which it was asked for.
        attempt: what the event says with which it was asked for: what the policy still allowed,
            among others.
        continues: the step whose answer it continues.
        replaced: what it said was not used, since it was asked for anew.
        text: what it said, where that is recorded.
        share: its part of the answer, in percent.
    """

    number: int
    kind: str
    row: Row
    left: float
    width: float
    asked_by: str = ""
    attempt: Mapping[str, Any] = field(default_factory=dict)
    continues: int | None = None
    replaced: bool = False
    text: str = ""
    share: float = 0.0
    notes: list[str] = field(default_factory=list)


def shown(view: View, store: Store) -> dict[str, Any] | None:
    """One turn; None where nothing is known of it."""
    asked = {"id": view.given["turn_id"]}
    turn = next(iter(store.read_rows("SELECT * FROM turns WHERE turn_id = $id", asked)), None)
    if turn is None:
        return None
    ends = [
        TEXTS["ends"].format(table=each, at=AGED[each], most=AT_AN_END)
        for each in ("spans", "events")
    ]
    spans, events = (store.read_rows(query, asked) for query in ends)
    for row in (*spans, *events):
        row["attributes"] = parsed(row["attributes"]) or {}
    events.sort(key=lambda event: event["at_ns"] + TEXTS["after"].get(event["name"], 0))
    steps = _steps(turn, spans, events)
    for step in steps:
        step.text = step.text or store.text_of(step.row["span_id"])
    calls = [step for step in steps if step.kind != "tool"]
    cuts = [step.row for step in calls if step.row["truncated"]]
    pieces = _pieces(calls)
    tokens = sum(step.row["output_tokens"] or 0 for step in pieces if not step.replaced)
    worked = [
        event["attributes"].get(schema.SUCCEEDED.key)
        for event in events
        if event["name"] == REPAIRED
    ]
    in_tool = any(part.get("type") == "tool_call" for cut in cuts[:1] for part in _parts(cut))
    explicit = any(span["operation"] == "invoke_agent" for span in spans)
    answer = "".join(step.text for step in pieces if not step.replaced)
    last = max((step.row for step in calls), key=lambda row: row["start_ns"], default={})
    for_tools = turn["reason"] == StopReason.TOOL_CALL and not explicit
    went_on = bool(cuts) and last is not cuts[-1]
    turn |= {
        "raw": last.get("raw"),
        "error": last.get("error"),
        "for_tools": for_tools,
        "went_on": went_on,
    }
    return {
        "turn": turn,
        "ending": ending(turn, cuts, tokens=tokens, repaired=worked[-1:] == [True],
                         in_tool=in_tool or bool(worked)),
        "steps": steps, "calls": calls, "pieces": pieces, "ticks": _ticks(turn), "events": events,
        "schema": schema, "answer": shortened(answer, MOST_TEXT),
        "unreadable": any(map(_is_unreadable, calls)), "explicit": explicit,
        "left_out": [rows[0]["in_all"] - len(rows) if rows else 0 for rows in (spans, events)],
    }  # fmt: skip


def _steps(turn: Row, spans: Sequence[Row], events: Sequence[Row]) -> list[Step]:
    whole = max(turn["end_ns"] - turn["start_ns"], 1)
    attempts = {
        str(event["attributes"].get(schema.CONTINUATION_INDEX.key)): event["attributes"]
        for event in events
        if event["name"] == schema.CONTINUATION_ATTEMPT.name
    }
    steps: list[Step] = []
    for span in spans:
        if span["operation"] not in (*MODEL_CALLS, TOOL):
            continue
        kind = (
            "tool"
            if span["operation"] == TOOL
            else "continuation"
            if span["continuation"]
            else "call"
        )
        left = (span["start_ns"] - turn["start_ns"]) / whole * 100
        step = Step(
            len(steps) + 1,
            kind,
            span,
            left,
            max((span["end_ns"] - span["start_ns"]) / whole * 100, 0.4),
        )
        if kind == "continuation":
            _ask(step, steps, attempts.get(str(span["continuation"]), {}))
        contents = [part.get("content", "") for part in _parts(span) if part.get("type") == "text"]
        step.text = "".join(
            str(content) for content in contents if isinstance(content, str | int | float)
        )
        steps.append(step)
    for event in events:
        worked = event["attributes"].get(schema.SUCCEEDED.key) is True
        note = TEXTS["notes"].get(f"{event['name']}.succeeded" if worked else event["name"])
        near = [
            step for step in steps if step.kind != "tool" and step.row["start_ns"] <= event["at_ns"]
        ]
        if note and near:
            said = {
                key.rpartition(".")[2]: excerpt(value) for key, value in event["attributes"].items()
            }
            near[-1].notes.append(note.format_map(defaultdict(lambda: "–", said)))
    return steps


def _ask(step: Step, before: Iterable[Step], attempt: Mapping[str, Any]) -> None:
    """Say by what a continuation was asked for, and of which step."""
    step.asked_by, step.attempt = str(attempt.get(schema.STRATEGY.key, "")), attempt
    linked = set(parsed(step.row["links"]) or ())
    calls = [each for each in before if each.kind != "tool"]
    of = next(
        (each for each in calls if each.row["span_id"] in linked), calls[-1] if calls else None
    )
    if of is not None:
        # A retry takes the place of the attempt that failed, and still continues what was cut off
        # before that.
        failed = [each for each in calls if each.continues == of.number and each.row["error"]]
        (failed[-1] if failed else of).replaced |= step.asked_by in ANEW
        step.continues = of.number


def _parts(span: Row) -> list[dict[str, Any]]:
    """The parts of a call's answer, where it is recorded: as JSON on the span."""
    messages = parsed(span["attributes"].get(schema.OUTPUT_MESSAGES.key))
    first = messages[0] if isinstance(messages, list) and messages else None
    parts = first.get("parts") if isinstance(first, dict) else None
    # Another instrumentation's may have a form of its own.
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _is_unreadable(step: Step) -> bool:
    """Whether what a call answered is recorded in a form that the page cannot show."""
    recorded = step.row["attributes"].get(schema.OUTPUT_MESSAGES.key)
    return recorded not in (None, "", "[]") and not _parts(step.row)


def _pieces(calls: Sequence[Step]) -> list[Step]:
    """The calls whose answers make up the last answer, in order, each with its share of it."""
    chain: list[Step] = []
    for step in calls:
        if step.kind == "call":
            chain = []
        chain.append(step)
    # A turn whose last call is no continuation is shown by its longest chain: what was cut is what
    # one looks for.
    cut = [step for step in calls if step.continues is not None]
    if len(chain) == 1 and cut:
        numbers = {cut[-1].number} | {step.continues for step in cut}
        chain = [step for step in calls if step.number in numbers]
    chain = [step for step in chain if not step.replaced or step.row["output_tokens"]]
    whole = sum(step.row["output_tokens"] or 0 for step in chain)
    for step in chain:
        step.share = (step.row["output_tokens"] or 0) / whole * 100 if whole else 100 / len(chain)
    return chain


def _ticks(turn: Row) -> list[tuple[float, float]]:
    """Marks of the time axis: where, in percent, and after how many seconds."""
    seconds = max((turn["end_ns"] - turn["start_ns"]) / 1e9, 1e-6)
    every = duration_step(seconds / MOST_TICKS)
    return [(n * every / seconds * 100, n * every) for n in range(int(seconds / every) + 1)]


# --- Why a turn ended as it did, and what to change -----------------------------------------------


def ending(
    turn: Row, cuts: Sequence[Row], *, tokens: int, repaired: bool, in_tool: bool
) -> dict[str, str]:
    """What to say of a turn: its head, why it ended so, and what to change.

    Args:
        turn: its row; `for_tools` in it: its last call asked for tools, and nothing says that this
            was to end it; `went_on`: its last call is not the one that was cut.
        cuts: its truncated calls.
        tokens: how many the answer has, all pieces together.
        repaired: what was cut was a tool call, and it was asked for again; in_tool: it is known to
            be one.
    """
    outcome = turn["outcome"] or ""
    whole = bool(turn["complete"])
    cut = cuts[0] if cuts else {}
    reason = cut.get("reason") or StopReason.MAX_TOKENS.value
    limit, used = cut.get("max_tokens"), cut.get("output_tokens")
    if reason == StopReason.MAX_TOKENS and limit and used is not None and used < 0.9 * limit:
        reason = "another limit"
    longer = whole and tokens > (limit or 0)
    said = {
        "model": turn["model"] or "the model", "provider": turn["provider"] or "the provider",
        "raw": turn["raw"] or turn["reason"] or "nothing", "error": turn["error"] or "error",
        "limit": f"limit of {limit} "
                 f"tokens" if limit else "token limit", "most": str(limit), "used": str(used),
        "within": " within a tool "
                  "call" if in_tool or repaired or outcome == TurnOutcome.TOOL_CALL_CUT else "",
        "times": "once" if len(cuts) == 1 else "twice" if len(cuts) == 2 else f"{len(cuts)} times",
        "continuations": plural(turn["continuations"], "continuation"),
        "asked": "once" if turn["continuations"] == 1 else plural(turn["continuations"], "time"),
        "to": f" to {1 << max(6, (tokens - 1).bit_length())} or "
              f"more" if longer else f" above {limit}" if limit else "",
        "gain": f"the whole answer has {tokens} tokens, and would have come in one call" if longer
        else "each call that asks for the rest pays for the prompt again",
    }  # fmt: skip
    said["cut"] = ENDINGS["cut"].get(reason, "was cut off{within}").format_map(said)
    said["raise_"] = ENDINGS["raise"].get(reason, "").format_map(said)
    then = "repaired" if repaired else "not repaired" if turn["repairs"] else "finished"
    name = f"then {then}" if whole and cuts else outcome or "waiting"
    if name == TurnOutcome.COMPLETED and turn["for_tools"]:
        name = "asked for tools"
    elif name == TurnOutcome.NOT_CONTINUED and (
        turn["continuations"] or turn["lone"] or turn["went_on"]
    ):
        name = (
            "cut off alone"
            if turn["lone"]
            else "went on"
            if turn["went_on"]
            else "not continued again"
        )
    if name == outcome and outcome not in OUTCOMES:  # of a later version of endturn, or of anybody
        return {"head": outcome.replace("_", " "), "why": "", "change": ""}
    texts = ENDINGS[name]
    return {
        part: texts.get(part, "").format_map(said).strip() for part in ("head", "why", "change")
    }
