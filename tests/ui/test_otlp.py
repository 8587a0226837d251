"""OTLP over HTTP: from the real SDK's exporters, in both encodings, and what is none."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS
from endturn.ui import otlp
from tests.ui.support import SECOND, Served, counted, log, numbers, span, span_of_others, written

RESOURCE = Resource({"service.name": "agent", "service.namespace": "shop", "service.instance.id": "one"})
TURNS = INDICATORS["turns"].count


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdk_s_spans_and_events_arrive(page: Served, compression: Compression) -> None:
    """As the exporters send them."""
    how: Any = {"compression": compression}
    tracers = TracerProvider(resource=RESOURCE)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{page.url}/v1/traces", **how)))
    loggers = LoggerProvider(resource=RESOURCE)
    loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(f"{page.url}/v1/logs", **how)))
    asked: dict[str, str | bool] = {
        schema.OPERATION.key: "chat", schema.PROVIDER.key: "openai", schema.REQUEST_MODEL.key: "gpt-5",
        schema.TURN_ID.key: "t1", schema.REASON.key: "max_tokens", schema.STOP_TRUNCATED.key: True,
    }  # fmt: skip
    with tracers.get_tracer("endturn").start_as_current_span("chat gpt-5", attributes=asked):
        loggers.get_logger("endturn").emit(
            event_name=schema.CONTINUATION_TERMINATED.name,
            timestamp=time.time_ns(),
            body="cut turn ended",
            attributes={schema.TURN_ID.key: "t1", schema.OUTCOME.key: "not_continued"},
        )
    tracers.shutdown()
    loggers.shutdown()
    (found,) = page.store.read_rows("SELECT * FROM spans")
    told = (found["service"], found["model"], found["reason"], found["truncated"])
    assert told == ("shop/agent", "gpt-5", "max_tokens", True)
    assert page.store.read("SELECT trace_id FROM events") == [(found["trace_id"],)]
    assert page.store.read("SELECT state, outcome FROM turns") == [("unfinished", "not_continued")]


@pytest.mark.parametrize("temporality", [AggregationTemporality.CUMULATIVE, AggregationTemporality.DELTA])
def test_the_sdk_s_metrics_arrive(page: Served, temporality: AggregationTemporality) -> None:
    """Cumulative or delta, a count is what was counted."""
    exporter = OTLPMetricExporter(
        f"{page.url}/v1/metrics", preferred_temporality={Counter: temporality, Histogram: temporality}
    )
    reader = PeriodicExportingMetricReader(exporter, export_interval_millis=3_600_000)
    meters = MeterProvider([reader], resource=RESOURCE)
    meter = meters.get_meter("endturn")
    turns = meter.create_counter(schema.TURNS.name)
    waits = meter.create_histogram(
        schema.TURN_DURATION.name, explicit_bucket_boundaries_advisory=schema.TURN_DURATION.buckets
    )
    for value in (3, 4):
        turns.add(value, {schema.TRUNCATED.key: True, schema.OUTCOME.key: "completed"})
        waits.record(value, {schema.CONTINUED.key: False})
        meters.force_flush()
    meters.shutdown()
    asked = numbers(page.store)
    assert asked.total(INDICATORS["truncated_turns"].count) == 7
    assert sum(asked.buckets(schema.TURN_DURATION)[()].values()) == 2
    assert asked.quantiles(1, schema.TURN_DURATION)[()] == 5


def test_json_is_read_as_protobuf_is(page: Served) -> None:
    """Ids are hexadecimal there, and 64-bit numbers text; an export that is sent again changes nothing."""
    request = span(attributes={"gen_ai.usage.output_tokens": 40})
    for _ in range(2):
        answer = page.post("traces", request, zipped=True)
        assert (answer.status, answer.headers["content-type"], answer.text) == (200, "application/json", "{}")
    (found,) = page.store.read_rows("SELECT * FROM spans")
    assert (found["trace_id"], found["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7")
    assert found["output_tokens"] == 40
    assert json.loads(found["attributes"])["gen_ai.request.model"] == "gpt-5"


JSON, ZIPPED = {"Content-Type": otlp.JSON}, {"Content-Type": otlp.JSON, "Content-Encoding": "gzip"}
BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no protobuf": (b"\xff\xff\xff", {"Content-Type": otlp.PROTOBUF}, 400, "is no ExportTraceServiceRequest"),
    "no JSON": (b"{", JSON, 400, "is no ExportTraceServiceRequest"),
    "another JSON": (b'{"resourceSpans": 7}', JSON, 400, "resourceSpans"),
    "an odd id": (written(span(traceId="xyz")), JSON, 400, "non-hexadecimal"),
    "deep": (b'{"resourceSpans":' + b"[" * 100_000, JSON, 400, "ExportTraceServiceRequest"),
    "a number": (b"5", JSON, 400, "no JSON object"),
    "null": (b"null", JSON, 400, "no JSON object"),
    "a list": (b"[]", JSON, 400, "no JSON object"),
    "in capitals": (b"{", {"Content-Type": "Application/JSON"}, 400, "ExportTraceServiceRequest"),
    "more gzip": (gzip.compress(b"{") + gzip.compress(b"}"), ZIPPED, 400, "one gzip member"),
    "no gzip": (b"{}", ZIPPED, 400, "is not gzip"),
    "half": (gzip.compress(b"{}" * 99)[:-9], ZIPPED, 400, "too early"),
    "brotli": (b"{}", JSON | {"Content-Encoding": "br"}, 415, "send gzip"),
    "text": (b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
    "nothing said": (b"{}", {}, 415, "application/json"),
    "too long when it is unpacked": (
        gzip.compress(bytes(otlp.MOST_BYTES + 1)), {"Content-Type": otlp.PROTOBUF, "Content-Encoding": "gzip"}, 413,
        "smaller batches",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "headers", "status", "why"), BAD.values(), ids=list(BAD))
def test_what_is_no_otlp_is_refused_with_a_reason(
    page: Served, body: bytes, headers: dict[str, str], status: int, why: str
) -> None:
    """With a `google.rpc.Status` in the sender's encoding; nothing is kept."""
    answer = page.ask("/v1/traces", body, headers)
    assert answer.status == status
    as_json = headers.get("Content-Type", "").lower() == otlp.JSON
    assert why in (json.loads(answer.content)["message"] if as_json else Status.FromString(answer.content).message)
    assert page.store.read("SELECT count(*) FROM spans") == [(0,)]


