"""The Interactions API of Google: models and agents, whose answers are steps, and which the server may keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from endturn.chat import Json, Request, Usage
from endturn.formats import parts
from endturn.formats.encoding import encoded
from endturn.formats.errors import says_of_stop
from endturn.formats.fold import Fold, joined
from endturn.formats.format import Format, error_beside
from endturn.formats.next_request import resumes
from endturn.formats.parts import Block, Call, Part
from endturn.formats.reading import count, items, member, minted, object_or_text, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Voice
from endturn.stop import Resume, Row, StopReason, find_row, raw_text
from endturn.stop_reasons import tables

NAME: Final = "gemini_interactions"
REASONS: Final = tables(NAME)

# --- Replies: an answer is a list of steps, and one status says what became of it -------------------------------------

# A job of the server's goes on when nobody listens; anything else that ends in such a status was cut.
_FOREGROUND: Final = {
    raw: replace(row, terminal=False) if row.resume is Resume.RETRIEVE_SAME_ID else row
    for raw, row in REASONS[""].items()
}
_CLIENT_CALL: Final = "function_call"
"""Steps of other types that end in `_call` are calls of tools that the server runs."""
_CONTENT: Final = frozenset({"text", "image", "audio", "video", "document"})
"""Types of content: what stands in a step of output, or of the user's input."""
_SHOWN: Final = {"model_output": "content", "thought": "summary"}
"""Types of steps that hold content, and where."""
_PIECES: Final = "pieces"
"""What a stream adds to a step: to its content, or to the text of its arguments. In no reply."""


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
        self._usage, self._earlier = Usage(), Usage()  # of this hop, and of those before it
        self._may_end = self._over = False  # what was said would be an end, if no output followed; it is the end

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event or a body."""
        kind, place = member(event, "event_type"), self._base + (count(member(event, "index")) or 0)
        if kind == "error":
            if not self._over:
                yield parts.Reopened()
            yield parts.Fault(member(event, "error") or "error")
        if self._over:
            return  # The first terminal wins.
        match kind:
            case "step.delta":
                if self._may_end:
                    yield from self._goes_on()
                yield from self._delta(place, member(event, "delta"))
                if (metadata := member(event, "metadata")) is not None:
                    yield from self._tokens(member(metadata, "total_usage"))
            case "step.start":
                yield from self._goes_on()
                yield from self._start(place, member(event, "step"))
            case "step.stop":
                if self._kinds.get(place) == _CLIENT_CALL:
                    yield Call(place, closed=True)
                yield from self._tokens(member(event, "usage"))  # Of all of it so far; `step_usage` is the step's own.
            case "interaction.created":
                interaction = member(event, "interaction")
                if self._kinds:
                    self._base, self._earlier, self._usage = max(self._kinds) + 1, self._earlier + self._usage, Usage()
                    yield parts.Running(None)
                    yield parts.Vocabulary(self._rows)
                yield from self._about(interaction)
                yield from self._status(interaction)
            case "interaction.status_update":
                self._id = text_or_none(member(event, "interaction_id")) or self._id
                yield parts.Head(self._id, replaces=True)
                yield from self._status(event)
                if (token := text_or_none(member(event, "continuation_token"))) is not None:
                    yield parts.Token(token, checkpoint=True)
                yield from self._tokens(member(event, "usage"))
            case "interaction.completed":
                yield from self._end(member(event, "interaction"), whole=False)
            case None if any(member(event, name) is not None for name in ("status", "steps", "outputs")):
                yield from self._end(event, whole=True)

    def _about(self, interaction: Any) -> Iterator[Part]:
        self._id = text_or_none(member(interaction, "id")) or self._id
        named = text_or_none(member(interaction, "model")) or text_or_none(member(interaction, "agent"))
        yield parts.Head(self._id, named, replaces=True)
        yield from self._tokens(member(interaction, "usage"))

    def _status(self, holder: Any) -> Iterator[Part]:
        """A status that may be the last."""
        self._may_end = True
        if raw := raw_text(member(holder, "status")):
            yield parts.Reopened()
            yield _reason(raw)

    def _goes_on(self) -> Iterator[Part]:
        """Output comes: a status before it was no end, and what starts from a checkpoint before it would repeat it."""
        if self._may_end:
            self._may_end = False
            yield parts.Reopened()

    def _end(self, interaction: Any, *, whole: bool) -> Iterator[Part]:
        """The interaction that ends a stream, or that a body is."""
        yield from self._about(interaction)
        if not self._kinds:  # A body; or a stream whose end alone tells what was said.
            for place, step in enumerate(_answer(interaction)):
                yield from self._start(place, step, whole=True)
        status, errors = raw_text(member(interaction, "status")), items(member(interaction, "errors"))
        row = find_row(status, REASONS[""]) if status else None
        if status or whole:
            # That an interaction failed, its error explains.
            failed = row is not None and row.reason is StopReason.ERROR
            said = says_of_stop(errors[0], 0) if failed and errors else None
            # The end is the authority: without a token in it there is nothing to continue from.
            yield parts.Reopened()
            yield parts.Vocabulary({str(status): Row(said.reason, True, said.resume)} if said else REASONS[""])
            if (token := text_or_none(member(interaction, "continuation_token"))) is not None:
                yield parts.Token(token)
            if status:
                yield _reason(status)
            self._over, self._may_end = row is None or row.resume is not Resume.NATIVE_TOKEN, False
            yield parts.End(whole)
        if errors:
            yield parts.Fault(errors[0])

    def _tokens(self, usage: Any) -> Iterator[Part]:
        """The figures are totals of the interaction so far: they replace what was said before."""
        if (found := parts.usage_in(NAME, usage)) is not None:
            self._usage = found
            yield parts.Tokens(self._earlier + found)

    def _start(self, place: int, step: Any, *, whole: bool = False) -> Iterator[Part]:
        told: Json = dict(step) if isinstance(step, dict) else {}
        kind = self._kinds[place] = text(told.get("type"))
        if kind == _CLIENT_CALL:
            # The result that answers a call must name the same id.
            told["id"] = text(told.get("id")) or minted(self._id, place)
            given = told.get("arguments")
            known = given if isinstance(given, str | dict) else None
            yield Call(place, told["id"], text(told.get("name")), known, closed=whole)
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
            yield from self._start(place, {"type": "model_output"})
        kind = self._kinds[place]
        if says in _CONTENT or says == "thought_summary":
            content = member(delta, "content") if says == "thought_summary" else delta
            yield from _shown(kind, content)
            piece: Json = {_PIECES: [content]}
        elif says == "arguments_delta":
            raw = text(member(delta, "arguments"))
            if kind == _CLIENT_CALL:
                yield Call(place, arguments=raw)
            piece = {_PIECES: [{"text": raw}]}
        elif says == "text_annotation_delta":  # Their places are counted from where its text begins.
            piece = {_PIECES: [{"annotations": items(member(delta, "annotations"))}]}
        else:  # `thought_signature`, or what a server's tool gave
            piece = {name: delta[name] for name in delta if name != "type"} if isinstance(delta, dict) else {}
        if self._keep:
            yield Block(place, piece)


def _reason(raw: str) -> Part:
    row = find_row(raw, REASONS[""])
    goes_on = row is not None and row.resume is Resume.RETRIEVE_SAME_ID
    return parts.Running(raw) if goes_on else parts.Reason(raw)


def _shown(kind: str, part: Any) -> Iterator[Part]:
    """The text of a step's content."""
    if kind in _SHOWN and member(part, "type") == "text" and (said := text(member(part, "text"))):
        yield parts.Text(said) if kind == "model_output" else parts.Reasoning(said)


