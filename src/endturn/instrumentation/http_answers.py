"""What an HTTP answer, or the lack of one, says of the call that was sent."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from endturn.announce import swallow
from endturn.errors import DecodeError
from endturn.instrumentation import http_bodies, http_bytes, streams
from endturn.instrumentation.sdk_call import SdkCall
from endturn.stop import Stop, StopReason
from endturn.wires import Framing


def is_success(response: Any) -> bool:
    """Whether it is an answer, and no error."""
    return bool(200 <= response.status_code < 300)


def take(under_way: SdkCall, response: Any, library: ModuleType) -> http_bodies.Passing | None:
    """What a client hands to its host, before it does: an answer, whole or still to be read, or an error.

    Returns:
        What sees a body that is still to be read.
    """
    call = under_way.call
    try:
        if is_success(response):
            sees: Any = http_bytes.Bytes(under_way.watching(), _framing(under_way, response))
        elif response.is_redirect:
            call.end(Stop(StopReason.ERROR, detail="redirect", incomplete=True))
            return None
        else:
            sees = http_bytes.Refusal(under_way.wire, under_way.context, response.status_code, response.headers)
        return http_bodies.watch(call, sees, response, library)
    except DecodeError:
        call.end(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE))
    except Exception:
        swallow("reading a response")
        call.end(Stop(StopReason.UNKNOWN, detail=streams.UNREADABLE))
    return None


def _framing(under_way: SdkCall, response: Any) -> Framing | None:
    kind = response.headers.get("content-type", "")
    found = http_bytes.framing_of(kind)
    if found is not None or not under_way.context.asked.stream or "json" in kind:
        return found
    return Framing.NDJSON if under_way.context.dialect == "v1" else under_way.wire.FRAMING


def fail(under_way: SdkCall, error: BaseException, answer: Any = None) -> None:
    """No answer came, or one that is an error and was raised as such.

    Args:
        answer: the HTTP response, where there is one; perhaps its body was not read.
    """
    if under_way.call.ended:
        return
    try:
        status = getattr(answer, "status_code", None)
        if not isinstance(status, int) or status < 400 or not isinstance(error, Exception):
            under_way.failed(error)
            return
        refusal = http_bytes.Refusal(under_way.wire, under_way.context, status, answer.headers)
        refusal.see(http_bodies.content_of(answer) or b"")
        streams.end(under_way.call, refusal.close(), error)
    except Exception:
        swallow("reading an error")
        under_way.failed(error)
