"""The turns of an agent of somebody's framework, declared, recognised and inferred: whether all ways agree.

The same questions are asked of it against a scripted provider: with its framework's spans and without them, within
`observe_turn` and without it.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any, Final

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import endturn
from endturn.calls import listeners
from endturn.calls.outcomes import TurnKind
from endturn.calls.records import Record, TurnEnded
from endturn.testing.scripted import Reply, ScriptedProvider, call, fail, partial_call, say, truncate
from tests.support.agent_runs import TRACERS, Agent, weather
from tests.support.announced import counted

CONCEPTS: Final = Path(__file__).parents[2] / "docs" / "concepts.md"

STEPS: Final = [call("weather", {"city": city}) for city in ("Oslo", "Rome", "Lima")]
LOOP: Final = [*STEPS, say("It rains.")]
AGAIN: Final = fail(500).but(headers={"retry-after-ms": "1"})

SCENARIOS: Final[dict[str, tuple[list[Reply], str]]] = {
    "a tool loop": (LOOP, "completed"),
    "an answer without tools": ([say("Hello.")], "completed"),
    "a truncated answer": ([truncate("It rains, and", after=1)], "not_continued"),
    "a truncated answer after a tool loop": ([*STEPS, truncate("It rains, and", after=1)], "not_continued"),
    "a cut tool call": ([STEPS[0], partial_call("weather", {"city": "Oslo"}, after=1), say("Never mind.")],
                        "not_continued"),
    "a retry": ([AGAIN, *LOOP], "completed"),
    "a retry in a tool loop": ([STEPS[0], AGAIN, *LOOP[1:]], "completed"),
}  # fmt: skip
"""What the agent is answered, and how the turn ends, where its host takes an answer for whole."""


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way in which turns may be known.

    Attributes:
        knows: what turns are by it.
        spans: the framework makes spans of its agents; declared: each run is within `observe_turn`.
    """

    knows: str
    spans: bool = False
    declared: bool = False


INFERRED: Final = Way(knows="inferred")
WAYS: Final = (
    INFERRED,
    Way(knows="recognised", spans=True),
    Way(knows="declared", declared=True),
    Way(knows="declared", spans=True, declared=True),
)


@dataclass(frozen=True)
class Seen:
    """What was counted.

    Attributes:
        turns: by their outcome, `cut` before it where one of their responses was truncated.
        unfinished: turns by their outcome.
        responses: by their reason.
        known: how each turn was known.
    """

    turns: dict[str, int]
    unfinished: dict[str, int]
    responses: dict[str, int]
    known: list[str] = field(compare=False)


def check_of(
    *agents: Agent, spans: Sequence[Any] = (), spanless: Sequence[Agent] = (),
    unseen: Sequence[Agent] = (), unlike: Mapping[tuple[Agent, str], str] | None = None,
) -> Any:  # fmt: skip
    """The test of an environment's agents: a question is one turn with the same outcome, however it is known.

    Args:
        spans: instrumentors that make the spans of frameworks which make none by themselves.
        spanless: agents whose framework makes no spans: their host has one around each run.
        unseen: agents whose spans are not known for an agent's, or never current: turns are inferred beside them.
        unlike: the outcome, where an agent goes on otherwise than most do.
    """
    cases = [pytest.param(agent, name, id=f"{agent.__name__}: {name}") for agent in agents for name in SCENARIOS]

    @pytest.mark.parametrize(("agent", "scenario"), cases)
    def test_declared_recognised_and_inferred_agree(agent: Agent, scenario: str) -> None:
        """After a question that was answered, the same one: two turns, the second with the outcome that it has."""
        replies, outcome = SCENARIOS[scenario]
        outcome = (unlike or {}).get((agent, scenario), outcome)
        seen = [
            count([agent, agent], [LOOP, replies], way, spans=spans, has_spans=agent not in spanless) for way in WAYS
        ]
        inferred = seen[0]
        cut = any(reply.stop == "max_tokens" for reply in replies)
        assert seen == [inferred] * len(WAYS)
        known = ["inferred" if way.knows == "recognised" and agent in unseen else way.knows for way in WAYS]
        assert [each.known for each in seen] == [[way] * 2 for way in known]
        assert inferred.turns == Counter(["completed", f"{'cut ' if cut else ''}{outcome}"])
        assert inferred.unfinished == ({} if outcome == "completed" else {outcome: 1})

    return test_declared_recognised_and_inferred_agree


