"""Responses, requests and provider functions for tests of turns: plain lists, played in order."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from endturn.calls import listeners
from endturn.calls.records import Record
from endturn.formats.call_arguments import arguments as parsed
from endturn.vocabulary.messages import ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
from endturn.vocabulary.stop import Resume, Stop, StopReason

Scripted = ChatResponse | BaseException | list[Any]


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


def call(name: str = "search", arguments: Any = '{"q": "x"}', id: str = "call_1", **fields: Any) -> ToolCall:
    """A call of a tool: its arguments as text, and parsed as a format parses them; or an object, as some send."""
    is_object = isinstance(arguments, dict)
    given = {"arguments": arguments if is_object else parsed(arguments)}
    return ToolCall(id=id, name=name, arguments_raw=None if is_object else arguments, **given, **fields)


SEARCH = Tool(
    name="search",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
NOW = Tool(name="now")


class Played:
    """A provider function that plays responses in order; an exception is raised, a list is a stream of its own.

    Args:
        chunk: None gives whole responses; a number streams them in deltas of so many characters.
        says: what a provider function may say of itself: `format`, `retrieves`.
    """

    def __init__(self, *script: Scripted, chunk: int | None = None, **says: Any) -> None:
        self.script = list(script)
        self.chunk = chunk
        self.requests: list[Request] = []
        self.__dict__.update(says)

    def _next(self, request: Request) -> ChatResponse | list[Any]:
        self.requests.append(request)
        assert self.script, "one request too many"
        item = self.script.pop(0)
        if isinstance(item, BaseException):
            raise item
        return item

    def _stream(self, item: ChatResponse | list[Any]) -> Iterator[Delta | ChatResponse]:
        if isinstance(item, ChatResponse):
            size = self.chunk or len(item.text) + 1
            item = [*(Delta(text=item.text[at : at + size]) for at in range(0, len(item.text), size)), item]
        for each in item:
            if isinstance(each, BaseException):
                raise each
            yield each

    def __call__(self, request: Request) -> ChatResponse | Iterator[Delta | ChatResponse]:
        item = self._next(request)
        return item if self.chunk is None and isinstance(item, ChatResponse) else self._stream(item)

    async def coroutine(self, request: Request) -> ChatResponse | list[Any]:
        """The same as a coroutine."""
        return self._next(request)

    async def asynchronous(self, request: Request) -> AsyncIterator[Delta | ChatResponse]:
        """The same as an async generator."""
        given = self(request)
        for item in [given] if isinstance(given, ChatResponse) else given:
            yield item


@contextmanager
def heard(kind: Any = object) -> Iterator[list[Any]]:
    """The records that are announced within the block, of one kind or all."""
    records: list[Any] = []

    def listener(record: Record) -> None:
        if isinstance(record, kind):
            records.append(record)

    stop = listeners.subscribe(listener)
    try:
        with listeners.strict():
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
