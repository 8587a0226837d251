"""OTLP over HTTP: what is none, what is none in parts, and what is too much."""

from __future__ import annotations

import gzip
import http.client
import json
import time
from typing import Any

import pytest
from google.rpc.status_pb2 import Status

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS
from endturn.ui import otlp
from tests.ui.support import TRACE, Served, counted, log, numbers, span, written

TURNS = INDICATORS["turns"].count


def test_json_is_read_as_protobuf_is(page: Served) -> None:
    """Gzipped or not; ids are hexadecimal there, and 64-bit numbers text; every attribute is kept."""
    request = span(attributes={"gen_ai.usage.output_tokens": 40, "nested": [1, "two", True]})
    for zipped in (True, False):
        answer = page.post("traces", request, zipped=zipped)
        assert (answer.status, answer.headers["content-type"], answer.text) == (200, "application/json", "{}")
    (found,) = page.store.read_rows("SELECT * FROM spans")
    assert (found["trace_id"], found["span_id"], found["output_tokens"]) == (TRACE, "00f067aa0ba902b7", 40)
    kept = json.loads(found["attributes"])
    assert (kept["gen_ai.request.model"], kept["nested"]) == ("gpt-5", [1, "two", True])


JSON, ZIPPED = {"Content-Type": otlp.JSON}, {"Content-Type": otlp.JSON, "Content-Encoding": "gzip"}
BAD: dict[str, tuple[bytes, dict[str, str], int, str]] = {
    "no protobuf": (b"\xff\xff\xff", {"Content-Type": otlp.PROTOBUF}, 400, "is not an ExportTraceServiceRequest"),
    "no JSON": (b"{", JSON, 400, "is not an ExportTraceServiceRequest"),
    "another JSON": (b'{"resourceSpans": 7}', JSON, 400, "resourceSpans"),
    "an odd id": (written(span(traceId="xyz")), JSON, 400, "non-hexadecimal"),
    "deep": (b'{"resourceSpans":' + b"[" * 100_000, JSON, 400, "ExportTraceServiceRequest"),
    "null": (b"null", JSON, 400, "no JSON object"),
    "in capitals": (b"{", {"Content-Type": "Application/JSON"}, 400, "ExportTraceServiceRequest"),
    "more gzip": (gzip.compress(b"{") + gzip.compress(b"}"), ZIPPED, 400, "one gzip member"),
    "no gzip": (b"{}", ZIPPED, 400, "is not gzip"),
    "half": (gzip.compress(b"{}" * 99)[:-9], ZIPPED, 400, "is incomplete"),
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
    assert page.store.read_tuples("SELECT count(*) FROM spans") == [(0,)]


def test_a_refusal_waits_for_nothing_after_the_body(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the rest of a body may be waited for: none is left of one that has come wholly."""
    monkeypatch.setattr("endturn.ui.access.DRAIN_S", 3600)  # `ask` gives up after 20 seconds
    for origin, status in (({}, 400), ({"Origin": "http://evil.example"}, 403)):
        assert page.ask("/v1/traces", b"{", JSON | origin).status == status


@pytest.mark.slow
def test_a_connection_stays_open_between_two_exports(page: Served) -> None:
    """One that is closed after 5 idle seconds resets the next request of an SDK that exports every 5 seconds."""
    connection = http.client.HTTPConnection(page.url.removeprefix("http://"), timeout=20)
    for pause_s in (0, 6):
        time.sleep(pause_s)
        connection.request("POST", "/v1/traces", written(span()), JSON)
        socket_ = connection.sock
        assert (connection.getresponse().read(), connection.sock is socket_) == (b"{}", True)
    connection.close()


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
    count = page.store.read_tuples("SELECT count(*) FROM spans")[0][0] + numbers(page.store).total(TURNS)
    assert count == kept


def test_a_number_that_no_column_takes_is_left_out(page: Served) -> None:
    """The span is stored without it, and the turn's later spans are stored too."""
    page.post("traces", span(attributes={"endturn.continuation.index": -(2**63), "gen_ai.operation.name": "chat"}))
    agent = {"gen_ai.operation.name": "invoke_agent", "endturn.turn.repairs": 1}
    assert page.post("traces", span(spanId="b2" * 8, attributes=agent)).status == 200
    assert page.store.read_tuples("SELECT continuations, repairs FROM turns") == [(0, 1)]


BOUNDS = {
    "NaN": ["NaN"], "infinite": ["Infinity"], "falling": [2, 1], "equal": [1, 1], "NaN between": [1, "NaN", 2],
    "many": list(range(300)),
}  # fmt: skip


@pytest.mark.parametrize("wrong", BOUNDS.values(), ids=list(BOUNDS))
def test_a_histogram_with_bounds_that_cannot_be_is_refused(page: Served, wrong: list[Any]) -> None:
    """With a partial success that says why; the histogram beside it is stored."""

    def histogram(bounds: list[Any]) -> dict[str, Any]:
        counts = ["1"] * (len(bounds) + 1)
        return {"timeUnixNano": str(NOW), "sum": 1, "bucketCounts": counts, "explicitBounds": bounds}

    data = {"dataPoints": [histogram(wrong), histogram([1, 2])], "aggregationTemporality": 1}
    metrics = [{"name": schema.TURN_DURATION.name, "histogram": data}]
    answer = page.post("metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
    refused = json.loads(answer.content)["partialSuccess"]
    says = "more than 256 buckets" if len(wrong) > 256 else "rising order"
    assert (answer.status, refused["rejectedDataPoints"], says in refused["errorMessage"]) == (200, "1", True)
    assert page.store.read_tuples("SELECT bounds FROM series") == [([1.0, 2.0, float("inf")],)]


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
        async with otlp.BodyBudget().body(_chunks(piece, 100, read), encoding, most=5000):
            pass
    assert (refused.value.status, len(read)) == (413, most_read)


async def test_bodies_that_come_at_once_fill_no_memory() -> None:
    """Where no room is left one is told to come again; when another is done with, there is room."""
    room = otlp.BodyBudget(3000)
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
    assert otlp.parse_request("traces", otlp.JSON, written(body), most_rows=4).size == 4
    with pytest.raises(otlp.BadRequest, match="more than 3 spans, events or points") as refused:
        otlp.parse_request("traces", otlp.JSON, written(body), most_rows=3)
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
