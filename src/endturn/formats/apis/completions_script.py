"""Scripted responses of text completion, as each service writes them.

Most services write bodies and events in one shape: an object with a text, and with the stop reason
in the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate
from typing import Final, NamedTuple

from endturn.errors import UsageError
from endturn.formats.framing import DONE
from endturn.formats.scripting import (
    openai_error,
    scripted_events,
    scripted_model,
    scripted_reason,
    total_tokens,
    words,
)
from endturn.formats.settings import present
from endturn.formats.summaries import Event
from endturn.vocabulary import ChatResponse, Json, Usage

_NAME: Final = "completions"

FULL_WINDOW: Final = "limit+truncated=true"
"""llama.cpp's reason for a full context window, as `data/stop_reasons.tsv` has it."""


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as a service would: a body, or the events of its stream.

    Raises:
        UsageError: the service has no value for the stop reason, or does not stream.
    """
    stop = scripted_reason(_NAME, response.stop, dialect)
    service = _SERVICES.get(dialect, _OPENAI)
    if not stream:
        return service.body(response, stop)
    if service.events is None:
        raise UsageError(f"the {_NAME} dialect {dialect!r} does not stream")
    return scripted_events(
        service.events(response, stop), "type" if dialect == "claude_text" else ""
    )


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the event of a stream that reports an error."""
    body = openai_error(_NAME, status, code, message)
    return Event(None, body) if stream else body


def _input(response: ChatResponse) -> int:
    return (response.usage or Usage()).input_tokens or 0


def _output(response: ChatResponse) -> int:
    return (response.usage or Usage()).output_tokens or 0


_Body = Callable[[ChatResponse, str | None], Json]
_Events = Callable[[ChatResponse, str | None], Iterator[Json | str]]
_Piece = Callable[[ChatResponse, str, str | None], Json]
"""Writes an object of a response, a text and a reason: a body, or an event."""


def _stream_of(piece: _Piece) -> _Events:
    """Return a writer of streams: an object for each word, then one with the reason and no text."""

    def events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
        for word in words(response.text):
            yield piece(response, word, None)
        if response.stop.terminal_seen and stop is not None:
            yield piece(response, "", stop)

    return events


# --- OpenAI ---------------------------------------------------------------------------------------


def _openai(response: ChatResponse, choices: list[Json], usage: Json | None = None) -> Json:
    return present(
        {
            "id": response.id,
            "object": "text_completion",
            "created": 0,
            "model": scripted_model(response),
            "choices": choices,
            "usage": usage,
        }
    )


def _openai_choice(text: str, reason: str | None) -> Json:
    return {"text": text, "index": 0, "logprobs": None, "finish_reason": reason}


def _openai_usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    prompt = present({"cached_tokens": usage.cache_read_tokens})
    completion = present({"reasoning_tokens": usage.reasoning_tokens})
    return present(
        {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.output_tokens,
            "prompt_tokens_details": prompt or None,
            "completion_tokens_details": completion or None,
            "total_tokens": total_tokens(usage),
        }
    )


def _openai_body(response: ChatResponse, stop: str | None) -> Json:
    return _openai(response, [_openai_choice(response.text, stop)], _openai_usage(response.usage))


def _openai_events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
    for word in words(response.text):
        yield _openai(response, [_openai_choice(word, None)])
    if response.stop.terminal_seen:
        if stop is not None:
            yield _openai(response, [_openai_choice("", stop)])
        if response.usage is not None:
            yield _openai(response, [], _openai_usage(response.usage))
        yield DONE


# --- Servers of open models -----------------------------------------------------------------------


def _tgi_body(response: ChatResponse, stop: str | None) -> Json:
    details: Json = {
        "finish_reason": stop,
        "generated_tokens": _output(response),
        "prefill": [],
        "tokens": [],
        "seed": None,
    }
    return {"generated_text": response.text, "details": details}


