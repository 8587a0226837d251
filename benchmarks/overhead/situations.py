"""The calls that are measured: the real `openai` SDK against a mock transport that answers at once."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

import openai

MODEL: Final = "gpt-5-mini"
ANSWERING_MODEL: Final = f"{MODEL}-2026-08-07"
URL: Final = "https://api.openai.com/v1/chat/completions"
OTHER_URL: Final = "https://api.example.com/v1/things"
OK: Final = 200

http_library: Final[Any] = importlib.import_module("httpx2" if int(openai.__version__.split(".")[0]) >= 3 else "httpx")
"""The HTTP library that the SDK sends through: openai 3 brings httpx2, and no httpx."""

Call = Callable[[int], object]
"""Makes one call, given a number that no other call has."""

Route = Literal["sdk", "http", "http to another host", "none"]
"""How a request is sent: by the SDK; by its HTTP client alone; or not at all, and the body is only parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One kind of call.

    Attributes:
        calls: calls in one block.
        warm_up: calls of each variant before its first block.
        finish_reason: why the model stops.
        stream_events: text events of a streamed answer, each in a chunk of its own; 0: the answer is not streamed.
        request_messages: messages of the request, 1 KB each but for the first.
        status: status of the response.
        body: body of the response, in place of an answer.
        route: how the request is sent.
    """

    calls: int = 25
    warm_up: int = 100
    finish_reason: str = "stop"
    stream_events: int = 0
    request_messages: int = 1
    status: int = OK
    body: bytes | None = None
    route: Route = "sdk"

    @property
    def asks_model(self) -> bool:
        """Whether there is anything to record."""
        return self.route in ("sdk", "http")


def _many_tool_calls(count: int) -> bytes:
    """An answer of that many parallel tool calls, some 100 bytes each."""
    calls = [
        {"id": f"call_{number:06d}", "type": "function", "function": {"name": "look_up", "arguments": '{"key": 1}'}}
        for number in range(count)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return _answer(_choice("message", "tool_calls", message))


def _choice(member: str, finish_reason: str | None, message: object) -> dict[str, Any]:
    return {"index": 0, "finish_reason": finish_reason, member: message}


def _answer(choice: dict[str, Any], kind: str = "chat.completion") -> bytes:
    usage = {"prompt_tokens": 25, "completion_tokens": 180, "total_tokens": 205}
    head = {"id": "chatcmpl-1", "created": 1, "model": ANSWERING_MODEL, "object": kind}
    return json.dumps({**head, "choices": [choice], "usage": usage if choice["finish_reason"] else None}).encode()


HTML_PAGE: Final = (
    b"<html>\r\n<head><title>503 Service Temporarily Unavailable</title></head>\r\n<body>\r\n<center>"
    b"<h1>503 Service Temporarily Unavailable</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n"
)
JSON_ERROR: Final = json.dumps(
    {"error": {"message": "The server is overloaded.", "type": "server_error", "param": None, "code": None}}
).encode()
TOOL_CALLS: Final = 10_000
LARGE_ANSWER: Final = _many_tool_calls(TOOL_CALLS)
SHORT_STREAM, LONG_STREAM = 100, 400

SITUATIONS: Final = {
    "answer": Situation(),
    # As many truncated turns wait for a continuation as may wait: each call ends the oldest.
    "truncated answer": Situation(finish_reason="length", warm_up=1_100),
    "short stream": Situation(calls=2, warm_up=6, stream_events=SHORT_STREAM),
    "long stream": Situation(calls=2, warm_up=6, stream_events=LONG_STREAM),
    "large request": Situation(calls=3, warm_up=6, request_messages=201),
    "empty error": Situation(status=503, body=b""),
    "HTML error": Situation(status=503, body=HTML_PAGE),
    "{} error": Situation(status=503, body=b"{}"),
    "JSON error": Situation(status=503, body=JSON_ERROR),
    "other host": Situation(calls=50, route="http to another host"),
    "large answer": Situation(calls=1, warm_up=1, body=LARGE_ANSWER, route="http"),
    "parsing a large answer": Situation(calls=1, warm_up=1, body=LARGE_ANSWER, route="none"),
}


def answer_body(situation: Situation) -> bytes:
    """The body of a response that is not streamed."""
    if situation.body is not None:
        return situation.body
    return _answer(_choice("message", situation.finish_reason, {"role": "assistant", "content": "word " * 180}))


def stream_chunks(situation: Situation) -> list[bytes]:
    """The chunks of a streamed response: one event each."""
    kind = "chat.completion.chunk"
    text = _answer(_choice("delta", None, {"content": "word "}), kind)
    end = _answer(_choice("delta", situation.finish_reason, {}), kind)
    return [b"data: " + data + b"\n\n" for data in [*[text] * situation.stream_events, end, b"[DONE]"]]


def request_options(situation: Situation, number: int) -> dict[str, Any]:
    """The keywords of `chat.completions.create`. No two prompts are alike."""
    texts = [f"Say something, {number}.", *["word " * 200] * (situation.request_messages - 1)]
    messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
    return {
        "model": MODEL,
        "messages": messages,
        "max_tokens": 1000,
        "temperature": 0.2,
        "stream": situation.stream_events > 0,
    }


def make_call(situation: Situation) -> Call:
    """Return the function that makes one call of this kind."""
    body, chunks = answer_body(situation), stream_chunks(situation)

    def send_chunks() -> Iterator[bytes]:
        yield from chunks

    def respond(request: object) -> Any:
        if situation.stream_events:
            headers = {"content-type": "text/event-stream"}
            return http_library.Response(OK, headers=headers, content=send_chunks())
        kind = "text/html" if body.startswith(b"<") else "application/json"
        return http_library.Response(situation.status, headers={"content-type": kind}, content=body)

    http_client: Any = openai.DefaultHttpxClient(transport=http_library.MockTransport(respond))
    client = openai.OpenAI(api_key="none", max_retries=0, http_client=http_client)

    def call_sdk(number: int) -> object:
        return client.chat.completions.create(**request_options(situation, number))

    def read_stream(number: int) -> object:
        stream: Any = client.chat.completions.create(**request_options(situation, number))
        return sum(1 for _ in stream)

    def call_and_fail(number: int) -> object:
        try:
            return client.chat.completions.create(**request_options(situation, number))
        except openai.InternalServerError:
            return None

    match situation.route:
        case "none":
            return lambda number: json.loads(body)
        case "http to another host":
            return lambda number: http_client.post(OTHER_URL, content=b"{}")
        case "http":
            return lambda number: http_client.post(URL, json=request_options(situation, number))
    if situation.stream_events:
        return read_stream
    return call_sdk if situation.status == OK else call_and_fail
