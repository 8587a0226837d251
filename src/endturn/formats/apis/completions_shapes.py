"""Shapes of the replies of services that continue a text prompt, whole or streamed.

A reply is an answer, or lists several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from endturn.formats.apis.completions_script import FULL_WINDOW
from endturn.formats.reading import count, has_member, items, member, text, text_or_none

MemberReader = Callable[[Any], Any]
"""Reads one value of an answer, or of a reply."""
Counts = Sequence[int | None]
"""Token counts in the order of the fields of `Usage`; those that follow are unknown."""


def _reader_of(name: str) -> MemberReader:
    """Return the reader of a member."""
    return lambda holder: member(holder, name)


def _read_nothing(_: Any) -> None:
    return None


_read_id: Final = _reader_of("id")
_read_model: Final = _reader_of("model")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The shape of one service's replies.

    Attributes:
        markers: members of which a reply of this shape has at least one.
        answers: the member that lists the answers; None where the reply is the answer.
        has_index: an answer has an index of its own; otherwise it is its position.
        text, reason, stop_sequence: read an answer's text, its stop reason, and the stop sequence
            that matched.
        id, model: read the response's id and model, from a reply.
        usage: reads the token counts of an answer, or of a reply.
        usage_members: the members that `usage` reads: without any of them there are no counts.
    """

    markers: tuple[str, ...]
    answers: str | None = None
    has_index: bool = False
    text: MemberReader
    reason: MemberReader
    stop_sequence: MemberReader = _read_nothing
    id: MemberReader = _read_id
    model: MemberReader = _read_model
    usage: Callable[[Any], Counts] | None = None
    usage_members: tuple[str, ...] = ()

    def matches(self, reply: Any) -> bool:
        """Return whether a reply, or an event of a stream, has this shape."""
        return has_member(reply, self.markers)

    def answers_in(self, reply: Any) -> Sequence[Any]:
        """Return the answers of a reply or an event: a list's, those that it lists, or itself."""
        if isinstance(reply, list):
            return reply
        answers = None if self.answers is None else member(reply, self.answers)
        return (reply,) if answers is None else items(answers)


def _larger(*values: Any) -> int | None:
    """Return the larger of two counts; the known one if the other is no count."""
    counts = [number for value in values if (number := count(value)) is not None]
    return max(counts, default=None)


# --- OpenAI, and who took it over -----------------------------------------------------------------


def _openai_text(answer: Any) -> Any:
    """Return a choice's text, or the `value` of an event of Writer's."""
    value = member(answer, "text")
    return member(answer, "value") if value is None else value


def _openai_usage(holder: Any) -> Counts:
    usage = member(holder, "usage")
    return (
        count(member(usage, "prompt_tokens")),
        count(member(usage, "completion_tokens")),
        count(member(member(usage, "completion_tokens_details"), "reasoning_tokens")),
        count(member(member(usage, "prompt_tokens_details"), "cached_tokens")),
    )


# --- Servers of open models -----------------------------------------------------------------------


def _tgi_text(answer: Any) -> Any:
    """Return a body's whole text, or an event's token.

    Special ones, such as the end's, are no part of the text.
    """
    token = member(answer, "token")
    if token is None:
        return member(answer, "generated_text")
    return None if member(token, "special") is True else member(token, "text")


def _tgi_reason(answer: Any) -> Any:
    return member(member(answer, "details"), "finish_reason")


def _tgi_usage(holder: Any) -> Counts:
    details = member(holder, "details")
    return count(member(details, "input_length")), count(member(details, "generated_tokens"))


def _llamacpp_reason(answer: Any) -> str | None:
    """`stop_type`, or the older servers' three booleans, once `stop` is true.

    `truncated` says that the window was full: of two limits, that one counts (context shift is off
    by default).
    """
    if member(answer, "stop") is not True:
        return None
    older = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
    kinds = (kind for name, kind in older.items() if member(answer, name) is True)
    kind = text(member(answer, "stop_type")) or next(kinds, "none")
    return FULL_WINDOW if kind == "limit" and member(answer, "truncated") is True else kind


def _llamacpp_usage(holder: Any) -> Counts:
    return count(member(holder, "tokens_evaluated")), count(member(holder, "tokens_predicted"))


def _sglang_reason(answer: Any) -> Any:
    return member(member(answer, "meta_info"), "finish_reason")


def _sglang_stop_sequence(answer: Any) -> Any:
    """Return the stop string that matched (a number is a token's), or an abort's message."""
    reason = _sglang_reason(answer)
    return text_or_none(member(reason, "matched")) or member(reason, "message")


def _sglang_id(reply: Any) -> Any:
    return member(member(reply, "meta_info"), "id")


def _sglang_usage(holder: Any) -> Counts:
    meta = member(holder, "meta_info")
    return (
        count(member(meta, "prompt_tokens")),
        count(member(meta, "completion_tokens")),
        None,
        count(member(meta, "cached_tokens")),
    )


# --- Other services -------------------------------------------------------------------------------


def _watsonx_usage(holder: Any) -> Counts:
    return count(member(holder, "input_token_count")), count(
        member(holder, "generated_token_count")
    )


