"""Sessions of OTLP exporters: what a receiver refuses is a failed export, reported once without secrets."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint, PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from endturn.instrumentation.export_session import REMEDIES, RETRIED, ExportSession, explain
from endturn.instrumentation.sdk_providers import drops_counted
from endturn.settings import redact_address
from tests.support.processes import free_port
from tests.support.serving import ReceivedRequest, serving

COUNTERS = {
    "traces": "otel.sdk.exporter.span.exported",
    "logs": "otel.sdk.exporter.log.exported",
    "metrics": "otel.sdk.exporter.metric_data_point.exported",
}
Export = Callable[[], object]


@contextmanager
def answering(*statuses: int) -> Iterator[tuple[str, list[int]]]:
    """A receiver that answers so, one after the other and then always with the last: its address, and its answers."""
    given: list[int] = []

    def answer(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        given.append(statuses[min(len(given), len(statuses) - 1)])
        return given[-1], b"the receiver's words", "text/plain"

    with serving(answer, keep_alive=True) as url:
        yield url, given


def exporter_of(signal: str, session: ExportSession, url: str, meters: MeterProvider) -> Export:
    """A real exporter through a session, behind a real provider: call it to export one item."""
    made: dict[str, Any] = {"endpoint": f"{url}/v1/{signal}", "session": session, "meter_provider": meters}
    with drops_counted():
        match signal:
            case "traces":
                tracers = TracerProvider(shutdown_on_exit=False)
                tracers.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(**made)))
                return lambda: tracers.get_tracer("test").start_span("work").end()
            case "logs":
                loggers = LoggerProvider(shutdown_on_exit=False)
                loggers.add_log_record_processor(SimpleLogRecordProcessor(OTLPLogExporter(**made)))
                return lambda: loggers.get_logger("test").emit(event_name="work")
            case _:
                reader = PeriodicExportingMetricReader(OTLPMetricExporter(**made), 600_000)
                measured = MeterProvider([reader], shutdown_on_exit=False)
                counter = measured.get_meter("test").create_counter("work")
                return lambda: (counter.add(1), reader.force_flush())


def exported(reader: InMemoryMetricReader, signal: str) -> dict[str, float]:
    """How many items of a signal the SDK counts as exported, by their `error.type`, "" without."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        str((point.attributes or {}).get("error.type", "")): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == COUNTERS[signal]
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


def impatient(session: ExportSession) -> ExportSession:
    """The session, whose adapter gives up at the first response."""
    never = Retry(total=0, status_forcelist=RETRIED, allowed_methods=None, raise_on_status=False)
    session.mount("http://", HTTPAdapter(max_retries=never))
    return session


@pytest.mark.parametrize("signal", ["traces", "logs"])
@pytest.mark.parametrize("status", [*REMEDIES, 301, 418, 599])
def test_a_refused_batch_is_counted_and_reported_once(
    status: int, signal: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By its status, in the SDK's own counter and in one line of the log, however many batches follow."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    with answering(status) as (url, _):
        secret = url.replace("://", "://user:hidden@")
        export = exporter_of(signal, impatient(ExportSession(signal)), secret, meters)
        export()
        export()
    assert exported(reader, signal) == {str(status): 2}
    (line,) = [each.getMessage() for each in caplog.records if each.name == "endturn"]
    assert f"{signal} are refused: {url}/v1/{signal} answered {status}" in line
    assert "hidden" not in caplog.text
    assert "the receiver's words" not in caplog.text
    assert "{" not in line


def test_refused_metrics_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with answering(404) as (url, _):
        export = exporter_of("metrics", ExportSession("metrics"), url, MeterProvider(shutdown_on_exit=False))
        export()
    (line,) = [each.getMessage() for each in caplog.records if each.name == "endturn"]
    assert "OTEL_METRICS_EXPORTER=none" in line


@pytest.mark.parametrize(
    ("status", "signal", "said"),
    [
        (
            413,
            "traces",
            "takes: set OTEL_BSP_MAX_EXPORT_BATCH_SIZE to less than 512, record less content, or raise the",
        ),
        (413, "logs", "takes: set OTEL_BLRP_MAX_EXPORT_BATCH_SIZE to less than 512, record less content, or raise the"),
        (413, "metrics", "takes: raise the receiver's limit. "),
        (
            500,
            "metrics",
            "log; Prometheus refuses delta metrics so (OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=",
        ),
        (500, "traces", "; read the receiver's log. "),
    ],
)
def test_a_remedy_is_that_of_the_signal(status: int, signal: str, said: str) -> None:
    request = requests.Request("POST", f"http://h/v1/{signal}").prepare()
    assert said in explain(signal, request, status)


@pytest.mark.parametrize("signal", COUNTERS)
def test_a_receiver_that_is_busy_once_loses_nothing(signal: str, caplog: pytest.LogCaptureFixture) -> None:
    """A batch is sent again: one of metrics by its exporter, others by the session."""
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    with answering(503, 200) as (url, given):
        exporter_of(signal, ExportSession(signal), url, meters)()
    assert given == [503, 200]
    assert exported(reader, signal) == {"": 1}
    assert not [each for each in caplog.records if each.name == "endturn"]


def test_a_response_that_is_accepted_is_returned() -> None:
    with answering(202) as (url, _):
        response = ExportSession("traces").post(f"{url}/v1/traces", data=b"")
    assert response.status_code == 202


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces"),
        ("https://user:key@otlp.example/otlp/v1/logs?api_key=key#key", "https://otlp.example/otlp/v1/logs"),
        (
            "https://example/receiver/v1/otlp/ZaVnC4dhaV3uTHIz0F/v1/traces",
            "https://example/receiver/v1/otlp/…/v1/traces",
        ),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
    ],
)
def test_an_address_is_shown_without_secrets(url: str, shown: str) -> None:
    assert redact_address(url) == shown


@pytest.mark.parametrize(
    ("url", "error"),
    [
        ("http://u:s3cr3t@127.0.0.1:{port}/v1/metrics?key=s3cr3t", requests.ConnectionError),
        ("127.0.0.1:{port}/?api_key=s3cr3t", requests.exceptions.InvalidSchema),
        ("http://:s3cr3t@/?api_key=s3cr3t", requests.exceptions.InvalidURL),
    ],
)
def test_an_error_s_text_has_no_secrets(url: str, error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    """The exporter logs it: the class is as it was, and its text says where and why."""
    with pytest.raises(error) as raised:
        ExportSession("metrics").post(url.format(port=free_port()), data=b"")
    assert error.__name__ in str(raised.value)
    assert "s3cr3t" not in "".join(traceback.format_exception(raised.value))
    assert "s3cr3t" not in caplog.text


def test_no_receiver_is_no_refusal(caplog: pytest.LogCaptureFixture) -> None:
    """The exporter reports that itself."""
    with answering(200) as (url, _):
        pass
    with pytest.raises(requests.ConnectionError):
        impatient(ExportSession("traces")).post(f"{url}/v1/traces", data=b"")
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