def figures_of(agents: Mapping[str, tuple[Agent, Sequence[Reply]]]) -> Any:
    """The test of agents whose inferred turns docs/concepts.md has figures of: calls and turns of one question.

    Args:
        agents: by their names on the page, with what each is answered: three steps with a tool, and the answer.
    """

    @pytest.mark.parametrize("name", agents)
    def test_an_inferred_turn_counts_what_the_page_says(name: str) -> None:
        agent, replies = agents[name]
        seen = count([agent], [replies], INFERRED)
        calls, turns = sum(seen.responses.values()), sum(seen.turns.values())
        assert f"\n| {name} | {calls} | {turns} |\n" in CONCEPTS.read_text()

    return test_an_inferred_turn_counts_what_the_page_says


def count(
    agents: Sequence[Agent], scripts: Sequence[Sequence[Reply]], way: Way, *,
    spans: Sequence[Any] = (), has_spans: bool = True,
) -> Seen:  # fmt: skip
    """Run agents one after the other, and count."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    known: list[str] = []

    def ended(record: Record) -> None:
        if isinstance(record, TurnEnded):
            is_declared = record.turn.kind is not TurnKind.IMPLICIT
            known.append("recognised" if record.turn.recognised else "declared" if is_declared else "inferred")

    stop = listeners.subscribe(ended)
    with _spans_of(spans, way.spans):
        endturn.instrument(tracer_provider=TRACERS, meter_provider=meters)
        try:
            for agent, script in zip(agents, scripts, strict=True):
                _ask(agent, script, way, host_spans=way.spans and not has_spans)
            gc.collect()  # a stream that a framework leaves in a cycle of objects ends with it
        finally:
            endturn.uninstrument()  # turns that wait end
            stop()
    data = reader.get_metrics_data()
    turns: Counter[str] = Counter()
    for metric in (
        metric
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == "endturn.turns"
    ):
        for point in metric.data.data_points:
            of = dict(point.attributes or {})
            cut = "cut " if of["endturn.turn.truncated"] else ""
            turns[f"{cut}{of['endturn.turn.outcome']}"] += int(getattr(point, "value", 0))
    seen = Seen(dict(+turns), counted(reader, "endturn.truncation.exits"), counted(reader), known)
    meters.shutdown()
    return seen


@contextmanager
def _spans_of(instrumentors: Sequence[Any], makes_spans: bool) -> Iterator[None]:
    """Have frameworks make spans, or none."""
    TRACERS.is_off = not makes_spans
    made = [kind() for kind in instrumentors] if makes_spans else []
    for each in made:
        each.instrument(tracer_provider=TRACERS, skip_dep_check=True)
    try:
        yield
    finally:
        for each in made:
            each.uninstrument()
        TRACERS.is_off = False


def _ask(agent: Agent, script: Sequence[Reply], way: Way, *, host_spans: bool) -> None:
    """Ask the agent its question; what it raises is its framework's way of ending."""
    provider = ScriptedProvider(list(script), exhausted="last")
    retries = {"retries": 1} if "retries" in signature(agent).parameters else {}
    run = partial(agent, tools=[weather], **retries)

    async def asynchronous(url: str) -> None:
        await run(url)

    def synchronous(url: str) -> None:
        run(url)

    host: Any = asynchronous if iscoroutinefunction(agent) else synchronous
    if way.declared:
        host = endturn.observe_turn(host)
    with provider.serve() as url:
        try:
            if host_spans:
                with trace.get_tracer("host").start_as_current_span(
                    "invoke_agent helper", attributes={"gen_ai.operation.name": "invoke_agent"}
                ):
                    _run(host, url)
            else:
                _run(host, url)
        except Exception as error:
            if not provider.received:
                raise AssertionError(repr(error)) from error


def _run(host: Any, url: str) -> None:
    ran = host(url)
    if asyncio.iscoroutine(ran):
        asyncio.run(ran)
