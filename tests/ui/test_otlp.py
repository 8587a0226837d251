"""OTLP over HTTP: from the real SDK's exporters, in both encodings, and what is none."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from collections.abc import Iterator
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
from tests.ui.support import SECOND, Served, log, numbers, span, span_of_others

RESOURCE = Resource({"service.name": "agent", "service.namespace": "shop", "service.instance.id": "one"})


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_the_sdk_s_spans_and_events_arrive(page: Served, compression: Compression) -> None:
    """As the exporters send them."""
    tracers = TracerProvider(resource=RESOURCE)
    tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{page.url}/v1/traces", compression=compression)))
    loggers = LoggerProvider(resource=RESOURCE)
    loggers.add_log_record_processor(
        SimpleLogRecordProcessor(OTLPLogExporter(f"{page.url}/v1/logs", compression=compression))
    )
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
    assert (found["service"], found["model"], found["reason"], found["truncated"]) == (
        "shop/agent", "gpt-5", "max_tokens", True,
    )  # fmt: skip
    (event,) = page.store.read_rows("SELECT * FROM events")
    assert event["trace_id"] == found["trace_id"]
    (turn,) = page.store.read_rows("SELECT * FROM turns")
    assert (turn["state"], turn["outcome"]) == ("unfinished", "not_continued")


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
    """Ids are hexadecimal there, and 64-bit numbers text."""
    answer = page.post("traces", span(attributes={"gen_ai.usage.output_tokens": 40}), zipped=True)
    assert (answer.status, answer.headers["content-type"], answer.text) == (200, "application/json", "{}")
    (found,) = page.store.read_rows("SELECT * FROM spans")
    assert (found["trace_id"], found["span_id"]) == ("0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7")
    assert found["output_tokens"] == 40
    assert json.loads(found["attributes"])["gen_ai.request.model"] == "gpt-5"


def test_the_same_export_again_changes_nothing(page: Served) -> None:
    """An exporter that did not hear the answer sends it again."""
    request = span()
    for _ in range(2):
        assert page.post("traces", request).status == 200
    assert page.store.read("SELECT count(*) FROM spans") == [(1,)]


BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no protobuf": (b"\xff\xff\xff", {"Content-Type": otlp.PROTOBUF}, 400, "is no ExportTraceServiceRequest"),
    "no JSON": (b"{", {"Content-Type": otlp.JSON}, 400, "is no ExportTraceServiceRequest"),
    "another JSON": (b'{"resourceSpans": 7}', {"Content-Type": otlp.JSON}, 400, "resourceSpans"),
    "an odd id": (
        json.dumps(span(traceId="xyz")).encode(), {"Content-Type": otlp.JSON}, 400, "non-hexadecimal",
    ),
    "deep": (b'{"resourceSpans":' + b"[" * 100_000, {"Content-Type": otlp.JSON}, 400, "ExportTraceServiceRequest"),
    "a number": (b"5", {"Content-Type": otlp.JSON}, 400, "no JSON object"),
    "null": (b"null", {"Content-Type": otlp.JSON}, 400, "no JSON object"),
    "a list": (b"[]", {"Content-Type": otlp.JSON}, 400, "no JSON object"),
    "in capitals": (b"{", {"Content-Type": "Application/JSON"}, 400, "ExportTraceServiceRequest"),
    "more gzip": (
        gzip.compress(b"{") + gzip.compress(b"}"), {"Content-Type": otlp.JSON, "Content-Encoding": "gzip"}, 400,
        "one gzip member",
    ),
    "no gzip": (b"{}", {"Content-Type": otlp.JSON, "Content-Encoding": "gzip"}, 400, "is not gzip"),
    "half": (gzip.compress(b"{}" * 99)[:-9], {"Content-Type": otlp.JSON, "Content-Encoding": "gzip"}, 400, "too early"),
    "brotli": (b"{}", {"Content-Type": otlp.JSON, "Content-Encoding": "br"}, 415, "send gzip"),
    "text": (b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
    "nothing said": (b"{}", {}, 415, "application/json"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_otlp_is_refused_with_a_reason(page: Served, name: str) -> None:
    """400, or 415, with a `google.rpc.Status` in the sender's encoding; nothing is kept."""
    body, headers, status, why = BAD[name]
    answer = page.ask("/v1/traces", body, headers)
    assert answer.status == status
    if headers.get("Content-Type", "").lower() == otlp.JSON:
        assert why in json.loads(answer.content)["message"]
    else:
        assert why in Status.FromString(answer.content).message
    assert page.store.read("SELECT count(*) FROM spans") == [(0,)]


