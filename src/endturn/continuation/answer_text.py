"""The text of a streaming turn: its answer, and the part that the consumer has received.

Text is held back in this module only: half a character until the next piece arrives, the beginning
of a continuation until its seam is decided, and an answer that may still be replaced. Text that the
consumer has received is never taken back: if it is replaced, it stays in `shown`, and is no part of
`answer`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from endturn.calls import Strategy
from endturn.continuation.limits import BUDGETED_STRATEGIES
from endturn.continuation.stitching import Seam
from endturn.formats import arguments, with_text
from endturn.vocabulary import (
    REPLACEMENT_CHARACTER,
    ChatResponse,
    Delta,
    PieceJoiner,
    Stop,
    StopReason,
    ToolCall,
)

NO_LIMIT: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class _Discarded:
    """Text that was taken out of an answer.

    Attributes:
        start: its position in the answer.
        text: the text.
        held_text: the end of it that the consumer has not received.
    """

    start: int
    text: str
    held_text: str = ""


class AnswerText:
    """The text of one turn, released piece by piece. Each response adds a part.

    Args:
        shown: text that was released before; answer: the part of it that is the present answer.
        discarded: the part of `shown` that the next response replaces.
        restarted: as in TurnResult.
        min_overlap, max_overlap: as in ContinuationPolicy.

    Attributes:
        restated: the latest part repeated the complete answer at its beginning.
            is_restarted_prefill: the latest part is a different text with the answer's beginning,
            and was left out completely.
    """

    __slots__ = (
        "_answer",
        "_discarded",
        "_excess",
        "_follows_seam",
        "_hidden",
        "_hidden_size",
        "_is_again",
        "_max_overlap",
        "_min_held",
        "_min_overlap",
        "_part",
        "_restarts",
        "_room",
        "_seam",
        "_shown",
        "is_restarted_prefill",
        "restarted",
        "restated",
    )  # fmt: skip

    def __init__(
        self, shown: str = "", answer: str = "", *, discarded: str = "", restarted: bool = False,
        min_overlap: int = 16, max_overlap: int = 1_024,
    ) -> None:  # fmt: skip
        self._shown, self._answer = [shown], [answer]
        self._hidden: list[str] = []  # end of the answer that was not released
        self._hidden_size = 0
        self._part = len(answer)  # start of the latest part
        self._discarded = _Discarded(len(answer), discarded) if discarded.strip() else None
        self._restarts = self._discarded is not None  # the next text replaces text that was shown
        self.restarted = restarted
        self.restated = self.is_restarted_prefill = False
        self._min_overlap, self._max_overlap = min_overlap, max_overlap
        self._seam: Seam | None = None
        self._follows_seam = self._is_again = False
        self._min_held = 0
        self._room, self._excess = NO_LIMIT, ""

    @property
    def shown(self) -> str:
        """All released text, and the text that is held back."""
        self._shown = ["".join(self._shown)]
        return self._shown[0] + "".join(self._hidden)

    @property
    def answer(self) -> str:
        """The present answer as far as it has arrived, without text that was replaced."""
        if len(self._answer) > 1:
            self._answer = ["".join(self._answer)]
        return self._answer[0]

    @property
    def added(self) -> str:
        """The text that the latest part has added to the answer."""
        return self.answer[self._part :]

    @property
    def held_size(self) -> int:
        """The number of characters that are held back."""
        return self._hidden_size + (len(self._seam.buffer) if self._seam is not None else 0)

    @property
    def is_overlong(self) -> bool:
        """True if the latest part is longer than its room."""
        return self._excess != ""

    # --- Parts ------------------------------------------------------------------------------------

    def begin(self, *, room: int = NO_LIMIT, hold: int = 0) -> list[Delta]:
        """Begin a part of the answer, unless it repeats the latest one.

        Returns text that is no longer held back.

        Args:
            room: characters that the part may add.
            hold: visible characters that must have arrived before text is released; NO_LIMIT holds
                all of it back.
        """
        if not self._is_again:
            self._part = len(self.answer)
        self._is_again, self._min_held = False, hold
        self._room, self._excess = room, ""
        self.restated = self.is_restarted_prefill = False
        return self._release()

    def expect_continuation(self, *, prefilled: bool = False) -> None:
        """Join the next part to the truncated answer; `prefilled` as in `Seam`."""
        self._follows_seam, self._seam = True, None
        if self.answer:
            self._seam = Seam(
                self.answer,
                min_overlap=self._min_overlap,
                max_overlap=self._max_overlap,
                prefilled=prefilled,
            )

    def expect_repetition(self, part: str) -> None:
        """Treat the next text as a repetition of the latest part.

        `part` is that part's text so far.
        """
        stripped_part, answer = (
            part.rstrip(REPLACEMENT_CHARACTER),
            self.answer.rstrip(REPLACEMENT_CHARACTER),
        )
        self._is_again, self._follows_seam = True, self._follows_seam or stripped_part != part
        if answer.endswith(stripped_part):
            self._part = len(answer) - len(stripped_part)
        if stripped_part:
            self._seam = Seam(
                stripped_part,
                min_overlap=self._min_overlap,
                max_overlap=self._max_overlap,
                again=True,
            )

    def end_answer(self) -> list[Delta]:
        """End the answer. Returns all text that was held back."""
        return self._release(everything=True)

    def begin_answer(self) -> None:
        """Begin another answer, after tools were run."""
        self._answer, self._part, self._discarded = [""], 0, None

    def discard_latest(self) -> None:
        """Remove the latest part from the answer, which another replaces. It can be restored."""
        added, hidden = self.added, "".join(self._hidden)
        unseen = hidden[-len(added) :] if added else ""
        if added.strip():
            self._discarded = _Discarded(self._part, added, unseen)
        self._restarts = self._restarts or bool(added[: len(added) - len(unseen)].strip())
        self._answer = [self.answer[: self._part]]
        self._hide(hidden[: len(hidden) - len(unseen)])

    def restore(self) -> None:
        """Restore the discarded part, if nothing but white space has replaced it."""
        if self._discarded is None:
            return
        discarded, hidden, blank_size = (
            self._discarded,
            "".join(self._hidden),
            len(self.answer) - self._discarded.start,
        )
        self._answer = [self.answer[: discarded.start] + discarded.text]
        self._hide(hidden[: max(0, len(hidden) - blank_size)] + discarded.held_text)
        self._discarded, self._restarts = None, False

    # --- Pieces -----------------------------------------------------------------------------------

    def pass_through(self, text: str) -> bool:
        """Add the next piece if it can be released unchanged. Returns whether it was added."""
        if self._seam is not None or self._hidden or self._min_held or self._follows_seam:
            return False
        if (
            self._restarts
            or self._discarded is not None
            or text.endswith(REPLACEMENT_CHARACTER)
            or len(text) > self._room
        ):
            return False
        self._room -= len(text)
        self._answer.append(text)
        self._shown.append(text)
        return True

    def feed(self, text: str, *, restart: bool = False) -> list[Delta]:
        """Add the next piece; return the text that can be released now.

        `restart`: the response starts again with this piece.
        """
        deltas: list[Delta] = []
        if restart:
            deltas = [*self.close(), *self._release(everything=not self._min_held)]
            self.discard_latest()
        if self._seam is None:
            return deltas + self._take(text)
        return deltas + self._take_decided(self._seam.feed(text))

    def close(self) -> list[Delta]:
        """End the part; return the text that its seam held back."""
        return [] if self._seam is None else self._take_decided(self._seam.feed("", last=True))

    def take_excess(self) -> list[Delta]:
        """Add the text of the latest part that was beyond its room."""
        beyond, self._room, self._excess = self._excess, NO_LIMIT, ""
        return self._take(beyond)

    def _take_decided(self, text: str | None) -> list[Delta]:
        if text is None or self._seam is None:
            return []
        self._restarts = self._restarts or self._seam.restarted
        self.restated, self.is_restarted_prefill = (
            self._seam.restated,
            self._seam.is_restarted_prefill,
        )
        self._seam = None
        return self._take(text)

    def _take(self, text: str) -> list[Delta]:
        if len(text) > self._room:
            text, self._excess = text[: self._room], self._excess + text[self._room :]
        self._room -= len(text)
        if not text:
            return []
        if self._follows_seam:
            self._drop_half_character()
        self._answer.append(text)
        self._hidden.append(text)
        self._hidden_size += len(text)
        if text.strip():
            self._discarded = None
        return [] if text.isspace() and self._min_held else self._release()

    def _drop_half_character(self) -> None:
        """Remove half a character at the end of the answer, because text follows it."""
        self._follows_seam = False
        answer, hidden = self.answer.rstrip(REPLACEMENT_CHARACTER), "".join(self._hidden)
        self._hide(hidden[: max(0, len(hidden) - len(self.answer) + len(answer))])
        self._answer, self._part = [answer], min(self._part, len(answer))

    def _hide(self, text: str) -> None:
        self._hidden, self._hidden_size = [text] if text else [], len(text)

    def _release(self, *, everything: bool = False) -> list[Delta]:
        """Return text that is no longer held back."""
        if not self._hidden or (self._hidden_size < self._min_held and not everything):
            return []
        text, held_size = "".join(self._hidden), 0
        if not everything:
            if len(text.strip()) < self._min_held:
                return []
            self._min_held = 0
            held_size = min(len(text) - len(text.rstrip(REPLACEMENT_CHARACTER)), self._max_overlap)
        ready = text[: len(text) - held_size]
        self._hide(REPLACEMENT_CHARACTER * held_size)
        self._shown.append(ready)
        restart = self._restarts and ready.strip() != ""
        if restart:
            self.restarted, self._restarts = True, False
        return [Delta(text=ready, restart=restart)] if ready else []


# --- One response ---------------------------------------------------------------------------------


class IncomingResponse:
    """Collects a response's deltas, and returns those that the consumer may receive.

    Pieces of tool calls are held back until the gate has passed the calls.

    Args:
        text: the text of the turn.
        strategy: how the call asks for a continuation; None for an ordinary call.

    Attributes:
        response: None until `close` was called. If the response never ended, the part that arrived,
            with the stop reason `missing`.
        is_overlong: the response was truncated, or continues one that was, and is longer than its
            room; `response` has the part that was kept.
    """

    __slots__ = (
        "_calls",
        "_pieces",
        "_reasoning",
        "_received",
        "_strategy",
        "_text",
        "is_overlong",
        "response",
    )

    def __init__(self, text: AnswerText, strategy: Strategy | None = None) -> None:
        self.response: ChatResponse | None = None
        self.is_overlong = False
        self._strategy = strategy
        self._text = text
        self._received: list[str] = []
        self._pieces = PieceJoiner()  # set by a provider function that reads a stream by itself
        self._reasoning: list[str] = []
        self._calls: dict[int, list[str]] = {}

    def feed(self, delta: Delta) -> Iterable[Delta]:
        """Add the next delta; return the deltas that the consumer may receive."""
        text = self._pieces.take(delta.text, "text")
        is_whole = text is delta.text
        # Nearly every delta is text that passes unchanged: the fast path.
        if (
            text
            and not (delta.reasoning or delta.restart)
            and delta.call is None
            and self._text.pass_through(text)
        ):
            self._received.append(text)
            return (delta if is_whole else Delta(text=text),)
        out: list[Delta] = []
        if reasoning := self._pieces.take(delta.reasoning, "reasoning"):
            self._reasoning.append(reasoning)
            out.append(Delta(reasoning=reasoning))
        if delta.call is not None:
            id_, name, raw = self._calls.get(delta.call.index, ("", "", ""))
            piece = delta.call
            self._calls[piece.index] = [
                id_ or piece.id or "",
                name or piece.name or "",
                raw + piece.arguments,
            ]
        if delta.restart:
            self._received.clear()
        if text or delta.restart:
            self._received.append(text)
            out += self._text.feed(text, restart=delta.restart)
        return out

    def close(self, response: ChatResponse | None) -> list[Delta]:
        """End the response; return its text that was not among the deltas.

        Only the first call counts.

        Args:
            response: the complete response; None if it never ended.
        """
        if self.response is not None:
            return []
        received = "".join(self._received)
        if response is None:
            response = self._unfinished(received + self._pieces.replacement("text"))
        response = _with_arguments(response)
        out = (
            [Delta(reasoning=response.reasoning)]
            if response.reasoning and not self._reasoning
            else []
        )
        if not declines(response, self._strategy) and response.text.startswith(received):
            out += self._text.feed(response.text[len(received) :])
        out += self._text.close()
        if self._text.is_overlong:
            self.is_overlong = self._strategy in BUDGETED_STRATEGIES or response.stop.truncated
            if self.is_overlong:
                added = self._text.added
                response = response.but(
                    text=added, blocks=with_text(response.blocks, added, response.text)
                )
            else:
                out += self._text.take_excess()
        self.response = response
        return out

    def _unfinished(self, text: str) -> ChatResponse:
        """Return the received part of a response that never ended."""
        calls = tuple(
            ToolCall(id=id_ or f"call_{index}", name=name, arguments_raw=raw, closed=False)
            for index, (id_, name, raw) in sorted(self._calls.items())
        )
        stop = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        return ChatResponse(
            text=text, reasoning="".join(self._reasoning) or None, tool_calls=calls, stop=stop
        )


def declines(response: ChatResponse, strategy: Strategy | None) -> bool:
    """Return whether a continuation's response is a refusal, which is not part of the answer."""
    return response.stop.reason is StopReason.REFUSED and strategy not in (
        None,
        Strategy.RETRY,
        Strategy.RETRIEVE,
    )


def _with_arguments(response: ChatResponse) -> ChatResponse:
    """Return the response with parsed arguments, where a provider function returned text."""
    calls = tuple(
        call.but(arguments=arguments(call.arguments_raw))
        if call.arguments is None and call.arguments_raw
        else call
        for call in response.tool_calls
    )
    return response if calls == response.tool_calls else response.but(tool_calls=calls)
