"""The facts of a provider's response body, for sources whose files hold unchanged bodies.

Each body is read by its format's summarizer, which keeps no content, as in live instrumentation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from endturn.calls import EndpointFacts, RequestedCall, RequestFacts, ResponseFacts
from endturn.formats import (
    Context,
    Format,
    RequestSummary,
    dialect_in,
    format_of,
    plain_facts,
    summarize,
)
from endturn.scan.fields import count, mapping, objects, text
from endturn.scan.past_calls import FAILED_STOP, UNRECORDED_STOP, Evidence, PastCall
from endturn.vocabulary import Row, StopReason

_NO_CHAT: Final = frozenset({"list", "embedding", "moderation", "transcription"})
"""Values of `object` in bodies that are not a model's answer."""


def format_in(body: Mapping[str, Any]) -> str | None:
    """Return the format of a whole body by its members; None if it is not a model's answer."""
    if text(body.get("object")) in _NO_CHAT:
        return None
    if isinstance(body.get("choices"), list):
        first = next(iter(objects(body["choices"])), {})
        is_plain = "text" in first and "message" not in first
        return "completions" if is_plain else "openai_chat"
    if body.get("object") == "response" or isinstance(body.get("output"), list):
        return "openai_responses"
    if body.get("type") == "message" and "content" in body:
        return "anthropic"
    if isinstance(body.get("candidates"), list) or "promptFeedback" in body:
        return "gemini"
    if "stopReason" in body and "message" in mapping(body.get("output")):
        return "bedrock_converse"
    return None


def call_of_body(
    body: Any,
    *,
    format_name: str,
    provider: str = "",
    request: Mapping[str, Any] | None = None,
    key: str = "",
) -> PastCall:
    """Return the call of a response, as far as its body describes it.

    Args:
        body: a whole body, or a list of a stream's events.
        format_name: as in `endturn.formats.FORMATS`.
        provider: as in `gen_ai.provider.name`; "" if the file lacks it.
        request: the body of the request, or an SDK's arguments, if the file has it.
        key: the identity of the call if the body has no id.
    """
    format = format_of(format_name)
    context, request_facts = _context(format_name, provider), _NO_REQUEST
    if request is not None:
        summary = format.request_summary(request)
        request_facts = RequestFacts(
            model=summary.facts.model,
            max_tokens=summary.facts.max_tokens,
            stream=summary.facts.stream,
        )
        context = replace(context, request=summary)
    facts, tool_calls = _facts_of(body, format, context)
    # a reason that is missing in a file may not have been written
    is_recorded = facts.stop.reason is not StopReason.MISSING and bool(body)
    call = PastCall(
        key=_identity(facts.id, body) or key,
        request=request_facts,
        endpoint=_endpoint(provider),
        response=facts if is_recorded else replace(facts, stop=UNRECORDED_STOP),
        evidence=Evidence.RECORDED if is_recorded else Evidence.NOT_RECORDED,
        tool_calls=tuple([tool_call.id for tool_call in tool_calls]),
    )
    if facts.stop.reason is StopReason.ERROR:
        call.error = "error"
    return call


def _facts_of(
    body: Any, format: Format, context: Context
) -> tuple[ResponseFacts, Sequence[RequestedCall]]:
    if isinstance(body, list):
        fold = format.summarizer(context)
        for event in objects(body):
            fold.feed(event)
        summary = fold.close()
    else:
        body = mapping(body)
        rows = _rows(format.name, context.provider)
        if (plain := plain_facts(format.name, context, rows, body)) is not None:
            return plain
        summary = summarize(format, context, body)
    return summary.facts, summary.tool_calls


@lru_cache(maxsize=256)
def _rows(format_name: str, provider: str) -> Mapping[str, Row]:
    """Return the stop reasons of a provider's responses."""
    context = _context(format_name, provider)
    return format_of(format_name).summarizer(context).rows


def _identity(response_id: str | None, body: Any) -> str:
    """Return the identity of a response; "" if it has no id.

    Some servers give their responses random numbers, such as Ollama from `chatcmpl-0` to
    `chatcmpl-998`: together with the time of the response, collisions are rare.
    """
    if not response_id or len(response_id) > _SHORT:
        return response_id or ""
    first = next(iter(objects(body)), {}) if isinstance(body, list) else mapping(body)
    created = first.get("created")
    return response_id if count(created) is None else f"{response_id} {created}"


_SHORT: Final = 15
"""The maximum length of an id that may not be unique."""
_NO_REQUEST: Final = RequestFacts()


@lru_cache(maxsize=256)
def _context(format_name: str, provider: str) -> Context:
    speaks = format_of(format_name)
    return Context(dialect_in(speaks, provider), provider or speaks.provider, RequestSummary())


@lru_cache(maxsize=256)
def _endpoint(provider: str) -> EndpointFacts:
    return EndpointFacts(provider=provider)


def failed_call(key: str, error: str, *, model: str = "", provider: str = "") -> PastCall:
    """Return an attempt that a separate record marks as failed.

    Args:
        error: its kind, such as "429"; never a message.
    """
    return PastCall(
        key=key,
        request=RequestFacts(model=model),
        endpoint=EndpointFacts(provider=provider),
        response=ResponseFacts(stop=FAILED_STOP),
        evidence=Evidence.RECORDED,
        error=error or "error",
    )


def kind_of_error(error: Any, *alternatives: Any) -> str:
    """Return the kind of an error from its code, type or status; "error" if it has none.

    Args:
        error: the error's object.
        alternatives: other values that may be its kind, such as a status.
    """
    details = mapping(error)
    for value in (details.get("type"), details.get("code"), details.get("status"), *alternatives):
        if isinstance(value, str) and value and len(value) <= _LONGEST and value.isprintable():
            return value
        if (number := count(value)) is not None:
            return str(number)
    return "error"


_LONGEST: Final = 64
"""The maximum length of a kind of error; a longer text is a message."""


def turn_id(session: str, messages: Any) -> str | None:
    """Return the identity of the turn that a request belongs to, in a session.

    Requests of one turn repeat the user's messages, and add answers and tool results.

    Args:
        session: the value that the requests of a conversation have in common.
        messages: the messages of a request, in the chat format or in Anthropic's.

    Returns:
        A digest of the session and of the user's messages; None if there is neither.
    """
    prompts = [
        message
        for message in objects(messages)
        if message.get("role") == "user"
        if _is_prompt(message)
    ]
    if not session or not prompts:
        return None
    digest = blake2b(session.encode("utf-8", "replace"), digest_size=16)
    for message in prompts:
        content = message.get("content")
        parts = [text(part.get("text")) for part in objects(content)] or [text(content)]
        digest.update("\0".join(["", *parts]).encode("utf-8", "replace"))
    return digest.hexdigest()


def _is_prompt(message: Mapping[str, Any]) -> bool:
    """Return whether a message of a user is more than results of tools."""
    parts = objects(message.get("content"))
    return not parts or any(part.get("type") != "tool_result" for part in parts)