def test_one_bad_span_is_left_out_and_told_of(page: Served) -> None:
    """The rest is kept: a partial success."""
    request = span()
    spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append(spans[0] | {"spanId": "ff"})
    answer = json.loads(page.post("traces", request).content)
    assert answer["partialSuccess"]["rejectedSpans"] == "1"
    assert "span id 8" in answer["partialSuccess"]["errorMessage"]
    assert page.store.read("SELECT count(*) FROM spans") == [(1,)]


FAR = str(1 << 63)
COUNT = {"isMonotonic": True, "dataPoints": [{"startTimeUnixNano": FAR, "timeUnixNano": "1", "asInt": "1"}]}


@pytest.mark.parametrize(
    ("signal", "request_", "rejected"),
    [
        ("traces", span(startTimeUnixNano=FAR, endTimeUnixNano="1"), "rejectedSpans"),
        ("logs", log("an event", timeUnixNano="0", observedTimeUnixNano=FAR), "rejectedLogRecords"),
        (
            "metrics",
            {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": schema.TURNS.name, "sum": COUNT}]}]}]},
            "rejectedDataPoints",
        ),
    ],
    ids=["traces", "logs", "metrics"],
)
def test_a_time_that_no_column_holds_is_told_of(page: Served, signal: str, request_: Any, rejected: str) -> None:
    """Wherever it stands."""
    answer = page.post(signal, request_)
    assert (answer.status, json.loads(answer.content)["partialSuccess"][rejected]) == (200, "1")


def counted(*points: tuple[int, int, int], delta: bool = False, **resource: str) -> dict[str, Any]:
    """An OTLP JSON request with points of the counter of turns: since when, when, how many."""
    data = [
        {"startTimeUnixNano": str(started), "timeUnixNano": str(at), "asInt": str(value)}
        for started, at, value in points
    ]
    sum_ = {"isMonotonic": True, "aggregationTemporality": 1 if delta else 2, "dataPoints": data}
    about = [{"key": key.replace("_", "."), "value": {"stringValue": value}} for key, value in resource.items()]
    scopes = [{"metrics": [{"name": schema.TURNS.name, "sum": sum_}]}]
    return {"resourceMetrics": [{"resource": {"attributes": about}, "scopeMetrics": scopes}]}


def test_a_counter_that_falls_is_told_of(page: Served) -> None:
    """An increment below nothing is none."""
    now = time.time_ns()
    request = counted((now - 9, now - 3, 4), (now - 3, now - 2, -2), (now - 2, now - 1, 1), delta=True)
    answer = json.loads(page.post("metrics", request).content)["partialSuccess"]
    assert (answer["rejectedDataPoints"], "never falls" in answer["errorMessage"]) == ("1", True)
    assert numbers(page.store).total(INDICATORS["turns"].count) == 5


def test_processes_without_an_id_are_told_apart(page: Served) -> None:
    """By when they began to count; what two of them count in turns is counted once."""
    now = time.time_ns()
    for n in range(1, 5):
        for began in (now - 60 * SECOND, now - 50 * SECOND):
            assert page.post("metrics", counted((began, now - (5 - n) * SECOND, n))).status == 200
    assert numbers(page.store).total(INDICATORS["turns"].count) == 4 + 4


def test_deltas_that_come_late_are_counted_once(page: Served) -> None:
    """In whatever order, and however often they come."""
    now = time.time_ns()
    steps = [(now - n * SECOND, now - (n - 1) * SECOND, n) for n in (1, 3, 2, 3, 4, 1)]
    for step in (*steps, *steps):
        assert page.post("metrics", counted(step, delta=True)).status == 200
    assert page.post("metrics", counted(*steps, delta=True)).status == 200
    assert numbers(page.store).total(INDICATORS["turns"].count) == 1 + 2 + 3 + 4


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
    now = time.time_ns()
    for after, (value, flags) in enumerate([(100, 0), (0, 1), (110, 0)]):
        each = {
            "startTimeUnixNano": str(now - SECOND), "timeUnixNano": str(now + after * SECOND), "asInt": str(value),
            "flags": flags, "attributes": [],
        }  # fmt: skip
        data = {"dataPoints": [each], "aggregationTemporality": 2, "isMonotonic": True}
        metric = {"name": schema.TURNS.name, "sum": data}
        page.post("metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]})
    assert page.store.read("SELECT sum(added) FROM increments") == [(110.0,)]


def test_a_figure_that_cannot_be_is_the_senders_to_mend(page: Served) -> None:
    """Not a full disk: to send it again would change nothing."""
    least = {"endturn.continuation.index": -(2**63), "gen_ai.operation.name": "chat"}
    page.post("traces", span(attributes=least))
    request = span(spanId="b2" * 8, attributes={"gen_ai.operation.name": "invoke_agent", "endturn.turn.repairs": 1})
    answer = page.ask("/v1/traces", json.dumps(request).encode(), {"Content-Type": otlp.JSON})
    assert answer.status == 400


def test_a_metric_of_another_kind_is_told_of(page: Served) -> None:
    """An exponential histogram of ours has no bounds to compare."""
    data = {"dataPoints": [{"timeUnixNano": "1", "count": "1"}], "aggregationTemporality": 2}
    metric = {"name": schema.TURN_DURATION.name, "exponentialHistogram": data}
    request = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric, {"name": "another", "gauge": {}}]}]}]}
    answer = json.loads(page.post("metrics", request).content)["partialSuccess"]
    assert answer["rejectedDataPoints"] == "1"
    assert "is a histogram with explicit bounds, not exponential_histogram" in answer["errorMessage"]


