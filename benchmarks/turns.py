"""What finding the turn of a call costs: time for each call, and memory for each turn that stays open.

Calls go through the real exchange and the real recorder, with providers whose exporters throw everything away; only the
HTTP client is left out. Two kinds are measured, each with histories of 2 KB and of 200 KB (messages of 1 KB):

    call   a question; its answer ends the turn
    step   it sends the result of a tool call, and its response asks for the next tool: a step of a tool loop

and four variants of each:

    told              an inference that is told the turn of every call: the same signals, and nothing looked for
    0, 1,000, 10,000  `TurnInference`, while so many other turns wait for the results of their tools

Of two more kinds there are two variants, `told` and 1,000 turns that wait because their answers to one prompt of 2 KB
were truncated:

    sample  the same prompt once more; its answer ends the turn
    other   the prompt with a whole answer to it, which is none of the truncated ones, and the next question

The variants take turns call by call, in one process, in an order that rotates. What a round says of a variant is the
lower quartile of its calls in that round, less that of `told`; figures are medians over the rounds, the spread is that
of the middle half of the rounds. Time is CPU time of the thread. Collections of garbage are left out: what is measured
frees all that it makes.

Memory is what `tracemalloc` counts for 10,000 turns that are opened one after another and stay open, divided by their
number. It includes what the recorder keeps of a turn, and what the tables that hold them grow by; what is kept of the
latest calls, however they ended, is filled before. Of truncated turns 1,000 are opened: hardly more may wait.

    python benchmarks/turns.py [--rounds 40]
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

import endturn
from endturn.calls.outcomes import Continuation, RequestedCall, TurnKind
from endturn.calls.records import CallEnded
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import Inference, NoInference, end_turn, infer_with, outcome_of
from endturn.instrumentation import exchange
from endturn.instrumentation.addresses import Address, Outgoing
from endturn.telemetry.recent_prompts import REMEMBERED_PROMPTS
from endturn.telemetry.turn_inference import TurnInference

SIZES_KB: Final = (2, 200)
OPEN: Final = (0, 1_000, 10_000)
"""How many other turns wait."""
CUT: Final = 1_000
"""How many truncated answers to one prompt wait."""
CALLS: Final = 25
"""Calls of each variant in a round."""

Row = tuple[str, list[float], float | None]
"""What a figure is of, a figure for each round, and the goal."""

DAY_S: Final = 86_400.0
"""Nothing ends meanwhile because it has waited too long."""

_numbers: Final = itertools.count()
_ADDRESS: Final = Address("api.openai.com", None, "/v1/chat/completions", "")
_JSON: Final = {"content-type": "application/json"}
_TEXT: Final = "word " * 190
ANSWER: Final = {"content": "word " * 180}


class ToldTurns(NoInference):
    """Is told the turn of the next call.

    Attributes:
        turn: of the next call; None: a new one.
    """

    turn: Turn | None = None

    def resolve(self, summary: object, turn: Turn | None) -> tuple[Turn, Continuation | None]:
        return self.turn or Turn(kind=TurnKind.IMPLICIT), None

    def on_call_end(
        self, ended: CallEnded, summary: object, tail: str, tool_calls: tuple[RequestedCall, ...] = ()
    ) -> None:
        if not tool_calls:
            end_turn(ended.started.turn, outcome_of(ended))


def _response(message: dict[str, Any], finish: str) -> bytes:
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", **message}}
    usage = {"prompt_tokens": 25, "completion_tokens": 180, "total_tokens": 205}
    number = next(_numbers)
    return json.dumps({"id": f"chatcmpl-{number}", "model": "m-1", "choices": [choice], "usage": usage}).encode()


def _call_of_tool() -> dict[str, Any]:
    function = {"name": "search", "arguments": '{"query": "tides"}'}
    call = {"id": f"call_Xq7{next(_numbers):012x}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def _result_of(message: dict[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": _TEXT}


def question(size_kb: int) -> list[dict[str, Any]]:
    """Write a history that ends in a question; no two begin alike."""
    texts = [f"{next(_numbers)}. {_TEXT}" for _ in range(max(1, size_kb | 1))]
    return [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]


def follow_up(prompt: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Write a history in which a question follows a whole answer to a prompt."""
    answer = {"role": "assistant", "content": f"{next(_numbers)}. {_TEXT} {next(_numbers)}."}
    return [*prompt, answer, {"role": "user", "content": f"{next(_numbers)}. {_TEXT}"}]


def loop(size_kb: int) -> list[dict[str, Any]]:
    """Write the history of a tool loop that ends in a result."""
    history = question(0)
    while len(history) * 2 < size_kb:
        message = _call_of_tool()
        history += [message, {**_result_of(message), "content": _TEXT * 3}]
    return history


class Sent:
    """A request and its response as bytes, which are written before anything is measured."""

    def __init__(self, history: list[dict[str, Any]], message: dict[str, Any], finish: str) -> None:
        content = json.dumps({"model": "m", "max_tokens": 1_000, "messages": history}).encode()
        self._outgoing = Outgoing(_ADDRESS, content, {})
        self._response = _response(message, finish)

    def __call__(self) -> exchange.Exchange:
        """Send it."""
        call = exchange.begin("POST", self._outgoing)
        assert call is not None
        with call.sending:
            call.on_response(200, _JSON)
        call.feed_all(self._response)
        return call


