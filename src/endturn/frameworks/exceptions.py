"""Find the response that an exception of an SDK or a framework is about, and its stop reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from endturn.calls import ResponseFacts
from endturn.errors import UsageError
from endturn.formats import (
    Context,
    ResponseSummary,
    as_json,
    error_of,
    format_of,
    member,
    summarize,
)
from endturn.frameworks import (
    langchain_response,
    litellm_response,
    pydantic_ai_response,
    sdk_exceptions,
)
from endturn.frameworks._response_fields import first_item
from endturn.providers import answer_in
from endturn.vocabulary import COMPATIBLE, Stop, StopReason

MAX_DEPTH: Final = 5
"""The number of underlying exceptions that are read."""

_BY_PACKAGE: Final[Mapping[str, Mapping[str, StopReason]]] = {
    "langchain_core": langchain_response.EXCEPTIONS,
    "litellm": litellm_response.EXCEPTIONS,
    "pydantic_ai": pydantic_ai_response.EXCEPTIONS,
    **sdk_exceptions.EXCEPTIONS,
}

REASON_BY_CLASS: Final[Mapping[tuple[str, str], StopReason]] = {
    (package, name): reason
    for package, reasons in _BY_PACKAGE.items()
    for name, reason in reasons.items()  # one row for each class
}
"""Top-level package and name of an exception class → the stop reason that it stands for."""

_FORMAT_BY_FIELD: Final[Mapping[str, str]] = {
    "choices": "openai_chat",
    "candidates": "gemini",
    "prompt_feedback": "gemini",
    "stop_reason": "anthropic",
    "stopReason": "bedrock_converse",
    "done_reason": "ollama",
    "steps": "gemini_interactions",
    "continuation_token": "gemini_interactions",
    "output": "openai_responses",
    "finish_reason": "cohere",
}
"""Field of a whole response → the format that has it. The first one that is present decides."""


def of_exception(error: BaseException) -> ResponseSummary | None:
    """Return the summary of the response that an exception is about; None if there is none.

    The first of these that exists: the response that the exception keeps, with usage; the stop
    reason that an error response describes ("context length exceeded"); the stop reason that the
    exception's class stands for. If there is none, the exceptions behind it are read, at most 5
    deep: the last of a group, the exception that it wraps, its cause, its context.

    Raises:
        UsageError: the value is no exception.
    """
    if not isinstance(error, BaseException):
        type_name = type(error).__name__
        raise UsageError(f"of_exception() reads an exception, not {type_name} {error!r:.40}")
    for link in _chain(error):
        with suppress(Exception):  # attributes of unknown classes may be properties that raise
            summary = _summarize(link)
            if summary is not None:
                return summary
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and those behind it."""
    link: BaseException | None = error
    for _ in range(MAX_DEPTH + 1):
        if link is None:
            return
        yield link
        link = _underlying_error(link)


def _underlying_error(error: BaseException) -> BaseException | None:
    if isinstance(error, BaseExceptionGroup):
        return error.exceptions[-1]
    context = None if error.__suppress_context__ else error.__context__
    return sdk_exceptions.wrapped_exception(error) or error.__cause__ or context


def _summarize(error: BaseException) -> ResponseSummary | None:
    """Return the summary of one exception, without those behind it."""
    stop = getattr(error, "stop", None)
    if isinstance(stop, Stop):  # our own ProviderError
        return ResponseSummary(ResponseFacts(stop=stop))
    package = _package(type(error))
    for response in sdk_exceptions.attached_responses(error):
        summary = summarize_response(response)
        if summary is not None and summary.stop.reason is not StopReason.MISSING:
            return summary
    if package == "pydantic_ai":
        summary = summarize_response(pydantic_ai_response.response_in_body(error))
        if summary is not None:
            return summary
    stop = _stop_in_error_response(error)
    if stop is None and package == "agents":
        stop = sdk_exceptions.openai_agents_stop(error)
    if stop is not None:
        return ResponseSummary(ResponseFacts(stop=stop))
    if package == "litellm" and litellm_response.is_blocked_by_guardrail(error):
        return sdk_exceptions.summarize_exception(error, StopReason.SAFETY_BLOCKED)
    reason = _reason_of_class(type(error))
    return None if reason is None else sdk_exceptions.summarize_exception(error, reason)


def _package(error_class: type) -> str:
    """Return the top-level package of a class."""
    return error_class.__module__.partition(".")[0]


def _reason_of_class(error_class: type) -> StopReason | None:
    """Return the stop reason that an exception class or one of its base classes stands for."""
    bases = ((_package(base), base.__name__) for base in error_class.__mro__)
    return next((REASON_BY_CLASS[base] for base in bases if base in REASON_BY_CLASS), None)


def _stop_in_error_response(error: BaseException) -> Stop | None:
    """Return the stop that the provider's error response describes; None if there is no such."""
    response = answer_in(error)
    if response is None or response.is_unread:
        return None
    return error_of(response.status, response.headers, response.content, ctx=Context()).stop


def summarize_response(response: Any) -> ResponseSummary | None:
    """Return the summary of a whole response in any format; None if the format is unknown."""
    if response is None or isinstance(response, str | bytes):
        return None
    if member(response, "kind") == "response" and member(response, "parts") is not None:
        return pydantic_ai_response.summarize_model_response(response)
    format_name = _format_of_response(response)
    if format_name is None:
        return None
    dialect = COMPATIBLE if format_name == "openai_chat" else ""
    return summarize(format_of(format_name), Context(dialect), as_json(response))


def _format_of_response(response: Any) -> str | None:
    """Return the name of the format of a whole response."""
    present = (field for field in _FORMAT_BY_FIELD if member(response, field) is not None)
    field = next(present, None)
    if field == "choices":
        choice = first_item(member(response, "choices"))
        if member(choice, "text") is not None and member(choice, "message") is None:
            return "completions"
    return None if field is None else _FORMAT_BY_FIELD[field]