async def _chunks(chunk: bytes, count: int, read: list[int]) -> Any:
    for _ in range(count):
        read.append(len(chunk))
        yield chunk


@pytest.mark.parametrize("encoding", ["", "gzip"])
async def test_a_body_that_is_too_long_is_refused_while_it_is_read(encoding: str) -> None:
    """Of a hundred pieces no more are read than it takes to know; a gzipped one may be small."""
    piece = gzip.compress(bytes(1000)) if encoding else bytes(1000)
    read: list[int] = []
    if encoding:
        piece = gzip.compress(bytes(1_000_000))
    with pytest.raises(otlp.BadRequest, match="longer than 5000 bytes") as refused:
        async with otlp.Room().body(_chunks(piece, 100, read), encoding, most=5000):
            pass
    assert refused.value.status == 413
    assert len(read) == (1 if encoding else 6)


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
    (scope,) = body["resourceSpans"][0]["scopeSpans"]
    scope["spans"] *= 4
    content = json.dumps(body).encode()
    assert otlp.read("traces", otlp.JSON, content, most_rows=4).size == 4
    with pytest.raises(otlp.BadRequest, match="more than 3 spans, events or points") as refused:
        otlp.read("traces", otlp.JSON, content, most_rows=3)
    assert refused.value.status == 413


def test_an_oversized_body_is_answered(page: Served) -> None:
    """With 413, though its sender is still sending; nothing is kept."""

    def chunks() -> Iterator[bytes]:
        for _ in range(otlp.MOST_BYTES // 65536 * 2):
            yield bytes(65536)

    headers = {"Content-Type": otlp.PROTOBUF, "Content-Encoding": "gzip"}
    answer = page.ask("/v1/traces", gzip.compress(bytes(otlp.MOST_BYTES + 1)), headers)
    assert answer.status == 413
    assert "smaller batches" in Status.FromString(answer.content).message
    answer = page.ask("/v1/traces", chunks(), {"Content-Type": otlp.PROTOBUF})
    assert (answer.status, "smaller batches" in Status.FromString(answer.content).message) == (413, True)


def test_attributes_of_odd_types_are_kept_as_they_are(page: Served) -> None:
    """A column takes what fits it; what does not is still among the attributes."""
    odd = {"gen_ai.usage.output_tokens": "many", "endturn.stop.truncated": "yes", "gen_ai.request.model": 7,
           "nested": [1, "two", True]}  # fmt: skip
    assert page.post("traces", span(attributes=odd, start_ns=SECOND)).status == 200
    (found,) = page.store.read_rows("SELECT * FROM spans")
    assert (found["output_tokens"], found["truncated"], found["model"]) == (None, None, "7")
    assert json.loads(found["attributes"])["nested"] == [1, "two", True]


def test_bodies_that_do_not_come_stop_no_other(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait; in the end they are told with 408."""
    stalled = [http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=20) for _ in range(50)]
    for connection in stalled:
        connection.putrequest("POST", "/v1/traces")
        connection.putheader("Content-Type", otlp.JSON)
        connection.putheader("Content-Length", "100")
        connection.endheaders(b"{")
    assert page.post("traces", span()).status == 200
    for connection in stalled:
        connection.close()
    monkeypatch.setattr("endturn.ui.otlp.BODY_S", 0.01)
    late = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=20)
    late.putrequest("POST", "/v1/traces")
    late.putheader("Content-Length", "100")
    late.endheaders(b"{")
    assert late.getresponse().status == 408
    late.close()
