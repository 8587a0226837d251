"""The card of a turn's messages: the question, the end of the answer, the conversation.

It is empty if no content is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from endturn.ui.recorded_messages import (
    REASONING,
    TEXT,
    TOOL_CALL,
    Part,
    RecordedCall,
    RecordedMessage,
    question_of,
)

END: Final = 300
"""The most characters of the end of an answer."""
QUESTION: Final = 4000
"""The most characters of the user's message in the expanded card."""
MOST_TEXT: Final = 128 * 1024
"""The most characters of a conversation on a page; the newest messages take precedence."""
MOST_MESSAGES: Final = 200
MOST_CHOICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMessages:
    """The messages of one call, and the facts of its response.

    Attributes:
        is_replaced: its answer was discarded.
        is_part: its answer is a part of the turn's last answer.
        is_continued: a later call continues its answer.
        used, limit: output tokens of the response, and the limit of the request.
    """

    messages: RecordedCall
    is_truncated: bool = False
    is_replaced: bool = False
    is_part: bool = False
    is_continued: bool = False
    used: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEnd:
    """The end of an answer.

    Attributes:
        title: names the answer, if there are several.
        kind: TEXT, or TOOL_CALL or REASONING if it ends in one.
        text: its last characters; is_shortened: they are not the whole text.
        mark: describes the truncation; "" if it was not truncated.
    """

    title: str
    kind: str
    text: str
    is_shortened: bool
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesCard:
    """The contents of the card.

    Attributes:
        question: the last user message; others: the kinds of its parts that are not text.
        ends: the end of the answer, one for each choice.
        more_choices: the number of choices that are left out.
        conversation: the messages of the last request, and its answer.
        left_out: the number of messages before those of `conversation`.
        is_unreadable: messages are recorded in an unknown form.
        is_shortened: the recorded messages, or those on the page, are not complete.
    """

    question: str = ""
    others: tuple[str, ...] = ()
    ends: tuple[AnswerEnd, ...] = ()
    more_choices: int = 0
    conversation: tuple[RecordedMessage, ...] = ()
    left_out: int = 0
    is_unreadable: bool = False
    is_shortened: bool = False

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to show."""
        return not self.conversation


def messages_card(calls: Sequence[CallMessages]) -> MessagesCard:
    """Return the card of a turn with these calls, in order."""
    recorded = [call.messages for call in calls]
    question_message = next(
        (question for messages in recorded if (question := question_of(messages))), None
    )
    conversation, left_out, is_long = _bounded(_conversation(recorded))
    text = question_message.text() if question_message else ""
    ends = _ends(calls)
    return MessagesCard(
        question=text[:QUESTION],
        others=tuple(
            part.kind
            for part in (question_message.parts if question_message else ())
            if not part.text
        )[:20],
        ends=tuple(ends[:MOST_CHOICES]),
        more_choices=max(0, len(ends) - MOST_CHOICES),
        conversation=conversation,
        left_out=left_out,
        is_unreadable=any(messages.is_unreadable for messages in recorded),
        is_shortened=is_long
        or len(text) > QUESTION
        or any(messages.is_shortened for messages in recorded),
    )


def _ends(calls: Sequence[CallMessages]) -> list[AnswerEnd]:
    parts = [call for call in calls if call.is_part and not call.is_replaced]
    last = parts[-1] if parts else None
    ends: list[AnswerEnd] = []
    # A truncated answer before the last one is shown first: it is what a reader looks for.
    for call in calls:
        is_left = not (call.is_part or call.is_replaced or call.is_continued)
        if call.is_truncated and is_left:
            ends = _choice_ends([call], call)
            ends = [replace(end, title=end.title.replace("answer", "answer that was cut off"))
                    for end in ends]  # fmt: skip
    return ends + (_choice_ends(parts, last) if last is not None else [])


def _choice_ends(parts: Sequence[CallMessages], last: CallMessages) -> list[AnswerEnd]:
    """Return the ends of the last call's choices; a single choice includes the earlier pieces."""
    choices = last.messages.output
    ends: list[AnswerEnd] = []
    for number, choice in enumerate(choices, 1):
        before = ""
        if len(choices) == 1:
            before = "".join(
                message.text() for part in parts[:-1] for message in part.messages.output[:1]
            )
        title = "The end of the answer"
        is_cut = last.is_truncated
        if len(choices) > 1:
            title += f", choice {number} of {len(choices)}"
            is_cut = choice.finish_reason in ("length", "max_tokens") if (
                choice.finish_reason
            ) else is_cut  # fmt: skip
        ends += _message_ends(
            choice, before, title, _truncation_mark(last, len(choices)) if is_cut else ""
        )
    return ends


def _message_ends(message: RecordedMessage, before: str, title: str, mark: str) -> list[AnswerEnd]:
    """Return the end of a message's text, and of the tool call that it ends in."""
    answer = before + message.text()
    calls = [part.text for part in message.parts if part.kind == TOOL_CALL]
    rows = [(TEXT, answer)] if answer else []
    rows += [(TOOL_CALL, calls[-1])] if calls else []
    if not rows and (thought := message.text(REASONING)):
        rows = [(REASONING, thought)]
    ends = []
    for kind, text in rows:
        is_cut = bool(mark) and (kind, text) == rows[-1]
        # without the closing bracket, which truncated arguments do not have
        visible = text.removesuffix(")") if is_cut and kind == TOOL_CALL else text
        ends.append(
            AnswerEnd(
                title=title,
                kind=kind,
                text=visible[-END:],
                is_shortened=len(visible) > END,
                mark=mark if is_cut else "",
            )
        )
    return ends


def _truncation_mark(call: CallMessages, choices: int) -> str:
    """Return the words that mark a truncation, with its tokens if they are those of one choice."""
    if call.used is None or choices > 1:
        return "cut here"
    return f"cut here, {call.used} of {call.limit} tokens" if call.limit else (
        f"cut here, after {call.used} tokens"
    )  # fmt: skip


def _conversation(recorded: Sequence[RecordedCall]) -> list[RecordedMessage]:
    """Return the messages of a turn.

    A request repeats the earlier messages, unless the server stores them: then it has only the new
    ones.
    """
    messages: list[RecordedMessage] = []
    for call in recorded:
        inputs = list(call.input)
        is_repeated = not messages or (
            inputs and (inputs[0] == messages[0] or len(inputs) >= len(messages))
        )
        messages = inputs if is_repeated else messages + inputs
        messages += call.output
    return messages


def _bounded(
    messages: Sequence[RecordedMessage],
) -> tuple[tuple[RecordedMessage, ...], int, bool]:
    """Return the newest messages within the limits, the number left out, and if one is cut."""
    newest: list[RecordedMessage] = []
    room, is_cut = MOST_TEXT, False
    for message in reversed(messages[-MOST_MESSAGES:]):
        if room <= 0:
            break
        parts: list[Part] = []
        for part in message.parts:
            text = part.text[: max(room, 0)]
            is_cut |= len(text) < len(part.text)
            room -= len(text) + 1
            parts.append(Part(part.kind, text))
        newest.append(replace(message, parts=tuple(parts)))
    return tuple(reversed(newest)), len(messages) - len(newest), is_cut
