"""Scripted responses of Bedrock's Converse API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from endturn.formats.errors import error_words
from endturn.formats.scripting import (
    SIGNATURE,
    ScriptedBlock,
    scripted_blocks,
    scripted_events,
    scripted_reason,
    total_tokens,
    uncached_input,
    words,
)
from endturn.formats.settings import present
from endturn.formats.summaries import Event
from endturn.vocabulary import ChatResponse, Json, Usage

_NAME: Final = "bedrock_converse"
_METRICS: Final = {"latencyMs": 1}


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the API would: a body, or the events of its stream.

    Raises:
        UsageError: the API has no word for the stop reason.
    """
    stop = scripted_reason(_NAME, response.stop, dialect)
    if stream:
        return scripted_events(_events(response, stop))
    content: list[Json] = []
    if response.reasoning:
        thinking = {"text": response.reasoning, "signature": SIGNATURE}
        content.append({"reasoningContent": {"reasoningText": thinking}})
    if response.text:
        content.append({"text": response.text})
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments or {}}}
        for call in response.tool_calls
    ]
    output = {"message": {"role": "assistant", "content": content}}
    return present(
        {"output": output, "stopReason": stop, "usage": _usage(response.usage), "metrics": _METRICS}
    )


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    return present(
        {
            "inputTokens": uncached_input(usage),
            "outputTokens": usage.output_tokens or 0,
            "totalTokens": total_tokens(usage),
            "cacheReadInputTokens": usage.cache_read_tokens,
            "cacheWriteInputTokens": usage.cache_write_tokens,
        }
    )


def _events(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    yield {"messageStart": {"role": "assistant"}}
    for block in scripted_blocks(response):
        if block.call is not None:
            start = {"toolUse": {"toolUseId": block.call.id, "name": block.call.name}}
            yield {"contentBlockStart": {"start": start, "contentBlockIndex": block.index}}
        for delta in _deltas(block):
            yield {"contentBlockDelta": {"delta": delta, "contentBlockIndex": block.index}}
        if not block.breaks_off:
            yield {"contentBlockStop": {"contentBlockIndex": block.index}}
    if response.stop.terminal_seen:
        yield {"messageStop": present({"stopReason": stop})}
        yield {"metadata": present({"usage": _usage(response.usage), "metrics": _METRICS})}


def _deltas(block: ScriptedBlock) -> Iterator[Json]:
    for word in words(block.text):
        if block.is_reasoning:
            yield {"reasoningContent": {"text": word}}
        else:
            yield {"text": word} if block.call is None else {"toolUse": {"input": word}}
    if block.is_reasoning:
        yield {"reasoningContent": {"signature": SIGNATURE}}


_STREAM_EXCEPTIONS: Final[Mapping[str, str]] = {
    "InternalServerException": "internalServerException",
    "ModelErrorException": "modelStreamErrorException",
    "ServiceUnavailableException": "serviceUnavailableException",
    "ThrottlingException": "throttlingException",
}
"""The exceptions that have a name of their own in a stream; any other is a validationException."""


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body in AWS's JSON, or the exception event of a stream."""
    error = error_words(_NAME, status, code, message)
    if stream:
        return Event(
            None,
            {_STREAM_EXCEPTIONS.get(error.type, "validationException"): {"message": error.message}},
        )
    return {"__type": error.type, "message": error.message}
