"""The card *What was said* of a turn: the question, the end of the answer, the conversation.

Everything here is empty where no content is recorded.
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
"""Characters that are shown of the end of an answer."""
QUESTION: Final = 4000
"""Characters of the user's message that the card can be expanded to."""
MOST_TEXT: Final = 128 * 1024
"""Characters of a conversation that a page shows, the newest messages first."""
MOST_MESSAGES: Final = 200
MOST_CHOICES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMessages:
    """The messages of one call, and how its response ended.

    Attributes:
        is_replaced: its answer was not used.
        is_part: its answer is a part of the turn's last answer.
        is_continued: a later call asked for the rest of its answer.
        used, limit: output tokens of the response, and of the request's limit.
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
        title: which answer it is.
        kind: TEXT, or TOOL_CALL or REASONING where it ends in one.
        text: its last characters; is_shortened: more stand before them.
        cut: where it was cut off, in words; "" where it was not.
    """

    title: str
    kind: str
    text: str
    is_shortened: bool
    cut: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatWasSaid:
    """What the card shows.

    Attributes:
        question: the last message of the user; others: names of its parts that are no text.
        ends: how the answer ends, a row for each choice.
        more_choices: how many choices are left out.
        conversation: the messages as the last call had them, its answer included.
        left_out: messages before those of `conversation`.
        is_unreadable: messages are recorded, in a form that is not known.
        is_shortened: whoever recorded them left some of it out, or the page does.
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
        """Whether there is nothing to show."""
        return not self.conversation


def what_was_said(calls: Sequence[CallMessages]) -> WhatWasSaid:
    """Return the card of a turn with these calls, in order."""
    recorded = [call.messages for call in calls]
    question_message = next(
        (question for messages in recorded if (question := question_of(messages))), None
    )
    conversation, left_out, is_long = _bounded(_conversation(recorded))
    text = question_message.text() if question_message else ""
    ends = _ends(calls)
    return WhatWasSaid(
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
    # An answer that was cut off before the last one is what a reader looks for.
    for call in calls:
        is_left = not (call.is_part or call.is_replaced or call.is_continued)
        if call.is_truncated and is_left:
            ends = _choice_ends([call], call)
            ends = [replace(end, title=end.title.replace("answer", "answer that was cut off"))
                    for end in ends]  # fmt: skip
    return ends + (_choice_ends(parts, last) if last is not None else [])


def _choice_ends(parts: Sequence[CallMessages], last: CallMessages) -> list[AnswerEnd]:
    """Return the ends of the last call's choices; the text before it is that of one choice."""
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
        ends += _message_ends(choice, before, title, _cut(last, len(choices)) if is_cut else "")
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
        # the arguments of a call that was cut off go no further
        visible = text.removesuffix(")") if is_cut and kind == TOOL_CALL else text
        ends.append(
            AnswerEnd(
                title=title,
                kind=kind,
                text=visible[-END:],
                is_shortened=len(visible) > END,
                cut=mark if is_cut else "",
            )
        )
    return ends


def _cut(call: CallMessages, choices: int) -> str:
    """Say where an answer was cut off: the tokens of several choices are counted together."""
    if call.used is None or choices > 1:
        return "cut here"
    return f"cut here, {call.used} of {call.limit} tokens" if call.limit else (
        f"cut here, after {call.used} tokens"
    )  # fmt: skip


def _conversation(recorded: Sequence[RecordedCall]) -> list[RecordedMessage]:
    """Return the messages of a turn.

    A request repeats the messages before it, unless the server keeps them: then it has only what is
    new.
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
    """Return the newest messages within the bounds, how many are left out, and if one is cut."""
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
