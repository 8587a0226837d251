"""One call of an SDK, from its request to its answer or error: what is asked, who answers, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from opentelemetry import trace

from endturn import announce
from endturn.announce import Call, Layer, swallow
from endturn.errors import DecodeError
from endturn.stop import Stop, StopReason
from endturn.telemetry import bodies, schema, streams
from endturn.telemetry.hosts import Home
from endturn.wires import Context, Seen, Wire

_CHATS: Final = frozenset({"chat", "text_completion", "generate_content"})


OPERATIONS: Final = {"gemini": "generate_content", "completions": "text_completion"}
"""The conventions' operation of a wire's calls, where it is not `chat`."""


def opened(
    speaks: Wire,
    body: Mapping[str, Any],
    home: Home,
    *,
    layer: Layer = Layer.SDK,
    stream: bool | None = None,
    model: str = "",
    adopt: bool = False,
) -> SdkCall | None:
    """Open the scope of a call that an SDK is about to make. Never raises.

    Args:
        speaks: the wire of the call.
        body: what is sent, or the arguments that become it; read in place, never changed.
        home: who answers.
        stream, model: where the body does not say so.
        adopt: another instrumentation's span of this very call is current.

    Returns:
        None where the call is being announced already, or could not be read.
    """
    try:
        asked = speaks.inspect(body)
        if stream is not None:
            asked.stream = stream
        if model:
            asked.model = model
        call = announce.open_call(
            layer,
            asked,
            provider=home.provider,
            model=asked.model,
            operation=OPERATIONS.get(speaks.NAME, "chat"),
            stream=asked.stream,
            maximum=asked.maximum,
            choices=asked.choices,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            server_address=home.address,
            server_port=home.port,
            adopt=adopt or _is_traced(),
        )
        if call is None:
            return None
        return SdkCall(call, speaks, Context(home.dialect, home.provider, asked))
    except Exception:
        swallow("opening a call")
        return None


def _is_traced() -> bool:
    """Whether another instrumentation already makes this call's span, current now."""
    span = trace.get_current_span()
    if not span.is_recording():
        return False
    found = getattr(span, "attributes", None) or {}
    return found.get(schema.OPERATION.key) in _CHATS and getattr(span, "kind", None) is trace.SpanKind.CLIENT


class SdkCall:
    """A watched call that is under way. No method raises what it did not find raised."""

    __slots__ = ("_context", "_wire", "call", "is_taken", "response")

    def __init__(self, call: Call, speaks: Wire, context: Context) -> None:
        self.call = call
        self._wire = speaks
        self._context = context
        self.response: Any = None
        """The HTTP response, once there is one: a parser that rejects a cut answer raises without it."""
        self.is_taken = False

    def step(self) -> AbstractContextManager[None]:
        """Make the call current while the SDK works on it."""
        try:
            return self.call.step()
        except Exception:
            swallow("making a call current")
            return nullcontext()

    def take(self, result: Any, streams_of: tuple[type, type]) -> None:
        """What the SDK hands to its host, before it does: a stream, a raw response, or the parsed answer.

        Args:
            streams_of: the SDK's stream classes, sync and async.
        """
        self.is_taken = True
        try:
            if isinstance(result, streams_of):
                watch = self._wire.watch(self._context)
                bodies.watch_stream(self.call, watch, result, asynchronous=isinstance(result, streams_of[1]))
                return
            # A pydantic model is the parsed answer. Asking one for what it lacks would cost microseconds.
            if hasattr(type(result), "__pydantic_fields__"):
                self._see(result)
                return
            raw = getattr(result, "http_response", None)
            if raw is None and hasattr(result, "is_stream_consumed"):
                raw = result
            if raw is not None:
                self._take_raw(raw)
            elif result is None or isinstance(result, str | bytes):
                self._unreadable()  # not JSON: an SDK then hands on what came, as it came
            else:
                self._see(result)
        except DecodeError:
            self._unreadable()
        except Exception:
            swallow("reading a response")
            self._unreadable()

    def _take_raw(self, response: Any) -> None:
        events = "event-stream" in response.headers.get("content-type", "") or self._context.asked.stream
        watch = self._wire.watch(self._context)
        if not response.is_closed:
            bodies.watch_body(self.call, watch, response, events=events)
            return
        seen = bodies.Bytes(watch, events=events)
        seen.see(response.content)
        streams.end(self.call, seen.close(), seen.error)

    def _see(self, result: Any, error: BaseException | None = None) -> None:
        streams.end(self.call, self._wire.whole(self._context, result), error)

    def failed(self, error: BaseException) -> None:
        """The SDK raised. Some of what it raises hides a response, and with it why the model stopped."""
        if self.call.ended:
            return
        try:
            if not isinstance(error, Exception):
                self.call.end(Stop(StopReason.CANCELLED, incomplete=True), error=error)
                return
            completion = getattr(error, "completion", None)
            if completion is not None:  # openai: the answer was cut, so `parse()` refuses it
                self._see(completion, error)
                return
            answer: Any = getattr(error, "response", None)
            status = getattr(answer, "status_code", None)
            if isinstance(status, int) and status >= 400:
                found = self._wire.decode_error(status, answer.headers, answer.content, ctx=self._context)
                self.call.end(found.stop or _error(error), error=error)
                return
            seen = self._behind()
            if seen is None:
                self.call.end(_error(error), error=error)
            else:
                streams.end(self.call, seen, error)
        except Exception:
            swallow("reading an error")
            self._unreadable(error)

    def _behind(self) -> Seen | None:
        """The response whose parsing raised, where its body had come: a validator that was given half a JSON text."""
        response = self.response
        if response is None or not response.is_closed or self._context.asked.stream:
            return None
        seen = bodies.Bytes(self._wire.watch(self._context), events=False)
        try:
            seen.see(response.content)
            found = seen.close()
        except Exception:
            return None
        return found if found.stop.reason is not StopReason.MISSING else None

    def _unreadable(self, error: BaseException | None = None) -> None:
        try:
            self.call.end(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE), error=error)
        except Exception:
            swallow("ending a call")


def _error(error: BaseException) -> Stop:
    detail = "timeout" if "Timeout" in type(error).__name__ else None
    return Stop(StopReason.ERROR, detail=detail, incomplete=True)
