"""What a turn leaves in a history: a response as it may be recorded, and many segments as one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from endturn.chat import Blocks, ChatResponse, Message, ToolCall
from endturn.continuation.stitch import stitch
from endturn.stop import TRUNCATED, StopReason


def record(response: ChatResponse, calls: Sequence[ToolCall], *, text: str | None = None) -> Message:
    """A response's message with `calls` only. The text and the reason stay.

    Where calls are left out, the content in the format's own shape goes as a whole: it would bring them back.

    Args:
        calls: those of the response that were run, or answered.
        text: what is recorded of the text, by default all.
    """
    message = response.message(include_cut=True)
    if len(calls) == len(response.tool_calls) and text is None:
        return message
    kept = {call.id for call in calls}
    first = once(call for call in response.tool_calls if call.id in kept)
    reason = message.stop_reason if first else response.stop.promoted_from or message.stop_reason
    return message.but(
        content=response.text if text is None else text,
        tool_calls=first,
        blocks=None,
        stop_reason=reason,
    )


def once(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """The calls, of several with one id the first."""
    first: dict[str, ToolCall] = {}
    for call in calls:
        first.setdefault(call.id, call)
    return tuple(first.values())


def collapse(messages: Iterable[Message], *, min_overlap: int = 16, max_overlap: int = 1_024) -> tuple[Message, ...]:
    """A conversation as the model and the host should see it: no nudges, every answer one assistant message.

    What was not written by a controller is passed through unchanged: an assistant message is only joined with the one
    before it if a nudge stands between them, or if that one says that it was cut or paused.
    """
    collapsed: list[Message] = []
    nudged = False
    for message in messages:
        if message.synthetic:
            nudged = True
            continue
        before = collapsed[-1] if collapsed else None
        if before is not None and before.role == message.role == "assistant" and (nudged or _unfinished(before)):
            collapsed[-1] = _joined(before, message, min_overlap, max_overlap, prefilled=not nudged)
        else:
            collapsed.append(message)
        nudged = False
    return without_empty(collapsed)


def without_empty(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages, without answers of ours that say nothing; providers refuse these."""
    return tuple(message for message in messages if not _empty(message))


def _unfinished(message: Message) -> bool:
    return message.stop_reason is StopReason.PAUSED or message.stop_reason in TRUNCATED


def _empty(message: Message) -> bool:
    """An assistant message of ours that says nothing."""
    return (
        message.role == "assistant"
        and message.stop_reason is not None
        and not message.text.strip()
        and not message.tool_calls
        and message.blocks is None
    )


def _joined(first: Message, second: Message, min_overlap: int, max_overlap: int, *, prefilled: bool) -> Message:
    if _empty(first):
        return second
    if first.stop_reason is StopReason.PAUSED:
        return second.but(content=first.text + second.text, blocks=_together(first.blocks, second.blocks))
    text = stitch(first.text, second.text, min_overlap=min_overlap, max_overlap=max_overlap, prefilled=prefilled)
    # Thinking and signatures go along, as long as nothing at the seam was taken out of the text that stands among them.
    blocks = _together(first.blocks, second.blocks) if text == first.text + second.text else None
    return second.but(content=text, blocks=blocks)


def _together(first: Blocks | None, second: Blocks | None) -> Blocks | None:
    """Content blocks of one answer that came in two, in order; None where the format keeps whole messages instead."""
    if first is None or second is None or first.format != second.format:
        return None
    items = (*first.items, *second.items)
    return None if any("role" in item for item in items) else Blocks(first.format, items)
