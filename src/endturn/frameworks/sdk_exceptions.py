"""Exceptions of SDKs and of frameworks without a reader here: the responses that they keep."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from endturn.calls import ResponseFacts
from endturn.formats import ResponseSummary, text, text_or_none
from endturn.frameworks.rows import find_provider_row, format_tables, stop_of
from endturn.vocabulary import Resume, Stop, StopReason

EXCEPTIONS: Final = {
    "agents": {"ModelRefusalError": StopReason.REFUSED},
    "google": {"ContinuationInterruptedError": StopReason.PAUSED},
    "instructor": {"IncompleteOutputException": StopReason.MAX_TOKENS},
    "openai": {
        "ContentFilterFinishReasonError": StopReason.SAFETY_BLOCKED,
        "LengthFinishReasonError": StopReason.MAX_TOKENS,
    },
    "strands": {
        "ContextWindowOverflowException": StopReason.CONTEXT_WINDOW_EXCEEDED,
        "MaxTokensReachedException": StopReason.MAX_TOKENS,
    },
}
"""Top-level package → exception class that stands for a stop reason; subclasses count."""


def attached_responses(error: BaseException) -> Iterator[Any]:
    """Yield the attributes in which exceptions keep their response."""
    yield getattr(error, "completion", None)  # openai: the two of EXCEPTIONS
    yield getattr(error, "last_completion", None)  # instructor: also InstructorRetryException
    yield getattr(error, "partial_interaction", None)  # google-genai


def wrapped_exception(error: BaseException) -> BaseException | None:
    """Return the exception that this one wraps, if it does."""
    # strands EventLoopException, litellm MidStreamFallbackError
    wrapped = getattr(error, "original_exception", None)
    return wrapped if isinstance(wrapped, BaseException) else None


# "Responses stream ended with terminal event `response.incomplete`. status=incomplete;
# incomplete_details=IncompleteDetails(reason='max_output_tokens')."
_AGENTS_MESSAGE: Final = re.compile(
    r"terminal event `response\.(\w+)`(?:.*?incomplete_details=.*?reason='(\w+)')?", re.DOTALL
)


def openai_agents_stop(error: BaseException) -> Stop | None:
    """Return the stop that the message of a ModelBehaviorError of OpenAI's Agents SDK describes.

    The SDK writes the status of a Responses stream into the message and keeps no response.
    """
    match = _AGENTS_MESSAGE.search(str(error))
    if match is None:
        return None
    status, reason = match.groups()
    raw = f"{status}:{reason}" if reason else status
    row = find_provider_row(raw, format_tables("openai_responses"), any_provider=False)
    if row is None:
        return Stop(StopReason.ERROR, raw, "ModelBehaviorError", incomplete=True)
    return stop_of(raw, row)


def summarize_exception(error: BaseException, reason: StopReason) -> ResponseSummary:
    """Return the summary of an exception that has no response, by its class's stop reason."""
    resume = Resume.NONE
    if reason is StopReason.PAUSED:  # google-genai followed the continuations, and one failed
        has_token = bool(text(getattr(error, "continuation_token", None)))
        reason = StopReason.PAUSED if has_token else StopReason.ERROR
        resume = Resume.NATIVE_TOKEN if has_token else Resume.NONE
    stop = Stop(reason, detail=type(error).__name__, resume=resume, incomplete=True)
    return ResponseSummary(
        ResponseFacts(stop=stop, id=text_or_none(getattr(error, "interaction_id", None)))
    )