def test_a_body_that_is_too_long_is_answered_while_it_is_sent(page: Served) -> None:
    """With 413, though its sender is still sending."""
    chunks = (bytes(65536) for _ in range(otlp.MOST_BYTES // 65536 * 2))
    answer = page.ask("/v1/traces", chunks, {"Content-Type": otlp.PROTOBUF})
    assert (answer.status, "smaller batches" in Status.FromString(answer.content).message) == (413, True)


NOW = time.time_ns()
FAR = 1 << 63
EXPONENTIAL = {"dataPoints": [{"timeUnixNano": "1", "count": "1"}], "aggregationTemporality": 2}
OF_ANOTHER_KIND = [{"name": schema.TURN_DURATION.name, "exponentialHistogram": EXPONENTIAL}, {"name": "a", "gauge": {}}]
FALLS = counted((NOW - 9, NOW - 3, 4), (NOW - 3, NOW - 2, -2), (NOW - 2, NOW - 1, 1), delta=True)
SHORT = span()
SHORT["resourceSpans"][0]["scopeSpans"][0]["spans"] += span(spanId="ff")["resourceSpans"][0]["scopeSpans"][0]["spans"]


@pytest.mark.parametrize(
    ("signal", "request_", "rejected", "says", "kept"),
    [
        ("traces", SHORT, "rejectedSpans", "span id 8", 1),
        ("traces", span(startTimeUnixNano=str(FAR), endTimeUnixNano="1"), "rejectedSpans", "", 0),
        ("logs", log("x", timeUnixNano="0", observedTimeUnixNano=str(FAR)), "rejectedLogRecords", "", 0),
        ("metrics", counted((FAR, 1, 1)), "rejectedDataPoints", "", 0),
        ("metrics", FALLS, "rejectedDataPoints", "never falls", 5),
        (
            "metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": OF_ANOTHER_KIND}]}]}, "rejectedDataPoints",
            "is a histogram with explicit bounds, not exponential_histogram", 0,
        ),
    ],
    ids=["a short id", "a time of a span", "a time of an event", "a time of a point", "a fall", "another kind"],
)  # fmt: skip
def test_what_cannot_be_is_left_out_and_told_of(
    page: Served, signal: str, request_: Any, rejected: str, says: str, kept: int
) -> None:
    """The rest is kept: a partial success."""
    answer = page.post(signal, request_)
    told = json.loads(answer.content)["partialSuccess"]
    assert (answer.status, told[rejected], says in told["errorMessage"]) == (200, "1", True)
    count = page.store.read("SELECT count(*) FROM spans")[0][0] + numbers(page.store).total(TURNS)
    assert count == kept


