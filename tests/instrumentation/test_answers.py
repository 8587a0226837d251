"""Answers byte by byte: what is recorded of a request by plain httpx, however it is answered and read."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from endturn.events import CallEnded
from endturn.instrumentation import background_responses
from endturn.stop import StopReason
from endturn.telemetry import attributes
from tests.instrumentation.clients import ASK
from tests.instrumentation.test_exchanges import seen
from tests.support.announced import Records, settle

__all__ = ["seen"]

GIVEN: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("answers.yaml").read_text())
ROWS, FOREIGN = GIVEN["rows"], GIVEN["foreign"]
URL = "http://vllm.internal/v1/chat/completions"


def deflated(data: bytes) -> bytes:
    """As some servers send `deflate`: without zlib's header."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "gzip": gzip.compress,
    "deflate": deflated,
    "deflate, gzip": lambda data: gzip.compress(zlib.compress(data)),
}


class Body(httpx.SyncByteStream):
    """Pieces, and perhaps no end."""

    def __init__(self, pieces: list[bytes], *, lost: bool) -> None:
        self.pieces, self.lost = pieces, lost

    def __iter__(self) -> Iterator[bytes]:
        yield from self.pieces
        if self.lost:
            raise httpx.ReadError("gone")


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def answer_of(step: dict[str, Any]) -> httpx.Response:
    kind = "application/json"
    match step:
        case {"events": events}:
            pieces = [f"data: {text_of(each)}\n\n".encode() for each in events]
            kind = "text/event-stream"
        case {"lines": lines}:
            pieces = [f"{text_of(each)}\n".encode() for each in lines]
        case {"pieces": [*given]}:
            pieces = [each if isinstance(each, bytes) else each.encode() for each in given]
        case _:
            pieces = [text_of(step["gives"]).encode()]
    if "size" in step or "short" in step:
        data = PACKS[step.get("encoding", "")](b"".join(pieces))
        data = data[: len(data) - step.get("short", 0)]
        pieces = [data[at : at + step.get("size", 10**6)] for at in range(0, len(data), step.get("size", 10**6))]
    headers = {"content-type": step.get("type", kind), "content-encoding": step.get("encoding", "")}
    headers = {name: value for name, value in headers.items() if value}
    return httpx.Response(step.get("status", 200), headers=headers, stream=Body(pieces, lost=step.get("lost", False)))


def ask(step: dict[str, Any]) -> None:
    """Send the request, and read what comes."""
    body = step["text"].encode() if "text" in step else json.dumps(step.get("json", ASK)).encode()
    method, url = ("GET", step["get"]) if "get" in step else ("POST", step.get("post", URL))
    client = httpx.Client(transport=httpx.MockTransport(lambda request: answer_of(step)))
    with suppress(httpx.ReadError), client.stream(method, url, content=body if method == "POST" else None) as response:
        for number, _ in enumerate(response.iter_raw(), 1):
            if number == step.get("reads"):
                break


def told(ended: CallEnded, names: Any) -> dict[str, Any]:
    shown = {
        "error": attributes.error_type(ended.error),
        "tokens": ended.usage and ended.usage.output_tokens,
        "request": ended.started.model,
    }
    return {
        name: shown[name] if name in shown else getattr(ended.stop, name, getattr(ended, name, None)) for name in names
    }


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("name", ROWS)
def test_an_answer(seen: Records, name: str) -> None:
    """As answers.yaml says of it."""
    for step in ROWS[name]:
        ask(step)
        settle()
        assert len(seen.ended) == step.get("calls", len(step.get("ends", ())))
        if "ends" in step:
            assert [told(*each) for each in zip(seen.ended, step["ends"], strict=True)] == step["ends"]
    assert len(seen.started) == len(seen.ended)
    assert not background_responses.are_pending()


@pytest.mark.parametrize("path", ["/api/chat", "/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize(("kind", "content"), FOREIGN)
def test_an_answer_of_another_format(seen: Records, path: str, kind: str, content: str) -> None:
    """At a host that is no provider's it is no answer of a model, though all looks like one; at home it is unknown."""
    body = {"model": "m", "messages": [], "input": "?", "max_tokens": 5, "stream": True}
    answer = {"status": 200 if content else 204, "type": kind, "gives": content}
    ask({"post": f"https://app.example.org{path}", "json": body, **answer})
    assert seen.reasons() == []
    if path == "/v1/chat/completions" and kind == "text/plain" and content:
        ask({"post": f"https://api.openai.com{path}", **answer})
        assert seen.reasons() == [StopReason.UNKNOWN]
