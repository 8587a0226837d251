"""What is recorded of a request by plain httpx, however the server answers and the application reads."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import httpx
import pytest

from endturn.calls.outcomes import STOPPED_BY_PERSON, TurnOutcome
from endturn.calls.records import CallEnded
from endturn.instrumentation import background_responses
from endturn.telemetry import attributes
from endturn.vocabulary.stop import StopReason
from tests.instrumentation.clients import ASK
from tests.instrumentation.test_exchanges import seen
from tests.support.announced import Records, settle

__all__ = ["seen"]

# --- Exchanges --------------------------------------------------------------------------------


class Body(NamedTuple):
    """The body of a response as the server writes it, and its usual content type."""

    chunks: list[bytes]
    content_type: str = "application/json"


def as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def whole(value: Any) -> Body:
    """Return a body in one chunk: text, or a value as JSON."""
    return Body([as_text(value).encode()])


def events(*values: Any) -> Body:
    """Return a body of server-sent events."""
    return Body([f"data: {as_text(value)}\n\n".encode() for value in values], "text/event-stream")


def lines(*values: Any) -> Body:
    """Return a body of JSON lines."""
    return Body([f"{as_text(value)}\n".encode() for value in values])


def chunks(*values: bytes) -> Body:
    """Return a body of these bytes."""
    return Body([*values])


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request, its response, and the calls that have ended by then in the whole case.

    Attributes:
        request: the body: text, or a value as JSON.
        content_type: of the response; None is the usual one of its body.
        encoding: content encoding of the response.
        chunk_size: bytes in a chunk; None leaves the chunks as they are.
        missing_bytes: bytes that are missing at the end.
        is_lost: the connection fails in place of the end.
        chunks_read: after so many chunks the application stops reading; None reads them all.
        ended_calls: how many calls have ended, if nothing more is expected of them.
        expected: fields of each call that has ended, as `fields_of` names them.
    """

    method: str = "POST"
    url: str = "http://vllm.internal/v1/chat/completions"
    request: Any = None
    status: int = 200
    content_type: str | None = None
    response: Body
    encoding: str = ""
    chunk_size: int | None = None
    missing_bytes: int = 0
    is_lost: bool = False
    chunks_read: int | None = None
    ended_calls: int | None = None
    expected: Sequence[dict[str, Any]] | None = None


def deflate(data: bytes) -> bytes:
    """Compress without zlib's header, as some servers do."""
    compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": gzip.compress,
    "deflate": deflate,
    "deflate, gzip": lambda data: gzip.compress(zlib.compress(data)),
}


class ResponseStream(httpx.SyncByteStream):
    """Chunks of a response; the connection may fail at their end."""

    def __init__(self, chunks: list[bytes], *, is_lost: bool) -> None:
        self.chunks, self.is_lost = chunks, is_lost

    def __iter__(self) -> Iterator[bytes]:
        yield from self.chunks
        if self.is_lost:
            raise httpx.ReadError("gone")


def http_response(exchange: Exchange) -> httpx.Response:
    written = exchange.response.chunks
    if exchange.chunk_size is not None:
        data = COMPRESS.get(exchange.encoding, bytes)(b"".join(written))
        data = data[: len(data) - exchange.missing_bytes]
        size = exchange.chunk_size
        written = [data[start : start + size] for start in range(0, len(data), size)]
    content_type = exchange.content_type
    if content_type is None:
        content_type = exchange.response.content_type
    headers = {"content-type": content_type, "content-encoding": exchange.encoding}
    return httpx.Response(
        exchange.status,
        headers={name: value for name, value in headers.items() if value},
        stream=ResponseStream(written, is_lost=exchange.is_lost),
    )


def request_body(exchange: Exchange) -> bytes | None:
    if exchange.method != "POST":
        return None
    return as_text(ASK if exchange.request is None else exchange.request).encode()


