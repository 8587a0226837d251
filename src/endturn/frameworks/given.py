"""What the readers are given: whether it is an answer, or holds one. UsageError says what anything else is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from endturn.errors import UsageError
from endturn.formats.reading import PLAIN, items, member

_METADATA: Final = (
    *("finish_reason", "stop_reason", "stopReason", "messageStop", "done_reason", "completionReason", "finishReason"),
    *("normalized_finish_reason", "prompt_feedback", "status", "model_provider", "model_name", "model_id", "usage"),
    *("ResponseMetadata", "token_usage"),
)
"""Members of which LangChain's integrations put one at least into the metadata of an answer."""

_ANSWERS: Final = ("response_metadata", "generation_info", "generations")
_OTHERS: Final = ("human", "system", "tool", "function", "remove")
"""LangChain's `type` of messages that no model wrote; of their chunks, the class's name."""

_CHOICE: Final = ("finish_reason", "native_finish_reason", "delta")
_VERCEL: Final = ("unified", "raw", "finishReason", "rawFinishReason")
_SPAN: Final = ("gen_ai.", "llm.")


def langchain_answer(answer: Any) -> Any:
    """An answer of LangChain's, the last AI message of a graph's state.

    Raises:
        UsageError: there is none.
    """
    wanted = "an AIMessage, a generation, an LLMResult, their metadata, or a graph's state"
    _speaks(answer, "langchain", wanted)
    kind = member(answer, "type")
    if isinstance(kind, str) and kind.lower().removesuffix("messagechunk") in _OTHERS:
        raise _wrong(answer, "langchain", wanted)
    if _has(answer, _ANSWERS) or _has(member(answer, "message"), _ANSWERS):
        return answer
    history = member(answer, "messages")
    if isinstance(history, list | tuple):
        for each in reversed(history):
            if member(each, "type") in ("ai", "AIMessageChunk"):
                return each
        raise UsageError(f"langchain() reads {wanted}; this state has no AI message among its {len(history)}")
    if isinstance(answer, Mapping) and (not answer or _has(answer, _METADATA)):
        return answer
    raise _wrong(answer, "langchain", wanted)


def litellm_answer(answer: Any) -> Any:
    """An answer of LiteLLM's.

    Raises:
        UsageError: it is none.
    """
    wanted = "a ModelResponse, a chunk, or one of their choices"
    _speaks(answer, "litellm", wanted)
    if not _has(answer, ("choices", *_CHOICE)):
        raise _wrong(answer, "litellm", wanted)
    return answer


def vercel_reason(finish_reason: Any) -> Any:
    """A finish reason of the AI SDK's, or what holds one; None and an empty object are reasons that did not come.

    Raises:
        UsageError: it is none.
    """
    wanted = "{unified, raw}, {finishReason, rawFinishReason}, or the word alone"
    if finish_reason is None or isinstance(finish_reason, str):
        return finish_reason
    _speaks(finish_reason, "vercel", wanted)
    if not _has(finish_reason, _VERCEL) and not (isinstance(finish_reason, Mapping) and not finish_reason):
        raise _wrong(finish_reason, "vercel", wanted)
    return finish_reason


def pydantic_ai_response(response: Any) -> Any:
    """A ModelResponse, the last one of a run's result.

    Raises:
        UsageError: there is none.
    """
    wanted = "a ModelResponse, or the result of a run that has one"
    _speaks(response, "pydantic_ai", wanted)
    if member(response, "kind") == "response":
        return response
    found = None
    if not isinstance(response, Mapping):
        found = _last([_asked(lambda: response.response), *items(_asked(lambda: response.all_messages()))[::-1]])
    if found is None:
        raise _wrong(response, "pydantic_ai", wanted)
    return found


def span_attributes(span: Any) -> Mapping[str, Any]:
    """The attributes of a span that tells of a model; of one that records nothing, none.

    Raises:
        UsageError: it tells of something else, or is no span.
    """
    wanted = "a span's attributes or its finish reasons"
    _speaks(span, "otel", wanted)
    known = member(span, "attributes")
    if isinstance(span, Mapping) and known is None:
        known = span
    elif known is None and hasattr(span, "get_span_context"):
        known = {}
    if not isinstance(known, Mapping) or (known and not any(str(name).startswith(_SPAN) for name in known)):
        raise _wrong(known if isinstance(known, Mapping) else span, "otel", wanted)
    return known


def finish_reasons(reasons: Any) -> Any:
    """The finish reasons of a span: one, or a list of them.

    Raises:
        UsageError: they are something else.
    """
    wrong = next((each for each in items(reasons) if not isinstance(each, str | None)), None)
    if wrong is not None:
        raise _wrong(wrong, "otel", "a span's attributes or its finish reasons")
    return reasons


def _last(messages: Iterable[Any]) -> Any:
    return next((each for each in messages if member(each, "kind") == "response"), None)


def _asked(question: Callable[[], Any]) -> Any:
    """What a foreign object answers, if it does."""
    with suppress(Exception):
        return question()
    return None


def _has(thing: Any, names: Iterable[str]) -> bool:
    """Whether a mapping or an object has any such member, whatever it holds."""
    if isinstance(thing, Mapping):
        return any(name in thing for name in names)
    return bool(_asked(lambda: any(hasattr(thing, name) for name in names)))


def _speaks(answer: Any, name: str, wanted: str) -> None:
    """Refuse what has no members at all."""
    if answer is None or isinstance(answer, PLAIN):
        raise UsageError(f"{name}() reads {wanted}, not {type(answer).__name__} {answer!r:.40}")


def _wrong(answer: Any, name: str, wanted: str) -> UsageError:
    """The exception for what is something else: it names the class, or a mapping's keys, not what they hold."""
    what = type(answer).__name__
    if isinstance(answer, Mapping):
        what = f"a mapping with {sorted(map(str, answer))[:5]}"
    elif isinstance(answer, PLAIN):
        what = f"{what} {answer!r:.40}"
    return UsageError(f"{name}() reads {wanted}, not {what}")
