"""Where answers of frameworks say something, and what is an answer at all: the rest is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from endturn.errors import UsageError
from endturn.formats.reading import PLAIN, items, member

READS: Final[Mapping[str, str]] = {
    "langchain": "an AIMessage, a generation, an LLMResult, their metadata, or a graph's state",
    "litellm": "a ModelResponse, a chunk, or one of their choices",
    "vercel": "{unified, raw}, {finishReason, rawFinishReason}, or the word alone",
    "pydantic_ai": "a ModelResponse, or the result of a run that has one",
    "otel": "a span's attributes or its finish reasons",
}
"""What each reader takes, for the error."""

_MARKS: Final[Mapping[str, tuple[str, ...]]] = {
    "langchain": (
        *("response_metadata", "generation_info", "generations"),
        *("message/response_metadata", "message/generation_info", "message/generations"),
    ),
    "litellm": ("choices", "finish_reason", "native_finish_reason", "delta"),
    "vercel": ("unified", "raw", "finishReason", "rawFinishReason"),
}
"""Paths of which an answer has one at least, whatever stands there."""

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


def at(thing: Any, *paths: str) -> Any:
    """What stands at the first path that says something; None where none does.

    A path is members of members, `/` between them, `0` for the first of a list.
    """
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
    return any(_has(thing, mark) for mark in _MARKS[framework])


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
        raise UsageError(f"{framework}() reads {READS[framework]}, not {type(thing).__name__} {thing!r:.40}")


def wrong(framework: str, thing: Any) -> UsageError:
    """The exception for what is something else: it names the class, or a mapping's keys, not what they hold."""
    what = type(thing).__name__
    if isinstance(thing, Mapping):
        what = f"a mapping with {sorted(map(str, thing))[:5]}"
    elif isinstance(thing, PLAIN):
        what = f"{what} {thing!r:.40}"
    return UsageError(f"{framework}() reads {READS[framework]}, not {what}")
