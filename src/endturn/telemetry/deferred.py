"""What a recorder does with calls that are announced when they are over: a span that is not begun, and a queue."""

from __future__ import annotations

from opentelemetry.context import get_current
from opentelemetry.trace import set_span_in_context

from endturn.announce import Activation
from endturn.calls import Call
from endturn.telemetry.backlog import Backlog, Place, places_of
from endturn.telemetry.opened import Opened
from endturn.telemetry.outlets import Outlets
from endturn.telemetry.pending import Pending


class Deferred:
    """An `announce.Deferral`: for recorders whose outlets hand on in batches, at their own time, anyway.

    Attributes:
        out: where the recorder's signals go; set by the recorder.
    """

    out: Outlets

    def __init__(self) -> None:
        self._backlog = Backlog()
        self.add = self._backlog.add
        self.drain = self._backlog.drain
        self._places: tuple[Place, ...] = ()
        self._outlets: object = None

    def opened(self, call: Call) -> Activation | bool:
        """What stands for a call's span; see `announce.Deferral`."""
        out = self.out
        out.look()
        if not self._waits(out):
            return False
        if out.meters is not None:
            agent = call.within.agent if call.within is not None and out.agent else None
            out.meters.expect((call.facts["provider"], call.facts["model"], agent))
        parent = get_current()
        call.origin = parent, out.tracer
        if out.tracer is None:
            return True
        pending = Pending(call, parent)
        return Opened(pending, set_span_in_context(pending, parent))

    def _waits(self, out: Outlets) -> bool:
        """Whether spans and log records may be handed on a little later."""
        outlets = out.tracer, out.events.logger, out.meters
        if outlets != self._outlets:
            # The places first: another thread may look at them once the outlets are the same.
            self._places, self._outlets = places_of(self._backlog, out.tracer, out.events.logger), outlets
            if out.meters is not None:
                out.meters.before.add(self._backlog)
        if out.events.mirrored or self._backlog.is_closed:
            return False
        # A generator expression would cost every call a frame.
        for place in self._places:  # noqa: SIM110
            if not place.waits():
                return False
        return True
