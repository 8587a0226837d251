"""Formats that continue a text prompt.

OpenAI's legacy completions, and one dialect for each service with another shape.

A reply is an answer, or a list of answers: each with a text, and with a stop reason at its end. The
reply also has usage figures or an error. A stream's event is read like a body. `SHAPES` lists the
members of each service.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, Final

from endturn.formats.apis.completions_request import BEDROCK, encode, request_summary, resume
from endturn.formats.apis.completions_script import FULL_WINDOW, script, script_error
from endturn.formats.format import Format
from endturn.formats.framing import END_WORDS
from endturn.formats.parts import ErrorPart, Head, Part, Reason, Text, Tokens, Vocabulary
from endturn.formats.reading import as_text, count, id_text, items, member, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import TAIL, Context, ScriptedStyle
from endturn.vocabulary import Row, Usage, find_row, raw_text, rows_of, tables

NAME: Final = "completions"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The members, or paths of members, of one service's replies; "" for what they lack.

    Of several paths the first counts that holds a value.

    Attributes:
        markers: members of which a reply of this shape has at least one.
        answers: the member that lists the answers; "" where the reply is the answer.
        index: an answer's member with its index; "" if its position is the index.
        text, reason, stop_sequence: an answer's text, its stop reason, and the stop sequence that
            matched.
        usage: field of Usage → paths of its figure, first from the answer, then from the reply.
        id, model: the response's id and model.
    """

    markers: tuple[str, ...] = ()
    answers: str = ""
    index: str = ""
    text: str = ""
    reason: str = ""
    stop_sequence: str = ""
    id: str = "id"
    model: str = "model"
    usage: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def matches(self, reply: Any) -> bool:
        """Return whether a reply, or an event of a stream, has this shape."""
        return _has(reply, self.markers)

    def answers_in(self, reply: Any) -> Any:
        """Return the answers of a reply or an event: its entries, its listed answers, or itself."""
        answers = reply if isinstance(reply, list) else member(reply, self.answers)
        return (reply,) if answers is None else items(answers)


def _has(holder: Any, names: Iterable[str]) -> bool:
    # a generator costs twice as much, and this runs for every event
    for name in names:  # noqa: SIM110
        if member(holder, name) is not None:
            return True
    return False


SHAPES: Final[Mapping[str, Shape]] = {
    "": Shape(  # OpenAI, and servers with the same shape
        # The events of Writer's streams hold only a text, in `value`: see `_text`.
        markers=("choices", "value"),
        answers="choices",
        index="index",
        text="text",
        reason="finish_reason",
        # vLLM: the stop string, or a token's number, which is left out
        stop_sequence="stop_reason",
        usage={
            "input_tokens": ("usage.prompt_tokens",),
            "output_tokens": ("usage.completion_tokens",),
            "reasoning_tokens": ("usage.completion_tokens_details.reasoning_tokens",),
            "cache_read_tokens": ("usage.prompt_tokens_details.cached_tokens",),
        },
    ),
    "tgi": Shape(  # Hugging Face's text-generation-inference; its text: see `_tgi_text`
        markers=("generated_text", "token"),
        reason="details.finish_reason",
        usage={
            "input_tokens": ("details.input_length",),
            "output_tokens": ("details.generated_tokens",),
        },
    ),
    "llamacpp": Shape(
        markers=("content",),
        index="index",
        text="content",
        stop_sequence="stopping_word",
        usage={"input_tokens": ("tokens_evaluated",), "output_tokens": ("tokens_predicted",)},
    ),
    "sglang": Shape(
        markers=("meta_info",),
        index="index",
        text="text",
        reason="meta_info.finish_reason",
        id="meta_info.id",
        usage={
            "input_tokens": ("meta_info.prompt_tokens",),
            "output_tokens": ("meta_info.completion_tokens",),
            "cache_read_tokens": ("meta_info.cached_tokens",),
        },
    ),
    "titan": Shape(
        markers=("inputTextTokenCount", "outputText", "completionReason"),
        answers="results",
        text="outputText",
        reason="completionReason",
        usage={
            "input_tokens": ("inputTextTokenCount",),
            "output_tokens": ("tokenCount", "totalOutputTextTokenCount"),
        },
    ),
    "watsonx": Shape(
        markers=("results",),
        answers="results",
        text="generated_text",
        reason="stop_reason",
        model="model_id",
        usage={"input_tokens": ("input_token_count",), "output_tokens": ("generated_token_count",)},
    ),
    "llama": Shape(
        markers=("generation", "generation_token_count"),
        text="generation",
        reason="stop_reason",
        usage={
            "input_tokens": ("prompt_token_count",),
            "output_tokens": ("generation_token_count",),
        },
    ),
    "mistral": Shape(markers=("outputs",), answers="outputs", text="text", reason="stop_reason"),
    "command": Shape(
        markers=("generations", "is_finished"),
        answers="generations",
        index="index",
        text="text",
        reason="finish_reason",
        usage={  # Cohere's own API counts in `meta`; Bedrock leaves it to its headers
            "input_tokens": ("meta.tokens.input_tokens", "meta.billed_units.input_tokens"),
            "output_tokens": ("meta.tokens.output_tokens", "meta.billed_units.output_tokens"),
        },
    ),
    "claude_text": Shape(
        markers=("completion",), text="completion", reason="stop_reason", stop_sequence="stop"
    ),
    "alephalpha": Shape(
        markers=("model_version", "completion", "num_tokens_generated"),
        answers="completions",
        index="index",
        text="completion",
        reason="finish_reason",
        usage={
            "input_tokens": ("num_tokens_prompt_total",),
            "output_tokens": ("num_tokens_generated",),
        },
    ),
    "ai21": Shape(
        markers=("completions",), answers="completions", text="data.text", reason="finishReason"
    ),
}
"""dialect → its shape, in the order in which a reply of an unknown dialect is tried."""


