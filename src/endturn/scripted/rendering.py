"""One scripted reply in one wire's own words: a body, a stream's events, or an error answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from endturn.chat import ChatResponse, Delta, Json, Request, Usage
from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, UsageError
from endturn.scripted.loopback import Answer
from endturn.scripted.script import Ending, Failure, Reply, tokens
from endturn.stop import Stop, StopReason
from endturn.wires import Context, Event, framing, wire


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request that arrived. `headers` are lower case and without credentials; `body` is as it was sent."""

    request: Request
    wire: str
    stream: bool
    body: Json
    headers: Mapping[str, str] = field(default_factory=dict)


PROVIDER: Final = {"openai_chat": "openai", "anthropic": "anthropic"}
_IDS: Final = {"openai_chat": ("chatcmpl-", "call_", "x-request-id"), "anthropic": ("msg_", "toolu_", "request-id")}
"""wire → how the ids of responses and of calls begin, and the header that holds the request's."""


class Rendering:
    """The reply to one request, ready to be sent: over HTTP (`answer`), or to a controller (`response`, `items`)."""

    def __init__(self, reply: Reply, received: Received, number: int) -> None:
        self.reply = reply.clipped(received.request.max_tokens)
        self._received = received
        self._wire = wire(received.wire)
        self._number = number
        asked = self._wire.inspect(received.body)
        self._context = Context("", PROVIDER[received.wire], asked)

    def answer(self) -> Answer:
        """The reply as an HTTP response."""
        reply, failure = self.reply, self.reply.failure
        if failure is not None and not (reply.text and self._received.stream):
            return _timed(self._refusal(failure), reply)
        if self._received.stream:
            headers = self._headers("text/event-stream; charset=utf-8")
            return _timed(Answer(headers=headers, chunks=tuple(map(framing.frame, self._events()))), reply)
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
                return self._wire.decode(body, ctx=self._context, headers=self._headers("application/json"))
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
        decoder = self._wire.decoder(self._context)
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
        return self._wire.decode_error(answer.status, answer.headers, b"".join(answer.chunks), ctx=self._context)

    def _refusal(self, failure: Failure) -> Answer:
        answer = refusal(self._received.wire, failure, number=self._number)
        return replace(answer, headers={**answer.headers, **self.reply.headers})

    def _headers(self, content_type: str) -> dict[str, str]:
        request_id = _IDS[self._received.wire][2]
        return {"content-type": content_type, request_id: f"req_{self._number:08d}", **self.reply.headers}

    def _content(self) -> bytes:
        return json.dumps(self._wire.reply(self._response(), stream=False), separators=(",", ":")).encode()

    def _events(self) -> list[Event]:
        events = self._wire.reply(self._response(), stream=True)
        assert isinstance(events, list)
        failure = self.reply.failure
        if self.reply.ending is not Ending.WHOLE or failure is not None:
            while events and (events[-1].name in _CLOSING or events[-1].data == framing.DONE):
                events.pop()
        if failure is not None:
            body = _error_body(self._received.wire, failure, self._number)
            events.append(Event("error" if self._received.wire == "anthropic" else None, body))
        return events

    def _response(self) -> ChatResponse:
        reply, (prefix, call_prefix, _) = self.reply, _IDS[self._received.wire]
        calls = tuple(
            call if call.id else call.but(id=f"{call_prefix}{self._number:08d}_{position}")
            for position, call in enumerate(reply.calls)
        )
        return ChatResponse(
            text=reply.text,
            reasoning=reply.reasoning,
            tool_calls=calls,
            usage=self._usage(),
            stop=self._stop(),
            id=f"{prefix}{self._number:08d}",
            model=self._received.request.model,
        )

    def _stop(self) -> Stop:
        value = self.reply.stop
        if value is None or self.reply.ending is not Ending.WHOLE or self.reply.failure is not None:
            return Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        if not isinstance(value, StopReason):
            return Stop(StopReason.UNKNOWN, value, mapped=False)
        name = self._received.wire
        raw = _RAW[name].get(value)
        if raw is None and all(row.reason is not value for row in self._wire.REASONS[""].values()):
            raise UsageError(
                f"the {name} format has no word for {value.value!r}; "
                f"script what a server of it does say: reason('its own value'), or fail(status)"
            )
        return Stop(value, raw)

    def _usage(self) -> Usage | None:
        usage, received = self.reply.usage, self._received
        if received.wire == "openai_chat" and received.stream:
            # As the real one: a stream's usage has to be asked for, and comes after the finish reason.
            asked_for = (received.body.get("stream_options") or {}).get("include_usage")
            if not asked_for or self.reply.ending is not Ending.WHOLE or self.reply.failure is not None:
                return None
        if usage != "counted":
            return usage
        asked = sum(len(tokens(message.text)) for message in received.request.messages)
        thought = None if self.reply.reasoning is None else len(tokens(self.reply.reasoning))
        return Usage(asked, self.reply.output_tokens, thought)


