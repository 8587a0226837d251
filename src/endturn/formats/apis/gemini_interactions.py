"""The Interactions API of Google.

For models and agents. An answer is a list of steps, and the server may store it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

from endturn.formats import parts
from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.apis.gemini_interactions_request import encode, output_step
from endturn.formats.apis.gemini_interactions_script import script, script_error
from endturn.formats.call_arguments import finished_calls, object_or_text
from endturn.formats.errors import says_of_stop
from endturn.formats.format import Format, constant_path, error_without
from endturn.formats.framing import END_MARKERS
from endturn.formats.next_request import block_resumer
from endturn.formats.partial import merge_pieces
from endturn.formats.parts import Block, Part, ToolCallPart
from endturn.formats.reading import (
    as_arguments,
    as_text,
    count,
    id_text,
    items,
    lists_objects,
    member,
    member_getter,
    mint_id,
    only_text,
    runs,
    text,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, ScriptedStyle
from endturn.vocabulary import (
    Json,
    Resume,
    Row,
    StopReason,
    Usage,
    find_row,
    raw_text,
    rows_of,
)

NAME: Final = "gemini_interactions"
# --- Replies: an answer is a list of steps with one status ----------------------------------------

# A background job continues without a client; any other stream that ends with such a status was
# truncated.
_ROWS: Final = rows_of(NAME, "")
_FOREGROUND: Final = {
    raw: replace(row, terminal=False) if row.resume is Resume.RETRIEVE_SAME_ID else row
    for raw, row in _ROWS.items()
}
_CLIENT_CALL: Final = "function_call"
"""Steps of other types that end in `_call` are calls of tools that the server runs."""
_CONTENT_TYPES: Final = frozenset({"text", "image", "audio", "video", "document"})
"""Types of content in a step of output, or of the user's input."""
_RESUMABLE: Final = (Resume.RETRIEVE_SAME_ID, Resume.NATIVE_TOKEN)
"""Ways of resuming that the server offers: a status with one of them is no end."""
_CONTENT_MEMBERS: Final = {"model_output": "content", "thought": "summary"}
"""Types of steps that hold content, and where."""
_PIECES: Final = "pieces"
"""Our member of a step for what a stream adds to its content or its arguments' text."""


def _rows(ctx: Context) -> Mapping[str, Row]:
    """Return the rows of a status before the end."""
    return _ROWS if ctx.request.background else _FOREGROUND


