"""A response while its host reads it: what passes is seen in place, and the call ends once, however reading ends.

What shows it the pieces: `chunks` (an iterator of an SDK's stream), `http_bodies` (bytes), or the SDK itself.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import Context as Variables
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from endturn.announce import swallow
from endturn.errors import DecodeError
from endturn.stop import Stop, StopReason
from endturn.telemetry import janitor
from endturn.wires import Seen

if TYPE_CHECKING:
    from endturn.instrumentation.background import Scope

UNREADABLE: Final = "unreadable"
"""The detail of a response that endturn could not read."""

ABANDONED: Final = "abandoned"
"""The detail of a stream that its host dropped without closing it."""

_SDKS: Final = frozenset(
    {"openai", "anthropic", "groq", "together", "cerebras", "fireworks", "sambanova", "perplexity", "writerai"}
)
"""The packages whose streams close their response themselves."""


class Sees(Protocol):
    """Is shown a response piece by piece, or whole; says what it saw. A wire's `Watch` is one."""

    def see(self, item: Any, /) -> None: ...

    def close(self, *, left: bool = False) -> Seen: ...


class Reading:
    """One response while it arrives, and the end of its call: said once, by whoever sees it first."""

    __slots__ = ("__weakref__", "_blind", "_dropped", "_variables", "_watch", "call", "see")

    def __init__(self, call: Scope, watch: Sees, variables: Variables | None = None) -> None:
        self.call = call
        self._watch = watch
        # A wrapper's call is announced when it ends: where it began, so that its turn and its parent are those.
        self._variables = variables
        self._blind = False
        self._dropped = False
        self.see: Callable[[Any], None] = watch.see

    def __del__(self) -> None:
        # Its host let go of it without a word. A destructor may run inside anybody's locked region: it leaves a note.
        if not self.call.ended and not sys.is_finalizing():
            self._dropped = True  # an async iterator may yet be closed by its loop: that is no word either
            janitor.later(self.abandoned)

    def abandoned(self) -> None:
        """Its host dropped it."""
        self.closed(ABANDONED)

    def passed(self, item: Any) -> None:
        """See the next piece, where it costs nothing to be careful: chunks have a shorter way."""
        try:
            if self.call.first_chunk_s is None:
                self.call.first_chunk()
            self.see(item)
        except Exception:
            self.blind()

    def shown(self, watch: Sees) -> None:
        """The response, of which nothing has been read, is read otherwise: `watch` is shown it instead."""
        self._watch = watch
        self.see = watch.see

    def blind(self) -> None:
        """`see` raised: nothing that follows is looked at. That a provider sent no JSON is not our failure."""
        self.see = _nothing
        self._blind = True
        if not isinstance(sys.exc_info()[1], DecodeError):
            swallow("reading a response")

    def over(self) -> None:
        """The response has been read to its end. Whether it was whole is what the watch says."""
        self._end(None, None)

    def closed(self, detail: str | None = None) -> None:
        """Its host has stopped reading. A response whose reason had already come keeps it."""
        self._end(StopReason.CANCELLED, None, detail or (ABANDONED if self._dropped else None), left=True)

    def let_go(self, response: Any) -> None:
        """The response was closed: by a host that stops reading, or by its SDK."""
        error = _raised_over(response)
        if error is not None:
            # A parser that came upon the end of a JSON text in its midst has seen that the answer is cut.
            otherwise = StopReason.MISSING if _met_the_end(error) else StopReason.ERROR
            self._end(otherwise, error, type(error).__name__, left=True)
        elif _read_out(response) and self._is_done():
            self.over()
        else:
            self.closed()

    def _is_done(self) -> bool:
        """Whether the word that ends a stream has passed among a body's bytes. Chunks know of none."""
        try:
            return bool(getattr(self._watch, "done", False))
        except Exception:
            self.blind()
            return False

    def stopped(self, how: str, error: BaseException | None, response: Any) -> None:
        """Its SDK says how reading ended, in the words of anthropic's stream observer: read, closed or failed."""
        if how == "closed":
            self.let_go(response)
        elif error is not None:
            self.broke(error)
        else:
            self.over()

    def broke(self, error: BaseException) -> None:
        """Reading raised: the connection was lost, the provider sent an error, or the host was cancelled."""
        if not isinstance(error, Exception):
            self._end(StopReason.CANCELLED, error, left=True)
            return
        body = getattr(error, "body", None)
        if isinstance(body, dict) and not self._blind:
            # The SDKs raise what the provider wrote into the stream: the wire knows what it says of the stop.
            try:
                self.see(body if "error" in body else {"error": body})
            except Exception:
                self.blind()
        said = StopReason.ERROR if body is not None else StopReason.MISSING
        self._end(said, error, "timeout" if "Timeout" in type(error).__name__ else type(error).__name__)

    def _end(
        self,
        otherwise: StopReason | None,
        error: BaseException | None,
        detail: str | None = None,
        *,
        left: bool = False,
    ) -> None:
        """End the call: as the response says, `otherwise` where it does not. `left`: it was not read to its end."""
        if self.call.ended:
            return
        try:
            seen = self._seen(left=left)
            if error is None:
                # A body's bytes tell of an error that nobody raises.
                error = getattr(self._watch, "error", None)
            stop = seen.stop
            if stop.reason is StopReason.MISSING and otherwise is not None:
                stop = replace(stop, reason=otherwise, detail=detail, incomplete=True)
            elif error is not None and stop.detail is None:
                # The first terminal wins: an error that came after it is a detail.
                stop = replace(stop, detail=detail)
            seen = replace(seen, stop=stop)
            if self._variables is None:
                end(self.call, seen, error)
            else:
                self._variables.copy().run(end, self.call, seen, error)
        except Exception:
            swallow("ending a call")

    def _seen(self, *, left: bool) -> Seen:
        if not self._blind:
            try:
                return self._watch.close(left=left)
            except Exception:
                self.blind()
        return Seen(Stop(StopReason.UNKNOWN, detail=UNREADABLE))