@cache
def _path_reader(path: str) -> Callable[[Any], Any]:
    """Return a function that reads the value at the end of a path of members."""
    names = path.split(".")
    return (
        (lambda holder: reduce(member, names, holder))
        if len(names) > 1
        else lambda holder: member(holder, path)
    )


def _text(answer: Any) -> Any:
    """Return a choice's text, or the `value` of an event of Writer's."""
    value = member(answer, "text")
    return member(answer, "value") if value is None else value


def _tgi_text(answer: Any) -> Any:
    """Return a body's complete text, or an event's token.

    Special tokens, such as the end token, are not part of the text.
    """
    token = member(answer, "token")
    if token is None:
        return member(answer, "generated_text")
    return None if member(token, "special") is True else member(token, "text")


def _llamacpp_reason(answer: Any) -> str | None:
    """Return `stop_type`, or the three booleans of older servers, once `stop` is true.

    `truncated` reports a full context window, which takes precedence over the token limit (context
    shift is off by default).
    """
    if member(answer, "stop") is not True:
        return None
    older = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
    kinds = (kind for name, kind in older.items() if member(answer, name) is True)
    kind = text(member(answer, "stop_type")) or next(kinds, "none")
    return FULL_WINDOW if kind == "limit" and member(answer, "truncated") is True else kind


def _sglang_stop_sequence(answer: Any) -> Any:
    """Return the stop string that matched (a number is a token's), or an abort's message."""
    reason = member(member(answer, "meta_info"), "finish_reason")
    return text_or_none(member(reason, "matched")) or member(reason, "message")


_READERS: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("", "text"): _text,
    ("tgi", "text"): _tgi_text,
    ("llamacpp", "reason"): _llamacpp_reason,
    ("sglang", "stop_sequence"): _sglang_stop_sequence,
}
"""dialect and member of its shape → its reader, for values that are not at the end of a path."""