_CLOSING: Final = frozenset({"content_block_stop", "message_delta", "message_stop"})

# The words that OpenAI itself uses where its format has no reason of its own: a refusal is a member of the message, the
# full window is a `length`.
_RAW: Final[Mapping[str, Mapping[StopReason, str]]] = {
    "openai_chat": {StopReason.REFUSED: "stop", StopReason.CONTEXT_WINDOW_EXCEEDED: "length"},
    "anthropic": {},
}


def _timed(answer: Answer, reply: Reply) -> Answer:
    return replace(answer, ending=reply.ending, delay_s=reply.delay_s, pace_s=reply.pace_s)


# status → type, code, message; as the providers' own error pages and SDKs spell them.
_OPENAI: Final[Mapping[int, tuple[str, str | None, str]]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "Country or region not supported."),
    404: ("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    500: ("server_error", None, "The server had an error while processing your request."),
    503: ("server_error", None, "The engine is currently overloaded, please try again later."),
}
_ANTHROPIC: Final[Mapping[int, tuple[str, str | None, str]]] = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("authentication_error", None, "invalid x-api-key"),
    403: ("permission_error", None, "Your API key does not have permission to use the specified resource."),
    404: ("not_found_error", None, "model not found"),
    413: ("request_too_large", None, "Request exceeds the maximum size"),
    429: ("rate_limit_error", None, "This request would exceed your organization's rate limit."),
    500: ("api_error", None, "Internal server error"),
    504: ("timeout_error", None, "Request timed out"),
    529: ("overloaded_error", None, "Overloaded"),
}
_CODES: Final[Mapping[tuple[str, str], str]] = {
    ("openai_chat", "context_length_exceeded"): (
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens. "
        "Please reduce the length of the messages."
    ),
    ("anthropic", "context_length_exceeded"): "prompt is too long: 209000 tokens > 200000 maximum",
    ("openai_chat", "content_filter"): (
        "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
    ),
    ("anthropic", "content_filter"): "Output blocked by content filtering policy",
    ("openai_chat", "insufficient_quota"): "You exceeded your current quota, please check your plan.",
}


def _error_body(wire_name: str, failure: Failure, number: int) -> Json:
    table = _ANTHROPIC if wire_name == "anthropic" else _OPENAI
    fallback = table[500] if failure.status >= 500 else table[400]
    kind, code, said = table.get(failure.status, fallback)
    message = failure.message or _CODES.get((wire_name, failure.code or ""), said)
    if wire_name == "anthropic":
        return {"type": "error", "error": {"type": kind, "message": message}, "request_id": f"req_{number:08d}"}
    if failure.code == "insufficient_quota":
        kind = failure.code
    return {"error": {"message": message, "type": kind, "param": None, "code": failure.code or code}}


def refusal(wire_name: str, failure: Failure, *, number: int = 0) -> Answer:
    """An error answer in the wire's shape."""
    content = json.dumps(_error_body(wire_name, failure, number)).encode()
    headers = {"content-type": "application/json", _IDS[wire_name][2]: f"req_{number:08d}"}
    if failure.retry_after_s is not None:
        headers["retry-after"] = f"{failure.retry_after_s:g}"
    return Answer(status=failure.status, headers=headers, chunks=(content,), length=len(content))
