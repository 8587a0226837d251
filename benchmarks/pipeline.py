"""What the way of a span costs: CPU in the Collector for each million spans, CPU in the agent for each turn.

The Collector is the native one of `stack/build.py`, with our configurations as they are shipped; only where they send
to is changed: to an HTTP server here, which throws everything away. `pass` is the least that a Collector could do.

    pass       OTLP in, a queue in memory, OTLP out
    disk       the same with a queue on disk
    agent      agent.yaml and redaction.yaml: redacts, a queue on disk
    collector  collector.yaml, stop_reasons.yaml, redaction.yaml: understands, counts, redacts, a queue on disk
    gateway    over these gateway.yaml and cleartext.yaml: samples, too
    fleet      kafka_agent.yaml over those of `collector`, Kafka, and 1, 2 and 4 of kafka_gateway.yaml; first of all
               an agent that does nothing but pass on to Kafka, from a queue on disk
    weighing   a gateway of that fleet, while no trace is decided on yet: what each takes of memory

Ours run with the GOMEMLIMIT and GOGC that Compose sets, `pass` and `disk` with Go's defaults. Turns are of three spans,
a turn and two calls, as the recorder makes them; one in fifty is cut. A Collector's CPU is what it says of itself
(`otelcol_process_cpu_seconds`), so that whatever else runs here disturbs little. The first five take turns,
`--rounds` times: a figure is the median of the rounds, with the least and the most behind it, and `of_pass` is
how many spans it handles in the time in which `pass` of the same round handles one. `recorder` runs turns of the
controller over a scripted model in a process of its own, with every signal on, and looks at its memory.

    python benchmarks/pipeline.py [--spans 200000] [--rounds 3] [--turns 100000] [--only NAME [--only NAME ...]]
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import yaml
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from endturn.telemetry import schema
from tests.support.containers import ONE, of_compose
from tests.support.fleet import PARTITIONS, Kafka, Member
from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import AGENT, ALL_IN_ONE, GATEWAY, Collector, collector_files, eventually
from tests.support.serving import serving

BODY: Final = 510
"""Spans of a request: an SDK sends 512."""
CUT: Final = 50
"""One turn in so many is cut."""
CALL: Final[dict[str, Value]] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5-mini",
    "gen_ai.request.max_tokens": 1024,
    "gen_ai.request.temperature": 0.2,
    "gen_ai.response.id": "chatcmpl-5f7c0e1d2b3a4958",
    "gen_ai.response.model": "gpt-5-mini-2026-08-07",
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.usage.input_tokens": 812,
    "gen_ai.usage.output_tokens": 311,
    "server.address": "api.openai.com",
    "server.port": 443,
    "endturn.stop.reason": "end_turn",
    "endturn.stop.raw": "stop",
    "endturn.stop.truncated": False,
    "endturn.turn.id": "9f2c4e0d11aa87b3",
    "endturn.turn.iteration": 1,
    "endturn.counted": True,
}
TURN: Final[dict[str, Value]] = {
    "gen_ai.operation.name": "invoke_agent",
    "gen_ai.agent.name": "support",
    "gen_ai.request.model": "gpt-5-mini",
    "gen_ai.usage.input_tokens": 1624,
    "gen_ai.usage.output_tokens": 622,
    "endturn.turn.id": "9f2c4e0d11aa87b3",
    "endturn.turn.outcome": "completed",
    "endturn.turn.complete": True,
    "endturn.turn.truncated": False,
    "endturn.turn.continued": False,
    "endturn.turn.iterations": 2,
}
TRUNCATED: Final[dict[str, Value]] = {
    "gen_ai.response.finish_reasons": ["length"],
    "endturn.stop.reason": "max_tokens",
    "endturn.stop.raw": "length",
    "endturn.stop.truncated": True,
}
BATCH: Final = {"sizer": "bytes", "flush_timeout": "500ms", "min_size": 524288, "max_size": 3670016}
QUEUE: Final = {"sizer": "bytes", "queue_size": 1 << 30, "num_consumers": 4, "batch": BATCH}
VARIANTS: Final[dict[str, tuple[Path, ...]]] = {
    "pass": (), "disk": (), "agent": AGENT, "collector": ALL_IN_ONE, "gateway": GATEWAY,
}  # fmt: skip
LEAST: Final = ("pass", "disk")
"""What the others are compared with."""
[SHIPPED] = [each.environment for each in of_compose(ONE) if each.name == "collector"]
"""The variables that Compose sets for a Collector: ours are measured with those of them that Go reads."""
GATEWAY_LIMIT: Final = "2457MiB"
"""The GOMEMLIMIT of a gateway in docker-compose.fleet.yml and kubernetes/gateway.yaml."""
CPU, MEMORY = "otelcol_process_cpu_seconds", "otelcol_process_memory_rss"
WEIGHED: Final = "otelcol_processor_tail_sampling_sampling_traces_on_memory"
TOKEN: Final = "measured"
FIRST: Final = 20 * BODY
"""Spans that go before those that are measured, for what a process does once."""
Figures = dict[str, float | str]


class Load:
    """Requests of whole turns, each a trace, in protobuf, as an SDK sends them."""

    def __init__(self) -> None:
        every: list[Sent] = []
        for number in range(BODY // 3):
            trace = os.urandom(16)
            turn = {"endturn.turn.id": os.urandom(8).hex()}
            for kind in (CALL | TRUNCATED if number % CUT == 0 else CALL, CALL, TURN):
                ids = turn if kind is TURN else turn | {"gen_ai.response.id": f"chatcmpl-{os.urandom(12).hex()}"}
                attributes = {**kind, **ids}
                attributes[schema.ATTRIBUTE_COUNT.key] = len(attributes) + 1
                every.append(Sent(trace=trace, attributes=attributes, seconds=2))
        written = json.loads(spans(every, scope=schema.SCOPE))
        [resource] = written["resourceSpans"]
        self._spans = resource["scopeSpans"][0]["spans"]
        for span in self._spans:  # bytes: JSON's are in hex, and those of protobuf's own JSON are not
            for name in ("traceId", "spanId", "parentSpanId"):
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()
        self._message = ParseDict(written, ExportTraceServiceRequest())

    def body(self) -> bytes:
        """Another request, whose traces and spans have ids of their own."""
        [scope] = self._message.resource_spans[0].scope_spans
        for first in range(0, BODY, 3):
            trace = os.urandom(16)
            for span in scope.spans[first : first + 3]:
                span.trace_id, span.span_id = trace, os.urandom(8)
        return self._message.SerializeToString()


def overlay(variant: str, sink: str, folder: Path) -> tuple[Path, Path]:
    """What is laid over a variant's files, and for `pass` what lies below it."""
    queue = QUEUE if variant == "pass" else QUEUE | {"storage": "file_storage"}
    to_sink = {"exporters": {"otlp_http/sink": {"endpoint": sink, "sending_queue": queue}}}
    pipelines: dict[str, Any] = {"traces": {"exporters": ["otlp_http/sink"]}}
    if variant == "collector":
        pipelines["traces"]["exporters"].append("signal_to_metrics")
    if variant == "gateway":
        pipelines = {"traces/sampled": {"exporters": ["otlp_http/sink"]}}
    host = "${env:ENDTURN_COLLECTOR_HOST}"
    reader = {"pull": {"exporter": {"prometheus": {"host": host, "port": "${env:ENDTURN_COLLECTOR_METRICS_PORT}"}}}}
    base = {
        "receivers": {"otlp": {"protocols": {"http": {"endpoint": f"{host}:${{env:ENDTURN_COLLECTOR_HTTP_PORT}}"}}}},
        "extensions": {
            "health_check": {"endpoint": f"{host}:${{env:ENDTURN_COLLECTOR_HEALTH_PORT}}"},
            "file_storage": {"directory": "${env:ENDTURN_COLLECTOR_DATA}", "create_directory": True},
        },
        "exporters": {"nop": {}},
        "service": {
            "extensions": ["health_check", "file_storage"],
            "telemetry": {"metrics": {"readers": [reader]}},
            "pipelines": {"traces": {"receivers": ["otlp"], "exporters": ["nop"]}},
        },
    }
    folder.mkdir(parents=True)
    below, over = folder / "base.yaml", folder / "over.yaml"
    below.write_text(yaml.safe_dump(base))
    over.write_text(yaml.safe_dump(to_sink | {"service": {"pipelines": pipelines}}))
    return below, over


