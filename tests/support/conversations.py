"""Conversations of agents whose true turns are known, for measuring which turn each of their calls is assigned to.

A family says what makes its conversations hard to tell apart. Conversations take turns at random, within calls too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, ResponseFacts
from endturn.calls.outcomes import RequestedCall
from endturn.calls.records import CallEnded
from endturn.calls.turn import Turn
from endturn.calls.turn_scope import infer_with
from endturn.telemetry.turn_inference import TurnInference
from endturn.vocabulary.stop import Stop, StopReason
from tests.support.summaries import summarized

Messages = list[dict[str, Any]]
Steps = Iterator[None]


@dataclass
class Truth:
    """What the calls were, and the turns that they were assigned to.

    Attributes:
        turns: by the name of a question, the turn of each of its calls.
        wait_s: seconds that have passed.
    """

    turns: dict[str, list[Turn]] = field(default_factory=dict)
    wait_s: float = 0.0

    def mistakes(self) -> list[str]:
        """List the questions whose calls are not one turn, or share a turn with another question's."""
        owners: dict[str, set[str]] = {}
        for question, turns in self.turns.items():
            for turn in turns:
                owners.setdefault(turn.id, set()).add(question)
        shared = {question for questions in owners.values() if len(questions) > 1 for question in questions}
        split = {question for question, turns in self.turns.items() if len({turn.id for turn in turns}) > 1}
        return sorted(shared | split)


Family = Callable[[Truth, random.Random], list[Steps]]
"""Makes the conversations of a family."""


@dataclass
class Agent:
    """One agent's conversation.

    Attributes:
        name: tells its questions from those of others.
        new_id: makes the id of its next tool call.
        parallel: the most tool calls that one response asks for.
    """

    truth: Truth
    name: str
    order: random.Random
    new_id: Callable[[], str]
    parallel: int = 2
    model: str = "m"
    messages: Messages = field(default_factory=list)

    def call(
        self,
        question: str,
        calls: tuple[RequestedCall, ...] = (),
        reason: str | None = None,
        maximum: int | None = None,
        text: str | None = None,
    ) -> Steps:
        """Make one call, which is answered with this text, else one of its own; others may come in before."""
        messages = list(self.messages)
        request = summarized(messages, model=self.model, max_tokens=maximum)
        call = open_call(Layer.CLIENT, request.facts, EndpointFacts(provider="p"), summary=request)
        assert call is not None
        yield
        stop = Stop(StopReason(reason or ("tool_call" if calls else "end_turn")))
        tail = f"{self.name} says {len(messages)}" if text is None else text
        error = ConnectionError() if reason == "error" else None
        ended = call.end(ResponseFacts(stop=stop), tail=tail, tool_calls=calls, error=error)
        assert isinstance(ended, CallEnded)
        self.truth.turns.setdefault(f"{self.name}: {question}", []).append(ended.started.turn)
        if not calls:
            self.messages.append({"role": "assistant", "content": tail})

    def run_tools(self, calls: tuple[RequestedCall, ...], result: str = "42", text: str | None = None) -> None:
        """Append the model's calls and their results."""
        asked = [
            {"id": each.id, "type": "function", "function": {"name": each.name, "arguments": "{}"}} for each in calls
        ]
        self.messages.append({"role": "assistant", "content": text, "tool_calls": asked})
        self.messages += [
            {"role": "tool", "tool_call_id": each.id, "content": f"{result} {self.name}"} for each in calls
        ]

    def requested(self) -> tuple[RequestedCall, ...]:
        return tuple(RequestedCall(self.new_id(), "search") for _ in range(self.order.randint(1, self.parallel)))

    def answer(self, question: str, text: str, steps: int) -> Steps:
        """Answer a question in so many tool steps."""
        self.messages.append({"role": "user", "content": text})
        for _ in range(steps):
            calls = self.requested()
            yield from self.call(question, calls)
            yield
            self.run_tools(calls)
            yield
        yield from self.call(question)

    def talk(self, *texts: str, most: int = 4) -> Steps:
        """Answer one question after another."""
        for place, text in enumerate(texts):
            yield from self.answer(f"{place}", text, self.order.randint(0, most))
            yield


def random_ids(order: random.Random) -> Callable[[], str]:
    return lambda: f"call_{order.getrandbits(96):024x}Z"


def counted_ids() -> Callable[[], str]:
    numbers = iter(range(10**6))
    return lambda: f"call_{next(numbers)}"


def play(conversations: list[Steps], order: random.Random, truth: Truth) -> None:
    """Have the conversations take turns at random."""
    running = list(conversations)
    while running:
        one = order.choice(running)
        truth.wait_s += order.uniform(0.0, 0.5)
        if next(one, running) is running:
            running.remove(one)


