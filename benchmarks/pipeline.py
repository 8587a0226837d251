"""What the way of a span costs: CPU in the Collector for each million spans, CPU in the agent for each turn.

The Collector is the native one of `stack/build.py`, with our configurations as they are shipped; only where they send
to is changed: to an HTTP server here, which throws everything away. `pass` is the least that a Collector could do.

    pass       OTLP in, a queue in memory, OTLP out
    disk       the same with a queue on disk
    agent      agent.yaml and redaction.yaml: redacts, a queue on disk
    collector  collector.yaml, stop_reasons.yaml, redaction.yaml: understands, counts, redacts, a queue on disk
    gateway    over these gateway.yaml and cleartext.yaml: samples, too
    weighing   the same, while no trace is decided on yet: what each takes of memory

Turns are of three spans, a turn and two calls, as the recorder makes them; one in fifty is cut. The Collector's CPU is
what it says of itself (`otelcol_process_cpu_seconds`), so that whatever else runs here disturbs little. `recorder` runs
turns of the controller over a scripted model in a process of its own, with every signal on, and looks at its memory.

    python benchmarks/pipeline.py [--spans 200000] [--turns 100000] [--json]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import AGENT, ALL_IN_ONE, GATEWAY, Collector, eventually
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
BATCH: Final = {"sizer": "bytes", "flush_timeout": "500ms", "min_size": 524288, "max_size": 3145728}
QUEUE: Final = {"sizer": "bytes", "queue_size": 1 << 30, "num_consumers": 4, "batch": BATCH}
VARIANTS: Final[dict[str, tuple[Path, ...]]] = {
    "pass": (), "disk": (), "agent": AGENT, "collector": ALL_IN_ONE, "gateway": GATEWAY, "weighing": GATEWAY,
}  # fmt: skip
CPU, MEMORY = "otelcol_process_cpu_seconds", "otelcol_process_memory_rss"
TOKEN: Final = "measured"


def body() -> bytes:
    """A request: whole turns, each a trace."""
    every: list[Sent] = []
    for number in range(BODY // 3):
        trace = os.urandom(16)
        turn = {"endturn.turn.id": os.urandom(8).hex()}
        for kind in (CALL | TRUNCATED if number % CUT == 0 else CALL, CALL, TURN):
            ids = turn if kind is TURN else turn | {"gen_ai.response.id": f"chatcmpl-{os.urandom(12).hex()}"}
            every.append(Sent(trace=trace, attributes=kind | ids, seconds=2))
    return spans(every)


def overlay(variant: str, sink: str, folder: Path) -> tuple[Path, Path]:
    """What is laid over a variant's files, and for `pass` what lies below it."""
    queue = QUEUE if variant == "pass" else QUEUE | {"storage": "file_storage"}
    to_sink = {"exporters": {"otlp_http/sink": {"endpoint": sink, "sending_queue": queue}}}
    pipelines: dict[str, Any] = {"traces": {"exporters": ["otlp_http/sink"]}}
    if variant == "collector":
        pipelines["traces"]["exporters"].append("signal_to_metrics")
    if VARIANTS[variant] == GATEWAY:
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


def collector(variant: str, sent: int, folder: Path) -> dict[str, float]:
    """The CPU and the memory of one variant, for so many spans."""
    received = 0

    def throw_away(asked: Any) -> tuple[int, bytes, str]:
        nonlocal received
        received += len(asked.body)
        return 200, b"", "application/x-protobuf"

    bodies = [body() for _ in range(8)]
    variables = {
        "ENDTURN_COLLECTOR_TOKEN": TOKEN,
        "ENDTURN_SAMPLING_WAIT": "10m" if variant == "weighing" else "5s",
        "ENDTURN_SAMPLING_TRACES": str(sent),
        "ENDTURN_COLLECTOR_MEMORY_MIB": "2048",
    }
    with serving(throw_away) as sink:
        below, over = overlay(variant, sink, folder / "files")
        config = VARIANTS[variant] or (below,)
        with Collector(folder / "run", config=config, configs=[over], environment=variables) as running:
            before, memory = running.own(CPU), running.own(MEMORY)
            for number in range(sent // BODY):
                fresh = body() if VARIANTS[variant] == GATEWAY else bodies[number % len(bodies)]  # a trace comes once
                while post(f"{running.url}/v1/traces", fresh, headers={"Authorization": f"Bearer {TOKEN}"}) != 200:
                    time.sleep(0.05)
            held = running.own(MEMORY) - memory

            def is_done() -> bool:
                """Nothing waits: neither in a queue nor for a decision."""
                waiting = running.own("otelcol_exporter_queue_size")
                weighed = running.own("otelcol_processor_tail_sampling_sampling_traces_on_memory")
                return received > 0 and waiting == 0 and (variant != "gateway" or weighed == 0)

            eventually(is_done, what="everything to be passed on", timeout=300)
            cpu = running.own(CPU) - before
    spans_sent = sent // BODY * BODY
    return {
        "cpu_s_per_million": cpu / spans_sent * 1e6,
        "held_bytes_per_trace": held / (spans_sent / 3),
        "bytes": sum(map(len, bodies)) / len(bodies) / BODY,
        "gzip_bytes": sum(len(gzip.compress(each, 1)) for each in bodies) / len(bodies) / BODY,
    }


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
    from benchmarks.overhead import Logs, Spans
    from endturn.chat import ChatResponse, Message, Request, Usage
    from endturn.stop import Stop, StopReason

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
    tracers.add_span_processor(BatchSpanProcessor(Spans()))
    loggers.add_log_record_processor(BatchLogRecordProcessor(Logs()))
    endturn.instrument(tracer_provider=tracers, meter_provider=MeterProvider([reader]), logger_provider=loggers)
    costs, sizes = [], []
    for _ in range(10):
        costs.append(run(turns // 10))
        reader.get_metrics_data()
        sizes.append(_resident())
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
    parser.add_argument("--turns", type=int, default=100_000, help="of the recorder (default: 100000)")
    parser.add_argument("--only", action="append", choices=(*VARIANTS, "recorder"), help="again for others")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args(argv)
    if asked.here:
        print(json.dumps(recorder(asked.turns)))
        return
    found: dict[str, dict[str, float]] = {}
    for variant in asked.only or (*VARIANTS, "recorder"):
        if variant == "recorder":
            command = [sys.executable, __file__, "--here", "--turns", str(asked.turns)]
            found[variant] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        else:
            with tempfile.TemporaryDirectory() as folder:
                found[variant] = collector(variant, asked.spans, Path(folder))
        if not asked.json:
            print(variant, ", ".join(f"{name} {value:,.1f}" for name, value in found[variant].items()), flush=True)
    if asked.json:
        print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
