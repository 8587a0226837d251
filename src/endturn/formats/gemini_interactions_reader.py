"""What the Interactions API answers, as parts: an answer is a list of steps, and one status says what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import says_of_stop
from endturn.formats.fold import Fold, Reply, joined
from endturn.formats.parts import (
    Block,
    Call,
    End,
    Fault,
    Head,
    Part,
    Reason,
    Reasoning,
    Reopened,
    Running,
    Text,
    Token,
    Tokens,
    Vocabulary,
)
from endturn.formats.reading import arguments, count, items, member, minted, text, text_or_none
from endturn.formats.summaries import Context
from endturn.formats.validation import an_object, error_beside
from endturn.stop import Resume, Row, StopReason, find_row, raw_text
from endturn.stop_reasons import tables

NAME: Final = "gemini_interactions"
REASONS: Final = tables(NAME)

# A job of the server's goes on when nobody listens; anything else that ends in such a status was cut.
_FOREGROUND: Final = {
    raw: replace(row, terminal=False) if row.resume is Resume.RETRIEVE_SAME_ID else row
    for raw, row in REASONS[""].items()
}

CLIENT_CALL: Final = "function_call"
"""Steps of other types that end in `_call` are calls of tools that the server runs."""
CONTENT: Final = frozenset({"text", "image", "audio", "video", "document"})
"""Types of content: what stands in a step of output, or of the user's input."""
_SHOWN: Final = {"model_output": "content", "thought": "summary"}
"""Types of steps that hold content, and where."""


def _rows(ctx: Context) -> Mapping[str, Row]:
    """What a status before the end means."""
    return REASONS[""] if ctx.asked.background else _FOREGROUND