def test_processes_without_an_id_are_told_apart(page: Served) -> None:
    """By when they began to count; what two of them count in turns is counted once."""
    for n in range(1, 5):
        for began in (NOW - 60 * SECOND, NOW - 50 * SECOND):
            assert page.post("metrics", counted((began, NOW - (5 - n) * SECOND, n))).status == 200
    assert numbers(page.store).total(TURNS) == 4 + 4


def test_deltas_that_come_late_are_counted_once(page: Served) -> None:
    """In whatever order, and however often they come."""
    steps = [(NOW - n * SECOND, NOW - (n - 1) * SECOND, n) for n in (1, 3, 2, 3, 4, 1)]
    for points in ([step] for step in (*steps, *steps)):
        assert page.post("metrics", counted(*points, delta=True)).status == 200
    assert page.post("metrics", counted(*steps, delta=True)).status == 200
    assert numbers(page.store).total(TURNS) == 1 + 2 + 3 + 4


CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}


def test_a_call_that_says_no_reason_is_not_cut_off(page: Served) -> None:
    """However long ago it was: its reason is unknown, and its turn waits for nothing."""
    page.post("traces", span_of_others(CHAT, start_ns=SECOND))
    assert page.store.read("SELECT reason, state, truncated FROM turns") == [("unknown", "other", False)]


