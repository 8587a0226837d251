"""Many conversations at once, in one thread, in many, in tasks: every call is assigned to its own turn."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import count
from typing import Any

import pytest

from endturn import hooks
from endturn.events import CallEnded, Strategy, Turn, TurnEnded, TurnKind, TurnOutcome
from endturn.formats import RequestSummary
from endturn.scopes import Layer, TurnScope, infer_with, open_call, start_turn
from endturn.stop import Stop, StopReason
from endturn.telemetry.turn_inference import TurnInference

SYSTEM = {"role": "system", "content": "You are one of many agents."}
SHARED = {"role": "user", "content": "Write a long report."}
CONTINUE = {"role": "user", "content": "Continue exactly where you stopped."}

WAYS = ("prompt", "prefill", "resend", "retry", "id", "conversation", "leave", "whole")


class Conversation:
    """One host's loop: it knows itself which turn each of its calls belongs to, and fails where the records differ.

    `play` yields wherever another conversation may come in between, in the midst of a call too.
    """

    def __init__(self, number: int, seed: int, *, declared: bool) -> None:
        self.number = number
        self.random = random.Random(seed)  # a model answer is to be the same each time
        self.scope: TurnScope | None = start_turn(Turn(kind=TurnKind.OBSERVED)) if declared else None
        self.calls = 0
        self.outcomes: dict[str, TurnOutcome] = {}
        # Half of them begin with one and the same prompt: their answers tell them apart.
        self.shares = number % 2 == 0
        first = SHARED if self.shares else {"role": "user", "content": f"Question {number}"}
        self.history: list[Any] = [SYSTEM, first]

    def call(self, history: list[Any], reason: StopReason, **asked: Any) -> Iterator[None]:
        given = RequestSummary(**{"model": "m", "maximum": 100, "history": history, "length": len(history), **asked})
        with nullcontext() if self.scope is None else self.scope.step():
            call = open_call(Layer.CLIENT, given, provider="p", model="m")
        assert call is not None
        yield
        self.calls += 1
        self.said = f"Conversation {self.number} says in its call {self.calls} that the"
        ended = call.end(Stop(reason), tail=self.said[-64:], output_chars=1, response_id=f"r{self.number}.{self.calls}")
        assert ended is not None
        self.ended: CallEnded = ended
        yield

    def play(self, rounds: int) -> Iterator[None]:
        for _ in range(rounds):
            way = self.random.choice(WAYS)
            if self.shares and way in ("resend", "retry"):
                way = "prompt"  # which of them asks the same again, nobody could tell
            yield from self.round(way)
            self.history = [*self.history, {"role": "assistant", "content": self.said}]
            self.history.append({"role": "user", "content": f"Question {self.number}.{self.calls}"})
            self.shares = False

    def round(self, way: str) -> Iterator[None]:
        named = {"conversation_id": f"c{self.number}"} if way == "conversation" else {}
        reason = {"retry": StopReason.MISSING, "whole": StopReason.END_TURN}.get(way, StopReason.MAX_TOKENS)
        yield from self.call(self.history, reason, **named)
        assert self.ended.started.continuation is None
        cut = self.ended
        if way == "whole":
            self.over(cut, TurnOutcome.COMPLETED)
            return
        if way == "leave":  # the next round's question ends it, or the end of everything
            self.over(cut, TurnOutcome.NOT_CONTINUED)
            return
        answered = [*self.history, {"role": "assistant", "content": self.said}]
        for part in range(self.random.randint(1, 3)):
            last = part == 2 or self.random.random() < 0.6
            expected = Strategy.PROMPT
            asked: dict[str, Any] = {}
            match way:
                case "prompt":
                    history = [*answered, CONTINUE]
                case "prefill":
                    history, expected = answered, Strategy.PREFILL
                case "resend":
                    history, expected, asked = self.history, Strategy.RESEND, {"maximum": 200 + part}
                case "retry":
                    history, expected, last = self.history, Strategy.RETRY, True
                case "id":
                    history, asked = [CONTINUE], {"previous_id": cut.response_id}
                case _:
                    history, asked = [CONTINUE], named
            before = cut
            yield from self.call(history, StopReason.END_TURN if last else StopReason.MAX_TOKENS, **asked)
            cut = self.ended
            continuation = cut.started.continuation
            assert continuation is not None, (way, part)
            assert (continuation.strategy, continuation.of) == (expected, before.started.number)
            assert cut.started.turn is before.started.turn
            # Parts one after the other, as most hosts keep them.
            if way == "prompt":
                answered = [*answered, CONTINUE, {"role": "assistant", "content": self.said}]
            elif way == "prefill":
                text = answered[-1]["content"] + self.said
                answered = [*self.history, {"role": "assistant", "content": text}]
            if last:
                break
        self.over(cut, TurnOutcome.COMPLETED if cut.whole else TurnOutcome.NOT_CONTINUED)

    def over(self, ended: CallEnded, outcome: TurnOutcome) -> None:
        turn = ended.started.turn
        if self.scope is not None:
            assert turn is self.scope.turn
        else:
            assert turn.id not in self.outcomes
            self.outcomes[turn.id] = outcome


class Stage:
    """Conversations over an inference in which no call comes at once after another: one prompt has many askers."""

    def __init__(self) -> None:
        seconds = count(0.0, 3.0)
        self.inferring = TurnInference(clock=lambda: next(seconds), idle_s=1e9)
        self.turns: list[TurnEnded] = []

    def conversations(self, number: int) -> list[Conversation]:
        return [Conversation(each, each, declared=each % 5 == 0) for each in range(number)]

    def check(self, played: list[Conversation]) -> None:
        """Every turn ended once, as its conversation says."""
        for each in played:
            if each.scope is not None:
                each.scope.end(TurnOutcome.COMPLETED)
        self.inferring.close()
        implicit = [turn for turn in self.turns if turn.turn.kind is TurnKind.IMPLICIT]
        expected = {turn: outcome for each in played for turn, outcome in each.outcomes.items()}
        assert len(implicit) == len(expected)
        assert {turn.turn.id: turn.outcome for turn in implicit} == expected
        assert sum(turn.turn.iterations for turn in self.turns) == sum(each.calls for each in played)


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()

    def listen(record: object) -> None:
        if isinstance(record, TurnEnded):
            made.turns.append(record)

    stop = hooks.subscribe(listen)
    infer_with(made.inferring)
    try:
        with hooks.strict():
            yield made
    finally:
        infer_with(None)
        stop()


@pytest.mark.parametrize("seed", range(2))
def test_interleaved_at_random(stage: Stage, seed: int) -> None:
    """Three hundred loops, each step of each in any order."""
    played = stage.conversations(300)
    order = random.Random(seed)
    running = [each.play(rounds=4) for each in played]
    while running:
        position = order.randrange(len(running))
        try:
            next(running[position])
        except StopIteration:
            running[position] = running[-1]
            running.pop()
    stage.check(played)


def test_in_many_threads(stage: Stage) -> None:
    """Sixteen threads with twenty loops each, in turns."""
    played = stage.conversations(320)
    failures: list[BaseException] = []

    def work(mine: list[Conversation]) -> None:
        running = [each.play(rounds=4) for each in mine]
        try:
            while running:
                for one in list(running):
                    if next(one, running) is running:
                        running.remove(one)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(played[number::16],)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    stage.check(played)