class Loop:
    """A turn that waits for the result of its tool."""

    def __init__(self, size_kb: int) -> None:
        history, message = loop(size_kb), _call_of_tool()
        self._history = [*history, message, _result_of(message)]
        opened = Sent(history, message, "tool_calls")()
        assert opened.call is not None
        assert opened.call.started is not None
        self.turn = opened.call.started.turn

    def step(self) -> Sent:
        """Return the call that sends the result, and asks for the next tool."""
        message = _call_of_tool()
        sent = Sent(self._history, message, "tool_calls")
        self._history = [*self._history, message, _result_of(message)]
        return sent

    def end(self) -> None:
        """Have the model answer."""
        Sent(self._history, ANSWER, "stop")()


@contextmanager
def observed() -> Iterator[None]:
    """Record into providers that keep nothing."""
    endturn.instrument(
        tracer_provider=TracerProvider(shutdown_on_exit=False),
        meter_provider=MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False),
        logger_provider=LoggerProvider(shutdown_on_exit=False),
    )
    try:
        yield
    finally:
        endturn.uninstrument()


@contextmanager
def told(inference: Inference, turn: Turn) -> Iterator[None]:
    """Tell the inference that is told of turns that the calls within belong to this one."""
    if not isinstance(inference, ToldTurns):
        yield
        return
    inference.turn = turn
    try:
        yield
    finally:
        inference.turn = None


def timed(work: Callable[[], object]) -> float:
    """Return microseconds of CPU time of this thread."""
    began = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - began) / 1e3


def variants(most_open: int) -> dict[str, Inference]:
    """Make the inferences, and open as many turns in each as its name says."""
    made: dict[str, Inference] = {"told": ToldTurns()}
    for number in (number for number in OPEN if number <= most_open):
        made[f"{number:,} open"] = inference = TurnInference(tools_idle_s=DAY_S)
        infer_with(inference)
        for _ in range(number):
            Loop(2)
    return made


def measure(inferences: dict[str, Inference], *, size_kb: int, is_step: bool) -> dict[str, float]:
    """Measure one round: microseconds of a call, by variant."""
    names = list(inferences)
    spent: dict[str, list[float]] = {name: [] for name in names}
    for number in range(CALLS):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            inference = inferences[name]
            infer_with(inference)
            if is_step:
                waiting = Loop(size_kb)
                step = waiting.step()
                with told(inference, waiting.turn):
                    spent[name].append(timed(step))
                    waiting.end()
            else:
                spent[name].append(timed(Sent(question(size_kb), ANSWER, "stop")))
    return {name: statistics.quantiles(values, n=4)[0] for name, values in spent.items()}


def samples(rounds: int) -> list[Row]:
    """Measure calls that begin with a prompt to which many answers were truncated."""
    prompt = question(2)
    inferences: dict[str, Inference] = {"told": ToldTurns(), "cut": TurnInference(idle_s=DAY_S)}
    infer_with(inferences["cut"])
    for _ in range(CUT):
        number = next(_numbers)
        Sent(prompt, {"content": f"{_TEXT} {number} {'word ' * 9} {number}"}, "length")()
    found: list[Row] = []
    histories: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "the same prompt": lambda: prompt,
        "another answer": lambda: follow_up(prompt),
    }
    for says, history in histories.items():
        added: list[float] = []
        for _ in range(rounds):
            spent: dict[str, list[float]] = {name: [] for name in inferences}
            for _ in range(CALLS):
                for name, inference in inferences.items():
                    infer_with(inference)
                    spent[name].append(timed(Sent(history(), ANSWER, "stop")))
            told, cut = (statistics.quantiles(values, n=4)[0] for values in spent.values())
            added.append(cut - told)
        found.append((f"a call with {says}, {CUT:,} truncated answers to it: CPU, µs", added, None))
    return found


def memory(number: int, *, is_cut: bool) -> float:
    """Measure the bytes that one more open turn takes."""

    def opened(times: int) -> None:
        for _ in range(times):
            if is_cut:
                Sent(question(2), ANSWER, "length")()
            else:
                Loop(2)

    inference = TurnInference(idle_s=DAY_S, tools_idle_s=DAY_S)
    infer_with(NoInference())
    tracemalloc.start()
    opened(1_100)  # fills what is kept of the latest calls, however they end
    infer_with(inference)
    for _ in range(REMEMBERED_PROMPTS):
        Sent(question(0), ANSWER, "stop")()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    opened(number)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    inference.close()
    return (after - before) / number


def rows(rounds: int, most_open: int = OPEN[-1]) -> list[Row]:
    """Measure everything.

    Args:
        most_open: variants with more open turns are left out.
    """
    found: list[Row] = []
    with observed():
        cut, loops = memory(1_000, is_cut=True), memory(most_open, is_cut=False)
        inferences = variants(most_open)
        gc.collect()
        gc.freeze()
        gc.disable()
        for is_step, goal in ((False, 10.0), (True, 30.0)):
            for size_kb in SIZES_KB:
                measured = [measure(inferences, size_kb=size_kb, is_step=is_step) for _ in range(rounds)]
                for name in list(inferences)[1:]:
                    kind = "a step of a tool loop" if is_step else "a call"
                    added = [one[name] - one["told"] for one in measured]
                    says = f"{kind} of {size_kb} KB, {name.replace(' open', '')} turns open: CPU, µs"
                    found.append((says, added, goal if name.startswith("1,000 ") else None))
        found += samples(rounds)
        gc.enable()
        gc.unfreeze()
        infer_with(None)
    found.append(("a turn that waits for the results of its tools: bytes", [loops] * 2, 2_048))
    found.append(("a truncated turn: bytes", [cut] * 2, 2_048))
    return found


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    print("| what it adds | measured (middle half) | goal |\n| --- | --- | --- |")
    for says, values, goal in rows(max(2, parser.parse_args().rounds)):
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"| {says} | {middle:.1f} ({low:.1f} … {high:.1f}) | {'' if goal is None else f'≤ {goal:g}'} |")


if __name__ == "__main__":
    main()
