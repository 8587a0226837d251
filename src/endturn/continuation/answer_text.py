"""The visible text of a turn while it comes, and one response of it: what is the answer, what the consumer has of it.

One place holds text back: half a character until it is known what follows, the beginning of a continuation until its
seam is decided, and what may yet be replaced by another answer. Text once given out is never taken back: what was
given and then replaced stays in `shown`, and is no part of `answer`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from endturn.chat import ChatResponse, Delta, ToolCall
from endturn.continuation.limits import COUNTED
from endturn.continuation.stitch import Seam
from endturn.continuation.text_heuristics import HALF
from endturn.events import Strategy
from endturn.formats.reading import arguments
from endturn.stop import Stop, StopReason

NO_LIMIT: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class _Aside:
    """What was taken out of an answer: where it stood, and so much of its end that nobody has seen."""

    at: int
    text: str
    unseen: str = ""


class AnswerText:
    """The text of the answers of one turn, given out piece by piece.

    Args:
        shown: what was given out before; answer: what of it is the present answer.
        aside: what of it another answer was asked for in place of.
        restarted: as in TurnResult.
        min_overlap, max_overlap: as in ContinuationPolicy.
    """

    __slots__ = ("_answer", "_aside", "_beyond", "_follows_seam", "_hidden", "_hidden_size", "_hold", "_is_again",
                 "_least", "_most", "_part", "_restarts", "_room", "_seam", "_shown", "restarted")  # fmt: skip

    def __init__(
        self, shown: str = "", answer: str = "", *, aside: str = "", restarted: bool = False,
        min_overlap: int = 16, max_overlap: int = 1_024,
    ) -> None:  # fmt: skip
        self._shown, self._answer = [shown], [answer]
        self._hidden: list[str] = []  # the end of the answer that was not given out
        self._hidden_size = 0
        self._part = len(answer)  # where the latest part begins
        self._aside = _Aside(len(answer), aside) if aside.strip() else None
        self._restarts = self._aside is not None  # what comes next is another text in place of what was shown
        self.restarted = restarted
        self._least, self._most = min_overlap, max_overlap
        self._seam: Seam | None = None
        self._follows_seam = self._is_again = False
        self._hold = 0
        self._room, self._beyond = NO_LIMIT, ""

    @property
    def shown(self) -> str:
        """All that was given out, and what is held back of it."""
        self._shown = ["".join(self._shown)]
        return self._shown[0] + "".join(self._hidden)

    @property
    def answer(self) -> str:
        """The present answer: all of it that has come, without what was replaced."""
        if len(self._answer) > 1:
            self._answer = ["".join(self._answer)]
        return self._answer[0]

    @property
    def added(self) -> str:
        """What the latest part has added."""
        return self.answer[self._part :]

    @property
    def held(self) -> int:
        """How many characters wait."""
        return self._hidden_size + (len(self._seam.held) if self._seam is not None else 0)

    @property
    def overflowed(self) -> bool:
        """Whether the latest part is longer than there was room for."""
        return self._beyond != ""

    # --- Parts ----------------------------------------------------------------------------------------------------

    def begin(self, *, room: int = NO_LIMIT, hold: int = 0) -> list[Delta]:
        """A part of the answer begins here, unless it is the latest once more. Returns what need not wait any more.

        Args:
            room: characters that it may add.
            hold: visible characters that must have come before anything is given out; NO_LIMIT holds all of it back.
        """
        if not self._is_again:
            self._part = len(self.answer)
        self._is_again, self._hold = False, hold
        self._room, self._beyond = room, ""
        return self._give()

    def seam(self, *, prefilled: bool = False) -> None:
        """What comes from now on continues a text that was cut off here; `prefilled` as in `Seam`."""
        self._follows_seam, self._seam = True, None
        if self.answer:
            self._seam = Seam(self.answer, least=self._least, most=self._most, prefilled=prefilled)

    def again(self, part: str) -> None:
        """What comes from now on is the latest part from its beginning, as far as it had come: `part`."""
        said, stood = part.rstrip(HALF), self.answer.rstrip(HALF)
        self._is_again, self._follows_seam = True, self._follows_seam or said != part
        if stood.endswith(said):
            self._part = len(stood) - len(said)
        if said:
            self._seam = Seam(said, least=self._least, most=self._most, again=True)

    def end_answer(self) -> list[Delta]:
        """Nothing follows in this answer. Returns all that was held back."""
        return self._give(everything=True)

    def begin_answer(self) -> None:
        """Tools have run: what comes from now on is another answer."""
        self._answer, self._part, self._aside = [""], 0, None

    def put_aside(self) -> None:
        """The latest part is to be replaced: it is no part of the answer, but may be restored."""
        added, hidden = self.added, "".join(self._hidden)
        unseen = hidden[-len(added) :] if added else ""
        if added.strip():
            self._aside = _Aside(self._part, added, unseen)
        self._restarts = self._restarts or bool(added[: len(added) - len(unseen)].strip())
        self._answer = [self.answer[: self._part]]
        self._hide(hidden[: len(hidden) - len(unseen)])

    def restore(self) -> None:
        """What was put aside is the answer after all, if nothing but white space has come in its place."""
        if self._aside is None:
            return
        aside, hidden, blank = self._aside, "".join(self._hidden), len(self.answer) - self._aside.at
        self._answer = [self.answer[: aside.at] + aside.text]
        self._hide(hidden[: max(0, len(hidden) - blank)] + aside.unseen)
        self._aside, self._restarts = None, False

    # --- Pieces ---------------------------------------------------------------------------------------------------

    def passes(self, text: str) -> bool:
        """Take the next piece if it can be given out as it is: nothing is undecided. Whether it was taken."""
        if self._seam is not None or self._hidden or self._hold or self._follows_seam:
            return False
        if self._restarts or self._aside is not None or text.endswith(HALF) or len(text) > self._room:
            return False
        self._room -= len(text)
        self._answer.append(text)
        self._shown.append(text)
        return True

    def feed(self, text: str, *, restart: bool = False) -> list[Delta]:
        """Take the next piece; returns what can be given out now. `restart`: the response begins anew with it."""
        before: list[Delta] = []
        if restart:
            before = [*self.close(), *self._give(everything=not self._hold)]
            self.put_aside()
        if self._seam is None:
            return before + self._take(text)
        return before + self._decided(self._seam.feed(text))

    def close(self) -> list[Delta]:
        """The part is over: returns what the seam still held."""
        return [] if self._seam is None else self._decided(self._seam.feed("", last=True))

    def take_beyond(self) -> list[Delta]:
        """There is room for all of the latest part after all."""
        beyond, self._room, self._beyond = self._beyond, NO_LIMIT, ""
        return self._take(beyond)

    def _decided(self, text: str | None) -> list[Delta]:
        if text is None or self._seam is None:
            return []
        self._restarts = self._restarts or self._seam.restarted
        self._seam = None
        return self._take(text)

    def _take(self, text: str) -> list[Delta]:
        if len(text) > self._room:
            text, self._beyond = text[: self._room], self._beyond + text[self._room :]
        self._room -= len(text)
        if not text:
            return []
        if self._follows_seam:
            self._drop_half()
        self._answer.append(text)
        self._hidden.append(text)
        self._hidden_size += len(text)
        if text.strip():
            self._aside = None
        return [] if text.isspace() and self._hold else self._give()

    def _drop_half(self) -> None:
        """Text comes after a seam: half a character before it goes."""
        self._follows_seam = False
        answer, hidden = self.answer.rstrip(HALF), "".join(self._hidden)
        self._hide(hidden[: max(0, len(hidden) - len(self.answer) + len(answer))])
        self._answer, self._part = [answer], min(self._part, len(answer))

    def _hide(self, text: str) -> None:
        self._hidden, self._hidden_size = [text] if text else [], len(text)

    def _give(self, *, everything: bool = False) -> list[Delta]:
        """Give out what need not wait."""
        if not self._hidden or (self._hidden_size < self._hold and not everything):
            return []
        text, waiting = "".join(self._hidden), 0
        if not everything:
            if len(text.strip()) < self._hold:
                return []
            self._hold = 0
            waiting = min(len(text) - len(text.rstrip(HALF)), self._most)
        given = text[: len(text) - waiting]
        self._hide(HALF * waiting)
        self._shown.append(given)
        restart = self._restarts and given.strip() != ""
        if restart:
            self.restarted, self._restarts = True, False
        return [Delta(text=given, restart=restart)] if given else []


# --- One response -------------------------------------------------------------------------------------------------


class IncomingResponse:
    """Takes a response's deltas, and gives out what the consumer may see of them.

    Pieces of tool calls are not given out: until the gate has passed them, nobody may act on them.

    Args:
        strategy: how the call asks; None for an ordinary one.

    Attributes:
        response: None until `close` was called; what had arrived, with the stop `missing`, where the response itself
            never came.
        overflowed: it is cut, or was asked for because one was, and is longer than there was room for; `response` holds
            what was kept.
    """

    __slots__ = ("_calls", "_reasoning", "_said", "_strategy", "_text", "overflowed", "response")

    def __init__(self, text: AnswerText, strategy: Strategy | None = None) -> None:
        self.response: ChatResponse | None = None
        self.overflowed = False
        self._strategy = strategy
        self._text = text
        self._said: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[str]] = {}

    def feed(self, delta: Delta) -> Iterable[Delta]:
        """Take the next delta."""
        text = delta.text
        # Nearly every delta is text, and nothing stands in its way: it costs little, and passes as it is.
        if text and not (delta.reasoning or delta.restart) and delta.call is None and self._text.passes(text):
            self._said.append(text)
            return (delta,)
        out: list[Delta] = []
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            out.append(Delta(reasoning=delta.reasoning))
        if delta.call is not None:
            id_, name, raw = self._calls.get(delta.call.index, ("", "", ""))
            piece = delta.call
            self._calls[piece.index] = [id_ or piece.id or "", name or piece.name or "", raw + piece.arguments]
        if delta.restart:
            self._said.clear()
        if text or delta.restart:
            self._said.append(text)
            out += self._text.feed(text, restart=delta.restart)
        return out

    def close(self, response: ChatResponse | None) -> list[Delta]:
        """The response is over: `response` is what it came to, None where it never said so. Only the first time counts.

        Text of it that was not among the deltas is given out now.
        """
        if self.response is not None:
            return []
        said = "".join(self._said)
        response = _with_arguments(self._lost(said) if response is None else response)
        out = [Delta(reasoning=response.reasoning)] if response.reasoning and not self._reasoning else []
        if not declines(response, self._strategy) and response.text.startswith(said):
            out += self._text.feed(response.text[len(said) :])
        out += self._text.close()
        if self._text.overflowed:
            self.overflowed = self._strategy in COUNTED or response.stop.truncated
            if self.overflowed:
                response = response.but(text=self._text.added, blocks=None)
            else:
                out += self._text.take_beyond()
        self.response = response
        return out

    def _lost(self, said: str) -> ChatResponse:
        """What had arrived of a response that never said how it ended."""
        calls = tuple(
            ToolCall(id=id_ or f"call_{index}", name=name, arguments_raw=raw, closed=False)
            for index, (id_, name, raw) in sorted(self._calls.items())
        )
        stop = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        return ChatResponse(text=said, reasoning="".join(self._reasoning) or None, tool_calls=calls, stop=stop)


def declines(response: ChatResponse, strategy: Strategy | None) -> bool:
    """Whether a response that was to go on with an answer is a refusal instead: that is no part of the answer."""
    return response.stop.reason is StopReason.REFUSED and strategy not in (None, Strategy.RETRY, Strategy.RETRIEVE)


def _with_arguments(response: ChatResponse) -> ChatResponse:
    """A response whose arguments are parsed, where a provider function gave text alone: some formats send objects."""
    calls = tuple(
        call.but(arguments=arguments(call.arguments_raw)) if call.arguments is None and call.arguments_raw else call
        for call in response.tool_calls
    )
    return response if calls == response.tool_calls else response.but(tool_calls=calls)