def shape_of(reply: Any, dialect: str) -> str | None:
    """Return the dialect whose shape a reply or an event has; None if no shape matches.

    The given dialect if its shape matches, else the first whose shape does.
    """
    first = next(iter(reply), None) if isinstance(reply, list) else reply
    if dialect in SHAPES and SHAPES[dialect].matches(first):
        return dialect
    return next((name for name, shape in SHAPES.items() if shape.matches(first)), None)


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
        self._usage_figures: dict[str, Any] = {}
        self._is_named = False
        self._started_answers: set[int] = set()
        # The end and the length of the text so far. Each event of SGLang repeats that text, unless
        # `--stream-output` is set: then it sends pieces in the same shape.
        self._tail, self._char_count, self._is_incremental = "", 0, False

    def _set_dialect(self, dialect: str) -> None:
        shape = SHAPES[dialect]
        self._dialect, self._shape, self._rows = (
            dialect,
            shape,
            _rows(dialect, self._ctx.dialect or dialect),
        )
        self._text = _READERS.get((dialect, "text")) or _path_reader(shape.text)
        self._reason = _READERS.get((dialect, "reason")) or _path_reader(shape.reason)
        self._figures = tuple(
            {path.partition(".")[0] for paths in shape.usage.values() for path in paths}
        )

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        head = next(iter(event), None) if isinstance(event, list) else event
        dialect = (
            self._dialect if _has(head, self._shape.markers) else shape_of(head, self._ctx.dialect)
        )
        if dialect is not None:
            if dialect != self._dialect:
                self._set_dialect(dialect)
                yield Vocabulary(self._rows)
            shape = self._shape
            answers = shape.answers_in(event)
            for position, answer in enumerate(answers):
                index = count(member(answer, shape.index)) if shape.index else None
                index = position if index is None else index
                if index == 0 and (answer_text := as_text(self._text(answer))):
                    yield Text(self._new_text(answer_text) if dialect == "sglang" else answer_text)
                reason = self._reason(answer)
                if reason is not None or index not in self._started_answers:
                    self._started_answers.add(index)
                    yield self._reason_part(raw_text(reason), index, answer)
            if _has(head, self._figures) or (answers and _has(answers[0], self._figures)):
                yield from self._usage(answers[0] if answers else None, head)
            if not self._is_named:
                identity = (
                    id_text(_path_reader(shape.id)(head)) or None,
                    text_or_none(_path_reader(shape.model)(head)),
                )
                self._is_named = None not in identity
                yield Head(*identity)
        if error := error_in(event):
            yield ErrorPart(error)

    def _reason_part(self, raw: str | None, index: int, answer: Any) -> Reason:
        row = None if raw is None else find_row(raw, self._rows)
        if row is not None and not row.terminal:
            return Reason(None, index)
        read_match = _READERS.get((self._dialect, "stop_sequence"))
        read_match = read_match or _path_reader(self._shape.stop_sequence)
        return Reason(raw, index, text_or_none(read_match(answer)))

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
        for name, paths in self._shape.usage.items():
            for path in paths:
                tokens = [count(_path_reader(path)(holder)) for holder in (answer, event)]
                figure = tokens[1] if tokens[0] is None else tokens[0]
                if figure is not None and figure >= self._usage_figures.get(name, 0):
                    self._usage_figures[name] = figure
        if self._usage_figures:
            yield Tokens(Usage(**self._usage_figures))


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

_PATHS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(BEDROCK),  # only `bedrock_invoke` uses them
    "": "/completions",
    "tgi": "/[generate|generate_stream]",
    "sglang": "/generate",
    "llamacpp": "/completion",
    "watsonx": "/text/[generation|generation_stream]?version=2023-05-02",
    "alephalpha": "/complete",
}
# Ollama has an /api/generate of its own. TGI and watsonx say in the path that an answer is
# streamed.
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?(?:/completions|/completion|/complete)"
    rf"|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/completions"
    rf"|(?:(?:{SEGMENTS}/v1)?(?:/deployments/[^/]+)?/text/generation(?P<whole>$)?"
    rf"|{SEGMENTS}(?<!/api)/generate)"
    r"(?P<stream>_stream)?"
)

FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=ScriptedStyle("cmpl-", "call_", "x-request-id"),
    paths=_PATHS,
    match_path=routed_by(_PATH),
    body=encode,
    resume=resume,
    own_summary=request_summary,
    reader=CompletionsReader,
    labels=("a completion", "an event of a completion"),
    required_paths=tuple(head for shape in SHAPES.values() for head in shape.markers),
    object_paths=tuple(f"{shape.answers}[]" for shape in SHAPES.values() if shape.answers),
    accepts_list=True,
    error_in=_error_body,
    end_words=END_WORDS,
    reply=script,
    reply_error=script_error,
)
