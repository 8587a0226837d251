"""Messages of a turn's history.

A response as it may be recorded, and segments merged into one conversation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from endturn.continuation.stitching import stitch
from endturn.formats import together, unfinished, with_text
from endturn.vocabulary import HALF, TRUNCATED, Blocks, ChatResponse, Message, StopReason, ToolCall


def record(
    response: ChatResponse, calls: Sequence[ToolCall], *, text: str | None = None
) -> Message:
    """Return a response's message with `calls` only. Its text and stop reason are kept.

    Omitted calls are removed from the content in the format's own shape too; signed content is
    kept.

    Args:
        calls: those of the response that were run, or answered.
        text: what is recorded of the text, by default all.
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
    """Return the calls without those that repeat an id."""
    first: dict[str, ToolCall] = {}
    for call in calls:
        first.setdefault(call.id, call)
    return tuple(first.values())


def collapse(
    messages: Iterable[Message], *, min_overlap: int = 16, max_overlap: int = 1_024
) -> tuple[Message, ...]:
    """Return a conversation as the model and the host should see it.

    No nudges, each answer as one message.

    What was not written by a controller is passed through unchanged: an assistant message is only
    joined with the one before it if a nudge stands between them, or if that one says that it was
    cut or paused.
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
    """Return the messages without our empty answers, which providers refuse."""
    return tuple(message for message in messages if not _is_empty(message))


def _is_unfinished(message: Message) -> bool:
    return message.stop_reason is StopReason.PAUSED or message.stop_reason in TRUNCATED


def _is_empty(message: Message) -> bool:
    """Return whether a message is an empty answer of ours."""
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
    # Signed content stands among the text and is kept; the text that the seam removed is not.
    head = first.text if text in (first.text, first.text + second.text) else first.text.rstrip(HALF)
    added = text[len(head) :]
    first_blocks = with_text(sendable(first), head, first.text)
    second_blocks = with_text(second.blocks, added, second.text)
    return second.but(content=text, blocks=together(first_blocks, second_blocks, (head, added)))
