"""What happens to telemetry when something breaks: nothing that a queue promised is lost, and every loss is counted."""

from __future__ import annotations

import gzip
import ssl
import threading
from collections.abc import Sequence, Set
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support.otlp import Sent, Value, logs, post, spans
from tests.support.processes import (
    AGENT,
    ALL_IN_ONE,
    GATEWAY,
    LOOPBACK,
    Collector,
    StartError,
    Written,
    collector_files,
    eventually,
    free_port,
    metric,
    self_signed,
    shipped,
    written,
)

pytestmark = pytest.mark.stack

LENGTH: dict[str, Value] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
    "gen_ai.response.finish_reasons": ["length"],
}
SHIPPED = {"collector": ALL_IN_ONE, "agent": AGENT}
PADDING = "x" * 500


def impatient(folder: Path, name: str, exporter: str, **environment: str) -> Collector:
    """A configuration as it is shipped, but that it waits a second at most between attempts of its exporter."""
    retries = {"exporters": {exporter: {"retry_on_failure": {"max_interval": "1s"}}}}
    configs = [written(folder / "impatient.yaml", retries)]
    return Collector(folder, config=SHIPPED[name], configs=configs, to_files=False, environment=environment)


def agent(folder: Path, sink: int, **environment: str) -> Collector:
    """The shipped agent, in front of whatever will listen there."""
    gateway = {"ENDTURN_GATEWAY_ENDPOINT": f"{LOOPBACK}:{sink}", "ENDTURN_GATEWAY_INSECURE": "true"}
    return impatient(folder, "agent", "otlp_grpc/gateway", **gateway, **environment)


def bodies(sink: Collector) -> list[str]:
    return [record["body"]["stringValue"] for record in sink.log_records()]


RECONNECTED = 180
"""Seconds after which gRPC has tried to connect again for certain: it waits for up to two minutes, and a fifth more."""


def all_arrive(sink: Collector, wanted: Set[str], *, of: Collector) -> None:
    """Wait for every event, as long as more of them come; fails with what is missing, and what the agent has left."""
    written, missing = Written(sink.file("logs")), set(wanted)

    def more() -> set[str]:
        return missing & {record["body"]["stringValue"] for record in written.read()}

    while missing:
        batches = sorted({int(body.partition("-")[0]) for body in missing})
        queued, dropped = (of.own(f"otelcol_exporter_{name}") for name in ("queue_size", "send_failed_log_records"))
        what = f"more of {len(missing)} events, of batches {batches}; the agent keeps {queued:g} B, dropped {dropped:g}"
        missing -= eventually(more, what=what, timeout=RECONNECTED)


def test_a_killed_agent_loses_nothing_that_it_took(tmp_path: Path) -> None:
    """100,000 events while the back end is down, the agent killed under load and restarted: every one arrives."""
    grpc = free_port()
    running = agent(tmp_path / "agent", grpc)
    running.start()
    batches = [[f"{n}-{m}" for m in range(1000)] for n in range(100)]
    killed, accepted = threading.Event(), []

    def load() -> None:
        for n, batch in enumerate(batches):
            # As an SDK does: what is not taken is sent again.
            while post(f"{running.url}/v1/logs", logs(batch)) != 200:
                killed.wait(0.05)
            accepted.append(n)

    sender = threading.Thread(target=load)
    sender.start()
    try:
        eventually(lambda: len(accepted) >= 40, what="load", timeout=120)
        running.kill()
        taken = len(accepted)
        running.start()
        sender.join(180)
        assert not sender.is_alive()
        assert taken < len(accepted) == len(batches)
        # The back end comes, goes, and comes again. Were it killed, it would not write all that it took.
        with Collector(tmp_path / "first", grpc_port=grpc) as first:
            arrived = first.file("logs")
            eventually(lambda: arrived.exists() and arrived.stat().st_size, what="anything", timeout=RECONNECTED)
            assert first.stop() == 0
        with Collector(tmp_path / "second", grpc_port=grpc) as second:
            wanted = {body for batch in batches for body in batch} - set(bodies(first))
            all_arrive(second, wanted, of=running)
        assert running.own("otelcol_exporter_send_failed_log_records") == 0
    finally:
        running.stop()


