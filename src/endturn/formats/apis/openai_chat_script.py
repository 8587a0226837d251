"""Scripted responses of the chat completions format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from endturn.formats.encoding import arguments_text, function_call
from endturn.formats.framing import DONE
from endturn.formats.scripting import (
    openai_error,
    scripted_blocks,
    scripted_events,
    scripted_model,
    scripted_reason,
    total_tokens,
    words,
)
from endturn.formats.settings import present
from endturn.formats.summaries import Event
from endturn.vocabulary import ChatResponse, Json, StopReason, Usage

_NAME: Final = "openai_chat"
_WHOLE_CALL_DIALECTS: Final = frozenset({"mistral"})
"""The dialects that send a call in one piece; Mistral's SDK accepts nothing else."""


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as a server would: a body, or the chunks of its stream.

    Raises:
        UsageError: the dialect has no value for the stop reason.
    """
    stop = scripted_reason(_NAME, response.stop, dialect)
    if stream:
        return scripted_events(
            _chunks(response, stop, calls_at_once=dialect in _WHOLE_CALL_DIALECTS)
        )
    is_refusal = response.stop.reason is StopReason.REFUSED
    calls = [function_call(call, arguments_text(call)) for call in response.tool_calls]
    message = {
        "role": "assistant",
        "content": None if is_refusal else response.text or None,
        "refusal": response.text or None if is_refusal else None,
        "reasoning_content": response.reasoning or None,
        "tool_calls": calls or None,
    }
    choice = {
        "index": 0,
        "message": present(message, nulls=("content",)),
        "logprobs": None,
        "finish_reason": stop,
    }
    return _object(response, "chat.completion", [choice], _usage(response.usage))


def _object(
    response: ChatResponse, kind: str, choices: list[Json], usage: Json | None = None
) -> Json:
    return present(
        {
            "id": response.id,
            "created": 0,
            "model": scripted_model(response),
            "object": kind,
            "choices": choices,
            "usage": usage,
        }
    )


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    prompt = present(
        {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    )
    completion = present({"reasoning_tokens": usage.reasoning_tokens})
    return present(
        {
            "prompt_tokens": usage.input_tokens or 0,
            "completion_tokens": usage.output_tokens or 0,
            "prompt_tokens_details": prompt or None,
            "completion_tokens_details": completion or None,
            "total_tokens": total_tokens(usage),
        }
    )


def _chunks(
    response: ChatResponse, stop: str | None, *, calls_at_once: bool
) -> Iterator[Json | str]:
    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _object(response, "chat.completion.chunk", [choice])

    yield chunk({"role": "assistant", "content": ""})
    text_member = "refusal" if response.stop.reason is StopReason.REFUSED else "content"
    for block in scripted_blocks(response):
        if block.call is not None:
            arguments = block.text if calls_at_once else ""
            yield chunk(
                {
                    "tool_calls": [
                        {**function_call(block.call, arguments), "index": block.call_index}
                    ]
                }
            )
        for word in () if block.call is not None and calls_at_once else words(block.text):
            if block.call is not None:
                yield chunk(
                    {"tool_calls": [{"function": {"arguments": word}, "index": block.call_index}]}
                )
            else:
                yield chunk({"reasoning_content" if block.is_reasoning else text_member: word})
    if response.stop.terminal_seen:
        if stop is not None:
            yield chunk({}, stop)
        if response.usage is not None:
            yield _object(response, "chat.completion.chunk", [], _usage(response.usage))
        yield DONE


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the chunk of a stream that reports an error."""
    body = openai_error(_NAME, status, code, message)
    return Event(None, body) if stream else body
