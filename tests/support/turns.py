"""Responses, requests and provider functions for tests of turns: plain lists, played in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, overload

from endturn import hooks
from endturn.chat import ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
from endturn.events import Record
from endturn.formats.reading import arguments as parsed
from endturn.stop import Resume, Stop, StopReason

R = TypeVar("R")
Scripted = ChatResponse | BaseException


def ask(text: str = "hi", **fields: Any) -> Request:
    """A request of one user message, with a maximum of 100 tokens unless said otherwise."""
    return Request(**{"model": "m", "messages": (Message(role="user", content=text),), "max_tokens": 100, **fields})


def said(
    text: str = "",
    reason: StopReason = StopReason.END_TURN,
    *,
    calls: Sequence[ToolCall] = (),
    tokens: int | None = 10,
    **fields: Any,
) -> ChatResponse:
    """A response. Fields of Stop (`suspected`, `resume`, …) go to its stop, the others to itself."""
    told = {name: fields.pop(name) for name in ("suspected", "resume", "detail", "terminal_seen") if name in fields}
    stop = Stop(reason, raw=None if reason is StopReason.MISSING else reason.value, **told)
    usage = None if tokens is None else Usage(5, tokens)
    return ChatResponse(**{"text": text, "tool_calls": tuple(calls), "stop": stop, "usage": usage, **fields})


def cut(text: str = "", **fields: Any) -> ChatResponse:
    """A response that reached its token limit."""
    return said(text, StopReason.MAX_TOKENS, **fields)


def paused(text: str = "", resume: Resume = Resume.RESEND_UNCHANGED, **fields: Any) -> ChatResponse:
    """A response that the provider interrupted."""
    return said(text, StopReason.PAUSED, resume=resume, **fields)


def calling(*calls: ToolCall, text: str = "", **fields: Any) -> ChatResponse:
    """A response that asks for tools."""
    return said(text, StopReason.TOOL_CALL, calls=calls, **fields)


def call(name: str = "search", arguments: str | None = '{"q": "x"}', id: str = "call_1", **fields: Any) -> ToolCall:
    """A call of a tool, with its arguments as text, and parsed as a format parses them."""
    return ToolCall(id=id, name=name, arguments_raw=arguments, **{"arguments": parsed(arguments), **fields})


SEARCH = Tool(
    name="search",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
NOW = Tool(name="now")


class Played:
    """A provider function that plays responses in order; what is an exception is raised.

    Args:
        chunk: None gives whole responses; a number streams them in deltas of so many characters.
    """

    def __init__(self, *script: Scripted, chunk: int | None = None) -> None:
        self.script = list(script)
        self.chunk = chunk
        self.requests: list[Request] = []

    def _next(self, request: Request) -> ChatResponse:
        self.requests.append(request)
        assert self.script, "one request too many"
        item = self.script.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def _deltas(self, response: ChatResponse) -> Iterator[Delta | ChatResponse]:
        assert self.chunk is not None
        for start in range(0, len(response.text), self.chunk):
            yield Delta(text=response.text[start : start + self.chunk])
        yield response

    def __call__(self, request: Request) -> ChatResponse | Iterator[Delta | ChatResponse]:
        response = self._next(request)
        return response if self.chunk is None else self._deltas(response)

    async def coroutine(self, request: Request) -> ChatResponse:
        """The same as a coroutine."""
        return self._next(request)

    async def asynchronous(self, request: Request) -> AsyncIterator[Delta | ChatResponse]:
        """The same as an async generator."""
        for item in self._deltas(self._next(request)):
            yield item


@overload
def heard() -> AbstractContextManager[list[Record]]: ...
@overload
def heard(kind: type[R]) -> AbstractContextManager[list[R]]: ...
@contextmanager
def heard(kind: Any = object) -> Iterator[list[Any]]:
    """The records that are announced within the block, of one kind or all."""
    records: list[Any] = []

    def listener(record: Record) -> None:
        if isinstance(record, kind):
            records.append(record)

    stop = hooks.subscribe(listener)
    try:
        with hooks.strict():
            yield records
    finally:
        stop()


def assert_sendable(messages: Sequence[Message]) -> None:
    """No dangling call, no answer to none, no empty assistant message."""
    waiting: list[str | None] = []
    for message in messages:
        if message.role == "tool":
            assert message.tool_call_id == waiting.pop(0)
            continue
        assert not waiting
        waiting += [call.id for call in message.tool_calls]
        assert message.role == "assistant" or not waiting
        if message.stop_reason is StopReason.PAUSED:
            assert not waiting
        elif message.role == "assistant":
            assert message.text.strip() or waiting or message.blocks
    assert not waiting


def ticking(step: float = 1.0) -> Callable[[], float]:
    """A clock that moves on by `step` seconds each time it is read."""
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += step
        return now

    return clock
