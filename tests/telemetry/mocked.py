"""The real SDKs over a transport that answers from a list: bodies as iterators, so that laziness and closing show."""

from __future__ import annotations

import gc
import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

import anthropic
import httpx2
import openai
from opentelemetry import trace

from endturn.events import CallEnded, CallStarted, ContinuationAttempted, Record, TurnEnded
from endturn.formats import Event
from endturn.formats.framing import frame
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from endturn.telemetry.foreign_spans import AdoptedSpan
from tests.formats.replies import DONE_EVENT, chat_body, chunk, usage_chunk

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


def settle() -> None:
    """Have what was dropped noticed."""
    gc.collect()
    cleanup.run()


class Body(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that arrives piece by piece."""

    def __init__(self, pieces: Sequence[bytes], error: Exception | None = None) -> None:
        self.pieces = pieces
        self.error = error

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.error is not None:
            raise self.error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


def events(*made: Event, error: Exception | None = None) -> httpx2.Response:
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

    async def aanswer(request: httpx2.Request) -> httpx2.Response:
        return answer(request)

    is_async = kind.__name__.startswith("Async")
    transport = httpx2.MockTransport(aanswer if is_async else answer)
    http = httpx2.AsyncClient(transport=transport) if is_async else httpx2.Client(transport=transport)
    return kind(**{"api_key": "none", "max_retries": 0, "http_client": http, **options})


chat, achat = partial(answered, openai.OpenAI), partial(answered, openai.AsyncOpenAI)
claude, aclaude = partial(answered, anthropic.Anthropic), partial(answered, anthropic.AsyncAnthropic)


class Records(list[Record]):
    """What was announced."""

    @property
    def started(self) -> list[CallStarted]:
        return [record for record in self if isinstance(record, CallStarted)]

    @property
    def ended(self) -> list[CallEnded]:
        return [record for record in self if isinstance(record, CallEnded)]

    @property
    def turns(self) -> list[TurnEnded]:
        return [record for record in self if isinstance(record, TurnEnded)]

    @property
    def attempts(self) -> list[ContinuationAttempted]:
        return [record for record in self if isinstance(record, ContinuationAttempted)]

    def reasons(self) -> list[StopReason]:
        """Of the calls that have ended."""
        return [ended.stop.reason for ended in self.ended]

    def told(self) -> list[str]:
        """Of the turns that have ended: the agent, how many calls, the outcome."""
        return [f"{ended.turn.agent} {ended.turn.iterations} {ended.outcome}" for ended in self.turns]

    def only(self) -> CallEnded:
        """The one call that was announced, started and ended once."""
        assert len(self.started) == 1, self.started
        assert len(self.ended) == 1, self.ended
        assert self.ended[0].started is self.started[0]
        return self.ended[0]