def send(exchange: Exchange) -> None:
    """Send the request, and read the response as far as the application does."""
    client = httpx.Client(transport=httpx.MockTransport(lambda request: http_response(exchange)))
    content = request_body(exchange)
    with (
        suppress(httpx.ReadError),
        client.stream(exchange.method, exchange.url, content=content) as response,
    ):
        for number, _ in enumerate(response.iter_raw(), 1):
            if number == exchange.chunks_read:
                break


def fields_of(ended: CallEnded, names: Sequence[str]) -> dict[str, Any]:
    """Return fields of a call: of its stop, of itself, and these three."""
    others = {
        "error": attributes.error_type(ended.error),
        "tokens": ended.response.usage and ended.response.usage.output_tokens,
        "request": ended.started.request.model,
    }
    return {
        name: others[name] if name in others else getattr(ended.stop, name, getattr(ended, name, None))
        for name in names
    }


# --- Requests and responses -------------------------------------------------------------------

STREAMED: Final[dict[str, Any]] = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
}
CHAT_URL = "https://api.openai.com/v1/chat/completions"
CHUNK: Final[dict[str, Any]] = {
    "id": "1",
    "model": "m",
    "choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}, "finish_reason": None}],
}
TRUNCATED_CHUNK: Final[dict[str, Any]] = {
    "id": "1",
    "model": "m",
    "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}],
}
BACKGROUND: Final[dict[str, Any]] = {"model": "m", "input": "hi", "background": True}
STREAMED_BACKGROUND: Final[dict[str, Any]] = {
    "model": "m",
    "input": "hi",
    "background": True,
    "stream": True,
}
QUEUED: Final[dict[str, Any]] = {
    "id": "r1",
    "object": "response",
    "status": "queued",
    "model": "m",
    "background": True,
    "output": [],
}
IN_PROGRESS: Final[dict[str, Any]] = {
    "id": "r1",
    "object": "response",
    "status": "in_progress",
    "model": "m",
    "background": True,
    "output": [],
}
INCOMPLETE: Final[dict[str, Any]] = {
    "id": "r1",
    "object": "response",
    "status": "incomplete",
    "incomplete_details": {"reason": "max_output_tokens"},
    "model": "m",
    "background": True,
    "output": [],
    "usage": {"input_tokens": 31, "output_tokens": 17},
}
CREATED_EVENT: Final[dict[str, Any]] = {"type": "response.created", "response": IN_PROGRESS}
DELTA_EVENT: Final[dict[str, Any]] = {
    "type": "response.output_text.delta",
    "output_index": 0,
    "content_index": 0,
    "item_id": "i",
    "delta": "w0 ",
}
INCOMPLETE_EVENT: Final[dict[str, Any]] = {"type": "response.incomplete", "response": INCOMPLETE}
RESPONSES_URL = "https://api.openai.com/v1/responses"
RESPONSE_URL = "https://api.openai.com/v1/responses/r1"
MESSAGES: Final[dict[str, Any]] = {
    "model": "c",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
}
MESSAGE_START: Final[dict[str, Any]] = {
    "type": "message_start",
    "message": {
        "id": "a",
        "type": "message",
        "role": "assistant",
        "model": "c",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}
BLOCK_START: Final[dict[str, Any]] = {
    "type": "content_block_start",
    "index": 0,
    "content_block": {"type": "text", "text": ""},
}
TEXT_DELTA: Final[dict[str, Any]] = {
    "type": "content_block_delta",
    "index": 0,
    "delta": {"type": "text_delta", "text": "w0"},
}
MESSAGE_DELTA: Final[dict[str, Any]] = {
    "type": "message_delta",
    "delta": {"stop_reason": "max_tokens"},
    "usage": {"output_tokens": 5},
}
MESSAGES_URL = "https://api.anthropic.com/v1/messages"
INTERACTION: Final[dict[str, Any]] = {
    "id": "v1_a",
    "object": "interaction",
    "status": "queued",
    "model": "m",
    "steps": [],
}
INTERACTION_URL = "https://generativelanguage.googleapis.com/v1beta/interactions/v1_a"
RANDOM_BYTES: Final = bytes(range(0x80, 0xB0))
"""Bytes that no decoder accepts."""

CASES: Final[dict[str, list[Exchange]]] = {
    # --- Requests ---
    "an empty request": [Exchange(request="", response=whole("fine"), expected=[])],
    "a request that is no JSON": [Exchange(request="no JSON", response=whole("fine"), expected=[])],
    "a request that is no object": [Exchange(request="[1]", response=whole("fine"), expected=[])],
    "a request of another API": [Exchange(request={"q": 1}, response=whole("fine"), expected=[])],
    # Nothing is known of the request, but the provider rejected it.
    "a rejected request that is no JSON": [
        Exchange(
            url=CHAT_URL,
            request="{",
            status=400,
            response=whole({"error": {"message": "could not parse", "type": "invalid_request_error"}}),
            expected=[{"reason": "error", "error": "400", "request": ""}],
        )
    ],
    "a rejected empty request": [
        Exchange(
            url=CHAT_URL,
            request="",
            status=400,
            response=whole({}),
            expected=[{"reason": "error", "error": "400", "request": ""}],
        )
    ],
    # --- Choices and aborts ---
    "several choices, one truncated": [
        Exchange(
            request={"model": "m", "n": 3, "messages": []},
            response=whole(
                {
                    "id": "1",
                    "model": "m",
                    "choices": [
                        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
                        {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
                        {"index": 2, "message": {"content": "c"}, "finish_reason": None},
                    ],
                }
            ),
            expected=[{"reason": "end_turn", "truncated_choices": 2}],
        )
    ],
    "two choices where one was requested": [
        Exchange(
            response=whole(
                {
                    "id": "1",
                    "model": "m",
                    "choices": [
                        {"index": 0, "message": {"content": "a"}, "finish_reason": "stop"},
                        {"index": 1, "message": {"content": "b"}, "finish_reason": "length"},
                    ],
                }
            ),
            expected=[{"reason": "max_tokens", "truncated_choices": 0}],
        )
    ],
    # vLLM and SGLang report an abort of the engine and of the client alike: who read on decides.
    "an engine's abort": [
        Exchange(
            request={"model": "m", "messages": [], "stream": True},
            response=events(
                {
                    "id": "1",
                    "model": "m",
                    "choices": [{"index": 0, "delta": {"content": "Par"}, "finish_reason": None}],
                },
                {
                    "id": "1",
                    "model": "m",
                    "choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}],
                },
                "[DONE]",
            ),
            expected=[{"reason": "error", "incomplete": True, "raw": "abort"}],
        )
    ],
    "a client that leaves": [
        Exchange(
            request={"model": "m", "messages": [], "stream": True},
            response=events(
                {
                    "id": "1",
                    "model": "m",
                    "choices": [{"index": 0, "delta": {"content": "Par"}, "finish_reason": None}],
                },
                {
                    "id": "1",
                    "model": "m",
                    "choices": [{"index": 0, "delta": {}, "finish_reason": "abort"}],
                },
                "[DONE]",
            ),
            chunks_read=1,
            expected=[{"reason": "cancelled", "raw": None}],
        )
    ],
    # --- Bodies and content types ---
    "half a response": [Exchange(response=whole('{"id": "1", "choices": [{"mess'), expected=[{"reason": "missing"}])],
    "a byte order mark": [
        Exchange(
            response=whole('\ufeff{"choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}]}'),
            expected=[{"reason": "end_turn"}],
        )
    ],
    # Some servers and proxies send this content type.
    "a stream with the content type of JSON": [
        Exchange(
            request=STREAMED,
            content_type="application/json",
            response=events(CHUNK, TRUNCATED_CHUNK, "[DONE]"),
            expected=[{"reason": "max_tokens", "raw": "length"}],
        )
    ],
    # Without `alt=sse` a stream is one JSON array, whose items are its events.
    "Gemini's stream as a JSON array": [
        Exchange(
            url="https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:streamGenerateContent",
            request={"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
            response=whole(
                [
                    {
                        "candidates": [{"content": {"parts": [{"text": "One "}], "role": "model"}}],
                        "modelVersion": "gemini-3-pro",
                    },
                    {
                        "candidates": [
                            {
                                "content": {"parts": [{"text": "two"}], "role": "model"},
                                "finishReason": "MAX_TOKENS",
                            }
                        ]
                    },
                ]
            ),
            chunk_size=50,
            expected=[{"reason": "max_tokens", "output_chars": 7}],
        ),
        Exchange(
            url="https://generativelanguage.googleapis.com/v1beta/models/gemini-3-pro:streamGenerateContent",
            request={"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
            response=whole(
                [
                    {
                        "candidates": [{"content": {"parts": [{"text": "One "}], "role": "model"}}],
                        "modelVersion": "gemini-3-pro",
                    },
                    {
                        "candidates": [
                            {
                                "content": {"parts": [{"text": "two"}], "role": "model"},
                                "finishReason": "MAX_TOKENS",
                            }
                        ]
                    },
                ]
            ),
            chunk_size=50,
            missing_bytes=99,
            expected=[{"reason": "max_tokens"}, {"reason": "missing"}],
        ),
    ],
    # With Cohere's own content type, and with none, as a proxy leaves it.
    "JSON lines of Cohere's v1 API": [
        Exchange(
            url="https://api.cohere.com/v1/chat",
            request={"message": "hi", "stream": True},
            content_type="application/stream+json",
            response=lines(
                {"event_type": "stream-start", "is_finished": False, "generation_id": "g"},
                {"event_type": "stream-end", "is_finished": True, "finish_reason": "ERROR_LIMIT"},
            ),
            expected=[{"reason": "context_window_exceeded"}],
        ),
        Exchange(
            url="https://api.cohere.com/v1/chat",
            request={"message": "hi", "stream": True},
            content_type="",
            response=lines(
                {"event_type": "stream-start", "is_finished": False, "generation_id": "g"},
                {"event_type": "stream-end", "is_finished": True, "finish_reason": "ERROR_LIMIT"},
            ),
            expected=[{"reason": "context_window_exceeded"}, {"reason": "context_window_exceeded"}],
        ),
    ],
    # --- Content encodings ---
    "a gzip stream": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, TRUNCATED_CHUNK),
            encoding="gzip",
            chunk_size=40,
            expected=[{"reason": "max_tokens"}],
        )
    ],
    "a deflate stream": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, TRUNCATED_CHUNK),
            encoding="deflate",
            chunk_size=40,
            expected=[{"reason": "max_tokens"}],
        )
    ],
    "a stream compressed twice": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, TRUNCATED_CHUNK),
            encoding="deflate, gzip",
            chunk_size=40,
            expected=[{"reason": "max_tokens"}],
        )
    ],
    "a truncated gzip stream": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, CHUNK),
            encoding="gzip",
            chunk_size=40,
            missing_bytes=12,
            expected=[{"reason": "missing"}],
        )
    ],
    "a truncated deflate stream": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, CHUNK),
            encoding="deflate",
            chunk_size=40,
            missing_bytes=12,
            expected=[{"reason": "missing"}],
        )
    ],
    "a truncated stream compressed twice": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            response=events(CHUNK, CHUNK),
            encoding="deflate, gzip",
            chunk_size=40,
            missing_bytes=12,
            expected=[{"reason": "missing"}],
        )
    ],
    # An unreadable body is not truncated.
    "a body in an unsupported encoding": [
        Exchange(
            url=CHAT_URL,
            response=chunks(RANDOM_BYTES),
            encoding="br",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    "a stream in an unsupported encoding": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            content_type="text/event-stream",
            response=chunks(RANDOM_BYTES),
            encoding="br",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    "a body that is no gzip": [
        Exchange(
            url=CHAT_URL,
            response=chunks(RANDOM_BYTES),
            encoding="gzip",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    "a stream that is no gzip": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            content_type="text/event-stream",
            response=chunks(RANDOM_BYTES),
            encoding="gzip",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    "a body that is not deflated": [
        Exchange(
            url=CHAT_URL,
            response=chunks(RANDOM_BYTES),
            encoding="deflate",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    "a stream that is not deflated": [
        Exchange(
            url=CHAT_URL,
            request=STREAMED,
            content_type="text/event-stream",
            response=chunks(RANDOM_BYTES),
            encoding="deflate",
            expected=[{"reason": "unknown", "detail": "unreadable"}],
        )
    ],
    # --- Ends of streams ---
    # Applications stop reading at the event that has the reason: it counts.
    "a stream left after its stop reason": [
        Exchange(
            url=MESSAGES_URL,
            request=MESSAGES,
            response=events(MESSAGE_START, BLOCK_START, TEXT_DELTA, MESSAGE_DELTA, {"type": "message_stop"}),
            chunks_read=4,
            expected=[{"reason": "max_tokens", "truncated": True}],
        )
    ],
    # The response was truncated, whatever happened to the stream afterwards.
    "a stream lost after its stop reason": [
        Exchange(
            request=STREAMED,
            response=events(CHUNK, TRUNCATED_CHUNK),
            is_lost=True,
            expected=[{"reason": "max_tokens", "detail": "ReadError"}],
        )
    ],
    "an error after the stop reason": [
        Exchange(
            url=MESSAGES_URL,
            request=MESSAGES,
            response=events(
                MESSAGE_START,
                BLOCK_START,
                TEXT_DELTA,
                MESSAGE_DELTA,
                {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            ),
            expected=[{"reason": "max_tokens", "detail": "Overloaded"}],
        )
    ],
    # A stream of Anthropic's ends with `message_stop`, if it is read to its end.
    "a stream without its last event": [
        Exchange(
            url=MESSAGES_URL,
            request=MESSAGES,
            response=events(MESSAGE_START, BLOCK_START, TEXT_DELTA, MESSAGE_DELTA),
            expected=[{"reason": "missing"}],
        )
    ],
    "a stream lost before its last event": [
        Exchange(
            url=MESSAGES_URL,
            request=MESSAGES,
            response=events(MESSAGE_START, BLOCK_START, TEXT_DELTA, MESSAGE_DELTA),
            is_lost=True,
            expected=[{"reason": "missing"}],
        )
    ],
    # Nothing after `[DONE]` belongs to the response, nor does a failure there.
    "a stream without a stop reason": [
        Exchange(
            request=STREAMED,
            response=events(CHUNK, "[DONE]"),
            expected=[{"reason": "missing", "error": None}],
        )
    ],
    "a stream without a stop reason, lost after [DONE]": [
        Exchange(
            request=STREAMED,
            response=events(CHUNK, "[DONE]"),
            is_lost=True,
            expected=[{"reason": "missing", "error": None}],
        )
    ],
    # --- Background responses: one call, which ends with the fetch that has the final status ---
    "a background response that is fetched": [
        Exchange(url=RESPONSES_URL, request=BACKGROUND, response=whole(QUEUED), ended_calls=0),
        Exchange(method="GET", url=RESPONSE_URL, response=whole(IN_PROGRESS), ended_calls=0),
        Exchange(method="GET", url=RESPONSE_URL, response=whole(INCOMPLETE), ended_calls=1),
        Exchange(
            method="GET",
            url=RESPONSE_URL,
            response=whole(INCOMPLETE),
            expected=[{"reason": "max_tokens", "raw": "incomplete:max_output_tokens", "tokens": 17}],
        ),
    ],
    "a background response that is complete at once": [
        Exchange(
            url=RESPONSES_URL,
            request=BACKGROUND,
            response=whole(INCOMPLETE),
            expected=[{"reason": "max_tokens", "tokens": 17}],
        )
    ],
    "a background response that is streamed": [
        Exchange(
            url=RESPONSES_URL,
            request=STREAMED_BACKGROUND,
            response=events(CREATED_EVENT, DELTA_EVENT, INCOMPLETE_EVENT),
            expected=[{"reason": "max_tokens", "tokens": 17}],
        )
    ],
    # Leaving the stream does not end the response. The resumed stream has its end.
    "a background stream that is resumed": [
        Exchange(
            url=RESPONSES_URL,
            request=STREAMED_BACKGROUND,
            response=events(CREATED_EVENT, DELTA_EVENT, INCOMPLETE_EVENT),
            chunks_read=1,
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url="https://api.openai.com/v1/responses/r1?stream=true&starting_after=1",
            response=events(DELTA_EVENT, INCOMPLETE_EVENT),
            expected=[{"reason": "max_tokens", "tokens": 17}],
        ),
    ],
    # A fetch that fails, is lost, is left or has an error says nothing of the response.
    "failed fetches of a background response": [
        Exchange(url=RESPONSES_URL, request=BACKGROUND, response=whole(QUEUED), ended_calls=0),
        Exchange(
            method="GET",
            url=RESPONSE_URL,
            status=500,
            response=whole({"error": {"message": "overloaded"}}),
            ended_calls=0,
        ),
        Exchange(method="GET", url=RESPONSE_URL, response=chunks(), is_lost=True, ended_calls=0),
        Exchange(
            method="GET",
            url="https://api.openai.com/v1/responses/r1?stream=true",
            response=events(CREATED_EVENT, DELTA_EVENT),
            is_lost=True,
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url="https://api.openai.com/v1/responses/r1?stream=true",
            response=events(CREATED_EVENT, DELTA_EVENT, INCOMPLETE_EVENT),
            chunks_read=1,
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url="https://api.openai.com/v1/responses/r1?stream=true",
            response=events(
                CREATED_EVENT,
                {"type": "error", "code": "server_error", "message": "try again", "param": None},
            ),
            is_lost=True,
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url=RESPONSE_URL,
            response=whole(INCOMPLETE),
            expected=[{"reason": "max_tokens", "tokens": 17}],
        ),
    ],
    "a background response that is cancelled": [
        Exchange(url=RESPONSES_URL, request=BACKGROUND, response=whole(QUEUED), ended_calls=0),
        Exchange(
            url="https://api.openai.com/v1/responses/r1/cancel",
            request="",
            response=whole({**QUEUED, "status": "cancelled"}),
            expected=[{"reason": "cancelled"}],
        ),
    ],
    "a background response of another process": [
        Exchange(method="GET", url=RESPONSE_URL, response=whole(INCOMPLETE), expected=[])
    ],
    "an interaction that is fetched": [
        Exchange(
            url="https://generativelanguage.googleapis.com/v1beta/interactions",
            request=BACKGROUND,
            response=whole(INTERACTION),
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url=INTERACTION_URL,
            response=whole({**INTERACTION, "status": "in_progress"}),
            ended_calls=0,
        ),
        Exchange(
            method="GET",
            url=INTERACTION_URL,
            response=whole({**INTERACTION, "status": "incomplete"}),
            expected=[{"reason": "max_tokens", "raw": "incomplete"}],
        ),
    ],
}


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("name", CASES)
def test_records_each_call_when_it_ends(seen: Records, name: str) -> None:
    for exchange in CASES[name]:
        send(exchange)
        settle()
        expected = exchange.expected
        if expected is not None:
            fields = [fields_of(ended, [*names]) for ended, names in zip(seen.ended, expected, strict=True)]
            assert fields == expected
        else:
            assert len(seen.ended) == (exchange.ended_calls or 0)
    assert len(seen.started) == len(seen.ended)
    assert not background_responses.are_pending()


PATHS: Final = ("/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses")

FOREIGN_RESPONSES = [
    ("text/plain", ""),
    ("text/event-stream", 'data: {"type": "progress"}\n\ndata: [DONE]\n\n'),
    ("application/x-ndjson", '{"step": 1}\n{"step": 2}\n'),
    ("text/plain", "Working on it."),
    ("text/plain", "<html>"),
    ("text/plain", '{"reply": "hello"}'),
    ("application/json", '{"success": true, "data": null}'),
    (
        "application/json",
        '{"output": "hello", "item": 1, "content": 2, "choices": "x", "error": ""}',
    ),
    ("application/json", '"accepted"'),
]
"""Content type and body of responses of other APIs."""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("content_type", "content"), FOREIGN_RESPONSES)
def test_another_api_at_a_model_path_is_no_call(seen: Records, path: str, content_type: str, content: str) -> None:
    """At a provider's own host such a response is an unknown one."""
    request = {"model": "m", "messages": [], "input": "?", "max_tokens": 5, "stream": True}
    body = whole(content)
    status = 200 if content else 204
    send(
        Exchange(
            url=f"https://app.example.org{path}",
            request=request,
            status=status,
            content_type=content_type,
            response=body,
        )
    )
    assert seen.reasons() == []
    if path == "/v1/chat/completions" and content_type == "text/plain" and content:
        url = f"https://api.openai.com{path}"
        send(Exchange(url=url, status=status, content_type=content_type, response=body))
        assert seen.reasons() == [StopReason.UNKNOWN]


EMPTY_RESPONSES = [
    (
        "application/json",
        '{"id": null, "choices": null, "created": null, "model": null, "object": null, "usage": null}',
    ),
    ("application/json", '{"choices": null}'),
    ("application/json", '{"choices": [], "created": 1763700000, "object": "chat.completion"}'),
    ("application/json", '{"content": null, "output": null, "message": null, "choices": null}'),
    ("application/json", '{"content": [], "usage": {}}'),
    ("application/json", "{}"),
    ("application/json", "null"),
    ("application/json", "[]"),
    ("application/json", ""),
    ("text/event-stream", ""),
    ("text/event-stream", "data: [DONE]\n\n"),
]
"""Content type and body of responses of unknown servers with status 200 that have no content.

The first is from a public report of a gateway; the others are like it.
"""


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(("content_type", "content"), EMPTY_RESPONSES)
def test_an_empty_response_has_no_stop_reason(seen: Records, path: str, content_type: str, content: str) -> None:
    """The request was one to a model, so the call is recorded, at any host."""
    is_stream = "event" in content_type
    request = {"model": "m", "messages": [], "input": "?", "max_tokens": 5, "stream": is_stream}
    for host in ("app.example.org", "api.openai.com"):
        url = f"https://{host}{path}"
        send(Exchange(url=url, request=request, content_type=content_type, response=whole(content)))
    assert seen.reasons() == [StopReason.MISSING] * 2
    assert [ended.stop.incomplete for ended in seen.ended] == [True, True]


def test_an_abort_of_the_engine_is_a_failed_turn(seen: Records) -> None:
    """Nobody stopped it on purpose: rates and alerts count it, but not a client that leaves."""
    for name in ("an engine's abort", "a client that leaves"):
        send(CASES[name][0])
        settle()
    assert [(turn.outcome, turn.complete) for turn in seen.turns] == [
        (TurnOutcome.PROVIDER_ERROR, False),
        (TurnOutcome.CANCELLED, False),
    ]
    assert TurnOutcome.PROVIDER_ERROR not in STOPPED_BY_PERSON