class Reader:
    """Reads events, or one whole interaction, of any revision.

    The SDK follows continuation tokens by itself, and hands out the streams of all hops as one: an interaction that is
    created after steps goes on where they stopped.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = _rows(ctx)
        self._id: str | None = None
        self._kinds: dict[int, str] = {}  # of the steps, by their places among those of all hops
        self._base = 0  # where the indices of this hop begin
        self._usage: Usage | None = None
        self._earlier = Usage()  # of earlier hops
        self._may_end = self._over = False  # what was said would be an end, if no output followed; it is the end

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        match member(event, "event_type"):
            case "error":
                if self._may_end and not self._over:
                    yield Reopened()
                yield Fault(member(event, "error") or "error")
            case _ if self._over:
                return  # The first terminal wins.
            case "interaction.created":
                yield from self._begin(member(event, "interaction"))
            case "step.delta":
                yield from self._goes_on()
                yield from self._delta(self._place(event), member(event, "delta"))
                if (metadata := member(event, "metadata")) is not None:
                    yield from self._tokens(member(metadata, "total_usage"))
            case "step.start":
                yield from self._goes_on()
                yield from self._start(self._place(event), member(event, "step"), whole=False)
            case "step.stop":
                place = self._place(event)
                if self._kinds.get(place) == CLIENT_CALL:
                    yield Call(place, closed=True)
                yield from self._tokens(member(event, "usage"))  # Of all of it so far; `step_usage` is the step's own.
            case "interaction.status_update":
                self._id = text_or_none(member(event, "interaction_id")) or self._id
                yield Head(self._id, replaces=True)
                yield from self._update(event)
                if (token := text_or_none(member(event, "continuation_token"))) is not None:
                    yield Token(token, checkpoint=True)
                yield from self._tokens(member(event, "usage"))
            case "interaction.completed":
                yield from self._end(member(event, "interaction"), whole=False)
            case None if any(member(event, name) is not None for name in ("status", "steps", "outputs")):
                yield from self._end(event, whole=True)

    def _place(self, event: Any) -> int:
        return self._base + (count(member(event, "index")) or 0)

    # --- What became of it ---

    def _begin(self, interaction: Any) -> Iterator[Part]:
        """An interaction begins: the first, or the next of those that the SDK joins."""
        if self._kinds:
            self._base = max(self._kinds) + 1
            self._earlier, self._usage = self._earlier + (self._usage or Usage()), None
            yield Running(None)
            yield Vocabulary(self._rows)
        yield from self._head(interaction)
        yield from self._update(interaction)

    def _head(self, interaction: Any) -> Iterator[Part]:
        self._id = text_or_none(member(interaction, "id")) or self._id
        named = text_or_none(member(interaction, "model")) or text_or_none(member(interaction, "agent"))
        yield Head(self._id, named, replaces=True)
        yield from self._tokens(member(interaction, "usage"))

    def _update(self, event: Any) -> Iterator[Part]:
        """A status that may be the last."""
        self._may_end = True
        if status := raw_text(member(event, "status")):
            yield Reopened()
            yield _status(status)

    def _goes_on(self) -> Iterator[Part]:
        """Output comes: a status before it was no end, and what starts from a checkpoint before it would repeat it."""
        if self._may_end:
            self._may_end = False
            yield Reopened()

    def _end(self, interaction: Any, *, whole: bool) -> Iterator[Part]:
        """The interaction that ends a stream, or that a body is."""
        yield from self._head(interaction)
        if not self._kinds:  # A body; or a stream whose end alone tells what was said.
            for place, step in enumerate(_answer(interaction)):
                yield from self._start(place, step, whole=True)
        status, errors = raw_text(member(interaction, "status")), items(member(interaction, "errors"))
        row = find_row(status, REASONS[""]) if status else None
        # That an interaction failed, its error explains.
        failed = row is not None and row.reason is StopReason.ERROR
        said = says_of_stop(errors[0], 0) if failed and errors else None
        if status or whole:
            # The end is the authority: without a token in it there is nothing to continue from.
            yield Reopened()
            yield Vocabulary({str(status): Row(said.reason, True, said.resume)} if said else REASONS[""])
            if (token := text_or_none(member(interaction, "continuation_token"))) is not None:
                yield Token(token)
            if status:
                yield _status(status)
            self._over, self._may_end = row is None or row.resume is not Resume.NATIVE_TOKEN, False
            yield End(whole)
        if errors:
            yield Fault(errors[0])

    def _tokens(self, usage: Any) -> Iterator[Part]:
        """The figures are totals of the interaction so far: they replace what was said before."""
        names = ("input", "tool_use", "output", "thought", "cached")
        asked, tools, said, thought, cached = [count(member(usage, f"total_{name}_tokens")) for name in names]
        # Neither what tools put into the prompt nor the thinking is in the figure beside it: total_tokens is their sum.
        asked = asked if tools is None else (asked or 0) + tools
        said = said if thought is None else (said or 0) + thought
        if (asked, said, cached) != (None, None, None):
            self._usage = Usage(asked, said, thought, cached)
            yield Tokens(self._earlier + self._usage)

    # --- What it says ---

    def _start(self, place: int, step: Any, *, whole: bool) -> Iterator[Part]:
        told: Json = dict(step) if isinstance(step, dict) else {}
        kind = self._kinds[place] = text(told.get("type"))
        if kind == CLIENT_CALL:
            # The result that answers a call must name the same id.
            told["id"] = text(told.get("id")) or minted(self._id, place)
            given = told.get("arguments")
            given = given if isinstance(given, str | dict) else None
            yield Call(place, told["id"], text(told.get("name")), given, closed=whole)
        if self._keep:
            yield Block(place, told)
        for part in items(told.get(_SHOWN.get(kind, ""))):
            yield from _shown(kind, part)

    def _delta(self, place: int, delta: Any) -> Iterator[Part]:
        says = text(member(delta, "type"))
        if place not in self._kinds:
            if says != "text":
                return
            # Text without the start of its step is text all the same.
            yield from self._start(place, {"type": "model_output"}, whole=False)
        kind = self._kinds[place]
        if says in CONTENT or says == "thought_summary":
            content = member(delta, "content") if says == "thought_summary" else delta
            yield from _shown(kind, content)
            piece: Json = {_PIECES: [content]}
        elif says == "arguments_delta":
            raw = text(member(delta, "arguments"))
            if kind == CLIENT_CALL:
                yield Call(place, arguments=raw)
            piece = {_PIECES: [{"text": raw}]}
        elif says == "text_annotation_delta":  # Their places are counted from where its text begins.
            piece = {_PIECES: [{"annotations": items(member(delta, "annotations"))}]}
        elif says == "thought_signature":
            piece = {"signature": text(member(delta, "signature"))}
        else:
            piece = {name: delta[name] for name in delta if name != "type"} if isinstance(delta, dict) else {}
        if self._keep:
            yield Block(place, piece)


def _status(raw: str) -> Part:
    row = find_row(raw, REASONS[""])
    return Running(raw) if row is not None and row.resume is Resume.RETRIEVE_SAME_ID else Reason(raw)


def _shown(kind: str, part: Any) -> Iterator[Part]:
    """The text of a step's content."""
    if member(part, "type") == "text" and (said := text(member(part, "text"))):
        if kind == "model_output":
            yield Text(said)
        elif kind == "thought":
            yield Reasoning(said)