def send(to: Collector | Member, load: Load, count: int) -> None:
    """Send so many spans; what is refused is sent again."""
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/x-protobuf"}
    for _ in range(count // BODY):
        body = load.body()
        while post(f"{to.url}/v1/traces", body, headers=headers) != 200:
            time.sleep(0.05)


@contextmanager
def sink() -> Iterator[str]:
    """A server that takes everything and keeps nothing."""
    with serving(lambda _: (200, b"", "application/x-protobuf")) as url:
        yield url


def is_done(of: Collector | Member) -> bool:
    """Nothing waits: neither in a queue nor for a decision."""
    return of.own("otelcol_exporter_queue_size") == of.own(WEIGHED) == 0


def collector(variant: str, sent: int, folder: Path) -> float:
    """CPU-seconds of one variant for a million spans, from as many as are sent."""
    variables = {
        "ENDTURN_COLLECTOR_TOKEN": TOKEN,
        "ENDTURN_SAMPLING_WAIT": "5s",
        "ENDTURN_SAMPLING_TRACES": str(sent),
        "ENDTURN_COLLECTOR_MEMORY_MIB": "2048",
    }
    if variant not in LEAST:
        variables |= {name: value for name, value in SHIPPED.items() if name.startswith("GO")}
    if variant == "gateway":  # with less, the traces that it holds make Go collect garbage all the time
        variables["GOMEMLIMIT"] = GATEWAY_LIMIT
    with sink() as url:
        below, over = overlay(variant, url, folder / "files")
        config = VARIANTS[variant] or (below,)
        with Collector(folder / "run", config=config, configs=[over], environment=variables) as running:

            def passed_on() -> bool:
                return running.own("otelcol_exporter_sent_spans") > 0 and is_done(running)

            load = Load()
            send(running, load, FIRST)
            eventually(passed_on, what="the first to be passed on", timeout=300)
            before = running.own(CPU)
            send(running, load, sent)
            eventually(passed_on, what="everything to be passed on", timeout=300)
            return (running.own(CPU) - before) / sent * 1e6


def compared(variants: Sequence[str], sent: int, rounds: int, folder: Path) -> Iterator[tuple[str, Figures]]:
    """The variants without Kafka: their costs, and how fast each is beside those that only pass on."""
    costs: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(rounds):
        for name in variants:
            costs[name].append(collector(name, sent, folder / f"{name}-{number}"))
    for name, mine in costs.items():
        figures: Figures = {"cpu_s_per_million": _spread(mine)}
        for least in LEAST:
            if least in costs and name not in LEAST:
                figures[f"of_{least}"] = _spread([one / other for one, other in zip(costs[least], mine, strict=True)])
        yield name, figures


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


# --- A fleet ------------------------------------------------------------------------------------------------------


@contextmanager
def fleet(
    folder: Path, *, gateways: int, wait: str, traces: int, passes_on: bool = False
) -> Iterator[tuple[Member, list[Member]]]:
    """An agent (one that only `passes_on`), Kafka, and so many gateways, each of which reads its share."""
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        over = folder / "over.yaml"
        exporter = {"endpoint": stack.enter_context(sink()), "sending_queue": QUEUE | {"storage": "file_storage"}}
        pipelines = {name: {"exporters": ["otlp_http/sink"]} for name in ("traces", "traces/truncated")}
        to_sink = {"exporters": {"otlp_http/sink": exporter}, "service": {"pipelines": pipelines}}
        over.write_text(yaml.safe_dump(to_sink))
        kafka = stack.enter_context(Kafka(folder))
        kafka.create_topics()
        variables = {
            "ENDTURN_KAFKA": kafka.address,
            "ENDTURN_SAMPLING_WAIT": wait,
            "ENDTURN_SAMPLING_TRACES": str(traces),
            "ENDTURN_COLLECTOR_MEMORY_MIB": "2048",
        }
        reads = (*collector_files("kafka_gateway"), over)
        readers = [stack.enter_context(Member(folder, f"gateway-{n}", reads, **variables)) for n in range(gateways)]
        writes = _to_kafka(folder) if passes_on else (*ALL_IN_ONE, *collector_files("kafka_agent"))
        agent = stack.enter_context(Member(folder, "agent", writes, **variables))
        started, closed = "otelcol_kafka_receiver_partition_start", "otelcol_kafka_receiver_partition_close"
        eventually(
            lambda: sum(each.own(started) - each.own(closed) for each in readers) == 2 * PARTITIONS,
            what="the gateways to share the partitions",
            timeout=90,
        )
        yield agent, readers


def _to_kafka(folder: Path) -> tuple[Path, ...]:
    """What kafka_agent.yaml does with a span when all else is done, and nothing else."""
    below, _ = overlay("disk", "", folder / "files")
    [kafka_agent] = collector_files("kafka_agent")
    exporter = yaml.safe_load(kafka_agent.read_text())["exporters"]["kafka/turns"]
    over = folder / "to_kafka.yaml"
    pipelines = {"traces": {"exporters": ["kafka/turns"]}}
    over.write_text(yaml.safe_dump({"exporters": {"kafka/turns": exporter}, "service": {"pipelines": pipelines}}))
    return below, over


def fleet_cost(gateways: int, sent: int, folder: Path, *, passes_on: bool = False) -> Figures:
    """CPU-seconds for a million spans, of the agent and of all gateways together; what a span takes in Kafka."""
    load = Load()
    with fleet(folder, gateways=gateways, wait="5s", traces=sent, passes_on=passes_on) as (agent, readers):

        def cpu_after(count: int) -> tuple[float, float]:
            """What was used once so many spans have been read, and every trace decided on."""

            def is_through() -> bool:
                read = sum(each.own("otelcol_receiver_accepted_spans", receiver="kafka/turns") for each in readers)
                return read >= count and all(map(is_done, [agent, *readers]))

            eventually(is_through, what="everything to be passed on", timeout=300)
            return agent.own(CPU), sum(each.own(CPU) for each in readers)

        send(agent, load, FIRST)
        agent_first, gateways_first = cpu_after(FIRST)
        send(agent, load, sent)
        agent_last, gateways_last = cpu_after(FIRST + sent)
        kafka = sum(file.stat().st_size for file in (folder / "kafka").glob("endturn.turns-*/*.log"))
    return {
        "agent_cpu_s_per_million": (agent_last - agent_first) / sent * 1e6,
        "gateways_cpu_s_per_million": (gateways_last - gateways_first) / sent * 1e6,
        "kafka_bytes_per_span": kafka / (FIRST + sent),
        "bytes_per_span": len(load.body()) / BODY,
    }


def weighing(sent: int, folder: Path) -> Figures:
    """The resident memory of a gateway for each trace that it weighs, at three counts of them."""
    load = Load()
    found: Figures = {}
    with fleet(folder, gateways=1, wait="10m", traces=sent) as (agent, [gateway]):

        def await_read(count: int) -> None:
            read = "otelcol_receiver_accepted_spans"
            eventually(lambda: gateway.own(read, receiver="kafka/turns") >= count, what="all to be read", timeout=300)

        send(agent, load, FIRST)
        await_read(FIRST)
        memory, traces = gateway.own(MEMORY), gateway.own(WEIGHED)
        for share in (1, 2, 3):
            send(agent, load, sent // 3 // BODY * BODY)
            await_read(FIRST + sent // 3 // BODY * BODY * share)
            more = gateway.own(WEIGHED) - traces
            found[f"bytes_per_trace_at_{more:.0f}"] = (gateway.own(MEMORY) - memory) / more
    return found


# --- The recorder's side ------------------------------------------------------------------------------------------


def recorder(turns: int) -> dict[str, float]:
    """CPU of a turn of two calls, and memory at a tenth of the turns and at their end."""
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    import endturn
    from benchmarks.overhead.providers import DiscardLogRecords, DiscardSpans
    from endturn.vocabulary.messages import ChatResponse, Message, Request, Usage
    from endturn.vocabulary.stop import Stop, StopReason

    def answer(cut: bool) -> ChatResponse:
        stop = Stop(StopReason.MAX_TOKENS, "length", incomplete=True) if cut else Stop(StopReason.END_TURN, "stop")
        return ChatResponse(text="An answer. ", stop=stop, usage=Usage(input_tokens=812, output_tokens=311))

    calls = 0

    def model(_: Request) -> ChatResponse:
        nonlocal calls
        calls += 1
        return answer(calls % 2 == 1)  # each turn is cut once, and continued: two calls

    request = Request(model="gpt-5-mini", messages=[Message(role="user", content="Why?")], max_tokens=1024)
    controller = endturn.ContinuationController(model)

    def run(number: int) -> float:
        began = time.process_time()
        for _ in range(number):
            controller.run(request)
        return (time.process_time() - began) / number

    bare = run(max(turns // 20, 100))
    reader = InMemoryMetricReader()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(BatchSpanProcessor(DiscardSpans()))
    loggers.add_log_record_processor(BatchLogRecordProcessor(DiscardLogRecords()))
    endturn.instrument(tracer_provider=tracers, meter_provider=MeterProvider([reader]), logger_provider=loggers)
    costs, sizes = [], []
    for _ in range(10):
        costs.append(run(turns // 10))
        reader.get_metrics_data()
        sizes.append(_resident())
        print(f"a tenth of {turns}: {costs[-1] * 1e6:.0f} µs a turn, {sizes[-1] / 1e6:.1f} MB", file=sys.stderr)
    each = sorted(costs)[len(costs) // 2]
    return {
        "turn_us": each * 1e6,
        "bare_us": bare * 1e6,
        "turns_per_cpu_second": 1 / each,
        "memory_mb_at_a_tenth": sizes[0] / 1e6,
        "memory_mb_at_the_end": sizes[-1] / 1e6,
    }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--spans", type=int, default=200_000, help="to each Collector (default: 200000)")
    parser.add_argument("--rounds", type=int, default=3, help="of those that take turns (default: 3)")
    parser.add_argument("--turns", type=int, default=100_000, help="of the recorder (default: 100000)")
    every = (*VARIANTS, "fleet", "weighing", "recorder")
    parser.add_argument("--only", action="append", choices=every, help="again for others")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.here:
        print(json.dumps(recorder(asked.turns)))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, figures in measured(asked.only or every, asked, Path(folder)):
            shown = (
                f"{each} {value if isinstance(value, str) else f'{value:,.2f}'}" for each, value in figures.items()
            )
            print(name, ", ".join(shown), flush=True)


def measured(wanted: Sequence[str], asked: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Figures]]:
    """What was found of each that is wanted."""
    spans_ = asked.spans // BODY * BODY
    yield from compared([name for name in VARIANTS if name in wanted], spans_, asked.rounds, folder)
    if "fleet" in wanted:
        yield "fleet that passes on", fleet_cost(1, spans_, folder / "fleet", passes_on=True)
        for count in (1, 2, 4):
            yield f"fleet of {count}", fleet_cost(count, spans_, folder / f"fleet-{count}")
    if "weighing" in wanted:
        yield "weighing", weighing(spans_, folder / "weighing")
    if "recorder" in wanted:
        command = [sys.executable, __file__, "--here", "--turns", str(asked.turns)]
        yield "recorder", json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


if __name__ == "__main__":
    main()
