"""One scripted reply in one format's own words: a body, a stream's events, or an error answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from endturn.chat import ChatResponse, Delta, Json, Request, Usage
from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, UsageError
from endturn.formats import Context, Event, format_of, framing
from endturn.formats.errors import error_of
from endturn.formats.scripting import listed, reasons_of
from endturn.scripted.loopback import Answer
from endturn.scripted.script import Ending, Failure, Reply, tokens
from endturn.stop import Row, Stop, StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request that arrived. `headers` are lower case and without credentials; `body` is as it was sent."""

    request: Request
    format: str
    stream: bool
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


class Rendering:
    """The reply to one request, ready to be sent: over HTTP (`answer`), or to a controller (`response`, `items`)."""

    def __init__(self, reply: Reply, received: Received, number: int, *, dialect: str = "") -> None:
        self.reply = reply.clipped(received.request.max_tokens)
        self._received = received
        self._format = format_of(received.format)
        self._number = number
        asked = self._format.request_summary(received.body)
        self._context = Context(dialect, self._format.provider, asked)

    def answer(self) -> Answer:
        """The reply as an HTTP response."""
        reply, failure = self.reply, self.reply.failure
        if failure is not None and not (reply.text and self._received.stream):
            return _timed(self._refusal(failure), reply)
        if self._received.stream:
            headers = self._headers(framing.CONTENT_TYPE[self._format.framing])
            chunks = tuple(framing.frame(event, self._format.framing) for event in self._events())
            return _timed(Answer(headers=headers, chunks=chunks), reply)
        content = self._content()
        # A body that breaks off announces its whole length; one that is tidily cut announces what it has.
        chunk = content if reply.ending is Ending.WHOLE else content[: len(content) // 2]
        length = len(chunk if reply.ending is Ending.TIDY else content)
        return _timed(Answer(headers=self._headers("application/json"), chunks=(chunk,), length=length), reply)

    def response(self) -> ChatResponse:
        """The reply as a client would return it.

        Raises:
            ProviderError: the reply is a failure, or does not arrive.
        """
        self._check()
        provider = self._context.provider
        match self.reply.ending:
            case Ending.WHOLE:
                body = json.loads(self._content())
                return self._format.decode(body, ctx=self._context, headers=self._headers("application/json"))
            case Ending.TIDY:
                raise DecodeError(f"{provider} answered 200 with half a body", provider=provider, status=200)
            case _:
                raise self._lost()

    def items(self) -> Iterator[Delta | ChatResponse | float]:
        """The reply as a client would stream it, the response last; numbers are pauses in seconds.

        Raises:
            ProviderError: the reply is a failure, or does not begin.
        """
        reply = self.reply
        yield float(reply.delay_s)
        if not reply.text:
            self._check()
        if reply.ending is Ending.HUNG_UP:
            raise self._lost()
        decoder = self._format.decoder(self._context)
        for number, event in enumerate(self._events()):
            if number and reply.pace_s:
                yield float(reply.pace_s)
            yield from decoder.feed(event)
        response = decoder.close()
        yield response.with_stop(detail="connection") if reply.ending is Ending.BROKEN else response

    def _lost(self) -> ProviderError:
        provider = self._context.provider
        return ProviderUnavailable(f"{provider}: the connection failed", provider=provider)

    def _check(self) -> None:
        if self.reply.failure is not None:
            raise self._error(self.reply.failure)

    def _error(self, failure: Failure) -> ProviderError:
        """What a client would raise for the failure."""
        answer = self._refusal(failure)
        return error_of(answer.status, answer.headers, b"".join(answer.chunks), ctx=self._context)

    def _refusal(self, failure: Failure) -> Answer:
        answer = refusal(self._received.format, failure, number=self._number)
        return replace(answer, headers={**answer.headers, **self.reply.headers})

    def _headers(self, content_type: str) -> dict[str, str]:
        request_id = self._format.voice.request_id
        return {"content-type": content_type, request_id: f"req_{self._number:08d}", **self.reply.headers}

    def _content(self) -> bytes:
        return json.dumps(self._said(stream=False), separators=(",", ":")).encode()

    def _events(self) -> list[Event]:
        events = self._said(stream=True)
        assert isinstance(events, list)
        failure = self.reply.failure
        if failure is not None:
            error = self._format.reply_error(
                failure.status, failure.code, failure.message, number=self._number, stream=True
            )
            assert isinstance(error, Event)
            events.append(error)
        return events

    def _said(self, *, stream: bool) -> Json | list[Event]:
        return self._format.reply(self._response(), stream=stream, dialect=self._context.dialect)

    def _response(self) -> ChatResponse:
        reply, voice = self.reply, self._format.voice
        calls = tuple(
            call if call.id else call.but(id=f"{voice.call_id}{self._number:08d}_{position}")
            for position, call in enumerate(reply.calls)
        )
        return ChatResponse(
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=calls,
            usage=self._usage(),
            stop=self._stop(),
            id=f"{voice.response_id}{self._number:08d}",
            model=self._received.request.model,
        )

    def _stop(self) -> Stop:
        value = self.reply.stop
        if self.reply.ending is not Ending.WHOLE or self.reply.failure is not None:
            return Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        if value is None:
            return Stop(StopReason.MISSING, incomplete=True)
        if not isinstance(value, StopReason):
            return Stop(StopReason.UNKNOWN, value, mapped=False)
        words, name = self._format.voice.words, self._format.name
        has = reasons_of(self._rows) | words.keys()
        if value not in has:
            raise UsageError(
                f"the {name} format has no word for {value.value!r}, only for {listed(has)}; "
                f"script what a server of it does say: reason('its own value'), or fail(status)"
            )
        shown_by = {StopReason.TOOL_CALL: ("call", self.reply.calls), StopReason.REFUSED: ("refuse", self.reply.text)}
        function, said = shown_by.get(value, ("", True))
        if value in words and not said:
            raise UsageError(
                f"the {name} format has no word for {value.value!r}, only what the reply says shows it: "
                f"script it with {function}('…')"
            )
        return Stop(value, words.get(value))

    @property
    def _rows(self) -> Mapping[str, Row]:
        return self._format.reasons.get(self._context.dialect) or self._format.reasons[""]

    def _usage(self) -> Usage | None:
        usage, received = self.reply.usage, self._received
        if received.stream and not self._context.asked.stream_usage:
            return None
        if usage != "counted":
            return usage
        asked = sum(len(tokens(message.text)) for message in received.request.messages)
        thought = None if self.reply.reasoning is None else len(tokens(self.reply.reasoning))
        return Usage(asked, self.reply.output_tokens, thought)


def _timed(answer: Answer, reply: Reply) -> Answer:
    return replace(answer, ending=reply.ending, delay_s=reply.delay_s, pace_s=reply.pace_s)


def refusal(format_name: str, failure: Failure, *, number: int = 0) -> Answer:
    """An error answer in the format's shape."""
    speaks = format_of(format_name)
    body = speaks.reply_error(failure.status, failure.code, failure.message, number=number)
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json", speaks.voice.request_id: f"req_{number:08d}"}
    if failure.retry_after_s is not None:
        headers["retry-after"] = f"{failure.retry_after_s:g}"
    return Answer(status=failure.status, headers=headers, chunks=(content,), length=len(content))
