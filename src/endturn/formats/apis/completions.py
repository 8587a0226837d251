"""Formats that continue a text prompt.

OpenAI's legacy completions, and one dialect for each service with another shape.

A reply is an answer, or lists several: each with a text, and a reason once it stops. Beside them
are figures of usage, or an error. An event of a stream is read like a body. `completions_shapes`
has the members of each service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import zip_longest
from typing import Any, Final

from endturn.errors import UsageError
from endturn.formats.apis.completions_request import BEDROCK, encode, request_summary, resume
from endturn.formats.apis.completions_script import script, script_error
from endturn.formats.apis.completions_shapes import SHAPES, Counts, shape_of
from endturn.formats.format import Format, PathRequest
from endturn.formats.framing import END_MARKERS
from endturn.formats.parts import (
    ErrorPart,
    Head,
    Part,
    Reason,
    Text,
    Tokens,
    Vocabulary,
    usage_of_counts,
)
from endturn.formats.reading import (
    as_text,
    count,
    has_member,
    id_text,
    items,
    lists_objects,
    member,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import TAIL, Context, ScriptedStyle
from endturn.vocabulary import Json, Row, find_row, raw_text, rows_of, tables

NAME: Final = "completions"
_ANSWER_MEMBERS: Final = tuple(shape.answers for shape in SHAPES.values() if shape.answers)
"""The members that list answers."""


@cache
def _rows(shape: str, dialect: str) -> Mapping[str, Row]:
    """Return the stop reasons for a reply: each shape has its own, whichever service uses it."""
    own = tables(NAME)[shape]
    return {**own, **rows_of(NAME, dialect), **own}


class CompletionsReader:
    """Reads events or a body, each known by its members.

    Events without a known shape (pings) yield nothing.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx = ctx
        self._set_dialect(ctx.dialect if ctx.dialect in SHAPES else "")
        self._counts: Counts = (None,) * 4
        self._is_named = False
        self._started_answers: set[int] = set()
        # The end and the length of the text so far. Each event of SGLang repeats that text, unless
        # `--stream-output` is set: then it sends pieces in the same shape.
        self._tail, self._char_count, self._is_incremental = "", 0, False

    def _set_dialect(self, dialect: str) -> None:
        self._dialect, self._shape = dialect, SHAPES[dialect]
        self._rows = _rows(dialect, self._ctx.dialect or dialect)

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        head = next(iter(event), None) if isinstance(event, list) else event
        dialect = self._dialect if self._shape.matches(head) else shape_of(head, self._ctx.dialect)
        if dialect is not None:
            if dialect != self._dialect:
                self._set_dialect(dialect)
                yield Vocabulary(self._rows)
            shape = self._shape
            answers = shape.answers_in(event)
            for position, answer in enumerate(answers):
                index = count(member(answer, "index")) if shape.has_index else None
                index = position if index is None else index
                if index == 0 and (answer_text := as_text(shape.text(answer))):
                    yield Text(self._new_text(answer_text) if dialect == "sglang" else answer_text)
                reason = shape.reason(answer)
                if reason is not None or index not in self._started_answers:
                    self._started_answers.add(index)
                    yield self._reason_part(raw_text(reason), index, answer)
            names = shape.usage_members
            if has_member(head, names) or (answers and has_member(answers[0], names)):
                yield from self._usage(answers[0] if answers else None, head)
            if not self._is_named:
                identity = id_text(shape.id(head)) or None, text_or_none(shape.model(head))
                self._is_named = None not in identity
                yield Head(*identity)
        if error := error_in(event):
            yield ErrorPart(error)

    def _reason_part(self, raw: str | None, index: int, answer: Any) -> Reason:
        row = None if raw is None else find_row(raw, self._rows)
        if row is not None and not row.terminal:
            return Reason(None, index)
        return Reason(raw, index, text_or_none(self._shape.stop_sequence(answer)))

    def _new_text(self, answer_text: str) -> str:
        """Return the new part of a text, if events repeat the text from its beginning."""
        tail_start = self._char_count - len(self._tail)
        if not self._is_incremental and answer_text.startswith(self._tail, tail_start):
            addition = answer_text[self._char_count :]
        else:
            self._is_incremental, addition = True, answer_text
        self._tail = (self._tail + addition)[-TAIL:]
        self._char_count += len(addition)
        return addition

    def _usage(self, answer: Any, event: Any) -> Iterator[Part]:
        """Yield the largest figures so far.

        Those of a stream grow, and some services send 0, or none, with its later events.
        """
        if (read := self._shape.usage) is None:
            return
        counts = read(answer)
        if event is not answer:
            counts = [
                in_reply if in_answer is None else in_answer
                for in_answer, in_reply in zip(counts, read(event), strict=True)
            ]
        self._counts = tuple(
            earlier if new is None or (earlier is not None and new < earlier) else new
            for new, earlier in zip_longest(counts, self._counts)
        )
        if (usage := usage_of_counts(*self._counts)) is not None:
            yield Tokens(usage)


def error_in(reply: Any) -> Any:
    """Return the error that a reply or an event reports; None if it reports none.

    The error is an object, a text, or the first entry of a list (watsonx).
    """
    errors = member(reply, "errors")
    return member(reply, "error") or (errors and next(iter(items(errors)), None))


def _error_body(data: Any) -> Any:
    """Return the error in place of an answer; None if there is none."""
    first = next(iter(data), None) if isinstance(data, list) else data
    error = error_in(first)
    return (
        {**first, "error": error}
        if error and isinstance(first, Mapping) and shape_of(data, "") is None
        else None
    )


# --- Declaration ----------------------------------------------------------------------------------


def _path(request: PathRequest) -> str:
    """Return the path of a service. TGI and watsonx say in it whether the answer is streamed."""
    if request.dialect in BEDROCK:
        raise UsageError(
            f"the {NAME} dialect {request.dialect!r} has no path: use the format 'bedrock_invoke'"
        )
    suffix = "_stream" if request.stream else ""
    match request.dialect:
        case "tgi":
            return f"/generate{suffix}"
        case "sglang":
            return "/generate"
        case "llamacpp":
            return "/completion"
        case "watsonx":
            return f"/text/generation{suffix}?version=2023-05-02"
        case "alephalpha":
            return "/complete"
        case _:
            return "/completions"


# Ollama has an /api/generate of its own.
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?(?:/completions|/completion|/complete)"
    rf"|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/completions"
    rf"|(?:(?:{SEGMENTS}/v1)?(?:/deployments/[^/]+)?/text/generation(?P<whole>$)?"
    rf"|{SEGMENTS}(?<!/api)/generate)"
    r"(?P<stream>_stream)?"
)


def _misshapen_member(data: Json) -> str | None:
    """Return the list of answers that does not hold objects, as `choices[]`; None if each does."""
    for name in _ANSWER_MEMBERS:
        if not lists_objects(data.get(name)):
            return f"{name}[]"
    return None


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=ScriptedStyle("cmpl-", "call_", "x-request-id"),
    path=_path,
    match_path=routed_by(_PATH),
    is_request=lambda body, _: (
        "prompt" in body or "inputs" in body or ("input" in body and "model_id" in body)
    ),
    body=encode,
    resume=resume,
    own_summary=request_summary,
    reader=CompletionsReader,
    labels=("a completion", "an event of a completion"),
    required_members=tuple(name for shape in SHAPES.values() for name in shape.markers),
    misshapen_member=_misshapen_member,
    accepts_list=True,
    error_in=_error_body,
    end_markers=END_MARKERS,
    reply=script,
    reply_error=script_error,
)