def _tgi_events(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    def event(index: int, word: str, text: str | None, details: Json | None) -> Json:
        token = {"id": 0, "text": word, "logprob": 0.0, "special": text is not None}
        return {"index": index, "token": token, "generated_text": text, "details": details}

    pieces = words(response.text)
    for index, word in enumerate(pieces, 1):
        yield event(index, word, None, None)
    if response.stop.terminal_seen and stop is not None:
        details = {
            "finish_reason": stop,
            "generated_tokens": _output(response),
            "input_length": _input(response),
            "seed": None,
        }
        yield event(len(pieces) + 1, "", response.text, details)


def _llamacpp_end(response: ChatResponse, text: str, stop: str | None) -> Json:
    """Return a body, or a stream's last event."""
    return {
        "index": 0,
        "content": text,
        "stop": True,
        "model": scripted_model(response),
        "tokens_predicted": _output(response),
        "tokens_evaluated": _input(response),
        "stop_type": "limit" if stop == FULL_WINDOW else stop or "none",
        "truncated": stop == FULL_WINDOW,
        "stopping_word": "",
    }


def _llamacpp_body(response: ChatResponse, stop: str | None) -> Json:
    return _llamacpp_end(response, response.text, stop)


def _llamacpp_events(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    for word in words(response.text):
        yield {"index": 0, "content": word, "tokens": [], "stop": False}
    if response.stop.terminal_seen and stop is not None:
        yield _llamacpp_end(response, "", stop)


def _sglang(response: ChatResponse, text: str, reason: str | None) -> Json:
    meta = {
        "id": response.id,
        "finish_reason": {"type": reason} if reason else None,
        "prompt_tokens": _input(response),
        "completion_tokens": _output(response),
        "cached_tokens": 0,
    }
    return {"text": text, "meta_info": present(meta, nulls=("finish_reason",))}


def _sglang_events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
    """Yield events that each repeat the text from its beginning."""
    for text in accumulate(words(response.text)):
        yield _sglang(response, text, None)
    if response.stop.terminal_seen:
        if stop is not None:
            yield _sglang(response, response.text, stop)
        yield DONE


# --- Other services -------------------------------------------------------------------------------


def _watsonx(response: ChatResponse, text: str, reason: str | None) -> Json:
    result = {
        "generated_text": text,
        "generated_token_count": _output(response),
        "input_token_count": _input(response),
        "stop_reason": reason,
    }
    created = "2026-11-01T00:00:00.000Z"
    return {"model_id": scripted_model(response), "created_at": created, "results": [result]}


def _watsonx_event(response: ChatResponse, text: str, reason: str | None) -> Json:
    return _watsonx(response, text, "not_finished" if reason is None else reason)


def _alephalpha_body(response: ChatResponse, stop: str | None) -> Json:
    return {
        "model_version": "2024-01",
        "completions": [{"completion": response.text, "finish_reason": stop}],
        "num_tokens_prompt_total": _input(response),
        "num_tokens_generated": _output(response),
    }


def _alephalpha_events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
    for word in words(response.text):
        yield {"type": "stream_chunk", "index": 0, "completion": word}
    if response.stop.terminal_seen:
        if stop is not None:
            yield {
                "type": "stream_summary",
                "index": 0,
                "model_version": "2024-01",
                "finish_reason": stop,
            }
        yield {
            "type": "completion_summary",
            "num_tokens_prompt_total": _input(response),
            "num_tokens_generated": _output(response),
        }
        yield DONE


# --- Families of Bedrock's models -----------------------------------------------------------------


def _titan_body(response: ChatResponse, stop: str | None) -> Json:
    result = {
        "tokenCount": _output(response),
        "outputText": response.text,
        "completionReason": stop,
    }
    return {"inputTextTokenCount": _input(response), "results": [result]}


def _titan_event(response: ChatResponse, text: str, reason: str | None) -> Json:
    return {
        "outputText": text,
        "index": 0,
        "totalOutputTextTokenCount": None if reason is None else _output(response),
        "inputTextTokenCount": _input(response),
        "completionReason": reason,
    }


def _llama(response: ChatResponse, text: str, reason: str | None) -> Json:
    return {
        "generation": text,
        "prompt_token_count": _input(response),
        "generation_token_count": _output(response),
        "stop_reason": reason,
    }


def _mistral(response: ChatResponse, text: str, reason: str | None) -> Json:
    return {"outputs": [{"text": text, "stop_reason": reason}]}


def _command_body(response: ChatResponse, stop: str | None) -> Json:
    generation = {"id": response.id, "text": response.text, "finish_reason": stop}
    body = {
        "id": response.id,
        "generations": [present(generation, nulls=("finish_reason",))],
        "prompt": "",
    }
    return present(body)


def _command_event(response: ChatResponse, text: str, reason: str | None) -> Json:
    end: Json = {} if reason is None else {"finish_reason": reason}
    return {"is_finished": reason is not None, "text": text, **end}


def _claude_text(response: ChatResponse, text: str, reason: str | None) -> Json:
    return {"type": "completion", "completion": text, "stop_reason": reason, "stop": None}


def _ai21_body(response: ChatResponse, stop: str | None) -> Json:
    completion = {"data": {"text": response.text, "tokens": []}, "finishReason": {"reason": stop}}
    return {"id": 1, "prompt": {"text": "", "tokens": []}, "completions": [completion]}


# --- Writers by service ---------------------------------------------------------------------------


def _body_of(piece: _Piece) -> _Body:
    """Return a writer of bodies: the whole text, and the reason."""
    return lambda response, stop: piece(response, response.text, stop)


class _Service(NamedTuple):
    """A service's writers of a body and of a stream's events; None if it does not stream."""

    body: _Body
    events: _Events | None


_OPENAI: Final = _Service(_openai_body, _openai_events)
_SERVICES: Final[Mapping[str, _Service]] = {
    "tgi": _Service(_tgi_body, _tgi_events),
    "llamacpp": _Service(_llamacpp_body, _llamacpp_events),
    "sglang": _Service(_body_of(_sglang), _sglang_events),
    "watsonx": _Service(_body_of(_watsonx), _stream_of(_watsonx_event)),
    "alephalpha": _Service(_alephalpha_body, _alephalpha_events),
    "titan": _Service(_titan_body, _stream_of(_titan_event)),
    "llama": _Service(_body_of(_llama), _stream_of(_llama)),
    "mistral": _Service(_body_of(_mistral), _stream_of(_mistral)),
    "command": _Service(_command_body, _stream_of(_command_event)),
    "claude_text": _Service(_body_of(_claude_text), _stream_of(_claude_text)),
    "ai21": _Service(_ai21_body, None),
}
"""dialect → how its service writes; any other writes as OpenAI does."""
