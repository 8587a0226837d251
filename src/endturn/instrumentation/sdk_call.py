"""One call of an SDK, from its request to its answer or error: what is asked, who answers, and what is made of it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context as contexts
from opentelemetry import trace

from endturn import announce
from endturn.announce import swallow
from endturn.calls import NOBODY, Call, Caller, Layer, open_call
from endturn.errors import DecodeError
from endturn.instrumentation import background, bodies, http_bodies, http_bytes, streams
from endturn.instrumentation.hosts import Home
from endturn.stop import Stop, StopReason
from endturn.telemetry import enclosing
from endturn.wires import Context, Framing, Seen, Watch, Wire, wire

if TYPE_CHECKING:
    from endturn.instrumentation.background import Scope

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
    operation: str | None = None,
    adopt: bool = False,
    caller: Caller = NOBODY,
) -> SdkCall | None:
    """Open the scope of a call that an SDK is about to make. Never raises.

    Args:
        speaks: the wire of the call.
        body: what is sent, or the arguments that become it; read in place, never changed.
        home: who answers.
        stream, model: where the body does not say so.
        operation: where it is not the wire's usual one.
        adopt: another instrumentation's span of this very call is current.
        caller: who makes it.

    Returns:
        None where the call is being announced already, asks no model to write, or could not be read.
    """
    try:
        asked = speaks.inspect(body)
        if not asked.generates:
            return None
        if stream is not None:
            asked.stream = stream
        if model:
            asked.model = model
        made: Any = adopt and trace.get_current_span().is_recording()
        if not made:
            made = enclosing.claim(home.provider, asked.model) or False
        if not made and _is_suppressed():
            return None
        call = open_call(
            layer,
            asked,
            caller=caller,
            provider=home.provider,
            model=asked.model,
            operation=operation or OPERATIONS.get(speaks.NAME, "chat"),
            stream=asked.stream,
            maximum=asked.maximum,
            choices=asked.choices,
            temperature=asked.temperature,
            top_p=asked.top_p,
            seed=asked.seed,
            server_address=home.address,
            server_port=home.port,
            adopt=made,
        )
        if call is None:
            return None
        if made and layer is not Layer.WRAPPER:  # whether a wrapper's call is announced is seen when it ends
            enclosing.take(trace.get_current_span() if made is True else made, call)
        context = Context(home.dialect, home.provider, asked)
        if announce.takes_content():
            from endturn.instrumentation import gathered

            speaks = gathered.keeping(call, speaks, body, context)
        return SdkCall(call, speaks, context)
    except Exception:
        swallow("opening a call")
        return None


_SUPPRESSED: Final = "suppress_instrumentation"
"""The key that `suppress_instrumentation` of OpenTelemetry's instrumentations puts into a host's context."""


def _is_suppressed() -> bool:
    """Whether the running code is to be watched by nobody.

    An instrumentation that makes a span of a call keeps others from making one too; theirs is adopted all the same.
    """
    return bool(contexts.get_value(_SUPPRESSED))


class SdkCall:
    """A watched call that is under way. No method raises what it did not find raised.

    Attributes:
        call: the call; scope: what its answer ends, which is the call unless that is not over with this answer.
        wire: what the call looks like; context: what its wire must know of it.
    """

    __slots__ = ("call", "context", "is_taken", "response", "scope", "watched", "wire")

    def __init__(self, call: Call, speaks: Wire, context: Context, scope: Scope | None = None) -> None:
        self.call = call
        self.scope = call if scope is None else scope
        self.wire = speaks
        self.context = context
        self.response: Any = None
        """The HTTP response, once there is one: a parser that rejects a cut answer raises without it."""
        self.is_taken = False
        self.watched: tuple[Any, bodies.Watched] | None = None
        """The HTTP response that its host has yet to read, and what sees it."""

    def watching(self) -> Watch:
        """What is to be shown the answer, piece by piece."""
        return self.wire.watch(self.context)

    def outlast(self) -> None:
        """Where the call only starts a job on the server, let it last until the job's response has been fetched."""
        try:
            if self.context.asked.background:
                self.scope = background.Job(self.call, self.wire, self.context)
        except Exception:
            swallow("letting a call last")

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
            # A pydantic model is the parsed answer. Asking one for what it lacks would cost microseconds.
            if hasattr(type(result), "__pydantic_fields__"):
                self._see(result)
                return
            if isinstance(result, streams_of):
                self._take_stream(result, asynchronous=isinstance(result, streams_of[1]))
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

    def _take_stream(self, stream: Any, *, asynchronous: bool) -> None:
        watched = bodies.watch_stream(self.scope, self.watching(), stream, asynchronous=asynchronous)
        self.watched = (stream.response, watched)
        library = http_bodies.library_of(stream.response)
        if library is not None:
            # A host may read the response beside the stream, whose iterator then never begins.
            http_bodies.watch_beside(stream.response, watched, self._bytes_of, library)

    def _take_raw(self, response: Any) -> None:
        library = http_bodies.library_of(response)
        if library is None:
            self._unreadable()
            return
        passing = http_bodies.watch(self.scope, self._bytes_of(response), response, library)
        if passing is not None:
            self.watched = (response, passing)

    def _bytes_of(self, response: Any) -> http_bytes.Bytes:
        """What is to be shown the bytes of a response."""
        framing = http_bytes.framing_of(response.headers.get("content-type", ""))
        if framing is None and self.context.asked.stream:
            framing = self.wire.FRAMING
        speaks = self.wire
        if framing is Framing.EVENTSTREAM and speaks.FRAMING is not framing:
            # Bedrock's envelope: anthropic's client for it opens that before anybody sees an event, unless it is raw.
            speaks = wire("bedrock_invoke")
        return http_bytes.Bytes(speaks.watch(self.context), framing)

    def let_go(self) -> None:
        """The SDK is done with the call. A connection may keep the context in which it was opened, and this with it."""
        self.response = self.watched = None

    def _see(self, result: Any, error: BaseException | None = None) -> None:
        streams.end(self.scope, self.wire.whole(self.context, result), error)

    def failed(self, error: BaseException) -> None:
        """The SDK raised. Some of what it raises hides a response, and with it why the model stopped."""
        try:
            if self.scope.ended:
                return
            if not isinstance(error, Exception):
                self.scope.end(Stop(StopReason.CANCELLED, incomplete=True), error=error)
                return
            completion = getattr(error, "completion", None)
            if completion is not None:  # openai: the answer was cut, so `parse()` refuses it
                self._see(completion, error)
                return
            answer: Any = getattr(error, "response", None)
            status = getattr(answer, "status_code", None)
            if isinstance(status, int) and status >= 400:
                found = self.wire.decode_error(status, answer.headers, answer.content, ctx=self.context)
                self.scope.end(found.stop or _error(error), error=error)
                return
            seen = self._behind()
            if seen is None:
                self.scope.end(_error(error), error=error)
            else:
                streams.end(self.scope, seen, error)
        except Exception:
            swallow("reading an error")
            self._unreadable(error)
        finally:
            self.let_go()

    def _behind(self) -> Seen | None:
        """The response whose parsing raised, where its body had come: a validator that was given half a JSON text."""
        response = self.response
        if response is None or not response.is_closed or self.context.asked.stream:
            return None
        seen = http_bytes.Bytes(self.watching(), None)
        try:
            seen.see(response.content)
            found = seen.close()
        except Exception:
            return None
        return found if found.stop.reason is not StopReason.MISSING else None

    def _unreadable(self, error: BaseException | None = None) -> None:
        try:
            self.scope.end(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE), error=error)
        except Exception:
            swallow("ending a call")


def _error(error: BaseException) -> Stop:
    detail = "timeout" if "Timeout" in type(error).__name__ else None
    return Stop(StopReason.ERROR, detail=detail, incomplete=True)
