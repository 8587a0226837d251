"""What is compared in one process, and the rows that come of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from benchmarks.overhead.figures import Costs, Definition, Goal
from benchmarks.overhead.providers import ALL_SIGNALS, METRICS_ALONE, NO_SDK, Setup
from benchmarks.overhead.situations import LONG_STREAM, SHORT_STREAM, TOOL_CALLS
from benchmarks.overhead.variants import (
    BARE,
    BY_HAND,
    ENDTURN,
    ENDTURN_VARIANTS,
    GENAI,
    OPENINFERENCE,
    OPENLIT,
    OPENLLMETRY,
    PEERS,
)

Arm = tuple[str, str]
"""A situation, and the variant around its calls."""

ANSWER: Final = "answer"
ERRORS: Final = ("empty error", "HTML error", "{} error", "JSON error")
PEERS_OF_OPENAI_3: Final = (GENAI.name, OPENINFERENCE.name, OPENLLMETRY.name)
KILOBYTE: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Arms that take turns in one process.

    Attributes:
        kind: how it is measured (see `process`).
        environment: the environment of tests/sdks/envs.toml that has the peers; "" where there are none.
        rounds, quick_rounds: how many rounds, by default and with `--quick`; 0: the group is left out.
    """

    kind: Literal["calls", "concurrent", "memory", "startup"] = "calls"
    arms: tuple[Arm, ...] = ()
    rows: tuple[Definition, ...]
    setup: Setup = ALL_SIGNALS
    environment: str = ""
    rounds: int = 80
    quick_rounds: int = 9

    @property
    def arms_without_peers(self) -> tuple[Arm, ...]:
        """The arms that can be measured without that environment."""
        return tuple(arm for arm in self.arms if arm[1] not in PEERS)

    @property
    def rows_without_peers(self) -> tuple[Definition, ...]:
        """The rows that can be measured without that environment."""
        return tuple(row for row in self.rows if not row.peers)


def arm_key(situation: str, variant: str) -> str:
    """The name of an arm among the costs of its group."""
    return f"{situation}: {variant}"


def arms(situations: Iterable[str], variants: Sequence[str]) -> tuple[Arm, ...]:
    """Each situation with each variant."""
    return tuple((situation, variant) for situation in situations for variant in variants)


# --- Figures ------------------------------------------------------------------------------------------------------


def added(costs: Costs, situation: str, variant: str = ENDTURN) -> float:
    """What a variant adds to the bare SDK."""
    return costs[arm_key(situation, variant)] - costs[arm_key(situation, BARE)]


def addition(situation: str, variant: str = ENDTURN) -> Callable[[Costs], float]:
    return lambda costs: added(costs, situation, variant)


def ratio(situation: str, variant: str) -> Callable[[Costs], float]:
    """What endturn adds, divided by what another variant adds."""
    return lambda costs: added(costs, situation) / added(costs, situation, variant)


def of_calls(
    name: str, situation: str, goal: float | None, peers: Sequence[str], prefix: str
) -> tuple[Definition, ...]:
    """The rows of a situation in which the signals by hand, and the peers, are measured too."""
    return (
        Definition(key=f"{prefix}", title=f"{name}: CPU added to a call", unit="µs", figure=addition(situation)),
        Definition(
            key=f"{prefix}, by hand",
            title=f"{name}: CPU added by the same signals by hand",
            unit="µs",
            figure=addition(situation, BY_HAND),
        ),
        Definition(
            key=f"{prefix}, × by hand",
            title=f"{name}: CPU, × the same signals by hand",
            unit="×",
            figure=ratio(situation, BY_HAND),
            goal=None if goal is None else Goal(goal),
        ),
        *(
            Definition(
                key=f"{prefix}, {peer}",
                title=f"{name}: CPU added by {peer}",
                unit="µs",
                figure=addition(situation, peer),
                peers=(peer,),
            )
            for peer in peers
        ),
    )


def beside_openlit(name: str, prefix: str) -> tuple[Definition, ...]:
    """What OpenLIT adds, and what endturn adds in the same environment."""
    return tuple(
        Definition(
            key=f"{prefix}, {key}",
            title=f"{name}, openai 2: CPU added by {variant}",
            unit="µs",
            figure=addition(ANSWER, variant),
            peers=(OPENLIT.name,),
        )
        for variant, key in ((ENDTURN, "endturn beside openlit"), (OPENLIT.name, OPENLIT.name))
    )


def below_peers(name: str, prefix: str, peers: Sequence[str]) -> tuple[Definition, ...]:
    """Rows that compare what endturn adds with what each peer adds."""
    return tuple(
        Definition(
            key=f"{prefix}, × {peer}",
            title=f"{name}: CPU, × {peer}",
            unit="×",
            figure=ratio(ANSWER, peer),
            goal=Goal(1),
            peers=(peer,),
        )
        for peer in peers
    )


def signal_saving(variant: str) -> Callable[[Costs], float]:
    """What switching a signal off saves."""
    return lambda costs: added(costs, ANSWER) - added(costs, ANSWER, variant)


