"""A span's attributes set all at once: values that are known to be clean are not looked at one by one again.

The SDK checks and copies every value that a span is given, which takes as long as all else that endturn does when a
call has ended. What `endturn.telemetry.attributes` makes is clean by its type, so where the SDK is as it was when this
was written its own dictionary is added to. That is done only after it has been seen, once in each process, to give the
same span as `set_attributes`, and only within the span's limits; `set_attributes` serves otherwise.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

from opentelemetry.trace import Span

from endturn.telemetry.attributes import Attributes

log = logging.getLogger("endturn")


def describe(span: Span, found: Attributes) -> None:
    """Set attributes of a span. `found` is not to be changed afterwards."""
    if not (_is_known(type(span)) and _added(span, found)):
        span.set_attributes(found)


def _added(span: Any, found: Attributes) -> bool:
    """Whether the attributes could be added as they are: to a span that is open, below its limits, and all new."""
    bounded = span._attributes
    known = bounded._dict
    with span._lock, bounded._lock:
        if (
            span._end_time is not None
            or bounded.max_value_len is not None
            or (bounded.maxlen is not None and len(known) + len(found) > bounded.maxlen)
            or not known.keys().isdisjoint(found)
        ):
            return False
        known.update(found)
    return True


@cache
def _is_known(kind: type) -> bool:
    """Whether spans of this class are the SDK's, and adding to one is right in the SDK's version."""
    try:
        return kind.__module__ == "opentelemetry.sdk.trace" and _proven(kind)
    except Exception:
        log.debug("endturn: a span's attributes are set one by one", exc_info=True)
        return False


def _proven(kind: type) -> bool:
    """Whether both ways give the same attributes, in a span that goes on to take more and to end."""
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanLimits, TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    limits = SpanLimits(max_span_attributes=SpanLimits.UNSET, max_span_attribute_length=SpanLimits.UNSET)
    provider = TracerProvider(ALWAYS_ON, Resource({}), shutdown_on_exit=False, span_limits=limits)
    tracer = provider.get_tracer("endturn")
    found: Attributes = {"text": "x", "count": 1, "share": 0.5, "yes": True, "words": ("a", "b")}
    one, other = (tracer.start_span("proof", attributes={"before": 1}) for _ in range(2))
    if type(one) is not kind:
        return False
    one.set_attributes(found)
    seen: list[object] = [_added(other, found)]
    for span in (one, other):
        span.set_attribute("after", 2)
        span.end()
        seen.append(list(span.attributes.items()))  # type: ignore[attr-defined]  # a span of the SDK's has them
    return seen[0] is True and seen[1] == seen[2] and len(found) == 5
