"""Requirements of a fleet: series, samples, Kafka, gateways and disks.

`Fleet` declares the inputs, `Constants` the numbers that were measured or assumed, and one function
computes each figure. `endturn plan` and docs/plan.md show them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from math import ceil
from typing import Annotated, Final, Literal, get_type_hints

from endturn.errors import UsageError

Number = int | float
Values = Literal["compose", "kustomize"]

COMPOSE_GATEWAYS: Final = 3
"""Gateways that docker-compose.fleet.yml starts."""


# --- Inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PlanInput:
    """Declaration of an input: its meaning, unit and allowed values."""

    meaning: str
    unit: str = ""
    _: KW_ONLY
    at_least: Number = 0
    at_most: Number = math.inf
    is_whole: bool = False

    def problem(self, value: Number) -> str | None:
        """Return the problem with a value, or None."""
        if not (math.isfinite(value) and self.at_least <= value <= self.at_most):
            upper = "" if self.at_most == math.inf else f" and at most {self.at_most}"
            return f"must be at least {self.at_least}{upper}"
        if self.is_whole and value != int(value):
            return "must be a whole number"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Properties of a fleet. Each field is an option of `endturn plan`.

    Raises:
        UsageError: A value is out of its bounds.
    """

    turns: Annotated[
        Number, PlanInput("turns per second, at the busiest time", "1/s", at_least=0.01)
    ]
    calls: Annotated[
        Number, PlanInput("model calls per turn, without continuations", "1/turn", at_least=1)
    ] = 2
    tools: Annotated[Number, PlanInput("tool calls per turn that create a span", "1/turn")] = 1
    truncated: Annotated[
        Number, PlanInput("share of turns with a truncated response", "share", at_most=1)
    ] = 0.02
    attempts: Annotated[Number, PlanInput("continuations per truncated turn", "1/turn")] = 1
    failed: Annotated[
        Number,
        PlanInput(
            "share of turns that failed, were refused or were filtered, without the truncated ones",
            "share",
            at_most=1,
        ),
    ] = 0.01
    models: Annotated[
        Number, PlanInput("models that one process calls", at_least=1, is_whole=True)
    ] = 3
    services: Annotated[
        Number, PlanInput("services, each with its own processes", at_least=1, is_whole=True)
    ] = 1
    processes: Annotated[
        Number,
        PlanInput(
            "agent processes that run endturn, if more than turns and services require",
            is_whole=True,
        ),
    ] = 0
    hosts: Annotated[
        Number,
        PlanInput("machines with a Collector beside their agents", at_least=1, is_whole=True),
    ] = 1
    streams: Annotated[
        Number,
        PlanInput(
            "share of models whose responses stream, which adds two histograms", "share", at_most=1
        ),
    ] = 1
    interval: Annotated[
        Number,
        PlanInput(
            "time between two exports of metrics (OTEL_METRIC_EXPORT_INTERVAL)", "s", at_least=1
        ),
    ] = 15
    sample: Annotated[
        Number, PlanInput("share of unremarkable traces that a gateway keeps", "%", at_most=100)
    ] = 10
    wait: Annotated[
        Number,
        PlanInput("time that a gateway holds a trace before it decides on it", "s", at_least=1),
    ] = 600
    growth: Annotated[
        Number,
        PlanInput(
            "factor by which the number of gateways may grow: the number of partitions is"
            " fixed when the topic is created",
            at_least=1,
        ),
    ] = 2
    copies: Annotated[
        Number,
        PlanInput("replicas in Kafka and in the metrics back end", at_least=1, is_whole=True),
    ] = 3
    hours: Annotated[Number, PlanInput("retention of Kafka", "h", at_least=1)] = 24
    trace_days: Annotated[Number, PlanInput("retention of traces", "d")] = 14
    log_days: Annotated[Number, PlanInput("retention of events", "d")] = 30
    metric_days: Annotated[
        Number, PlanInput("retention of metrics: the objective covers 30 days", "d")
    ] = 30

    def __post_init__(self) -> None:
        """Check every value."""
        for option in OPTIONS:
            value = getattr(self, option.name)
            if problem := option.input.problem(value):
                raise UsageError(f"{option.flag} {problem}, not {value:g} ({option.input.meaning})")
        if (total := self.truncated + self.failed) > 1:
            raise UsageError(
                f"--truncated and --failed are shares of the same turns: together they must be at "
                f"most 1, not {total:g}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One input of `Fleet` with its name and default; an input without a default is required."""

    name: str
    input: PlanInput
    default: Number | None

    @property
    def flag(self) -> str:
        """Return the option of `endturn plan`."""
        return f"--{self.name.replace('_', '-')}"


def _options() -> tuple[Option, ...]:
    hints = get_type_hints(Fleet, include_extras=True)
    return tuple(
        Option(
            name=field.name,
            input=hints[field.name].__metadata__[0],
            default=field.default if isinstance(field.default, int | float) else None,
        )
        for field in fields(Fleet)
    )


OPTIONS: Final = _options()


# --- Constants ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConstantSource:
    """Unit of a constant, and the measurement, document or assumption that it comes from."""

    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Numbers that were measured, chosen or assumed."""

    model_series: Annotated[
        Number,
        ConstantSource(
            "series/model",
            "`pytest tests/generate/test_plan.py`: the recorder, without streaming,"
            " with a truncated and continued turn",
        ),
    ] = 163
    stream_series: Annotated[
        Number,
        ConstantSource(
            "series/model", "the same test: time to the first chunk, and between chunks"
        ),
    ] = 34
    process_series: Annotated[
        Number,
        ConstantSource("series/process", "`pytest tests/generate/test_plan.py`: the recorder"),
    ] = 8
    span_bytes: Annotated[
        Number,
        ConstantSource(
            "B/span",
            "`pytest tests/generate/test_plan.py`: OTLP from the recorder, without captured "
            "content; `make test-fleet`: in Kafka, before compression",
        ),
    ] = 617
    event_bytes: Annotated[
        Number,
        ConstantSource("B/event", "`pytest tests/generate/test_plan.py`: OTLP from the recorder"),
    ] = 340
    turn_us: Annotated[
        Number,
        ConstantSource(
            "µs/turn",
            "`python benchmarks/pipeline.py --only recorder --turns 1000000`: a turn of two"
            " calls, of which one is truncated and continued, minus the same turn without"
            " recording; measured on a loaded machine",
        ),
    ] = 830
    agent_us: Annotated[
        Number,
        ConstantSource(
            "µs/span",
            "`python benchmarks/pipeline.py --only fleet`: kafka_agent.yaml classifies,"
            " counts, redacts and queues on disk; measured on a loaded machine",
        ),
    ] = 31
    gateway_us: Annotated[
        Number,
        ConstantSource(
            "µs/span",
            "`python benchmarks/pipeline.py --only fleet`: kafka_gateway.yaml reads, samples"
            " and exports, with one, two or four gateways; measured on a loaded machine",
        ),
    ] = 34
    trace_bytes: Annotated[
        Number,
        ConstantSource(
            "B/trace",
            "`python benchmarks/pipeline.py --only weighing`: resident memory of"
            " kafka_gateway.yaml per undecided trace: 12 KB with three spans, 16 with four, 24"
            " to 35 with ten",
        ),
    ] = 4000
    weighed_bytes: Annotated[
        Number, ConstantSource("B/span", "the same measurement: the part of each span")
    ] = 3000
    packed: Annotated[
        Number,
        ConstantSource(
            "share",
            "assumed: size of spans and events after compression. `python"
            " benchmarks/pipeline.py --only fleet`: 0.12 in Kafka for spans that differ only in"
            " their ids; captured content compresses far less",
        ),
    ] = 0.3
    sample_bytes: Annotated[
        Number, ConstantSource("B/sample", "Prometheus' documentation: 1 to 2 bytes per sample")
    ] = 1.5
    receiver_series: Annotated[
        Number,
        ConstantSource("series", "assumed: capacity of one Thanos receiver or ingester with 8 GiB"),
    ] = 1_000_000
    partition_mb: Annotated[
        Number,
        ConstantSource("MB/s", "assumed: half of what one partition accepts from one producer"),
    ] = 5
    process_turns: Annotated[
        Number, ConstantSource("1/s", "assumed: an agent mostly waits for models")
    ] = 10
    cores: Annotated[
        Number,
        ConstantSource("cores", "chosen: processors for one gateway; the manifests set no limit"),
    ] = 2
    busy: Annotated[
        Number,
        ConstantSource("share", "chosen: below the 80 % at which memory_limiter refuses data"),
    ] = 0.6
    queue_bytes: Annotated[
        Number,
        ConstantSource(
            "B", "default of `ENDTURN_COLLECTOR_QUEUE_BYTES`; a queue is not compressed"
        ),
    ] = 1_073_741_824
    heap_bytes: Annotated[
        Number,
        ConstantSource(
            "B",
            "`GATEWAY_MEMORY_MIB` of docker-compose.fleet.yml, `ENDTURN_COLLECTOR_MEMORY_MIB`"
            " of kubernetes/gateway.yaml: 2048",
        ),
    ] = 2_147_483_648


CONSTANTS: Final = Constants()


def constants() -> list[tuple[str, Number, ConstantSource]]:
    """Return name, value and source of each constant."""
    hints = get_type_hints(Constants, include_extras=True)
    return [
        (field.name, getattr(CONSTANTS, field.name), hints[field.name].__metadata__[0])
        for field in fields(Constants)
    ]


# --- Figures --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure: its name and meaning are those of the function that computes it."""

    unit: str
    text: str
    compute: Callable[[Fleet], Number]

    @property
    def name(self) -> str:
        """Return the name of the figure."""
        return self.compute.__name__

    @property
    def meaning(self) -> str:
        """Return what the figure counts."""
        return (self.compute.__doc__ or "").removesuffix(".")


FIGURES: Final[list[Figure]] = []
"""Every figure, in the order in which it is shown."""


def formula(
    text: str, *, unit: str = ""
) -> Callable[[Callable[[Fleet], Number]], Callable[[Fleet], Number]]:
    """Declare the function as a figure.

    Args:
        text: The formula for readers; a test compares it with what the function computes.
        unit: The unit of the figure.
    """

    def declare(compute: Callable[[Fleet], Number]) -> Callable[[Fleet], Number]:
        FIGURES.append(Figure(unit=unit, text=text, compute=compute))
        return compute

    return declare


@formula("turns * (calls + truncated * attempts)", unit="1/s")
def calls_made(fleet: Fleet) -> Number:
    """Model calls."""
    return fleet.turns * (fleet.calls + fleet.truncated * fleet.attempts)


@formula("turns * (1 + tools) + calls_made", unit="1/s")
def spans(fleet: Fleet) -> Number:
    """Spans."""
    return fleet.turns * (1 + fleet.tools) + calls_made(fleet)


@formula("calls_made + turns * truncated * (attempts + 1)", unit="1/s")
def events(fleet: Fleet) -> Number:
    """Events: one per call, one per continuation, one at the end of a truncated turn."""
    return calls_made(fleet) + fleet.turns * fleet.truncated * (fleet.attempts + 1)


@formula("max(processes, services, ceil(turns / process_turns))")
def agent_processes(fleet: Fleet) -> Number:
    """Agent processes."""
    return max(fleet.processes, fleet.services, ceil(fleet.turns / CONSTANTS.process_turns))


@formula(
    "agent_processes * (process_series + models * (model_series + streams * stream_series))"
    " + services * (3 + 3 * models)"
)
def series(fleet: Fleet) -> Number:
    """Active series, including the six that rules record."""
    per_model = CONSTANTS.model_series + fleet.streams * CONSTANTS.stream_series
    per_process = CONSTANTS.process_series + fleet.models * per_model
    recorded = fleet.services * (3 + 3 * fleet.models)
    return agent_processes(fleet) * per_process + recorded


@formula("series / interval", unit="1/s")
def samples(fleet: Fleet) -> Number:
    """Samples."""
    return series(fleet) / fleet.interval


@formula("max(copies, ceil(series * copies / receiver_series))")
def receivers(fleet: Fleet) -> Number:
    """Receivers of the metrics back end."""
    return max(fleet.copies, ceil(series(fleet) * fleet.copies / CONSTANTS.receiver_series))


@formula("turns * turn_us / 1e6", unit="cores")
def recording_cores(fleet: Fleet) -> Number:
    """Processors of the agents that recording uses."""
    return fleet.turns * CONSTANTS.turn_us / 1e6


@formula("spans * agent_us / 1e6", unit="cores")
def agent_cores(fleet: Fleet) -> Number:
    """Processors that all Collectors beside agents use together."""
    return spans(fleet) * CONSTANTS.agent_us / 1e6


@formula("queue_bytes * hosts / (spans * span_bytes * 3600)", unit="h")
def agent_hours(fleet: Fleet) -> Number:
    """Hours that the Collector of one machine can queue on disk while Kafka is unavailable."""
    return CONSTANTS.queue_bytes * fleet.hosts / (spans(fleet) * CONSTANTS.span_bytes * 3600)


@formula("(spans + 2 * turns * truncated) * span_bytes * packed / 1e6", unit="MB/s")
def kafka_mb(fleet: Fleet) -> Number:
    """Data written to Kafka, including the second copy of truncated turns."""
    copied = 2 * fleet.turns * fleet.truncated
    return (spans(fleet) + copied) * CONSTANTS.span_bytes * CONSTANTS.packed / 1e6


@formula("kafka_mb * 3600 * hours * copies / 1e3", unit="GB")
def kafka_gb(fleet: Fleet) -> Number:
    """Data that Kafka retains."""
    return kafka_mb(fleet) * 3600 * fleet.hours * fleet.copies / 1e3


@formula("turns * wait", unit="traces")
def weighed(fleet: Fleet) -> Number:
    """Traces that gateways hold undecided at a time."""
    return fleet.turns * fleet.wait


@formula(
    "1 + max(1, ceil(spans * gateway_us / 1e6 / (cores * busy)),"
    " ceil((weighed * trace_bytes + spans * wait * weighed_bytes) / (heap_bytes * busy)))"
)
def gateways(fleet: Fleet) -> Number:
    """Gateways: enough processors, enough memory, and one spare."""
    used_cores = spans(fleet) * CONSTANTS.gateway_us / 1e6
    trace_memory = weighed(fleet) * CONSTANTS.trace_bytes
    span_memory = spans(fleet) * fleet.wait * CONSTANTS.weighed_bytes
    by_cores = ceil(used_cores / (CONSTANTS.cores * CONSTANTS.busy))
    by_memory = ceil((trace_memory + span_memory) / (CONSTANTS.heap_bytes * CONSTANTS.busy))
    return 1 + max(1, by_cores, by_memory)


@formula("max(12, ceil(4 * gateways * growth), ceil(kafka_mb / partition_mb))")
def partitions(fleet: Fleet) -> Number:
    """Partitions: four for each gateway that there may ever be."""
    by_gateways = ceil(4 * gateways(fleet) * fleet.growth)
    by_throughput = ceil(kafka_mb(fleet) / CONSTANTS.partition_mb)
    return max(12, by_gateways, by_throughput)


@formula("ceil(1.5 * weighed / (gateways - 1))", unit="traces")
def sampling_traces(fleet: Fleet) -> Number:
    """Traces that one gateway can hold (ENDTURN_SAMPLING_TRACES)."""
    return ceil(1.5 * weighed(fleet) / (gateways(fleet) - 1))


@formula("truncated + failed + (1 - truncated - failed) * sample / 100", unit="share")
def kept(fleet: Fleet) -> Number:
    """Share of traces that gateways keep."""
    unremarkable = 1 - fleet.truncated - fleet.failed
    return fleet.truncated + fleet.failed + unremarkable * fleet.sample / 100


@formula("spans * kept * span_bytes * packed * 86400 / 1e9", unit="GB/d")
def trace_gb_day(fleet: Fleet) -> Number:
    """Traces that are stored per day."""
    stored = spans(fleet) * kept(fleet)
    return stored * CONSTANTS.span_bytes * CONSTANTS.packed * 86400 / 1e9


@formula("events * event_bytes * packed * 86400 / 1e9", unit="GB/d")
def log_gb_day(fleet: Fleet) -> Number:
    """Events that are stored per day."""
    return events(fleet) * CONSTANTS.event_bytes * CONSTANTS.packed * 86400 / 1e9


@formula("samples * sample_bytes * 86400 / 1e9", unit="GB/d")
def metric_gb_day(fleet: Fleet) -> Number:
    """Metrics that are stored per day, in one copy."""
    return samples(fleet) * CONSTANTS.sample_bytes * 86400 / 1e9


@formula("trace_gb_day * trace_days", unit="GB")
def trace_gb(fleet: Fleet) -> Number:
    """Traces that are retained."""
    return trace_gb_day(fleet) * fleet.trace_days


@formula("log_gb_day * log_days", unit="GB")
def log_gb(fleet: Fleet) -> Number:
    """Events that are retained."""
    return log_gb_day(fleet) * fleet.log_days


@formula("metric_gb_day * metric_days * copies", unit="GB")
def metric_gb(fleet: Fleet) -> Number:
    """Metrics that are retained, in all copies."""
    return metric_gb_day(fleet) * fleet.metric_days * fleet.copies


def settings(fleet: Fleet) -> dict[str, str]:
    """Return the variables of the Compose profile and of the manifests' ConfigMap, by name."""
    traces = sampling_traces(fleet)
    return {
        "KAFKA_PARTITIONS": f"{partitions(fleet):.10g}",
        "ENDTURN_SAMPLE_PERCENT": f"{fleet.sample:.10g}",
        "ENDTURN_SAMPLING_WAIT": f"{fleet.wait:.10g}s",
        "ENDTURN_SAMPLING_TRACES": f"{traces:.10g}",
        "ENDTURN_SAMPLING_CACHE": f"{10 * traces:.10g}",
    }


# --- As text --------------------------------------------------------------------------------------


def format_number(value: Number) -> str:
    """Format a number for readers: three digits, and separators of thousands."""
    if value >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def as_table(fleet: Fleet) -> str:
    """Return the figures as lines of text, each with its formula."""
    rows = [
        (format_number(figure.compute(fleet)), figure.unit, figure.name, figure.text)
        for figure in FIGURES
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join(
        f"{value:>{widths[0]}} {unit:<{widths[1]}}  {name:<{widths[2]}} = {text}"
        for value, unit, name, text in rows
    )


def as_json(fleet: Fleet) -> str:
    """Return the figures as a JSON list."""
    rows = [
        {
            "name": figure.name,
            "says": figure.meaning,
            "unit": figure.unit,
            "formula": figure.text,
            "value": figure.compute(fleet),
        }
        for figure in FIGURES
    ]
    return json.dumps(rows, ensure_ascii=False, indent=2)


def as_values(kind: Values, fleet: Fleet) -> str:
    """Return the settings as Compose's `.env`, or as a component for an overlay of `kubernetes/`.

    Raises:
        UsageError: The fleet needs more gateways than Compose starts.
    """
    variables = settings(fleet)
    count = gateways(fleet)
    if kind == "compose":
        if count > COMPOSE_GATEWAYS:
            raise UsageError(
                f"the fleet needs {count} gateways, and docker-compose.fleet.yml starts"
                f" {COMPOSE_GATEWAYS}: use --values kustomize"
            )
        return "\n".join(f"{name}={value}" for name, value in variables.items())
    lines = [
        "apiVersion: kustomize.config.k8s.io/v1alpha1",
        "kind: Component",
        "configMapGenerator:",
        "  - name: endturn-fleet",
        "    behavior: merge",
        "    literals:",
        # The Collectors do not read Kafka's own settings.
        *(
            f"      - {name}={value}"
            for name, value in variables.items()
            if name.startswith("ENDTURN_")
        ),
        "replicas:",
        "  - name: endturn-gateway",
        f"    count: {count}",
    ]
    return "\n".join(lines)


def command(fleet: Fleet, *, as_json_list: bool, values: Values | None) -> int:
    """Run `endturn plan`: print the figures, or the settings of a fleet."""
    if as_json_list and values:
        raise UsageError("--json prints figures and --values prints settings: use only one of them")
    if values:
        print(as_values(values, fleet))
    elif as_json_list:
        print(as_json(fleet))
    else:
        print(as_table(fleet))
    return 0