def streamed_event(costs: Costs, variant: str) -> float:
    """What one more event of a stream costs, all in all."""
    longer = costs[arm_key("long stream", variant)] - costs[arm_key("short stream", variant)]
    return longer / (LONG_STREAM - SHORT_STREAM)


def added_by_event(costs: Costs) -> float:
    return streamed_event(costs, ENDTURN) - streamed_event(costs, BARE)


def per_second(situation: str, variant: str) -> Callable[[Costs], float]:
    """Calls per CPU second."""
    return lambda costs: 1e6 / costs[arm_key(situation, variant)]


def times_as_many(situation: str, peer: str) -> Callable[[Costs], float]:
    return lambda costs: costs[arm_key(situation, peer)] / costs[arm_key(situation, ENDTURN)]


# --- Groups -------------------------------------------------------------------------------------------------------

SIGNAL_ROWS: Final = (
    ("spans", "without spans", "spans"),
    ("events", "without events", "log events"),
    ("metrics, all", "without metrics", "all metrics"),
    ("conventions' metrics", "without the conventions' metrics", "the conventions' metrics (gen_ai.*)"),
    ("metrics of turns", "without metrics of turns", "histograms of turns and output (by a view)"),
    ("exemplars", "without exemplars", "exemplars"),
)
"""Key, variant and name of each signal that can be switched off."""

SIMPLE, BATCH, TRUNCATED, METRICS = "simple processors", "batch processors", "every answer truncated", "metrics alone"
THREADS, TASKS = "50 threads", "200 tasks"
CONCURRENT_VARIANTS: Final = (BARE, ENDTURN, GENAI.name, OPENINFERENCE.name)

# OpenLIT keeps openai at 2: it is compared with what endturn adds there.
BESIDE_OPENLIT: Final = arms([ANSWER], (BARE, ENDTURN, OPENLIT.name))

