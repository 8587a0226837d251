"""Where each framework's answers say what the readers ask: a table each. What is no such answer is refused by it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from endturn.errors import UsageError
from endturn.formats.reading import PLAIN, items, member


class Paths(NamedTuple):
    """Where an answer says something: members of members, `/` between them, `0` for the first of a list.

    Of several paths the first that says something counts.

    Attributes:
        reads: what the reader takes, for the error.
        marks: paths of which an answer has one at least, whatever stands there.
        answer: the one answer of several. message: what holds its content. metadata: what the provider said beside it.
        raw: the provider's value. word: the framework's own. detail: beside it.
        calls: the client's tool calls. declined: the model's words of refusal.
        output, prompt: tokens.
    """

    reads: str
    marks: tuple[str, ...] = ()
    answer: tuple[str, ...] = ()
    message: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    raw: tuple[str, ...] = ()
    word: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    declined: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()


PATHS: Final[Mapping[str, Paths]] = {
    "langchain": Paths(
        reads="an AIMessage, a generation, an LLMResult, their metadata, or a graph's state",
        marks=(
            *("response_metadata", "generation_info", "generations"),
            *("message/response_metadata", "message/generation_info", "message/generations"),
        ),
        answer=("generations/0/0", "generations/0"),
        message=("message",),
        metadata=("message/response_metadata", "response_metadata", "generation_info"),
        word=("normalized_finish_reason",),  # set by its JavaScript
        detail=("stop_sequence",),
        calls=("tool_calls",),
        declined=("additional_kwargs/refusal",),
        output=("usage_metadata/output_tokens",),
        prompt=("usage_metadata/input_tokens",),
    ),
    "litellm": Paths(
        reads="a ModelResponse, a chunk, or one of their choices",
        marks=("choices", "finish_reason", "native_finish_reason", "delta"),
        answer=("choices/0",),
        message=("message",),
        raw=("provider_specific_fields/native_finish_reason", "native_finish_reason"),
        word=("finish_reason",),
        calls=("message/tool_calls",),
        declined=("message/refusal",),
        output=("usage/completion_tokens",),
        prompt=("usage/prompt_tokens",),
    ),
    "vercel": Paths(
        reads="{unified, raw}, {finishReason, rawFinishReason}, or the word alone",
        marks=("unified", "raw", "finishReason", "rawFinishReason"),
        raw=("raw", "rawFinishReason", "unified/raw", "finishReason/raw"),
        word=("unified/unified", "finishReason/unified", "unified", "finishReason"),
    ),
    "pydantic_ai": Paths(
        reads="a ModelResponse, or the result of a run that has one",
        raw=("provider_details/finish_reason", "vendor_details/finish_reason"),
        word=("finish_reason",),
        detail=("provider_details/refusal_category", "vendor_details/refusal_category"),
        calls=("parts",),
        output=("usage/output_tokens",),
        prompt=("usage/input_tokens",),
    ),
    "otel": Paths(
        reads="a span's attributes or its finish reasons",
        raw=("gen_ai.response.finish_reasons", "llm.finish_reason"),  # the second is OpenInference's
        output=("gen_ai.usage.output_tokens",),
    ),
}

PROVIDERS_REASON: Final[Mapping[str, tuple[str, ...]]] = {
    "finish_reason": (),
    "stop_reason": ("anthropic", "bedrock_invoke"),
    "stopReason": ("bedrock_converse",),
    "messageStop/stopReason": ("bedrock_converse",),  # of a stream
    "done_reason": ("ollama",),
    "completionReason": ("bedrock_invoke",),
    "finishReason": ("gemini", "bedrock_invoke"),
}
"""Where LangChain's integrations leave a provider's reason in the metadata → the formats whose it is there."""

METADATA: Final = (
    *(path.partition("/")[0] for path in PROVIDERS_REASON),
    *("normalized_finish_reason", "prompt_feedback", "status", "model_provider", "model_name", "model_id", "usage"),
    *("ResponseMetadata", "token_usage"),
)
"""Members of which LangChain's integrations put one at least into the metadata of an answer."""


def at(thing: Any, paths: tuple[str, ...]) -> Any:
    """What stands at the first path that says something; None where none does."""
    for path in paths:
        found = thing
        for step in path.split("/"):
            found = next(iter(items(found)), None) if step == "0" else member(found, step)
        if found is not None and found != "":
            return found
    return None


def answer_of(framework: str, thing: Any) -> Any:
    """What was handed over, where it is an answer of the framework's.

    Raises:
        UsageError: it is none.
    """
    speaks(framework, thing)
    if not holds(framework, thing):
        raise wrong(framework, thing)
    return thing


def holds(framework: str, thing: Any) -> bool:
    """Whether a thing has what marks an answer of the framework's."""
    return any(_has(thing, mark) for mark in PATHS[framework].marks)


def _has(thing: Any, path: str) -> bool:
    """Whether a mapping or an object has such a member, whatever it holds."""
    within, _, name = path.rpartition("/")
    holder = member(thing, within) if within else thing
    if isinstance(holder, Mapping):
        return name in holder
    return holder is not None and bool(asked(lambda: hasattr(holder, name)))


def asked(question: Callable[[], Any]) -> Any:
    """What a foreign object answers, if it does."""
    with suppress(Exception):
        return question()
    return None


def speaks(framework: str, thing: Any) -> None:
    """Refuse what has no members at all.

    Raises:
        UsageError: it is text, a number, a list or nothing.
    """
    if thing is None or isinstance(thing, PLAIN):
        raise UsageError(f"{framework}() reads {PATHS[framework].reads}, not {type(thing).__name__} {thing!r:.40}")


def wrong(framework: str, thing: Any) -> UsageError:
    """The exception for what is something else: it names the class, or a mapping's keys, not what they hold."""
    what = type(thing).__name__
    if isinstance(thing, Mapping):
        what = f"a mapping with {sorted(map(str, thing))[:5]}"
    elif isinstance(thing, PLAIN):
        what = f"{what} {thing!r:.40}"
    return UsageError(f"{framework}() reads {PATHS[framework].reads}, not {what}")
