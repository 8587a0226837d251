"""The pages of turns: the table, and one turn drawn as it went."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.events import ANEW, Strategy, TurnOutcome
from endturn.stop import StopReason
from endturn.telemetry import schema
from endturn.ui.rows import MODEL_CALLS, Row, data
from endturn.ui.store import AGED, Store
from endturn.ui.views import View

A_PAGE: Final = 50
DEEPEST: Final = 99
"""The last page that can be asked for: each one costs a sort of all those before it."""
TEXTS: Final[dict[str, Any]] = data("turns.yaml")
STATES, SORTS = TEXTS["states"], TEXTS["sorts"]
ENDINGS: Final[dict[str, dict[str, str]]] = data("endings.yaml")
AT_AN_END: Final = 100
"""How many spans, or events, of a turn are shown of its beginning and of its end."""
TOOL: Final = "execute_tool"
TAIL: Final = 160
"""How much of the text is shown on each side of a seam."""


def listed(view: View, store: Store) -> dict[str, Any]:
    """Turns, a page of them."""
    sort = view.given.get("sort", "newest") if view.given.get("sort") in SORTS else "newest"
    state = view.given.get("state", "") if view.given.get("state") in STATES else ""
    where, asked = view.where()
    counts = dict(store.read(f"SELECT state, count(*) FROM turns WHERE {where} GROUP BY state", asked))
    counts[""] = sum(counts.values())
    total = counts.get(state, 0)
    last = min(max(0, (total - 1) // A_PAGE), DEEPEST)
    number = min(int(given) if (given := view.given.get("page", "0")).isdecimal() and len(given) < 7 else 0, last)
    chosen = f"{where} AND state = $state" if state else where
    rows = store.read_rows(
        f"SELECT * FROM turns WHERE {chosen} ORDER BY {SORTS[sort][1]} LIMIT {A_PAGE} OFFSET {number * A_PAGE}",
        asked | ({"state": state} if state else {}),
    )
    longest = max((row["end_ns"] - row["start_ns"] for row in rows), default=1) or 1
    return {
        "anything": bool(store.read("SELECT 1 FROM turns LIMIT 1")),
        "rows": rows, "longest": longest, "total": total, "counts": counts,
        "states": STATES, "state": state, "sorts": SORTS, "sort": sort, "number": number, "last": last,
        "first": number * A_PAGE + 1, "deepest": DEEPEST,
    }  # fmt: skip


# --- One turn -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Step:
    """One thing that happened in a turn, as it is drawn.

    Attributes:
        kind: call, continuation or tool.
        left, width: where its bar is, in percent of the turn.
        asked_by: the strategy by which it was asked for.
        budget: what the policy still allowed then: attempts, tokens, chars.
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
    budget: dict[str, int | None] = field(default_factory=dict)
    continues: int | None = None
    replaced: bool = False
    text: str = ""
    share: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def used(self) -> float | None:
        """The part of its limit that it used."""
        limit, tokens = self.row["max_tokens"], self.row["output_tokens"]
        return tokens / limit if limit and tokens is not None else None

    @property
    def title(self) -> str:
        """What it is called in the drawing."""
        if self.kind == "tool":
            return str(json.loads(self.row["attributes"]).get(schema.TOOL_NAME.key) or self.row["name"])
        if self.kind == "continuation":
            return "Repair" if self.asked_by == "repair" else f"Continuation {self.row['continuation']}"
        return "Call" if self.number == 1 else f"Call {self.number}"


