"""What is said in a call, kept while its answer is watched: only where a listener takes content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from endturn.announce import swallow
from endturn.calls import Call
from endturn.chat import ChatResponse, Request
from endturn.errors import DecodeError, ProviderError
from endturn.records import Content
from endturn.stop import Stop
from endturn.wires import Context, Event, Wire
from endturn.wires.reading import plain

_CHOICES: Final = ("choices", "candidates")
"""Where a body or a chunk lists several answers."""


def capture(call: Call, speaks: Wire, body: Mapping[str, Any] | Request, context: Context) -> ContentCapture:
    """Have the call's record say what was asked, and what the returned capture has seen when the call ends.

    Args:
        body: what is sent, read now: a host may change it before the answer has come.
    """
    request = body if isinstance(body, Request) else _request(speaks, body, context)
    captured = ContentCapture(speaks, context)
    beside = context.asked.system is not None
    call.content = lambda stop: Content(request=request, beside=beside, responses=captured.responses(stop))
    return captured


def _request(speaks: Wire, body: Mapping[str, Any], context: Context) -> Request | None:
    try:
        return speaks.request({"model": context.asked.model, **body})
    except (DecodeError, ValueError, TypeError):  # pydantic's too: not in the format, so it is not known
        return None
    except Exception:
        swallow("reading a request")
        return None


class ContentCapture:
    """One answer while it arrives: a whole body, or events. Never raises."""

    def __init__(self, speaks: Wire, context: Context) -> None:
        self._wire = speaks
        self._choices = context.asked.choices
        self._is_stream = context.asked.stream
        # Each choice is read as if it were the only one.
        self._context = context if self._choices == 1 else replace(context, asked=replace(context.asked, choices=1))
        self._decoders: dict[int, Any] = {}
        self._body: Any = None
        self._is_over = False

    def add(self, item: Any) -> None:
        """Take the next event, or the body."""
        if self._is_over:
            return
        try:
            if isinstance(item, Event):
                self._feed(item)
            elif self._is_stream:
                self._feed(Event(None, plain(item)))
            else:
                self._body = plain(item)
        except (DecodeError, ProviderError):
            self._is_over = True  # the provider's error, or another format: what came before it is the answer
        except Exception:
            self._is_over = True
            swallow("keeping what was said")

    def _feed(self, event: Event) -> None:
        for index, each in _answers(event.data, self._choices):
            if index not in self._decoders:
                self._decoders[index] = self._wire.decoder(self._context)
            # Some decoders are generators: nothing happens until they are asked.
            for _ in self._decoders[index].feed(Event(event.name, each)):
                pass

    def responses(self, stop: Stop) -> tuple[ChatResponse, ...]:
        """What came, an item for each choice. `stop` is the first one's, whose end was perhaps not waited for."""
        if self._decoders:
            first, *others = (self._decoders[index].close() for index in sorted(self._decoders))
            return (first.model_copy(update={"stop": stop}), *others)
        if self._body is None:
            return ()
        try:
            return tuple(self._wire.decode(body, ctx=self._context) for _, body in _answers(self._body, self._choices))
        except (DecodeError, ProviderError):
            return ()


def _answers(data: Any, choices: int) -> list[tuple[int, Any]]:
    """A body or chunk, for each of several answers as if that were the only one."""
    if choices == 1 or not isinstance(data, Mapping):
        return [(0, data)]
    name = next((name for name in _CHOICES if isinstance(data.get(name), list)), None)
    if name is None or not data[name]:
        return [(0, data)]
    return [
        (index if isinstance(index, int) else place, {**data, name: [{**each, "index": 0}]})
        for place, each in enumerate(data[name])
        if isinstance(each, Mapping)
        for index in (each.get("index"),)
    ]