class InteractionsReader:
    """Reads events, or one whole interaction, of any revision.

    The SDK follows continuation tokens by itself, and joins the streams of all requests into one:
    an interaction that is created after steps continues them.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._rows = _rows(ctx)
        self._id: str | None = None
        # of the steps, by position among the steps of all requests
        self._kinds: dict[int, str] = {}
        self._next_place = 0  # the position after the last step
        self._base = 0  # the first index of this request's steps
        # of this request, and of those before it
        self._usage, self._earlier_usage = Usage(), Usage()
        # the status that reported a truncated answer, if no output followed
        self._truncated_status: str | None = None
        # a status arrived, which is the end if no output follows; the end has arrived
        self._has_status = self._is_over = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        kind, place = member(event, "event_type"), self._base + (count(member(event, "index")) or 0)
        if kind == "error":
            if not self._is_over:
                yield parts.Reopened()
            yield parts.ErrorPart(member(event, "error") or "error")
        if self._is_over:
            return  # The first terminal wins.
        match kind:
            case "step.delta":
                if self._has_status:
                    yield from self._reopen()
                yield from self._delta(place, member(event, "delta"))
                if (metadata := member(event, "metadata")) is not None:
                    yield from self._tokens(member(metadata, "total_usage"))
            case "step.start":
                yield from self._reopen()
                yield from self._start(place, member(event, "step"))
            case "step.stop":
                if self._kinds.get(place) == _CLIENT_CALL:
                    yield ToolCallPart(place, closed=True)
                # The usage of the whole interaction so far; `step_usage` is that of one step.
                yield from self._tokens(member(event, "usage"))
            case "interaction.created":
                interaction = member(event, "interaction")
                self._truncated_status = None
                if self._kinds:
                    self._base = self._next_place
                    self._earlier_usage += self._usage
                    self._usage = Usage()
                    yield parts.Running(None)
                    yield parts.Vocabulary(self._rows)
                yield from self._head(interaction)
                yield from self._status(interaction)
            case "interaction.status_update":
                self._id = text_or_none(member(event, "interaction_id")) or self._id
                yield parts.Head(self._id, replaces=True)
                yield from self._status(event)
                if (token := text_or_none(member(event, "continuation_token"))) is not None:
                    yield parts.Token(token, checkpoint=True)
                yield from self._tokens(member(event, "usage"))
            case "interaction.completed":
                yield from self._end(member(event, "interaction"), is_body=False)
            case None if any(
                member(event, name) is not None for name in ("status", "steps", "outputs")
            ):
                yield from self._end(event, is_body=True)

    def _head(self, interaction: Any) -> Iterator[Part]:
        self._id = text_or_none(member(interaction, "id")) or self._id
        model = text_or_none(member(interaction, "model")) or text_or_none(
            member(interaction, "agent")
        )
        yield parts.Head(self._id, model, replaces=True)
        yield from self._tokens(member(interaction, "usage"))

    def _status(self, holder: Any) -> Iterator[Part]:
        """Yield the parts of a status that may be the last."""
        self._has_status = True
        if raw := raw_text(member(holder, "status")):
            yield parts.Reopened()
            yield from self._reasons(raw)

    def _reopen(self) -> Iterator[Part]:
        """Reopen the response when output follows a status.

        The status was no end, and resuming from a checkpoint before the output would repeat it.
        """
        if self._has_status:
            self._has_status, self._truncated_status = False, None
            yield parts.Reopened()

    def _reasons(self, raw: str) -> Iterator[Part]:
        """Yield the reason of a status, after that of an earlier truncating status.

        A "completed" after a truncating status does not count.
        """
        row = find_row(raw, _ROWS)
        if row is not None and row.incomplete and row.resume not in _RESUMABLE:
            self._truncated_status = raw
        elif self._truncated_status is not None:
            yield _reason(self._truncated_status)
        yield _reason(raw)

    def _end(self, interaction: Any, *, is_body: bool) -> Iterator[Part]:
        """Yield the parts of the interaction that ends a stream, or of a body."""
        yield from self._head(interaction)
        if not self._kinds:  # A body, or a stream that has the steps only in its last event.
            place = 0
            for kind, run in runs(_answer(interaction), lambda step: member(step, "type")):
                plain_calls = (
                    []
                    if self._keep or kind != _CLIENT_CALL
                    else finished_calls(map(_plain_call, run[:-1]))
                )
                if plain_calls:
                    yield parts.FinishedCalls(plain_calls)
                for number, step in enumerate(run[len(plain_calls) :], place + len(plain_calls)):
                    yield from self._start(number, step, is_body=True)
                place += len(run)
        status, errors = (
            raw_text(member(interaction, "status")),
            items(member(interaction, "errors")),
        )
        row = find_row(status, _ROWS) if status else None
        if status or is_body:
            # The error explains why an interaction failed.
            is_failed = row is not None and row.reason is StopReason.ERROR
            stop = says_of_stop(errors[0], 0) if is_failed and errors else None
            # The end event decides: without a token in it there is nothing to continue from.
            yield parts.Reopened()
            yield parts.Vocabulary(
                {str(status): Row(stop.reason, True, stop.resume)} if stop else _ROWS
            )
            if (token := text_or_none(member(interaction, "continuation_token"))) is not None:
                yield parts.Token(token)
            if status:
                yield from self._reasons(status)
            self._is_over = row is None or row.resume is not Resume.NATIVE_TOKEN
            self._has_status = False
            yield parts.End(is_body)
        if errors:
            yield parts.ErrorPart(errors[0])

    def _tokens(self, usage: Any) -> Iterator[Part]:
        """Yield the usage. The figures are totals of the interaction: they replace earlier ones."""
        if (totals := usage_of(usage)) is not None:
            self._usage = totals
            yield parts.Tokens(self._earlier_usage + totals)

    def _start(self, place: int, step: Any, *, is_body: bool = False) -> Iterator[Part]:
        members: Json = dict(step) if isinstance(step, dict) else {}
        kind = self._kinds[place] = text(members.get("type"))
        self._next_place = max(self._next_place, place + 1)
        if kind == _CLIENT_CALL:
            # The result of a call must have the same id.
            members["id"] = id_text(members.get("id")) or mint_id(self._id, place)
            arguments = as_arguments(members.get("arguments"))
            yield ToolCallPart(
                place, members["id"], text(members.get("name")), arguments, closed=is_body
            )
        if self._keep:
            yield Block(place, members)
        content = items(members.get(_CONTENT_MEMBERS.get(kind, "")))
        plain_text = only_text(content, "text") if kind == "model_output" else None
        if plain_text:
            yield parts.Text(plain_text)
            return
        for part in content:
            yield from _content_text(kind, part)

    def _delta(self, place: int, delta: Any) -> Iterator[Part]:
        delta_type = text(member(delta, "type"))
        if place not in self._kinds:
            if delta_type != "text":
                return
            # Text counts even if its step has no start event.
            yield from self._start(place, {"type": "model_output"})
        kind = self._kinds[place]
        if delta_type in _CONTENT_TYPES or delta_type == "thought_summary":
            content = member(delta, "content") if delta_type == "thought_summary" else delta
            yield from _content_text(kind, content)
            piece: Json = {_PIECES: [content]}
        elif delta_type == "arguments_delta":
            arguments = as_arguments(member(delta, "arguments"))
            raw = json.dumps(arguments) if isinstance(arguments, dict) else arguments or ""
            if kind == _CLIENT_CALL:
                yield ToolCallPart(place, arguments=raw)
            piece = {_PIECES: [{"text": raw}]}
        # The positions are relative to the start of the step's text.
        elif delta_type == "text_annotation_delta":
            piece = {_PIECES: [{"annotations": items(member(delta, "annotations"))}]}
        else:  # `thought_signature`, or the result of a server's tool
            piece = (
                {name: delta[name] for name in delta if name != "type"}
                if isinstance(delta, dict)
                else {}
            )
        if self._keep:
            yield Block(place, piece)


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Google counts it.

    Neither what tools put into the prompt nor the thinking is part of the figure beside it:
    `total_tokens` is their sum.
    """
    if not figures:
        return None
    get = member_getter(figures)
    input_tokens = count(get("total_input_tokens"))
    tool_tokens = count(get("total_tool_use_tokens"))
    if tool_tokens is not None:
        input_tokens = (input_tokens or 0) + tool_tokens
    output_tokens = count(get("total_output_tokens"))
    thought_tokens = count(get("total_thought_tokens"))
    if thought_tokens is not None:
        output_tokens = (output_tokens or 0) + thought_tokens
    return parts.usage_of_counts(
        input_tokens, output_tokens, thought_tokens, count(get("total_cached_tokens"))
    )


