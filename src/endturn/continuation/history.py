"""Messages of a turn's history: recordable responses, and segments merged into one conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from endturn.continuation.stitching import stitch
from endturn.formats import together, unfinished, with_text
from endturn.vocabulary import (
    REPLACEMENT_CHARACTER,
    TRUNCATED,
    Blocks,
    ChatResponse,
    Message,
    StopReason,
    ToolCall,
)


def record(
    response: ChatResponse, calls: Sequence[ToolCall], *, text: str | None = None
) -> Message:
    """Return a response's message with only these calls, its text and its stop reason.

    Omitted calls are also removed from the content in the format's own shape; signed content is
    kept.

    Args:
        calls: the response's calls that were run or answered.
        text: the recorded part of the text; defaults to all.
    """
    message = response.message(include_cut=True)
    if len(calls) == len(response.tool_calls) and text is None:
        return message
    call_ids = {call.id for call in calls}
    recorded_calls = unique_calls(call for call in response.tool_calls if call.id in call_ids)
    reason = (
        message.stop_reason
        if recorded_calls
        else response.stop.promoted_from or message.stop_reason
    )
    text = response.text if text is None else text
    blocks = response.blocks
    if len(calls) != len(response.tool_calls):
        blocks = sendable(response, recorded_calls)
    return message.but(
        content=text,
        tool_calls=recorded_calls,
        blocks=with_text(blocks, text, response.text),
        stop_reason=reason,
    )


def sendable(answer: ChatResponse | Message, calls: Sequence[ToolCall] = ()) -> Blocks | None:
    """Return the blocks of an answer that ended early, with these calls.

    After a pause the server needs all of them.
    """
    is_paused = answer.stop_reason is StopReason.PAUSED
    return unfinished(answer.blocks, calls, resend=is_paused)


def unique_calls(calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
    """Return the calls without repeated ids."""
    first: dict[str, ToolCall] = {}
    for call in calls:
        first.setdefault(call.id, call)
    return tuple(first.values())


def collapse(
    messages: Iterable[Message], *, min_overlap: int = 16, max_overlap: int = 1_024
) -> tuple[Message, ...]:
    """Return a conversation without nudges, with each answer as one message.

    Messages that no controller wrote are unchanged: an assistant message is only joined with the
    one before it if a nudge is between them, or if the earlier one was truncated or paused.
    """
    collapsed: list[Message] = []
    nudged = False
    for message in messages:
        if message.synthetic:
            nudged = True
            continue
        previous = collapsed[-1] if collapsed else None
        if (
            previous is not None
            and previous.role == message.role == "assistant"
            and (nudged or _is_unfinished(previous))
        ):
            collapsed[-1] = join_messages(
                previous,
                message,
                min_overlap=min_overlap,
                max_overlap=max_overlap,
                prefilled=not nudged,
            )
        else:
            collapsed.append(message)
        nudged = False
    return without_empty(collapsed)


def without_empty(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Return the messages without a controller's empty answers, which providers reject."""
    return tuple(message for message in messages if not _is_empty(message))


def _is_unfinished(message: Message) -> bool:
    return message.stop_reason is StopReason.PAUSED or message.stop_reason in TRUNCATED


def _is_empty(message: Message) -> bool:
    """Return whether a message is an empty answer that a controller recorded."""
    return (
        message.role == "assistant"
        and message.stop_reason is not None
        and not message.text.strip()
        and not message.tool_calls
        and message.blocks is None
    )


def join_messages(
    first: Message,
    second: Message,
    *,
    min_overlap: int = 16,
    max_overlap: int = 1_024,
    prefilled: bool,
) -> Message:
    """Return two parts of one answer as one message, with the signed content of both."""
    if _is_empty(first):
        return second
    if first.stop_reason is StopReason.PAUSED:
        text = first.text + second.text
    else:
        text = stitch(
            first.text,
            second.text,
            min_overlap=min_overlap,
            max_overlap=max_overlap,
            prefilled=prefilled,
        )
    if second.blocks is None and second.tool_calls:  # blocks without its calls would lose them
        return second.but(content=text, blocks=None)
    # Signed content among the text is kept; the text that the seam removed is not.
    head = (
        first.text
        if text in (first.text, first.text + second.text)
        else first.text.rstrip(REPLACEMENT_CHARACTER)
    )
    added = text[len(head) :]
    first_blocks = with_text(sendable(first), head, first.text)
    second_blocks = with_text(second.blocks, added, second.text)
    return second.but(content=text, blocks=together(first_blocks, second_blocks, (head, added)))
