"""The real SDKs over a transport that answers from a list: bodies as iterators, so that laziness and closing show."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import anthropic
import httpx2
import openai
from opentelemetry import trace

from endturn.formats import Event
from endturn.formats.framing import frame
from endturn.telemetry.foreign_spans import AdoptedSpan
from tests.formats.replies import DONE_EVENT, chat_body, chunk, usage_chunk
from tests.support.announced import Records as Records, settle as settle

T = TypeVar("T")
ASK: dict[str, Any] = {"model": "gpt-5.6-mini", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = chat_body({"content": "Hello there."})
CUT = chat_body({"content": "Hello the"}, "length")
CHUNKS = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": f"w{i} "}) for i in range(5))]
STREAM = [*CHUNKS, chunk({}, "stop"), usage_chunk(), DONE_EVENT]
CUT_STREAM = [*CHUNKS, chunk({}, "length"), usage_chunk(), DONE_EVENT]


def adopting() -> AdoptedSpan:
    """The current span as that of a call."""
    span: Any = trace.get_current_span()
    return AdoptedSpan(span, (span.instrumentation_scope.name,), span.get_span_context().span_id)


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that arrives piece by piece."""

    def __init__(self, pieces: Sequence[bytes], error: BaseException | None = None) -> None:
        self.pieces = pieces
        self.error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def events(*made: Event, error: BaseException | None = None) -> httpx2.Response:
    """A stream of these events; `error` is what the transport raises where its end should be."""
    body = Body([frame(event) for event in made], error)
    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=body)


def body(content: Any, status: int = 200, **headers: str) -> httpx2.Response:
    """A JSON body."""
    data = json.dumps(content).encode()
    return httpx2.Response(status, headers={"content-type": "application/json", **headers}, stream=Body([data]))


def answered(kind: Callable[..., T], *replies: httpx2.Response | Exception, **options: Any) -> T:
    """A client of an SDK's that gets these replies, in order."""
    left = list(replies)  # given away, and not kept: whoever drops an answer drops the last of it

    def answer(request: httpx2.Request) -> httpx2.Response:
        reply = left.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    http: Any = httpx2.AsyncClient if kind.__name__.startswith("Async") else httpx2.Client
    http = http(transport=httpx2.MockTransport(answer))
    return kind(**{"api_key": "none", "max_retries": 0, "http_client": http, **options})


chat, achat = partial(answered, openai.OpenAI), partial(answered, openai.AsyncOpenAI)
claude, aclaude = partial(answered, anthropic.Anthropic), partial(answered, anthropic.AsyncAnthropic)
