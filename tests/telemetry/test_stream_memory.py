"""Of a stream nothing that endturn keeps grows with its length."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

import endturn
from tests.telemetry.stage import Stage

CHUNKS = 100_000


def events() -> Iterator[bytes]:
    """A long answer, made as it is read."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-5"}
    word = {"choices": [{"index": 0, "delta": {"content": "word "}, "finish_reason": None}]}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    spoken = b"data: " + json.dumps(head | word).encode() + b"\n\n"
    for _ in range(CHUNKS // 100):
        yield spoken * 100
    yield b"data: " + json.dumps(head | stop).encode() + b"\n\ndata: [DONE]\n\n"


def test_a_hundred_thousand_chunks_are_not_held() -> None:
    """Objects that are alive do not grow in number, and no chunk is among them but the one that the host has."""
    stage = Stage()

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events())

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    endturn.instrument(tracer_provider=stage.tracers, meter_provider=stage.meters, logger_provider=stage.loggers)
    try:
        client = openai.OpenAI(api_key="none", max_retries=0, http_client=http)
        messages: Any = [{"role": "user", "content": "Say something long."}]
        stream = client.chat.completions.create(model="gpt-5", messages=messages, stream=True)
        alive, held = [], []
        for number, _ in enumerate(stream):
            if number in (1_000, CHUNKS - 1_000):
                gc.collect()
                known = gc.get_objects()
                alive.append(len(known))
                held.append(sum(type(each) is ChatCompletionChunk for each in known))
                del known
    finally:
        endturn.uninstrument()
    assert max(held) == 1
    assert alive[1] - alive[0] < 500
    (span,) = stage.spans.get_finished_spans()
    assert span.attributes is not None
    assert span.attributes["endturn.stop.reason"] == "end_turn"