def _alephalpha_usage(holder: Any) -> Counts:
    return (
        count(member(holder, "num_tokens_prompt_total")),
        count(member(holder, "num_tokens_generated")),
    )


# --- Families of Bedrock's models -----------------------------------------------------------------


def _titan_usage(holder: Any) -> Counts:
    """Return the counts: a body has `tokenCount`, an event the total."""
    output_tokens = _larger(
        member(holder, "tokenCount"), member(holder, "totalOutputTextTokenCount")
    )
    return count(member(holder, "inputTextTokenCount")), output_tokens


def _llama_usage(holder: Any) -> Counts:
    return (
        count(member(holder, "prompt_token_count")),
        count(member(holder, "generation_token_count")),
    )


def _command_usage(holder: Any) -> Counts:
    """Return the counts of Cohere's own API, in `meta`; Bedrock leaves them to its headers.

    `tokens` are those that the model read and wrote, `billed_units` those that are paid for.
    """
    meta = member(holder, "meta")
    tokens, billed = member(meta, "tokens"), member(meta, "billed_units")
    return (
        _larger(member(tokens, "input_tokens"), member(billed, "input_tokens")),
        _larger(member(tokens, "output_tokens"), member(billed, "output_tokens")),
    )


def _ai21_text(answer: Any) -> Any:
    return member(member(answer, "data"), "text")


# --- Who replies how ------------------------------------------------------------------------------

SHAPES: Final[Mapping[str, Shape]] = {
    "": Shape(
        markers=("choices", "value"),  # Writer's streams hold nothing but a text
        answers="choices",
        has_index=True,
        text=_openai_text,
        reason=_reader_of("finish_reason"),
        # vLLM: the stop string, or a token's number, which is left out
        stop_sequence=_reader_of("stop_reason"),
        usage=_openai_usage,
        usage_members=("usage",),
    ),
    "tgi": Shape(  # Hugging Face's text-generation-inference
        markers=("generated_text", "token"),
        text=_tgi_text,
        reason=_tgi_reason,
        usage=_tgi_usage,
        usage_members=("details",),
    ),
    "llamacpp": Shape(
        markers=("content",),
        has_index=True,
        text=_reader_of("content"),
        reason=_llamacpp_reason,
        stop_sequence=_reader_of("stopping_word"),
        usage=_llamacpp_usage,
        usage_members=("tokens_evaluated", "tokens_predicted"),
    ),
    "sglang": Shape(
        markers=("meta_info",),
        has_index=True,
        text=_reader_of("text"),
        reason=_sglang_reason,
        stop_sequence=_sglang_stop_sequence,
        id=_sglang_id,
        usage=_sglang_usage,
        usage_members=("meta_info",),
    ),
    "titan": Shape(
        markers=("inputTextTokenCount", "outputText", "completionReason"),
        answers="results",
        text=_reader_of("outputText"),
        reason=_reader_of("completionReason"),
        usage=_titan_usage,
        usage_members=("inputTextTokenCount", "tokenCount", "totalOutputTextTokenCount"),
    ),
    "watsonx": Shape(
        markers=("results",),
        answers="results",
        text=_reader_of("generated_text"),
        reason=_reader_of("stop_reason"),
        model=_reader_of("model_id"),
        usage=_watsonx_usage,
        usage_members=("input_token_count", "generated_token_count"),
    ),
    "llama": Shape(
        markers=("generation", "generation_token_count"),
        text=_reader_of("generation"),
        reason=_reader_of("stop_reason"),
        usage=_llama_usage,
        usage_members=("prompt_token_count", "generation_token_count"),
    ),
    "mistral": Shape(
        markers=("outputs",),
        answers="outputs",
        text=_reader_of("text"),
        reason=_reader_of("stop_reason"),
    ),
    "command": Shape(
        markers=("generations", "is_finished"),
        answers="generations",
        has_index=True,
        text=_reader_of("text"),
        reason=_reader_of("finish_reason"),
        usage=_command_usage,
        usage_members=("meta",),
    ),
    "claude_text": Shape(
        markers=("completion",),
        text=_reader_of("completion"),
        reason=_reader_of("stop_reason"),
        stop_sequence=_reader_of("stop"),
    ),
    "alephalpha": Shape(
        markers=("model_version", "completion", "num_tokens_generated"),
        answers="completions",
        has_index=True,
        text=_reader_of("completion"),
        reason=_reader_of("finish_reason"),
        usage=_alephalpha_usage,
        usage_members=("num_tokens_prompt_total", "num_tokens_generated"),
    ),
    "ai21": Shape(
        markers=("completions",),
        answers="completions",
        text=_ai21_text,
        reason=_reader_of("finishReason"),
    ),
}
"""dialect → its shape, in the order in which a reply of an unknown dialect is tried."""


def shape_of(reply: Any, dialect: str) -> str | None:
    """Return the dialect whose shape a reply or an event has; None if no shape matches.

    The given dialect if its shape matches, else the first whose shape does.
    """
    first = next(iter(reply), None) if isinstance(reply, list) else reply
    if dialect in SHAPES and SHAPES[dialect].matches(first):
        return dialect
    return next((name for name, shape in SHAPES.items() if shape.matches(first)), None)