def _answer(interaction: Any) -> Sequence[Any]:
    """The steps of a body that answer the request: those after the input that some answers repeat."""
    known = items(member(interaction, "steps"))
    if member(interaction, "steps") is None:
        # Before revision 2026-05-20 they are `outputs`: the same, but content stands in no step.
        known = []
        outputs = items(member(interaction, "outputs"))
        for is_content, group in groupby(outputs, key=lambda output: text(member(output, "type")) in CONTENT):
            some = [*group]
            known += [{"type": "model_output", "content": some}] if is_content else some
    inputs = [place for place, step in enumerate(known) if member(step, "type") == "user_input"]
    return known[inputs[-1] + 1 :] if inputs else known


_PIECES: Final = "pieces"
"""What a stream adds to a step: to its content, or to the text of its arguments. In no reply."""


def _steps(fold: Fold) -> Iterator[Json]:
    """The steps, with what a stream added to each."""
    for step in fold.blocks.values():
        pieces = [piece for piece in items(step.pop(_PIECES, None)) if isinstance(piece, dict)]
        where = _SHOWN.get(text(step.get("type")))
        if pieces and where is not None:
            step[where] = _contents([*items(step.get(where))], pieces)
        elif raw := "".join(text(piece.get("text")) for piece in pieces):
            parsed = arguments(raw)
            # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
            step["arguments"] = raw if parsed is None else parsed
        yield step


def _contents(found: list[Any], pieces: list[Json]) -> list[Any]:
    """A step's content with what a stream added: text goes on where text stood last."""
    for is_text, some in groupby(pieces, key=lambda piece: piece.get("type", "text") == "text"):
        if not is_text:
            found += some
            continue
        last = [found.pop()] if found and member(found[-1], "type") == "text" else []
        found.append(joined([*last, *some]))
    return found


def _faulty(data: Mapping[str, Any], whole: bool) -> str | None:
    """What is wrong with the members of an event, or of a whole body."""
    if not whole:
        inner = {"step.start": "step", "step.delta": "delta"}.get(text(data.get("event_type")))
        return None if inner is None or isinstance(data.get(inner), dict) else f"a {inner} is not an object"
    steps = data.get("outputs") if data.get("steps") is None else data["steps"]
    has_steps = isinstance(steps, list) and all(isinstance(step, dict) for step in steps)
    if data.get("event_type") is None and (has_steps or (steps is None and data.get("status") is not None)):
        return None
    return "an interaction has a `status` and a list of `steps`"


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=_rows,
    faulty=an_object("an interaction", "an event of an interaction", _faulty),
    failed=error_beside("status", "steps", "outputs"),
    blocks=_steps,
)