def test_a_full_disk_queue_refuses_and_what_it_took_arrives(tmp_path: Path) -> None:
    """What does not fit is refused, to be sent again or given up; accepted and refused are counted, and add up."""
    grpc = free_port()
    running = agent(tmp_path / "agent", grpc, ENDTURN_COLLECTOR_QUEUE_BYTES="1000000")
    accepted, refused = set(), 0
    with running:
        for n in range(60):
            batch = [f"{n}-{m}-{PADDING}" for m in range(100)]
            status = post(f"{running.url}/v1/logs", logs(batch))
            assert status in (200, 503)  # 503: the sender may try again
            if status == 200:
                accepted |= set(batch)
            else:
                refused += len(batch)
        assert accepted
        assert refused
        assert len(accepted) + refused == 6000
        assert running.own("otelcol_exporter_enqueue_failed_log_records") == refused
        assert running.own("otelcol_receiver_refused_log_records") == refused
        assert running.own("otelcol_receiver_accepted_log_records") == len(accepted)
        with Collector(tmp_path / "sink", grpc_port=grpc) as sink:
            eventually(lambda: set(bodies(sink)) == accepted, what="all that was accepted", timeout=60)


def test_a_full_queue_behind_the_counter_drops_and_counts_but_never_counts_twice(tmp_path: Path) -> None:
    """Traces of the all-in-one are not refused: each response is counted once, each span lost is counted as lost."""
    grpc = free_port()
    variables = {"ENDTURN_COLLECTOR_QUEUE_BYTES": "1000000", "ENDTURN_TEMPO_ENDPOINT": f"{LOOPBACK}:{grpc}"}
    sent = 0
    with impatient(tmp_path / "collector", "collector", "otlp_grpc/tempo", **variables) as running:
        for _ in range(60):
            every = [Sent(attributes=LENGTH | {"padding": PADDING}) for _ in range(100)]
            assert post(f"{running.url}/v1/traces", spans(every)) == 200
            sent += len(every)
            if sent == len(every):
                # On a slow machine all of it could become one batch, larger than the queue.
                eventually(lambda: running.own("otelcol_exporter_queue_size") > 0, what="a first batch in the queue")

        def counted() -> float:
            return metric(running.counts_address, "endturn_responses_total")

        eventually(lambda: counted() == sent, what=f"{sent} responses counted")
        lost = running.own("otelcol_exporter_enqueue_failed_spans")
        assert 0 < lost < sent
        assert running.own("otelcol_receiver_refused_spans") == 0
        with Collector(tmp_path / "sink", grpc_port=grpc) as sink:
            eventually(lambda: len(sink.spans()) == sent - lost, what="what was not lost", timeout=60)
        assert counted() == sent


PROTOBUF = {"Content-Type": "application/x-protobuf"}
LARGEST = 3 << 20
"""Bytes of the largest message that a Collector takes."""


