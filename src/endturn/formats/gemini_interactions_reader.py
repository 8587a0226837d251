"""What the Interactions API answers, as parts: an answer is a list of steps, and one status says what became of it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import says_of_stop, shortened
from endturn.formats.fold import Reply
from endturn.formats.framing import DONE
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
from endturn.stop import Resume, Row, StopReason, find_row, raw_text
from endturn.stop_reasons import tables

NAME: Final = "gemini_interactions"
REASONS: Final = tables(NAME)

_RUNNING: Final = {raw: row for raw, row in REASONS[""].items() if row.resume is Resume.RETRIEVE_SAME_ID}
# A job of the server's goes on when nobody listens; anything else that ends so was cut.
_FOREGROUND: Final = {**REASONS[""], **{raw: replace(row, terminal=False) for raw, row in _RUNNING.items()}}

CLIENT_CALL: Final = "function_call"
"""Steps of other types that end in `_call` are calls of tools that the server runs."""
CONTENT: Final = frozenset({"text", "image", "audio", "video", "document"})
"""Types of content: what stands in a step of output, or of the user's input."""
_SHOWN: Final = {"model_output": "content", "thought": "summary"}
"""Types of steps that hold text, and where."""
_COUNTED: Final = (
    "total_input_tokens",
    "total_tool_use_tokens",
    "total_output_tokens",
    "total_thought_tokens",
    "total_cached_tokens",
)


@dataclass(slots=True)
class _Step:
    """One step while it arrives: as it was told, how many contents came of it, and whether the last is text."""

    kind: str
    told: Json
    contents: int = 0
    in_text: bool = False


def _rows(ctx: Context) -> Mapping[str, Row]:
    """What a status before the end means."""
    return REASONS[""] if ctx.asked.background else _FOREGROUND