def shown(view: View, store: Store) -> dict[str, Any] | None:
    """One turn; None where nothing is known of it."""
    asked: dict[str, Any] = {"id": view.given["turn_id"]}
    turn = next(iter(store.read_rows("SELECT * FROM turns WHERE turn_id = $id", asked)), None)
    if turn is None:
        return None
    asked |= {"most": AT_AN_END}
    ends = [TEXTS["ends"].format(table=each, at=AGED[each]) for each in ("spans", "events")]
    spans, events = (store.read_rows(query, asked) for query in ends)
    for event in events:
        event["attributes"] = json.loads(event["attributes"])
    steps = _steps(turn, spans, events)
    calls = [step for step in steps if step.kind != "tool"]
    cuts = [step for step in calls if step.row["truncated"]]
    pieces = _pieces(calls)
    explicit = any(span["operation"] == "invoke_agent" for span in spans)
    last = max(calls, key=lambda step: step.row["start_ns"], default=None)
    turn |= {"raw": last and last.row["raw"], "error": last and last.row["error"]}
    turn["for_tools"] = turn["reason"] == StopReason.TOOL_CALL and not explicit
    return {
        "turn": turn,
        "ending": ending(
            turn,
            cut_by=cuts[0].row["reason"] if cuts else None,
            cuts=len(cuts),
            limit=cuts[0].row["max_tokens"] if cuts else None,
            tokens=sum(step.row["output_tokens"] or 0 for step in pieces if not step.replaced),
            repaired=any(step.asked_by == Strategy.REPAIR for step in calls),
        ),
        "steps": steps, "calls": calls, "pieces": pieces, "seams": _seams(pieces), "ticks": _ticks(turn),
        "answer": "".join(step.text for step in pieces if not step.replaced),
        "captured": any(step.text for step in calls), "events": events,
        "explicit": explicit, "left_out": [rows[0]["in_all"] - len(rows) if rows else 0 for rows in (spans, events)],
    }  # fmt: skip


def _steps(turn: Row, spans: Sequence[Row], events: Sequence[Row]) -> list[Step]:
    whole = max(turn["end_ns"] - turn["start_ns"], 1)
    attempts = {
        _count(event["attributes"], schema.CONTINUATION_INDEX): event["attributes"]
        for event in events
        if event["name"] == schema.CONTINUATION_ATTEMPT.name
    }
    steps: list[Step] = []
    for span in spans:
        if span["operation"] not in (*MODEL_CALLS, TOOL):
            continue
        kind = "tool" if span["operation"] == TOOL else "continuation" if span["continuation"] else "call"
        left = (span["start_ns"] - turn["start_ns"]) / whole * 100
        step = Step(len(steps) + 1, kind, span, left, max((span["end_ns"] - span["start_ns"]) / whole * 100, 0.4))
        if kind == "continuation":
            _ask(step, steps, attempts.get(span["continuation"], {}))
        if kind != "tool":
            step.text = _said(span)
        steps.append(step)
    for event in events:
        note = TEXTS["notes"].get(event["name"])
        near = [step for step in steps if step.kind != "tool" and step.row["start_ns"] <= event["at_ns"]]
        if note and near:
            said = {key.rpartition(".")[2]: value for key, value in event["attributes"].items()}
            near[-1].notes.append(note.format_map(defaultdict(lambda: "–", said)))
    return steps


def _ask(step: Step, before: Iterable[Step], attempt: Mapping[str, Any]) -> None:
    """Say by what a continuation was asked for, of which step, and what was left."""
    step.asked_by = str(attempt.get(schema.STRATEGY.key, ""))
    left = {"attempts": schema.ATTEMPTS_LEFT, "tokens": schema.TOKENS_LEFT, "chars": schema.CHARS_LEFT}
    step.budget = {name: _count(attempt, attribute) for name, attribute in left.items()}
    linked = set(json.loads(step.row["links"]))
    calls = [each for each in before if each.kind != "tool"]
    of = next((each for each in calls if each.row["span_id"] in linked), calls[-1] if calls else None)
    if of is not None:
        # A retry takes the place of the attempt that failed, and still continues what was cut off before that.
        failed = [each for each in calls if each.continues == of.number and each.row["error"]]
        (failed[-1] if failed else of).replaced |= step.asked_by in ANEW
        step.continues = of.number


def _count(said: Mapping[str, Any], attribute: schema.Attribute) -> int | None:
    """A whole number among an event's attributes, which anybody may send in another type."""
    return value if type(value := said.get(attribute.key)) is int else None


def _said(span: Row) -> str:
    """The text of a call's answer, where it is recorded: as JSON on the span."""
    try:
        messages = json.loads(json.loads(span["attributes"]).get(schema.OUTPUT_MESSAGES.key) or "[]")
        return "".join(str(part.get("content", "")) for part in messages[0]["parts"] if part.get("type") == "text")
    except (ValueError, KeyError, TypeError, AttributeError, IndexError):
        return ""  # none, or another instrumentation's, in a form of its own