def _plain_call(step: Json) -> tuple[Any, Any, Any]:
    """Return a call's id, name and arguments."""
    return step["id"], step["name"], step["arguments"]


def _reason(raw: str) -> Part:
    row = find_row(raw, _ROWS)
    is_running = row is not None and row.resume is Resume.RETRIEVE_SAME_ID
    return parts.Running(raw) if is_running else parts.Reason(raw)


def _content_text(kind: str, part: Any) -> Iterator[Part]:
    """Yield the text of a step's content."""
    if (
        kind in _CONTENT_MEMBERS
        and member(part, "type") == "text"
        and (visible := as_text(member(part, "text")))
    ):
        yield parts.Text(visible) if kind == "model_output" else parts.Reasoning(visible)


def _answer(interaction: Any) -> Sequence[Any]:
    """Return the steps of a body that answer the request.

    Some bodies repeat the input before them.
    """
    steps = items(member(interaction, "steps"))
    if member(interaction, "steps") is None:
        # Before revision 2026-05-20 they are `outputs`: the same, but content is not inside steps.
        steps = []
        outputs = items(member(interaction, "outputs"))
        for is_content, group in groupby(
            outputs, key=lambda output: text(member(output, "type")) in _CONTENT_TYPES
        ):
            entries = [*group]
            steps += [{"type": "model_output", "content": entries}] if is_content else entries
    inputs = [index for index, step in enumerate(steps) if member(step, "type") == "user_input"]
    return steps[inputs[-1] + 1 :] if inputs else steps


def _blocks(accumulator: ResponseAccumulator) -> Iterator[Json]:
    """Yield the steps, each with the additions of a stream."""
    for step in accumulator.blocks.values():
        pieces = [piece for piece in items(step.pop(_PIECES, None)) if isinstance(piece, dict)]
        content_member = _CONTENT_MEMBERS.get(text(step.get("type")))
        if pieces and content_member is not None:
            step[content_member] = _contents([*items(step.get(content_member))], pieces)
        elif raw := "".join(text(piece.get("text")) for piece in pieces):
            step["arguments"] = object_or_text(raw)
        yield step


def _contents(content: list[Any], pieces: list[Json]) -> list[Any]:
    """Return a step's content with the additions of a stream: a text continues the last text."""
    for is_text, group in groupby(pieces, key=lambda piece: piece.get("type", "text") == "text"):
        last = (
            [content.pop()] if is_text and content and member(content[-1], "type") == "text" else []
        )
        entries = [*last, *group]
        content += [merge_pieces(entries)] if is_text else entries
    return content


def _misshapen_member(data: Json) -> str | None:
    """Return the list that does not hold objects, `steps[]` or `outputs[]`; None if both do."""
    if not lists_objects(data.get("steps")):
        return "steps[]"
    return None if lists_objects(data.get("outputs")) else "outputs[]"


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    # One word for a truncated answer, whatever the cause.
    voice=ScriptedStyle("v1_", "call_", "x-request-id"),
    path=constant_path("/interactions"),
    match_path=routed_by(
        rf"(?:{SEGMENTS}/v1(?:(?:alpha"
        rf"|beta)\d*)?{SEGMENTS})?/interactions(?:/(?P<id>[^/:]+))?"
    ),
    is_request=lambda body, _: (
        "previous_interaction_id" in body
        or ("input" in body and ("model" in body or "agent" in body))
    ),
    body=encode,
    resume=block_resumer(
        NAME, output_step, forced_tool_path="generation_config.tool_choice", by_id=True
    ),
    text_block=output_step,
    can_fetch=True,
    reader=InteractionsReader,
    own_rows=_rows,
    labels=("an interaction", "an event of an interaction"),
    required_members=("status", "steps", "outputs"),
    event_types=r"error|(?:interaction|step)\..+",
    misshapen_member=_misshapen_member,
    error_in=error_without("status", "steps", "outputs"),
    blocks=_blocks,
    end_markers=(*END_MARKERS, b"interaction.completed"),
    reply=script,
    reply_error=script_error,
)