def _answer(interaction: Any) -> Sequence[Any]:
    """The steps of a body that answer the request: those after the input that some answers repeat."""
    steps = items(member(interaction, "steps"))
    if member(interaction, "steps") is None:
        # Before revision 2026-05-20 they are `outputs`: the same, but content stands in no step.
        steps = []
        outputs = items(member(interaction, "outputs"))
        for is_content, group in groupby(outputs, key=lambda output: text(member(output, "type")) in _CONTENT):
            some = [*group]
            steps += [{"type": "model_output", "content": some}] if is_content else some
    inputs = [place for place, step in enumerate(steps) if member(step, "type") == "user_input"]
    return steps[inputs[-1] + 1 :] if inputs else steps


def _blocks(fold: Fold) -> Iterator[Json]:
    """The steps, with what a stream added to each."""
    for step in fold.blocks.values():
        pieces = [piece for piece in items(step.pop(_PIECES, None)) if isinstance(piece, dict)]
        where = _SHOWN.get(text(step.get("type")))
        if pieces and where is not None:
            step[where] = _contents([*items(step.get(where))], pieces)
        elif raw := "".join(text(piece.get("text")) for piece in pieces):
            step["arguments"] = object_or_text(raw)
        yield step


def _contents(found: list[Any], pieces: list[Json]) -> list[Any]:
    """A step's content with what a stream added: text goes on where text stood last."""
    for is_text, group in groupby(pieces, key=lambda piece: piece.get("type", "text") == "text"):
        last = [found.pop()] if is_text and found and member(found[-1], "type") == "text" else []
        some = [*last, *group]
        found += [joined(some)] if is_text else some
    return found


# --- Requests ---------------------------------------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /interactions.

    A request with a continuation token and the id of the interaction that it came from has no input: the server kept
    it. Where it keeps nothing (`store` is false) the same input goes along again.
    """
    is_kept = request.token is not None and request.previous_id is not None and request.extra.get("store") is not False
    body = encoded(NAME, request, stream=stream)
    return {name: body[name] for name in body if not is_kept or name != "input" or name in request.extra}


def _output(said: str) -> Json:
    return {"type": "model_output", "content": [{"type": "text", "text": said}]}


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    voice=Voice("v1_", "call_", "x-request-id"),  # One word for an answer that is cut, whatever cut it.
    paths={"": "/interactions"},
    routed=routed_by(rf"(?:{SEGMENTS}/v1(?:(?:alpha|beta)\d*)?{SEGMENTS})?/interactions(?:/(?P<id>[^/:]+))?"),
    body=encode,
    resume=resumes(NAME, _output, forced="generation_config.tool_choice", by_id=True),
    fetches=True,
    reader=Reader,
    own_rows=_rows,
    called=("an interaction", "an event of an interaction"),
    needs=("status", "steps", "outputs"),
    objects=("steps[]", "outputs[]"),
    failed=error_beside("status", "steps", "outputs"),
    blocks=_blocks,
    says=lambda response, stop, dialect: {"token": f"after_{response.id}" if stop == "requires_continuation" else None},
)