def _pieces(calls: Sequence[Step]) -> list[Step]:
    """The calls whose answers make up the last answer, in order, each with its share of it."""
    chain: list[Step] = []
    for step in calls:
        if step.kind == "call":
            chain = []
        chain.append(step)
    # A turn whose last call is no continuation is shown by its longest chain: what was cut is what one looks for.
    cut = [step for step in calls if step.continues is not None]
    if len(chain) == 1 and cut:
        numbers = {cut[-1].number} | {step.continues for step in cut}
        chain = [step for step in calls if step.number in numbers]
    chain = [step for step in chain if not step.replaced or step.row["output_tokens"]]
    whole = sum(step.row["output_tokens"] or 0 for step in chain)
    for step in chain:
        step.share = (step.row["output_tokens"] or 0) / whole * 100 if whole else 100 / len(chain)
    return chain


def _seams(pieces: Sequence[Step]) -> list[tuple[str, str]]:
    """Where pieces meet whose text is known: the end of one, and the beginning of the next."""
    pairs = itertools.pairwise(pieces)
    return [
        (one.text[-TAIL:], other.text[:TAIL]) for one, other in pairs if one.text and other.text and not one.replaced
    ]


def _ticks(turn: Row) -> list[tuple[float, float]]:
    """Marks of the time axis: where, in percent, and after how many seconds."""
    seconds = max((turn["end_ns"] - turn["start_ns"]) / 1e9, 1e-6)
    every = next(
        (unit * 10**power for power in range(-4, 6) for unit in (1, 2, 5) if seconds / (unit * 10**power) <= 5),
        seconds,
    )
    return [(n * every / seconds * 100, n * every) for n in range(int(seconds / every) + 1)]


# --- Why a turn ended as it did, and what to change ----------------------------------------------------------------


def ending(
    turn: Mapping[str, Any], *, cut_by: str | None, cuts: int, limit: int | None, tokens: int, repaired: bool
) -> dict[str, str]:
    """What to say of a turn: its head, why it ended so, and what to change.

    Args:
        turn: its row; `for_tools` in it: its last call asked for tools, and nothing says that this was to end it.
        cut_by: the reason of its first truncated call; cuts: how many there were.
        limit: that call's max_tokens.
        tokens: how many the answer has, all pieces together.
        repaired: what was cut was a tool call, and it was asked for again.
    """
    outcome = turn["outcome"] or ""
    whole = bool(turn["complete"])
    reason = cut_by or StopReason.MAX_TOKENS.value
    said = {
        "model": turn["model"] or "the model", "provider": turn["provider"] or "the provider",
        "raw": turn["raw"] or turn["reason"] or "nothing", "error": turn["error"] or "error",
        "limit": f"{limit} tokens" if limit else "tokens",
        "times": "once" if cuts == 1 else "twice" if cuts == 2 else f"{cuts} times",
        "continuations": plural(turn["continuations"], "continuation"),
        "asked": "once" if turn["continuations"] == 1 else plural(turn["continuations"], "time"),
        "to": f" to {roomy(max(tokens, (limit or 0) + 1))} or more" if whole else f" above {limit}" if limit else "",
        "gain": f"the whole answer has {tokens} tokens, and would have come in one call" if whole
        else "each piece that is asked for pays for the prompt again",
    }  # fmt: skip
    said["cut"] = ENDINGS["cut"].get(reason, "was cut off").format_map(said)
    said["raise_"] = ENDINGS["raise"].get(reason, "").format_map(said)
    name = ("then repaired" if repaired else "then finished") if whole and cuts else outcome or "waiting"
    if name == TurnOutcome.COMPLETED and turn["for_tools"]:
        name = "asked for tools"
    elif name == TurnOutcome.NOT_CONTINUED and turn["continuations"]:
        name = "not continued again"
    texts = ENDINGS.get(name, {"head": outcome.replace("_", " ")})  # of a later version of endturn
    return {part: texts.get(part, "").format_map(said).strip() for part in ("head", "why", "change")}


def plural(count: int, noun: str) -> str:
    """A count of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def roomy(tokens: int) -> int:
    """A round limit in which so many tokens have room."""
    return next((limit for limit in (2**n for n in range(6, 24)) if limit >= tokens), tokens)