class Reader:
    """Reads events, or one whole interaction, of any revision.

    The SDK follows continuation tokens by itself, and hands out the streams of all hops as one: an interaction that is
    created after one that needs continuation, or after one that broke off, goes on where that one stopped.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = _rows(ctx)
        self._id: str | None = None
        self._steps: dict[int, _Step] = {}
        self._base = 0  # where the indices of this hop begin
        self._tokens: dict[str, int] = {}
        self._earlier: Usage | None = None
        self._status: str | None = None
        self._may_end = False  # what was said would be an end, if no output followed
        self._spoke = self._over = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind = member(event, "event_type")
        if kind == "error":
            if self._may_end and not self._over:
                yield Reopened()
            yield Fault(member(event, "error") or "error")
        elif kind == "interaction.created":
            yield from self._hop(member(event, "interaction"))
        elif self._over:
            return  # The first terminal wins.
        elif kind == "step.delta":
            yield from self._goes_on()
            yield from self._delta(event)
            yield from self._usage(member(member(event, "metadata"), "total_usage"))
        elif kind == "step.start":
            yield from self._goes_on()
            index = count(member(event, "index"))
            place = len(self._steps) if index is None else self._base + index
            yield from self._start(place, member(event, "step"), whole=False)
        elif kind == "step.stop":
            place = self._place(event) or self._base
            if place in self._steps and self._steps[place].kind == CLIENT_CALL:
                yield Call(place, closed=True)
            yield from self._usage(member(event, "usage"))  # Of the interaction so far; `step_usage` is the step's own.
        elif kind == "interaction.status_update":
            self._id = text_or_none(member(event, "interaction_id")) or self._id
            yield Head(self._id, replaces=True)
            yield from self._update(member(event, "status"), text_or_none(member(event, "continuation_token")))
            yield from self._usage(member(event, "usage"))
        elif kind == "interaction.completed":
            yield from self._end(member(event, "interaction"), whole=False)
        elif kind is None and any(member(event, name) is not None for name in ("status", "steps", "outputs")):
            yield from self._end(event, whole=True)

    def _place(self, event: Any) -> int | None:
        """Where the step of an event stands among those of all hops; None where the event does not say."""
        index = count(member(event, "index"))
        return None if index is None else self._base + index

    # --- What became of it ---

    def _row(self) -> Row | None:
        return None if self._status is None else find_row(self._status, REASONS[""])

    def _is_running(self) -> bool:
        row = self._row()
        return row is not None and row.resume is Resume.RETRIEVE_SAME_ID

    def _said(self) -> Iterator[Part]:
        """The status, as far as it is one of an answer that ends here."""
        if self._is_running():
            yield Running(self._status)
        elif self._status is not None:
            yield Reason(self._status)

    def _update(self, status: Any, token: str | None) -> Iterator[Part]:
        """A status that is not the end's, and a checkpoint to continue from."""
        if text_or_none(status):
            self._status = status
            yield Reopened()
            yield from self._said()
        if token is not None:
            yield Token(token, checkpoint=True)
        self._may_end = token is not None or (self._status is not None and not self._is_running())

    def _goes_on(self) -> Iterator[Part]:
        """Output comes: a status before it was no end, and what starts from a checkpoint before it would repeat it."""
        if self._may_end:
            self._may_end = False
            yield Reopened()

    def _hop(self, interaction: Any) -> Iterator[Part]:
        """An interaction begins: the first, or the next of those that the SDK joins."""
        row = self._row()
        if self._steps and (not self._over or (row is not None and row.resume is Resume.NATIVE_TOKEN)):
            self._base = max(self._steps) + 1
            self._earlier, self._tokens = self._sum(), {}
            self._status, self._over = None, False
            yield Reopened()
            yield Running(None)
            yield Vocabulary(self._rows)
        yield from self._head(interaction)
        if not self._over:
            yield from self._update(member(interaction, "status"), None)

    def _head(self, interaction: Any) -> Iterator[Part]:
        self._id = text_or_none(member(interaction, "id")) or self._id
        named = text_or_none(member(interaction, "model")) or text_or_none(member(interaction, "agent"))
        yield Head(self._id, named, replaces=True)
        yield from self._usage(member(interaction, "usage"))

    def _end(self, interaction: Any, *, whole: bool) -> Iterator[Part]:
        """The interaction that ends a stream, or that a body is."""
        yield from self._head(interaction)
        if not self._steps and not self._spoke:  # A body; or a stream whose end alone tells what was said.
            for place, step in enumerate(current(interaction)):
                yield from self._start(place, step, whole=True)
        # The end is the authority: without a token in it there is nothing to continue from.
        yield Reopened()
        status = raw_text(member(interaction, "status"))
        self._status = status or self._status
        errors = items(member(interaction, "errors"))
        row, said = self._row(), says_of_stop(errors[0], 0) if errors else None
        if status and row is not None and row.reason is StopReason.ERROR and said is not None:
            yield Vocabulary({status: Row(said.reason, True, said.resume)})
        elif status:
            yield Vocabulary(REASONS[""])
        if (token := text_or_none(member(interaction, "continuation_token"))) is not None:
            yield Token(token)
        yield from self._said()
        if status or whole:
            self._over = True
            yield End(whole)
        if errors:
            yield Fault(errors[0])

    def _usage(self, usage: Any) -> Iterator[Part]:
        """The figures are totals of the interaction so far: they replace what was said before."""
        if usage is None:
            return
        told = {name: tokens for name in _COUNTED if (tokens := count(member(usage, name))) is not None}
        if told:
            self._tokens |= told
            if (usage := self._sum()) is not None:
                yield Tokens(usage)

    def _sum(self) -> Usage | None:
        """The usage of all hops."""
        tokens = self._tokens
        if not tokens:
            return self._earlier
        asked, tools = tokens.get("total_input_tokens"), tokens.get("total_tool_use_tokens")
        said, thought = tokens.get("total_output_tokens"), tokens.get("total_thought_tokens")
        # Neither what tools put into the prompt nor the thinking is in the figure beside it: total_tokens is their sum.
        usage = Usage(
            None if asked is None and tools is None else (asked or 0) + (tools or 0),
            None if said is None and thought is None else (said or 0) + (thought or 0),
            thought,
            tokens.get("total_cached_tokens"),
        )
        return usage if self._earlier is None else self._earlier + usage

    # --- What it says ---

    def _start(self, place: int, raw: Any, *, whole: bool) -> Iterator[Part]:
        told: Json = dict(raw) if isinstance(raw, Mapping) else {}
        step = self._steps[place] = _Step(text(told.get("type")), told)
        if step.kind == CLIENT_CALL:
            # The result that answers a call must name the same id.
            told["id"] = text(told.get("id")) or minted(self._id, place)
            given = told.get("arguments")
            given = given if isinstance(given, str | dict) else None
            yield Call(place, told["id"], text(told.get("name")), given, closed=whole)
        if self._keep:
            yield Block((place, "step", 0), told)
        for part in items(told.get(_SHOWN.get(step.kind, ""))):
            step.in_text = False
            yield from self._content(place, step, part)

    def _content(self, place: int, step: _Step, part: Any) -> Iterator[Part]:
        """A piece of a step's content; text goes on where text stood last."""
        said, is_text = text(member(part, "text")), member(part, "type") == "text"
        if is_text and said:
            self._spoke = self._spoke or step.kind == "model_output"
            yield Text(said) if step.kind == "model_output" else Reasoning(said)
        annotated = bool(member(part, "annotations"))
        if not self._keep or not isinstance(part, Mapping) or (is_text and not said and not annotated):
            return
        if not (is_text and step.in_text) or annotated:
            step.contents += 1
        step.in_text = is_text
        yield Block((place, "content", step.contents), dict(part))

    def _delta(self, event: Any) -> Iterator[Part]:
        delta, place = member(event, "delta"), self._place(event)
        kind = member(delta, "type")
        place = max(self._steps, default=0) if place is None else place
        if place not in self._steps:
            if kind != "text":
                return
            # Text without the start of its step is text all the same.
            yield from self._start(place, {"type": "model_output"}, whole=False)
        step = self._steps[place]
        match kind:
            case "arguments_delta":
                piece = text(member(delta, "arguments"))
                if step.kind == CLIENT_CALL:
                    yield Call(place, arguments=piece)
                if self._keep:
                    yield Block((place, "arguments", 0), {"text": piece})
            case "thought_summary":
                yield from self._content(place, step, member(delta, "content"))
            case "text" if step.kind == "model_output":
                yield from self._content(place, step, {name: delta[name] for name in delta if name != "annotations"})
            case "image" | "audio" | "video" | "document":
                yield from self._content(place, step, delta)
            case "thought_signature" if self._keep:
                yield Block((place, "signature", 0), {"text": text(member(delta, "signature"))})
            case "text_annotation_delta" if self._keep:
                if step.contents:  # Their places are counted from where its text begins.
                    annotations = {"annotations": [*items(member(delta, "annotations"))]}
                    yield Block((place, "content", step.contents), annotations)
            case _ if self._keep and isinstance(delta, Mapping):
                step.told.update({name: value for name, value in delta.items() if name != "type"})
                yield Block((place, "step", 0), dict(step.told), begins=True)


