"""The turns that were cut off and may be continued, found by their history; and what a call adds to one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from endturn.records import Turn
from endturn.telemetry.fingerprints import role, text_of
from endturn.wires import Asked

Key = tuple[int, bytes]
"""A history: how many messages it has, and their hash."""


@dataclass(slots=True, eq=False)
class PendingTurn:
    """A turn whose response was cut off, and how its continuation would be known.

    Attributes:
        number: of the call.
        question: the digest of the user's message that it answers.
        keys: the histories of the turn's first and latest call: frameworks append each part, or merge them into one.
        bare: the same histories without their system prompts, where they have any.
        tail: the last visible characters of the cut answer.
        lost: the response was cut by its transport, or the continuation failed: asking again is a retry.
        failed: the latest attempt raised.
        response_id: what a stateful provider calls the cut response.
        conversation_id: the conversation that such a provider keeps it in.
        maximum: the output limit that cut it; again: it had cut the same answer before.
        touched: when it was cut, in seconds of the clock.
    """

    turn: Turn
    number: int
    question: bytes | None
    keys: tuple[Key, ...]
    bare: tuple[Key, ...]
    tail: str
    lost: bool
    failed: bool
    response_id: str | None
    conversation_id: str | None
    maximum: int | None
    again: bool
    touched: float


Name = tuple[str, str]
"""What a server keeps: its kind ("response" or "conversation"), and its id."""


class PendingTurns:
    """The oldest first, and found by history, or by the name that a server keeps a response or a conversation under."""

    def __init__(self) -> None:
        self.by_number: OrderedDict[int, PendingTurn] = OrderedDict()
        self._by_key: dict[Key | Name, dict[int, PendingTurn]] = {}
        self._lengths: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.by_number)

    def add(self, cut: PendingTurn) -> None:
        """Let one wait; it is the youngest then."""
        self.remove(cut)
        self.by_number[cut.number] = cut
        for length, _ in (*cut.keys, *cut.bare):
            self._lengths[length] = self._lengths.get(length, 0) + 1
        for key in _keys(cut):
            self._by_key.setdefault(key, {})[cut.number] = cut

    def remove(self, cut: PendingTurn) -> None:
        """Let one wait no longer."""
        if self.by_number.get(cut.number) is not cut:
            return
        del self.by_number[cut.number]
        for length, _ in (*cut.keys, *cut.bare):
            self._lengths[length] -= 1
            if not self._lengths[length]:
                del self._lengths[length]
        for key in _keys(cut):
            same = self._by_key[key]
            del same[cut.number]
            if not same:
                del self._by_key[key]

    def lengths(self, most: int) -> list[int]:
        """How many messages the histories have that may be the beginning of one with `most`."""
        return sorted(length for length in self._lengths if length <= most)

    def of(self, key: Key | Name) -> Iterator[PendingTurn]:
        """Those that answer this history, or are called so; the youngest first."""
        return reversed(list(self._by_key.get(key, {}).values()))


def _keys(cut: PendingTurn) -> list[Key | Name]:
    named = (("response", cut.response_id), ("conversation", cut.conversation_id))
    return [*cut.keys, *cut.bare, *((kind, name) for kind, name in named if name is not None)]


@dataclass
class Addition:
    """What a call says beyond what a cut response was the answer to.

    Attributes:
        begin: where it begins in the call's history.
        named: the call names the response or its conversation, and need not repeat the answer.
        bare: the histories are the same but for their system prompts: it has to repeat the answer.
    """

    asked: Asked
    begin: int
    named: bool = False
    bare: bool = False

    @cached_property
    def answers(self) -> int:
        """How many messages at its beginning are the model's: a format may tell an answer in several."""
        number = 0
        for message in self.asked.history[self.begin : self.asked.length]:
            if role(message) not in ("assistant", "thought"):
                break
            number += 1
        return number

    @cached_property
    def text(self) -> str:
        """What the model said in them."""
        messages = self.asked.history[self.begin : self.begin + self.answers]
        return "".join(text_of(message) for message in messages if role(message) == "assistant").strip()

    @property
    def number(self) -> int:
        """How many messages there are."""
        return self.asked.length - self.begin