def end(call: Scope, seen: Seen, error: BaseException | None = None) -> None:
    """End a call with what was seen of its response."""
    call.end(
        seen.stop,
        usage=seen.usage,
        response_id=seen.id,
        response_model=seen.model,
        reasons=seen.reasons,
        output_chars=seen.output_chars,
        tail=seen.tail,
        error=error,
    )


def _raised_over(response: Any) -> Exception | None:
    """What an SDK raised over this response, where that is why it is being closed now: in a `finally` or an `__exit__`.

    An exception that is being handled may be anybody's: of an earlier call, or the host's own. This response's passed
    through the SDK's stream of it.
    """
    error = sys.exc_info()[1]
    if not isinstance(error, Exception):
        return None
    trace = error.__traceback__
    while trace is not None:
        if _reads(trace.tb_frame, response):
            return error
        trace = trace.tb_next
    return None


def _met_the_end(error: Exception) -> bool:
    """Whether a validator found that the JSON text of an answer, which its provider had closed, is only begun."""
    return type(error).__name__ == "ValidationError" and "Invalid JSON: EOF while parsing" in str(error)


def _read_out(response: Any) -> bool:
    """Whether an SDK's stream closes the response by itself: at the word that ends it, not because it is dropped."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "__stream__" and _reads(frame, response):
            return not isinstance(sys.exc_info()[1], GeneratorExit)
        frame = frame.f_back
    return False


def _reads(frame: FrameType, response: Any) -> bool:
    """Whether a frame is a method of an SDK's stream of this response."""
    if str(frame.f_globals.get("__name__")).partition(".")[0] not in _SDKS:
        return False
    stream = frame.f_locals.get("self")
    return response is not None and getattr(getattr(stream, "_raw_stream", stream), "response", None) is response


def _nothing(item: object) -> None:
    pass


_live: WeakSet[Reading] = WeakSet()


def begin(call: Scope, watch: Sees, variables: Variables | None = None) -> Reading:
    """A response that will be read piece by piece; its end is announced in `variables`, where given."""
    janitor.ensure()
    reading = Reading(call, watch, variables)
    _live.add(reading)
    return reading


def close_all() -> None:
    """End every call whose response is still being read: the process, or its instrumentation, ends."""
    janitor.drain()
    for reading in list(_live):
        reading.closed(ABANDONED)


def reading_of(call: object) -> Reading | None:
    """The response of a call, while it is being read. Looks at every one: for what happens seldom."""
    return next((one for one in list(_live) if one.call is call or getattr(one.call, "call", None) is call), None)


def _forget() -> None:
    """In a forked child: what its parent reads, its parent ends."""
    for reading in list(_live):
        reading.call.ended = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