def current(interaction: Any) -> Sequence[Any]:
    """The steps of a body that answer the request: those after the input that some answers repeat."""
    known = _steps_of(interaction)
    inputs = [place for place, step in enumerate(known) if member(step, "type") == "user_input"]
    return known[inputs[-1] + 1 :] if inputs else known


def _steps_of(interaction: Any) -> Sequence[Any]:
    """The steps of a body. Before revision 2026-05-20 they are `outputs`: the same, but content stands in no step."""
    steps = member(interaction, "steps")
    if steps is not None:
        return items(steps)
    found: list[Any] = []
    loose: list[Any] | None = None
    for output in items(member(interaction, "outputs")):
        if text(member(output, "type")) not in CONTENT:
            found.append(output)
            loose = None
        elif loose is None:
            loose = [output]
            found.append({"type": "model_output", "content": loose})
        else:
            loose.append(output)
    return found


def _output_of(blocks: Mapping[Hashable, Json]) -> Iterator[Json]:
    """The steps, in the order of their places, from what came of each: under its place, what it is, and a number."""
    held: dict[int, dict[str, list[Json]]] = {}
    for key, piece in blocks.items():
        match key:
            case (int(place), str(what), int()):
                held.setdefault(place, {}).setdefault(what, []).append(piece)
    for _, pieces in sorted(held.items()):
        [step] = pieces["step"]
        shown = _SHOWN.get(text(step.get("type")))
        if shown is not None and "content" in pieces:
            step = {**step, shown: pieces["content"]}
        if "signature" in pieces:
            step = {**step, "signature": text(step.get("signature")) + pieces["signature"][0]["text"]}
        raw = pieces["arguments"][0]["text"] if "arguments" in pieces else ""
        if raw:
            parsed = arguments(raw)
            # Kept as text where it is not whole: nothing that was completed for it can be taken for the model's.
            step = {**step, "arguments": raw if parsed is None else parsed}
        yield step


def _faulty(data: Any, whole: bool) -> str | None:
    """What is wrong with the shape of an event, or of a whole body."""
    if not isinstance(data, Mapping):
        if not whole and data == DONE:
            return None
        what = "an interaction" if whole else "an event of an interaction"
        return f"{what} is an object, not {shortened(repr(data), 80)}"
    if not whole:
        for kind, name in (("step.start", "step"), ("step.delta", "delta")):
            if data.get("event_type") == kind and not isinstance(data.get(name), Mapping):
                return f"a {name} is not an object"
        return None
    given = data.get("outputs") if data.get("steps") is None else data["steps"]
    if (
        not isinstance(given, list | None)
        or not all(isinstance(step, Mapping) for step in given or ())
        or data.get("event_type") is not None
        or (data.get("status") is None and given is None)
    ):
        return "an interaction has a `status` and a list of `steps`"
    return None


def _failed(data: Any) -> Any:
    """The error that stands where an answer should: the event or body itself."""
    is_answer = any(name in data for name in ("status", "steps", "outputs")) if isinstance(data, Mapping) else True
    return data if not is_answer and data.get("error") else None


REPLY: Final = Reply(
    name=NAME,
    reader=Reader,
    rows=_rows,
    faulty=_faulty,
    failed=_failed,
    blocks=lambda fold: _output_of(fold.blocks),
)