def loops(truth: Truth, order: random.Random) -> list[Steps]:
    """Each agent has questions of its own."""
    agents = [Agent(truth, f"a{n}", order, random_ids(order)) for n in range(6)]
    return [agent.talk(*(f"{agent.name} asks {place}" for place in range(3))) for agent in agents]


def parallel(truth: Truth, order: random.Random) -> list[Steps]:
    """All conversations share their system prompt and their first question; then they differ."""
    agents = [
        Agent(truth, f"a{n}", order, random_ids(order), messages=[{"role": "system", "content": "Be brief."}])
        for n in range(6)
    ]
    return [agent.talk("Hello", f"{agent.name} asks", "Go on with that") for agent in agents]


def equal_ids(truth: Truth, order: random.Random) -> list[Steps]:
    """A server that numbers its tool calls from zero in each conversation."""
    agents = [Agent(truth, f"a{n}", order, counted_ids()) for n in range(6)]
    return [agent.talk(*(f"{agent.name} asks {place}" for place in range(3))) for agent in agents]


def batch(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times, one after the other."""

    def ask() -> Steps:
        for n in range(8):
            agent = Agent(truth, f"a{n}", order, random_ids(order))
            yield from agent.answer("0", "Classify this text.", order.randint(0, 2))
            yield

    return [ask()]


def best_of_n(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times at once, each sample with a loop of its own."""
    return [Agent(truth, f"a{n}", order, random_ids(order)).talk("Solve this.") for n in range(6)]


def sample(agent: Agent, reason: str) -> Steps:
    """Ask one prompt once, in a loop or with one call, and have the answer end so."""
    if agent.order.random() < 0.3:
        calls = agent.requested()
        yield from agent.call("0", calls, maximum=100)
        agent.run_tools(calls)
    yield from agent.call("0", reason=reason, maximum=100)
    yield


def sampler(truth: Truth, order: random.Random, n: int, prompt: str = "Solve this.") -> Agent:
    """Make an agent that is asked a prompt which others are asked, too."""
    return Agent(truth, f"a{n}", order, random_ids(order), messages=[{"role": "user", "content": prompt}])


def truncated_samples(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times at once, and all answers are truncated."""
    return [sample(sampler(truth, order, n), "max_tokens") for n in range(6)]


def truncated_batch(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times, one after the other, and all answers, or every other one, are truncated."""
    often = order.choice((1, 2))

    def ask() -> Steps:
        for n in range(8):
            yield from sample(sampler(truth, order, n), "end_turn" if n % often else "max_tokens")

    return [ask()]


def evaluation(truth: Truth, order: random.Random) -> list[Steps]:
    """Workers send some prompts several times; answers are complete, truncated or lost, or calls fail."""
    queue = [(f"Prompt {n % 3}", n) for n in range(15)]
    reasons = "max_tokens", "end_turn", "error", "missing"

    def work() -> Steps:
        while queue:
            prompt, n = queue.pop(0)
            # Of the first call of a prompt that fails nothing says that another sample comes next.
            yield from sample(sampler(truth, order, n, prompt), "end_turn" if n < 3 else order.choice(reasons))

    return [work() for _ in range(order.randint(1, 4))]


def cut_beside_loops(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times at once: some answers are truncated before any text, others run tools that fail."""
    errors = "Error: no such file", "invalid input", "search failed", "permission denied"

    def ask(n: int) -> Steps:
        agent = sampler(truth, order, n)
        text = order.choice(("", "Let me look."))  # the same for runs that are cut and for runs of tools
        is_cut = n < 2 or order.random() < 0.5
        for _ in range(0 if is_cut and n < 2 else order.randint(1, 3)):
            calls = agent.requested()
            yield from agent.call("0", calls, maximum=100, text=text)
            yield
            agent.run_tools(calls, order.choice(errors), text)
            yield
        cut_calls = agent.requested() if is_cut and order.random() < 0.5 else ()
        yield from agent.call("0", cut_calls, "max_tokens" if is_cut else None, 100, text if is_cut else None)

    return [ask(n) for n in range(8)]


def pauses_beside_cuts(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times at once: one run pauses for server tools, others are truncated before text."""

    def pause() -> Steps:
        agent = sampler(truth, order, 0)
        for _ in range(3):
            before = list(agent.messages)
            yield from agent.call("0", reason="paused", maximum=100, text="")
            block = {"type": "server_tool_use", "id": f"srvtoolu_{len(before)}", "name": "web_search", "input": {}}
            agent.messages = [*before, {"role": "assistant", "content": [block]}]
            yield
        yield from agent.call("0", maximum=100)

    def cut(n: int) -> Steps:
        yield from sampler(truth, order, n).call("0", reason="max_tokens", maximum=100, text="")

    return [pause(), *(cut(n) for n in range(1, 7))]


def equal_ids_of_one_prompt(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times at once to a server that numbers its tool calls; answer texts differ."""

    def ask(n: int) -> Steps:
        new_id = counted_ids()
        agent = Agent(truth, f"a{n}", order, new_id, messages=[{"role": "user", "content": "Take the next item."}])
        for step in range(order.randint(1, 3)):
            calls, text = agent.requested(), f"I take item {n}, step {step}."
            yield from agent.call("0", calls, text=text)
            yield
            agent.run_tools(calls, text=text)
            yield
        yield from agent.call("0", reason=order.choice(("end_turn", "max_tokens")))

    return [ask(n) for n in range(8)]


def limits(truth: Truth, order: random.Random) -> list[Steps]:
    """Several limits are tried on one prompt, each several times, whatever the answer."""

    def ask() -> Steps:
        for n in range(9):
            yield from sampler(truth, order, n).call("0", reason="max_tokens", maximum=100 * (1 + n // 3))
            yield

    return [ask()]


def larger_limit(truth: Truth, order: random.Random) -> list[Steps]:
    """Agents repeat the request with a larger limit until the answer is complete."""

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        for maximum, reason in ((100, "max_tokens"), (200, "max_tokens"), (400, "end_turn")):
            before = list(agent.messages)
            yield from agent.call("0", reason=reason, maximum=maximum)
            agent.messages = before
            yield

    return [ask(n) for n in range(6)]


def fork(truth: Truth, order: random.Random) -> list[Steps]:
    """A conversation is continued twice after a tool step: the first call continues the turn, the second starts one."""

    def ask(n: int) -> Steps:
        first = Agent(truth, f"a{n}", order, random_ids(order))
        first.messages.append({"role": "user", "content": f"Question {n}"})
        calls = first.requested()
        yield from first.call("0", calls)
        first.run_tools(calls)
        second = Agent(truth, f"b{n}", order, first.new_id, messages=list(first.messages))
        yield from first.call("0")
        yield from second.call("0")

    return [ask(n) for n in range(6)]


def asking(truth: Truth, order: random.Random, n: int) -> Agent:
    """Make an agent that has been asked its one question."""
    question = {"role": "user", "content": f"Question {n}"}
    return Agent(truth, f"a{n}", order, random_ids(order), messages=[question])


# --- Families whose turns cannot always be known ---------------------------------------------------------------------


def compaction(truth: Truth, order: random.Random) -> list[Steps]:
    """A framework summarises the history in the middle of a loop; half of the servers number their ids."""

    def ask(n: int) -> Steps:
        new_id = random_ids(order) if n % 2 else counted_ids()
        agent = Agent(truth, f"a{n}", order, new_id, messages=[{"role": "user", "content": f"Question {n}"}])
        for step in range(3):
            calls = agent.requested()
            yield from agent.call("0", calls)
            agent.run_tools(calls)
            if step == 1:
                agent.messages = [{"role": "user", "content": f"Summary of {n}"}, *agent.messages[-1 - len(calls) :]]
            yield
        yield from agent.call("0")

    return [ask(n) for n in range(6)]


def rewritten_ids(truth: Truth, order: random.Random) -> list[Steps]:
    """A framework replaces the ids of the tool calls."""

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        for _ in range(2):
            calls = agent.requested()
            yield from agent.call("0", calls)
            agent.run_tools(tuple(RequestedCall(agent.new_id(), each.name) for each in calls))
            yield
        yield from agent.call("0")

    return [ask(n) for n in range(6)]


def fallback_model(truth: Truth, order: random.Random) -> list[Steps]:
    """A call fails, and the host calls another model; or the model changes between two steps of a loop."""

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        if n % 2:
            yield from agent.call("0", reason="error")
            agent.messages.pop()
        else:
            calls = agent.requested()
            yield from agent.call("0", calls)
            agent.run_tools(calls)
        agent.model = "another"
        yield from agent.call("0")

    return [ask(n) for n in range(6)]


def slow_tools(truth: Truth, order: random.Random) -> list[Steps]:
    """Tools take up to an hour; turns wait five minutes (`tools_idle_s`)."""

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        calls = agent.requested()
        yield from agent.call("0", calls)
        agent.run_tools(calls)
        for _ in range(order.randint(0, 20)):
            truth.wait_s += 30.0
            yield
        yield from agent.call("0")

    return [ask(n) for n in range(6)]


def text_protocol(truth: Truth, order: random.Random) -> list[Steps]:
    """Tools are called in text (ReAct): the API has no tools, and each answer is complete."""

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        for _ in range(2):
            yield from agent.call("0")
            agent.messages.append({"role": "user", "content": "Observation: 42"})
        yield from agent.call("0")

    return [ask(n) for n in range(6)]


def failing_batch(truth: Truth, order: random.Random) -> list[Steps]:
    """One prompt is sent many times, one after the other; half of the calls fail, and none is retried."""

    def ask() -> Steps:
        for n in range(6):
            yield from sampler(truth, order, n).call("0", reason=order.choice(("error", "end_turn")))
            yield

    return [ask()]


def limits_once(truth: Truth, order: random.Random) -> list[Steps]:
    """Several limits are tried on one prompt, each once, whatever the answer."""

    def ask() -> Steps:
        for n in range(6):
            yield from sampler(truth, order, n).call("0", reason="max_tokens", maximum=100 * (n + 1))
            yield

    return [ask()]


def larger_limit_same_prompt(truth: Truth, order: random.Random) -> list[Steps]:
    """Users send one prompt, one after the other; each answer is truncated, and requested again with a larger limit."""

    def ask() -> Steps:
        for n in range(6):
            for maximum, reason in ((100, "max_tokens"), (400, "end_turn")):
                yield from sampler(truth, order, n).call("0", reason=reason, maximum=maximum)
                yield

    return [ask()]


def retried_by_hand(truth: Truth, order: random.Random) -> list[Steps]:
    """Users send one prompt, one after the other; each call fails once, and the host repeats it without a header."""

    def ask() -> Steps:
        for n in range(6):
            for reason in ("error", "end_turn"):
                yield from sampler(truth, order, n).call("0", reason=reason)
                yield

    return [ask()]


def nudged(truth: Truth, order: random.Random) -> list[Steps]:
    """A step of a loop answers in text, complete or truncated, and the host demands a tool call instead."""
    nudge = "[ERROR] You did not use a tool in your previous response! Please retry with a tool use."

    def ask(n: int) -> Steps:
        agent = asking(truth, order, n)
        calls = agent.requested()
        yield from agent.call("0", calls)
        agent.run_tools(calls)
        yield from agent.call("0", reason="max_tokens" if n % 2 else "end_turn")
        yield from agent.answer("0", nudge, 1)

    return [ask(n) for n in range(6)]


KNOWN = {
    family.__name__: family
    for family in (
        *(loops, parallel, equal_ids, batch, best_of_n, fork),
        *(truncated_samples, truncated_batch, evaluation, limits, larger_limit),
        *(cut_beside_loops, pauses_beside_cuts, equal_ids_of_one_prompt),
    )
}
"""Every call of these has to be assigned rightly."""

UNCERTAIN = {
    family.__name__: family
    for family in (
        *(compaction, rewritten_ids, fallback_model, slow_tools, text_protocol),
        *(failing_batch, retried_by_hand, limits_once, larger_limit_same_prompt, nudged),
    )
}
"""Some calls of these cannot be assigned; docs/accuracy.md has how many are."""


def infer(family: Family, seed: int) -> Truth:
    """Play conversations of a family, and say which turns the calls were assigned to."""
    truth, order = Truth(), random.Random(seed)
    inference = TurnInference(clock=lambda: truth.wait_s)
    infer_with(inference)
    try:
        play(family(truth, order), order, truth)
    finally:
        inference.close()
        infer_with(None)
    return truth


def shares(family: Family, seeds: range) -> tuple[int, int]:
    """Count the questions of many conversations, and those whose calls are one turn of their own."""
    truths = [infer(family, seed) for seed in seeds]
    questions = sum(len(truth.turns) for truth in truths)
    return questions, questions - sum(len(truth.mistakes()) for truth in truths)


SEEDS = range(20)
"""Of the conversations that docs/accuracy.md has figures of."""


def row(name: str) -> str:
    """Write the row of a family for docs/accuracy.md: what happens in it, and how many questions are one turn."""
    family = {**KNOWN, **UNCERTAIN}[name]
    questions, right = shares(family, SEEDS)
    happens = (family.__doc__ or "").splitlines()[0].rstrip(".")
    return f"| `{name}` | {happens} | {questions} | {right} | {100 * right // questions}% |"


def table() -> list[str]:
    """Write the rows of all families, those whose every question is one turn first."""
    return [
        "| family | what happens | questions | right | share |",
        "| --- | --- | --- | --- | --- |",
        *(row(name) for name in (*KNOWN, *UNCERTAIN)),
    ]
