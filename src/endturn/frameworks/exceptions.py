"""What exceptions hide: the response that an SDK or a framework raised over, and why it stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from endturn.chat import Usage
from endturn.errors import UsageError
from endturn.formats import Context, ResponseSummary, format_of, summarize
from endturn.formats.errors import error_of
from endturn.formats.reading import count, items, member, text, text_or_none
from endturn.frameworks.answers import pydantic_ai
from endturn.frameworks.paths import DATA
from endturn.frameworks.rows import meaning, stop_of, tables_in
from endturn.sdk_errors import SAID, answer_in
from endturn.sdk_objects import dumped
from endturn.stop import Resume, Stop, StopReason
from endturn.stop_reasons import COMPATIBLE

DEPTH: Final = 5
"""How many exceptions are looked at behind the one that was raised."""

_COMPLETIONS: Final = (
    "completion",  # openai LengthFinishReasonError, ContentFilterFinishReasonError
    "last_completion",  # instructor IncompleteOutputException, InstructorRetryException
    "partial_interaction",  # google-genai ContinuationInterruptedError
)
"""Where an exception keeps the response that it is about."""

NAMED: Final = {of: StopReason(says) for of, says in SAID.items() if says in [*StopReason]}
"""Package and class of exceptions that say why the model stopped by what they are, subclasses included."""

# openai-agents: "Responses stream ended with terminal event `response.incomplete`. … incomplete_details=…(reason='…')"
_AGENTS: Final = re.compile(r"terminal event `response\.(\w+)`(?:.*?incomplete_details=.*?reason='(\w+)')?", re.DOTALL)


def of_exception(error: BaseException) -> ResponseSummary | None:
    """What is known of the response that an exception stands in place of; None where it hides none.

    The response itself where the exception has it, with usage; else what an error answer says of the stop ("context
    length exceeded"); else what the exception's class says. Then those behind it, at most 5 deep: its cause, the
    exception that it wraps or came up in, the last of a group.

    Raises:
        UsageError: that is no exception.
    """
    if not isinstance(error, BaseException):
        raise UsageError(f"of_exception() reads an exception, not {type(error).__name__} {error!r:.40}")
    for each in _behind(error):
        with suppress(Exception):  # An attribute may be a property that raises, of a package that nobody here knows.
            seen = _own(each)
            if seen is not None:
                return seen
    return None


def _behind(error: BaseException) -> Iterator[BaseException]:
    each: Any = error
    for _ in range(DEPTH + 1):
        yield each
        group = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        wrapped = getattr(each, "original_exception", None)  # strands EventLoopException, litellm MidStreamFallback
        context = None if each.__suppress_context__ else each.__context__
        each = group[-1] if group else wrapped if isinstance(wrapped, BaseException) else each.__cause__ or context
        if each is None:
            return


def _own(error: BaseException) -> ResponseSummary | None:
    """What one exception says by itself."""
    stop = getattr(error, "stop", None)
    if isinstance(stop, Stop):  # ours: ProviderError
        return ResponseSummary(stop)
    families = [(base.__module__.partition(".")[0], base.__name__) for base in type(error).__mro__]
    reason = next((NAMED[family] for family in families if family in NAMED), None)
    for name in _COMPLETIONS:
        seen = whole(getattr(error, name, None))
        if seen is not None and seen.stop.reason is not StopReason.MISSING:
            return seen
    root = families[0][0]
    if root == "pydantic_ai":
        seen = _dumped(getattr(error, "body", None))
        if seen is not None:
            return seen
    said = _answered(error) or (_said(error) if root == "agents" else None)
    if said is not None:
        return ResponseSummary(said)
    if root == "litellm" and getattr(error, "blocked_content", None) is True:  # GuardrailRaisedException: it judged
        reason = StopReason.SAFETY_BLOCKED
    return None if reason is None else _by_name(error, reason)


def whole(response: Any) -> ResponseSummary | None:
    """What a whole response says of its stop, in whatever format it is; None where that cannot be told."""
    if response is None or isinstance(response, str | bytes):
        return None
    if member(response, "kind") == "response" and member(response, "parts") is not None:
        return _of_pydantic(response)
    name = next((speaks for name, speaks in DATA["shapes"].items() if member(response, name) is not None), None)
    if name == "openai_chat":
        first = next(iter(items(member(response, "choices"))), None)
        if member(first, "text") is not None and member(first, "message") is None:
            name = "completions"
    if name is None:
        return None
    return summarize(format_of(name), Context(COMPATIBLE if name == "openai_chat" else ""), dumped(response))


def _of_pydantic(response: Any) -> ResponseSummary:
    usage = member(response, "usage")
    tokens = Usage(count(member(usage, "input_tokens")), count(member(usage, "output_tokens")))
    stop = pydantic_ai(response)
    id_, model = member(response, "provider_response_id"), member(response, "model_name")
    return ResponseSummary(stop, tokens, text_or_none(id_), text_or_none(model), reasons=(stop.raw,))


def _dumped(body: Any) -> ResponseSummary | None:
    """Pydantic AI keeps the response in the text of a `body`: its own, in a list, or the provider's."""
    if not isinstance(body, str):
        return None
    with suppress(ValueError, RecursionError):
        parsed = json.loads(body)
        return whole(parsed[-1] if isinstance(parsed, list) and parsed else parsed)
    return None


def _answered(error: BaseException) -> Stop | None:
    """What the error answer that an SDK raised says of the stop."""
    answer = answer_in(error)
    if answer is None or answer.is_unread:
        return None
    return error_of(answer.status, answer.headers, answer.content, ctx=Context()).stop


def _said(error: BaseException) -> Stop | None:
    """OpenAI's Agents SDK puts the status of a Responses stream into the sentence."""
    found = _AGENTS.search(str(error))
    if found is None:
        return None
    status, why = found.groups()
    raw = f"{status}:{why}" if why else status
    row = meaning(raw, tables_in("openai_responses"), any_provider=False)
    return stop_of(raw, row) if row is not None else Stop(StopReason.ERROR, raw, "ModelBehaviorError", incomplete=True)


def _by_name(error: BaseException, reason: StopReason) -> ResponseSummary:
    """The Stop of an exception that has nothing but its name."""
    token = text(getattr(error, "continuation_token", None))
    resume = Resume.NONE
    if reason is StopReason.PAUSED:
        reason, resume = (reason, Resume.NATIVE_TOKEN) if token else (StopReason.ERROR, Resume.NONE)
    stop = Stop(reason, detail=type(error).__name__, resume=resume, incomplete=True)
    return ResponseSummary(stop, id=text_or_none(getattr(error, "interaction_id", None)))