@pytest.mark.parametrize(
    "attributes",
    [
        CHAT | {"gen_ai.request.max_tokens": 8, "gen_ai.response.finish_reasons": ["length"]}
        | {"gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 8},
        {"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "gpt-5"}
        | {"llm.invocation_parameters": '{"max_completion_tokens": 8}', "llm.finish_reason": "length"}
        | {"llm.token_count.prompt": 5, "llm.token_count.completion": 8},
        {"llm.request.type": "chat", "gen_ai.system": "openai", "gen_ai.request.model": "gpt-5"}
        | {"gen_ai.request.max_tokens": 8, "gen_ai.completion.0.finish_reason": "length"}
        | {"gen_ai.usage.prompt_tokens": 5, "gen_ai.usage.completion_tokens": 8},
    ],
    ids=["conventions", "OpenInference", "OpenLLMetry"],
)  # fmt: skip
def test_calls_are_read_in_other_instrumentations_words(page: Served, attributes: dict[str, Any]) -> None:
    """As the tracing of this process reads them."""
    page.post("traces", span_of_others(attributes))
    columns = "operation, provider, model, max_tokens, input_tokens, output_tokens, reason, raw, truncated"
    known = ("chat", "openai", "gpt-5", 8, 5, 8, "max_tokens", "length", True)
    assert page.store.read(f"SELECT {columns} FROM spans") == [known]
    assert page.store.read("SELECT state FROM turns") == [("open",)]


def test_a_stream_that_logfire_hands_over_counts_once(page: Served) -> None:
    """The call's own span says nothing of the answer, the one of the stream's end does."""
    page.post("traces", span_of_others(CHAT | {"logfire.span_type": "span"}, "logfire.openai"))
    end = CHAT | {"logfire.span_type": "log", "gen_ai.response.finish_reasons": ["stop"]}
    page.post("traces", span_of_others(end, "logfire.openai", spanId="a1" * 8))
    assert page.store.read("SELECT reason, calls FROM turns") == [("end_turn", 1)]


def test_a_point_without_a_value_is_no_reset(page: Served) -> None:
    """OTLP marks what a process no longer reports by a flag; its value says nothing."""
    for after, (value, flags) in enumerate([(100, 0), (0, 1), (110, 0)]):
        page.post("metrics", counted((NOW - SECOND, NOW + after * SECOND, value), flags=flags))
    assert page.store.read("SELECT sum(added) FROM increments") == [(110.0,)]


def test_a_figure_that_cannot_be_is_the_senders_to_mend(page: Served) -> None:
    """Not a full disk: to send it again would change nothing."""
    page.post("traces", span(attributes={"endturn.continuation.index": -(2**63), "gen_ai.operation.name": "chat"}))
    agent = {"gen_ai.operation.name": "invoke_agent", "endturn.turn.repairs": 1}
    assert page.post("traces", span(spanId="b2" * 8, attributes=agent)).status == 400


def test_attributes_of_odd_types_are_kept_as_they_are(page: Served) -> None:
    """A column takes what fits it; what does not is still among the attributes."""
    odd = {"gen_ai.usage.output_tokens": "many", "endturn.stop.truncated": "yes", "gen_ai.request.model": 7,
           "nested": [1, "two", True]}  # fmt: skip
    assert page.post("traces", span(attributes=odd, start_ns=SECOND)).status == 200
    (found,) = page.store.read_rows("SELECT * FROM spans")
    assert (found["output_tokens"], found["truncated"], found["model"]) == (None, None, "7")
    assert json.loads(found["attributes"])["nested"] == [1, "two", True]


# --- Memory -------------------------------------------------------------------------------------------------------


async def _chunks(chunk: bytes, count: int, read: list[int]) -> Any:
    for _ in range(count):
        read.append(len(chunk))
        yield chunk


@pytest.mark.parametrize(
    ("encoding", "piece", "most_read"), [("", bytes(1000), 6), ("gzip", gzip.compress(bytes(1_000_000)), 1)]
)
async def test_a_body_that_is_too_long_is_refused_while_it_is_read(encoding: str, piece: bytes, most_read: int) -> None:
    """Of a hundred pieces no more are read than it takes to know; a gzipped one may be small."""
    read: list[int] = []
    with pytest.raises(otlp.BadRequest, match="longer than 5000 bytes") as refused:
        async with otlp.Room().body(_chunks(piece, 100, read), encoding, most=5000):
            pass
    assert (refused.value.status, len(read)) == (413, most_read)


async def test_bodies_that_come_at_once_fill_no_memory() -> None:
    """Where no room is left one is told to come again; when another is done with, there is room."""
    room = otlp.Room(3000)
    async with room.body(_chunks(bytes(1000), 2, []), ""):
        with pytest.raises(otlp.BadRequest, match="send this again") as refused:
            async with room.body(_chunks(bytes(1000), 2, []), ""):
                pass
        assert refused.value.status == 503
    async with room.body(_chunks(bytes(1000), 3, []), "") as content:
        assert len(content) == 3000


def test_a_body_of_many_small_rows_is_refused() -> None:
    """While rows are made of it, which take a hundred times as much memory."""
    body = span()
    body["resourceSpans"][0]["scopeSpans"][0]["spans"] *= 4
    assert otlp.read("traces", otlp.JSON, written(body), most_rows=4).size == 4
    with pytest.raises(otlp.BadRequest, match="more than 3 spans, events or points") as refused:
        otlp.read("traces", otlp.JSON, written(body), most_rows=3)
    assert refused.value.status == 413


def test_bodies_that_do_not_come_stop_no_other(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait; in the end they are told with 408."""

    def stalled() -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=20)
        connection.putrequest("POST", "/v1/traces")
        connection.putheader("Content-Type", otlp.JSON)
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
        return connection

    waiting = [stalled() for _ in range(50)]
    assert page.post("traces", span()).status == 200
    for connection in waiting:
        connection.close()
    monkeypatch.setattr("endturn.ui.otlp.BODY_S", 0.01)
    late = stalled()
    assert late.getresponse().status == 408
    late.close()
