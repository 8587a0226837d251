"""One scripted reply in one format: a body, a stream's events, or an error response."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, UsageError
from endturn.formats import Context, Event, error_of, format_of, framing, reason_names, reasons_of
from endturn.testing.scripted.loopback import LoopbackReply
from endturn.testing.scripted.script import Ending, Failure, Reply, tokens
from endturn.vocabulary import ChatResponse, Delta, Json, Request, Stop, StopReason, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request that arrived.

    `headers` are lower case and without credentials; `body` is as it was sent.
    """

    request: Request
    format: str
    stream: bool
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


class Rendering:
    """The reply to one request, ready to be sent.

    Over HTTP (`answer`), or to a controller (`response`, `items`).
    """

    def __init__(self, reply: Reply, received: Received, number: int, *, dialect: str = "") -> None:
        self.reply = reply.clipped(received.request.max_tokens)
        self._received = received
        self._format = format_of(received.format)
        self._number = number
        summary = self._format.request_summary(received.body)
        self._context = Context(dialect, self._format.provider, summary)

    def answer(self) -> LoopbackReply:
        """Return the reply as an HTTP response."""
        reply, format_ = self.reply, self._format
        http_reply = self._error() or self._reply()
        content_type = (
            framing.CONTENT_TYPE[format_.framing]
            if http_reply.length is None
            else "application/json"
        )
        headers = {
            "content-type": content_type,
            format_.voice.request_id: f"req_{self._number:08d}",
        }
        return replace(
            http_reply,
            headers={**headers, **http_reply.headers, **reply.headers},
            ending=reply.ending,
            delay_s=reply.delay_s,
            pace_s=reply.pace_s,
        )

    def _error(self) -> LoopbackReply | None:
        """Return the error that comes in place of a reply."""
        failure, has_begun = self.reply.failure, self.reply.text and self._received.stream
        return (
            None
            if failure is None or has_begun
            else refusal(self._format.name, failure, number=self._number)
        )

    def _reply(self) -> LoopbackReply:
        reply, failure, stream = self.reply, self.reply.failure, self._received.stream
        body = self._format.reply(self._response(), stream=stream, dialect=self._context.dialect)
        if isinstance(body, list):
            if failure is not None:  # in the middle of the stream
                error = self._format.reply_error(
                    failure.status, failure.code, failure.message, number=self._number, stream=True
                )
                assert isinstance(error, Event)
                body = [*body, error]
            return LoopbackReply(
                chunks=tuple(framing.frame(event, self._format.framing) for event in body)
            )
        content = json.dumps(body, separators=(",", ":")).encode()
        # A body that breaks off announces its complete length; with Ending.TIDY it announces the
        # length that is sent.
        chunk = content if reply.ending is Ending.COMPLETE else content[: len(content) // 2]
        return LoopbackReply(
            chunks=(chunk,), length=len(chunk if reply.ending is Ending.TIDY else content)
        )

    def response(self) -> ChatResponse:
        """Return the reply as a client would return it.

        Raises:
            ProviderError: the reply is a failure, or does not arrive.
        """
        http_reply = self.answer()
        self._check(http_reply)
        if http_reply.ending is Ending.BROKEN:
            raise self._connection_error()
        try:
            return self._format.decode(
                framing.parse(http_reply.chunks[0]), ctx=self._context, headers=http_reply.headers
            )
        except DecodeError as error:
            error.provider, error.status = self._context.provider, http_reply.status
            raise

    def items(self) -> Iterator[Delta | ChatResponse | float]:
        """Yield the reply as a client would stream it, the response last.

        Numbers are pauses in seconds.

        Raises:
            ProviderError: the reply is a failure, or does not begin.
        """
        http_reply = self.answer()
        yield float(http_reply.delay_s)
        self._check(http_reply)
        decoder, events = self._format.decoder(self._context), framing.decoder(self._format.framing)
        for index, chunk in enumerate(http_reply.chunks):
            if index and http_reply.pace_s:
                yield float(http_reply.pace_s)
            for event in events.feed(chunk):
                yield from decoder.feed(event)
        response = decoder.close()
        yield (
            response.with_stop(detail="connection")
            if http_reply.ending is Ending.BROKEN
            else response
        )

    def _check(self, http_reply: LoopbackReply) -> None:
        if http_reply.ending is Ending.HUNG_UP:
            raise self._connection_error()
        if http_reply.status != 200:
            raise error_of(
                http_reply.status, http_reply.headers, http_reply.chunks[0], ctx=self._context
            )

    def _connection_error(self) -> ProviderError:
        provider = self._context.provider
        return ProviderUnavailable(f"{provider}: the connection failed", provider=provider)

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
        if self.reply.ending is not Ending.COMPLETE or self.reply.failure is not None:
            return Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        if value is None:
            return Stop(StopReason.MISSING, incomplete=True)
        if not isinstance(value, StopReason):
            return Stop(StopReason.UNKNOWN, value, mapped=False)
        words, name = self._format.voice.words, self._format.name
        available = (
            reasons_of(self._format.reasons.get(self._context.dialect) or self._format.reasons[""])
            | words.keys()
        )
        if value not in available:
            raise UsageError(
                f"the {name} format has no value for {value.value!r}, only for "
                f"{reason_names(available)}; use reason('a raw value') or fail(status)"
            )
        shown_by = {
            StopReason.TOOL_CALL: ("call", self.reply.calls),
            StopReason.REFUSED: ("refuse", self.reply.text),
        }
        function, is_shown = shown_by.get(value, ("", True))
        if value in words and not is_shown:
            raise UsageError(
                f"the {name} format has no value for {value.value!r}, only content that "
                f"implies it: use {function}('…')"
            )
        return Stop(value, words.get(value))

    def _usage(self) -> Usage | None:
        usage, received = self.reply.usage, self._received
        if received.stream and not self._context.request.stream_usage:
            return None
        if usage != "counted":
            return usage
        input_tokens = sum(len(tokens(message.text)) for message in received.request.messages)
        reasoning_tokens = (
            None if self.reply.reasoning is None else len(tokens(self.reply.reasoning))
        )
        return Usage(input_tokens, self.reply.output_tokens, reasoning_tokens)


def refusal(format_name: str, failure: Failure, *, number: int = 0) -> LoopbackReply:
    """Return an error in the format's shape."""
    format_ = format_of(format_name)
    body = format_.reply_error(failure.status, failure.code, failure.message, number=number)
    content = json.dumps(body).encode()
    headers = {"content-type": "application/json", format_.voice.request_id: f"req_{number:08d}"}
    if failure.retry_after_s is not None:
        headers["retry-after"] = f"{failure.retry_after_s:g}"
    return LoopbackReply(
        status=failure.status, headers=headers, chunks=(content,), length=len(content)
    )