def largest(attribute: str) -> bytes:
    """A message of one span, with this attribute as long as it may be."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(kept))

    def message(length: int) -> bytes:
        kept.clear()
        provider.get_tracer("test").start_span("largest", attributes=LENGTH | {attribute: "x" * length}).end()
        return encode_spans(kept.get_finished_spans()).SerializeToString()

    short = LARGEST - 1000
    return message(short + LARGEST - len(message(short)))


@pytest.mark.parametrize("attribute", ["padding", "gen_ai.response.finish_reasons"])
def test_the_largest_span_arrives_and_so_does_what_came_beside_it(attribute: str, tmp_path: Path) -> None:
    """Its stop reason is added to it, cut where it is long itself, and a queue takes what it has become."""
    as_tempo = {"receivers": {"otlp": {"protocols": {"grpc": {"max_recv_msg_size_mib": 4}}}}}
    sink = Collector(tmp_path / "sink", configs=[written(tmp_path / "tempo.yaml", as_tempo)])
    with sink, impatient(tmp_path, "collector", "otlp_grpc/tempo", ENDTURN_TEMPO_ENDPOINT=sink.grpc) as running:
        url, beside = f"{running.url}/v1/traces", spans([Sent(name="beside", attributes=LENGTH)] * 50)
        body = largest(attribute)
        assert len(body) == LARGEST
        assert post(url, beside) == 200
        assert post(url, body, headers=PROTOBUF) == 200
        assert post(url, beside) == 200
        assert post(url, largest(attribute) + b"\x0a\x00", headers=PROTOBUF) in (400, 413)
        eventually(lambda: len(sink.spans()) == 101, what="every span")


def test_no_queue_sends_more_than_is_taken_behind_it() -> None:
    """A gateway takes from an agent what applications may send, Kafka and Tempo 4 MiB; what grows has room for that."""
    sizes = {
        f"{name}: {exporter}": told["sending_queue"]["batch"]["max_size"]
        for name in (*SHIPPED, "kafka_agent")
        for exporter, told in shipped(f"collector/{name}.yaml")["exporters"].items()
    }
    assert {name: size for name, size in sizes.items() if size <= LARGEST} == {"agent: otlp_grpc/gateway": LARGEST}
    assert max(sizes.values()) < 4 << 20


HOSTILE: dict[str, tuple[bytes, set[int], dict[str, str]]] = {
    "garbage": (b"\xff\xfe garbage \x00" * 100, {400}, PROTOBUF),
    "a cut message": (b"\x0a\x7f" + b"x" * 9, {400}, PROTOBUF),
    "another content type": (spans([Sent()]), {415}, {"Content-Type": "text/plain"}),
    # Its sender may find the connection closed before it has sent all of it.
    "a huge body": (b"\x0a" * (20 << 20), {400, 413, 0}, PROTOBUF),
    "a gzip bomb": (gzip.compress(b"\x00" * (64 << 20)), {400, 413}, PROTOBUF | {"Content-Encoding": "gzip"}),
}


def test_hostile_messages_are_refused_and_honest_ones_still_taken(tmp_path: Path) -> None:
    """Garbage, bombs and wrong types are an error for their sender; the next one is served, memory is bounded."""
    with Collector(tmp_path) as receiver:
        for name, (body, answers, headers) in HOSTILE.items():
            assert post(f"{receiver.url}/v1/traces", body, headers=headers) in answers, name
            assert post(f"{receiver.url}/v1/traces", spans([Sent(name=f"after {name}")])) == 200
        honest = {f"after {name}" for name in HOSTILE}
        eventually(lambda: {span["name"] for span in receiver.spans()} == honest, what="the honest spans")
        assert receiver.own("otelcol_process_memory_rss") < 1 << 30


TOKEN = "planted-token"


UNUSED = r"connector .* but not used in any supported exporter pipeline"
REFUSED = {
    "no token": (GATEWAY, "", "no bearer token provided"),
    "a token in clear text": (GATEWAY[:-1], TOKEN, r"ENDTURN_TLS_CERT is not set \(or lay cleartext.yaml over\)"),
    "stop reasons first": (collector_files("stop_reasons", "collector", "redaction"), TOKEN, UNUSED),
    "the gateway first": (
        collector_files("gateway", "cleartext", "collector", "stop_reasons", "redaction"), TOKEN, UNUSED,
    ),
    "the gateway between": (
        collector_files("collector", "gateway", "stop_reasons", "redaction", "cleartext"), TOKEN, UNUSED,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("files", "token", "complaint"), REFUSED.values(), ids=list(REFUSED))
def test_a_collector_that_would_not_do_what_it_is_told_does_not_start(
    files: Sequence[Path], token: str, complaint: str, tmp_path: Path
) -> None:
    """An empty token is not taken for "everybody", nor one that anybody could read; below its base a file is idle."""
    with pytest.raises(StartError, match=complaint):
        Collector(tmp_path, config=files, environment={"ENDTURN_COLLECTOR_TOKEN": token}).start()


def test_a_gateway_takes_what_comes_encrypted_and_with_its_token(tmp_path: Path) -> None:
    """In clear text nothing arrives; without the token, with another, or with a part of it, the answer is 401.

    An agent that trusts it, with the token, gets through. Who is asked to end exits with 0, for an orchestrator takes
    anything else for a crash.
    """
    cert, key = self_signed(tmp_path)
    variables = {"ENDTURN_COLLECTOR_TOKEN": TOKEN, "ENDTURN_TLS_CERT": str(cert), "ENDTURN_TLS_KEY": str(key)}
    with Collector(tmp_path / "gateway", config=GATEWAY[:-1], environment=variables) as gateway:
        right, body = f"Bearer {TOKEN}", spans([Sent(attributes=LENGTH)])
        assert post(f"{gateway.url}/v1/traces", body, headers={"Authorization": right}) in (0, 400)
        with httpx.Client(verify=ssl.create_default_context(cafile=str(cert)), trust_env=False) as trusting:

            def status(token: str) -> int:
                headers = {"Content-Type": "application/json"} | ({"Authorization": token} if token else {})
                url = gateway.url.replace("http:", "https:")
                return trusting.post(f"{url}/v1/traces", content=body, headers=headers).status_code

            wrong = ("", "Bearer wrong", right[:-1], TOKEN, "Basic Og==")
            assert [status(token) for token in wrong] == [401] * len(wrong)
            assert gateway.own("otelcol_receiver_accepted_spans") == 0
            assert status(right) == 200
        trust = {"ENDTURN_GATEWAY_CA": str(cert), "ENDTURN_GATEWAY_TOKEN": TOKEN}
        there = trust | {"ENDTURN_GATEWAY_ENDPOINT": gateway.grpc}
        with Collector(tmp_path / "agent", config=AGENT, to_files=False, environment=there) as running:
            assert post(f"{running.url}/v1/traces", body) == 200
            eventually(lambda: len(gateway.spans()) == 2, what="both spans")
            assert running.stop() == 0
        assert TOKEN not in gateway.log.read_text()
        assert gateway.stop() == 0