GROUPS: Final[dict[str, Group]] = {
    "simple": Group(
        arms=arms([ANSWER], (BARE, BY_HAND, ENDTURN, *PEERS_OF_OPENAI_3)),
        environment="peers",
        rows=(
            Definition(
                key="bare call",
                title="a call of the bare SDK: CPU",
                unit="µs",
                figure=lambda costs: costs[arm_key(ANSWER, BARE)],
            ),
            *of_calls(SIMPLE, ANSWER, 2.1, PEERS_OF_OPENAI_3, "simple"),
            Definition(
                key="collection",
                title="one collection of the metrics when nothing happened: CPU",
                unit="µs",
                figure=lambda costs: costs[f"{arm_key(ANSWER, ENDTURN)} collection"],
            ),
        ),
    ),
    "batch": Group(
        arms=arms([ANSWER], (BARE, BY_HAND, ENDTURN, *PEERS_OF_OPENAI_3)),
        environment="peers",
        setup=replace(ALL_SIGNALS, batch=True),
        rows=of_calls(BATCH, ANSWER, 2.2, PEERS_OF_OPENAI_3, "batch"),
    ),
    "truncated": Group(
        arms=arms(["truncated answer"], (BARE, BY_HAND, ENDTURN)),
        rows=of_calls(TRUNCATED, "truncated answer", 2.5, (), "truncated"),
    ),
    "metrics": Group(
        arms=arms([ANSWER], (BARE, BY_HAND, ENDTURN, *PEERS_OF_OPENAI_3)),
        environment="peers",
        setup=METRICS_ALONE,
        rows=(
            *of_calls(METRICS, ANSWER, None, PEERS_OF_OPENAI_3, "metrics"),
            *below_peers(METRICS, "metrics", PEERS_OF_OPENAI_3),
        ),
    ),
    "signals": Group(
        arms=arms([ANSWER], (BARE, *ENDTURN_VARIANTS)),
        rows=(
            *(
                Definition(key=key, title=f"of these, {name}: CPU", unit="µs", figure=signal_saving(variant))
                for key, variant, name in SIGNAL_ROWS
            ),
            Definition(
                key="content",
                title="recording content, on spans and events: CPU added",
                unit="µs",
                figure=lambda costs: added(costs, ANSWER, "with content") - added(costs, ANSWER),
            ),
        ),
    ),
    "streams": Group(
        arms=arms(["short stream", "long stream"], (BARE, ENDTURN)),
        rows=(
            Definition(key="event", title="a streamed event: CPU added", unit="µs", figure=added_by_event),
            Definition(
                key="event, share",
                title="a streamed event: CPU, % of what the SDK spends on it",
                unit="%",
                figure=lambda costs: added_by_event(costs) / streamed_event(costs, BARE) * 100,
                goal=Goal(10),
            ),
        ),
    ),
    "bodies": Group(
        arms=arms([ANSWER, *ERRORS, "large request"], (BARE, ENDTURN)),
        rows=(
            *(
                Definition(
                    key=error,
                    title=f"a failing call, {error.removesuffix(' error')} body: CPU, × a call that succeeds",
                    unit="×",
                    figure=lambda costs, error=error: added(costs, error) / added(costs, ANSWER),  # type: ignore[misc]
                    goal=Goal(1.5),
                )
                for error in ERRORS
            ),
            Definition(
                key="large request",
                title="a request of 200 KB: CPU added, % of what the SDK spends on it",
                unit="%",
                figure=lambda costs: added(costs, "large request") / costs[arm_key("large request", BARE)] * 100,
            ),
        ),
    ),
    # These two are a few microseconds of a call: they take more rounds.
    "other host": Group(
        arms=arms(["other host"], (BARE, ENDTURN)),
        rounds=200,
        quick_rounds=40,
        rows=(
            Definition(
                key="other host",
                title="a request to no model, without collecting metrics: CPU added",
                unit="µs",
                figure=addition("other host"),
                goal=Goal(3),
            ),
        ),
    ),
    "nobody": Group(
        arms=arms([ANSWER], (BARE, ENDTURN)),
        setup=NO_SDK,
        rounds=200,
        quick_rounds=40,
        rows=(
            Definition(
                key="nobody records",
                title="a call where nobody records: CPU added",
                unit="µs",
                figure=addition(ANSWER),
                goal=Goal(5),
            ),
        ),
    ),
    "large answer": Group(
        arms=(*arms(["large answer"], (BARE, ENDTURN)), ("parsing a large answer", BARE)),
        rounds=8,
        quick_rounds=4,
        rows=(
            Definition(
                key="large answer",
                title=f"a 1 MB answer of {TOOL_CALLS:,} tool calls: CPU added, × parsing it",
                unit="×",
                figure=lambda costs: added(costs, "large answer") / costs[arm_key("parsing a large answer", BARE)],
                goal=Goal(3),
            ),
        ),
    ),
    "startup": Group(
        kind="startup",
        rounds=12,
        quick_rounds=3,
        rows=(
            Definition(
                key="startup",
                title="start-up added to `import openai`: CPU",
                unit="ms",
                figure=lambda costs: costs["startup"],
                goal=Goal(50),
            ),
            Definition(
                key="startup, API",
                title="of this, OpenTelemetry's API: CPU",
                unit="ms",
                figure=lambda costs: costs["OpenTelemetry API"],
            ),
            Definition(
                key="first call",
                title="the first call of a process: CPU added",
                unit="ms",
                figure=lambda costs: costs["first call: endturn"] - costs["first call: bare"],
            ),
        ),
    ),
    "concurrent": Group(
        kind="concurrent",
        arms=arms(["threads", "tasks"], CONCURRENT_VARIANTS),
        environment="peers",
        setup=replace(ALL_SIGNALS, batch=True),
        rounds=16,
        quick_rounds=3,
        rows=tuple(
            definition
            for situation, name in (("threads", THREADS), ("tasks", TASKS))
            for definition in (
                *(
                    Definition(
                        key=f"{name}, {variant}",
                        title=f"{name}, {variant}: calls per CPU second",
                        unit="calls/s",
                        figure=per_second(situation, variant),
                        peers=(variant,) if variant in PEERS else (),
                    )
                    for variant in CONCURRENT_VARIANTS
                ),
                Definition(
                    key=f"{name}, × {OPENINFERENCE.name}",
                    title=f"{name}: calls per CPU second, × {OPENINFERENCE.name}",
                    unit="×",
                    figure=times_as_many(situation, OPENINFERENCE.name),
                    goal=Goal(1.1, at_least=True),
                    peers=(OPENINFERENCE.name,),
                ),
            )
        ),
    ),
    "memory": Group(
        kind="memory",
        arms=arms(["open call"], CONCURRENT_VARIANTS),
        environment="peers",
        rounds=3,
        quick_rounds=1,
        rows=(
            *(
                Definition(
                    key=f"memory, {variant}",
                    title=f"an open call, {variant}: memory",
                    unit="KB",
                    figure=lambda costs, variant=variant: costs[arm_key("open call", variant)] / KILOBYTE,  # type: ignore[misc]
                    peers=(variant,) if variant in PEERS else (),
                )
                for variant in CONCURRENT_VARIANTS
            ),
            Definition(
                key=f"memory, × {GENAI.name}",
                title=f"an open call: memory, × {GENAI.name}",
                unit="×",
                figure=lambda costs: costs[arm_key("open call", ENDTURN)] / costs[arm_key("open call", GENAI.name)],
                goal=Goal(1),
                peers=(GENAI.name,),
            ),
        ),
    ),
    "simple, openai 2": Group(
        arms=BESIDE_OPENLIT,
        environment="openlit",
        quick_rounds=0,
        rows=beside_openlit(SIMPLE, "simple"),
    ),
    "batch, openai 2": Group(
        arms=BESIDE_OPENLIT,
        environment="openlit",
        setup=replace(ALL_SIGNALS, batch=True),
        quick_rounds=0,
        rows=beside_openlit(BATCH, "batch"),
    ),
    "metrics, openai 2": Group(
        arms=BESIDE_OPENLIT,
        environment="openlit",
        setup=METRICS_ALONE,
        quick_rounds=0,
        rows=(*beside_openlit(METRICS, "metrics"), *below_peers(METRICS, "metrics", [OPENLIT.name])),
    ),
}
