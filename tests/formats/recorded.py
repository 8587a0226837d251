"""Every format's hand-written replies, and how its SDK hands them out: what the laws of the formats are tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

from anthropic.types.beta import BetaMessage, BetaRawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from endturn.formats import FORMATS, Context, Event, RequestSummary, format_of, framing
from endturn.formats.format import Format
from tests.formats import replies

Json = dict[str, Any]
CTX = Context(provider="acme", asked=RequestSummary(maximum=1000))


@dataclass(frozen=True)
class Recorded:
    """The replies of one format.

    Attributes:
        bodies, streams: by what they show.
        context: what a format must know to read the reply of that name.
        body_object, event_objects: a body, and a stream's events, as the real SDK hands them out; None where no SDK of
            this format makes objects of them.
    """

    format: Format
    bodies: dict[str, Json]
    streams: dict[str, list[Event]]
    context: Callable[[str], Context]
    body_object: Callable[[Json], Any] | None
    event_objects: Callable[[Sequence[Event]], list[Any]] | None


def _ours(name: str) -> Context:
    return CTX


def _chat_chunks(events: Sequence[Event]) -> list[Any]:
    construct = cast(Any, ChatCompletionChunk).construct
    return [construct(**event.data) for event in events if event.data != framing.DONE]


def _anthropic_events(events: Sequence[Event]) -> list[Any]:
    from anthropic._models import construct_type  # what the SDK itself builds events with

    return [construct_type(type_=cast(Any, BetaRawMessageStreamEvent), value=event.data) for event in events]


def _recorded(name: str) -> Recorded:
    if name == "openai_chat":
        of_body = lambda body: cast(Any, ChatCompletion).construct(**body)  # noqa: E731 - as beside it
        return Recorded(format_of(name), replies.CHAT, replies.CHAT_STREAMS, _ours, of_body, _chat_chunks)
    if name == "anthropic":
        of_body = lambda body: cast(Any, BetaMessage).construct(**body)  # noqa: E731 - as beside it
        return Recorded(
            format_of(name), replies.ANTHROPIC, replies.ANTHROPIC_STREAMS, _ours, of_body, _anthropic_events
        )
    module = import_module(f"tests.formats.replies_{name}")
    return Recorded(
        format_of(name),
        module.BODIES,
        module.STREAMS,
        getattr(module, "context", _ours),
        getattr(module, "body_object", None),
        getattr(module, "event_objects", None),
    )


RECORDED: dict[str, Recorded] = {name: _recorded(name) for name in FORMATS}
